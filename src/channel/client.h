/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHANNEL_CLIENT_H
#define CHANNEL_CLIENT_H

/*
 * A client's end of the agent protocol: one connection to a box.sock. Blocking
 * calls with deadlines (monotonic ms), no threads of its own. One thread at a
 * time per client, except client_send, which may run beside client_next.
 */

#include "base/error.h"
#include "wire/wire.h"

struct client;

/* Connects to box.sock beneath box_dir_fd. CUBBY_E_BOX_DEAD when nobody listens. */
int client_connect(int box_dir_fd, int64_t deadline_ms, struct client **ret, cubby_error *err);
/* Over an already connected stream socket (tests); takes the descriptor. */
int client_over(int fd, struct client **ret, cubby_error *err);
void client_close(struct client *client);
int client_fd(const struct client *client);

/* A stream id of its own for the next request; never 0, never reused. */
uint64_t client_new_stream(struct client *client);

/* Sends one frame, waiting for room until the deadline. */
int client_send(struct client *client, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size, int64_t deadline_ms, cubby_error *err);

/* The next frame; its payload is valid until the next call. CUBBY_E_TIMEOUT,
 * CUBBY_E_BOX_DEAD (connection closed), CUBBY_E_PROTOCOL. */
int client_next(struct client *client, int64_t deadline_ms, struct frame *ret, cubby_error *err);
/* True when client_next would return without reading from the socket. */
bool client_has_frame(const struct client *client);

/* Request and its one reply on a new stream. An ERROR reply becomes err, a reply
 * of another type than `reply_type` CUBBY_E_PROTOCOL. */
int client_call(struct client *client, uint16_t type, const void *payload, size_t size,
        uint16_t reply_type, int64_t deadline_ms, struct frame *ret, cubby_error *err);

/* Turns an ERROR frame's payload into err; returns -1. */
int client_error(struct slice payload, cubby_error *err);

#endif
