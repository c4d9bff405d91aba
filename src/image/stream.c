/* SPDX-License-Identifier: Apache-2.0 */
#include "image/stream.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/hex.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (256U << 10)
#define ZERO_TAIL 512U /* one tar block */

struct stream {
        const struct blob *blob;
        const struct image_limits *limits;
        struct image_usage *usage;
        struct archive *archive;
        EVP_MD_CTX *packed_hash;
        EVP_MD_CTX *unpacked_hash; /* NULL: the bytes are not compressed, one hash does */
        uint64_t packed;
        uint64_t packed_nonzero; /* bytes up to the last one that is not zero */
        uint64_t unpacked;
        uint64_t zero_tail;
        bool ended;
        bool empty;          /* no byte at all, which the raw reader would not accept */
        cubby_error failure; /* of the read callback, which cannot return it */
        uint8_t buffer[READ_BYTES];
};

/* ---- digests ---- */

static void prefixed_digest(const unsigned char *raw, unsigned int size, char ret[DIGEST_BYTES])
{
        memcpy(ret, DIGEST_PREFIX, sizeof DIGEST_PREFIX);
        hex_encode(raw, size < 32 ? size : 32, ret + strlen(DIGEST_PREFIX));
}

static int hash_failed(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_SYSTEM, "SHA-256 is not available in libcrypto");
}

static int hash_start(EVP_MD_CTX **ret, cubby_error *err)
{
        EVP_MD_CTX *hash = EVP_MD_CTX_new();
        if (hash == NULL)
                return cubby_error_no_memory(err);
        if (EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1) {
                EVP_MD_CTX_free(hash);
                return hash_failed(err);
        }
        *ret = hash;
        return 0;
}

static int hash_end(EVP_MD_CTX *hash, char ret[DIGEST_BYTES], cubby_error *err)
{
        unsigned char raw[EVP_MAX_MD_SIZE];
        unsigned int size = 0;
        if (EVP_DigestFinal_ex(hash, raw, &size) != 1)
                return hash_failed(err);
        prefixed_digest(raw, size, ret);
        return 0;
}

int digest_of(const void *data, size_t size, char ret[DIGEST_BYTES], cubby_error *err)
{
        unsigned char raw[EVP_MAX_MD_SIZE];
        unsigned int raw_size = 0;
        if (EVP_Digest(data, size, raw, &raw_size, EVP_sha256(), NULL) != 1)
                return hash_failed(err);
        prefixed_digest(raw, raw_size, ret);
        return 0;
}

bool digest_valid(const char *digest)
{
        size_t prefix = strlen(DIGEST_PREFIX);
        return strncmp(digest, DIGEST_PREFIX, prefix) == 0 && strlen(digest) == prefix + 64 &&
                strspn(digest + prefix, "0123456789abcdef") == 64;
}

/* ---- packed bytes ---- */

/* A pipe may never give anything. 0 when it has something, -1 with stream->failure. */
static int wait_packed(struct stream *stream)
{
        struct pollfd source = {.fd = stream->blob->fd, .events = POLLIN};
        for (;;) {
                int left = deadline_left_ms(stream->limits->deadline_ms);
                if (left == 0)
                        return cubby_error_set(&stream->failure, CUBBY_E_TIMEOUT,
                                "the image was not read in time");
                if (stream->blob->size != BLOB_TO_END)
                        return 0;
                int ready = poll(&source, 1, left);
                if (ready > 0)
                        return 0;
                if (ready < 0 && errno != EINTR)
                        return cubby_error_errno(&stream->failure, errno, "waiting for the image");
        }
}

