/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "box/file_stream.h"

#include <string.h>

struct cubby_watch {
        struct file_stream *stream;
        struct reader events; /* of the entry that came last */
        char *path, *from;    /* of the event that was given out last */
        bool ended;           /* the folder is gone */
};

void box_watch_close(cubby_watch *watch)
{
        if (watch == NULL)
                return;
        file_stream_close(watch->stream);
        free(watch->path);
        free(watch->from);
        free(watch);
}
DEFINE_AUTO(cubby_watch, box_watch_close)

static int bad_event(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_PROTOCOL, "the box broke the protocol: a bad event of a watch");
}

static int next_event(
        cubby_watch *watch, int64_t deadline, struct message_file_event *ret, cubby_error *err)
{
        if (watch->ended)
                return cubby_error_set(err, CUBBY_E_CLOSED, "the watched folder is gone");
        if (reader_done(&watch->events)) {
                struct frame frame;
                if (file_stream_next(watch->stream, deadline, &frame, err) < 0)
                        return -1;
                if (frame.type == FRAME_FILE_REPLY) {
                        watch->ended = true;
                        return cubby_error_set(err, CUBBY_E_CLOSED, "the watched folder is gone");
                }
                watch->events = reader_over(frame.payload, frame.length);
        }
        return message_file_event_read(&watch->events, ret) ? 0 : bad_event(err);
}

int box_watch_open(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_watch **ret, cubby_error *err)
{
        struct message_file_call call = {
                .operation = FILE_WATCH, .flags = recursive ? FILE_RECURSIVE : 0};
        struct message_file_event event;
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        AUTO(cubby_watch) cubby_watch *watch = calloc(1, sizeof *watch);
        if (watch == NULL)
                return cubby_error_no_memory(err);
        if (file_deadline(options, true, &deadline, err) < 0 ||
                file_call_fill(box, path, options, &call, &absolute, err) < 0 ||
                file_stream_open(box, &call, deadline, &watch->stream, err) < 0 ||
                next_event(watch, deadline, &event, err) < 0)
                return -1;
        if (event.kind != FILE_READY)
                return bad_event(err);
        *ret = take_ptr(&watch);
        return 0;
}

int box_watch_next(cubby_watch *watch, int64_t timeout_ms, cubby_watch_event *ret, cubby_error *err)
{
        struct message_file_event event;
        if (next_event(watch, deadline_after_ms(timeout_ms), &event, err) < 0)
                return -1;
        if (event.kind == FILE_READY)
                return bad_event(err);
        char *path = slice_dup_text(event.path);
        char *from = slice_dup_text(event.from);
        free(watch->path);
        free(watch->from);
        watch->path = path;
        watch->from = from;
        if (path == NULL || from == NULL)
                return cubby_error_no_memory(err);
        *ret = (cubby_watch_event){
                .kind = event.kind, .folder = event.folder != 0, .path = path, .from = from};
        return 0;
}

int box_watch_fd(const cubby_watch *watch)
{
        return file_stream_fd(watch->stream);
}

cubby_box *box_watch_box(const cubby_watch *watch)
{
        return file_stream_box(watch->stream);
}
