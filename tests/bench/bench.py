# SPDX-License-Identifier: Apache-2.0
"""Measurements. Each figure stands beside its yardstick from the same run; none of them
is a verdict. Usage: bench.py [--out FILE.json] [--runs N] [--image TAR]"""

import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Report:
    def __init__(self):
        self.rows = []

    def add(self, name, values, unit, note=""):
        row = {"name": name, "unit": unit, "n": len(values), "p50": statistics.median(values),
               "p99": percentile(values, 0.99), "min": min(values), "max": max(values),
               "note": note}
        self.rows.append(row)
        print(f"{name:46} p50 {row['p50']:9.2f}  p99 {row['p99']:9.2f}  min {row['min']:9.2f}"
              f"  {unit:4} n={row['n']} {note}", flush=True)


def timed(function):
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1000


class Library:
    """The few calls of libcubby that are measured, without a process for each."""

    class Error(ctypes.Structure):
        _fields_ = [("code", ctypes.c_int), ("sys_errno", ctypes.c_int),
                    ("message", ctypes.c_char * 3072)]

    class OpenOptions(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("home", ctypes.c_char_p),
                    ("log", ctypes.c_void_p), ("log_data", ctypes.c_void_p),
                    ("progress", ctypes.c_void_p), ("progress_data", ctypes.c_void_p)]

    class ExecOptions(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("argv", ctypes.POINTER(ctypes.c_char_p)),
                    ("env", ctypes.c_void_p), ("workdir", ctypes.c_char_p),
                    ("user", ctypes.c_char_p), ("tty", ctypes.c_bool),
                    ("rows", ctypes.c_uint16), ("columns", ctypes.c_uint16),
                    ("open_stdin", ctypes.c_bool), ("detach", ctypes.c_bool),
                    ("timeout_ms", ctypes.c_int64)]

    def __init__(self, home, box):
        found = sorted(BUILD.rglob("libcubby.so*"))
        self.library = ctypes.CDLL(str(found[0]))
        self.error = self.Error()
        self.home, self.box = ctypes.c_void_p(), ctypes.c_void_p()
        options = self.OpenOptions(ctypes.sizeof(self.OpenOptions), str(home).encode())
        self.check(self.library.cubby_open(ctypes.byref(options), ctypes.byref(self.home),
                                           ctypes.byref(self.error)))
        self.check(self.library.cubby_box_open(self.home, box.encode(), ctypes.byref(self.box),
                                               ctypes.byref(self.error)))
        # cubby_result, whose layout is of no interest here: cleared by the library
        self.result = ctypes.create_string_buffer(512)

    def check(self, code):
        if code < 0:
            sys.exit(f"bench: {self.error.message.decode()}")

    def ping(self):
        self.check(self.library.cubby_box_ping(self.box, ctypes.c_int64(10000),
                                               ctypes.byref(self.error)))

    def run(self, *argv):
        words = (ctypes.c_char_p * (len(argv) + 1))(*[word.encode() for word in argv], None)
        options = self.ExecOptions(ctypes.sizeof(self.ExecOptions), words)
        self.check(self.library.cubby_exec_run(self.box, ctypes.byref(options), None,
                                               ctypes.c_size_t(0), self.result,
                                               ctypes.byref(self.error)))
        self.library.cubby_result_clear(self.result)


TRUE = b"""
.globl _start
_start: mov $60, %eax
xor %edi, %edi
syscall
"""


