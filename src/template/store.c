/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "template/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t mtime_ns(const struct stat *info)
{
        return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

void template_lock_name(const char *key, char ret[LOCK_NAME_SIZE])
{
        (void)snprintf(ret, LOCK_NAME_SIZE, "template-%s", key);
}

void template_close(struct template *template)
{
        if (template == NULL)
                return;
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++)
                close_quietly(template->fds[i]);
        close_quietly(template->dir_fd);
        home_unlock(template->lock_fd);
        template_manifest_clear(&template->manifest);
        free(template);
}

int template_read_manifest(
        int dir_fd, const char *key, struct template_manifest *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, TEMPLATE_MANIFEST_BYTES_MAX);
        cubby_error problem = {0};
        if (file_read_at(dir_fd, TEMPLATE_MANIFEST_NAME, &json, &problem) < 0)
                return cubby_error_set(err,
                        problem.code == CUBBY_E_NO_MEMORY ? problem.code : CUBBY_E_CORRUPT, "%s",
                        problem.message);
        struct template_manifest manifest = {0};
        if (template_manifest_decode(json.data, json.size, &manifest, err) < 0)
                return -1;
        if (strcmp(manifest.key, key) != 0) {
                template_manifest_clear(&manifest);
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the manifest is of another template");
        }
        *ret = manifest;
        return 0;
}

static int open_file(
        int dir_fd, enum template_file file, const struct template_check *check, cubby_error *err)
{
        const char *name = template_file_name(file);
        AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "its file '%s': %s", name, strerrordesc_np(errno));
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "its file '%s'", name);
        if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
                (uint64_t)info.st_size != check->size_bytes || info.st_ino != check->inode ||
                mtime_ns(&info) != check->mtime_ns)
                return cubby_error_set(err, CUBBY_E_CORRUPT,
                        "its file '%s' is not as it was when it was made", name);
        return take_fd(&fd);
}

/* Its remover may have come between open and lock: the folder is not the key's any more,
 * and says nothing about one that was made anew. */
static bool is_current(struct home *home, const char *key, int dir_fd)
{
        struct stat opened;
        struct stat named;
        return fstat(dir_fd, &opened) == 0 &&
                fstatat(home_folder(home, HOME_TEMPLATES), key, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int template_open(struct home *home, const char *key, struct template **ret, cubby_error *err)
{
        if (!template_key_valid(key))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is no key of a template", key);
        AUTO(template) struct template *template = calloc(1, sizeof *template);
        if (template == NULL)
                return cubby_error_no_memory(err);
        template->lock_fd = -1;
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++)
                template->fds[i] = -1;
        template->dir_fd = openat(home_folder(home, HOME_TEMPLATES), key,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (template->dir_fd < 0)
                return cubby_error_errno(err, errno, "opening template %.12s", key);
        char lock[LOCK_NAME_SIZE];
        template_lock_name(key, lock);
        cubby_error busy = {0};
        if (home_lock(home, lock, false, 0, &template->lock_fd, &busy) < 0)
                return cubby_error_set(err, busy.code == CUBBY_E_TIMEOUT ? CUBBY_E_BUSY : busy.code,
                        "template %.12s: %s", key, busy.message);
        if (!is_current(home, key, template->dir_fd))
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "template %.12s was just removed", key);
        if (template_read_manifest(template->dir_fd, key, &template->manifest, err) < 0)
                return cubby_error_wrap(err, "template %.12s", key);
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++) {
                template->fds[i] = open_file(
                        template->dir_fd, (enum template_file)i, &template->manifest.files[i], err);
                if (template->fds[i] < 0)
                        return cubby_error_wrap(err, "template %.12s", key);
        }
        *ret = take_ptr(&template);
        return 0;
}

int template_verify(const struct template *template, cubby_error *err)
{
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++) {
                char digest[TEMPLATE_KEY_SIZE];
                if (digest_file(template->fds[i], digest, err) < 0)
                        return -1;
                if (strcmp(digest, template->manifest.files[i].digest) != 0)
                        return cubby_error_set(err, CUBBY_E_DIGEST,
                                "template %.12s: the content of its file '%s' has changed",
                                template->manifest.key, template_file_name((enum template_file)i));
        }
        return 0;
}

