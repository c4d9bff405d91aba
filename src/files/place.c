/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel */
#define AGAIN_MAX 100

int file_error(cubby_error *err, int error_number, const char *format, ...)
{
        char text[512];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof text, format, args);
        va_end(args);
        (void)cubby_error_errno(err, error_number, "%s", text);
        cubby_error_file_code(err);
        return -1;
}

static int open_beneath(int dir_fd, const char *path, int flags, uint64_t resolve)
{
        const struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                .resolve = resolve | RESOLVE_NO_MAGICLINKS};
        for (int i = 0;; i++) {
                int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
                /* EAGAIN: a rename elsewhere made the kernel unsure of a "..". */
                if (fd >= 0 || (errno != EINTR && (errno != EAGAIN || i == AGAIN_MAX)))
                        return fd;
        }
}

int file_open(const struct file_io *io, const char *path, int flags)
{
        return open_beneath(io->root_fd, path, flags, RESOLVE_IN_ROOT);
}

int file_open_name(int dir_fd, const char *name, int flags)
{
        return open_beneath(dir_fd, name, flags | O_NOFOLLOW, RESOLVE_BENEATH);
}

int file_reopen(const struct file_io *io, int path_fd, int flags)
{
        char link[48];
        (void)snprintf(link, sizeof link, "self/fd/%d", path_fd);
        return openat(io->proc_fd, link, flags | O_NOCTTY | O_CLOEXEC);
}

char *file_text(struct slice text, cubby_error *err)
{
        char *copy = slice_dup_text(text);
        if (copy == NULL)
                (void)cubby_error_no_memory(err);
        return copy;
}

int file_open_regular(
        const struct file_io *io, const char *path, struct stat *ret_info, cubby_error *err)
{
        struct stat info;
        AUTO_FD int found = file_open(io, path, O_PATH);
        if (found < 0 || fstat(found, &info) < 0)
                return file_error(err, errno, "'%.256s'", path);
        if (!S_ISREG(info.st_mode))
                return S_ISDIR(info.st_mode)
                        ? file_error(err, EISDIR, "'%.256s'", path)
                        : file_error(err, EINVAL, "'%.256s' is not a regular file", path);
        int fd = file_reopen(io, found, O_RDONLY | O_NONBLOCK);
        if (fd < 0)
                return file_error(err, errno, "'%.256s'", path);
        *ret_info = info;
        return fd;
}

/* Cuts `path` in two: the folder (in `path` itself, at least "/") and the last name. */
static int split(char *path, bool folder, char name[256], const char **ret_folder)
{
        size_t length = strlen(path);
        size_t end = length;
        while (end > 0 && path[end - 1] == '/')
                end--;
        if (end < length && end > 0 && !folder)
                return EISDIR;
        path[end] = '\0';
        size_t begin = end;
        while (begin > 0 && path[begin - 1] != '/')
                begin--;
        const char *last = path + begin;
        if (end - begin > 255)
                return ENAMETOOLONG;
        if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
                return folder ? EINVAL : EISDIR;
        memcpy(name, last, end - begin + 1);
        *ret_folder = begin == 0 ? "/" : path;
        if (begin > 0)
                path[begin] = '\0'; /* with its slash: it has to be a folder */
        return 0;
}

/* The text of a link in the place of its name: folder + target, or the target alone. */
static int follow_link(char path[2 * FILE_PATH_MAX + 2], const char *folder, const char *target)
{
        char joined[2 * FILE_PATH_MAX + 2];
        bool absolute = target[0] == '/';
        int length = snprintf(joined, sizeof joined, "%s%s", absolute ? "" : folder, target);
        if (length < 0 || (size_t)length > FILE_PATH_MAX)
                return ENAMETOOLONG;
        memcpy(path, joined, (size_t)length + 1);
        return 0;
}

int file_find_place(const struct file_io *io, const char *path, bool follow, bool folder,
        struct file_place *ret, cubby_error *err)
{
        char walked[2 * FILE_PATH_MAX + 2];
        char target[FILE_PATH_MAX + 1];
        char name[256];
        (void)snprintf(walked, sizeof walked, "%s", path);
        for (int links = 0;; links++) {
                const char *in = NULL;
                int problem = split(walked, folder, name, &in);
                if (problem != 0)
                        return file_error(err, problem, "'%.256s'", path);
                AUTO_FD int dir_fd = file_open(io, in, O_PATH | O_DIRECTORY);
                if (dir_fd < 0)
                        return file_error(err, errno, "'%.256s'", path);
                ssize_t length = follow && name[0] != '\0'
                        ? readlinkat(dir_fd, name, target, sizeof target - 1)
                        : -1;
                if (length < 0) {
                        ret->dir_fd = take_fd(&dir_fd);
                        memcpy(ret->name, name, sizeof name);
                        return 0;
                }
                target[length] = '\0';
                problem = links == LINKS_MAX ? ELOOP : follow_link(walked, in, target);
                if (problem != 0)
                        return file_error(err, problem, "'%.256s'", path);
        }
}
