# SPDX-License-Identifier: Apache-2.0
"""A box that uses up what it has hurts itself only, and recovers."""

import re

import pytest
from conftest import wait_for


@pytest.fixture(scope="module")
def victim(cubby):
    cubby.ok("run", "-d", "--name", "victim", "-m", "256M", "--disk", "64M", "--pids-limit",
             "300", "busybox", "sleep", "100000")
    yield "victim"
    cubby.ok("rm", "-f", "victim")


MODULE_BOXES = {"victim"}


def test_fork_bomb(cubby, victim):
    result = cubby("exec", "--timeout", "4s", victim, "sh", "-c", "b() { b | b & }; b; sleep 100",
                   timeout=60)
    assert result.code != 0
    assert cubby.ok("exec", victim, "echo", "alive") == "alive"


def test_full_disk_and_recovery(cubby, victim):
    result = cubby("exec", victim, "dd", "if=/dev/zero", "of=/big", "bs=1M")
    assert result.code == 1 and "No space" in result.err, result
    assert cubby.ok("exec", victim, "echo", "alive") == "alive"
    cubby.sh(victim, "rm /big; sync")
    wait_for(lambda: int(cubby.sh(victim, "df -m / | tail -n 1").split()[3]) > 12, 10, "room")
    cubby.sh(victim, "dd if=/dev/zero of=/small bs=1M count=8 && rm /small")


def test_inodes_used_up_and_recovery(cubby, victim):
    # 255 ends xargs at once
    script = ("mkdir /many; cd /many; seq 1 200000 | "
              "xargs -n 500 sh -c 'touch \"$@\" || exit 255' x || exit 3")
    result = cubby("exec", "--timeout", "40s", victim, "sh", "-c", script, timeout=90)
    assert result.code == 3 and "No space" in result.err, result
    assert cubby.ok("exec", victim, "echo", "alive") == "alive"
    cubby.ok("exec", victim, "rm", "-rf", "/many", timeout=120)


def test_memory_hog_is_told(cubby, victim):
    # tail keeps all of a line without an end in memory
    result = cubby("exec", victim, "sh", "-c", "tail /dev/zero", timeout=120)
    assert result.code == 137, result
    assert "memory" in result.err.lower(), result
    assert cubby.ok("exec", victim, "echo", "alive") == "alive"


def test_tmpfs_hog(cubby, victim):
    cubby("exec", victim, "sh", "-c", "dd if=/dev/zero of=/dev/shm/big bs=1M", timeout=120)
    assert cubby.ok("exec", victim, "echo", "alive") == "alive"
    cubby.sh(victim, "rm -f /dev/shm/big")


def test_open_files(cubby, victim):
    limit = int(cubby.sh(victim, "ulimit -n"))
    assert limit >= 1024
    assert cubby.sh(victim, "ulimit -c") == "0"


def test_the_vmm_is_in_its_jail(cubby, box):
    """What /proc tells of the processes of one box."""
    found = dict((name, pid) for pid, name in cubby.processes(box))
    qemu = [pid for name, pid in found.items() if name.startswith("qemu")][0]
    shim = found["cubby-shim"]
    for pid in (qemu, shim):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            text = status.read()
        assert re.search(r"NoNewPrivs:\s*1", text), text
        assert int(re.search(r"CapEff:\s*(\w+)", text).group(1), 16) == 0, text
        assert int(re.search(r"Uid:\s*(\d+)", text).group(1)) != 0, text
    with open(f"/proc/{qemu}/cmdline", "rb") as cmdline:
        arguments = cmdline.read().decode().split("\0")
    sandbox = arguments[arguments.index("-sandbox") + 1]
    for denied in ("obsolete=deny", "elevateprivileges=deny", "spawn=deny",
                   "resourcecontrol=deny"):
        assert denied in sandbox
    assert not any(str(cubby.home) in argument for argument in arguments)
    with open(f"/proc/{qemu}/environ", "rb") as environ:
        assert b"CUBBY" not in environ.read()
    with open(f"/proc/{qemu}/limits", encoding="ascii") as limits:
        assert re.search(r"Max core file size\s+0\s+0", limits.read())


def test_the_shim_is_small(cubby, box):
    shim = [pid for pid, name in cubby.processes(box) if name == "cubby-shim"][0]
    with open(f"/proc/{shim}/status", encoding="ascii") as status:
        rss = int(re.search(r"VmRSS:\s*(\d+)", status.read()).group(1))
    assert rss <= 3 * 1024, f"{rss} KiB"
