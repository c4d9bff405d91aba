/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The box's own command. Its output goes into the kept log, and from there to
 * every attached client at that client's pace: each has its place in the log.
 * The command gets credit for what was logged unless a client is too far behind:
 * then it waits, for as long as that client's connection lives.
 */
#include "box/shim/shim.h"

#include <stdlib.h>
#include <string.h>

#define PUMP_ONCE (1U << 20)
#define CREDIT_PIECE (STREAM_WINDOW / 4)

struct attach *attach_find(const struct peer *peer, uint64_t stream)
{
        struct attach *attach = peer->attaches;
        while (attach != NULL && attach->stream != stream)
                attach = attach->next;
        return attach;
}

void attach_open(struct shim *shim, struct peer *peer, uint64_t stream, bool waits, bool replay)
{
        struct command *command = &shim->command;
        if (!command->exists) {
                peer_error(peer, stream, CUBBY_E_STATE, "the box has no command of its own");
                return;
        }
        if (shim->failed) {
                peer_error(peer, stream, CUBBY_E_BOX_DEAD, "the box did not start");
                return;
        }
        size_t count = 0;
        for (const struct attach *a = peer->attaches; a != NULL; a = a->next)
                count++;
        struct attach *attach = count < PEER_ATTACHES_MAX ? calloc(1, sizeof *attach) : NULL;
        if (attach == NULL) {
                peer_error(peer, stream, CUBBY_E_BUSY, "too many requests at once");
                return;
        }
        *attach = (struct attach){.stream = stream,
                .waits_only = waits,
                .place = KEPT_PLACE_NONE,
                .window = STREAM_WINDOW};
        for (int channel = 0; channel < CHANNEL_COUNT; channel++)
                attach->room[channel] = STREAM_WINDOW;
        buffer_init(&attach->input, STREAM_WINDOW);
        cubby_error error;
        cubby_error_clear(&error);
        if (!waits &&
                kept_place_open(&shim->kept, replay ? command->first : kept_log_end(&shim->kept),
                        &attach->place, &error) < 0) {
                free(attach);
                peer_error(peer, stream, error.code, error.message);
                return;
        }
        command->seen = command->seen || !waits; /* its creator wants the output */
        attach->next = peer->attaches;
        peer->attaches = attach;
}

void attach_close(struct peer *peer, struct attach *attach)
{
        struct attach **link = &peer->attaches;
        while (*link != NULL && *link != attach)
                link = &(*link)->next;
        if (*link == attach)
                *link = attach->next;
        kept_place_close(&attach->place);
        buffer_free(&attach->input);
        free(attach);
}

/* Frames of an attached client. False when one breaks the protocol. */
bool attach_frame(struct shim *shim, struct attach *attach, const struct frame *frame)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        struct stream *stream = shim->command.stream;
        uint32_t number = 0;
        uint16_t rows = 0;
        uint16_t columns = 0;
        if (attach->waits_only)
                return false;
        switch (frame->type) {
        case FRAME_DATA:
                if (frame->flags != CHANNEL_STDIN || payload.size == 0 ||
                        payload.size > attach->window || payload.size > FRAME_DATA_MAX)
                        return false;
                attach->window -= (uint32_t)payload.size;
                return buffer_append(&attach->input, payload.data, payload.size);
        case FRAME_EOF:
                if (frame->flags != CHANNEL_STDIN || payload.size != 0)
                        return false;
                attach->input_ended = true;
                return true;
        case FRAME_CREDIT:
                if (frame->flags == CHANNEL_STDIN || frame->flags >= CHANNEL_COUNT ||
                        !message_u32_decode(payload, &number) ||
                        number > STREAM_WINDOW - attach->room[frame->flags])
                        return false;
                attach->room[frame->flags] += number;
                return true;
        case FRAME_RESIZE:
                if (!message_resize_decode(payload, &rows, &columns))
                        return false;
                break;
        case FRAME_SIGNAL:
                if (!message_u32_decode(payload, &number) || number == 0 || number > 64)
                        return false;
                break;
        default:
                return false;
        }
        if (stream != NULL)
                (void)guest_send(shim, frame->type, 0, stream->id, payload.data, payload.size);
        return true;
}

