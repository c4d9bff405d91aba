/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROBE_PAUSE_MS 10
#define STARTED_BYTES_MAX 4096U
#define EXIT_BYTES_MAX (64U << 10)

static int open_lock(const cubby_box *box, cubby_error *err)
{
        int fd = openat(box->dir_fd, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "box %.12s was removed", box->id);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the lock of box %.12s", box->id);
        return fd;
}

/* A shim that is just taking the lock over has this record only. */
static bool shim_lives(int lock_fd)
{
        struct flock record = BOX_ALIVE_RECORD;
        return fcntl(lock_fd, F_OFD_GETLK, &record) == 0 && record.l_type != F_UNLCK;
}

int box_lock(const cubby_box *box, int64_t deadline_ms, int *ret_fd, cubby_error *err)
{
        AUTO_FD int fd = open_lock(box, err);
        if (fd < 0)
                return -1;
        for (;;) {
                bool got = flock(fd, LOCK_EX | LOCK_NB) == 0;
                if (got && !shim_lives(fd))
                        break;
                if (!got && errno != EWOULDBLOCK && errno != EINTR)
                        return cubby_error_errno(err, errno, "locking box %.12s", box->id);
                if (got)
                        (void)flock(fd, LOCK_UN);
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_STATE, "box %.12s is already running", box->id);
                (void)poll(NULL, 0, PROBE_PAUSE_MS);
        }
        *ret_fd = take_fd(&fd);
        return 0;
}

static bool exists(const cubby_box *box, const char *name)
{
        struct stat info;
        return fstatat(box->dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

int box_life(const cubby_box *box, enum box_life *ret, cubby_error *err)
{
        AUTO_FD int fd = open_lock(box, err);
        if (fd < 0)
                return -1;
        if (flock(fd, LOCK_SH | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK)
                        return cubby_error_errno(err, errno, "probing box %.12s", box->id);
                *ret = BOX_ALIVE;
                return 0;
        }
        if (shim_lives(fd)) {
                *ret = BOX_ALIVE;
                return 0;
        }
        *ret = exists(box, BOX_EXIT_NAME) || exists(box, BOX_STARTED_NAME) ? BOX_ENDED
                                                                           : BOX_NEVER_STARTED;
        return 0;
}

/* Over an old file by an exchange: a plain rename has file systems write the new bytes
 * out before it returns, which nobody here asks for. */
static int put_in_place(int dir_fd, const char *temporary, const char *name)
{
        if (renameat2(dir_fd, temporary, dir_fd, name, RENAME_NOREPLACE) == 0)
                return 0;
        if (errno == EEXIST && renameat2(dir_fd, temporary, dir_fd, name, RENAME_EXCHANGE) == 0) {
                if (unlinkat(dir_fd, temporary, 0) == 0)
                        return 0;
                /* a folder stood there: it gets its place back */
                int saved = errno;
                (void)renameat2(dir_fd, temporary, dir_fd, name, RENAME_EXCHANGE);
                errno = saved;
                return -1;
        }
        return renameat(dir_fd, temporary, dir_fd, name);
}

int box_write_quickly(int dir_fd, const char *name, const void *data, size_t size, cubby_error *err)
{
        char temporary[64];
        uint64_t number = 0;
        /* the folder is the box's: nobody in it can guess the name and have something there */
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                return cubby_error_errno(err, errno, "choosing a name for '%s'", name);
        (void)snprintf(temporary, sizeof temporary, ".%.32s.%016" PRIx64, name, number);
        AUTO_FD int fd = openat(
                dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return cubby_error_errno(err, errno, "writing '%s'", name);
        if (write_whole(fd, data, size) < 0 || put_in_place(dir_fd, temporary, name) < 0) {
                int saved = errno;
                (void)unlinkat(dir_fd, temporary, 0);
                return cubby_error_errno(err, saved, "writing '%s'", name);
        }
        return 0;
}

int box_write_started(
        const cubby_box *box, const struct box_started *started, bool durable, cubby_error *err)
{
        json_t *root = json_pack("{s:I, s:s, s:s}", "started_ns", (json_int_t)started->started_ns,
                "isolation", started->isolation, "served", started->served);
        AUTO_FREE char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
        json_decref(root);
        if (text == NULL)
                return cubby_error_no_memory(err);
        return durable
                ? file_publish_at(box->dir_fd, BOX_STARTED_NAME, text, strlen(text), 0600, err)
                : box_write_quickly(box->dir_fd, BOX_STARTED_NAME, text, strlen(text), err);
}

static bool is_word(const char *text, size_t size)
{
        return strlen(text) < size && text[strspn(text, "abcdefghijklmnopqrstuvwxyz")] == '\0';
}

bool box_read_started(const cubby_box *box, struct box_started *ret)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, STARTED_BYTES_MAX);
        if (file_read_at(box->dir_fd, BOX_STARTED_NAME, &text, NULL) < 0)
                return false;
        json_t *root = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
        json_int_t started_ns = 0;
        const char *isolation = NULL;
        const char *served = NULL;
        struct box_started started = {0};
        bool good = root != NULL &&
                json_unpack(root, "{s:I, s:s, s:s !}", "started_ns", &started_ns, "isolation",
                        &isolation, "served", &served) == 0 &&
                started_ns >= 0 && is_word(isolation, sizeof started.isolation) &&
                is_word(served, sizeof started.served);
        if (good) {
                started.started_ns = started_ns;
                (void)snprintf(started.isolation, sizeof started.isolation, "%s", isolation);
                (void)snprintf(started.served, sizeof started.served, "%s", served);
                *ret = started;
        }
        json_decref(root);
        return good;
}

int box_read_end(const cubby_box *box, struct box_exit *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, EXIT_BYTES_MAX);
        cubby_error problem = {0};
        if (file_read_at(box->dir_fd, BOX_EXIT_NAME, &json, &problem) == 0)
                return box_exit_decode(json.data, json.size, ret, err);
        if (problem.code != CUBBY_E_NOT_FOUND) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        /* Who removes a box removes its record first, then its files. */
        struct box_record record = {0};
        if (box_record_find(box->cubby->home, box->id, &record, err) < 0)
                return -1;
        box_record_clear(&record);
        struct box_started started = {0};
        (void)box_read_started(box, &started);
        struct box_exit died = {.exit_code = -1, .started_ns = started.started_ns};
        (void)snprintf(died.reason, sizeof died.reason, "shim-died");
        (void)snprintf(died.detail, sizeof died.detail,
                "the process that owned the box ended without a word");
        *ret = died;
        return 0;
}

int box_exit_code(const struct box_exit *exit)
{
        if (exit->signal > 0)
                return 128 + exit->signal;
        if (exit->exit_code >= 0)
                return exit->exit_code;
        bool orderly =
                strcmp(exit->reason, "stopped") == 0 || strcmp(exit->reason, "guest-shutdown") == 0;
        return orderly ? 0 : 137;
}

int box_wait_end(const cubby_box *box, int64_t deadline_ms, cubby_error *err)
{
        for (;;) {
                enum box_life life;
                cubby_error problem = {0};
                if (box_life(box, &life, &problem) < 0) {
                        if (problem.code == CUBBY_E_NOT_FOUND)
                                return 0; /* ended and removed */
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                if (life != BOX_ALIVE)
                        return 0;
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "box %.12s did not end in time", box->id);
                (void)poll(NULL, 0, PROBE_PAUSE_MS);
        }
}

void box_reap(cubby_box *box)
{
        enum box_life life;
        if (box->config.auto_remove && box_life(box, &life, NULL) == 0 && life == BOX_ENDED)
                (void)box_remove(box, false, NULL);
}
