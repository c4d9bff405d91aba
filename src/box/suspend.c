/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Suspended boxes: boxes/ID/suspended/ holds memory and state, the disk stays
 * where it is. The two belong to one instant of that disk, so the machine ends
 * while it stands still, and only then is the folder published; and it is taken
 * away again before the machine runs on. What a crash leaves in between is a box
 * that ended.
 */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INNER "suspended"
#define MACHINE_NAME "machine"
#define MACHINE_BYTES_MAX 8192U
#define END_WAIT_MS 5000
#define LOCK_MS 1000 /* a probe holds the lock for moments only */

static int save_file(int dir_fd, const char *name, int *ret_fd, cubby_error *err)
{
        int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making '%s'", name);
        *ret_fd = fd;
        return 0;
}

/* The check of it: a digest of the state, and the machine that it goes on with. */
static int describe(const cubby_box *box, int state_fd, struct buffer *ret, cubby_error *err)
{
        AUTO_FREE char *machine = NULL;
        char digest[TEMPLATE_KEY_SIZE];
        if (saved_machine(box->cubby, &box->config, &machine, err) < 0 ||
                digest_file(state_fd, digest, err) < 0)
                return -1;
        if (!buffer_printf(ret, "%s\n%s\n", digest, machine))
                return cubby_error_no_memory(err);
        return 0;
}

/* Everything to the disk. */
static int fill_folder(
        const cubby_box *box, const struct box_copy *copy, int dir_fd, cubby_error *err)
{
        AUTO_FD int memory = -1;
        AUTO_FD int state = -1;
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, MACHINE_BYTES_MAX);
        if (save_file(dir_fd, template_file_name(TEMPLATE_MEMORY), &memory, err) < 0 ||
                save_file(dir_fd, template_file_name(TEMPLATE_STATE), &state, err) < 0 ||
                memory_save(copy->memory_fd, memory, err) < 0 ||
                file_copy_sparse(copy->state_fd, state, err) < 0 ||
                describe(box, state, &text, err) < 0)
                return -1;
        if (fsync(memory) < 0 || fsync(state) < 0)
                return cubby_error_errno(err, errno, "syncing the suspended machine");
        return file_publish_at(dir_fd, MACHINE_NAME, text.data, text.size, 0600, err);
}

static int write_end(const cubby_box *box, cubby_error *err)
{
        struct box_started started = {0};
        (void)box_read_started(box, &started);
        struct box_exit end = {.reason = "suspended",
                .exit_code = -1,
                .started_ns = started.started_ns,
                .finished_ns = clock_realtime_ns()};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, 1U << 16);
        if (box_exit_encode(&end, &json, err) < 0)
                return -1;
        return file_publish_at(box->dir_fd, BOX_EXIT_NAME, json.data, json.size, 0600, err);
}

/* Between its end and now the box may have been started again: what was saved is of no
 * use then. With the lock nobody starts it. */
static int publish(const cubby_box *box, int outer_fd, cubby_error *err)
{
        AUTO_FD int lock = -1;
        struct box_exit end;
        if (box_lock(box, deadline_after_ms(LOCK_MS), &lock, err) < 0 ||
                box_read_end(box, &end, err) < 0)
                return -1;
        if (strcmp(end.reason, "suspended") != 0)
                return cubby_error_set(err, CUBBY_E_STATE, "it was started again meanwhile");
        if (renameat(outer_fd, INNER, box->dir_fd, SUSPENDED_NAME) < 0)
                return cubby_error_errno(err, errno, "keeping the suspended machine");
        return fsync(box->dir_fd) < 0 ? cubby_error_errno(err, errno, "syncing the box") : 0;
}

static int put_away(cubby_box *box, int outer_fd, int inner_fd, cubby_error *err)
{
        struct box_copy copy = BOX_COPY_NONE;
        int result = box_copy_take(box, -1, true, &copy, err);
        if (result == 0)
                result = fill_folder(box, &copy, inner_fd, err);
        if (result == 0)
                result = write_end(box, err); /* what needs room comes before the end */
        bool written = result == 0;
        if (result == 0)
                result = box_copy_end(&copy, err);
        bool ended = written && result == 0;
        if (ended)
                result = box_wait_end(box, deadline_after_ms(END_WAIT_MS), err);
        box_copy_close(&copy);
        if (written && !ended)
                (void)unlinkat(box->dir_fd, BOX_EXIT_NAME, 0);
        return result < 0 ? -1 : publish(box, outer_fd, err);
}

