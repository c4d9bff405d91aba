/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define TEMPLATE_BYTES_DEFAULT (16ULL << 30)

static int add(json_t *root, const char *name, uint64_t count, uint64_t bytes, uint64_t reclaimable,
        cubby_error *err)
{
        json_t *part = json_pack("{s:I, s:I, s:I}", "count", (json_int_t)count, "bytes",
                (json_int_t)bytes, "reclaimable", (json_int_t)reclaimable);
        if (json_object_set_new(root, name, part) < 0)
                return cubby_error_no_memory(err);
        return 0;
}

/* Entries of a folder and what they use. */
static void measure(cubby *host, enum home_folder folder, uint64_t *ret_count, uint64_t *ret_bytes)
{
        *ret_count = 0;
        *ret_bytes = 0;
        AUTO_FD int fd =
                openat(home_folder(host->home, folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return;
        (void)take_fd(&fd);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                if (entry->d_name[0] == '.')
                        continue;
                (*ret_count)++;
                *ret_bytes += home_usage_at(dirfd(dir), entry->d_name);
        }
}

static int add_templates(cubby *host, json_t *root, cubby_error *err)
{
        struct template_info *infos = NULL;
        size_t count = 0;
        if (template_list(host->home, &infos, &count, err) < 0)
                return -1;
        uint64_t bytes[2] = {0, 0};
        uint64_t counts[2] = {0, 0};
        uint64_t reclaimable = 0;
        for (size_t i = 0; i < count; i++) {
                bool snapshot =
                        infos[i].manifest.snapshot != NULL && infos[i].manifest.snapshot[0] != '\0';
                bytes[snapshot] += infos[i].disk_usage_bytes;
                counts[snapshot]++;
                if (!snapshot && (infos[i].damaged || infos[i].spares == 0))
                        reclaimable += infos[i].disk_usage_bytes;
        }
        template_list_free(infos, count);
        if (add(root, "templates", counts[0], bytes[0], reclaimable, err) < 0)
                return -1;
        return add(root, "snapshots", counts[1], bytes[1], 0, err);
}

int box_usage(cubby *host, char **ret_json, cubby_error *err)
{
        json_t *root = json_object();
        if (root == NULL)
                return cubby_error_no_memory(err);
        static const struct {
                const char *name;
                enum home_folder folder;
        } parts[] = {
                {"images", HOME_ROOTFS},
                {"kernels", HOME_KERNELS},
                {"boxes", HOME_BOXES},
                {"unfinished", HOME_TMP},
        };
        int result = 0;
        for (size_t i = 0; result == 0 && i < sizeof parts / sizeof parts[0]; i++) {
                uint64_t count = 0;
                uint64_t bytes = 0;
                measure(host, parts[i].folder, &count, &bytes);
                result = add(root, parts[i].name, count, bytes, 0, err);
        }
        if (result == 0)
                result = add_templates(host, root, err);
        char *text = result == 0 ? json_dumps(root, JSON_INDENT(1)) : NULL;
        json_decref(root);
        if (result < 0)
                return -1;
        if (text == NULL)
                return cubby_error_no_memory(err);
        *ret_json = text;
        return 0;
}

/* A keeper without spares is no use of a template, only a memory of one. */
static int end_idle_keepers(cubby *host, cubby_error *err)
{
        struct template_info *infos = NULL;
        size_t count = 0;
        if (template_list(host->home, &infos, &count, err) < 0)
                return -1;
        for (size_t i = 0; i < count; i++) {
                AUTO(template) struct template *template = NULL;
                if (infos[i].wanted == 0 && infos[i].spares == 0 &&
                        template_open(host->home, infos[i].manifest.key, &template, NULL) == 0)
                        (void)saved_tell(template, true, NULL);
        }
        template_list_free(infos, count);
        return 0;
}

int box_prune(
        cubby *host, const cubby_prune_options *options, uint64_t *ret_bytes, cubby_error *err)
{
        uint64_t limit =
                options->template_bytes == 0 ? TEMPLATE_BYTES_DEFAULT : options->template_bytes;
        uint64_t templates = 0;
        uint64_t garbage = 0;
        if ((!options->dry_run && limit == 1 && end_idle_keepers(host, err) < 0) ||
                template_prune(host->home, limit, options->dry_run, &templates, err) < 0 ||
                (!options->dry_run && box_gc(host, &garbage, err) < 0))
                return cubby_error_wrap(err, "pruning");
        if (ret_bytes != NULL)
                *ret_bytes = templates + garbage;
        return 0;
}
