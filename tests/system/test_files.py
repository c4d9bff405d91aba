# SPDX-License-Identifier: Apache-2.0
"""`cubby fs`: files of a box, by its agent alone."""

import hashlib
import os
import signal
import subprocess
import tarfile
import threading
import time

import pytest
from conftest import running_box, wait_for

MIB = 1 << 20
MODULE_BOXES = ("files-bare",)
ODD_NAMES = [b"a b", b"line\nbreak", b"-rf", b"--", b"..x", b"x..", b"\xff\xfe", b"\xc3\xa4",
             b"n" * 255, b"*", b"$(id)", b"'\"\\", b"\x01\x7f", b".hidden"]


@pytest.fixture
def work(cubby, box):
    """An empty folder in the shared box."""
    cubby.ok("fs", "rm", "-rf", box, "/work")
    cubby.ok("fs", "mkdir", box, "/work")
    return "/work"


@pytest.fixture
def bare(cubby, tmp_path):
    """A box of an image that is one static program: no shell, no folder, no user."""
    if cubby.state("files-bare") != "running":
        program = tmp_path / "one"
        program.write_bytes(open("/bin/busybox", "rb").read())
        program.chmod(0o755)
        with tarfile.open(tmp_path / "bare.tar", "w") as tar:
            tar.add(program, "sleep")
        cubby.ok("image", "import", tmp_path / "bare.tar", "--name", "files-bare")
        cubby("rm", "-f", "files-bare")
        cubby.ok("run", "-d", "--name", "files-bare", "-m", "256M", "files-bare",
                 "/sleep", "100000")
    return "files-bare"


def put(cubby, box, path, data, *options):
    return cubby.ok("fs", "write", *options, box, path, input=data)


def get(cubby, box, path, *options):
    result = cubby("fs", "cat", *options, box, path)
    assert result.code == 0, result
    return result.out


def names(cubby, box, path, *options):
    result = cubby("fs", "ls", "-0", *options, box, path)
    assert result.code == 0, result
    return result.out.split(b"\0")[:-1]


def shown(cubby, box, path, template, *options):
    return cubby.ok("fs", "stat", "--format", template, *options, box, path)


def fs(cubby, *arguments, input=None):
    """The command with arguments that may be any bytes."""
    command = [os.fsencode(part) for part in [*cubby.command, "fs", *arguments]]
    return subprocess.run(command, input=input, capture_output=True, env=cubby.environment(),
                          timeout=90, stdin=subprocess.DEVNULL if input is None else None)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 32768, 65536 + 5, MIB, 3 * MIB + 17])
def test_content_of_every_size_comes_back(cubby, box, work, size):
    data = os.urandom(size)
    put(cubby, box, f"{work}/f", data)
    assert get(cubby, box, f"{work}/f") == data
    assert cubby.sh(box, f"md5sum <{work}/f").split()[0] == hashlib.md5(data).hexdigest()
    assert shown(cubby, box, f"{work}/f", "{{.Size}}") == str(size)


def test_an_image_of_one_program_is_enough(cubby, bare):
    data = bytes(range(256)) * 700
    put(cubby, bare, "/a/b/c", data)
    put(cubby, bare, "/a/b/c", b"more", "-a")
    assert get(cubby, bare, "/a/b/c") == data + b"more"
    assert names(cubby, bare, "/a", "--depth", 2) == [b"b", b"b/c"]
    cubby.ok("fs", "mv", bare, "/a/b/c", "/a/d")
    cubby.ok("fs", "mkdir", "-p", bare, "/a/x/y")
    assert names(cubby, bare, "/a") == [b"b", b"d", b"x"]
    cubby.ok("fs", "rm", "-r", bare, "/a")
    cubby.fails("fs", "stat", bare, "/a", says="no such file")


