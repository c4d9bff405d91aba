/* SPDX-License-Identifier: Apache-2.0 */
#include "box/file_stream.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CREDIT_PIECE (FILE_WINDOW / 8)
#define WHOLE_MS 60000

struct file_stream {
        cubby_box *box;
        struct client *client;
        uint64_t id;
        uint32_t traffic;
        uint32_t window;   /* what the box may still send */
        uint32_t consumed; /* taken by the caller, not credited yet */
        uint32_t shown;    /* of the frame that was given out last */
        uint32_t in_window;
        bool ended;
        bool failed;
        cubby_error failure;
};

static int violation(cubby_error *err, const char *what)
{
        return cubby_error_set(err, CUBBY_E_PROTOCOL, "the box broke the protocol: %s", what);
}

int file_deadline(const cubby_file_options *options, bool whole, int64_t *ret, cubby_error *err)
{
        int64_t timeout_ms = options->timeout_ms;
        if (timeout_ms < 0)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the timeout must be at least 1 ms, or 0");
        if (timeout_ms == 0 && whole)
                timeout_ms = WHOLE_MS;
        *ret = timeout_ms == 0 ? DEADLINE_NEVER : deadline_after_ms(timeout_ms);
        return 0;
}

int file_absolute(const cubby_box *box, const char *path, char **ret, cubby_error *err)
{
        if (box_check_whole(box, err) < 0)
                return -1;
        bool absolute = path[0] == '/';
        const char *folder = absolute ? "" : box->config.workdir;
        size_t length = strlen(folder);
        const char *slash = absolute || (length > 0 && folder[length - 1] == '/') ? "" : "/";
        size_t size = strlen(folder) + strlen(slash) + strlen(path);
        if (path[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "the path is empty");
        if (size > FILE_PATH_MAX) {
                (void)cubby_error_set(err, CUBBY_E_INVALID,
                        "the path is longer than %u bytes: '%.64s...'", FILE_PATH_MAX, path);
                if (err != NULL)
                        err->sys_errno = ENAMETOOLONG;
                return -1;
        }
        if (asprintf(ret, "%s%s%s", folder, slash, path) < 0)
                return cubby_error_no_memory(err);
        return 0;
}

int file_call_fill(const cubby_box *box, const char *path, const cubby_file_options *options,
        struct message_file_call *call, char **ret_path, cubby_error *err)
{
        if (box_check_whole(box, err) < 0)
                return -1;
        const char *user = options->user != NULL ? options->user : box->config.user;
        if (strlen(user) > FILE_USER_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "the user's name is too long");
        if (file_absolute(box, path, ret_path, err) < 0)
                return -1;
        call->user = (struct slice){(const uint8_t *)user, strlen(user)};
        call->path = (struct slice){(const uint8_t *)*ret_path, strlen(*ret_path)};
        return 0;
}

int file_stream_open(cubby_box *box, const struct message_file_call *call, int64_t deadline_ms,
        struct file_stream **ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, FRAME_TO_GUEST_MAX);
        if (box_check_whole(box, err) < 0)
                return -1;
        if (!message_file_call_encode(&payload, call))
                return cubby_error_no_memory(err);
        AUTO(file_stream) struct file_stream *stream = calloc(1, sizeof *stream);
        if (stream == NULL)
                return cubby_error_no_memory(err);
        stream->box = box_share(box);
        stream->traffic = file_traffic(call->operation);
        stream->window = stream->in_window = FILE_WINDOW;
        int64_t limit = deadline_after_ms(BOX_CALL_MS);
        if (deadline_ms < limit)
                limit = deadline_ms;
        if (box_connect(box, limit, &stream->client, err) < 0)
                return -1;
        stream->id = client_new_stream(stream->client);
        if (client_send(stream->client, FRAME_FILE_CALL, 0, stream->id, payload.data, payload.size,
                    limit, err) < 0)
                return -1;
        *ret = take_ptr(&stream);
        return 0;
}

void file_stream_close(struct file_stream *stream)
{
        if (stream == NULL)
                return;
        /* the shim cancels what a vanished client has begun */
        client_close(stream->client);
        box_close(stream->box);
        free(stream);
}

cubby_box *file_stream_box(const struct file_stream *stream)
{
        return stream->box;
}

int file_stream_fd(const struct file_stream *stream)
{
        return client_fd(stream->client);
}

bool file_stream_has_frame(const struct file_stream *stream)
{
        return stream->ended || stream->failed || client_has_frame(stream->client);
}

