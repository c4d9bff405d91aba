# SPDX-License-Identifier: Apache-2.0
"""The command line over the fake engine: the whole way but for the machine, in milliseconds.

The fake agent knows: true, false, echo, cat, exit, sleep, yes, err, env, kill, winsize,
stubborn, and sh -c with one of these.
"""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import tarfile
import tempfile
import termios
import time

import pytest
from conftest import Cubby, close_home, wait_for

MIB = 1 << 20


@pytest.fixture(scope="module")
def fake():
    """A home with the image `tiny`."""
    cubby = Cubby(tempfile.mkdtemp(prefix="cubby-test-fake-"))
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("etc/hostname"), io.BytesIO())
    cubby.ok("image", "import", "-", "--name", "tiny", input=data.getvalue())
    yield cubby
    assert close_home(cubby) == []


@pytest.fixture(autouse=True)
def no_boxes_left(fake):
    yield
    fake("rm", "-f", "-a")


@pytest.fixture
def box(fake):
    run(fake, "-d", "--name", "work", "--label", "team=blue", "--label", "note=a b",
        command=["sleep", "1000"])
    return "work"


def run(fake, *options, command, **more):
    return fake("run", "--engine", "fake", *options, "tiny", *command, **more)


@pytest.mark.parametrize("end", ["start", "rm"])
def test_logs_follow_a_box_that_was_not_started(fake, end):
    fake.ok("create", "--engine", "fake", "--name", "later", "tiny", "echo", "said")
    follower = fake.popen("logs", "-f", "later")
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(timeout=1)
    fake.ok(end, "later")
    out, err = follower.communicate(timeout=10)
    assert (follower.returncode, out, err) == (0, b"said\n" if end == "start" else b"", b"")


def test_doctor_of_a_home_that_is_no_text(tmp_path):
    odd = Cubby(os.fsdecode(os.fsencode(tmp_path) + b"/h\xff\xc3"))
    done = odd("doctor", "--format", "json")
    found = {c["name"]: c["found"] for c in json.loads(done.text)["checks"]}
    assert "/h??, mode 0700" in found["home"], done


def listed(fake, *options):
    return fake.ok("ps", "-a", "--format", "{{.Names}}", *options).split()


def test_output_and_errors_apart(fake):
    result = run(fake, command=["echo", "a  b", "c"])
    assert (result.code, result.out, result.err) == (0, b"a  b c\n", "")
    result = run(fake, command=["err", "oops"])
    assert (result.code, result.out, result.err) == (0, b"", "oops\n")


@pytest.mark.parametrize("command, code", [
    (["true"], 0), (["false"], 1), (["exit", "7"], 7), (["exit", "255"], 255),
    (["kill", "9"], 137), (["kill", "15"], 143), (["nosuch"], 127),
])
def test_exit_codes(fake, box, command, code):
    assert run(fake, command=command).code == code
    assert fake("exec", box, *command).code == code
    assert listed(fake) == ["work"]


def test_what_could_not_start_leaves_nothing(fake):
    result = run(fake, "--name", "web", command=["nosuch"])
    assert result.code == 127 and result.out == b""
    assert "starting box 'web': 'nosuch': not found in the PATH of the box" in result.err
    assert listed(fake) == []


@pytest.mark.parametrize("how", ["run", "exec"])
def test_10_mib_through_pipes_byte_exact(fake, box, how):
    data = os.urandom(10 * MIB + 4321)
    if how == "run":
        result = run(fake, "-i", command=["cat"], input=data)
    else:
        result = fake("exec", "-i", box, "cat", input=data)
    assert result.code == 0 and result.out == data and result.err == ""


