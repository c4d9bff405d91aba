/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "channel/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_RETRY_MS 5
#define SOCKET_NAME "box.sock"

struct client {
        struct connection connection; /* its reading half only */
        atomic_uint_fast64_t next_stream;
        bool cut_off; /* a frame was sent in part: nothing can follow it */
};

static int dead(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_BOX_DEAD, "the box has ended");
}

static int late(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_TIMEOUT, "the box did not answer in time");
}

/* Over a descriptor that does not block. */
static int make(int fd, struct client **ret, cubby_error *err)
{
        AUTO_FD int owned = fd;
        struct client *client = calloc(1, sizeof *client);
        if (client == NULL)
                return cubby_error_no_memory(err);
        /* STATUS and every answer of an agent fit into what a guest may send. */
        connection_init(&client->connection, take_fd(&owned), FRAME_FROM_GUEST_MAX, 0, 0);
        atomic_init(&client->next_stream, 1);
        *ret = client;
        return 0;
}

int client_over(int fd, struct client **ret, cubby_error *err)
{
        AUTO_FD int owned = fd;
        if (fd_set_nonblocking(owned, true) < 0)
                return cubby_error_errno(err, errno, "preparing a connection to a box");
        return make(take_fd(&owned), ret, err);
}

int client_connect(int box_dir_fd, int64_t deadline_ms, struct client **ret, cubby_error *err)
{
        AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making a socket");
        /* By descriptor: a home may lie deeper than a socket address is long. */
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", box_dir_fd,
                SOCKET_NAME);
        for (;;) {
                if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
                        break;
                if (errno == ECONNREFUSED || errno == ENOENT)
                        return dead(err);
                if (errno == EINTR)
                        continue;
                if (errno != EAGAIN) /* the line of the listening socket is full */
                        return cubby_error_errno(err, errno, "connecting to a box");
                int left = deadline_left_ms(deadline_ms);
                if (left == 0)
                        return late(err);
                (void)poll(NULL, 0, left < 0 || left > CONNECT_RETRY_MS ? CONNECT_RETRY_MS : left);
        }
        return make(take_fd(&fd), ret, err);
}

void client_close(struct client *client)
{
        if (client == NULL)
                return;
        connection_close(&client->connection);
        free(client);
}

int client_fd(const struct client *client)
{
        return client->connection.fd;
}

uint64_t client_new_stream(struct client *client)
{
        return atomic_fetch_add(&client->next_stream, 1);
}

/* Waits for the socket. Returns 0, or -1 with the error set. */
static int wait_for(
        const struct client *client, short events, int64_t deadline_ms, cubby_error *err)
{
        for (;;) {
                struct pollfd poll_fd = {.fd = client->connection.fd, .events = events};
                int ready = poll(&poll_fd, 1, deadline_left_ms(deadline_ms));
                if (ready > 0)
                        return 0;
                if (ready == 0)
                        return late(err);
                if (errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for a box");
        }
}

int client_send(struct client *client, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size, int64_t deadline_ms, cubby_error *err)
{
        if (size > FRAME_TO_GUEST_MAX)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "a request of %zu bytes is larger than the allowed %u", size,
                        FRAME_TO_GUEST_MAX);
        if (client->cut_off)
                return cubby_error_set(
                        err, CUBBY_E_CLOSED, "the connection was cut off by an earlier timeout");
        struct frame frame = {
                .length = (uint32_t)size, .type = type, .flags = flags, .stream = stream};
        uint8_t header[FRAME_HEADER_SIZE];
        frame_encode_header(header, &frame);
        struct iovec parts[2] = {{.iov_base = header, .iov_len = sizeof header},
                {.iov_base = (void *)(uintptr_t)payload, .iov_len = size}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        bool begun = false;
        while (parts[0].iov_len + parts[1].iov_len > 0) {
                ssize_t sent =
                        sendmsg(client->connection.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent >= 0) {
                        begun = true;
                        for (size_t i = 0, left = (size_t)sent; i < 2; i++) {
                                size_t taken = left < parts[i].iov_len ? left : parts[i].iov_len;
                                parts[i].iov_base = (uint8_t *)parts[i].iov_base + taken;
                                parts[i].iov_len -= taken;
                                left -= taken;
                        }
                        continue;
                }
                if (errno == EINTR)
                        continue;
                if (errno == EPIPE || errno == ECONNRESET)
                        return dead(err);
                if (errno != EAGAIN && errno != EWOULDBLOCK)
                        return cubby_error_errno(err, errno, "sending to a box");
                if (wait_for(client, POLLOUT, deadline_ms, err) < 0) {
                        client->cut_off = begun;
                        return -1;
                }
        }
        return 0;
}

int client_next(struct client *client, int64_t deadline_ms, struct frame *ret, cubby_error *err)
{
        struct connection *connection = &client->connection;
        for (;;) {
                int have = connection_next(connection, ret);
                if (have > 0)
                        return 0;
                if (have < 0)
                        return cubby_error_set(
                                err, CUBBY_E_PROTOCOL, "the box sent a frame beyond the limit");
                long got = connection_read(connection);
                if (got > 0)
                        continue;
                if (got < 0 && (errno == 0 || errno == ECONNRESET || errno == EPIPE))
                        return dead(err);
                if (got < 0)
                        return cubby_error_errno(err, errno, "reading from a box");
                if (wait_for(client, POLLIN, deadline_ms, err) < 0)
                        return -1;
        }
}

bool client_has_frame(const struct client *client)
{
        return connection_has_frame(&client->connection);
}

int client_call(struct client *client, uint16_t type, const void *payload, size_t size,
        uint16_t reply_type, int64_t deadline_ms, struct frame *ret, cubby_error *err)
{
        uint64_t stream = client_new_stream(client);
        if (client_send(client, type, 0, stream, payload, size, deadline_ms, err) < 0)
                return -1;
        struct frame frame;
        /* no answer is there yet: to look for one would be a call for nothing */
        if (!connection_has_frame(&client->connection) &&
                wait_for(client, POLLIN, deadline_ms, err) < 0)
                return -1;
        do {
                /* answers to calls that were given up earlier are passed over */
                if (client_next(client, deadline_ms, &frame, err) < 0)
                        return -1;
        } while (frame.stream != stream);
        if (frame.type == FRAME_ERROR)
                return client_error(
                        (struct slice){.data = frame.payload, .size = frame.length}, err);
        if (frame.type != reply_type)
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "the box answered %s with %s",
                        frame_type_name(type), frame_type_name(frame.type));
        *ret = frame;
        return 0;
}

int client_error(struct slice payload, cubby_error *err)
{
        struct message_error message;
        if (!message_error_decode(payload, &message))
                return cubby_error_set(
                        err, CUBBY_E_PROTOCOL, "the box sent an error with a bad layout");
        char text[CUBBY_ERROR_MESSAGE_MAX];
        slice_show(message.text, text, sizeof text);
        (void)cubby_error_set(err, (int)message.code, "%s", text);
        if (err != NULL)
                err->sys_errno = (int)message.sys_errno;
        return -1;
}
