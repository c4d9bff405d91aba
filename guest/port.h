/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PORT_H
#define GUEST_PORT_H

/*
 * Frames over the agent's port. What goes out waits in two places of bounded
 * size: whole small frames in `control`, and `out`, the bytes that are being
 * written. `out` is filled anew only when it is empty, control frames first; bulk
 * data is then read from its pipe straight into it, so a flood waits in the pipe
 * of whoever makes it and nowhere else.
 */

#include "base/buffer.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PORT_OUT_SIZE (64U * 1024U)
/* Two DATA frames fill `out`, which the driver sends in halves. */
#define PORT_DATA_SIZE (PORT_OUT_SIZE / 2 - FRAME_HEADER_SIZE)
#define PORT_CONTROL_MAX (1U << 20)
#define PORT_CONTROL_BUSY (256U * 1024U) /* no request is read beyond this */

struct port {
        int fd; /* non-blocking; the caller's */
        struct buffer in;
        size_t in_used;   /* bytes of `in` that have been taken */
        uint64_t in_skip; /* of a frame beyond all limits: dropped as they come */
        struct buffer control;
        size_t out_begin, out_end;
        uint64_t session; /* put on what is sent */
        uint8_t out[PORT_OUT_SIZE];
};

void port_init(struct port *port, int fd);
void port_free(struct port *port); /* NULL-safe */

/* Reads what is there, at most a few frames. False when the other end is absent. */
bool port_receive(struct port *port);
/* The next whole frame, valid until port_receive. `*ret_broken` is set, once each,
 * for a frame that is longer than allowed; it is skipped. */
bool port_next(struct port *port, struct frame *ret, bool *ret_broken);

/* Queues a frame. False when the queue is full, which a flood alone cannot cause. */
bool port_send(struct port *port, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size);

/* Moves control frames into `out`. True when all are there and bulk data may follow. */
bool port_fill(struct port *port);
/* Room for the payload of one DATA frame: where to read to and how much; NULL when
 * `out` has no room (then write first). */
uint8_t *port_data_room(struct port *port, size_t *ret_size);
/* The frame around what was put there. */
void port_bulk_done(struct port *port, uint16_t type, uint16_t flags, uint64_t stream, size_t size);
void port_data_done(struct port *port, uint64_t stream, uint16_t channel, size_t size);

/* Writes until all is written or the other end stops taking. */
void port_flush(struct port *port);
bool port_pending(const struct port *port); /* bytes wait in `out` */
bool port_idle(const struct port *port);    /* nothing waits anywhere */

#endif
