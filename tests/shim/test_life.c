/* SPDX-License-Identifier: Apache-2.0 */

/* The real shim program over the fake engine: what a box's owner can rely on. */
#include "harness.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define LEAK_PAGES 8192 /* what is freed stays in the sanitizer's quarantine */
#else
#define LEAK_PAGES 64 /* what an allocator may keep */
#endif

static const struct box_setup idle = {0};

static void test_start_and_exec(void **state)
{
        const struct {
                const char *const *argv;
                const char *out, *err;
                uint32_t code, signal;
        } rows[] = {
                {ARGV("true"), "", "", 0, 0},
                {ARGV("false"), "", "", 1, 0},
                {ARGV("exit", "7"), "", "", 7, 0},
                {ARGV("kill", "11"), "", "", 0, 11},
                {ARGV("echo", "a", "b"), "a b\n", "", 0, 0},
                {ARGV("err", "oh"), "", "oh\n", 0, 0},
                {ARGV("env"), "COLOUR=green\n", "", 0, 0},
                {ARGV("pwd"), "/\n", "", 0, 0},
                {ARGV("sh", "-c", "exit 9"), "", "", 9, 0},
                {ARGV("sh", "-c", "nothing"), "", "sh: not found\n", 127, 0},
        };
        struct test_box box;
        box_start(&box, &idle);
        assert_string_equal(box.stages, "boot resume ");
        struct client *client = box_client(&box);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct outcome outcome;
                run(client, rows[i].argv, &outcome);
                assert_false(outcome.failed);
                assert_text(&outcome.out, rows[i].out);
                assert_text(&outcome.err, rows[i].err);
                assert_int_equal(outcome.exit.code, rows[i].code);
                assert_int_equal(outcome.exit.signal, rows[i].signal);
                outcome_free(&outcome);
        }
        client_close(client);
        box_drop(&box);
}

static void test_exec_errors(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        struct outcome outcome;
        run(client, ARGV("nothing-of-that-name"), &outcome);
        assert_true(outcome.failed);
        assert_int_equal(outcome.error.code, CUBBY_E_EXEC_NOT_FOUND);
        outcome_free(&outcome);
        static const struct {
                const char *user, *cwd;
        } rows[] = {{"ghost", "/"}, {"", "/missing"}, {"", "relative"}};
        for (size_t i = 0; i < 3; i++) {
                struct slice word = {.data = (const uint8_t *)"true", .size = 4};
                struct message_exec exec = {.argv = &word,
                        .argc = 1,
                        .user = {.data = (const uint8_t *)rows[i].user,
                                .size = strlen(rows[i].user)},
                        .cwd = {.data = (const uint8_t *)rows[i].cwd, .size = strlen(rows[i].cwd)}};
                uint64_t stream = client_new_stream(client);
                send_exec_full(client, stream, &exec);
                collect(client, stream, &outcome);
                assert_true(outcome.failed);
                assert_int_equal(outcome.error.code, CUBBY_E_INVALID);
                outcome_free(&outcome);
        }
        client_close(client);
        box_drop(&box);
}

static void test_stdin_and_timeout(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        uint64_t stream = send_exec(client, EXEC_STDIN, ARGV("cat"));
        static uint8_t piece[FRAME_DATA_MAX];
        memset(piece, 'z', sizeof piece);
        for (size_t i = 0; i < STREAM_WINDOW / sizeof piece; i++)
                assert_int_equal(client_send(client, FRAME_DATA, CHANNEL_STDIN, stream, piece,
                                         sizeof piece, soon(), NULL),
                        0);
        assert_int_equal(
                client_send(client, FRAME_EOF, CHANNEL_STDIN, stream, NULL, 0, soon(), NULL), 0);
        struct outcome outcome;
        collect(client, stream, &outcome);
        assert_int_equal(outcome.out.size, STREAM_WINDOW);
        assert_int_equal(outcome.exit.code, 0);
        outcome_free(&outcome);

        struct slice words[] = {{.data = (const uint8_t *)"stubborn", .size = 8},
                {.data = (const uint8_t *)"60", .size = 2}};
        struct message_exec exec = {.argv = words, .argc = 2, .timeout_ms = 100};
        stream = client_new_stream(client);
        send_exec_full(client, stream, &exec);
        collect(client, stream, &outcome);
        assert_int_equal(outcome.exit.signal, 9);
        assert_int_equal(outcome.exit.flags, EXIT_FLAG_TIMED_OUT);
        outcome_free(&outcome);
        client_close(client);
        box_drop(&box);
}

