# SPDX-License-Identifier: Apache-2.0
"""One box for each conversation (a user and a thread); docs/provider.md is the contract."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import select
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from . import _abi
from ._call import (SLICE, Handle, Owner, Path, free_with, in_thread, milliseconds,
                    options, text_in, text_out, waiting)
from ._library import lib
from .box import Box, box_handle
from .errors import CapacityError, InvalidError, NotFoundError, TimedOutError, from_struct

if TYPE_CHECKING:
    from .home import Cubby

#: Appears in log lines of acquires, when it is set.
trace: contextvars.ContextVar[str | None] = contextvars.ContextVar("cubby_trace", default=None)

EXIT_TIMEOUT = 30.0  # seconds that the end of the interpreter waits for boxes to end

Key = Union[str, bytes]


@dataclass(frozen=True)
class Acquired:
    """`served`: reused, reclaimed, spare, cloned or booted. `fresh`: nothing of an earlier
    turn is in the box."""

    id: str
    served: str
    fresh: bool
    generation: int
    box: Box


def quoted(text: str) -> str:
    """A text as YAML's double-quoted style has it."""
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise InvalidError(f"a value of the configuration has characters that are none: "
                           f"{text!a:.100}")
    if "\0" in text:
        raise InvalidError(f"a value of the configuration has a NUL in it: {text!a:.100}")
    return '"' + "".join(c if c.isalnum() and c.isascii() or c in " -_./:,;=+@%$()[]{}" else
                         f"\\U{ord(c):08X}" for c in text) + '"'


def yaml_of(value: Any) -> str:
    """A value of the configuration in YAML's flow style."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(str(k))}: {yaml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_of(item) for item in value) + "]"
    raise InvalidError(f"the configuration cannot have a {type(value).__name__}")


def config_text(settings: Mapping[str, Any]) -> str:
    return "sandbox:\n" + "".join(f"  {quoted(name)}: {yaml_of(value)}\n"
                                  for name, value in settings.items() if value is not None)


def _key(value: Key, what: str) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{what} must be a text, not {type(value).__name__}")


def scope_token(user: Key | None, thread: Key) -> str:
    """The 16 hex digits that name a conversation. No user is the text "None"."""
    left = _key("None" if user is None else user, "the user")
    right = _key(thread, "the thread")
    token, error = ctypes.create_string_buffer(17), _abi.CubbyError()
    if lib.cubby_scope_token(left, len(left), right, len(right), token, ctypes.byref(error)) < 0:
        raise from_struct(error)
    return token.value.decode()


def is_scope_token(text: str) -> bool:
    return "\0" not in text and bool(lib.cubby_is_scope_token(text.encode("utf-8",
                                                                          "surrogatepass")))


class Provider(Owner):
    """May be used by several threads at once. It belongs to the process that opened it; its
    boxes end with `shutdown`, which the end of the interpreter calls too unless `leave`."""

    _closes_at_exit = True  # its threads call back

    def __init__(self, home: Cubby, config: Mapping[str, Any] | str | None = None, *,
                 config_file: Path | None = None, leave: bool = False) -> None:
        if config is not None and config_file is not None:
            raise InvalidError("a configuration and a file of one exclude each other")
        text = config_text(config) if isinstance(config, Mapping) else config
        given = options(
            _abi.ProviderOptions, config_text=text_in(text, "the configuration"), leave=leave,
            config_file=None if config_file is None else text_in(os.fspath(config_file),
                                                                 "the configuration's path"))
        pointer = ctypes.c_void_p()
        free = free_with("cubby_provider_close")
        home._handle.wait(lib.cubby_provider_open, ctypes.byref(given), ctypes.byref(pointer),
                          undo=lambda _: free(pointer.value or 0))
        super().__init__(Handle(pointer.value or 0, free, "provider", (home._handle,)))
        self._home = home
        self._at_exit = None if leave else weakref.finalize(self, _end, self._handle)

    def __enter__(self) -> Provider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shuts down (unless it was opened with `leave`) and ends the use of the object."""
        if self._at_exit is not None:
            waiting(self._at_exit)
        super().close()

    # -- acquire

    def _order(self, user: Key | None, thread: Key | None,
               timeout: float | None) -> _abi.AcquireOptions:
        given = options(_abi.AcquireOptions, timeout_ms=milliseconds(timeout, 0),
                        trace=text_in(trace.get(), "the trace"))
        if thread is None:
            return given
        given.no_user = user is None
        who, where = _key(user or "", "the user"), _key(thread, "the thread")
        given.user, given.user_size = who, len(who)
        given.thread, given.thread_size = where, len(where)
        return given

    def _result(self, acquired: _abi.Acquired) -> Acquired:
        return Acquired(acquired.id.decode(), _abi.SERVED[acquired.served - 1].lower(),
                        acquired.fresh, acquired.generation,
                        Box(box_handle(acquired.box, self._home._handle)))

    def _capacity(self, problem: CapacityError) -> CapacityError:
        counts = self.status()
        for name in ("active", "warm", "reserved", "replicas"):
            setattr(problem, name, counts[name])
        return problem

    def acquire(self, user: Key | None, thread: Key | None = None, *,
                timeout: float | None = None) -> Acquired:
        """The box of this conversation, ready. Without a thread a box of its own that no
        other call finds. Ctrl-C abandons the wait; a retry finds what came of it."""
        given, acquired = self._order(user, thread, timeout), _abi.Acquired()
        try:
            if threading.current_thread() is threading.main_thread():
                return self._request(given).wait()
            self._handle.call(lib.cubby_provider_acquire, ctypes.byref(given),
                              ctypes.byref(acquired))
        except CapacityError as problem:
            raise self._capacity(problem) from None
        return self._result(acquired)

    async def acquire_async(self, user: Key | None, thread: Key | None = None, *,
                            timeout: float | None = None) -> Acquired:
        """The same on a thread of the library: the loop only watches a descriptor."""
        try:
            return await self._request(self._order(user, thread, timeout)).wait_async()
        except CapacityError as problem:
            raise self._capacity(problem) from None

    def _request(self, given: _abi.AcquireOptions) -> _Request:
        pointer = ctypes.c_void_p()
        self._handle.call(lib.cubby_provider_acquire_async, ctypes.byref(given),
                          ctypes.byref(pointer))
        return _Request(self, Handle(pointer.value or 0, free_with("cubby_request_close"),
                                     "request", (self._handle,)))

    def get(self, id: str) -> Box | None:
        """An active box by its id; never blocks."""
        pointer = ctypes.c_void_p()
        try:
            self._handle.call(lib.cubby_provider_get, text_in(id, "the id"),
                              ctypes.byref(pointer))
        except NotFoundError:
            return None
        return Box(box_handle(pointer.value, self._home._handle))

    def release(self, id: str) -> None:
        """The box stays warm for its conversation. No error for an unknown id."""
        self._handle.call(lib.cubby_provider_release, text_in(id, "the id"))

    def reset(self) -> None:
        """No more acquires; active boxes become warm and live on until shutdown."""
        self._handle.wait(lib.cubby_provider_reset)

    def shutdown(self, timeout: float | None = None) -> list[str]:
        """Ends every box of this provider; the ids of what did not end in time."""
        return waiting(lambda: shutdown(self._handle, milliseconds(timeout, -1)))

    async def shutdown_async(self, timeout: float | None = None) -> list[str]:
        return await in_thread(self.shutdown, timeout)

    def status(self) -> dict[str, Any]:
        """Counts of now, and of what happened since the provider was opened."""
        status = _abi.ProviderStatus()
        self._handle.call(lib.cubby_provider_get_status, ctypes.byref(status))
        return {name: value if isinstance(value, int) else
                {part[0]: getattr(value, part[0]) for part in value._fields_}
                for name, value in ((f[0], getattr(status, f[0])) for f in status._fields_)}


