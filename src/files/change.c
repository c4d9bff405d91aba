/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_MODE 0755U

/* "." and ".." at the end name what is there already. */
static bool names_folder(const char *path, size_t size)
{
        while (size > 0 && path[size - 1] == '/')
                size--;
        size_t begin = size;
        while (begin > 0 && path[begin - 1] != '/')
                begin--;
        size_t length = size - begin;
        return length == 0 || (length == 1 && path[begin] == '.') ||
                (length == 2 && path[begin] == '.' && path[begin + 1] == '.');
}

static int make_one(const struct file_io *io, const char *path, mode_t mode)
{
        struct file_place place = {.dir_fd = -1};
        cubby_error problem = {0};
        if (file_find_place(io, path, false, true, &place, &problem) < 0)
                return problem.sys_errno != 0 ? problem.sys_errno : EIO;
        AUTO_FD int dir_fd = place.dir_fd;
        if (place.name[0] == '\0')
                return EEXIST;
        if (mkdirat(dir_fd, place.name, mode & 0777) < 0)
                return errno;
        /* mkdir leaves the special bits to whatever the folder above says. */
        if ((mode & 07000) != 0 && fchmodat(dir_fd, place.name, mode & 07777, 0) < 0)
                return errno;
        return 0;
}

int file_make_folders(
        const struct file_io *io, const char *path, bool last, mode_t mode, cubby_error *err)
{
        char part[FILE_PATH_MAX + 1];
        size_t size = strlen(path);
        while (size > 1 && path[size - 1] == '/')
                size--;
        for (size_t end = 1; end <= size; end++) {
                if (end < size && path[end] != '/')
                        continue;
                if (path[end - 1] == '/' || names_folder(path, end) || (end == size && !last))
                        continue;
                memcpy(part, path, end);
                part[end] = '\0';
                int problem = make_one(io, part, end == size ? mode : FOLDER_MODE);
                if (problem != 0 && problem != EEXIST)
                        return file_error(err, problem, "making folder '%.256s'", part);
        }
        AUTO_FD int fd = last ? file_open(io, path, O_PATH | O_DIRECTORY) : -1;
        if (last && fd < 0) /* there was something, and it is no folder */
                return file_error(err, errno == ENOTDIR ? EEXIST : errno, "'%.256s'", path);
        return 0;
}

int operate_make_folder(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        mode_t mode = call->mode == FILE_MODE_DEFAULT ? FOLDER_MODE : call->mode & 07777;
        if ((call->flags & FILE_PARENTS) != 0)
                return file_make_folders(io, path, true, mode, err);
        int problem = make_one(io, path, mode);
        return problem == 0 ? 0 : file_error(err, problem, "'%.256s'", path);
}

int operate_rename(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        AUTO_FREE char *from = file_text(call->path, err);
        AUTO_FREE char *to = file_text(call->text, err);
        struct file_place source = {.dir_fd = -1};
        struct file_place place = {.dir_fd = -1};
        if (from == NULL || to == NULL)
                return -1;
        if (to[0] != '/' || strlen(to) > FILE_PATH_MAX)
                return file_error(err, ENAMETOOLONG, "the new name");
        if (file_find_place(io, from, false, true, &source, err) < 0)
                return -1;
        AUTO_FD int source_fd = source.dir_fd;
        if (file_find_place(io, to, false, true, &place, err) < 0)
                return -1;
        AUTO_FD int place_fd = place.dir_fd;
        if (source.name[0] == '\0' || place.name[0] == '\0')
                return file_error(err, EINVAL, "the root cannot be moved");
        unsigned flags = (call->flags & FILE_REPLACE) != 0 ? 0 : RENAME_NOREPLACE;
        if (renameat2(source_fd, source.name, place_fd, place.name, flags) < 0)
                return file_error(err, errno, "moving '%.256s' to '%.256s'", from, to);
        return 0;
}

/*
 * A tree is removed with one open folder at a time, however deep it is. The way back up
 * is "..", and has to lead to the folder that we came from.
 */
