/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOXES_LOCK "boxes"
#define CREATE_LOCK_MS 30000
#define MARK_BYTES_MAX 64U
#define MARK_AHEAD " ahead" /* behind the isolation */
#define SPARES_TRIED_MAX 8
#define END_WAIT_MS 3000

/* ------------------------------------------------------------ making -- */

/* Far above the slots of boxes, which begin at 1; the record of a claim is what
 * finally says whether it is free. */
static int choose_slot(uint32_t *ret, cubby_error *err)
{
        uint32_t number = 0;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                return cubby_error_errno(err, errno, "choosing a slot");
        *ret = SAVED_SLOT_SPARE + number % (SAVED_SLOT_TEMPLATE - SAVED_SLOT_SPARE);
        return 0;
}

static int set_identity(struct box_config *config, cubby_error *err)
{
        char *name = NULL;
        if (choose_slot(&config->slot, err) < 0)
                return -1;
        if (asprintf(&name, SAVED_SPARE_PREFIX "%.12s", config->id) < 0)
                return cubby_error_no_memory(err);
        free(config->name);
        config->name = name;
        return 0;
}

/* Publishes boxes/ID with its lock held, so that nobody takes it for a leftover. */
static int publish_folder(cubby *host, const struct box_config *config,
        const struct template *template, cubby_box *box, int *ret_lock, cubby_error *err)
{
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int dir_lock = -1;
        if (home_make_temporary(host->home, temporary, &dir, &dir_lock, err) < 0)
                return -1;
        box->dir_fd = dir;
        int tmp = home_folder(host->home, HOME_TMP);
        int boxes = home_folder(host->home, HOME_BOXES);
        int result = box_fill_folder(host, config, dir, template->fds[TEMPLATE_DISK], err);
        if (result == 0)
                result = box_lock(box, 0, ret_lock, err);
        if (result == 0 && renameat2(tmp, temporary, boxes, config->id, RENAME_NOREPLACE) < 0)
                result = cubby_error_errno(err, errno, "publishing the spare's folder");
        if (result < 0) {
                (void)dir_remove_at(tmp, temporary, NULL);
                box->dir_fd = -1;
                return -1;
        }
        (void)take_fd(&dir);
        return 0;
}

/* Mark and index come together for whoever looks for spares that nobody owns. */
static int offer(cubby_box *box, const struct template *template, enum spare_kind kind,
        const char *isolation, cubby_error *err)
{
        char mark[MARK_BYTES_MAX];
        int length = snprintf(
                mark, sizeof mark, "%.15s%s\n", isolation, kind == SPARE_AHEAD ? MARK_AHEAD : "");
        AUTO_LOCK int lock = -1;
        if (home_lock(box->cubby->home, BOXES_LOCK, false, deadline_after_ms(CREATE_LOCK_MS), &lock,
                    err) < 0 ||
                box_write_quickly(box->dir_fd, BOX_SPARE_NAME, mark, (size_t)length, err) < 0)
                return -1;
        return spare_add(template->dir_fd, kind, box->id, err);
}

