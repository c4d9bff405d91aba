# SPDX-License-Identifier: Apache-2.0
"""Commands over the fake engine: whole and as events, in threads and under asyncio, and how
waits end: by Ctrl-C, by a close, by a deadline, by the end of the interpreter.

The fake agent knows: true, false, echo, cat, exit, sleep, yes, err, env, kill, winsize,
stubborn, crash, hang, and sh with one of these.
"""

import asyncio
import errno
import gc
import multiprocessing
import os
import threading
import time

import pytest
from support import FAKE, fake, home, package, script  # noqa: F401

from cubby import commands

SECOND = 1 << 20


def test_whole(fake):  # noqa: F811
    result = fake.run(["echo", "a  b", "c"])
    assert (result.code, result.stdout, result.stderr) == (0, b"a  b c\n", b"")
    assert result.text == "a  b c\n" and not result.truncated and not result.timed_out
    assert result.check() is result
    assert fake.run("err oops").stderr == b"oops\n"


@pytest.mark.parametrize("command, code, signal", [
    (["true"], 0, 0), (["false"], 1, 0), (["exit", "7"], 7, 0), (["exit", "255"], 255, 0),
    (["kill", "9"], 137, 9), (["kill", "15"], 143, 15), ("exit 3", 3, 0), ("nosuch", 127, 0)])
def test_exits(fake, command, code, signal):  # noqa: F811
    result = fake.run(command)
    assert (result.code, result.exit.signal) == (code, signal)
    if code:
        with pytest.raises(package.CommandFailed, match=f"code {code}") as caught:
            result.check()
        assert caught.value.result is result


def test_input(fake):  # noqa: F811
    data = os.urandom(3 << 20)
    result = fake.run(["cat"], input=data)
    assert result.stdout == data and result.code == 0
    assert fake.run(["cat"], input=b"").stdout == b""
    assert fake.run(["cat"], input="text ü").text == "text ü"
    assert fake.run(["cat"], input=bytearray(b"abc")).stdout == b"abc"
    # a command that does not want its input is no error
    assert fake.run(["true"], input=data).code == 0


def test_input_that_is_none_starts_nothing(fake):  # noqa: F811
    for input, kind in ((5, TypeError), ("\ud800", ValueError), ([b"a"], TypeError)):
        with pytest.raises(kind):
            fake.run(["stubborn", "1000"], input=input)
        with pytest.raises(kind):
            asyncio.run(fake.run_async(["stubborn", "1000"], input))
    for how in ({"stdin": True}, {"detach": True}):
        with pytest.raises(TypeError, match="exec"):
            fake.run(["stubborn", "1000"], **how)
    assert not any("stubborn" in p.command for p in fake.processes())


def test_input_is_never_read_beyond_its_ends(fake):  # noqa: F811
    with fake.exec(["cat"], stdin=True) as running:
        for offset in (-1, 4, 1 << 40):
            with pytest.raises(ValueError):
                running.write_some(b"abc", offset)
        running.write("abc")
        running.close_stdin()
        assert next(iter(running)).data == b"abc"


def test_input_async(fake):  # noqa: F811
    data = os.urandom(3 << 20)
    assert asyncio.run(fake.run_async(["cat"], data)).stdout == data


def test_many_at_once_without_a_thread_each(fake):  # noqa: F811
    async def all_of_them():
        return await asyncio.gather(*[fake.run_async(["echo", str(i)]) for i in range(20)])

    assert [r.stdout for r in asyncio.run(all_of_them())] == [b"%d\n" % i for i in range(20)]


def test_environment_user_and_folder(fake):  # noqa: F811
    assert fake.run(["env"], env={"A": "x=y", "B": b"\xff"}).stdout.splitlines()[-2:] == \
        [b"A=x=y", b"B=\xff"]
    assert fake.run(["id"], user="nobody").stdout == b"nobody\n"
    assert fake.run(["pwd"], workdir="/tmp").stdout == b"/tmp\n"


