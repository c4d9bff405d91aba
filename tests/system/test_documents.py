# SPDX-License-Identifier: Apache-2.0
"""What the documents say is run, and what they point to exists."""

import re
import shutil
import subprocess
import textwrap

import pytest
from conftest import BUILD, ROOT

DOCUMENTS = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"),
                               *ROOT.glob("tests/*.md")])
RUN = ["README.md", "CONTRIBUTING.md", "tests/README.md"]


def blocks(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    return [textwrap.dedent(block) for block in
            re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("path", RUN)
def test_commands(own_home, cubby, path):
    lines = [line for block in blocks(path) for line in block.splitlines()]
    doors = {line for line in lines if re.match(r"make\b", line)}
    script = [line for line in lines if line not in doors]
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for door in doors - {"make", "make deps"}:  # make demo runs these two
        target = door.split()[1]
        assert re.search(rf"make (--\S+ )*{target}\b", ci), f"{door} is not run by .ci/run"
    if not script:
        return
    shutil.copytree(cubby.home / "kernels", own_home.home / "kernels", dirs_exist_ok=True)
    env = own_home.environment({"PATH": f"{BUILD}:/usr/sbin:/usr/bin:/sbin:/bin"})
    done = subprocess.run(["bash", "-euxo", "pipefail", "-c", "\n".join(script)], cwd=ROOT,
                          env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    if path == "README.md":
        assert "HELLO" in done.stdout and "done" in done.stdout


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_doors_of_the_makefile_are_listed():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    doors = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split()) - {"all", "help"}
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    assert doors <= set(re.findall(r"make (\w+)", done.stdout))


def test_install_deps_knows_its_groups():
    done = subprocess.run([ROOT / "scripts/install-deps", "nonsense"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and "nonsense" in done.stderr


def test_the_busybox_image_is_reproducible(tmp_path, busybox_tar):
    again = tmp_path / "again.tar"
    subprocess.run([ROOT / "scripts/make-busybox-image", again], check=True, umask=0o077)
    assert again.read_bytes() == busybox_tar.read_bytes()
