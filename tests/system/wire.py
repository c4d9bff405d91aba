# SPDX-License-Identifier: Apache-2.0
"""The agent protocol for tests: frames, messages, and a small client.

Only the standard library. docs/protocol.md and src/wire/wire.h are the truth;
this is a second, independent reading of them.
"""

import os
import socket
import struct
import time

HEADER = struct.Struct("<IHHQQ")
STREAM_WINDOW = 256 * 1024
DATA_MAX = 32 * 1024

TYPES = {
    "HELLO": 1, "RESUME": 2, "RESUMED": 3, "PING": 4, "PONG": 5, "ERROR": 6,
    "FREEZE": 7, "FROZEN": 8, "THAW": 9, "THAWED": 10, "SHUTDOWN": 11, "OK": 12,
    "EXEC": 32, "EXEC_STARTED": 33, "DATA": 34, "EOF": 35, "CREDIT": 36,
    "RESIZE": 37, "SIGNAL": 38, "EXIT": 39, "CANCEL": 40, "PROCESSES": 41,
    "PROCESS_LIST": 42, "METRICS": 43, "METRICS_REPLY": 44,
}
NAMES = {number: name for name, number in TYPES.items()}
STDIN, STDOUT, STDERR = 0, 1, 2
TTY, USE_STDIN, DETACH, MAIN = 1, 2, 4, 8
TIMED_OUT, OOM, INCOMPLETE = 1, 2, 4

E_INVALID, E_STATE, E_LIMIT, E_NOT_FOUND, E_REFUSED = 3, 7, 19, 23, 24


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(text(value) for value in values)


def exec_payload(argv, env=(), flags=0, timeout_ms=0, rows=0, columns=0, user="", cwd=""):
    return (struct.pack("<IIHH", flags, timeout_ms, rows, columns) + text(user) + text(cwd)
            + texts(argv) + texts(env))


def resume_payload(nonce, box_id="test", hostname="test", cpu_milli=0, pids_max=0,
                   entropy=None, realtime_ns=None):
    return (struct.pack("<Q", nonce) + (entropy or os.urandom(64))
            + struct.pack("<QII", realtime_ns or time.time_ns(), cpu_milli, pids_max)
            + text(box_id) + text(hostname))


class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, layout):
        layout = struct.Struct("<" + layout)
        values = layout.unpack_from(self.data)
        self.data = self.data[layout.size:]
        return values if len(values) > 1 else values[0]

    def text(self):
        size = self.take("I")
        value, self.data = self.data[:size], self.data[size:]
        assert len(value) == size
        return value

    def done(self):
        assert self.data == b"", "bytes left over"


def read_exit(payload):
    keys = ("code", "signal", "flags", "user_us", "system_us", "max_rss")
    reader = Reader(payload)
    result = dict(zip(keys, reader.take("IIIQQQ")))
    reader.done()
    return result


def read_error(payload):
    reader = Reader(payload)
    code, number = reader.take("II")
    message = reader.text().decode()
    reader.done()
    return {"error": code, "errno": number, "text": message}


def read_processes(payload):
    reader = Reader(payload)
    truncated, count = reader.take("BI")
    keys = ("pid", "parent", "uid", "state", "cpu_us", "rss", "age_ms")
    entries = []
    for _ in range(count):
        entry = dict(zip(keys, reader.take("IIIBQQQ")))
        entry["command"] = reader.text()
        entries.append(entry)
    reader.done()
    return truncated, entries


def read_metrics(payload):
    keys = ("uptime_ms", "cpu_us", "memory_total", "memory_available", "memory_workload",
            "disk_total", "disk_free", "processes")
    reader = Reader(payload)
    result = dict(zip(keys, reader.take("QQQQQQQI")))
    reader.done()
    return result


