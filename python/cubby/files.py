# SPDX-License-Identifier: Apache-2.0
"""Files of a running box: by its agent, no program of the image is used."""

from __future__ import annotations

import ctypes
import io
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._call import (SLICE, Handle, Owner, Path, bytes_in, count_in, descriptor, free_with,
                    milliseconds, options, path_in, text_in, text_out, waiting)
from ._library import lib
from .errors import (BusyError, ClosedError, Error, InvalidError, PatternError, StateError,
                     TimedOutError)

STREAM_PIECE = 256 << 10
RESULTS_MAX = 100_000
BUSY_SECONDS = 60


@dataclass(frozen=True)
class FileInfo:
    """`type` is a letter: f, d(irectory), l(ink), p(ipe), s(ocket), b, c."""

    path: str
    type: str
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    disk_size: int
    inode: int
    device: tuple[int, int]
    modified_ns: int
    changed_ns: int
    accessed_ns: int
    target: str

    @property
    def is_dir(self) -> bool:
        return self.type == "d"

    @property
    def is_file(self) -> bool:
        return self.type == "f"


def file_info(info: _abi.FileInfo) -> FileInfo:
    return FileInfo(text_out(info.path), chr(info.type), info.mode, info.uid, info.gid,
                    info.links, info.bytes, info.disk_bytes, info.inode,
                    (info.device_major, info.device_minor), info.modified_ns, info.changed_ns,
                    info.accessed_ns, text_out(info.target))


class Listing(list[FileInfo]):
    """Entries of a folder, the folder itself first. `truncated`: there are more."""

    truncated = False


@dataclass(frozen=True)
class Match:
    path: str
    line_number: int
    line: str


@dataclass(frozen=True)
class WatchEvent:
    """`kind`: created, written, removed, renamed, attributes, or overflow (some were lost).
    `path` is relative to the watched folder; `source` is the old name of what was renamed."""

    kind: str
    path: str
    is_dir: bool
    source: str


def _file(user: str | None, timeout: float | None) -> _abi.FileOptions:
    return options(_abi.FileOptions, user=text_in(user, "the user"),
                   timeout_ms=milliseconds(timeout, 0))


def _take_bytes(data: ctypes.c_void_p, size: ctypes.c_size_t) -> bytes:
    try:
        return ctypes.string_at(data.value, size.value) if data.value else b""
    finally:
        lib.cubby_free(data)


# Files.list is in the way of these words inside of the class.
Names = list[str]
Matches = list[Match]


class FileStream(Owner, io.RawIOBase):
    """A file of a box, of any size in constant memory. What is written is there when the
    stream is closed without an error, and not before (but with append). After a read or
    write that Ctrl-C has ended it gives and takes nothing more, and publishes nothing."""

    def __init__(self, handle: Handle, writing: bool) -> None:
        Owner.__init__(self, handle)
        self._writing = writing
        self._ended = False
        self._turn = threading.Lock()  # a call that Ctrl-C abandoned may still be at it

    def readable(self) -> bool:
        return not self._writing

    def writable(self) -> bool:
        return self._writing

    def _slices(self, call: Callable[[int], int]) -> int:
        """The call again and again for a moment each, so that a close is noticed."""
        def turn() -> int:
            with self._turn:
                return call(int(SLICE * 1000))

        while True:
            if self._ended:
                raise StateError("the stream has ended")
            try:
                return waiting(turn)
            except TimedOutError:
                continue
            except Exception:
                raise
            except BaseException:
                self._ended = True  # nobody knows how much the call has carried
                raise

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if not len(view) or self._writing:
            if self._writing:
                raise io.UnsupportedOperation("the stream is for writing")
            return 0
        piece = ctypes.create_string_buffer(min(len(view), STREAM_PIECE))
        got = self._slices(lambda ms: self._handle.call(lib.cubby_file_next, piece, len(piece),
                                                        ms))
        view[:got] = memoryview(piece)[:got].cast("B")
        return got

    def write(self, data: Any) -> int:
        """All of it, unlike other raw streams."""
        if not self._writing:
            raise io.UnsupportedOperation("the stream is for reading")
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += self._put(bytes(view[done:done + STREAM_PIECE]))
        return done

    def _put(self, piece: bytes) -> int:
        return self._slices(lambda ms: self._handle.call(lib.cubby_file_put, piece, len(piece),
                                                         ms))

    def commit(self) -> None:
        """Publishes what was written; close does it too."""
        if self._writing and not self._ended and not self._handle.closed:
            self._ended = True

            def turn() -> int:
                with self._turn:
                    return self._handle.call(lib.cubby_file_commit, -1)

            waiting(turn)

    def discard(self) -> None:
        """Ends the stream and leaves the old content."""
        self._ended = True
        self.close()

    def close(self) -> None:
        if self._handle.closed:
            return
        try:
            self.commit()
        finally:
            Owner.close(self)
            io.RawIOBase.close(self)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.discard()  # what was interrupted is not published
        self.close()

    def __del__(self) -> None:
        pass  # the handle's owner closes it, and does not publish


