# SPDX-License-Identifier: Apache-2.0
"""How Python calls the library: handles, waits that Ctrl-C ends, conversions."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import math
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Union

from . import _abi
from ._library import lib
from .errors import ClosedError, InvalidError, StateError, SystemCallError, from_struct

T = TypeVar("T")
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

PATH_MAX = 4095
SLICE = 0.2  # seconds: how long a wait may take no notice of a close


# ------------------------------------------------------------------ workers --

class _Job:
    """A call that runs on a worker while its caller waits, or no longer waits."""

    def __init__(self, call: Callable[[], Any], undo: Callable[[Any], Any] | None) -> None:
        self.call = call
        self.undo = undo
        self.lock = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()
        self.finished = self.abandoned = False
        self.value: Any = None
        self.problem: BaseException | None = None
        self.notify: Callable[[], None] | None = None

    def run(self) -> None:
        try:
            self.value = self.call()
        except BaseException as problem:  # it belongs to the caller
            self.problem = problem

    def finish(self) -> None:
        with self.lock:
            self.finished = True
            abandoned, notify = self.abandoned, self.notify
        self.done.release()
        if abandoned:
            self.take_back()
        elif notify is not None:
            notify()

    def take_back(self) -> None:
        if self.problem is None and self.undo is not None:
            with contextlib.suppress(Exception):  # nobody is left to hear of it
                self.undo(self.value)

    def abandon(self) -> None:
        """Nobody wants the result any more: it is undone, now or when it is there."""
        with self.lock:
            self.abandoned = True
            finished = self.finished
        if finished:
            self.take_back()

    def result(self) -> Any:
        if self.problem is not None:
            try:
                raise self.problem
            finally:
                self.problem = None  # no cycle over its own frame
        return self.value


class _Workers:
    """Threads that wait in the library on behalf of others. An idle one is used again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: list[queue.SimpleQueue[_Job]] = []

    def start(self, job: _Job) -> bool:
        """False where no thread can be made: at the end of the interpreter, for one."""
        with self.lock:
            inbox = self.idle.pop() if self.idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            thread = threading.Thread(target=self._work, args=(inbox,), name="cubby", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
        inbox.put(job)
        return True

    def _work(self, inbox: queue.SimpleQueue[_Job]) -> None:
        while True:
            job: _Job | None = inbox.get()
            assert job is not None
            job.run()
            with self.lock:  # before it says so: the next call finds it
                self.idle.append(inbox)
            job.finish()
            job = None


_workers = _Workers()


def _forked() -> None:
    global _workers
    _workers = _Workers()


os.register_at_fork(after_in_child=_forked)


def waiting(call: Callable[[], T], undo: Callable[[T], Any] | None = None) -> T:
    """`call()` so that Ctrl-C ends the wait. Only the main thread hears signals, so only
    there it runs on another; `undo` takes the result back that nobody waits for."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    job = _Job(call, undo)
    try:
        if not _workers.start(job):
            return call()  # then Ctrl-C waits for it
        job.done.acquire()
    except BaseException:
        job.abandon()
        raise
    result: T = job.result()
    return result


async def in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Any call of this package on a thread of its own, for asyncio programs:
    `text = await cubby.in_thread(box.read_text, "/etc/hosts")`. Cancelling abandons it: it
    runs on, and what it returns is closed (a stream publishes nothing; a box goes on)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def notify() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            pass  # the loop was closed in between

    context = contextvars.copy_context()
    job = _Job(lambda: context.run(function, *args, **options), _give_back)
    job.notify = notify
    if not _workers.start(job):
        raise StateError("no thread can be made for the call")
    try:
        await future
    except BaseException:
        job.abandon()
        raise
    result: T = job.result()
    return result


def _give_back(value: Any) -> None:
    for name in ("discard", "close"):  # the first: closing a stream would publish it
        end = getattr(value, name, None) if isinstance(value, Owner) else None
        if callable(end):
            end()
            return


# ------------------------------------------------------------------ handles --

class Handle:
    """A pointer of the library. Freed once, by close or with its owner; never while a call
    is inside it or while what was made from it is open, and never by a child of the process
    that made it."""

    def __init__(self, pointer: int, free: Callable[[int], None], what: str,
                 keep: tuple[Any, ...] = ()) -> None:
        self.pointer = pointer
        self.what = what
        self._free = free
        self._keep = keep  # what must live as long: the home of a box, callbacks
        for parent in self._parents():
            parent.hold()
        self._users = 0
        self._closed = False
        # The collector may free a handle, and so leave this one, inside of a call here.
        self._lock = threading.RLock()
        self.owner_pid = os.getpid()

    def _parents(self) -> list[Handle]:
        return [kept for kept in self._keep if isinstance(kept, Handle)]

    @property
    def closed(self) -> bool:
        return self._closed

    def hold(self) -> None:
        """Keeps it from being freed, also behind its close, until a `leave`."""
        with self._lock:
            self._users += 1

    def check_process(self) -> None:
        if os.getpid() != self.owner_pid:
            raise StateError(f"this {self.what} belongs to the parent process; open it again "
                             f"in this one")

    def enter(self) -> int:
        self.check_process()
        with self._lock:
            if self._closed:
                raise ClosedError(f"this {self.what} has been closed")
            self._users += 1
        return self.pointer

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._release()

    def close(self) -> None:
        if os.getpid() != self.owner_pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            last = self._users == 0
        if last:
            self._release()

    def _release(self) -> None:
        self._free(self.pointer)
        parents = self._parents()
        self._keep = ()
        for parent in parents:
            parent.leave()

    def call(self, function: Any, *arguments: Any) -> int:
        """A call that may fail, with the handle first and the error last."""
        error = _abi.CubbyError()
        pointer = self.enter()
        try:
            result: int = function(pointer, *arguments, ctypes.byref(error))
        finally:
            self.leave()
        if result < 0:
            raise from_struct(error)
        return result

    def wait(self, function: Any, *arguments: Any,
             undo: Callable[[int], Any] | None = None) -> int:
        """The same for one that may take long: Ctrl-C ends the wait."""
        return waiting(lambda: self.call(function, *arguments), undo)


class Owner:
    """Base of what has a handle: closes it with itself or when asked."""

    #: Also at exit. Else the kernel does, and threads that still wait end with the program.
    _closes_at_exit = False

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._finalizer = weakref.finalize(self, handle.close)
        self._finalizer.atexit = self._closes_at_exit

    def close(self) -> None:
        """Ends the use of this object. May be called again."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __repr__(self) -> str:
        return f"<{type(self).__module__.split('.')[0]}.{type(self).__name__}>"


def free_with(name: str) -> Callable[[int], None]:
    """A function that frees a pointer with the call of that name."""
    function = getattr(lib, name)

    def free(pointer: int) -> None:
        function(pointer)
    return free


def descriptor(handle: Handle, function: Any) -> int:
    """The file descriptor of a handle, -1 when it is closed."""
    try:
        pointer = handle.enter()
    except ClosedError:
        return -1
    try:
        return int(function(pointer))
    finally:
        handle.leave()


# -------------------------------------------------------------- conversions --

def text_in(value: str | bytes | None, what: str) -> bytes | None:
    """What the library takes as a string: UTF-8 without NUL, other bytes as they were."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            data = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidError(f"{what} has characters that are none: {value!a:.100}") from None
    elif isinstance(value, bytes):
        data = value
    else:
        raise TypeError(f"{what} must be a text, not {type(value).__name__}")
    if b"\0" in data:
        raise InvalidError(f"{what} has a NUL in it: {value!a:.100}")
    return data


def bytes_in(value: Any, what: str) -> bytes:
    """Bytes of what has bytes; a text as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidError(f"{what} has characters that are none") from None
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(f"{what} must be bytes or a text, not "
                        f"{type(value).__name__}") from None


def path_in(value: Path, what: str = "the path") -> bytes:
    data = text_in(os.fspath(value), what)
    assert data is not None
    if not data:
        raise InvalidError(f"{what} is empty")
    if len(data) > PATH_MAX:
        raise SystemCallError(f"{what} is longer than {PATH_MAX} bytes", sys_errno=36)
    return data


def text_out(value: bytes | None) -> str:
    """Names come back as they are: bytes that are no UTF-8 as surrogates (os.fsencode)."""
    return (value or b"").decode("utf-8", "surrogateescape")


def string_list(values: Iterable[str | bytes] | None, what: str) -> Any:
    if values is None:
        return None
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what} must be a list of texts, not one text")
    items = [text_in(value, what) for value in values]
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def pairs(values: Mapping[str, str | bytes] | None, what: str) -> Any:
    if values is None:
        return None
    items = []
    for name, value in values.items():
        left, right = text_in(name, what), text_in(value, f"{what} {name!a:.100}")
        if left is None or right is None:
            raise TypeError(f"{what} must be texts")
        if not left or b"=" in left:
            raise InvalidError(f"{what}: {name!a:.100} is no name")
        items.append(left + b"=" + right)
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def milliseconds(seconds: float | None, otherwise: int, what: str = "timeout") -> int:
    """Seconds for the library; `otherwise` for None. A little is never nothing."""
    if seconds is None:
        return otherwise
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, not {type(seconds).__name__}")
    if math.isnan(seconds) or seconds < 0:
        raise InvalidError(f"{what} must not be negative: {seconds}")
    if math.isinf(seconds) or seconds > 9e15:
        return otherwise
    return max(1, math.ceil(seconds * 1000))


def count_in(value: int, what: str, minimum: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, not {type(value).__name__}")
    if not minimum <= value <= maximum:
        raise InvalidError(f"{what} must be from {minimum} to {maximum}: {value}")
    return value


def options(kind: type[T], **fields: Any) -> T:
    """An options struct with its size set; fields that are None keep the default."""
    made: Any = kind()
    made.size = ctypes.sizeof(made)
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, ctypes.Array) and value._type_ is ctypes.c_char_p:
            value = ctypes.cast(value, _abi.strings)  # keeps the array alive with the struct
        setattr(made, name, value)
    return made  # type: ignore[no-any-return]


def take_string(pointer: ctypes.c_void_p) -> str:
    """A `char *` that the library allocated."""
    try:
        return ctypes.string_at(pointer.value or 0).decode("utf-8", "replace")
    finally:
        lib.cubby_free(pointer)
