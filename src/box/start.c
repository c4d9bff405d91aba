/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/launch.h"
#include "box/saved.h"
#include "engine/engine.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOCK_MS 1000 /* a probe holds the lock for moments only */

/* From here on the folder says "started": a shim that leaves no exit file has died. */
static int mark_started(
        const cubby_box *box, const char *isolation, const char *served, cubby_error *err)
{
        struct box_started started = {.started_ns = clock_realtime_ns()};
        (void)snprintf(started.isolation, sizeof started.isolation, "%.15s", isolation);
        (void)snprintf(started.served, sizeof started.served, "%.15s", served);
        return box_write_started(box, &started, err);
}

/* A crash of the host must not leave a box that looks as if it had never run. Done while
 * the machine starts, which takes longer. */
static int sync_mark(const cubby_box *box, cubby_error *err)
{
        AUTO_FD int fd = openat(
                box->dir_fd, BOX_STARTED_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT)
                return 0; /* somebody removes the box already */
        if (fd < 0 || fsync(fd) < 0 || fsync(box->dir_fd) < 0)
                return cubby_error_errno(err, errno, "noting the start of the box");
        return 0;
}

/* One attempt in this mode, with the parts that it needs. */
static int run_shim(cubby_box *box, enum shim_mode mode, struct shim_parts *parts, cubby_error *err)
{
        AUTO_FD int pidfd = -1;
        if (shim_launch(box, mode, NULL, parts, &pidfd, err) < 0) {
                (void)unlinkat(box->dir_fd, BOX_STARTED_NAME, 0);
                return -1;
        }
        close_quietly(take_fd(&parts->lock)); /* the shim's alone now */
        struct shim_report report = {0};
        if (sync_mark(box, err) < 0 || shim_wait_ready(box, parts->status, &report, err) < 0) {
                shim_clean_up(box, pidfd);
                return -1;
        }
        /* only for display: a box that runs is not ended for the lack of it */
        (void)mark_started(box, report.text, mode == SHIM_CLONE ? "cloned" : "booted", NULL);
        return 0;
}

static int prepare(cubby_box *box, struct shim_parts *parts, cubby_error *err)
{
        if (image_open_rootfs(box->cubby->home, box->image_id, &parts->rootfs, err) < 0 ||
                mark_started(box, "", "", err) < 0)
                return -1;
        if (unlinkat(box->dir_fd, BOX_EXIT_NAME, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing the record of the last run");
        return 0;
}

static int boot(cubby_box *box, struct shim_parts *parts, cubby_error *err)
{
        const struct engine *engine = engine_find(box->config.engine);
        bool forks = engine != NULL && (engine->capabilities & ENGINE_CAN_FORK) != 0;
        if (box_disk_place(box->cubby, &box->config, box->dir_fd, -1, err) < 0 ||
                prepare(box, parts, err) < 0 ||
                shim_open_kernel(box->cubby, &box->config, parts, err) < 0 ||
                (forks && memory_create(box->config.memory_bytes, &parts->memory, err) < 0))
                return -1;
        return run_shim(box, SHIM_BOOT, parts, err);
}

/* Failures that may come from what was saved. */
static bool is_suspect(int code)
{
        return code == CUBBY_E_VMM || code == CUBBY_E_CORRUPT || code == CUBBY_E_PROTOCOL ||
                code == CUBBY_E_BOX_DEAD;
}

/*
 * 1 when the box runs, 0 when there is no template to clone, -1 when the
 * box's own command could not be started. A machine that cannot be restored
 * makes its template suspect: it is removed, and the box boots.
 */
static int try_clone(cubby_box *box, struct shim_parts *parts, cubby_error *err)
{
        AUTO(template) struct template *template = NULL;
        cubby_error problem = {0};
        int found = saved_find(box->cubby, &box->config, &template, &problem);
        if (found == 0)
                return 0;
        AUTO_LOCK int turn = -1;
        if (found > 0 && saved_turn(box->cubby, &turn, &problem) == 0 &&
                saved_prepare_clone(box, template, parts, &problem) == 0 &&
                prepare(box, parts, &problem) == 0 &&
                run_shim(box, SHIM_CLONE, parts, &problem) == 0) {
                template_touch(template);
                return 1;
        }
        if (problem.code == CUBBY_E_EXEC_NOT_FOUND || problem.code == CUBBY_E_EXEC_REFUSED ||
                problem.code == CUBBY_E_INVALID || problem.code == CUBBY_E_PERMISSION) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        log_line(&box->cubby->log, LOG_WARNING, "not cloned, the box boots: %s", problem.message);
        if (is_suspect(problem.code) && template != NULL)
                saved_distrust(box->cubby, &template);
        shim_parts_close(parts);
        return 0;
}

static int relock(cubby_box *box, struct shim_parts *parts, cubby_error *err)
{
        return parts->lock >= 0 ? 0 : box_lock(box, deadline_after_ms(LOCK_MS), &parts->lock, err);
}

static int start_locked(cubby_box *box, bool first, struct shim_parts *parts, cubby_error *err)
{
        bool templates = first && !box->config.no_template;
        if (templates) {
                int cloned = try_clone(box, parts, err);
                if (cloned != 0)
                        return cloned < 0 ? -1 : 0;
        }
        if (relock(box, parts, err) < 0 || boot(box, parts, err) < 0)
                return -1;
        if (templates)
                saved_keep(box->cubby, &box->config); /* beside it: the next one is a clone */
        return 0;
}

/* 1 when a suspended box goes on, 0 when it has to be started otherwise. */
static int try_resume(cubby_box *box, cubby_error *err)
{
        cubby_error problem = {0};
        if (!box_is_suspended(box))
                return 0;
        if (box_resume(box, &problem) == 0)
                return 1;
        log_line(&box->cubby->log, LOG_WARNING, "not resumed, the box boots: %s", problem.message);
        return dir_remove_at(box->dir_fd, SUSPENDED_NAME, err);
}

int box_start(cubby_box *box, cubby_error *err)
{
        if (box_check_whole(box, err) < 0)
                return -1;
        int resumed = try_resume(box, err);
        if (resumed != 0)
                return resumed < 0 ? -1 : 0;
        int claimed = saved_claim_start(box, err);
        if (claimed != 0)
                return claimed < 0 ? cubby_error_wrap(err, "starting box '%s'", box->config.name)
                                   : 0;
        enum box_life life = BOX_ENDED;
        AUTO_PARTS struct shim_parts parts = SHIM_PARTS_NONE;
        if (box_life(box, &life, err) < 0 ||
                box_lock(box, deadline_after_ms(LOCK_MS), &parts.lock, err) < 0)
                return cubby_error_wrap(err, "starting the box");
        if (start_locked(box, life == BOX_NEVER_STARTED, &parts, err) < 0)
                return cubby_error_wrap(err, "starting box '%s'", box->config.name);
        return 0;
}
