/* SPDX-License-Identifier: Apache-2.0 */
#include "box/file_stream.h"

#include <string.h>

#define GLOB_DEFAULT 200U
#define GREP_DEFAULT 100U
#define RESULTS_MAX 100000U
#define BYTES_MAX (128U << 20) /* of all results of one search */

/* What both kinds of results are made from. */
struct found {
        const char *root; /* absolute, without a slash at its end unless it is "/" */
        cubby_match *items;
        size_t count, room, most;
        size_t bytes;
        bool truncated;
};

static int bad_answer(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_PROTOCOL, "the box broke the protocol: a bad answer to a search");
}

static void found_clear(struct found *found)
{
        for (size_t i = 0; i < found->count; i++) {
                free(found->items[i].path);
                free(found->items[i].text);
        }
        free(found->items);
}

static char *join(const char *root, struct slice path)
{
        size_t size = strlen(root);
        bool slash = path.size > 0 && root[size - 1] != '/';
        char *whole = malloc(size + slash + path.size + 1);
        if (whole == NULL)
                return NULL;
        memcpy(whole, root, size);
        whole[size] = '/';
        if (path.size > 0)
                memcpy(whole + size + slash, path.data, path.size);
        whole[size + slash + path.size] = '\0';
        return whole;
}

static int take_hit(struct found *found, const struct message_file_hit *hit, cubby_error *err)
{
        if (found->count == found->most || (hit->path.size > 0 && hit->path.data[0] == '/'))
                return bad_answer(err);
        found->bytes += strlen(found->root) + hit->path.size + hit->text.size;
        if (found->bytes > BYTES_MAX)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the search found more than %u bytes", BYTES_MAX);
        if (found->count == found->room) {
                size_t room = found->room == 0 ? 64 : 2 * found->room;
                cubby_match *items = reallocarray(found->items, room, sizeof *items);
                if (items == NULL)
                        return cubby_error_no_memory(err);
                found->items = items;
                found->room = room;
        }
        AUTO_FREE char *path = join(found->root, hit->path);
        AUTO_FREE char *text = malloc(hit->text.size + 1);
        if (path == NULL || text == NULL)
                return cubby_error_no_memory(err);
        if (hit->text.size > 0)
                memcpy(text, hit->text.data, hit->text.size);
        text[hit->text.size] = '\0';
        found->items[found->count++] = (cubby_match){.path = take_ptr(&path),
                .line = hit->line,
                .text = take_ptr(&text),
                .text_size = hit->text.size};
        return 0;
}

static int take_reply(
        struct found *found, const struct frame *frame, int64_t *ret_position, cubby_error *err)
{
        struct message_file_found reply;
        char text[WIRE_TEXT_MAX];
        if (!message_file_found_decode((struct slice){frame->payload, frame->length}, &reply) ||
                (reply.code != CUBBY_OK && reply.code != CUBBY_E_INVALID &&
                        reply.code != CUBBY_E_LIMIT && reply.code != CUBBY_E_NO_MEMORY))
                return bad_answer(err);
        found->truncated = reply.truncated != 0;
        if (reply.code == CUBBY_OK)
                return 0;
        slice_show(reply.text, text, sizeof text);
        if (ret_position != NULL && reply.position != FILE_NO_POSITION)
                *ret_position = (int64_t)reply.position;
        return cubby_error_set(err, (int)reply.code, "%s", text);
}

static int take_all(struct file_stream *stream, struct found *found, int64_t deadline,
        int64_t *ret_position, cubby_error *err)
{
        for (;;) {
                struct frame frame;
                if (file_stream_next(stream, deadline, &frame, err) < 0)
                        return -1;
                if (frame.type == FRAME_FILE_REPLY)
                        return take_reply(found, &frame, ret_position, err);
                struct reader reader = reader_over(frame.payload, frame.length);
                while (!reader_done(&reader)) {
                        struct message_file_hit hit;
                        if (!message_file_hit_read(&reader, &hit))
                                return bad_answer(err);
                        if (take_hit(found, &hit, err) < 0)
                                return -1;
                }
        }
}

