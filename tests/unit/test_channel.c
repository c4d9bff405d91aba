/* SPDX-License-Identifier: Apache-2.0 */

/* Connections and the client's end of the protocol, against a scripted peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "channel/client.h"
#include "channel/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOON deadline_after_ms(5000)

static void make_pair(int ret[2])
{
        assert_int_equal(
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret), 0);
}

static void put_frame(int fd, uint16_t type, uint64_t stream, const void *payload, uint32_t size)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 1U << 20);
        assert_true(frame_append(&out, type, 0, 0, stream, payload, size));
        assert_int_equal(write_whole(fd, out.data, out.size), 0);
}

static void test_frames_in_pieces(void **state)
{
        int ends[2];
        make_pair(ends);
        struct connection connection;
        connection_init(&connection, ends[0], 1000, 4096, 4096);
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 4096);
        assert_true(frame_append(&out, FRAME_PING, 0, 0, 1, "first", 5));
        assert_true(frame_append(&out, FRAME_PING, 0, 0, 2, NULL, 0));
        struct frame frame;
        int seen = 0;
        for (size_t i = 0; i < out.size; i++) {
                assert_int_equal(write(ends[1], out.data + i, 1), 1);
                assert_int_equal(connection_read(&connection), 1);
                int have = connection_next(&connection, &frame);
                assert_int_equal(have, i == 28 || i == 52);
                assert_int_equal(connection_has_part(&connection), have == 0);
                seen += have;
        }
        assert_int_equal(seen, 2);
        connection_unread(&connection, &frame);
        assert_true(connection_has_frame(&connection));
        assert_int_equal(connection_next(&connection, &frame), 1);
        assert_int_equal(frame.stream, 2);
        assert_int_equal(connection_read(&connection), 0);
        close(ends[1]);
        assert_int_equal(connection_read(&connection), -1);
        assert_int_equal(errno, 0);
        connection_close(&connection);
}

static void test_too_long_frame(void **state)
{
        int ends[2];
        make_pair(ends);
        struct connection connection;
        connection_init(&connection, ends[0], 1000, 4096, 4096);
        struct frame huge = {.length = 1001};
        uint8_t header[FRAME_HEADER_SIZE];
        frame_encode_header(header, &huge);
        assert_int_equal(write_whole(ends[1], header, sizeof header), 0);
        assert_int_equal(connection_read(&connection), FRAME_HEADER_SIZE);
        struct frame frame;
        assert_int_equal(connection_next(&connection, &frame), -1);
        assert_true(connection_has_frame(&connection));
        close(ends[1]);
        connection_close(&connection);
}

/* Control overtakes bulk, yet never inside a frame. */
static void test_control_first(void **state)
{
        int ends[2];
        make_pair(ends);
        struct connection connection;
        connection_init(&connection, ends[0], FRAME_DATA_MAX, 1U << 20, 8U << 20);
        static uint8_t data[FRAME_DATA_MAX];
        for (uint64_t i = 0; i < 64; i++) {
                memset(data, (int)i, sizeof data);
                assert_true(connection_queue(&connection, FRAME_DATA, 1, 0, i, data, sizeof data));
        }
        assert_int_equal(connection_flush(&connection), 0); /* stops somewhere inside */
        assert_true(connection_queued(&connection) > 0);
        for (uint64_t i = 100; i < 110; i++)
                assert_true(connection_queue(&connection, FRAME_PONG, 0, 0, i, "pong", 4));
        assert_true(connection_queue(&connection, FRAME_EXIT, 0, 0, 63, data, 36));
        struct connection other;
        connection_init(&other, ends[1], FRAME_DATA_MAX, 0, 0);
        uint64_t next_data = 0;
        uint64_t next_pong = 100;
        bool ended = false;
        size_t behind_control = 0;
        while (!ended) {
                assert_int_equal(connection_flush(&connection), 0);
                assert_true(connection_read(&other) > 0);
                struct frame frame;
                while (connection_next(&other, &frame) > 0) {
                        if (frame.type == FRAME_PONG) {
                                assert_int_equal(frame.stream, next_pong++);
                        } else if (frame.type == FRAME_DATA) {
                                assert_int_equal(frame.stream, next_data);
                                assert_int_equal(frame.payload[FRAME_DATA_MAX - 1], next_data);
                                next_data++;
                                behind_control += next_pong == 110;
                        } else {
                                assert_int_equal(frame.type, FRAME_EXIT);
                                ended = true;
                        }
                }
        }
        assert_int_equal(next_data, 64);
        assert_true(behind_control > 40);
        assert_int_equal(connection_queued(&connection), 0);
        connection_close(&connection);
        connection_close(&other);
}

