/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copy_tar.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK (256U * 1024U)
#define DRAIN_MAX (1024U * 1024U)
#define DRAIN_MS 500
#define ID_MAX 0xFFFFFFFELL /* (uid_t)-1 means "no change" to the kernel */
#define DEVICE_MAX 0xFFFFFLL

struct reading {
        struct archive *archive;
        int fd;
        const struct copy_look *look;
        struct tree_count *count;
        const struct tree_output *output;
        cubby_error failure; /* of the callback */
        struct buffer scratch;
        struct buffer xattrs;
        uint8_t *block;
        bool ended; /* the descriptor */
        char path[TREE_PATH_MAX + 1];
        char target[TREE_PATH_MAX + 1];
};

static int archive_failure(struct reading *reading, cubby_error *err)
{
        if (reading->failure.code != CUBBY_OK) {
                if (err != NULL)
                        *err = reading->failure;
                return -1;
        }
        if (archive_errno(reading->archive) == ENOMEM)
                return cubby_error_no_memory(err);
        const char *text = archive_error_string(reading->archive);
        return cubby_error_set(err, CUBBY_E_IMAGE, "not a valid tar archive: %s",
                text == NULL ? "unknown error" : text);
}

static la_ssize_t read_callback(struct archive *archive, void *data, const void **ret)
{
        struct reading *reading = data;
        ssize_t got =
                copy_fd_read(reading->fd, reading->block, BLOCK, reading->look, &reading->failure);
        if (got < 0) {
                archive_set_error(archive, EIO, "%s", reading->failure.message);
                return -1;
        }
        reading->ended = got == 0;
        *ret = reading->block;
        return got;
}

/* Without "." and slashes that say nothing. Absolute names are taken as relative. */
static int clean(const char *name, char *ret, cubby_error *err)
{
        size_t used = 0;
        for (const char *next = name; *next != '\0';) {
                size_t part = strcspn(next, "/");
                if (part == 2 && next[0] == '.' && next[1] == '.') {
                        (void)cubby_error_set(err, CUBBY_E_INVALID,
                                "the archive's entry '%s' leads out of the folder", name);
                        if (err != NULL)
                                err->sys_errno = EINVAL;
                        return -1;
                }
                if (part > 0 && !(part == 1 && next[0] == '.')) {
                        if (part > TREE_NAME_MAX || used + part + 1 > TREE_PATH_MAX)
                                return cubby_error_errno(
                                        err, ENAMETOOLONG, "the archive's entry '%.200s'", name);
                        if (used > 0)
                                ret[used++] = '/';
                        memcpy(ret + used, next, part);
                        used += part;
                }
                next += part + (next[part] == '/');
        }
        ret[used] = '\0';
        return 0;
}

static int64_t time_of(struct archive_entry *entry)
{
        int64_t seconds = archive_entry_mtime(entry);
        long nanoseconds = archive_entry_mtime_nsec(entry);
        const int64_t most = INT64_MAX / 1000000000 - 1;
        if (nanoseconds < 0 || nanoseconds > 999999999)
                nanoseconds = 0;
        if (seconds > most || seconds < -most)
                return 0;
        /* libarchive gives "-1.25" as -1 and 0.25 */
        return seconds * 1000000000 + (seconds < 0 ? -nanoseconds : nanoseconds);
}

/* What would not be set in the end is left out, and so is what is too much. */
static void read_xattrs(struct reading *reading, struct archive_entry *from)
{
        const char *name = NULL;
        const void *value = NULL;
        size_t size = 0;
        buffer_clear(&reading->xattrs);
        (void)archive_entry_xattr_reset(from);
        while (archive_entry_xattr_next(from, &name, &value, &size) == ARCHIVE_OK) {
                bool wanted = name != NULL && strlen(name) <= TREE_NAME_MAX &&
                        ((strncmp(name, "user.", 5) == 0 && name[5] != '\0') ||
                                strcmp(name, "security.capability") == 0);
                if (!wanted || reading->xattrs.size + strlen(name) + size + 8 > TREE_XATTR_MAX)
                        continue;
                (void)buffer_slice(&reading->xattrs, name, strlen(name));
                (void)buffer_slice(&reading->xattrs, value, size);
        }
}

