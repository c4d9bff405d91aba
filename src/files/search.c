/* SPDX-License-Identifier: Apache-2.0 */
#include "files/search.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_BLOCK (64U * 1024U) /* for getdents64 */

/* A name with the type that getdents64 gave it; the name is in the folder's `names`. */
struct entry {
        uint32_t offset;
        uint16_t size;
        uint8_t type;
};

/* Subfolders of one folder that are still to be walked. */
struct level {
        char *names; /* each ends with NUL */
        size_t size, next;
        size_t path_size; /* of the folder they are in */
};

struct walk {
        struct search *search;
        uint32_t results;
        bool full;
        struct buffer path; /* of the folder, then of the entry */
        struct buffer names, entries;
        struct level *levels;
        size_t level_count, level_room;
        size_t pending; /* bytes of all levels' names */
        uint8_t *block;
        uint8_t *text; /* of the file that is looked through */
};

static int tell(struct walk *walk, const struct search_hit *hit, cubby_error *err)
{
        if (walk->search->tell(walk->search->data, hit, err) < 0)
                return -1;
        walk->full = ++walk->results >= walk->search->max_results;
        return 0;
}

static int tell_line(void *data, uint64_t number, const char *text, size_t size, cubby_error *err)
{
        struct walk *walk = data;
        const struct search_hit hit = {.path = (const char *)walk->path.data,
                .path_size = walk->path.size,
                .line = number,
                .text = text,
                .text_size = size};
        if (tell(walk, &hit, err) < 0)
                return -1;
        return walk->full ? 1 : 0;
}

/* The whole file, or nothing: it is too large, no regular file, or cannot be read. */
static size_t read_text(int fd, uint8_t *ret)
{
        struct stat status;
        if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > GREP_FILE_MAX)
                return 0;
        size_t used = 0;
        while (used <= GREP_FILE_MAX) {
                ssize_t got = read(fd, ret + used, GREP_FILE_MAX + 1 - used);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return 0;
                used += (size_t)got;
                /* A size of 0 is also that of files in /proc, which come in pieces. */
                if (got == 0 || (status.st_size > 0 && used == (size_t)status.st_size))
                        break;
        }
        if (used > GREP_FILE_MAX ||
                memchr(ret, '\0', used < GREP_PROBE ? used : GREP_PROBE) != NULL)
                return 0;
        return used;
}

static int grep_file(struct walk *walk, int fd, cubby_error *err)
{
        size_t size = read_text(fd, walk->text);
        int result = grep_text(
                walk->search->grep, walk->text, size, &walk->search->pace, tell_line, walk, err);
        if (result < 0 && walk->path.size > 0)
                return cubby_error_wrap(
                        err, "'%.*s'", (int)walk->path.size, (const char *)walk->path.data);
        return result < 0 ? -1 : 0;
}

static int no_room(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_LIMIT, "there are too many names in one folder to search it");
}

static int read_entries(struct walk *walk, int fd, cubby_error *err)
{
        buffer_clear(&walk->names);
        buffer_clear(&walk->entries);
        for (;;) {
                ssize_t got = getdents64(fd, walk->block, ENTRIES_BLOCK);
                if (got <= 0)
                        return 0; /* a folder that fails in between has the entries so far */
                if (grep_pace(&walk->search->pace, err) < 0)
                        return -1;
                for (ssize_t at = 0; at < got;) {
                        const struct dirent64 *found = (const void *)(walk->block + at);
                        at += found->d_reclen;
                        size_t size = strlen(found->d_name);
                        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0 ||
                                glob_ignores(found->d_name, size))
                                continue;
                        struct entry entry = {
                                (uint32_t)walk->names.size, (uint16_t)size, found->d_type};
                        if (!buffer_append(&walk->names, found->d_name, size + 1) ||
                                !buffer_append(&walk->entries, &entry, sizeof entry))
                                return no_room(err);
                }
        }
}

static const char *name_of(const struct walk *walk, const struct entry *entry)
{
        return (const char *)walk->names.data + entry->offset;
}