@pytest.mark.parametrize("command, how, kind", [
    ([], {}, ValueError), (b"true", {}, TypeError), ("", {}, None), ("a\0b", {}, ValueError),
    (["echo", "a\0"], {}, ValueError), (["echo", 5], {}, TypeError),
    (["true"], {"env": {"A\n": "1"}}, ValueError), (["true"], {"env": {"": "1"}}, ValueError),
    (["true"], {"env": {"1A": "1"}}, ValueError), (["true"], {"env": {"A=B": "1"}}, ValueError),
    (["true"], {"env": {"A": "x\0y"}}, ValueError), (["true"], {"env": {"A": 1}}, TypeError),
    (["true"], {"user": "nosuch"}, ValueError), (["true"], {"user": "a\0"}, ValueError),
    (["true"], {"workdir": "relative"}, ValueError), (["true"], {"workdir": "/missing"},
                                                      ValueError),
    (["true"], {"timeout": -1}, ValueError), (["true"], {"timeout": float("nan")}, ValueError),
    (["true"], {"timeout": "1"}, TypeError), (["true"], {"timeout": 1e8}, ValueError),
    (["nosuch"], {}, FileNotFoundError), (["true"], {"env": {"\ud800": "1"}}, ValueError)])
def test_bad_calls(fake, command, how, kind):  # noqa: F811
    if kind is None:
        assert fake.run(command, **how).code == 0
        return
    with pytest.raises(kind):
        fake.run(command, **how)
    assert fake.run(["true"]).code == 0


@pytest.mark.parametrize("command, env", [
    (["echo", "x" * (2 << 20)], None), (["echo", *["x" * 100_000] * 200], None),
    (["true"], {f"A{i}": "x" for i in range(100_000)}), (["echo", *"x" * 100_000], None),
    (["true"], {"A": "x" * (2 << 20)})])
def test_too_much_is_e2big_at_once(fake, command, env):  # noqa: F811
    start = time.monotonic()
    with pytest.raises(OSError) as caught:
        fake.run(command, env=env)
    assert caught.value.errno == errno.E2BIG and isinstance(caught.value, package.Error)
    assert time.monotonic() - start < 5
    assert fake.run(["true"]).code == 0


def test_timeout(fake):  # noqa: F811
    start = time.monotonic()
    result = fake.run(["sleep", "100"], timeout=0.3)
    assert result.timed_out and result.code == 137
    with pytest.raises(package.CommandFailed, match="in time"):
        result.check()
    assert asyncio.run(fake.run_async(["sleep", "100"], timeout=0.3)).timed_out
    assert time.monotonic() - start < 5


def test_a_box_that_does_not_answer_any_more(home):  # noqa: F811
    box = home.start("tiny", **FAKE)
    box.exec(["hang"])
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        box.ping(0.3)
    with pytest.raises(TimeoutError):
        box.run(["true"], timeout=0.5)
    assert time.monotonic() - start < 6
    box.remove(force=True)


def test_output_is_bounded_and_counted(fake):  # noqa: F811
    seen = 0
    with fake.exec(["yes"]) as running:
        for event in running:
            seen += len(event.data)
            if seen > 4 * commands.KEPT:
                break
    collector = commands._Collector()
    want = bytearray()
    for i in range(3000):
        piece = bytes([i % 251]) * 7001
        want += piece
        collector.add(piece)
    half = commands.KEPT // 2
    gap = len(want) - 2 * half
    want = bytes(want)
    assert collector.bytes() == want[:half] + b"\n[... %d bytes left out ...]\n" % gap + \
        want[-half:]
    assert collector.total == len(want)
    # nothing is left out of what just fits
    collector = commands._Collector()
    collector.add(want[:half])
    collector.add(want[half:2 * half])
    assert collector.bytes() == want[:2 * half]


def test_events(fake):  # noqa: F811
    with fake.exec(["cat"], stdin=True) as running:
        running.write(b"one")
        assert running.next_event() == package.Event("stdout", b"one")
        with pytest.raises(TimeoutError):
            running.next_event(timeout=0.1)
        assert running.poll_event() is None
        running.write(b"two")
        running.close_stdin()
        kinds = [(event.kind, event.data) for event in running]
        assert kinds == [("stdout", b"two"), ("exit", b"")]
        assert running.exit.code == 0 and running.pid > 0
        with pytest.raises(package.ClosedError):
            running.poll_event()
    assert running.closed and running.fileno() == -1
    with pytest.raises(package.ClosedError, match="has been closed"):
        running.signal(15)


