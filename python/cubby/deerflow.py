# SPDX-License-Identifier: Apache-2.0
"""Cubby as a sandbox of DeerFlow. One line of its config.yaml selects it:

    sandbox:
      use: cubby.deerflow:CubbyProvider

The module loads without DeerFlow; a provider without a configuration needs it.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import errors
from .box import Box
from .commands import POSIX_NAME, Result
from .errors import CapacityError, ClosedError, DeniedError, InvalidError
from .files import Match
from .home import Cubby
from .provider import Acquired, Provider

DOWNLOAD_PREFIX = "/mnt/user-data"
DOWNLOAD_MAX = 104_857_600
LIST_MAX = 500
CLOSED_TEXT = "Error: sandbox has been closed"

logger = logging.getLogger("cubby")


def _missing(problem: ModuleNotFoundError) -> bool:
    """DeerFlow is not there, as opposed to broken."""
    return (problem.name or "").split(".")[0] == "deerflow"


if TYPE_CHECKING:
    class SandboxBase:
        _id: str

        def __init__(self, id: str) -> None: ...

        @property
        def id(self) -> str: ...

    class ProviderBase:
        pass

    GrepMatch = Match
    CapacityExceeded: Any = None
else:
    try:
        from deerflow.sandbox.sandbox import Sandbox as SandboxBase
        from deerflow.sandbox.sandbox_provider import SandboxProvider as ProviderBase
    except ModuleNotFoundError as problem:
        if not _missing(problem):
            raise

        class SandboxBase:
            """What DeerFlow's Sandbox gives, where there is no DeerFlow."""

            def __init__(self, id):
                self._id = id

            @property
            def id(self):
                return self._id

        class ProviderBase:
            pass

    try:
        from deerflow.sandbox.search import GrepMatch
    except ModuleNotFoundError as problem:
        if not _missing(problem):
            raise
        GrepMatch = Match
    try:
        from deerflow.sandbox.exceptions import SandboxCapacityExceededError as CapacityExceeded
    except ImportError:
        CapacityExceeded = None


def guard(path: str) -> str:
    """A path as the contract allows it. A file's name may have a backslash, so the path
    goes on as it was given."""
    if not isinstance(path, str):
        raise TypeError(f"the path must be a text, not {type(path).__name__}")
    if not path:
        raise InvalidError("the path is empty")
    if "\0" in path:
        raise InvalidError("the path has a NUL in it")
    if ".." in path.replace("\\", "/").split("/"):
        raise DeniedError(f"'..' is not allowed in a path: {path!a:.200}",
                          sys_errno=errno.EACCES)
    return path


def check_env(env: Mapping[str, str] | None) -> None:
    for name in env or ():
        if not isinstance(name, str) or not re.fullmatch(POSIX_NAME, name):
            raise InvalidError(f"{name!a:.100} is no name of an environment variable, which "
                               f"match {POSIX_NAME} wholly")


def timeout_text(timeout: float) -> str:
    return f"Error: command timed out after {timeout:.15g} seconds"


def output_text(result: Result, timeout: float | None) -> str:
    """What a model reads of a command."""
    out = result.stdout.decode("utf-8", "replace")
    err = result.stderr.decode("utf-8", "replace")
    output = f"{out}\n{err}" if out and err else out or err
    if result.timed_out:
        gap = "\n" if output and not output.endswith("\n") else ""
        return output + gap + timeout_text(timeout or 0)
    if output:
        return output
    return f"Command exited with code {result.code}" if result.code else "(no output)"


