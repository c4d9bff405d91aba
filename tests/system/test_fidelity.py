# SPDX-License-Identifier: Apache-2.0
"""Every entry of an image as the guest sees it, against umoci's unpacking of the same image."""

import io
import json
import os
import shutil
import subprocess
import tarfile

import pytest
from conftest import IMAGES

# Runs in the box and on the host: one JSON list for each entry below a root.
WALKER = r"""
import json, os, stat, sys, zlib
root = os.fsencode(sys.argv[1]).rstrip(b"/")
mounts = {b"/proc", b"/sys", b"/dev", b"/run/cubby", b"/etc/hosts", b"/etc/hostname",
          b"/etc/resolv.conf", b"/etc/machine-id"}
own = {b"", b"/run", b"/etc"}      # folders in which the box itself puts something

def show(name):
    return name.decode("latin-1")

def look(path, shown):
    info = os.lstat(path)
    folder, link = stat.S_ISDIR(info.st_mode), stat.S_ISLNK(info.st_mode)
    content = ""
    if stat.S_ISREG(info.st_mode):
        content = 0  # nobody forges here, and a digest of 200 MB takes an emulated machine long
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                content = zlib.crc32(piece, content)
    elif link:
        content = show(os.readlink(path))
    extended = {} if link else {
        name: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path))
        if not name.startswith(("trusted.", "security.selinux"))}
    device = info.st_rdev if stat.S_ISBLK(info.st_mode) or stat.S_ISCHR(info.st_mode) else 0
    print(json.dumps([show(shown), oct(info.st_mode), info.st_uid, info.st_gid,
                      [os.major(device), os.minor(device)], 0 if folder else info.st_nlink,
                      0 if folder else info.st_size, 0 if shown in own else info.st_mtime_ns,
                      extended, content]))
    if folder:
        for name in sorted(os.listdir(path)):
            below = shown + b"/" + name
            if below not in mounts:
                look(path + b"/" + name, below)

look(root or b"/", b"")
"""

VFS_CAP_NET_RAW = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"


class Layer:
    def __init__(self):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name, data=None, kind=tarfile.REGTYPE, mode=0o644, uid=0, gid=0, link="",
            device=(0, 0), mtime="1600000000.0", extended=None):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = kind, mode, uid, gid
        info.linkname, (info.devmajor, info.devminor) = link, device
        info.size = len(data or b"")
        info.pax_headers = {"mtime": mtime}
        for key, value in (extended or {}).items():
            info.pax_headers[f"SCHILY.xattr.{key}"] = value
        self.tar.addfile(info, io.BytesIO(data) if data else None)

    def folder(self, name, mode=0o755, **more):
        self.add(name, kind=tarfile.DIRTYPE, mode=mode, **more)

    def finish(self):
        self.tar.close()
        return self.bytes.getvalue()


def lower_layer():
    layer = Layer()
    layer.folder("n")
    layer.folder("n/opaque")
    layer.add("n/opaque/below", b"hidden later")
    layer.folder("n/opaque/folder")
    layer.add("n/opaque/folder/deep", b"hidden too")
    layer.add("n/removed", b"removed later")
    layer.folder("n/removed-folder")
    layer.add("n/removed-folder/file", b"removed with it")
    layer.add("n/to-folder", b"a file that becomes a folder")
    layer.folder("n/to-file")
    layer.add("n/to-file/inside", b"goes away")
    layer.add("n/linked", b"three names", mode=0o600)
    layer.add("n/linked-too", kind=tarfile.LNKTYPE, link="n/linked")
    layer.add("n/replaced", b"old" * 5000)
    layer.folder("n/link-target")
    layer.add("n/folder-link", kind=tarfile.SYMTYPE, link="link-target")
    return layer.finish()


