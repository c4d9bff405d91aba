# SPDX-License-Identifier: Apache-2.0
"""The examples run, and the guide's code is theirs."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import BUILD, ROOT
from support import LIBRARY, PACKAGE

EXAMPLES = sorted((ROOT / "examples").glob("*.*"))
GUIDES = {"python": ["docs/python.md"], "c": ["docs/agents.md"], "sh": ["docs/agents.md"]}


def run(cubby, *command):
    env = cubby.environment({"PYTHONPATH": str(PACKAGE), "CUBBY_LIBRARY": str(LIBRARY),
                             "PATH": f"{BUILD}:{os.environ['PATH']}"})
    done = subprocess.run([*command, "busybox"], env=env, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def drained(cubby):
    yield cubby
    cubby.ok("pool", "drain")


def test_python(drained):
    out = run(drained, sys.executable, ROOT / "examples/agent.py")
    assert "0 sum: 42\n" in out and "f /mnt/user-data/outputs/report.txt\n" in out
    assert "/mnt/user-data/outputs/report.txt 1 sum: 42" in out and "nonexistent" in out


def test_streams(drained):
    out = run(drained, sys.executable, ROOT / "examples/stream.py")
    assert "stdout b'1\\n'\n" in out and "ended with 0" in out
    assert "['red', 'green', 'blue']" in out and "timed out: True" in out


def test_c(drained):
    assert "0 sum: 42\n" in run(drained, BUILD / "examples/example-agent")


def test_shell(drained):
    out = run(drained, ROOT / "examples/agent.sh")
    assert "sum: 42\n" in out and "report.txt" in out


def blocks(path, language):
    text = (ROOT / path).read_text(encoding="utf-8")
    return [textwrap.dedent(block).strip("\n") for block in
            re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("language, paths", GUIDES.items())
def test_the_guides_code_is_that_of_the_examples(language, paths):
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES]
    for path in paths:
        found = blocks(path, language)
        assert len(found) >= 3
        for block in found:
            at_any_depth = [re.sub(r"(?m)^(?=.)", " " * depth, block) + "\n"
                            for depth in range(0, 20, 4)]
            assert any(indented in text for indented in at_any_depth for text in texts), \
                f"{path}: not in any example:\n{block}"


def test_the_readme(drained):
    (block,) = blocks("README.md", "python")
    out = run(drained, sys.executable, "-c", block)
    assert re.match(r"\d+\.\d+\.", out)
