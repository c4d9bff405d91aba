/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_FILE_STREAM_H
#define BOX_FILE_STREAM_H

/*
 * One file call on its way, over a connection of its own. What comes from the box is
 * checked here for order, size and credit; what an entry or a reply says, by its reader.
 * For one thread at a time. Deadlines are monotonic ms, DEADLINE_NEVER for none.
 */

#include "box/box.h"
#include "wire/files.h"

struct file_stream;

/* The options of a file call, checked: times out of range are CUBBY_E_INVALID. `whole`:
 * 0 means the default of calls that return data whole, else none. */
int file_deadline(const cubby_file_options *options, bool whole, int64_t *ret, cubby_error *err);

/*
 * Fills the path and the user of a call. A relative path begins at the box's working
 * folder; `*ret_path` is the path as the box is asked, the caller's to free after the call
 * was sent. `call->path` and `call->user` point into it, the box and the options.
 */
int file_call_fill(const cubby_box *box, const char *path, const cubby_file_options *options,
        struct message_file_call *call, char **ret_path, cubby_error *err);
/* The absolute form alone; CUBBY_E_INVALID for an empty or too long one. */
int file_absolute(const cubby_box *box, const char *path, char **ret, cubby_error *err);

int file_stream_open(cubby_box *box, const struct message_file_call *call, int64_t deadline_ms,
        struct file_stream **ret, cubby_error *err);
/* NULL-safe. A call that has not ended is cancelled. */
void file_stream_close(struct file_stream *stream);
DEFINE_AUTO(file_stream, file_stream_close)
cubby_box *file_stream_box(const struct file_stream *stream);
int file_stream_fd(const struct file_stream *stream);
/* True when file_stream_next would not wait. */
bool file_stream_has_frame(const struct file_stream *stream);

/*
 * The next frame: DATA, FILE_ENTRY or FILE_REPLY, after which none comes. Its payload is
 * valid until the next call. An ERROR of the box becomes err and ends the stream;
 * CUBBY_E_TIMEOUT does not.
 */
int file_stream_next(
        struct file_stream *stream, int64_t deadline_ms, struct frame *ret, cubby_error *err);

/* Waits until a DATA of this size, at most FRAME_DATA_MAX, may go. */
int file_stream_room(
        struct file_stream *stream, size_t size, int64_t deadline_ms, cubby_error *err);
/* Sends DATA, in pieces, or one FILE_ENTRY; waits for credit. Returns 0, or -1: then the
 * call failed in the box, or is of no use any more, except with CUBBY_E_TIMEOUT before
 * anything was sent. *ret_sent (may be NULL) is what was sent, also of a failed call. */
int file_stream_put(struct file_stream *stream, uint16_t type, const void *data, size_t size,
        int64_t deadline_ms, size_t *ret_sent, cubby_error *err);
int file_stream_end_input(struct file_stream *stream, int64_t deadline_ms, cubby_error *err);
/* Waits for FILE_REPLY; anything else is a protocol error. */
int file_stream_reply(
        struct file_stream *stream, int64_t deadline_ms, struct slice *ret, cubby_error *err);

/* A call without a stream: its reply is copied to `ret`. */
int file_call(cubby_box *box, const struct message_file_call *call, int64_t deadline_ms,
        struct buffer *ret, cubby_error *err);

/* A copy for the caller of cubby.h; `path` NULL: the one in the message. */
int file_info_copy(const struct message_file_info *from, const char *path, cubby_file_info *ret,
        cubby_error *err);

#endif
