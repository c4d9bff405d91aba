#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares an imported image with a reference unpacking by umoci.

Builds an OCI layout whose layers hold everything that is easy to get wrong, imports
it, and compares every entry: mode, owner, device number, link count, extended
attributes, mtime, content. The disk is read through a read-only mount and through
`fsck.erofs --extract`. `snapshot` and `differences` serve other tests too.

    image_compare.py IMPORT_IMAGE    the test; exit 77: skipped, with the reason
    image_compare.py --snapshot DIR  prints what is in DIR as JSON
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

SKIP = 77
ALL_FIELDS = ("mode", "uid", "gid", "rdev", "nlink", "xattrs", "mtime_ns", "size", "content")
# fsck.erofs 1.5 copies hard links and leaves extended attributes out.
EXTRACT_FIELDS = ("mode", "uid", "gid", "mtime_ns", "size", "content")


def describe(path):
    """All that a test compares of one entry."""
    info = os.lstat(path)
    kind = stat.S_IFMT(info.st_mode)
    facts = {
        "mode": info.st_mode,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "rdev": info.st_rdev if kind in (stat.S_IFCHR, stat.S_IFBLK) else 0,
        "nlink": info.st_nlink,
        "mtime_ns": info.st_mtime_ns,
        "size": info.st_size if kind in (stat.S_IFREG, stat.S_IFLNK) else 0,
        "content": "",
        "xattrs": {},
    }
    for name in os.listxattr(path, follow_symlinks=False):
        facts["xattrs"][name] = os.getxattr(path, name, follow_symlinks=False).hex()
    if kind == stat.S_IFLNK:
        facts["content"] = os.fsencode(os.readlink(path)).hex()
    elif kind == stat.S_IFREG:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            for part in iter(lambda: file.read(1 << 20), b""):
                digest.update(part)
        facts["content"] = digest.hexdigest()
    return facts


def snapshot(root):
    """Every entry beneath root by its path (hex, as names need not be UTF-8)."""
    root = os.fsencode(root)
    entries = {"": describe(root)}
    device = os.lstat(root).st_dev
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            entries[os.path.relpath(path, root).hex()] = describe(path)
        folders[:] = [f for f in folders if os.lstat(os.path.join(folder, f)).st_dev == device]
    return entries


def differences(expected, actual, fields=ALL_FIELDS, ignore=()):
    """Sentences, one per difference. `ignore` holds (path, field) that may differ."""
    found = []
    for path in sorted(set(expected) | set(actual)):
        shown = repr(bytes.fromhex(path))
        if path not in actual:
            found.append(f"{shown} is missing")
        elif path not in expected:
            found.append(f"{shown} should not be there")
        else:
            for field in fields:
                if (bytes.fromhex(path), field) in ignore:
                    continue
                if expected[path][field] != actual[path][field]:
                    found.append(
                        f"{shown}: {field} is {actual[path][field]!r}, "
                        f"not {expected[path][field]!r}"
                    )
    return found


class Layer:
    """A layer's tar under construction."""

    def __init__(self, format=tarfile.PAX_FORMAT):
        self.stream = io.BytesIO()
        self.tar = tarfile.open(
            fileobj=self.stream, mode="w", format=format, encoding="utf-8", errors="surrogateescape"
        )

    def add(self, name, kind=tarfile.REGTYPE, data=b"", mode=0o644, mtime=1000000000, xattrs=None,
            **fields):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime, info.size = kind, mode, mtime, len(data)
        for key, value in fields.items():
            setattr(info, key, value)
        for key, value in (xattrs or {}).items():
            text = value.decode("utf-8", "surrogateescape")
            info.pax_headers["SCHILY.xattr." + key] = text
        self.tar.addfile(info, io.BytesIO(data))
        return self

    def folder(self, name, mode=0o755, **fields):
        return self.add(name, tarfile.DIRTYPE, mode=mode, **fields)

    def link(self, name, target, **fields):
        return self.add(name, tarfile.LNKTYPE, linkname=target, **fields)

    def symlink(self, name, target, **fields):
        return self.add(name, tarfile.SYMTYPE, linkname=target, mode=0o777, **fields)

    def bytes(self):
        self.tar.close()
        return self.stream.getvalue()


