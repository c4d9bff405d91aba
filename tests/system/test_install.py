# SPDX-License-Identifier: Apache-2.0
"""`make install`, a program against the installed library, and an ordinary user."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import BUILD, Cubby, close_home

NOBODY = 65534


@pytest.fixture(scope="module")
def installed():
    """What `make install` puts in place, in a folder that everybody may read."""
    root = Path(tempfile.mkdtemp(prefix="cubby-install-"))
    root.chmod(0o755)
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
                    root], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    yield root
    shutil.rmtree(root)


def only(root, pattern):
    found = list(root.rglob(pattern))
    assert len(found) >= 1, f"no {pattern} was installed"
    return found[0]


def staged_environment(installed):
    return {"CUBBY_LIBEXEC": str(only(installed, "cubby-shim").parent),
            "LD_LIBRARY_PATH": str(only(installed, "libcubby.so.0").parent)}


@pytest.mark.parametrize("pattern", [
    "bin/cubby", "libcubby.so", "libcubby.so.0", "cubby-shim", "cubby-agent", "cubby.pc",
    "include/cubby/copy.h", "include/cubby/cubby.h", "include/cubby/error.h",
    "include/cubby/files.h", "include/cubby/search.h", "man1/cubby*.1*",
    "bash-completion/completions/cubby", "site-functions/_cubby", "vendor_completions.d/cubby.fish",
])
def test_what_is_installed(installed, pattern):
    only(installed, pattern)


def test_nothing_else_is_installed(installed):
    for path in installed.rglob("*"):
        assert "test" not in path.name and not path.name.endswith(".a"), path


PROGRAM = r"""
#include <cubby/cubby.h>
#include <stdio.h>

int main(int argc, char **argv)
{
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        cubby_error err = {0};
        cubby *home = NULL;
        cubby_image_list *images = NULL;

        options.home = argv[1];
        if (cubby_open(&options, &home, &err) < 0 || cubby_images(home, &images, &err) < 0) {
                fprintf(stderr, "%s\n", err.message);
                return 1;
        }
        printf("%s %zu\n", cubby_version(), images->count);
        cubby_image_list_free(images);
        cubby_close(home);
        return 0;
}
"""


def test_a_program_against_the_library(installed, tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    env = {**os.environ, "PKG_CONFIG_PATH": str(only(installed, "cubby.pc").parent),
           "PKG_CONFIG_SYSROOT_DIR": str(installed)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "cubby"], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
    for compiler in (["cc", "-std=c11", "-Wall", "-Werror", "-pedantic"],
                     ["cc", "-x", "c++", "-fsyntax-only"] if shutil.which("c++") else None):
        if compiler:
            subprocess.run([*compiler, source, "-o", program, *flags], check=True)
    home = tmp_path / "home"
    done = subprocess.run([program, home], capture_output=True, text=True, check=False,
                          env={**os.environ, **staged_environment(installed)})
    assert done.returncode == 0 and done.stdout.endswith(" 0\n"), done


def test_an_ordinary_user(installed, cubby, busybox_tar):
    """The whole way without root: import, boot, exec, stop, remove."""
    prefix = []
    base = Path(tempfile.mkdtemp(prefix="cubby-user-"))
    home = base / "home"
    shutil.copytree(cubby.home / "kernels", home / "kernels")
    shutil.copy(busybox_tar, base / "busybox.tar")
    home.chmod(0o700)
    if os.geteuid() == 0:
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                  "--no-new-privs"]
        for path in [base, *base.rglob("*")]:
            os.lchown(path, NOBODY, NOBODY)
    user = Cubby(home, command=only(installed, "bin/cubby"), prefix=prefix,
                 env={**staged_environment(installed), "HOME": str(base)})
    try:
        user.ok("image", "import", base / "busybox.tar", "--name", "busybox")
        disk = next((home / "rootfs").iterdir()) / "disk.erofs"
        same = next(p for p in (cubby.home / "rootfs").iterdir()
                    if p.name == disk.parent.name) / "disk.erofs"
        assert hashlib.sha256(disk.read_bytes()).digest() == \
            hashlib.sha256(same.read_bytes()).digest()
        user.ok("run", "-d", "--name", "mine", "-m", "256M", "busybox", "sleep", "1000")
        assert user.sh("mine", "id -u; stat -c %u /home/user").split() == ["0", "1000"]
        data = os.urandom(1 << 20)
        assert user("exec", "-i", "mine", "cat", input=data).out == data
        assert user("exec", "mine", "sh", "-c", "exit 3").code == 3
        names = sorted(name for _, name in user.processes("mine"))
        assert [n for n in names if n == "cubby-shim"] or os.geteuid() != 0
        user.ok("stop", "-t", "1", "mine")
        user.ok("start", "mine")
        user.ok("rm", "-f", "mine")
    finally:
        left = close_home(user)
        shutil.rmtree(base, ignore_errors=True)
    assert left == []
