# SPDX-License-Identifier: Apache-2.0
"""One box: its life, its commands, its files (files.py)."""

from __future__ import annotations

import ctypes
import json
import signal as signals
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._call import (Handle, bytes_in, count_in, free_with, in_thread, milliseconds, options,
                    pairs, string_list, take_string, text_in, text_out, waiting)
from ._library import lib
from .commands import Command, Exec, Result, exec_options, open_exec, run, run_async
from .errors import Error, TimedOutError, from_struct
from .files import Files

SLICE_MS = 200


@dataclass(frozen=True)
class BoxInfo:
    """What is recorded of a box; see cubby_box_info in cubby.h."""

    id: str
    name: str
    image_name: str
    image_id: str
    command: str
    engine: str
    isolation: str
    served: str
    reason: str
    detail: str
    state: str
    exit_code: int | None
    oom: bool
    created_ns: int
    started_ns: int
    finished_ns: int
    generation: int
    shim_pid: int


def box_info(info: _abi.BoxInfo) -> BoxInfo:
    texts: dict[str, Any] = {
        name: text_out(getattr(info, name)) for name in
        ("id", "name", "image_name", "image_id", "command", "engine", "isolation", "served",
         "reason", "detail")}
    return BoxInfo(
        **texts, state=_abi.BOX_STATES[info.state].lower(),
        exit_code=None if info.exit_code < 0 else info.exit_code, oom=info.oom,
        created_ns=info.created_ns, started_ns=info.started_ns, finished_ns=info.finished_ns,
        generation=info.generation, shim_pid=info.shim_pid)


@dataclass(frozen=True)
class Stats:
    """What a box uses: in the box, and (host_*) on the host."""

    uptime_ms: int
    cpu_us: int
    memory_total: int
    memory_available: int
    memory_workload: int
    disk_total: int
    disk_free: int
    processes: int
    host_cpu_us: int
    host_pss_bytes: int


@dataclass(frozen=True)
class Process:
    """A process in a box."""

    pid: int
    parent: int
    uid: int
    state: str
    cpu_us: int
    rss_bytes: int
    age_ms: int
    command: str


@dataclass(frozen=True)
class LogLine:
    """A piece of what the box's command printed."""

    stream: str
    time_ns: int
    data: bytes


def box_options(image: str | None, *, name: str | None = None, hostname: str | None = None,
                command: Sequence[str] | None = None, entrypoint: Sequence[str] | None = None,
                main: bool = True, env: Mapping[str, str | bytes] | None = None,
                workdir: str | None = None, user: str | None = None,
                labels: Mapping[str, str] | None = None, tty: bool = False, stdin: bool = False,
                memory: int = 0, cpus: float = 0, disk: int = 0, pids: int = 0,
                engine: str | None = None, accel: str | None = None, kernel: str | None = None,
                ttl: float | None = None, boot_timeout: float | None = None,
                auto_remove: bool = False, stop_signal: str | None = None,
                template: bool = True, warmup: Sequence[str] | None = None) -> _abi.BoxOptions:
    """Sizes in bytes, times in seconds, 0 and None for the default; see cubby.h. An empty
    `warmup` is none at all."""
    top = (1 << 63) - 1
    return options(
        _abi.BoxOptions, image=text_in(image, "the image"), name=text_in(name, "the name"),
        hostname=text_in(hostname, "the host name"), command=string_list(command, "the command"),
        entrypoint=string_list(entrypoint, "the entrypoint"), no_main=not main,
        env=pairs(env, "the environment"), workdir=text_in(workdir, "the working directory"),
        user=text_in(user, "the user"), labels=pairs(labels, "labels"), tty=tty, open_stdin=stdin,
        memory_bytes=count_in(memory, "memory", 0, top),
        cpu_milli=count_in(round(cpus * 1000), "cpus", 0, (1 << 32) - 1),
        disk_bytes=count_in(disk, "disk", 0, top),
        pids_max=count_in(pids, "pids", 0, (1 << 32) - 1), engine=text_in(engine, "the engine"),
        accel=text_in(accel, "accel"), kernel=text_in(kernel, "the kernel"),
        ttl_ms=milliseconds(ttl, 0, "ttl"),
        boot_timeout_ms=milliseconds(boot_timeout, 0, "boot_timeout"), auto_remove=auto_remove,
        stop_signal=text_in(stop_signal, "the stop signal"), no_template=not template,
        warmup=None if warmup is None else text_in("\n".join(warmup) or "#", "warmup"))


