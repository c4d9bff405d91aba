/* SPDX-License-Identifier: Apache-2.0 */

/* Clients of the shim: many, slow, gone, broken, hostile. */
#include "harness.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const struct box_setup idle = {0};

static size_t count_processes(struct client *client)
{
        struct frame frame;
        struct message_process entries[WIRE_PROCESSES_MAX];
        struct message_processes list = {.entries = entries};
        assert_int_equal(client_call(client, FRAME_PROCESSES, NULL, 0, FRAME_PROCESS_LIST, soon(),
                                 &frame, NULL),
                0);
        assert_true(message_processes_decode(
                (struct slice){.data = frame.payload, .size = frame.length}, &list));
        return list.count;
}

static void test_client_vanishes(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *watcher = box_client(&box);
        for (int i = 0; i < 20; i++) {
                struct client *client = box_client(&box);
                (void)send_exec(client, 0, ARGV("yes"));
                (void)send_exec(client, EXEC_STDIN, ARGV("cat"));
                (void)ping(client);
                client_close(client);
        }
        struct client *client = box_client(&box);
        (void)send_exec(client, EXEC_DETACH, ARGV("sleep", "60"));
        (void)ping(client);
        client_close(client);
        int64_t deadline = soon();
        while (count_processes(watcher) != 1 && clock_monotonic_ms() < deadline)
                (void)poll(NULL, 0, 20);
        assert_int_equal(count_processes(watcher), 1); /* the detached one */
        struct message_status status;
        get_status(watcher, &status);
        assert_int_equal(status.violations, 0);
        assert_int_equal(status.clients, 1);
        client_close(watcher);
        box_drop(&box);
}

static void test_cancel(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *client = box_client(&box);
        uint64_t stream = send_exec(client, 0, ARGV("sleep", "60"));
        assert_int_equal(client_send(client, FRAME_CANCEL, 0, stream, NULL, 0, soon(), NULL), 0);
        struct outcome outcome;
        collect(client, stream, &outcome);
        assert_int_equal(outcome.exit.signal, 9);
        outcome_free(&outcome);
        send_u32(client, FRAME_SIGNAL, 0, stream, 15); /* late: no harm */
        (void)ping(client);
        client_close(client);
        box_drop(&box);
}

static int by_time(const void *a, const void *b)
{
        int64_t left = *(const int64_t *)a;
        int64_t right = *(const int64_t *)b;
        return left < right ? -1 : left > right;
}

static void test_flood_beside_ping(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *flooded = box_client(&box);
        struct client *other = box_client(&box);
        uint64_t stream = send_exec(flooded, 0, ARGV("yes"));
        int64_t times[200];
        uint64_t bytes = 0;
        for (size_t i = 0; i < 200; i++) {
                struct frame frame;
                for (int n = 0; n < 8; n++) {
                        must_next(flooded, &frame);
                        if (frame.type != FRAME_DATA)
                                continue;
                        bytes += frame.length;
                        send_u32(flooded, FRAME_CREDIT, frame.flags, stream, frame.length);
                }
                times[i] = ping(other);
        }
        qsort(times, 200, sizeof times[0], by_time);
        print_message("ping beside a flood: p50 %.3f ms, p99 %.3f ms, %llu MiB passed\n",
                (double)times[100] / 1e6, (double)times[198] / 1e6,
                (unsigned long long)(bytes >> 20));
        assert_true(bytes > 10U << 20);
        assert_true(times[198] < 2000000000); /* a deadline, not a measurement */
        client_close(flooded);
        client_close(other);
        box_drop(&box);
}

/* Takes output of the stream until `bytes` have come or nothing more comes for 500 ms. */
static uint64_t take_output(struct client *client, uint64_t stream, uint64_t bytes)
{
        uint64_t taken = 0;
        struct frame frame;
        while (taken < bytes && client_next(client, deadline_after_ms(500), &frame, NULL) == 0) {
                if (frame.stream != stream || frame.type != FRAME_DATA)
                        continue;
                taken += frame.length;
                send_u32(client, FRAME_CREDIT, frame.flags, stream, frame.length);
        }
        return taken;
}

/* A client that does not read: an exec's is stopped by its window, an attached one
 * slows the command, for all who are attached, as long as its connection lives. */
