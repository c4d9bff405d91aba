# SPDX-License-Identifier: Apache-2.0
"""What root in a box cannot do, and what one box cannot see of another or the host."""

import json
import re
import time

import pytest
from conftest import wait_for


def cannot(cubby, box, script):
    result = cubby("exec", box, "sh", "-c", script)
    assert result.code != 0, result
    return result


def test_root_is_root_of_its_own_kernel(cubby, box):
    assert cubby.ok("exec", box, "id", "-u") == "0"
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as host:
        assert cubby.ok("exec", box, "cat", "/proc/sys/kernel/random/boot_id") != host.read().strip()


def test_the_agent_is_not_to_be_seen(cubby, box):
    names = cubby.sh(box, "cat /proc/[0-9]*/comm 2>/dev/null").split()
    # Process 1 of the box is a small init of its own; the agent is outside of what it sees.
    assert [name for name in names if "cubby" in name] == ["cubby-init"]
    assert cubby.ok("exec", box, "cat", "/proc/1/comm") == "cubby-init"
    assert "kthreadd" not in names


def test_no_raw_devices(cubby, box):
    names = cubby.sh(box, "find /dev -type b -o -name 'vport*' -o -name 'vd*' -o -name mem "
                          "-o -name kmsg -o -name 'hvc*' -o -name port")
    assert names == ""
    expected = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"}
    assert expected <= set(cubby.ok("exec", box, "ls", "/dev").split())


@pytest.mark.parametrize("device", ["b 254 0", "b 254 16", "b 253 0", "b 252 0", "c 1 1",
                                    "c 10 223", "c 251 1", "c 1 11"])
def test_cannot_make_devices(cubby, box, device):
    cannot(cubby, box, f"mknod /tmp/device {device}")


@pytest.mark.parametrize("script", [
    "mount -t tmpfs none /mnt", "mount -t proc none /mnt", "mount -o remount,rw /proc/sys",
    "mount --bind / /mnt", "umount /proc", "insmod /lib/x.ko", "swapon /tmp/x",
    "hostname changed", "date -s 2001-01-01; date +%Y | grep 2001", "reboot -f", "poweroff -f", "chroot /proc/1/root ls",
    "echo c > /proc/sysrq-trigger", "echo 1 > /proc/sys/kernel/sysrq",
    "echo x > /proc/sys/kernel/core_pattern", "echo 0 > /proc/sys/kernel/kptr_restrict",
    "dmesg | grep .", "cat /proc/kcore | head -c 1 | grep .",
    "ls /proc/1/root/init", "echo +memory > /sys/fs/cgroup/cgroup.subtree_control",
    "cat /proc/1/environ | grep .", "ls /proc/1/fd | grep .", "cat /proc/1/maps | grep .",
    "dd if=/proc/1/mem bs=1 count=1 skip=4194304", "echo x > /sys/kernel/uevent_helper",
    "cat /sys/firmware/acpi/tables/DSDT", "unshare -m true",
    "nsenter -t 1 -m true",
])
def test_root_is_refused(cubby, box, script):
    cannot(cubby, box, f"mkdir -p /mnt; touch /tmp/x; {script}")
    assert cubby.ok("exec", box, "echo", "alive") == "alive"


def test_capabilities_are_dockers(cubby, box):
    status = cubby.ok("exec", box, "cat", "/proc/self/status")
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert re.search(rf"{name}:\s*(\w+)", status), status
        caps = int(re.search(rf"{name}:\s*(\w+)", status).group(1), 16)
        # Docker's default is a80425fb; MKNOD (bit 27) is not given here.
        assert caps & ~0xA80425FB == 0, hex(caps)
        assert not caps & (1 << 27), hex(caps)
    user = cubby.ok("exec", "-u", "user", box, "cat", "/proc/self/status")
    assert int(re.search(r"CapEff:\s*(\w+)", user).group(1), 16) == 0


