/* SPDX-License-Identifier: Apache-2.0 */
#include "tree/unpack.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STRICT (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
#define IN_BOX (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
#define FULL_MAX (2U * TREE_PATH_MAX + TREE_NAME_MAX + 4U)
#define LATER_MAX 65536U  /* folders whose mode and time come later */
#define LINKED_MAX 65536U /* files that may get more names */
#define LINKED_BUCKETS 1024U
#define DRAFT_SIZE 32U
#define BLOCK 4096U
#define DIRECT_MINIMUM (1024U * 1024U) /* files from here on are written past the page cache */
#define DIRECT_PIECE (1024U * 1024U)

struct later {
        char *path;
        uint32_t mode;
        int64_t mtime_ns;
};

struct linked {
        struct linked *next;
        dev_t device;
        ino_t inode;
};

/* The regular file that is being written. */
struct content {
        int fd;
        int dir_fd; /* where the draft is; not its own */
        bool direct;
        uint64_t start; /* of the bytes in `piece` */
        size_t used;
        char draft[DRAFT_SIZE];
};

struct unpacking {
        const struct unpack_options *options;
        struct tree_reader *reader;
        struct tree_count *count;
        int parent_fd; /* of `parent`; -1: none yet */
        int apart_fd;  /* for drafts of what comes in there */
        gid_t group;   /* of what is made in there, when that is not the user's */
        bool has_group, may_write;
        char *parent;
        char *full; /* of the entry at hand, beneath the folder */
        char *name; /* the last part of it, within `full` */
        struct content content;
        uint8_t *piece; /* DIRECT_PIECE; made for the first large file */
        struct later *later;
        size_t later_count, later_room;
        struct linked *linked[LINKED_BUCKETS];
        size_t linked_count;
        cubby_error left_out; /* code CUBBY_OK: nothing was */
};

static int failed(const struct unpacking *unpacking, const char *what, cubby_error *err)
{
        return tree_errno(err, errno, what, unpacking->full);
}

static uint64_t resolve_of(const struct unpacking *unpacking)
{
        return unpacking->options->strict ? STRICT : IN_BOX;
}

static struct timespec time_of(int64_t ns)
{
        int64_t seconds = ns / 1000000000;
        int64_t rest = ns % 1000000000;
        if (rest < 0) {
                rest += 1000000000;
                seconds--;
        }
        return (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)rest};
}

/* ---- where an entry goes ---- */

static int open_folder(const struct unpacking *unpacking, const char *path)
{
        return tree_open(unpacking->options->folder_fd, path[0] == '\0' ? "." : path,
                O_PATH | O_DIRECTORY, 0, resolve_of(unpacking));
}

/* One folder, as nobody has described it. */
static int make_plain(struct unpacking *unpacking, cubby_error *err)
{
        const struct unpack_options *options = unpacking->options;
        char *last = strrchr(unpacking->full, '/');
        if (last != NULL)
                *last = '\0';
        AUTO_FD int in = open_folder(unpacking, last == NULL ? "" : unpacking->full);
        if (last != NULL)
                *last = '/';
        const char *name = last == NULL ? unpacking->full : last + 1;
        if (in < 0 || (mkdirat(in, name, 0755) < 0 && errno != EEXIST))
                return failed(unpacking, "making folder", err);
        if (options->owner == UNPACK_FIXED &&
                fchownat(in, name, options->uid, options->gid, AT_SYMLINK_NOFOLLOW) < 0)
                return failed(unpacking, "giving away", err);
        return 0;
}

/* Makes what is missing of the folders before the last part of `full`. */
static int make_missing(struct unpacking *unpacking, cubby_error *err)
{
        char *slash = strchr(unpacking->full, '/');
        for (; slash != NULL; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                AUTO_FD int fd = open_folder(unpacking, unpacking->full);
                if (fd < 0 && errno != ENOENT)
                        return failed(unpacking, "opening folder", err);
                if (fd < 0 && make_plain(unpacking, err) < 0)
                        return -1;
                *slash = '/';
        }
        return 0;
}

