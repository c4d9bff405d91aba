# SPDX-License-Identifier: Apache-2.0
"""Terminals: -t on run, exec and attach, driven through a pty of the host."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest


class Terminal:
    """A command of ours on a new terminal."""

    def __init__(self, cubby, *args, rows=31, columns=97):
        self.master, slave = pty.openpty()
        self.resize(rows, columns, signal_it=False)
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def controlling():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*cubby.command, *map(str, args)], stdin=slave, stdout=slave, stderr=slave,
            env=cubby.environment({"TERM": "xterm"}), preexec_fn=controlling)
        self.seen = ""

    def resize(self, rows, columns, signal_it=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if signal_it:
            self.process.send_signal(signal.SIGWINCH)

    def send(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern, seconds=30):
        """Reads on until `pattern` is there; what was read up to its end is used up."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen[-500:]!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        self.seen = self.seen[match.end():]
        return match

    def finish(self, seconds=30):
        code = self.process.wait(seconds)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was not put back"
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(cubby):
    opened = []

    def start(*args, **options):
        opened.append(Terminal(cubby, *args, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_exec_on_a_terminal(terminal, box):
    term = terminal("exec", "-it", box, "sh")
    term.send("tty; stty size; echo $TERM; echo to-stderr >&2; exit 6\n")
    term.expect(r"/dev/pts/\d+")
    term.expect("31 97")
    term.expect("xterm")
    term.expect("to-stderr\r\n")
    assert term.finish() == 6


def test_resize(terminal, box):
    term = terminal("exec", "-it", box, "sh", "-c",
                    "trap 'stty size' WINCH; echo up; while :; do sleep 0.1; done")
    term.expect("up")
    term.resize(44, 132)
    term.expect("44 132")
    term.send("\x03")
    term.finish()


def test_interrupt_key_reaches_the_command_only(terminal, box):
    term = terminal("exec", "-it", box, "sh", "-c",
                    "trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.1; done")
    term.expect("up")
    term.send("\x03")
    term.expect("caught")
    assert term.finish() == 4


def test_end_of_file_key(terminal, box):
    term = terminal("exec", "-it", box, "cat")
    term.send("hello\n")
    term.expect("hello\r\nhello\r\n")
    term.send("\x04")
    assert term.finish() == 0


def test_run_on_a_terminal(terminal):
    term = terminal("run", "-it", "-m", "256M", "busybox", "sh")
    term.expect("# ", 60)
    term.send("stty size; exit 3\n")
    term.expect("31 97")
    assert term.finish() == 3


def test_the_terminal_comes_back_after_a_kill(terminal, cubby, box):
    term = terminal("exec", "-it", box, "sh", "-c", "echo up; sleep 1000")
    term.expect("up")
    term.process.send_signal(signal.SIGTERM)
    assert term.finish() != 0


def test_attach_and_detach(terminal, cubby):
    cubby.ok("run", "-dit", "--name", "seated", "-m", "256M", "busybox", "sh")
    term = terminal("attach", "seated")
    term.send("x=41\n")
    term.send("echo value $((x + 1))\n")
    term.expect("value 42")
    term.send("\x10\x11")  # ctrl-p ctrl-q
    assert term.finish() == 0
    assert cubby.state("seated") == "running"
    again = terminal("attach", "seated")
    again.send("echo still $x; exit 5\n")
    again.expect("still 41")
    assert again.finish() == 5


def test_t_without_a_terminal_is_refused_or_harmless(cubby, box):
    result = cubby("exec", "-t", box, "tty")
    assert result.code in (0, 125), result
    if result.code == 0:
        assert result.text.startswith("/dev/pts/")
