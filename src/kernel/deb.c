/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/archive.h"
#include "kernel/deb.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/bzimage.h"
#include "kernel/modules.h"

#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (256U * 1024)
#define IMAGE_SIZE_MAX (128U * 1024 * 1024)
#define ENTRIES_MAX 200000U
#define UNPACKED_MAX (4ULL * 1024 * 1024 * 1024)

struct unpack {
        int image_fd;
        int modules_fd;
        struct buffer *builtin;
        bool have_image;
        int64_t deadline_ms;
};

static int archive_failure(struct archive *archive, cubby_error *err)
{
        const char *text = archive_error_string(archive);
        return cubby_error_set(err, CUBBY_E_KERNEL, "the package is damaged: %s",
                text == NULL ? "unknown reason" : text);
}

/* Feeds the inner reader from the member of the outer one. */
struct member {
        struct archive *outer;
        uint8_t *piece;
};

static la_ssize_t read_member(struct archive *archive, void *data, const void **ret)
{
        struct member *member = data;
        la_ssize_t got = archive_read_data(member->outer, member->piece, PIECE);
        if (got < 0) {
                const char *text = archive_error_string(member->outer);
                archive_set_error(archive, EIO, "%s", text == NULL ? "reading" : text);
                return ARCHIVE_FATAL;
        }
        *ret = member->piece;
        return got;
}

static int save_entry(struct archive *tar, struct buffer *out, const char *name, cubby_error *err)
{
        for (;;) {
                uint8_t piece[16384];
                la_ssize_t got = archive_read_data(tar, piece, sizeof piece);
                if (got < 0)
                        return archive_failure(tar, err);
                if (got == 0)
                        return 0;
                if (!buffer_append(out, piece, (size_t)got))
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "'%s' in the package has more than %zu bytes", name, out->maximum);
        }
}

static int save_image(struct archive *tar, int fd, cubby_error *err)
{
        uint64_t total = 0;
        for (;;) {
                uint8_t piece[16384];
                la_ssize_t got = archive_read_data(tar, piece, sizeof piece);
                if (got < 0)
                        return archive_failure(tar, err);
                if (got == 0)
                        return 0;
                total += (uint64_t)got;
                if (total > IMAGE_SIZE_MAX)
                        return cubby_error_set(
                                err, CUBBY_E_LIMIT, "the boot image has more than 128 MiB");
                if (write_whole(fd, piece, (size_t)got) < 0)
                        return cubby_error_errno(err, errno, "writing the boot image");
        }
}

static const char *without_prefix(const char *path)
{
        if (strncmp(path, "./", 2) == 0)
                path += 2;
        if (strncmp(path, "usr/", 4) == 0)
                path += 4;
        return path;
}

static int take_entry(
        struct unpack *unpack, struct archive *tar, struct archive_entry *entry, cubby_error *err)
{
        const char *path = archive_entry_pathname(entry);
        if (path == NULL || archive_entry_filetype(entry) != AE_IFREG ||
                archive_entry_hardlink(entry) != NULL)
                return 0;
        path = without_prefix(path);
        if (strncmp(path, "boot/vmlinuz-", 13) == 0 && !unpack->have_image) {
                unpack->have_image = true;
                return save_image(tar, unpack->image_fd, err);
        }
        if (strncmp(path, "lib/modules/", 12) != 0)
                return 0;
        const char *slash = strrchr(path, '/');
        if (strcmp(slash, "/modules.builtin") == 0 && unpack->builtin->size == 0)
                return save_entry(tar, unpack->builtin, path, err);
        bool compressed;
        const struct module *module = module_of_path(path, &compressed);
        if (module == NULL)
                return 0;
        AUTO_BUFFER struct buffer content;
        buffer_init(&content, MODULE_SIZE_MAX);
        if (save_entry(tar, &content, path, err) < 0)
                return -1;
        return module_store(
                unpack->modules_fd, module, compressed, content.data, content.size, err);
}

static int read_tar(struct unpack *unpack, struct member *member, cubby_error *err)
{
        AUTO_ARCHIVE struct archive *tar = archive_read_new();
        if (tar == NULL)
                return cubby_error_no_memory(err);
        if (archive_read_support_format_tar(tar) != ARCHIVE_OK ||
                archive_read_support_filter_gzip(tar) != ARCHIVE_OK ||
                archive_read_support_filter_xz(tar) != ARCHIVE_OK ||
                archive_read_support_filter_zstd(tar) != ARCHIVE_OK ||
                archive_read_open(tar, member, NULL, read_member, NULL) != ARCHIVE_OK)
                return archive_failure(tar, err);
        for (unsigned count = 0;; count++) {
                struct archive_entry *entry;
                int result = archive_read_next_header(tar, &entry);
                if (result == ARCHIVE_EOF)
                        return 0;
                if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
                        return archive_failure(tar, err);
                if (count >= ENTRIES_MAX || archive_filter_bytes(tar, 0) > (la_int64_t)UNPACKED_MAX)
                        return cubby_error_set(
                                err, CUBBY_E_LIMIT, "the package unpacks to too much");
                if (deadline_left_ms(unpack->deadline_ms) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "unpacking the package takes too long");
                if (take_entry(unpack, tar, entry, err) < 0)
                        return -1;
        }
}

int deb_read(int deb_fd, int image_fd, int modules_fd, struct buffer *builtin, int64_t deadline_ms,
        cubby_error *err)
{
        AUTO_FREE uint8_t *piece = malloc(PIECE);
        AUTO_ARCHIVE struct archive *ar = archive_read_new();
        if (piece == NULL || ar == NULL)
                return cubby_error_no_memory(err);
        if (lseek(deb_fd, 0, SEEK_SET) < 0)
                return cubby_error_errno(err, errno, "reading the package");
        if (archive_read_support_format_ar(ar) != ARCHIVE_OK ||
                archive_read_open_fd(ar, deb_fd, PIECE) != ARCHIVE_OK)
                return archive_failure(ar, err);
        struct unpack unpack = {.image_fd = image_fd,
                .modules_fd = modules_fd,
                .builtin = builtin,
                .deadline_ms = deadline_ms};
        for (;;) {
                struct archive_entry *entry;
                int result = archive_read_next_header(ar, &entry);
                if (result == ARCHIVE_EOF)
                        return cubby_error_set(
                                err, CUBBY_E_KERNEL, "the package has no data.tar member");
                if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
                        return archive_failure(ar, err);
                const char *name = archive_entry_pathname(entry);
                if (name != NULL && strncmp(name, "data.tar", 8) == 0)
                        break;
        }
        struct member member = {.outer = ar, .piece = piece};
        if (read_tar(&unpack, &member, err) < 0)
                return -1;
        if (!unpack.have_image)
                return cubby_error_set(
                        err, CUBBY_E_KERNEL, "the package has no boot image (boot/vmlinuz-*)");
        return 0;
}