def test_parents_modes_and_owners(cubby, box, work):
    put(cubby, box, f"{work}/new/er/f", b"1")
    assert shown(cubby, box, f"{work}/new", "{{.Mode}}") == "drwxr-xr-x"
    assert shown(cubby, box, f"{work}/new/er/f", "{{.Mode}} {{.UID}} {{.GID}}") == "-rw-r--r-- 0 0"
    cubby.fails("fs", "write", "--no-parents", box, f"{work}/none/f", input=b"x",
                says="no such file")
    cubby.sh(box, f"chown 12:34 {work}/new/er/f; chmod 4750 {work}/new/er/f")
    put(cubby, box, f"{work}/new/er/f", b"22")
    assert shown(cubby, box, f"{work}/new/er/f", "{{.Mode}} {{.UID}} {{.GID}}") == \
        "-rwsr-x--- 12 34"
    put(cubby, box, f"{work}/new/er/f", b"333", "-m", "640", "--owner", "user")
    assert shown(cubby, box, f"{work}/new/er/f", "{{.Mode}} {{.UID}} {{.GID}} {{.Size}}") == \
        "-rw-r----- 1000 1000 3"
    cubby.fails("fs", "write", "--exclusive", box, f"{work}/new/er/f", input=b"x", says="exists")
    assert get(cubby, box, f"{work}/new/er/f") == b"333"
    put(cubby, box, f"{work}/first", b"x", "--exclusive")


def test_a_folder_that_gives_its_group_gives_it(cubby, box, work):
    cubby.sh(box, f"mkdir {work}/s; chgrp 77 {work}/s; chmod 2777 {work}/s")
    put(cubby, box, f"{work}/s/f", b"x")
    assert shown(cubby, box, f"{work}/s/f", "{{.UID}} {{.GID}}") == "0 77"


def test_names_are_bytes(cubby, box, work):
    for name in ODD_NAMES:
        path = os.fsencode(work) + b"/" + name
        assert fs(cubby, "write", box, path, input=name).returncode == 0
        assert fs(cubby, "cat", box, path).stdout == name
    assert names(cubby, box, work) == sorted(ODD_NAMES)
    assert int(cubby.sh(box, f"ls -A0 {work} 2>/dev/null | tr -dc '\\0' | wc -c || echo 0")) in \
        (0, len(ODD_NAMES))
    for name in ODD_NAMES:
        assert fs(cubby, "rm", box, os.fsencode(work) + b"/" + name).returncode == 0
    assert names(cubby, box, work) == []


def test_lists(cubby, box, work):
    cubby.sh(box, f"cd {work}; mkdir -p d/e/f b; touch b/2 b/1 d/e/x a; ln -s d l; mkfifo p")
    assert names(cubby, box, work) == [b"a", b"b", b"d", b"l", b"p"]
    assert names(cubby, box, work, "--depth", 9) == \
        [b"a", b"b", b"b/1", b"b/2", b"d", b"d/e", b"d/e/f", b"d/e/x", b"l", b"p"]
    assert names(cubby, box, work, "--depth", 0) == []
    assert names(cubby, box, f"{work}//./l/") == [b"e"]
    rows = cubby.ok("fs", "ls", "--format", "{{.Type}} {{.Target}} {{.Path}}", box, work)
    assert rows.splitlines() == [f"folder  {work}", f"file  {work}/a", f"folder  {work}/b",
                                 f"folder  {work}/d", f"link d {work}/l", f"fifo  {work}/p"]
    cut = cubby("fs", "ls", "--max", 3, box, work)
    assert cut.text.split() == ["a", "b"] and "more" in cut.err
    cubby.fails("fs", "ls", box, f"{work}/a", says="not a directory")
    cubby.fails("fs", "ls", box, f"{work}/none", says="no such file")
    cubby.sh(box, f"mkdir {work}/many; cd {work}/many; i=0; while [ $i -lt 1500 ]; do "
                  ": > f$i; i=$((i+1)); done")
    assert names(cubby, box, f"{work}/many") == sorted(b"f%d" % i for i in range(1500))
    some = cubby("fs", "ls", "-0", "--max", 101, box, f"{work}/many").out.split(b"\0")[:-1]
    assert some == sorted(b"f%d" % i for i in range(1500))[:100]


def test_only_regular_files_are_read_and_written(cubby, box, work):
    cubby.sh(box, f"mkfifo {work}/p")
    for path, says in ((f"{work}/p", "not a regular file"), ("/dev/zero", "not a regular file"),
                       ("/dev/tty", "not a regular file"), (work, "directory")):
        start = time.monotonic()
        cubby.fails("fs", "cat", box, path, says=says)
        cubby.fails("fs", "write", box, path, input=b"x", says=says)
        cubby.fails("fs", "write", "-a", box, path, input=b"x", says=says)
        assert time.monotonic() - start < 10
    assert get(cubby, box, "/proc/meminfo").startswith(b"MemTotal")


