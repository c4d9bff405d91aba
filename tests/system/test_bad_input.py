# SPDX-License-Identifier: Apache-2.0
"""Wrong input: exit 125 (usage 2), the thing named, nothing left behind."""

import os
import subprocess

import pytest
from conftest import BUILD, Cubby


def test_unknown_image(cubby):
    cubby.fails("run", "no-such-image", "true", says="no-such-image")
    cubby.fails("create", "no-such-image:tag", "true", says="no-such-image")


@pytest.mark.parametrize("flag, value, says", [
    ("-m", "0", "memory"), ("-m", "1M", "memory"), ("-m", "12x", "12x"), ("-m", "-5M", "-5M"),
    ("-m", "999999999G", "memory"), ("-m", "", "memory"), ("-m", "1e3M", "1e3M"),
    ("--cpus", "0", "cpus"), ("--cpus", "-1", "-1"), ("--cpus", "nan", "nan"),
    ("--cpus", "99999", "cpus"), ("--cpus", "1.5x", "1.5x"),
    ("--disk", "0", "disk"), ("--disk", "1", "disk"), ("--disk", "999999999T", "disk"),
    ("--timeout", "0x", "0x"), ("--timeout", "-1s", "-1s"), ("--timeout", "soon", "soon"),
    ("--ttl", "-1s", "-1s"), ("--ttl", "1y", "1y"),
    ("-e", "1A=b", "1A"), ("-e", "A-B=c", "A-B"), ("-e", "=x", "''"),
    ("--name", "-bad", "-bad"), ("--name", "a/b", "a/b"), ("--name", "x" * 64, "name"),
    ("--label", "=x", "label"), ("--hostname", "a_b!", "a_b!"),
    ("--hostname", "h" * 65, "hostname"), ("--engine", "warp", "warp"),
    ("--accel", "magic", "magic"), ("--pids-limit", "0x", "0x"), ("--env-file", "/no/file", "/no/file"),
    ("--kernel", "/no/kernel", "/no/kernel"),
])
def test_flags_out_of_range(cubby, flag, value, says):
    before = cubby.ok("ps", "-a", "-q")
    result = cubby("run", f"{flag}={value}" if flag.startswith("--") else flag,
                   *([] if flag.startswith("--") else [value]), "busybox", "true")
    assert result.code in (2, 125), result
    assert says.lower() in result.err.lower(), result
    assert cubby.ok("ps", "-a", "-q") == before


@pytest.mark.parametrize("flag", [
    ["-v", "/a:/b"], ["--volume", "/a:/b"], ["--mount", "type=bind,src=/a,dst=/b"],
    ["-p", "80:80"], ["--publish", "80:80"], ["--network", "host"], ["--network", "bridge"],
    ["--privileged"], ["--gpus", "all"], ["--device", "/dev/kvm"], ["--cap-add", "SYS_ADMIN"],
    ["--security-opt", "seccomp=unconfined"], ["--restart", "always"],
])
def test_what_is_not_offered_is_refused(cubby, flag):
    result = cubby("run", *flag, "busybox", "true")
    assert result.code in (2, 125), result
    assert flag[0].lstrip("-") in result.err and len(result.err) > 40, result


def test_network_none_is_accepted(cubby):
    cubby.ok("create", "--network", "none", "--name", "alone", "busybox", "true")


@pytest.mark.parametrize("arguments", [
    ["frobnicate"], ["run"], ["run", "--no-such-flag", "busybox"], ["exec"], ["exec", "box"],
    ["image"], ["image", "frobnicate"], ["rename", "one"], ["kill", "-s", "NOSUCH", "box"], [],
])
def test_usage(cubby, arguments):
    result = cubby(*arguments)
    assert result.code in (2, 125), result
    assert result.err or result.out


def test_near_misses_are_suggested(cubby):
    assert "exec" in cubby("exce", "box").err
    assert "--memory" in cubby("run", "--memroy", "1G", "busybox").err


def test_bad_workdir_of_a_run(cubby):
    cubby.fails("run", "-m", "256M", "-w", "/no/such", "busybox", "true", says="/no/such")
    assert cubby.ok("ps", "-a", "--filter", "status=created", "-q") == ""


def test_no_command(cubby):
    result = cubby("run", "busybox")
    assert result.code in (2, 125) and "command" in result.err, result


def test_no_qemu(cubby):
    result = cubby("run", "busybox", "true", env={"PATH": "/nonexistent"})
    assert result.code == 125 and "qemu" in result.err.lower(), result


def test_no_agent_beside_the_command(cubby):
    result = cubby("run", "busybox", "true", env={"CUBBY_LIBEXEC": "/nonexistent"})
    assert result.code == 125 and "/nonexistent" in result.err, result


def test_no_kernel(own_home, busybox_tar, tmp_path):
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    garbage = tmp_path / "vmlinuz"
    garbage.write_bytes(b"MZ" + bytes(100_000))
    own_home.fails("run", "--kernel", garbage, "busybox", "true", says="vmlinuz")
    own_home.fails("kernel", "ensure", "/no/such/kernel", says="/no/such/kernel")
    assert own_home.ok("ps", "-a", "-q") == ""


def test_insisting_on_kvm_without_a_usable_one(cubby):
    doctor = cubby("doctor").out.decode().lower()
    result = cubby("run", "-m", "256M", "--accel", "kvm", "busybox", "true")
    if result.code == 0:
        assert "hardware" in doctor
    else:
        assert result.code == 125 and "kvm" in result.err.lower(), result


def test_a_home_that_others_may_write(cubby, tmp_path):
    home = tmp_path / "open"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    Cubby(home).fails("ps", says=str(home))


@pytest.mark.parametrize("kind", ["file", "link", "impossible"])
def test_a_home_that_is_none(tmp_path, kind):
    home = tmp_path / "home"
    if kind == "file":
        home.write_text("")
    elif kind == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        home.symlink_to(tmp_path / "target")
    else:
        home = "/proc/none"
    Cubby(home).fails("ps", says=str(home))


def test_full_host_disk(cubby, busybox_tar, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mount = tmp_path / "small"
    mount.mkdir(mode=0o700)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", mount],
                          capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount here: {made.stderr.decode()}")
    try:
        small = Cubby(mount / "home")
        small.fails("image", "import", busybox_tar, "--name", "x", says="space")
        assert small.ok("images", "-q") == ""
        assert list((mount / "home" / "tmp").iterdir()) == []
    finally:
        subprocess.run(["umount", mount], check=True)


def test_closed_standard_streams(cubby):
    done = subprocess.run(["sh", "-c", f"exec {BUILD}/cubby ps <&- >&- 2>&-"],
                          env=cubby.environment(), check=False, timeout=30)
    assert done.returncode in (0, 125)


def test_an_umask_and_a_lost_folder_do_not_matter(cubby):
    script = (f"umask 000; d=$(mktemp -d); cd $d; rmdir $d; exec {BUILD}/cubby run -m 256M "
              "busybox echo fine")
    done = subprocess.run(["sh", "-c", script], env=cubby.environment(), capture_output=True,
                          check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"fine\n"), done.stderr
    assert cubby.home.stat().st_mode & 0o077 == 0