/* Whether drafts can be elsewhere, and what they then have to know of the folder. */
static int look_at_parent(struct unpacking *unpacking, cubby_error *err)
{
        int drafts_fd = unpacking->options->drafts_fd;
        struct stat here;
        struct stat there;
        unpacking->apart_fd = unpacking->parent_fd;
        unpacking->has_group = unpacking->may_write = false;
        if (drafts_fd < 0)
                return 0;
        if (fstat(unpacking->parent_fd, &here) < 0 || fstat(drafts_fd, &there) < 0)
                return failed(unpacking, "opening the folder of", err);
        if (here.st_dev != there.st_dev)
                return 0;
        unpacking->apart_fd = drafts_fd;
        unpacking->has_group = (here.st_mode & S_ISGID) != 0;
        unpacking->group = here.st_gid;
        return 0;
}

/* Opens the folder of the entry at `full`, unless it was the last one's too. */
static int enter_parent(struct unpacking *unpacking, cubby_error *err)
{
        char *slash = strrchr(unpacking->full, '/');
        size_t length = slash == NULL ? 0 : (size_t)(slash - unpacking->full);
        unpacking->name = slash == NULL ? unpacking->full : slash + 1;
        if (unpacking->parent_fd >= 0 && strlen(unpacking->parent) == length &&
                memcmp(unpacking->parent, unpacking->full, length) == 0)
                return 0;
        close_quietly(take_fd(&unpacking->parent_fd));
        memcpy(unpacking->parent, unpacking->full, length);
        unpacking->parent[length] = '\0';
        int fd = open_folder(unpacking, unpacking->parent);
        if (fd < 0 && errno == ENOENT && unpacking->options->scattered) {
                if (make_missing(unpacking, err) < 0)
                        return -1;
                fd = open_folder(unpacking, unpacking->parent);
        }
        if (fd < 0)
                return failed(unpacking, "opening the folder of", err);
        unpacking->parent_fd = fd;
        return look_at_parent(unpacking, err);
}

/* Where the entry of this path goes, beneath folder_fd. */
static void write_full(const struct unpacking *unpacking, const char *path, char *ret)
{
        const struct unpack_options *options = unpacking->options;
        const char *parts[3] = {options->folder, options->name, path};
        size_t used = 0;
        ret[0] = '\0';
        for (size_t i = 0; i < 3; i++) {
                if (parts[i] == NULL || parts[i][0] == '\0')
                        continue;
                bool slash = used > 0 && ret[used - 1] != '/';
                int put = snprintf(ret + used, FULL_MAX - used, "%s%s", slash ? "/" : "", parts[i]);
                used += (size_t)put;
        }
}

/* A name in apart_fd that nobody has: what is whole is renamed from it. */
static int begin_draft(struct unpacking *unpacking, char ret[DRAFT_SIZE], cubby_error *err)
{
        uint64_t number = 0;
        /* Else a user who may not write there would hear of it when all is written. By
         * number: the C library's answer would be of the ids of the process. */
        if (unpacking->apart_fd != unpacking->parent_fd && !unpacking->may_write) {
                if (syscall(SYS_faccessat2, unpacking->parent_fd, "", W_OK | X_OK,
                            AT_EACCESS | AT_EMPTY_PATH) < 0)
                        return failed(unpacking, "making", err);
                unpacking->may_write = true;
        }
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                return failed(unpacking, "making", err);
        (void)snprintf(ret, DRAFT_SIZE, ".cubby-%016llx", (unsigned long long)number);
        return 0;
}

/* Moves the draft to its name. */
static int publish(struct unpacking *unpacking, int dir_fd, const char *draft, cubby_error *err)
{
        if (renameat(dir_fd, draft, unpacking->parent_fd, unpacking->name) == 0)
                return 0;
        int problem = errno;
        (void)unlinkat(dir_fd, draft, 0);
        if (problem == EISDIR || problem == ENOTEMPTY || problem == EEXIST) {
                (void)cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is a folder and is not replaced by something else", unpacking->full);
                if (err != NULL)
                        err->sys_errno = EISDIR;
                return -1;
        }
        errno = problem;
        return failed(unpacking, "naming", err);
}

/* ---- owner, mode, time, attributes ---- */