def test_bad_paths(cubby, box, work):
    cubby.fails("fs", "cat", box, "", says="empty")
    cubby.fails("fs", "cat", box, "x" * 5000, says="longer than 4095")
    cubby.fails("fs", "cat", box, f"{work}/" + "n" * 256, says="too long")
    cubby.fails("fs", "write", box, f"{work}/f/", input=b"", says="directory")
    cubby.fails("fs", "rm", "-r", box, "/", says="root")
    cubby.fails("fs", "mv", box, "/", f"{work}/x", says="root")
    cubby.fails("fs", "cat", "-u", "nobody-knows", box, "/etc/passwd", says="unknown")
    assert get(cubby, box, "../../../etc/passwd") == get(cubby, box, "/etc/passwd")
    assert get(cubby, box, "etc/passwd") == get(cubby, box, "/etc/passwd")


def test_links_stay_in_the_box(cubby, box, work):
    cubby.sh(box, f"cd {work}; echo t > target; ln -s target l; ln -s {work}/made d; ln -s loop loop;"
                  "ln -s /../../../etc/passwd up")
    put(cubby, box, f"{work}/l", b"through")
    assert get(cubby, box, f"{work}/target") == b"through"
    assert shown(cubby, box, f"{work}/l", "{{.Type}} {{.Target}}") == "link target"
    assert shown(cubby, box, f"{work}/l", "{{.Type}}", "-L") == "file"
    put(cubby, box, f"{work}/d", b"new")
    assert get(cubby, box, f"{work}/made") == b"new"
    cubby.fails("fs", "cat", box, f"{work}/loop", says="symbolic links")
    cubby.fails("fs", "write", box, f"{work}/loop", input=b"", says="symbolic links")
    assert get(cubby, box, f"{work}/up") == get(cubby, box, "/etc/passwd")
    cubby.ok("fs", "rm", box, f"{work}/l")
    assert get(cubby, box, f"{work}/target") == b"through"


def test_the_links_of_proc_lead_nowhere(cubby, box):
    """Nothing of the agent is behind them, whoever asks."""
    pid = cubby.sh(box, "sleep 1000 >/dev/null 2>&1 & echo $!")
    for path in ("/proc/1/root/etc/passwd", "/proc/1/exe", "/proc/1/cwd/etc/passwd",
                 "/proc/self/root/etc/passwd", "/proc/self/exe", "/proc/self/fd/0",
                 "/proc/thread-self/root", f"/proc/{pid}/exe", f"/proc/{pid}/root/etc/passwd",
                 "/dev/fd/0", "/dev/stdin"):
        assert cubby("fs", "cat", box, path).code == 125, path
        assert cubby("fs", "stat", "-L", box, path).code == 125, path
        assert cubby("fs", "ls", box, path).code == 125, path
    cubby.sh(box, f"ln -sf /proc/{pid}/root /magic")
    assert cubby("fs", "cat", box, "/magic/etc/passwd").code == 125
    cubby.sh(box, f"kill {pid}; rm /magic")


def test_what_a_user_may_not(cubby, box, work):
    """The box's kernel checks, as for a program of that user."""
    put(cubby, box, f"{work}/secret", b"s", "-m", "600")
    cubby.fails("fs", "cat", "-u", "user", box, f"{work}/secret", says="permission denied")
    cubby.fails("fs", "write", "-u", "user", box, f"{work}/secret", input=b"",
                says="permission denied")
    cubby.fails("fs", "write", "-u", "user", box, f"{work}/new", input=b"",
                says="permission denied")
    cubby.fails("fs", "rm", "-u", "user", box, f"{work}/secret", says="permission denied")
    cubby.fails("fs", "mkdir", "-u", "user", box, f"{work}/d", says="permission denied")
    cubby.fails("fs", "mv", "-u", "user", box, f"{work}/secret", f"{work}/s", says="permission")
    cubby.sh(box, f"mkdir {work}/closed; chmod 700 {work}/closed; mkdir {work}/open;"
                  f"chmod 777 {work}/open; : > {work}/open/ro; chmod 644 {work}/open/ro")
    cubby.fails("fs", "ls", "-u", "user", box, f"{work}/closed", says="permission denied")
    assert names(cubby, box, work, "-u", "user", "--depth", 3) == \
        [b"closed", b"open", b"open/ro", b"secret"]
    cubby.fails("fs", "write", "-u", "user", box, f"{work}/open/ro", input=b"",
                says="permission denied")
    put(cubby, box, f"{work}/open/mine", b"m", "-u", "user")
    put(cubby, box, f"{work}/open/deep/er", b"m", "-u", "user")
    cubby.ok("fs", "mkdir", "-u", "1234:5678", box, f"{work}/open/d")
    for path, ids in (("mine", "1000 1000"), ("deep", "1000 1000"), ("deep/er", "1000 1000"),
                      ("d", "1234 5678")):
        assert shown(cubby, box, f"{work}/open/{path}", "{{.UID}} {{.GID}}") == ids
    cubby.fails("fs", "write", "-u", "user", "--owner", "0:0", box, f"{work}/open/x", input=b"",
                says="not permitted")
    assert get(cubby, box, f"{work}/secret") == b"s"