/* The disk is full: clients that have seen everything so far get the bytes without the log. */
static void deliver_unlogged(struct shim *shim, uint16_t channel, const void *data, uint32_t size)
{
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next)
                for (struct attach *a = peer->attaches; a != NULL; a = a->next) {
                        if (a->waits_only || size > a->room[channel] ||
                                kept_place_behind(&shim->kept, &a->place) > 0)
                                continue;
                        peer_send(peer, FRAME_DATA, channel, a->stream, data, size);
                        a->room[channel] -= size;
                }
}

void command_output(struct shim *shim, uint16_t channel, const void *data, size_t size)
{
        if (kept_log_append(&shim->kept, (uint8_t)channel, data, size) < 0)
                deliver_unlogged(shim, channel, data, (uint32_t)size);
        shim->command.owed[channel] += (uint32_t)size;
}

void command_ended(struct shim *shim, const struct message_exit *exit)
{
        struct command *command = &shim->command;
        command->ended = true;
        command->exit = *exit;
        shim->exit.exit_code = exit->signal != 0 ? (int)(128 + exit->signal) : (int)exit->code;
        shim->exit.signal = (int)exit->signal;
        shim->exit.oom = (exit->flags & EXIT_FLAG_OOM) != 0;
        end_reason(shim, "exited", "");
        end_shutdown(shim, shim->options->shutdown_ms);
}

void command_killed(struct shim *shim)
{
        struct command *command = &shim->command;
        if (!command->exists || command->ended || shim->failed)
                return;
        command->ended = true;
        command->exit = (struct message_exit){.signal = 9};
        shim->exit.exit_code = 128 + 9;
        shim->exit.signal = 9;
}

/* A part of the log that cannot be read: on behind it. False when that fails too. */
static bool skip_damage(struct shim *shim, struct attach *attach)
{
        kept_place_close(&attach->place);
        return kept_place_open(&shim->kept, kept_log_end(&shim->kept), &attach->place, NULL) == 0;
}

/* Moves log into the client's line. Returns true when all of it is there. */
static bool pump_output(struct shim *shim, struct peer *peer, struct attach *attach)
{
        uint8_t data[KEPT_RECORD_MAX];
        size_t moved = 0;
        while (!peer->closing) {
                if (connection_queued(&peer->connection) >= ATTACH_QUEUE) {
                        peer_flush(peer);
                        if (connection_queued(&peer->connection) >= ATTACH_QUEUE)
                                return false; /* the loop waits for room */
                }
                if (moved > PUMP_ONCE) {
                        shim->again = true; /* others get their turn between */
                        return false;
                }
                uint8_t channel = 0;
                struct kept_place before = attach->place;
                long size = kept_place_next(&shim->kept, &attach->place, &channel, data);
                if (size == 0)
                        return true;
                if (size < 0) {
                        peer->closing = peer->closing || !skip_damage(shim, attach);
                        continue;
                }
                if ((uint32_t)size > attach->room[channel]) {
                        /* a step to the next segment, if there was one, stays made */
                        attach->place.at = attach->place.number == before.number ? before.at : 0;
                        return false; /* until the client gives credit */
                }
                peer_send(peer, FRAME_DATA, channel, attach->stream, data, (size_t)size);
                attach->room[channel] -= (uint32_t)size;
                moved += (size_t)size;
        }
        return false;
}

