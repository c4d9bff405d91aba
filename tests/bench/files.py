# SPDX-License-Identifier: Apache-2.0
"""File calls through the library, beside the shell way of sandboxes without them: `sh -lc`
with base64 in pieces of 60,000 characters, and `find`. Usage: files.py [RUNS]"""

import base64
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
PIECE = 60000
MIB = 1 << 20
ENTRIES = 500


class FileOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("user", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_int64)]


class ListOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", FileOptions), ("depth", ctypes.c_int32),
                ("max_entries", ctypes.c_uint32), ("all_types", ctypes.c_bool)]


class WriteOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", FileOptions), ("append", ctypes.c_bool),
                ("no_parents", ctypes.c_bool), ("exclusive", ctypes.c_bool),
                ("no_sync", ctypes.c_bool), ("mode", ctypes.c_int32), ("owner", ctypes.c_char_p)]


class FileList(ctypes.Structure):
    _fields_ = [("files", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("truncated", ctypes.c_bool)]


class OpenOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("home", ctypes.c_char_p), ("log", ctypes.c_void_p),
                ("log_data", ctypes.c_void_p), ("progress", ctypes.c_void_p),
                ("progress_data", ctypes.c_void_p)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("sys_errno", ctypes.c_int),
                ("message", ctypes.c_char * 3072)]


class Box:
    def __init__(self, home, name):
        self.library = ctypes.CDLL(str(sorted(BUILD.glob("libcubby.so*"))[0]))
        self.error = Error()
        self.home, self.box = ctypes.c_void_p(), ctypes.c_void_p()
        self.info = ctypes.create_string_buffer(512)
        self.check(self.library.cubby_open(
            ctypes.byref(OpenOptions(ctypes.sizeof(OpenOptions), str(home).encode())),
            ctypes.byref(self.home), ctypes.byref(self.error)))
        self.check(self.library.cubby_box_open(self.home, name.encode(), ctypes.byref(self.box),
                                               ctypes.byref(self.error)))

    def check(self, code):
        if code < 0:
            sys.exit(f"bench: {self.error.message.decode()}")

    def stat(self, path):
        self.check(self.library.cubby_file_stat(self.box, path.encode(), False, None, self.info,
                                                ctypes.byref(self.error)))
        self.library.cubby_file_info_clear(self.info)

    def read(self, path, want):
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.library.cubby_file_read(
            self.box, path.encode(), ctypes.c_uint64(0), ctypes.c_uint64(0), None,
            ctypes.byref(data), ctypes.byref(size), ctypes.byref(self.error)))
        same = size.value == len(want) and ctypes.string_at(data, min(size.value, 64)) == want[:64]
        self.library.cubby_free(data)
        assert same

    def write(self, path, data, **more):
        options = WriteOptions(ctypes.sizeof(WriteOptions), **more)
        self.check(self.library.cubby_file_write(
            self.box, path.encode(), data, ctypes.c_size_t(len(data)), ctypes.byref(options),
            ctypes.byref(self.error)))

    def list(self, path, want):
        found = ctypes.POINTER(FileList)()
        options = ListOptions(ctypes.sizeof(ListOptions), depth=1, max_entries=1000)
        self.check(self.library.cubby_file_list_folder(
            self.box, path.encode(), ctypes.byref(options), ctypes.byref(found),
            ctypes.byref(self.error)))
        assert found.contents.count == want
        self.library.cubby_file_list_free(found)


def show(name, function, runs, size=0):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1000)
    times.sort()
    middle = statistics.median(times)
    rate = f"  {size / MIB / middle * 1000:6.0f} MiB/s" if size else ""
    print(f"{name:46} p50 {middle:9.2f}  p95 {times[int(len(times) * 0.95)]:9.2f} ms{rate}",
          flush=True)
    return middle


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    work = Path(tempfile.mkdtemp(prefix="cubby-bench-"))
    env = {**os.environ, "CUBBY_HOME": str(work / "home")}

    def cubby(*args, **more):
        return subprocess.run([BUILD / "cubby", *map(str, args)], env=env, check=True,
                              stdout=subprocess.PIPE, **more).stdout

    def shell(script):
        return cubby("exec", "box", "sh", "-lc", script)

    def shell_write(path, data):
        text = base64.b64encode(data).decode()
        shell(f": >{path}")
        for at in range(0, len(text), PIECE):
            shell(f"echo '{text[at:at + PIECE]}' | base64 -d >>{path}")

    def shell_read(path, want):
        step = PIECE // 4 * 3
        got = b"".join(base64.b64decode(shell(
            f"dd if={path} bs={step} skip={at} count=1 2>/dev/null | base64"))
            for at in range((len(want) + step - 1) // step))
        assert got == want

    try:
        cubby("kernel", "ensure")
        subprocess.run([ROOT / "scripts/make-busybox-image", work / "busybox.tar"], check=True)
        cubby("image", "import", work / "busybox.tar", "--name", "busybox")
        cubby("run", "-d", "--name", "box", "busybox", "sleep", "100000")
        box = Box(work / "home", "box")
        small, middle, large = os.urandom(4096), os.urandom(MIB), os.urandom(64 * MIB)
        box.write("/b/small", small)
        for n in range(ENTRIES - 1):
            box.write(f"/b/many/entry-{n:03}", b"x", no_sync=True)
        for _ in range(20):  # warm
            box.stat("/b/small")
            box.read("/b/small", small)
        show("stat", lambda: box.stat("/b/small"), runs)
        show("read 4 KiB", lambda: box.read("/b/small", small), runs)
        show("write 4 KiB, synced", lambda: box.write("/b/small", small), runs)
        show("write 4 KiB, not synced", lambda: box.write("/b/small", small, no_sync=True), runs)
        show(f"list of {ENTRIES} entries", lambda: box.list("/b/many", ENTRIES), runs)
        show(f"  the shell way (find), {ENTRIES} entries", lambda: shell("find /b/many"), 5)
        ours = show("write 1 MiB, synced", lambda: box.write("/b/m", middle), runs // 4, MIB)
        theirs = show("  the shell way", lambda: shell_write("/b/s", middle), 2, MIB)
        print(f"  the shell takes {theirs / ours:.0f} times as long")
        ours = show("read 1 MiB", lambda: box.read("/b/m", middle), runs // 4, MIB)
        theirs = show("  the shell way", lambda: shell_read("/b/s", middle), 2, MIB)
        print(f"  the shell takes {theirs / ours:.0f} times as long")
        show("write 64 MiB, synced", lambda: box.write("/b/l", large), 5, 64 * MIB)
        show("read 64 MiB", lambda: box.read("/b/l", large), 5, 64 * MIB)
    finally:
        subprocess.run([BUILD / "cubby", "rm", "-f", "-a"], env=env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
