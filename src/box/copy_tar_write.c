/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copy_tar.h"

#include "base/cleanup.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK (256U * 1024U)
#define FILE_MAX (UINT64_C(1) << 44) /* its zeros are gone through, also those of holes */
#define NAME_MAX_LENGTH (TREE_PATH_MAX + TREE_NAME_MAX + 2U)

struct writing {
        struct tree_reader *reader;
        struct archive *archive;
        struct archive_entry *entry;
        int fd;
        bool given_up;
        const struct copy_look *look;
        struct tree_count *count;
        cubby_error failure; /* of a callback */
        const char *name;
        char *path;
        uint64_t at;  /* of the present file's content */
        char *shrank; /* the first file that did */
        uint8_t *zeros;
};

static int archive_failure(struct writing *writing, const char *what, cubby_error *err)
{
        if (writing->failure.code != CUBBY_OK) {
                if (err != NULL)
                        *err = writing->failure;
                return -1;
        }
        int problem = archive_errno(writing->archive);
        if (problem == ENOMEM)
                return cubby_error_no_memory(err);
        const char *text = archive_error_string(writing->archive);
        return cubby_error_set(
                err, CUBBY_E_IMAGE, "%s: %s", what, text == NULL ? "unknown error" : text);
}

static la_ssize_t write_callback(
        struct archive *archive, void *data, const void *bytes, size_t size)
{
        struct writing *writing = data;
        if (writing->given_up) { /* nothing more goes out */
                errno = ECANCELED;
                return -1;
        }
        if (copy_fd_write(writing->fd, bytes, size, writing->look, &writing->failure) < 0) {
                archive_set_error(archive, EIO, "%s", writing->failure.message);
                return -1;
        }
        return (la_ssize_t)size;
}

static const char *name_of(struct writing *writing, const char *path)
{
        const char *name = writing->name[0] == '\0' ? "." : writing->name;
        (void)snprintf(
                writing->path, NAME_MAX_LENGTH, "%s%s%s", name, path[0] == '\0' ? "" : "/", path);
        return writing->path;
}

static mode_t type_of(uint8_t type)
{
        switch (type) {
        case TREE_FOLDER:
                return AE_IFDIR;
        case TREE_LINK:
                return AE_IFLNK;
        case TREE_FIFO:
                return AE_IFIFO;
        case TREE_BLOCK:
                return AE_IFBLK;
        case TREE_CHAR:
                return AE_IFCHR;
        default:
                return AE_IFREG;
        }
}

static int64_t floor_seconds(int64_t ns)
{
        return ns / 1000000000 - (ns % 1000000000 < 0);
}

static void describe(struct writing *writing, const struct tree_entry *from)
{
        struct archive_entry *entry = archive_entry_clear(writing->entry);
        struct slice list = from->xattrs;
        struct slice name;
        struct slice value;
        uint64_t offset = 0;
        uint64_t size = 0;
        int64_t seconds = floor_seconds(from->mtime_ns);
        archive_entry_set_pathname(entry, name_of(writing, from->path));
        archive_entry_set_uid(entry, from->uid);
        archive_entry_set_gid(entry, from->gid);
        archive_entry_set_mtime(entry, seconds, (long)(from->mtime_ns - seconds * 1000000000));
        archive_entry_set_mode(entry, type_of(from->type) | (mode_t)from->mode);
        archive_entry_set_size(entry, (la_int64_t)from->size);
        if (from->type == TREE_LINK)
                archive_entry_set_symlink(entry, from->target);
        if (from->type == TREE_SAME)
                archive_entry_set_hardlink(entry, name_of(writing, from->target));
        if (from->type == TREE_BLOCK || from->type == TREE_CHAR) {
                archive_entry_set_rdevmajor(entry, from->device_major);
                archive_entry_set_rdevminor(entry, from->device_minor);
        }
        while (tree_next_xattr(&list, &name, &value)) {
                char text[TREE_NAME_MAX + 1];
                memcpy(text, name.data, name.size);
                text[name.size] = '\0';
                archive_entry_xattr_add_entry(entry, text, value.data, value.size);
        }
        list = from->extents;
        while (tree_next_extent(&list, &offset, &size))
                archive_entry_sparse_add_entry(entry, (la_int64_t)offset, (la_int64_t)size);
        if (from->sparse && from->extents.size == 0 && from->size > 0)
                archive_entry_sparse_add_entry(entry, (la_int64_t)from->size, 0);
}

