# SPDX-License-Identifier: Apache-2.0
"""Files of a machine through the typed calls. What they mean in full is tested over the
command line; here is what Python makes of it."""

import asyncio
import errno
import gc
import io
import os
import re
import tarfile
import threading
import time

import pytest
from conftest import running_box
from support import FAKE, Script, home, package  # noqa: F401

MIB = 1 << 20


@pytest.fixture
def machine(cubby):
    name = running_box(cubby, "shared", "busybox", "-m", "256M")
    with package.Cubby(cubby.home) as opened, opened.box(name) as found:
        yield found


def emptied(opened):
    if opened.exists("/tmp/py"):
        opened.remove_file("/tmp/py", recursive=True)
    opened.mkdir("/tmp/py")
    return opened


@pytest.fixture
def box(machine):
    """A machine, with an empty /tmp/py."""
    return emptied(machine)


@pytest.fixture(scope="module")
def fake_files(home):  # noqa: F811
    with home.start("tiny", **FAKE) as opened:
        yield opened
        opened.remove(force=True)


@pytest.fixture(params=["fake", "machine"])
def any_box(request):
    """The same on the fake engine and on a machine."""
    return emptied(request.getfixturevalue(
        "fake_files" if request.param == "fake" else "machine"))


def test_stat(box):
    box.run("cd /tmp/py; printf abc >file; chown 3:4 file; chmod 4755 file; ln -s file link; "
            "ln file other; mkfifo fifo").check()
    info = box.stat("/tmp/py/file")
    assert (info.type, info.mode, info.uid, info.gid, info.links, info.size) == \
        ("f", 0o4755, 3, 4, 2, 3) and info.is_file and not info.is_dir
    assert abs(info.modified_ns / 1e9 - time.time()) < 300 and info.path == "/tmp/py/file"
    link = box.stat("/tmp/py/link", follow=False)
    assert (link.type, link.target) == ("l", "file") and box.stat("/tmp/py/link").size == 3
    assert box.stat("/tmp/py").is_dir and box.stat("/tmp/py/fifo").type == "p"
    assert box.stat("/dev/null").device == (1, 3)
    assert box.exists("/tmp/py/file") and not box.exists("/tmp/py/no")
    assert not box.exists("/tmp/py/file/x")
    with pytest.raises(FileNotFoundError) as caught:
        box.stat("/tmp/py/no")
    assert caught.value.errno == errno.ENOENT and "/tmp/py/no" in str(caught.value)


NAMES = ["plain", " sp ace ", "-dash", "new\nline", "tab\t", "ü", "a..b", "..x", "*?[",
         os.fsdecode(b"\xff\xfe"), "q'\"`$", "back\\slash", "x" * 255]


@pytest.mark.parametrize("name", NAMES)
def test_names(any_box, name):
    path = f"/tmp/py/{name}"
    any_box.write(path, name)
    assert any_box.read(path).decode("utf-8", "surrogateescape") == name
    assert [entry.path for entry in any_box.list("/tmp/py")] == ["/tmp/py", path]
    assert any_box.read(os.fsencode(path)) == any_box.read(path)
    any_box.rename_file(path, "/tmp/py/moved")
    any_box.rename_file("/tmp/py/moved", path)
    assert any_box.glob("/tmp/py", "*")[0] == [path]
    any_box.remove_file(path)
    assert not any_box.exists(path)


def test_paths_of_other_kinds(any_box):
    from pathlib import PurePosixPath
    any_box.write(PurePosixPath("/tmp/py/pure"), b"x")
    assert any_box.read_text(PurePosixPath("/tmp/py/pure")) == "x"
    for bad, kind in [("", ValueError), ("a\0", ValueError), (5, TypeError), (None, TypeError),
                      ("/" + "x" * 4095, OSError), ("/tmp/" + "y" * 256, OSError)]:
        with pytest.raises(kind):
            any_box.read(bad)


def test_listing(box):
    box.run("cd /tmp/py; mkdir -p a/b; touch a/b/deep z; ln -s z link; mkfifo fifo").check()
    assert [e.path for e in box.list("/tmp/py", 0)] == ["/tmp/py"]
    assert [e.path for e in box.list("/tmp/py")] == ["/tmp/py", "/tmp/py/a", "/tmp/py/z"]
    assert [(e.path[8:], e.type) for e in box.list("/tmp/py", 9, all_types=True)] == [
        ("a", "d"), ("a/b", "d"), ("a/b/deep", "f"), ("fifo", "p"), ("link", "l"), ("z", "f")] \
        or [e.path for e in box.list("/tmp/py", 9, all_types=True)][0] == "/tmp/py"
    short = box.list("/tmp/py", 9, max_entries=2)
    assert len(short) == 2 and short.truncated and not box.list("/tmp/py").truncated
    for bad in ({"depth": -1}, {"max_entries": 0}, {"max_entries": 100_001}):
        with pytest.raises(ValueError):
            box.list("/tmp/py", **bad)
    with pytest.raises(NotADirectoryError):
        box.list("/tmp/py/z/x")


