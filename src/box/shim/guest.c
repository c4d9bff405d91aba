/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Frames from the agent. The guest is hostile: nothing here trusts a length, a
 * type, a stream or a layout, and nothing a guest sends names anything on the
 * host. A frame that nobody asked for is dropped and counted; too many of them,
 * or one that could only come from a broken or hostile agent, end the box.
 */
#include "base/clock.h"
#include "box/shim/shim.h"
#include "wire/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct slice payload_of(const struct frame *frame)
{
        return (struct slice){.data = frame->payload, .size = frame->length};
}

static void broken(struct shim *shim, const char *what)
{
        char detail[200];
        (void)snprintf(detail, sizeof detail, "the agent broke the protocol: %s", what);
        if (shim->phase < PHASE_RUNNING) {
                cubby_error error;
                cubby_error_clear(&error);
                (void)cubby_error_set(&error, CUBBY_E_PROTOCOL, "%s", detail);
                boot_fail(shim, "protocol", &error, true);
                return;
        }
        end_kill(shim, "protocol", detail);
}

static void violation(struct shim *shim)
{
        int64_t now = clock_monotonic_ms();
        int64_t forgiven = (now - shim->violations_ms) / 1000;
        if (forgiven > 0) {
                shim->violations_level -= forgiven < shim->violations_level
                        ? (uint32_t)forgiven
                        : shim->violations_level;
                shim->violations_ms = now;
        }
        shim->violations++;
        if (++shim->violations_level > VIOLATIONS_MAX)
                broken(shim, "too many frames that nobody asked for");
}

bool guest_send(struct shim *shim, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        if (shim->phase == PHASE_GONE || shim->agent_closed)
                return false;
        return connection_queue(&shim->agent, type, flags, shim->session, stream, payload, size);
}

bool guest_is_full(const struct shim *shim)
{
        return shim->saver != NULL || shim->freeze_sent ||
                (shim->phase != PHASE_GONE && connection_queued(&shim->agent) >= AGENT_QUEUE_SOFT);
}

/* To the stream's client, if it is still there. */
static void pass_on(struct stream *stream, const struct frame *frame)
{
        if (stream->peer != NULL)
                peer_send(stream->peer, frame->type, frame->flags, stream->peer_id, frame->payload,
                        frame->length);
}

static bool on_data(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        uint16_t channel = frame->flags;
        bool tty = (stream->exec_flags & EXEC_TTY) != 0;
        if (!stream->started || channel == CHANNEL_STDIN || stream->ended[channel] ||
                (tty && channel != CHANNEL_STDOUT) || (stream->exec_flags & EXEC_DETACH) != 0 ||
                frame->length == 0 || frame->length > FRAME_DATA_MAX)
                return false;
        if (frame->length > stream->window[channel]) {
                broken(shim, "more output than it was allowed to send");
                return true;
        }
        stream->window[channel] -= frame->length;
        if (stream->kind == STREAM_MAIN)
                command_output(shim, channel, frame->payload, frame->length);
        else
                pass_on(stream, frame);
        return true;
}

static bool on_eof(struct stream *stream, const struct frame *frame)
{
        uint16_t channel = frame->flags;
        if (!stream->started || stream->ended[channel] || frame->length != 0)
                return false;
        stream->ended[channel] = true;
        if (stream->kind == STREAM_EXEC)
                pass_on(stream, frame);
        return true;
}

static bool on_credit(struct stream *stream, const struct frame *frame)
{
        uint32_t bytes = 0;
        uint32_t whole = stream->kind == STREAM_FILE ? FILE_WINDOW : STREAM_WINDOW;
        if (frame->flags != CHANNEL_STDIN || !message_u32_decode(payload_of(frame), &bytes) ||
                bytes == 0 || bytes > whole - stream->window[CHANNEL_STDIN])
                return false;
        stream->window[CHANNEL_STDIN] += bytes;
        if (stream->kind == STREAM_EXEC || stream->kind == STREAM_FILE)
                pass_on(stream, frame);
        return true;
}

