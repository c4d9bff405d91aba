/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCK_MS 1000

/*
 * The folder leaves boxes/ by one rename; what a crash leaves after it is a
 * temporary that the next start sweeps, and a record without a folder.
 */
static int remove_once(cubby *host, const char *id, cubby_error *err)
{
        char name[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(host->home, name, &dir, &lock, err) < 0)
                return -1;
        int result = 0;
        if (renameat(home_folder(host->home, HOME_BOXES), id, dir, "box") < 0 && errno != ENOENT)
                result = cubby_error_errno(err, errno, "removing the folder of box %.12s", id);
        if (result == 0)
                result = box_record_remove(host->home, id, err);
        cubby_error problem = {0};
        if (dir_remove_at(home_folder(host->home, HOME_TMP), name, &problem) < 0 && result == 0) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        return result;
}

static bool is_full(const cubby_error *problem)
{
        return problem->code == CUBBY_E_NO_SPACE || problem->sys_errno == ENOSPC ||
                problem->sys_errno == EDQUOT;
}

/* On a full file system the rename and the database need the room that the box takes. */
static void make_room(cubby *host, const char *id)
{
        static const char *const large[] = {BOX_DISK_NAME, BOX_LOG_NAME, BOX_LOG_OLD_NAME};
        AUTO_FD int dir = openat(home_folder(host->home, HOME_BOXES), id,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        for (size_t i = 0; dir >= 0 && i < sizeof large / sizeof *large; i++)
                (void)unlinkat(dir, large[i], 0);
}

int box_remove_folder(cubby *host, const char *id, cubby_error *err)
{
        cubby_error problem = {0};
        if (remove_once(host, id, &problem) == 0)
                return 0;
        if (is_full(&problem)) {
                make_room(host, id);
                if (remove_once(host, id, &problem) == 0)
                        return 0;
        }
        if (err != NULL)
                *err = problem;
        return -1;
}

int box_remove(cubby_box *box, bool force, cubby_error *err)
{
        enum box_life life;
        if (box_life(box, &life, err) < 0)
                return -1;
        if (life == BOX_ALIVE) {
                if (!saved_take_back(box) && !force)
                        return cubby_error_set(err, CUBBY_E_STATE,
                                "box '%s' is running; stop it first or remove it by force",
                                box->config.name);
                if (box_end(box, err) < 0 && box_wait_end(box, 0, NULL) < 0)
                        return cubby_error_wrap(err, "killing box '%s'", box->config.name);
        }
        /* nobody may start it any more */
        AUTO_FD int lock = -1;
        if (box_lock(box, deadline_after_ms(LOCK_MS), &lock, err) < 0 ||
                box_remove_folder(box->cubby, box->id, err) < 0)
                return cubby_error_wrap(err, "removing box '%s'", box->config.name);
        return 0;
}

int box_rename(cubby_box *box, const char *name, cubby_error *err)
{
        if (box_check_whole(box, err) < 0)
                return -1;
        struct box_config renamed = box->config;
        renamed.name = (char *)(uintptr_t)name;
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        char *copy = strdup(name);
        AUTO_FREE char *owned = copy;
        if (owned == NULL)
                return cubby_error_no_memory(err);
        /* the record first: it decides who gets the name */
        if (box_config_encode(&renamed, &json, err) < 0 ||
                box_record_rename(box->cubby->home, box->id, name, err) < 0 ||
                file_publish_at(box->dir_fd, BOX_CONFIG_NAME, json.data, json.size, 0600, err) < 0)
                return cubby_error_wrap(err, "renaming box '%s'", box->config.name);
        return 0;
}
