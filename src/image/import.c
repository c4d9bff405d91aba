/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"

#include "base/clock.h"
#include "base/fd.h"
#include "image/layer.h"
#include "image/plan.h"
#include "image/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUILD_FOLDER "rootfs" /* in the temporary folder; becomes rootfs/HEX */
#define DEFAULT_PLATFORM "linux/amd64"

struct import {
        struct home *home;
        const struct image_import_options *options;
        const char *platform;
        struct image_limits limits;
        char *wanted_name; /* normalised option, or NULL */
        char temporary[32];
        int temporary_fd;
        int temporary_lock;
        int build_fd; /* the folder to publish, -1 when there is nothing to publish */
        int disk_fd;
        uint64_t packed_total;
        uint64_t packed_before; /* of the layers that are done */
        const char *detail;     /* for progress: the layer being read */
};

static void report(
        const struct import *import, const char *stage, const char *detail, uint64_t done)
{
        const struct image_import_options *options = import->options;
        if (options->progress != NULL)
                options->progress(
                        options->progress_data, stage, detail, done, import->packed_total);
}

static void layer_progress(void *data, uint64_t packed_done)
{
        const struct import *import = data;
        report(import, "layer", import->detail, import->packed_before + packed_done);
}

static void discard_content(void *data, const struct inode *file)
{
        disk_discard(data, file->block, file->size);
}

/* ---- the disk ---- */

