# SPDX-License-Identifier: Apache-2.0
"""Templates when the disk is full, and when keepers, builders and claimers are killed."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import Cubby, close_home, wait_for


def templates_of(cubby):
    text = cubby.ok("template", "ls", "--format", "json")
    return json.loads(text) if text.startswith("[") else [json.loads(x) for x in text.splitlines()]


@pytest.fixture
def small_home(busybox_tar):
    """A home on a file system of its own, so that it can be filled."""
    path = tempfile.mkdtemp(prefix="cubby-test-small-")
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "cubby-test", path], check=False,
        stderr=subprocess.DEVNULL).returncode == 0
    if not mounted:
        os.rmdir(path)
        pytest.skip("a file system cannot be mounted here")
    cubby = Cubby(os.path.join(path, "home"))
    try:
        cubby.ok("kernel", "ensure", timeout=180)
        cubby.ok("image", "import", busybox_tar, "--name", "busybox")
        yield cubby
        assert close_home(cubby) == []
    finally:
        subprocess.run(["umount", "-l", path], check=True)
        os.rmdir(path)


def test_full_disk_while_saving(small_home):
    free = os.statvfs(small_home.home)
    filler = small_home.home.parent / "filler"
    with open(filler, "wb") as out:
        out.write(b"\1" * (free.f_bavail * free.f_frsize - (12 << 20)))
    small_home.fails("template", "build", "-m", "256M", "busybox", says="space", timeout=180)
    assert not templates_of(small_home)
    assert not list((small_home.home / "tmp").iterdir())
    filler.unlink()
    small_home.ok("template", "build", "-m", "256M", "busybox", timeout=180)
    small_home.ok("template", "verify", templates_of(small_home)[0]["key"])


@pytest.fixture
def home(own_home, busybox_tar):
    own_home.ok("kernel", "ensure", timeout=180)
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    own_home.ok("template", "build", "-m", "256M", "busybox", timeout=180)
    return own_home


def spares(cubby):
    return sum(t["spares"] for t in templates_of(cubby))


def only_ahead_is_left(home):
    """Nothing but the machine that the keeper has started ahead of the next clone."""
    home.ok("gc")
    ahead = {entry.name.removeprefix("ahead-")
             for entry in (home.home / "templates").glob("*/spares/ahead-*")}
    machines = [p for p in home.processes() if p[1].startswith("qemu")]
    boxes = {entry.name for entry in (home.home / "boxes").iterdir()}
    return boxes <= ahead and len(machines) <= len(ahead)


def test_claims_that_are_killed(home):
    """At each moment of it: the spare is taken once or not at all, and nothing is left."""
    for delay in (0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        home.ok("spare", "set", "-m", "256M", 1, "busybox", timeout=180)
        wait_for(lambda: spares(home) == 1, 60, "a spare")
        claiming = home.popen("run", "-d", "-m", "256M", "--idle", "busybox")
        time.sleep(delay)
        claiming.send_signal(signal.SIGKILL)
        claiming.wait()
    home.ok("spare", "set", "-m", "256M", 0, "busybox")
    home.ok("rm", "-f", "-a")
    wait_for(lambda: spares(home) == 0, 20, "the end of the spares")

    def clean():
        return only_ahead_is_left(home)
    wait_for(clean, 30, "the end of what was half claimed")
    done = home("run", "--rm", "-m", "256M", "busybox", "echo", "fine")
    assert done.text == "fine"


def test_clones_that_are_killed(home):
    for delay in (0.02, 0.05, 0.1, 0.2):
        cloning = home.popen("run", "-d", "-m", "256M", "--idle", "busybox")
        time.sleep(delay)
        cloning.send_signal(signal.SIGKILL)
        cloning.wait()
    home.ok("rm", "-f", "-a")

    def clean():
        return only_ahead_is_left(home)
    wait_for(clean, 90, "the end of what was half made")
    assert home("run", "--rm", "-m", "256M", "busybox", "echo", "fine").text == "fine"


def keepers(cubby):
    return [pid for pid, name in cubby.processes() if name == "cubby-keeper"]


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ask_keeper(folder, operation):
    """What its socket answers, or None when nobody is there or who was there has gone."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.settimeout(1)
            line.connect(f"/proc/self/fd/{directory}/keeper.sock")
            line.send(struct.pack("II", 1, operation))
            return line.recv(64) or None
    except ConnectionError:
        return None
    except FileNotFoundError:
        return None
    finally:
        os.close(directory)