static void test_requests(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        (void)ping(client);
        (void)send_exec(client, 0, ARGV("sleep", "100"));
        struct frame frame;
        assert_int_equal(client_call(client, FRAME_PROCESSES, NULL, 0, FRAME_PROCESS_LIST, soon(),
                                 &frame, NULL),
                0);
        struct message_process entries[WIRE_PROCESSES_MAX];
        struct message_processes list = {.entries = entries};
        assert_true(message_processes_decode(
                (struct slice){.data = frame.payload, .size = frame.length}, &list));
        assert_int_equal(list.count, 1);
        assert_true(slice_equals(list.entries[0].command, "sleep"));
        struct message_metrics metrics;
        assert_int_equal(client_call(client, FRAME_METRICS, NULL, 0, FRAME_METRICS_REPLY, soon(),
                                 &frame, NULL),
                0);
        assert_true(message_metrics_decode(
                (struct slice){.data = frame.payload, .size = frame.length}, &metrics));
        assert_int_equal(metrics.memory_total, 256U << 20);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.state, SHIM_RUNNING);
        assert_int_equal(status.has_main, 0);
        assert_int_equal(status.shim_pid, box.shim.pid);
        assert_true(status.vmm_pid > 0);
        assert_int_equal(status.clients, 1);
        assert_int_equal(status.generation, 1);
        assert_int_equal(status.violations, 0);
        client_close(client);
        box_drop(&box);
}

static void test_command_output_is_whole(void **state)
{
        struct box_setup setup = {.argv = ARGV("echo", "first", "words")};
        struct test_box box;
        box_start(&box, &setup); /* it has ended already, most likely */
        assert_string_equal(box.stages, "boot resume command ");
        struct client *client = box_client(&box);
        struct outcome outcome;
        collect(client, send_attach(client, true), &outcome);
        assert_false(outcome.failed);
        assert_text(&outcome.out, "first words\n");
        assert_int_equal(outcome.exit.code, 0);
        outcome_free(&outcome);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "exited");
        assert_int_equal(exit.exit_code, 0);
        assert_int_equal(exit.generation, 1);
        assert_string_equal(exit.isolation, "none");
        assert_true(exit.finished_ns >= exit.started_ns);
        client_close(client);
        box_remove(&box);
}

static void test_command_with_stdin(void **state)
{
        struct box_setup setup = {.argv = ARGV("cat"), .open_stdin = true};
        struct test_box box;
        box_start(&box, &setup);
        struct client *one = box_client(&box);
        struct client *two = box_client(&box);
        struct client *other = box_client(&box); /* its pings order what the others send */
        uint64_t first = send_attach(one, true);
        uint64_t second = send_attach(two, true);
        assert_int_equal(
                client_send(one, FRAME_DATA, CHANNEL_STDIN, first, "one ", 4, soon(), NULL), 0);
        (void)ping(other);
        assert_int_equal(
                client_send(two, FRAME_DATA, CHANNEL_STDIN, second, "two ", 4, soon(), NULL), 0);
        (void)ping(other);
        assert_int_equal(
                client_send(one, FRAME_EOF, CHANNEL_STDIN, first, NULL, 0, soon(), NULL), 0);
        struct outcome outcome;
        collect(one, first, &outcome);
        assert_text(&outcome.out, "one two ");
        outcome_free(&outcome);
        collect(two, second, &outcome);
        assert_text(&outcome.out, "one two ");
        outcome_free(&outcome);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "exited");
        client_close(one);
        client_close(two);
        client_close(other);
        box_remove(&box);
}

