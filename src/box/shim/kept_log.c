/* SPDX-License-Identifier: Apache-2.0 */
#include "box/shim/kept_log.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "box/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME_NOW BOX_LOG_NAME
#define NAME_BEFORE BOX_LOG_NAME ".1"

/* Reads and checks the header at `at`. Returns the record's size, 0 at the end
 * of the file, -1 when no record begins there. */
static long read_header(int fd, uint64_t at, uint8_t *ret_stream)
{
        uint8_t header[KEPT_RECORD_HEADER];
        ssize_t got = pread(fd, header, sizeof header, (off_t)at);
        if (got == 0)
                return 0;
        if (got != (ssize_t)sizeof header)
                return -1;
        struct log_record record;
        if (!log_record_decode(header, &record))
                return -1;
        *ret_stream = record.stream;
        return (long)record.size;
}

/* Where the whole records at the front of the file end. */
static uint64_t find_end(int fd, uint64_t file_size)
{
        uint64_t at = 0;
        for (;;) {
                uint8_t stream = 0;
                long size = read_header(fd, at, &stream);
                if (size <= 0)
                        return at;
                uint64_t next = at + KEPT_RECORD_HEADER + (uint64_t)size;
                if (next > file_size)
                        return at;
                at = next;
        }
}

static int open_segment(int dir_fd, int flags)
{
        return openat(dir_fd, NAME_NOW,
                O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
}

int kept_log_open(struct kept_log *log, int dir_fd, cubby_error *err)
{
        AUTO_FD int fd = open_segment(dir_fd, 0);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the box's log");
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "checking the box's log");
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's log is not a file");
        uint64_t end = find_end(fd, (uint64_t)info.st_size);
        if (end != (uint64_t)info.st_size && ftruncate(fd, (off_t)end) < 0)
                return cubby_error_errno(err, errno, "mending the box's log");
        *log = (struct kept_log){
                .dir_fd = dir_fd, .fd = take_fd(&fd), .before_fd = -1, .number = 1, .size = end};
        return 0;
}

void kept_log_close(struct kept_log *log)
{
        close_quietly(take_fd(&log->fd));
        close_quietly(take_fd(&log->before_fd));
}

static int rotate(struct kept_log *log)
{
        if (renameat(log->dir_fd, NAME_NOW, log->dir_fd, NAME_BEFORE) < 0)
                return -1;
        int fd = open_segment(log->dir_fd, O_EXCL);
        if (fd < 0) {
                int saved = errno; /* back, so that it can be tried again */
                (void)renameat(log->dir_fd, NAME_BEFORE, log->dir_fd, NAME_NOW);
                errno = saved;
                return -1;
        }
        close_quietly(log->before_fd);
        log->before_fd = log->fd;
        log->fd = fd;
        log->size = 0;
        log->number++;
        return 0;
}

int kept_log_append(struct kept_log *log, uint8_t stream, const void *data, size_t size)
{
        size_t whole = size + KEPT_RECORD_HEADER;
        if (log->size + whole > KEPT_SEGMENT_MAX && log->size > 0 && rotate(log) < 0)
                return -1;
        uint8_t header[KEPT_RECORD_HEADER];
        const struct log_record record = {
                .time_ns = clock_realtime_ns(), .stream = stream, .size = (uint32_t)size};
        log_record_encode(&record, header);
        struct iovec parts[2] = {{.iov_base = header, .iov_len = sizeof header},
                {.iov_base = (void *)(uintptr_t)data, .iov_len = size}};
        ssize_t written;
        do
                written = pwritev(log->fd, parts, 2, (off_t)log->size);
        while (written < 0 && errno == EINTR);
        if (written == (ssize_t)whole) {
                log->size += whole;
                return 0;
        }
        int saved = written < 0 ? errno : ENOSPC;
        if (ftruncate(log->fd, (off_t)log->size) < 0)
                log->size = find_end(log->fd, KEPT_SEGMENT_MAX); /* over what is torn */
        errno = saved;
        return -1;
}

struct kept_place kept_log_end(const struct kept_log *log)
{
        return (struct kept_place){.fd = -1, .number = log->number, .at = log->size};
}

int kept_place_open(const struct kept_log *log, struct kept_place from, struct kept_place *ret,
        cubby_error *err)
{
        if (from.number + 1 < log->number)
                from = (struct kept_place){.fd = -1, .number = log->number - 1, .at = 0};
        from.fd = fcntl(from.number == log->number ? log->fd : log->before_fd, F_DUPFD_CLOEXEC, 3);
        if (from.fd < 0)
                return cubby_error_errno(err, errno, "reading the box's log");
        *ret = from;
        return 0;
}

void kept_place_close(struct kept_place *place)
{
        close_quietly(take_fd(&place->fd));
}

/* At the end of a segment that is no longer the present one: on to the next. */
static long next_segment(const struct kept_log *log, struct kept_place *place)
{
        struct kept_place next = {.number = place->number + 1, .at = 0};
        if (kept_place_open(log, next, &next, NULL) < 0)
                return -1;
        kept_place_close(place);
        *place = next;
        return 0;
}

long kept_place_next(const struct kept_log *log, struct kept_place *place, uint8_t *ret_stream,
        uint8_t *ret_data)
{
        for (;;) {
                if (place->number == log->number && place->at >= log->size)
                        return 0;
                long size = read_header(place->fd, place->at, ret_stream);
                if (size < 0)
                        return -1;
                if (size == 0) {
                        if (place->number == log->number || next_segment(log, place) < 0)
                                return -1;
                        continue;
                }
                ssize_t got = pread(
                        place->fd, ret_data, (size_t)size, (off_t)(place->at + KEPT_RECORD_HEADER));
                if (got != (ssize_t)size)
                        return -1;
                place->at += KEPT_RECORD_HEADER + (uint64_t)size;
                return size;
        }
}

uint64_t kept_place_behind(const struct kept_log *log, const struct kept_place *place)
{
        if (place->number == log->number)
                return log->size > place->at ? log->size - place->at : 0;
        struct stat info;
        if (fstat(place->fd, &info) < 0 || (uint64_t)info.st_size < place->at)
                return log->size;
        return (uint64_t)info.st_size - place->at + log->size;
}
