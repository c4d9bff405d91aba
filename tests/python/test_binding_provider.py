# SPDX-License-Identifier: Apache-2.0
"""The provider from Python, over the fake engine; the pool itself has tests in C."""

import asyncio
import contextvars
import multiprocessing
import threading
import time

import pytest
from support import POOL, fake, home, package, provider, script  # noqa: F401

TOKENS = [("alice", "thread-1", "dc977b840cb8638e"), ("", "t", "983743815e8fe2ac"),
          ("u", "", "27e14d2b41b03178"), ("用户", "线程", "cfa8a5bf41ddff8d"),
          ("None", "abc", "c0b80df1b97d187e"), (None, "abc", "c0b80df1b97d187e"),
          # of the effective user, as AIO's and E2B's callers give it, and of `user or ""`
          ("default", "t", None), (b"u", b"", "27e14d2b41b03178")]


@pytest.mark.parametrize("user, thread, token", TOKENS)
def test_tokens(user, thread, token):
    made = package.scope_token(user, thread)
    assert package.is_scope_token(made) and token in (None, made)


@pytest.mark.parametrize("text, is_one", [
    ("dc977b840cb8638e", True), ("dc977b840cb8638", False), ("DC977B840CB8638E", False),
    ("dc977b840cb8638e\n", False), ("", False), ("dc977b840cb8638e\0", False), ("用", False)])
def test_what_is_a_token(text, is_one):
    assert package.is_scope_token(text) is is_one


def test_reused_reclaimed_and_apart(provider):  # noqa: F811
    pool = provider()
    first = pool.acquire("alice", "t")
    assert first.fresh and first.id == package.scope_token("alice", "t")
    assert first.box.run(["echo", "hi"]).text == "hi\n"
    again = pool.acquire("alice", "t")
    assert (again.served, again.fresh, again.box.id) == ("reused", False, first.box.id)
    pool.release(first.id)
    pool.release("0123456789abcdef")  # no error for an unknown one
    assert pool.get(first.id) is None
    warm = pool.acquire("alice", "t")
    assert (warm.served, warm.generation) == ("reclaimed", first.generation)
    assert pool.get(first.id).id == first.box.id
    assert pool.acquire("bob", "t").box.id != first.box.id
    status = pool.status()
    assert status["active"] == 2 and status["reused"] == 1 and status["acquire"]["count"] == 4


def test_without_a_thread(provider):  # noqa: F811
    pool = provider()
    one, two = pool.acquire("alice"), pool.acquire("alice")
    assert one.id != two.id and len(one.id) == 8


def test_no_user_is_not_the_user_none(provider):  # noqa: F811
    """The token of the text "None", the key of no user: they never share a box."""
    pool = provider()
    nobody = pool.acquire(None, "abc")
    assert nobody.id == "c0b80df1b97d187e"
    with pytest.raises(package.IdentityError, match="None"):
        pool.acquire("None", "abc")
    assert pool.acquire(None, "abc").served == "reused"
    # while the empty user has another token
    assert pool.acquire("", "abc").id == package.scope_token("", "abc") != nobody.id
    pool.release(nobody.id)
    assert pool.acquire(None, "abc").served == "reclaimed"


def test_keys_that_share_text_never_share_a_box(provider):  # noqa: F811
    pool = provider()
    pool.acquire("a:b", "c")
    with pytest.raises(package.IdentityError):
        pool.acquire("a", "b:c")


def test_a_dead_box_is_replaced_and_its_handle_closed(provider):  # noqa: F811
    pool = provider()
    first = pool.acquire("alice", "t")
    with pytest.raises(ConnectionError):
        first.box.run(["crash"])
    assert pool.get(first.id) is None
    with pytest.raises(package.ClosedError):
        first.box.run(["true"])
    second = pool.acquire("alice", "t")
    assert second.fresh and second.generation != first.generation


def test_no_room(provider):  # noqa: F811
    pool = provider(replicas=1, capacity_policy="reject")
    pool.acquire("a", "1")
    with pytest.raises(package.CapacityError) as caught:
        pool.acquire("a", "2")
    assert (caught.value.active, caught.value.warm, caught.value.replicas) == (1, 0, 1)
    with pytest.raises(package.CapacityError) as caught:
        asyncio.run(pool.acquire_async("a", "2"))
    assert caught.value.active == 1