class Wire:
    """One connection. Frames that nobody waits for are kept by stream."""

    def __init__(self, connection, timeout=60):
        self.socket = connection
        self.socket.settimeout(timeout)
        self.session = 0
        self.next_stream = 1
        self.buffer = bytearray()

    def new_stream(self):
        self.next_stream += 1
        return self.next_stream

    def send(self, kind, stream=0, payload=b"", flags=0, session=None):
        session = self.session if session is None else session
        self.socket.sendall(HEADER.pack(len(payload), TYPES[kind], flags, session, stream) + payload)

    def fill(self):
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError("the connection was closed")
        self.buffer += data

    def frame(self):
        """The next frame as (type name, flags, session, stream, payload)."""
        while len(self.buffer) < HEADER.size:
            self.fill()
        length, kind, flags, session, stream = HEADER.unpack_from(self.buffer)
        assert length <= 64 * 1024, "frame from the guest is too long"
        end = HEADER.size + length
        while len(self.buffer) < end:
            self.fill()
        payload = bytes(self.buffer[HEADER.size:end])
        del self.buffer[:end]
        return NAMES[kind], flags, session, stream, payload

    def expect(self, kind, stream=None):
        while True:
            got, flags, session, of_stream, payload = self.frame()
            if got == kind and (stream is None or of_stream == stream):
                return payload
            if got == "ERROR":
                raise RuntimeError(read_error(payload))

    def resume(self, nonce, **options):
        self.send("RESUME", 0, resume_payload(nonce, **options), session=nonce)
        payload = self.expect("RESUMED")
        self.session = nonce
        keys = ("nonce", "generation", "memory_bytes", "cpus")
        return dict(zip(keys, Reader(payload).take("QQQI")))

    def ping(self, payload=b"x"):
        stream = self.new_stream()
        self.send("PING", stream, payload)
        assert self.expect("PONG", stream) == payload

    def call(self, kind, reply):
        stream = self.new_stream()
        self.send(kind, stream)
        return self.expect(reply, stream)

    def run(self, argv, stdin=None, **options):
        """Runs a command to its end; gives a dict with out, err and what EXIT or ERROR said."""
        return Run(self, argv, stdin, **options).finish()


class Run:
    """A command that goes on while the test does other things."""

    def __init__(self, wire, argv, stdin=None, **options):
        self.wire = wire
        self.stream = wire.new_stream()
        self.result = {}
        self.output = {STDOUT: bytearray(), STDERR: bytearray()}
        self.taken = {STDOUT: 0, STDERR: 0}
        self.input = memoryview(stdin) if stdin is not None else None
        self.window = STREAM_WINDOW
        self.pid = None
        self.give_credit = True
        flags = options.pop("flags", 0) | (USE_STDIN if stdin is not None else 0)
        wire.send("EXEC", self.stream, exec_payload(argv, flags=flags, **options))
        self.feed()

    def feed(self):
        while self.input is not None and self.window > 0 and len(self.input) > 0:
            size = min(DATA_MAX, self.window, len(self.input))
            self.wire.send("DATA", self.stream, bytes(self.input[:size]), STDIN)
            self.input = self.input[size:]
            self.window -= size
        if self.input is not None and len(self.input) == 0:
            self.wire.send("EOF", self.stream, b"", STDIN)
            self.input = None

    def handle(self, kind, flags, payload):
        if kind == "EXEC_STARTED":
            self.pid = Reader(payload).take("I")
        elif kind == "DATA":
            self.output[flags] += payload
            self.taken[flags] += len(payload)
            if self.give_credit and self.taken[flags] >= STREAM_WINDOW // 4:
                self.wire.send("CREDIT", self.stream, struct.pack("<I", self.taken[flags]), flags)
                self.taken[flags] = 0
        elif kind == "CREDIT":
            self.window += Reader(payload).take("I")
            self.feed()
        elif kind == "EXIT":
            self.result = read_exit(payload)
        elif kind == "ERROR":
            self.result = read_error(payload)

    def step(self, others=()):
        kind, flags, session, stream, payload = self.wire.frame()
        assert session == self.wire.session
        for run in (self, *others):
            if run.stream == stream:
                run.handle(kind, flags, payload)
        return kind, stream

    def finish(self, others=()):
        while not self.result:
            self.step(others)
        return {**self.result, "out": bytes(self.output[STDOUT]),
                "err": bytes(self.output[STDERR]), "pid": self.pid}


def connect(path, timeout=60):
    """Waits for a Unix socket and connects to it."""
    end = time.monotonic() + timeout
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return Wire(connection, timeout)
        except OSError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