def sparse_layer(scratch):
    """A sparse file as only GNU tar writes it, in a layer of its own."""
    folder = os.path.join(scratch, "sparse")
    os.mkdir(folder)
    path = os.path.join(folder, "sparse.bin")
    with open(path, "wb") as file:
        file.write(b"head")
        file.seek(3 << 20)
        file.write(b"middle")
        file.truncate(9 << 20)
    os.utime(path, ns=(10**18, 10**18 + 123456789))
    command = ["tar", "-C", folder, "--format=posix", "--sparse", "--owner=0", "--group=0",
               "--pax-option=delete=atime,delete=ctime", "-cf", "-", "sparse.bin"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


# struct posix_acl_xattr: version 2, then tag, permissions and id of user::, user:1000:, group::,
# mask:: and other::
ACL = bytes.fromhex(
    "02000000" "01000600ffffffff" "02000700e8030000" "04000400ffffffff" "10000700ffffffff"
    "20000400ffffffff"
)
# VFS_CAP_REVISION_2 with CAP_NET_BIND_SERVICE
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")


def layers(scratch):
    base = Layer()
    base.folder("./", mtime=1111111111.5)
    base.folder("etc").add("etc/passwd", data=b"root:x:0:0::/:/bin/sh\n", mtime=1234567890.123456789)
    base.folder("bin", mode=0o755).add("bin/su", data=b"\x7fELF" * 3000, mode=0o4755)
    base.add("bin/wall", data=b"w", mode=0o2755, gid=5).folder("tmp", mode=0o1777)
    base.add("bin/ping", data=b"ping", mode=0o755, xattrs={"security.capability": CAPABILITY})
    base.add("etc/acl", data=b"acl", mode=0o674, xattrs={"system.posix_acl_access": ACL})
    base.folder("etc/acl.d", xattrs={"system.posix_acl_default": ACL, "user.note": b"on a folder"})
    base.add("etc/attrs", data=b"a", xattrs={
        "user.text": b"value", "user.binary": bytes(range(256)) * 3,
        "trusted.hidden": b"secret", "user." + "n" * 200: b"long name"})
    base.folder("dev").add("dev/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3)
    base.add("dev/sda300", tarfile.BLKTYPE, mode=0o660, gid=6, devmajor=259, devminor=70000)
    base.add("dev/pipe", tarfile.FIFOTYPE, mode=0o600)
    base.add("owned", data=b"owned", uid=100000, gid=4000000000)
    base.add("empty").add("old", data=b"1970", mtime=0).add("ancient", data=b"x", mtime=-86400)
    base.add("future", data=b"x", mtime=253402300800)
    base.symlink("lib", "usr/lib").folder("usr").folder("usr/lib").add("lib/through", data=b"t")
    base.symlink("absolute", "/usr").add("absolute/share/made", data=b"m")
    base.symlink("dangling", "no/where").symlink("long-link", "x/" * 1500 + "end")
    base.symlink("usr/up", "../../../../etc").add("usr/up/contained", data=b"still inside")
    base.add("hard/one", data=b"hard" * 5000).link("hard/two", "hard/one")
    base.link("hard/soft", "dangling")
    base.folder("gone").add("gone/file", data=b"x").folder("gone/sub").add("gone/sub/deep", data=b"y")
    base.folder("opaque", mode=0o750).add("opaque/lower", data=b"low").folder("opaque/dir")
    base.folder("replaced").add("replaced/inside", data=b"r").add("becomes-folder", data=b"file")
    base.folder("merged", mode=0o700).add("merged/kept", data=b"k").add("merged/changed", data=b"1")
    base.add("a" * 100 + "/" + "b" * 255, data=b"long name").add("name with spaces\nand newline")
    base.add("-leading-dash").add(".hidden").add("caf\u00e9").add("bad\udcff\udcfename", data=b"b")
    base.add("!sorts-before-dot").add("...").add("..a").add("\u65e5\u672c")
    base.add("block", data=b"B" * 4096).add("block+1", data=b"B" * 4097).add("big", data=os.urandom(3 << 20))
    base.folder("many")
    for number in range(5000):
        base.add(f"many/file-with-a-name-{number:05}", data=str(number).encode(), mtime=number)
    deep = "/".join(["d"] * 100)
    base.add(deep + "/bottom", data=b"deep")

    upper = Layer()
    upper.add(".wh.gone").add("opaque/upper", data=b"up").add("opaque/.wh..wh..opq")
    upper.add("replaced", data=b"now a file").folder("becomes-folder").add("becomes-folder/x")
    upper.folder("merged", mode=0o711, mtime=5).add("merged/changed", data=b"22")
    upper.link("hard/three", "hard/one").add("hard/two", data=b"no longer a link")
    upper.add("lib/.wh.through").add("etc/.wh.absent").add("lib/new", data=b"n")
    upper.folder("old-dir").add("old-dir/.wh.nothing").add("many/.wh.file-with-a-name-00007")
    upper.link("many/linked", "many/file-with-a-name-00008")

    top = Layer(tarfile.GNU_FORMAT)
    top.folder("gone").add("gone/again", data=b"back").link("hard/four", "hard/three")
    top.add("gnu-" + "g" * 180, data=b"GNU long name").add("hard/.wh.one")
    top.add("same-layer", data=b"stays").add(".wh.same-layer").folder("fresh").add("fresh/.wh.x")
    return [base.bytes(), upper.bytes(), sparse_layer(scratch), top.bytes()]


def write_layout(folder, tars, tag="test"):
    """An OCI layout: the first layer plain, the others with gzip."""
    blobs = os.path.join(folder, "blobs", "sha256")
    os.makedirs(blobs)

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as file:
            file.write(data)
        return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(data)}

    layer_type = "application/vnd.oci.image.layer.v1.tar"
    descriptors, diff_ids = [], []
    for number, data in enumerate(tars):
        diff_ids.append("sha256:" + hashlib.sha256(data).hexdigest())
        if number == 0:
            descriptors.append(blob(data, layer_type))
        else:
            descriptors.append(blob(gzip.compress(data, 6, mtime=0), layer_type + "+gzip"))
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["A=b"]},
              "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    config_type = "application/vnd.oci.image.config.v1+json"
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": manifest_type,
                "config": blob(json.dumps(config).encode(), config_type), "layers": descriptors}
    entry = blob(json.dumps(manifest).encode(), manifest_type)
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, file)
    with open(os.path.join(folder, "oci-layout"), "w", encoding="utf-8") as file:
        json.dump({"imageLayoutVersion": "1.0.0"}, file)


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}")
    return result.stdout