def test_reset_and_shutdown(provider):  # noqa: F811
    pool = provider()
    box = pool.acquire("a", "1").box
    pool.reset()
    with pytest.raises(package.ShutdownError):
        pool.acquire("a", "1")
    assert box.info().state == "running"
    assert pool.shutdown(10) == [] and pool.shutdown(10) == []
    with pytest.raises(package.Error):
        box.run(["true"])
    pool.close()
    pool.close()
    with pytest.raises(package.ClosedError):
        pool.acquire("a", "1")


@pytest.mark.parametrize("user, thread, kind", [
    (5, "t", TypeError), ("u", 5, TypeError), ("u" * 70_000, "t", ValueError)])
def test_bad_keys(provider, user, thread, kind):  # noqa: F811
    with pytest.raises(kind):
        provider().acquire(user, thread)


def test_any_bytes_are_a_key(provider):  # noqa: F811
    pool = provider()
    names = {pool.acquire(*key).box.id for key in
             [(b"\0\xff", b"\n"), ("\ud800", "x"), ("a\0b", "x")]}
    assert len(names) == 3


def test_settings(home):  # noqa: F811
    for bad, says in [({"replica": 3}, "replicas"), ({"replicas": -1}, "replicas"),
                      ({"memory_mib": "lots"}, "memory_mib"), ({"environment": {"A-B": "1"}}, "A-B"),
                      ({"idle_timeout": float("nan")}, "idle_timeout"),
                      ({"image": "x\0y"}, "NUL"), ({"image": object()}, "object")]:
        with pytest.raises(ValueError, match=says):
            home.provider({**POOL, **bad})
    with pytest.raises(ValueError, match="exclude"):
        home.provider(POOL, config_file="x")
    with pytest.raises(FileNotFoundError):
        home.provider(config_file="/nonexistent.yaml")


def test_settings_arrive_as_they_are(provider):  # noqa: F811
    odd = {"PLAIN": "x", "QUOTE": "a\"b'c\\d", "LINES": "a\nb\tc: #d", "WORDS": "用户 \U0001f600",
           "YES": "yes", "NUMBER": "010", "EMPTY": "", "BRACES": "{a: [b]}", "DOLLAR": "$1"}
    box = provider(environment=odd).acquire("a", "b").box
    printed = box.run(["env"]).text
    for name, value in odd.items():
        assert f"{name}={value}\n" in printed


# ------------------------------------------------------------------- asyncio --

async def heartbeat(work):
    """The longest gap of a 1 ms heartbeat, in seconds, while `work` runs."""
    longest, last, going = 0.0, time.monotonic(), True

    async def beat():
        nonlocal longest, last
        while going:
            await asyncio.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.05)
    longest = 0.0
    await work()
    await asyncio.sleep(0.01)
    going = False
    await beating
    return longest


def contended(pool, holder, acquire):
    """Runs `acquire` while the only place is taken for half a second."""
    async def work():
        timer = threading.Timer(0.5, pool.release, (holder.id,))
        timer.start()
        await acquire()
        timer.join()

    return asyncio.run(heartbeat(work))


def test_a_contended_acquire_keeps_the_loop_free(provider):  # noqa: F811
    pool = provider(replicas=1, capacity_policy="wait", acquire_timeout=20)
    gaps = []
    for i in range(8):  # the host is shared: one quiet half second is asked for
        holder = pool.acquire("holder", str(i))
        got = []

        async def acquire():
            got.append(await pool.acquire_async("other", "t"))

        gaps.append(contended(pool, holder, acquire))
        assert got[0].id
        pool.release(got[0].id)
        if gaps[-1] <= 0.020:
            break
    assert min(gaps) <= 0.020, gaps


def test_a_blocking_acquire_would_not(provider):  # noqa: F811
    """The control: the same wait on the loop's thread shows as a gap."""
    pool = provider(replicas=1, capacity_policy="wait", acquire_timeout=20)
    holder = pool.acquire("holder", "0")

    async def acquire():
        pool.acquire("other", "t")

    assert contended(pool, holder, acquire) > 0.3