def test_events_async(fake):  # noqa: F811
    async def talk():
        async with await fake.exec_async(["cat"], stdin=True) as running:
            async def feed():
                await running.write_async(b"x" * (1 << 20))
                running.close_stdin()

            feeding = asyncio.create_task(feed())
            events = [event async for event in running]
            await feeding
            return events

    events = asyncio.run(talk())
    assert sum(len(e.data) for e in events) == 1 << 20 and events[-1].exit.code == 0


def test_signal_and_resize(fake):  # noqa: F811
    with fake.exec(["winsize"], tty=True, stdin=True) as running:
        running.resize(30, 40)
        assert running.next_event(5).data.split() == [b"30", b"40"]
        for rows, columns in ((0, 80), (65536, 80), (24, -1)):  # would wrap around
            with pytest.raises(ValueError):
                running.resize(rows, columns)
            with pytest.raises(ValueError):
                fake.exec(["true"], tty=True, rows=rows or -1, columns=columns)
        running.signal(15)
        assert running.wait(5).code == 143


def test_closing_kills(fake):  # noqa: F811
    running = fake.exec(["stubborn", "1000"])
    assert len(fake.processes()) >= 1
    running.close()
    running.close()
    deadline = time.monotonic() + 5
    while any("stubborn" in p.command for p in fake.processes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_cancelling_kills(fake):  # noqa: F811
    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(fake.run_async(["stubborn", "1000"]), 0.3)

    asyncio.run(give_up())
    deadline = time.monotonic() + 5
    while any("stubborn" in p.command for p in fake.processes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_thread_that_waits_notices_a_close(fake):  # noqa: F811
    running = fake.exec(["sleep", "100"])
    seen = []

    def wait():
        try:
            running.wait()
        except package.ClosedError as problem:
            seen.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    running.close()
    thread.join(5)
    assert not thread.is_alive() and len(seen) == 1


def test_other_threads_run_while_a_call_waits(fake):  # noqa: F811
    count = [0]
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=spin)
    thread.start()
    with pytest.raises(TimeoutError):
        fake.wait(timeout=1)
    stop.set()
    thread.join()
    assert count[0] > 50


def test_a_box_dies_under_a_wait(home):  # noqa: F811
    box = home.start("tiny", **FAKE)
    running = box.exec(["sleep", "100"])
    threading.Timer(0.2, box.kill).start()
    start = time.monotonic()
    with pytest.raises(ConnectionError):
        running.wait()
    assert time.monotonic() - start < 2
    box.remove(force=True)


def test_closed_box(home):  # noqa: F811
    box = home.start("tiny", **FAKE)
    name = box.name
    box.close()
    box.close()
    assert box.closed
    with pytest.raises(package.ClosedError):
        box.run(["true"])
    with home.box(name) as again:
        again.remove(force=True)
    with pytest.raises(FileNotFoundError):
        home.box(name)


def test_a_home_stays_open_for_what_was_made_from_it(home):  # noqa: F811
    own = package.Cubby(home.home)
    box = own.start("tiny", **FAKE)
    pool = own.provider({"image": "tiny", "engine": "fake", "spares": 0, "pool": "late"})
    own.close()
    with pytest.raises(package.ClosedError):
        own.boxes()
    running = box.exec(["cat"], stdin=True)
    assert pool.acquire("a", "b").box.run(["echo", "x"]).text == "x\n"
    pool.close()
    with pytest.raises(package.ClosedError):
        pool.acquire("a", "b")
    box.remove(force=True)
    box.close()
    running.close()


def test_life_and_names(home):  # noqa: F811
    box = home.create("tiny", name="one", command=["sleep", "100"], env={"A": "1"},
                      labels={"team": "blue"}, memory=128 << 20, cpus=0.5, **FAKE)
    assert box.info().state == "created" and box.info().exit_code is None
    with pytest.raises(FileExistsError):
        home.create("tiny", name="one", main=False, **FAKE)
    with pytest.raises(package.StateError):
        box.run(["true"])
    box.start()
    assert box.info().state == "running" and "one" in [b.name for b in home.boxes()]
    box.pause()
    box.unpause()
    box.rename("two")
    assert box.name == "two" and box.inspect()["config"]
    assert box.stats().processes >= 0
    box.stop(1)
    assert box.wait() in (0, 143) and box.info().state == "stopped"
    assert list(box.logs()) == []
    box.remove()
    for bad in ({"memory": -1}, {"cpus": -1}, {"name": "a\0b"}, {"name": "-x"}, {"ttl": -2}):
        with pytest.raises(ValueError):
            home.create("tiny", **{"main": False, **FAKE, **bad})
    with pytest.raises(FileNotFoundError):
        home.create("nosuch", main=False, **FAKE)


def test_what_the_engine_does_not_offer(fake):  # noqa: F811
    with pytest.raises(NotImplementedError):
        fake.fork(2)
    for bad in (0, -1, 1.5):
        with pytest.raises((ValueError, TypeError)):
            fake.fork(bad)


def test_garbage_closes_handles(home):  # noqa: F811
    before = len(os.listdir("/proc/self/fd"))
    box = home.start("tiny", **FAKE)
    for _ in range(20):
        box.exec(["sleep", "100"])
    gc.collect()
    box.remove(force=True)
    del box
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_handle_that_goes_while_its_parent_is_looked_at(fake):  # noqa: F811
    """The collector may run anywhere, also while a call holds the lock of the parent."""
    running = fake.exec(["sleep", "100"])
    done = []

    def look():
        with fake._handle._lock:
            running.close()
        done.append(True)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    assert done and fake.run(["true"]).code == 0


def test_what_fails_when_it_is_given_back(fake):  # noqa: F811
    """The thread of an abandoned call goes on to serve others."""
    from cubby import _call

    def broken(_):
        raise ZeroDivisionError

    job = _call._Job(lambda: time.sleep(0.2), broken)
    _call._workers.start(job)
    job.abandon()
    time.sleep(0.5)
    idle = len(_call._workers.idle)
    assert idle >= 1
    for _ in range(idle + 1):
        assert fake.run(["echo", "on"]).text == "on\n"


def test_where_no_thread_can_be_made(fake, monkeypatch):  # noqa: F811
    """At the end of the interpreter, from 3.12 on, say in a program's own atexit."""
    from cubby import _call

    def start(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def on_a_thread():
        await package.in_thread(fake.ping)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(_call, "_workers", _call._Workers())
    assert fake.run(["echo", "last"]).text == "last\n"
    with pytest.raises(package.StateError):
        asyncio.run(on_a_thread())


# ------------------------------------------------------------------- Ctrl-C --

@pytest.mark.parametrize("wait", [
    'box.run(["stubborn", "1000"])', 'box.exec(["stubborn", "1000"]).wait()', "box.wait()",
    'next(iter(box.exec(["sleep", "1000"])))', "box.stop(1000)",
    'asyncio.run(box.run_async(["stubborn", "1000"]))',
    'asyncio.run(cubby.in_thread(box.wait))'])
def test_ctrl_c_ends_a_wait(script, wait):  # noqa: F811
    running = script(f"""
        import asyncio, cubby, os
        home = cubby.Cubby()
        box = home.start("tiny", engine="fake", template=False, command=["stubborn", "1000"])
        print("ready", flush=True)
        try:
            {wait}
        except KeyboardInterrupt:
            assert not any("1000" in p.command and p.pid != 1 and p.age_ms > 5000
                           for p in box.processes())
            box.remove(force=True)
            print("interrupted", flush=True)
    """)
    assert running.line() == "ready"
    time.sleep(0.4)
    took = running.interrupt()
    assert running.process.returncode == 0, running.err
    assert "interrupted" in running.out and took < 5


def test_ctrl_c_leaves_handles_in_order(script):  # noqa: F811
    """What an abandoned call brings later is given back, and the handle still works."""
    running = script("""
        import cubby, signal, threading, time
        home = cubby.Cubby()
        box = home.start("tiny", engine="fake", template=False)
        main = threading.main_thread().ident
        kept = []  # no finalizer that would swallow the interrupt
        for i in range(20):
            try:
                threading.Timer(0.0005 * i, signal.pthread_kill, (main, signal.SIGINT)).start()
                kept.append(box.exec(["echo", "x"]))
                time.sleep(0.1)
            except KeyboardInterrupt:
                pass
            else:
                raise SystemExit("no interrupt")
        assert box.run(["echo", "on"]).text == "on\\n"
        box.remove(force=True)
    """)
    assert running.end() == 0, running.err


# ------------------------------------------------- fork, and the end of all --

def _in_child(box, home, running, queue):  # noqa: F811
    for call in (lambda: box.run(["true"]), lambda: home.boxes(), lambda: box.ping()):
        try:
            call()
            queue.put("worked")
        except package.StateError as problem:
            queue.put(str(problem))
    try:
        running.fileno()
        queue.put("worked")
    except package.StateError as problem:
        queue.put(str(problem))
    running.close()
    box.close()
    with package.Cubby(home.home) as own, own.box(box.id) as again:
        queue.put(again.run(["echo", "own"]).text)


def test_a_forked_child_does_not_touch_the_parents(fake, home):  # noqa: F811
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    running = fake.exec(["sleep", "100"])
    child = context.Process(target=_in_child, args=(fake, home, running, queue))
    child.start()
    answers = [queue.get(timeout=20) for _ in range(5)]
    child.join(20)
    assert child.exitcode == 0
    assert all("parent process" in answer for answer in answers[:4]) and answers[4] == "own\n"
    assert running.fileno() >= 0 and running.poll_event() is None
    assert fake.run(["echo", "still"]).text == "still\n"


def test_a_child_that_exits_like_a_program(script):  # noqa: F811
    running = script("""
        import cubby, os, sys
        home = cubby.Cubby()
        box = home.start("tiny", engine="fake", template=False)
        provider = home.provider({"image": "tiny", "engine": "fake", "spares": 0, "pool": "kid"})
        got = provider.acquire("a", "b")
        running = box.exec(["sleep", "1000"])
        if os.fork() == 0:
            sys.exit(0)  # with everything that the end of an interpreter does
        assert os.wait()[1] == 0
        assert got.box.run(["echo", "alive"]).text == "alive\\n"
        assert running.poll_event() is None
        box.remove(force=True)
    """)
    assert running.end() == 0, running.err


def test_spawned_children_work(script, tmp_path):  # noqa: F811
    program = tmp_path / "program.py"
    program.write_text("""
import cubby, multiprocessing
def work(name):
    with cubby.Cubby() as home, home.box(name) as box:
        return box.run(["echo", name]).text
if __name__ == "__main__":
    home = cubby.Cubby()
    box = home.start("tiny", engine="fake", template=False)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [box.id] * 4) == [box.id + "\\n"] * 4
    box.remove(force=True)
""")
    running = script(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert running.end() == 0, running.err


def test_the_end_of_the_interpreter(script, home):  # noqa: F811
    """Everything open, calls under way, callbacks set: the program ends, quietly and soon."""
    running = script("""
        import cubby, logging, sys, threading, time
        lines = []
        home = cubby.Cubby(log=lambda level, line: lines.append(line),
                           progress=lambda *_: None)
        box = home.start("tiny", engine="fake", template=False)
        provider = home.provider({"image": "tiny", "engine": "fake", "spares": 0, "pool": "end"})
        provider.acquire("a", "b")
        running = box.exec(["yes"])
        threading.Thread(target=running.wait, daemon=True).start()
        threading.Thread(target=box.wait, daemon=True).start()
        print(box.id, flush=True)
        keep = [home, box, provider, running]
    """)
    start = time.monotonic()
    name = running.line()
    assert running.end() == 0, running.err
    assert time.monotonic() - start < 15 and "Traceback" not in running.err, running.err
    with home.box(name) as box:  # boxes go on
        assert box.run(["echo", "on"]).text == "on\n"
        box.remove(force=True)
    assert not [info for info in home.boxes() if info.name.startswith("end-")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_in_a_callback_reaches_nobody(home, capfd):  # noqa: F811
    def broken(*_):
        raise ZeroDivisionError

    with package.Cubby(home.home, log=broken, progress=broken) as other:
        box = other.start("tiny", **FAKE)
        assert box.run(["true"]).code == 0
        box.remove(force=True)
