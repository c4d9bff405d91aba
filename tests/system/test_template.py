# SPDX-License-Identifier: Apache-2.0
"""Templates, clones and spares on real machines."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import tarfile
import tempfile
import time
import uuid
from pathlib import Path

import pytest
import wire
from conftest import BUILD, Cubby, close_home, wait_for

CANARY = f"canary-{uuid.uuid4()}"
IDENTITY = ("head -c 1024 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; "
            "cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id; "
            "cat /etc/machine-id; hostname; cat /run/cubby/generation; date +%s.%N")


@pytest.fixture(scope="module")
def home(busybox_tar):
    """A home with a template of busybox; a canary stands in the environment meanwhile."""
    cubby = Cubby(tempfile.mkdtemp(prefix="cubby-test-template-"), env={"CANARY": CANARY})
    cubby.ok("kernel", "ensure", timeout=180)
    tar = cubby.home / "busybox.tar"
    shutil.copy(busybox_tar, tar)
    with tarfile.open(tar, "a") as out:  # so that a box gets one of its own
        out.addfile(tarfile.TarInfo("etc/machine-id"))
    cubby.ok("image", "import", tar, "--name", "busybox")
    build(cubby)
    yield cubby
    assert close_home(cubby) == []


@pytest.fixture(autouse=True)
def no_strays(request):
    yield
    if "home" in request.fixturenames:
        home = request.getfixturevalue("home")
        home("rm", "-f", "-a")


def build(cubby, *options):
    cubby.ok("template", "build", *options, "-m", "256M", "busybox", timeout=180)


def templates_of(cubby):
    text = cubby.ok("template", "ls", "--format", "json")
    return json.loads(text) if text.startswith("[") else [json.loads(x) for x in text.splitlines()]


def folder(cubby, key):
    return cubby.home / "templates" / key


def the_key(cubby, memory=256 << 20):
    keys = [t["key"] for t in templates_of(cubby) if t["memory_bytes"] == memory]
    assert len(keys) == 1, keys
    return keys[0]


def idle(cubby, name, *options):
    cubby.ok("run", "-d", "--name", name, "-m", "256M", *options, "--idle", "busybox")
    return cubby.inspect(name)


def served(cubby, name):
    return cubby.inspect(name)["served"]


def set_spares(cubby, count):
    cubby.ok("spare", "set", "-m", "256M", count, "busybox", timeout=180)

    def ready():
        return [t for t in templates_of(cubby)
                if t["memory_bytes"] == 256 << 20 and t["spares"] == count]
    wait_for(ready, 90, f"{count} spares")


def test_first_boots_then_clones(own_home, busybox_tar):
    own_home.ok("kernel", "ensure", timeout=180)
    own_home.ok("image", "import", busybox_tar, "--name", "busybox")
    own_home.ok("run", "-d", "--name", "first", "-m", "256M", "--idle", "busybox")
    assert served(own_home, "first") == "booted"
    wait_for(lambda: templates_of(own_home), 120, "the template")
    own_home.ok("run", "-d", "--name", "second", "-m", "256M", "--idle", "busybox")
    assert served(own_home, "second") == "cloned"
    own_home.ok("run", "-d", "--name", "third", "-m", "256M", "--no-template", "--idle", "busybox")
    assert served(own_home, "third") == "booted"


def test_nobody_waits_for_a_template_that_is_being_made(home):
    """Its maker may take its time: the box boots."""
    build(home)
    key = the_key(home)
    home.ok("template", "rm", key)
    end_keepers(home)
    with open(home.home / "locks" / f"build-{key}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        idle(home, "sooner")
        assert served(home, "sooner") == "booted"
        end_keepers(home)  # it waits to make the template
    build(home)  # for the tests after this one


def test_a_clone_is_a_box_like_any_other(home):
    info = idle(home, "like", "--cpus", "0.5", "--pids-limit", "100", "--hostname", "given")
    assert info["served"] == "cloned" and info["generation"] == 2
    assert home.sh("like", "hostname; cat /etc/hostname").split() == ["given", "given"]
    assert home.sh("like", "cat /sys/devices/system/clocksource/clocksource0/current_clocksource") \
        == "tsc"
    assert abs(float(home.sh("like", "date +%s")) - time.time()) < 2
    home.sh("like", "echo kept >/root/file; sync")
    home.ok("restart", "-t", "1", "like", timeout=120)
    assert served(home, "like") == "booted"  # its disk is no longer the template's
    assert home.sh("like", "cat /root/file") == "kept"


def test_the_command_of_a_clone(home):
    done = home("run", "--rm", "-m", "256M", "-e", "A=b c", "-w", "/tmp", "-u", "1000:1000",
                "busybox", "sh", "-c", "echo $A; pwd; id -u; exit 7")
    assert done.code == 7 and done.text.split("\n") == ["b c", "/tmp", "1000"]
    assert home("run", "--rm", "-m", "256M", "busybox", "/no/such").code == 127
    assert home("run", "--rm", "-m", "256M", "busybox", "/etc/passwd").code == 126
    assert home("run", "-i", "--rm", "-m", "256M", "busybox", "cat", input=b"x" * 300000).out \
        == b"x" * 300000
    assert the_key(home)  # none of these made the template suspect


def test_no_canary_in_the_saved_memory(home):
    memory = folder(home, the_key(home)) / "memory"
    data = memory.read_bytes()
    assert CANARY.encode() not in data
    assert b"Linux version" in data  # the search finds what is there


def test_clones_have_nothing_in_common(home):
    """Also spares: a claim draws everything anew."""
    count = int(os.environ.get("CUBBY_TEST_CLONES", "12"))
    seen = []
    for i in range(count):
        seen.append(home.ok("run", "--rm", "-m", "256M", "busybox", "sh", "-c",
                            IDENTITY).split("\n"))
    set_spares(home, 2)
    for i in range(4):
        wait_for(lambda: template_spares(home) >= 1, 60, "a spare")
        name = f"claimed{i}"
        idle(home, name)
        assert served(home, name) == "spare"
        seen.append(home.sh(name, IDENTITY).split("\n"))
        home.ok("rm", "-f", name)
    home.ok("spare", "set", "-m", "256M", 0, "busybox")
    for place, what in enumerate(["random bytes", "uuid", "boot id", "machine id", "hostname"]):
        values = [lines[place] for lines in seen]
        assert len(values) == len(set(values)), what
        assert all(values), what
    for lines in seen:
        for size in (16, 32):  # not a part of one stream in the other either
            assert sum(lines[0][:size] in other[0] for other in seen) == 1
        assert int(lines[5]) >= 2
    wait_for(lambda: template_spares(home) == 0, 20, "the end of the spares")


def test_without_the_reseed_they_would_be_equal(home, tmp_path):
    """The control: an agent that leaves the reseed out draws the same ids in clone after clone."""
    for program in ("cubby-shim", "cubby-keeper"):
        shutil.copy2(BUILD / program, tmp_path / program)
    shutil.copy2(BUILD / "cubby-agent-unseeded", tmp_path / "cubby-agent")
    unseeded = {"CUBBY_LIBEXEC": str(tmp_path)}
    before = {t["key"] for t in templates_of(home)}
    try:
        home.ok("template", "build", "-m", "256M", "busybox", env=unseeded, timeout=180)
        seen = []
        for i in range(3):
            home.ok("run", "-d", "--name", f"equal{i}", "-m", "256M", "--idle", "busybox",
                    env=unseeded)
            assert served(home, f"equal{i}") == "cloned"
            seen.append(home.sh(f"equal{i}", "cat /proc/sys/kernel/random/boot_id /etc/machine-id"))
        assert len(set(seen)) < len(seen), seen
    finally:
        end_keepers(home)
        for left in {t["key"] for t in templates_of(home)} - before:
            home("template", "rm", left)


def template_spares(cubby):
    return sum(t["spares"] for t in templates_of(cubby) if t["memory_bytes"] == 256 << 20)


def test_spares_cost_no_cpu_and_end_with_their_keeper(home):
    """And so does the machine that the keeper has started ahead of the next clone."""
    set_spares(home, 1)

    def machines():
        return [pid for pid, name in home.processes() if name.startswith("qemu")]
    wait_for(lambda: len(machines()) == 2, 15, "a spare and a machine ahead")
    time.sleep(1)  # it opens its control connection still

    def ticks():
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                  for pid in machines()]
        return sum(int(one[11]) + int(one[12]) for one in fields)
    before = ticks()
    time.sleep(3)
    assert len(machines()) == 2
    assert ticks() - before <= 1
    assert home.ok("ps", "-a", "-q") == ""  # nobody's box
    keeper = [pid for pid, name in home.processes() if name == "cubby-keeper"]
    assert len(keeper) == 1
    os.kill(keeper[0], signal.SIGKILL)
    wait_for(lambda: not [p for p in home.processes() if p[1].startswith("qemu")], 10,
             "the end of the spare")
    # a stale index entry is passed over: the next box is a clone
    idle(home, "after")
    assert served(home, "after") == "cloned"
    home.ok("spare", "set", "-m", "256M", 0, "busybox")


def test_two_callers_one_spare(home):
    set_spares(home, 1)
    running = [home.popen("run", "-d", "--name", f"twin{i}", "-m", "256M", "--idle", "busybox")
               for i in range(2)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    kinds = sorted(served(home, f"twin{i}") for i in range(2))
    assert kinds[0] in ("cloned", "spare") and len({home.box_id("twin0"), home.box_id("twin1")}) == 2
    home.ok("spare", "set", "-m", "256M", 0, "busybox")


def end_keepers(cubby):
    """So that no template is made beside the next test."""
    for pid, name in cubby.processes():
        if name == "cubby-keeper":
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("file", ["memory", "state", "disk", "manifest.json"])
@pytest.mark.parametrize("damage", ["shorter", "written", "gone"])
def test_damage_means_rebuild(home, file, damage):
    build(home)
    path = folder(home, the_key(home)) / file
    os.chmod(path, 0o600)
    if damage == "shorter":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "written":
        with open(path, "r+b") as out:
            out.seek(path.stat().st_size // 2)
            out.write(b"\x01damage")
    else:
        path.unlink()
    name = f"d-{file.partition('.')[0]}-{damage}"
    idle(home, name)
    assert served(home, name) == "booted"  # never tried
    home.ok("rm", "-f", name)
    for pid, program in home.processes():
        if program == "cubby-keeper":
            os.kill(pid, signal.SIGKILL)


def test_verify_finds_a_covered_up_change(home):
    build(home, "--again")
    key = the_key(home)
    assert home.ok("template", "verify", key[:12]) == key[:12]
    path = folder(home, key) / "memory"
    before = path.stat()
    os.chmod(path, 0o600)
    with open(path, "r+b") as out:
        out.seek(4 << 20)
        byte = out.read(1)
        out.seek(4 << 20)
        out.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    home.fails("template", "verify", key[:12], says=["memory", "changed"])
    home.ok("template", "rm", key[:12])
    assert not templates_of(home)


@pytest.mark.parametrize("step", [0.3, 1.5, 4, 7])
def test_killed_builder_leaves_nothing(home, step):
    for old in templates_of(home):
        home.ok("template", "rm", old["key"])
    building = home.popen("template", "build", "-m", "256M", "busybox", start_new_session=True)
    time.sleep(step)
    building.kill()
    building.wait()
    home.ok("gc")

    def clean():
        home.ok("gc")
        return not list((home.home / "tmp").iterdir()) and not list(
            (home.home / "boxes").iterdir()) and not [
            p for p in home.processes() if p[1].startswith("qemu")]
    wait_for(clean, 75, "the end of the unfinished template")
    for left in templates_of(home):
        home.ok("template", "verify", left["key"], timeout=60)  # whole or not at all


def test_many_at_once_queue(home):
    build(home)
    count = int(os.environ.get("CUBBY_TEST_BURST", "10"))
    running = [home.popen("run", "-d", "--name", f"burst{i}", "-m", "256M", "--idle", "busybox")
               for i in range(count)]
    for process in running:
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
    assert all(served(home, f"burst{i}") == "cloned" for i in range(count))
    home.ok("rm", "-f", *[f"burst{i}" for i in range(count)])


def test_prune_and_df(home):
    build(home)
    usage = json.loads(home.ok("df", "--format", "json"))
    assert usage["templates"]["count"] == 1 and usage["templates"]["bytes"] > 20 << 20
    assert re.fullmatch(r"would free .*MB", home.ok("prune", "--dry-run", "-a"))
    assert templates_of(home)
    idle(home, "lives")
    home.ok("prune", "-a")
    assert not templates_of(home)
    assert home.sh("lives", "echo yes") == "yes"  # a box needs its template no more


def test_refusals(home):
    home.fails("template", "build", "nosuch", says="nosuch")
    home.fails("template", "rm", "ffff", says="ffff")
    home.fails("template", "verify", "../boxes", says="no template")
    home.fails("spare", "set", "65", "busybox", code=2, says="65")
    home.fails("spare", "set", "-1", "busybox", code=2)
    home.fails("spare", "set", "1", "nosuch", says="nosuch")


# ------------------------------------------------- forks, snapshots, suspension

COUNTER = ("i=0; while true; do i=$((i+1)); echo $i >/tmp/count.new; "
           "mv /tmp/count.new /tmp/count; sleep 0.05; done")


def counting(cubby, name):
    """A box with a process that counts, a file, and something in its memory."""
    idle(cubby, name)
    cubby.ok("exec", "-d", name, "sh", "-c", COUNTER)
    cubby.sh(name, "echo kept >/root/file; head -c 20000000 /dev/urandom >/dev/shm/bytes; "
                   "md5sum </dev/shm/bytes >/root/sum")
    wait_for(lambda: count_of(cubby, name) > 3, 10, "the counter")


def count_of(cubby, name):
    return int(cubby("exec", name, "cat", "/tmp/count").text or 0)


def goes_on(cubby, name):
    before = count_of(cubby, name)
    wait_for(lambda: count_of(cubby, name) > before, 10, f"the counter of {name}")
    assert cubby.sh(name, "cat /root/file; md5sum </dev/shm/bytes | cmp - /root/sum && echo same") \
        == "kept\nsame"
    assert abs(float(cubby.sh(name, "date +%s")) - time.time()) < 2


@pytest.mark.parametrize("how", ["clone", "boot"])
def test_forks_share_the_past_only(home, how):
    build(home)
    if how == "clone":
        counting(home, "parent")
        assert served(home, "parent") == "cloned"
    else:
        home.ok("run", "-d", "--name", "parent", "-m", "256M", "--no-template", "--idle",
                "busybox", timeout=120)
        home.ok("exec", "-d", "parent", "sh", "-c", COUNTER)
        home.sh("parent", "echo kept >/root/file; echo b >/dev/shm/bytes; "
                          "md5sum </dev/shm/bytes >/root/sum")
        wait_for(lambda: count_of(home, "parent") > 3, 10, "the counter")
    at_fork = count_of(home, "parent")
    children = home.ok("fork", "-n", 2, "parent", timeout=60).split()
    assert len(children) == 2
    family = ["parent", *children]
    for name in family:
        goes_on(home, name)
        assert count_of(home, name) >= at_fork
    assert [served(home, c) for c in children] == ["forked", "forked"]
    home.sh(children[0], "echo mine >/root/own")
    for other in (family[0], family[2]):
        assert home("exec", other, "cat", "/root/own").code == 1  # disks of their own
    said = [home.sh(name, IDENTITY).split("\n") for name in family]
    for place in range(5):
        assert len({lines[place] for lines in said}) == 3, place
    grandchild = home.ok("fork", children[0], timeout=60)
    goes_on(home, grandchild)
    assert home.sh(grandchild, "cat /root/own") == "mine"


def test_snapshot_is_a_template_of_its_own(home):
    counting(home, "origin")
    assert home.ok("snapshot", "create", "origin", "ready", timeout=60) == "ready"
    home.fails("snapshot", "create", "origin", "ready", says="already")
    home.fails("snapshot", "create", "origin", "../up", says="no name")
    home.fails("snapshot", "create", "nosuch", "x", says="nosuch")
    home.ok("pause", "origin")
    home.fails("snapshot", "create", "origin", "held", says="paused; unpause it first")
    home.fails("suspend", "origin", says="paused; unpause it first")
    home.ok("unpause", "origin")
    goes_on(home, "origin")
    home.ok("rm", "-f", "origin")
    for name in ("again1", "again2"):
        home.ok("run", "--from", "ready", "-d", "--name", name)
        goes_on(home, name)
    assert served(home, "again1") == "snapshot"
    done = home("run", "--from", "ready", "sh", "-c", "cat /root/file; exit 3")
    assert done.code == 3 and done.text == "kept"
    assert home.ok("template", "verify", "ready", timeout=60) == "ready"
    home.ok("prune", "-a")
    assert [t["snapshot"] for t in templates_of(home)] == ["ready"]  # kept until removed
    home.fails("run", "--from", "nosuch", "true", says="nosuch")
    home.fails("run", "--from", "ready", code=2)
    key = templates_of(home)[0]["key"]
    assert [t["snapshot"] for t in json.loads(home.ok("template", "inspect", key))] == ["ready"]
    assert home.ok("template", "inspect", "-f", "{{.key}}", "ready") == key
    assert "256MiB" in home.ok("template", "ls")
    os.chmod(folder(home, key) / "state", 0o600)
    os.truncate(folder(home, key) / "state", 100)
    home.fails("run", "--from", key[:10], "true", says="state")
    home.ok("template", "rm", key[:10])


def test_five_suspensions(home):
    build(home)
    counting(home, "sleeper")
    waiting = home.popen("exec", "sleeper", "sleep", "1000")
    time.sleep(0.5)
    last = 0
    for cycle in range(5):
        home.ok("suspend", "sleeper", timeout=60)
        assert home.state("sleeper") == "suspended"
        home.fails("exec", "sleeper", "true", says="is suspended; resume it first")
        home.fails("fork", "sleeper", says="is suspended; resume it first")
        assert not home.processes("sleeper")
        home.fails("exec", "sleeper", "true", says="sleeper")
        if cycle == 0:
            _, err = waiting.communicate(timeout=10)
            assert waiting.returncode == 125 and err
        time.sleep(1)
        home.ok("resume", "sleeper", timeout=60)
        assert home("exec", "sleeper", "true").code == 0  # the first call
        goes_on(home, "sleeper")
        now = count_of(home, "sleeper")
        assert now > last
        last = now
    assert home.inspect("sleeper")["generation"] >= 7
    home.fails("resume", "sleeper", says="not paused")
    home.ok("pause", "sleeper")
    home.ok("resume", "sleeper")
    goes_on(home, "sleeper")


def test_damaged_suspension_boots_with_its_files(home):
    build(home)
    counting(home, "hurt")
    home.sh("hurt", "sync")
    home.ok("suspend", "hurt", timeout=60)
    state = home.home / "boxes" / home.box_id("hurt") / "suspended" / "state"
    with open(state, "r+b") as out:
        out.seek(500)
        out.write(b"\x00damage\x00")
    home.fails("resume", "hurt", says="damaged")
    home.ok("start", "hurt", timeout=120)
    assert served(home, "hurt") == "booted" and home.sh("hurt", "cat /root/file") == "kept"


def test_commands_wait_while_the_box_is_forked(home):
    home.ok("run", "-d", "--name", "busy", "-m", "256M", "busybox", "sleep", "100000")
    fork = home.popen("fork", "busy")
    count = 0
    while fork.poll() is None or count == 0:
        assert home.ok("exec", "busy", "echo", "here", timeout=60) == "here"
        count += 1
    child, problem = fork.communicate()
    assert fork.returncode == 0, problem
    home.ok("rm", "-f", "busy", child.decode().strip())


def test_a_fork_that_dies_lets_the_box_go_on(home):
    build(home)
    counting(home, "solid")
    for delay in (0.02, 0.1, 0.2):
        forking = home.popen("fork", "-n", 1, "solid")
        time.sleep(delay)
        forking.kill()
        forking.wait()
        goes_on(home, "solid")


def test_a_box_that_went_on_is_not_suspended(home):
    """Whoever copied it may end it only while it stands still: else disk and memory would be
    of two instants."""
    idle(home, "moving")
    save, go_on = 137, 138
    directory = os.open(home.home / "boxes" / home.box_id("moving"), os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(20)
        line.connect(f"/proc/self/fd/{directory}/box.sock")

        def ask(kind, stream, payload=b""):
            line.sendall(wire.HEADER.pack(len(payload), kind, 0, 0, stream) + payload)
            data, copies, _, _ = socket.recv_fds(line, 4096, 4)
            for copy in copies:
                os.close(copy)
            return wire.NAMES[wire.HEADER.unpack_from(data)[1]], len(copies)
        assert ask(save, 1) == ("OK", 2)
        assert ask(go_on, 2) == ("OK", 0)
        assert ask(go_on, 3, b"\x01") == ("ERROR", 0)
        assert home.sh("moving", "echo here") == "here"
        assert ask(save, 4) == ("OK", 2)
        assert ask(go_on, 5, b"\x01") == ("OK", 0)
    os.close(directory)
    wait_for(lambda: home.state("moving") != "running", 10, "the end of the box")


def test_one_snapshot_of_a_name(home):
    idle(home, "model")
    making = [home.popen("snapshot", "create", "model", "single") for _ in range(2)]
    said = sorted((process.wait(60), process.communicate()[1]) for process in making)
    assert said[0][0] == 0 and said[1][0] == 125
    assert b"already" in said[1][1] or b"copied" in said[1][1]
    assert [t["snapshot"] for t in templates_of(home) if t["snapshot"]] == ["single"]
    home.ok("template", "rm", "single")