static void test_slow_clients(void **state)
{
        static const uint64_t far = 64U << 20;
        struct test_box box;
        struct box_setup setup = {.argv = ARGV("yes")};
        box_start(&box, &setup);
        struct client *lazy = box_client(&box);
        (void)send_exec(lazy, 0, ARGV("yes"));
        struct client *asleep = box_client(&box);
        uint64_t asleep_stream = send_attach(asleep, true);
        struct client *reader = box_client(&box);
        uint64_t stream = send_attach(reader, true);
        uint64_t bytes = take_output(reader, stream, far);
        assert_true(bytes < far);
        (void)poll(NULL, 0, 2500); /* longer than any other time of the shim under test */
        struct message_status status;
        get_status(lazy, &status);
        assert_int_equal(status.clients, 3);
        /* it wakes up: nothing was lost for it, and both go on */
        assert_true(take_output(asleep, asleep_stream, 1U << 20) >= 1U << 20);
        client_close(asleep);
        assert_true(take_output(reader, stream, 4U << 20) >= 4U << 20);
        client_close(lazy);
        client_close(reader);
        box_drop(&box);
}

#define WORD_SIZE (100U << 10)
#define WORD_COUNT 7U
#define WORDS_OUTPUT (WORD_COUNT * (WORD_SIZE + 1))

/* A command that prints more than a client's window, and ends. */
static const char *const *long_echo(void)
{
        static char words[WORD_COUNT][WORD_SIZE + 1];
        static const char *argv[WORD_COUNT + 2] = {"echo"};
        for (size_t i = 0; i < WORD_COUNT; i++) {
                memset(words[i], 'a' + (int)i, WORD_SIZE);
                argv[i + 1] = words[i];
        }
        return argv;
}

static void assert_long_echo(const struct buffer *output)
{
        assert_int_equal(output->size, WORDS_OUTPUT);
        for (size_t i = 0; i < WORDS_OUTPUT; i++) {
                size_t in_word = i % (WORD_SIZE + 1);
                uint8_t wanted = in_word < WORD_SIZE ? (uint8_t)('a' + i / (WORD_SIZE + 1)) : ' ';
                if (i == WORDS_OUTPUT - 1)
                        wanted = '\n';
                if (output->data[i] != wanted)
                        fail_msg("byte %zu is %#x", i, (unsigned)output->data[i]);
        }
}

/* Waits until the box counts as ended, whatever its shim still does. */
static void await_published(const struct test_box *box)
{
        int lock = openat(box->dir_fd, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC);
        assert_true(lock >= 0);
        int64_t deadline = soon();
        while (flock(lock, LOCK_SH | LOCK_NB) < 0 && clock_monotonic_ms() < deadline)
                (void)poll(NULL, 0, 10);
        assert_int_equal(flock(lock, LOCK_SH | LOCK_NB), 0);
        close(lock);
        assert_int_equal(faccessat(box->dir_fd, BOX_EXIT_NAME, F_OK, 0), 0);
        assert_int_equal(faccessat(box->dir_fd, BOX_SOCKET_NAME, F_OK, 0), -1);
}

/* The box ends, its last client has not read yet: it counts as ended, starts anew and
 * fills its log anew; then the client reads everything of its own run. */
static void test_reading_after_the_end(void **state)
{
        struct test_box box;
        struct box_setup setup = {.argv = long_echo()};
        box_start(&box, &setup);
        struct client *late = box_client(&box);
        uint64_t stream = send_attach(late, true);
        await_published(&box);

        struct test_box again = box;
        struct box_setup same = {0}; /* the folder's configuration counts */
        box_launch(&again, &same);
        assert_int_equal(again.report.kind, REPORT_READY);
        struct client *other = box_client(&again);
        struct outcome outcome;
        collect(other, send_attach(other, true), &outcome);
        assert_long_echo(&outcome.out);
        outcome_free(&outcome);
        client_close(other);
        struct box_exit exit;
        box_wait_end(&again, &exit);

        collect(late, stream, &outcome);
        assert_false(outcome.failed);
        assert_long_echo(&outcome.out);
        assert_int_equal(outcome.exit.code, 0);
        outcome_free(&outcome);
        assert_true(closes_within(late, 1000));
        client_close(late);
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "exited");
        box_remove(&box);
}

/* Whoever hangs up, or lets the time after the end pass, is not waited for; nor is
 * anybody when the shim is told to go. */
