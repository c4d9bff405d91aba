/* SPDX-License-Identifier: Apache-2.0 */
#include "box/file_stream.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define LIST_DEFAULT 500U
#define LIST_MAX 100000U
#define READ_MAX (1ULL << 30)
#define READ_FIRST (64U * 1024U) /* what a buffer begins with */

static int bad_answer(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_PROTOCOL, "the box broke the protocol: a bad answer to a file call");
}

void box_file_info_clear(cubby_file_info *info)
{
        if (info == NULL)
                return;
        free(info->path);
        free(info->target);
        *info = (cubby_file_info){0};
}

/* A call whose answer is its end. */
static int simple_call(cubby_box *box, const char *path, struct message_file_call *call,
        const cubby_file_options *options, struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        if (file_deadline(options, true, &deadline, err) < 0 ||
                file_call_fill(box, path, options, call, &absolute, err) < 0)
                return -1;
        return file_call(box, call, deadline, reply, err);
}

static int plain_call(cubby_box *box, const char *path, struct message_file_call *call,
        const cubby_file_options *options, cubby_error *err)
{
        AUTO_BUFFER struct buffer reply;
        buffer_init(&reply, FILE_REPLY_MAX);
        return simple_call(box, path, call, options, &reply, err);
}

int box_file_stat(cubby_box *box, const char *path, bool follow, const cubby_file_options *options,
        cubby_file_info *ret, cubby_error *err)
{
        struct message_file_call call = {.operation = FILE_STAT, .flags = follow ? FILE_FOLLOW : 0};
        struct message_file_info info;
        AUTO_BUFFER struct buffer reply;
        buffer_init(&reply, FILE_REPLY_MAX);
        if (simple_call(box, path, &call, options, &reply, err) < 0)
                return -1;
        if (!message_file_info_decode((struct slice){reply.data, reply.size}, &info))
                return bad_answer(err);
        return file_info_copy(&info, path, ret, err);
}

int box_file_remove(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_error *err)
{
        struct message_file_call call = {
                .operation = FILE_REMOVE, .flags = recursive ? FILE_RECURSIVE : 0};
        return plain_call(box, path, &call, options, err);
}

int box_file_rename(cubby_box *box, const char *from, const char *to, bool replace,
        const cubby_file_options *options, cubby_error *err)
{
        struct message_file_call call = {
                .operation = FILE_RENAME, .flags = replace ? FILE_REPLACE : 0};
        AUTO_FREE char *name = NULL;
        if (file_absolute(box, to, &name, err) < 0)
                return -1;
        call.text = (struct slice){(const uint8_t *)name, strlen(name)};
        return plain_call(box, from, &call, options, err);
}

int box_file_make_folder(cubby_box *box, const char *path, uint32_t mode, bool parents,
        const cubby_file_options *options, cubby_error *err)
{
        struct message_file_call call = {.operation = FILE_MAKE_FOLDER,
                .flags = parents ? FILE_PARENTS : 0,
                .mode = mode == 0 ? FILE_MODE_DEFAULT : mode};
        if (mode > 07777)
                return cubby_error_set(err, CUBBY_E_INVALID, "the mode is larger than 07777");
        return plain_call(box, path, &call, options, err);
}

void box_file_list_free(cubby_file_list *list)
{
        if (list == NULL)
                return;
        for (size_t i = 0; i < list->count; i++)
                box_file_info_clear(&list->files[i]);
        free(list->files);
        free(list);
}
DEFINE_AUTO(cubby_file_list, box_file_list_free)

static int take_entries(cubby_file_list *list, size_t *room, size_t most, const struct frame *frame,
        cubby_error *err)
{
        struct reader reader = reader_over(frame->payload, frame->length);
        while (!reader_done(&reader)) {
                struct message_file_info info;
                if (!message_file_info_read(&reader, &info) || list->count == most ||
                        info.path.size == 0 || info.path.data[0] != '/')
                        return bad_answer(err);
                if (list->count == *room) {
                        size_t more = *room == 0 ? 64 : 2 * *room;
                        cubby_file_info *files =
                                reallocarray(list->files, more, sizeof list->files[0]);
                        if (files == NULL)
                                return cubby_error_no_memory(err);
                        list->files = files;
                        *room = more;
                }
                if (file_info_copy(&info, NULL, &list->files[list->count], err) < 0)
                        return -1;
                list->count++;
        }
        return 0;
}

static int take_list(struct file_stream *stream, size_t most, int64_t deadline,
        cubby_file_list *list, cubby_error *err)
{
        size_t room = 0;
        for (;;) {
                struct frame frame;
                if (file_stream_next(stream, deadline, &frame, err) < 0)
                        return -1;
                if (frame.type == FRAME_FILE_REPLY) {
                        if (frame.length != 1 || frame.payload[0] > 1 || list->count == 0)
                                return bad_answer(err);
                        list->truncated = frame.payload[0] == 1;
                        return 0;
                }
                if (take_entries(list, &room, most, &frame, err) < 0)
                        return -1;
        }
}