class CubbySandbox(SandboxBase):
    """One conversation's box."""

    persistent_shell_sessions = False

    def __init__(self, id: str, box: Box, environment: Mapping[str, str] | None = None,
                 generation: int = 0) -> None:
        super().__init__(id)
        self.box = box
        self.generation = generation
        self._environment = dict(environment or {})

    def execute_command(self, command: str, env: dict[str, str] | None = None,
                        timeout: float | None = None) -> str:
        check_env(env)
        try:
            result = self.box.run(["sh", "-lc", command], timeout=timeout,
                                  env={**self._environment, **(env or {})} or None)
        except ClosedError:
            return CLOSED_TEXT
        except errors.InvalidError as problem:
            return f"Error: {problem}"
        except errors.TimedOutError as problem:  # the box did not even start it
            return f"Error: {problem}" if timeout is None else timeout_text(timeout)
        except errors.Error as problem:
            logger.warning("a command in sandbox %s failed: %s", self.id, problem)
            return f"Error: {problem}"
        return output_text(result, timeout)

    def read_file(self, path: str, start_line: int | None = None,
                  end_line: int | None = None) -> str:
        guard(path)
        if start_line is None and end_line is None:
            return self.box.read_text(path)
        for value in (start_line, end_line):
            if value is not None and value < 0:
                raise InvalidError(f"a line's number must not be negative: {value}")
        return self.box.read_lines(path, start_line or 0, end_line or 0)

    def write_file(self, path: str, content: str, append: bool = False) -> None:
        self.box.write(guard(path), content, append=append)

    def update_file(self, path: str, content: bytes) -> None:
        self.box.write(guard(path), content)

    def download_file(self, path: str) -> bytes:
        guard(path)
        inside = "/" + path.lstrip("/")  # a backslash is part of a name
        if inside != DOWNLOAD_PREFIX and not inside.startswith(DOWNLOAD_PREFIX + "/"):
            raise DeniedError(f"only {DOWNLOAD_PREFIX} and below can be downloaded: "
                              f"{path!a:.200}", sys_errno=errno.EACCES)
        try:
            # One byte more than allowed, so that a file that grows is noticed too.
            data = self.box.read(inside, 0, DOWNLOAD_MAX + 1)
        except OSError:
            raise
        except errors.Error as problem:
            raise errors.SystemCallError(f"{inside!a:.200} cannot be read: {problem}",
                                         sys_errno=problem.sys_errno or errno.EIO) from problem
        if len(data) > DOWNLOAD_MAX:
            raise errors.SystemCallError(f"{inside!a:.200} is larger than {DOWNLOAD_MAX} bytes",
                                         sys_errno=errno.EFBIG)
        return data

    def list_dir(self, path: str, max_depth: int = 2) -> list[str]:
        guard(path)
        if max_depth < 0:
            raise InvalidError(f"max_depth must not be negative: {max_depth}")
        return [entry.path for entry in
                self.box.list(path, max_depth, max_entries=LIST_MAX)]

    def glob(self, path: str, pattern: str, *, include_dirs: bool = False,
             max_results: int = 200) -> tuple[list[str], bool]:
        return self.box.glob(guard(path), pattern, include_dirs=include_dirs,
                             max_results=max_results)

    def grep(self, path: str, pattern: str, *, glob: str | None = None, literal: bool = False,
             case_sensitive: bool = False,
             max_results: int = 100) -> tuple[list[GrepMatch], bool]:
        try:
            found, truncated = self.box.grep(
                guard(path), pattern, glob=glob, literal=literal, case_sensitive=case_sensitive,
                max_results=max_results)
        except errors.PatternError as problem:
            raise PatternProblem(problem, pattern) from None
        return [GrepMatch(path=match.path, line_number=match.line_number, line=match.line)
                for match in found], truncated

    def close(self) -> None:
        """Ends the use of the object; the box goes on."""
        self.box.close()


class PatternProblem(errors.PatternError, re.error):
    """A pattern that does not compile: a ValueError, and what Python's re raises."""

    def __init__(self, problem: errors.PatternError, pattern: str) -> None:
        errors.PatternError.__init__(self, problem.message, position=problem.position)
        self.msg = problem.message
        self.pattern = pattern
        self.pos = problem.position
        before = pattern[:problem.position]
        self.lineno = before.count("\n") + 1
        self.colno = len(before) - before.rfind("\n")

    def __reduce__(self) -> Any:
        return PatternProblem, (errors.PatternError(self.message, position=self.position),
                                self.pattern)


