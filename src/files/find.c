/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"
#include "files/search.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ENTRY_FULL (FILE_ENTRY_MAX - FILE_PATH_MAX - FILE_LINE_MAX - 64U)

DEFINE_AUTO(glob, glob_free)
DEFINE_AUTO(grep, grep_free)

/* Hits on their way into one FILE_ENTRY. */
struct batch {
        const struct file_io *io;
        struct buffer *entry;
};

static int flush(struct batch *batch, cubby_error *err)
{
        if (batch->entry->size == 0)
                return 0;
        int result = batch->io->send(
                batch->io->data, FRAME_FILE_ENTRY, batch->entry->data, batch->entry->size, err);
        buffer_clear(batch->entry);
        return result;
}

static int tell(void *data, const struct search_hit *hit, cubby_error *err)
{
        struct batch *batch = data;
        const struct message_file_hit message = {
                .path = {(const uint8_t *)hit->path, hit->path_size},
                .line = hit->line,
                .text = {(const uint8_t *)hit->text, hit->text_size}};
        if (!message_file_hit_encode(batch->entry, &message))
                return cubby_error_no_memory(err);
        return batch->entry->size < ENTRY_FULL ? 0 : flush(batch, err);
}

static int open_root(const struct file_io *io, const char *path, bool folder, cubby_error *err)
{
        struct stat info;
        AUTO_FD int found = file_open(io, path, O_PATH);
        if (found < 0 || fstat(found, &info) < 0)
                return file_error(err, errno, "'%.256s'", path);
        if (folder && !S_ISDIR(info.st_mode))
                return file_error(err, ENOTDIR, "'%.256s'", path);
        if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
                return file_error(
                        err, ENOTDIR, "'%.256s' is neither a folder nor a regular file", path);
        int fd = file_reopen(io, found, O_RDONLY);
        return fd < 0 ? file_error(err, errno, "'%.256s'", path) : fd;
}

/* What is wrong with a pattern is the reply, for its position. */
static int refuse(
        int64_t position, const cubby_error *problem, struct buffer *reply, cubby_error *err)
{
        const struct message_file_found found = {.code = (uint32_t)problem->code,
                .position = position < 0 ? FILE_NO_POSITION : (uint64_t)position,
                .text = {(const uint8_t *)problem->message, strlen(problem->message)}};
        return message_file_found_encode(reply, &found) ? 0 : cubby_error_no_memory(err);
}

static int make_patterns(const struct message_file_call *call, struct glob **ret_glob,
        struct grep **ret_grep, int64_t *ret_position, cubby_error *err)
{
        bool is_grep = call->operation == FILE_GREP;
        const struct slice names = is_grep ? call->extra : call->text;
        AUTO_FREE char *text = file_text(names, err);
        if (text == NULL)
                return -1;
        if ((!is_grep || names.size > 0) && glob_new(text, ret_glob, err) < 0)
                return -1;
        const struct grep_options options = {.literal = (call->flags & FILE_LITERAL) != 0,
                .case_sensitive = (call->flags & FILE_CASE) != 0};
        return !is_grep ? 0
                        : grep_new((const char *)call->text.data, call->text.size, &options,
                                  ret_grep, ret_position, err);
}

int operate_search(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO(glob) struct glob *glob = NULL;
        AUTO(grep) struct grep *grep = NULL;
        int64_t position = -1;
        cubby_error problem = {0};
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        if (call->count == 0 || call->count > SEARCH_RESULTS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the number of results must be 1 to %u", SEARCH_RESULTS_MAX);
        if (make_patterns(call, &glob, &grep, &position, &problem) < 0)
                return refuse(position, &problem, reply, err);
        AUTO_FD int root_fd = open_root(io, path, grep == NULL, err);
        if (root_fd < 0)
                return -1;
        const char *slash = strrchr(path, '/');
        AUTO_BUFFER struct buffer entry;
        buffer_init(&entry, FILE_ENTRY_MAX);
        struct batch batch = {.io = io, .entry = &entry};
        struct search search = {.root_fd = root_fd,
                .root_name = slash + 1,
                .glob = glob,
                .grep = grep,
                .include_folders = (call->flags & FILE_FOLDERS) != 0,
                .max_results = (uint32_t)call->count,
                .pace = {.pause = io->pause, .data = io->data},
                .tell = tell,
                .data = &batch};
        struct message_file_found found = {.position = FILE_NO_POSITION};
        bool truncated = false;
        int result = search_run(&search, &truncated, err);
        if (result == 0)
                result = flush(&batch, err);
        found.truncated = truncated;
        if (result == 0 && !message_file_found_encode(reply, &found))
                result = cubby_error_no_memory(err);
        return result;
}
