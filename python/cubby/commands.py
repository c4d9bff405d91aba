# SPDX-License-Identifier: Apache-2.0
"""Commands in a box: whole (run) or as a stream of events (exec), for threads and asyncio."""

from __future__ import annotations

import asyncio
import ctypes
import select
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _abi
from ._call import (SLICE, Handle, Owner, bytes_in, count_in, descriptor, free_with, in_thread,
                    milliseconds, options, pairs, string_list, text_in, waiting)
from ._library import lib
from .errors import CommandFailed, InvalidError, PipeError, TimedOutError, from_struct

SIZE_MAX = 65535  # rows or columns of a terminal
KEPT = 8 << 20  # bytes of each stream that `run` keeps, as cubby_exec_run
POSIX_NAME = "[A-Za-z_][A-Za-z0-9_]*"

Command = Union[str, Sequence[Union[str, bytes]]]


@dataclass(frozen=True)
class Exit:
    """How a command ended. `code` is 128 + signal for a signal."""

    code: int
    signal: int
    timed_out: bool
    oom: bool
    incomplete: bool
    user_seconds: float
    system_seconds: float
    max_rss_bytes: int


@dataclass(frozen=True)
class Event:
    """`kind` is "stdout", "stderr" or, last, "exit"."""

    kind: str
    data: bytes = b""
    exit: Exit | None = None


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    exit: Exit
    stdout: bytes
    stderr: bytes
    stdout_total: int
    stderr_total: int

    @property
    def code(self) -> int:
        return self.exit.code

    @property
    def timed_out(self) -> bool:
        return self.exit.timed_out

    @property
    def truncated(self) -> bool:
        """More was printed than is kept; a line in the middle counts what is missing."""
        return self.stdout_total > KEPT or self.stderr_total > KEPT

    @property
    def text(self) -> str:
        """stdout; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    def check(self) -> Result:
        """Itself when the command succeeded, else CommandFailed."""
        if self.exit.code == 0:
            return self
        how = "did not end in time" if self.timed_out else f"ended with code {self.exit.code}"
        end = self.stderr[-500:].decode("utf-8", "replace").strip()
        problem = CommandFailed(f"the command {how}" + (f": {end}" if end else ""))
        problem.result = self
        raise problem


def arguments(command: Command) -> list[str | bytes]:
    """A list is the arguments; a text is a line for the box's `sh`."""
    if isinstance(command, str):
        return ["sh", "-lc", command]
    if isinstance(command, bytes):
        raise TypeError("the command must be a text or a list of arguments")
    words = list(command)
    if not words:
        raise InvalidError("the command has no words")
    return words


def exec_options(command: Command, *, env: Mapping[str, str | bytes] | None = None,
                 workdir: str | None = None, user: str | None = None, tty: bool = False,
                 rows: int = 0, columns: int = 0, stdin: bool = False, detach: bool = False,
                 timeout: float | None = None) -> _abi.ExecOptions:
    return options(
        _abi.ExecOptions, argv=string_list(arguments(command), "an argument"),
        env=pairs(env, "the environment"), workdir=text_in(workdir, "the working directory"),
        user=text_in(user, "the user"), tty=tty, rows=count_in(rows, "rows", 0, SIZE_MAX),
        columns=count_in(columns, "columns", 0, SIZE_MAX), open_stdin=stdin, detach=detach,
        timeout_ms=milliseconds(timeout, 0))


