# SPDX-License-Identifier: Apache-2.0
"""From start to rm: states, logs, waiting, signals, restarts, listings."""

import json
import re
import subprocess
import time

import pytest
from conftest import wait_for


def run(cubby, name, *command, options=()):
    cubby.ok("run", "-d", "--name", name, "-m", "256M", *options, "busybox", *command)
    return name


def test_stop_sends_the_stop_signal_first(cubby):
    run(cubby, "polite", "sh", "-c",
        "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    wait_for(lambda: cubby.ok("logs", "polite") == "up", 10, "its start")
    start = time.monotonic()
    assert cubby.ok("stop", "polite") == "polite"
    assert time.monotonic() - start < 9
    assert cubby.ok("logs", "polite").splitlines() == ["up", "bye"]
    info = cubby.inspect("polite")
    assert (info["state"], info["reason"]) == ("stopped", "stopped")
    assert info["exit_code"] == 0
    assert cubby.processes("polite") == []


def test_stop_kills_after_its_time(cubby):
    run(cubby, "stubborn", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    wait_for(lambda: cubby.ok("logs", "stubborn") == "up", 10, "its start")
    start = time.monotonic()
    cubby.ok("stop", "-t", "1", "stubborn")
    assert 0.9 < time.monotonic() - start < 9
    assert cubby.inspect("stubborn")["exit_code"] == 137


def test_stop_twice_and_start_again(cubby):
    run(cubby, "twice", "sleep", "1000")
    cubby.ok("stop", "-t", "1", "twice")
    assert cubby.ok("stop", "twice") == "twice"
    cubby.fails("exec", "twice", "true", says="twice")
    assert cubby.ok("start", "twice") == "twice"
    assert cubby.ok("exec", "twice", "echo", "back") == "back"
    assert cubby("start", "twice").code in (0, 125)  # running already: harmless or refused
    assert cubby.ok("exec", "twice", "echo", "still") == "still"


def test_kill_with_a_signal(cubby):
    run(cubby, "signalled", "sh", "-c",
        "trap 'echo usr1' USR1; echo up; while :; do sleep 0.1; done")
    wait_for(lambda: "up" in cubby.ok("logs", "signalled"), 10, "its start")
    assert cubby.ok("kill", "-s", "USR1", "signalled") == "signalled"
    wait_for(lambda: "usr1" in cubby.ok("logs", "signalled"), 10, "the signal")
    assert cubby.state("signalled") == "running"
    start = time.monotonic()
    cubby.ok("kill", "signalled")
    wait_for(lambda: cubby.state("signalled") != "running", 5, "its end")
    assert time.monotonic() - start < 5
    assert cubby.inspect("signalled")["exit_code"] == 137


def test_wait_prints_the_exit_code(cubby):
    run(cubby, "brief", "sh", "-c", "sleep 2; exit 42")
    assert cubby.ok("wait", "brief") == "42"
    assert cubby.ok("wait", "brief") == "42"
    info = cubby.inspect("brief")
    assert (info["state"], info["reason"]) == ("stopped", "exited")


def test_restart_keeps_files(cubby):
    run(cubby, "keeper", "sleep", "1000")
    cubby.sh("keeper", "mkdir -p /data/sub; echo kept > /data/sub/file; rm /etc/shells; "
                       "chown 1000:100 /data; chmod 2750 /data; ln -s sub /data/link")
    boot_id = cubby.sh("keeper", "cat /proc/sys/kernel/random/boot_id")
    cubby.ok("restart", "-t", "1", "keeper")
    assert cubby.sh("keeper", "cat /data/link/file") == "kept"
    assert cubby("exec", "keeper", "test", "-e", "/etc/shells").code == 1
    assert cubby.sh("keeper", "stat -c '%a %u %g' /data") == "2750 1000 100"
    assert cubby.sh("keeper", "cat /proc/sys/kernel/random/boot_id") != boot_id


def test_files_survive_a_kill(cubby):
    run(cubby, "cut", "sleep", "1000")
    cubby.sh("cut", "echo synced > /file; sync")
    cubby.ok("kill", "cut")
    wait_for(lambda: cubby.state("cut") != "running", 5, "its end")
    cubby.ok("start", "cut")
    assert cubby.sh("cut", "cat /file") == "synced"


def test_rename(cubby, box):
    cubby.ok("create", "--name", "before", "busybox", "true")
    cubby.ok("rename", "before", "after")
    assert cubby.state("before") == "" and cubby.state("after") == "created"
    cubby.fails("rename", "after", box, says=box)
    for bad in ("", "-x", "a b", "../x", "a/b", "x" * 64, "ä"):
        assert cubby("rename", "--", "after", bad).code in (2, 125), bad
    assert cubby.state("after") == "created"
    cubby.fails("create", "--name", "after", "busybox", "true", says="after")


def test_top(cubby, box):
    cubby.ok("exec", "-d", "-u", "user", box, "sleep", "4321")
    row = wait_for(lambda: [line for line in cubby.ok("top", box).splitlines()
                            if "sleep 4321" in line], 10, "the process")[0]
    assert re.search(r"\b(1000|user)\b", row)
    cubby.kill_like(box, "4321")


def test_stats(cubby, box):
    table = cubby.ok("stats", "--no-stream", box).splitlines()
    assert len(table) == 2 and box in table[1]
    shown = json.loads(cubby.ok("stats", "--no-stream", "--format", "json", box))
    stats = shown[0] if isinstance(shown, list) else shown
    assert 200 << 20 < stats["memory_total"] <= 256 << 20
    assert 0 < stats["memory_available"] < stats["memory_total"]
    assert stats["host_pss_bytes"] > 8 << 20
    assert stats["processes"] >= 1


def test_pause_and_unpause(cubby):
    run(cubby, "sleeper", "sh", "-c", "while :; do date +%s%N; sleep 0.05; done")
    wait_for(lambda: cubby.ok("logs", "sleeper"), 10, "output")
    cubby.ok("pause", "sleeper")
    assert cubby.state("sleeper") == "paused"
    time.sleep(0.5)
    first = len(cubby.ok("logs", "sleeper"))
    time.sleep(1)
    assert len(cubby.ok("logs", "sleeper")) == first
    start = time.monotonic()
    result = cubby("exec", "--timeout", "2s", "sleeper", "true", timeout=40)
    assert result.code != 0 and time.monotonic() - start < 30
    cubby.ok("unpause", "sleeper")
    assert cubby.state("sleeper") == "running"
    wait_for(lambda: len(cubby.ok("logs", "sleeper")) > first, 10, "more output")
    assert cubby.ok("exec", "sleeper", "echo", "awake") == "awake"


def test_logs(cubby):
    run(cubby, "talker", "sh", "-c",
        "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; sleep 2; echo last; sleep 1")
    follow = cubby.popen("logs", "-f", "talker")
    out, err = follow.communicate(timeout=60)
    assert out.decode().splitlines() == [f"line {n}" for n in range(1, 6)] + ["last"]
    assert err == b"oops\n"
    assert follow.returncode == 0
    assert cubby.ok("logs", "--tail", "2", "talker").splitlines()[-1] == "last"
    assert len(cubby("logs", "--tail", "1", "talker").out.splitlines()) == 1
    stamped = cubby("logs", "-t", "talker").out.decode().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* line 1$", stamped[0])
    assert cubby.ok("logs", "--since", "1h", "talker").splitlines()[0] == "line 1"


def test_log_is_bounded(cubby):
    # 40 MB of output: the newest is kept, and not more than two segments of 8 MiB.
    run(cubby, "chatty", "sh", "-c", "yes 0123456789abcde | head -n 2500000; echo end")
    assert cubby.ok("wait", "chatty", timeout=120) == "0"
    assert cubby.ok("logs", "--tail", "1", "chatty") == "end"
    assert len(cubby("logs", "chatty").out) > 7 << 20
    folder = cubby.home / "boxes" / cubby.box_id("chatty")
    assert sum(f.stat().st_size for f in folder.glob("log*")) <= 17 << 20


def test_attach_sees_the_output_and_the_exit_code(cubby):
    run(cubby, "stage", "sh", "-c", "read line; echo got $line; exit 11", options=["-i"])
    client = cubby.popen("attach", "stage", stdin=subprocess.PIPE)
    out, _ = client.communicate(b"hello\n", timeout=60)
    assert (client.returncode, out) == (11, b"got hello\n")


def test_rm_refuses_a_running_box(cubby):
    run(cubby, "busy", "sleep", "1000")
    cubby.fails("rm", "busy", says="busy")
    assert cubby.state("busy") == "running"
    assert cubby.ok("rm", "-f", "busy") == "busy"
    assert cubby.state("busy") == ""
    cubby.fails("rm", "busy", says="busy")


def test_rm_of_several(cubby):
    for name in ("one", "two"):
        cubby.ok("create", "--name", name, "busybox", "true")
    result = cubby("rm", "one", "missing", "two")
    assert result.code == 125 and "missing" in result.err, result
    assert result.text.splitlines() == ["one", "two"]


def test_ps_forms(cubby, box):
    cubby.ok("create", "--name", "waiting", "--label", "kind=x", "busybox", "true")
    names = ("--format", "{{.Names}}")
    assert "waiting" not in cubby.ok("ps", *names).split()
    assert {box, "waiting"} <= set(cubby.ok("ps", "-a", *names).split())
    assert cubby.ok("ps", "-q", "--filter", f"name={box}") == cubby.box_id(box)[:12]
    assert cubby.ok("ps", "-q", "--no-trunc", "--filter", f"name={box}") == cubby.box_id(box)
    assert "waiting" in cubby.ok("ps", "-a", "--filter", "status=created", *names)
    assert "waiting" in cubby.ok("ps", "-a", "--filter", "label=kind=x", *names)
    assert "waiting" in cubby.ok("ps", "-a", "--filter", "ancestor=busybox", *names)
    assert cubby.ok("ps", "-a", "-n", "1", *names) == "waiting"
    header, *rows = cubby.ok("ps", "-a").splitlines()
    assert header.split()[:2] == ["BOX", "ID"] and len(rows) >= 2
    listed = json.loads(cubby.ok("ps", "-a", "--format", "json"))
    assert {"waiting", box} <= {entry["name"] for entry in listed}


@pytest.mark.parametrize("arguments", [
    ["ps", "--filter", "colour=red"], ["ps", "--filter", "status=asleep"],
    ["ps", "--format", "{{.Colour}}"], ["ps", "--filter", "name"],
])
def test_ps_bad_forms(cubby, arguments):
    result = cubby(*arguments)
    assert result.code in (2, 125) and result.err, result


def test_inspect_placeholder(cubby, box):
    assert cubby.ok("inspect", "--format", "{{.name}}", box).lower() == box


def test_version(cubby):
    assert re.search(r"\d+\.\d+\.\d+", cubby.ok("version"))
    assert "version" in json.loads(cubby.ok("version", "--format", "json"))


def test_doctor(cubby):
    report = json.loads(cubby.ok("doctor", "--format", "json"))
    names = {check["name"] for check in report["checks"]}
    assert all(check["status"] in ("ok", "warning", "error") for check in report["checks"])
    assert len(names) >= 5
    assert "qemu" in cubby.ok("doctor").lower()


def test_two_processes_start_boxes_in_one_home(cubby):
    clients = [cubby.popen("run", "-m", "128M", "busybox", "echo", str(n)) for n in range(4)]
    for n, client in enumerate(clients):
        out, err = client.communicate(timeout=120)
        assert (client.returncode, out) == (0, f"{n}\n".encode()), err


def test_the_box_outlives_its_creator(cubby):
    # The creator's session and process group are gone before the box is used.
    client = cubby.popen("run", "-d", "--name", "orphan", "-m", "256M", "busybox", "sleep", "1000",
                         start_new_session=True)
    client.communicate(timeout=60)
    assert cubby.ok("exec", "orphan", "echo", "alive") == "alive"


def test_gc_leaves_what_is_used(cubby, box):
    cubby.ok("gc")
    assert cubby.ok("exec", box, "echo", "alive") == "alive"
    assert "busybox" in cubby.ok("images")