static struct slice text_of(const char *text)
{
        return (struct slice){(const uint8_t *)text, strlen(text)};
}

/* Without the slashes and "." components at its end. */
static void trim(char *path)
{
        size_t end = strlen(path);
        while (end > 1 && (path[end - 1] == '/' || (path[end - 1] == '.' && path[end - 2] == '/')))
                end--;
        path[end] = '\0';
}

static int search(cubby_box *box, const char *path, struct message_file_call *call,
        const cubby_search_options *options, struct found *found, int64_t *ret_position,
        cubby_error *err)
{
        AUTO_FREE char *absolute = NULL;
        AUTO(file_stream) struct file_stream *stream = NULL;
        int64_t deadline = 0;
        if (options->max_results > RESULTS_MAX)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "max_results must be at most %u", RESULTS_MAX);
        if (call->text.size > FILE_PATTERN_MAX || call->extra.size > FILE_PATTERN_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "the pattern is longer than %u bytes",
                        FILE_PATTERN_MAX);
        if (options->max_results != 0)
                call->count = options->max_results;
        found->most = call->count;
        if (file_deadline(&options->file, true, &deadline, err) < 0 ||
                file_call_fill(box, path, &options->file, call, &absolute, err) < 0 ||
                file_stream_open(box, call, deadline, &stream, err) < 0)
                return -1;
        trim(absolute);
        found->root = absolute;
        int result = take_all(stream, found, deadline, ret_position, err);
        found->root = NULL;
        return result;
}

void box_glob_result_free(cubby_glob_result *result)
{
        if (result == NULL)
                return;
        for (size_t i = 0; i < result->count; i++)
                free(result->paths[i]);
        free(result->paths);
        free(result);
}

int box_glob(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_glob_result **ret, cubby_error *err)
{
        struct found found = {0};
        struct message_file_call call = {.operation = FILE_GLOB,
                .flags = options->include_folders ? FILE_FOLDERS : 0,
                .count = GLOB_DEFAULT,
                .text = text_of(pattern)};
        int result = search(box, path, &call, options, &found, NULL, err);
        cubby_glob_result *made = result < 0 ? NULL : calloc(1, sizeof *made);
        if (made != NULL)
                made->paths = calloc(found.count + 1, sizeof *made->paths);
        if (result == 0 && (made == NULL || made->paths == NULL)) {
                free(made);
                result = cubby_error_no_memory(err);
        } else if (result == 0) {
                for (; made->count < found.count; made->count++)
                        made->paths[made->count] = take_ptr(&found.items[made->count].path);
                made->truncated = found.truncated;
                *ret = made;
        }
        found_clear(&found);
        return result;
}

void box_grep_result_free(cubby_grep_result *result)
{
        if (result == NULL)
                return;
        found_clear(&(struct found){.items = result->matches, .count = result->count});
        free(result);
}

int box_grep(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_grep_result **ret, int64_t *ret_position,
        cubby_error *err)
{
        struct found found = {0};
        struct message_file_call call = {.operation = FILE_GREP,
                .flags = (options->literal ? FILE_LITERAL : 0U) |
                        (options->case_sensitive ? FILE_CASE : 0U),
                .count = GREP_DEFAULT,
                .text = text_of(pattern),
                .extra = text_of(options->glob == NULL ? "" : options->glob)};
        if (ret_position != NULL)
                *ret_position = -1;
        if (options->glob != NULL && options->glob[0] == '\0')
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the pattern of the files' paths is empty");
        int result = search(box, path, &call, options, &found, ret_position, err);
        cubby_grep_result *made = result < 0 ? NULL : calloc(1, sizeof *made);
        if (result == 0 && made == NULL)
                result = cubby_error_no_memory(err);
        if (result < 0) {
                found_clear(&found);
                return -1;
        }
        *made = (cubby_grep_result){
                .matches = found.items, .count = found.count, .truncated = found.truncated};
        *ret = made;
        return 0;
}