static void test_resize(void **state)
{
        struct box_setup setup = {.argv = ARGV("winsize"), .tty = true, .open_stdin = true};
        struct test_box box;
        box_start(&box, &setup);
        struct client *client = box_client(&box);
        uint64_t stream = send_attach(client, true);
        uint8_t size[4];
        store_u16(size, 50);
        store_u16(size + 2, 132);
        assert_int_equal(client_send(client, FRAME_RESIZE, 0, stream, size, 4, soon(), NULL), 0);
        (void)ping(client);
        assert_int_equal(
                client_send(client, FRAME_EOF, CHANNEL_STDIN, stream, NULL, 0, soon(), NULL), 0);
        struct outcome outcome;
        collect(client, stream, &outcome);
        assert_text(&outcome.out, "50 132\n");
        outcome_free(&outcome);
        client_close(client);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        box_remove(&box);
}

/* How a box with a command ends, and what a waiting client is told. */
static void test_ends(void **state)
{
        const struct {
                const char *const *argv;
                uint16_t request; /* 0: none */
                uint32_t number;
                int64_t ttl_ms;
                const char *reason;
                int exit_code, signal;
                bool told; /* the client gets EXIT, not an error */
        } rows[] = {
                {ARGV("exit", "5"), 0, 0, 0, "exited", 5, 0, true},
                {ARGV("kill", "11"), 0, 0, 0, "exited", 139, 11, true},
                {ARGV("sleep", "60"), FRAME_SHIM_STOP, 5000, 0, "stopped", 143, 15, true},
                {ARGV("stubborn", "60"), FRAME_SHIM_STOP, 200, 0, "stopped", 137, 9, true},
                {ARGV("sleep", "60"), FRAME_SHIM_STOP, 0, 0, "stopped", 137, 9, true},
                {ARGV("sleep", "60"), FRAME_SHIM_KILL, 9, 0, "killed", 137, 9, true},
                {ARGV("sleep", "60"), FRAME_SHIM_KILL, 10, 0, "exited", 138, 10, true},
                {ARGV("sleep", "60"), 0, 0, 200, "ttl", 143, 15, true},
                {ARGV("sh", "-c", "sleep 0"), 0, 0, 0, "exited", 0, 0, true},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct box_setup setup = {.argv = rows[i].argv, .ttl_ms = rows[i].ttl_ms};
                struct test_box box;
                box_start(&box, &setup);
                struct client *waiter = box_client(&box);
                uint64_t stream = client_new_stream(waiter);
                assert_int_equal(
                        client_send(waiter, FRAME_SHIM_WAIT, 0, stream, NULL, 0, soon(), NULL), 0);
                if (rows[i].request != 0)
                        send_u32(waiter, rows[i].request, 0, client_new_stream(waiter),
                                rows[i].number);
                struct outcome outcome;
                collect(waiter, stream, &outcome);
                assert_int_equal(outcome.failed, !rows[i].told);
                assert_int_equal(outcome.exit.signal, rows[i].signal);
                if (rows[i].signal == 0)
                        assert_int_equal(outcome.exit.code, rows[i].exit_code);
                outcome_free(&outcome);
                assert_true(closes_within(waiter, SOON_MS));
                struct box_exit exit;
                box_wait_end(&box, &exit);
                assert_string_equal(exit.reason, rows[i].reason);
                assert_int_equal(exit.exit_code, rows[i].exit_code);
                assert_int_equal(exit.signal, rows[i].signal);
                client_close(waiter);
                box_remove(&box);
        }
}

static void test_stop_without_command(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        struct frame frame;
        cubby_error error;
        assert_int_equal(
                client_call(client, FRAME_SHIM_WAIT, NULL, 0, FRAME_EXIT, soon(), &frame, &error),
                -1);
        assert_int_equal(error.code, CUBBY_E_STATE);
        send_u32(client, FRAME_SHIM_STOP, 0, client_new_stream(client), 3000);
        assert_true(closes_within(client, SOON_MS));
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "stopped");
        assert_int_equal(exit.exit_code, -1);
        client_close(client);
        box_remove(&box);
}

