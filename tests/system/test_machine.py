# SPDX-License-Identifier: Apache-2.0
"""The microvm engine alone, with a real machine: boot, pause, ends, and its jail from outside."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BUILD

MACHINE = BUILD / "tests/system/machine"
AGENT = BUILD / "cubby-agent"
UID = 612345 if os.geteuid() == 0 else 0


class Files:
    def __init__(self, folder):
        self.home = folder / "home"
        self.rootfs, self.disk, self.console = (folder / n for n in ("root", "disk", "console"))
        tree = folder / "tree"
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            (tree / name).mkdir(parents=True)
        subprocess.run(["mkfs.erofs", "--quiet", self.rootfs, tree], check=True)
        with open(self.disk, "wb") as disk:
            disk.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.disk], check=True)

    def arguments(self, *steps, agent=AGENT, memory=256):
        self.console.unlink(missing_ok=True)
        return [MACHINE, self.home, agent, self.rootfs, self.disk, self.console, str(memory),
                str(UID), *steps]

    def run(self, *steps, env=None, **options):
        done = subprocess.run(self.arguments(*steps, **options), timeout=150,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        done.values = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("machine"))


def test_boot_pause_and_power_off(files):
    done = files.run("hello", "pause", "unpause", "off")
    assert done.returncode == 0, (done, files.console.read_text())
    assert done.values["isolation"] in ("emulated", "hardware")
    assert (done.values["clean"], done.values["end"]) == ("1", "the guest powered off")
    # no serial console: the log stays empty unless something is wrong
    assert files.console.read_text() == ""
    if done.values["isolation"] == "emulated":
        assert done.stderr.count("no hardware virtualisation") == 1


def test_console_on_demand(files):
    done = files.run("hello", "off", env={"MACHINE_CONSOLE": "1"})
    assert done.returncode == 0, done
    assert files.console.stat().st_size > 0 or done.values["clean"] == "1"


def test_kernel_panic_is_no_clean_end(files, tmp_path):
    # a program that the kernel starts as PID 1 and that ends at once
    broken = tmp_path / "init"
    source = tmp_path / "init.c"
    source.write_text("int main(void) { return 3; }\n")
    subprocess.run(["cc", "-static", "-o", broken, source], check=True)
    done = files.run("end", agent=broken)
    assert done.returncode == 0, done
    assert done.values["clean"] == "0"
    assert "panicked" in done.values["end"]


def test_killed_vmm(files):
    done = files.run("kill")
    assert done.returncode == 0, done
    assert done.values["clean"] == "0"
    assert "killed by signal 9" in done.values["end"]


def test_memory_too_small_to_start(files):
    done = files.run("hello", memory=1)
    assert done.returncode == 1
    assert "64 MiB" in done.stderr


def status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_vmm_in_its_jail(files):
    process = subprocess.Popen(files.arguments("hello", "jail"), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pid = None
    try:
        for line in process.stdout:
            if line.startswith("pid "):
                pid = int(line.split()[1])
                break
        assert pid is not None
        vmm = status(pid)
        assert vmm["NoNewPrivs"] == "1" and vmm["Seccomp"] == "2"
        for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
            if name != "CapBnd" or UID:
                assert int(vmm[name], 16) == 0, name
        assert len(os.listdir(f"/proc/{pid}/fd")) < 40
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert not [w for w in words if os.fsencode(files.home.parent) in w]
        environment = Path(f"/proc/{pid}/environ")
        if UID:
            assert set(vmm["Uid"].split()) == {str(UID)} and vmm["Groups"].strip() == ""
            assert environment.read_bytes() == b"LANG=C\0"
            for space in ("mnt", "pid", "net", "ipc", "uts"):
                assert os.readlink(f"/proc/{pid}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}")
            tree = [line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
            assert "/etc/passwd" not in tree and not [t for t in tree if t.startswith("/tmp")]
        # the VMM ends with whoever started it, however that ends
        process.kill()
        process.wait()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                if status(pid)["State"].startswith("Z"):
                    break
            except FileNotFoundError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("the VMM outlived its parent")
    finally:
        process.kill()
        process.wait()