int box_file_list_folder(cubby_box *box, const char *path, const cubby_list_options *options,
        cubby_file_list **ret, cubby_error *err)
{
        uint32_t most = options->max_entries == 0 ? LIST_DEFAULT : options->max_entries;
        struct message_file_call call = {.operation = FILE_LIST,
                .flags = options->all_types ? FILE_ALL_TYPES : 0,
                .mode = (uint32_t)options->depth,
                .count = most};
        AUTO(file_stream) struct file_stream *stream = NULL;
        AUTO(cubby_file_list) cubby_file_list *list = calloc(1, sizeof *list);
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        if (list == NULL)
                return cubby_error_no_memory(err);
        if (options->depth < 0)
                return cubby_error_set(err, CUBBY_E_INVALID, "the depth is negative");
        if (most > LIST_MAX)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "a list has at most %u entries", LIST_MAX);
        if (file_deadline(&options->file, true, &deadline, err) < 0 ||
                file_call_fill(box, path, &options->file, &call, &absolute, err) < 0 ||
                file_stream_open(box, &call, deadline, &stream, err) < 0 ||
                take_list(stream, most, deadline, list, err) < 0)
                return -1;
        *ret = take_ptr(&list);
        return 0;
}

/* All data of a stream and a NUL, at most `limit` bytes of it. */
static int collect(struct file_stream *stream, const char *path, uint64_t limit, int64_t deadline,
        void **ret, size_t *ret_size, cubby_error *err)
{
        size_t size = 0;
        size_t room = READ_FIRST;
        AUTO_FREE uint8_t *data = malloc(room);
        struct frame frame;
        if (data == NULL)
                return cubby_error_no_memory(err);
        for (;;) {
                if (file_stream_next(stream, deadline, &frame, err) < 0)
                        return -1;
                if (frame.type == FRAME_FILE_REPLY)
                        break;
                if (frame.length > limit - size) {
                        (void)cubby_error_errno(err, EFBIG, "'%.256s'", path);
                        if (err != NULL)
                                err->code = CUBBY_E_LIMIT;
                        return -1;
                }
                if (frame.length >= room - size) {
                        uint8_t *more = realloc(data, 2 * room);
                        if (more == NULL)
                                return cubby_error_no_memory(err);
                        data = more;
                        room *= 2;
                }
                memcpy(data + size, frame.payload, frame.length);
                size += frame.length;
        }
        data[size] = '\0';
        *ret = take_ptr(&data);
        *ret_size = size;
        return 0;
}

static int read_call(cubby_box *box, const char *path, struct message_file_call *call,
        uint64_t limit, const cubby_file_options *options, void **ret, size_t *ret_size,
        cubby_error *err)
{
        AUTO(file_stream) struct file_stream *stream = NULL;
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        if (file_deadline(options, true, &deadline, err) < 0 ||
                file_call_fill(box, path, options, call, &absolute, err) < 0 ||
                file_stream_open(box, call, deadline, &stream, err) < 0)
                return -1;
        return collect(stream, path, limit, deadline, ret, ret_size, err);
}

int box_file_read(cubby_box *box, const char *path, uint64_t offset, uint64_t max_bytes,
        const cubby_file_options *options, void **ret, size_t *ret_size, cubby_error *err)
{
        /* One more than is allowed tells of a file that has no size until it is read. */
        struct message_file_call call = {.operation = FILE_READ,
                .flags = max_bytes == 0 ? FILE_WHOLE : 0,
                .from = offset,
                .count = max_bytes == 0 ? READ_MAX + 1 : max_bytes};
        return read_call(box, path, &call, max_bytes == 0 ? READ_MAX : max_bytes, options, ret,
                ret_size, err);
}

int box_file_read_lines(cubby_box *box, const char *path, uint64_t first, uint64_t last,
        const cubby_file_options *options, char **ret, size_t *ret_size, cubby_error *err)
{
        struct message_file_call call = {
                .operation = FILE_READ_LINES, .from = first, .count = last};
        void *text = NULL;
        if (read_call(box, path, &call, READ_MAX, options, &text, ret_size, err) < 0)
                return -1;
        *ret = text;
        return 0;
}

struct cubby_file {
        struct file_stream *stream;
        const uint8_t *next; /* data that came and was not taken */
        size_t left;
        bool writes;
        bool ended;   /* read to the end */
        bool sent;    /* the end of the input was sent */
        bool written; /* and the box has answered */
};

void box_file_close(cubby_file *file)
{
        if (file == NULL)
                return;
        file_stream_close(file->stream);
        free(file);
}
DEFINE_AUTO(cubby_file, box_file_close)

cubby_box *box_file_box(const cubby_file *file)
{
        return file_stream_box(file->stream);
}

/* The next data, or the end. */
static int let_in(cubby_file *file, int64_t deadline, cubby_error *err)
{
        struct frame frame;
        if (file_stream_next(file->stream, deadline, &frame, err) < 0)
                return -1;
        file->ended = frame.type == FRAME_FILE_REPLY;
        file->next = frame.payload;
        file->left = file->ended ? 0 : frame.length;
        return 0;
}