static int write_bytes(struct writing *writing, const uint8_t *bytes, size_t size, cubby_error *err)
{
        while (size > 0) {
                la_ssize_t put = archive_write_data(writing->archive, bytes, size);
                if (put <= 0)
                        return archive_failure(writing, "writing the archive", err);
                bytes += put;
                size -= (size_t)put;
                writing->at += (uint64_t)put;
        }
        return 0;
}

/* The writer leaves out what was announced as a hole. */
static int write_zeros_until(struct writing *writing, uint64_t offset, cubby_error *err)
{
        while (writing->at < offset) {
                uint64_t left = offset - writing->at;
                if (writing->look->look(writing->look->data, err) < 0 ||
                        write_bytes(writing, writing->zeros, left < BLOCK ? (size_t)left : BLOCK,
                                err) < 0)
                        return -1;
        }
        return 0;
}

static int write_rest(struct writing *writing, uint64_t size, cubby_error *err)
{
        const struct tree_entry *entry = &writing->reader->entry;
        if (size < entry->size && writing->shrank == NULL)
                writing->shrank = strdup(entry->path);
        return write_zeros_until(writing, entry->size, err);
}

static int write_record(struct writing *writing, const struct tree_record *record, cubby_error *err)
{
        const struct tree_entry *entry = record->entry;
        switch (record->kind) {
        case TREE_ENTRY:
                if (entry->size > FILE_MAX)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "'%s' is larger than a file of an archive may be (16 TiB)",
                                name_of(writing, entry->path));
                writing->count->files++;
                writing->at = 0;
                describe(writing, entry);
                /* a warning is about a name that is no UTF-8: it is stored as it is */
                if (archive_write_header(writing->archive, writing->entry) < ARCHIVE_WARN)
                        return archive_failure(writing, "writing the archive", err);
                return 0;
        case TREE_DATA:
                writing->count->bytes += record->bytes.size;
                if (write_zeros_until(writing, record->offset, err) < 0)
                        return -1;
                return write_bytes(writing, record->bytes.data, record->bytes.size, err);
        case TREE_CLOSE:
                return write_rest(writing, record->size, err);
        case TREE_END:
                return 0;
        }
        return 0;
}

static int write_all(struct writing *writing, const struct tree_record *first, cubby_error *err)
{
        struct tree_reader *reader = writing->reader;
        struct archive *archive = writing->archive;
        if (archive_write_set_format_pax(archive) != ARCHIVE_OK ||
                archive_write_set_bytes_per_block(archive, BLOCK) != ARCHIVE_OK ||
                archive_write_set_bytes_in_last_block(archive, 1) != ARCHIVE_OK ||
                archive_write_open(archive, writing, NULL, write_callback, NULL) != ARCHIVE_OK)
                return archive_failure(writing, "writing an archive", err);
        struct tree_record record = *first;
        while (record.kind != TREE_END)
                if (write_record(writing, &record, err) < 0 || tree_next(reader, &record, err) < 0)
                        return -1;
        if (archive_write_close(archive) != ARCHIVE_OK)
                return archive_failure(writing, "writing the archive", err);
        if (writing->shrank != NULL)
                return cubby_error_set(err, CUBBY_E_BUSY,
                        "'%s' shrank while it was read; zeros stand for the rest of it",
                        name_of(writing, writing->shrank));
        return 0;
}

int copy_tar_write(struct tree_reader *reader, const struct tree_record *first, const char *name,
        int fd, const struct copy_look *look, struct tree_count *count, cubby_error *err)
{
        AUTO_FREE char *path = malloc(NAME_MAX_LENGTH);
        AUTO_FREE uint8_t *zeros = calloc(1, BLOCK);
        AUTO_LOCALE struct copy_locale locale = {0};
        struct writing writing = {.reader = reader,
                .archive = archive_write_new(),
                .entry = archive_entry_new(),
                .fd = fd,
                .look = look,
                .count = count,
                .name = name,
                .path = path,
                .zeros = zeros};
        int result = -1;
        if (path == NULL || zeros == NULL || writing.archive == NULL || writing.entry == NULL)
                (void)cubby_error_no_memory(err);
        else if (copy_locale_enter(&locale, err) == 0)
                result = write_all(&writing, first, err);
        writing.given_up = result < 0;
        (void)archive_write_free(writing.archive);
        archive_entry_free(writing.entry);
        free(writing.shrank);
        return result;
}
