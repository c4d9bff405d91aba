# SPDX-License-Identifier: Apache-2.0
"""`cubby run` and its flags: each by its effect in a machine."""

import json
import os
import re
import time

import pytest
from conftest import wait_for

MODULE_BOXES = {"flagged"}
MIB = 1 << 20


@pytest.fixture(scope="module")
def flagged(cubby, tmp_path_factory):
    """One box with most flags; its command prints what it sees."""
    env_file = tmp_path_factory.mktemp("env") / "env"
    env_file.write_text("# a comment\nFROM_FILE=one two\n\nEMPTY=\n")
    script = "id -u; id -g; pwd; echo $GIVEN; echo $TAKEN; echo \"$FROM_FILE\"; exec sleep 100000"
    name = cubby.ok(
        "run", "-d", "--name", "flagged", "-m", "320M", "--cpus", "1.5", "--disk", "700M",
        "--hostname", "marvin", "-u", "user", "-w", "/var", "-e", "GIVEN=a=b c", "-e", "TAKEN",
        "--env-file", env_file, "--label", "team=blue", "--label", "empty=",
        "--pids-limit", "100", "busybox", "sh", "-c", script, env={"TAKEN": "from outside"})
    yield name
    cubby.ok("rm", "-f", "flagged")


def lines(cubby, box, count):
    return wait_for(lambda: (got := cubby.ok("logs", box).splitlines()) and len(got) >= count
                    and got, what=f"{count} lines of output")


def test_run_detached_prints_the_id(cubby, flagged):
    assert re.fullmatch("[0-9a-f]{32}", flagged)
    assert cubby.box_id("flagged") == flagged


