/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copying.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define IDLE_MS 60000
#define FRAME_MS 30000 /* for a frame that has begun to go */

int copying_begin(struct copying *copying, const cubby_copy_options *options, cubby_error *err)
{
        int64_t now = clock_monotonic_ms();
        *copying = (struct copying){.options = options, .told_ms = now};
        if (options->archive && options->owner != NULL)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "owners are either kept (archive) or given, not both");
        return file_deadline(&options->file, false, &copying->deadline_ms, err);
}

int copying_look(void *data, cubby_error *err)
{
        struct copying *copying = data;
        const cubby_copy_options *options = copying->options;
        int64_t now = clock_monotonic_ms();
        if (now >= copying->deadline_ms)
                return cubby_error_set(err, CUBBY_E_TIMEOUT, "the copy was not ready in time");
        if (options->progress == NULL || now - copying->told_ms < COPY_LOOK_MS)
                return 0;
        copying->told_ms = now;
        if (options->progress(options->progress_data, copying->count.bytes, copying->total,
                    copying->count.files))
                return 0;
        return cubby_error_set(err, CUBBY_E_CANCELLED, "the copy was given up");
}

int64_t copying_until(const struct copying *copying)
{
        int64_t until = deadline_after_ms(COPY_LOOK_MS);
        return until < copying->deadline_ms ? until : copying->deadline_ms;
}

int copying_waited(struct copying *copying, cubby_error *err)
{
        if (copying_look(copying, err) < 0)
                return -1;
        if (clock_monotonic_ms() - copying->waiting_ms > IDLE_MS)
                return cubby_error_set(
                        err, CUBBY_E_TIMEOUT, "the box moved nothing for %d s", IDLE_MS / 1000);
        return 0;
}

/* The other end may have taken its time, a pipe say: that is not the box's. */
static void begin_wait(struct copying *copying)
{
        copying->waiting_ms = clock_monotonic_ms();
}

static struct slice text_slice(const char *text)
{
        return (struct slice){.data = (const uint8_t *)text, .size = strlen(text)};
}

static int open_stream(struct copying *copying, cubby_box *box, struct message_file_call *call,
        const char *path, struct file_stream **ret, cubby_error *err)
{
        AUTO_FREE char *absolute = NULL;
        if (file_call_fill(box, path, &copying->options->file, call, &absolute, err) < 0)
                return -1;
        return file_stream_open(box, call, copying->deadline_ms, ret, err);
}

/* A frame, with looks while none comes. */
static int next_frame(
        struct copying *copying, struct file_stream *stream, struct frame *ret, cubby_error *err)
{
        begin_wait(copying);
        for (;;) {
                cubby_error problem = {0};
                if (copying_look(copying, err) < 0)
                        return -1;
                if (file_stream_next(stream, copying_until(copying), ret, &problem) == 0)
                        return 0;
                if (problem.code != CUBBY_E_TIMEOUT) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                if (copying_waited(copying, err) < 0)
                        return -1;
        }
}

static int await_reply(struct copying *copying, struct file_stream *stream, cubby_error *err)
{
        struct frame frame;
        if (next_frame(copying, stream, &frame, err) < 0)
                return -1;
        if (frame.type == FRAME_FILE_REPLY && frame.length == 0)
                return 0;
        return cubby_error_set(
                err, CUBBY_E_PROTOCOL, "the box broke the protocol: more than a copy");
}

/* ---- from a box ---- */

static int next_bytes(void *data, struct slice *ret, cubby_error *err)
{
        struct copy_from *from = data;
        struct frame frame;
        if (next_frame(from->copying, from->stream, &frame, err) < 0)
                return -1;
        if (frame.type != FRAME_DATA)
                return cubby_error_set(
                        err, CUBBY_E_PROTOCOL, "the box broke the protocol: the copy ends early");
        *ret = (struct slice){.data = frame.payload, .size = frame.length};
        return 0;
}