int box_file_open_read(cubby_box *box, const char *path, uint64_t offset,
        const cubby_file_options *options, cubby_file **ret, cubby_error *err)
{
        struct message_file_call call = {.operation = FILE_READ, .from = offset};
        AUTO(cubby_file) cubby_file *file = calloc(1, sizeof *file);
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        if (file == NULL)
                return cubby_error_no_memory(err);
        if (file_deadline(options, true, &deadline, err) < 0 ||
                file_call_fill(box, path, options, &call, &absolute, err) < 0 ||
                file_stream_open(box, &call, deadline, &file->stream, err) < 0 ||
                let_in(file, deadline, err) < 0)
                return -1;
        *ret = take_ptr(&file);
        return 0;
}

static int fill_write(
        const cubby_write_options *options, struct message_file_call *call, cubby_error *err)
{
        const char *owner = options->owner != NULL ? options->owner : "";
        if (options->mode < -1 || options->mode > 07777)
                return cubby_error_set(err, CUBBY_E_INVALID, "the mode is larger than 07777");
        if (strlen(owner) > FILE_USER_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "the owner's name is too long");
        if (options->append && options->exclusive)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "what must be new cannot be appended to");
        *call = (struct message_file_call){.operation = FILE_WRITE,
                .flags = (options->append ? FILE_APPEND : 0U) |
                        (options->no_parents ? FILE_NO_PARENTS : 0U) |
                        (options->exclusive ? FILE_EXCLUSIVE : 0U) |
                        (options->no_sync ? FILE_NO_SYNC : 0U),
                .mode = options->mode <= 0 ? FILE_MODE_DEFAULT : (uint32_t)options->mode,
                .text = {(const uint8_t *)owner, strlen(owner)}};
        return 0;
}

int box_file_write(cubby_box *box, const char *path, const void *data, size_t size,
        const cubby_write_options *options, cubby_error *err)
{
        struct message_file_call call;
        AUTO(file_stream) struct file_stream *stream = NULL;
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        struct slice reply = {0};
        if (fill_write(options, &call, err) < 0 ||
                file_deadline(&options->file, true, &deadline, err) < 0 ||
                file_call_fill(box, path, &options->file, &call, &absolute, err) < 0)
                return -1;
        call.count = size;
        if (file_stream_open(box, &call, deadline, &stream, err) < 0 ||
                file_stream_put(stream, FRAME_DATA, data, size, deadline, NULL, err) < 0 ||
                file_stream_end_input(stream, deadline, err) < 0)
                return -1;
        return file_stream_reply(stream, deadline, &reply, err);
}

int box_file_open_write(cubby_box *box, const char *path, const cubby_write_options *options,
        cubby_file **ret, cubby_error *err)
{
        struct message_file_call call;
        struct frame frame;
        AUTO(cubby_file) cubby_file *file = calloc(1, sizeof *file);
        AUTO_FREE char *absolute = NULL;
        int64_t deadline = 0;
        if (file == NULL)
                return cubby_error_no_memory(err);
        file->writes = true;
        if (fill_write(options, &call, err) < 0 ||
                file_deadline(&options->file, true, &deadline, err) < 0 ||
                file_call_fill(box, path, &options->file, &call, &absolute, err) < 0)
                return -1;
        call.flags |= FILE_ANNOUNCE;
        if (file_stream_open(box, &call, deadline, &file->stream, err) < 0 ||
                file_stream_next(file->stream, deadline, &frame, err) < 0)
                return -1;
        if (frame.type != FRAME_FILE_ENTRY)
                return bad_answer(err);
        *ret = take_ptr(&file);
        return 0;
}

int64_t box_file_next(
        cubby_file *file, void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(timeout_ms);
        if (file->writes)
                return cubby_error_set(err, CUBBY_E_STATE, "the file is open for writing");
        while (file->left == 0 && !file->ended)
                if (let_in(file, deadline, err) < 0)
                        return -1;
        size_t taken = size < file->left ? size : file->left;
        if (taken > 0)
                memcpy(data, file->next, taken);
        file->next += taken;
        file->left -= taken;
        return (int64_t)taken;
}

int64_t box_file_put(
        cubby_file *file, const void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        size_t sent = 0;
        if (!file->writes || file->sent)
                return cubby_error_set(err, CUBBY_E_STATE,
                        file->writes ? "the file was committed" : "the file is open for reading");
        int result = file_stream_put(
                file->stream, FRAME_DATA, data, size, deadline_after_ms(timeout_ms), &sent, err);
        return result < 0 && sent == 0 ? -1 : (int64_t)sent;
}

int box_file_commit(cubby_file *file, int64_t timeout_ms, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(timeout_ms);
        struct slice reply = {0};
        if (!file->writes || file->written)
                return cubby_error_set(err, CUBBY_E_STATE,
                        file->writes ? "the file was committed" : "the file is open for reading");
        if (!file->sent && file_stream_end_input(file->stream, deadline, err) < 0)
                return -1;
        file->sent = true;
        if (file_stream_reply(file->stream, deadline, &reply, err) < 0)
                return -1;
        file->written = true;
        return 0;
}