class Box(Files):
    """A box. Closing it (or leaving a `with` block) ends the use of this object only: the
    box goes on until it is stopped or removed."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.id: str = lib.cubby_box_id(handle.pointer).decode()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cubby.Box {self.id[:12]}>"

    # -- life

    def start(self) -> None:
        """Boots, or continues from a template; its command runs when this returns."""
        self._handle.wait(lib.cubby_box_start)

    def stop(self, timeout: float = 10) -> None:
        """Asks its command to end, after `timeout` ends the machine."""
        self._handle.wait(lib.cubby_box_stop, milliseconds(timeout, 0))

    def kill(self, signal: int = signals.SIGKILL) -> None:
        self._handle.wait(lib.cubby_box_kill, int(signal))

    def pause(self) -> None:
        self._handle.wait(lib.cubby_box_pause)

    def unpause(self) -> None:
        self._handle.wait(lib.cubby_box_unpause)

    def suspend(self) -> None:
        """Saves the machine in the box's folder and ends it; its memory is free."""
        self._handle.wait(lib.cubby_box_suspend)

    def resume(self) -> None:
        self._handle.wait(lib.cubby_box_resume)

    def remove(self, force: bool = False) -> None:
        self._handle.wait(lib.cubby_box_remove, force)

    def rename(self, name: str) -> None:
        self._handle.call(lib.cubby_box_rename, text_in(name, "the name"))

    def snapshot(self, name: str) -> None:
        """Saves this instant under a name, for Cubby.continue_from; the box goes on."""
        self._handle.wait(lib.cubby_box_snapshot, text_in(name, "the name"))

    def fork(self, count: int = 1, names: Sequence[str] | None = None) -> list[Box | Error]:
        """`count` boxes that continue from one instant of this one. Each is a box, or the
        error that it failed with."""
        count = count_in(count if names is None else len(names), "count", 1, 1000)
        given = string_list(names, "a name")
        boxes = (ctypes.c_void_p * count)()
        errors = (_abi.CubbyError * count)()

        def undo(_: int) -> None:
            for pointer in boxes:
                if pointer:
                    lib.cubby_box_remove(pointer, True, None)
                    lib.cubby_box_close(pointer)

        self._handle.wait(lib.cubby_box_fork, given, count, boxes, errors, undo=undo)
        return [from_struct(problem) if not pointer else Box(box_handle(pointer, self._handle))
                for pointer, problem in zip(boxes, errors)]

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the box; its command's exit code."""
        code = ctypes.c_int()
        left = milliseconds(timeout, -1)
        while True:
            part = SLICE_MS if left < 0 else min(left, SLICE_MS)
            try:
                waiting(lambda: self._handle.call(lib.cubby_box_wait, part, ctypes.byref(code)))
                return code.value
            except TimedOutError:
                left -= part if left >= 0 else 0
                if left == 0:
                    raise

    def ping(self, timeout: float = 10) -> None:
        """A round trip to the agent in the box."""
        self._handle.wait(lib.cubby_box_ping, milliseconds(timeout, -1))

    # -- what is known of it

    def info(self) -> BoxInfo:
        info = _abi.BoxInfo()
        self._handle.wait(lib.cubby_box_get_info, ctypes.byref(info),
                          undo=lambda _: lib.cubby_box_info_clear(ctypes.byref(info)))
        try:
            return box_info(info)
        finally:
            lib.cubby_box_info_clear(ctypes.byref(info))

    @property
    def name(self) -> str:
        return self.info().name

    def inspect(self) -> dict[str, Any]:
        text = ctypes.c_void_p()
        self._handle.wait(lib.cubby_box_inspect, ctypes.byref(text),
                          undo=lambda _: lib.cubby_free(text))
        document: dict[str, Any] = json.loads(take_string(text))
        return document

    def stats(self) -> Stats:
        stats = _abi.BoxStats()
        self._handle.wait(lib.cubby_box_get_stats, ctypes.byref(stats))
        return Stats(*[getattr(stats, field[0]) for field in _abi.BoxStats._fields_])

    def processes(self) -> list[Process]:
        found = ctypes.POINTER(_abi.Process)()
        count, truncated = ctypes.c_size_t(), ctypes.c_bool()
        self._handle.wait(lib.cubby_box_processes, ctypes.byref(found), ctypes.byref(count),
                          ctypes.byref(truncated),
                          undo=lambda _: lib.cubby_free(ctypes.cast(found, ctypes.c_void_p)))
        try:
            return [Process(p.pid, p.parent, p.uid, p.state.decode("ascii", "replace"), p.cpu_us,
                            p.rss_bytes, p.age_ms, p.command.decode("utf-8", "replace"))
                    for p in found[:count.value]]
        finally:
            lib.cubby_free(ctypes.cast(found, ctypes.c_void_p))

    def logs(self, tail: int = -1, since_ns: int = 0) -> Iterator[LogLine]:
        """The kept output of the box's command, oldest first."""
        lines: list[LogLine] = []

        def write(_: Any, stream: int, time_ns: int, data: int, size: int) -> int:
            lines.append(LogLine("stderr" if stream == 2 else "stdout", time_ns,
                                 ctypes.string_at(data, size) if size else b""))
            return 0

        given = options(_abi.LogOptions, since_ns=since_ns, tail_lines=tail)
        self._handle.wait(lib.cubby_box_logs, ctypes.byref(given), _abi.LOG_LINE_FN(write), None)
        return iter(lines)

    # -- commands

    def exec(self, command: Command, **how: Any) -> Exec:
        """Starts a command; its output comes as events. A list is the arguments, a text a
        line for the box's `sh`. Keywords: env, workdir, user, tty, rows, columns, stdin
        (it will be written to), detach, timeout in seconds (then its tree is killed)."""
        given = exec_options(command, **how)
        return open_exec(self._handle, lib.cubby_exec_start, ctypes.byref(given))

    def run(self, command: Command, input: bytes | str | None = None, **how: Any) -> Result:
        """Runs a command to its end; at most 8 MiB of each stream are kept. Ctrl-C kills
        it. Keywords as for exec, but stdin and detach."""
        data = _whole(input, how)
        return run(self.exec(command, stdin=data is not None, **how), data)

    async def exec_async(self, command: Command, **how: Any) -> Exec:
        """The same for `async for`; the loop waits on the command's descriptor."""
        return await in_thread(self.exec, command, **how)

    async def run_async(self, command: Command, input: bytes | str | None = None,
                        **how: Any) -> Result:
        """Cancelling it kills the command."""
        data = _whole(input, how)
        running = await self.exec_async(command, stdin=data is not None, **how)
        return await run_async(running, data)

    def attach(self, replay: bool = False) -> Exec:
        """The channels of the box's own command, with `replay` what is kept of them first."""
        return open_exec(self._handle, lib.cubby_box_attach, replay)


def _whole(given: bytes | str | None, how: Mapping[str, Any]) -> bytes | None:
    """The input of a command that is run to its end."""
    if "stdin" in how or "detach" in how:
        raise TypeError("`stdin` and `detach` are for exec; run takes `input` and waits")
    return None if given is None else bytes_in(given, "the input")


def box_handle(pointer: int | None, parent: Handle) -> Handle:
    return Handle(pointer or 0, free_with("cubby_box_close"), "box", (parent,))