static void test_ceilings(void **state)
{
        int ends[2];
        make_pair(ends);
        struct connection connection;
        connection_init(&connection, ends[0], 100, 100, 200);
        assert_true(connection_queue(&connection, FRAME_PING, 0, 0, 1, "0123456789", 10));
        assert_true(connection_queue(&connection, FRAME_PING, 0, 0, 2, "0123456789", 10));
        assert_false(connection_queue(&connection, FRAME_PING, 0, 0, 3, "0123456789", 10));
        assert_true(connection_queue(&connection, FRAME_PING, 0, 0, 3, "01234567", 8));
        assert_false(connection_queue(&connection, FRAME_PING, 0, 0, 4, NULL, 0));
        assert_true(connection_queue(&connection, FRAME_EXIT, 0, 0, 4, NULL, 0));
        assert_false(connection_queue(&connection, FRAME_DATA, 0, 0, 4, NULL, 177));
        assert_int_equal(connection_queued(&connection), 124);
        assert_int_equal(connection_flush(&connection), 0);
        assert_int_equal(connection_queued(&connection), 0);
        assert_true(connection_queue(&connection, FRAME_PING, 0, 0, 5, NULL, 0));
        close(ends[1]);
        assert_int_equal(connection_flush(&connection), -1); /* and no SIGPIPE */
        connection_close(&connection);
        connection_close(&connection);
        connection_close(NULL);
}

static struct client *make_client(int *ret_peer)
{
        int ends[2];
        make_pair(ends);
        struct client *client = NULL;
        assert_int_equal(client_over(ends[0], &client, NULL), 0);
        *ret_peer = ends[1];
        return client;
}

static void put_error(int fd, uint64_t stream, uint32_t code, const char *words)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 4096);
        struct message_error message = {.code = code,
                .sys_errno = 2,
                .text = {.data = (const uint8_t *)words, .size = strlen(words)}};
        assert_true(message_error_encode(&payload, &message));
        put_frame(fd, FRAME_ERROR, stream, payload.data, (uint32_t)payload.size);
}

