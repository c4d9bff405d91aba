# SPDX-License-Identifier: Apache-2.0
"""Every code of the library is an exception of the built-in kind that a program expects."""

import errno
import pickle
import re

import pytest
from support import package

from cubby import _abi, errors

ROWS = [
    ("SYSTEM", errno.EIO, OSError, errno.EIO), ("SYSTEM", 0, OSError, 0),
    ("SYSTEM", errno.EPIPE, BrokenPipeError, errno.EPIPE),
    ("NO_MEMORY", 0, MemoryError, None), ("INVALID", 0, ValueError, None),
    ("INVALID", errno.EINVAL, ValueError, None),
    ("INVALID", errno.EISDIR, IsADirectoryError, errno.EISDIR),
    ("INVALID", errno.ENOTDIR, NotADirectoryError, errno.ENOTDIR),
    ("INVALID", errno.ELOOP, OSError, errno.ELOOP),
    ("INVALID", errno.ENAMETOOLONG, OSError, errno.ENAMETOOLONG),
    ("INVALID", errno.ENOTEMPTY, OSError, errno.ENOTEMPTY),
    ("INVALID", errno.EXDEV, OSError, errno.EXDEV),
    ("INVALID", errno.E2BIG, OSError, errno.E2BIG),
    ("NOT_FOUND", errno.ENOENT, FileNotFoundError, errno.ENOENT),
    ("NOT_FOUND", 0, FileNotFoundError, errno.ENOENT),
    ("EXISTS", 0, FileExistsError, errno.EEXIST), ("BUSY", 0, OSError, errno.EBUSY),
    ("STATE", 0, RuntimeError, None), ("TIMEOUT", 0, TimeoutError, errno.ETIMEDOUT),
    ("CLOSED", 0, RuntimeError, None), ("CLOSED", errno.EPIPE, BrokenPipeError, errno.EPIPE),
    ("CANCELLED", 0, RuntimeError, None), ("PROTOCOL", 0, ConnectionError, errno.ECONNRESET),
    ("BOX_DEAD", 0, ConnectionError, errno.ECONNRESET), ("VMM", 0, RuntimeError, None),
    ("KERNEL", 0, RuntimeError, None), ("UNSUPPORTED", 0, NotImplementedError, None),
    ("PERMISSION", errno.EACCES, PermissionError, errno.EACCES),
    ("PERMISSION", errno.EROFS, PermissionError, errno.EROFS),
    ("IMAGE", 0, ValueError, None), ("DIGEST", 0, ValueError, None),
    ("LIMIT", errno.EFBIG, OSError, errno.EFBIG), ("LIMIT", 0, OSError, errno.E2BIG),
    ("NO_SPACE", 0, OSError, errno.ENOSPC), ("CORRUPT", 0, RuntimeError, None),
    ("VERSION", 0, RuntimeError, None), ("EXEC_NOT_FOUND", 0, FileNotFoundError, errno.ENOENT),
    ("EXEC_REFUSED", 0, PermissionError, errno.EACCES),
    ("EXEC_REFUSED", errno.E2BIG, OSError, errno.E2BIG), ("CAPACITY", 0, RuntimeError, None),
    ("IDENTITY", 0, RuntimeError, None), ("SHUTDOWN", 0, RuntimeError, None)]


@pytest.mark.parametrize("code, number, kind, shown", ROWS)
def test_kinds(code, number, kind, shown):
    given = _abi.CubbyError(_abi.CODES.index(f"E_{code}"), number, "what failed: why".encode())
    problem = errors.from_struct(given)
    assert isinstance(problem, package.Error) and isinstance(problem, kind)
    assert str(problem) == "what failed: why" and problem.code == code
    assert getattr(problem, "errno", None) == shown
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is type(problem) and str(again) == str(problem)
    assert again.code == code and getattr(again, "errno", None) == shown


def test_every_code_has_a_row():
    assert {row[0] for row in ROWS} == {name.removeprefix("E_") for name in _abi.CODES[1:]}


def test_what_an_error_carries_travels_too():
    full = package.CapacityError("full")
    full.active, full.replicas = 3, 4
    again = pickle.loads(pickle.dumps(full))
    assert (again.active, again.replicas, again.code, str(again)) == (3, 4, "CAPACITY", "full")
    failed = package.CommandFailed("it failed")
    failed.result = ("what", "it left")
    assert pickle.loads(pickle.dumps(failed)).result == failed.result


@pytest.mark.parametrize("pattern, position", [("a(", 2), ("a\nb[", 3), ("\n\n(", 2), ("*", 0)])
def test_an_error_of_a_pattern_is_like_that_of_re(pattern, position):
    from cubby import deerflow
    problem = deerflow.PatternProblem(package.PatternError("why", position=position), pattern)
    like = re.error("why", pattern, position)
    for one in (problem, pickle.loads(pickle.dumps(problem))):
        assert isinstance(one, re.error) and isinstance(one, ValueError) and str(one) == "why"
        assert [getattr(one, name) for name in ("msg", "pattern", "pos", "lineno", "colno")] == \
            [getattr(like, name) for name in ("msg", "pattern", "pos", "lineno", "colno")]


def test_a_code_of_a_newer_library():
    problem = errors.from_struct(_abi.CubbyError(999, 5, b"news"))
    assert isinstance(problem, OSError) and problem.errno == 5
