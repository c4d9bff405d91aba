/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH (16U * 1024U) /* entries go in frames of about this size */
#define PATH_ROOM (2 * FILE_PATH_MAX)
#define PAUSE_EACH 256U

/* One folder on the way down: its names, sorted, and which comes next. */
struct level {
        struct level *above;
        int fd;
        size_t path_size; /* of its own path */
        char **names;
        size_t count, room, next;
        bool cut; /* there were more names than may be shown */
};

struct listing {
        const struct file_io *io;
        struct buffer *batch;
        uint64_t left; /* entries that may still be shown */
        uint32_t depth;
        bool all_types, truncated;
        size_t seen;
        size_t path_size;
        char path[PATH_ROOM + 1];
        char target[FILE_PATH_MAX + 1];
};

static void level_free(struct level *level)
{
        if (level == NULL)
                return;
        for (size_t i = 0; i < level->count; i++)
                free(level->names[i]);
        free(level->names);
        close_quietly(level->fd);
        free(level);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts, and forgets what is beyond the `most` first. */
static void keep_first(struct level *level, size_t most)
{
        if (level->count > 1)
                qsort(level->names, level->count, sizeof level->names[0], by_name);
        while (level->count > most) {
                free(level->names[--level->count]);
                level->cut = true;
        }
}

/* However many names a folder has, no more than twice `most` are kept. */
static int add_name(struct level *level, const char *name, size_t most)
{
        if (level->count >= 2 * most)
                keep_first(level, most);
        if (level->count == level->room) {
                size_t room = level->room == 0 ? 32 : 2 * level->room;
                char **names = reallocarray(level->names, room, sizeof names[0]);
                if (names == NULL)
                        return ENOMEM;
                level->names = names;
                level->room = room;
        }
        level->names[level->count] = strdup(name);
        return level->names[level->count++] == NULL ? ENOMEM : 0;
}

static bool is_wanted(const struct listing *listing, unsigned char type)
{
        return listing->all_types || type == DT_REG || type == DT_DIR || type == DT_UNKNOWN;
}

static int read_names(struct listing *listing, struct level *level)
{
        int copy = fcntl(level->fd, F_DUPFD_CLOEXEC, 0);
        AUTO_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        if (dir == NULL) {
                close_quietly(copy);
                return errno;
        }
        size_t most = (size_t)listing->left;
        for (;;) {
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (entry == NULL)
                        break;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                        !is_wanted(listing, entry->d_type))
                        continue;
                if (++listing->seen % PAUSE_EACH == 0 &&
                        listing->io->pause(listing->io->data, NULL) < 0)
                        return ECANCELED;
                if (add_name(level, entry->d_name, most) != 0)
                        return ENOMEM;
        }
        if (errno != 0)
                return errno;
        keep_first(level, most);
        return 0;
}

static int flush(struct listing *listing, cubby_error *err)
{
        struct buffer *batch = listing->batch;
        if (batch->size == 0)
                return 0;
        int result = listing->io->send(
                listing->io->data, FRAME_FILE_ENTRY, batch->data, batch->size, err);
        buffer_clear(batch);
        return result;
}

static int show(struct listing *listing, struct message_file_info *info, cubby_error *err)
{
        info->path = (struct slice){(const uint8_t *)listing->path, listing->path_size};
        if (!message_file_info_encode(listing->batch, info))
                return cubby_error_no_memory(err);
        listing->left--;
        return listing->batch->size >= BATCH ? flush(listing, err) : 0;
}

/* Goes down into the folder that `fd`, taken here, is: -1 with err, else 0. */
static int push(struct listing *listing, struct level **top, int fd, cubby_error *err)
{
        struct level *level = calloc(1, sizeof *level);
        if (level == NULL) {
                close_quietly(fd);
                return cubby_error_no_memory(err);
        }
        level->fd = fd;
        level->above = *top;
        level->path_size = listing->path_size;
        *top = level;
        int problem = read_names(listing, level);
        if (problem == ECANCELED)
                return cubby_error_set(err, CUBBY_E_CANCELLED, "the call was given up");
        if (problem != 0)
                return file_error(err, problem, "'%.256s'", listing->path);
        return 0;
}

