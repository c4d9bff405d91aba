/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

/*
 * inotify watches folders, not trees: each folder below the root gets a watch of its own,
 * and a folder that appears is looked through once it has one, so that nothing made in
 * between is missed (it may then be told twice).
 */

#define WATCHES_MAX 4096U /* a box of little memory has 8192 for all of its root */
#define EVENTS_SIZE (32U * 1024U)
#define MOVE_MS 20 /* the second half of a rename follows at once, or never */

#define MASK                                                                           \
        (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
                IN_DELETE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

/* A folder with a watch. They are sorted by descriptor, which inotify counts up. */
struct watched {
        int wd;
        char *path; /* relative to the root; "" for the root */
};

struct watcher {
        const struct file_io *io;
        const char *root; /* not held open: its removal would not be told */
        int fd, root_wd;
        bool recursive;
        bool overflow; /* to be told */
        struct watched *items;
        size_t count, room;
        struct buffer entry;   /* events to be sent */
        struct buffer last;    /* the one that was told last, encoded */
        struct buffer events;  /* bytes of inotify, not yet looked at */
        struct buffer pending; /* MOVED_FROM, whose other half is not there: its path */
        uint32_t pending_cookie;
        bool pending_folder;
};

static size_t find(const struct watcher *watcher, int wd)
{
        size_t low = 0;
        size_t high = watcher->count;
        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (watcher->items[middle].wd < wd)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static struct watched *get(const struct watcher *watcher, int wd)
{
        size_t at = find(watcher, wd);
        return at < watcher->count && watcher->items[at].wd == wd ? &watcher->items[at] : NULL;
}

static void drop(struct watcher *watcher, size_t at)
{
        free(watcher->items[at].path);
        watcher->count--;
        memmove(watcher->items + at, watcher->items + at + 1,
                (watcher->count - at) * sizeof *watcher->items);
}

static int keep(struct watcher *watcher, int wd, const char *path, cubby_error *err)
{
        size_t at = find(watcher, wd);
        char *copy = strdup(path);
        if (copy != NULL && at < watcher->count && watcher->items[at].wd == wd) {
                free(watcher->items[at].path);
                watcher->items[at].path = copy;
                return 0;
        }
        if (copy != NULL && watcher->count == watcher->room) {
                size_t room = watcher->room == 0 ? 64 : watcher->room * 2;
                struct watched *items = reallocarray(watcher->items, room, sizeof *items);
                if (items == NULL) {
                        free(copy);
                        copy = NULL;
                } else {
                        watcher->items = items;
                        watcher->room = room;
                }
        }
        if (copy == NULL)
                return cubby_error_no_memory(err);
        memmove(watcher->items + at + 1, watcher->items + at,
                (watcher->count - at) * sizeof *watcher->items);
        watcher->items[at] = (struct watched){wd, copy};
        watcher->count++;
        return 0;
}

/* inotify takes a path alone. Through our own /proc it is the very folder that was opened;
 * the thread's root has another /proc, so it goes there for that moment. */
static int add_watch(const struct watcher *watcher, int folder_fd)
{
        char link[48];
        bool go = watcher->io->own_folder;
        (void)snprintf(link, sizeof link, "%sself/fd/%d", go ? "" : "/proc/", folder_fd);
        if (go && fchdir(watcher->io->proc_fd) < 0)
                return -1;
        int wd = inotify_add_watch(watcher->fd, link, MASK);
        if (go && fchdir(watcher->io->root_fd) < 0 && wd >= 0) {
                (void)inotify_rm_watch(watcher->fd, wd);
                return -1;
        }
        return wd;
}

static int flush(struct watcher *watcher, cubby_error *err)
{
        if (watcher->entry.size == 0)
                return 0;
        int result = watcher->io->send(
                watcher->io->data, FRAME_FILE_ENTRY, watcher->entry.data, watcher->entry.size, err);
        buffer_clear(&watcher->entry);
        buffer_clear(&watcher->last);
        return result;
}

/* The same event again, with none in between, is told once. */
static int tell(struct watcher *watcher, uint8_t kind, bool folder, const char *path,
        const char *from, cubby_error *err)
{
        const struct message_file_event message = {.kind = kind,
                .folder = folder,
                .path = {(const uint8_t *)path, strlen(path)},
                .from = {(const uint8_t *)from, strlen(from)}};
        AUTO_BUFFER struct buffer event;
        buffer_init(&event, FILE_ENTRY_MAX);
        if (!message_file_event_encode(&event, &message))
                return cubby_error_no_memory(err);
        if (event.size == watcher->last.size &&
                memcmp(event.data, watcher->last.data, event.size) == 0)
                return 0;
        if (event.size > FILE_ENTRY_MAX - watcher->entry.size && flush(watcher, err) < 0)
                return -1;
        buffer_clear(&watcher->last);
        return buffer_append(&watcher->last, event.data, event.size) &&
                        buffer_append(&watcher->entry, event.data, event.size)
                ? 0
                : cubby_error_no_memory(err);
}

static bool join(char ret[FILE_PATH_MAX + 1], const char *folder, const char *name)
{
        int length = snprintf(
                ret, FILE_PATH_MAX + 1, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
        return length >= 0 && (size_t)length <= FILE_PATH_MAX;
}

static int open_below(const struct watcher *watcher, const char *path)
{
        char whole[FILE_PATH_MAX + 1];
        if (path[0] == '\0')
                return file_open(watcher->io, watcher->root, O_RDONLY | O_DIRECTORY);
        if (!join(whole, watcher->root, path)) {
                errno = ENAMETOOLONG;
                return -1;
        }
        return file_open(watcher->io, whole, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

static bool is_folder(int folder_fd, const struct dirent64 *entry)
{
        struct stat info;
        if (entry->d_type != DT_UNKNOWN)
                return entry->d_type == DT_DIR;
        return fstatat(folder_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISDIR(info.st_mode);
}

/* What is in a folder that has got its watch; its subfolders go onto `waiting`. */
static int look_through(struct watcher *watcher, int fd, const char *path, bool found,
        struct buffer *waiting, cubby_error *err)
{
        uint8_t block[4096] __attribute__((aligned(8)));
        char child[FILE_PATH_MAX + 1];
        ssize_t got;
        while ((got = getdents64(fd, block, sizeof block)) > 0)
                for (ssize_t at = 0; at < got;) {
                        const struct dirent64 *entry = (const void *)(block + at);
                        at += entry->d_reclen;
                        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                                !join(child, path, entry->d_name))
                                continue;
                        bool folder = is_folder(fd, entry);
                        if (found && tell(watcher, FILE_CREATED, folder, child, "", err) < 0)
                                return -1;
                        if (folder && !buffer_append(waiting, child, strlen(child) + 1))
                                watcher->overflow = true;
                }
        return 0;
}

/* Folders that are gone or may not be read are passed over. `found`: what is in it is told. */
static int watch_one(struct watcher *watcher, const char *path, bool found, struct buffer *waiting,
        cubby_error *err)
{
        AUTO_FD int fd = open_below(watcher, path);
        if (fd < 0)
                return 0;
        errno = ENOSPC;
        int wd = watcher->count < WATCHES_MAX ? add_watch(watcher, fd) : -1;
        if (wd < 0) {
                /* a limit: from here on something is missed */
                watcher->overflow |= errno == ENOSPC || errno == ENOMEM;
                return 0;
        }
        if (keep(watcher, wd, path, err) < 0)
                return -1;
        if (path[0] == '\0' && watcher->root_wd < 0)
                watcher->root_wd = wd;
        return watcher->recursive ? look_through(watcher, fd, path, found, waiting, err) : 0;
}

/* A folder and, when recursive, all below it. */
static int watch_tree(struct watcher *watcher, const char *path, bool found, cubby_error *err)
{
        AUTO_BUFFER struct buffer waiting;
        buffer_init(&waiting, 4U << 20);
        int result = watch_one(watcher, path, found, &waiting, err);
        while (result == 0 && waiting.size > 0) {
                char next[FILE_PATH_MAX + 1];
                size_t start = waiting.size - 1;
                while (start > 0 && waiting.data[start - 1] != '\0')
                        start--;
                memcpy(next, waiting.data + start, waiting.size - start);
                waiting.size = start;
                result = watch_one(watcher, next, found, &waiting, err);
                if (result == 0)
                        result = watcher->io->pause(watcher->io->data, err);
        }
        return result;
}

static bool is_below(const char *path, const char *folder)
{
        size_t size = strlen(folder);
        return strncmp(path, folder, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

/* The folder has left the tree. */
static void forget_tree(struct watcher *watcher, const char *folder)
{
        for (size_t i = watcher->count; i-- > 0;)
                if (is_below(watcher->items[i].path, folder)) {
                        (void)inotify_rm_watch(watcher->fd, watcher->items[i].wd);
                        drop(watcher, i);
                }
}

static int move_tree(struct watcher *watcher, const char *from, const char *to, cubby_error *err)
{
        char path[FILE_PATH_MAX + 1];
        for (size_t i = 0; i < watcher->count; i++) {
                struct watched *item = &watcher->items[i];
                if (!is_below(item->path, from))
                        continue;
                int length = snprintf(path, sizeof path, "%s%s", to, item->path + strlen(from));
                char *copy = length < 0 || (size_t)length >= sizeof path ? NULL : strdup(path);
                if (copy == NULL)
                        return cubby_error_no_memory(err);
                free(item->path);
                item->path = copy;
        }
        return 0;
}

/* The first half of a rename whose other half is elsewhere. */
static int end_pending(struct watcher *watcher, cubby_error *err)
{
        if (watcher->pending.size == 0)
                return 0;
        const char *path = (const char *)watcher->pending.data;
        if (watcher->pending_folder)
                forget_tree(watcher, path);
        int result = tell(watcher, FILE_REMOVED, watcher->pending_folder, path, "", err);
        buffer_clear(&watcher->pending);
        return result;
}

static int appeared(
        struct watcher *watcher, const char *path, bool folder, bool scan, cubby_error *err)
{
        return folder && watcher->recursive ? watch_tree(watcher, path, scan, err) : 0;
}

static int moved_to(struct watcher *watcher, const struct inotify_event *event, const char *path,
        bool folder, cubby_error *err)
{
        char from[FILE_PATH_MAX + 1] = "";
        bool inside = watcher->pending.size > 0 && watcher->pending_cookie == event->cookie;
        if (!inside && end_pending(watcher, err) < 0)
                return -1;
        if (inside) {
                memcpy(from, watcher->pending.data, watcher->pending.size);
                buffer_clear(&watcher->pending);
                if (folder && move_tree(watcher, from, path, err) < 0)
                        return -1;
        }
        if (tell(watcher, FILE_RENAMED, folder, path, from, err) < 0)
                return -1;
        return inside ? 0 : appeared(watcher, path, folder, false, err);
}

static int moved_from(struct watcher *watcher, const struct inotify_event *event, const char *path,
        bool folder, cubby_error *err)
{
        if (end_pending(watcher, err) < 0)
                return -1;
        watcher->pending_cookie = event->cookie;
        watcher->pending_folder = folder;
        return buffer_append(&watcher->pending, path, strlen(path) + 1)
                ? 0
                : cubby_error_no_memory(err);
}

/* About an entry of a watched folder. */
static int entry_event(struct watcher *watcher, const struct inotify_event *event, const char *path,
        bool folder, cubby_error *err)
{
        if ((event->mask & IN_MOVED_TO) != 0)
                return moved_to(watcher, event, path, folder, err);
        if ((event->mask & IN_MOVED_FROM) != 0)
                return moved_from(watcher, event, path, folder, err);
        if (end_pending(watcher, err) < 0)
                return -1;
        if ((event->mask & IN_CREATE) != 0)
                return tell(watcher, FILE_CREATED, folder, path, "", err) < 0
                        ? -1
                        : appeared(watcher, path, folder, true, err);
        uint8_t kind = (event->mask & IN_MODIFY) != 0 ? FILE_WRITTEN
                : (event->mask & IN_DELETE) != 0      ? FILE_REMOVED
                                                      : FILE_ATTRIBUTES;
        return tell(watcher, kind, folder, path, "", err);
}

/* 1: the root is gone. A folder below it is told of by its own folder. */
static int take_event(struct watcher *watcher, const struct inotify_event *event, cubby_error *err)
{
        char path[FILE_PATH_MAX + 1];
        const uint32_t mask = event->mask;
        if ((mask & IN_Q_OVERFLOW) != 0) {
                watcher->overflow = true;
                return watcher->recursive ? watch_tree(watcher, "", false, err) : 0;
        }
        struct watched *at = get(watcher, event->wd);
        if (at == NULL)
                return 0;
        if ((mask & (IN_IGNORED | IN_DELETE_SELF | IN_UNMOUNT)) != 0) {
                bool root = event->wd == watcher->root_wd;
                if ((mask & IN_IGNORED) != 0)
                        drop(watcher, find(watcher, event->wd));
                if (!root || (mask & IN_IGNORED) == 0)
                        return 0;
                return end_pending(watcher, err) < 0 ||
                                tell(watcher, FILE_REMOVED, true, "", "", err) < 0
                        ? -1
                        : 1;
        }
        if (event->len == 0) { /* about the folder itself: its own folder tells too */
                if (event->wd != watcher->root_wd || (mask & IN_ATTRIB) == 0)
                        return 0;
                return end_pending(watcher, err) < 0
                        ? -1
                        : tell(watcher, FILE_ATTRIBUTES, true, "", "", err);
        }
        if (!join(path, at->path, event->name))
                return 0;
        return entry_event(watcher, event, path, (mask & IN_ISDIR) != 0, err);
}

static int tell_overflow(struct watcher *watcher, cubby_error *err)
{
        if (!watcher->overflow)
                return 0;
        watcher->overflow = false;
        return tell(watcher, FILE_OVERFLOW, false, "", "", err);
}

/* Reads what there is; waits until there is something. 1: the root is gone. */
static int turn(struct watcher *watcher, cubby_error *err)
{
        uint8_t *block = buffer_reserve(&watcher->events, EVENTS_SIZE);
        if (block == NULL)
                return cubby_error_no_memory(err);
        ssize_t got = read(watcher->fd, block, EVENTS_SIZE);
        if (got < 0 && errno == EAGAIN) {
                if (watcher->pending.size > 0) {
                        const struct timespec moment = {.tv_nsec = MOVE_MS * 1000000L};
                        (void)nanosleep(&moment, NULL);
                        got = read(watcher->fd, block, EVENTS_SIZE);
                        if (got < 0 && end_pending(watcher, err) < 0)
                                return -1;
                }
                if (got < 0)
                        return tell_overflow(watcher, err) < 0 || flush(watcher, err) < 0
                                ? -1
                                : watcher->io->wait(watcher->io->data, watcher->fd, err);
        }
        if (got < 0)
                return errno == EINTR ? 0 : file_error(err, errno, "reading what was watched");
        int result = 0;
        for (ssize_t at = 0; at < got && result == 0;) {
                const struct inotify_event *event = (const void *)(block + at);
                at += (ssize_t)(sizeof *event + event->len);
                result = take_event(watcher, event, err);
        }
        if (result >= 0 && tell_overflow(watcher, err) < 0)
                return -1;
        return result == 0 ? watcher->io->pause(watcher->io->data, err) : result;
}

static int begin(struct watcher *watcher, cubby_error *err)
{
        AUTO_FD int found = open_below(watcher, "");
        if (found < 0)
                return file_error(err, errno, "'%.256s'", watcher->root);
        watcher->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (watcher->fd < 0)
                return file_error(err, errno, "watching '%.256s'", watcher->root);
        if (watch_tree(watcher, "", false, err) < 0)
                return -1;
        if (watcher->overflow)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "'%.256s' has more folders than can be watched (%u at most)", watcher->root,
                        WATCHES_MAX);
        if (watcher->root_wd < 0)
                return file_error(err, ENOENT, "'%.256s'", watcher->root);
        return tell(watcher, FILE_READY, false, "", "", err);
}

int operate_watch(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        (void)reply;
        if (io->wait == NULL)
                return cubby_error_set(
                        err, CUBBY_E_UNSUPPORTED, "this engine does not watch files");
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        struct watcher watcher = {.io = io,
                .root = path,
                .fd = -1,
                .root_wd = -1,
                .recursive = (call->flags & FILE_RECURSIVE) != 0};
        buffer_init(&watcher.entry, FILE_ENTRY_MAX);
        buffer_init(&watcher.last, FILE_ENTRY_MAX);
        buffer_init(&watcher.events, EVENTS_SIZE);
        buffer_init(&watcher.pending, FILE_PATH_MAX + 1);
        int result = begin(&watcher, err);
        while (result == 0)
                result = turn(&watcher, err);
        if (result > 0)
                result = flush(&watcher, err);
        for (size_t i = 0; i < watcher.count; i++)
                free(watcher.items[i].path);
        free(watcher.items);
        buffer_free(&watcher.entry);
        buffer_free(&watcher.last);
        buffer_free(&watcher.events);
        buffer_free(&watcher.pending);
        close_quietly(watcher.fd);
        return result;
}