def test_mounts_of_the_agent_are_written_in_their_place(cubby, box):
    before = get(cubby, box, "/etc/hosts")
    put(cubby, box, "/etc/hosts", before + b"10.0.0.1 other\n")
    assert cubby.sh(box, "grep other /etc/hosts") == "10.0.0.1 other"
    put(cubby, box, "/etc/hosts", before)
    assert get(cubby, box, "/etc/hosts") == before


def test_other_file_systems(cubby, box):
    put(cubby, box, "/dev/shm/f", b"in memory")
    put(cubby, box, "/dev/shm/f", b"again")
    assert get(cubby, box, "/dev/shm/f") == b"again"
    assert names(cubby, box, "/dev/shm") == [b"f"]
    cubby.fails("fs", "mv", box, "/dev/shm/f", "/f", says="cross-device")
    cubby.fails("fs", "write", box, "/proc/sys/kernel/hostname", input=b"x")
    cubby.fails("fs", "write", box, "/sys/kernel/f", input=b"x")
    cubby.ok("fs", "rm", box, "/dev/shm/f")


def test_move_and_remove(cubby, box, work):
    put(cubby, box, f"{work}/a", b"a")
    put(cubby, box, f"{work}/b", b"b")
    cubby.fails("fs", "mv", "-n", box, f"{work}/a", f"{work}/b", says="exists")
    cubby.ok("fs", "mv", box, f"{work}/a", f"{work}/b")
    assert get(cubby, box, f"{work}/b") == b"a"
    cubby.ok("fs", "mkdir", box, f"{work}/d")
    cubby.ok("fs", "mv", box, f"{work}/b", f"{work}/d")
    assert names(cubby, box, f"{work}/d") == [b"b"]
    cubby.fails("fs", "rm", box, f"{work}/d", says="not empty")
    cubby.fails("fs", "rm", box, f"{work}/none", says="no such file")
    cubby.ok("fs", "rm", "-f", box, f"{work}/none")
    cubby.fails("fs", "mkdir", box, f"{work}/d", says="exists")
    cubby.ok("fs", "mkdir", "-p", box, f"{work}/d", f"{work}/e/f/../g")
    cubby.fails("fs", "mkdir", "-p", box, f"{work}/d/b", says="exists")
    assert names(cubby, box, f"{work}/e") == [b"f", b"g"]
    cubby.ok("fs", "mkdir", "-m", "1777", box, f"{work}/t")
    assert shown(cubby, box, f"{work}/t", "{{.Mode}}") == "drwxrwxrwt"
    cubby.sh(box, f"cp -r /etc /etc-copy; cd {work}; ln -s /etc-copy keep; i=0; p=deep;"
                  "while [ $i -lt 700 ]; do p=$p/d; i=$((i+1)); done; mkdir -p $p; : > $p/f")
    cubby.ok("fs", "rm", "-r", box, f"{work}/deep", f"{work}/keep", f"{work}/d", f"{work}/e")
    assert names(cubby, box, work) == [b"t"]
    assert b"passwd" in names(cubby, box, "/etc-copy")
    cubby.ok("fs", "mv", box, "/etc-copy", "/etc-moved")
    cubby.ok("fs", "rm", "-r", box, "/etc-moved")


