/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/log_record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLLOW_LOOK_MS 500 /* whether the box still lives */

/*
 * The shim appends records to `log` and renames it to `log.1` when it is full. A reader keeps its
 * open file: a segment that is renamed away is read to its end, then the new one is opened.
 */
struct segment {
        int fd;
        off_t at;
        ino_t inode;
};

struct record {
        struct log_record header;
        uint8_t bytes[LOG_RECORD_MAX];
};

static inline void cleanup_segment(struct segment *segment)
{
        close_quietly(segment->fd);
}
#define AUTO_SEGMENT __attribute__((cleanup(cleanup_segment)))

/* 0, also with fd -1 when there is no such file. */
static int open_segment(
        const cubby_box *box, const char *name, struct segment *ret, cubby_error *err)
{
        AUTO_FD int fd = openat(box->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat info = {0};
        if (fd < 0 && errno == ENOENT) {
                *ret = (struct segment){.fd = -1};
                return 0;
        }
        if (fd < 0 || fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "opening the box's log");
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's log is no file");
        *ret = (struct segment){.fd = take_fd(&fd), .inode = info.st_ino};
        return 0;
}

/* 1 with a record, 0 at the end or where one is still being written, -1. */
static int next_record(struct segment *segment, struct record *record, cubby_error *err)
{
        uint8_t header[LOG_RECORD_HEADER];
        ssize_t got = pread(segment->fd, header, sizeof header, segment->at);
        if (got < 0)
                return cubby_error_errno(err, errno, "reading the box's log");
        if (got < (ssize_t)sizeof header)
                return 0;
        if (!log_record_decode(header, &record->header))
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's log is damaged");
        got = pread(
                segment->fd, record->bytes, record->header.size, segment->at + LOG_RECORD_HEADER);
        if (got < 0)
                return cubby_error_errno(err, errno, "reading the box's log");
        if (got < (ssize_t)record->header.size)
                return 0;
        segment->at += (off_t)(LOG_RECORD_HEADER + record->header.size);
        return 1;
}

struct reading {
        const cubby_box *box;
        struct segment now;
        struct record record;
        int64_t since_ns;
        uint64_t skip_lines; /* whole lines that are passed over */
        uint64_t lines;      /* counted, when write is NULL */
        bool open_line;      /* the last byte was no end of line */
        cubby_log_fn write;
        void *data;
        bool ended; /* by the caller */
};

static void pass(struct reading *reading)
{
        const struct record *record = &reading->record;
        if (record->header.time_ns < reading->since_ns)
                return;
        size_t from = 0;
        for (size_t i = 0;
                i < record->header.size && (reading->write == NULL || reading->skip_lines > 0);
                i++) {
                if (record->bytes[i] != '\n')
                        continue;
                reading->lines++;
                if (reading->skip_lines > 0) {
                        reading->skip_lines--;
                        from = i + 1;
                }
        }
        reading->open_line = record->bytes[record->header.size - 1] != '\n';
        if (reading->write == NULL || reading->skip_lines > 0 || from >= record->header.size)
                return;
        if (reading->write(reading->data, record->header.stream, record->header.time_ns,
                    record->bytes + from, record->header.size - from) != 0)
                reading->ended = true;
}

static int read_segment(struct reading *reading, struct segment *segment, cubby_error *err)
{
        int more = 0;
        while (!reading->ended && (more = next_record(segment, &reading->record, err)) == 1)
                pass(reading);
        return more < 0 ? -1 : 0;
}

/* Both segments from their beginning; leaves reading->now at its end. */
static int read_kept(struct reading *reading, cubby_error *err)
{
        AUTO_SEGMENT struct segment before = {.fd = -1};
        cleanup_segment(&reading->now);
        reading->now.fd = -1;
        /* the newer first: if it is renamed in between, both names are the same file */
        if (open_segment(reading->box, BOX_LOG_NAME, &reading->now, err) < 0 ||
                open_segment(reading->box, BOX_LOG_OLD_NAME, &before, err) < 0)
                return -1;
        bool same = before.fd >= 0 && reading->now.fd >= 0 && before.inode == reading->now.inode;
        if (before.fd >= 0 && !same && read_segment(reading, &before, err) < 0)
                return -1;
        return reading->now.fd < 0 ? 0 : read_segment(reading, &reading->now, err);
}

/* What came since; goes on to a new segment when there is one. */
static int read_new(struct reading *reading, cubby_error *err)
{
        for (;;) {
                struct segment next = {.fd = -1};
                if (open_segment(reading->box, BOX_LOG_NAME, &next, err) < 0)
                        return -1;
                /* after the look for a successor, this one gets nothing more */
                if (reading->now.fd >= 0 && read_segment(reading, &reading->now, err) < 0) {
                        cleanup_segment(&next);
                        return -1;
                }
                if (next.fd < 0 || reading->ended ||
                        (reading->now.fd >= 0 && next.inode == reading->now.inode)) {
                        cleanup_segment(&next);
                        return 0;
                }
                cleanup_segment(&reading->now);
                reading->now = next;
        }
}

static int follow(struct reading *reading, cubby_error *err)
{
        AUTO_FD int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", reading->box->dir_fd);
        /* without it the look at intervals must do */
        if (watch >= 0)
                (void)inotify_add_watch(watch, path, IN_MODIFY | IN_CREATE | IN_MOVED_TO);
        while (!reading->ended) {
                enum box_life life;
                cubby_error problem = {0};
                bool gone = box_life(reading->box, &life, &problem) < 0;
                if (gone && problem.code != CUBBY_E_NOT_FOUND) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                /* read after the look: what was written before its end is not missed */
                if (gone && reading->now.fd >= 0)
                        return read_segment(reading, &reading->now, err);
                if (gone || read_new(reading, err) < 0)
                        return gone ? 0 : -1;
                /* one that was not started yet may be: its removal ends the wait */
                if (life == BOX_ENDED)
                        return 0;
                struct pollfd poll_fd = {.fd = watch, .events = POLLIN};
                (void)poll(&poll_fd, 1, FOLLOW_LOOK_MS);
                char events[4096];
                while (watch >= 0 && read(watch, events, sizeof events) > 0)
                        ;
        }
        return 0;
}

int box_logs(cubby_box *box, const cubby_log_options *options, cubby_log_fn write, void *data,
        cubby_error *err)
{
        AUTO_FREE struct reading *reading = calloc(1, sizeof *reading);
        if (reading == NULL)
                return cubby_error_no_memory(err);
        reading->box = box;
        reading->now.fd = -1;
        reading->since_ns = options->since_ns;
        int result = 0;
        if (options->tail_lines >= 0) {
                result = read_kept(reading, err);
                uint64_t lines = reading->lines + (reading->open_line ? 1 : 0);
                uint64_t wanted = (uint64_t)options->tail_lines;
                reading->skip_lines = lines > wanted ? lines - wanted : 0;
        }
        reading->write = write;
        reading->data = data;
        bool only_new = options->tail_lines == 0;
        if (result == 0 && !only_new)
                result = read_kept(reading, err);
        reading->skip_lines = 0;
        if (result == 0 && options->follow)
                result = follow(reading, err);
        cleanup_segment(&reading->now);
        if (result < 0)
                return cubby_error_wrap(err, "reading the log of box '%s'", box->config.name);
        return 0;
}
