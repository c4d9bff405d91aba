# SPDX-License-Identifier: Apache-2.0
"""`cubby cp`: Docker's rules, both ways, between boxes, tar streams, and what goes wrong."""

import hashlib
import io
import os
import pty
import signal
import stat
import subprocess
import tarfile
import time

import pytest
from conftest import wait_for

MIB = 1 << 20
ODD_NAMES = [b"plain", b" space ", b"new\nline", b"-rf", b"--", b"..x", b"a:b", b"\xff\x80",
             b"'\"$(id)`*", b"n" * 255, "ünï".encode(), b".hidden", b"tab\t"]


@pytest.fixture
def place(cubby, box, request):
    """An empty folder in the box."""
    folder = "/srv/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    cubby.ok("exec", box, "rm", "-rf", folder)
    cubby.ok("exec", box, "mkdir", "-p", folder)
    yield folder
    cubby.ok("exec", box, "rm", "-rf", folder)


@pytest.fixture
def tree(tmp_path):
    """A folder with what folders may hold."""
    top = tmp_path / "tree"
    (top / "sub/deeper").mkdir(parents=True)
    (top / "file").write_text("content\n")
    (top / "empty").touch()
    (top / "tool").write_text("#!/bin/sh\n")
    (top / "tool").chmod(0o751)
    (top / "sub/deeper/leaf").write_bytes(bytes(range(256)) * 300)
    (top / "link").symlink_to("file")
    (top / "broken").symlink_to("/no/such/thing")
    os.link(top / "file", top / "sub/same")
    (top / "sub").chmod(0o700)
    for name in ODD_NAMES:
        with open(os.path.join(os.fsencode(top), name), "wb") as file:
            file.write(b"odd " + name)
    os.utime(top / "file", ns=(1, 1234567890123456789))
    os.utime(top / "sub", ns=(1, 987654321000000000))
    return top


def facts(top):
    """{relative name: what it is}"""
    found = {}
    top = os.fsencode(top)
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files, b"."]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            kind = stat.S_IFMT(info.st_mode)
            content = None
            if stat.S_ISREG(info.st_mode):
                content = hashlib.sha256(open(path, "rb").read()).hexdigest()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            time_ns = info.st_mtime_ns if kind in (stat.S_IFREG, stat.S_IFDIR) else 0
            found[os.path.relpath(path, top)] = (kind, stat.S_IMODE(info.st_mode), time_ns, content)
    return found


def listing(cubby, box, folder):
    return sorted(cubby.ok("exec", box, "find", folder).splitlines())


def no_draft(cubby, box, folder):
    assert ".cubby-" not in cubby.ok("exec", box, "find", folder)


# ---- there and back

def test_a_tree_there_and_back(cubby, box, place, tree, tmp_path):
    cubby.ok("cp", tree, f"{box}:{place}")
    cubby.ok("cp", f"{box}:{place}/tree", tmp_path / "back")
    assert facts(tmp_path / "back") == facts(tree)
    assert os.path.samefile(tmp_path / "back/file", tmp_path / "back/sub/same")
    assert cubby.sh(box, f"stat -c '%u:%g' {place}/tree/file") == "0:0"
    no_draft(cubby, box, place)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 32767, MIB - 1, MIB, MIB + 1,
                                  5 * MIB + 4099])
