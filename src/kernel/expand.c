/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/archive.h"
#include "kernel/expand.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <archive_entry.h>
#include <errno.h>
#include <unistd.h>

#define PIECE (256U * 1024)

struct range {
        int fd;
        uint64_t offset;
        uint64_t left;
        uint8_t *piece;
};

static la_ssize_t read_range(struct archive *archive, void *data, const void **ret)
{
        struct range *range = data;
        size_t want = range->left < PIECE ? (size_t)range->left : PIECE;
        ssize_t got = pread(range->fd, range->piece, want, (off_t)range->offset);
        if (got < 0) {
                archive_set_error(archive, errno, "reading");
                return ARCHIVE_FATAL;
        }
        range->offset += (uint64_t)got;
        range->left -= (uint64_t)got;
        *ret = range->piece;
        return got;
}

/* Filters that a kernel's build can choose; each is the library's own code, none
 * starts a program. */
static struct archive *new_reader(void)
{
        struct archive *archive = archive_read_new();
        if (archive == NULL)
                return NULL;
        if (archive_read_support_format_raw(archive) != ARCHIVE_OK ||
                archive_read_support_filter_gzip(archive) != ARCHIVE_OK ||
                archive_read_support_filter_bzip2(archive) != ARCHIVE_OK ||
                archive_read_support_filter_xz(archive) != ARCHIVE_OK ||
                archive_read_support_filter_lzma(archive) != ARCHIVE_OK ||
                archive_read_support_filter_zstd(archive) != ARCHIVE_OK ||
                archive_read_support_filter_lz4(archive) != ARCHIVE_OK) {
                (void)archive_read_free(archive);
                return NULL;
        }
        return archive;
}

static int archive_failure(struct archive *archive, cubby_error *err)
{
        const char *text = archive_error_string(archive);
        return cubby_error_set(err, CUBBY_E_KERNEL, "the compressed data is damaged: %s",
                text == NULL ? "unknown reason" : text);
}

/* The one member; refuses data that no filter recognised. */
static int open_member(struct archive *archive, cubby_error *err)
{
        struct archive_entry *entry;
        if (archive_read_next_header(archive, &entry) != ARCHIVE_OK)
                return archive_failure(archive, err);
        if (archive_filter_code(archive, 0) == ARCHIVE_FILTER_NONE)
                return cubby_error_set(
                        err, CUBBY_E_KERNEL, "the data is not compressed in a known way");
        return 0;
}

int expand_range(int fd, uint64_t offset, uint64_t size, int out_fd, uint64_t maximum,
        int64_t deadline_ms, uint64_t *ret_written, cubby_error *err)
{
        AUTO_FREE uint8_t *piece = malloc(PIECE);
        AUTO_FREE uint8_t *output = malloc(PIECE);
        AUTO_ARCHIVE struct archive *archive = new_reader();
        if (piece == NULL || output == NULL || archive == NULL)
                return cubby_error_no_memory(err);
        struct range range = {.fd = fd, .offset = offset, .left = size, .piece = piece};
        if (archive_read_open(archive, &range, NULL, read_range, NULL) != ARCHIVE_OK)
                return archive_failure(archive, err);
        if (open_member(archive, err) < 0)
                return -1;
        uint64_t written = 0;
        for (;;) {
                la_ssize_t got = archive_read_data(archive, output, PIECE);
                if (got < 0)
                        return archive_failure(archive, err);
                if (got == 0)
                        break;
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT, "unpacking takes too long");
                if ((uint64_t)got > maximum - written)
                        return cubby_error_set(err, CUBBY_E_LIMIT, "it has more than %llu bytes",
                                (unsigned long long)maximum);
                if (write_whole(out_fd, output, (size_t)got) < 0)
                        return cubby_error_errno(err, errno, "writing");
                written += (uint64_t)got;
        }
        *ret_written = written;
        return 0;
}

int expand_memory(const void *data, size_t size, struct buffer *out, cubby_error *err)
{
        AUTO_ARCHIVE struct archive *archive = new_reader();
        if (archive == NULL)
                return cubby_error_no_memory(err);
        if (archive_read_open_memory(archive, data, size) != ARCHIVE_OK)
                return archive_failure(archive, err);
        if (open_member(archive, err) < 0)
                return -1;
        for (;;) {
                uint8_t piece[16384];
                la_ssize_t got = archive_read_data(archive, piece, sizeof piece);
                if (got < 0)
                        return archive_failure(archive, err);
                if (got == 0)
                        return 0;
                if (!buffer_append(out, piece, (size_t)got))
                        return cubby_error_set(
                                err, CUBBY_E_LIMIT, "it has more than %zu bytes", out->maximum);
        }
}
