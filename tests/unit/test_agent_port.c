/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
        struct port *port;
        int guest;
        int host;
};

static struct pair make_pair(void)
{
        int ends[2];
        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        struct pair pair = {
                .port = calloc(1, sizeof(struct port)), .guest = ends[0], .host = ends[1]};
        assert_non_null(pair.port);
        port_init(pair.port, pair.guest);
        pair.port->session = 77;
        return pair;
}

static void free_pair(struct pair *pair)
{
        port_free(pair->port);
        free(pair->port);
        close_quietly(pair->guest);
        close_quietly(pair->host);
}

static void test_receive(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        AUTO_BUFFER struct buffer bytes = {.maximum = 1 << 20};
        assert_true(frame_append(&bytes, FRAME_PING, 0, 77, 5, "abc", 3));
        assert_true(frame_append(&bytes, FRAME_THAW, 0, 77, 6, NULL, 0));
        struct frame frame;
        bool broken = true;
        /* byte by byte: a frame is given once and whole */
        for (size_t i = 0; i + 1 < bytes.size; i++) {
                assert_int_equal(write(pair.host, bytes.data + i, 1), 1);
                assert_true(port_receive(pair.port));
                bool got = port_next(pair.port, &frame, &broken);
                assert_false(broken);
                assert_int_equal(got, i + 1 == FRAME_HEADER_SIZE + 3);
                if (got) {
                        assert_int_equal(frame.type, FRAME_PING);
                        assert_memory_equal(frame.payload, "abc", 3);
                }
        }
        assert_int_equal(write(pair.host, bytes.data + bytes.size - 1, 1), 1);
        assert_true(port_receive(pair.port));
        assert_true(port_next(pair.port, &frame, &broken));
        assert_int_equal(frame.type, FRAME_THAW);
        assert_false(port_next(pair.port, &frame, &broken));
        close_quietly(take_fd(&pair.host));
        assert_false(port_receive(pair.port));
        free_pair(&pair);
}

static void test_oversized_frame_is_skipped(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        uint8_t header[FRAME_HEADER_SIZE];
        const uint32_t length = FRAME_TO_GUEST_MAX + 1;
        frame_encode_header(header, &(struct frame){.length = length, .type = FRAME_EXEC});
        assert_int_equal(write(pair.host, header, sizeof header), (ssize_t)sizeof header);
        static const uint8_t junk[65536];
        struct frame frame;
        bool broken = false;
        int times = 0;
        for (uint32_t sent = 0; sent < length;) {
                size_t size = length - sent < sizeof junk ? length - sent : sizeof junk;
                ssize_t done = write(pair.host, junk, size);
                if (done > 0)
                        sent += (uint32_t)done;
                assert_true(port_receive(pair.port));
                assert_false(port_next(pair.port, &frame, &broken));
                times += broken;
                assert_true(pair.port->in.capacity < 1 << 20); /* nothing was kept for it */
        }
        while (pair.port->in_skip > 0) {
                assert_true(port_receive(pair.port));
                assert_false(port_next(pair.port, &frame, &broken));
                times += broken;
        }
        assert_int_equal(times, 1);
        AUTO_BUFFER struct buffer bytes = {.maximum = 4096};
        assert_true(frame_append(&bytes, FRAME_PING, 0, 77, 5, NULL, 0));
        assert_int_equal(write_whole(pair.host, bytes.data, bytes.size), 0);
        assert_true(port_receive(pair.port));
        assert_true(port_next(pair.port, &frame, &broken));
        assert_int_equal(frame.type, FRAME_PING);
        free_pair(&pair);
}

static size_t read_frames(int fd, struct buffer *bytes)
{
        size_t before = bytes->size;
        for (;;) {
                uint8_t *end = buffer_reserve(bytes, 65536);
                assert_non_null(end);
                ssize_t got = read(fd, end, 65536);
                if (got <= 0)
                        return bytes->size - before;
                bytes->size += (size_t)got;
        }
}