def upper_layer():
    layer = Layer()
    layer.add("n/opaque/.wh..wh..opq")
    layer.add("n/opaque/above", b"stays")
    layer.add("n/.wh.removed")
    layer.add("n/.wh.removed-folder")
    layer.folder("n/to-folder")
    layer.add("n/to-folder/inside", b"x")
    layer.add("n/to-file", b"a file now")
    layer.add("n/linked-across", kind=tarfile.LNKTYPE, link="n/linked")
    layer.add("n/replaced", b"new")
    layer.add("n/setuid", b"#!/bin/sh\n", mode=0o4755)
    layer.add("n/setgid", b"", mode=0o2750, gid=42)
    layer.folder("n/sticky", mode=0o1777)
    layer.add("n/unreadable", b"secret", mode=0o000, uid=1000, gid=1000)
    layer.add("n/big-ids", b"x", uid=4_000_000_000, gid=3_999_999_999)
    layer.add("n/char", kind=tarfile.CHRTYPE, device=(1, 3), mode=0o666)
    layer.add("n/big-minor", kind=tarfile.CHRTYPE, device=(259, 70_000), mode=0o600)
    layer.add("n/block", kind=tarfile.BLKTYPE, device=(7, 3), mode=0o660, gid=6)
    layer.add("n/fifo", kind=tarfile.FIFOTYPE, mode=0o640)
    layer.add("n/nanoseconds", b"x", mtime="1234567890.123456789")
    layer.add("n/after-2106", b"x", mtime="4500000000.5")
    layer.add("n/extended", b"x", extended={"user.note": "some text",
                                            "user.long": "v" * 3000})
    layer.folder("n/extended-folder", extended={"user.of-folder": "yes"})
    layer.add("n/capable", b"x", mode=0o755, extended={"security.capability": VFS_CAP_NET_RAW})
    layer.add("n/empty")
    layer.add("n/block-size", b"b" * 4096)
    layer.add("n/block-and-one", b"b" * 4097)
    layer.add("n/zeros", bytes(3 << 20))
    layer.add("n/holes", b"a" + bytes(1 << 20) + b"b")
    layer.add("n/big", os.urandom(5 << 20))
    layer.folder("n/names")
    for name in (" ", "a\nb", "-rf", "*", "\\", "\x01\x7f", "ünïcode", "l" * 255, ".hidden",
                 "wh.not", "\udcff\udcfe-not-utf8"):
        layer.add(f"n/names/{name}", b"x")
    for depth in range(1, 21):
        layer.folder("n/" + "/".join(["d" * 100] * depth))
    layer.add("n/symlink", kind=tarfile.SYMTYPE, link="/absolute/nowhere", mode=0o777)
    layer.add("n/long-symlink", kind=tarfile.SYMTYPE, link="t" * 3000, mode=0o777)
    layer.folder("n/many")
    for n in range(3000):
        layer.add(f"n/many/entry-{n:05}", b"%d" % n)
    layer.folder("n/empty-folder", mode=0o700, uid=7, gid=8)
    return layer.finish()


def umoci(*arguments):
    done = subprocess.run(["umoci", *map(str, arguments)], check=False, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    """The python image with two hard layers on it, as an OCI layout."""
    if os.geteuid() != 0:
        pytest.skip("a reference with owners and devices can only be unpacked by root")
    if not (IMAGES / ".complete").exists():
        pytest.skip(f"no test image in {IMAGES}; run scripts/make-test-image {IMAGES}")
    work = tmp_path_factory.mktemp("nasty")
    shutil.copytree(IMAGES / "python-oci", work / "oci")
    for name, data in (("lower", lower_layer()), ("upper", upper_layer())):
        (work / name).write_bytes(data)
        umoci("raw", "add-layer", "--image", f"{work}/oci:python", work / name)
    umoci("gc", "--layout", work / "oci")
    yield work
    shutil.rmtree(work)


def parse(lines):
    fields = ("mode", "uid", "gid", "device", "links", "size", "mtime", "xattrs", "content")
    return {entry[0]: dict(zip(fields, entry[1:])) for entry in map(json.loads, lines.splitlines())}


def test_every_entry(cubby, nasty):
    umoci("unpack", "--image", f"{nasty}/oci:python", nasty / "bundle")
    done = subprocess.run(["/usr/bin/python3", "-", nasty / "bundle/rootfs"], check=True,
                          input=WALKER.encode(), stdout=subprocess.PIPE)
    want = parse(done.stdout.decode())
    cubby.ok("image", "import", nasty / "oci", "--name", "nasty", timeout=120)
    cubby.ok("run", "-d", "--name", "nasty", "nasty", "sleep", "1000")
    got = parse(cubby.ok("exec", "-i", "-u", "root", "-w", "/", "nasty", "python3", "-", "/",
                         input=WALKER.encode(), timeout=300))
    assert len(want) > 6000
    # What the box puts there itself, where the image has nothing.
    extra = {path for path in got.keys() - want.keys()
             if path not in ("/proc", "/sys", "/dev", "/run", "/run/cubby")}
    assert extra == set()
    assert want.keys() - got.keys() == set()
    different = {path: {field: (want[path][field], got[path][field]) for field in want[path]
                        if want[path][field] != got[path][field]} for path in want}
    different = {path: fields for path, fields in different.items() if fields}
    assert different == {}, f"{len(different)} entries: {list(different.items())[:20]}"
    cubby.ok("rm", "-f", "nasty")
    cubby.ok("image", "rm", "nasty")