def test_no_network(cubby, box):
    assert cubby.ok("exec", box, "ls", "/sys/class/net").split() in (["lo"], [])
    links = cubby.sh(box, "cat /proc/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in links] == ["lo"]
    assert cubby.sh(box, "nc -l -p 5555 -e echo hi & sleep 0.5; nc 127.0.0.1 5555") == "hi"
    cannot(cubby, box, "nc -w 2 10.0.2.2 22")


def test_the_rootfs_of_the_image_is_never_written(cubby, box):
    cubby.sh(box, "echo changed > /etc/passwd.new; mv /etc/passwd /etc/passwd.old; "
                  "mv /etc/passwd.new /etc/passwd")
    assert "root" in cubby.ok("run", "-m", "256M", "busybox", "cat", "/etc/passwd")
    cubby.sh(box, "mv /etc/passwd.old /etc/passwd")


def test_kill_everything_leaves_the_agent(cubby):
    cubby.ok("run", "-d", "--name", "killed", "-m", "256M", "busybox", "sh", "-c",
             "trap '' TERM; while :; do sleep 1000; done")
    cubby("exec", "killed", "sh", "-c", "kill -9 1; kill -9 -1", timeout=30)
    # pid 1 of the box may be the agent's little init, which a box cannot kill; its
    # command may be gone, and the box with it, but never in silence.
    def settled():
        if cubby("exec", "killed", "echo", "alive").out == b"alive\n":
            return "alive"
        return cubby.state("killed") == "stopped" and "stopped"

    if wait_for(settled, 15, "its end, or a sign of life") == "stopped":
        info = cubby.inspect("killed")
        assert (info["reason"], info["exit_code"]) == ("exited", 137)


def test_kill_minus_one_by_exec_in_an_idle_box(cubby, box):
    for _ in range(3):
        cubby("exec", "-u", "user", box, "sh", "-c", "kill -9 -1")
    assert cubby.ok("exec", box, "echo", "alive") == "alive"


def test_ptrace_of_others_users_is_refused(cubby, box):
    cubby.ok("exec", "-d", box, "sleep", "3210")
    listed = json.loads(cubby.ok("top", "--format", "json", box))
    pid = next(entry["pid"] for entry in listed if "sleep 3210" in entry["command"])
    assert cubby.sh(box, f"cat /proc/{pid}/environ | wc -c") != "0"
    assert cubby("exec", "-u", "user", box, "cat", f"/proc/{pid}/environ").code != 0
    cubby.kill_like(box, "3210")


def test_two_boxes_differ(cubby, box):
    cubby.ok("run", "-d", "--name", "other", "-m", "256M", "busybox", "sleep", "1000")
    script = ("hostname; cat /proc/sys/kernel/random/boot_id; head -c 64 /dev/urandom | md5sum; "
              "cat /etc/machine-id 2>/dev/null; true")
    mine, others = (cubby.sh(name, script).splitlines() for name in (box, "other"))
    assert len(mine) == len(others) >= 3
    assert all(a != b for a, b in zip(mine, others))


def test_the_clock_is_right(cubby, box):
    before = time.time()
    inside = int(cubby.ok("exec", box, "date", "+%s"))
    assert before - 2 <= inside <= time.time() + 2


def test_the_generation_is_told(cubby, box):
    told = cubby.inspect(box)["generation"]
    assert told == {"booted": 1, "cloned": 2, "spare": 3}[cubby.inspect(box)["served"]]
    assert cubby.ok("exec", box, "cat", "/run/cubby/generation") == str(told)


def test_the_agent_needs_no_file_of_the_image(cubby):
    cubby.ok("run", "-d", "--name", "hollow", "-m", "256M", "busybox", "sleep", "1000")
    cubby("exec", "hollow", "sh", "-c",
          "cp /bin/busybox /busybox; /busybox rm -rf /bin /sbin /usr /etc /tmp /var /lib 2>/dev/null")
    assert cubby.ok("exec", "hollow", "/busybox", "echo", "alive") == "alive"
    cubby.fails("exec", "hollow", "sh", code=127, says="sh")
