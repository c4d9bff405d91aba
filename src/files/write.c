/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A file is written somewhere else and put in its place by one step, when it is whole and
 * on the disk: whoever opens it meanwhile, and whatever fails, sees the old one. Until then
 * it is in the folder for drafts, or, on another file system, beside its place without a
 * name where that is possible: not even a killed machine leaves it in anybody's way.
 *
 * What is a mount of its own (/etc/hosts in a box) cannot be replaced and is written in its
 * place.
 */
#include "base/cleanup.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DRAFT_TRIES 100
#define MODE_NEW 0644U
#define DIRECT_PIECE (1U << 20)
#define DIRECT_BLOCK 4096U

struct target {
        const char *path; /* for people */
        struct file_place place;
        bool exists, mounted;
        struct stat info; /* of the present file */
};

struct draft {
        int fd;
        int dir_fd;    /* where it is; not its own */
        bool direct;   /* past the page cache */
        char name[32]; /* "": it has none */
};

static void close_target(struct target *target)
{
        close_quietly(target->place.dir_fd);
}

static int find_target(const struct message_file_call *call, const struct file_io *io,
        struct target *target, cubby_error *err)
{
        cubby_error problem = {0};
        int result = file_find_place(io, target->path, true, false, &target->place, &problem);
        if (result < 0 && problem.sys_errno == ENOENT && (call->flags & FILE_NO_PARENTS) == 0)
                result = file_make_folders(io, target->path, false, 0755, err) < 0
                        ? -1
                        : file_find_place(io, target->path, true, false, &target->place, err);
        else if (result < 0 && err != NULL)
                *err = problem;
        if (result < 0)
                return -1;
        if (target->place.name[0] == '\0')
                return file_error(err, EISDIR, "'%.256s'", target->path);
        return 0;
}