static bool on_started(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        uint32_t pid = 0;
        if (stream->started || !message_u32_decode(payload_of(frame), &pid))
                return false;
        stream->started = true;
        if (stream->kind == STREAM_MAIN)
                boot_command_started(shim);
        else if (stream->kind == STREAM_EXEC)
                pass_on(stream, frame);
        return true;
}

static bool on_exit(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        struct message_exit exit;
        if (!stream->started || !message_exit_decode(payload_of(frame), &exit))
                return false;
        enum stream_kind kind = stream->kind;
        if (kind == STREAM_EXEC)
                pass_on(stream, frame);
        stream_end(shim, stream);
        if (kind == STREAM_MAIN)
                command_ended(shim, &exit);
        else if (kind == STREAM_WARM)
                saved_warmed(shim);
        return true;
}

/* Frames of a command's stream. False: a violation. */
static bool on_exec_frame(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        switch (frame->type) {
        case FRAME_DATA:
                return on_data(shim, stream, frame);
        case FRAME_EOF:
                return on_eof(stream, frame);
        case FRAME_CREDIT:
                return on_credit(stream, frame);
        case FRAME_EXEC_STARTED:
                return on_started(shim, stream, frame);
        case FRAME_EXIT:
                return on_exit(shim, stream, frame);
        default:
                return false;
        }
}

/* Frames of a file call. False: a violation. */
static bool on_file_frame(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        uint32_t need = frame->type == FRAME_DATA ? FILE_DATA_OUT : FILE_ENTRIES_OUT;
        switch (frame->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                if ((stream->traffic & need) == 0 || frame->length == 0 ||
                        (frame->type == FRAME_DATA && frame->flags != CHANNEL_STDOUT) ||
                        frame->length > FRAME_DATA_MAX)
                        return false;
                if (frame->length > stream->window[CHANNEL_STDOUT]) {
                        broken(shim, "more results than it was allowed to send");
                        return true;
                }
                stream->window[CHANNEL_STDOUT] -= frame->length;
                pass_on(stream, frame);
                return true;
        case FRAME_CREDIT:
                return (stream->traffic & (FILE_DATA_IN | FILE_ENTRIES_IN)) != 0 &&
                        on_credit(stream, frame);
        case FRAME_FILE_REPLY:
                if (frame->length > FILE_REPLY_MAX)
                        return false;
                pass_on(stream, frame);
                stream_end(shim, stream);
                return true;
        default:
                return false;
        }
}

void guest_error(const struct message_error *message, cubby_error *ret)
{
        char text[GUEST_TEXT_MAX];
        slice_show(message->text, text, sizeof text);
        (void)cubby_error_set(ret, (int)message->code, "%s", text);
        ret->sys_errno = (int)message->sys_errno;
}

static void main_failed(struct shim *shim, const struct message_error *message)
{
        cubby_error error;
        guest_error(message, &error);
        if (shim->phase < PHASE_RUNNING)
                boot_fail(shim, "exec-failed", &error, false);
        else
                end_kill(shim, "protocol", "the agent gave the running command up");
}

static bool on_error(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        struct message_error message;
        if (!message_error_decode(payload_of(frame), &message))
                return false;
        if (stream->kind == STREAM_MAIN) {
                main_failed(shim, &message);
                return true;
        }
        if (stream->kind == STREAM_OWN && stream->reply == FRAME_FROZEN && shim->freeze_sent) {
                stream_end(shim, stream);
                copy_refused(shim);
                return true;
        }
        if (stream->kind == STREAM_OWN && stream->reply != FRAME_OK) {
                broken(shim,
                        stream->reply == FRAME_RESUMED ? "it refused RESUME"
                                                       : "it refused to be saved");
                return true;
        }
        enum stream_kind kind = stream->kind;
        pass_on(stream, frame);
        stream_end(shim, stream);
        if (kind == STREAM_WARM) /* the image has no such command: nothing to warm */
                saved_warmed(shim);
        return true;
}

static bool answers(const struct stream *stream, const struct frame *frame)
{
        struct slice payload = payload_of(frame);
        switch (frame->type) {
        case FRAME_PONG:
                return payload.size == stream->ping_size &&
                        memcmp(payload.data, stream->ping, payload.size) == 0;
        case FRAME_PROCESS_LIST: {
                struct message_process entries[WIRE_PROCESSES_MAX];
                struct message_processes list = {.entries = entries};
                return message_processes_decode(payload, &list);
        }
        case FRAME_METRICS_REPLY: {
                struct message_metrics metrics;
                return message_metrics_decode(payload, &metrics);
        }
        default:
                return payload.size == 0;
        }
}