struct above {
        struct above *next;
        dev_t device;
        ino_t inode;
        char name[256]; /* of the folder below, in this one */
};

/* Removes what is no folder; the first folder's name is left in `ret` ("": none is left). */
static int remove_entries(int fd, const struct file_io *io, char ret[256], cubby_error *err)
{
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        if (dir == NULL) {
                close_quietly(copy);
                return -1;
        }
        ret[0] = '\0';
        for (;;) {
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (entry == NULL)
                        return errno == 0 ? 0 : -1;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (io->pause(io->data, err) < 0) {
                        errno = ECANCELED;
                        return -1;
                }
                struct stat info;
                bool folder = entry->d_type == DT_DIR ||
                        (entry->d_type == DT_UNKNOWN &&
                                fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                                S_ISDIR(info.st_mode));
                if (folder) {
                        (void)snprintf(ret, 256, "%s", entry->d_name);
                        return 0;
                }
                if (unlinkat(fd, entry->d_name, 0) < 0 && errno != ENOENT)
                        return -1;
        }
}

static int go_down(int *fd, struct above **above, const char *name)
{
        struct stat info;
        struct above *level = calloc(1, sizeof *level);
        if (level == NULL || fstat(*fd, &info) < 0) {
                free(level);
                return -1;
        }
        int below = file_open_name(*fd, name, O_RDONLY | O_DIRECTORY);
        if (below < 0) {
                free(level);
                return -1;
        }
        level->device = info.st_dev;
        level->inode = info.st_ino;
        memcpy(level->name, name, strlen(name) + 1);
        level->next = *above;
        *above = level;
        close_quietly(*fd);
        *fd = below;
        return 0;
}

static int go_up(int *fd, struct above **above)
{
        struct stat info;
        struct above *level = *above;
        AUTO_FD int up = openat(*fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &info) < 0)
                return -1;
        if (info.st_dev != level->device || info.st_ino != level->inode) {
                errno = ESTALE; /* it was moved elsewhere meanwhile */
                return -1;
        }
        if (unlinkat(up, level->name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
                return -1;
        *above = level->next;
        free(level);
        close_quietly(*fd);
        *fd = take_fd(&up);
        return 0;
}

/* Empties the folder that `fd`, taken here, is. -1 with errno. */
static int empty_folder(int fd, const struct file_io *io, cubby_error *err)
{
        struct above *above = NULL;
        char name[256];
        int result;
        do {
                result = remove_entries(fd, io, name, err);
                if (result == 0 && name[0] != '\0')
                        result = go_down(&fd, &above, name);
                else if (result == 0 && above != NULL)
                        result = go_up(&fd, &above);
                else
                        break;
        } while (result == 0);
        int problem = errno;
        while (above != NULL) {
                struct above *level = above;
                above = level->next;
                free(level);
        }
        close_quietly(fd);
        errno = problem;
        return result;
}

int operate_remove(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        struct stat info;
        struct file_place place = {.dir_fd = -1};
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL || file_find_place(io, path, false, true, &place, err) < 0)
                return -1;
        AUTO_FD int dir_fd = place.dir_fd;
        if (place.name[0] == '\0')
                return file_error(err, EINVAL, "the root cannot be removed");
        if (fstatat(dir_fd, place.name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return file_error(err, errno, "'%.256s'", path);
        if (S_ISDIR(info.st_mode) && (call->flags & FILE_RECURSIVE) != 0) {
                int fd = file_open_name(dir_fd, place.name, O_RDONLY | O_DIRECTORY);
                cubby_error problem = {0};
                if (fd >= 0 && empty_folder(fd, io, &problem) < 0)
                        fd = -1;
                if (problem.code == CUBBY_E_CANCELLED) {
                        *err = problem;
                        return -1;
                }
                if (fd < 0)
                        return file_error(err, errno, "removing what is in '%.256s'", path);
        }
        if (unlinkat(dir_fd, place.name, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0) < 0)
                return file_error(err, errno, "'%.256s'", path);
        return 0;
}
