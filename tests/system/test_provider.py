# SPDX-License-Identifier: Apache-2.0
"""Providers on real machines: small scenarios of what the unit tests show at length."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import BUILD, wait_for


@pytest.fixture
def config(tmp_path):
    def write(**keys):
        path = tmp_path / "pool.yaml"
        settings = {"image": "busybox", "memory_mib": 128, "disk_mib": 64, "spares": 0, **keys}
        path.write_text("sandbox:\n" + "".join(f"  {k}: {v}\n" for k, v in settings.items()))
        return path
    return write


@pytest.fixture(autouse=True)
def nothing_left(cubby):
    yield
    cubby.ok("pool", "drain")


def acquire(cubby, config, user="alice", thread="t1"):
    return json.loads(cubby.ok("acquire", "--config", config, "--user", user, "--thread", thread,
                               "--format", "json"))


def release(cubby, config, box):
    cubby.ok("release", "--config", config, box["id"])


def test_the_same_box_with_its_files_for_the_same_user_only(cubby, config):
    path = config()
    first = acquire(cubby, path)
    assert first["fresh"]
    name = f"cubby-{first['id']}"
    assert sorted(cubby.sh(name, "ls -d /mnt/user-data/* /mnt/skills").split()) == [
        "/mnt/skills", "/mnt/user-data/outputs", "/mnt/user-data/uploads",
        "/mnt/user-data/workspace"]
    cubby.sh(name, "echo kept > /mnt/user-data/workspace/note")
    release(cubby, path, first)
    other = acquire(cubby, path, user="bob")
    assert other["box_id"] != first["box_id"] and other["fresh"]
    cubby.sh(f"cubby-{other['id']}", "test ! -e /mnt/user-data/workspace/note")
    again = acquire(cubby, path)
    assert again["box_id"] == first["box_id"] and again["served"] == "reclaimed"
    assert not again["fresh"] and again["generation"] == first["generation"]
    assert cubby.sh(name, "cat /mnt/user-data/workspace/note") == "kept"
    assert cubby.ok("id", "--user", "alice", "--thread", "t1") == first["id"]


def test_a_parked_machine_that_died_is_replaced_and_said_so(cubby, config):
    path = config()
    first = acquire(cubby, path)
    release(cubby, path, first)
    for pid, program in cubby.processes(f"cubby-{first['id']}"):
        if program.startswith("qemu"):
            os.kill(pid, signal.SIGKILL)
    start = time.monotonic()
    second = acquire(cubby, path)
    assert second["fresh"] and second["box_id"] != first["box_id"]
    assert second["generation"] > first["generation"]
    assert time.monotonic() - start < 30


def test_a_frozen_parked_machine_fails_its_check(cubby, config):
    path = config()
    first = acquire(cubby, path)
    release(cubby, path, first)
    for pid, program in cubby.processes(f"cubby-{first['id']}"):
        if program.startswith("qemu"):
            os.kill(pid, signal.SIGSTOP)
    second = acquire(cubby, path)
    assert second["fresh"] and second["box_id"] != first["box_id"]


def test_a_parked_box_ends_by_itself(cubby, config):
    """No provider lives: the shim keeps the deadline."""
    path = config(idle_timeout=2)
    first = acquire(cubby, path)
    release(cubby, path, first)
    wait_for(lambda: f"cubby-{first['id']}" not in cubby.ok("ps", "--format", "{{.Names}}"), 20,
             "the end of the box")
    assert acquire(cubby, path)["fresh"]


GATEWAY = """
import ctypes, sys, time
lib = ctypes.CDLL(sys.argv[1])
class E(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("errno", ctypes.c_int), ("message", ctypes.c_char * 1024)]
class O(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(n, ctypes.c_void_p) for n in "abcde"]
class P(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("text", ctypes.c_char_p),
                ("leave", ctypes.c_bool)]
class A(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("user", ctypes.c_char_p), ("us", ctypes.c_size_t),
                ("thread", ctypes.c_char_p), ("ts", ctypes.c_size_t),
                ("timeout", ctypes.c_int64), ("trace", ctypes.c_char_p)]
class R(ctypes.Structure):
    _fields_ = [("id", ctypes.c_char * 17), ("served", ctypes.c_int), ("fresh", ctypes.c_bool),
                ("generation", ctypes.c_uint64), ("box", ctypes.c_void_p)]
err, home, provider = E(), ctypes.c_void_p(), ctypes.c_void_p()
def ok(code):
    if code < 0:
        sys.exit(err.message.decode())
ok(lib.cubby_open(ctypes.byref(O(ctypes.sizeof(O))), ctypes.byref(home), ctypes.byref(err)))
ok(lib.cubby_provider_open(home, ctypes.byref(P(ctypes.sizeof(P), sys.argv[2].encode())),
                           ctypes.byref(provider), ctypes.byref(err)))
