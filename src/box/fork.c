/* SPDX-License-Identifier: Apache-2.0 */

/* Boxes that continue from a copy of another. */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREATE_LOCK_MS 30000
#define LOCK_MS 1000 /* a probe holds the lock for moments only */

static int set_text(char **field, const char *text, cubby_error *err)
{
        char *copy = strdup(text);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        free(*field);
        *field = copy;
        return 0;
}

int box_child_config(
        const struct box_config *parent, const char *name, struct box_config *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        AUTO_CONFIG struct box_config child = {0};
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (box_config_encode(parent, &json, err) < 0 ||
                box_config_decode(json.data, json.size, &child, err) < 0)
                return -1;
        char id[33];
        char made_up[64];
        char hostname[13];
        box_make_id(id);
        box_make_name(made_up, false);
        (void)snprintf(hostname, sizeof hostname, "%.12s", id);
        box_free_list(take_ptr(&child.argv));
        if (set_text(&child.id, id, err) < 0 ||
                set_text(&child.name, name == NULL ? made_up : name, err) < 0 ||
                set_text(&child.hostname, hostname, err) < 0 ||
                box_copy_list(NULL, &child.argv, err) < 0)
                return -1;
        child.tty = false;
        child.open_stdin = false;
        child.auto_remove = false;
        child.created_ns = clock_realtime_ns();
        *ret = child;
        child = (struct box_config){0};
        return 0;
}

int box_start_copy(cubby_box *box, enum shim_mode mode, int memory_fd, int state_fd,
        const char *served, bool *ret_ran, cubby_error *err)
{
        AUTO_PARTS struct shim_parts parts = SHIM_PARTS_NONE;
        AUTO_LOCK int turn = -1;
        AUTO_FD int pidfd = -1;
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", state_fd);
        parts.memory = fcntl(memory_fd, F_DUPFD_CLOEXEC, 3);
        parts.state = open(path, O_RDONLY | O_CLOEXEC); /* with an offset of its own */
        if (parts.memory < 0 || parts.state < 0)
                return cubby_error_errno(err, errno, "opening the copy");
        struct box_started started = {.started_ns = clock_realtime_ns()};
        if (box_lock(box, deadline_after_ms(LOCK_MS), &parts.lock, err) < 0 ||
                image_open_rootfs(box->cubby->home, box->image_id, &parts.rootfs, err) < 0 ||
                box_write_started(box, &started, err) < 0 ||
                saved_turn(box->cubby, &turn, err) < 0 ||
                shim_launch(box, mode, NULL, &parts, &pidfd, err) < 0)
                return -1;
        if (ret_ran != NULL)
                *ret_ran = true;
        close_quietly(take_fd(&parts.lock));
        struct shim_report report = {0};
        if (shim_wait_ready(box, parts.status, &report, err) < 0) {
                shim_clean_up(box, pidfd);
                return -1;
        }
        (void)snprintf(started.isolation, sizeof started.isolation, "%.15s", report.text);
        (void)snprintf(started.served, sizeof started.served, "%.15s", served);
        (void)box_write_started(box, &started, NULL);
        return 0;
}

int box_continue(cubby *host, struct box_config *config, bool made_up, int disk_fd, int memory_fd,
        int state_fd, const char *served, cubby_box **ret, cubby_error *err)
{
        AUTO(cubby_box) cubby_box *box = NULL;
        AUTO_LOCK int lock = -1;
        if (home_lock(host->home, "boxes", false, deadline_after_ms(CREATE_LOCK_MS), &lock, err) <
                        0 ||
                box_record_new(host, config, made_up, disk_fd, &box, err) < 0)
                return -1;
        home_unlock(take_fd(&lock));
        if (box_start_copy(box, SHIM_CLONE, memory_fd, state_fd, served, NULL, err) < 0) {
                (void)box_remove(box, true, NULL);
                return cubby_error_wrap(err, "starting box '%s'", config->name);
        }
        *ret = take_ptr(&box);
        return 0;
}

/* A file without a name for the disk of the copy, in the home. */
static int scratch_disk(cubby *host, int *ret_fd, cubby_error *err)
{
        AUTO_FD int fd = openat(
                home_folder(host->home, HOME_TMP), ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making a file for the copied disk");
        *ret_fd = take_fd(&fd);
        return 0;
}

int box_fork_many(cubby_box *box, const char *const *names, size_t count, cubby_box **ret,
        cubby_error *errors, cubby_error *err)
{
        struct box_copy copy = BOX_COPY_NONE;
        AUTO_FD int disk = -1;
        if (scratch_disk(box->cubby, &disk, err) < 0 ||
                box_copy_take(box, disk, false, &copy, err) < 0)
                return cubby_error_wrap(err, "forking box '%s'", box->config.name);
        for (size_t i = 0; i < count; i++) {
                AUTO_CONFIG struct box_config config = {0};
                const char *name = names == NULL ? NULL : names[i];
                ret[i] = NULL;
                cubby_error_clear(&errors[i]);
                if (box_child_config(&box->config, name, &config, &errors[i]) < 0 ||
                        box_continue(box->cubby, &config, name == NULL, disk, copy.memory_fd,
                                copy.state_fd, "forked", &ret[i], &errors[i]) < 0)
                        (void)cubby_error_wrap(&errors[i], "forking box '%s'", box->config.name);
        }
        box_copy_close(&copy);
        return 0;
}