def settings_of(config: Any) -> dict[str, Any]:
    """The keys that the user set in DeerFlow's section `sandbox`. Its model carries
    defaults that mean nothing here."""
    names = getattr(config, "model_fields_set", None)
    if names is None:
        names = [name for name in vars(config) if not name.startswith("_")]
    found = {}
    for name in sorted(names):
        value = getattr(config, name, None)
        found[name] = _plain(value)
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json", exclude_unset=True))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _deerflow_settings() -> dict[str, Any]:
    try:
        from deerflow.config import get_app_config  # type: ignore[import]
    except ModuleNotFoundError as problem:
        if not _missing(problem):
            raise
        raise ImportError("CubbyProvider without a configuration reads DeerFlow's, and DeerFlow "
                          "is not installed: install deerflow-harness, or give `config`") from None
    return settings_of(get_app_config().sandbox)


def _capacity(problem: CapacityError) -> Exception:
    if CapacityExceeded is None:
        return problem
    try:
        made = CapacityExceeded(problem.message, active=problem.active, warm=problem.warm,
                                reserved=problem.reserved, replicas=problem.replicas)
    except TypeError:  # an older DeerFlow's takes fewer words
        made = CapacityExceeded(problem.message)
    result: Exception = made
    return result


class CubbyProvider(ProviderBase):
    """`config`: a dictionary of keys, else DeerFlow's section `sandbox`."""

    uses_thread_data_mounts = False
    needs_upload_permission_adjustment = True

    def __init__(self, config: Mapping[str, Any] | None = None, *,
                 home: str | None = None) -> None:
        settings = dict(_deerflow_settings() if config is None else config)
        # DeerFlow has resolved "$NAME" already, so a value may begin with a dollar now. It
        # goes with each command, and is stored nowhere.
        resolved = dict(settings.pop("environment", None) or {}) if config is None else {}
        check_env(resolved)
        self._environment = {name: str(value) for name, value in resolved.items()}
        self._home = Cubby(home, log=logger)
        try:
            self._provider = Provider(self._home, settings)
        except BaseException:
            self._home.close()
            raise
        self._sandboxes: dict[str, CubbySandbox] = {}

    # A dictionary's single steps are atomic; nothing here needs a lock of its own.

    def _keep(self, acquired: Acquired) -> str:
        known = self._sandboxes.get(acquired.id)
        if known is None or known.generation != acquired.generation or known.box.closed:
            self._sandboxes[acquired.id] = CubbySandbox(acquired.id, acquired.box,
                                                        self._environment, acquired.generation)
        else:
            acquired.box.close()
        return acquired.id

    def acquire(self, thread_id: str | None = None, *, user_id: str | None = None) -> str:
        try:
            return self._keep(self._provider.acquire(user_id, thread_id))
        except CapacityError as problem:
            raise _capacity(problem) from problem

    async def acquire_async(self, thread_id: str | None = None, *,
                            user_id: str | None = None) -> str:
        """The loop stays free. Cancelled, the box that comes of it waits for a retry."""
        try:
            return self._keep(await self._provider.acquire_async(user_id, thread_id))
        except CapacityError as problem:
            raise _capacity(problem) from problem

    def get(self, sandbox_id: str) -> CubbySandbox | None:
        """In memory; None for what is not active (any more)."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None:
            return None
        try:
            box = self._provider.get(sandbox_id)
        except (errors.Error, ValueError):
            box = None
        if box is None:
            self._sandboxes.pop(sandbox_id, None)
            return None
        box.close()
        return sandbox

    def release(self, sandbox_id: str) -> None:
        self._sandboxes.pop(sandbox_id, None)
        if not self._provider.closed:  # else its boxes have ended
            self._provider.release(sandbox_id)

    def reset(self) -> None:
        self._sandboxes.clear()
        if not self._provider.closed:
            self._provider.reset()

    def shutdown(self) -> None:
        """Ends every box of this provider. May be called again."""
        if self._provider.closed:
            return
        self._sandboxes.clear()
        left = self._provider.shutdown(60)
        if left:
            logger.warning("these boxes did not end in time: %s", " ".join(left))
            return
        self._provider.close()
        self._home.close()

    def status(self) -> dict[str, Any]:
        return self._provider.status()
