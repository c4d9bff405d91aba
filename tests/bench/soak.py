# SPDX-License-Identifier: Apache-2.0
"""Makes, uses and removes boxes for a while and fails on any leak on the host.
Usage: soak.py [--minutes M]"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
sys.path.insert(0, str(ROOT / "tests"))


def shim_figures(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return rss, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main():
    from conftest import Cubby, close_home, leftovers

    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    cubby = Cubby(tempfile.mkdtemp(prefix="cubby-soak-"))
    tar = cubby.home / "busybox.tar"
    subprocess.run([ROOT / "scripts/make-busybox-image", tar], check=True)
    cubby.ok("kernel", "ensure", timeout=180)
    cubby.ok("image", "import", tar, "--name", "busybox")
    cubby.ok("run", "-d", "--name", "long", "-m", "256M", "busybox", "sleep", "1000000")
    shim = next(pid for pid, name in cubby.processes("long") if name == "cubby-shim")
    count = "ls /proc | grep -c '^[0-9]'"
    for _ in range(50):
        cubby.ok("exec", "long", "true")
    first, inside = shim_figures(shim), int(cubby.sh("long", count))
    end, boxes, commands = time.monotonic() + options.minutes * 60, 0, 0
    try:
        while time.monotonic() < end:
            cubby.ok("run", "-d", "--name", "brief", "-m", "128M", "busybox", "sleep", "1000")
            assert cubby.ok("exec", "brief", "echo", "x") == "x"
            cubby.ok("rm", "-f", "brief")
            boxes += 1
            for _ in range(100):
                assert cubby("exec", "long", "seq", "1", "100").out.count(b"\n") == 100
                commands += 1
            assert [line for line in leftovers(cubby.home) if "process" in line and
                    "cubby-shim" in line] != [], "the long box's shim is gone"
            print(f"soak: {boxes} boxes, {commands} commands, shim {shim_figures(shim)}",
                  flush=True)
        last = shim_figures(shim)
        assert last[0] <= first[0] + 512, f"the shim grew from {first[0]} to {last[0]} KiB"
        assert last[1] <= first[1], f"descriptors of the shim: {first[1]}, then {last[1]}"
        assert int(cubby.sh("long", count)) <= inside + 1, "processes are left in the box"
    finally:
        left = close_home(cubby)
        shutil.rmtree(cubby.home, ignore_errors=True)
    assert left == [], left
    print(f"soak: {boxes} boxes and {commands} commands, nothing leaked")


if __name__ == "__main__":
    main()