def test_reading(any_box):
    data = os.urandom(300_000)
    any_box.write("/tmp/py/data", data)
    assert any_box.read("/tmp/py/data") == data
    assert any_box.read("/tmp/py/data", 1000, 5) == data[1000:1005]
    assert any_box.read("/tmp/py/data", 299_999) == data[-1:]
    assert any_box.read("/tmp/py/data", 10 ** 9) == b""
    any_box.write("/tmp/py/text", "one\ntwo\nthree")
    assert any_box.read_lines("/tmp/py/text", 2, 3) == "two\nthree"
    assert any_box.read_lines("/tmp/py/text") == "one\ntwo\nthree"
    for bad in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError):
            any_box.read("/tmp/py/text", *bad)
        with pytest.raises(ValueError):
            any_box.read_lines("/tmp/py/text", *bad)


def test_writing(box):
    box.write("/tmp/py/new/deep/file", "ü", mode=0o600, owner="5:6")
    info = box.stat("/tmp/py/new/deep/file")
    assert (info.mode, info.uid, info.gid, info.size) == (0o600, 5, 6, 2)
    box.write("/tmp/py/new/deep/file", b"", sync=False)
    assert box.stat("/tmp/py/new/deep/file").mode == 0o600
    box.write("/tmp/py/new/deep/file", bytearray(b"ab"), append=True)
    assert box.read("/tmp/py/new/deep/file") == b"ab"
    with pytest.raises(FileExistsError):
        box.write("/tmp/py/new/deep/file", "x", exclusive=True)
    with pytest.raises(FileNotFoundError):
        box.write("/tmp/py/none/file", "x", parents=False)
    with pytest.raises(IsADirectoryError):
        box.write("/tmp/py", "x")
    for mode in (0o10000, 0):  # 0 would mean 0644
        with pytest.raises(ValueError):
            box.write("/tmp/py/x", "x", mode=mode)
        with pytest.raises(ValueError):
            box.mkdir("/tmp/py/x", mode=mode)
    with pytest.raises(ValueError):
        box.write("/tmp/py/x", "x", user="nosuch")
    with pytest.raises(PermissionError):
        box.write("/tmp/py/x", "x", user="1234:1234")
    with pytest.raises(PermissionError):
        box.read("/tmp/py/new/deep/file", user="1234:1234")


def test_content_of_all_kinds(any_box):
    for data, want in ((b"ab", b"ab"), (bytearray(b"ab"), b"ab"), (memoryview(b"abcd")[::2], b"ac"),
                       ("ü\udcff", b"\xc3\xbc\xff"), ("", b"")):
        any_box.write("/tmp/py/kind", data)
        assert any_box.read("/tmp/py/kind") == want
    for data, kind in ((5, TypeError), (None, TypeError), ([1], TypeError), ("\ud800", ValueError)):
        with pytest.raises(kind):
            any_box.write("/tmp/py/kind", data)
    assert any_box.read("/tmp/py/kind") == b""


def test_a_stream_takes_all_that_is_written(any_box):
    data = os.urandom(MIB + 17)
    with any_box.open("/tmp/py/stream", "wb") as out:
        assert out.write(data) == len(data) and out.write(b"") == 0
    with any_box.open("/tmp/py/stream", "rb") as file:
        assert file.readall() == data


def test_a_stream_that_was_interrupted_publishes_nothing(any_box, monkeypatch):
    from cubby import files
    any_box.write("/tmp/py/cut", "old")
    writing, reading = any_box.open("/tmp/py/cut", "w"), any_box.open("/tmp/py/cut")
    waiting = files.waiting

    def interrupted(call, undo=None):
        waiting(call, undo)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "waiting", interrupted)
    for call in (lambda: writing.write(b"new"), lambda: reading.read(1)):
        with pytest.raises(KeyboardInterrupt):
            call()
    monkeypatch.undo()
    for call in (lambda: writing.write(b"more"), lambda: reading.read(1)):
        with pytest.raises(package.StateError):
            call()
    writing.close()
    reading.close()
    assert any_box.read_text("/tmp/py/cut") == "old"