def test_a_keeper_that_leaves(home):
    """It is told to end while a spare is being made, and that one does not get on: whoever
    asks it then is not left waiting, and it is gone soon."""
    folder = home.home / "templates" / templates_of(home)[0]["key"]
    home.ok("spare", "set", "-m", "256M", 1, "busybox", timeout=180)

    def at_work():
        both = keepers(home)
        workers = [pid for pid in both if parent_of(pid) in both]
        return (parent_of(workers[0]), workers[0]) if workers else None
    keeper, worker = wait_for(at_work, 30, "the maker of a spare")
    os.kill(worker, signal.SIGSTOP)
    assert ask_keeper(folder, 3) == struct.pack("II", 1, 3)
    started = time.monotonic()
    while keeper in keepers(home):
        ask_keeper(folder, 2)  # raises when there is no answer in time
        assert time.monotonic() - started < 8
        time.sleep(0.02)
    home.ok("spare", "set", "-m", "256M", 0, "busybox")

    def clean():
        return only_ahead_is_left(home)
    wait_for(clean, 30, "the end of what was half made")


def test_spares_go_when_memory_is_short(home, tmp_path):
    """First of all, one after the other, and they come back; nobody's box is touched."""
    meminfo = tmp_path / "meminfo"

    def say(available_kib):
        text = Path("/proc/meminfo").read_text()
        meminfo.write_text(re.sub(r"(?m)^MemAvailable:.*$",
                                  f"MemAvailable:   {available_kib} kB", text))
    say(4 << 20)
    prefix = ["unshare", "-m", "sh", "-c", f'mount --bind {meminfo} /proc/meminfo && exec "$@"',
              "sh"]
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("a file cannot be mounted over /proc/meminfo here")
    elsewhere = Cubby(home.home, prefix=prefix)
    elsewhere.ok("run", "-d", "--name", "owned", "-m", "256M", "--idle", "busybox")
    elsewhere.ok("spare", "set", "-m", "256M", 2, "busybox", timeout=180)
    wait_for(lambda: spares(home) == 2, 120, "two spares")
    say(100 << 10)
    wait_for(lambda: spares(home) == 0, 30, "the end of the spares")
    time.sleep(4)
    assert spares(home) == 0  # and no other is made
    assert home.sh("owned", "echo here") == "here"
    say(4 << 20)
    wait_for(lambda: spares(home) == 2, 120, "new spares")
    home.ok("spare", "set", "-m", "256M", 0, "busybox")
    home.ok("rm", "-f", "owned")
    wait_for(lambda: spares(home) == 0, 30, "the end of the spares")


def test_another_vmm_between_build_and_clone(home, tmp_path):
    """What one QEMU saved is never given to another, though it has its name and its place."""
    real = os.path.realpath(shutil.which("qemu-system-x86_64"))
    copy = tmp_path / "upgraded"
    shutil.copy2(real, copy)
    prefix = ["unshare", "-m", "sh", "-c", f'mount --bind {copy} {real} && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("a file cannot be mounted over QEMU here")
    options = ("-d", "-m", "256M", "--idle", "busybox")
    home.ok("run", "--name", "before", *options)
    assert home.inspect("before")["served"] == "cloned"
    upgraded = Cubby(home.home, prefix=prefix)
    upgraded.ok("run", "--name", "after", *options)
    assert home.inspect("after")["served"] == "booted"
    wait_for(lambda: len(templates_of(home)) == 2, 120, "the template of the new one")
    upgraded.ok("run", "--name", "then", *options)
    assert home.inspect("then")["served"] == "cloned"
    assert home.sh("before", "echo here") == "here"
    home.ok("rm", "-f", "-a")


@pytest.mark.parametrize("config", ["the box's", "the spare's"])
def test_a_claim_that_a_crash_of_the_host_forgot(home, config):
    """The record of a claimed box is not synced at once. Lost, its folder is nobody's: it is
    shown to nobody, and gc takes it."""
    home.ok("spare", "set", "-m", "256M", 1, "busybox", timeout=180)
    wait_for(lambda: spares(home) == 1, 60, "a spare")
    spare = next(entry.name for entry in (home.home / "templates").glob("*/spares/*")
                 if "-" not in entry.name)
    waiting = home.home / "boxes" / spare
    old = (waiting / "config.json").read_bytes()
    home.ok("run", "-d", "--name", "forgotten", "-m", "256M", "--idle", "busybox")
    assert home.inspect("forgotten")["served"] == "spare"
    assert home.box_id("forgotten") == waiting.name
    for pid, _ in home.processes():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not home.processes(), 10, "the crash")
    with sqlite3.connect(home.home / "cubby.db") as database:
        database.execute("DELETE FROM boxes")
    database.close()
    if config == "the spare's":
        (waiting / "config.json").write_bytes(old)
    assert home.ok("ps", "-a", "-q") == ""
    home.ok("gc")
    assert not list((home.home / "boxes").iterdir())
    home.ok("spare", "set", "-m", "256M", 0, "busybox")
    assert home("run", "--rm", "-m", "256M", "busybox", "echo", "fine").text == "fine"
