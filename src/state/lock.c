/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME_MAX 128
#define LOCK_PAUSE_FIRST_MS 1
#define LOCK_PAUSE_LAST_MS 20
#define TEMPORARY_TRIES 16
#define USAGE_DEPTH_MAX 64

static bool lock_name_valid(const char *name)
{
        size_t length =
                strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
        return length > 0 && length <= LOCK_NAME_MAX && name[0] != '.' && length == strlen(name);
}

static void pause_ms(int64_t ms)
{
        struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        (void)nanosleep(&time, NULL);
}

/* flock(2) has no deadline of its own: it is tried again at growing intervals. */
static int lock_until(int fd, int how, int64_t deadline_ms)
{
        int64_t wait = LOCK_PAUSE_FIRST_MS;
        for (;;) {
                if (flock(fd, how | LOCK_NB) == 0)
                        return 0;
                if (errno == EINTR)
                        continue;
                if (errno != EWOULDBLOCK)
                        return -1;
                int left = deadline_left_ms(deadline_ms);
                if (left == 0) {
                        errno = ETIMEDOUT;
                        return -1;
                }
                pause_ms(left > 0 && left < wait ? left : wait);
                wait = wait * 2 > LOCK_PAUSE_LAST_MS ? LOCK_PAUSE_LAST_MS : wait * 2;
        }
}

/* Under an odd umask a lock is made that its owner cannot open a second time. */
static int open_lock(int locks, const char *name)
{
        int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
        struct stat info;
        AUTO_FD int fd = openat(locks, name, flags, 0600);
        if (fd < 0 && errno == EACCES && fchmodat(locks, name, 0600, 0) == 0)
                fd = openat(locks, name, flags, 0600);
        if (fd < 0 || fstat(fd, &info) < 0)
                return -1;
        if ((info.st_mode & 0600) != 0600 && fchmod(fd, 0600) < 0)
                return -1;
        return take_fd(&fd);
}

void home_unlock(int lock_fd)
{
        if (lock_fd >= 0)
                (void)flock(lock_fd, LOCK_UN);
        close_quietly(lock_fd);
}

int home_lock(struct home *home, const char *name, bool exclusive, int64_t deadline_ms, int *ret_fd,
        cubby_error *err)
{
        if (!lock_name_valid(name))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is no name for a lock", name);
        AUTO_FD int fd = open_lock(home_folder(home, HOME_LOCKS), name);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the lock '%s'", name);
        if (lock_until(fd, exclusive ? LOCK_EX : LOCK_SH, deadline_ms) < 0) {
                if (errno == ETIMEDOUT)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT,
                                "the lock '%s' is held by another process", name);
                return cubby_error_errno(err, errno, "taking the lock '%s'", name);
        }
        *ret_fd = take_fd(&fd);
        return 0;
}

int home_lock_briefly(
        struct home *home, const char *name, int64_t deadline_ms, int *ret_fd, cubby_error *err)
{
        int locks = home_folder(home, HOME_LOCKS);
        for (;;) {
                AUTO_LOCK int fd = -1;
                struct stat opened;
                struct stat named;
                if (home_lock(home, name, true, deadline_ms, &fd, err) < 0)
                        return -1;
                if (fstat(fd, &opened) < 0)
                        return cubby_error_errno(err, errno, "taking the lock '%s'", name);
                /* its last holder may have removed it between open and lock */
                if (fstatat(locks, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) {
                        *ret_fd = take_fd(&fd);
                        return 0;
                }
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT,
                                "the lock '%s' is held by another process", name);
        }
}

void home_unlock_briefly(struct home *home, const char *name, int *fd)
{
        if (*fd < 0)
                return;
        (void)unlinkat(home_folder(home, HOME_LOCKS), name, 0);
        home_unlock(take_fd(fd));
}