static bool owner_of(const struct unpacking *unpacking, const struct tree_entry *entry,
        uid_t *ret_uid, gid_t *ret_gid)
{
        const struct unpack_options *options = unpacking->options;
        *ret_uid = options->owner == UNPACK_FIXED ? options->uid : entry->uid;
        *ret_gid = options->owner == UNPACK_FIXED ? options->gid : entry->gid;
        return options->owner != UNPACK_OWN;
}

static mode_t mode_of(const struct unpacking *unpacking, const struct tree_entry *entry)
{
        mode_t sticky = entry->type == TREE_FOLDER ? S_ISVTX : 0;
        return entry->mode & (unpacking->options->strict ? 0777 | sticky : 07777);
}

static bool xattr_allowed(const struct unpacking *unpacking, const char *name)
{
        return strncmp(name, "user.", 5) == 0 ||
                (!unpacking->options->strict && strcmp(name, "security.capability") == 0);
}

/* Not every file system takes them, nor every user: as with other tools they are then
 * left out. */
static void set_xattrs(const struct unpacking *unpacking, int fd, const struct tree_entry *entry)
{
        struct slice list = entry->xattrs;
        struct slice name;
        struct slice value;
        char text[TREE_NAME_MAX + 1];
        while (tree_next_xattr(&list, &name, &value)) {
                memcpy(text, name.data, name.size);
                text[name.size] = '\0';
                if (xattr_allowed(unpacking, text))
                        (void)fsetxattr(fd, text, value.data, value.size, 0);
        }
}

static int set_facts(
        struct unpacking *unpacking, int fd, const struct tree_entry *entry, cubby_error *err)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(entry->mtime_ns)};
        mode_t mode = mode_of(unpacking, entry);
        struct stat now;
        uid_t uid = 0;
        gid_t gid = 0;
        bool given = false;
        if (fstat(fd, &now) < 0)
                return failed(unpacking, "looking at", err);
        /* in this order: a new owner clears set-id bits and capabilities */
        if (owner_of(unpacking, entry, &uid, &gid)) {
                given = now.st_uid != uid || now.st_gid != gid;
                if (given && fchown(fd, uid, gid) < 0)
                        return failed(unpacking, "giving away", err);
        } else if (unpacking->has_group) {
                (void)!fchown(fd, (uid_t)-1, unpacking->group); /* as if made there */
        }
        if ((given || (now.st_mode & 07777) != mode) && fchmod(fd, mode) < 0)
                return failed(unpacking, "setting the mode of", err);
        set_xattrs(unpacking, fd, entry);
        if (futimens(fd, times) < 0)
                return failed(unpacking, "setting the time of", err);
        return 0;
}

/* For what cannot be opened. */
static int set_facts_at(struct unpacking *unpacking, const char *name,
        const struct tree_entry *entry, cubby_error *err)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(entry->mtime_ns)};
        uid_t uid = 0;
        gid_t gid = 0;
        int at = unpacking->apart_fd;
        if (owner_of(unpacking, entry, &uid, &gid)) {
                if (fchownat(at, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
                        return failed(unpacking, "giving away", err);
        } else if (unpacking->has_group) {
                (void)!fchownat(at, name, (uid_t)-1, unpacking->group, AT_SYMLINK_NOFOLLOW);
        }
        /* on the host the umask may have its say: no name is followed there */
        if (entry->type != TREE_LINK && !unpacking->options->strict &&
                fchmodat(at, name, mode_of(unpacking, entry), 0) < 0)
                return failed(unpacking, "setting the mode of", err);
        if (utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) < 0)
                return failed(unpacking, "setting the time of", err);
        return 0;
}

/* ---- folders ---- */

static int set_later(struct unpacking *unpacking, const struct later *later, cubby_error *err)
{
        AUTO_FD int fd = tree_open(unpacking->options->folder_fd, later->path,
                O_RDONLY | O_DIRECTORY, 0, resolve_of(unpacking));
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES))
                return 0; /* others work in there too */
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(later->mtime_ns)};
        if (fd < 0 || fchmod(fd, later->mode) < 0 || futimens(fd, times) < 0)
                return cubby_error_errno(err, errno, "setting the mode of '%s'", later->path);
        return 0;
}