static uint8_t type_of(struct archive_entry *from)
{
        if (archive_entry_hardlink(from) != NULL)
                return TREE_SAME;
        switch (archive_entry_filetype(from)) {
        case AE_IFREG:
                return TREE_REGULAR;
        case AE_IFDIR:
                return TREE_FOLDER;
        case AE_IFLNK:
                return TREE_LINK;
        case AE_IFIFO:
                return TREE_FIFO;
        case AE_IFBLK:
                return TREE_BLOCK;
        case AE_IFCHR:
                return TREE_CHAR;
        default:
                return 0;
        }
}

static int bad(const struct reading *reading, const char *what, cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_IMAGE, "the archive's entry '%s' %s", reading->path, what);
}

static int describe(struct reading *reading, struct archive_entry *from, struct tree_entry *ret,
        cubby_error *err)
{
        la_int64_t uid = archive_entry_uid(from);
        la_int64_t gid = archive_entry_gid(from);
        la_int64_t size = archive_entry_size(from);
        struct tree_entry entry = {.type = type_of(from),
                .mode = (uint32_t)archive_entry_perm(from) & 07777,
                .mtime_ns = time_of(from),
                .path = reading->path,
                .target = reading->target};
        reading->target[0] = '\0';
        if (uid < 0 || uid > ID_MAX || gid < 0 || gid > ID_MAX)
                return bad(reading, "has an owner out of range", err);
        entry.uid = (uint32_t)uid;
        entry.gid = (uint32_t)gid;
        if (entry.type == TREE_SAME) {
                if (clean(archive_entry_hardlink(from), reading->target, err) < 0)
                        return -1;
                if (reading->target[0] == '\0')
                        return bad(reading, "is another name of nothing", err);
        } else if (entry.type == TREE_LINK) {
                const char *target = archive_entry_symlink(from);
                if (target == NULL || target[0] == '\0' || strlen(target) > TREE_PATH_MAX)
                        return bad(reading, "is a link to nothing, or too long a one", err);
                (void)stpcpy(reading->target, target);
        } else if (entry.type == TREE_REGULAR) {
                if (!archive_entry_size_is_set(from) || size < 0 || (uint64_t)size > TREE_SIZE_MAX)
                        return bad(reading, "has no size, or an impossible one", err);
                entry.size = (uint64_t)size;
        } else if (entry.type == TREE_BLOCK || entry.type == TREE_CHAR) {
                if ((la_int64_t)archive_entry_rdevmajor(from) > DEVICE_MAX ||
                        (la_int64_t)archive_entry_rdevminor(from) > DEVICE_MAX)
                        return bad(reading, "is no device that there is", err);
                entry.device_major = (uint32_t)archive_entry_rdevmajor(from);
                entry.device_minor = (uint32_t)archive_entry_rdevminor(from);
        } else if (entry.type == 0) {
                return bad(reading, "is of an unknown type", err);
        }
        read_xattrs(reading, from);
        entry.xattrs = (struct slice){reading->xattrs.data, reading->xattrs.size};
        *ret = entry;
        return 0;
}

static int put_piece(struct reading *reading, const uint8_t *bytes, size_t size, uint64_t offset,
        cubby_error *err)
{
        while (size > 0) {
                size_t some = size < TREE_DATA_MAX ? size : TREE_DATA_MAX;
                if (tree_put_data(reading->output, offset, bytes, some, err) < 0)
                        return -1;
                bytes += some;
                offset += some;
                size -= some;
                reading->count->bytes += some;
        }
        return 0;
}

static int put_content(struct reading *reading, const struct tree_entry *entry, cubby_error *err)
{
        const void *data = NULL;
        size_t size = 0;
        la_int64_t offset = 0;
        uint64_t end = 0;
        int result;
        while ((result = archive_read_data_block(reading->archive, &data, &size, &offset)) ==
                ARCHIVE_OK) {
                if (offset < 0 || (uint64_t)offset < end || (uint64_t)offset > entry->size ||
                        size > entry->size - (uint64_t)offset)
                        return bad(reading, "has more content than its size says", err);
                if (put_piece(reading, data, size, (uint64_t)offset, err) < 0)
                        return -1;
                end = (uint64_t)offset + size;
        }
        if (result != ARCHIVE_EOF)
                return archive_failure(reading, err);
        return tree_put_close(reading->output, entry->size, err);
}

