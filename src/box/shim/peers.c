/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Clients of box.sock. They are the box's owner, yet each of their frames is
 * checked: a client that breaks the protocol loses its connection, nothing else.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "box/shim/shim.h"
#include "wire/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_PAUSE_MS 200
#define SEND_BUFFER (256 * 1024)

enum verdict { TAKEN, HELD, BAD };

static bool may_connect(const struct shim *shim, int fd)
{
        struct ucred peer;
        socklen_t size = sizeof peer;
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                (peer.uid == 0 || peer.uid == shim->client_uid);
}

/* Those beyond the ceiling wait in the socket's line: closed, they would take the box for
 * one that has ended. */
void peers_accept(struct shim *shim)
{
        while (shim->peer_count < PEERS_MAX) {
                AUTO_FD int fd = accept4(shim->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (fd < 0) {
                        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                                shim->accept_ms = deadline_after_ms(ACCEPT_PAUSE_MS);
                        return;
                }
                if (!may_connect(shim, fd))
                        continue;
                struct peer *peer = calloc(1, sizeof *peer);
                if (peer == NULL)
                        continue;
                int size = SEND_BUFFER;
                (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
                connection_init(&peer->connection, take_fd(&fd), FRAME_TO_GUEST_MAX, PEER_QUEUE_MAX,
                        PEER_QUEUE_MAX);
                peer->poll_index = SIZE_MAX;
                peer->next = shim->peers;
                shim->peers = peer;
                shim->peer_count++;
                peer_read(shim, peer); /* its request has mostly come with it */
        }
}

void peer_send(struct peer *peer, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        if (!connection_queue(&peer->connection, type, flags, 0, stream, payload, size))
                peer->closing = true; /* it does not read what it asked for */
}

void peer_error(struct peer *peer, uint64_t stream, int code, const char *text)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 2 * WIRE_TEXT_MAX);
        struct message_error message = {.code = (uint32_t)code,
                .text = {.data = (const uint8_t *)text, .size = strlen(text)}};
        if (message_error_encode(&payload, &message))
                peer_send(peer, FRAME_ERROR, 0, stream, payload.data, payload.size);
        else
                peer->closing = true;
}

/* Why the agent cannot be asked now; NULL when it can. */
static const char *not_now(const struct shim *shim, uint16_t type, int *ret_code)
{
        *ret_code = CUBBY_E_STATE;
        if (shim->phase < PHASE_RUNNING)
                return "the box is still starting";
        if (shim->phase != PHASE_RUNNING ||
                (shim->stopping && (type == FRAME_EXEC || type == FRAME_FILE_CALL)))
                return "the box is stopping";
        if (shim->paused)
                return "the box is paused";
        *ret_code = CUBBY_E_BUSY;
        return guest_is_full(shim) ? "the box does not take requests at present" : NULL;
}

static bool exec_is_valid(const struct frame *frame, uint32_t *ret_flags)
{
        struct message_exec exec;
        bool valid =
                message_exec_decode(
                        (struct slice){.data = frame->payload, .size = frame->length}, &exec) &&
                (exec.flags & EXEC_MAIN) == 0;
        *ret_flags = exec.flags;
        message_exec_free(&exec);
        return valid;
}

static bool file_call_is_valid(const struct frame *frame, uint32_t *ret_traffic)
{
        struct message_file_call call;
        if (!message_file_call_decode(
                    (struct slice){.data = frame->payload, .size = frame->length}, &call))
                return false;
        *ret_traffic = file_traffic(call.operation);
        return true;
}

static bool request_is_valid(
        const struct frame *frame, uint32_t *ret_exec_flags, uint32_t *ret_traffic)
{
        switch (frame->type) {
        case FRAME_EXEC:
                return exec_is_valid(frame, ret_exec_flags);
        case FRAME_FILE_CALL:
                return file_call_is_valid(frame, ret_traffic);
        case FRAME_PING:
                return frame->length <= PING_MAX;
        default:
                return frame->length == 0;
        }
}

static enum stream_kind kind_of(uint16_t type)
{
        return type == FRAME_EXEC         ? STREAM_EXEC
                : type == FRAME_FILE_CALL ? STREAM_FILE
                                          : STREAM_REQUEST;
}

