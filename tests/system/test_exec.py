# SPDX-License-Identifier: Apache-2.0
"""`cubby exec` in a running box."""

import os
import subprocess
import time

import pytest
from conftest import wait_for

MIB = 1 << 20


def test_output_and_errors_apart(cubby, box):
    result = cubby("exec", box, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.code, result.out, result.err) == (3, b"out\n", "err\n")


@pytest.mark.parametrize("script, code", [
    ("exit 0", 0), ("exit 1", 1), ("exit 255", 255),
    ("kill -TERM $$", 143), ("kill -SEGV $$", 139), ("kill -HUP $$", 129),
])
def test_exit_codes(cubby, box, script, code):
    assert cubby("exec", box, "sh", "-c", script).code == code


def test_arguments_reach_the_command_untouched(cubby, box):
    arguments = ["", " ", "a  b", "$HOME", "`id`", "*", "\"'\\", "line\nbreak", "-x", "--",
                 "ünïcode", "\x01\x7f"]
    result = cubby("exec", box, "printf", "%s\\n[end]\\n", *arguments)
    assert result.out.decode().split("\n[end]\n")[:-1] == arguments


def test_no_shell_is_involved(cubby, box):
    assert cubby.ok("exec", box, "echo", "$(id); true | false > /x") == "$(id); true | false > /x"


def test_environment(cubby, box):
    out = cubby.ok("exec", "-e", "A=1=2", "-e", "B=", "-e", "FROM", box, "env",
                   env={"FROM": "outside"}).splitlines()
    assert {"A=1=2", "B=", "FROM=outside"} <= set(out)
    assert any(line.startswith("PATH=") for line in out)
    assert any(line == "HOME=/root" for line in out)
    assert not any(line.startswith("CUBBY_HOME") for line in out)


def test_values_reach_that_process_only(cubby, box):
    cubby.ok("exec", "-e", "SECRET=hush", box, "true")
    assert "hush" not in cubby.ok("exec", box, "env")
    assert "hush" not in cubby.ok("inspect", box)


def test_workdir(cubby, box):
    assert cubby.ok("exec", "-w", "/usr/bin", box, "pwd") == "/usr/bin"


@pytest.mark.parametrize("user, shown", [
    ("user", "uid=1000(user) gid=1000(user)"),
    ("1000", "uid=1000(user) gid=1000(user)"),
    ("4242", "uid=4242 gid=0"),
    ("nobody:users", "uid=65534(nobody) gid=100(users)"),
    ("4242:77", "uid=4242 gid=77"),
    ("root", "uid=0(root) gid=0(root)"),
])
def test_user(cubby, box, user, shown):
    assert cubby.ok("exec", "-u", user, box, "id").startswith(shown)


def test_home_follows_the_user(cubby, box):
    assert cubby.sh(box, "echo $HOME", "-u", "user") == "/home/user"
    assert "groups=" in cubby.ok("exec", "-u", "user", box, "id")
    assert "100(users)" in cubby.ok("exec", "-u", "user", box, "id")


def test_stdin_8_mib_byte_exact(cubby, box):
    data = os.urandom(8 * MIB + 12345)
    result = cubby("exec", "-i", box, "cat", input=data, timeout=120)
    assert result.code == 0 and result.out == data


def test_stdin_ends(cubby, box):
    assert cubby.ok("exec", "-i", box, "wc", "-c", input=b"") == "0"
    assert cubby("exec", "-i", box, "sh", "-c", "read a; echo [$a]", input=b"x\ny\n").out == b"[x]\n"


def test_a_command_that_does_not_read_its_stdin(cubby, box):
    start = time.monotonic()
    result = cubby("exec", "-i", box, "echo", "done", input=b"x" * (4 * MIB))
    assert (result.code, result.out) == (0, b"done\n")
    assert time.monotonic() - start < 20


def test_binary_output(cubby, box):
    script = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done"
    assert cubby("exec", box, "sh", "-c", script).out == bytes(range(256))


def test_200_outputs_complete(cubby, box):
    want = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    cubby.ok("exec", "-i", box, "sh", "-c", "cat > /tmp/numbers", input=want)
    bad = [n for n in range(200) if cubby("exec", box, "cat", "/tmp/numbers").out != want]
    assert bad == []


def test_output_of_a_fast_child_is_complete(cubby, box):
    for _ in range(30):
        result = cubby("exec", box, "sh", "-c", "head -c 65536 /dev/zero; exit 9")
        assert (result.code, len(result.out)) == (9, 65536)


def test_large_output(cubby, box):
    result = cubby("exec", box, "head", "-c", str(64 * MIB), "/dev/zero", timeout=120)
    assert result.code == 0 and len(result.out) == 64 * MIB


def test_timeout_kills_the_whole_tree(cubby, box):
    script = ("setsid sleep 777 & (trap '' TERM HUP INT; sleep 778) & "
              "sh -c 'sleep 779 & exit 0'; sleep 780")
    start = time.monotonic()
    result = cubby("exec", "--timeout", "1s", box, "sh", "-c", script)
    assert result.code == 124, result
    assert time.monotonic() - start < 8
    wait_for(lambda: "sleep 77" not in cubby.ok("top", box), 5, "the end of the tree")
    assert "sleep 78" not in cubby.ok("top", box)


def test_timeout_not_reached(cubby, box):
    assert cubby("exec", "--timeout", "60s", box, "sh", "-c", "exit 5").code == 5


def test_detached(cubby, box):
    cubby.sh(box, "rm -f /tmp/mark")
    start = time.monotonic()
    result = cubby("exec", "-d", box, "sh", "-c", "sleep 2; echo later > /tmp/mark")
    assert result.code == 0 and time.monotonic() - start < 2
    wait_for(lambda: cubby("exec", box, "cat", "/tmp/mark").out == b"later\n", 10, "its file")