/* box_wait_end takes the lock, though somebody else has its open file too. */
static void test_lock_is_given_up(void **state)
{
        struct test_box box;
        struct box_setup setup = {.keeps_lock = true};
        box_start(&box, &setup);
        assert_true(box.lock_fd >= 0);
        box_drop(&box);
}

static void test_sigterm_stops(void **state)
{
        struct box_setup setup = {.argv = ARGV("sleep", "60")};
        struct test_box box;
        box_start(&box, &setup);
        static const int ignored[] = {SIGHUP, SIGINT, SIGPIPE};
        for (size_t i = 0; i < 3; i++)
                assert_int_equal(kill(box.shim.pid, ignored[i]), 0);
        struct client *client = box_client(&box);
        (void)ping(client);
        assert_int_equal(kill(box.shim.pid, SIGTERM), 0);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "stopped");
        assert_int_equal(exit.exit_code, 143);
        client_close(client);
        box_remove(&box);
}

static void test_machine_ends(void **state)
{
        static const struct {
                const char *command, *reason;
        } rows[] = {{"crash", "vmm-died"}, {"poweroff", "guest-shutdown"}};
        for (size_t i = 0; i < 2; i++) {
                struct test_box box;
                struct box_setup setup = {.argv = ARGV("sleep", "60")};
                box_start(&box, &setup);
                struct client *client = box_client(&box);
                uint64_t attached = send_attach(client, true);
                uint64_t sleeper = send_exec(client, 0, ARGV("sleep", "60"));
                (void)ping(client);
                int64_t start = clock_monotonic_ms();
                (void)send_exec(client, 0, ARGV(rows[i].command));
                int failed = 0;
                struct frame frame;
                while (client_next(client, soon(), &frame, NULL) == 0)
                        if (frame.type == FRAME_ERROR) {
                                cubby_error error;
                                (void)client_error(
                                        (struct slice){.data = frame.payload, .size = frame.length},
                                        &error);
                                assert_int_equal(error.code, CUBBY_E_BOX_DEAD);
                                failed += frame.stream == attached || frame.stream == sleeper;
                        }
                assert_int_equal(failed, 2);
                assert_true(clock_monotonic_ms() - start < 5000);
                struct box_exit exit;
                box_wait_end(&box, &exit);
                assert_string_equal(exit.reason, rows[i].reason);
                assert_int_equal(exit.exit_code, -1);
                assert_true(strlen(exit.detail) > 0);
                client_close(client);
                box_remove(&box);
        }
}

static void test_frozen_machine(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        (void)send_exec(client, 0, ARGV("hang"));
        struct frame frame;
        cubby_error error;
        assert_int_equal(client_call(client, FRAME_PING, NULL, 0, FRAME_PONG,
                                 deadline_after_ms(300), &frame, &error),
                -1);
        assert_int_equal(error.code, CUBBY_E_TIMEOUT);
        /* Requests pile up to the ceiling, then they are refused; nobody waits. */
        struct client *pusher = box_client(&box);
        struct slice words[] = {{.data = (const uint8_t *)"true", .size = 4}};
        static uint8_t large[WIRE_ARGUMENT_MAX];
        memset(large, 'e', sizeof large);
        struct slice env[8];
        for (size_t i = 0; i < 8; i++)
                env[i] = (struct slice){.data = large, .size = sizeof large};
        struct message_exec exec = {.argv = words, .argc = 1, .env = env, .envc = 8};
        int busy = 0;
        for (int i = 0; i < 8; i++)
                send_exec_full(pusher, client_new_stream(pusher), &exec);
        while (busy == 0 && client_next(pusher, deadline_after_ms(3000), &frame, NULL) == 0)
                if (frame.type == FRAME_ERROR) {
                        (void)client_error(
                                (struct slice){.data = frame.payload, .size = frame.length},
                                &error);
                        assert_int_equal(error.code, CUBBY_E_BUSY);
                        busy++;
                }
        assert_true(busy > 0);
        struct message_status status; /* the shim itself answers */
        get_status(client, &status);
        client_close(client);
        client_close(pusher);
        box_drop(&box);
}

