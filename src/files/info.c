/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static uint8_t type_of(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFREG:
                return 'f';
        case S_IFDIR:
                return 'd';
        case S_IFLNK:
                return 'l';
        case S_IFIFO:
                return 'p';
        case S_IFSOCK:
                return 's';
        case S_IFBLK:
                return 'b';
        default:
                return 'c';
        }
}

static int64_t nanoseconds(struct timespec time)
{
        return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int file_describe(int fd, const char *name, char *target, struct message_file_info *ret)
{
        struct stat info;
        if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
                return -1;
        ssize_t length = 0;
        if (S_ISLNK(info.st_mode)) {
                length = readlinkat(fd, name, target, FILE_PATH_MAX);
                if (length < 0)
                        return -1;
        }
        target[length] = '\0';
        *ret = (struct message_file_info){.target = {(const uint8_t *)target, (size_t)length},
                .type = type_of(info.st_mode),
                .mode = info.st_mode & 07777,
                .uid = info.st_uid,
                .gid = info.st_gid,
                .links = (uint32_t)info.st_nlink,
                .bytes = (uint64_t)info.st_size,
                .disk_bytes = (uint64_t)info.st_blocks * 512,
                .inode = info.st_ino,
                .device_major = major(info.st_rdev),
                .device_minor = minor(info.st_rdev),
                .modified_ns = nanoseconds(info.st_mtim),
                .changed_ns = nanoseconds(info.st_ctim),
                .accessed_ns = nanoseconds(info.st_atim)};
        return 0;
}

int operate_stat(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        bool follow = (call->flags & FILE_FOLLOW) != 0;
        char target[FILE_PATH_MAX + 1];
        struct message_file_info info;
        AUTO_FD int fd = file_open(io, path, O_PATH | (follow ? 0 : O_NOFOLLOW));
        if (fd < 0 || file_describe(fd, "", target, &info) < 0)
                return file_error(err, errno, "'%.256s'", path);
        return message_file_info_encode(reply, &info) ? 0 : cubby_error_no_memory(err);
}
