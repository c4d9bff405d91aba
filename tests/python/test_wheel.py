# SPDX-License-Identifier: Apache-2.0
"""The wheel: pip puts it into an empty environment, and it runs a box there."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, close_home
from conftest import Cubby as Command
from support import tiny_image

PROGRAM = """
import sys, cubby
assert cubby.__file__.startswith(sys.prefix), cubby.__file__
with cubby.Cubby() as home:
    home.import_image(sys.argv[1], "image")
    with home.start("image", **eval(sys.argv[2])) as box:
        print(box.run(["echo", "from the wheel"]).text, end="")
        print(box.info().engine)
        box.remove(force=True)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, ROOT / "scripts/make-wheel", BUILD, folder],
                          capture_output=True, text=True, check=False)
    if "built for tests" in done.stderr:
        pytest.skip("this build folder has fault points or sanitizers, which no wheel may carry")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an empty environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-index",
                    "--disable-pip-version-check", wheel], check=True)
    return folder / "bin/python"


def run(python, home, *arguments):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("CUBBY_", "PYTHON"))}
    done = subprocess.run([python, "-c", PROGRAM, *map(str, arguments)], capture_output=True,
                          text=True, timeout=240, cwd="/", check=False,
                          env={**env, "CUBBY_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in archive.infolist()}
    for name in ("cubby/__init__.py", "cubby/deerflow.py", "cubby/py.typed",
                 "cubby/lib/libcubby.so.0"):
        assert name in names
    for name in ("cubby-shim", "cubby-keeper", "cubby-agent"):
        assert modes[f"cubby/lib/{name}"] == 0o755
    assert not [name for name in names if "__pycache__" in name or "unseeded" in name]


def test_the_same_bytes_again(wheel, tmp_path):
    done = subprocess.run([sys.executable, ROOT / "scripts/make-wheel", BUILD, tmp_path],
                          capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).read_bytes() == wheel.read_bytes()


def test_a_fake_box(python, tmp_path):
    home = Path(tempfile.mkdtemp(prefix="cubby-test-wheel-"))
    image = tiny_image(tmp_path / "tiny.tar")
    assert run(python, home, image, {"engine": "fake", "template": False}) == \
        "from the wheel\nfake\n"
    assert close_home(Command(home)) == []


def test_a_machine(python, busybox_tar, cubby):
    home = Path(tempfile.mkdtemp(prefix="cubby-test-wheel-"))
    shutil.copytree(cubby.home / "kernels", home / "kernels")
    assert run(python, home, busybox_tar, {"memory": 128 << 20, "template": False}) == \
        "from the wheel\nmicrovm\n"
    assert close_home(Command(home)) == []


def test_without_the_libraries_packages_it_says_which(python):
    done = subprocess.run([python, "-c", "import cubby"], capture_output=True, text=True,
                          check=False, env={"CUBBY_LIBRARY": "/nonexistent.so", "PATH": "/usr/bin"})
    assert done.returncode != 0 and "apt-get install" in done.stderr