static int open_build(struct import *import, cubby_error *err)
{
        if (dir_make_at(import->temporary_fd, BUILD_FOLDER, 0700) < 0)
                return cubby_error_errno(err, errno, "making a folder for the image");
        import->build_fd = openat(import->temporary_fd, BUILD_FOLDER,
                O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (import->build_fd < 0)
                return cubby_error_errno(err, errno, "opening the image's folder");
        import->disk_fd = openat(import->build_fd, ROOTFS_DISK,
                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (import->disk_fd < 0)
                return cubby_error_errno(err, errno, "making the image's disk");
        return 0;
}

static unsigned int hex_value(char digit)
{
        return (unsigned int)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* Metadata behind the contents, then everything to stable storage. */
static int close_build(struct import *import, struct disk *disk, struct tree *tree, const char *id,
        cubby_error *err)
{
        uint8_t uuid[16];
        const char *hex = id + strlen(DIGEST_PREFIX);
        for (size_t i = 0; i < sizeof uuid; i++)
                uuid[i] = (uint8_t)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
        report(import, "disk", id, import->packed_total);
        if (disk_finish(disk, tree, uuid, err) < 0)
                return -1;
        if (fchmod(import->disk_fd, 0400) < 0 || fsync(import->disk_fd) < 0 ||
                fsync(import->build_fd) < 0)
                return cubby_error_errno(err, errno, "storing the image's disk");
        return 0;
}

static int apply_layers(struct import *import, const struct source *source, const struct plan *plan,
        struct tree *tree, struct disk *disk, cubby_error *err)
{
        struct image_usage usage = {0};
        for (size_t i = 0; i < plan->layer_count; i++) {
                const struct plan_layer *from = &plan->layers[i];
                AUTO_BLOB struct blob blob = BLOB_NONE;
                struct layer_result result;
                import->detail = from->diff_id;
                if (source_blob(source, from->member, &blob, err) < 0)
                        return cubby_error_wrap(err, "layer %zu", i + 1);
                bool known = from->digest[0] != '\0';
                if (known && blob.size != from->size)
                        return cubby_error_set(err, CUBBY_E_DIGEST,
                                "layer %zu (%s) has %llu bytes, not %llu", i + 1, from->digest,
                                (unsigned long long)blob.size, (unsigned long long)from->size);
                struct layer layer = {.blob = blob,
                        .digest = known ? from->digest : NULL,
                        .diff_id = from->diff_id,
                        .progress = layer_progress,
                        .progress_data = import};
                if (layer_apply(&layer, &import->limits, &usage, tree, disk, &result, err) < 0)
                        return cubby_error_wrap(
                                err, "layer %zu (%s)", i + 1, known ? from->digest : from->diff_id);
                import->packed_before += blob.size;
        }
        return 0;
}

static int build_layers(struct import *import, const struct source *source, const struct plan *plan,
        cubby_error *err)
{
        AUTO(tree) struct tree *tree = NULL;
        struct disk disk;
        for (size_t i = 0; i < plan->layer_count; i++)
                import->packed_total += plan->layers[i].size;
        if (open_build(import, err) < 0)
                return -1;
        disk_start(&disk, import->disk_fd);
        if (tree_new(&import->limits, discard_content, &disk, &tree, err) < 0 ||
                apply_layers(import, source, plan, tree, &disk, err) < 0)
                return -1;
        return close_build(import, &disk, tree, plan->id, err);
}

/* The tar of a root file system: what its config says is known when it has been read. */
static int build_rootfs(
        struct import *import, const struct source *source, struct plan *plan, cubby_error *err)
{
        AUTO(tree) struct tree *tree = NULL;
        AUTO_BLOB struct blob blob = BLOB_NONE;
        struct disk disk;
        struct image_usage usage = {0};
        struct layer_result result;
        if (source_whole(source, &blob, err) < 0 || open_build(import, err) < 0)
                return -1;
        import->packed_total = blob.size;
        import->detail = source_stem(source);
        disk_start(&disk, import->disk_fd);
        if (tree_new(&import->limits, discard_content, &disk, &tree, err) < 0)
                return -1;
        struct layer layer = {.blob = blob,
                .whole_tar = true,
                .progress = layer_progress,
                .progress_data = import};
        if (layer_apply(&layer, &import->limits, &usage, tree, &disk, &result, err) < 0 ||
                plan_make_config(plan, result.diff_id, result.unpacked_bytes, err) < 0 ||
                plan_make_manifest(plan, err) < 0)
                return -1;
        if (source_stem(source)[0] != '\0' && plan_add_name(plan, source_stem(source), err) < 0)
                return -1;
        return close_build(import, &disk, tree, plan->id, err);
}

/* ---- publishing ---- */

static int fill_record(const struct import *import, const struct plan *plan, int rootfs_fd,
        struct image_record *ret, cubby_error *err)
{
        struct stat status;
        const char *name = import->wanted_name != NULL ? import->wanted_name
                : plan->name_count > 0                 ? plan->names[0]
                                                       : NULL;
        if (fstat(rootfs_fd, &status) < 0)
                return cubby_error_errno(err, errno, "reading the image's disk");
        struct image_record record = {.id = strdup(plan->id),
                .name = name == NULL ? NULL : strdup(name),
                .manifest = strdup(plan->manifest),
                .config = strdup(plan->config),
                .architecture = strdup(plan->architecture),
                .disk_bytes = (uint64_t)status.st_blocks * 512,
                .created_ns = clock_realtime_ns()};
        if (record.id == NULL || (name != NULL && record.name == NULL) || record.manifest == NULL ||
                record.config == NULL || record.architecture == NULL) {
                image_record_clear(&record);
                return cubby_error_no_memory(err);
        }
        *ret = record;
        return 0;
}

static int put_record(const struct import *import, const struct plan *plan, int rootfs_fd,
        struct image_record *ret, cubby_error *err)
{
        struct image_record record = {0};
        if (fill_record(import, plan, rootfs_fd, &record, err) < 0)
                return -1;
        int result = image_record_put(import->home, &record, err);
        /* A name that was asked for is the only one; else all that the source gives. */
        for (size_t i = 1; result == 0 && import->wanted_name == NULL && i < plan->name_count; i++)
                result = image_record_tag(import->home, plan->id, plan->names[i], err);
        if (result < 0) {
                image_record_clear(&record);
                return -1;
        }
        *ret = record;
        return 0;
}

/*
 * Puts the disk into its place, unless it is there: another import of the same
 * image has made the same disk. *ret_missing: there is none, nor one to put there.
 */
static int publish(struct import *import, const struct plan *plan, bool *ret_missing,
        struct image_record *ret, cubby_error *err)
{
        AUTO_LOCK int lock = -1;
        AUTO_FD int rootfs = -1;
        const char *hex = plan->id + strlen(DIGEST_PREFIX);
        int folder = home_folder(import->home, HOME_ROOTFS);
        *ret_missing = false;
        if (home_lock(import->home, STORE_LOCK, true, deadline_after_ms(STORE_LOCK_MS), &lock,
                    err) < 0)
                return -1;
        if (image_open_rootfs(import->home, plan->id, &rootfs, NULL) < 0) {
                if (import->build_fd < 0) {
                        *ret_missing = true;
                        return 0;
                }
                /* What may be left of a removal that was interrupted. */
                if (dir_remove_at(folder, hex, err) < 0)
                        return -1;
                if (renameat(import->temporary_fd, BUILD_FOLDER, folder, hex) < 0 ||
                        fsync(folder) < 0)
                        return cubby_error_errno(err, errno, "publishing the image's disk");
                if (image_open_rootfs(import->home, plan->id, &rootfs, err) < 0)
                        return -1;
        }
        return put_record(import, plan, rootfs, ret, err);
}

static int run(struct import *import, const char *path, struct image_record *ret, cubby_error *err)
{
        AUTO(source) struct source *source = NULL;
        AUTO_PLAN struct plan plan = {0};
        bool missing = false;
        report(import, "open", path, 0);
        if (source_open(path, import->temporary_fd, &import->limits, &source, err) < 0)
                return -1;
        switch (source_kind(source)) {
        case SOURCE_ROOTFS:
                return build_rootfs(import, source, &plan, err) < 0
                        ? -1
                        : publish(import, &plan, &missing, ret, err);
        case SOURCE_LAYOUT:
                if (plan_from_layout(source, import->wanted_name, import->platform, &plan, err) < 0)
                        return -1;
                break;
        case SOURCE_DOCKER_ARCHIVE:
                if (plan_from_docker_archive(
                            source, import->wanted_name, import->platform, &plan, err) < 0)
                        return -1;
                break;
        }
        /* The config binds the layers by digest: a disk of this id needs no second making. */
        if (publish(import, &plan, &missing, ret, err) < 0)
                return -1;
        if (!missing)
                return 0;
        if (build_layers(import, source, &plan, err) < 0)
                return -1;
        return publish(import, &plan, &missing, ret, err);
}

int image_import(struct home *home, const char *source, const struct image_import_options *options,
        struct image_record *ret, cubby_error *err)
{
        static const struct image_import_options defaults;
        AUTO_FREE char *name = NULL;
        struct import import = {.home = home,
                .options = options == NULL ? &defaults : options,
                .limits = image_limits_default,
                .temporary_fd = -1,
                .temporary_lock = -1,
                .build_fd = -1,
                .disk_fd = -1};
        import.platform =
                import.options->platform == NULL ? DEFAULT_PLATFORM : import.options->platform;
        if (import.options->timeout_ms > 0)
                import.limits.deadline_ms = deadline_after_ms(import.options->timeout_ms);
        if (import.options->name != NULL &&
                image_name_normalize(import.options->name, &name, err) < 0)
                return -1;
        import.wanted_name = name;
        if (home_make_temporary(
                    home, import.temporary, &import.temporary_fd, &import.temporary_lock, err) < 0)
                return -1;
        int result = run(&import, source, ret, err);
        close_quietly(import.disk_fd);
        close_quietly(import.build_fd);
        close_quietly(import.temporary_fd);
        (void)dir_remove_at(home_folder(home, HOME_TMP), import.temporary, NULL);
        home_unlock(import.temporary_lock);
        return result < 0 ? cubby_error_wrap(err, "importing '%s'", source) : 0;
}
