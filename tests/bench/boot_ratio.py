# SPDX-License-Identifier: Apache-2.0
"""Boot to the agent's first byte: the engine's way against a plain boot of the same kernel.

Plain: the distribution's bzImage with the same QEMU, processor, memory, disks and initramfs
and only those kernel parameters without which an emulated machine may hang; once with the
usual serial console and once without. All take turns, so that a busy host hits all alike.

Usage: boot_ratio.py VMLINUZ [--runs N]   (VMLINUZ: the file that the unpacked kernel came from)
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CUBBY_BUILD", ROOT / "build")).resolve()
MACHINE = BUILD / "tests/system/machine"
AGENT = BUILD / "cubby-agent"


def make_disks(folder):
    tree = folder / "tree"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
        (tree / name).mkdir(parents=True)
    subprocess.run(["mkfs.erofs", "--quiet", folder / "root", tree], check=True)
    with open(folder / "disk", "wb") as disk:
        disk.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", folder / "disk"], check=True)


def engine(folder):
    done = subprocess.run(
        [MACHINE, folder / "home", AGENT, folder / "root", folder / "disk", folder / "log", "512",
         "0", "hello"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    values = dict(re.findall(r"(hello_ms|cpu_ms) ([\d.]+)", done.stdout))
    return float(values["hello_ms"]), float(values["cpu_ms"])


def cpu_ms(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def engine_arguments(folder):
    """What the engine gave QEMU, read from the process: the processor and the TSC's rate."""
    process = subprocess.Popen(
        [MACHINE, folder / "home", AGENT, folder / "root", folder / "disk", folder / "log", "512",
         "0", "jail"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True)
    for line in process.stdout:
        if line.startswith("pid "):
            words = Path(f"/proc/{line.split()[1]}/cmdline").read_bytes().decode().split("\0")
            break
    process.communicate("\n")
    wanted = re.findall(r"tsc_early_khz=\S+|lpj=\S+|tsc=\S+|no_timer_check",
                        words[words.index("-append") + 1])
    return words[words.index("-accel") + 1], words[words.index("-cpu") + 1], wanted


def plain(folder, vmlinuz, initramfs, accel, cpu, needed, console):
    ours, theirs = socket.socketpair()
    line = " ".join(["panic=-1", *needed] + (["console=ttyS0"] if console else []))
    serial = ["-serial", f"file:{folder / 'console'}"] if console else ["-serial", "none"]
    start = time.perf_counter()
    process = subprocess.Popen(
        ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=on,pic=on,rtc=on", "-accel", accel,
         "-cpu", cpu, "-m", "512M", "-nodefaults", "-no-user-config", "-display", "none",
         "-no-reboot", "-kernel", vmlinuz, "-initrd", initramfs, "-append", line, *serial,
         "-chardev", f"socket,id=agent,fd={theirs.fileno()}",
         "-device", "virtio-serial-device,max_ports=2",
         "-device", "virtserialport,chardev=agent,name=cubby.agent",
         "-drive", f"if=none,id=root,format=raw,readonly=on,file={folder / 'root'}",
         "-device", "virtio-blk-device,drive=root",
         "-drive", f"if=none,id=disk,format=raw,file={folder / 'disk'}",
         "-device", "virtio-blk-device,drive=disk"],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    ours.settimeout(60)
    try:
        if not ours.recv(1):
            return None
        return (time.perf_counter() - start) * 1000, cpu_ms(process.pid)
    except socket.timeout:
        return None  # a boot that hung
    finally:
        process.kill()
        process.wait()
        ours.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vmlinuz", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cubby-bench-") as name:
        folder = Path(name)
        make_disks(folder)
        os.environ.setdefault("MACHINE_KERNEL", str(options.vmlinuz))
        accel, cpu, needed = engine_arguments(folder)
        initramfs = next((folder / "home/kernels").glob("*/initramfs-*.cpio"))
        ways = {
            "engine": lambda: engine(folder),
            "plain bzImage": lambda: plain(folder, options.vmlinuz, initramfs, accel, cpu, needed,
                                           False),
            "plain bzImage, serial console": lambda: plain(folder, options.vmlinuz, initramfs,
                                                           accel, cpu, needed, True),
        }
        figures = {way: [] for way in ways}
        for _ in range(options.runs):
            for way, boot in ways.items():
                figures[way].append(boot())
        for index, unit in enumerate(["ms by the clock", "ms of processor time"]):
            print(f"to the agent's first byte, {unit}")
            columns = {way: [v[index] for v in values if v] for way, values in figures.items()}
            ours = columns["engine"]
            for way, good in columns.items():
                median, least = statistics.median(good), min(good)
                print(f"  {way:30} p50 {median:7.0f}  min {least:7.0f}  n={len(good)}"
                      f"  hung {options.runs - len(good)}  engine takes"
                      f" {100 * (1 - statistics.median(ours) / median):3.0f} % less"
                      f" (by minimum {100 * (1 - min(ours) / least):3.0f} %)", flush=True)


if __name__ == "__main__":
    main()