static void test_control_goes_first(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        size_t size = 0;
        assert_true(port_fill(pair.port));
        uint8_t *room = port_data_room(pair.port, &size);
        assert_non_null(room);
        assert_int_equal(size, PORT_DATA_SIZE);
        memset(room, 'a', size);
        port_data_done(pair.port, 9, CHANNEL_STDOUT, size);
        assert_true(port_send(pair.port, FRAME_PONG, 0, 4, "p", 1));
        /* a control frame waits: no more bulk before it */
        assert_null(port_data_room(pair.port, &size));
        assert_true(port_fill(pair.port));
        room = port_data_room(pair.port, &size);
        assert_non_null(room);
        memset(room, 'b', 10);
        port_data_done(pair.port, 9, CHANNEL_STDOUT, 10);
        port_flush(pair.port);
        assert_true(port_idle(pair.port));

        AUTO_BUFFER struct buffer bytes = {.maximum = 1 << 20};
        (void)read_frames(pair.host, &bytes);
        static const struct {
                uint16_t type;
                uint32_t length;
        } want[] = {{FRAME_DATA, PORT_DATA_SIZE}, {FRAME_PONG, 1}, {FRAME_DATA, 10}};
        for (size_t i = 0; i < 3; i++) {
                struct frame frame;
                int64_t used = frame_decode(bytes.data, bytes.size, FRAME_FROM_GUEST_MAX, &frame);
                assert_true(used > 0);
                assert_int_equal(frame.type, want[i].type);
                assert_int_equal(frame.length, want[i].length);
                assert_int_equal(frame.session, 77);
                buffer_consume(&bytes, (size_t)used);
        }
        assert_int_equal(bytes.size, 0);
        free_pair(&pair);
}

static void test_queue_is_bounded(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        static const uint8_t big[FRAME_FROM_GUEST_MAX];
        size_t sent = 0;
        assert_false(port_send(pair.port, FRAME_PROCESS_LIST, 0, 1, big, sizeof big + 1));
        while (port_send(pair.port, FRAME_PROCESS_LIST, 0, 1, big, sizeof big))
                sent++;
        assert_in_range(sent, 10, PORT_CONTROL_MAX / sizeof big);
        assert_true(pair.port->control.size <= PORT_CONTROL_MAX);
        /* with the other end not reading nothing is lost, and later all of it comes */
        AUTO_BUFFER struct buffer bytes = {.maximum = 4 << 20};
        while (!port_idle(pair.port)) {
                (void)port_fill(pair.port);
                port_flush(pair.port);
                if (port_pending(pair.port))
                        (void)read_frames(pair.host, &bytes);
        }
        (void)read_frames(pair.host, &bytes);
        assert_int_equal(bytes.size, sent * (FRAME_HEADER_SIZE + sizeof big));
        free_pair(&pair);
}

/* A command with output in a pipe, as the spawner hands it over. */
static struct exec *make_exec(uint64_t stream, int *ret_write_end)
{
        int ends[2];
        struct exec *exec = exec_new(stream, EXEC_STDIN, 0);
        assert_non_null(exec);
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        exec->fds[CHANNEL_STDOUT] = ends[0];
        exec->readable[CHANNEL_STDOUT] = true;
        *ret_write_end = ends[1];
        return exec;
}

static void test_flood_stops_at_its_credit(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        struct cgroups cgroups = {.lock = PTHREAD_MUTEX_INITIALIZER};
        AUTO_BUFFER struct buffer bytes = {.maximum = 8 << 20};
        AUTO_FD int flood = -1;
        AUTO_FD int quiet = -1;
        struct exec *loud = make_exec(1, &flood);
        struct exec *soft = make_exec(2, &quiet);
        static const uint8_t junk[65536];
        uint64_t from[3] = {0};
        for (int round = 0; round < 100; round++) {
                while (write(flood, junk, sizeof junk) > 0)
                        ;
                assert_int_equal(write(quiet, "q", 1), 1);
                loud->readable[CHANNEL_STDOUT] = soft->readable[CHANNEL_STDOUT] = true;
                (void)port_fill(pair.port);
                (void)exec_pump(loud, pair.port);
                (void)exec_pump(soft, pair.port);
                port_flush(pair.port);
                (void)read_frames(pair.host, &bytes);
        }
        struct frame frame;
        int64_t used;
        size_t at = 0;
        while ((used = frame_decode(bytes.data + at, bytes.size - at, FRAME_DATA_MAX, &frame)) >
                0) {
                assert_int_equal(frame.type, FRAME_DATA);
                assert_in_range(frame.stream, 1, 2);
                from[frame.stream] += frame.length;
                at += (size_t)used;
        }
        assert_int_equal(at, bytes.size);
        assert_int_equal(from[1], STREAM_WINDOW); /* not a byte beyond its window */
        assert_int_equal(from[2], 100);           /* and the other never waited */
        assert_false(exec_wants_output(loud, CHANNEL_STDOUT));
        exec_credit(loud, CHANNEL_STDOUT, 10);
        assert_true(exec_wants_output(loud, CHANNEL_STDOUT));
        exec_free(loud, &cgroups);
        exec_free(soft, &cgroups);
        exec_free(NULL, &cgroups);
        free_pair(&pair);
}