class _Request(Owner):
    """An acquire that runs. It is abandoned by close, when its result was not fetched."""

    def __init__(self, provider: Provider, handle: Handle) -> None:
        super().__init__(handle)
        self._provider = provider

    def _fetch(self) -> Acquired:
        """When the descriptor says that the result is there."""
        acquired = _abi.Acquired()
        self._handle.call(lib.cubby_request_finish, 1000, ctypes.byref(acquired))
        return self._provider._result(acquired)

    def wait(self) -> Acquired:
        try:
            poll = select.poll()
            poll.register(lib.cubby_request_fd(self._handle.pointer), select.POLLIN)
            while not poll.poll(1000 * SLICE):
                self._handle.check_process()
            return self._fetch()
        finally:
            self.close()

    async def wait_async(self) -> Acquired:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        fd = lib.cubby_request_fd(self._handle.pointer)

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(fd, wake)
        try:
            await ready
            return self._fetch()
        finally:
            loop.remove_reader(fd)
            self.close()


def shutdown(handle: Handle, timeout_ms: int) -> list[str]:
    left = ctypes.c_void_p()
    try:
        handle.call(lib.cubby_provider_shutdown, timeout_ms, ctypes.byref(left))
    except TimedOutError:
        return text_out(ctypes.string_at(left.value) if left.value else b"").split()
    finally:
        if left.value:
            lib.cubby_free(left)
    return []


def _end(handle: Handle) -> None:
    """At the end of a provider nobody shut down, the interpreter's included. A child of the
    process that made it has no say."""
    if handle.closed or os.getpid() != handle.owner_pid:
        return
    shutdown(handle, int(EXIT_TIMEOUT * 1000))
