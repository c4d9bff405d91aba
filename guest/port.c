/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define IN_PIECE (32U * 1024U)
#define IN_ROUND (128U * 1024U) /* read at most this before frames are handled */
#define IN_MAX (FRAME_TO_GUEST_MAX + FRAME_HEADER_SIZE + IN_ROUND + IN_PIECE)
#define IN_KEEP (512U * 1024U) /* a buffer that grew beyond this is given back */

void port_init(struct port *port, int fd)
{
        port->fd = fd;
        buffer_init(&port->in, IN_MAX);
        port->in_used = 0;
        port->in_skip = 0;
        buffer_init(&port->control, PORT_CONTROL_MAX);
        port->out_begin = port->out_end = 0;
        port->session = 0;
}

void port_free(struct port *port)
{
        if (port == NULL)
                return;
        buffer_free(&port->in);
        buffer_free(&port->control);
}

bool port_receive(struct port *port)
{
        buffer_consume(&port->in, port->in_used);
        port->in_used = 0;
        if (port->in.size == 0 && port->in.capacity > IN_KEEP)
                buffer_free(&port->in);
        for (size_t total = 0; total < IN_ROUND;) {
                uint8_t *end = buffer_reserve(&port->in, IN_PIECE);
                if (end == NULL) {
                        port->in.failed = false; /* full or out of memory: handle, come back */
                        return true;
                }
                ssize_t got = read(port->fd, end, IN_PIECE);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return errno == EAGAIN;
                if (got == 0)
                        return false;
                port->in.size += (size_t)got;
                total += (size_t)got;
                /* The driver gives at most one page at a time: less is the end of what is there. */
                if (got < 4096)
                        break;
        }
        return true;
}

bool port_next(struct port *port, struct frame *ret, bool *ret_broken)
{
        *ret_broken = false;
        for (;;) {
                const uint8_t *data = port->in.data + port->in_used;
                size_t left = port->in.size - port->in_used;
                if (port->in_skip > 0) {
                        size_t drop = left < port->in_skip ? left : (size_t)port->in_skip;
                        port->in_used += drop;
                        port->in_skip -= drop;
                        if (port->in_skip > 0)
                                return false;
                        continue;
                }
                if (left == 0)
                        return false;
                int64_t used = frame_decode(data, left, FRAME_TO_GUEST_MAX, ret);
                if (used == 0)
                        return false;
                if (used < 0) {
                        port->in_skip = (uint64_t)FRAME_HEADER_SIZE + load_u32(data);
                        *ret_broken = true;
                        return false;
                }
                port->in_used += (size_t)used;
                return true;
        }
}

bool port_send(struct port *port, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        if (size > FRAME_FROM_GUEST_MAX)
                return false;
        bool done = frame_append(
                &port->control, type, flags, port->session, stream, payload, (uint32_t)size);
        port->control.failed = false; /* later, smaller frames may still fit */
        return done;
}

bool port_fill(struct port *port)
{
        if (port->out_begin == port->out_end)
                port->out_begin = port->out_end = 0;
        else if (port->out_begin > 0)
                return false; /* partly written: the rest first */
        size_t room = sizeof port->out - port->out_end;
        size_t move = port->control.size < room ? port->control.size : room;
        if (move > 0) {
                memcpy(port->out + port->out_end, port->control.data, move);
                port->out_end += move;
                buffer_consume(&port->control, move);
        }
        return port->control.size == 0;
}

uint8_t *port_data_room(struct port *port, size_t *ret_size)
{
        if (port->control.size > 0 || port->out_begin > 0)
                return NULL;
        size_t room = sizeof port->out - port->out_end;
        if (room < FRAME_HEADER_SIZE + PORT_DATA_SIZE / 8)
                return NULL;
        room -= FRAME_HEADER_SIZE;
        *ret_size = room < PORT_DATA_SIZE ? room : PORT_DATA_SIZE;
        return port->out + port->out_end + FRAME_HEADER_SIZE;
}

void port_bulk_done(struct port *port, uint16_t type, uint16_t flags, uint64_t stream, size_t size)
{
        const struct frame frame = {
                .length = (uint32_t)size,
                .type = type,
                .flags = flags,
                .session = port->session,
                .stream = stream,
        };
        frame_encode_header(port->out + port->out_end, &frame);
        port->out_end += FRAME_HEADER_SIZE + size;
}

void port_data_done(struct port *port, uint64_t stream, uint16_t channel, size_t size)
{
        port_bulk_done(port, FRAME_DATA, channel, stream, size);
}

void port_flush(struct port *port)
{
        while (port->out_begin < port->out_end) {
                ssize_t written = write(
                        port->fd, port->out + port->out_begin, port->out_end - port->out_begin);
                if (written < 0 && errno == EINTR)
                        continue;
                if (written <= 0)
                        return;
                port->out_begin += (size_t)written;
        }
        port->out_begin = port->out_end = 0;
}

bool port_pending(const struct port *port)
{
        return port->out_begin < port->out_end;
}

bool port_idle(const struct port *port)
{
        return port->out_begin == port->out_end && port->control.size == 0;
}
