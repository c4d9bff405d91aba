# SPDX-License-Identifier: Apache-2.0
"""What Python adds to a call: the same calls from C and from Python, in turns, on one box of
the fake engine. In the main thread a call is carried by another, so that Ctrl-C ends it; in
other threads it is made as it is. Usage: python_calls.py [RUNS [ROUNDS]]"""

import sys

# This folder has files of the names of Python's own modules.
del sys.path[0]

import io  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import tarfile  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("CUBBY_LIBRARY", str(BUILD / "libcubby.so.0"))

import cubby  # noqa: E402


def median_us(call, runs):
    samples = []
    for i in range(-(runs // 10), runs):
        start = time.perf_counter()
        call()
        if i >= 0:
            samples.append(time.perf_counter() - start)
    return statistics.median(samples) * 1e6


def in_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    figures = {}

    def add(name, where, value):
        figures.setdefault(name, {}).setdefault(where, []).append(value)

    with tempfile.TemporaryDirectory(prefix="cubby-bench-") as folder:
        image = Path(folder) / "tiny.tar"
        with tarfile.open(image, "w") as tar:
            tar.addfile(tarfile.TarInfo("etc/hostname"), io.BytesIO())
        with cubby.Cubby(Path(folder) / "home") as home:
            home.import_image(image, "tiny")
            with home.start("tiny", engine="fake", template=False) as box:
                calls = {"ping": box.ping, "info": box.info, "run": lambda: box.run(["true"])}
                for _ in range(rounds):
                    done = subprocess.run(
                        [BUILD / "tests/bench/bench_calls", box.id, str(runs)], check=True,
                        env={**os.environ, "CUBBY_HOME": home.home}, stdout=subprocess.PIPE,
                        text=True)
                    for line in done.stdout.splitlines():
                        add(line.split()[0], "C", float(line.split()[1]))
                    for name, call in calls.items():
                        add(name, "main", median_us(call, runs))
                        add(name, "thread", in_thread(lambda call=call: median_us(call, runs)))
                box.remove(force=True)
    for name, row in figures.items():
        # The least of the rounds: what else the host did is not the package's.
        best = {where: min(values) for where, values in row.items()}
        print(f"{name:6} C {best['C']:8.1f} us   Python, main thread {best['main']:8.1f} us "
              f"(adds {best['main'] - best['C']:6.1f})   other thread {best['thread']:8.1f} us "
              f"(adds {best['thread'] - best['C']:6.1f})   yardstick: adds 100", flush=True)


if __name__ == "__main__":
    main()
