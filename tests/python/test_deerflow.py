# SPDX-License-Identifier: Apache-2.0
"""The binding for DeerFlow, sentence by sentence of the sandbox contract. The base classes
are those of shape/, or DeerFlow's own where CUBBY_CONFORMANCE says so (make conformance).
Commands run on the fake engine where that is enough, files on a machine."""

import asyncio
import errno
import inspect
import os
import re
import sys
import time
from pathlib import Path

import pytest
from support import POOL, home, package, script  # noqa: F401

CONFORMANCE = os.environ.get("CUBBY_CONFORMANCE") == "1"
SHAPE = Path(__file__).parent / "shape"
if not CONFORMANCE:
    sys.path.insert(0, str(SHAPE))

from deerflow.sandbox.sandbox import Sandbox  # noqa: E402
from deerflow.sandbox.sandbox_provider import SandboxProvider  # noqa: E402
from deerflow.sandbox.search import GrepMatch  # noqa: E402

from cubby import deerflow as binding  # noqa: E402


# The suite's fixture that ends strays leaves this one.
MODULE_BOXES = (f"dfmachine-{package.scope_token('alice', 'files')}",)


@pytest.fixture
def pool(home):  # noqa: F811
    """A provider on the fake engine, and its sandbox for alice."""
    made = []

    def make(**keys):
        made.append(binding.CubbyProvider(
            {**POOL, "pool": f"df{os.getpid()}.{len(made)}", **keys}, home=home.home))
        return made[-1]
    yield make
    for one in made:
        one.shutdown()


@pytest.fixture
def sandbox(pool):
    provider = pool()
    return provider.get(provider.acquire("thread", user_id="alice"))


@pytest.fixture(scope="module")
def files(cubby):
    """A sandbox that is a machine, for this module."""
    made = binding.CubbyProvider({"image": "busybox", "memory_mib": 256, "spares": 0,
                                  "pool": "dfmachine"}, home=str(cubby.home))
    sandbox = made.get(made.acquire("files", user_id="alice"))
    yield sandbox
    made.shutdown()


# --------------------------------------------------------------------- shape --

def test_the_classes_fit():
    assert issubclass(binding.CubbyProvider, SandboxProvider)
    assert issubclass(binding.CubbySandbox, Sandbox)
    assert not inspect.isabstract(binding.CubbyProvider)
    assert not inspect.isabstract(binding.CubbySandbox)
    assert binding.CubbyProvider.uses_thread_data_mounts is False
    assert binding.CubbyProvider.needs_upload_permission_adjustment is True
    assert binding.CubbySandbox.persistent_shell_sessions is False
    assert binding.GrepMatch is GrepMatch


@pytest.mark.parametrize("base, ours", [(Sandbox, "CubbySandbox"),
                                        (SandboxProvider, "CubbyProvider")])
def test_every_call_takes_what_the_base_takes(base, ours):
    for name, function in inspect.getmembers(base, inspect.isfunction):
        if name.startswith("_"):
            continue
        theirs = inspect.signature(function).parameters
        own = inspect.signature(getattr(getattr(binding, ours), name)).parameters
        for word, given in theirs.items():
            assert word in own, (name, word)
            assert own[word].kind == given.kind and own[word].default == given.default, (name, word)


def test_without_deerflow(script):  # noqa: F811
    running = script("""
        import sys
        from cubby import deerflow
        assert deerflow.GrepMatch.__module__ == "cubby.files"
        try:
            deerflow.CubbyProvider()
        except ImportError as problem:
            assert "install" in str(problem), problem
        else:
            raise SystemExit("no error")
        provider = deerflow.CubbyProvider({"image": "tiny", "engine": "fake", "spares": 0,
                                           "pool": "alone"})
        sandbox = provider.get(provider.acquire("t", user_id="u"))
        assert sandbox.execute_command("echo hi") == "hi\\n"
    """)
    assert running.end() == 0, running.err