void template_touch(const struct template *template)
{
        AUTO_FD int fd = openat(template->dir_fd, TEMPLATE_USED_NAME,
                O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
                (void)futimens(fd, NULL);
}

/* Takes the file back from the VMM's user, syncs it and records its check. */
static int settle_file(
        int dir_fd, enum template_file file, struct template_check *check, cubby_error *err)
{
        const char *name = template_file_name(file);
        AUTO_FD int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        struct stat info;
        if (fd < 0 || fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0400) < 0)
                return cubby_error_errno(err, errno, "settling '%s'", name);
        if (digest_file(fd, check->digest, err) < 0)
                return -1;
        if (fsync(fd) < 0 || fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "settling '%s'", name);
        check->size_bytes = (uint64_t)info.st_size;
        check->inode = info.st_ino;
        check->mtime_ns = mtime_ns(&info);
        return 0;
}

/* Makes room for a new one; 1 when a good one is there and stays. */
static int displace(struct home *home, const char *key, int temporary_fd, cubby_error *err)
{
        AUTO(template) struct template *present = NULL;
        cubby_error problem = {0};
        if (template_open(home, key, &present, &problem) == 0)
                return 1;
        if (problem.code == CUBBY_E_NOT_FOUND)
                return 0;
        if (problem.code != CUBBY_E_CORRUPT && problem.code != CUBBY_E_VERSION)
                return cubby_error_set(err, problem.code, "%s", problem.message);
        char lock_name[LOCK_NAME_SIZE];
        template_lock_name(key, lock_name);
        AUTO_LOCK int lock = -1;
        if (home_lock(home, lock_name, true, deadline_after_ms(REMOVE_WAIT_MS), &lock, err) < 0)
                return -1;
        log_line(home_log(home), LOG_WARNING, "replacing a damaged template: %s", problem.message);
        if (renameat(home_folder(home, HOME_TEMPLATES), key, temporary_fd, "displaced") < 0 &&
                errno != ENOENT)
                return cubby_error_errno(err, errno, "setting a damaged template aside");
        return 0;
}

int template_publish(struct home *home, const char *temporary, const char *name,
        struct template_manifest *manifest, cubby_error *err)
{
        AUTO_FD int outer = openat(home_folder(home, HOME_TMP), temporary,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        AUTO_FD int dir = outer < 0
                ? -1
                : openat(outer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return cubby_error_errno(err, errno, "publishing a template");
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++)
                if (settle_file(dir, (enum template_file)i, &manifest->files[i], err) < 0)
                        return cubby_error_wrap(err, "publishing a template");
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, TEMPLATE_MANIFEST_BYTES_MAX);
        if (template_manifest_encode(manifest, &json, err) < 0 ||
                file_publish_at(dir, TEMPLATE_MANIFEST_NAME, json.data, json.size, 0400, err) < 0)
                return cubby_error_wrap(err, "publishing a template");
        if (mkdirat(dir, TEMPLATE_SPARES_NAME, 0700) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "publishing a template");
        AUTO_FD int used =
                openat(dir, TEMPLATE_USED_NAME, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (used < 0 || fsync(dir) < 0)
                return cubby_error_errno(err, errno, "publishing a template");
        int kept = displace(home, manifest->key, outer, err);
        if (kept != 0)
                return kept < 0 ? -1 : 0;
        int templates = home_folder(home, HOME_TEMPLATES);
        if (renameat(outer, name, templates, manifest->key) < 0)
                return cubby_error_errno(err, errno, "publishing a template");
        if (fsync(templates) < 0)
                return cubby_error_errno(err, errno, "syncing the templates");
        return 0;
}

int template_remove(struct home *home, const char *key, int64_t deadline_ms, uint64_t *ret_bytes,
        cubby_error *err)
{
        if (!template_key_valid(key))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is no key of a template", key);
        char lock_name[LOCK_NAME_SIZE];
        template_lock_name(key, lock_name);
        AUTO_LOCK int lock = -1;
        cubby_error problem = {0};
        if (home_lock(home, lock_name, true, deadline_ms, &lock, &problem) < 0)
                return cubby_error_set(err,
                        problem.code == CUBBY_E_TIMEOUT ? CUBBY_E_BUSY : problem.code,
                        "template %.12s is in use", key);
        int templates = home_folder(home, HOME_TEMPLATES);
        uint64_t bytes = home_usage_at(templates, key);
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int dir_lock = -1;
        if (home_make_temporary(home, temporary, &dir, &dir_lock, err) < 0)
                return cubby_error_wrap(err, "removing template %.12s", key);
        /* whole or not at all: what is left after a crash is swept with tmp/ */
        int renamed = renameat(templates, key, dir, "removed");
        int saved = errno;
        if (dir_remove_at(home_folder(home, HOME_TMP), temporary, err) < 0)
                return -1;
        if (renamed < 0)
                return cubby_error_errno(err, saved, "removing template %.12s", key);
        if (ret_bytes != NULL)
                *ret_bytes = bytes;
        return 0;
}
