/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "template/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TEMPLATES_MAX 4096U
#define PRUNE_WAIT_MS 300 /* a keeper that was told to end needs a moment */

static void info_clear(struct template_info *info)
{
        template_manifest_clear(&info->manifest);
        free(info->problem);
        *info = (struct template_info){0};
}

void template_list_free(struct template_info *infos, size_t count)
{
        for (size_t i = 0; infos != NULL && i < count; i++)
                info_clear(&infos[i]);
        free(infos);
}

static int64_t used_ns(int dir_fd)
{
        struct stat info;
        if (fstatat(dir_fd, TEMPLATE_USED_NAME, &info, AT_SYMLINK_NOFOLLOW) < 0 &&
                fstat(dir_fd, &info) < 0)
                return 0;
        return mtime_ns(&info);
}

static int describe(struct home *home, const char *key, struct template_info *ret, cubby_error *err)
{
        AUTO(template) struct template *template = NULL;
        cubby_error problem = {0};
        struct template_info info = {0};
        memcpy(info.manifest.key, key, TEMPLATE_KEY_SIZE);
        int templates = home_folder(home, HOME_TEMPLATES);
        if (template_open(home, key, &template, &problem) == 0) {
                info.manifest = template->manifest;
                template->manifest = (struct template_manifest){0};
        } else if (problem.code == CUBBY_E_NOT_FOUND || problem.code == CUBBY_E_BUSY) {
                return 0; /* it goes just now */
        } else {
                info.damaged = true;
                info.problem = strdup(problem.message);
                if (info.problem == NULL)
                        return cubby_error_no_memory(err);
        }
        AUTO_FD int dir = openat(templates, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* a snapshot keeps its name, and is nobody's to remove but its owner's */
        if (dir >= 0 && info.damaged)
                (void)template_read_manifest(dir, key, &info.manifest, NULL);
        if (dir >= 0) {
                info.used_ns = used_ns(dir);
                info.spares = spare_count(dir, SPARE_WARM);
                info.wanted = template_wanted(dir);
        }
        info.disk_usage_bytes = home_usage_at(templates, key);
        *ret = info;
        return 1;
}

static int by_use(const void *left, const void *right)
{
        const struct template_info *a = left;
        const struct template_info *b = right;
        if (a->used_ns != b->used_ns)
                return a->used_ns > b->used_ns ? -1 : 1;
        return strcmp(a->manifest.key, b->manifest.key);
}

int template_list(
        struct home *home, struct template_info **ret, size_t *ret_count, cubby_error *err)
{
        AUTO_FD int fd =
                openat(home_folder(home, HOME_TEMPLATES), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "listing templates");
        (void)take_fd(&fd);
        struct template_info *infos = NULL;
        size_t count = 0;
        int failed = 0;
        for (struct dirent *entry = readdir(dir); failed == 0 && entry != NULL;
                entry = readdir(dir)) {
                if (!template_key_valid(entry->d_name))
                        continue;
                struct template_info *more = count >= TEMPLATES_MAX
                        ? NULL
                        : reallocarray(infos, count + 1, sizeof *infos);
                if (more == NULL) {
                        failed = count >= TEMPLATES_MAX
                                ? cubby_error_set(err, CUBBY_E_LIMIT,
                                          "the home has more than %u templates", TEMPLATES_MAX)
                                : cubby_error_no_memory(err);
                        break;
                }
                infos = more;
                int found = describe(home, entry->d_name, &infos[count], err);
                failed = found < 0 ? -1 : 0;
                count += found > 0 ? 1 : 0;
        }
        if (failed < 0) {
                template_list_free(infos, count);
                return -1;
        }
        if (count > 0)
                qsort(infos, count, sizeof *infos, by_use);
        *ret = infos;
        *ret_count = count;
        return 0;
}

int template_resolve(
        struct home *home, const char *text, char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        struct template_info *infos = NULL;
        size_t count = 0;
        if (template_list(home, &infos, &count, err) < 0)
                return -1;
        size_t length = strlen(text);
        bool digits = length >= 4 && length <= 64 && strspn(text, "0123456789abcdef") == length;
        const char *found = NULL;
        size_t matches = 0;
        for (size_t i = 0; i < count; i++) {
                const struct template_manifest *manifest = &infos[i].manifest;
                if (manifest->snapshot != NULL && strcmp(manifest->snapshot, text) == 0 &&
                        length > 0) {
                        found = manifest->key;
                        matches = 1;
                        break;
                }
                if (digits && strncmp(manifest->key, text, length) == 0) {
                        found = manifest->key;
                        matches++;
                }
        }
        int result = 0;
        if (matches == 1)
                memcpy(ret, found, TEMPLATE_KEY_SIZE);
        else if (matches > 1)
                result = cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is the beginning of several keys; write more digits", text);
        else
                result = cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "there is no template or snapshot '%s'", text);
        template_list_free(infos, count);
        return result;
}

int template_prune(struct home *home, uint64_t limit_bytes, bool dry_run, uint64_t *ret_bytes,
        cubby_error *err)
{
        struct template_info *infos = NULL;
        size_t count = 0;
        if (template_list(home, &infos, &count, err) < 0)
                return -1;
        uint64_t used = 0;
        uint64_t freed = 0;
        int failed = 0;
        /* from the most recent to the oldest: what no longer fits goes */
        for (size_t i = 0; i < count && failed == 0; i++) {
                const struct template_info *info = &infos[i];
                bool snapshot = info->manifest.snapshot != NULL && info->manifest.snapshot[0] != 0;
                if (snapshot || (!info->damaged && used + info->disk_usage_bytes <= limit_bytes)) {
                        used += info->disk_usage_bytes;
                        continue;
                }
                cubby_error problem = {0};
                if (!dry_run &&
                        template_remove(home, info->manifest.key, deadline_after_ms(PRUNE_WAIT_MS),
                                NULL, &problem) < 0) {
                        used += info->disk_usage_bytes;
                        if (problem.code != CUBBY_E_BUSY && problem.code != CUBBY_E_NOT_FOUND)
                                failed = cubby_error_set(err, problem.code, "%s", problem.message);
                        continue;
                }
                freed += info->disk_usage_bytes;
        }
        template_list_free(infos, count);
        if (failed == 0 && ret_bytes != NULL)
                *ret_bytes = freed;
        return failed;
}