/* Finishes the folders that `full` is not in; NULL: all. */
static int leave(struct unpacking *unpacking, const char *full, cubby_error *err)
{
        while (unpacking->later_count > 0) {
                struct later *last = &unpacking->later[unpacking->later_count - 1];
                size_t length = strlen(last->path);
                if (full != NULL &&
                        ((strncmp(full, last->path, length) == 0 && full[length] == '/') ||
                                (unpacking->options->scattered &&
                                        unpacking->later_count < LATER_MAX)))
                        return 0;
                int result = set_later(unpacking, last, err);
                free(last->path);
                unpacking->later_count--;
                if (result < 0)
                        return -1;
        }
        return 0;
}

static int remember_later(
        struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        if (unpacking->later_count == unpacking->later_room) {
                size_t room = unpacking->later_room == 0 ? 64 : unpacking->later_room * 2;
                struct later *grown =
                        reallocarray(unpacking->later, room, sizeof *unpacking->later);
                if (grown == NULL)
                        return cubby_error_no_memory(err);
                unpacking->later = grown;
                unpacking->later_room = room;
        }
        char *path = strdup(unpacking->full);
        if (path == NULL)
                return cubby_error_no_memory(err);
        unpacking->later[unpacking->later_count++] = (struct later){
                .path = path, .mode = mode_of(unpacking, entry), .mtime_ns = entry->mtime_ns};
        return 0;
}

static int put_folder(struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        struct stat info;
        uid_t uid = 0;
        gid_t gid = 0;
        int at = unpacking->parent_fd;
        bool made = mkdirat(at, unpacking->name, 0700) == 0;
        if (!made && errno != EEXIST)
                return failed(unpacking, "making folder", err);
        AUTO_FD int fd = tree_open(
                at, unpacking->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, resolve_of(unpacking));
        if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
                (void)cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is not a folder and is not replaced by one", unpacking->full);
                if (err != NULL)
                        err->sys_errno = ENOTDIR;
                return -1;
        }
        if (fd < 0 && !made && errno == EACCES)
                return 0; /* there, and what is in it may still be reachable */
        if (fd < 0 || fstat(fd, &info) < 0)
                return failed(unpacking, "opening folder", err);
        if (!made && unpacking->options->strict)
                return 0;
        if (owner_of(unpacking, entry, &uid, &gid) && fchown(fd, uid, gid) < 0)
                return failed(unpacking, "giving away", err);
        set_xattrs(unpacking, fd, entry);
        return remember_later(unpacking, entry, err);
}

/* ---- contents ---- */

static int write_at(struct unpacking *unpacking, const uint8_t *bytes, size_t size, uint64_t offset,
        cubby_error *err)
{
        while (size > 0) {
                ssize_t put = pwrite(unpacking->content.fd, bytes, size, (off_t)offset);
                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0)
                        return failed(unpacking, "writing", err);
                bytes += put;
                offset += (uint64_t)put;
                size -= (size_t)put;
        }
        return 0;
}

static int stop_direct(struct unpacking *unpacking, cubby_error *err)
{
        if (unpacking->content.direct && fcntl(unpacking->content.fd, F_SETFL, 0) < 0)
                return failed(unpacking, "writing", err);
        unpacking->content.direct = false;
        return 0;
}

/* Direct writes are of whole blocks; what does not fit goes through the page cache, as
 * does all on a file system that refuses the first. */
static int flush_piece(struct unpacking *unpacking, cubby_error *err)
{
        struct content *content = &unpacking->content;
        const uint8_t *bytes = unpacking->piece;
        uint64_t offset = content->start;
        size_t size = content->used;
        content->start += size;
        content->used = 0;
        if (content->direct && offset % BLOCK == 0 && size >= BLOCK) {
                ssize_t put = pwrite(content->fd, bytes, size / BLOCK * BLOCK, (off_t)offset);
                if (put < 0 && errno != EINVAL && errno != EINTR)
                        return failed(unpacking, "writing", err);
                if (put > 0) {
                        bytes += put;
                        offset += (uint64_t)put;
                        size -= (size_t)put;
                }
        }
        if (size == 0)
                return 0;
        if (stop_direct(unpacking, err) < 0)
                return -1;
        return write_at(unpacking, bytes, size, offset, err);
}

