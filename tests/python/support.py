# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share. The fake engine does wherever no program of a
box matters; tests that ask for `machine` boot one."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, close_home
from conftest import Cubby as Command

PACKAGE = ROOT / "python"
LIBRARY = BUILD / "libcubby.so.0"

os.environ["CUBBY_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(PACKAGE))

import cubby as package  # noqa: E402

FAKE = {"engine": "fake", "template": False}
POOL = {"image": "tiny", "engine": "fake", "spares": 0}


def tiny_image(path):
    with tarfile.open(path, "w") as tar:
        tar.addfile(tarfile.TarInfo("etc/hostname"), io.BytesIO())
    return path


@pytest.fixture(scope="module")
def home():
    """An open home with the image `tiny`, for the fake engine."""
    folder = Path(tempfile.mkdtemp(prefix="cubby-test-py-"))
    opened = package.Cubby(folder)
    opened.import_image(tiny_image(folder / "tiny.tar"), "tiny")
    yield opened
    opened.close()
    assert close_home(Command(folder)) == []
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fake(home):
    """A running fake box."""
    box = home.start("tiny", **FAKE)
    yield box
    try:
        box.remove(force=True)
    except package.Error:
        pass
    box.close()


@pytest.fixture
def provider(home):
    """Opens providers with other keys; they end with the test."""
    made = []

    def make(**keys):
        made.append(home.provider({**POOL, "pool": f"p{os.getpid()}.{len(made)}", **keys}))
        return made[-1]
    yield make
    for one in made:
        one.close()


class Script:
    """A Python program of its own that uses the package."""

    def __init__(self, text, home, **env):
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-c", textwrap.dedent(text)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PACKAGE), "CUBBY_HOME": str(home), **env})

    def line(self):
        return self.process.stdout.readline().strip()

    def interrupt(self):
        """The seconds from Ctrl-C to the end of the program."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.end()
        return time.monotonic() - start

    def end(self, timeout=30):
        try:
            self.out, self.err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            raise AssertionError(f"it did not end: {self.out}\n{self.err}") from None
        return self.process.returncode


@pytest.fixture
def script(home):
    running = []

    def start(text, **env):
        running.append(Script(text, home.home, **env))
        return running[-1]
    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def machine(cubby, box):
    """A box that is a machine, opened from Python; `cubby` and `box` are the suite's."""
    with package.Cubby(cubby.home) as opened, opened.box(box) as found:
        yield found
