# SPDX-License-Identifier: Apache-2.0
"""Templates when the disk is full, and when keepers, builders and claimers are killed."""

import json
import os
import signal
import subprocess
import tempfile
import time

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
        home.ok("gc")
        return not list((home.home / "boxes").iterdir()) and not [
            p for p in home.processes() if p[1].startswith("qemu")]
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
        home.ok("gc")
        return not list((home.home / "boxes").iterdir()) and not [
            p for p in home.processes() if p[1].startswith("qemu")]
    wait_for(clean, 90, "the end of what was half made")
    assert home("run", "--rm", "-m", "256M", "busybox", "echo", "fine").text == "fine"
