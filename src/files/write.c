/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A file is written beside its place and put there by one step, when it is whole and on the
 * disk: whoever opens it meanwhile, and whatever fails, sees the old one. Until then it has
 * no name, so that not even a killed machine leaves it behind. On a file system that has no
 * files without a name it has one of its own, and is removed by that.
 *
 * What is a mount of its own (/etc/hosts in a box) cannot be replaced and is written in its
 * place.
 */
#include "base/cleanup.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DRAFT_TRIES 100
#define MODE_NEW 0644U

struct target {
        const char *path; /* for people */
        struct file_place place;
        bool exists, mounted;
        struct stat info; /* of the present file */
};

struct draft {
        int fd;
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

static int make_draft(const struct target *target, struct draft *ret, cubby_error *err)
{
        int dir_fd = target->place.dir_fd;
        int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        ret->name[0] = '\0';
        bool without_name = fd >= 0 ||
                (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL);
        for (int i = 0; !without_name && fd < 0 && i < DRAFT_TRIES; i++) {
                if (!draft_name(ret->name))
                        break;
                fd = openat(dir_fd, ret->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        0600);
                if (fd < 0 && errno != EEXIST)
                        break;
        }
        if (fd < 0)
                return file_error(err, errno, "writing beside '%.256s'", target->path);
        ret->fd = fd;
        return 0;
}

static void drop_draft(const struct target *target, struct draft *draft)
{
        if (draft->name[0] != '\0')
                (void)unlinkat(target->place.dir_fd, draft->name, 0);
        close_quietly(draft->fd);
}

/* All that comes, at the end of what is there. */
static int take_content(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, int fd, cubby_error *err)
{
        struct slice data;
        uint16_t type = 0;
        int have;
        if ((call->flags & FILE_ANNOUNCE) != 0 &&
                io->send(io->data, FRAME_FILE_ENTRY, "", 1, err) < 0)
                return -1;
        while ((have = io->receive(io->data, &type, &data, err)) > 0) {
                for (size_t done = 0; done < data.size;) {
                        ssize_t wrote = write(fd, data.data + done, data.size - done);
                        if (wrote < 0 && errno != EINTR)
                                return file_error(err, errno, "writing '%.256s'", target->path);
                        done += wrote > 0 ? (size_t)wrote : 0;
                }
        }
        return have;
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
        if (renameat2(dir_fd, draft->name, dir_fd, name, exclusive ? RENAME_NOREPLACE : 0) < 0)
                return file_error(err, errno, "'%.256s'", target->path);
        draft->name[0] = '\0';
        return 0;
}

static int replace(const struct message_file_call *call, const struct file_io *io,
        const struct target *target, cubby_error *err)
{
        struct draft draft = {.fd = -1};
        if (make_draft(target, &draft, err) < 0)
                return -1;
        int result = take_content(call, io, target, draft.fd, err) < 0 ||
                        set_owner(call, io, target, draft.fd, err) < 0 ||
                        set_mode(call, target, draft.fd, err) < 0 ||
                        sync_file(call, target, draft.fd, err) < 0 ||
                        publish(call, io, target, &draft, err) < 0 ||
                        sync_folder(call, io, target, draft.fd, err) < 0
                ? -1
                : 0;
        drop_draft(target, &draft);
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