def test_every_byte_of_a_file(cubby, box, place, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "data").write_bytes(data)
    cubby.ok("cp", tmp_path / "data", f"{box}:{place}/data")
    assert cubby.sh(box, f"sha256sum <{place}/data")[:64] == hashlib.sha256(data).hexdigest()
    cubby.ok("cp", f"{box}:{place}/data", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_holes_stay_holes(cubby, box, place, tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(4 << 30)
        file.seek(1 << 30)
        file.write(b"middle")
    cubby.ok("cp", tmp_path / "sparse", f"{box}:{place}", timeout=30)
    size, blocks = cubby.sh(box, f"stat -c '%s %b' {place}/sparse").split()
    assert int(size) == 4 << 30 and int(blocks) < 1000
    cubby.ok("cp", f"{box}:{place}/sparse", tmp_path / "back", timeout=30)
    info = os.stat(tmp_path / "back")
    assert info.st_size == 4 << 30 and info.st_blocks < 1000
    with open(tmp_path / "back", "rb") as file:
        file.seek(1 << 30)
        assert file.read(6) == b"middle"
    with open(tmp_path / "sparse.tar", "wb") as out:
        assert cubby.popen("cp", f"{box}:{place}/sparse", "-", stdout=out).wait(30) == 0
    assert os.stat(tmp_path / "sparse.tar").st_size < 100000


# ---- Docker's rules

@pytest.fixture
def laid_out(cubby, box, place, tmp_path):
    """The same at both ends: a file, a folder with something in it, a link to each."""
    (tmp_path / "src/dir").mkdir(parents=True)
    (tmp_path / "src/file").write_text("new")
    (tmp_path / "src/dir/inner").write_text("inner")
    (tmp_path / "src/filelink").symlink_to("file")
    (tmp_path / "src/dirlink").symlink_to("dir")
    there = "mkdir -p src dst/folder; cd dst; echo -n old >file; ln -s file filelink; " \
            "ln -s folder dirlink; ln -s made dangling; mkfifo fifo"
    subprocess.run(["sh", "-c", there], cwd=tmp_path, check=True)
    cubby.ok("cp", tmp_path / "src/.", f"{box}:{place}/src")
    cubby.sh(box, f"cd {place}; {there}")
    return tmp_path


# source, destination, what is then at the destination, or an error's word
RULES = [
    ("file", "new", {"new": "new"}),
    ("file", "file", {"file": "new"}),
    ("file", "folder", {"folder/file": "new"}),
    ("file", "folder/", {"folder/file": "new"}),
    ("file", "folder/other", {"folder/other": "new"}),
    ("file", "dirlink", {"folder/file": "new"}),
    ("file", "filelink", {"file": "new", "filelink": ("file",)}),
    ("file", "dangling", {"made": "new", "dangling": ("made",)}),
    ("file", "none/", "must exist"),
    ("file", "none/file", "does not exist"),
    ("file", "file/", "not a directory"),
    ("file", "fifo", "regular file"),
    ("file/", "new", "not a directory"),
    ("dir", "new", {"new/inner": "inner"}),
    ("dir", "new/", {"new/inner": "inner"}),
    ("dir/.", "new", {"new/inner": "inner"}),
    ("dir", "folder", {"folder/dir/inner": "inner"}),
    ("dir/", "folder", {"folder/dir/inner": "inner"}),
    ("dir/.", "folder", {"folder/inner": "inner"}),
    ("dir/../dir", "folder", {"folder/dir/inner": "inner"}),
    ("dir", "dirlink", {"folder/dir/inner": "inner"}),
    ("dir", "file", "onto a file"),
    ("dir/.", "filelink", "onto a file"),
    ("dir", "none/new", "does not exist"),
    ("filelink", "new", {"new": ("file",)}),
    ("filelink", "folder", {"folder/filelink": ("file",)}),
    ("dirlink", "new", {"new": ("dir",)}),
    ("dirlink/", "new", {"new/inner": "inner"}),
    ("dirlink/.", "folder", {"folder/inner": "inner"}),
    ("-L filelink", "new", {"new": "new"}),
    ("-L filelink", "folder", {"folder/filelink": "new"}),
    ("-L dirlink", "folder", {"folder/dirlink/inner": "inner"}),
    ("none", "new", "no such file"),
]


@pytest.mark.parametrize("way", ["in", "out", "between"])
@pytest.mark.parametrize("source, target, want", RULES, ids=lambda v: v if isinstance(v, str) else "")
def test_rules(cubby, box, place, laid_out, way, source, target, want):
    options = ["-L"] if source.startswith("-L ") else []
    source = source.removeprefix("-L ")
    here, there = laid_out, f"{box}:{place}"
    source = f"{there if way != 'in' else here}/src/{source}"
    end = f"{there if way != 'out' else here}/dst/{target}"
    if isinstance(want, str):
        cubby.fails("cp", *options, source, end, says=want)
        return
    cubby.ok("cp", *options, source, end)
    for name, content in want.items():
        if way == "out":
            path = here / "dst" / name
            found = (os.readlink(path),) if path.is_symlink() else path.read_text()
        elif isinstance(content, tuple):
            found = (cubby.ok("exec", box, "readlink", f"{place}/dst/{name}"),)
        else:
            found = cubby.ok("exec", box, "cat", f"{place}/dst/{name}")
        assert found == content


def test_relative_paths(cubby, box, place, tmp_path):
    """Of a box they begin at its root, as with Docker; here at the current folder."""
    (tmp_path / "a:b").write_text("colon")
    run = [str(cubby.command[-1]), "cp"]
    env = cubby.environment()
    subprocess.run([*run, "./a:b", f"{box}:{place[1:]}/x"], cwd=tmp_path, env=env, check=True)
    subprocess.run([*run, f"{box}:{place[1:]}/x", "back"], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "back").read_text() == "colon"
    subprocess.run([*run, ".", f"{box}:{place}/dot"], cwd=tmp_path, env=env, check=True)
    assert "/dot/a:b" in cubby.ok("exec", box, "find", place)


def test_a_file_that_is_a_mount_of_its_own(cubby, box, tmp_path):
    """/etc/hosts of a box cannot be replaced; it is written where it is."""
    old = cubby("exec", box, "cat", "/etc/hosts").out
    (tmp_path / "hosts").write_bytes(b"127.0.0.1 localhost new\n")
    cubby.ok("cp", tmp_path / "hosts", f"{box}:/etc/hosts")
    assert cubby.ok("exec", box, "cat", "/etc/hosts") == "127.0.0.1 localhost new"
    (tmp_path / "hosts").write_bytes(old)
    cubby.ok("cp", tmp_path / "hosts", f"{box}:/etc/hosts")
    assert cubby("exec", box, "cat", "/etc/hosts").out == old


def test_a_folder_never_takes_the_place_of_a_file(cubby, box, place, tmp_path):
    (tmp_path / "d/x").mkdir(parents=True)
    (tmp_path / "e").mkdir()
    (tmp_path / "e/x").write_text("file")
    cubby.sh(box, f"mkdir {place}/d {place}/e {place}/e/x; echo kept >{place}/d/x")
    cubby.fails("cp", tmp_path / "d", f"{box}:{place}", says="is not a folder")
    cubby.fails("cp", tmp_path / "e", f"{box}:{place}", says="is a folder")
    assert cubby.sh(box, f"cat {place}/d/x") == "kept"
    no_draft(cubby, box, place)


# ---- owners, users, modes

def test_owners(cubby, box, place, tmp_path):
    (tmp_path / "f").write_text("x")
    if os.geteuid() == 0:
        os.chown(tmp_path / "f", 1234, 2345)
    info = os.stat(tmp_path / "f")
    cubby.sh(box, f"chmod 777 {place}")
    for options, want in [([], "0:0"), (["-a"], f"{info.st_uid}:{info.st_gid}"),
                          (["--owner", "user"], "1000:1000"), (["--owner", "7:8"], "7:8"),
                          (["-u", "user"], "1000:1000")]:
        cubby.ok("cp", *options, tmp_path / "f", f"{box}:{place}/f")
        assert cubby.sh(box, f"stat -c %u:%g {place}/f; rm {place}/f") == want
    cubby.fails("cp", "--owner", "nosuch", tmp_path / "f", f"{box}:{place}/f", says="nosuch")
    cubby.fails("cp", "-u", "user", "--owner", "root", tmp_path / "f", f"{box}:{place}/g",
                says="not permitted")
    assert cubby.sh(box, f"ls -A {place}") == ""


def test_what_a_user_may_not_do(cubby, box, place, tmp_path):
    (tmp_path / "f").write_text("x")
    cubby.fails("cp", "-u", "user", tmp_path / "f", f"{box}:{place}/f", says="permission denied")
    cubby.sh(box, f"mkdir -m 700 {place}/secret; echo s >{place}/secret/s; echo t >{place}/t;"
                  f"chmod 600 {place}/t")
    for what in ("secret", "secret/s", "t"):
        cubby.fails("cp", "-u", "user", f"{box}:{place}/{what}", tmp_path / "out",
                    says="permission denied")
    assert not (tmp_path / "out").is_file()


def test_set_id_bits(cubby, box, place, tmp_path):
    """Kept into a box; a box cannot make a set-id program on the host."""
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(0o4755)
    cubby.ok("cp", tmp_path / "f", f"{box}:{place}/f")
    assert cubby.sh(box, f"stat -c %a {place}/f") == "4755"
    cubby.ok("cp", f"{box}:{place}/f", tmp_path / "back")
    assert stat.S_IMODE(os.stat(tmp_path / "back").st_mode) == 0o755


def test_archive_out(cubby, box, place, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    cubby.sh(box, f"echo x >{place}/f; chown 1234:2345 {place}/f")
    cubby.ok("cp", "-a", f"{box}:{place}/f", tmp_path / "f")
    assert (os.stat(tmp_path / "f").st_uid, os.stat(tmp_path / "f").st_gid) == (1234, 2345)
    cubby.ok("cp", f"{box}:{place}/f", tmp_path / "g")
    assert os.stat(tmp_path / "g").st_uid == os.geteuid()


# ---- what is no file

def test_devices_fifos_and_mounts(cubby, box, place, tmp_path):
    cubby.sh(box, f"mkfifo {place}/fifo; echo x >{place}/f; echo y >{place}/z")
    cubby.ok("cp", f"{box}:{place}", tmp_path / "out", timeout=20)
    assert stat.S_ISFIFO(os.stat(tmp_path / "out/fifo").st_mode)
    # a device is left out, the rest is there, and the copy says so
    (tmp_path / "dev").mkdir()
    result = cubby("cp", f"{box}:/dev/null", tmp_path / "dev", timeout=20)
    assert result.code == 125 and "device" in result.err
    assert list((tmp_path / "dev").iterdir()) == []
    # other file systems appear as empty folders: /proc is not walked
    cubby("cp", f"{box}:/", tmp_path / "root", timeout=60)
    assert (tmp_path / "root/proc").is_dir() and not list((tmp_path / "root/proc").iterdir())
    assert (tmp_path / "root/bin/busybox").is_file()


def test_proc_links_lead_nowhere(cubby, box, tmp_path):
    for path in ("/proc/self/root/etc", "/proc/1/root/etc/passwd", "/proc/self/fd/0",
                 "/proc/self/exe"):
        assert cubby("cp", "-L", f"{box}:{path}", tmp_path / "x", timeout=20).code == 125


def test_dot_dot_stays_in_the_box(cubby, box, tmp_path):
    cubby.ok("cp", f"{box}:/../../../../etc/passwd", tmp_path / "passwd")
    assert (tmp_path / "passwd").read_text() == cubby.ok("exec", box, "cat", "/etc/passwd") + "\n"


# ---- tar streams

def test_tar_in(cubby, box, place, tree):
    for mode in ("w", "w:gz", "w:xz", "w:bz2"):
        blob = io.BytesIO()
        with tarfile.open(fileobj=blob, mode=mode, format=tarfile.PAX_FORMAT) as tar:
            tar.add(tree, "x")
        cubby.ok("cp", "-", f"{box}:{place}", input=blob.getvalue())
        assert cubby.sh(box, f"cat {place}/x/file; readlink {place}/x/link; stat -c %a {place}/x/tool;"
                             f"stat -c %Y {place}/x/sub; rm -r {place}/x") \
            == "content\nfile\n751\n987654321"


def test_tar_out(cubby, box, place, tree):
    cubby.ok("cp", tree, f"{box}:{place}/x")
    result = cubby("cp", f"{box}:{place}/x", "-")
    with tarfile.open(fileobj=io.BytesIO(result.out)) as tar:
        names = tar.getnames()
        assert "x/file" in names and "x/sub/deeper/leaf" in names
        assert tar.extractfile("x/sub/deeper/leaf").read() == bytes(range(256)) * 300
        assert tar.getmember("x/tool").mode == 0o751
        assert {os.fsencode(n) for n in names} >= {b"x/" + name for name in ODD_NAMES}
    result = cubby("cp", f"{box}:{place}/x/.", "-")
    with tarfile.open(fileobj=io.BytesIO(result.out)) as tar:
        assert "./file" in tar.getnames()
    result = cubby("cp", f"{box}:{place}/x/file", "-")
    with tarfile.open(fileobj=io.BytesIO(result.out)) as tar:
        assert tar.getnames() == ["file"]


def archive(*members):
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w") as tar:
        for name, kind, more in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            data = b""
            if kind == tarfile.REGTYPE:
                data = more
                info.size = len(data)
            else:
                info.linkname = more
            tar.addfile(info, io.BytesIO(data))
    return blob.getvalue()


def test_bad_archives(cubby, box, place, tmp_path):
    good = archive(("f", tarfile.REGTYPE, b"x" * 5000))
    for data, word in [
            (archive(("../evil", tarfile.REGTYPE, b"x")), "leads out"),
            (archive(("a/../../evil", tarfile.REGTYPE, b"x")), "leads out"),
            (archive(("h", tarfile.LNKTYPE, "../../etc/passwd")), "leads out"),
            (archive(("h", tarfile.LNKTYPE, "none")), "no such file"),
            (good[:3000], "tar archive"),
            (os.urandom(4096), "tar archive"),
            (b"not an archive", "tar archive")]:
        cubby.fails("cp", "-", f"{box}:{place}", input=data, says=word)
        no_draft(cubby, box, place)
    cubby.ok("cp", "-", f"{box}:{place}", input=b"")
    cubby.ok("cp", "-", f"{box}:{place}",
             input=archive(("/abs/olute", tarfile.REGTYPE, b"x"), ("dup", tarfile.REGTYPE, b"1"),
                           ("dup", tarfile.REGTYPE, b"2")))
    assert cubby.sh(box, f"cat {place}/abs/olute {place}/dup") == "x2"
    cubby.fails("cp", "-", f"{box}:{place}/none", input=good, says="must be a folder")
    cubby.fails("cp", "-", f"{box}:{place}/dup", input=good, says="must be a folder")


# ---- ends

def test_a_full_disk_leaves_what_was_there(cubby, box, place, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(8 * MIB))
    cubby.sh(box, f"mount -t tmpfs -o size=4m none {place} || true; echo old >{place}/big")
    if cubby.sh(box, f"stat -f -c %T {place}") != "tmpfs":
        target = "/dev/shm"  # a workload may not mount: its own small file system
        (tmp_path / "big").write_bytes(os.urandom(400 * MIB))
    else:
        target = place
    cubby.sh(box, f"echo old >{target}/big")
    cubby.fails("cp", tmp_path / "big", f"{box}:{target}/big", says="no space", timeout=60)
    assert cubby.sh(box, f"cat {target}/big; ls -A {target} | grep cubby- || rm {target}/big") == "old"


@pytest.mark.parametrize("way", ["in", "out", "tar"])
def test_interrupted(cubby, box, place, tmp_path, way):
    """Ctrl-C ends a copy at once and leaves no temporary."""
    if way == "in":
        with open(tmp_path / "big", "wb") as file:
            file.write(b"x" * (600 * MIB))
        words = [tmp_path / "big", f"{box}:{place}/big"]
    elif way == "out":
        cubby.sh(box, f"dd if=/dev/zero of={place}/big bs=1M count=300 2>/dev/null")
        words = [f"{box}:{place}/big", tmp_path / "out"]
    else:
        words = ["-", f"{box}:{place}"]
    process = cubby.popen("cp", *words, stdin=subprocess.PIPE)
    time.sleep(0.7)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.wait(10) == 130
    assert time.monotonic() - start < 3
    assert not (tmp_path / "out").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".cubby-")] == []
    wait_for(lambda: cubby.sh(box, f"ls -A {place}") in ("", "big" if way == "out" else ""), 5,
             "the end of the copy in the box")


def test_a_file_that_shrinks_while_it_is_read(cubby, box, place, tmp_path):
    """The framing holds, whatever the moment."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"a" * (64 * MIB))
    (tmp_path / "d/z").write_text("last")
    process = cubby.popen("cp", tmp_path / "d", f"{box}:{place}/d")
    time.sleep(0.3)
    os.truncate(tmp_path / "d/a", 1000)
    assert process.wait(60) == 0, process.stderr.read()
    assert cubby.sh(box, f"cat {place}/d/z") == "last"
    assert set(cubby.sh(box, f"head -c 2000 {place}/d/a | tr -d a")) == set()


def test_the_box_ends_meanwhile(cubby, tmp_path):
    cubby.ok("run", "-d", "--name", "dying", "-m", "128M", "busybox", "sleep", "1000")
    with open(tmp_path / "big", "wb") as file:
        file.truncate(0)
        for _ in range(300):
            file.write(os.urandom(MIB))
    process = cubby.popen("cp", tmp_path / "big", "dying:/big")
    time.sleep(0.5)
    cubby.ok("kill", "dying")
    assert process.wait(10) == 125
    assert b"ended" in process.stderr.read()
    cubby.fails("cp", tmp_path / "big", "dying:/big", says="does not run")


def test_nobody_reads_the_archive(cubby, box):
    process = cubby.popen("cp", f"{box}:/bin", "-")
    process.stdout.close()
    assert process.wait(10) == 141
    assert process.stderr.read() == b""


def test_a_fork_in_the_middle_of_a_copy(cubby, tmp_path):
    """The parent's copy goes on; the child has nothing unfinished of it."""
    cubby.ok("run", "-d", "--name", "parent", "-m", "128M", "busybox", "sleep", "1000")
    data = archive(("first", tarfile.REGTYPE, b"1" * MIB), ("half", tarfile.REGTYPE, b"2" * MIB))
    cubby.ok("exec", "parent", "mkdir", "-p", "/srv")
    process = cubby.popen("cp", "-", "parent:/srv", stdin=subprocess.PIPE)
    process.stdin.write(data[:MIB + MIB // 2])
    process.stdin.flush()
    wait_for(lambda: cubby.sh("parent", "ls -A /srv") == "first", 10, "the first file")
    child = cubby.ok("fork", "parent")
    process.stdin.write(data[MIB + MIB // 2:])
    process.stdin.close()
    assert process.wait(30) == 0, process.stderr.read()
    assert cubby.sh("parent", "wc -c </srv/half") == str(MIB)
    wait_for(lambda: cubby.sh(child, "ls -A /srv") == "first", 10, "the end of the child's copy")
    cubby.ok("cp", "-", f"{child}:/srv", input=data)
    assert cubby.sh(child, "wc -c </srv/half") == str(MIB)


def test_a_bar_on_a_terminal(cubby, box, place):
    """And nothing elsewhere; with -q not even there."""
    data = archive(("f", tarfile.REGTYPE, b"x" * 5000))
    for options, shown in [([], True), (["-q"], False)]:
        master, slave = pty.openpty()
        process = cubby.popen("cp", *options, "-", f"{box}:{place}", stdin=subprocess.PIPE,
                              stderr=slave)
        os.close(slave)
        process.stdin.write(data[:4096])
        process.stdin.flush()
        time.sleep(1.2)
        process.stdin.write(data[4096:])
        process.stdin.close()
        assert process.wait(20) == 0
        try:
            text = os.read(master, 65536)
        except OSError:
            text = b""
        os.close(master)
        assert (b"copied" in text) == shown, text
        assert not shown or text.endswith(b"\r\x1b[K"), text
    assert cubby("cp", "-", f"{box}:{place}", input=data).err == ""


def test_between_boxes(cubby, box, place, tree, tmp_path):
    cubby.ok("run", "-d", "--name", "other", "-m", "128M", "busybox", "sleep", "1000")
    cubby.ok("cp", tree, f"{box}:{place}")
    cubby.ok("cp", f"{box}:{place}/tree", "other:/root")
    cubby.ok("cp", "other:/root/tree", tmp_path / "back")
    assert facts(tmp_path / "back") == facts(tree)


def test_usage(cubby, box, tmp_path):
    for words in (["a", "b"], ["-", "-"], ["x", f"{box}:"], [f"{box}:", "x"], ["x"], [],
                  ["x", f"{box}:/y", "z"], ["-a", "--owner", "x", "y", f"{box}:/z"],
                  ["--owner", "x", f"{box}:/y", "z"], ["-L", "-", f"{box}:/z"],
                  ["-a", f"{box}:/etc", "-"]):
        assert cubby("cp", *words, input=b"").code == 2, words
    cubby.fails("cp", "x", "nosuchbox:/y", says="nosuchbox")


def test_an_image_of_one_static_binary(cubby, tmp_path, tree):
    """Nothing of the image helps: no shell, no tar, not even /etc/passwd."""
    import json
    busybox = tmp_path / "busybox"
    cubby.ok("run", "-d", "--name", "bb", "-m", "128M", "busybox", "sleep", "1000")
    cubby.ok("cp", "-L", "bb:/bin/busybox", busybox)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(busybox, "busybox")
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/busybox", "sleep", "1000"]},
              "rootfs": {"type": "layers",
                         "diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()]}}
    image = tmp_path / "image.tar"
    manifest = [{"Config": "config.json", "RepoTags": ["lone:1"], "Layers": ["layer.tar"]}]
    with tarfile.open(image, "w") as tar:
        for name, data in [("config.json", json.dumps(config).encode()),
                           ("layer.tar", layer.getvalue()),
                           ("manifest.json", json.dumps(manifest).encode())]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    cubby.ok("image", "import", image, "--name", "lone")
    cubby.ok("run", "-d", "--name", "lonebox", "-m", "128M", "lone")
    cubby.ok("cp", tree, "lonebox:/tree")
    cubby.ok("cp", "lonebox:/tree", tmp_path / "back")
    assert facts(tmp_path / "back") == facts(tree)
    cubby.ok("rm", "-f", "lonebox", "bb")
    cubby.ok("image", "rm", "lone")