/* Keeps the failure: every later call ends with it. */
static int fail(struct file_stream *stream, const cubby_error *problem, cubby_error *err)
{
        stream->failed = true;
        stream->failure = *problem;
        if (problem->code == CUBBY_E_BOX_DEAD)
                (void)cubby_error_set(&stream->failure, CUBBY_E_BOX_DEAD,
                        "box '%s' ended during a file call", stream->box->config.name);
        if (err != NULL)
                *err = stream->failure;
        return -1;
}

/* When a frame was cut off by its deadline, the next one fails. */
static int fail_unless_late(
        struct file_stream *stream, const cubby_error *problem, cubby_error *err)
{
        if (problem->code != CUBBY_E_TIMEOUT)
                return fail(stream, problem, err);
        if (err != NULL)
                *err = *problem;
        return -1;
}

static int check_open(const struct file_stream *stream, cubby_error *err)
{
        if (stream->failed) {
                if (err != NULL)
                        *err = stream->failure;
                return -1;
        }
        return stream->ended ? cubby_error_set(err, CUBBY_E_CLOSED, "the file call has ended") : 0;
}

static int take_result(struct file_stream *stream, const struct frame *frame, cubby_error *err)
{
        uint32_t need = frame->type == FRAME_DATA ? FILE_DATA_OUT : FILE_ENTRIES_OUT;
        if ((stream->traffic & need) == 0 || frame->length == 0 ||
                (frame->type == FRAME_DATA && frame->flags != CHANNEL_STDOUT))
                return violation(err, "a result that nobody asked for");
        if (frame->length > FRAME_DATA_MAX || frame->length > stream->window)
                return violation(err, "more results than it was granted");
        stream->window -= frame->length;
        stream->shown = frame->length;
        return 0;
}

static int take_credit(struct file_stream *stream, const struct frame *frame, cubby_error *err)
{
        uint32_t more = 0;
        struct slice payload = {.data = frame->payload, .size = frame->length};
        if (frame->flags != CHANNEL_STDIN || !message_u32_decode(payload, &more) ||
                more > FILE_WINDOW - stream->in_window)
                return violation(err, "more credit than a window");
        stream->in_window += more;
        return 0;
}

/* Lets one frame in. CREDIT is taken here and given out too, for whoever waits for it. */
static int turn(
        struct file_stream *stream, int64_t deadline_ms, struct frame *ret, cubby_error *err)
{
        cubby_error problem = {0};
        struct slice payload;
        int result = 0;
        do {
                if (client_next(stream->client, deadline_ms, ret, &problem) < 0)
                        return fail_unless_late(stream, &problem, err);
        } while (ret->stream != stream->id);
        payload = (struct slice){.data = ret->payload, .size = ret->length};
        switch (ret->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                result = take_result(stream, ret, &problem);
                break;
        case FRAME_CREDIT:
                result = take_credit(stream, ret, &problem);
                break;
        case FRAME_FILE_REPLY:
                stream->ended = true;
                break;
        case FRAME_ERROR:
                result = client_error(payload, &problem);
                break;
        default:
                result = violation(&problem, "an unexpected frame");
                break;
        }
        return result < 0 ? fail(stream, &problem, err) : 0;
}