def snapshot_mounted(disk, folder):
    """What a mount of the disk shows; None and the reason where loop mounts do not work."""
    os.mkdir(folder)
    result = subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", disk, folder],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        return None, result.stdout.strip()
    try:
        return snapshot(folder), ""
    finally:
        run("umount", folder)


def check(import_image, scratch):
    layout = os.path.join(scratch, "layout")
    bundle = os.path.join(scratch, "bundle")
    extracted = os.path.join(scratch, "extracted")
    write_layout(layout, layers(scratch))
    run("umoci", "unpack", "--image", layout + ":test", bundle)
    expected = snapshot(os.path.join(bundle, "rootfs"))
    disk = run(import_image, os.path.join(scratch, "home"), layout).split()[1]
    run("fsck.erofs", "--extract=" + extracted, "--preserve", disk)

    # Folders that no entry names get the time of the reference's unpacking, and those above them.
    implied = ("", "usr", "hard", "a" * 100, "usr/share")
    implied += tuple("/".join(["d"] * depth) for depth in range(1, 101))
    ignore = {(os.fsencode(path), "mtime_ns") for path in implied + ("future",)}
    # fsck.erofs sets the owner after the mode, which takes the set-id bits away.
    unset = {(os.fsencode(path), "mode") for path in ("bin/su", "bin/wall")}
    actual = snapshot(extracted)
    found = [f"extracted: {text}" for text in
             differences(expected, actual, EXTRACT_FIELDS, ignore | unset)]
    mounted, reason = snapshot_mounted(disk, os.path.join(scratch, "mounted"))
    if mounted is None:
        print(f"SKIP of the mounted comparison: {reason}")
    else:
        found += [f"mounted: {text}" for text in differences(expected, mounted, ALL_FIELDS, ignore)]
        # Ext4 cannot hold this time in the reference, and the root's is known from its entry.
        for path, seconds in (("future", 253402300800), ("", 1111111111.5)):
            if mounted[os.fsencode(path).hex()]["mtime_ns"] != int(seconds * 10**9):
                found.append(f"mounted: the mtime of '{path}' is not {seconds}")
    print(f"{len(expected)} entries compared, {len(found)} differences")
    for text in found[:50]:
        print(text)
    return 1 if found or len(expected) < 5000 else 0


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--snapshot":
        json.dump(snapshot(arguments[1]), sys.stdout)
        return 0
    if len(arguments) != 1:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        print("SKIP: unpacking device nodes and owners needs root")
        return SKIP
    for tool in ("umoci", "fsck.erofs", "tar"):
        if shutil.which(tool) is None:
            print(f"SKIP: {tool} is not installed")
            return SKIP
    scratch = tempfile.mkdtemp(prefix="cubby-image-")
    try:
        return check(arguments[0], scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