/* Returns bytes, 0 at the end, -1 with stream->failure. */
static ssize_t read_packed(struct stream *stream)
{
        const struct blob *blob = stream->blob;
        bool to_end = blob->size == BLOB_TO_END;
        uint64_t left = to_end ? READ_BYTES : blob->size - stream->packed;
        size_t want = left < READ_BYTES ? (size_t)left : READ_BYTES;
        if (want == 0)
                return 0;
        if (wait_packed(stream) < 0)
                return -1;
        ssize_t got;
        do {
                got = to_end ? read(blob->fd, stream->buffer, want)
                             : pread(blob->fd, stream->buffer, want,
                                       (off_t)(blob->offset + stream->packed));
        } while (got < 0 && errno == EINTR);
        if (got < 0)
                return cubby_error_errno(&stream->failure, errno, "reading the image");
        if (got == 0 && !to_end)
                return cubby_error_set(&stream->failure, CUBBY_E_IMAGE,
                        "the file ends %llu bytes early", (unsigned long long)left);
        size_t nonzero = (size_t)got;
        while (nonzero > 0 && stream->buffer[nonzero - 1] == 0)
                nonzero--;
        if (nonzero > 0)
                stream->packed_nonzero = stream->packed + nonzero;
        stream->packed += (uint64_t)got;
        if (EVP_DigestUpdate(stream->packed_hash, stream->buffer, (size_t)got) != 1)
                return hash_failed(&stream->failure);
        return got;
}

static la_ssize_t read_callback(struct archive *archive, void *data, const void **ret)
{
        struct stream *stream = data;
        *ret = stream->buffer;
        ssize_t got = read_packed(stream);
        if (got < 0)
                archive_set_error(archive, EIO, "%s", stream->failure.message);
        return got;
}

/* The libraries' own ceilings are ceilings of ours; tests/unit/test_image_layer.c holds
 * them to these figures. */
int archive_failed(struct archive *archive, const char *what, cubby_error *err)
{
        static const struct {
                const char *part; /* of the library's words */
                const char *text;
        } ceilings[] = {
                {"header too large",
                        "an entry has more than 1 MiB of tar headers (LIMIT_HEADER_BYTES)"},
                {"too much memory",
                        "the compression looks back more than 128 MiB (LIMIT_WINDOW_BYTES)"},
        };
        const char *text = archive_error_string(archive);
        if (archive_errno(archive) == ENOMEM)
                return cubby_error_no_memory(err);
        for (size_t i = 0; text != NULL && i < sizeof ceilings / sizeof ceilings[0]; i++)
                if (strstr(text, ceilings[i].part) != NULL)
                        return cubby_error_set(err, CUBBY_E_LIMIT, "%s", ceilings[i].text);
        return cubby_error_set(
                err, CUBBY_E_IMAGE, "%s: %s", what, text == NULL ? "unknown failure" : text);
}

static int archive_failure(struct stream *stream, cubby_error *err)
{
        if (stream->failure.code != CUBBY_OK) {
                if (err != NULL)
                        *err = stream->failure;
                return -1;
        }
        return archive_failed(stream->archive, "cannot be unpacked", err);
}

static int open_archive(struct stream *stream, cubby_error *err)
{
        struct archive_entry *entry = NULL;
        stream->archive = archive_read_new();
        if (stream->archive == NULL)
                return cubby_error_no_memory(err);
        /* A filter that needs an outside program reports ARCHIVE_WARN; ours are built in. */
        if (archive_read_support_filter_gzip(stream->archive) != ARCHIVE_OK ||
                archive_read_support_filter_zstd(stream->archive) != ARCHIVE_OK)
                return cubby_error_set(
                        err, CUBBY_E_UNSUPPORTED, "libarchive was built without gzip or zstd");
        if (archive_read_support_format_raw(stream->archive) != ARCHIVE_OK ||
                archive_read_support_format_empty(stream->archive) != ARCHIVE_OK ||
                archive_read_open(stream->archive, stream, NULL, read_callback, NULL) != ARCHIVE_OK)
                return archive_failure(stream, err);
        int result = archive_read_next_header(stream->archive, &entry);
        if (result == ARCHIVE_EOF)
                stream->empty = true;
        else if (result != ARCHIVE_OK)
                return archive_failure(stream, err);
        /* The last filter is the reader itself; one more is the compression. */
        int filters = archive_filter_count(stream->archive);
        if (filters > 2)
                return cubby_error_set(err, CUBBY_E_IMAGE, "compressed more than once");
        return filters == 2 ? hash_start(&stream->unpacked_hash, err) : 0;
}