/* What was given out last is done with: the box may send as much again. */
static int release_shown(struct file_stream *stream, int64_t deadline_ms, cubby_error *err)
{
        uint8_t credit[4];
        stream->consumed += stream->shown;
        stream->shown = 0;
        if (stream->consumed < CREDIT_PIECE)
                return 0;
        store_u32(credit, stream->consumed);
        cubby_error problem = {0};
        if (client_send(stream->client, FRAME_CREDIT, CHANNEL_STDOUT, stream->id, credit,
                    sizeof credit, deadline_ms, &problem) < 0) {
                if (problem.code == CUBBY_E_TIMEOUT) { /* the next call tries again */
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                /* a box that ended may still have left its last frames in the socket */
                if (problem.code != CUBBY_E_BOX_DEAD)
                        return fail(stream, &problem, err);
        }
        stream->window += stream->consumed;
        stream->consumed = 0;
        return 0;
}

int file_stream_next(
        struct file_stream *stream, int64_t deadline_ms, struct frame *ret, cubby_error *err)
{
        if (check_open(stream, err) < 0 || release_shown(stream, deadline_ms, err) < 0)
                return -1;
        struct frame frame;
        do {
                if (turn(stream, deadline_ms, &frame, err) < 0)
                        return -1;
        } while (frame.type == FRAME_CREDIT);
        *ret = frame;
        return 0;
}

/* Waits until a piece of this size, or some of it when `part`, may go. */
static int await_room(struct file_stream *stream, size_t size, bool part, int64_t deadline_ms,
        size_t *ret, cubby_error *err)
{
        struct frame frame;
        for (;;) {
                if (stream->in_window >= size || (part && stream->in_window > 0)) {
                        *ret = size < stream->in_window ? size : stream->in_window;
                        return 0;
                }
                if (turn(stream, deadline_ms, &frame, err) < 0)
                        return -1;
                if (frame.type != FRAME_CREDIT) {
                        cubby_error problem = {0};
                        (void)violation(&problem, "an answer before the end of its input");
                        return fail(stream, &problem, err);
                }
        }
}

int file_stream_room(struct file_stream *stream, size_t size, int64_t deadline_ms, cubby_error *err)
{
        size_t room = 0;
        if (check_open(stream, err) < 0)
                return -1;
        return await_room(stream, size, false, deadline_ms, &room, err);
}

int file_stream_put(struct file_stream *stream, uint16_t type, const void *data, size_t size,
        int64_t deadline_ms, size_t *ret_sent, cubby_error *err)
{
        const uint8_t *next = data;
        size_t done = 0;
        int result = check_open(stream, err);
        while (result == 0 && done < size) {
                size_t piece = size - done < FRAME_DATA_MAX ? size - done : FRAME_DATA_MAX;
                cubby_error problem = {0};
                result = await_room(stream, piece, type == FRAME_DATA, deadline_ms, &piece, err);
                if (result < 0)
                        break;
                if (client_send(stream->client, type, 0, stream->id, next + done, piece,
                            deadline_ms, &problem) < 0) {
                        result = fail_unless_late(stream, &problem, err);
                        break;
                }
                stream->in_window -= (uint32_t)piece;
                done += piece;
        }
        if (ret_sent != NULL)
                *ret_sent = done;
        return result;
}

int file_stream_end_input(struct file_stream *stream, int64_t deadline_ms, cubby_error *err)
{
        cubby_error problem = {0};
        if (check_open(stream, err) < 0)
                return -1;
        if (client_send(stream->client, FRAME_EOF, CHANNEL_STDIN, stream->id, NULL, 0, deadline_ms,
                    &problem) < 0)
                return fail_unless_late(stream, &problem, err);
        return 0;
}

int file_stream_reply(
        struct file_stream *stream, int64_t deadline_ms, struct slice *ret, cubby_error *err)
{
        struct frame frame;
        if (file_stream_next(stream, deadline_ms, &frame, err) < 0)
                return -1;
        if (frame.type != FRAME_FILE_REPLY) {
                cubby_error problem = {0};
                (void)violation(&problem, "a result instead of an answer");
                return fail(stream, &problem, err);
        }
        *ret = (struct slice){.data = frame.payload, .size = frame.length};
        return 0;
}

int file_call(cubby_box *box, const struct message_file_call *call, int64_t deadline_ms,
        struct buffer *ret, cubby_error *err)
{
        AUTO(file_stream) struct file_stream *stream = NULL;
        struct slice reply = {0};
        if (file_stream_open(box, call, deadline_ms, &stream, err) < 0 ||
                file_stream_reply(stream, deadline_ms, &reply, err) < 0)
                return -1;
        return buffer_append(ret, reply.data, reply.size) ? 0 : cubby_error_no_memory(err);
}

int file_info_copy(const struct message_file_info *from, const char *path, cubby_file_info *ret,
        cubby_error *err)
{
        AUTO_FREE char *copy = path != NULL ? strdup(path) : slice_dup_text(from->path);
        AUTO_FREE char *target = slice_dup_text(from->target);
        if (copy == NULL || target == NULL)
                return cubby_error_no_memory(err);
        *ret = (cubby_file_info){.path = take_ptr(&copy),
                .target = take_ptr(&target),
                .type = from->type,
                .mode = from->mode,
                .uid = from->uid,
                .gid = from->gid,
                .links = from->links,
                .bytes = from->bytes,
                .disk_bytes = from->disk_bytes,
                .inode = from->inode,
                .device_major = from->device_major,
                .device_minor = from->device_minor,
                .modified_ns = from->modified_ns,
                .changed_ns = from->changed_ns,
                .accessed_ns = from->accessed_ns};
        return 0;
}