static void test_not_reading_after_the_end(void **state)
{
        enum { PASSES, HANGS_UP, TERMINATED, WAYS };
        for (int way = 0; way < WAYS; way++) {
                struct test_box box;
                struct box_setup setup = {.argv = long_echo()};
                box_start(&box, &setup);
                struct client *late = box_client(&box);
                (void)send_attach(late, true);
                await_published(&box);
                int64_t start = clock_monotonic_ms();
                if (way == HANGS_UP)
                        client_close(late);
                if (way == TERMINATED)
                        assert_int_equal(kill(box.shim.pid, SIGTERM), 0);
                struct box_exit exit;
                box_wait_end(&box, &exit);
                int64_t took = clock_monotonic_ms() - start;
                assert_true(way == PASSES ? took > 1000 && took < 5000 : took < 1000);
                if (way != HANGS_UP)
                        client_close(late);
                box_remove(&box);
        }
}

/* A machine that dies: an attached client gets the whole log before it is told. */
static void test_output_before_a_crash(void **state)
{
        struct test_box box;
        struct box_setup setup = {.argv = ARGV("yes")};
        box_start(&box, &setup);
        struct client *late = box_client(&box);
        uint64_t stream = send_attach(late, true);
        struct client *other = box_client(&box);
        uint64_t beside = send_attach(other, false);
        while (take_output(other, beside, 1U << 20) >= 1U << 20)
                ; /* until the sleeping one has stopped the command */
        (void)send_exec(other, 0, ARGV("crash"));
        await_published(&box);
        client_close(other);
        struct outcome outcome;
        collect(late, stream, &outcome);
        assert_true(outcome.failed);
        assert_int_equal(outcome.error.code, CUBBY_E_BOX_DEAD);
        assert_true(outcome.out.size > 1U << 20);
        outcome_free(&outcome);
        client_close(late);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "vmm-died");
        box_remove(&box);
}

/* Frames that no client may send: its connection ends, the box goes on. */
static void test_bad_clients(void **state)
{
        static const uint8_t zeroes[FRAME_DATA_MAX + 1];
        static const struct {
                uint16_t type, flags;
                uint64_t session, stream;
                uint32_t length, claimed;
        } rows[] = {
                {FRAME_HELLO, 0, 0, 1, 0, 0},
                {FRAME_RESUME, 0, 0, 1, 88, 88},
                {FRAME_FREEZE, 0, 0, 1, 0, 0},
                {FRAME_THAW, 0, 0, 1, 0, 0},
                {FRAME_SHUTDOWN, 0, 0, 1, 4, 4},
                {FRAME_PONG, 0, 0, 1, 0, 0},
                {FRAME_EXIT, 0, 0, 1, 36, 36},
                {FRAME_PING, 0, 0, 0, 0, 0},
                {FRAME_PING, 1, 0, 1, 0, 0},
                {FRAME_PING, 0, 7, 1, 0, 0},
                {FRAME_PING, 0, 0, 1, 65, 65},
                {FRAME_PING, 0, 0, 1, 0, FRAME_TO_GUEST_MAX + 1},
                {FRAME_PING, 0, 0, 1, 0, 0xffffffffU},
                {FRAME_EXEC, 0, 0, 1, 0, 0},
                {FRAME_EXEC, 0, 0, 1, 40, 40},
                {FRAME_DATA, 0, 0, 1, 1, 1},
                {FRAME_CREDIT, 1, 0, 99, 4, 4},
                {FRAME_PROCESSES, 0, 0, 1, 1, 1},
                {FRAME_SHIM_STATUS, 0, 0, 1, 1, 1},
                {FRAME_SHIM_ATTACH, 0, 0, 1, 0, 0},
                {FRAME_SHIM_STOP, 0, 0, 1, 3, 3},
                {FRAME_SHIM_KILL, 0, 0, 1, 4, 4},
                {0, 0, 0, 1, 0, 0},
                {999, 0, 0, 1, 0, 0},
                {0xffff, 0, 0, 1, 0, 0},
        };
        struct test_box box;
        box_start(&box, &idle);
        struct client *good = box_client(&box);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct client *bad = box_client(&box);
                struct frame frame = {.length = rows[i].claimed,
                        .type = rows[i].type,
                        .flags = rows[i].flags,
                        .session = rows[i].session,
                        .stream = rows[i].stream};
                uint8_t header[FRAME_HEADER_SIZE];
                frame_encode_header(header, &frame);
                assert_int_equal(write_whole(client_fd(bad), header, sizeof header), 0);
                if (rows[i].length > 0)
                        (void)write_whole(client_fd(bad), zeroes, rows[i].length);
                if (!closes_within(bad, 3000))
                        fail_msg("row %zu (%s) is let pass", i, frame_type_name(rows[i].type));
                client_close(bad);
                (void)ping(good);
        }
        client_close(good);
        box_drop(&box);
}

