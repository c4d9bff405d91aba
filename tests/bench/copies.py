# SPDX-License-Identifier: Apache-2.0
"""Copies in and out of a box, beside a pipe through tar in the box and the shell way of
sandboxes without file calls: base64 in pieces of 60,000 characters through `sh -lc`.
Usage: copies.py [ROUNDS]"""

import base64
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
LARGE, SMALL = 64, 1  # MiB
FILES = 2000


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    work = Path(tempfile.mkdtemp(prefix="cubby-bench-"))
    env = {**os.environ, "CUBBY_HOME": str(work / "home")}

    def cubby(*args, **more):
        return subprocess.run([BUILD / "cubby", *map(str, args)], env=env, check=True,
                              stdout=subprocess.PIPE, **more).stdout

    def shell_in(data, path):
        text = base64.b64encode(data).decode()
        cubby("exec", "box", "sh", "-lc", f": >{path}")
        for at in range(0, len(text), PIECE):
            cubby("exec", "box", "sh", "-lc",
                  f"echo '{text[at:at + PIECE]}' | base64 -d >>{path}")

    def shell_out(path, size):
        step = PIECE // 4 * 3
        found = b""
        for at in range(0, size, step):
            found += base64.b64decode(cubby(
                "exec", "box", "sh", "-lc",
                f"tail -c +{at + 1} {path} | head -c {step} | base64"))
        assert len(found) == size

    def say(name, function, mib):
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        middle = statistics.median(times)
        print(f"{name:46} p50 {middle * 1000:9.1f} ms  min {min(times) * 1000:9.1f} ms"
              f"  {mib / middle:7.1f} MiB/s  n={rounds}", flush=True)
        return middle

    try:
        cubby("kernel", "ensure")
        subprocess.run([ROOT / "scripts/make-busybox-image", work / "busybox.tar"], check=True)
        cubby("image", "import", work / "busybox.tar", "--name", "busybox")
        cubby("run", "-d", "--name", "box", "-m", "512M", "busybox", "sleep", "100000")
        for mib in (LARGE, SMALL):
            (work / "data").write_bytes(os.urandom(mib << 20))
            ways = [say(f"cp in, {mib} MiB", lambda: cubby(
                        "cp", work / "data", "box:/root/data"), mib),
                    say(f"cp out, {mib} MiB", lambda: cubby(
                        "cp", "box:/root/data", work / "back"), mib)]
            assert (work / "back").read_bytes() == (work / "data").read_bytes()
        data = (work / "data").read_bytes()
        shell = [say(f"shell way in, {SMALL} MiB", lambda: shell_in(data, "/root/shell"), SMALL),
                 say(f"shell way out, {SMALL} MiB", lambda: shell_out(
                     "/root/shell", len(data)), SMALL)]
        print(f"the shell way takes {shell[0] / ways[0]:.0f} times as long in, "
              f"{shell[1] / ways[1]:.0f} times out")
        tree = work / "tree"
        tree.mkdir()
        for n in range(FILES):
            (tree / f"d{n % 50}").mkdir(exist_ok=True)
            (tree / f"d{n % 50}" / f"f{n}").write_bytes(os.urandom(4096))
        mib = FILES * 4096 / (1 << 20)
        say(f"cp in, {FILES} files of 4 KiB", lambda: cubby("cp", tree / ".", "box:/root/tree"),
            mib)
        say(f"cp out, {FILES} files of 4 KiB", lambda: cubby(
            "cp", "box:/root/tree", tempfile.mkdtemp(dir=work)), mib)
        say(f"tar by exec in, {FILES} files", lambda: subprocess.run(
            ["sh", "-c", f"mkdir -p {work}/x; tar -cC {tree} . | {BUILD}/cubby exec -i box "
             "sh -c 'mkdir -p /root/tar; tar -xC /root/tar'"], env=env, check=True), mib)
        say(f"tar by exec out, {FILES} files", lambda: subprocess.run(
            ["sh", "-c", f"{BUILD}/cubby exec box tar -cC /root/tar . | tar -xC {work}/x"],
            env=env, check=True), mib)
    finally:
        subprocess.run([BUILD / "cubby", "rm", "-f", "-a"], env=env, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
