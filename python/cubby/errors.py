# SPDX-License-Identifier: Apache-2.0
"""What calls raise. Every error is a cubby.Error and also of the built-in kind that a
program would expect: FileNotFoundError, PermissionError, TimeoutError, ValueError ..."""

from __future__ import annotations

import errno as numbers
from typing import Any

from ._abi import CODES, CubbyError


class Error(Exception):
    """`code` is the name of the library's code ("NOT_FOUND"), `message` a sentence."""

    code: str = "SYSTEM"
    default_errno: int = 0

    def __init__(self, message: str = "", *, sys_errno: int = 0, code: str | None = None,
                 position: int | None = None) -> None:
        self.message = message
        self.position = position
        if code is not None:
            self.code = code
        self.sys_errno = sys_errno
        if isinstance(self, OSError):
            OSError.__init__(self, sys_errno or self.default_errno, message)
        else:
            Exception.__init__(self, message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        return (_again, (type(self), self.message, self.sys_errno, self.code, self.position),
                self.__dict__)  # counts, a result


def _again(kind: type[Error], message: str, sys_errno: int, code: str,
           position: int | None) -> Error:
    return kind(message, sys_errno=sys_errno, code=code, position=position)


class SystemCallError(Error, OSError):
    """An operating system call failed, on the host or in the box; see errno."""


class OutOfMemory(Error, MemoryError):
    """Memory ran out in this process."""

    code = "NO_MEMORY"


class InvalidError(Error, ValueError):
    """An argument is wrong; nothing was done."""

    code = "INVALID"


class PatternError(InvalidError):
    """A pattern does not compile; `position` is where, in characters."""


class NotFoundError(Error, FileNotFoundError):
    """No image, box, file or process of that name."""

    code = "NOT_FOUND"
    default_errno = numbers.ENOENT


class ExistsError(Error, FileExistsError):
    """The name is taken."""

    code = "EXISTS"
    default_errno = numbers.EEXIST


class NotAFolderError(Error, NotADirectoryError):
    """A folder was needed, and it is something else."""

    code = "INVALID"
    default_errno = numbers.ENOTDIR


class IsAFolderError(Error, IsADirectoryError):
    """A file was needed, and it is a folder."""

    code = "INVALID"
    default_errno = numbers.EISDIR


class BusyError(Error, OSError):
    """In use by another owner; try again later."""

    code = "BUSY"
    default_errno = numbers.EBUSY


class StateError(Error, RuntimeError):
    """Not possible in the present state of the object."""

    code = "STATE"


class TimedOutError(Error, TimeoutError):
    """The deadline passed."""

    code = "TIMEOUT"
    default_errno = numbers.ETIMEDOUT


class ClosedError(Error, RuntimeError):
    """The handle was closed, or its box was ended."""

    code = "CLOSED"


class PipeError(Error, BrokenPipeError):
    """The command does not read its input any more."""

    code = "CLOSED"
    default_errno = numbers.EPIPE


class AbandonedError(Error, RuntimeError):
    """The wait was abandoned."""

    code = "CANCELLED"


class BoxDeadError(Error, ConnectionError):
    """The box ended while, or before, the call ran."""

    code = "BOX_DEAD"
    default_errno = numbers.ECONNRESET


class ProtocolError(BoxDeadError):
    """The box broke the protocol and was ended."""

    code = "PROTOCOL"


class MachineError(Error, RuntimeError):
    """The virtual machine or its kernel could not be started."""

    code = "VMM"


class UnsupportedError(Error, NotImplementedError):
    """Not offered by this engine, host or version."""

    code = "UNSUPPORTED"


class DeniedError(Error, PermissionError):
    """The operating system or the box refused access."""

    code = "PERMISSION"
    default_errno = numbers.EACCES


class ImageError(Error, ValueError):
    """An image, layer or archive is malformed, or its content is not its digest's."""

    code = "IMAGE"


class LimitError(Error, OSError):
    """A ceiling was reached."""

    code = "LIMIT"
    default_errno = numbers.E2BIG


class NoSpaceError(Error, OSError):
    """The host's or the box's disk is full."""

    code = "NO_SPACE"
    default_errno = numbers.ENOSPC


class StoredError(Error, RuntimeError):
    """Stored state failed its checks or is of another version."""

    code = "CORRUPT"


class CommandNotFoundError(NotFoundError):
    """The command does not exist in the box (shells say 127)."""

    code = "EXEC_NOT_FOUND"


class CommandRefusedError(DeniedError):
    """The command exists but cannot run (shells say 126)."""

    code = "EXEC_REFUSED"


class CapacityError(Error, RuntimeError):
    """The pool is full. `active`, `warm`, `reserved` and `replicas` count what there is."""

    code = "CAPACITY"
    active = warm = reserved = replicas = 0


class IdentityError(Error, RuntimeError):
    """A box belongs to another user and thread."""

    code = "IDENTITY"


class ShutdownError(Error, RuntimeError):
    """The provider is shutting down."""

    code = "SHUTDOWN"


class CommandFailed(Error, RuntimeError):
    """A command that was asked to succeed did not; `result` is what it left."""

    code = "FAILED"
    result: Any = None


_KINDS: dict[str, type[Error]] = {
    "SYSTEM": SystemCallError, "NO_MEMORY": OutOfMemory, "INVALID": InvalidError,
    "NOT_FOUND": NotFoundError, "EXISTS": ExistsError, "BUSY": BusyError, "STATE": StateError,
    "TIMEOUT": TimedOutError, "CLOSED": ClosedError, "CANCELLED": AbandonedError,
    "PROTOCOL": ProtocolError, "BOX_DEAD": BoxDeadError, "VMM": MachineError,
    "KERNEL": MachineError, "UNSUPPORTED": UnsupportedError, "PERMISSION": DeniedError,
    "IMAGE": ImageError, "DIGEST": ImageError, "LIMIT": LimitError, "NO_SPACE": NoSpaceError,
    "CORRUPT": StoredError, "VERSION": StoredError, "EXEC_NOT_FOUND": CommandNotFoundError,
    "EXEC_REFUSED": CommandRefusedError, "CAPACITY": CapacityError, "IDENTITY": IdentityError,
    "SHUTDOWN": ShutdownError}

# An errno of the box says more than the code.
_BY_ERRNO: dict[tuple[str, int], type[Error]] = {
    ("INVALID", numbers.EISDIR): IsAFolderError,
    ("INVALID", numbers.ENOTDIR): NotAFolderError,
    ("SYSTEM", numbers.EISDIR): IsAFolderError,
    ("SYSTEM", numbers.ENOTDIR): NotAFolderError,
    ("EXEC_REFUSED", numbers.E2BIG): SystemCallError,
    ("CLOSED", numbers.EPIPE): PipeError,
    ("SYSTEM", numbers.EPIPE): PipeError,
    **{("INVALID", number): SystemCallError for number in
       (numbers.ELOOP, numbers.ENAMETOOLONG, numbers.ENOTEMPTY, numbers.E2BIG, numbers.EXDEV)},
}


def from_code(name: str, sys_errno: int, message: str) -> Error:
    """The error of a code without its prefix ("NOT_FOUND") and the errno behind it."""
    kind: type[Error] = _KINDS.get(name, SystemCallError)
    kind = _BY_ERRNO.get((name, sys_errno), kind)
    return kind(message, sys_errno=sys_errno, code=name)


def from_struct(error: CubbyError) -> Error:
    code = error.code
    name = CODES[code].removeprefix("E_") if 0 < code < len(CODES) else "SYSTEM"
    return from_code(name, error.sys_errno, error.message.decode("utf-8", "replace"))