/* Frames that are wrong on a running command's stream. */
static void test_bad_exec_frames(void **state)
{
        static const uint8_t zeroes[FRAME_DATA_MAX + 1];
        static const struct {
                uint16_t type, flags;
                uint32_t length;
                uint32_t number; /* with length 4 */
        } rows[] = {
                {FRAME_DATA, CHANNEL_STDOUT, 1, 0},
                {FRAME_DATA, CHANNEL_STDIN, 1, 0}, /* it has no stdin */
                {FRAME_DATA, 77, 1, 0}, {FRAME_EOF, CHANNEL_STDOUT, 0, 0},
                {FRAME_CREDIT, CHANNEL_STDIN, 4, 1},
                {FRAME_CREDIT, CHANNEL_STDOUT, 4, 1}, /* more than the window */
                {FRAME_CREDIT, CHANNEL_STDOUT, 4, 0xffffffffU},
                {FRAME_CREDIT, CHANNEL_STDOUT, 3, 0}, {FRAME_RESIZE, 0, 5, 0},
                {FRAME_SIGNAL, 0, 4, 0}, {FRAME_SIGNAL, 0, 4, 65}, {FRAME_CANCEL, 0, 1, 0},
                {FRAME_EXIT, 0, 36, 0}, {FRAME_EXEC, 0, 0, 0}, /* the id is in use */
        };
        struct test_box box;
        box_start(&box, &idle);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct client *client = box_client(&box);
                uint64_t stream = send_exec(client, 0, ARGV("sleep", "60"));
                uint8_t number[4];
                store_u32(number, rows[i].number);
                assert_int_equal(client_send(client, rows[i].type, rows[i].flags, stream,
                                         rows[i].length == 4 ? number : zeroes, rows[i].length,
                                         soon(), NULL),
                        0);
                if (!closes_within(client, 3000))
                        fail_msg("row %zu (%s) is let pass", i, frame_type_name(rows[i].type));
                client_close(client);
        }
        struct client *client = box_client(&box);
        (void)ping(client);
        client_close(client);
        box_drop(&box);
}

static void test_many_clients(void **state)
{
        struct test_box box;
        box_start(&box, &idle);
        struct client *clients[70] = {0};
        for (size_t i = 0; i < 70; i++)
                clients[i] = box_client(&box);
        (void)ping(clients[0]);
        struct frame frame;
        cubby_error err;
        cubby_error_clear(&err);
        /* beyond the ceiling: it waits for its turn, and the box does not look dead to it */
        int64_t moment = deadline_after_ms(300);
        assert_int_equal(
                client_call(clients[69], FRAME_PING, NULL, 0, FRAME_PONG, moment, &frame, &err),
                -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        for (size_t i = 1; i < 69; i++)
                client_close(clients[i]);
        (void)ping(clients[0]);
        assert_int_equal(client_next(clients[69], soon(), &frame, NULL), 0);
        assert_int_equal(frame.type, FRAME_PONG);
        client_close(clients[69]);
        client_close(clients[0]);
        struct client *later = box_client(&box);
        (void)ping(later);
        client_close(later);
        box_drop(&box);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_client_vanishes),
                cmocka_unit_test(test_cancel),
                cmocka_unit_test(test_flood_beside_ping),
                cmocka_unit_test(test_slow_clients),
                cmocka_unit_test(test_reading_after_the_end),
                cmocka_unit_test(test_not_reading_after_the_end),
                cmocka_unit_test(test_output_before_a_crash),
                cmocka_unit_test(test_bad_clients),
                cmocka_unit_test(test_bad_exec_frames),
                cmocka_unit_test(test_many_clients),
        };
        if (argc > 1) /* a pattern of names */
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, kill_leftovers);
}