/* Opens tmp/NAME and locks it. 1 when it is ours, 0 when another has it or it is gone. */
static int claim_temporary(struct home *home, const char *name, int *ret_fd)
{
        int tmp = home_folder(home, HOME_TMP);
        AUTO_FD int fd = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -1;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
        struct stat opened;
        struct stat named;
        if (fstat(fd, &opened) < 0)
                return -1;
        /* somebody may have swept or published it between open and lock */
        if (fstatat(tmp, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        if (opened.st_dev != named.st_dev || opened.st_ino != named.st_ino)
                return 0;
        *ret_fd = take_fd(&fd);
        return 1;
}

int home_make_temporary(
        struct home *home, char ret_name[32], int *ret_dir_fd, int *ret_lock_fd, cubby_error *err)
{
        int tmp = home_folder(home, HOME_TMP);
        for (int try = 0; try < TEMPORARY_TRIES; try++) {
                uint64_t number = 0;
                if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                        return cubby_error_errno(err, errno, "choosing a temporary name");
                char name[32];
                (void)snprintf(name, sizeof name, "w-%016" PRIx64, number);
                if (dir_make_at(tmp, name, 0700) < 0) {
                        /* ENOENT: a sweep took it for a leftover already */
                        if (errno == EEXIST || (errno == ENOENT && try + 1 < TEMPORARY_TRIES))
                                continue;
                        return cubby_error_errno(
                                err, errno, "making a folder in '%s/tmp'", home_path(home));
                }
                AUTO_LOCK int lock = -1;
                int claimed = claim_temporary(home, name, &lock);
                if (claimed < 0)
                        return cubby_error_errno(err, errno, "locking '%s'", name);
                if (claimed == 0)
                        continue;
                AUTO_FD int dir =
                        openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (dir < 0)
                        return cubby_error_errno(err, errno, "opening '%s'", name);
                memcpy(ret_name, name, sizeof name);
                *ret_dir_fd = take_fd(&dir);
                *ret_lock_fd = take_fd(&lock);
                return 0;
        }
        return cubby_error_set(err, CUBBY_E_BUSY, "no temporary folder could be made in '%s/tmp'",
                home_path(home));
}

static uint64_t usage_at(int dir_fd, const char *name, int depth)
{
        struct stat info;
        if (depth > USAGE_DEPTH_MAX || fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        uint64_t total = (uint64_t)info.st_blocks * 512;
        if (!S_ISDIR(info.st_mode))
                return total;
        int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return total;
        AUTO_DIR DIR *dir = fdopendir(fd);
        if (dir == NULL) {
                close_quietly(fd);
                return total;
        }
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        total += usage_at(dirfd(dir), entry->d_name, depth + 1);
        return total;
}

uint64_t home_usage_at(int dir_fd, const char *name)
{
        return usage_at(dir_fd, name, 0);
}

/* One entry of tmp/. A plain file there is a leftover by itself. What cannot be removed
 * is said and left: it must not keep anybody out of the home. */
static void sweep_entry(struct home *home, const char *name, uint64_t *freed)
{
        cubby_error problem = {0};
        AUTO_LOCK int lock = -1;
        int claimed = claim_temporary(home, name, &lock);
        int why = errno;
        if (claimed == 0)
                return;
        int tmp = home_folder(home, HOME_TMP);
        uint64_t size = home_usage_at(tmp, name);
        if (claimed < 0 && why != ENOTDIR && why != ELOOP)
                (void)cubby_error_errno(&problem, why, "locking it");
        else
                (void)dir_remove_at(tmp, name, &problem);
        if (problem.code != CUBBY_OK) {
                log_line(home_log(home), LOG_WARNING, "the leftover tmp/%s stays: %s", name,
                        problem.message);
                return;
        }
        *freed += size;
        log_line(home_log(home), LOG_INFO, "removed a leftover, tmp/%s", name);
}

/*
 * Drafts of image records whose writer was killed. They are written in transactions
 * only, which hold the lock "db"; while somebody has it, a later sweep finds them.
 */
static void sweep_drafts(struct home *home, uint64_t *freed)
{
        int images = home_folder(home, HOME_IMAGES);
        AUTO_LOCK int lock = -1;
        int fd = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL) {
                close_quietly(fd);
                return;
        }
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                if (!file_is_draft(entry->d_name))
                        continue;
                if (lock < 0 && home_lock(home, "db", true, 0, &lock, NULL) < 0)
                        return;
                uint64_t size = home_usage_at(images, entry->d_name);
                if (unlinkat(images, entry->d_name, 0) == 0)
                        *freed += size;
        }
}

int home_sweep(struct home *home, uint64_t *ret_bytes, cubby_error *err)
{
        /* a descriptor of its own: readdir moves the offset of the open file */
        AUTO_FD int fd =
                openat(home_folder(home, HOME_TMP), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "reading '%s/tmp'", home_path(home));
        AUTO_DIR DIR *dir = fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "reading '%s/tmp'", home_path(home));
        (void)take_fd(&fd);
        uint64_t freed = 0;
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(dir);
                if (entry == NULL)
                        break;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                sweep_entry(home, entry->d_name, &freed);
        }
        if (errno != 0)
                return cubby_error_errno(err, errno, "reading '%s/tmp'", home_path(home));
        sweep_drafts(home, &freed);
        if (ret_bytes != NULL)
                *ret_bytes = freed;
        return 0;
}
