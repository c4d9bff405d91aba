# SPDX-License-Identifier: Apache-2.0
"""What the suites that boot machines share: the command, a home, images, one box.

CUBBY_BUILD          the build folder to test (default: build)
CUBBY_TEST_IMAGES    where scripts/make-test-image put its images
CUBBY_TEST_MUST_RUN  1: a skipped test is a failure
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

# A shell that runs a half of the suites in the background has it ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
IMAGES = Path(os.environ.get("CUBBY_TEST_IMAGES", BUILD / "test-images")).resolve()
KEPT_BOXES = {"shared", "shared-python"}


class Result:
    def __init__(self, args, code, out, err, seconds):
        self.args, self.code, self.out, self.seconds = args, code, out, seconds
        self.err = err.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode("utf-8", "replace").strip()

    def __repr__(self):
        shown = self.out if len(self.out) < 2000 else self.out[:1000] + b"..." + self.out[-1000:]
        return (f"cubby {' '.join(map(str, self.args))}\n  code {self.code}, {self.seconds:.2f} s\n"
                f"  stdout {shown!r}\n  stderr {self.err[-2000:]}")


class Cubby:
    """Runs the command with one home."""

    def __init__(self, home, command=None, prefix=(), env=None):
        self.home = Path(home)
        self.command = [*prefix, str(command or BUILD / "cubby")]
        self.extra = dict(env or {})

    def environment(self, extra=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("CUBBY_")}
        env.update(CUBBY_HOME=str(self.home), NO_COLOR="1", **self.extra)
        env.update(extra or {})
        return env

    def __call__(self, *args, input=None, timeout=90, env=None):
        start = time.monotonic()
        done = subprocess.run(
            [*self.command, *map(str, args)], input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=timeout, env=self.environment(env))
        return Result(args, done.returncode, done.stdout, done.stderr, time.monotonic() - start)

    def ok(self, *args, **options):
        result = self(*args, **options)
        assert result.code == 0, result
        return result.text

    def fails(self, *args, code=125, says=(), **options):
        result = self(*args, **options)
        assert result.code == code, result
        assert not result.out, result
        for word in [says] if isinstance(says, str) else says:
            assert word.lower() in result.err.lower(), (word, result)
        return result

    def popen(self, *args, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([*self.command, *map(str, args)], env=self.environment(env),
                                **options)

    def sh(self, box, script, *options, **more):
        return self.ok("exec", *options, box, "sh", "-c", script, **more)

    def kill_like(self, box, word, signal="TERM"):
        """Signals what has `word` among its arguments (BusyBox has no pkill)."""
        self.sh(box, f"for p in /proc/[0-9]*; do if grep -q -a '[{word[0]}]{word[1:]}' $p/cmdline "
                     f"2>/dev/null; then kill -{signal} ${{p#/proc/}}; fi; done")

    def state(self, box):
        return self.ok("ps", "-a", "--filter", f"name=^{box}$", "--format", "{{.State}}")

    def inspect(self, box):
        """The document of `cubby inspect`, with what it says of the state on top."""
        document = json.loads(self.ok("inspect", box))[0]
        return {**document, **document["state"], "state": document["state"]["status"]}

    def box_id(self, box):
        return self.inspect(box)["id"]

    def processes(self, box=None):
        """[(pid, name of its program)] of what holds files of this home (of one box) open."""
        where = str(self.home / "boxes" / self.box_id(box)) if box else str(self.home)
        return holders(where)


def holders(path):
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            exe = os.path.basename(os.readlink(entry / "exe"))
            links = [os.readlink(entry / "cwd")]
            links += [os.readlink(fd) for fd in (entry / "fd").iterdir()]
        except OSError:
            continue
        if any(link == path or link.startswith(path + "/") for link in links):
            found.append((int(entry.name), exe.removesuffix(" (deleted)")))
    return found


def wait_for(condition, seconds=10.0, what="condition"):
    """The first true value of `condition()`; fails when none comes in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.05)


def leftovers(home):
    """Whatever a home with no boxes should not have any more."""
    home = Path(home)
    left = [f"process {pid} {name}" for pid, name in holders(str(home)) if pid != os.getpid()]
    for folder in ("boxes", "tmp"):
        if (home / folder).is_dir():
            left += [str(p) for p in (home / folder).iterdir()]
    return left


def close_home(cubby):
    cubby("rm", "-f", "-a", timeout=120)
    for pid, name in holders(str(cubby.home)):
        if name == "cubby-keeper":  # it may be making a template just now
            os.kill(pid, signal.SIGKILL)
    keys = cubby("template", "ls", "-q", "--no-trunc").text.split()
    if keys:
        cubby("template", "rm", *keys, timeout=120)  # and their keepers, spares with them
    cubby("gc", timeout=60)
    end = time.monotonic() + 8
    while leftovers(cubby.home) and time.monotonic() < end:
        time.sleep(0.2)
        cubby("gc", timeout=60)
    left = leftovers(cubby.home)
    shutil.rmtree(cubby.home, ignore_errors=True)
    return left


@pytest.fixture(scope="session")
def busybox_tar(tmp_path_factory):
    out = tmp_path_factory.mktemp("busybox") / "busybox.tar"
    subprocess.run([ROOT / "scripts/make-busybox-image", out], check=True)
    return out


@pytest.fixture(scope="session")
def cubby(busybox_tar):
    """The command with the session's home: a kernel, and the image `busybox`."""
    cubby = Cubby(tempfile.mkdtemp(prefix="cubby-test-"))
    cubby.ok("kernel", "ensure", timeout=180)
    cubby.ok("image", "import", busybox_tar, "--name", "busybox")
    yield cubby
    assert close_home(cubby) == []


@pytest.fixture(autouse=True)
def only_kept_boxes(request):
    """A test's own boxes end with it."""
    yield
    if "cubby" in request.fixturenames:
        cubby = request.getfixturevalue("cubby")
        names = cubby.ok("ps", "-a", "--format", "{{.Names}}").split()
        strays = [name for name in names if name not in KEPT_BOXES
                  and name not in getattr(request.module, "MODULE_BOXES", ())]
        if strays:
            cubby.ok("rm", "-f", *strays)


def running_box(cubby, name, image, *options):
    if cubby.state(name) != "running":
        cubby("rm", "-f", name)
        cubby.ok("run", "-d", "--name", name, *options, image, "sleep", "100000")
    return name


@pytest.fixture
def box(cubby):
    """A running BusyBox box that tests share."""
    return running_box(cubby, "shared", "busybox", "-m", "256M")


@pytest.fixture(scope="session")
def python_image(cubby):
    if not (IMAGES / ".complete").exists():
        pytest.skip(f"no test image in {IMAGES}; run scripts/make-test-image {IMAGES}")
    cubby.ok("image", "import", IMAGES / "python-oci", "--name", "python")
    return "python"


@pytest.fixture
def python_box(cubby, python_image):
    return running_box(cubby, "shared-python", python_image)


@pytest.fixture
def own_home(busybox_tar):
    """An empty home of the test's own, checked for leftovers at the end."""
    cubby = Cubby(tempfile.mkdtemp(prefix="cubby-test-own-"))
    yield cubby
    assert close_home(cubby) == []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CUBBY_TEST_MUST_RUN") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CUBBY_TEST_MUST_RUN=1 forbids: {report.longrepr}"