static int put_data(
        struct unpacking *unpacking, uint64_t offset, struct slice bytes, cubby_error *err)
{
        struct content *content = &unpacking->content;
        if (unpacking->count != NULL)
                unpacking->count->bytes += bytes.size;
        if (!content->direct && content->used == 0)
                return write_at(unpacking, bytes.data, bytes.size, offset, err);
        if (content->used > 0 && content->start + content->used != offset &&
                flush_piece(unpacking, err) < 0)
                return -1;
        if (content->used == 0)
                content->start = offset;
        while (bytes.size > 0) {
                size_t room = DIRECT_PIECE - content->used;
                size_t take = bytes.size < room ? bytes.size : room;
                memcpy(unpacking->piece + content->used, bytes.data, take);
                content->used += take;
                bytes.data += take;
                bytes.size -= take;
                if (content->used == DIRECT_PIECE && flush_piece(unpacking, err) < 0)
                        return -1;
        }
        return 0;
}

/* A large file in the box goes to its disk directly: through the page cache of an
 * emulated machine it would take five times as long. */
static void go_direct(struct unpacking *unpacking, const struct tree_entry *entry)
{
        struct content *content = &unpacking->content;
        if (unpacking->options->strict || entry->size < DIRECT_MINIMUM)
                return;
        if (unpacking->piece == NULL)
                unpacking->piece = aligned_alloc(BLOCK, DIRECT_PIECE);
        if (unpacking->piece == NULL || fcntl(content->fd, F_SETFL, O_DIRECT) < 0)
                return;
        if (!entry->sparse && !unpacking->options->scattered) /* a tar may have holes */
                (void)fallocate(content->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)entry->size);
        content->direct = true;
}