def test_10_mib_through_files(fake, box, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(os.urandom(10 * MIB))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        client = fake.popen("exec", "-i", box, "cat", stdin=stdin, stdout=stdout)
        assert client.wait(60) == 0
    client.stderr.close()
    assert target.read_bytes() == source.read_bytes()


def test_a_slow_reader_gets_everything(fake, box):
    data = os.urandom(2 * MIB)
    client = fake.popen("exec", "-i", box, "cat", stdin=subprocess.PIPE)
    got = b""
    os.set_blocking(client.stdin.fileno(), False)
    sent = 0
    while len(got) < len(data):
        if sent < len(data):
            try:
                sent += os.write(client.stdin.fileno(), data[sent:sent + 100_000])
            except BlockingIOError:
                pass
            if sent == len(data):
                client.stdin.close()
        if select.select([client.stdout], [], [], 0)[0]:
            got += os.read(client.stdout.fileno(), 5000)
    client.stdin = None
    rest, err = client.communicate(timeout=20)
    assert client.returncode == 0 and got + rest == data and err == b""


def test_without_i_nothing_is_read(fake, box):
    result = fake("exec", box, "cat", input=b"unseen")
    assert (result.code, result.out) == (0, b"")


@pytest.mark.parametrize("how", ["run", "exec"])
def test_closed_output_ends_quietly(fake, box, how):
    words = ["run", "--engine", "fake", "tiny"] if how == "run" else ["exec", box]
    client = fake.popen(*words, "yes")
    assert client.stdout.readline().startswith(b"y")
    client.stdout.close()
    start = time.monotonic()
    assert client.wait(20) == 141 and client.stderr.read() == b""
    client.stderr.close()
    assert time.monotonic() - start < 5
    assert listed(fake) == ["work"]


def test_full_disk_under_the_output(fake, box):
    with open("/dev/full", "wb") as full:
        client = fake.popen("exec", box, "echo", "x", stdout=full)
        _, err = client.communicate(timeout=20)
    assert client.returncode == 125 and b"No space left" in err


@pytest.mark.parametrize("number, code", [
    (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)])
@pytest.mark.parametrize("how", ["run", "exec"])
def test_signals_reach_the_command(fake, box, how, number, code):
    words = ["run", "--engine", "fake", "--name", "fore", "tiny"] if how == "run" else ["exec", box]
    client = fake.popen(*words, "sleep", "100")
    wait_for(lambda: "sleep 100\n" in fake("top", "fore" if how == "run" else box,
                                           "--format", "{{.Command}}").text + "\n"
             or len(fake("top", "fore" if how == "run" else box).text.splitlines()) >
             (1 if how == "run" else 2), 10, "the command")
    client.send_signal(number)
    client.communicate(timeout=20)
    assert client.returncode == code


def test_three_interrupts_end_a_command_that_ignores_them(fake):
    client = fake.popen("run", "--engine", "fake", "--name", "deaf", "tiny", "stubborn", "100")
    wait_for(lambda: fake.state("deaf") == "running", 10, "the box")
    time.sleep(0.3)
    for _ in range(3):
        client.send_signal(signal.SIGINT)
        time.sleep(0.1)
    client.communicate(timeout=20)
    assert client.returncode == 130
    wait_for(lambda: fake.state("deaf") != "running", 10, "the end of the box")


def test_timeouts(fake, box):
    for words in (["run", "--engine", "fake", "--timeout", "300ms", "tiny"],
                  ["exec", "--timeout", "300ms", box]):
        start = time.monotonic()
        result = fake(*words, "sleep", "100")
        assert result.code == 124 and "killed" in result.err, result
        assert 0.3 <= time.monotonic() - start < 8
    assert listed(fake) == ["work"]


def test_json_of_a_run(fake, box):
    shown = json.loads(run(fake, "--format", "json", command=["exit", "3"]).text)
    assert (shown["exit_code"], shown["stdout"], shown["timed_out"]) == (3, "", False)
    shown = json.loads(run(fake, "-i", "--format", "json", command=["cat"], input=b"\xff\0").text)
    assert shown["stdout_base64"] == "/wA=" and "stdout" not in shown
    result = run(fake, "--timeout", "200ms", "--format", "json", command=["sleep", "9"])
    shown = json.loads(result.text)
    assert result.code == 124 and shown["exit_code"] == 124 and shown["timed_out"] is True
    result = fake("exec", "--format", "json", box, "err", "x")
    assert json.loads(result.text)["stderr"] == "x\n" and result.err == ""
    shown = json.loads(run(fake, "-d", "--name", "d", "--format", "json",
                           command=["sleep", "9"]).text)
    assert shown["name"] == "d" and fake.box_id("d") == shown["id"]


def test_environment(fake, box, tmp_path):
    path = tmp_path / "env"
    path.write_text("# comment\n\nA=one two\r\n  B=\nTAKEN\nABSENT\n")
    out = fake.ok("exec", "--env-file", path, "-e", "C=x=y", "-e", "MISSING", box, "env",
                  env={"TAKEN": "here"}).splitlines()
    assert {"A=one two", "B=", "TAKEN=here", "C=x=y"} <= set(out)
    assert not [line for line in out if line.startswith(("ABSENT", "MISSING"))]


def test_an_image_that_is_not_there_comes_with_a_hint(fake):
    for words in (["run", "nosuch", "true"], ["create", "nosuch"]):
        fake.fails(words[0], "--engine", "fake", *words[1:],
                   says=["there is no image 'nosuch'", "'cubby image import' brings one in"])
    done = fake("run", "--engine", "fake", "--kernel", "9.9.9", "tiny", "true")
    assert done.code == 125 and "image import" not in done.err
    done = fake("run", "--engine", "fake", "--from", "nosuch", "true")
    assert done.code == 125 and "no template or snapshot 'nosuch'" in done.err
    assert "image import" not in done.err


def test_no_spares_of_no_template_is_no_error(fake):
    assert fake.ok("spare", "set", "--engine", "fake", "-m", "99M", "0", "tiny") == ""
    fake.fails("spare", "set", "--engine", "fake", "0", "nosuch", says="nosuch")
    assert fake.ok("spare", "ls", "-q") == ""


def test_a_stopped_box_says_it_once(fake):
    fake.ok("run", "--engine", "fake", "--no-template", "-d", "--idle", "--name", "quiet", "tiny")
    fake.ok("stop", "-t", "1", "quiet")
    assert re.match(r"Stopped (Less|\d)", fake.ok("ps", "-a", "--format", "{{.Status}}"))


def test_life_of_a_box(fake):
    box_id = fake.ok("create", "--engine", "fake", "--name", "web", "tiny", "sleep", "1000")
    assert re.fullmatch("[0-9a-f]{32}", box_id) and fake.state("web") == "created"
    assert fake.ok("start", "web") == "web" and fake.state(box_id) == ""
    assert fake.ok("exec", box_id[:6], "echo", "hi") == "hi"
    fake.ok("rename", "web", "db")
    assert fake.ok("pause", "db") == "db" and fake.state("db") == "paused"
    assert "(Paused)" in fake.ok("ps") and fake.ok("unpause", "db") == "db"
    assert fake.ok("stop", "-t", "2", "db") == "db"
    assert fake.ok("wait", "db") == "143"
    assert "Exited (143)" in fake.ok("ps", "-a")
    assert fake.ok("restart", "-t", "1", "db") == "db" and fake.state("db") == "running"
    assert fake.ok("kill", "-s", "TERM", "db") == "db"
    assert fake.ok("wait", "--timeout", "10s", "db") == "143"
    assert fake.ok("rm", "db") == "db" and listed(fake) == []


def test_wait_gives_up(fake, box):
    assert fake("wait", "--timeout", "100ms", box).code == 124


def test_several_boxes_and_a_missing_one(fake, box):
    result = fake("stop", "-t", "1", "missing", box)
    assert result.code == 125 and result.text == box and "missing" in result.err


def test_start_and_stay(fake):
    fake.ok("create", "--engine", "fake", "--name", "web", "tiny", "echo", "hello")
    for _ in range(2):
        result = fake("start", "-a", "web")
        assert (result.code, result.out) == (0, b"hello\n"), result
    fake.fails("start", "-i", "web", says="without -i")


def test_logs(fake):
    run(fake, "-d", "--name", "web", command=["echo", "one"])
    fake.ok("wait", "web")
    assert fake("logs", "web").out == b"one\n"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{18}Z one\n", fake("logs", "-t", "web").out.decode())
    assert fake.ok("logs", "--since", "1h", "web") == "one"
    assert fake.ok("logs", "--since", "2100-01-01T00:00:00Z", "web") == ""
    assert fake.ok("logs", "--tail", "0", "web") == ""
    assert fake.ok("logs", "--tail", "all", "-f", "web") == "one"


def test_ps(fake, box):
    box_id = fake.box_id(box)
    fake.ok("create", "--engine", "fake", "--name", "idle", "--idle", "tiny")
    assert fake.ok("ps", "-q") == box_id[:12] and fake.ok("ps", "-q", "--no-trunc") == box_id
    assert listed(fake) == ["idle", "work"] and listed(fake, "-n", "1") == ["idle"]
    assert listed(fake, "-l") == ["idle"]
    assert listed(fake, "--filter", "status=created") == ["idle"]
    assert fake.ok("ps", "--filter", "status=created", "-q") != ""
    assert listed(fake, "--filter", "label=team=blue") == ["work"]
    assert listed(fake, "--filter", "label=team=red") == []
    assert listed(fake, "--filter", "name=^id", "--filter", "name=rk$") == ["idle", "work"]
    assert listed(fake, "--filter", f"id={box_id[:5]}") == ["work"]
    assert listed(fake, "--filter", "ancestor=tiny") == ["idle", "work"]
    shown = {entry["name"]: entry for entry in json.loads(fake.ok("ps", "-a", "--format", "json"))}
    assert shown["work"]["id"] == box_id and shown["work"]["labels"] == {"team": "blue",
                                                                         "note": "a b"}
    assert shown["idle"]["state"] == "created" and shown["idle"]["exit_code"] is None
    table = fake.ok("ps", "--format", "table {{.Names}}\\t{{.State}}").splitlines()
    assert table == ["NAMES\tState", "work\trunning"]
    assert fake.ok("ps", "--format", "{{json .Labels}}") == '"note=a b,team=blue"' or \
        "team=blue" in fake.ok("ps", "--format", "{{json .Labels}}")
    header, row = fake.ok("ps").splitlines()
    assert header.split("  ")[0] == "BOX ID" and row.startswith(box_id[:12])
    assert '"sleep 1000"' in row and header.index("NAMES") == row.index("work")


def test_inspect_and_templates(fake, box):
    shown = json.loads(fake.ok("inspect", box, "tiny"))
    assert shown[0]["name"] == box and shown[1]["id"].startswith("sha256:")
    assert fake.ok("inspect", "-f", "{{.Name}} {{.id}}", box) == f"{box} {shown[0]['id']}"
    assert fake("inspect", "-f", "{{.No.Such}}", box).code == 2
    result = fake("inspect", box, "missing")
    assert result.code == 125 and "missing" in result.err and json.loads(result.text)


def test_top_and_stats(fake, box):
    rows = fake.ok("top", box).splitlines()
    assert rows[0].split()[:3] == ["UID", "PID", "PPID"] and "sleep" in rows[1]
    assert json.loads(fake.ok("top", "--format", "json", box))[0]["command"].startswith("sleep")
    shown = json.loads(fake.ok("stats", "--no-stream", "--format", "json", box))[0]
    assert shown["name"] == box and shown["memory_total"] > 0
    assert fake.ok("stats", "--no-stream", "--format", "{{.Name}}") == box


def test_images(fake):
    table = fake.ok("images").splitlines()
    assert table[0].split()[:2] == ["REPOSITORY", "TAG"] and table[1].split()[:2] == ["tiny",
                                                                                      "latest"]
    fake.ok("image", "tag", "tiny", "other:v1")
    assert fake.ok("images", "--format", "{{.Name}}", "other") == "other:v1"
    assert fake.ok("images", "-q", "missing") == ""
    assert {image["architecture"] for image in json.loads(fake.ok("images", "--format", "json"))} \
        == {"amd64"}
    assert fake.ok("image", "rm", "other:v1") == "other:v1"


def test_detached_commands(fake, box):
    assert fake.ok("exec", "-d", box, "sleep", "55") == ""
    assert "sleep 55" in fake.ok("top", box) or fake.ok("top", box).count("sleep") == 2


def test_progress_lines_only_when_asked(fake):
    assert run(fake, command=["true"]).err == ""
    told = fake("-v", "run", "--engine", "fake", "tiny", "true").err
    assert re.search("^cubby: .*boot", told, re.MULTILINE)


class Terminal:
    def __init__(self, fake, *args):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)

        def controlling():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = fake.popen(*args, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                  preexec_fn=controlling)

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def read(self, pattern, seconds=20):
        seen, end = b"", time.monotonic() + seconds
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            if select.select([self.master], [], [], 0.2)[0]:
                seen += os.read(self.master, 65536)
        return seen

    def finish(self):
        code = self.process.wait(20)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was not put back"
        os.close(self.master)
        os.close(self.slave)
        return code