/* The last frames of an attach that has got the whole log. */
static void send_end(struct shim *shim, struct peer *peer, const struct attach *attach)
{
        if (!shim->command.ended) {
                char text[END_TEXT_MAX];
                end_text(shim, text, sizeof text);
                peer_error(peer, attach->stream, CUBBY_E_BOX_DEAD, text);
                return;
        }
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 256);
        if (!message_exit_encode(&payload, &shim->command.exit)) {
                peer->closing = true;
                return;
        }
        if (!attach->waits_only) {
                peer_send(peer, FRAME_EOF, CHANNEL_STDOUT, attach->stream, NULL, 0);
                if (!shim->config.tty)
                        peer_send(peer, FRAME_EOF, CHANNEL_STDERR, attach->stream, NULL, 0);
        }
        peer_send(peer, FRAME_EXIT, 0, attach->stream, payload.data, payload.size);
}

static void pump_input(struct shim *shim, struct peer *peer, struct attach *attach)
{
        struct command *command = &shim->command;
        struct stream *stream = command->stream;
        bool wanted = stream != NULL && (stream->exec_flags & EXEC_STDIN) != 0 &&
                !command->input_ended && !stream->ended[CHANNEL_STDIN];
        uint32_t moved = 0;
        while (attach->input.size > moved) {
                size_t size = attach->input.size - moved;
                if (wanted) {
                        if (guest_is_full(shim) || !stream->started)
                                break;
                        if (size > FRAME_DATA_MAX)
                                size = FRAME_DATA_MAX;
                        if (size > stream->window[CHANNEL_STDIN])
                                size = stream->window[CHANNEL_STDIN];
                        if (size == 0 ||
                                !guest_send(shim, FRAME_DATA, CHANNEL_STDIN, stream->id,
                                        attach->input.data + moved, size))
                                break;
                        stream->window[CHANNEL_STDIN] -= (uint32_t)size;
                }
                moved += (uint32_t)size; /* unwanted bytes pass by */
        }
        if (moved > 0) {
                buffer_consume(&attach->input, moved);
                attach->window += moved;
                uint8_t credit[4];
                store_u32(credit, moved);
                peer_send(peer, FRAME_CREDIT, CHANNEL_STDIN, attach->stream, credit, sizeof credit);
        }
        if (attach->input_ended && attach->input.size == 0 && wanted && stream->started &&
                guest_send(shim, FRAME_EOF, CHANNEL_STDIN, stream->id, NULL, 0))
                command->input_ended = true;
}

/* True when the client holds the command up. */
static bool pump_peer(struct shim *shim, struct peer *peer)
{
        bool behind = false;
        struct attach *next = NULL;
        for (struct attach *attach = peer->attaches; attach != NULL; attach = next) {
                next = attach->next;
                bool whole = attach->waits_only || pump_output(shim, peer, attach);
                if (!whole && kept_place_behind(&shim->kept, &attach->place) > BEHIND_MAX)
                        behind = true;
                if (!attach->waits_only)
                        pump_input(shim, peer, attach);
                if (whole && (shim->command.ended || shim->phase == PHASE_GONE)) {
                        send_end(shim, peer, attach);
                        attach_close(peer, attach);
                }
        }
        return behind && !peer->closing;
}

static void grant_credit(struct shim *shim)
{
        struct command *command = &shim->command;
        struct stream *stream = command->stream;
        for (unsigned channel = CHANNEL_STDOUT; channel < CHANNEL_COUNT; channel++) {
                uint32_t owed = command->owed[channel];
                if (owed < CREDIT_PIECE || stream == NULL)
                        continue;
                uint8_t payload[4];
                store_u32(payload, owed);
                if (!guest_send(shim, FRAME_CREDIT, (uint16_t)channel, stream->id, payload,
                            sizeof payload))
                        continue;
                stream->window[channel] += owed;
                command->owed[channel] = 0;
        }
}

void command_pump(struct shim *shim)
{
        if (!shim->command.exists)
                return;
        bool behind = false;
        shim->again = false;
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next)
                if (!peer->closing && pump_peer(shim, peer))
                        behind = true;
        if (!behind)
                grant_credit(shim);
}