def test_cancelled_acquires_come_back(provider):  # noqa: F811
    pool = provider(replicas=1, capacity_policy="wait", acquire_timeout=20)
    holder = pool.acquire("holder", "0")

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.acquire_async("other", "t"), 0.2)

    asyncio.run(give_up())
    pool.release(holder.id)
    assert pool.acquire("other", "t").id
    assert pool.status()["active"] == 1


def test_many_at_once_on_one_loop(provider):  # noqa: F811
    pool = provider(replicas=20)

    async def all_of_them():
        return await asyncio.gather(*[pool.acquire_async("u", str(i % 5)) for i in range(20)])

    assert len({got.box.id for got in asyncio.run(all_of_them())}) == 5


def test_the_trace_is_that_of_the_caller(home):  # noqa: F811
    lines = []
    with package.Cubby(home.home, log=lambda level, line: lines.append(line)) as own:
        with own.provider({**POOL, "pool": "traced"}) as pool:
            def run(text):
                package.trace.set(text)
                asyncio.run(pool.acquire_async("u", text))

            contextvars.copy_context().run(run, "request-17")

            def run_in_thread(text):
                package.trace.set(text)
                asyncio.run(package.in_thread(pool.acquire, "u", text))

            contextvars.copy_context().run(run_in_thread, "request-18")
            assert package.trace.get() is None
            pool.acquire("u", "none")
    for text in ("request-17", "request-18"):
        assert any(text in line for line in lines), lines


def test_ctrl_c_abandons_an_acquire(script):  # noqa: F811
    running = script("""
        import cubby
        home = cubby.Cubby()
        with home.provider({"image": "tiny", "engine": "fake", "spares": 0, "pool": "ctrlc",
                            "replicas": 1, "capacity_policy": "wait",
                            "acquire_timeout": 100}) as pool:
            first = pool.acquire("a", "1")
            print("ready", flush=True)
            try:
                pool.acquire("a", "2")
            except KeyboardInterrupt:
                pool.release(first.id)
                assert pool.acquire("a", "2").id
                print("interrupted", flush=True)
    """)
    assert running.line() == "ready"
    time.sleep(0.3)
    assert running.interrupt() < 10
    assert running.process.returncode == 0 and "interrupted" in running.out, running.err


def test_the_end_of_a_provider_hears_ctrl_c(provider):  # noqa: F811
    """Only the main thread hears it, so another one waits for the boxes."""
    opened = provider()
    opened.acquire("a", "b")
    threads, end = [], opened._at_exit

    def ends():
        threads.append(threading.current_thread())
        end()

    opened._at_exit = ends
    opened.close()
    assert len(threads) == 1 and threads[0] is not threading.main_thread() and opened.closed


def test_a_program_that_ends_takes_its_boxes_with_it(script, home):  # noqa: F811
    running = script("""
        import cubby
        pool = cubby.Cubby().provider({"image": "tiny", "engine": "fake", "spares": 0,
                                       "pool": "atexit"})
        print(pool.acquire("a", "1").box.id)
        print(pool.acquire("a", "2").box.id)
        raise SystemExit(3)
    """)
    assert running.end() == 3, running.err
    assert not [b for b in home.boxes(all=True) if b.id in running.out.split()]


def _child(pool, home, queue):  # noqa: F811
    try:
        pool.acquire("a", "1")
    except package.StateError as problem:
        queue.put(str(problem))
    pool.shutdown.__self__.close()
    with package.Cubby(home.home) as own, own.provider({**POOL, "pool": "childs"}) as mine:
        queue.put(mine.acquire("a", "1").box.run(["echo", "own"]).text)


def test_a_forked_child(provider, home):  # noqa: F811
    pool = provider()
    got = pool.acquire("a", "1")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(pool, home, queue))
    child.start()
    assert "parent process" in queue.get(timeout=20)
    assert queue.get(timeout=20) == "own\n"
    child.join(20)
    assert child.exitcode == 0
    assert got.box.run(["echo", "alive"]).text == "alive\n"
    assert pool.acquire("a", "1").served == "reused"