def test_a_terminal_is_raw_and_comes_back(fake, box):
    term = Terminal(fake, "exec", "-it", box, "cat")
    wait_for(term.raw, 10, "raw mode")
    os.write(term.master, b"\x03typed\x1b")
    assert b"\x03typed\x1b" in term.read(b"typed\x1b")
    term.process.send_signal(signal.SIGTERM)
    assert term.finish() == 143


def test_the_size_is_followed(fake, box):
    term = Terminal(fake, "exec", "-it", box, "winsize")
    wait_for(term.raw, 10, "raw mode")
    termios.tcsetwinsize(term.slave, (41, 133)) if hasattr(termios, "tcsetwinsize") else \
        subprocess.run(["stty", "rows", "41", "cols", "133"], stdin=term.slave, check=True)
    term.process.send_signal(signal.SIGWINCH)
    term.read(rb"41 133")
    term.process.send_signal(signal.SIGTERM)
    term.finish()


def test_detach_keys(fake):
    term = Terminal(fake, "run", "-it", "--engine", "fake", "--name", "seat", "tiny", "cat")
    wait_for(term.raw, 10, "raw mode")
    os.write(term.master, b"one\x10two")
    term.read(b"one\x10two")
    os.write(term.master, b"\x10")
    os.write(term.master, b"\x11")
    term.read(b"detached")
    assert term.finish() == 0 and fake.state("seat") == "running"
    again = Terminal(fake, "attach", "seat")
    wait_for(again.raw, 10, "raw mode")
    os.write(again.master, b"back")
    again.read(b"back")
    fake.ok("kill", "seat")
    assert again.finish() == 137


