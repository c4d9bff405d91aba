# SPDX-License-Identifier: Apache-2.0
"""The declarations in Python are those of cubby.h: a drift fails here."""

import ctypes
import inspect
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD
from support import ROOT, package

from cubby import _abi, _library

INCLUDE = ROOT / "include"
HEADER = INCLUDE / "cubby/cubby.h"
STRUCTS = {kind._name_: kind for _, kind in inspect.getmembers(_abi, inspect.isclass)
           if issubclass(kind, ctypes.Structure) and hasattr(kind, "_name_")}


def headers():
    text = "".join(path.read_text() for path in sorted((INCLUDE / "cubby").glob("*.h")))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """{"struct.field": (offset, size)}, {"NAME": value} as the C compiler sees them."""
    lines = []
    for name, kind in STRUCTS.items():
        lines.append(f'printf("{name} 0 %zu\\n", sizeof({name}));')
        for field, *_ in kind._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f'sizeof((({name} *)0)->{field}));')
    for name in constants():
        lines.append(f'printf("{name} 0 %zu\\n", (size_t){name});')
    folder = tmp_path_factory.mktemp("abi")
    (folder / "abi.c").write_text("#include <cubby/cubby.h>\n#include <stdio.h>\n"
                                  "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run([os.environ.get("CC", "cc"), f"-I{INCLUDE}", folder / "abi.c", "-o",
                    folder / "abi"], check=True)
    done = subprocess.run([folder / "abi"], capture_output=True, text=True, check=True)
    return {name: (int(offset), int(size)) for name, offset, size in
            (line.split() for line in done.stdout.splitlines())}


def constants():
    return {**{f"CUBBY_{name}": i for i, name in enumerate(_abi.CODES)},
            **{f"CUBBY_BOX_{name}": i for i, name in enumerate(_abi.BOX_STATES)},
            **{f"CUBBY_LOG_{name}": i for i, name in enumerate(_abi.LOG_LEVELS)},
            **{f"CUBBY_SERVED_{name}": i for i, name in enumerate(_abi.SERVED, 1)},
            **{f"CUBBY_WATCH_{name}": i for i, name in enumerate(_abi.WATCH_KINDS, 1)},
            "CUBBY_EVENT_STDOUT": _abi.EVENT_STDOUT, "CUBBY_EVENT_STDERR": _abi.EVENT_STDERR,
            "CUBBY_EVENT_EXIT": _abi.EVENT_EXIT, "CUBBY_E_CODE_MAX": len(_abi.CODES),
            "CUBBY_ERROR_MESSAGE_MAX": _abi.ERROR_MESSAGE_MAX}


@pytest.mark.parametrize("name", STRUCTS)
def test_structs(compiled, name):
    kind = STRUCTS[name]
    fields = {field: (getattr(kind, field).offset, getattr(kind, field).size)
              for field, *_ in kind._fields_}
    assert {field: compiled[f"{name}.{field}"] for field in fields} == fields
    assert compiled[name] == (0, ctypes.sizeof(kind))


def test_constants(compiled):
    assert {name: compiled[name][1] for name in constants()} == constants()


SCALARS = {"int": ctypes.c_int, "bool": ctypes.c_bool, "size_t": ctypes.c_size_t,
           "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "int32_t": ctypes.c_int32,
           "uint32_t": ctypes.c_uint32, "uint16_t": ctypes.c_uint16, "void": None}


def ctype_of(declaration, result=False):
    """The ctypes of a parameter (or result) as C declares it."""
    text = declaration.replace("const ", "").strip()
    if re.match(r"char \*(?!\*)", text) and "const char" in declaration:
        return ctypes.c_char_p
    if "*" in text or "[" in text:
        return ctypes.c_void_p
    word = text.split()[0]
    if word == "cubby_log_fn":
        return _abi.LOG_LINE_FN
    return SCALARS[word]


def declared():
    """{name: (result, arguments)} of every call in the headers."""
    found = {}
    for part in headers().split(";"):
        match = re.search(r"CUBBY_API\s+(.*?)\b(cubby_\w+)\((.*)\)\s*$", " ".join(part.split()))
        if match:
            result, name, rest = match.groups()
            given = [] if rest == "void" else [ctype_of(p) for p in rest.split(",")]
            result = "const char *" if result.strip() == "const char *" else result
            found[name] = (ctype_of(result), given)
    return found


def test_prototypes():
    header = declared()
    assert len(header) > 80
    bound = _abi.PROTOTYPES
    assert set(header) == set(bound) | set(_abi.NOT_BOUND)
    assert not set(bound) & set(_abi.NOT_BOUND)
    # Strings that were read from a `char *` out-parameter aside, types must agree.
    assert {name: header[name] for name in bound} == {
        name: (result, given) for name, (result, given) in bound.items()}


def test_the_built_library_has_every_call():
    for name in _abi.PROTOTYPES:
        assert getattr(_library.lib, name).restype is _abi.PROTOTYPES[name][0]


def test_every_struct_of_the_header_that_a_bound_call_uses_is_there():
    used = {word for part in headers().split(";") if "CUBBY_API" in part
            for word in re.findall(r"\bcubby_\w+\b", part)}
    named = set(re.findall(r"\}\s*(cubby_\w+);", " ".join(headers().split())))
    assert (used & named) - {"cubby_result"} <= set(STRUCTS)


def test_versions_agree():
    meson = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text()).group(1)
    header = re.search(r'CUBBY_VERSION "([\d.]+)"', HEADER.read_text()).group(1)
    assert meson == header == package.__version__ == _library.lib.cubby_version().decode()


@pytest.mark.parametrize("system, machine, fine", [
    ("linux", "x86_64", True), ("linux", "aarch64", True), ("linux", "riscv64", False),
    ("darwin", "arm64", False), ("win32", "AMD64", False)])
def test_platforms(monkeypatch, system, machine, fine):
    monkeypatch.setattr(_library.sys, "platform", system)
    monkeypatch.setattr(_library.platform, "machine", lambda: machine)
    if fine:
        _library.check_platform()
        return
    with pytest.raises(ImportError, match="Linux on x86-64 or arm64"):
        _library.check_platform()


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CUBBY_LIBRARY", "/nonexistent/libcubby.so.0")
    with pytest.raises(ImportError, match="apt-get install .*libarchive"):
        _library.load()


def test_where_make_install_puts_it_is_looked_at(monkeypatch):
    monkeypatch.delenv("CUBBY_LIBRARY")
    listed = json.loads(subprocess.run(["meson", "introspect", "--installed", BUILD], check=True,
                                       capture_output=True, text=True).stdout)
    options = json.loads(subprocess.run(["meson", "introspect", "--buildoptions", BUILD],
                                        check=True, capture_output=True, text=True).stdout)
    prefix = next(o["value"] for o in options if o["name"] == "prefix")
    (folder,) = {Path(to).parent for to in listed.values()
                 if Path(to).name.startswith("libcubby.so.")}
    assert str(Path("/usr/local") / folder.relative_to(prefix) / _library.SONAME) in \
        _library.candidates()


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(_library, "__version__", "9.9.0")
    with pytest.raises(ImportError, match="this package needs 9.9.0"):
        _library.load()