def test_a_stream_of_several_threads(any_box):
    """The library has a stream for one thread at a time; here they take turns."""
    data = os.urandom(4 * MIB)
    any_box.write("/tmp/py/turns", data)
    pieces, problems = [], []

    def work(stream):
        try:
            while piece := stream.read(30_000):
                pieces.append(piece)
        except BaseException as problem:
            problems.append(problem)

    with any_box.open("/tmp/py/turns") as stream:
        threads = [threading.Thread(target=work, args=(stream,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == [] and sum(map(len, pieces)) == len(data)


def test_a_stream_that_comes_too_late_publishes_nothing(any_box):
    """Nobody waits for it any more: the old content stays."""
    any_box.write("/tmp/py/late", "old")

    def late():
        stream = any_box.open("/tmp/py/late", "w")
        time.sleep(0.5)
        return stream

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(package.in_thread(late), 0.2)

    asyncio.run(give_up())
    time.sleep(1)
    assert any_box.read_text("/tmp/py/late") == "old"


def test_streams(box):
    data = os.urandom(3 * MIB + 17)
    with box.open("/tmp/py/stream", "w") as out:
        assert out.writable() and not out.readable()
        out.write(data)
        assert not box.exists("/tmp/py/stream")  # not before it is closed
    with box.open("/tmp/py/stream") as file:
        assert file.readall() == data
    with box.open("/tmp/py/stream", offset=1000) as file:
        assert io.BufferedReader(file).read(10) == data[1000:1010]
    with io.BufferedWriter(box.open("/tmp/py/stream", "w"), 1 << 16) as out:
        out.write(b"lines\n" * 10)
    assert box.read_text("/tmp/py/stream") == "lines\n" * 10
    with pytest.raises(ValueError):
        box.open("/tmp/py/stream", "rw")
    with pytest.raises(io.UnsupportedOperation):
        box.open("/tmp/py/stream").write(b"x")
    with pytest.raises(IsADirectoryError), box.open("/tmp/py") as file:
        file.read(1)


def test_a_stream_that_is_not_finished_leaves_the_old(box):
    box.write("/tmp/py/kept", "old")
    with pytest.raises(ZeroDivisionError), box.open("/tmp/py/kept", "w") as out:
        out.write(b"new" * 100_000)
        raise ZeroDivisionError
    out = box.open("/tmp/py/kept", "w")
    out.write(b"new")
    out.discard()
    out = box.open("/tmp/py/kept", "w")
    out.write(b"new")
    del out
    gc.collect()
    assert box.read_text("/tmp/py/kept") == "old"
    deadline = time.monotonic() + 5
    while len(box.list("/tmp/py", all_types=True)) > 2:
        assert time.monotonic() < deadline, box.list("/tmp/py", all_types=True)
        time.sleep(0.05)


def test_folders(any_box):
    any_box.mkdir("/tmp/py/a/b/c", mode=0o700)
    assert any_box.stat("/tmp/py/a/b/c").mode == 0o700
    with pytest.raises(FileExistsError):
        any_box.mkdir("/tmp/py/a", parents=False)
    with pytest.raises(OSError) as caught:
        any_box.remove_file("/tmp/py/a")
    assert caught.value.errno == errno.ENOTEMPTY
    any_box.remove_file("/tmp/py/a", recursive=True)
    any_box.write("/tmp/py/x", "x")
    any_box.write("/tmp/py/y", "y")
    with pytest.raises(FileExistsError):
        any_box.rename_file("/tmp/py/x", "/tmp/py/y", replace=False)
    any_box.rename_file("/tmp/py/x", "/tmp/py/y")
    assert any_box.read_text("/tmp/py/y") == "x"


def test_search(any_box):
    any_box.write("/tmp/py/one.py", "import os\nÄ = 1\n")
    any_box.write("/tmp/py/sub/two.py", "IMPORT sys")
    assert any_box.glob("/tmp/py", "*.py") == (["/tmp/py/one.py", "/tmp/py/sub/two.py"], False)
    assert any_box.glob("/tmp/py", "*.py", max_results=1) == (["/tmp/py/one.py"], True)
    assert any_box.grep("/tmp/py", r"^import\s(?=\w)") == ([
        package.Match("/tmp/py/one.py", 1, "import os"),
        package.Match("/tmp/py/sub/two.py", 1, "IMPORT sys")], False)
    with pytest.raises(package.PatternError) as caught:
        any_box.grep("/tmp/py", "ä(")
    assert caught.value.position == 2 and isinstance(caught.value, ValueError)
    with pytest.raises(ValueError):
        any_box.grep("/tmp/py", "x\0")


def test_watch(box):
    with box.watch("/tmp/py") as watch:
        with pytest.raises(TimeoutError):
            watch.next_event(timeout=0.1)
        box.run("cd /tmp/py; mkdir d; echo x >d/f; mv d/f d/g; rm d/g").check()
        seen = []
        while not any(kind == "removed" and path == "d/g" for kind, path, *_ in seen):
            event = watch.next_event(timeout=10)
            seen.append((event.kind, event.path, event.is_dir, event.source))
    assert ("created", "d", True, "") in seen
    assert ("renamed", "d/g", False, "d/f") in seen or ("created", "d/g", False, "") in seen
    assert watch.fileno() == -1
    with pytest.raises(package.ClosedError):
        watch.next_event()


def test_a_watch_ends_with_its_folder(box):
    box.mkdir("/tmp/py/gone")
    with box.watch("/tmp/py/gone", recursive=False) as watch:
        box.remove_file("/tmp/py/gone", recursive=True)
        assert [event.kind for event in watch][-1:] in ([], ["removed"])


def test_from_asyncio(any_box):
    async def all_of_them():
        await asyncio.gather(*[package.in_thread(any_box.write, f"/tmp/py/{i}", str(i))
                               for i in range(40)])
        return await asyncio.gather(*[package.in_thread(any_box.read_text, f"/tmp/py/{i}")
                                      for i in range(40)])

    assert asyncio.run(all_of_them()) == [str(i) for i in range(40)]


def test_side_by_side(any_box):
    problems = []

    def work(number):
        try:
            for i in range(20):
                any_box.write(f"/tmp/py/{number}", f"{number}-{i}", sync=False)
                assert any_box.read_text(f"/tmp/py/{number}") == f"{number}-{i}"
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


# -------------------------------------------------------------------- copies --

def test_copies(box, tmp_path):
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_bytes(b"x" * 1000)
    (tmp_path / "tree/link").symlink_to("sub/file")
    told = []
    box.copy_in(tmp_path / "tree", "/tmp/py", owner="7:8",
                progress=lambda *counts: told.append(counts))
    info = box.stat("/tmp/py/tree/sub/file")
    assert (info.uid, info.gid, info.size) == (7, 8, 1000)
    assert box.stat("/tmp/py/tree/link", follow=False).target == "sub/file"
    box.copy_out("/tmp/py/tree/.", tmp_path / "back")
    assert (tmp_path / "back/sub/file").read_bytes() == b"x" * 1000
    assert os.readlink(tmp_path / "back/link") == "sub/file"
    box.copy_to("/tmp/py/tree/sub/file", box, "/tmp/py/again")
    assert box.read("/tmp/py/again") == b"x" * 1000
    assert all(len(counts) == 3 for counts in told)
    with pytest.raises(FileNotFoundError):
        box.copy_in(tmp_path / "nosuch", "/tmp/py")
    with pytest.raises(FileNotFoundError):
        box.copy_out("/tmp/py/nosuch", tmp_path)


def test_an_error_in_the_last_call_of_progress_is_raised():
    """Of a copy that was done before it could be noticed."""
    from cubby import files

    def broken(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), files._Copy(progress=broken) as copy:
        assert copy._go_on(None, 1, 1, 1) is False


def test_a_copy_ends_when_it_is_told_to(box, tmp_path):
    with open(tmp_path / "big", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(MIB))
    with pytest.raises(package.AbandonedError):
        box.copy_in(tmp_path / "big", "/tmp/py/big", progress=lambda *_: False)

    def broken(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        box.copy_in(tmp_path / "big", "/tmp/py/big", progress=broken)
    assert not box.exists("/tmp/py/big")


def test_tar(box, tmp_path):
    archive = tmp_path / "in.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("a/b")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    with open(archive, "rb") as file:
        box.tar_in(file.fileno(), "/tmp/py")
    assert box.read("/tmp/py/a/b") == b"abc"
    with open(tmp_path / "out.tar", "wb") as file:
        box.tar_out("/tmp/py/a", file.fileno())
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert sorted(tar.getnames()) == ["a", "a/b"]


@pytest.mark.parametrize("wait", [
    'box.watch("/tmp").next_event()', 'box.open("/tmp/py-held", "r").readall()',
    'box.copy_in("/dev/stdin" if False else BIG, "/tmp/py-copied")'])
def test_ctrl_c(box, cubby, tmp_path, wait):
    big = tmp_path / "big"
    with open(big, "wb") as file:
        file.truncate(1)
        for _ in range(192):
            file.write(os.urandom(MIB))
    box.run("rm -f /tmp/py-held; truncate -s 4G /tmp/py-held").check()
    running = Script(f"""
        import cubby
        BIG = {str(big)!r}
        with cubby.Cubby() as home, home.box({box.id!r}) as box:
            print("ready", flush=True)
            try:
                {wait}
                print("it ended by itself", flush=True)
            except KeyboardInterrupt:
                assert box.run("echo on").text == "on\\n"
                print("interrupted", flush=True)
    """, cubby.home)
    assert running.line() == "ready"
    time.sleep(0.5)
    took = running.interrupt()
    box.run("rm -f /tmp/py-held /tmp/py-copied").check()
    assert "interrupted" in running.out and running.process.returncode == 0, running.err
    assert took < 10
    assert not re.search("Traceback", running.err), running.err