int box_suspend(cubby_box *box, cubby_error *err)
{
        cubby *host = box->cubby;
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(host->home, temporary, &dir, &lock, err) < 0)
                return -1;
        AUTO_FD int inner = mkdirat(dir, INNER, 0700) < 0
                ? -1
                : openat(dir, INNER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int result = inner < 0 ? cubby_error_errno(err, errno, "making a folder")
                               : put_away(box, dir, inner, err);
        (void)dir_remove_at(home_folder(host->home, HOME_TMP), temporary, NULL);
        return result < 0 ? cubby_error_wrap(err, "suspending box '%s'", box->config.name) : 0;
}

bool box_is_suspended(const cubby_box *box)
{
        struct stat info;
        return fstatat(box->dir_fd, SUSPENDED_NAME, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISDIR(info.st_mode);
}

static int check_machine(const cubby_box *box, int dir_fd, int state_fd, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        AUTO_BUFFER struct buffer wanted;
        buffer_init(&text, MACHINE_BYTES_MAX);
        buffer_init(&wanted, MACHINE_BYTES_MAX);
        if (file_read_at(dir_fd, MACHINE_NAME, &text, err) < 0 ||
                describe(box, state_fd, &wanted, err) < 0)
                return -1;
        if (wanted.size != text.size || memcmp(wanted.data, text.data, text.size) != 0)
                return cubby_error_set(err, CUBBY_E_VERSION,
                        "it was suspended by another VMM or on another machine, or is damaged; "
                        "'cubby start' boots it with its files");
        return 0;
}

static int open_file(int dir_fd, enum template_file file)
{
        return openat(dir_fd, template_file_name(file), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static int take_out(cubby_box *box, int outer_fd, cubby_error *err)
{
        AUTO_FD int dir = openat(
                box->dir_fd, SUSPENDED_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        AUTO_FD int file = dir < 0 ? -1 : open_file(dir, TEMPLATE_MEMORY);
        AUTO_FD int state = dir < 0 ? -1 : open_file(dir, TEMPLATE_STATE);
        AUTO_FD int memory = -1;
        if (file < 0 || state < 0)
                return cubby_error_errno(err, errno, "opening the suspended machine");
        if (check_machine(box, dir, state, err) < 0 ||
                memory_load(file, box->config.memory_bytes, &memory, err) < 0)
                return -1;
        if (renameat(box->dir_fd, SUSPENDED_NAME, outer_fd, INNER) < 0)
                return cubby_error_errno(err, errno, "taking the suspended machine out");
        /* once the machine runs, the disk moves on without what was saved */
        bool ran = false;
        if (unlinkat(box->dir_fd, BOX_EXIT_NAME, 0) < 0 && errno != ENOENT)
                (void)cubby_error_errno(err, errno, "removing the record of the last run");
        else if (box_start_copy(box, SHIM_RESUME, memory, state, "resumed", &ran, err) == 0)
                return 0;
        if (!ran && renameat(outer_fd, INNER, box->dir_fd, SUSPENDED_NAME) == 0)
                (void)write_end(box, NULL);
        return -1;
}

int box_resume(cubby_box *box, cubby_error *err)
{
        enum box_life life = BOX_ENDED;
        if (box_life(box, &life, err) < 0)
                return -1;
        if (life == BOX_ALIVE)
                return box_pause(box, false, err);
        if (!box_is_suspended(box))
                return cubby_error_set(err, CUBBY_E_STATE,
                        "box '%s' is neither suspended nor paused", box->config.name);
        cubby *host = box->cubby;
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(host->home, temporary, &dir, &lock, err) < 0)
                return -1;
        int result = take_out(box, dir, err);
        (void)dir_remove_at(home_folder(host->home, HOME_TMP), temporary, NULL);
        return result < 0 ? cubby_error_wrap(err, "resuming box '%s'", box->config.name) : 0;
}
