/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_STREAM_H
#define IMAGE_STREAM_H

/*
 * Bytes as they are stored, and the stream that unpacks them (none, gzip, zstd)
 * while both sides are hashed. A stream that is finished has seen every byte.
 */

#include "base/cleanup.h"
#include "base/error.h"
#include "image/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DIGEST_BYTES 72 /* "sha256:" and 64 digits, NUL */
#define DIGEST_PREFIX "sha256:"

/* A part of a file. `size` BLOB_TO_END: read to the end from where the descriptor is. */
#define BLOB_TO_END UINT64_MAX
struct blob {
        int fd; /* owned */
        uint64_t offset;
        uint64_t size;
};
#define BLOB_NONE ((struct blob){.fd = -1})

static inline void cleanup_blob(struct blob *blob)
{
        close_quietly(blob->fd);
}
#define AUTO_BLOB __attribute__((cleanup(cleanup_blob)))

/* "sha256:HEX" of a byte string. */
int digest_of(const void *data, size_t size, char ret[DIGEST_BYTES], cubby_error *err);
/* True for exactly "sha256:" and 64 lower case hex digits. */
bool digest_valid(const char *digest);

/* The error of a reader of libarchive; `what` begins the sentence. Returns -1. */
struct archive;
int archive_failed(struct archive *archive, const char *what, cubby_error *err);

struct stream;

/* The blob must outlive the stream. `usage` spans all streams of an image. */
int stream_open(const struct blob *blob, const struct image_limits *limits,
        struct image_usage *usage, struct stream **ret, cubby_error *err);
/* The next unpacked bytes, valid until the next call; 0 at the end, -1 on failure. */
ssize_t stream_read(struct stream *stream, const void **ret, cubby_error *err);
/* Packed bytes read so far. */
uint64_t stream_packed_bytes(const struct stream *stream);
/*
 * Reads what is left and gives the digests of the packed and the unpacked bytes.
 * Bytes behind the end of the compressed data are CUBBY_E_IMAGE.
 */
int stream_finish(struct stream *stream, char ret_packed[DIGEST_BYTES],
        char ret_unpacked[DIGEST_BYTES], cubby_error *err);
/* True when the last unpacked bytes were a zero block, as at the end of every tar. */
bool stream_ended_with_zeros(const struct stream *stream);
void stream_free(struct stream *stream);
DEFINE_AUTO(stream, stream_free)

#endif