static void test_pause(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        struct frame frame;
        cubby_error error;
        cubby_error_clear(&error);
        assert_int_equal(
                client_call(client, FRAME_SHIM_UNPAUSE, NULL, 0, FRAME_OK, soon(), &frame, &error),
                -1);
        assert_int_equal(error.code, CUBBY_E_STATE);
        assert_int_equal(
                client_call(client, FRAME_SHIM_PAUSE, NULL, 0, FRAME_OK, soon(), &frame, NULL), 0);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.state, SHIM_PAUSED);
        assert_int_equal(
                client_call(client, FRAME_PING, NULL, 0, FRAME_PONG, soon(), &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_STATE);
        assert_int_equal(
                client_call(client, FRAME_SHIM_UNPAUSE, NULL, 0, FRAME_OK, soon(), &frame, NULL),
                0);
        (void)ping(client);
        client_close(client);
        box_drop(&box);
}

static uint64_t log_bytes(const struct test_box *box, const char *name, bool *ret_whole)
{
        AUTO_BUFFER struct buffer log;
        buffer_init(&log, 16U << 20);
        uint64_t bytes = 0;
        assert_int_equal(file_read_at(box->dir_fd, name, &log, NULL), 0);
        assert_true(log.size <= 8U << 20);
        struct reader reader = reader_over(log.data, log.size);
        while (reader.left > 0 && !reader.failed) {
                uint64_t time_ns = 0;
                uint8_t stream = 0;
                struct slice data = {0};
                if (reader_u64(&reader, &time_ns) && reader_u8(&reader, &stream) &&
                        reader_slice(&reader, FRAME_DATA_MAX, &data)) {
                        bytes += data.size;
                        assert_true(stream == 1 || stream == 2);
                        assert_true(time_ns > 1600000000ULL * 1000000000ULL);
                }
        }
        *ret_whole = reader_done(&reader);
        return bytes;
}

static void test_kept_log(void **state)
{
        struct test_box box;
        struct box_setup setup = {.argv = ARGV("yes")};
        box_start(&box, &setup);
        struct stat info;
        int64_t deadline = soon();
        while (fstatat(box.dir_fd, "log.1", &info, 0) < 0 && clock_monotonic_ms() < deadline)
                (void)poll(NULL, 0, 20);
        struct client *client = box_client(&box);
        uint64_t stream = send_attach(client, true); /* while it is rotated away beneath it */
        uint64_t bytes = 0;
        struct frame frame;
        while (bytes < 20U << 20) {
                must_next(client, &frame);
                if (frame.stream != stream)
                        continue;
                assert_int_equal(frame.type, FRAME_DATA);
                assert_memory_equal(frame.payload, "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n", 32);
                bytes += frame.length;
                send_u32(client, FRAME_CREDIT, frame.flags, stream, frame.length);
        }
        send_u32(client, FRAME_SHIM_KILL, 0, client_new_stream(client), 9);
        assert_true(closes_within(client, SOON_MS));
        client_close(client);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        bool whole = false;
        assert_true(log_bytes(&box, "log", &whole) > 0 && whole);
        assert_true(log_bytes(&box, "log.1", &whole) > 7U << 20);
        assert_true(whole);
        /* A torn end is cut off, and the next run's attach shows that run only. */
        int fd = openat(box.dir_fd, "log", O_WRONLY | O_APPEND | O_CLOEXEC);
        assert_int_equal(write(fd, "torn record", 11), 11);
        close(fd);
        struct box_setup again = {.argv = ARGV("echo", "again")};
        struct test_box second = box;
        box_make(&box, &again);
        assert_int_equal(renameat(second.dir_fd, "log", box.dir_fd, "log"), 0);
        box_remove(&second);
        box_launch(&box, &again);
        assert_int_equal(box.report.kind, REPORT_READY);
        client = box_client(&box);
        struct outcome outcome;
        collect(client, send_attach(client, true), &outcome);
        assert_text(&outcome.out, "again\n");
        outcome_free(&outcome);
        client_close(client);
        box_wait_end(&box, &exit);
        uint64_t kept = log_bytes(&box, "log", &whole);
        if (kept < 6)
                fail_msg("%llu bytes are kept", (unsigned long long)kept);
        assert_true(whole);
        box_remove(&box);
}

