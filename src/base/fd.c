/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define COPY_PIECE (1U << 20)
#define REMOVE_DEPTH_MAX 64
#define DRAFT_TRIES 16

int write_whole(int fd, const void *data, size_t size)
{
        const uint8_t *next = data;
        while (size > 0) {
                ssize_t written = write(fd, next, size);
                if (written < 0) {
                        if (errno == EINTR)
                                continue;
                        return -1;
                }
                next += written;
                size -= (size_t)written;
        }
        return 0;
}

ssize_t read_whole(int fd, void *data, size_t size)
{
        uint8_t *next = data;
        size_t done = 0;
        while (done < size) {
                ssize_t got = read(fd, next + done, size - done);
                if (got < 0) {
                        if (errno == EINTR)
                                continue;
                        return -1;
                }
                if (got == 0)
                        break;
                done += (size_t)got;
        }
        return (ssize_t)done;
}

static int read_file(int fd, const char *name, struct buffer *ret, cubby_error *err)
{
        for (;;) {
                size_t room = ret->maximum - ret->size;
                uint8_t extra;
                if (room == 0) { /* full: anything more is too much */
                        ssize_t more = read(fd, &extra, 1);
                        if (more == 0)
                                return 0;
                        if (more < 0 && errno == EINTR)
                                continue;
                        if (more < 0)
                                return cubby_error_errno(err, errno, "reading '%s'", name);
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "'%s' is larger than the allowed %zu bytes", name, ret->maximum);
                }
                size_t piece = room < 65536 ? room : 65536;
                uint8_t *end = buffer_reserve(ret, piece);
                if (end == NULL)
                        return cubby_error_no_memory(err);
                ssize_t got = read(fd, end, piece);
                if (got < 0) {
                        if (errno == EINTR)
                                continue;
                        return cubby_error_errno(err, errno, "reading '%s'", name);
                }
                if (got == 0)
                        return 0;
                ret->size += (size_t)got;
        }
}

int file_read_at(int dir_fd, const char *name, struct buffer *ret, cubby_error *err)
{
        AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening '%s'", name);
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "reading '%s'", name);
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is not a regular file", name);
        size_t before = ret->size;
        if (read_file(fd, name, ret, err) < 0) {
                ret->size = before;
                return -1;
        }
        return 0;
}
bool file_is_draft(const char *name)
{
        size_t length = strlen(name);
        return name[0] == '.' && length > 5 && strcmp(name + length - 4, ".tmp") == 0;
}

/* A new file beside `name`. The folder may be another user's: what he puts there
 * under a name that he can guess is not opened. */
static int make_draft(int dir_fd, const char *name, mode_t mode, char ret[300], cubby_error *err)
{
        for (int try = 0; try < DRAFT_TRIES; try++) {
                uint64_t number = 0;
                if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                        return cubby_error_errno(err, errno, "choosing a temporary name");
                int length = snprintf(ret, 300, ".%s.%016" PRIx64 ".tmp", name, number);
                if (length < 0 || length >= 300)
                        return cubby_error_set(
                                err, CUBBY_E_INVALID, "file name '%s' is too long", name);
                int fd = openat(
                        dir_fd, ret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
                if (fd >= 0 || errno != EEXIST)
                        return fd >= 0 ? fd : cubby_error_errno(err, errno, "making '%s'", ret);
        }
        return cubby_error_set(err, CUBBY_E_BUSY, "no temporary name for '%s' is free", name);
}

int file_publish_at(
        int dir_fd, const char *name, const void *data, size_t size, mode_t mode, cubby_error *err)
{
        char temporary[300];
        AUTO_FD int fd = make_draft(dir_fd, name, mode, temporary, err);
        if (fd < 0)
                return -1;
        if (write_whole(fd, data, size) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
                renameat(dir_fd, temporary, dir_fd, name) < 0) {
                int saved = errno;
                (void)unlinkat(dir_fd, temporary, 0);
                return cubby_error_errno(err, saved, "writing '%s'", name);
        }
        (void)fsync(dir_fd); /* an O_PATH descriptor cannot; the rename itself is done */
        return 0;
}

int dir_make_at(int dir_fd, const char *name, mode_t mode)
{
        struct stat info;
        if (mkdirat(dir_fd, name, mode) < 0 ||
                fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        if ((info.st_mode & 0700) == 0700 || !S_ISDIR(info.st_mode))
                return 0;
        return fchmodat(dir_fd, name, (info.st_mode & 07777) | 0700, 0);
}

static int make_parents(const char *path, cubby_error *err)
{
        char part[4096];
        size_t length = strlen(path);
        if (length >= sizeof part)
                return cubby_error_set(err, CUBBY_E_INVALID, "path '%.64s...' is too long", path);
        memcpy(part, path, length + 1);
        for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                if (dir_make_at(AT_FDCWD, part, 0755) < 0 && errno != EEXIST)
                        return cubby_error_errno(err, errno, "making folder '%s'", part);
                *slash = '/';
        }
        return 0;
}

int dir_open_private(const char *path, bool parents, cubby_error *err)
{
        if (parents && make_parents(path, err) < 0)
                return -1;
        if (dir_make_at(AT_FDCWD, path, 0700) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "making folder '%s'", path);
        AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening folder '%s'", path);
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "checking folder '%s'", path);
        if (info.st_uid != geteuid())
                return cubby_error_set(err, CUBBY_E_PERMISSION,
                        "folder '%s' belongs to uid %u, not to uid %u", path, info.st_uid,
                        geteuid());
        if ((info.st_mode & 0022) != 0)
                return cubby_error_set(err, CUBBY_E_PERMISSION,
                        "folder '%s' is writable by others (mode %04o); run: chmod 700 '%s'", path,
                        info.st_mode & 07777, path);
        return take_fd(&fd);
}

