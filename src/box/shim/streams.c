/* SPDX-License-Identifier: Apache-2.0 */
#include "box/shim/shim.h"

#include <stdlib.h>

static struct stream **bucket_of(struct shim *shim, uint64_t id)
{
        return &shim->buckets[id % STREAM_BUCKETS];
}

struct stream *stream_open(
        struct shim *shim, struct peer *peer, uint64_t peer_id, enum stream_kind kind)
{
        if (kind != STREAM_OWN &&
                (shim->stream_count >= STREAMS_MAX ||
                        (peer != NULL && peer->stream_count >= PEER_STREAMS_MAX)))
                return NULL;
        struct stream *stream = calloc(1, sizeof *stream);
        if (stream == NULL)
                return NULL;
        stream->id = ++shim->last_id;
        stream->peer = peer;
        stream->peer_id = peer_id;
        stream->kind = kind;
        for (int channel = 0; channel < CHANNEL_COUNT; channel++)
                stream->window[channel] = kind == STREAM_FILE ? FILE_WINDOW : STREAM_WINDOW;
        struct stream **bucket = bucket_of(shim, stream->id);
        stream->next_in_bucket = *bucket;
        *bucket = stream;
        shim->stream_count++;
        if (peer != NULL) {
                stream->next_of_peer = peer->streams;
                peer->streams = stream;
                peer->stream_count++;
        }
        return stream;
}

struct stream *stream_find(const struct shim *shim, uint64_t id)
{
        struct stream *stream = shim->buckets[id % STREAM_BUCKETS];
        while (stream != NULL && stream->id != id)
                stream = stream->next_in_bucket;
        return stream;
}

struct stream *stream_of_peer(const struct peer *peer, uint64_t peer_id)
{
        struct stream *stream = peer->streams;
        while (stream != NULL && stream->peer_id != peer_id)
                stream = stream->next_of_peer;
        return stream;
}

static void leave_peer(struct stream *stream)
{
        if (stream->peer == NULL)
                return;
        struct stream **link = &stream->peer->streams;
        while (*link != NULL && *link != stream)
                link = &(*link)->next_of_peer;
        if (*link == stream)
                *link = stream->next_of_peer;
        stream->peer->stream_count--;
        stream->peer = NULL;
        stream->next_of_peer = NULL;
}

void stream_end(struct shim *shim, struct stream *stream)
{
        leave_peer(stream);
        if (shim->command.stream == stream)
                shim->command.stream = NULL;
        struct stream **link = bucket_of(shim, stream->id);
        while (*link != NULL && *link != stream)
                link = &(*link)->next_in_bucket;
        if (*link == stream)
                *link = stream->next_in_bucket;
        shim->stream_count--;
        free(stream);
}

/*
 * The client is gone. Its commands and file calls are cancelled, except detached ones; all its
 * streams stay known until the agent has ended them, so that what still comes
 * on them is expected and not a violation.
 */
void streams_leave(struct shim *shim, struct peer *peer)
{
        while (peer->streams != NULL) {
                struct stream *stream = peer->streams;
                if (stream->kind == STREAM_FILE ||
                        (stream->kind == STREAM_EXEC && (stream->exec_flags & EXEC_DETACH) == 0))
                        (void)guest_send(shim, FRAME_CANCEL, 0, stream->id, NULL, 0);
                leave_peer(stream);
        }
}

/* The agent is gone: every stream ends. */
void streams_fail(struct shim *shim, int code, const char *text)
{
        for (size_t i = 0; i < STREAM_BUCKETS; i++) {
                while (shim->buckets[i] != NULL) {
                        struct stream *stream = shim->buckets[i];
                        if (stream->peer != NULL)
                                peer_error(stream->peer, stream->peer_id, code, text);
                        stream_end(shim, stream);
                }
        }
}

void streams_free(struct shim *shim)
{
        for (size_t i = 0; i < STREAM_BUCKETS; i++)
                while (shim->buckets[i] != NULL)
                        stream_end(shim, shim->buckets[i]);
}