def test_a_lost_terminal_ends_the_command(fake, box):
    term = Terminal(fake, "exec", "-it", box, "sleep", "100")
    wait_for(term.raw, 10, "raw mode")
    os.close(term.slave)
    os.close(term.master)
    assert term.process.wait(20) == 129


def test_attach_passes_input_and_exit(fake):
    run(fake, "-di", "--name", "web", command=["cat"])
    client = fake.popen("attach", "web", stdin=subprocess.PIPE)
    out, err = client.communicate(b"line\n", timeout=30)
    assert (client.returncode, out, err) == (0, b"line\n", b"")


def test_many_at_once(fake, box):
    clients = [fake.popen("exec", box, "echo", str(n)) for n in range(20)]
    for n, client in enumerate(clients):
        out, err = client.communicate(timeout=30)
        assert (client.returncode, out) == (0, f"{n}\n".encode()), err


def test_100_short_runs_are_complete(fake):
    for n in range(100):
        result = run(fake, command=["echo", str(n)])
        assert (result.code, result.out, result.err) == (0, f"{n}\n".encode(), ""), result
    assert listed(fake) == []


def test_a_killed_shim_is_told(fake):
    client = fake.popen("run", "--engine", "fake", "--name", "lost", "tiny", "sleep", "100")
    wait_for(lambda: fake.state("lost") == "running", 10, "the box")
    for pid, name in fake.processes("lost"):
        if name == "cubby-shim":
            os.kill(pid, signal.SIGKILL)
    _, err = client.communicate(timeout=30)
    assert client.returncode == 125 and err.startswith(b"cubby: ")
    assert fake.state("lost") == "failed" and fake.ok("rm", "lost") == "lost"