def tiny_true(folder):
    """A static `true` without a libc."""
    program = folder / "true"
    subprocess.run(["cc", "-nostdlib", "-static", "-x", "assembler", "-", "-o", program],
                   input=TRUE, check=True)
    return program.read_bytes()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--boots", type=int, default=5)
    parser.add_argument("--image", help="a plain tar to import (default: the tests' Debian)")
    options = parser.parse_args()
    report = Report()
    work = Path(tempfile.mkdtemp(prefix="cubby-bench-"))
    home = work / "home"
    env = {**os.environ, "CUBBY_HOME": str(home)}

    def cubby(*args, **more):
        return subprocess.run([BUILD / "cubby", *map(str, args)], env=env, check=True,
                              stdout=subprocess.PIPE, **more).stdout

    try:
        cubby("kernel", "ensure")
        subprocess.run([ROOT / "scripts/make-busybox-image", work / "busybox.tar"], check=True)
        report.add("import of BusyBox", [timed(lambda: cubby(
            "image", "import", work / "busybox.tar", "--name", "busybox"))], "ms")
        image = options.image or BUILD / "test-images/python.tar"
        if Path(image).exists():
            size = Path(image).stat().st_size >> 20
            report.add(f"import of a tree of {size} MiB", [timed(lambda: cubby(
                "image", "import", image, "--name", "tree"))], "ms", "yardstick: 6000")
            copy = timed(lambda: shutil.copyfile(image, work / "copy"))
            report.add("copying the same file", [copy], "ms")

        boots = []
        for n in range(options.boots):
            boots.append(timed(lambda n=n: cubby("run", "-d", "--no-template", "--name", f"b{n}",
                                                 "busybox", "sleep", "100000")))
            cubby("rm", "-f", f"b{n}")
        report.add("run -d: boot to the command's start", boots, "ms")

        cubby("template", "build", "busybox")
        clones = []
        for n in range(options.boots * 4):
            clones.append(timed(lambda n=n: cubby("run", "-d", "--name", f"c{n}", "busybox",
                                                  "sleep", "100000")))
            cubby("rm", "-f", f"c{n}")
        report.add("run -d: clone to the command's start", clones, "ms",
                   f"a boot takes {statistics.median(boots) / statistics.median(clones):.0f} times "
                   "as long")

        cubby("run", "-d", "--name", "box", "busybox", "sleep", "100000")
        cubby("exec", "-i", "box", "sh", "-c", "cat > /true; chmod +x /true",
              input=tiny_true(work))
        library = Library(home, "box")
        for _ in range(20):
            library.run("/true")
        report.add("ping through the shim", [timed(library.ping) for _ in range(options.runs * 5)],
                   "ms", "tests/bench/ping measures it against a raw socket")
        report.add("exec of a static true, by argv",
                   [timed(lambda: library.run("/true")) for _ in range(options.runs)], "ms")
        report.add("exec of BusyBox true, by argv",
                   [timed(lambda: library.run("/bin/true")) for _ in range(options.runs)], "ms")
        report.add("exec of sh -c true", [timed(lambda: library.run("sh", "-c", "true"))
                                          for _ in range(options.runs)], "ms")
        report.add("cubby exec, with its process", [timed(lambda: cubby("exec", "box", "/true"))
                                                    for _ in range(options.runs // 4)], "ms")
        mib = 64
        report.add("stdout, 64 MiB", [mib / timed(lambda: cubby(
            "exec", "box", "head", "-c", str(mib << 20), "/dev/zero")) * 1000
            for _ in range(3)], "MiB/s")
        report.add("stdin, 64 MiB", [mib / timed(lambda: cubby(
            "exec", "-i", "box", "sh", "-c", "cat >/dev/null", input=bytes(mib << 20))) * 1000
            for _ in range(3)], "MiB/s")

        for entry in Path("/proc").iterdir():
            try:
                if os.path.basename(os.readlink(entry / "exe")) == "cubby-shim" and any(
                        os.readlink(fd).startswith(str(home)) for fd in (entry / "fd").iterdir()):
                    text = (entry / "status").read_text()
                    rss = int(re.search(r"VmRSS:\s*(\d+)", text).group(1))
                    report.add("shim, resident", [rss / 1024], "MiB", "yardstick: 3")
            except OSError:
                continue
    finally:
        subprocess.run([BUILD / "cubby", "rm", "-f", "-a"], env=env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)
    if options.out:
        Path(options.out).write_text(json.dumps({
            "version": 1, "host": os.uname().release, "cpus": os.cpu_count(),
            "load": os.getloadavg(), "rows": report.rows}, indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