def test_lines_are_those_of_python(cubby, box, work):
    text = ("one\ntwo\r\nthree\rfour\x0bfive\x0csix\x1cseven\x1deight\x1enine\x85ten\u2028"
            "eleven\u2029twelve\n\n\u00e4\u20ac\U0001f600").encode()
    data = text + b"\xff bad \xe2\x82 \xed\xa0\x80 \xf0\x9f\n\xc0\x80tail\xe2"
    data += b"\n" + b"x" * 200_000 + b"\r\n" + b"last \xf4\x90\n"
    put(cubby, box, f"{work}/t", data)
    lines = data.decode("utf-8", "replace").splitlines()
    count = len(lines)
    for first, last in [(0, 0), (1, 1), (2, 3), (1, 5), (5, count), (count, count), (count, 0),
                        (count + 1, 0), (7, 3), (0, 4), (13, 16), (1, count + 5)]:
        want = "\n".join(lines[max(first, 1) - 1:last or None])
        got = get(cubby, box, f"{work}/t", "--lines", f"{first or ''}:{last or ''}")
        assert got == (want + "\n" if want else "").encode(), (first, last)
    cubby.fails("fs", "cat", "--lines", "3", box, f"{work}/t", code=2, says="FIRST:LAST")


def start_write(cubby, box, path, data):
    """A writer that has sent `data` and does not come to an end."""
    writer = cubby.popen("fs", "write", box, path, stdin=subprocess.PIPE)
    writer.stdin.write(data)
    writer.stdin.flush()
    time.sleep(0.5)
    assert writer.poll() is None
    return writer


def used_kib(cubby, box):
    return int(cubby.sh(box, "sync; df -k / | tail -n 1").split()[2])


def test_a_writer_that_is_killed_leaves_the_old_file(cubby, box, work):
    put(cubby, box, f"{work}/f", b"old")
    before = used_kib(cubby, box)
    writer = start_write(cubby, box, f"{work}/f", os.urandom(8 * MIB))
    assert get(cubby, box, f"{work}/f") == b"old" and names(cubby, box, work) == [b"f"]
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=30)
    wait_for(lambda: used_kib(cubby, box) < before + 2000, what="the space")
    assert get(cubby, box, f"{work}/f") == b"old" and names(cubby, box, work) == [b"f"]


def test_a_full_disk_leaves_the_old_file(cubby):
    cubby.ok("run", "-d", "--name", "full", "-m", "256M", "--disk", "64M", "busybox",
             "sleep", "100000")
    put(cubby, "full", "/d/f", b"old", "-m", "640")
    before = used_kib(cubby, "full")
    cubby.fails("fs", "write", "full", "/d/f", input=os.urandom(100 * MIB), says="no space")
    cubby.fails("fs", "write", "full", "/d/g", input=os.urandom(100 * MIB), says="no space")
    assert get(cubby, "full", "/d/f") == b"old" and names(cubby, "full", "/d") == [b"f"]
    assert used_kib(cubby, "full") < before + 2000
    put(cubby, "full", "/d/f", os.urandom(MIB))
    cubby("exec", "full", "sh", "-c", "cat /dev/zero > /fill")
    assert cubby("fs", "write", "full", "/d/f", input=os.urandom(8 * MIB)).code == 125
    assert shown(cubby, "full", "/d/f", "{{.Mode}} {{.Size}}") == f"-rw-r----- {MIB}"
    assert names(cubby, "full", "/d") == [b"f"]
    cubby.ok("stop", "-t", "1", "full")
    cubby.ok("start", "full")
    assert names(cubby, "full", "/d") == [b"f"]


def test_a_killed_machine_leaves_the_old_file(cubby):
    cubby.ok("run", "-d", "--name", "doomed", "-m", "256M", "busybox", "sleep", "100000")
    put(cubby, "doomed", "/d/f", b"old")
    put(cubby, "doomed", "/d/g", b"synced and then killed")
    before = used_kib(cubby, "doomed")
    writer = start_write(cubby, "doomed", "/d/f", os.urandom(8 * MIB))
    cubby.sh("doomed", "sync")
    cubby.ok("kill", "-s", "KILL", "doomed")
    writer.stdin.close()
    assert writer.wait(timeout=30) == 125
    cubby.ok("start", "doomed")
    assert names(cubby, "doomed", "/d") == [b"f", b"g"]
    assert get(cubby, "doomed", "/d/f") == b"old"
    assert get(cubby, "doomed", "/d/g") == b"synced and then killed"
    assert used_kib(cubby, "doomed") < before + 2000


