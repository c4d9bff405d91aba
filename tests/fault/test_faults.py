# SPDX-License-Identifier: Apache-2.0
"""What happens when a process of a box is killed or frozen, or the state is damaged."""

import errno
import io
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from conftest import Cubby, close_home, holders, wait_for


@pytest.fixture
def doomed(cubby):
    cubby.ok("run", "-d", "--name", "doomed", "-m", "256M", "busybox", "sleep", "100000")
    yield "doomed"
    for pid, _ in cubby.processes("doomed") if cubby.state("doomed") else []:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def pid_of(cubby, box, name):
    return wait_for(lambda: [pid for pid, program in cubby.processes(box)
                             if program.startswith(name)], 5, f"{name} of {box}")[0]


@pytest.fixture
def full_home(tmp_path):
    """A home on a file system of its own with two boxes of the fake engine and no room left."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mount = tmp_path / "small"
    mount.mkdir(mode=0o700)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "none", mount],
                          capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount here: {made.stderr.decode()}")
    cubby = Cubby(mount / "home")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("etc/hostname"), io.BytesIO())
    cubby.ok("image", "import", "-", "--name", "tiny", input=data.getvalue())
    for name in ("one", "two"):
        cubby.ok("run", "-d", "--engine", "fake", "--name", name, "tiny", "sleep", "1000")
    try:
        with open(mount / "filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
        yield cubby
        (mount / "filler").unlink()
        assert close_home(cubby) == []
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_the_kernel_is_fetched(own_home, busybox_tar, tmp_path, number):
    """A program in the place of apt-get never ends."""
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    begun = tmp_path / "begun"
    for name, script in (("apt-cache", "echo 'Depends: linux-image-6.1.0-1-cloud-amd64'"),
                         ("apt-get", f"echo $$ >{begun}; exec sleep 100")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    if list(Path("/boot").glob("vmlinuz-*")):
        pytest.skip("this host has a kernel in /boot: none is fetched")
    client = own_home.popen("run", "--name", "never", "busybox", "true", start_new_session=True,
                            env={"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"})
    wait_for(begun.exists, 10, "the fetching")
    assert own_home.ok("ps", "-a", "-q") == ""
    start = time.monotonic()
    os.killpg(client.pid, number)
    client.communicate(timeout=10)
    assert client.returncode in (-number, 128 + number) and time.monotonic() - start < 3
    assert own_home.ok("ps", "-a", "-q") == ""


def test_boxes_are_removed_from_a_full_disk_at_once(full_home):
    full_home.ok("rm", "-f", "one")
    full_home.ok("stop", "-t", "1", "two")
    full_home.ok("rm", "two")
    assert full_home.ok("ps", "-a", "-q") == ""


def test_killed_shim(cubby, doomed):
    waiting = cubby.popen("exec", doomed, "sleep", "1000")
    qemu = pid_of(cubby, doomed, "qemu")
    time.sleep(0.5)
    os.kill(pid_of(cubby, doomed, "cubby-shim"), signal.SIGKILL)
    start = time.monotonic()
    _, err = waiting.communicate(timeout=20)
    assert time.monotonic() - start < 1.5
    assert waiting.returncode == 125 and err
    result = cubby("exec", doomed, "true")
    assert result.code == 125 and result.seconds < 1 and doomed in result.err, result
    wait_for(lambda: not os.path.exists(f"/proc/{qemu}"), 5, "the end of QEMU")
    assert cubby.state(doomed) == "failed"
    assert cubby.inspect(doomed)["reason"] == "shim-died"
    assert cubby.processes(doomed) == []
    assert cubby.ok("start", doomed) == doomed
    assert cubby.ok("exec", doomed, "echo", "again") == "again"
    os.kill(pid_of(cubby, doomed, "cubby-shim"), signal.SIGKILL)
    assert cubby.ok("rm", "-f", doomed) == doomed


def test_killed_shim_with_rm_without_force(cubby, doomed):
    os.kill(pid_of(cubby, doomed, "cubby-shim"), signal.SIGKILL)
    wait_for(lambda: cubby.state(doomed) == "failed", 5, "the failed state")
    assert cubby.ok("rm", doomed) == doomed


def test_killed_vmm(cubby, doomed):
    waiting = cubby.popen("exec", doomed, "sleep", "1000")
    follow = cubby.popen("logs", "-f", doomed)
    blocked = cubby.popen("wait", doomed)
    time.sleep(0.5)
    os.kill(pid_of(cubby, doomed, "qemu"), signal.SIGKILL)
    start = time.monotonic()
    _, err = waiting.communicate(timeout=20)
    assert time.monotonic() - start < 1.5
    assert waiting.returncode == 125 and err
    follow.communicate(timeout=20)
    blocked.communicate(timeout=20)
    wait_for(lambda: cubby.state(doomed) == "failed", 5, "the failed state")
    info = cubby.inspect(doomed)
    assert info["reason"] == "vmm-died" and info["detail"]
    assert cubby.processes(doomed) == []
    assert cubby.ok("start", doomed) == doomed


def test_frozen_vmm(cubby, doomed):
    qemu = pid_of(cubby, doomed, "qemu")
    os.kill(qemu, signal.SIGSTOP)
    start = time.monotonic()
    result = cubby("exec", "--timeout", "2s", doomed, "true", timeout=60)
    assert result.code == 124 and result.err, result
    assert time.monotonic() - start < 4.5
    # the shim answers for itself, and others are not held up
    assert cubby("inspect", doomed).seconds < 5
    assert cubby("stats", "--no-stream", doomed, timeout=60).seconds < 20
    assert cubby("top", doomed, timeout=60).seconds < 20
    os.kill(qemu, signal.SIGCONT)
    assert cubby.ok("exec", doomed, "echo", "thawed") == "thawed"
    os.kill(qemu, signal.SIGSTOP)
    result = cubby("stop", "-t", "1", doomed, timeout=60)
    assert result.code == 0 and result.seconds < 5, result
    assert not os.path.exists(f"/proc/{qemu}")


def test_pause_that_a_frozen_vmm_did_not_answer(cubby, doomed):
    qemu = pid_of(cubby, doomed, "qemu")
    os.kill(qemu, signal.SIGSTOP)
    result = cubby("pause", doomed, timeout=30)
    assert result.code == 125 and result.seconds < 15, result
    os.kill(qemu, signal.SIGCONT)
    assert cubby.state(doomed) == "running"
    assert cubby.ok("exec", doomed, "echo", "awake", timeout=30) == "awake"
    assert cubby.ok("pause", doomed) == doomed
    assert cubby.state(doomed) == "paused"


def test_killed_creator_at_any_moment(cubby):
    for delay in (0.02, 0.1, 0.3, 1.0, 2.5):
        creator = cubby.popen("run", "--name", "orphan", "-m", "256M", "busybox", "sleep", "2")
        time.sleep(delay)
        creator.kill()
        creator.communicate()

        # Whatever is left is either nothing or a box that can be used and removed.
        def settled():
            state = cubby.state("orphan")
            return state in ("", "created", "running", "stopped", "failed") and state or "none"

        wait_for(settled, 30, "a settled state")
        if cubby.state("orphan"):
            cubby.ok("rm", "-f", "orphan")
        cubby.ok("gc")
        shims = [p for p in holders(str(cubby.home / "boxes")) if p[1] == "cubby-shim"]
        assert len(shims) <= 2, (delay, shims)  # the shared boxes
    assert list((cubby.home / "tmp").iterdir()) == []


def test_killed_import_leaves_nothing(own_home, busybox_tar):
    for delay in (0.005, 0.02, 0.05, 0.1):
        importer = own_home.popen("image", "import", busybox_tar, "--name", "half")
        time.sleep(delay)
        importer.kill()
        importer.communicate()
        own_home.ok("gc")
        assert list((own_home.home / "tmp").iterdir()) == []
        records = own_home.ok("images", "-q").split()
        assert len(list((own_home.home / "rootfs").iterdir())) == len(records)
    own_home.ok("image", "import", busybox_tar, "--name", "whole")
    assert "whole" in own_home.ok("images")


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "missing", "page"])
def test_damaged_database(own_home, busybox_tar, damage):
    own_home.ok("image", "import", busybox_tar, "--name", "precious")
    own_home.ok("create", "--name", "kept", "precious", "true")
    database = own_home.home / "cubby.db"
    for extra in ("-wal", "-shm"):
        (own_home.home / f"cubby.db{extra}").unlink(missing_ok=True)
    if damage == "garbage":
        database.write_bytes(os.urandom(20_000))
    elif damage == "truncated":
        database.write_bytes(database.read_bytes()[:5000])
    elif damage == "empty":
        database.write_bytes(b"")
    elif damage == "missing":
        database.unlink()
    elif damage == "page":
        data = bytearray(database.read_bytes())
        data[4096:8192] = os.urandom(4096)
        database.write_bytes(bytes(data))
    assert "precious" in own_home.ok("images")
    assert own_home.state("kept") == "created"
    own_home.ok("image", "inspect", "precious")


def test_a_newer_database_is_refused(own_home):
    own_home.ok("ps")
    with sqlite3.connect(own_home.home / "cubby.db") as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute(f"PRAGMA user_version = {version + 1000}")
    own_home.fails("ps", says="version")
    with sqlite3.connect(own_home.home / "cubby.db") as database:
        database.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 999}', b"\xff" * 100,
                                     b'{"version": 1}'])
def test_damaged_box_config(own_home, busybox_tar, content):
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    own_home.ok("create", "--name", "torn", "busybox", "true")
    folder = own_home.home / "boxes" / own_home.box_id("torn")
    (folder / "config.json").write_bytes(content)
    result = own_home("start", "torn")
    assert result.code == 125 and "torn" in result.err, result
    assert own_home("ps", "-a").code == 0
    assert own_home.ok("rm", "-f", "torn") == "torn"
    assert not folder.exists()


def test_a_boot_that_fails_tells_its_stage(own_home, cubby, busybox_tar):
    """A rootfs that is not one: the guest comes up, the mount fails, its words arrive."""
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    disk = next((own_home.home / "rootfs").iterdir()) / "disk.erofs"
    disk.chmod(0o600)
    size = disk.stat().st_size
    disk.write_bytes(bytes(size))
    shutil.copytree(cubby.home / "kernels", own_home.home / "kernels", dirs_exist_ok=True)
    start = time.monotonic()
    result = own_home("run", "--name", "stillborn", "-m", "256M", "busybox", "true", timeout=90)
    assert result.code == 125, result
    assert time.monotonic() - start < 65
    assert re.search(r"root|mount|disk", result.err), result
    assert own_home.processes() == []
    assert own_home("ps", "-q").out == b""


def test_box_that_shuts_its_machine_down(cubby, doomed):
    # SIGTERM to all and a crash of the kernel are not in a box's hands, but its own end is.
    # The box may be gone before the killer is.
    cubby("exec", doomed, "sh", "-c", "for p in /proc/[0-9]*; do grep -q -a '[1]00000' "
          "$p/cmdline && kill -KILL ${p#/proc/}; done")
    wait_for(lambda: cubby.state(doomed) == "stopped", 10, "the end")
    info = cubby.inspect(doomed)
    assert (info["reason"], info["exit_code"]) == ("exited", 137)


def test_a_full_socket_queue(cubby, doomed):
    """A client that connects and says nothing, and many of them, hold nobody up."""
    folder = os.open(cubby.home / "boxes" / cubby.box_id(doomed), os.O_RDONLY)
    silent = []
    try:
        for _ in range(40):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(2)
            try:
                client.connect(f"/proc/self/fd/{folder}/box.sock")
            except OSError:
                client.close()
                break
            silent.append(client)
        silent[0].sendall(os.urandom(4096))
        result = cubby("exec", doomed, "echo", "served", timeout=30)
        assert (result.code, result.text) == (0, "served"), result
        assert result.seconds < 5
    finally:
        for client in silent:
            client.close()
        os.close(folder)
