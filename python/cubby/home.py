# SPDX-License-Identifier: Apache-2.0
"""The home: images, kernels, boxes, templates."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _abi
from ._call import (Handle, Owner, Path, count_in, free_with, milliseconds, options, take_string,
                    text_in, text_out, waiting)
from ._library import lib
from .box import Box, BoxInfo, box_handle, box_info, box_options
from .errors import Error, from_struct

if TYPE_CHECKING:
    from .provider import Provider

LOG_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

Progress = Callable[[str, str, int, int], None]


@dataclass(frozen=True)
class Image:
    id: str
    name: str
    architecture: str
    disk_bytes: int
    created_ns: int


@dataclass(frozen=True)
class Kernel:
    version: str
    digest: str
    disk_bytes: int
    is_default: bool


@dataclass(frozen=True)
class Template:
    key: str
    image_id: str
    image_name: str
    snapshot: str
    problem: str
    memory_bytes: int
    disk_bytes: int
    vcpus: int
    usage_bytes: int
    spares: int
    spares_wanted: int
    created_ns: int
    used_ns: int


def _image(info: _abi.ImageInfo) -> Image:
    return Image(text_out(info.id), text_out(info.name), text_out(info.architecture),
                 info.disk_bytes, info.created_ns)


def _log(logger: logging.Logger, number: int, text: str) -> None:
    logger.log(number, "%s", text)


def _callbacks(log: logging.Logger | Callable[[int, str], None] | None,
               progress: Progress | None) -> tuple[Any, Any]:
    """What the library calls; an error in it must not reach the library."""
    log_callback = progress_callback = None
    if log is not None:
        if isinstance(log, logging.Logger):
            say: Callable[[int, str], None] = partial(_log, log)
        else:
            say = log

        def on_log(_: Any, level: int, line: bytes) -> None:
            number = LOG_LEVELS[level] if 0 <= level < len(LOG_LEVELS) else logging.INFO
            say(number, line.decode("utf-8", "replace"))

        log_callback = _abi.LOG_FN(on_log)
    if progress is not None:
        tell = progress

        def on_progress(_: Any, stage: bytes, detail: bytes, done: int, total: int) -> None:
            tell((stage or b"").decode("utf-8", "replace"),
                 (detail or b"").decode("utf-8", "replace"), done, total)

        progress_callback = _abi.PROGRESS_FN(on_progress)
    return log_callback, progress_callback


class Cubby(Owner):
    """An open home: `home`, else $CUBBY_HOME, else the user's. `log` is a logging.Logger or
    takes (level, line); `progress` takes (stage, detail, done, total). Both may be called
    on any thread. Boxes go on when it is closed."""

    def __init__(self, home: Path | None = None, *,
                 log: logging.Logger | Callable[[int, str], None] | None = None,
                 progress: Progress | None = None) -> None:
        callbacks = _callbacks(log, progress)
        given = options(_abi.OpenOptions, log=callbacks[0], progress=callbacks[1],
                        home=None if home is None else text_in(os.fspath(home), "the home"))
        pointer, error = ctypes.c_void_p(), _abi.CubbyError()
        free = free_with("cubby_close")

        def call() -> int:
            if lib.cubby_open(ctypes.byref(given), ctypes.byref(pointer),
                              ctypes.byref(error)) < 0:
                raise from_struct(error)
            return 0

        waiting(call, lambda _: free(pointer.value or 0))
        super().__init__(Handle(pointer.value or 0, free, "home", callbacks))
        self.home = text_out(lib.cubby_home(pointer))

    def __enter__(self) -> Cubby:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cubby.Cubby {self.home!r}>"

    def _json(self, function: Any, *given: Any) -> Any:
        text = ctypes.c_void_p()
        self._handle.wait(function, *given, ctypes.byref(text),
                          undo=lambda _: lib.cubby_free(text))
        return json.loads(take_string(text))

    def _listed(self, function: Any, kind: Any, free: Any, *given: Any) -> Any:
        found = ctypes.POINTER(kind)()
        self._handle.wait(function, *given, ctypes.byref(found), undo=lambda _: free(found))
        return found

    # -- images and kernels

    def import_image(self, source: Path, name: str | None = None, *, platform: str | None = None,
                     timeout: float | None = None) -> Image:
        """An OCI layout (folder or tar), a `docker save` tar, or a tar of a root file system."""
        given = options(_abi.ImportOptions, name=text_in(name, "the name"),
                        platform=text_in(platform, "the platform"),
                        timeout_ms=milliseconds(timeout, 0))
        info = _abi.ImageInfo()

        def clear(_: int) -> None:
            lib.cubby_image_info_clear(ctypes.byref(info))

        self._handle.wait(lib.cubby_image_import, text_in(os.fspath(source), "the source"),
                          ctypes.byref(given), ctypes.byref(info), undo=clear)
        try:
            return _image(info)
        finally:
            clear(0)

    def images(self) -> list[Image]:
        """Newest first."""
        found = self._listed(lib.cubby_images, _abi.ImageList, lib.cubby_image_list_free)
        try:
            return [_image(info) for info in found.contents.images[:found.contents.count]]
        finally:
            lib.cubby_image_list_free(found)

    def inspect_image(self, image: str) -> dict[str, Any]:
        document: dict[str, Any] = self._json(lib.cubby_image_inspect,
                                              text_in(image, "the image"))
        return document

    def remove_image(self, image: str, force: bool = False) -> None:
        self._handle.wait(lib.cubby_image_remove, text_in(image, "the image"), force)

    def tag_image(self, image: str, name: str) -> None:
        self._handle.wait(lib.cubby_image_tag, text_in(image, "the image"),
                          text_in(name, "the name"))

    def ensure_kernel(self, source: Path | None = None) -> str:
        """Finds or fetches the guest kernel; its version."""
        version = ctypes.c_void_p()
        where = None if source is None else text_in(os.fspath(source), "the source")
        self._handle.wait(lib.cubby_kernel_ensure, where, ctypes.byref(version),
                          undo=lambda _: lib.cubby_free(version))
        return take_string(version)

    def kernels(self) -> list[Kernel]:
        found = self._listed(lib.cubby_kernels, _abi.KernelList, lib.cubby_kernel_list_free)
        try:
            return [Kernel(text_out(k.version), text_out(k.digest), k.disk_bytes, k.is_default)
                    for k in found.contents.kernels[:found.contents.count]]
        finally:
            lib.cubby_kernel_list_free(found)

    # -- boxes

    def _new_box(self, function: Any, *given: Any, made: bool) -> Box:
        pointer = ctypes.c_void_p()

        def undo(_: int) -> None:
            if made:
                lib.cubby_box_remove(pointer, True, None)
            lib.cubby_box_close(pointer)

        self._handle.wait(function, *given, ctypes.byref(pointer), undo=undo)
        return Box(box_handle(pointer.value, self._handle))

    def create(self, image: str, **how: Any) -> Box:
        """A box that does not run yet. Keywords as the fields of cubby_box_options in
        cubby.h: name, hostname, command, entrypoint, main (False: no command of its own),
        env, workdir, user, labels, tty, stdin, memory, cpus, disk, pids, engine, accel,
        kernel, ttl, boot_timeout, auto_remove, stop_signal, template, warmup."""
        return self._new_box(lib.cubby_box_create, ctypes.byref(box_options(image, **how)),
                             made=True)

    def start(self, image: str, **how: Any) -> Box:
        """A running box; without a command it idles until it is stopped."""
        how.setdefault("main", "command" in how or "entrypoint" in how)
        box = self.create(image, **how)
        try:
            box.start()
        except BaseException:
            with contextlib.suppress(Error):
                box.remove(force=True)
            box.close()
            raise
        return box

    def box(self, name: str) -> Box:
        """By name, id, or a unique beginning of an id."""
        return self._new_box(lib.cubby_box_open, text_in(name, "the name"), made=False)

    def continue_from(self, snapshot: str, **how: Any) -> Box:
        """A running box that continues from a snapshot."""
        return self._new_box(lib.cubby_box_continue, text_in(snapshot, "the snapshot"),
                             ctypes.byref(box_options(None, **how)), made=True)

    def boxes(self, all: bool = False) -> list[BoxInfo]:
        """Newest first; `all` also those that do not run."""
        found = self._listed(lib.cubby_boxes, _abi.BoxList, lib.cubby_box_list_free, all)
        try:
            return [box_info(info) for info in found.contents.boxes[:found.contents.count]]
        finally:
            lib.cubby_box_list_free(found)

    def provider(self, config: dict[str, Any] | str | None = None, *,
                 config_file: Path | None = None, leave: bool = False) -> Provider:
        """A provider with a configuration: a dictionary of keys (docs/provider.md), a YAML
        text, or a file."""
        from .provider import Provider
        return Provider(self, config, config_file=config_file, leave=leave)

    # -- templates

    def templates(self) -> list[Template]:
        """Most recently used first."""
        found = self._listed(lib.cubby_templates, _abi.TemplateList, lib.cubby_template_list_free)
        try:
            return [Template(*[text_out(value) if isinstance(value, bytes) or value is None
                               else value for value in
                               (getattr(info, field[0]) for field in info._fields_)])
                    for info in found.contents.templates[:found.contents.count]]
        finally:
            lib.cubby_template_list_free(found)

    def build_template(self, image: str, again: bool = False, **how: Any) -> None:
        """Makes what boxes of these options continue from. Takes a boot."""
        self._handle.wait(lib.cubby_template_build, ctypes.byref(box_options(image, **how)),
                          again)

    def remove_template(self, name: str) -> None:
        self._handle.wait(lib.cubby_template_remove, text_in(name, "the name"))

    def inspect_template(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = self._json(lib.cubby_template_inspect,
                                              text_in(name, "the name"))
        return document

    def verify_template(self, name: str) -> None:
        self._handle.wait(lib.cubby_template_verify, text_in(name, "the name"))

    def set_spares(self, image: str, count: int, **how: Any) -> None:
        """How many ready boxes of these options wait for an owner."""
        self._handle.wait(lib.cubby_spares_set, ctypes.byref(box_options(image, **how)),
                          count_in(count, "count", 0, (1 << 32) - 1))

    # -- upkeep

    def usage(self) -> dict[str, Any]:
        document: dict[str, Any] = self._json(lib.cubby_usage)
        return document

    def doctor(self) -> dict[str, Any]:
        """What this host offers and lacks."""
        document: dict[str, Any] = self._json(lib.cubby_doctor)
        return document

    def gc(self) -> int:
        """Removes what nobody uses; the bytes freed."""
        freed = ctypes.c_uint64()
        self._handle.wait(lib.cubby_gc, ctypes.byref(freed))
        return freed.value

    def prune(self, dry_run: bool = False, template_bytes: int = 0) -> int:
        given = options(_abi.PruneOptions, dry_run=dry_run, template_bytes=count_in(
            template_bytes, "template_bytes", 0, (1 << 63) - 1))
        freed = ctypes.c_uint64()
        self._handle.wait(lib.cubby_prune, ctypes.byref(given), ctypes.byref(freed))
        return freed.value

    # -- pools of all processes

    def pool_status(self, pool: str | None = None) -> dict[str, Any]:
        document: dict[str, Any] = self._json(lib.cubby_pool_status, text_in(pool, "the pool"))
        return document

    def drain_pool(self, pool: str) -> tuple[int, int]:
        """Ends what no living process has: how many ended, how many others have."""
        ended, left = ctypes.c_uint32(), ctypes.c_uint32()
        self._handle.wait(lib.cubby_pool_drain, text_in(pool, "the pool"), ctypes.byref(ended),
                          ctypes.byref(left))
        return ended.value, left.value