class _Collector:
    """The first half of what is kept as it comes, of the rest the last half."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail: deque[bytes] = deque()
        self.tail_size = self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = KEPT // 2 - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if not data:
            return
        self.tail.append(data)
        self.tail_size += len(data)
        while self.tail_size - len(self.tail[0]) >= KEPT // 2:
            self.tail_size -= len(self.tail.popleft())

    def bytes(self) -> bytes:
        tail = b"".join(self.tail)[-(KEPT // 2):]
        gap = self.total - len(self.head) - len(tail)
        mark = f"\n[... {gap} bytes left out ...]\n".encode() if gap else b""
        return bytes(self.head) + mark + tail


class Exec(Owner):
    """A command that runs in a box, or (attach) the box's own. Iterate over it, in a thread
    or with `async for`, for its events; the last one is the exit. Leaving a `with` block or
    closing it kills a command that still runs, with all it started."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.exit: Exit | None = None
        self._error = _abi.CubbyError()
        self._event = _abi.Event()
        self._error_at = ctypes.byref(self._error)
        self._event_at = ctypes.byref(self._event)
        self._reading = threading.Lock()
        self._poll: Any = None

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Exec:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # -- reading

    def fileno(self) -> int:
        """Readable when there may be an event, for a poll loop of one's own; -1 when closed."""
        return descriptor(self._handle, lib.cubby_exec_fd)

    @property
    def pid(self) -> int:
        """Inside the box; 0 when it is not known."""
        pointer = self._handle.enter()
        try:
            return int(lib.cubby_exec_pid(pointer))
        finally:
            self._handle.leave()

    def poll_event(self) -> Event | None:
        """The next event if there is one now."""
        pointer = self._handle.enter()
        try:
            with self._reading:
                if lib.cubby_exec_next(pointer, 0, self._event_at, self._error_at) < 0:
                    if self._error.code == _abi.CODES.index("E_TIMEOUT"):
                        return None
                    raise from_struct(self._error)
                return self._take()
        finally:
            self._handle.leave()

    def _take(self) -> Event:
        event = self._event
        if event.kind != _abi.EVENT_EXIT:
            data = ctypes.string_at(event.data, event.size) if event.size else b""
            return Event("stdout" if event.kind == _abi.EVENT_STDOUT else "stderr", data)
        end = event.exit
        self.exit = Exit(end.code, end.signal, end.timed_out, end.oom, end.incomplete,
                         end.user_us / 1e6, end.system_us / 1e6, end.max_rss_bytes)
        return Event("exit", exit=self.exit)

    def _wait(self, seconds: float) -> None:
        """Until there may be an event. Python's poll, so that Ctrl-C ends it at once."""
        pointer = self._handle.enter()
        try:
            if self._poll is None:
                poll = select.poll()
                poll.register(int(lib.cubby_exec_fd(pointer)), select.POLLIN)
                self._poll = poll
            self._poll.poll(seconds * 1000)
        finally:
            self._handle.leave()

    def next_event(self, timeout: float | None = None) -> Event:
        """The next event; TimeoutError when none comes in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self.poll_event()
            if event is not None:
                return event
            left = SLICE if end is None else end - time.monotonic()
            if left <= 0:
                raise TimedOutError(f"the command printed nothing within {timeout} s")
            self._wait(min(left, SLICE))

    def __iter__(self) -> Iterator[Event]:
        while self.exit is None:
            yield self.next_event()

    async def next_event_async(self) -> Event:
        """The next event, without a thread: the loop watches the descriptor."""
        loop = asyncio.get_running_loop()
        while True:
            event = self.poll_event()
            if event is not None:
                return event
            ready: asyncio.Future[None] = loop.create_future()

            def wake(ready: asyncio.Future[None] = ready) -> None:
                if not ready.done():
                    ready.set_result(None)

            fd = int(lib.cubby_exec_fd(self._handle.enter()))
            try:
                loop.add_reader(fd, wake)
                # The library looks at its own deadlines only when it is called.
                timer = loop.call_later(SLICE, wake)
                try:
                    await ready
                finally:
                    timer.cancel()
                    loop.remove_reader(fd)
            finally:
                self._handle.leave()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while self.exit is None:
            yield await self.next_event_async()

    def wait(self, timeout: float | None = None) -> Exit:
        """Reads on until the exit; what is printed meanwhile is dropped."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.exit is None:
            self.next_event(None if end is None else max(0.0, end - time.monotonic()))
        return self.exit

    # -- the other way

    def write(self, data: bytes | str, timeout: float | None = None) -> None:
        """All of `data` (a text as UTF-8) to stdin; BrokenPipeError when the command does not
        read any more, TimeoutError when it does not read in time."""
        end = None if timeout is None else time.monotonic() + timeout
        content, at = bytes_in(data, "the input"), 0
        while at < len(content):
            at += waiting(lambda: self.write_some(content, at, SLICE))
            if at < len(content) and end is not None and time.monotonic() >= end:
                raise TimedOutError(f"the command did not read its input within {timeout} s")

    def write_some(self, data: bytes, offset: int = 0, timeout: float = 0.0) -> int:
        """Of `data` behind `offset` what there is room for; 0 when there is none in time."""
        content = bytes_in(data, "the input")
        count_in(offset, "offset", 0, len(content))
        start = ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0
        try:
            return self._handle.call(lib.cubby_exec_write, start + offset, len(content) - offset,
                                     int(timeout * 1000))
        except TimedOutError:
            return 0

    async def write_async(self, data: bytes | str) -> None:
        content, at = bytes_in(data, "the input"), 0
        while at < len(content):
            at += (self.write_some(content, at) or
                   await in_thread(self.write_some, content, at, SLICE))

    def close_stdin(self) -> None:
        self._handle.call(lib.cubby_exec_close_stdin)

    def signal(self, number: int) -> None:
        self._handle.call(lib.cubby_exec_signal, int(number))

    def resize(self, rows: int, columns: int) -> None:
        self._handle.call(lib.cubby_exec_resize, count_in(rows, "rows", 1, SIZE_MAX),
                          count_in(columns, "columns", 1, SIZE_MAX))


