/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_TRIES 20
#define CREATE_LOCK_MS 30000

/* As root every box has a user of its own, so that boxes cannot reach each other. The
 * disk has it too. */
static int give_away(int dir_fd, uint32_t slot, cubby_error *err)
{
        if (geteuid() != 0)
                return 0;
        uid_t uid = BOX_UID_FIRST + slot;
        if (fchown(dir_fd, uid, uid) < 0)
                return cubby_error_errno(err, errno,
                        "giving the box's files to uid %u (is it mapped in this user namespace?)",
                        uid);
        return 0;
}

static int write_config(const struct box_config *config, int dir_fd, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (box_config_encode(config, &json, err) < 0)
                return -1;
        return file_publish_at(dir_fd, BOX_CONFIG_NAME, json.data, json.size, 0600, err);
}

int box_fill_folder(
        cubby *host, const struct box_config *config, int dir_fd, int disk_fd, cubby_error *err)
{
        if ((disk_fd >= 0 && box_disk_place(host, config, dir_fd, disk_fd, err) < 0) ||
                write_config(config, dir_fd, err) < 0)
                return -1;
        AUTO_FD int lock = openat(
                dir_fd, BOX_LOCK_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0 || fchmod(lock, 0600) < 0)
                return cubby_error_errno(err, errno, "making the box's lock");
        return give_away(dir_fd, config->slot, err);
}

/* boxes/ID appears whole or not at all. */
static int publish_folder(
        cubby *host, const struct box_config *config, int disk_fd, cubby_error *err)
{
        char name[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(host->home, name, &dir, &lock, err) < 0)
                return -1;
        int tmp = home_folder(host->home, HOME_TMP);
        int boxes = home_folder(host->home, HOME_BOXES);
        int result = box_fill_folder(host, config, dir, disk_fd, err);
        if (result == 0 && renameat2(tmp, name, boxes, config->id, RENAME_NOREPLACE) < 0)
                result = cubby_error_errno(err, errno, "publishing the box's folder");
        if (result < 0)
                (void)dir_remove_at(tmp, name, NULL);
        else
                (void)fsync(boxes);
        return result;
}

/* A made-up name may be taken; another is tried. */
static int insert_record(
        cubby *host, struct box_config *config, bool made_up, bool spare, cubby_error *err)
{
        struct box_record record = {.id = config->id,
                .name = config->name,
                .image_id = config->image_id,
                .slot = spare ? config->slot : 0,
                .created_ns = config->created_ns};
        for (int try = 1;; try++) {
                cubby_error problem = {0};
                if (box_record_insert(host->home, &record, &problem) == 0) {
                        config->slot = record.slot;
                        return 0;
                }
                if (!made_up || problem.code != CUBBY_E_EXISTS || try >= NAME_TRIES) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                char name[64];
                box_make_name(name, try > NAME_TRIES / 2);
                char *copy = strdup(name);
                if (copy == NULL)
                        return cubby_error_no_memory(err);
                free(config->name);
                config->name = copy;
                record.name = copy;
        }
}

static int open_folder(cubby *host, const char *id, cubby_error *err)
{
        int fd = openat(home_folder(host->home, HOME_BOXES), id,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "box %.12s is being made or removed", id);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the folder of box %.12s", id);
        return fd;
}

/* The folder may belong to the box's own user: what is in it is not believed
 * where the record says something else. */
static int read_config(
        const struct box_record *record, int dir_fd, struct box_config *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        AUTO_CONFIG struct box_config config = {0};
        if (file_read_at(dir_fd, BOX_CONFIG_NAME, &json, err) < 0 ||
                box_config_decode(json.data, json.size, &config, err) < 0)
                return -1;
        if (strcmp(config.id, record->id) != 0 || config.slot != record->slot ||
                strcmp(config.image_id, record->image_id) != 0)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "its config.json is not the one of its record");
        *ret = config;
        config = (struct box_config){0};
        return 0;
}

/* A box whose config is lost must still be there to be removed. */
static int keep_damaged(cubby_box *box, const struct box_record *record, const cubby_error *damage,
        cubby_error *err)
{
        struct box_config *config = &box->config;
        *config = (struct box_config){.id = strdup(record->id),
                .name = strdup(record->name),
                .hostname = strdup(""),
                .image_id = strdup(record->image_id),
                .image_name = strdup(""),
                .engine = strdup(""),
                .accel = strdup(""),
                .kernel = strdup(""),
                .argv = calloc(1, sizeof(char *)),
                .env = calloc(1, sizeof(char *)),
                .labels = calloc(1, sizeof(char *)),
                .workdir = strdup(""),
                .user = strdup(""),
                .stop_signal = strdup("SIGTERM"),
                .slot = record->slot,
                .created_ns = record->created_ns};
        if (config->id == NULL || config->name == NULL || config->hostname == NULL ||
                config->image_id == NULL || config->image_name == NULL || config->engine == NULL ||
                config->accel == NULL || config->kernel == NULL || config->argv == NULL ||
                config->env == NULL || config->labels == NULL || config->workdir == NULL ||
                config->user == NULL || config->stop_signal == NULL)
                return cubby_error_no_memory(err);
        box->damage = *damage;
        return 0;
}

int box_check_whole(const cubby_box *box, cubby_error *err)
{
        if (box->damage.code == CUBBY_OK)
                return 0;
        if (err != NULL)
                *err = box->damage;
        return cubby_error_wrap(err, "box '%s' is damaged", box->config.name);
}