def test_background_child_does_not_hold_the_call(cubby, box):
    start = time.monotonic()
    result = cubby("exec", box, "sh", "-c", "echo now; sleep 50 & exit 4")
    assert (result.code, result.out) == (4, b"now\n")
    assert time.monotonic() - start < 10


def test_a_vanished_client_takes_its_command_along(cubby, box):
    client = cubby.popen("exec", box, "sh", "-c", "setsid sleep 991 & sleep 992")
    wait_for(lambda: "sleep 992" in cubby.ok("top", box), 10, "the command")
    client.kill()
    client.wait()
    client.stdout.close()
    client.stderr.close()
    wait_for(lambda: "sleep 99" not in cubby.ok("top", box), 10, "the end of the command")


def test_signals_are_passed_on(cubby, box):
    client = cubby.popen("exec", box, "sh", "-c",
                         "trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.1; done")
    assert client.stdout.readline() == b"up\n"
    client.terminate()
    out, _ = client.communicate(timeout=20)
    assert (client.returncode, out) == (9, b"got\n")


def test_closed_output_ends_the_command(cubby, box):
    client = cubby.popen("exec", box, "yes", "flood")
    assert client.stdout.readline() == b"flood\n"
    client.stdout.close()
    client.stderr.close()
    assert client.wait(timeout=20) != 0
    wait_for(lambda: "yes flood" not in cubby.ok("top", box), 10, "the end of yes")


def test_a_flood_does_not_block_others(cubby, box):
    flood = cubby.popen("exec", box, "yes", stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        slowest = max(cubby("exec", box, "echo", "x").seconds for _ in range(10))
        assert flood.poll() is None
        assert slowest < 5
    finally:
        flood.kill()
        flood.communicate()


def test_a_reader_that_stalls_does_not_block_others(cubby, box):
    stalled = cubby.popen("exec", box, "yes")
    try:
        time.sleep(1)
        assert cubby("exec", box, "echo", "x").out == b"x\n"
        shim = [pid for pid, name in cubby.processes(box) if name == "cubby-shim"]
        with open(f"/proc/{shim[0]}/status", encoding="ascii") as status:
            rss = [int(line.split()[1]) for line in status if line.startswith("VmRSS")][0]
        assert rss < 16 * 1024, f"{rss} KiB"
    finally:
        stalled.kill()
        stalled.communicate()


def test_many_at_once(cubby, box):
    clients = [cubby.popen("exec", box, "sh", "-c", f"sleep 0.5; echo {n}") for n in range(16)]
    for n, client in enumerate(clients):
        out, err = client.communicate(timeout=60)
        assert (client.returncode, out) == (0, f"{n}\n".encode()), err


def test_500_short_ones_leave_nothing(cubby, box):
    count = "ls /proc | grep -c '^[0-9]'"
    before = int(cubby.sh(box, count))
    for _ in range(500):
        assert cubby("exec", box, "true").code == 0
    assert int(cubby.sh(box, count)) <= before + 1


@pytest.mark.parametrize("options, command, code, says", [
    ([], ["no-such-program"], 127, "no-such-program"),
    ([], ["/no/such/program"], 127, "/no/such/program"),
    ([], ["/etc/passwd"], 126, "/etc/passwd"),
    ([], ["/etc"], 126, "/etc"),
    (["-w", "/no/such/folder"], ["true"], 125, "/no/such/folder"),
    (["-w", "/etc/passwd"], ["true"], 125, "/etc/passwd"),
    (["-u", "stranger"], ["true"], 125, "stranger"),
    (["-u", "root:strangers"], ["true"], 125, "strangers"),
    (["-u", "4294967296"], ["true"], 125, "4294967296"),
    (["-u", "-1"], ["true"], 125, "-1"),
    (["-u", "a:b:c"], ["true"], 125, "a:b:c"),
    (["-e", "1A=x"], ["true"], 2, "1A"),
    (["-e", "A B=x"], ["true"], 2, "A B"),
    (["-e", "=x"], ["true"], 2, "''"),
    (["-e", "BASH_FUNC_x%%=() { :; }"], ["true"], 2, "BASH_FUNC_x%%"),
])
def test_refused(cubby, box, options, command, code, says):
    cubby.fails("exec", *options, box, *command, code=code, says=says)


def test_script_with_a_missing_interpreter(cubby, box):
    cubby.sh(box, "printf '#!/no/interpreter\\n' > /tmp/s; chmod +x /tmp/s; "
                  "printf 'no magic' > /tmp/t; chmod +x /tmp/t")
    assert cubby("exec", box, "/tmp/s").code in (126, 127)
    assert cubby("exec", box, "/tmp/t").code == 126


def test_an_argument_list_beyond_the_limit(cubby, box, tmp_path):
    result = cubby("exec", box, "true", *["x" * 100_000] * 10)
    assert result.code == 0, result
    result = cubby("exec", box, "true", *["x" * 100_000] * 15)
    assert result.code in (125, 126) and result.err, result
    long_value = tmp_path / "env"  # longer than the host passes in one argument
    long_value.write_text("A=" + "x" * 131_072 + "\n")
    result = cubby("exec", "--env-file", str(long_value), box, "true")
    assert result.code in (125, 126) and result.err, result
    assert cubby.ok("exec", box, "echo", "fine") == "fine"


def test_an_empty_name_of_a_command(cubby, box):
    result = cubby("exec", box, "")
    assert result.code in (125, 127) and result.err, result


def test_unknown_box(cubby, box):
    cubby.fails("exec", "nobody-here", "true", says="nobody-here")


def test_by_beginning_of_the_id(cubby, box):
    assert cubby.ok("exec", cubby.box_id(box)[:8], "echo", "hi") == "hi"