for thread in sys.argv[4:]:
    got = R()
    name = thread.encode()
    ok(lib.cubby_provider_acquire(provider, ctypes.byref(A(ctypes.sizeof(A), b"u", 1, name,
                                  len(name))), ctypes.byref(got), ctypes.byref(err)))
    print(thread, got.id.decode(), got.served, got.fresh, flush=True)
if sys.argv[3] == "stay":
    time.sleep(1000)
lib.cubby_provider_shutdown(provider, ctypes.c_int64(30000), None, None)
lib.cubby_provider_close(provider)
"""


def gateway(cubby, config, how, *threads):
    library = sorted(BUILD.glob("libcubby.so*"))[0]
    return subprocess.Popen([sys.executable, "-c", GATEWAY, library, config, how, *threads],
                            stdout=subprocess.PIPE, text=True, env=cubby.environment())


def test_the_next_process_adopts_what_a_killed_one_left(cubby, config):
    path = config()
    first = gateway(cubby, path, "stay", "one", "two")
    ids = [first.stdout.readline().split()[1] for _ in range(2)]
    cubby.sh(f"cubby-{ids[0]}", "echo state > /mnt/user-data/workspace/x")
    # a second gateway beside the living first one takes nothing from it
    assert json.loads(cubby.ok("pool", "status", "--format", "json"))["pools"][0]["active"] == 2
    first.kill()
    first.wait()
    second = gateway(cubby, path, "stay", "one")
    word = second.stdout.readline().split()
    assert word == ["one", ids[0], "2", "False"]
    assert cubby.sh(f"cubby-{ids[0]}", "cat /mnt/user-data/workspace/x") == "state"
    pool = json.loads(cubby.ok("pool", "status", "--format", "json"))["pools"][0]
    assert {box["id"] for box in pool["boxes"]} == set(ids)
    second.kill()
    second.wait()
    assert cubby.ok("pool", "drain") == "ended 2"


def test_shutdown_ends_everything(cubby, config):
    done = gateway(cubby, config(), "end", "one")
    assert done.wait(60) == 0
    done.stdout.close()
    assert "cubby-" not in cubby.ok("ps", "-a", "--format", "{{.Names}}")
    assert json.loads(cubby.ok("pool", "status", "--format", "json"))["pools"] == []


@pytest.mark.parametrize("text, says", [
    ("sandbox:\n  replicas: 0\n", ["pool.yaml:2", "replicas", "1 to 10000"]),
    ("sandbox:\n  replcas: 1\n", ["pool.yaml:2", "'replicas'"]),
    ("sandbox: [", ["no YAML"]),
])
def test_mistakes_in_the_configuration(cubby, tmp_path, text, says):
    path = tmp_path / "pool.yaml"
    path.write_text(text)
    cubby.fails("acquire", "--config", path, "--thread", "t", says=says)


def test_warmup_of_a_provider(own_home, busybox_tar, config):
    """It warms up what this provider's boxes continue from, and nobody else's."""
    own_home.ok("kernel", "ensure", timeout=180)
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    path = config(warmup='["touch /root/warmed"]')

    def templates():
        text = own_home.ok("template", "ls", "--format", "json")
        return json.loads(text) if text.startswith("[") else [
            json.loads(line) for line in text.splitlines()]
    assert acquire(own_home, path)["served"] == "booted"
    wait_for(templates, 120, "the template")
    second = acquire(own_home, path, thread="t2")
    assert second["served"] == "cloned"
    name = f"cubby-{second['id']}"
    assert own_home.sh(name, "ls /root/warmed; ls -d /mnt/user-data/*").split() == [
        "/root/warmed", "/mnt/user-data/outputs", "/mnt/user-data/uploads",
        "/mnt/user-data/workspace"]
    own_home.ok("template", "build", "-m", "128M", "--disk", "64M", "busybox", timeout=180)
    assert len(templates()) == 2
    assert own_home("run", "--rm", "-m", "128M", "--disk", "64M", "busybox", "ls",
                    "/root/warmed").code == 1
    own_home.ok("pool", "drain")


def test_drain_leaves_what_is_just_being_acquired(cubby, config):
    """Whoever holds the lock of an id may take its box at any moment."""
    box = acquire(cubby, config())
    with open(cubby.home / "locks" / f"pool-cubby-{box['id']}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cubby.ok("pool", "drain") == "ended 0"
        assert cubby("release", "--config", config(), box["id"]).code == 125
        assert cubby.sh(f"cubby-{box['id']}", "echo here") == "here"
    assert cubby.ok("pool", "drain") == "ended 1"