class Watch(Owner):
    """What happens in a folder. Iterate, or ask for the next event."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._turn = threading.Lock()  # a call that Ctrl-C abandoned may still be at it

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return descriptor(self._handle, lib.cubby_watch_fd)

    def next_event(self, timeout: float | None = None) -> WatchEvent:
        """TimeoutError when nothing happens in time."""
        left = milliseconds(timeout, -1)
        while True:
            part = int(SLICE * 1000) if left < 0 else min(left, int(SLICE * 1000))
            try:
                return waiting(lambda: self._take(part))
            except TimedOutError:
                left -= part if left >= 0 else 0
                if left == 0:
                    raise

    def _take(self, timeout_ms: int) -> WatchEvent:
        event = _abi.WatchEvent()
        with self._turn:
            self._handle.enter()  # the event's texts are the watch's own
            try:
                self._handle.call(lib.cubby_watch_next, timeout_ms, ctypes.byref(event))
                kind = _abi.WATCH_KINDS[event.kind - 1].lower()
                return WatchEvent(kind, text_out(event.path), event.folder,
                                  text_out(getattr(event, "from")))
            finally:
                self._handle.leave()

    def __iter__(self) -> Iterator[WatchEvent]:
        """Until the folder itself is gone."""
        while True:
            try:
                event = self.next_event()
            except ClosedError:
                return
            yield event


class Files(Owner):
    """The file calls of a box. Paths are absolute or relative to the box's working
    directory. `user`: as whom (None: the box's); `timeout`: seconds (None: a minute)."""

    def _patient(self, timeout: float | None, function: Any, *given: Any,
                 undo: Callable[[int], Any] | None = None) -> None:
        """A box takes a limited number of file calls at a time; then it is asked again."""
        end = time.monotonic() + (BUSY_SECONDS if timeout is None else timeout)
        pause = 0.002
        while True:
            try:
                self._handle.wait(function, *given, undo=undo)
                return
            except BusyError:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def stat(self, path: Path, follow: bool = True, *, user: str | None = None,
             timeout: float | None = None) -> FileInfo:
        given, info = _file(user, timeout), _abi.FileInfo()

        def clear(_: int) -> None:
            lib.cubby_file_info_clear(ctypes.byref(info))

        self._patient(timeout, lib.cubby_file_stat, path_in(path), follow, ctypes.byref(given),
                      ctypes.byref(info), undo=clear)
        try:
            return file_info(info)
        finally:
            clear(0)

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: Path, depth: int = 1, *, max_entries: int = 500, all_types: bool = False,
             user: str | None = None, timeout: float | None = None) -> Listing:
        """The folder first, then what is in it down to `depth`, by name. Regular files and
        folders only, unless all_types."""
        given = options(_abi.ListOptions, file=_file(user, timeout),
                        depth=count_in(depth, "depth", 0, (1 << 31) - 1),
                        max_entries=count_in(max_entries, "max_entries", 1, RESULTS_MAX),
                        all_types=all_types)
        found = ctypes.POINTER(_abi.FileList)()
        self._patient(timeout, lib.cubby_file_list_folder, path_in(path), ctypes.byref(given),
                      ctypes.byref(found), undo=lambda _: lib.cubby_file_list_free(found))
        try:
            listing = Listing(file_info(info) for info in
                              found.contents.files[:found.contents.count])
            listing.truncated = found.contents.truncated
            return listing
        finally:
            lib.cubby_file_list_free(found)

    def read(self, path: Path, offset: int = 0, size: int = 0, *, user: str | None = None,
             timeout: float | None = None) -> bytes:
        """`size` bytes behind `offset`; 0 is to the end, up to 1 GiB. Use open for more."""
        given, data, got = _file(user, timeout), ctypes.c_void_p(), ctypes.c_size_t()
        top = (1 << 63) - 1
        self._patient(timeout, lib.cubby_file_read, path_in(path),
                      count_in(offset, "offset", 0, top), count_in(size, "size", 0, top),
                      ctypes.byref(given), ctypes.byref(data), ctypes.byref(got),
                      undo=lambda _: lib.cubby_free(data))
        return _take_bytes(data, got)

    def read_text(self, path: Path, *, user: str | None = None,
                  timeout: float | None = None) -> str:
        """The whole file; bytes that are no UTF-8 are replaced."""
        return self.read(path, user=user, timeout=timeout).decode("utf-8", "replace")

    def read_lines(self, path: Path, first: int = 0, last: int = 0, *, user: str | None = None,
                   timeout: float | None = None) -> str:
        """Lines first to last, counted from 1; 0 is from the start, to the end. As
        str.splitlines sees them, joined by newlines."""
        given, data, got = _file(user, timeout), ctypes.c_void_p(), ctypes.c_size_t()
        top = (1 << 63) - 1
        self._patient(timeout, lib.cubby_file_read_lines, path_in(path),
                      count_in(first, "first", 0, top), count_in(last, "last", 0, top),
                      ctypes.byref(given), ctypes.byref(data), ctypes.byref(got),
                      undo=lambda _: lib.cubby_free(data))
        return _take_bytes(data, got).decode("utf-8", "replace")

    def write(self, path: Path, data: bytes | str, *, append: bool = False, parents: bool = True,
              exclusive: bool = False, sync: bool = True, mode: int | None = None,
              owner: str | None = None, user: str | None = None,
              timeout: float | None = None) -> None:
        """Replaces the file as a whole (or appends): after a failure the old content is
        there. A text is written as UTF-8. Mode and owner of an existing file are kept."""
        content = bytes_in(data, "the content")
        given = _write_options(append, parents, exclusive, sync, mode, owner, user, timeout)
        self._patient(timeout, lib.cubby_file_write, path_in(path), content, len(content),
                      ctypes.byref(given))

    def open(self, path: Path, how: str = "r", *, offset: int = 0, append: bool = False,
             parents: bool = True, exclusive: bool = False, sync: bool = True,
             mode: int | None = None, owner: str | None = None, user: str | None = None,
             timeout: float | None = None) -> FileStream:
        """A stream of bytes, to read ("r", "rb") or to write ("w", "wb")."""
        if how not in ("r", "w", "rb", "wb"):
            raise InvalidError(f"how a file is opened is 'r' or 'w': {how!a:.20}")
        how = how[0]
        pointer, free = ctypes.c_void_p(), free_with("cubby_file_close")

        def undo(_: int) -> None:
            if pointer.value:
                free(pointer.value)

        if how == "r":
            reading = _file(user, timeout)
            self._patient(timeout, lib.cubby_file_open_read, path_in(path),
                          count_in(offset, "offset", 0, (1 << 63) - 1),
                          ctypes.byref(reading), ctypes.byref(pointer), undo=undo)
        else:
            writing = _write_options(append, parents, exclusive, sync, mode, owner, user, timeout)
            self._patient(timeout, lib.cubby_file_open_write, path_in(path), ctypes.byref(writing),
                          ctypes.byref(pointer), undo=undo)
        return FileStream(Handle(pointer.value or 0, free, "file", (self._handle,)), how == "w")

    def remove_file(self, path: Path, recursive: bool = False, *, user: str | None = None,
                    timeout: float | None = None) -> None:
        given = _file(user, timeout)
        self._patient(timeout, lib.cubby_file_remove, path_in(path), recursive, ctypes.byref(given))

    def rename_file(self, source: Path, target: Path, replace: bool = True, *,
                    user: str | None = None, timeout: float | None = None) -> None:
        given = _file(user, timeout)
        self._patient(timeout, lib.cubby_file_rename, path_in(source), path_in(target), replace,
                      ctypes.byref(given))

    def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True, *,
              user: str | None = None, timeout: float | None = None) -> None:
        given = _file(user, timeout)
        self._patient(timeout, lib.cubby_file_make_folder, path_in(path),
                      count_in(mode, "mode", 1, 0o7777), parents, ctypes.byref(given))

    # -- search

    def glob(self, path: Path, pattern: str, *, include_dirs: bool = False,
             max_results: int = 200, user: str | None = None,
             timeout: float | None = None) -> tuple[Names, bool]:
        """Paths whose end matches, as PurePosixPath.match does, and whether there are more."""
        given = _search_options(max_results, user, timeout, include_folders=include_dirs)
        found = ctypes.POINTER(_abi.GlobResult)()
        self._patient(timeout, lib.cubby_glob, path_in(path), text_in(pattern, "the pattern"),
                      ctypes.byref(given), ctypes.byref(found),
                      undo=lambda _: lib.cubby_glob_result_free(found))
        try:
            result = found.contents
            return [text_out(item) for item in result.paths[:result.count]], result.truncated
        finally:
            lib.cubby_glob_result_free(found)

    def grep(self, path: Path, pattern: str, *, glob: str | None = None, literal: bool = False,
             case_sensitive: bool = False, max_results: int = 100, user: str | None = None,
             timeout: float | None = None) -> tuple[Matches, bool]:
        """Lines that match a regular expression (PCRE2), and whether there are more. A bad
        pattern is a ValueError with its `position`."""
        given = _search_options(max_results, user, timeout, literal=literal,
                                case_sensitive=case_sensitive, glob=text_in(glob, "glob"))
        found = ctypes.POINTER(_abi.GrepResult)()
        position = ctypes.c_int64(-1)
        try:
            self._patient(timeout, lib.cubby_grep, path_in(path), text_in(pattern, "the pattern"),
                          ctypes.byref(given), ctypes.byref(found), ctypes.byref(position),
                          undo=lambda _: lib.cubby_grep_result_free(found))
        except Error as problem:
            if problem.code == "INVALID" and position.value >= 0:
                raise PatternError(problem.message, position=position.value) from None
            raise
        try:
            result = found.contents
            return [Match(text_out(match.path), match.line,
                          ctypes.string_at(match.text, match.text_size).decode("utf-8",
                                                                               "replace"))
                    for match in result.matches[:result.count]], result.truncated
        finally:
            lib.cubby_grep_result_free(found)

    def watch(self, path: Path, recursive: bool = True, *, user: str | None = None) -> Watch:
        given, pointer = _file(user, None), ctypes.c_void_p()
        free = free_with("cubby_watch_close")

        def undo(_: int) -> None:
            if pointer.value:
                free(pointer.value)

        self._patient(None, lib.cubby_watch_open, path_in(path), recursive, ctypes.byref(given),
                      ctypes.byref(pointer), undo=undo)
        return Watch(Handle(pointer.value or 0, free, "watch", (self._handle,)))

    # -- copies

    def copy_in(self, host_path: Path, path: Path, **how: Any) -> None:
        """A file or tree of the host into the box, by the rules of `docker cp`. Keywords:
        archive (keep uid and gid), follow (a link as source), owner, user, timeout (None:
        none), progress(bytes, total, files), which ends the copy when it returns False."""
        source, target = path_in(host_path, "the host's path"), path_in(path)
        with _Copy(**how) as copy:
            copy.wait(lambda given: self._handle.call(lib.cubby_copy_in, source, target, given))

    def copy_out(self, path: Path, host_path: Path, **how: Any) -> None:
        """The other way. Keywords as for copy_in, but owner."""
        source, target = path_in(path), path_in(host_path, "the host's path")
        with _Copy(**how) as copy:
            copy.wait(lambda given: self._handle.call(lib.cubby_copy_out, source, target, given))

    def copy_to(self, path: Path, other: Files, other_path: Path, **how: Any) -> None:
        """From this box into another. Keywords as for copy_in."""
        source, target = path_in(path), path_in(other_path)

        def call(given: Any) -> int:  # the other box stays open as long as the call
            pointer = other._handle.enter()
            try:
                return self._handle.call(lib.cubby_copy_between, source, pointer, target, given)
            finally:
                other._handle.leave()

        with _Copy(**how) as copy:
            copy.wait(call)

    def tar_in(self, fd: int, path: Path, **how: Any) -> None:
        """Unpacks a tar stream, compressed or not, from a descriptor into a folder."""
        target = path_in(path)
        with _Copy(**how) as copy:
            copy.wait(lambda given: self._handle.call(lib.cubby_tar_in, int(fd), target, given))

    def tar_out(self, path: Path, fd: int, **how: Any) -> None:
        """A tar stream of a file or tree to a descriptor."""
        source = path_in(path)
        with _Copy(**how) as copy:
            copy.wait(lambda given: self._handle.call(lib.cubby_tar_out, source, int(fd), given))


