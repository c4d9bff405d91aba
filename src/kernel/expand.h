/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_EXPAND_H
#define KERNEL_EXPAND_H

/* Decompression with a ceiling. The format is recognised from the bytes: gzip,
 * bzip2, xz, lzma, zstd and lz4 (its legacy form, too). */

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

/* Bytes [offset, offset + size) of `fd`; output beyond `maximum` is CUBBY_E_LIMIT, CUBBY_E_TIMEOUT
 * after the deadline. */
int expand_range(int fd, uint64_t offset, uint64_t size, int out_fd, uint64_t maximum,
        int64_t deadline_ms, uint64_t *ret_written, cubby_error *err);
/* Appends to `out`, whose maximum is the ceiling. */
int expand_memory(const void *data, size_t size, struct buffer *out, cubby_error *err);

#endif