static void test_input_window(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        struct cgroups cgroups = {.lock = PTHREAD_MUTEX_INITIALIZER};
        const struct log silent = {0};
        AUTO_FD int output = -1;
        struct exec *exec = make_exec(3, &output);
        static const uint8_t junk[FRAME_DATA_MAX];
        const struct slice piece = {junk, sizeof junk};
        exec->job = (struct job *)1; /* being started: input is kept */
        for (size_t i = 0; i < STREAM_WINDOW / sizeof junk; i++)
                exec_input(exec, pair.port, &silent, piece);
        assert_int_equal(exec->input.size, STREAM_WINDOW);
        exec_input(exec, pair.port, &silent, piece); /* beyond the window: dropped */
        assert_int_equal(exec->input.size, STREAM_WINDOW);
        assert_int_equal(exec->input_window, 0);
        assert_false(exec_wants_input(exec));
        /* the command does not read its input at all: credit comes back all the same */
        exec->job = NULL;
        exec_write_input(exec, pair.port);
        assert_int_equal(exec->input.size, 0);
        assert_int_equal(exec->input_window, STREAM_WINDOW);
        assert_int_equal(pair.port->control.size, FRAME_HEADER_SIZE + 4);
        exec_input_end(exec);
        exec_input(exec, pair.port, &silent, piece); /* after the end: dropped */
        assert_int_equal(exec->input_window, STREAM_WINDOW);
        exec_free(exec, &cgroups);
        free_pair(&pair);
}

static void test_exit_waits_for_output(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        struct cgroups cgroups = {.lock = PTHREAD_MUTEX_INITIALIZER};
        AUTO_FD int output = -1;
        struct exec *exec = make_exec(3, &output);
        int64_t now = clock_monotonic_ms();
        assert_int_equal(write(output, "0123456789", 10), 10);
        exec->exited = true;
        exec->owed[CHANNEL_STDOUT] = 10;
        exec->drain_at = now + EXEC_DRAIN_MS;
        exec->credit[CHANNEL_STDOUT] = 4;
        (void)port_fill(pair.port);
        assert_true(exec_pump(exec, pair.port));
        exec_check(exec, pair.port, now + 10 * EXEC_DRAIN_MS);
        assert_false(exec->ended); /* six bytes are owed: no deadline cuts them off */
        assert_int_equal(exec_deadline(exec), DEADLINE_NEVER);
        exec_credit(exec, CHANNEL_STDOUT, 100);
        exec->readable[CHANNEL_STDOUT] = true;
        assert_true(exec_pump(exec, pair.port));
        exec_check(exec, pair.port, now);
        assert_false(exec->ended); /* somebody still holds the pipe: a little patience */
        assert_int_equal(exec_deadline(exec), now + EXEC_DRAIN_MS);
        exec_check(exec, pair.port, now + EXEC_DRAIN_MS);
        assert_true(exec->ended);
        assert_int_equal(exec->exit.flags, EXIT_FLAG_INCOMPLETE);
        exec_free(exec, &cgroups);
        free_pair(&pair);
}

/* A process of the box may read the pipe too: what it took never comes, and is not
 * waited for. */
static void test_stolen_output_is_not_waited_for(void **state)
{
        (void)state;
        struct pair pair = make_pair();
        struct cgroups cgroups = {.lock = PTHREAD_MUTEX_INITIALIZER};
        AUTO_FD int output = -1;
        struct exec *exec = make_exec(3, &output);
        int64_t now = clock_monotonic_ms();
        char stolen[10];
        assert_int_equal(write(output, "0123456789", 10), 10);
        exec->exited = true;
        exec->owed[CHANNEL_STDOUT] = 10;
        exec->drain_at = now + EXEC_DRAIN_MS;
        assert_int_equal(read(exec->fds[CHANNEL_STDOUT], stolen, sizeof stolen), 10);
        (void)port_fill(pair.port);
        assert_false(exec_pump(exec, pair.port));
        assert_int_equal(exec_deadline(exec), now + EXEC_DRAIN_MS);
        exec_check(exec, pair.port, now);
        assert_false(exec->ended);
        exec_check(exec, pair.port, now + EXEC_DRAIN_MS);
        assert_true(exec->ended);
        assert_int_equal(exec->exit.flags, EXIT_FLAG_INCOMPLETE);
        exec_free(exec, &cgroups);
        free_pair(&pair);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_receive),
                cmocka_unit_test(test_oversized_frame_is_skipped),
                cmocka_unit_test(test_control_goes_first),
                cmocka_unit_test(test_queue_is_bounded),
                cmocka_unit_test(test_flood_stops_at_its_credit),
                cmocka_unit_test(test_input_window),
                cmocka_unit_test(test_exit_waits_for_output),
                cmocka_unit_test(test_stolen_output_is_not_waited_for),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