int copy_from_open(struct copying *copying, cubby_box *box, const char *path, struct copy_from *ret,
        cubby_error *err)
{
        struct message_file_call call = {
                .operation = FILE_TREE_OUT, .flags = copying->options->follow ? FILE_FOLLOW : 0U};
        const struct tree_input input = {.next = next_bytes, .data = ret};
        ret->copying = copying;
        ret->stream = NULL;
        tree_reader_init(&ret->reader, &input);
        if (open_stream(copying, box, &call, path, &ret->stream, err) < 0 ||
                tree_next(&ret->reader, &ret->first, err) < 0)
                return -1;
        if (ret->first.kind != TREE_ENTRY || ret->first.entry->path[0] != '\0' ||
                ret->first.entry->type == TREE_SAME)
                return cubby_error_set(err, CUBBY_E_PROTOCOL,
                        "the box broke the protocol: a copy without its root");
        if (ret->first.entry->type == TREE_REGULAR)
                copying->total = ret->first.entry->size;
        return 0;
}

int copy_from_finish(struct copy_from *from, cubby_error *err)
{
        if (from->reader.left.size > 0)
                return cubby_error_set(
                        err, CUBBY_E_PROTOCOL, "the box broke the protocol: more than a copy");
        return await_reply(from->copying, from->stream, err);
}

void copy_from_close(struct copy_from *from)
{
        tree_reader_free(&from->reader);
        file_stream_close(from->stream);
}

/* ---- to a box ---- */

/* The box ended the call: what it says is the error of the copy. */
static int flush(struct copy_to *to, cubby_error *err)
{
        struct copying *copying = to->copying;
        size_t size = to->used;
        to->used = 0;
        begin_wait(copying);
        while (size > 0) {
                cubby_error problem = {0};
                if (copying_look(copying, err) < 0)
                        return -1;
                if (file_stream_room(to->stream, size, copying_until(copying), &problem) == 0)
                        break;
                if (problem.code != CUBBY_E_TIMEOUT) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                if (copying_waited(copying, err) < 0)
                        return -1;
        }
        int64_t limit = deadline_after_ms(FRAME_MS);
        return file_stream_put(to->stream, FRAME_DATA, to->gathered, size,
                limit < copying->deadline_ms ? limit : copying->deadline_ms, NULL, err);
}

static int gather(void *data, const void *bytes, size_t size, cubby_error *err)
{
        struct copy_to *to = data;
        for (const uint8_t *next = bytes; size > 0;) {
                size_t room = COPY_GATHERED - to->used;
                size_t some = size < room ? size : room;
                memcpy(to->gathered + to->used, next, some);
                to->used += some;
                next += some;
                size -= some;
                if (to->used == COPY_GATHERED && flush(to, err) < 0)
                        return -1;
        }
        return 0;
}

int copy_to_open(struct copying *copying, cubby_box *box, const char *folder, const char *name,
        bool scattered, struct copy_to *ret, cubby_error *err)
{
        const cubby_copy_options *options = copying->options;
        struct message_file_call call = {.operation = FILE_TREE_IN,
                .flags = (options->archive ? FILE_ARCHIVE : 0U) | (scattered ? FILE_SCATTERED : 0U),
                .extra = text_slice(name)};
        if (options->owner != NULL)
                call.text = text_slice(options->owner);
        ret->copying = copying;
        ret->used = 0;
        ret->output = (struct tree_output){.put = gather, .data = ret};
        return open_stream(copying, box, &call, folder, &ret->stream, err);
}

int copy_to_finish(struct copy_to *to, cubby_error *err)
{
        if (flush(to, err) < 0 ||
                file_stream_end_input(to->stream, deadline_after_ms(FRAME_MS), err) < 0)
                return -1;
        return await_reply(to->copying, to->stream, err);
}

void copy_to_close(struct copy_to *to)
{
        file_stream_close(to->stream);
}