/* The path of an entry; false when it is too long for anybody to name it. */
static bool append_name(struct listing *listing, const struct level *level, const char *name)
{
        size_t size = strlen(name);
        bool slash = level->path_size != 1; /* the root has its own */
        if (level->path_size + slash + size > PATH_ROOM)
                return false;
        if (slash)
                listing->path[level->path_size] = '/';
        memcpy(listing->path + level->path_size + slash, name, size + 1);
        listing->path_size = level->path_size + slash + size;
        return true;
}

/* One entry of the folder on top. What vanishes meanwhile is not there; a folder that
 * cannot be read is shown without its entries. */
static int next_entry(struct listing *listing, struct level **top, size_t depth, cubby_error *err)
{
        struct level *level = *top;
        const char *name = level->names[level->next++];
        struct message_file_info info;
        if (file_describe(level->fd, name, listing->target, &info) < 0 ||
                (!listing->all_types && info.type != 'f' && info.type != 'd'))
                return 0;
        if (listing->left == 0 || !append_name(listing, level, name)) {
                listing->truncated = true;
                return 0;
        }
        if (show(listing, &info, err) < 0)
                return -1;
        if (info.type != 'd' || depth >= listing->depth)
                return 0;
        int fd = file_open_name(level->fd, name, O_RDONLY | O_DIRECTORY);
        return fd < 0 ? 0 : push(listing, top, fd, err);
}

static int walk(struct listing *listing, int fd, cubby_error *err)
{
        struct level *top = NULL;
        size_t depth = 1;
        int result = push(listing, &top, fd, err);
        while (result == 0 && top != NULL) {
                if (top->next < top->count && !listing->truncated) {
                        const struct level *before = top;
                        result = next_entry(listing, &top, depth, err);
                        depth += top != before;
                        continue;
                }
                struct level *done = top;
                listing->truncated |= done->cut;
                top = done->above;
                depth--;
                level_free(done);
        }
        while (top != NULL) {
                struct level *done = top;
                top = done->above;
                level_free(done);
        }
        return result;
}

/* The path as asked, without double slashes, "." or a slash at the end. */
static size_t tidy(const char *path, char ret[PATH_ROOM + 1])
{
        size_t size = 0;
        while (*path != '\0') {
                size_t length = strcspn(path, "/");
                if (length > 0 && !(length == 1 && path[0] == '.')) {
                        ret[size++] = '/';
                        memcpy(ret + size, path, length);
                        size += length;
                }
                path += length;
                path += *path == '/';
        }
        if (size == 0)
                ret[size++] = '/';
        ret[size] = '\0';
        return size;
}

int operate_list(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *path = file_text(call->path, err);
        AUTO_FREE struct listing *listing = calloc(1, sizeof *listing);
        AUTO_BUFFER struct buffer batch;
        buffer_init(&batch, FILE_ENTRY_MAX);
        if (path == NULL || listing == NULL)
                return cubby_error_no_memory(err);
        AUTO_FD int fd = file_open(io, path, O_RDONLY | O_DIRECTORY);
        struct message_file_info info;
        if (fd < 0 || file_describe(fd, "", listing->target, &info) < 0)
                return file_error(err, errno, "'%.256s'", path);
        listing->io = io;
        listing->batch = &batch;
        listing->left = call->count;
        listing->depth = call->mode;
        listing->all_types = (call->flags & FILE_ALL_TYPES) != 0;
        listing->path_size = tidy(path, listing->path);
        if (listing->left == 0)
                return cubby_error_set(err, CUBBY_E_INVALID, "a list of no entries");
        if (show(listing, &info, err) < 0 ||
                (listing->depth > 0 && walk(listing, take_fd(&fd), err) < 0) ||
                flush(listing, err) < 0)
                return -1;
        return buffer_u8(reply, listing->truncated) ? 0 : cubby_error_no_memory(err);
}
