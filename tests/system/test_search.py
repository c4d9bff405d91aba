# SPDX-License-Identifier: Apache-2.0
"""`cubby fs find`, `grep` and `watch`, in a BusyBox and in a box with nothing but one program."""

import io
import json
import os
import random
import re
import select
import signal
import stat
import sys
import tarfile
import time

import pytest
from conftest import ROOT, wait_for

sys.path.insert(0, str(ROOT / "tests/unit"))
import search_compare  # noqa: E402

MODULE_BOXES = ("search-bare",)
TREE = "/srv/build"  # the root of a search may be called anything


def executable(info):
    info.mode = 0o755
    return info


@pytest.fixture(scope="module")
def bare_image(cubby, tmp_path_factory):
    """One static program, and no other file."""
    path = tmp_path_factory.mktemp("bare") / "bare.tar"
    program = next(p for p in ("/usr/bin/busybox", "/bin/busybox") if os.path.exists(p))
    with tarfile.open(path, "w") as tar:
        tar.add(os.path.realpath(program), "busybox", filter=executable)
    cubby.ok("image", "import", path, "--name", "search-bare")
    return "search-bare"


@pytest.fixture
def bare(cubby, bare_image):
    if cubby.state("search-bare") != "running":
        cubby("rm", "-f", "search-bare")
        cubby.ok("run", "-d", "--name", "search-bare", "-m", "256M", bare_image, "/busybox", "sleep", "100000")
    return "search-bare"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Odd names and kinds, on the host and as a tar: (folder, bytes)."""
    root = tmp_path_factory.mktemp("tree") / "build"
    root.mkdir()
    for folder in search_compare.grow(random.Random(7), str(root), 1500):
        os.chmod(folder, 0o755)
    for folder, folders, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in files + folders):
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode) and os.readlink(path).startswith(str(root)):
                target = os.path.relpath(os.readlink(path), folder)
                os.unlink(path)
                os.symlink(target, path)
            elif stat.S_ISSOCK(info.st_mode) or info.st_size > 5_000_000:
                os.unlink(path)
            elif stat.S_ISREG(info.st_mode):
                os.chmod(path, 0o644)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(root, "build")
    return root, packed.getvalue()


def unpack(cubby, name, tree, *program):
    if cubby("fs", "stat", name, TREE).code != 0:
        cubby.ok("fs", "mkdir", "-p", name, "/srv")
        cubby.ok("exec", "-i", name, *program, "tar", "-x", "-C", "/srv", "-f", "-", input=tree[1])


@pytest.fixture(params=["busybox", "bare"])
def searched(request, cubby, tree):
    """A box with the tree, and the tree on the host."""
    name = request.getfixturevalue("box" if request.param == "busybox" else "bare")
    unpack(cubby, name, tree, *([] if request.param == "busybox" else ["/busybox"]))
    return name, str(tree[0])


def found(cubby, *args):
    result = cubby("fs", "find", "-0", *args)
    assert result.code == 0, result
    return [os.fsdecode(path) for path in result.out.split(b"\0")[:-1]], "--max" in result.err


def same_lists(got, expected):
    """An assertion that stays short."""
    at = next((i for i in range(len(got) + 1) if got[i:i + 1] != expected[i:i + 1]), len(got))
    assert (at, got[at:at + 1]) == (at, expected[at:at + 1])


def matches(cubby, *args):
    result = cubby("fs", "grep", "--format", "json", *args)
    assert result.code in (0, 1), result
    rows = json.loads(result.out)
    assert (result.code == 1) == (rows == [])
    return [(row["path"], row["line"], row["text"]) for row in rows], "--max" in result.err


@pytest.mark.parametrize("pattern", ["*", "*.py", "**/*.py", "b*/*", "?", "-*", "*\n*", "[\udcff\udcc3]*", "é*", "/x"])
@pytest.mark.parametrize("folders", [False, True])
def test_find_agrees_with_python(cubby, searched, pattern, folders):
    name, root = searched
    for most in (100000, 7):
        paths, truncated = found(cubby, *(["--folders"] if folders else []), "--max", most, "--", name, pattern, TREE)
        expected, more = search_compare.glob(root, pattern, folders, most)
        same_lists(paths, [f"{TREE}/{path}" for path in expected])
        assert truncated == more


@pytest.mark.parametrize("source, options, pattern", [
    ("needle", [], None), ("needle", ["-i"], "*.py"), ("", [], None), (r"^def \w", [], "**/*.txt"), ("é", [], None),
    ("a,b$", [], None), ("NOTE|hay", ["-i"], "*/*"), ("f(x)", ["-F"], None), ("nowhere", [], None)])
def test_grep_agrees_with_python(cubby, searched, source, options, pattern):
    name, root = searched
    regex = re.compile(re.escape(source) if "-F" in options else source, re.IGNORECASE if "-i" in options else 0)
    for most in (100000, 5):
        hits, truncated = matches(cubby, *options, "--max", most, *(["--glob", pattern] if pattern else []),
                                  name, source, TREE)
        expected, more = search_compare.grep(root, regex, pattern, most)
        same_lists([hit[1:] for hit in hits], [hit[1:] for hit in expected])
        assert truncated == more
        for (path, _, _), (relative, _, _) in zip(hits, expected):
            if relative.isprintable():  # JSON shows other names with escapes
                assert path == f"{TREE}/{relative}"


def test_a_file_as_root(cubby, searched):
    name, _ = searched
    cubby.ok("fs", "write", name, "/srv/x.log", input=b"one\ntwo needle\r\nNEEDLE\n")
    assert matches(cubby, name, "needle$", "/srv/x.log")[0] == [("/srv/x.log", 2, "two needle")]
    assert matches(cubby, "--glob", "*.log", name, "needle", "/srv/x.log")[0] != []
    assert matches(cubby, "--glob", "*.py", name, "needle", "/srv/x.log")[0] == []
    assert cubby("fs", "grep", name, "needle", "/srv/x.log").out == b"/srv/x.log:2:two needle\n"
    cubby.fails("fs", "find", name, "*", "/srv/x.log", says="not a directory")


def test_roots_that_cannot_be_searched(cubby, box):
    cubby.fails("fs", "find", box, "*", "/no/such", says="no such file")
    cubby.fails("fs", "grep", box, "x", "/no/such", says="no such file")
    cubby.sh(box, "test -e /tmp/fifo || mkfifo /tmp/fifo; ln -sf fifo /tmp/to-fifo; ln -sf loop /tmp/loop")
    for path in ("/tmp/fifo", "/tmp/to-fifo", "/dev/zero"):
        cubby.fails("fs", "grep", box, "x", path, says="not a directory", timeout=10)
    cubby.fails("fs", "grep", box, "x", "/tmp/loop", says="too many levels")
    cubby.fails("fs", "find", box, "x", "", says="empty")
    cubby.fails("fs", "find", box, "x", "/" + "a/" * 3000, says="longer than")
    cubby.fails("fs", "find", box, "", "/tmp", says="empty")
    cubby.fails("fs", "grep", "--glob", "", box, "x", "/tmp", says="empty")
    cubby.fails("fs", "find", "--max", "0", box, "x", "/tmp", code=2)
    cubby.fails("fs", "find", "--max", "100001", box, "x", "/tmp", code=2)


@pytest.mark.parametrize("pattern, says", [
    ("é(", "position 2: missing closing parenthesis"), ("[b-a]", "position 3: range out of order"),
    ("*a", "position 0: quantifier"), ("(?P=n)", "position 4: reference to non-existent"),
    ("\\", "position 1: \\ at end"), ("(" * 300, "position 201: parentheses are too deeply nested"),
])
def test_bad_patterns(cubby, box, pattern, says):
    cubby.fails("fs", "grep", box, pattern, "/etc", says=says)


def test_a_pattern_that_explodes(cubby, box):
    cubby.ok("fs", "write", box, "/tmp/aaa", input=b"a" * 1900 + b"!\n")
    cubby.fails("fs", "grep", box, "(a+)+$", "/tmp/aaa", says="explodes", timeout=30)
    assert matches(cubby, box, "a+!$", "/tmp/aaa")[0][0][1] == 1


def test_what_a_user_may_not_read(cubby, box):
    cubby.sh(box, "mkdir -p /tmp/own/shut /tmp/own/open; echo needle | tee /tmp/own/shut/f /tmp/own/open/f "
                  "/tmp/own/open/shut >/dev/null; chmod 700 /tmp/own/shut; chmod 600 /tmp/own/open/shut")
    assert found(cubby, box, "*", "/tmp/own")[0] == ["/tmp/own/open/f", "/tmp/own/open/shut", "/tmp/own/shut/f"]
    assert found(cubby, "-u", "user", box, "*", "/tmp/own")[0] == ["/tmp/own/open/f", "/tmp/own/open/shut"]
    assert [hit[0] for hit in matches(cubby, "-u", "user", box, "needle", "/tmp/own")[0]] == ["/tmp/own/open/f"]
    cubby.fails("fs", "find", "-u", "user", box, "*", "/tmp/own/shut", says="permission denied")
    cubby.fails("fs", "find", "-u", "nobody-there", box, "*", "/tmp/own", says="nobody-there")


def test_files_of_the_kernel(cubby, box):
    """Files without a size, files that would wait, links that lead nowhere."""
    assert matches(cubby, box, r"^MemTotal: +\d+ kB$", "/proc/meminfo")[0] != []
    cubby("fs", "grep", "--max", "3", box, "nothing of this kind", "/proc/self", timeout=30)
    assert cubby("fs", "grep", "--glob", "kmsg", box, "zzzz", "/proc", timeout=60).code == 1


def test_a_tree_that_changes_meanwhile(cubby, box):
    worker = cubby.popen("exec", box, "sh", "-c", "mkdir -p /tmp/moving; cd /tmp/moving; while :; do "
                         "mkdir -p a/b/c; echo needle >a/b/c/f; mv a d; mkdir x; mv d x/d; rm -r x; done")
    try:
        wait_for(lambda: cubby("fs", "stat", box, "/tmp/moving").code == 0)
        for _ in range(15):
            assert cubby("fs", "find", box, "**", "/tmp/moving").code == 0
            assert cubby("fs", "grep", box, "needle", "/tmp/moving").code in (0, 1)
    finally:
        worker.kill()
        worker.wait()


def test_given_up_searches_leave_nothing(cubby, box):
    """More of them than may run at once, each killed while it works."""
    cubby.ok("fs", "write", box, "/tmp/slow", input=(b"a" * 1500 + b"b\n") * 400)
    for _ in range(16):
        search = cubby.popen("fs", "grep", box, "(?:a?){9}a*c|x{3}(?=y)|(a|b)*?(a|b)*d", "/tmp/slow")
        time.sleep(0.1)
        search.kill()
        search.wait()
    wait_for(lambda: cubby("fs", "grep", box, "root", "/etc/passwd").code == 0, 15)


class Watch:
    def __init__(self, cubby, *args):
        self.process = cubby.popen("fs", "watch", "--format", "json", *args)
        self.bytes = b""

    def ready(self, seconds):
        return b"\n" in self.bytes or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def next(self, seconds=10):
        while b"\n" not in self.bytes:
            assert self.ready(seconds), "no event came"
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, self.process.stderr.read()
            self.bytes += more
        line, self.bytes = self.bytes.split(b"\n", 1)
        event = json.loads(line)
        return (event["event"], event["path"]) if event["from"] == "" else (event["event"], event["from"], event["path"])

    def until(self, last, seconds=15):
        """All events up to and with one."""
        events = []
        end = time.monotonic() + seconds
        while not events or events[-1] != last:
            assert time.monotonic() < end, events
            events.append(self.next(seconds))
        return events

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def watch(cubby, box):
    """Starts watches of a new folder; returns once they watch."""
    cubby.sh(box, "rm -rf /tmp/watched /dev/shm/w; mkdir /tmp/watched /dev/shm/w")
    watches = []

    def begin(*options, folder="/tmp/watched"):
        one = Watch(cubby, *options, box, folder)
        watches.append(one)
        for _ in range(100):
            cubby.ok("fs", "write", "-a", box, f"{folder}/.begin", input=b"x")
            if one.ready(0.2):
                break
        cubby.sh(box, f"rm {folder}/.begin; mkdir {folder}/.begun; rmdir {folder}/.begun")
        one.until(("removed", ".begun"))
        return one

    yield begin
    for one in watches:
        one.end()


def without_attributes(events):
    return [event for event in events if event[0] != "attributes"]


def test_watch_tells_what_happens(cubby, box, watch):
    events = watch()
    cubby.sh(box, "cd /tmp/watched; echo x >new; mv new old; chmod 600 old; rm old; mkdir end")
    assert events.until(("created", "end")) == [
        ("created", "new"), ("written", "new"), ("renamed", "new", "old"), ("attributes", "old"), ("removed", "old"),
        ("created", "end")]


def test_watch_follows_new_and_moved_folders(cubby, box, watch):
    events = watch()
    cubby.sh(box, "cd /tmp/watched; mkdir -p a/b/c; sleep 0.3; echo x >a/b/c/f; mv a z; echo y >>z/b/c/f; rm -r z; mkdir end")
    told = without_attributes(events.until(("created", "end")))
    assert {("created", "a"), ("created", "a/b"), ("created", "a/b/c"), ("created", "a/b/c/f")} <= set(told)
    assert told[-6:] == [("written", "z/b/c/f"), ("removed", "z/b/c/f"), ("removed", "z/b/c"), ("removed", "z/b"),
                         ("removed", "z"), ("created", "end")]
    assert ("renamed", "a", "z") in told


def test_watch_at_the_border(cubby, box, watch):
    """What moves in and out of the folder, and what is outside of it."""
    events = watch()
    cubby.sh(box, "rm -rf /tmp/elsewhere; mkdir -p /tmp/elsewhere/in; cd /tmp/elsewhere; mv in /tmp/watched/; sleep 0.3; "
                  "echo x >/tmp/watched/in/f; mv /tmp/watched/in out; sleep 0.3; echo y >>out/f; mkdir /tmp/watched/end")
    assert without_attributes(events.until(("created", "end"))) == [
        ("renamed", "in"), ("created", "in/f"), ("written", "in/f"), ("removed", "in"), ("created", "end")]


def test_watch_flat(cubby, box, watch):
    cubby.sh(box, "mkdir /tmp/watched/below")
    events = watch("--flat")
    cubby.sh(box, "cd /tmp/watched; echo x >below/f; mkdir -p new/more; echo x >new/f; mkdir end")
    assert without_attributes(events.until(("created", "end"))) == [("created", "new"), ("created", "end")]


def test_watch_odd_names(cubby, box, watch):
    events = watch()
    cubby.ok("exec", box, "sh", "-c", 'cd /tmp/watched; for n in "a\nb" "-x" "..x" "a b" "$(printf "\\377")"; do : >./"$n"; done')
    told = [events.next() for _ in range(5)]
    assert told == [("created", name) for name in ("a\nb", "-x", "..x", "a b", "\\xff")]


def test_watch_ends_with_its_folder(cubby, box, watch):
    events = watch()
    cubby.sh(box, "rmdir /tmp/watched")
    assert events.until(("removed", ""))
    assert events.process.wait(10) == 0


def test_watch_that_nobody_reads(cubby, box, watch):
    """The box goes on, what is lost is told, and then events come again."""
    events = watch(folder="/dev/shm/w")  # in memory, for speed
    events.process.send_signal(signal.SIGSTOP)
    name = "n" * 200
    cubby.sh(box, f"cd /dev/shm/w; i=0; while [ $i -lt 20000 ]; do echo >a{name}; echo >b{name}; i=$((i + 1)); done")
    events.process.send_signal(signal.SIGCONT)
    assert ("overflow", "") in events.until(("overflow", ""), 60)
    cubby.sh(box, "mkdir -p /dev/shm/w/end/deep; sleep 0.3; echo >/dev/shm/w/end/deep/f")
    events.until(("created", "end/deep/f"), 60)


def test_watch_limits(cubby, box):
    assert cubby("fs", "watch", "--timeout", "1", box, "/etc").code == 124
    cubby.fails("fs", "watch", box, "/no/such", says="no such file")
    cubby.fails("fs", "watch", box, "/etc/passwd", says="not a directory")
    cubby.fails("fs", "watch", "-u", "user", box, "/root", says="permission denied")
    many = [Watch(cubby, box, "/etc") for _ in range(14)]
    try:
        refused = wait_for(lambda: next((one for one in many if one.process.poll() is not None), None), 20)
        assert b"too many file calls" in refused.process.stderr.read()
        assert cubby.ok("fs", "stat", box, "/etc")
    finally:
        for one in many:
            one.end()
    wait_for(lambda: cubby("fs", "watch", "--timeout", "1", box, "/etc").code == 124, 20)


def test_watch_goes_on_after_a_fork(cubby, box, watch):
    events = watch()
    child = cubby.ok("fork", box, timeout=120)
    cubby.sh(box, "mkdir /tmp/watched/after")
    assert events.until(("created", "after"))
    assert cubby("fs", "find", "--folders", child, "*", "/tmp/watched").out == b""
    assert cubby("fs", "grep", child, "root", "/etc/passwd").code == 0
    assert cubby("fs", "watch", "--timeout", "1", child, "/tmp/watched").code == 124
