/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/connection.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE (64U * 1024U)
#define IDLE_MEMORY (128U * 1024U) /* an empty buffer above this is given back */

void connection_init(struct connection *connection, int fd, uint32_t payload_maximum,
        size_t control_maximum, size_t bulk_maximum)
{
        *connection = (struct connection){.fd = fd, .payload_maximum = payload_maximum};
        buffer_init(&connection->in, (size_t)payload_maximum + FRAME_HEADER_SIZE + READ_SIZE);
        buffer_init(&connection->control.bytes, control_maximum);
        buffer_init(&connection->bulk.bytes, bulk_maximum);
}

void connection_close(struct connection *connection)
{
        if (connection == NULL)
                return;
        close_quietly(take_fd(&connection->fd));
        buffer_free(&connection->in);
        buffer_free(&connection->control.bytes);
        buffer_free(&connection->bulk.bytes);
        connection->in_head = 0;
        connection->control.head = 0;
        connection->bulk.head = 0;
        connection->unfinished = NULL;
}

static void drop_front(struct buffer *bytes, size_t *head)
{
        buffer_consume(bytes, *head);
        *head = 0;
        if (bytes->size == 0 && bytes->capacity > IDLE_MEMORY)
                buffer_free(bytes);
}

long connection_read(struct connection *connection)
{
        struct buffer *in = &connection->in;
        if (connection->in_head > 0)
                drop_front(in, &connection->in_head);
        size_t room = in->maximum - in->size;
        if (room > READ_SIZE)
                room = READ_SIZE;
        uint8_t *end = room > 0 ? buffer_reserve(in, room) : NULL;
        if (end == NULL) {
                errno = ENOBUFS;
                return -1;
        }
        for (;;) {
                ssize_t got = recv(connection->fd, end, room, MSG_DONTWAIT);
                if (got > 0) {
                        in->size += (size_t)got;
                        return got;
                }
                if (got == 0) {
                        errno = 0;
                        return -1;
                }
                if (errno == EAGAIN || errno == EWOULDBLOCK)
                        return 0;
                if (errno != EINTR)
                        return -1;
        }
}

static int64_t peek(const struct connection *connection, struct frame *ret)
{
        if (connection->in.size == 0)
                return 0;
        return frame_decode(connection->in.data + connection->in_head,
                connection->in.size - connection->in_head, connection->payload_maximum, ret);
}

int connection_next(struct connection *connection, struct frame *ret)
{
        int64_t used = peek(connection, ret);
        if (used <= 0)
                return (int)used;
        connection->in_head += (size_t)used;
        return 1;
}

void connection_unread(struct connection *connection, const struct frame *frame)
{
        connection->in_head -= (size_t)FRAME_HEADER_SIZE + frame->length;
}

bool connection_has_part(const struct connection *connection)
{
        struct frame frame;
        return connection->in.size > connection->in_head && peek(connection, &frame) == 0;
}

bool connection_has_frame(const struct connection *connection)
{
        struct frame frame;
        return peek(connection, &frame) != 0;
}

static bool is_bulk(uint16_t type)
{
        return type == FRAME_DATA || type == FRAME_EOF || type == FRAME_EXIT ||
                type == FRAME_ERROR || type == FRAME_FILE_ENTRY || type == FRAME_FILE_REPLY;
}

static size_t queue_size(const struct frame_queue *queue)
{
        return queue->bytes.size - queue->head;
}

bool connection_queue(struct connection *connection, uint16_t type, uint16_t flags,
        uint64_t session, uint64_t stream, const void *payload, size_t size)
{
        struct frame_queue *queue = is_bulk(type) ? &connection->bulk : &connection->control;
        size_t whole = size + FRAME_HEADER_SIZE;
        if (size > UINT32_MAX - FRAME_HEADER_SIZE ||
                whole > queue->bytes.maximum - queue_size(queue))
                return false;
        /* Space is won back only when the head is worth moving the rest. */
        if (queue->head > 0 &&
                (whole > queue->bytes.capacity - queue->bytes.size || queue->head > READ_SIZE))
                drop_front(&queue->bytes, &queue->head);
        bool done =
                frame_append(&queue->bytes, type, flags, session, stream, payload, (uint32_t)size);
        queue->bytes.failed = false; /* the next, smaller frame may fit */
        return done;
}

/* After `sent` bytes from the front of `queue`: finds out where in a frame we are. */
static void advance(struct connection *connection, struct frame_queue *queue, size_t sent)
{
        size_t at = connection->unfinished == queue ? connection->unfinished_size : 0;
        while (at < sent)
                at += FRAME_HEADER_SIZE + (size_t)load_u32(queue->bytes.data + queue->head + at);
        connection->unfinished_size = at - sent;
        connection->unfinished = at > sent ? queue : NULL;
        queue->head += sent;
        if (queue->head == queue->bytes.size)
                drop_front(&queue->bytes, &queue->head);
}

int connection_flush(struct connection *connection)
{
        for (;;) {
                struct frame_queue *queue = connection->unfinished;
                size_t size = connection->unfinished_size;
                if (queue == NULL) {
                        queue = queue_size(&connection->control) > 0 ? &connection->control
                                                                     : &connection->bulk;
                        size = queue_size(queue);
                }
                if (size == 0)
                        return 0;
                ssize_t sent = send(connection->fd, queue->bytes.data + queue->head, size,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent < 0 && errno == EINTR)
                        continue;
                if (sent < 0)
                        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
                advance(connection, queue, (size_t)sent);
        }
}

size_t connection_queued(const struct connection *connection)
{
        return queue_size(&connection->control) + queue_size(&connection->bulk);
}