def test_a_broken_deerflow_is_not_taken_for_none(script, tmp_path):  # noqa: F811
    (tmp_path / "deerflow/sandbox").mkdir(parents=True)
    (tmp_path / "deerflow/sandbox/sandbox.py").write_text("import nosuchmodule\n")
    running = script(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            import cubby.deerflow
        except ModuleNotFoundError as problem:
            assert problem.name == "nosuchmodule"
        else:
            raise SystemExit("no error")
    """)
    assert running.end() == 0, running.err


# ------------------------------------------------------------- configuration --

@pytest.mark.skipif(CONFORMANCE, reason="DeerFlow's own configuration is a file")
def test_one_line_of_the_configuration(home, monkeypatch):  # noqa: F811
    """What the model carries by default does not count, what the user set does; variables
    that DeerFlow has resolved are not resolved again."""
    from deerflow import config
    monkeypatch.setenv("CUBBY_HOME", home.home)
    config.set_sandbox_config(**POOL, pool="dfconfig", replicas=1, overflow_policy="reject",
                              environment={"DOLLAR": "$HOME", "PLAIN": "x"}, port=None,
                              bash_command_timeout=5)
    provider = binding.CubbyProvider()
    try:
        sandbox = provider.get(provider.acquire("t", user_id="u"))
        printed = sandbox.execute_command("env")
        assert "DOLLAR=$HOME\n" in printed and "PLAIN=x\n" in printed
        assert "PLAIN=y\n" in sandbox.execute_command("env", env={"PLAIN": "y"})
        with pytest.raises(Exception, match="(?i)room|full|capacity|replicas") as caught:
            provider.acquire("other", user_id="u")
        assert type(caught.value).__name__ == "SandboxCapacityExceededError"
        assert (caught.value.active, caught.value.replicas) == (1, 1)
        with pytest.raises(type(caught.value)):
            asyncio.run(provider.acquire_async("other", user_id="u"))
    finally:
        provider.shutdown()
        config.set_sandbox_config()


@pytest.mark.skipif(CONFORMANCE, reason="DeerFlow's own configuration is a file")
@pytest.mark.parametrize("keys, says", [
    ({"environment": {"A-B": "1"}}, "A-B"), ({"environment": {"A\n": "1"}}, "A"),
    ({"replica": 3}, "replicas"), ({"replicas": -1}, "replicas")])
def test_a_bad_configuration(home, monkeypatch, keys, says):  # noqa: F811
    from deerflow import config
    monkeypatch.setenv("CUBBY_HOME", home.home)
    config.set_sandbox_config(**POOL, **keys)
    with pytest.raises(ValueError, match=says):
        binding.CubbyProvider()
    config.set_sandbox_config()


# ------------------------------------------------------------------ provider --

def test_ids_and_identity(pool):
    provider = pool()
    one = provider.acquire("abc", user_id=None)
    assert one == "c0b80df1b97d187e"  # the text None, as BoxLite's callers have it
    assert provider.acquire("abc") == one
    with pytest.raises(package.IdentityError):
        provider.acquire("abc", user_id="None")
    assert provider.acquire("thread-1", user_id="alice") == "dc977b840cb8638e"
    anonymous = provider.acquire()
    assert len(anonymous) == 8 and provider.get(anonymous).id == anonymous


def test_get_and_release(pool):
    provider = pool()
    name = provider.acquire("t", user_id="u")
    first = provider.get(name)
    assert first.id == name and provider.get(name) is first
    assert provider.acquire("t", user_id="u") == name and provider.get(name) is first
    assert provider.get("0123456789abcdef") is None and provider.get("") is None
    provider.release(name)
    provider.release(name)
    provider.release("nosuch")
    assert provider.get(name) is None
    assert asyncio.run(provider.acquire_async("t", user_id="u")) == name
    assert provider.get(name).execute_command("echo back") == "back\n"


def test_get_never_waits(pool):
    provider = pool()
    name = provider.acquire("t", user_id="u")
    start = time.monotonic()
    for _ in range(1000):
        provider.get(name)
    assert time.monotonic() - start < 2


def test_a_dead_sandbox(pool):
    provider = pool()
    name = provider.acquire("t", user_id="u")
    old = provider.get(name)
    assert old.execute_command("crash").startswith("Error: ")
    assert provider.get(name) is None
    assert old.execute_command("echo x") == "Error: sandbox has been closed"
    assert provider.acquire("t", user_id="u") == name
    new = provider.get(name)
    assert new is not old and new.execute_command("echo x") == "x\n"
    assert old.execute_command("echo x") == "Error: sandbox has been closed"


def test_reset_and_shutdown(pool):
    provider = pool()
    name = provider.acquire("t", user_id="u")
    provider.reset()
    assert provider.get(name) is None
    with pytest.raises(package.ShutdownError):
        provider.acquire("t", user_id="u")
    provider.shutdown()
    provider.shutdown()
    with pytest.raises(package.Error):
        provider.acquire("t", user_id="u")
    assert provider.get(name) is None
    provider.release(name)


def test_a_failed_acquire_still_shuts_down(home):  # noqa: F811
    provider = binding.CubbyProvider({**POOL, "image": "nosuch", "pool": "dfbad"}, home=home.home)
    with pytest.raises(FileNotFoundError):
        provider.acquire("t", user_id="u")
    provider.shutdown()


# ------------------------------------------------------------------ commands --

@pytest.mark.parametrize("command, text", [
    ("echo one", "one\n"), ("err two", "two\n"), ("true", "(no output)"),
    ("false", "Command exited with code 1"), ("exit 7", "Command exited with code 7"),
    ("nosuch", "sh: not found\n"), ("kill 9", "Command exited with code 137")])
def test_texts_of_commands(sandbox, command, text):
    assert sandbox.execute_command(command) == text
    assert sandbox.execute_command_in_scope(command, scope_id="x") == text


def test_texts_of_both_streams(files):
    run = files.execute_command
    assert run("echo out; echo err >&2") == "out\n\nerr\n"
    assert run("printf out; printf err >&2; exit 3") == "out\nerr"
    assert run("printf out; exit 3") == "out"
    assert run("printf '\\377x'") == "\ufffdx"
    assert run("echo $0") == "sh\n"  # a login shell
    assert run("cd /tmp; A=1; pwd") == "/tmp\n" and run("echo $A.$PWD") != "1./tmp\n"


@pytest.mark.parametrize("seconds, text", [
    (1, "1"), (2.0, "2"), (0.5, "0.5"), (86_400, "86400"), (1_234_567, "1234567"), (0.1, "0.1")])
def test_the_line_of_a_timeout(seconds, text):
    assert binding.timeout_text(seconds) == f"Error: command timed out after {text} seconds"


def test_timeouts(files):
    start = time.monotonic()
    assert files.execute_command("echo early; sleep 60", timeout=1) == \
        "early\nError: command timed out after 1 seconds"
    assert files.execute_command("printf early; sleep 60", timeout=0.5) == \
        "early\nError: command timed out after 0.5 seconds"
    assert files.execute_command("sleep 60", timeout=0.5) == \
        "Error: command timed out after 0.5 seconds"
    # the whole tree is gone, what left its session too
    files.execute_command("setsid sleep 4321 & (sleep 4321 &) ; sleep 4321", timeout=0.5)
    assert time.monotonic() - start < 12
    assert "4321" not in files.execute_command("ps")


@pytest.mark.parametrize("name", ["A-B", "1A", "", "A ", "A\n", "A=B", "é", 5, None])
def test_names_of_variables(sandbox, name):
    with pytest.raises(ValueError):
        sandbox.execute_command("echo ran", env={name: "x"})


def test_variables_are_of_one_command(files):
    value = "a'b\"c $HOME `id` \\ \n*"
    assert files.execute_command('printf %s "$VALUE"', env={"VALUE": value}) == value
    assert files.execute_command('printf %s "[$VALUE]"') == "[]"
    assert files.execute_command("true", env={"VALUE": "a\0b"}).startswith("Error: ")


@pytest.mark.parametrize("command, env", [
    ("echo " + "x" * (2 << 20), None), ("true", {"A": "x" * (2 << 20)}),
    ("true", {f"A{i}": "x" for i in range(100_000)})])
def test_too_much_for_a_command(sandbox, command, env):
    assert sandbox.execute_command(command, env=env).startswith("Error: ")
    assert sandbox.execute_command("echo on") == "on\n"


def test_a_closed_sandbox(sandbox):
    sandbox.close()
    assert sandbox.execute_command("echo x") == "Error: sandbox has been closed"


# --------------------------------------------------------------------- files --

BAD_PATHS = [("", ValueError), ("a\0b", ValueError), ("..", PermissionError),
             ("/tmp/../etc", PermissionError), ("/tmp/..", PermissionError),
             ("..\\x", PermissionError), ("/tmp\\..\\etc", PermissionError), (5, TypeError)]


@pytest.mark.parametrize("path, kind", BAD_PATHS)
@pytest.mark.parametrize("call", [
    lambda s, p: s.read_file(p), lambda s, p: s.write_file(p, ""), lambda s, p: s.list_dir(p),
    lambda s, p: s.update_file(p, b""), lambda s, p: s.download_file(p),
    lambda s, p: s.glob(p, "*"), lambda s, p: s.grep(p, "x")],
    ids=["read", "write", "list", "update", "download", "glob", "grep"])
def test_paths(sandbox, call, path, kind):
    with pytest.raises(kind):
        call(sandbox, path)


def test_dots_in_names_are_names(files):
    for name in ("a..b", "..x", "x..", "...", "a\\b"):
        files.write_file(f"/tmp/dots/{name}", name)
        assert files.read_file(f"/tmp/dots/{name}") == name
    assert files.list_dir("/tmp/dots") == ["/tmp/dots", *sorted(
        f"/tmp/dots/{name}" for name in ("a..b", "..x", "x..", "...", "a\\b"))]


TEXT = "one\ntwo\r\nthree\x0bfour\u2028five\n\nsix"


@pytest.mark.parametrize("start, end", [
    (None, None), (1, 1), (2, 3), (0, 2), (None, 2), (3, None), (3, 0), (0, 0), (5, 100),
    (100, 200), (4, 2)])
def test_ranges_of_lines(files, start, end):
    files.write_file("/tmp/lines", TEXT)
    got = files.read_file("/tmp/lines", start, end)
    if start is None and end is None:
        assert got == TEXT
        return
    lines = TEXT.splitlines()
    assert got == "\n".join(lines[(start or 1) - 1:end or len(lines)])


@pytest.mark.parametrize("start, end", [(-1, None), (None, -1), (-3, -1)])
def test_negative_lines(files, start, end):
    files.write_file("/tmp/lines", TEXT)
    with pytest.raises(ValueError):
        files.read_file("/tmp/lines", start, end)


def test_text_that_is_none(files):
    data = bytes(range(256)) + b"\xf0\x9f\x98" + b"\xed\xa0\x80"
    files.update_file("/tmp/binary", data)
    assert files.read_file("/tmp/binary") == data.decode("utf-8", "replace")
    assert files.read_file("/tmp/binary", 1, 3) == \
        "\n".join(data.decode("utf-8", "replace").splitlines()[:3])


def test_writing(files):
    files.write_file("/tmp/new/deep/file", "a")
    files.write_file("/tmp/new/deep/file", "b", append=True)
    assert files.read_file("/tmp/new/deep/file") == "ab"
    files.execute_command("chmod 640 /tmp/new/deep/file; chown 12:34 /tmp/new/deep/file")
    files.write_file("/tmp/new/deep/file", "over")
    assert files.execute_command("stat -c '%a %u %g' /tmp/new/deep/file") == "640 12 34\n"
    files.update_file("/tmp/new/deep/file", b"\0\xff")
    assert files.execute_command("od -An -tx1 /tmp/new/deep/file").split() == ["00", "ff"]
    files.update_file("/tmp/new/deep/file", b"")
    assert files.read_file("/tmp/new/deep/file") == ""
    assert files.list_dir("/tmp/new") == ["/tmp/new", "/tmp/new/deep", "/tmp/new/deep/file"]


@pytest.mark.parametrize("path, kind", [
    ("/tmp/nosuch", FileNotFoundError), ("/tmp", IsADirectoryError),
    ("/etc/passwd/x", NotADirectoryError), ("/dev/zero", ValueError), ("/tmp/fifo", ValueError),
    ("/tmp/" + "x" * 300, OSError), ("/" + "x/" * 3000, OSError)])
def test_what_cannot_be_read_raises_at_once(files, path, kind):
    files.execute_command("test -p /tmp/fifo || mkfifo /tmp/fifo")
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        files.read_file(path)
    assert isinstance(caught.value, package.Error) and time.monotonic() - start < 5


def test_downloads(files):
    files.write_file("/mnt/user-data/outputs/x", "data")
    assert files.download_file("/mnt/user-data/outputs/x") == b"data"
    assert files.download_file("mnt/user-data/outputs/x") == b"data"
    files.update_file("/mnt/user-data\\x", b"beside it, with a backslash in its name")
    for path in ("/etc/passwd", "/mnt/user-datax", "/mnt", "/", "mnt/other", "/mnt/user-data\\x"):
        with pytest.raises(PermissionError):
            files.download_file(path)
    for path in ("/mnt/user-data/nosuch", "/mnt/user-data", "/mnt/user-data/outputs/fifo"):
        files.execute_command("mkfifo /mnt/user-data/outputs/fifo 2>/dev/null")
        with pytest.raises(OSError):
            files.download_file(path)


def test_the_largest_download(files):
    files.execute_command(f"truncate -s {binding.DOWNLOAD_MAX} /mnt/user-data/outputs/big")
    assert len(files.download_file("/mnt/user-data/outputs/big")) == 104_857_600
    files.execute_command("printf x >> /mnt/user-data/outputs/big")
    with pytest.raises(OSError) as caught:
        files.download_file("/mnt/user-data/outputs/big")
    assert caught.value.errno == errno.EFBIG
    files.execute_command("rm /mnt/user-data/outputs/big")


def test_listing(files):
    files.execute_command("rm -rf /tmp/tree; mkdir -p /tmp/tree/a/b/c /tmp/tree/.git; cd /tmp/tree;"
                          "touch a/one a/b/two a/b/c/three .git/x './-dash' 'sp ace' "
                          "\"$(printf 'new\\nline')\" \"$(printf '\\377')\"; ln -s a link; "
                          "mkfifo fifo; mkdir empty")
    root = ["/tmp/tree/" + name for name in
            sorted(["a", ".git", "-dash", "sp ace", "new\nline", "empty"])] + ["/tmp/tree/\udcff"]
    assert files.list_dir("/tmp/tree", 0) == ["/tmp/tree"]
    assert files.list_dir("/tmp/tree", 1) == ["/tmp/tree", *root]
    deep = files.list_dir("/tmp/tree")
    assert set(deep) == {"/tmp/tree", *root, "/tmp/tree/a/one", "/tmp/tree/a/b",
                         "/tmp/tree/.git/x"} and deep[0] == "/tmp/tree"
    assert "/tmp/tree/a/b/c/three" in files.list_dir("/tmp/tree", 10)
    assert files.list_dir("/tmp/tree/empty") == ["/tmp/tree/empty"]
    with pytest.raises(ValueError):
        files.list_dir("/tmp/tree", -1)
    with pytest.raises(FileNotFoundError):
        files.list_dir("/tmp/nosuch")
    files.execute_command("mkdir -p /tmp/many; cd /tmp/many; seq 700 | xargs touch")
    assert len(files.list_dir("/tmp/many")) == 500


# -------------------------------------------------------------------- search --

@pytest.fixture(scope="module")
def tree(files):
    files.execute_command("rm -rf /tmp/s; mkdir -p /tmp/s/a/b /tmp/s/.git /tmp/s/node_modules")
    for path, text in [("top.py", "import os\nprint('Top')\n"), ("a/one.py", "x = 1\n"),
                       ("a/b/two.py", "y = 2\nTOP\n"), ("a/b/.hidden.py", "top"),
                       (".git/x.py", "top"), ("node_modules/y.py", "top"), ("a/note.txt", "top\r\n"),
                       ("a/long.txt", "top" + "é" * 300), ("a/too.txt", "top" + "x" * 3000)]:
        files.write_file(f"/tmp/s/{path}", text)
    files.update_file("/tmp/s/a/binary", b"top\0")
    files.update_file("/tmp/s/a/odd.txt", b"top \xff\n")
    return files


def test_glob(tree):
    paths, more = tree.glob("/tmp/s", "*.py")
    assert set(paths) == {"/tmp/s/top.py", "/tmp/s/a/one.py", "/tmp/s/a/b/two.py",
                          "/tmp/s/a/b/.hidden.py"} and more is False
    assert tree.glob("/tmp/s", "b/*.py")[0] == ["/tmp/s/a/b/.hidden.py", "/tmp/s/a/b/two.py"]
    assert "/tmp/s/a/b" in tree.glob("/tmp/s", "*", include_dirs=True)[0]
    assert tree.glob("/tmp/s", "*.py", max_results=2)[1] is True
    with pytest.raises(FileNotFoundError):
        tree.glob("/tmp/nosuch", "*")
    with pytest.raises(NotADirectoryError):
        tree.glob("/tmp/s/top.py", "*")


def test_grep(tree):
    found, more = tree.grep("/tmp/s", "top")
    assert all(type(match) is GrepMatch for match in found) and more is False
    lines = {(match.path, match.line_number): match.line for match in found}
    assert lines == {("/tmp/s/top.py", 2): "print('Top')", ("/tmp/s/a/b/two.py", 2): "TOP",
                     ("/tmp/s/a/b/.hidden.py", 1): "top", ("/tmp/s/a/note.txt", 1): "top",
                     ("/tmp/s/a/odd.txt", 1): "top \ufffd",
                     ("/tmp/s/a/long.txt", 1): "top" + "é" * 194 + "..."}
    assert [m.line for m in tree.grep("/tmp/s", "TOP", case_sensitive=True)[0]] == ["TOP"]
    assert {m.path for m in tree.grep("/tmp/s", "top", glob="*.py")[0]} == {
        "/tmp/s/top.py", "/tmp/s/a/b/two.py", "/tmp/s/a/b/.hidden.py"}
    assert [m.line for m in tree.grep("/tmp/s", "('Top')", literal=True)[0]] == ["print('Top')"]
    assert [m.line for m in tree.grep("/tmp/s/a/one.py", r"\bx\s*=\s*(?P<n>\d+?)$")[0]] == ["x = 1"]
    assert tree.grep("/tmp/s", "top", max_results=1)[1] is True
    with pytest.raises(FileNotFoundError):
        tree.grep("/tmp/nosuch", "x")


@pytest.mark.parametrize("pattern, position", [("a(b", 3), ("é[", 2), ("*", None), ("(?P<n", None)])
def test_patterns_that_do_not_compile(tree, pattern, position):
    for kind in (ValueError, re.error):
        with pytest.raises(kind) as caught:
            tree.grep("/tmp/s", pattern)
    assert caught.value.pos >= 0 and (position is None or caught.value.pos == position)


def test_a_pattern_that_explodes(tree):
    tree.write_file("/tmp/bomb", "a" * 1900 + "b")
    start = time.monotonic()
    with pytest.raises(OSError):
        tree.grep("/tmp/bomb", "^(a+)+$")
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("call", [
    lambda s, n: s.glob("/tmp", "*", max_results=n), lambda s, n: s.grep("/tmp", "x", max_results=n)])
@pytest.mark.parametrize("count, kind", [(0, ValueError), (-1, ValueError), (1 << 40, ValueError),
                                         (1.5, TypeError)])
def test_counts(tree, call, count, kind):
    with pytest.raises(kind):
        call(tree, count)