def test_a_file_that_shrinks_while_it_is_read(cubby, box, work):
    script = (f"while :; do head -c 3000000 /dev/zero > {work}/f; : > {work}/f; done")
    cubby.ok("exec", "-d", box, "sh", "-c", script + " # shrinker")
    try:
        wait_for(lambda: cubby("fs", "cat", box, f"{work}/f").code == 0)
        for _ in range(20):
            got = get(cubby, box, f"{work}/f")
            assert len(got) <= 3000000 and got.count(0) == len(got)
    finally:
        cubby.kill_like(box, "shrinker", "KILL")
    assert get(cubby, box, "/etc/passwd").startswith(b"root:")


def test_a_folder_that_changes_while_it_is_walked(cubby, box, work):
    script = (f"cd {work}; while :; do mkdir -p x/y z; : > x/y/f; mv x w; rm -rf w z; done")
    cubby.ok("exec", "-d", box, "sh", "-c", script + " # changer")
    try:
        for _ in range(20):
            found = names(cubby, box, work, "--depth", 5)
            assert set(found) <= {b"x", b"x/y", b"x/y/f", b"z", b"w", b"w/y", b"w/y/f"}
            assert found == sorted(found)
    finally:
        cubby.kill_like(box, "changer", "KILL")


def test_many_calls_at_once(cubby, box, work):
    """Those that last take no more than their part: others go on beside them, and one more
    waits for its turn."""
    writers = [start_write(cubby, box, f"{work}/w{i}", b"begun") for i in range(13)]
    try:
        writers[12].stdin.close()
        assert shown(cubby, box, "/etc/passwd", "{{.Type}}") == "file"
        cubby.ok("fs", "mkdir", box, f"{work}/beside")
        assert cubby.ok("exec", box, "echo", "commands too") == "commands too"
        assert writers[12].poll() is None
    finally:
        for writer in writers:
            writer.stdin.close()
    assert [writer.wait(timeout=30) for writer in writers] == [0] * 13
    assert names(cubby, box, work) == sorted([b"beside", *(b"w%d" % i for i in range(13))])

    problems = []

    def loop(number):
        for turn in range(10):
            data = b"%d-%d" % (number, turn) * 1000
            put(cubby, box, f"{work}/t{number}", data)
            if get(cubby, box, f"{work}/t{number}") != data:
                problems.append((number, turn))

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_fork_in_the_middle_of_a_write(cubby):
    """The parent's writer goes on; the child has neither its file nor a leftover."""
    cubby.ok("run", "-d", "--name", "parent", "-m", "256M", "busybox", "sleep", "100000")
    put(cubby, "parent", "/d/f", b"old")
    before = used_kib(cubby, "parent")
    data = os.urandom(3 * MIB)
    writer = start_write(cubby, "parent", "/d/f", data)
    try:
        cubby.ok("rename", cubby.ok("fork", "parent", timeout=120), "child")
    except BaseException:
        writer.kill()
        raise
    writer.stdin.write(b"the rest")
    writer.stdin.close()
    assert writer.wait(timeout=60) == 0, writer.stderr.read()
    assert get(cubby, "parent", "/d/f") == data + b"the rest"
    assert get(cubby, "child", "/d/f") == b"old"
    assert names(cubby, "child", "/d") == [b"f"]
    put(cubby, "child", "/d/f", b"child")
    assert get(cubby, "child", "/d/f") == b"child"
    wait_for(lambda: used_kib(cubby, "child") < before + 2000, what="the child's space")


def test_a_box_that_does_not_run(cubby):
    cubby.ok("create", "--name", "idle", "busybox", "true")
    cubby.fails("fs", "cat", "idle", "/etc/passwd", says="not started")


def test_paused_box_answers_busy_or_waits_no_longer_than_asked(cubby):
    name = running_box(cubby, "halted", "busybox", "-m", "256M")
    cubby.ok("pause", name)
    cubby.fails("fs", "stat", name, "/", says="paused")
    cubby.ok("unpause", name)
    assert shown(cubby, name, "/", "{{.Type}}") == "folder"
