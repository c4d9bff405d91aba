# SPDX-License-Identifier: Apache-2.0
"""Cubby: small virtual machines for AI agents.

    with cubby.Cubby() as home, home.start("python:3.12") as box:
        print(box.run("echo hello; uname -r").text)

docs/python.md is the guide; every error is a `cubby.Error`.
"""

from ._call import in_thread
from ._library import __version__
from .box import Box, BoxInfo, LogLine, Process, Stats
from .commands import Event, Exec, Exit, Result
from .errors import (AbandonedError, BoxDeadError, BusyError, CapacityError, ClosedError,
                     CommandFailed, CommandNotFoundError, CommandRefusedError, DeniedError, Error,
                     ExistsError, IdentityError, ImageError, InvalidError, IsAFolderError,
                     LimitError, MachineError, NoSpaceError, NotAFolderError, NotFoundError,
                     OutOfMemory, PatternError, PipeError, ProtocolError, ShutdownError,
                     StateError, StoredError, SystemCallError, TimedOutError, UnsupportedError)
from .files import FileInfo, FileStream, Listing, Match, Watch, WatchEvent
from .home import Cubby, Image, Kernel, Template
from .provider import Acquired, Provider, is_scope_token, scope_token, trace

__all__ = [
    "AbandonedError", "Acquired", "Box", "BoxDeadError", "BoxInfo", "BusyError", "CapacityError",
    "ClosedError", "CommandFailed", "CommandNotFoundError", "CommandRefusedError", "Cubby",
    "DeniedError", "Error", "Event", "Exec", "ExistsError", "Exit", "FileInfo", "FileStream",
    "IdentityError", "Image", "ImageError", "InvalidError", "IsAFolderError", "Kernel",
    "LimitError", "Listing", "LogLine", "MachineError", "Match", "NoSpaceError",
    "NotAFolderError", "NotFoundError", "OutOfMemory", "PatternError", "PipeError", "Process",
    "ProtocolError", "Provider", "Result", "ShutdownError", "StateError", "Stats", "StoredError",
    "SystemCallError", "Template", "TimedOutError", "UnsupportedError", "Watch", "WatchEvent",
    "__version__", "in_thread", "is_scope_token", "scope_token", "trace"]