def test_memory(cubby, flagged):
    total = int(cubby.sh("flagged", "sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))
    assert 240 * MIB < total * 1024 <= 320 * MIB


def test_cpus_rounds_up_to_processors(cubby, flagged):
    assert cubby.sh("flagged", "nproc") == "2"


def test_cpus_limits_the_share(cubby):
    # Two busy loops on two processors get half of one processor's time between them.
    script = "for i in 1 2; do timeout 3 sh -c 'while :; do :; done' & done; wait; times"
    cubby.ok("run", "-d", "--name", "half", "--cpus", "0.5", "-m", "256M", "busybox",
             "sleep", "1000")
    out = cubby.sh("half", script).splitlines()[-1]  # of the shell's children: user, system
    minutes, seconds = re.match(r"(\d+)m([\d.]+)s", out).groups()
    assert 0.5 < int(minutes) * 60 + float(seconds) < 2.4, out


def test_disk_size(cubby, flagged):
    kib = int(cubby.sh("flagged", "df -k / | tail -n 1").split()[1])
    assert 500 * 1024 < kib <= 700 * 1024


def test_hostname(cubby, flagged):
    assert cubby.sh("flagged", "hostname") == "marvin"
    assert "marvin" in cubby.sh("flagged", "cat /etc/hosts")


def test_user_workdir_and_environment(cubby, flagged):
    assert lines(cubby, "flagged", 6) == ["1000", "1000", "/var", "a=b c", "from outside",
                                          "one two"]


def test_exec_inherits_them(cubby, flagged):
    assert cubby.sh("flagged", "id -un; pwd; echo $GIVEN").splitlines() == ["user", "/var",
                                                                         "a=b c"]


def test_pids_limit(cubby, flagged):
    script = "n=0; while [ $n -lt 200 ]; do sleep 5 & n=$((n+1)); done; wait"
    result = cubby("exec", "flagged", "sh", "-c", script, timeout=60)
    assert "fork" in result.err
    assert cubby.sh("flagged", "echo alive") == "alive"


def test_labels(cubby, flagged):
    listed = ("ps", "--format", "{{.Names}}", "--filter")
    assert cubby.ok(*listed, "label=team=blue") == "flagged"
    assert cubby.ok(*listed, "label=empty") == "flagged"
    assert cubby.ok(*listed, "label=team=red") == ""


def test_numeric_user_and_group(cubby):
    out = cubby.ok("run", "-m", "256M", "-u", "1234:5678", "busybox", "id")
    assert "uid=1234" in out and "gid=5678" in out


def test_unnamed_foreground_run_is_removed(cubby):
    before = set(cubby.ok("ps", "-a", "-q").split())
    assert cubby.ok("run", "-m", "256M", "busybox", "echo", "gone") == "gone"
    assert set(cubby.ok("ps", "-a", "-q").split()) == before


def test_named_run_stays_and_rm_removes(cubby):
    assert cubby("run", "--name", "stays", "-m", "256M", "busybox", "false").code == 1
    assert cubby.state("stays") == "stopped"
    assert cubby.ok("rm", "stays") == "stays"
    assert cubby.state("stays") == ""


def test_rm_flag_removes_a_named_one(cubby):
    cubby.ok("run", "--rm", "--name", "briefly", "-m", "256M", "busybox", "true")
    assert cubby.state("briefly") == ""


def test_detached_with_rm_goes_away_by_itself(cubby):
    cubby.ok("run", "-d", "--rm", "--name", "leaf", "-m", "256M", "busybox", "sleep", "1")
    wait_for(lambda: cubby.state("leaf") == "", 15, "removal")


def test_entrypoint(cubby):
    assert cubby.ok("run", "-m", "256M", "--entrypoint", "/bin/echo", "busybox", "a  b") == "a  b"


def test_timeout_of_the_command(cubby):
    start = time.monotonic()
    result = cubby("run", "-m", "256M", "--timeout", "1s", "busybox", "sleep", "500")
    assert result.code == 124, result
    assert time.monotonic() - start < 30


def test_ttl_ends_the_box(cubby):
    cubby.ok("run", "-d", "--name", "mayfly", "--ttl", "4s", "-m", "256M", "busybox",
             "sleep", "1000")
    started = time.monotonic()
    assert cubby.state("mayfly") == "running"
    wait_for(lambda: cubby.state("mayfly") == "stopped", 15, "the end of its ttl")
    assert time.monotonic() - started > 1
    assert cubby.inspect("mayfly")["reason"] == "ttl"
    assert cubby.processes("mayfly") == []


@pytest.mark.parametrize("command, code", [
    (["sh", "-c", "exit 7"], 7),
    (["sh", "-c", "kill -KILL $$"], 137),
    (["/no/such/program"], 127),
    (["nosuchcmd"], 127),
    (["/etc/passwd"], 126),
])
def test_exit_codes(cubby, command, code):
    result = cubby("run", "-m", "256M", "busybox", *command)
    assert result.code == code, result
    if code in (126, 127):
        assert f"': '{command[0]}': " in result.err, result


def test_stdin_8_mib_byte_exact(cubby):
    data = os.urandom(8 * MIB)
    result = cubby("run", "-i", "-m", "256M", "busybox", "cat", input=data, timeout=120)
    assert result.code == 0 and result.out == data


def test_without_i_there_is_no_stdin(cubby):
    result = cubby("run", "-m", "256M", "busybox", "wc", "-c", input=b"12345")
    assert result.text == "0"


def test_format_json(cubby):
    out = json.loads(cubby.ok("run", "-d", "--format", "json", "--name", "spoken", "-m", "256M",
                              "busybox", "sleep", "100"))
    assert out["name"] == "spoken"
    assert out["id"] == cubby.box_id("spoken")


def test_python_from_an_oci_layout(cubby, python_image):
    out = cubby.ok("run", "--rm", python_image, "python3", "-c", "print(sum(range(100000)))")
    assert out == "4999950000"


def test_create_then_start(cubby):
    box_id = cubby.ok("create", "--name", "later", "-m", "256M", "busybox", "sh", "-c",
                      "echo ready; sleep 1000")
    assert re.fullmatch("[0-9a-f]{32}", box_id)
    assert cubby.state("later") == "created"
    assert cubby.ok("ps", "-q", "--filter", "name=later") == ""  # none that runs
    assert cubby.ok("start", "later") == "later"
    assert cubby.state("later") == "running"
    assert lines(cubby, "later", 1) == ["ready"]


def test_isolation_is_told(cubby, box):
    assert cubby.inspect(box)["isolation"] in ("emulated", "hardware")


def test_emulation_is_announced_once(cubby):
    (cubby.home / "locks/emulation").unlink(missing_ok=True)
    for survey in (cubby.home / "templates").glob("host-*"):
        survey.unlink()  # as in a new home
    first = cubby("-v", "run", "-m", "256M", "--name", "loud", "-d", "--idle", "busybox")
    isolation = cubby.inspect("loud")["isolation"]
    assert json.loads(cubby.ok("ps", "--format", "json", "--filter", "name=loud"))[0]["isolation"] == \
        isolation
    cubby.ok("rm", "-f", "loud")
    assert f"box 'loud': isolation {isolation}" in first.err
    if isolation == "hardware":
        pytest.skip("this host has hardware virtualisation")
    assert first.err.count("no usable KVM here: boxes are emulated (TCG)") == 1
    assert first.err.count("warning") == 1, first.err
    assert "no usable KVM" not in cubby("run", "-m", "256M", "busybox", "true").err