/* A request that the agent answers, on a new stream. */
static enum verdict forward_request(
        struct shim *shim, struct peer *peer, const struct frame *frame, uint16_t reply)
{
        uint32_t exec_flags = 0;
        uint32_t traffic = 0;
        if (!request_is_valid(frame, &exec_flags, &traffic))
                return BAD;
        if (shim->saver != NULL || shim->freeze_sent)
                return HELD;
        int code = 0;
        const char *reason = not_now(shim, frame->type, &code);
        struct stream *stream = NULL;
        if (reason == NULL) {
                stream = stream_open(shim, peer, frame->stream, kind_of(frame->type));
                code = CUBBY_E_BUSY;
                reason = "too many requests at once";
        }
        if (stream == NULL) {
                peer_error(peer, frame->stream, code, reason);
                return TAKEN;
        }
        stream->reply = reply;
        stream->exec_flags = exec_flags;
        stream->traffic = traffic;
        if (frame->type == FRAME_PING) {
                stream->ping_size = (uint8_t)frame->length;
                memcpy(stream->ping, frame->payload, frame->length);
        }
        if (!guest_send(shim, frame->type, 0, stream->id, frame->payload, frame->length)) {
                peer_error(peer, frame->stream, CUBBY_E_BOX_DEAD, "the box has ended");
                stream_end(shim, stream);
        }
        return TAKEN;
}

static bool exec_frame_is_valid(const struct stream *stream, const struct frame *frame)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        uint32_t number = 0;
        uint16_t rows = 0;
        uint16_t columns = 0;
        switch (frame->type) {
        case FRAME_DATA:
                return frame->flags == CHANNEL_STDIN && (stream->exec_flags & EXEC_STDIN) != 0 &&
                        payload.size > 0 && payload.size <= FRAME_DATA_MAX &&
                        payload.size <= stream->window[CHANNEL_STDIN];
        case FRAME_EOF:
                return frame->flags == CHANNEL_STDIN && payload.size == 0;
        case FRAME_CREDIT:
                return (frame->flags == CHANNEL_STDOUT || frame->flags == CHANNEL_STDERR) &&
                        message_u32_decode(payload, &number) &&
                        number <= STREAM_WINDOW - stream->window[frame->flags];
        case FRAME_RESIZE:
                return message_resize_decode(payload, &rows, &columns);
        case FRAME_SIGNAL:
                return message_u32_decode(payload, &number) && number > 0 && number <= 64;
        case FRAME_CANCEL:
                return payload.size == 0;
        default:
                return false;
        }
}

static bool file_frame_is_valid(const struct stream *stream, const struct frame *frame)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        uint32_t need = frame->type == FRAME_DATA ? FILE_DATA_IN : FILE_ENTRIES_IN;
        uint32_t number = 0;
        switch (frame->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                return (stream->traffic & need) != 0 && frame->flags == CHANNEL_STDIN &&
                        payload.size > 0 && payload.size <= FRAME_DATA_MAX &&
                        payload.size <= stream->window[CHANNEL_STDIN];
        case FRAME_EOF:
                return (stream->traffic & (FILE_DATA_IN | FILE_ENTRIES_IN)) != 0 &&
                        frame->flags == CHANNEL_STDIN && payload.size == 0;
        case FRAME_CREDIT:
                return frame->flags == CHANNEL_STDOUT && message_u32_decode(payload, &number) &&
                        number <= FILE_WINDOW - stream->window[CHANNEL_STDOUT];
        case FRAME_CANCEL:
                return payload.size == 0;
        default:
                return false;
        }
}

/* A frame of a running command, or of a file call, of this client. */
static enum verdict forward_stream_frame(
        struct shim *shim, struct stream *stream, const struct frame *frame)
{
        if (stream->kind == STREAM_EXEC               ? !exec_frame_is_valid(stream, frame)
                        : stream->kind == STREAM_FILE ? !file_frame_is_valid(stream, frame)
                                                      : true)
                return BAD;
        if (frame->type != FRAME_CANCEL && guest_is_full(shim))
                return HELD;
        if (frame->type == FRAME_DATA || frame->type == FRAME_FILE_ENTRY)
                stream->window[CHANNEL_STDIN] -= frame->length;
        else if (frame->type == FRAME_CREDIT)
                stream->window[frame->flags] += load_u32(frame->payload);
        (void)guest_send(
                shim, frame->type, frame->flags, stream->id, frame->payload, frame->length);
        return TAKEN;
}