static int open_content(
        struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        struct content *content = &unpacking->content;
        /* With the mode that it is to have, which saves a step for each of many files. */
        mode_t mode = unpacking->options->strict ? 0600 : mode_of(unpacking, entry) & 0777;
        *content = (struct content){.fd = -1, .dir_fd = unpacking->apart_fd};
        if (begin_draft(unpacking, content->draft, err) < 0)
                return -1;
        content->fd = openat(content->dir_fd, content->draft,
                O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (content->fd < 0)
                return failed(unpacking, "making", err);
        go_direct(unpacking, entry);
        return 0;
}

static void drop_content(struct unpacking *unpacking)
{
        if (unpacking->content.fd < 0)
                return;
        close_quietly(take_fd(&unpacking->content.fd));
        (void)unlinkat(unpacking->content.dir_fd, unpacking->content.draft, 0);
}

/* ---- several names ---- */

static int remember_linked(struct unpacking *unpacking, cubby_error *err)
{
        struct stat info;
        if (unpacking->linked_count >= LINKED_MAX || fstat(unpacking->content.fd, &info) < 0)
                return 0;
        struct linked *linked = malloc(sizeof *linked);
        if (linked == NULL)
                return cubby_error_no_memory(err);
        struct linked **bucket = &unpacking->linked[info.st_ino % LINKED_BUCKETS];
        *linked = (struct linked){.next = *bucket, .device = info.st_dev, .inode = info.st_ino};
        *bucket = linked;
        unpacking->linked_count++;
        return 0;
}

/* Only to a file of this very copy, else a stranger could give a name in the copy to
 * any file of the folder. */
static bool is_ours(const struct unpacking *unpacking, const struct stat *info)
{
        const struct linked *at = unpacking->linked[info->st_ino % LINKED_BUCKETS];
        while (at != NULL && (at->inode != info->st_ino || at->device != info->st_dev))
                at = at->next;
        return at != NULL;
}

static int put_same(struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        struct stat info;
        char draft[DRAFT_SIZE];
        AUTO_FREE char *from = malloc(FULL_MAX);
        if (from == NULL)
                return cubby_error_no_memory(err);
        write_full(unpacking, entry->target, from);
        char *slash = strrchr(from, '/');
        if (slash != NULL)
                *slash = '\0';
        AUTO_FD int in = open_folder(unpacking, slash == NULL ? "" : from);
        const char *last = slash == NULL ? from : slash + 1;
        if (in < 0 || fstatat(in, last, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return failed(unpacking, "linking", err);
        if (unpacking->options->strict && (!S_ISREG(info.st_mode) || !is_ours(unpacking, &info)))
                return cubby_error_set(err, CUBBY_E_PROTOCOL,
                        "'%s' would be another name of a file that is not of this copy",
                        unpacking->full);
        int at = unpacking->parent_fd;
        if (linkat(in, last, at, unpacking->name, 0) == 0)
                return 0;
        if (errno != EEXIST)
                return failed(unpacking, "linking", err);
        /* It may be another user's, who alone could take it out of the folder for drafts. */
        if (begin_draft(unpacking, draft, err) < 0)
                return -1;
        if (linkat(in, last, at, draft, 0) < 0)
                return failed(unpacking, "linking", err);
        int result = publish(unpacking, at, draft, err);
        /* two names of one file: the rename has left both */
        (void)unlinkat(at, draft, 0);
        return result;
}

/* ---- the rest ---- */

static int leave_out(struct unpacking *unpacking, const struct tree_entry *entry, int problem)
{
        if (unpacking->left_out.code != CUBBY_OK)
                return 0;
        const char *what = entry->type == TREE_FIFO ? "a FIFO" : "a device";
        (void)cubby_error_errno(
                &unpacking->left_out, problem, "'%s', %s, was left out", unpacking->full, what);
        if (unpacking->options->strict)
                unpacking->left_out.code = CUBBY_E_UNSUPPORTED;
        return 0;
}

static int put_other(struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        char draft[DRAFT_SIZE];
        int made = -1;
        if (begin_draft(unpacking, draft, err) < 0)
                return -1;
        int at = unpacking->apart_fd;
        bool device = entry->type == TREE_BLOCK || entry->type == TREE_CHAR;
        if (device && unpacking->options->strict)
                return leave_out(unpacking, entry, EPERM);
        if (entry->type == TREE_LINK)
                made = symlinkat(entry->target, at, draft);
        else if (entry->type == TREE_FIFO)
                made = mknodat(at, draft, S_IFIFO | mode_of(unpacking, entry), 0);
        else
                made = mknodat(at, draft, (entry->type == TREE_BLOCK ? S_IFBLK : S_IFCHR) | 0600,
                        makedev(entry->device_major, entry->device_minor));
        if (made < 0 && entry->type != TREE_LINK && (errno == EPERM || errno == EOPNOTSUPP))
                return leave_out(unpacking, entry, errno);
        if (made < 0)
                return failed(unpacking, "making", err);
        if (set_facts_at(unpacking, draft, entry, err) < 0) {
                (void)unlinkat(at, draft, 0);
                return -1;
        }
        return publish(unpacking, at, draft, err);
}

/* The root as the folder that is there already. */
static int put_self(const struct tree_entry *entry, cubby_error *err)
{
        if (entry->type == TREE_FOLDER)
                return 0;
        (void)cubby_error_set(err, CUBBY_E_INVALID, "the source is not a folder");
        if (err != NULL)
                err->sys_errno = ENOTDIR;
        return -1;
}

static int put_entry(struct unpacking *unpacking, const struct tree_entry *entry, cubby_error *err)
{
        if (unpacking->count != NULL)
                unpacking->count->files++;
        write_full(unpacking, entry->path, unpacking->full);
        if (entry->path[0] == '\0' && unpacking->options->name[0] == '\0')
                return put_self(entry, err);
        if (leave(unpacking, unpacking->full, err) < 0 || enter_parent(unpacking, err) < 0)
                return -1;
        if (entry->type == TREE_REGULAR)
                return open_content(unpacking, entry, err);
        if (entry->type == TREE_FOLDER)
                return put_folder(unpacking, entry, err);
        if (entry->type == TREE_SAME)
                return put_same(unpacking, entry, err);
        return put_other(unpacking, entry, err);
}

/* A file that is a mount of its own (/etc/hosts in a box) cannot be replaced: it is written
 * where it is, from the draft, which has lost its name. */
static int write_over(struct unpacking *unpacking, cubby_error *err)
{
        struct stat info;
        AUTO_FD int to = tree_open(unpacking->parent_fd, unpacking->name,
                O_WRONLY | O_NONBLOCK | O_NOFOLLOW, 0, resolve_of(unpacking));
        if (to < 0 || fstat(to, &info) < 0 || fcntl(unpacking->content.fd, F_SETFL, 0) < 0)
                return failed(unpacking, "writing", err);
        if (!S_ISREG(info.st_mode)) {
                errno = EBUSY;
                return failed(unpacking, "writing", err);
        }
        return file_copy_sparse(unpacking->content.fd, to, err);
}

static int name_content(struct unpacking *unpacking, cubby_error *err)
{
        struct content *content = &unpacking->content;
        cubby_error problem = {0};
        int result = publish(unpacking, content->dir_fd, content->draft, &problem);
        if (result < 0 && problem.sys_errno == EBUSY && !unpacking->options->strict)
                result = write_over(unpacking, &problem);
        if (result == 0)
                return 0;
        close_quietly(take_fd(&content->fd));
        if (err != NULL)
                *err = problem;
        return -1;
}

static int close_content(struct unpacking *unpacking, uint64_t size, cubby_error *err)
{
        struct content *content = &unpacking->content;
        const struct tree_entry *entry = &unpacking->reader->entry;
        struct stat info;
        if (content->used > 0 && flush_piece(unpacking, err) < 0)
                return -1;
        if (fstat(content->fd, &info) < 0 ||
                (((uint64_t)info.st_size != size || size < entry->size) &&
                        ftruncate(content->fd, (off_t)size) < 0))
                return failed(unpacking, "writing", err);
        if (set_facts(unpacking, content->fd, entry, err) < 0)
                return -1;
        if (entry->linked && unpacking->options->strict && remember_linked(unpacking, err) < 0)
                return -1;
        if (name_content(unpacking, err) < 0)
                return -1;
        /* some file systems tell of a full disk only here */
        if (close(take_fd(&content->fd)) < 0 && errno != EINTR)
                return failed(unpacking, "writing", err);
        return 0;
}

static int unpack_all(struct unpacking *unpacking, cubby_error *err)
{
        const struct tree_record *first = unpacking->options->first;
        for (;;) {
                struct tree_record record;
                int result = 0;
                if (first != NULL)
                        record = *first;
                else if (tree_next(unpacking->reader, &record, err) < 0)
                        return -1;
                first = NULL;
                switch (record.kind) {
                case TREE_ENTRY:
                        result = put_entry(unpacking, record.entry, err);
                        break;
                case TREE_DATA:
                        result = put_data(unpacking, record.offset, record.bytes, err);
                        break;
                case TREE_CLOSE:
                        result = close_content(unpacking, record.size, err);
                        break;
                case TREE_END:
                        return leave(unpacking, NULL, err);
                }
                if (result < 0)
                        return -1;
        }
}

static void clear(struct unpacking *unpacking)
{
        drop_content(unpacking);
        close_quietly(unpacking->parent_fd);
        for (size_t i = 0; i < unpacking->later_count; i++)
                free(unpacking->later[i].path);
        free(unpacking->later);
        free(unpacking->piece);
        for (size_t i = 0; i < LINKED_BUCKETS; i++)
                for (struct linked *linked = unpacking->linked[i]; linked != NULL;) {
                        struct linked *next = linked->next;
                        free(linked);
                        linked = next;
                }
}

int tree_unpack(const struct unpack_options *options, struct tree_reader *reader, cubby_error *err)
{
        AUTO_FREE struct unpacking *unpacking = calloc(1, sizeof *unpacking);
        AUTO_FREE char *parent = malloc(FULL_MAX);
        AUTO_FREE char *full = malloc(FULL_MAX);
        if (unpacking == NULL || parent == NULL || full == NULL)
                return cubby_error_no_memory(err);
        unpacking->options = options;
        unpacking->reader = reader;
        unpacking->count = options->count;
        unpacking->parent_fd = -1;
        unpacking->content.fd = -1;
        unpacking->parent = parent;
        unpacking->full = full;
        int result = unpack_all(unpacking, err);
        if (result < 0) /* also what is unfinished gets its mode */
                (void)leave(unpacking, NULL, NULL);
        if (result == 0 && unpacking->left_out.code != CUBBY_OK) {
                if (err != NULL)
                        *err = unpacking->left_out;
                result = -1;
        }
        clear(unpacking);
        return result;
}
