/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_LOG_RECORD_H
#define BOX_LOG_RECORD_H

/*
 * A record of a box's kept log, as the shim writes it and readers of the file find
 * it: time_ns u64, stream u8 (1 or 2), size u32, bytes; little-endian.
 */

#include "base/buffer.h"

#include <stdbool.h>

#define LOG_RECORD_HEADER 13U
#define LOG_RECORD_MAX (32U * 1024U) /* bytes behind the header */

struct log_record {
        int64_t time_ns;
        uint8_t stream;
        uint32_t size;
};

static inline void log_record_encode(
        const struct log_record *record, uint8_t ret[LOG_RECORD_HEADER])
{
        store_u64(ret, (uint64_t)record->time_ns);
        ret[8] = record->stream;
        store_u32(ret + 9, record->size);
}

/* False when no record begins so. */
static inline bool log_record_decode(
        const uint8_t header[LOG_RECORD_HEADER], struct log_record *ret)
{
        struct log_record record = {.time_ns = (int64_t)load_u64(header),
                .stream = header[8],
                .size = load_u32(header + 9)};
        if (record.time_ns < 0 || (record.stream != 1 && record.stream != 2) || record.size == 0 ||
                record.size > LOG_RECORD_MAX)
                return false;
        *ret = record;
        return true;
}

#endif
