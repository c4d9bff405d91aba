# SPDX-License-Identifier: Apache-2.0
"""The command line before any machine: help, usage errors, refusals, documents.

Nothing here opens a home, so nothing may be printed on stdout but what was asked for.
"""

import json
import os
import pty
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT, Cubby

OPTION = re.compile(r"^  (?:-(\w),|   ) --([\w-]+)(?: (\S+))?(?:  |$)", re.MULTILINE)
REFUSED_OF_RUN = [
    "volume", "mount", "volumes-from", "tmpfs", "read-only", "publish", "publish-all", "expose",
    "link", "net", "dns", "add-host", "ip", "privileged", "cap-add", "cap-drop", "security-opt",
    "sysctl", "userns", "ipc", "pid", "uts", "gpus", "device", "runtime", "restart", "init",
    "memory-swap", "cpu-shares", "cpuset-cpus", "ulimit", "shm-size", "oom-kill-disable",
    "storage-opt", "label-file", "group-add", "cidfile", "log-driver", "health-cmd", "attach",
    "detach-keys", "sig-proxy", "pull", "platform",
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The command with a home that is not there and is not to be made."""
    home = tmp_path_factory.mktemp("bare") / "home"
    yield Cubby(home)
    assert not home.exists()


def usage(bare, *arguments):
    result = bare(*arguments)
    assert result.code == 2 and result.out == b"", result
    assert result.err.startswith("cubby: ") and "\n" not in result.err[:-1], result
    return result.err


def commands():
    done = subprocess.run([BUILD / "cubby", "help"], capture_output=True, text=True, check=True)
    block = done.stdout.split("\nCommands:\n")[1].split("\n\n")[0]
    return [line[2:18].strip() for line in block.splitlines()]


def options_in_help(command):
    done = subprocess.run([BUILD / "cubby", *command.split(), "--help"], capture_output=True,
                          text=True, check=True)
    block = done.stdout.split("\nOptions:\n")[1].split("\nExamples:\n")[0]
    return {name: letter for letter, name, _ in OPTION.findall(block)}


COMMANDS = commands()


def test_the_commands_are_the_agreed_ones():
    assert set(COMMANDS) >= {
        "run", "create", "start", "stop", "kill", "rm", "ps", "exec", "logs", "inspect", "wait",
        "restart", "rename", "top", "stats", "attach", "pause", "unpause", "images",
        "image import", "image inspect", "image rm", "image tag", "image ls", "kernel ensure",
        "kernel add", "kernel ls",
        "version", "doctor", "gc", "completion", "help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help(bare, command):
    flag = bare(*command.split(), "--help")
    word = bare("help", *command.split())
    assert flag.code == word.code == 0 and flag.err == word.err == ""
    assert flag.out == word.out
    assert flag.text.startswith(f"Usage:  cubby {command}")
    assert "Examples:" in flag.text and f"cubby {command}" in flag.text.split("Examples:")[1]
    assert all(len(line) <= 79 and line == line.rstrip() for line in flag.text.splitlines())


def test_help_is_found_everywhere(bare):
    overview = bare("--help").out
    assert overview and bare("-h").out == bare("help").out == overview
    assert bare("image", "--help").out == bare("help", "image").out != b""
    assert bare("run", "-it", "--help", "--nonsense").code == 0
    assert "unknown command" in usage(bare, "help", "frobnicate")
    assert bare().code == 2 and bare("image").code == 2


def test_version(bare):
    text = bare("--version").text
    assert re.fullmatch(r"cubby \d+\.\d+\.\d+", text)
    document = json.loads(bare("version", "--format", "json").text)
    assert text == "cubby " + document["version"]
    assert bare("version", "--format", "{{.version}}").text == document["version"]
    assert bare("version", "-f", "{{json .version}}\\n").out.decode() == \
        f'"{document["version"]}"\n\n'


@pytest.mark.parametrize("option", REFUSED_OF_RUN)
def test_options_of_docker_are_refused_with_advice(bare, option):
    for command in ("run", "create"):
        for form in ([f"--{option}"], [f"--{option}=x"], [f"--{option}", "x"]):
            said = usage(bare, command, *form, "image", "true")
            assert said.startswith(f"cubby: --{option} is not offered: ") and len(said) > 50, said
    assert option not in options_in_help("run")


def test_advice_says_what_to_do_instead(bare):
    assert "cubby cp" in usage(bare, "run", "-v", "/a:/b", "image")
    assert "cubby cp" in usage(bare, "run", "-itv", "/a:/b", "image")
    assert "network" in usage(bare, "run", "-p", "80:80", "image")
    assert "network" in usage(bare, "run", "--network", "host", "image")
    assert "-u root" in usage(bare, "exec", "--privileged", "box", "id")
    assert "image import" in usage(bare, "pull", "debian")
    assert "cubby cp" in usage(bare, "export", "box")
    assert "ttl" in usage(bare, "run", "-d", "--timeout", "5s", "image")
    assert "cubby run -d" in usage(bare, "create", "-d", "image")


@pytest.mark.parametrize("arguments, says", [
    (["frobnicate"], "unknown command 'frobnicate'"),
    (["exce", "box"], "did you mean 'exec'"),
    (["image", "imprt"], "did you mean 'image import'"),
    (["snapshot", "ls"], "cubby template ls"),
    (["snapshot", "rm", "x"], "cubby template rm NAME"),
    (["snapshot", "frobnicate"], "unknown command 'snapshot frobnicate'"),
    (["spare", "rm"], "spare set 0"),
    (["system", "df"], "'cubby df'"),
    (["image", "prune"], "'cubby prune'"),
    (["ps", "--filter", "status=hung"], "suspended"),
    (["imagse"], "did you mean 'images'"),
    (["--hoem", "x"], "did you mean '--home'"),
    (["--home"], "--home needs a value"),
    (["-x"], "unknown option '-x'"),
    (["run", "--memroy", "1G", "image"], "did you mean '--memory'"),
    (["run", "--frobnicate", "image"], "unknown option '--frobnicate'"),
    (["run", "-itx", "image"], "unknown option '-x'"),
    (["run"], "usage: cubby run [OPTIONS] IMAGE"),
    (["run", "-it"], "usage: cubby run"),
    (["run", "--name"], "--name needs a value"),
    (["exec", "box"], "usage: cubby exec"),
    (["rename", "one"], "usage: cubby rename BOX NAME"),
    (["rename", "one", "two", "three"], "fewer arguments"),
    (["gc", "x"], "no arguments"),
    (["completion", "tcsh"], "bash, fish or zsh"),
    (["kill", "-s", "NOSUCH", "box"], "'NOSUCH' is not a signal"),
    (["kill", "-s", "0", "box"], "'0' is not a signal"),
    (["rm"], "needs a box"),
    (["rm", "-a", "box"], "name none"),
    (["start", "-a", "one", "two"], "only one"),
    (["stop", "-t", "soon", "box"], "--time: 'soon'"),
    (["stop", "-t", "-1", "box"], "--time: '-1'"),
    (["logs", "--tail", "x", "box"], "--tail: 'x'"),
    (["logs", "--since", "yesterday", "box"], "--since: 'yesterday'"),
    (["wait", "--timeout", "1", "box"], "--timeout: '1' is not a duration"),
    (["ps", "--format", "{{.Colour}}"], "no '.Colour'"),
    (["ps", "--format", "{{.ID"], "has no }}"),
    (["ps", "--format", "yaml"], "table, json"),
    (["ps", "--filter", "name"], "not KEY=VALUE"),
    (["ps", "--filter", "colour=red"], "'colour' is no key"),
    (["ps", "--filter", "status=asleep"], "'asleep' is no status"),
    (["ps", "-n", "0"], "--last: '0' is too small"),
    (["images", "--format", "{{.Colour}}"], "no '.Colour'"),
    (["run", "--format", "yaml", "image"], "--format: 'yaml'"),
    (["run", "--format", "json", "-t", "image"], "leave out -t"),
    (["run", "--idle", "image"], "add -d"),
    (["run", "-d", "--idle", "image", "true"], "--idle runs no command"),
    (["exec", "-d", "-i", "box", "true"], "leave out -i"),
    (["run", "--rm=maybe", "image"], "neither true nor false"),
    (["run", "-m", "12x", "image"], "--memory: '12x' is not a size; write for example 512M"),
    (["run", "-m", "1M", "image"], "--memory: '1M' is too small; from 64M to 4096G"),
    (["run", "-m", "99T", "image"], "--memory: '99T' is too large"),
    (["run", "-m", "0", "image"], "--memory: '0' is too small"),
    (["run", "-m", "", "image"], "--memory: ''"),
    (["run", "--memory=-5M", "image"], "--memory: '-5M'"),
    (["run", "--cpus", "0", "image"], "--cpus: '0' is too small; from 0.01 to 64"),
    (["run", "--cpus", "nan", "image"], "--cpus: 'nan'"),
    (["run", "--disk", "1", "image"], "--disk: '1' is too small"),
    (["run", "--timeout", "30", "image"], "--timeout: '30' is not a duration"),
    (["run", "--timeout", "0s", "image"], "--timeout: '0s' is too small"),
    (["run", "--ttl", "-1s", "image"], "--ttl: '-1s'"),
    (["run", "--pids-limit", "0", "image"], "--pids-limit: '0' is too small"),
    (["run", "-e", "1A=b", "image"], "--env: '1A' is not the name of a variable"),
    (["run", "-e", "A-B", "image"], "--env: 'A-B'"),
    (["run", "-e", "=x", "image"], "--env: ''"),
    (["run", "--label", "=x", "image"], "--label: '=x' has no name"),
    (["exec", "-e", "a b=c", "box", "true"], "--env: 'a b'"),
])
def test_usage_errors_name_the_thing(bare, arguments, says):
    assert says in usage(bare, *arguments)


def test_too_many_of_one_option(bare):
    words = [word for n in range(1025) for word in ("-e", f"A{n}=x")]
    assert "too often" in usage(bare, "run", *words, "image")


@pytest.mark.parametrize("text, says", [
    ("GOOD=1\n2BAD=1\n", ":2: '2BAD'"),
    ("=x\n", ":1: ''"),
    ("# only\n\nA B=c\n", ":3: 'A B'"),
])
def test_env_file_errors_name_the_line(bare, tmp_path, text, says):
    path = tmp_path / "env"
    path.write_text(text)
    assert f"--env-file: {path}{says}" in usage(bare, "run", "--env-file", path, "image")


@pytest.mark.parametrize("kind", ["missing", "folder", "large", "nul"])
def test_env_files_that_cannot_be_read(bare, tmp_path, kind):
    path = tmp_path / "env"
    if kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_text("A=" + "x" * (1 << 20))
    elif kind == "nul":
        path.write_bytes(b"A=1\0B=2\n")
    bare.fails("run", "--env-file", path, "image", says=str(path))


def test_control_bytes_in_errors_are_escaped(bare):
    said = usage(bare, "run", "-m", "\x1b[31mred\r\x7f", "image")
    assert "\\x1b[31mred\\x0d\\x7f" in said and "\x1b" not in said


def test_a_terminal_is_wanted_for_it(bare):
    bare.fails("run", "-it", "image", says="standard input is none")
    bare.fails("exec", "-it", "box", "sh", says="standard input is none")


def test_full_output_is_an_error(bare):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BUILD / "cubby", "help"], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    assert done.returncode == 125 and b"No space left" in done.stderr


def test_a_closed_pipe_ends_quietly(bare):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([BUILD / "cubby", "completion", "fish"], stdout=write,
                          stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 141 and done.stderr == b""


def help_on_a_terminal(**extra):
    master, slave = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    subprocess.run([BUILD / "cubby", "version", "--help"], stdout=slave, check=True,
                   env={**env, "TERM": "xterm", **extra})
    os.close(slave)
    text = os.read(master, 65536)
    os.close(master)
    return text


def test_colours_only_on_a_terminal_and_not_against_the_users_will(bare):
    assert b"\x1b[1m" in help_on_a_terminal()
    assert b"\x1b" not in help_on_a_terminal(NO_COLOR="1")
    assert b"\x1b" not in help_on_a_terminal(TERM="dumb")
    assert b"\x1b" not in bare("version", "--help").out


def manual():
    """{command: set of long options} from the manual page."""
    found, command = {}, None
    for line in (ROOT / "docs/man/cubby.1").read_text(encoding="utf-8").splitlines():
        if line.startswith(".Ss cubby "):
            words = [w for w in line.split()[2:] if re.fullmatch("[a-z]+", w)]
            command = " ".join(words)
            found[command] = {}
        elif line.startswith(".Sh"):
            command = None
        elif command and (match := re.match(r"\.It (?:Fl (\w) , )?Fl Fl ([\w-]+)", line)):
            found[command][match.group(2)] = match.group(1) or ""
    return found


def test_the_manual_lists_every_command_and_option():
    assert manual() == {command: {name: letter for name, letter in options_in_help(command).items()
                                  if name != "help"} for command in COMMANDS}


def test_the_manual_has_no_errors():
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-mandoc", "-Tutf8", "-ww", "-z", ROOT / "docs/man/cubby.1"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def completion(shell):
    return subprocess.run([BUILD / "cubby", "completion", shell], capture_output=True, text=True,
                          check=True).stdout


def complete_in_bash(*words):
    script = completion("bash") + "\n_cubby; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    setup = "COMP_WORDS=(" + " ".join(f"'{w}'" for w in ("cubby", *words)) + ")\n" \
        f"COMP_CWORD={len(words)}\n"
    done = subprocess.run(["bash", "-c", setup + script], capture_output=True, text=True,
                          check=True, env={"PATH": f"{BUILD}:/usr/bin:/bin"})
    return done.stdout.split()


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option(command):
    offered = complete_in_bash(*command.split(), "--")
    assert set(offered) == {f"--{name}" for name in options_in_help(command)}


def test_bash_completes_commands_and_words():
    assert set(complete_in_bash("")) == {c.split()[0] for c in COMMANDS}
    assert complete_in_bash("ex") == ["exec"]
    assert complete_in_bash("--home", "x", "ex") == ["exec"]
    assert set(complete_in_bash("image", "")) == {c.split()[1] for c in COMMANDS
                                                  if c.startswith("image ")}
    assert set(complete_in_bash("completion", "")) == {"bash", "fish", "zsh"}


def test_zsh_knows_every_option():
    text = completion("zsh")
    for command in COMMANDS:
        block = text.split(f"        '{command}')\n")[1].split("                ;;\n")[0]
        named = set(re.findall(r"--([\w-]+)(?=\[|\})", block))
        assert named == set(options_in_help(command)), command
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=text, text=True, check=True)


def test_fish_knows_every_option():
    text = completion("fish")
    for command in COMMANDS:
        lines = [line for line in text.splitlines() if f"'__cubby_is \"{command}\"' -l " in line]
        named = {re.search(r"-l ([\w-]+)", line).group(1):
                 (re.search(r" -s (\w)", line) or [None, ""])[1] for line in lines}
        assert named == {**options_in_help(command), "help": ""}, command
    if shutil.which("fish"):
        subprocess.run(["fish", "-n", "/dev/stdin"], input=text, text=True, check=True)


def test_the_scripts_for_bash_are_clean(tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    path = tmp_path / "cubby.bash"
    path.write_text(completion("bash"))
    done = subprocess.run(["shellcheck", "-s", "bash", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout
