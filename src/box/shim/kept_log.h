/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_SHIM_KEPT_LOG_H
#define BOX_SHIM_KEPT_LOG_H

/*
 * The kept output of a box's command: records in `log`, before it `log.1`, each
 * at most 8 MiB. Readers keep a place of their own and see every record, also
 * one that is rotated away while they read.
 */

#include "base/error.h"
#include "box/log_record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEPT_SEGMENT_MAX (8U << 20)
#define KEPT_RECORD_HEADER LOG_RECORD_HEADER
#define KEPT_RECORD_MAX LOG_RECORD_MAX

struct kept_log {
        int dir_fd; /* the caller's */
        int fd;
        int before_fd;   /* the segment before, of this run; -1: none */
        uint64_t number; /* of the present segment, counted from 1 in this run */
        uint64_t size;
};

/* Opens or makes `log`; a torn last record of an earlier run is cut off. */
int kept_log_open(struct kept_log *log, int dir_fd, cubby_error *err);
void kept_log_close(struct kept_log *log);
/* At most KEPT_RECORD_MAX bytes. Returns 0, or -1 with errno: nothing was written. */
int kept_log_append(struct kept_log *log, uint8_t stream, const void *data, size_t size);

struct kept_place {
        int fd;
        uint64_t number;
        uint64_t at;
};
#define KEPT_PLACE_NONE ((struct kept_place){.fd = -1})

/* The place behind the last record. */
struct kept_place kept_log_end(const struct kept_log *log);
/* Opens a place for reading: at `from`, or at the oldest record still kept. Places
 * read by descriptor only, so they stay good when the names belong to the next run. */
int kept_place_open(const struct kept_log *log, struct kept_place from, struct kept_place *ret,
        cubby_error *err);
void kept_place_close(struct kept_place *place);
/* The next record. Returns its size, 0 when there is none, -1 when it is damaged. */
long kept_place_next(const struct kept_log *log, struct kept_place *place, uint8_t *ret_stream,
        uint8_t *ret_data);
/* Bytes between the place and the end. */
uint64_t kept_place_behind(const struct kept_log *log, const struct kept_place *place);

#endif