static void test_calls(void **state)
{
        int peer = -1;
        struct client *client = make_client(&peer);
        struct frame frame;
        cubby_error error;
        put_frame(peer, FRAME_PONG, 99, "old", 3); /* of a call that was given up */
        put_frame(peer, FRAME_PONG, 1, "new", 3);
        assert_int_equal(
                client_call(client, FRAME_PING, "x", 1, FRAME_PONG, SOON, &frame, &error), 0);
        assert_memory_equal(frame.payload, "new", 3);
        put_frame(peer, FRAME_OK, 2, NULL, 0);
        assert_int_equal(
                client_call(client, FRAME_PING, "x", 1, FRAME_PONG, SOON, &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_PROTOCOL);
        put_error(peer, 3, CUBBY_E_STATE, "not\nnow");
        assert_int_equal(
                client_call(client, FRAME_PING, "x", 1, FRAME_PONG, SOON, &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_STATE);
        assert_int_equal(error.sys_errno, 2);
        assert_string_equal(error.message, "not?now");
        put_frame(peer, FRAME_ERROR, 4, "bad", 3);
        assert_int_equal(
                client_call(client, FRAME_PING, "x", 1, FRAME_PONG, SOON, &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_PROTOCOL);
        assert_int_equal(client_call(client, FRAME_PING, "x", 1, FRAME_PONG, deadline_after_ms(50),
                                 &frame, &error),
                -1);
        assert_int_equal(error.code, CUBBY_E_TIMEOUT);
        close(peer);
        assert_int_equal(
                client_call(client, FRAME_PING, "x", 1, FRAME_PONG, SOON, &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_BOX_DEAD);
        client_close(client);
        client_close(NULL);
}

static void test_frames_before_the_end(void **state)
{
        int peer = -1;
        struct client *client = make_client(&peer);
        put_frame(peer, FRAME_PONG, 1, NULL, 0);
        put_frame(peer, FRAME_PONG, 2, NULL, 0);
        close(peer);
        struct frame frame;
        assert_false(client_has_frame(client));
        assert_int_equal(client_next(client, 0, &frame, NULL), 0);
        assert_true(client_has_frame(client));
        assert_int_equal(client_next(client, 0, &frame, NULL), 0);
        assert_int_equal(frame.stream, 2);
        cubby_error error;
        assert_int_equal(client_next(client, 0, &frame, &error), -1);
        assert_int_equal(error.code, CUBBY_E_BOX_DEAD);
        client_close(client);
}

static void test_send_to_a_wall(void **state)
{
        int peer = -1;
        struct client *client = make_client(&peer);
        static const uint8_t data[FRAME_TO_GUEST_MAX + 1];
        cubby_error error;
        assert_int_equal(
                client_send(client, FRAME_EXEC, 0, 1, data, sizeof data, SOON, &error), -1);
        assert_int_equal(error.code, CUBBY_E_LIMIT);
        int64_t begun = clock_monotonic_ms();
        assert_int_equal(client_send(client, FRAME_EXEC, 0, 1, data, FRAME_TO_GUEST_MAX,
                                 deadline_after_ms(100), &error),
                -1);
        assert_int_equal(error.code, CUBBY_E_TIMEOUT);
        assert_true(clock_monotonic_ms() - begun < 3000);
        assert_int_equal(client_send(client, FRAME_PING, 0, 2, NULL, 0, SOON, &error), -1);
        assert_int_equal(error.code, CUBBY_E_CLOSED); /* half a frame is out */
        close(peer);
        client_close(client);
}

static void test_connect(void **state)
{
        char path[] = "/tmp/cubby-channel-test-XXXXXX";
        assert_non_null(mkdtemp(path));
        AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(dir >= 0);
        struct client *client = NULL;
        cubby_error error;
        assert_int_equal(client_connect(dir, SOON, &client, &error), -1);
        assert_int_equal(error.code, CUBBY_E_BOX_DEAD); /* no socket */
        /* deeper than a socket address is long */
        char deep[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
        int inner = dir;
        for (int i = 0; i < 3; i++) {
                assert_int_equal(mkdirat(inner, deep, 0700), 0);
                int next = openat(inner, deep, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                close_quietly(inner == dir ? -1 : inner);
                inner = next;
        }
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(
                address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/box.sock", inner);
        int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(client_connect(inner, SOON, &client, &error), -1);
        assert_int_equal(error.code, CUBBY_E_BOX_DEAD); /* nobody listens */
        assert_int_equal(listen(listener, 0), 0);
        assert_int_equal(client_connect(inner, SOON, &client, &error), 0);
        struct client *second = NULL; /* the line is full: it ends by its deadline */
        int result = 0;
        for (int i = 0; i < 4 && result == 0; i++) {
                client_close(second);
                second = NULL;
                result = client_connect(inner, deadline_after_ms(100), &second, &error);
        }
        if (result < 0)
                assert_int_equal(error.code, CUBBY_E_TIMEOUT);
        client_close(client);
        client_close(second);
        close(listener);
        close(inner);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_frames_in_pieces),
                cmocka_unit_test(test_too_long_frame),
                cmocka_unit_test(test_control_first),
                cmocka_unit_test(test_ceilings),
                cmocka_unit_test(test_calls),
                cmocka_unit_test(test_frames_before_the_end),
                cmocka_unit_test(test_send_to_a_wall),
                cmocka_unit_test(test_connect),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
