/* SPDX-License-Identifier: Apache-2.0 */
#include "image/store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "image/disk.h"
#include "image/image.h"
#include "image/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int image_find(struct home *home, const char *image, struct image_record *ret, cubby_error *err)
{
        AUTO_FREE char *name = NULL;
        cubby_error problem;
        if (image_name_normalize(image, &name, &problem) == 0) {
                if (image_record_find(home, name, ret, &problem) == 0)
                        return 0;
                if (problem.code != CUBBY_E_NOT_FOUND) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
        } else if (problem.code == CUBBY_E_NO_MEMORY) {
                return cubby_error_no_memory(err);
        }
        return image_record_find(home, image, ret, err);
}

int image_open_rootfs(struct home *home, const char *image_id, int *ret_fd, cubby_error *err)
{
        char path[DIGEST_BYTES + sizeof ROOTFS_DISK];
        if (!digest_valid(image_id))
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "an image id is sha256: and 64 hex digits");
        (void)snprintf(path, sizeof path, "%s/%s", image_id + strlen(DIGEST_PREFIX), ROOTFS_DISK);
        AUTO_FD int fd = openat(home_folder(home, HOME_ROOTFS), path,
                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT)
                return cubby_error_set(err, CUBBY_E_CORRUPT,
                        "the disk of image %s is missing; import the image again", image_id);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the disk of image %s", image_id);
        if (disk_check(fd, err) < 0)
                return cubby_error_wrap(err, "image %s", image_id);
        *ret_fd = take_fd(&fd);
        return 0;
}

/* How many names, or records without a name, an image has. */
static int count_names(struct home *home, const char *id, size_t *ret, cubby_error *err)
{
        struct image_record *records = NULL;
        size_t count = 0;
        size_t found = 0;
        if (image_record_list(home, &records, &count, err) < 0)
                return -1;
        for (size_t i = 0; i < count; i++)
                found += strcmp(records[i].id, id) == 0;
        image_record_list_free(records, count);
        *ret = found;
        return 0;
}

/* `by_id`: all names are to go. */
static int remove_record(struct home *home, const struct image_record *record, bool by_id,
        bool force, cubby_error *err)
{
        size_t boxes = 0;
        size_t names = 0;
        bool gone = false;
        if (box_record_count_by_image(home, record->id, &boxes, err) < 0 ||
                count_names(home, record->id, &names, err) < 0)
                return -1;
        if (boxes > 0 && !force && (by_id || names <= 1))
                return cubby_error_set(err, CUBBY_E_BUSY,
                        "image %s is used by %zu box%s; remove them first, or force it", record->id,
                        boxes, boxes == 1 ? "" : "es");
        if (by_id && names > 1 && !force)
                return cubby_error_set(err, CUBBY_E_BUSY,
                        "image %s has %zu names; remove them by name, or force it", record->id,
                        names);
        if (image_record_remove(home, by_id ? record->id : record->name, &gone, err) < 0)
                return -1;
        /* A box that lives on keeps the disk; it goes with the next collection. One may have
         * been made since they were counted, but from now on none is: the record is gone. */
        if (!gone)
                return 0;
        if (box_record_count_by_image(home, record->id, &boxes, err) < 0)
                return -1;
        if (boxes > 0)
                return 0;
        return dir_remove_at(
                home_folder(home, HOME_ROOTFS), record->id + strlen(DIGEST_PREFIX), err);
}

int image_remove(struct home *home, const char *image, bool force, cubby_error *err)
{
        AUTO_FREE char *name = NULL;
        AUTO_LOCK int lock = -1;
        struct image_record record = {0};
        if (home_lock(home, STORE_LOCK, true, deadline_after_ms(STORE_LOCK_MS), &lock, err) < 0 ||
                image_find(home, image, &record, err) < 0)
                return -1;
        bool by_name = image_name_normalize(image, &name, NULL) == 0 && record.name != NULL &&
                strcmp(record.name, name) == 0;
        int result = remove_record(home, &record, !by_name, force, err);
        image_record_clear(&record);
        return result;
}

/* ---- collection ---- */

struct keep {
        const struct image_record *records;
        size_t count;
        struct home *home;
};

/* A disk is kept for a record or a box of that image. */
static int rootfs_kept(const struct keep *keep, const char *hex, bool *ret, cubby_error *err)
{
        char id[DIGEST_BYTES];
        size_t boxes = 0;
        *ret = false;
        if (strlen(hex) != 64)
                return 0;
        (void)snprintf(id, sizeof id, DIGEST_PREFIX "%s", hex);
        for (size_t i = 0; i < keep->count; i++)
                *ret |= strcmp(keep->records[i].id, id) == 0;
        if (*ret)
                return 0;
        if (box_record_count_by_image(keep->home, id, &boxes, err) < 0)
                return -1;
        *ret = boxes > 0;
        return 0;
}

/* A blob is kept when a record is of it or its manifest speaks of it. */
static int blob_kept(const struct keep *keep, const char *hex, bool *ret, cubby_error *err)
{
        (void)err;
        *ret = false;
        for (size_t i = 0; i < keep->count && !*ret; i++)
                *ret = strstr(keep->records[i].id, hex) != NULL ||
                        strstr(keep->records[i].manifest, hex) != NULL;
        return 0;
}

static uint64_t stored_bytes(int dir_fd, const char *name)
{
        struct stat status;
        if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        return (uint64_t)status.st_blocks * 512;
}

/* Removes an entry of a folder of the store, file or folder, and counts its bytes. */
static int remove_entry(int folder, const char *name, uint64_t *bytes, cubby_error *err)
{
        AUTO_FD int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        uint64_t freed = inner < 0 ? stored_bytes(folder, name) : stored_bytes(inner, ROOTFS_DISK);
        if (inner < 0 && unlinkat(folder, name, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing '%s'", name);
        if (inner >= 0 && dir_remove_at(folder, name, err) < 0)
                return -1;
        *bytes += freed;
        return 0;
}

static int sweep_folder(const struct keep *keep, enum home_folder which,
        int (*kept)(const struct keep *, const char *, bool *, cubby_error *), uint64_t *bytes,
        cubby_error *err)
{
        int folder = home_folder(keep->home, which);
        AUTO_FD int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "reading a folder of images");
        AUTO_DIR DIR *dir = fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "reading a folder of images");
        (void)take_fd(&fd);
        for (;;) {
                bool keep_it = false;
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (entry == NULL && errno != 0)
                        return cubby_error_errno(err, errno, "reading a folder of images");
                if (entry == NULL)
                        return 0;
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (kept(keep, entry->d_name, &keep_it, err) < 0 ||
                        (!keep_it && remove_entry(folder, entry->d_name, bytes, err) < 0))
                        return -1;
        }
}

int image_gc(struct home *home, uint64_t *ret_bytes, cubby_error *err)
{
        AUTO_LOCK int lock = -1;
        struct image_record *records = NULL;
        size_t count = 0;
        uint64_t bytes = 0;
        if (home_lock(home, STORE_LOCK, true, deadline_after_ms(STORE_LOCK_MS), &lock, err) < 0 ||
                image_record_list(home, &records, &count, err) < 0)
                return -1;
        struct keep keep = {.records = records, .count = count, .home = home};
        int result = sweep_folder(&keep, HOME_ROOTFS, rootfs_kept, &bytes, err);
        if (result == 0)
                result = sweep_folder(&keep, HOME_BLOBS, blob_kept, &bytes, err);
        image_record_list_free(records, count);
        if (result < 0)
                return cubby_error_wrap(err, "collecting images");
        *ret_bytes = bytes;
        return 0;
}
