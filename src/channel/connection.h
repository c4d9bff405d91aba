/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHANNEL_CONNECTION_H
#define CHANNEL_CONNECTION_H

/*
 * Frames over one non-blocking stream socket. No call waits.
 *
 * Outgoing frames wait in two lines. Frames whose order counts within their
 * stream (DATA, EOF, EXIT, ERROR, FILE_ENTRY, FILE_REPLY: "bulk") keep their order; all others
 * ("control") overtake them at the next frame boundary. Each line has a ceiling.
 */

#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct frame_queue {
        struct buffer bytes;
        size_t head; /* sent and not yet removed */
};

struct connection {
        int fd;
        uint32_t payload_maximum; /* of incoming frames */
        struct buffer in;
        size_t in_head;
        struct frame_queue control;
        struct frame_queue bulk;
        struct frame_queue *unfinished; /* the line whose first frame is partly sent */
        size_t unfinished_size;         /* bytes of it that are left */
};

/* Takes the descriptor, which must be a non-blocking stream socket. */
void connection_init(struct connection *connection, int fd, uint32_t payload_maximum,
        size_t control_maximum, size_t bulk_maximum);
void connection_close(struct connection *connection);

/* One read. Returns the bytes read, 0 when there is nothing now, -1 with errno
 * (0 for the end of the stream). */
long connection_read(struct connection *connection);

/* The next whole frame; its payload is valid until the next connection_read.
 * Returns 1, 0 when more bytes are needed, -1 when the stream is beyond repair. */
int connection_next(struct connection *connection, struct frame *ret);
/* Puts back the frame that connection_next has just given. */
void connection_unread(struct connection *connection, const struct frame *frame);
/* True when a frame has begun to arrive but is not whole. */
bool connection_has_part(const struct connection *connection);
/* True when connection_next would give a frame or a failure. */
bool connection_has_frame(const struct connection *connection);

/* False when the line is full; nothing is queued then. */
bool connection_queue(struct connection *connection, uint16_t type, uint16_t flags,
        uint64_t session, uint64_t stream, const void *payload, size_t size);
/* Sends what the socket takes. Returns 0, or -1 with errno when it is broken. */
int connection_flush(struct connection *connection);
size_t connection_queued(const struct connection *connection);

#endif