/* What is there already, and whether this user may change it. */
static int look(const struct message_file_call *call, struct target *target, cubby_error *err)
{
        struct statx state;
        const char *name = target->place.name;
        int dir_fd = target->place.dir_fd;
        if (fstatat(dir_fd, name, &target->info, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : file_error(err, errno, "'%.256s'", target->path);
        target->exists = true;
        if ((call->flags & FILE_EXCLUSIVE) != 0)
                return file_error(err, EEXIST, "'%.256s'", target->path);
        if (S_ISDIR(target->info.st_mode))
                return file_error(err, EISDIR, "'%.256s'", target->path);
        if (!S_ISREG(target->info.st_mode))
                return file_error(err, EINVAL, "'%.256s' is not a regular file", target->path);
        /* By number: the C library's answer would be of the ids of the process. */
        if (syscall(SYS_faccessat2, dir_fd, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) < 0)
                return file_error(err, errno, "'%.256s'", target->path);
        target->mounted = statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &state) == 0 &&
                (state.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
        return 0;
}

/* A name that nobody has; false when the random numbers fail. */
static bool draft_name(char ret[32])
{
        uint64_t number = 0;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                return false;
        (void)snprintf(ret, 32, ".cubby-%016llx", (unsigned long long)number);
        return true;
}

static int open_draft(bool apart, struct draft *draft, int flags)
{
        const mode_t mode = 0600;
        int fd = -1;
        draft->name[0] = '\0';
        if (!apart) {
                fd = openat(draft->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | flags, mode);
                if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
                        return fd;
        }
        for (int i = 0; i < DRAFT_TRIES; i++) {
                if (!draft_name(draft->name))
                        return -1;
                fd = openat(draft->dir_fd, draft->name,
                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | flags, mode);
                if (fd >= 0 || errno != EEXIST)
                        break;
        }
        return fd;
}

static int make_draft(
        const struct file_io *io, const struct target *target, struct draft *ret, cubby_error *err)
{
        struct stat there;
        struct stat here;
        bool apart = io->drafts_fd >= 0 && fstat(io->drafts_fd, &there) == 0 &&
                fstat(target->place.dir_fd, &here) == 0 && there.st_dev == here.st_dev;
        struct draft draft = {
                .dir_fd = apart ? io->drafts_fd : target->place.dir_fd, .direct = true};
        /* Else a user who may not write the folder would hear of it only at the end. */
        if (syscall(SYS_faccessat2, target->place.dir_fd, "", W_OK | X_OK,
                    AT_EACCESS | AT_EMPTY_PATH) < 0)
                return file_error(err, errno, "writing in the folder of '%.256s'", target->path);
        draft.fd = open_draft(apart, &draft, O_DIRECT);
        if (draft.fd < 0 && errno == EINVAL) {
                /* A refused flag is found out after the name was made. */
                if (draft.name[0] != '\0')
                        (void)unlinkat(draft.dir_fd, draft.name, 0);
                draft.direct = false;
                draft.fd = open_draft(apart, &draft, 0);
        }
        if (draft.fd < 0)
                return file_error(err, errno, "writing '%.256s'", target->path);
        *ret = draft;
        return 0;
}

static void drop_draft(struct draft *draft)
{
        if (draft->name[0] != '\0')
                (void)unlinkat(draft->dir_fd, draft->name, 0);
        close_quietly(draft->fd);
}

/* Says that the file may be written, to whom wants to know. */
static int announce(
        const struct message_file_call *call, const struct file_io *io, cubby_error *err)
{
        return (call->flags & FILE_ANNOUNCE) == 0
                ? 0
                : io->send(io->data, FRAME_FILE_ENTRY, "", 1, err);
}

static int write_all(int fd, const uint8_t *data, size_t size, const char *path, cubby_error *err)
{
        while (size > 0) {
                ssize_t wrote = write(fd, data, size);
                if (wrote < 0 && errno == EINTR)
                        continue;
                if (wrote <= 0)
                        return file_error(err, wrote < 0 ? errno : EIO, "writing '%.256s'", path);
                data += wrote;
                size -= (size_t)wrote;
        }
        return 0;
}

/* All that comes, at the end of what is there. */
static int take_content(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, int fd, cubby_error *err)
{
        struct slice data;
        uint16_t type = 0;
        int have;
        if (announce(call, io, err) < 0)
                return -1;
        while ((have = io->receive(io->data, &type, &data, err)) > 0)
                if (write_all(fd, data.data, data.size, target->path, err) < 0)
                        return -1;
        return have;
}

/*
 * The same past the page cache, which a machine that is emulated fills slowly. And what is
 * on the disk before the file gets its name needs no sync of its own: the record that names
 * it is the only one to wait for. The last block is written whole and then cut.
 */
static int take_directly(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, int fd, cubby_error *err)
{
        struct slice data = {0};
        uint16_t type = 0;
        uint64_t size = 0;
        size_t filled = 0;
        size_t room = call->count > 0 && call->count < DIRECT_PIECE
                ? ((size_t)call->count + DIRECT_BLOCK - 1) / DIRECT_BLOCK * DIRECT_BLOCK
                : DIRECT_PIECE;
        AUTO_FREE uint8_t *piece = aligned_alloc(DIRECT_BLOCK, room);
        if (piece == NULL)
                return cubby_error_no_memory(err);
        if (announce(call, io, err) < 0)
                return -1;
        if (call->count >= DIRECT_PIECE && call->count <= INT64_MAX &&
                fallocate(fd, 0, 0, (off_t)call->count) < 0 && errno != EOPNOTSUPP)
                return file_error(err, errno, "writing '%.256s'", target->path);
        for (int have = 1; have > 0;) {
                if (data.size == 0) {
                        have = io->receive(io->data, &type, &data, err);
                        if (have < 0)
                                return -1;
                }
                size_t more = data.size < room - filled ? data.size : room - filled;
                if (more > 0)
                        memcpy(piece + filled, data.data, more);
                filled += more;
                size += more;
                data.data += more;
                data.size -= more;
                if (filled < room && have > 0)
                        continue;
                size_t whole = (filled + DIRECT_BLOCK - 1) / DIRECT_BLOCK * DIRECT_BLOCK;
                memset(piece + filled, 0, whole - filled);
                if (write_all(fd, piece, whole, target->path, err) < 0)
                        return -1;
                filled = 0;
        }
        if ((size % DIRECT_BLOCK != 0 || size < call->count) && ftruncate(fd, (off_t)size) < 0)
                return file_error(err, errno, "writing '%.256s'", target->path);
        return 0;
}

/* Owner and mode: as asked, else those of the file that is replaced. */
static int set_owner(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, int fd, cubby_error *err)
{
        struct stat now;
        uid_t uid = target->info.st_uid;
        gid_t gid = target->info.st_gid;
        AUTO_FREE char *owner = file_text(call->text, err);
        if (owner == NULL)
                return -1;
        if (owner[0] != '\0' && io->owner(io->data, owner, &uid, &gid, err) < 0)
                return -1;
        bool wanted = owner[0] != '\0' || target->exists;
        if (!wanted && fstat(target->place.dir_fd, &now) == 0 && (now.st_mode & S_ISGID) != 0)
                (void)!fchown(fd, (uid_t)-1, now.st_gid); /* as if it had been made there */
        if (fstat(fd, &now) < 0)
                return file_error(err, errno, "'%.256s'", target->path);
        if (wanted && (now.st_uid != uid || now.st_gid != gid) && fchown(fd, uid, gid) < 0)
                return file_error(err, errno, "giving '%.256s' its owner", target->path);
        return 0;
}

static int set_mode(
        const struct message_file_call *call, const struct target *target, int fd, cubby_error *err)
{
        mode_t mode = call->mode != FILE_MODE_DEFAULT ? call->mode & 07777
                : target->exists                      ? target->info.st_mode & 07777
                                                      : MODE_NEW;
        if (fchmod(fd, mode) < 0)
                return file_error(err, errno, "giving '%.256s' its mode", target->path);
        return 0;
}

static int sync_file(
        const struct message_file_call *call, const struct target *target, int fd, cubby_error *err)
{
        if ((call->flags & FILE_NO_SYNC) == 0 && fsync(fd) < 0)
                return file_error(err, errno, "writing '%.256s'", target->path);
        return 0;
}

/* A user who may not read the folder cannot open it to sync it: then the file has to do,
 * whose own record the rename has changed. */
static int sync_folder(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, int file_fd, cubby_error *err)
{
        if ((call->flags & FILE_NO_SYNC) != 0)
                return 0;
        AUTO_FD int fd = file_reopen(io, target->place.dir_fd, O_RDONLY | O_DIRECTORY);
        /* EINVAL: a file system that has nothing to sync. */
        if (fsync(fd < 0 ? file_fd : fd) < 0 && errno != EINVAL)
                return file_error(err, errno, "syncing the folder of '%.256s'", target->path);
        return 0;
}

/* Gives a draft without a name this one. */
static int link_draft(const struct file_io *io, const struct target *target,
        const struct draft *draft, const char *name)
{
        char link[48];
        (void)snprintf(link, sizeof link, "self/fd/%d", draft->fd);
        return linkat(io->proc_fd, link, target->place.dir_fd, name, AT_SYMLINK_FOLLOW);
}

static int publish(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, struct draft *draft, cubby_error *err)
{
        int dir_fd = target->place.dir_fd;
        const char *name = target->place.name;
        bool exclusive = (call->flags & FILE_EXCLUSIVE) != 0;
        if (draft->name[0] == '\0') {
                if (!target->exists) {
                        if (link_draft(io, target, draft, name) == 0)
                                return 0;
                        if (errno != EEXIST || exclusive)
                                return file_error(err, errno, "'%.256s'", target->path);
                }
                char between[32];
                if (!draft_name(between) || link_draft(io, target, draft, between) < 0)
                        return file_error(err, errno, "'%.256s'", target->path);
                memcpy(draft->name, between, sizeof between);
        }
        if (renameat2(draft->dir_fd, draft->name, dir_fd, name, exclusive ? RENAME_NOREPLACE : 0) <
                0)
                return file_error(err, errno, "'%.256s'", target->path);
        draft->name[0] = '\0';
        return 0;
}

static int replace(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, cubby_error *err)
{
        struct draft draft = {.fd = -1};
        if (make_draft(io, target, &draft, err) < 0)
                return -1;
        int taken = draft.direct ? take_directly(call, io, target, draft.fd, err)
                                 : take_content(call, io, target, draft.fd, err);
        int result = taken < 0 || set_owner(call, io, target, draft.fd, err) < 0 ||
                        set_mode(call, target, draft.fd, err) < 0 ||
                        (!draft.direct && sync_file(call, target, draft.fd, err) < 0) ||
                        publish(call, io, target, &draft, err) < 0 ||
                        sync_folder(call, io, target, draft.fd, err) < 0
                ? -1
                : 0;
        drop_draft(&draft);
        return result;
}

/* In its place, as >> and, for what cannot be replaced, > do it. */
static int write_in_place(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, cubby_error *err)
{
        bool append = (call->flags & FILE_APPEND) != 0;
        int flags = O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
        const char *name = target->place.name;
        AUTO_FD int found =
                target->exists ? file_open_name(target->place.dir_fd, name, O_PATH) : -1;
        struct stat info;
        AUTO_FD int fd = -1;
        if (!target->exists)
                fd = openat(target->place.dir_fd, name, flags | O_CREAT | O_EXCL, 0600);
        else if (found >= 0 && fstat(found, &info) == 0 && S_ISREG(info.st_mode))
                fd = file_reopen(io, found, flags & ~O_NOFOLLOW);
        if (fd < 0)
                return file_error(err, errno, "'%.256s'", target->path);
        bool new_mode = !target->exists || call->mode != FILE_MODE_DEFAULT;
        if ((call->text.size > 0 && set_owner(call, io, target, fd, err) < 0) ||
                (new_mode && set_mode(call, target, fd, err) < 0) ||
                take_content(call, io, target, fd, err) < 0 || sync_file(call, target, fd, err) < 0)
                return -1;
        return target->exists ? 0 : sync_folder(call, io, target, fd, err);
}

int operate_write(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        struct target target = {.path = path, .place = {.dir_fd = -1}};
        int result = find_target(call, io, &target, err);
        if (result == 0)
                result = look(call, &target, err);
        if (result == 0)
                result = (call->flags & FILE_APPEND) != 0 || target.mounted
                        ? write_in_place(call, io, &target, err)
                        : replace(call, io, &target, err);
        close_target(&target);
        return result;
}