int stream_open(const struct blob *blob, const struct image_limits *limits,
        struct image_usage *usage, struct stream **ret, cubby_error *err)
{
        AUTO(stream) struct stream *stream = calloc(1, sizeof *stream);
        if (stream == NULL)
                return cubby_error_no_memory(err);
        stream->blob = blob;
        stream->limits = limits;
        stream->usage = usage;
        if (hash_start(&stream->packed_hash, err) < 0 || open_archive(stream, err) < 0)
                return -1;
        *ret = take_ptr(&stream);
        return 0;
}

/* ---- unpacked bytes ---- */

static int check_limits(const struct stream *stream, cubby_error *err)
{
        const struct image_limits *limits = stream->limits;
        if (stream->usage->stream_bytes > limits->layer_bytes)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "unpacks to more than %llu bytes (LIMIT_LAYER_BYTES)",
                        (unsigned long long)limits->layer_bytes);
        if (stream->unpacked > limits->expansion_floor &&
                stream->unpacked / limits->expansion > stream->packed)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "unpacks to more than %llu times its size (LIMIT_EXPANSION)",
                        (unsigned long long)limits->expansion);
        return 0;
}

static void note_zero_tail(struct stream *stream, const uint8_t *data, size_t size)
{
        size_t zeros = 0;
        while (zeros < size && zeros < ZERO_TAIL && data[size - 1 - zeros] == 0)
                zeros++;
        stream->zero_tail = zeros == size ? stream->zero_tail + zeros : zeros;
}

ssize_t stream_read(struct stream *stream, const void **ret, cubby_error *err)
{
        size_t size = 0;
        la_int64_t offset = 0;
        const void *data = NULL;
        while (!stream->ended && !stream->empty && size == 0) {
                int result = archive_read_data_block(stream->archive, &data, &size, &offset);
                if (result == ARCHIVE_EOF)
                        stream->ended = true;
                else if (result != ARCHIVE_OK)
                        return archive_failure(stream, err);
        }
        if (stream->ended || stream->empty)
                return 0;
        stream->unpacked += size;
        stream->usage->stream_bytes += size;
        if (check_limits(stream, err) < 0)
                return -1;
        note_zero_tail(stream, data, size);
        if (stream->unpacked_hash != NULL &&
                EVP_DigestUpdate(stream->unpacked_hash, data, size) != 1)
                return hash_failed(err);
        *ret = data;
        return (ssize_t)size;
}

uint64_t stream_packed_bytes(const struct stream *stream)
{
        return stream->packed;
}

bool stream_ended_with_zeros(const struct stream *stream)
{
        return stream->zero_tail >= ZERO_TAIL;
}

int stream_finish(struct stream *stream, char ret_packed[DIGEST_BYTES],
        char ret_unpacked[DIGEST_BYTES], cubby_error *err)
{
        char packed[DIGEST_BYTES];
        char unpacked[DIGEST_BYTES];
        const void *data = NULL;
        ssize_t got;
        while ((got = stream_read(stream, &data, err)) > 0)
                continue;
        if (got < 0)
                return -1;
        /* What the unpacker held back or never asked for: it stops at the end of its data.
         * Some archivers pad that to whole records, with zeros. */
        uint64_t consumed = (uint64_t)archive_filter_bytes(stream->archive, -1);
        while ((got = read_packed(stream)) > 0)
                continue;
        if (got < 0)
                return archive_failure(stream, err);
        if (stream->packed_nonzero > consumed)
                return cubby_error_set(err, CUBBY_E_IMAGE, "has bytes behind its compressed end");
        if (hash_end(stream->packed_hash, packed, err) < 0)
                return -1;
        if (stream->unpacked_hash == NULL)
                memcpy(unpacked, packed, sizeof unpacked);
        else if (hash_end(stream->unpacked_hash, unpacked, err) < 0)
                return -1;
        memcpy(ret_packed, packed, sizeof packed);
        memcpy(ret_unpacked, unpacked, sizeof unpacked);
        return 0;
}

void stream_free(struct stream *stream)
{
        if (stream == NULL)
                return;
        if (stream->archive != NULL)
                (void)archive_read_free(stream->archive);
        EVP_MD_CTX_free(stream->packed_hash);
        EVP_MD_CTX_free(stream->unpacked_hash);
        free(stream);
}
