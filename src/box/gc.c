/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/saved.h"
#include "image/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_MS 30000
#define GRACE_NS 10000000000LL /* whoever waits for a box still reads how it ended */

/* A box that removes itself and has ended: its shim cannot do it. */
static void collect_ended(cubby *host, const struct box_record *record)
{
        cubby_box *box = NULL;
        if (box_open_record(host, record, &box, NULL) < 0)
                return;
        enum box_life life;
        struct box_exit end;
        if (box->config.auto_remove && !box_is_suspended(box) && box_life(box, &life, NULL) == 0 &&
                life == BOX_ENDED && box_read_end(box, &end, NULL) == 0 &&
                clock_realtime_ns() - end.finished_ns > GRACE_NS)
                box_reap(box);
        box_close(box);
}

/* A record whose folder never came, or went: its maker or remover died. The same for spares. */
static int drop_unfinished(cubby *host, cubby_error *err)
{
        struct box_record *records = NULL;
        size_t count = 0;
        if (box_record_list(host->home, &records, &count, err) < 0)
                return -1;
        int result = 0;
        for (size_t i = 0; i < count && result == 0; i++) {
                struct stat info;
                if (fstatat(home_folder(host->home, HOME_BOXES), records[i].id, &info,
                            AT_SYMLINK_NOFOLLOW) < 0 &&
                        errno == ENOENT) {
                        log_line(&host->log, LOG_INFO, "removed the record of unfinished box %s",
                                records[i].name);
                        result = box_record_remove(host->home, records[i].id, err);
                }
        }
        saved_sweep_spares(host, records, count);
        box_record_list_free(records, count);
        return result;
}

static bool recorded(const char *id, const struct box_record *records, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (strcmp(records[i].id, id) == 0)
                        return true;
        return false;
}

/* A folder that no record names: a rebuilt database could not read its config.
 * It may hold somebody's files, so only box_gc removes it, not every start. One whose lock is held
 * has a living shim: it stays. */
static int drop_folder(cubby *host, const char *name, uint64_t *freed, cubby_error *err)
{
        int boxes = home_folder(host->home, HOME_BOXES);
        cubby_box orphan = {.cubby = host, .id = (char *)(uintptr_t)name, .dir_fd = -1};
        AUTO_FD int dir = openat(boxes, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        orphan.dir_fd = dir;
        AUTO_FD int lock = -1;
        cubby_error problem = {0};
        if (dir >= 0 && box_lock(&orphan, 0, &lock, &problem) < 0 &&
                problem.code != CUBBY_E_NOT_FOUND)
                return 0;
        uint64_t size = home_usage_at(boxes, name);
        if (dir_remove_at(boxes, name, err) < 0)
                return -1;
        *freed += size;
        log_line(&host->log, LOG_INFO, "removed the folder boxes/%s that had no record", name);
        return 0;
}

static int drop_orphan_folders(cubby *host, uint64_t *freed, cubby_error *err)
{
        AUTO_FD int fd = openat(
                home_folder(host->home, HOME_BOXES), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "reading the folder of boxes");
        (void)take_fd(&fd);
        struct box_record *records = NULL;
        size_t count = 0;
        if (box_record_list(host->home, &records, &count, err) < 0)
                return -1;
        int result = 0;
        for (struct dirent *entry = readdir(dir); entry != NULL && result == 0;
                entry = readdir(dir))
                if (entry->d_name[0] != '.' && !recorded(entry->d_name, records, count))
                        result = drop_folder(host, entry->d_name, freed, err);
        box_record_list_free(records, count);
        return result;
}

static int drop_ended(cubby *host, cubby_error *err)
{
        struct box_record *records = NULL;
        size_t count = 0;
        if (box_record_list(host->home, &records, &count, err) < 0)
                return -1;
        for (size_t i = 0; i < count; i++)
                collect_ended(host, &records[i]);
        box_record_list_free(records, count);
        return 0;
}

int box_recover(cubby *host, uint64_t *ret_bytes, cubby_error *err)
{
        uint64_t freed = 0;
        if (home_sweep(host->home, &freed, err) < 0)
                return -1;
        /* only while nobody makes a box; whoever does will be followed by another start */
        AUTO_LOCK int lock = -1;
        if (home_lock(host->home, "boxes", true, 0, &lock, NULL) == 0) {
                if (drop_unfinished(host, err) < 0)
                        return -1;
                home_unlock(take_fd(&lock));
        }
        if (drop_ended(host, err) < 0)
                return -1;
        if (ret_bytes != NULL)
                *ret_bytes = freed;
        return 0;
}

int box_gc(cubby *host, uint64_t *ret_bytes, cubby_error *err)
{
        uint64_t leftovers = 0;
        uint64_t images = 0;
        AUTO_LOCK int lock = -1;
        if (box_recover(host, &leftovers, err) < 0 ||
                home_lock(host->home, "boxes", true, deadline_after_ms(LOCK_MS), &lock, err) < 0 ||
                drop_orphan_folders(host, &leftovers, err) < 0 ||
                image_gc(host->home, &images, err) < 0)
                return cubby_error_wrap(err, "collecting garbage");
        if (ret_bytes != NULL)
                *ret_bytes = leftovers + images;
        return 0;
}