static int fill_handle(cubby_box *box, const struct box_record *record, cubby_error *err)
{
        box->slot = record->slot;
        box->id = strdup(record->id);
        box->image_id = strdup(record->image_id);
        if (box->id == NULL || box->image_id == NULL)
                return cubby_error_no_memory(err);
        box->dir_fd = open_folder(box->cubby, record->id, err);
        if (box->dir_fd < 0)
                return -1;
        cubby_error damage = {0};
        if (read_config(record, box->dir_fd, &box->config, &damage) == 0)
                return 0;
        if (damage.code == CUBBY_E_NO_MEMORY)
                return cubby_error_no_memory(err);
        return keep_damaged(box, record, &damage, err);
}

static cubby_box *new_handle(cubby *host, cubby_error *err)
{
        cubby_box *box = calloc(1, sizeof *box);
        if (box == NULL) {
                (void)cubby_error_no_memory(err);
                return NULL;
        }
        box->cubby = host;
        box->dir_fd = -1;
        atomic_init(&box->references, 1);
        atomic_init(&box->doomed, false);
        return box;
}

int box_open_record(cubby *host, const struct box_record *record, cubby_box **ret, cubby_error *err)
{
        cubby_box *box = new_handle(host, err);
        if (box == NULL)
                return -1;
        if (fill_handle(box, record, err) < 0) {
                box_close(box);
                return -1;
        }
        *ret = box;
        return 0;
}

int box_open(cubby *host, const char *name, cubby_box **ret, cubby_error *err)
{
        struct box_record record = {0};
        if (box_record_find(host->home, name, &record, err) < 0)
                return -1;
        int result = box_open_record(host, &record, ret, err);
        box_record_clear(&record);
        return result;
}

void box_close(cubby_box *box)
{
        if (box == NULL || atomic_fetch_sub(&box->references, 1) > 1)
                return;
        if (box->watch.drop != NULL)
                box->watch.drop(box->watch.data);
        box_config_clear(&box->config);
        close_quietly(box->dir_fd);
        free(box->id);
        free(box->image_id);
        free(box);
}

/* A spare's folder is there already; only what it is changes. Nothing is synced:
 * after a crash of the host the machine is gone anyway. */
static int rewrite_config(const struct box_config *config, int dir_fd, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (box_config_encode(config, &json, err) < 0)
                return -1;
        return box_write_quickly(dir_fd, BOX_CONFIG_NAME, json.data, json.size, err);
}

int box_record_new(cubby *host, struct box_config *config, bool made_up, int disk_fd,
        cubby_box **ret, cubby_error *err)
{
        if (insert_record(host, config, made_up, false, err) < 0)
                return -1;
        if (publish_folder(host, config, disk_fd, err) < 0) {
                (void)box_record_remove(host->home, config->id, NULL);
                return cubby_error_wrap(err, "creating box '%s'", config->name);
        }
        return box_open(host, config->id, ret, err);
}

/* What was just written need not be read again. Takes the config over. */
static int hold_adopted(cubby *host, struct box_config *config, cubby_box **ret, cubby_error *err)
{
        AUTO(cubby_box) cubby_box *box = new_handle(host, err);
        if (box == NULL)
                return -1;
        box->slot = config->slot;
        box->id = strdup(config->id);
        box->image_id = strdup(config->image_id);
        if (box->id == NULL || box->image_id == NULL)
                return cubby_error_no_memory(err);
        box->dir_fd = open_folder(host, config->id, err);
        if (box->dir_fd < 0 || rewrite_config(config, box->dir_fd, err) < 0)
                return -1;
        box->config = *config;
        *config = (struct box_config){0};
        *ret = take_ptr(&box);
        return 0;
}

/* The spare whose id the config has becomes the box. `dir` is of its template. */
static int adopt_spare(cubby *host, struct box_config *config, bool made_up, int dir,
        cubby_box **ret, cubby_error *err)
{
        char id[33];
        (void)snprintf(id, sizeof id, "%s", config->id);
        if (insert_record(host, config, made_up, true, err) < 0) {
                saved_claimed(host, dir, id, false);
                return -1;
        }
        int result = hold_adopted(host, config, ret, err);
        if (result < 0) {
                (void)box_record_remove(host->home, id, NULL);
                saved_remove_spare(host, id);
        }
        saved_claimed(host, dir, id, true);
        return result < 0 ? cubby_error_wrap(err, "creating box '%s'", config->name) : 0;
}

int box_create(cubby *host, const cubby_box_options *options, cubby_box **ret, cubby_error *err)
{
        AUTO_CONFIG struct box_config config = {0};
        if (box_plan(host, options, &config, err) < 0)
                return cubby_error_wrap(err, "creating a box");
        /* gc takes it alone: a record whose folder is still being made is no leftover */
        AUTO_LOCK int lock = -1;
        if (home_lock(host->home, "boxes", false, deadline_after_ms(CREATE_LOCK_MS), &lock, err) <
                0)
                return cubby_error_wrap(err, "creating a box");
        bool made_up = options->name == NULL;
        AUTO_FD int dir = -1;
        int spare = saved_claim(host, &config, &dir, err);
        int made = spare < 0 ? -1
                : spare > 0  ? adopt_spare(host, &config, made_up, dir, ret, err)
                             : box_record_new(host, &config, made_up, -1, ret, err);
        return made < 0 ? cubby_error_wrap(err, "creating a box") : 0;
}
