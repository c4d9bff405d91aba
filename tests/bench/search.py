# SPDX-License-Identifier: Apache-2.0
"""Searches in a box, beside `grep -rn` and `find` of the box by exec: 2,000 files of 4 KiB.
Usage: search.py [ROUNDS]. CUBBY_TEST_IMAGES: where scripts/make-test-image put its images; its
Debian has GNU grep, else it is BusyBox's."""

import io
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
IMAGES = Path(os.environ.get("CUBBY_TEST_IMAGES", BUILD / "test-images")).resolve()
FILES = 2000
WORDS = """the def class return import self value result for in if else None True False print open
read write file path name data list item count size error handle buffer""".split()
# (what it is, for the agent, for grep -E)
PATTERNS = [("a word", "needle_", "needle_"), ("a class", r"needle_\d+ = \w+", r"needle_[0-9]+ = \w+"),
            ("alternatives", "NOTE|ISSUE", "NOTE|ISSUE"), ("no fixed text", r"\b\d{3,}\b", r"\b[0-9]{3,}\b"),
            ("in every tenth line", r"def \w+ class", r"def \w+ class")]


def tree():
    rng = random.Random(5)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for number in range(FILES):
            lines, size = [], 0
            while size < 4096:
                lines.append("    " * rng.randint(0, 3) + " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8))))
                size += len(lines[-1]) + 1
            if number % 40 == 0:
                lines[10] = f"    needle_{1000 + number} = NOTE"
            text = "\n".join(lines)[:4095].encode() + b"\n"
            info = tarfile.TarInfo(f"tree/{number % 20}/{number // 20 % 10}/f{number}.py")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return packed.getvalue()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    work = Path(tempfile.mkdtemp(prefix="cubby-bench-"))
    env = {**os.environ, "CUBBY_HOME": str(work / "home")}

    def cubby(*args, check=True, **more):
        return subprocess.run([BUILD / "cubby", *map(str, args)], env=env, check=check,
                              stdout=subprocess.PIPE, **more).stdout

    def compare(name, ours, theirs):
        """Taken in turns, after one of each that warms."""
        times = ([], [])
        found = [len(way().splitlines()) for way in (ours, theirs)]
        for _ in range(rounds):
            for way, spent in zip((ours, theirs), times):
                start = time.perf_counter()
                way()
                spent.append((time.perf_counter() - start) * 1000)
        middle = [statistics.median(spent) for spent in times]
        print(f"{name:34} p50 {middle[0]:8.1f} ms  by exec {middle[1]:8.1f} ms  {middle[1] / middle[0]:5.1f} times"
              f"  {found[0]} and {found[1]} lines  n={rounds}", flush=True)

    try:
        cubby("kernel", "ensure")
        image = IMAGES / "python.tar"
        if not image.exists():
            image = work / "busybox.tar"
            subprocess.run([ROOT / "scripts/make-busybox-image", image], check=True)
        cubby("image", "import", image, "--name", "image")
        cubby("run", "-d", "--name", "box", "-m", "512M", "image", "sleep", "100000")
        cubby("exec", "-i", "box", "tar", "-xC", "/root", input=tree())
        for name, ours, theirs in PATTERNS:
            compare(f"grep, {name}",
                    lambda: cubby("fs", "grep", "--max", 100000, "box", ours, "/root/tree", check=False),
                    lambda: cubby("exec", "box", "grep", "-rnE", theirs, "/root/tree", check=False))
            compare(f"grep -i, {name}",
                    lambda: cubby("fs", "grep", "-i", "--max", 100000, "box", ours, "/root/tree", check=False),
                    lambda: cubby("exec", "box", "grep", "-rniE", theirs, "/root/tree", check=False))
        compare("find of all", lambda: cubby("fs", "find", "box", "*.py", "/root/tree"),
                lambda: cubby("exec", "box", "find", "/root/tree", "-name", "*.py"))
    finally:
        subprocess.run([BUILD / "cubby", "rm", "-f", "-a"], env=env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