def open_exec(box: Handle, function: Any, *given: Any) -> Exec:
    """Starts or attaches; a command whose caller gave up meanwhile is killed."""
    pointer = ctypes.c_void_p()
    free = free_with("cubby_exec_close")

    def undo(_: int) -> None:
        if pointer.value:
            free(pointer.value)

    box.wait(function, *given, ctypes.byref(pointer), undo=undo)
    return Exec(Handle(pointer.value or 0, free, "command", (box,)))


class _Run:
    """Feeds a command and collects what it prints until its exit."""

    def __init__(self, running: Exec, data: bytes | None) -> None:
        self.running = running
        self.data = data or b""
        self.fed = 0
        self.feeding = data is not None
        self.streams = {"stdout": _Collector(), "stderr": _Collector()}

    def turn(self) -> bool:
        """Everything that is possible without waiting; True after the exit."""
        idle = 0
        # Reading may bring room to write, writing may bring something to read.
        while idle < 2:
            before = self.fed
            event = self.running.poll_event()
            if event is not None and event.exit is not None:
                return True
            if event is not None:
                self.streams[event.kind].add(event.data)
            elif not self.feeding:
                return False
            else:
                self._feed()
            idle = idle + 1 if event is None and self.fed == before else 0
        return False

    def _feed(self) -> None:
        try:
            if self.fed < len(self.data):
                self.fed += self.running.write_some(self.data, self.fed)
        except PipeError:
            self.fed = len(self.data)  # it does not want the rest
        if self.fed == len(self.data):
            self.feeding = False
            self.running.close_stdin()

    def result(self) -> Result:
        out, err = self.streams["stdout"], self.streams["stderr"]
        assert self.running.exit is not None
        return Result(self.running.exit, out.bytes(), err.bytes(), out.total, err.total)


def run(running: Exec, data: bytes | None) -> Result:
    with running:
        work = _Run(running, data)
        while not work.turn():
            running._wait(SLICE)
        return work.result()


async def run_async(running: Exec, data: bytes | None) -> Result:
    with running:
        work = _Run(running, data)
        loop = asyncio.get_running_loop()
        fd = running.fileno()
        ready = asyncio.Event()
        loop.add_reader(fd, ready.set)
        try:
            while not work.turn():
                timer = loop.call_later(SLICE, ready.set)
                try:
                    await ready.wait()
                finally:
                    timer.cancel()
                ready.clear()
        finally:
            loop.remove_reader(fd)
        return work.result()