class _Copy:
    """The options of a copy, and its end: Ctrl-C and an error of `progress` end the copy
    itself, not only the wait for it."""

    def __init__(self, *, archive: bool = False, follow: bool = False, owner: str | None = None,
                 user: str | None = None, timeout: float | None = None,
                 progress: Callable[[int, int, int], object] | None = None) -> None:
        self._progress = progress
        self._ended = False
        self._problem: BaseException | None = None
        self._options = options(
            _abi.CopyOptions, file=_file(user, timeout), archive=archive, follow=follow,
            owner=text_in(owner, "the owner"), progress=_abi.COPY_PROGRESS_FN(self._go_on))

    def _go_on(self, _: Any, done: int, total: int, files: int) -> bool:
        if self._progress is not None and not self._ended:
            try:
                self._ended = self._progress(done, total, files) is False
            except BaseException as problem:  # it goes to who asked for the copy
                self._problem, self._ended = problem, True
        return not self._ended

    def wait(self, call: Callable[[Any], int]) -> None:
        waiting(lambda: call(ctypes.byref(self._options)))

    def __enter__(self) -> _Copy:
        return self

    def __exit__(self, kind: Any, problem: Any, _: Any) -> None:
        self._ended = True
        if self._problem is not None and (kind is None or isinstance(problem, Error)):
            raise self._problem from None


def _write_options(append: bool, parents: bool, exclusive: bool, sync: bool, mode: int | None,
                   owner: str | None, user: str | None,
                   timeout: float | None) -> _abi.WriteOptions:
    return options(_abi.WriteOptions, file=_file(user, timeout), append=append,
                   no_parents=not parents, exclusive=exclusive, no_sync=not sync,
                   mode=-1 if mode is None else count_in(mode, "mode", 1, 0o7777),
                   owner=text_in(owner, "the owner"))


def _search_options(max_results: int, user: str | None, timeout: float | None,
                    **more: Any) -> _abi.SearchOptions:
    return options(_abi.SearchOptions, file=_file(user, timeout),
                   max_results=count_in(max_results, "max_results", 1, RESULTS_MAX), **more)