static int remove_tree(int dir_fd, const char *name, dev_t device, int depth)
{
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -1;
        if (depth > REMOVE_DEPTH_MAX) {
                errno = ELOOP;
                return -1;
        }
        AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -1;
        struct stat info;
        if (fstat(fd, &info) < 0)
                return -1;
        if (info.st_dev != device) {
                errno = EXDEV;
                return -1;
        }
        AUTO_DIR DIR *dir = fdopendir(fd);
        if (dir == NULL)
                return -1;
        int inner = take_fd(&fd);
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(dir);
                if (entry == NULL)
                        break;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (remove_tree(inner, entry->d_name, device, depth + 1) < 0)
                        return -1;
        }
        if (errno != 0)
                return -1;
        return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

int dir_remove_at(int dir_fd, const char *name, cubby_error *err)
{
        struct stat info;
        if (fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno == ENOENT)
                        return 0;
                return cubby_error_errno(err, errno, "removing '%s'", name);
        }
        if (remove_tree(dir_fd, name, info.st_dev, 0) < 0)
                return cubby_error_errno(err, errno, "removing '%s'", name);
        return 0;
}

static int copy_piecewise(int from_fd, int to_fd, off_t start, off_t end)
{
        AUTO_FREE uint8_t *piece = malloc(COPY_PIECE);
        if (piece == NULL) {
                errno = ENOMEM;
                return -1;
        }
        while (start < end) {
                size_t want = end - start < (off_t)COPY_PIECE ? (size_t)(end - start) : COPY_PIECE;
                ssize_t got = pread(from_fd, piece, want, start);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got == 0 ? 0 : -1;
                for (ssize_t done = 0; done < got;) {
                        ssize_t put =
                                pwrite(to_fd, piece + done, (size_t)(got - done), start + done);
                        if (put < 0 && errno == EINTR)
                                continue;
                        if (put < 0)
                                return -1;
                        done += put;
                }
                start += got;
        }
        return 0;
}

int file_copy_sparse(int from_fd, int to_fd, cubby_error *err)
{
        struct stat info;
        if (fstat(from_fd, &info) < 0 || ftruncate(to_fd, 0) < 0 ||
                ftruncate(to_fd, info.st_size) < 0)
                return cubby_error_errno(err, errno, "copying a file");
        bool by_kernel = true;
        off_t at = 0;
        while (at < info.st_size) {
                off_t start = lseek(from_fd, at, SEEK_DATA);
                if (start < 0 && errno == ENXIO)
                        break; /* only a hole is left */
                if (start < 0)
                        return cubby_error_errno(err, errno, "copying a file");
                off_t end = lseek(from_fd, start, SEEK_HOLE);
                if (end < 0)
                        return cubby_error_errno(err, errno, "copying a file");
                off_t in = start;
                off_t out = start;
                while (by_kernel && in < end) {
                        ssize_t done =
                                copy_file_range(from_fd, &in, to_fd, &out, (size_t)(end - in), 0);
                        if (done < 0 &&
                                (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
                                        errno == EOPNOTSUPP))
                                by_kernel = false;
                        else if (done < 0)
                                return cubby_error_errno(err, errno, "copying a file");
                        else if (done == 0)
                                break;
                }
                if (in < end && copy_piecewise(from_fd, to_fd, in, end) < 0)
                        return cubby_error_errno(err, errno, "copying a file");
                at = end;
        }
        return 0;
}

int fd_set_nonblocking(int fd, bool nonblocking)
{
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0)
                return -1;
        int wanted = nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        return wanted == flags ? 0 : fcntl(fd, F_SETFL, wanted);
}

int fd_send(int socket, const void *data, size_t size, const int *fds, size_t fd_count)
{
        if (size == 0 || fd_count > FD_PASS_MAX) {
                errno = EINVAL;
                return -1;
        }
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        } control = {0};
        struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (fd_count > 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
                memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
        }
        ssize_t sent;
        do
                sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
                return -1;
        const uint8_t *next = data;
        while ((size_t)sent < size) { /* not write(2): no SIGPIPE for the embedding program */
                next += sent;
                size -= (size_t)sent;
                do
                        sent = send(socket, next, size, MSG_NOSIGNAL);
                while (sent < 0 && errno == EINTR);
                if (sent < 0)
                        return -1;
        }
        return 0;
}

ssize_t fd_receive(int socket, void *data, size_t size, int *ret_fds, size_t *ret_fd_count)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        } control = {0};
        struct iovec part = {.iov_base = data, .iov_len = size};
        struct msghdr message = {.msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof control.bytes};
        ssize_t got;
        do
                got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        *ret_fd_count = 0;
        if (got < 0)
                return -1;
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
                header = CMSG_NXTHDR(&message, header)) {
                if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(ret_fds, CMSG_DATA(header), count * sizeof(int));
                *ret_fd_count = count;
        }
        return got;
}
