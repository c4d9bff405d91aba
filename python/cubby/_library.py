# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libcubby: $CUBBY_LIBRARY, the copy in this package (a wheel), the system's."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Any

from ._abi import PROTOTYPES

__version__ = "0.1.0"

SONAME = "libcubby.so.0"
# What the library is linked to, as Debian calls it.
PACKAGES = ("libarchive13 libssl3 libjansson4 libsqlite3-0 libyaml-0-2 libseccomp2 "
            "qemu-system-x86 e2fsprogs")
MACHINES = ("x86_64", "amd64", "aarch64", "arm64")


class Library:
    """The calls by name, each bound when it is first used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> Any:
        if name not in PROTOTYPES:
            raise AttributeError(name)
        try:
            function = getattr(self._handle, name)
        except AttributeError:
            raise ImportError(f"{self.path} has no {name}: it is of another version than this "
                              f"package ({__version__}); install both anew") from None
        function.restype, function.argtypes = PROTOTYPES[name]
        setattr(self, name, function)
        return function


def check_platform() -> None:
    if sys.platform != "linux" or platform.machine().lower() not in MACHINES:
        raise ImportError(f"Cubby runs on Linux on x86-64 or arm64; this is {sys.platform} on "
                          f"{platform.machine() or 'an unknown machine'}")


def candidates() -> list[str]:
    named = os.environ.get("CUBBY_LIBRARY")
    if named:
        return [named]
    inside = Path(__file__).resolve().parent / "lib" / SONAME
    # By its name the loader finds it once ldconfig has run; `make install` alone puts it there:
    folders = (f"/usr/local/lib/{platform.machine()}-linux-gnu", "/usr/local/lib")
    return [*([str(inside)] if inside.exists() else []), SONAME,
            *[f"{folder}/{SONAME}" for folder in folders]]


def load() -> Library:
    check_platform()
    problems = []
    for path in candidates():
        try:
            library = Library(path)
        except OSError as problem:
            problems.append(str(problem))
            continue
        version = library.cubby_version().decode()
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise ImportError(f"{path} is Cubby {version}, this package needs {__version__}")
        return library
    raise ImportError(
        f"libcubby could not be loaded ({'; '.join(problems)}). Install a wheel that carries it "
        f"(make wheel), or Cubby itself (make install), or set CUBBY_LIBRARY to its file; on "
        f"Debian it needs: apt-get install {PACKAGES}")


lib = load()