def test_timeout_of_a_frozen_box(fake, box):
    hanging = fake.popen("exec", box, "hang")
    wait_for(lambda: fake("exec", "--timeout", "100ms", box, "true").code == 124, 20, "a freeze")
    result = fake("exec", "--timeout", "1s", box, "true")
    assert result.code == 124 and box in result.err and result.seconds < 3.5, result
    assert fake("stop", "-t", "1", box).seconds < 4
    hanging.communicate(timeout=10)


def test_box_ends_before_its_reader(fake):
    words = [letter * 100_000 for letter in "abcdefgh"]
    reader = fake.popen("run", "--engine", "fake", "--name", "web", "tiny", "echo", *words)
    wait_for(lambda: fake.state("web") == "stopped", 10, "the end of the box")
    assert fake.inspect("web")["exit_code"] == 0
    assert fake.ok("start", "-a", "web") == " ".join(words)  # another shim, the same folder
    out, err = reader.communicate(timeout=20)
    assert out.decode() == " ".join(words) + "\n" and err == b""
    assert reader.returncode == 0
    wait_for(lambda: fake.processes("web") == [], 5, "the end of both shims")


def test_files(fake, box):
    data = bytes(range(256)) * 5000
    fake.ok("fs", "write", box, "/a/b/c", input=data)
    assert fake("fs", "cat", box, "/a/b/c").out == data
    fake.ok("fs", "write", "-a", box, "/a/b/c", input=b"more")
    assert fake("fs", "cat", box, "/a/b/c").out == data + b"more"
    assert fake.ok("fs", "ls", "--depth", 2, box, "/a") == "b\nb/c"
    assert fake.ok("fs", "stat", "--format", "{{.Type}} {{.Size}}", box, "/a/b/c") == \
        f"file {len(data) + 4}"
    fake.ok("fs", "mkdir", "-p", box, "/a/x/y")
    fake.ok("fs", "mv", box, "/a/b/c", "/a/x")
    assert fake.ok("fs", "ls", box, "/a/x") == "c\ny"
    fake.fails("fs", "rm", box, "/a/x", says="not empty")
    fake.fails("fs", "cat", box, "/a", says="directory")
    fake.fails("fs", "cat", box, "/../../etc/passwd", says="no such file")
    fake.fails("fs", "write", "--exclusive", box, "/a/x/c", input=b"x", says="exists")
    fake.ok("fs", "rm", "-r", box, "/a")
    assert fake.ok("fs", "ls", box, "/") == ""
