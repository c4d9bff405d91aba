/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_LINES_H
#define FILES_LINES_H

/*
 * Some lines of a text, as Python's
 *     "\n".join(data.decode("utf-8", "replace").splitlines()[first - 1:last])
 * gives them, piece by piece and in memory that does not grow with the text.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct lines {
        uint64_t first, last; /* from 1, inclusive */
        uint64_t line;        /* the one we are in */
        bool begun;           /* it has come into being: by a character, or by its end */
        bool any;             /* a line has been put out */
        bool after_return;    /* a newline now belongs to the carriage return before it */
        uint8_t part[4];      /* the begin of a character */
        uint8_t part_size, part_need, low, high; /* low, high: what may follow */
};

/* 0: from the first line; to the last. */
void lines_init(struct lines *lines, uint64_t first, uint64_t last);
/* Appends to `out` what comes of these bytes: at most four for each of them. False when
 * `out` is full. */
bool lines_feed(struct lines *lines, const uint8_t *data, size_t size, struct buffer *out);
/* The text has ended. */
bool lines_end(struct lines *lines, struct buffer *out);
/* True when nothing more can come out. */
bool lines_done(const struct lines *lines);

#endif