static int by_name(const void *a, const void *b, void *data)
{
        return strcmp(name_of(data, a), name_of(data, b));
}

static void sort_entries(struct walk *walk)
{
        if (walk->entries.size > 0)
                qsort_r(walk->entries.data, walk->entries.size / sizeof(struct entry),
                        sizeof(struct entry), by_name, walk);
}

/* Puts the entry's name behind the folder's path. False when that is too long. */
static bool path_push(struct walk *walk, const char *name, size_t size, size_t folder)
{
        walk->path.size = folder;
        if (folder + 1 + size > SEARCH_PATH_MAX)
                return false;
        if (folder > 0)
                (void)buffer_append(&walk->path, "/", 1);
        (void)buffer_append(&walk->path, name, size + 1);
        if (walk->path.failed)
                return false;
        walk->path.size--; /* the NUL stays behind it */
        return true;
}

/* The type of what an entry is, or with `follow` leads to; DT_UNKNOWN: of no interest. */
static uint8_t look_up(int folder_fd, const char *name, bool follow)
{
        struct stat status;
        if (fstatat(folder_fd, name, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
                return DT_UNKNOWN;
        return S_ISREG(status.st_mode)    ? DT_REG
                : S_ISDIR(status.st_mode) ? DT_DIR
                : S_ISLNK(status.st_mode) ? DT_LNK
                                          : DT_UNKNOWN;
}

static bool matches(const struct walk *walk)
{
        return walk->search->glob == NULL ||
                glob_matches(walk->search->glob, (const char *)walk->path.data, walk->path.size);
}

static int visit(struct walk *walk, int folder_fd, const struct entry *entry, cubby_error *err)
{
        const char *name = name_of(walk, entry);
        if (walk->search->grep == NULL) {
                const struct search_hit hit = {.path = (const char *)walk->path.data,
                        .path_size = walk->path.size,
                        .text = ""};
                return tell(walk, &hit, err);
        }
        AUTO_FD int fd =
                openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        return fd < 0 ? 0 : grep_file(walk, fd, err);
}

/* Tells the folder's entries that are of the type, or lead to one of it. */
static int visit_type(
        struct walk *walk, int folder_fd, uint8_t type, size_t folder, cubby_error *err)
{
        size_t count = walk->entries.size / sizeof(struct entry);
        for (size_t i = 0; i < count && !walk->full; i++) {
                struct entry *entry = (struct entry *)walk->entries.data + i;
                bool link = entry->type == DT_LNK && walk->search->grep == NULL;
                if ((entry->type != type && !link) ||
                        !path_push(walk, name_of(walk, entry), entry->size, folder) ||
                        !matches(walk))
                        continue;
                if (grep_pace(&walk->search->pace, err) < 0)
                        return -1;
                if (link && look_up(folder_fd, name_of(walk, entry), true) != type)
                        continue;
                if (visit(walk, folder_fd, entry, err) < 0)
                        return -1;
        }
        return 0;
}

static int push_level(struct walk *walk, size_t folder, cubby_error *err)
{
        size_t count = walk->entries.size / sizeof(struct entry);
        size_t size = 0;
        const struct entry *entries = (const struct entry *)walk->entries.data;
        for (size_t i = 0; i < count; i++)
                size += entries[i].type == DT_DIR ? entries[i].size + 1U : 0;
        if (size == 0)
                return 0;
        if (size > SEARCH_NAMES_MAX - walk->pending)
                return no_room(err);
        if (walk->level_count == walk->level_room) {
                size_t room = walk->level_room == 0 ? 32 : walk->level_room * 2;
                struct level *levels = reallocarray(walk->levels, room, sizeof *levels);
                if (levels == NULL)
                        return cubby_error_no_memory(err);
                walk->levels = levels;
                walk->level_room = room;
        }
        struct level level = {malloc(size), 0, 0, folder};
        if (level.names == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++)
                if (entries[i].type == DT_DIR) {
                        memcpy(level.names + level.size, name_of(walk, &entries[i]),
                                entries[i].size + 1U);
                        level.size += entries[i].size + 1U;
                }
        walk->pending += size;
        walk->levels[walk->level_count++] = level;
        return 0;
}

/* The folder whose path is walk->path. */
static int visit_folder(struct walk *walk, int fd, cubby_error *err)
{
        size_t folder = walk->path.size;
        if (read_entries(walk, fd, err) < 0)
                return -1;
        size_t count = walk->entries.size / sizeof(struct entry);
        for (size_t i = 0; i < count; i++) {
                struct entry *entry = (struct entry *)walk->entries.data + i;
                if (entry->type == DT_UNKNOWN)
                        entry->type = look_up(fd, name_of(walk, entry), false);
        }
        sort_entries(walk);
        if (walk->search->include_folders && walk->search->grep == NULL &&
                visit_type(walk, fd, DT_DIR, folder, err) < 0)
                return -1;
        if (visit_type(walk, fd, DT_REG, folder, err) < 0)
                return -1;
        return walk->full ? 0 : push_level(walk, folder, err);
}

/* The next folder below the root, or -1: it cannot be read, or is a link by now. */
static int open_folder(const struct walk *walk)
{
        struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
        return (int)syscall(SYS_openat2, walk->search->root_fd, walk->path.data, &how, sizeof how);
}

static int walk_folders(struct walk *walk, cubby_error *err)
{
        if (visit_folder(walk, walk->search->root_fd, err) < 0)
                return -1;
        while (walk->level_count > 0 && !walk->full) {
                struct level *level = &walk->levels[walk->level_count - 1];
                if (level->next == level->size) {
                        walk->pending -= level->size;
                        free(level->names);
                        walk->level_count--;
                        continue;
                }
                const char *name = level->names + level->next;
                size_t size = strlen(name);
                level->next += size + 1;
                if (!path_push(walk, name, size, level->path_size))
                        continue;
                if (grep_pace(&walk->search->pace, err) < 0)
                        return -1;
                AUTO_FD int fd = open_folder(walk);
                if (fd >= 0 && visit_folder(walk, fd, err) < 0)
                        return -1;
        }
        return 0;
}

static int walk_root(struct walk *walk, cubby_error *err)
{
        struct stat status;
        if (fstat(walk->search->root_fd, &status) < 0)
                return cubby_error_errno(err, errno, "looking at the root of the search");
        if (S_ISDIR(status.st_mode))
                return walk_folders(walk, err);
        if (walk->search->grep == NULL || !S_ISREG(status.st_mode))
                return file_error(err, ENOTDIR, "searching '%s'", walk->search->root_name);
        if (walk->search->glob != NULL &&
                !glob_matches(walk->search->glob, walk->search->root_name,
                        strlen(walk->search->root_name)))
                return 0;
        return walk->full ? 0 : grep_file(walk, walk->search->root_fd, err);
}

int search_run(struct search *search, bool *ret_truncated, cubby_error *err)
{
        struct walk walk = {.search = search, .full = search->max_results == 0};
        buffer_init(&walk.path, SEARCH_PATH_MAX + 1U);
        buffer_init(&walk.names, SEARCH_NAMES_MAX);
        buffer_init(&walk.entries, SEARCH_ENTRIES_MAX * sizeof(struct entry));
        walk.block = malloc(ENTRIES_BLOCK);
        walk.text = search->grep == NULL ? NULL : malloc(GREP_FILE_MAX + 1U);
        int result = -1;
        if (buffer_text(&walk.path) == NULL || walk.block == NULL ||
                (search->grep != NULL && walk.text == NULL))
                (void)cubby_error_no_memory(err);
        else
                result = walk_root(&walk, err);
        for (size_t i = 0; i < walk.level_count; i++)
                free(walk.levels[i].names);
        free(walk.levels);
        free(walk.block);
        free(walk.text);
        buffer_free(&walk.path);
        buffer_free(&walk.names);
        buffer_free(&walk.entries);
        if (result == 0)
                *ret_truncated = walk.full;
        return result;
}