static int put_entry(struct reading *reading, struct archive_entry *from, cubby_error *err)
{
        struct tree_entry entry;
        const char *name = archive_entry_pathname(from);
        if (name == NULL)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the archive has an entry without a name");
        if (clean(name, reading->path, err) < 0 || describe(reading, from, &entry, err) < 0)
                return -1;
        if (reading->path[0] == '\0')
                return entry.type == TREE_FOLDER ? 0 : bad(reading, "has no name", err);
        reading->count->files++;
        if (tree_put_entry(reading->output, &entry, &reading->scratch, err) < 0)
                return -1;
        return entry.type == TREE_REGULAR ? put_content(reading, &entry, err) : 0;
}

/* No filter that would start a program. */
static bool configure(struct archive *archive)
{
        int (*const filters[])(struct archive *) = {archive_read_support_filter_gzip,
                archive_read_support_filter_bzip2, archive_read_support_filter_xz,
                archive_read_support_filter_zstd, archive_read_support_filter_lz4,
                archive_read_support_filter_compress};
        for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
                if (filters[i](archive) != ARCHIVE_OK)
                        return false;
        return archive_read_support_format_tar(archive) == ARCHIVE_OK &&
                archive_read_support_format_empty(archive) == ARCHIVE_OK;
}

static int read_all(struct reading *reading, cubby_error *err)
{
        if (!configure(reading->archive) ||
                archive_read_open(reading->archive, reading, NULL, read_callback, NULL) !=
                        ARCHIVE_OK)
                return archive_failure(reading, err);
        for (;;) {
                struct archive_entry *entry = NULL;
                int result = archive_read_next_header(reading->archive, &entry);
                if (result == ARCHIVE_EOF)
                        break;
                /* Not UTF-8 is no failure: the name then comes as it is. */
                bool odd_text = result == ARCHIVE_WARN && archive_errno(reading->archive) == EILSEQ;
                if (result != ARCHIVE_OK && !odd_text)
                        return archive_failure(reading, err);
                if (put_entry(reading, entry, err) < 0)
                        return -1;
        }
        return tree_put_end(reading->output, err);
}

static int look_until(void *data, cubby_error *err)
{
        const int64_t *deadline_ms = data;
        if (deadline_left_ms(*deadline_ms) != 0)
                return 0;
        return cubby_error_set(err, CUBBY_E_TIMEOUT, "the descriptor does not end");
}

/* What a writer pads its archive with is taken too, lest it ends by a signal. */
static void drain(struct reading *reading)
{
        int64_t deadline_ms = deadline_after_ms(DRAIN_MS);
        const struct copy_look look = {.look = look_until, .data = &deadline_ms};
        size_t drained = 0;
        while (!reading->ended && drained < DRAIN_MAX) {
                ssize_t got = copy_fd_read(reading->fd, reading->block, BLOCK, &look, NULL);
                if (got <= 0)
                        return;
                drained += (size_t)got;
        }
}

int copy_tar_read(int fd, const struct tree_output *output, const struct copy_look *look,
        struct tree_count *count, cubby_error *err)
{
        AUTO_LOCALE struct copy_locale locale = {0};
        AUTO_FREE struct reading *reading = calloc(1, sizeof *reading);
        AUTO_FREE uint8_t *block = malloc(BLOCK);
        struct archive *archive = archive_read_new();
        int result = -1;
        if (reading == NULL || block == NULL || archive == NULL) {
                (void)cubby_error_no_memory(err);
        } else if (copy_locale_enter(&locale, err) == 0) {
                reading->archive = archive;
                reading->fd = fd;
                reading->look = look;
                reading->count = count;
                reading->output = output;
                reading->block = block;
                buffer_init(&reading->scratch, TREE_ENTRY_MAX);
                buffer_init(&reading->xattrs, TREE_XATTR_MAX);
                result = read_all(reading, err);
                if (result == 0)
                        drain(reading);
                buffer_free(&reading->scratch);
                buffer_free(&reading->xattrs);
        }
        (void)archive_read_free(archive);
        return result;
}