static int start_spare(cubby_box *box, const struct template *template, enum spare_kind kind,
        struct shim_parts *parts, cubby_error *err)
{
        cubby *host = box->cubby;
        parts->state = openat(template->dir_fd, template_file_name(TEMPLATE_STATE),
                O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (parts->state < 0)
                return cubby_error_errno(err, errno, "opening the template's state");
        if (image_open_rootfs(host->home, box->config.image_id, &parts->rootfs, err) < 0)
                return -1;
        AUTO_LOCK int turn = -1;
        AUTO_FD int pidfd = -1;
        bool warm = kind == SPARE_WARM;
        if ((warm && saved_turn(host, &turn, err) < 0) ||
                shim_launch(box, warm ? SHIM_SPARE : SHIM_AHEAD,
                        warm ? template->manifest.inputs.warmups : NULL, parts, &pidfd, err) < 0)
                return -1;
        close_quietly(take_fd(&parts->lock));
        struct shim_report report = {0};
        if (shim_wait_ready(box, parts->status, &report, err) < 0) {
                shim_clean_up(box, pidfd);
                return -1;
        }
        return offer(box, template, kind, report.text, err);
}

int saved_make_spare(cubby *host, const struct template *template, enum spare_kind kind,
        const struct box_config *config, int memory_fd, int keeper_fd, char ret_id[33],
        cubby_error *err)
{
        AUTO_CONFIG struct box_config plain = {0};
        if (saved_plain_config(host, config, &plain, err) < 0 || set_identity(&plain, err) < 0)
                return -1;
        AUTO_PARTS struct shim_parts parts = SHIM_PARTS_NONE;
        parts.memory = fcntl(memory_fd, F_DUPFD_CLOEXEC, 3);
        parts.keeper = fcntl(keeper_fd, F_DUPFD_CLOEXEC, 3);
        if (parts.memory < 0 || parts.keeper < 0)
                return cubby_error_errno(err, errno, "making a spare");
        cubby_box box = {.cubby = host, .id = plain.id, .dir_fd = -1, .config = plain};
        AUTO_LOCK int boxes_lock = -1;
        if (home_lock(host->home, BOXES_LOCK, false, deadline_after_ms(CREATE_LOCK_MS), &boxes_lock,
                    err) < 0 ||
                publish_folder(host, &plain, template, &box, &parts.lock, err) < 0)
                return cubby_error_wrap(err, "making a spare");
        home_unlock(take_fd(&boxes_lock)); /* from here on its own lock protects it */
        int result = start_spare(&box, template, kind, &parts, err);
        close_quietly(box.dir_fd);
        if (result < 0) {
                saved_remove_spare(host, plain.id);
                return cubby_error_wrap(err, "making a spare");
        }
        memcpy(ret_id, plain.id, 33);
        return 0;
}

static int open_folder(cubby *host, const char *id)
{
        return openat(home_folder(host->home, HOME_BOXES), id,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void saved_remove_spare(cubby *host, const char *id)
{
        AUTO_FD int dir = open_folder(host, id);
        if (dir < 0)
                return;
        cubby_box box = {.cubby = host, .id = (char *)(uintptr_t)id, .dir_fd = dir};
        enum box_life life = BOX_ENDED;
        if (box_life(&box, &life, NULL) == 0 && life == BOX_ALIVE) {
                (void)box_kill_shim(&box, NULL);
                (void)box_wait_end(&box, deadline_after_ms(END_WAIT_MS), NULL);
        }
        cubby_error problem = {0};
        if (box_remove_folder(host, id, &problem) < 0)
                log_line(&host->log, LOG_WARNING, "a spare's folder stays: %s", problem.message);
}

bool saved_spare_lives(cubby *host, const char *id)
{
        AUTO_FD int dir = open_folder(host, id);
        cubby_box box = {.cubby = host, .id = (char *)(uintptr_t)id, .dir_fd = dir};
        enum box_life life = BOX_ENDED;
        return dir >= 0 && box_life(&box, &life, NULL) == 0 && life == BOX_ALIVE;
}

/* ---------------------------------------------------------- claiming -- */

static int read_spare_config(int dir_fd, struct box_config *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (file_read_at(dir_fd, BOX_CONFIG_NAME, &json, err) < 0)
                return -1;
        return box_config_decode(json.data, json.size, ret, err);
}

static int set_text(char **field, const char *text, size_t length, cubby_error *err)
{
        char *copy = strndup(text, length);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        free(*field);
        *field = copy;
        return 0;
}

/* The plan goes on under the spare's id. False when the spare is of no use. */
static bool adopt(cubby *host, const char *id, struct box_config *config, cubby_error *err)
{
        AUTO_FD int dir = open_folder(host, id);
        AUTO_CONFIG struct box_config spare = {0};
        cubby_box box = {.cubby = host, .id = (char *)(uintptr_t)id, .dir_fd = dir};
        enum box_life life = BOX_ENDED;
        if (dir < 0 || box_life(&box, &life, err) < 0 || life != BOX_ALIVE ||
                read_spare_config(dir, &spare, err) < 0 || strcmp(spare.id, id) != 0 ||
                strcmp(spare.image_id, config->image_id) != 0 ||
                spare.memory_bytes != config->memory_bytes ||
                spare.disk_bytes != config->disk_bytes || spare.slot < SAVED_SLOT_SPARE)
                return false;
        if (strncmp(config->hostname, config->id, 12) == 0 && config->hostname[12] == '\0' &&
                set_text(&config->hostname, id, 12, err) < 0)
                return false;
        if (set_text(&config->id, id, 32, err) < 0)
                return false;
        config->slot = spare.slot;
        return true;
}

/* The folder of the template that boxes of this config continue from, or -1. */
static int open_template_folder(cubby *host, const struct box_config *config)
{
        char key[TEMPLATE_KEY_SIZE];
        if (saved_key(host, config, key, NULL) < 0)
                return -1;
        return openat(home_folder(host->home, HOME_TEMPLATES), key,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A warm one first. One that is ahead continues from the template's files, and is as good
 * as they are now: a damaged template is left to the start of the box, which removes it. */
static int take_any(
        cubby *host, const struct box_config *config, int dir_fd, char ret_id[33], cubby_error *err)
{
        int taken = spare_take(dir_fd, SPARE_WARM, ret_id, err);
        if (taken != 0 || spare_count(dir_fd, SPARE_AHEAD) == 0)
                return taken;
        char key[TEMPLATE_KEY_SIZE];
        AUTO(template) struct template *template = NULL;
        if (saved_key(host, config, key, NULL) < 0 ||
                template_open(host->home, key, &template, NULL) < 0)
                return 0;
        return spare_take(dir_fd, SPARE_AHEAD, ret_id, err);
}

int saved_claim(cubby *host, struct box_config *config, int *ret_dir, cubby_error *err)
{
        if (config->no_template)
                return 0;
        AUTO_FD int dir = open_template_folder(host, config);
        if (dir < 0)
                return 0;
        for (int i = 0; i < SPARES_TRIED_MAX; i++) {
                char id[33];
                int taken = take_any(host, config, dir, id, err);
                if (taken <= 0)
                        return taken;
                if (adopt(host, id, config, NULL)) {
                        *ret_dir = take_fd(&dir);
                        return 1;
                }
                saved_remove_spare(host, id);
                spare_settle(dir, id);
        }
        return 0;
}

/* What waits in a box's folder. False when nothing does. */
static bool read_mark(int dir_fd, char ret_isolation[16], enum spare_kind *ret_kind)
{
        AUTO_BUFFER struct buffer mark;
        buffer_init(&mark, MARK_BYTES_MAX);
        if (file_read_at(dir_fd, BOX_SPARE_NAME, &mark, NULL) < 0)
                return false;
        size_t length = 0;
        while (length < mark.size && length < 15 && mark.data[length] >= 'a' &&
                mark.data[length] <= 'z')
                length++;
        memset(ret_isolation, 0, 16);
        memcpy(ret_isolation, mark.data, length);
        bool ahead = mark.size - length > strlen(MARK_AHEAD) &&
                memcmp(mark.data + length, MARK_AHEAD, strlen(MARK_AHEAD)) == 0;
        *ret_kind = ahead ? SPARE_AHEAD : SPARE_WARM;
        return true;
}

void saved_claimed(cubby *host, int dir, const char *id, bool good)
{
        if (good) {
                spare_settle(dir, id);
                return;
        }
        AUTO_FD int box_dir = open_folder(host, id);
        char isolation[16];
        enum spare_kind kind = SPARE_WARM;
        if (box_dir >= 0 && read_mark(box_dir, isolation, &kind))
                spare_return(dir, kind, id);
}

static int send_claim(cubby_box *box, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, FRAME_TO_GUEST_MAX);
        AUTO(client) struct client *client = NULL;
        struct frame reply;
        int64_t deadline = deadline_after_ms(box->config.boot_timeout_ms);
        if (box_config_encode(&box->config, &json, err) < 0 ||
                client_connect(box->dir_fd, deadline, &client, err) < 0)
                return -1;
        return client_call(
                client, FRAME_SHIM_CLAIM, json.data, json.size, FRAME_OK, deadline, &reply, err);
}

static void write_started(const cubby_box *box, enum spare_kind kind, const char *isolation)
{
        struct box_started started = {.started_ns = clock_realtime_ns()};
        (void)snprintf(started.served, sizeof started.served, "%s",
                kind == SPARE_AHEAD ? "cloned" : "spare");
        (void)snprintf(started.isolation, sizeof started.isolation, "%.15s", isolation);
        /* only for display: a box that runs is not ended for the lack of it */
        (void)box_write_started(box, &started, NULL);
}

/* What its shim could not do any more, the usual start does. */
static void give_up(cubby_box *box)
{
        if (box_wait_end(box, 0, NULL) < 0) {
                (void)box_kill_shim(box, NULL);
                (void)box_wait_end(box, deadline_after_ms(END_WAIT_MS), NULL);
        }
        (void)unlinkat(box->dir_fd, BOX_SPARE_NAME, 0);
        (void)unlinkat(box->dir_fd, BOX_STARTED_NAME, 0);
        (void)unlinkat(box->dir_fd, BOX_EXIT_NAME, 0);
}

int saved_claim_start(cubby_box *box, cubby_error *err)
{
        char isolation[16];
        enum spare_kind kind = SPARE_WARM;
        if (!read_mark(box->dir_fd, isolation, &kind))
                return 0;
        cubby_error problem = {0};
        AUTO_LOCK int turn = -1;
        write_started(box, kind, isolation);
        if (FAULT_POINT(NULL, "claim.send", err) < 0)
                return -1;
        if ((kind == SPARE_WARM || saved_turn(box->cubby, &turn, &problem) == 0) &&
                send_claim(box, &problem) == 0) {
                box_tell_isolation(box, isolation);
                return 1;
        }
        if (problem.code == CUBBY_E_STATE) { /* another start was first, or a removal */
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (problem.code == CUBBY_E_EXEC_NOT_FOUND || problem.code == CUBBY_E_EXEC_REFUSED ||
                problem.code == CUBBY_E_INVALID) {
                (void)box_wait_end(box, deadline_after_ms(END_WAIT_MS), NULL);
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        log_line(&box->cubby->log, LOG_WARNING, "a spare was lost, another machine serves: %s",
                problem.message);
        give_up(box);
        return 0;
}

bool saved_waits(const cubby_box *box)
{
        struct stat info;
        return fstatat(box->dir_fd, BOX_SPARE_NAME, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

bool saved_take_back(const cubby_box *box)
{
        return unlinkat(box->dir_fd, BOX_SPARE_NAME, 0) == 0; /* as its shim does for a claim */
}
