/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CAPTURE_H
#define CLI_CAPTURE_H

/* Collected output for --format json: the beginning of each stream, bounded. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPTURE_BYTES_MAX (8U << 20)

struct capture_stream {
        char *bytes;
        size_t size, room;
        uint64_t total;
};

struct capture {
        struct capture_stream streams[2]; /* stdout, stderr */
};

/* False when memory ran out. */
bool capture_add(struct capture *capture, int stream, const void *bytes, size_t size);
void capture_clear(struct capture *capture);
/* Adds "stdout" and "stderr" (or "stdout_base64" where the bytes are no text),
 * and "truncated". False when memory ran out. */
bool capture_to_json(const struct capture *capture, json_t *object);

#endif