static bool on_reply(struct shim *shim, struct stream *stream, const struct frame *frame)
{
        if (stream->reply == 0 || frame->type != stream->reply)
                return false;
        if (stream->kind == STREAM_OWN && frame->type == FRAME_RESUMED) {
                if (!boot_resumed(shim, payload_of(frame)))
                        return false;
                stream = stream_find(shim, frame->stream); /* a failure has ended it */
        } else if (stream->kind == STREAM_OWN && frame->type == FRAME_METRICS_REPLY) {
                if (!saved_metrics(shim, payload_of(frame)))
                        return false;
                stream = stream_find(shim, frame->stream);
        } else if (stream->kind == STREAM_OWN && frame->type == FRAME_FROZEN) {
                if ((shim->phase != PHASE_FREEZE && !shim->freeze_sent) || frame->length != 0)
                        return false;
                stream_end(shim, stream);
                if (shim->freeze_sent)
                        copy_frozen(shim);
                else
                        saved_frozen(shim);
                return true;
        } else if (!answers(stream, frame)) {
                return false;
        } else {
                pass_on(stream, frame);
        }
        if (stream != NULL)
                stream_end(shim, stream);
        return true;
}

/* A frame of an earlier session is a leftover of the saved state. The answer to
 * RESUME is the first of the new one. */
static bool is_of_session(const struct shim *shim, const struct frame *frame)
{
        if (shim->phase == PHASE_RESUME && frame->type == FRAME_RESUMED)
                return frame->session == shim->nonce;
        return frame->session == shim->session;
}

static bool accept_frame(struct shim *shim, const struct frame *frame)
{
        bool has_channel = frame->type == FRAME_DATA || frame->type == FRAME_EOF ||
                frame->type == FRAME_CREDIT;
        if (!frame_type_from_guest(frame->type) || !is_of_session(shim, frame) ||
                (has_channel ? frame->flags >= CHANNEL_COUNT : frame->flags != 0))
                return false;
        if (frame->type == FRAME_HELLO)
                return frame->stream == 0 && boot_hello(shim, payload_of(frame));
        if (frame->type == FRAME_ERROR && frame->stream == 0)
                return boot_agent_failed(shim, payload_of(frame));
        struct stream *stream = stream_find(shim, frame->stream);
        if (stream == NULL)
                return false;
        if (frame->type == FRAME_ERROR)
                return on_error(shim, stream, frame);
        if (stream->kind == STREAM_EXEC || stream->kind == STREAM_MAIN ||
                stream->kind == STREAM_WARM)
                return on_exec_frame(shim, stream, frame);
        if (stream->kind == STREAM_FILE)
                return on_file_frame(shim, stream, frame);
        return on_reply(shim, stream, frame);
}

void guest_frame(struct shim *shim, const struct frame *frame)
{
        if (!accept_frame(shim, frame))
                violation(shim);
}

void guest_watch_part(struct shim *shim)
{
        if (shim->paused || !connection_has_part(&shim->agent))
                shim->part_deadline_ms = DEADLINE_NEVER;
        else if (shim->part_deadline_ms == DEADLINE_NEVER)
                shim->part_deadline_ms = deadline_after_ms(shim->options->part_ms);
}

bool guest_read(struct shim *shim)
{
        long got = connection_read(&shim->agent);
        if (got < 0) {
                shim->agent_closed = true;
                return false;
        }
        struct frame frame;
        int have = 0;
        while (shim->phase != PHASE_GONE && (have = connection_next(&shim->agent, &frame)) > 0) {
                guest_frame(shim, &frame);
                shim->part_deadline_ms = DEADLINE_NEVER;
        }
        if (shim->phase == PHASE_GONE)
                return false;
        if (have < 0)
                broken(shim, "a frame is longer than allowed");
        else
                guest_watch_part(shim);
        return got > 0;
}