static uint16_t reply_to(uint16_t type)
{
        switch (type) {
        case FRAME_PING:
                return FRAME_PONG;
        case FRAME_PROCESSES:
                return FRAME_PROCESS_LIST;
        case FRAME_METRICS:
                return FRAME_METRICS_REPLY;
        default:
                return 0;
        }
}

static bool begins_stream(uint16_t type)
{
        return type == FRAME_EXEC || type == FRAME_FILE_CALL || reply_to(type) != 0 ||
                type >= FRAME_SHIM_STATUS;
}

static enum verdict take_frame(struct shim *shim, struct peer *peer, const struct frame *frame)
{
        bool has_channel = frame->type == FRAME_DATA || frame->type == FRAME_EOF ||
                frame->type == FRAME_CREDIT;
        if (frame->session != 0 || frame->stream == 0 || (!has_channel && frame->flags != 0))
                return BAD;
        if (begins_stream(frame->type)) {
                if (frame->stream <= peer->last_stream)
                        return BAD; /* ids are never used again */
                enum verdict verdict = frame->type < FRAME_SHIM_STATUS
                        ? forward_request(shim, peer, frame, reply_to(frame->type))
                        : control_frame(shim, peer, frame) ? TAKEN
                                                           : BAD;
                if (verdict == TAKEN) /* one that is held comes again */
                        peer->last_stream = frame->stream;
                return verdict;
        }
        struct attach *attach = attach_find(peer, frame->stream);
        if (attach != NULL) {
                if (frame->type == FRAME_CANCEL) {
                        attach_close(peer, attach);
                        return TAKEN;
                }
                bool is_told = frame->type == FRAME_SIGNAL || frame->type == FRAME_RESIZE;
                if (is_told && peer != shim->saver && shim->command.stream != NULL &&
                        guest_is_full(shim))
                        return HELD;
                return attach_frame(shim, attach, frame) ? TAKEN : BAD;
        }
        struct stream *stream = stream_of_peer(peer, frame->stream);
        if (stream != NULL)
                return forward_stream_frame(shim, stream, frame);
        /* It may have crossed the end of its stream on the way. */
        bool may_be_late = has_channel || frame->type == FRAME_RESIZE ||
                frame->type == FRAME_SIGNAL || frame->type == FRAME_CANCEL ||
                frame->type == FRAME_FILE_ENTRY;
        return may_be_late && frame->stream <= peer->last_stream ? TAKEN : BAD;
}

void peer_handle(struct shim *shim, struct peer *peer)
{
        struct frame frame;
        int have = 0;
        peer->held = false;
        while (!peer->closing && (have = connection_next(&peer->connection, &frame)) > 0) {
                enum verdict verdict = take_frame(shim, peer, &frame);
                if (verdict == BAD)
                        peer->closing = true;
                if (verdict == HELD) {
                        connection_unread(&peer->connection, &frame);
                        peer->held = true;
                        return;
                }
        }
        if (have < 0)
                peer->closing = true;
}

void peer_read(struct shim *shim, struct peer *peer)
{
        if (connection_read(&peer->connection) < 0)
                peer->closing = true;
        else
                peer_handle(shim, peer);
}

void peer_flush(struct peer *peer)
{
        if (connection_queued(&peer->connection) > 0 && connection_flush(&peer->connection) < 0)
                peer->closing = true;
}

static void peer_free(struct shim *shim, struct peer *peer)
{
        streams_leave(shim, peer);
        copy_leave(shim, peer);
        if (shim->claimer == peer)
                shim->claimer = NULL;
        while (peer->attaches != NULL)
                attach_close(peer, peer->attaches);
        connection_close(&peer->connection);
        shim->peer_count--;
        free(peer);
}

void peers_drop_closing(struct shim *shim)
{
        struct peer **link = &shim->peers;
        while (*link != NULL) {
                struct peer *peer = *link;
                if (!peer->closing) {
                        link = &peer->next;
                        continue;
                }
                *link = peer->next;
                peer_free(shim, peer);
        }
}

void peers_free(struct shim *shim)
{
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next)
                peer->closing = true;
        peers_drop_closing(shim);
}