static bool is_gone(pid_t pid)
{
        int64_t deadline = soon();
        while (clock_monotonic_ms() < deadline) {
                char path[64];
                (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
                char text[256] = "";
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                if (fd < 0)
                        return true;
                ssize_t got = read(fd, text, sizeof text - 1);
                close(fd);
                if (got <= 0 || strstr(text, ") Z") != NULL)
                        return true;
                (void)poll(NULL, 0, 20);
        }
        return false;
}

static void test_killed_shim_leaves_nobody(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(kill(box.shim.pid, SIGKILL), 0);
        assert_true(closes_within(client, SOON_MS));
        assert_true(is_gone((pid_t)status.vmm_pid));
        struct client *late = NULL;
        cubby_error error;
        assert_int_equal(client_connect(box.dir_fd, soon(), &late, &error), -1);
        assert_int_equal(error.code, CUBBY_E_BOX_DEAD);
        client_close(client);
        child_kill(&box.shim);
        /* The leftovers of the dead one do not disturb the next start. */
        box_launch(&box, &idle);
        assert_int_equal(box.report.kind, REPORT_READY);
        box_drop(&box);
}

static void test_failed_starts(void **state)
{
        static const struct {
                const char *engine, *script, *command;
                int code;
                const char *text, *reason;
        } rows[] = {
                {"fake", "", "missing-command", CUBBY_E_EXEC_NOT_FOUND,
                        "'missing-command': not found in the PATH of the box", "exec-failed"},
                {"fake", "", "crash", CUBBY_OK, "", "vmm-died"},
                {"nothing", "", NULL, CUBBY_E_UNSUPPORTED, "nothing", "boot-failed"},
                {"script", "mute", NULL, CUBBY_E_VMM, "waiting for the agent", "boot-failed"},
                {"script", "old-version", NULL, CUBBY_E_VERSION, "version 99", "boot-failed"},
                {"script", "boot-garbage", NULL, CUBBY_E_PROTOCOL, "broke the protocol",
                        "protocol"},
                {"script", "wrong-nonce", NULL, CUBBY_E_VMM, "preparing", "boot-failed"},
                {"script", "huge-generation", NULL, CUBBY_E_VMM, "preparing", "boot-failed"},
                {"script", "boot-error", NULL, CUBBY_E_VMM,
                        "waiting for the agent: the agent gave up: stage 'root disks': no ?[2Jdisk",
                        "boot-failed"},
                {"script", "boot-error", NULL, CUBBY_E_VMM, "x; the end of its console:\nconsole ",
                        "boot-failed"},
                {"script", "boot-error", NULL, CUBBY_E_VMM, "\nconsole line 162:", "boot-failed"},
                {"script", "boot-error", NULL, CUBBY_E_VMM,
                        "line 199: the guest says a word or two", "boot-failed"},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                const char *const argv[] = {rows[i].command, NULL};
                struct box_setup setup = {.engine = rows[i].engine,
                        .script = rows[i].script,
                        .argv = rows[i].command == NULL ? NULL : argv,
                        .boot_timeout_ms = 700};
                struct test_box box;
                box_make(&box, &setup);
                box_launch(&box, &setup);
                assert_true(box.reported);
                if (rows[i].code != CUBBY_OK) {
                        assert_int_equal(box.report.kind, REPORT_FAILED);
                        if (box.report.code != rows[i].code ||
                                strstr(box.report.text, rows[i].text) == NULL)
                                fail_msg("row %zu: %d '%s'", i, box.report.code, box.report.text);
                }
                struct box_exit exit;
                box_wait_end(&box, &exit);
                assert_string_equal(exit.reason, rows[i].reason);
                box_remove(&box);
        }
}

static void test_second_shim_is_refused(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        int lock = openat(box.dir_fd, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC);
        assert_true(lock >= 0);
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        const char *const argv[] = {getenv("CUBBY_TEST_SHIM"), NULL};
        struct spawn_fd fds[] = {
                {box.dir_fd, SHIM_FD_BOX}, {pair[1], SHIM_FD_STATUS}, {lock, SHIM_FD_LOCK}};
        struct spawn_options options = {.argv = argv, .fds = fds, .fd_count = 3};
        struct child second = CHILD_NONE;
        assert_int_equal(spawn(&options, &second, NULL), 0);
        struct shim_report report = {0};
        assert_int_equal(recv(pair[0], &report, sizeof report, 0), sizeof report);
        assert_int_equal(report.kind, REPORT_FAILED);
        assert_int_equal(report.code, CUBBY_E_BUSY);
        int status = 0;
        assert_int_equal(child_wait(&second, soon(), &status, NULL), 0);
        struct client *client = box_client(&box); /* the first one is not disturbed */
        (void)ping(client);
        assert_int_equal(faccessat(box.dir_fd, BOX_EXIT_NAME, F_OK, 0), -1);
        client_close(client);
        close(pair[0]);
        close(pair[1]);
        close(lock);
        box_drop(&box);
}

/* A process that the creator forked while it started the box has the creator's lock open. */
static void test_killed_shim_whose_lock_was_inherited(void **state)
{
        struct box_setup setup = idle;
        setup.keeps_lock = true;
        struct test_box box;
        box_start(&box, &setup);
        int lock = openat(box.dir_fd, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC);
        assert_true(lock >= 0);
        assert_int_equal(flock(lock, LOCK_SH | LOCK_NB), -1);
        struct flock record = BOX_ALIVE_RECORD;
        assert_int_equal(fcntl(lock, F_OFD_GETLK, &record), 0);
        assert_int_equal(record.l_type, F_WRLCK);
        child_kill(&box.shim);
        assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
        record = BOX_ALIVE_RECORD;
        assert_int_equal(fcntl(lock, F_OFD_GETLK, &record), 0);
        assert_int_equal(record.l_type, F_UNLCK);
        close(lock);
        box_remove(&box);
}

static void test_no_leak(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        long before = 0;
        for (int i = 0; i < 2000; i++) {
                struct outcome outcome;
                run(client, ARGV("echo", "x"), &outcome);
                assert_text(&outcome.out, "x\n");
                outcome_free(&outcome);
                if (i == 200)
                        before = resident_pages(&box);
        }
        long after = resident_pages(&box);
        if (before <= 0 || after > before + LEAK_PAGES)
                fail_msg("the shim's pages: %ld, then %ld", before, after);
        client_close(client);
        box_drop(&box);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_start_and_exec),
                cmocka_unit_test(test_exec_errors),
                cmocka_unit_test(test_stdin_and_timeout),
                cmocka_unit_test(test_requests),
                cmocka_unit_test(test_command_output_is_whole),
                cmocka_unit_test(test_command_with_stdin),
                cmocka_unit_test(test_resize),
                cmocka_unit_test(test_ends),
                cmocka_unit_test(test_stop_without_command),
                cmocka_unit_test(test_lock_is_given_up),
                cmocka_unit_test(test_sigterm_stops),
                cmocka_unit_test(test_machine_ends),
                cmocka_unit_test(test_frozen_machine),
                cmocka_unit_test(test_pause),
                cmocka_unit_test(test_kept_log),
                cmocka_unit_test(test_killed_shim_leaves_nobody),
                cmocka_unit_test(test_failed_starts),
                cmocka_unit_test(test_second_shim_is_refused),
                cmocka_unit_test(test_killed_shim_whose_lock_was_inherited),
                cmocka_unit_test(test_no_leak),
        };
        if (argc > 1) /* a pattern of names */
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, kill_leftovers);
}
