/* SPDX-License-Identifier: Apache-2.0 */
#include "image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <string.h>

#define WHITEOUT ".wh."
#define WHITEOUT_META ".wh..wh." /* of AUFS; only the opaque mark has a meaning in OCI */
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define ID_MAX 0xFFFFFFFELL /* (uid_t)-1 means "no change" to the kernel */
#define XATTR_VALUE_MAX 65535U
#define XATTR_NAME_BYTES 255U

struct reading {
        const struct layer *layer;
        const struct image_limits *limits;
        struct image_usage *usage;
        struct tree *tree;
        struct disk *disk;
        struct stream *stream;
        struct archive *archive;
        uint64_t unpacked;
        uint64_t entries;
        cubby_error failure; /* of the read callback */
        char *path;          /* clean paths; each limits->path_bytes + 1 */
        char *other;
};

/* ---- attributes ---- */

/*
 * Labels of a security module that the guest does not run, names that the disk
 * cannot hold, and what overlayfs would obey if it found it in its lower layer.
 */
static bool xattr_wanted(const char *name)
{
        if (strcmp(name, "system.posix_acl_access") == 0 ||
                strcmp(name, "system.posix_acl_default") == 0)
                return true;
        if (strcmp(name, "security.selinux") == 0 ||
                strncmp(name, "trusted.overlay.", strlen("trusted.overlay.")) == 0)
                return false;
        static const char *const kept[] = {"user.", "trusted.", "security."};
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
                size_t length = strlen(kept[i]);
                if (strncmp(name, kept[i], length) == 0)
                        return name[length] != '\0';
        }
        return false;
}

/* Counts the attributes to keep and the bytes that their list takes. */
static int measure_xattrs(const struct reading *reading, struct archive_entry *entry,
        size_t *ret_count, size_t *ret_bytes, cubby_error *err)
{
        const char *name = NULL;
        const void *value = NULL;
        size_t size = 0;
        size_t total = 0;
        (void)archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
                if (name == NULL || !xattr_wanted(name))
                        continue;
                if (strlen(name) > XATTR_NAME_BYTES)
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "the name of an extended attribute is too long");
                total += strlen(name) + 1 + size;
                if (size > XATTR_VALUE_MAX || total > reading->limits->xattr_bytes)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "extended attributes of more than %u bytes (LIMIT_XATTR_BYTES)",
                                reading->limits->xattr_bytes);
                (*ret_count)++;
        }
        *ret_bytes = sizeof(struct xattr_list) + *ret_count * sizeof(struct xattr) + total;
        return 0;
}

/* By name, and of one name in the order of the memory. */
static int compare_xattrs(const void *a, const void *b)
{
        const struct xattr *left = a;
        const struct xattr *right = b;
        int order = strcmp(left->name, right->name);
        return order != 0 ? order : left->value < right->value ? -1 : left->value > right->value;
}

/* The last value in the archive wins where a name comes twice, as when they are set in
 * turn. libarchive lists them last first, and so they were read. */
static void drop_duplicates(struct xattr_list *list)
{
        size_t kept = 0;
        qsort(list->items, list->count, sizeof list->items[0], compare_xattrs);
        for (size_t i = 0; i < list->count; i++)
                if (kept == 0 || strcmp(list->items[i].name, list->items[kept - 1].name) != 0)
                        list->items[kept++] = list->items[i];
        list->count = kept;
}

static int read_xattrs(const struct reading *reading, struct archive_entry *entry,
        struct xattr_list **ret, cubby_error *err)
{
        size_t count = 0;
        size_t bytes = 0;
        if (archive_entry_xattr_count(entry) == 0)
                return 0;
        if (measure_xattrs(reading, entry, &count, &bytes, err) < 0)
                return -1;
        if (count == 0)
                return 0;
        struct xattr_list *list = malloc(bytes);
        if (list == NULL)
                return cubby_error_no_memory(err);
        list->count = 0;
        char *text = (char *)&list->items[count];
        const char *name = NULL;
        const void *value = NULL;
        size_t size = 0;
        (void)archive_entry_xattr_reset(entry);
        while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
                if (name == NULL || !xattr_wanted(name))
                        continue;
                size_t length = strlen(name) + 1;
                memcpy(text, name, length);
                if (size > 0)
                        memcpy(text + length, value, size);
                list->items[list->count++] =
                        (struct xattr){text, (const uint8_t *)text + length, size};
                text += length + size;
        }
        drop_duplicates(list);
        *ret = list;
        return 0;
}

static int read_owner(struct archive_entry *entry, struct entry_facts *facts, cubby_error *err)
{
        la_int64_t uid = archive_entry_uid(entry);
        la_int64_t gid = archive_entry_gid(entry);
        if (uid < 0 || uid > ID_MAX || gid < 0 || gid > ID_MAX)
                return cubby_error_set(err, CUBBY_E_IMAGE, "the owner %lld:%lld is out of range",
                        (long long)uid, (long long)gid);
        facts->uid = (uint32_t)uid;
        facts->gid = (uint32_t)gid;
        return 0;
}

static void read_mtime(struct archive_entry *entry, struct entry_facts *facts)
{
        int64_t seconds = archive_entry_mtime(entry);
        long nanoseconds = archive_entry_mtime_nsec(entry);
        if (nanoseconds < 0 || nanoseconds > 999999999)
                nanoseconds = 0;
        /* libarchive gives "-1.25" as -1 and 0.25; a time is seconds and a fraction to add. */
        if (seconds < 0 && seconds > INT64_MIN && nanoseconds > 0) {
                seconds--;
                nanoseconds = 1000000000 - nanoseconds;
        }
        facts->mtime_sec = seconds;
        facts->mtime_nsec = (uint32_t)nanoseconds;
}

/* 12 bits of major and 20 of minor number, as the kernel decodes them. */
static int read_device(struct archive_entry *entry, struct entry_facts *facts, cubby_error *err)
{
        uint64_t major = (uint64_t)archive_entry_rdevmajor(entry);
        uint64_t minor = (uint64_t)archive_entry_rdevminor(entry);
        if (major >= 1U << 12 || minor >= 1U << 20)
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "the device number %llu:%llu is out of range", (unsigned long long)major,
                        (unsigned long long)minor);
        facts->device = (uint32_t)((minor & 0xff) | major << 8 | (minor & ~(uint64_t)0xff) << 12);
        return 0;
}

/* ---- entries ---- */

static int archive_failure(struct reading *reading, cubby_error *err)
{
        if (reading->failure.code != CUBBY_OK) {
                if (err != NULL)
                        *err = reading->failure;
                return -1;
        }
        return archive_failed(reading->archive, "not a valid tar archive", err);
}

static int account_file(struct reading *reading, uint64_t size, cubby_error *err)
{
        uint64_t left = reading->limits->layer_bytes - reading->usage->file_bytes;
        if (size > left)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image's files have more than %llu bytes (LIMIT_LAYER_BYTES)",
                        (unsigned long long)reading->limits->layer_bytes);
        reading->usage->file_bytes += size;
        return 0;
}

static int read_content(struct reading *reading, const struct entry_facts *facts, cubby_error *err)
{
        const void *data = NULL;
        size_t size = 0;
        la_int64_t offset = 0;
        int result;
        while ((result = archive_read_data_block(reading->archive, &data, &size, &offset)) ==
                ARCHIVE_OK) {
                if (offset < 0 || (uint64_t)offset > facts->size ||
                        size > facts->size - (uint64_t)offset)
                        return cubby_error_set(
                                err, CUBBY_E_IMAGE, "has more content than its size says");
                if (size > 0 &&
                        disk_write(reading->disk, facts->block, (uint64_t)offset, data, size, err) <
                                0)
                        return -1;
        }
        return result == ARCHIVE_EOF ? 0 : archive_failure(reading, err);
}

static int put_file(struct reading *reading, struct archive_entry *entry, struct entry_facts *facts,
        cubby_error *err)
{
        la_int64_t size = archive_entry_size(entry);
        if (!archive_entry_size_is_set(entry) || size < 0)
                return cubby_error_set(err, CUBBY_E_IMAGE, "has no size");
        facts->size = (uint64_t)size;
        if (account_file(reading, facts->size, err) < 0 ||
                disk_reserve(reading->disk, facts->size, &facts->block, err) < 0 ||
                tree_put(reading->tree, reading->path, facts, err) < 0)
                return -1;
        return read_content(reading, facts, err);
}

static int put_entry(struct reading *reading, struct archive_entry *entry, cubby_error *err)
{
        AUTO_FREE struct xattr_list *xattrs = NULL;
        struct entry_facts facts = {.mode = archive_entry_mode(entry)};
        if (read_owner(entry, &facts, err) < 0 || read_xattrs(reading, entry, &xattrs, err) < 0)
                return -1;
        read_mtime(entry, &facts);
        int result;
        facts.xattrs = xattrs;
        switch (facts.mode & S_IFMT) {
        case S_IFREG:
                result = put_file(reading, entry, &facts, err);
                break;
        case S_IFLNK:
                facts.mode |= 0777; /* as Linux shows every link, whatever the archive says */
                facts.target = archive_entry_symlink(entry);
                if (facts.target == NULL || facts.target[0] == '\0')
                        return cubby_error_set(err, CUBBY_E_IMAGE, "a symbolic link to nothing");
                if (strlen(facts.target) >= reading->limits->path_bytes)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "the link's target is longer than %u bytes (LIMIT_PATH_BYTES)",
                                reading->limits->path_bytes);
                result = tree_put(reading->tree, reading->path, &facts, err);
                break;
        case S_IFCHR:
        case S_IFBLK:
                if (read_device(entry, &facts, err) < 0)
                        return -1;
                result = tree_put(reading->tree, reading->path, &facts, err);
                break;
        case S_IFDIR:
        case S_IFIFO:
        case S_IFSOCK:
                result = tree_put(reading->tree, reading->path, &facts, err);
                break;
        default:
                return cubby_error_set(err, CUBBY_E_IMAGE, "is of an unknown type");
        }
        xattrs = facts.xattrs;
        return result;
}

/* `name` is the last component of reading->path, which is cut to its folder. */
static int apply_whiteout(struct reading *reading, char *name, cubby_error *err)
{
        const char *hidden = name + strlen(WHITEOUT);
        if (hidden[0] == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
                return cubby_error_set(err, CUBBY_E_IMAGE, "a whiteout of no valid name");
        const char *folder = "";
        if (name > reading->path) {
                name[-1] = '\0';
                folder = reading->path;
        }
        if (strcmp(name, WHITEOUT_OPAQUE) == 0)
                return tree_opaque(reading->tree, folder, err);
        if (strncmp(name, WHITEOUT_META, strlen(WHITEOUT_META)) == 0)
                return 0;
        return tree_whiteout(reading->tree, folder, hidden, err);
}

/* A whiteout's name may only be the last component. */
static int check_parents(const char *path, const char *name, cubby_error *err)
{
        for (const char *p = path; p < name; p = strchr(p, '/') + 1)
                if (strncmp(p, WHITEOUT, strlen(WHITEOUT)) == 0)
                        return cubby_error_set(err, CUBBY_E_IMAGE, "an entry inside a whiteout");
        return 0;
}

static int apply_entry(struct reading *reading, struct archive_entry *entry, const char *pathname,
        cubby_error *err)
{
        if (path_clean(reading->limits, pathname, reading->path, err) < 0)
                return -1;
        char *slash = strrchr(reading->path, '/');
        char *name = slash == NULL ? reading->path : slash + 1;
        if (check_parents(reading->path, name, err) < 0)
                return -1;
        if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0)
                return apply_whiteout(reading, name, err);
        const char *target = archive_entry_hardlink(entry);
        if (target == NULL)
                return put_entry(reading, entry, err);
        if (path_clean(reading->limits, target, reading->other, err) < 0)
                return -1;
        return tree_link(reading->tree, reading->path, reading->other, err);
}

static int read_entries(struct reading *reading, cubby_error *err)
{
        for (;;) {
                struct archive_entry *entry = NULL;
                int result = archive_read_next_header(reading->archive, &entry);
                if (result == ARCHIVE_EOF)
                        return 0;
                /* Not UTF-8 is no failure: the name then comes as it is. */
                bool odd_text = result == ARCHIVE_WARN && archive_errno(reading->archive) == EILSEQ;
                if (result != ARCHIVE_OK && !odd_text)
                        return archive_failure(reading, err);
                /* Whiteouts and replaced entries do not grow the tree, but cost time. */
                if (++reading->entries > reading->limits->entries)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "has more than %llu entries (LIMIT_ENTRIES)",
                                (unsigned long long)reading->limits->entries);
                const char *path = archive_entry_pathname(entry);
                if (path == NULL || path[0] == '\0')
                        return cubby_error_set(err, CUBBY_E_IMAGE, "an entry without a name");
                if (apply_entry(reading, entry, path, err) < 0) {
                        char quoted[QUOTED_MAX];
                        return cubby_error_wrap(err, "entry '%s'", quote_name(quoted, path));
                }
        }
}

/* ---- the layer ---- */

static la_ssize_t read_callback(struct archive *archive, void *data, const void **ret)
{
        struct reading *reading = data;
        ssize_t got = stream_read(reading->stream, ret, &reading->failure);
        if (got < 0) {
                archive_set_error(archive, EIO, "%s", reading->failure.message);
                return -1;
        }
        reading->unpacked += (uint64_t)got;
        if (reading->layer->progress != NULL)
                reading->layer->progress(
                        reading->layer->progress_data, stream_packed_bytes(reading->stream));
        return got;
}

static int read_tar(struct reading *reading, cubby_error *err)
{
        reading->archive = archive_read_new();
        if (reading->archive == NULL)
                return cubby_error_no_memory(err);
        int result = -1;
        if (archive_read_support_format_tar(reading->archive) != ARCHIVE_OK ||
                archive_read_support_format_empty(reading->archive) != ARCHIVE_OK ||
                archive_read_open(reading->archive, reading, NULL, read_callback, NULL) !=
                        ARCHIVE_OK)
                (void)archive_failure(reading, err);
        else
                result = read_entries(reading, err);
        (void)archive_read_free(reading->archive);
        return result;
}

static int check_digest(const char *what, const char *expected, const char *found, cubby_error *err)
{
        if (expected == NULL || strcmp(expected, found) == 0)
                return 0;
        return cubby_error_set(err, CUBBY_E_DIGEST, "the %s is %s, not %s", what, found, expected);
}

static int read_layer(struct reading *reading, struct layer_result *ret, cubby_error *err)
{
        const struct layer *layer = reading->layer;
        struct layer_result result = {0};
        AUTO(stream) struct stream *stream = NULL;
        if (stream_open(&layer->blob, reading->limits, reading->usage, &stream, err) < 0)
                return -1;
        reading->stream = stream;
        tree_begin_layer(reading->tree);
        if (read_tar(reading, err) < 0 ||
                stream_finish(stream, result.digest, result.diff_id, err) < 0 ||
                check_digest("digest", layer->digest, result.digest, err) < 0 ||
                check_digest("digest of the unpacked layer", layer->diff_id, result.diff_id, err) <
                        0)
                return -1;
        if (layer->whole_tar && !stream_ended_with_zeros(stream))
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the archive is cut short: it has no end mark");
        result.unpacked_bytes = reading->unpacked;
        *ret = result;
        return 0;
}

int layer_apply(const struct layer *layer, const struct image_limits *limits,
        struct image_usage *usage, struct tree *tree, struct disk *disk, struct layer_result *ret,
        cubby_error *err)
{
        AUTO_FREE char *path = malloc((size_t)limits->path_bytes + 1);
        AUTO_FREE char *other = malloc((size_t)limits->path_bytes + 1);
        if (path == NULL || other == NULL)
                return cubby_error_no_memory(err);
        struct reading reading = {.layer = layer,
                .limits = limits,
                .usage = usage,
                .tree = tree,
                .disk = disk,
                .path = path,
                .other = other};
        /* libarchive gives names in the charset of the thread's locale. In UTF-8 they come
         * through byte for byte; the caller's own locale is not ours to change. */
        locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
        if (locale == (locale_t)0)
                return cubby_error_errno(err, errno, "loading the locale C.UTF-8");
        locale_t before = uselocale(locale);
        int result = read_layer(&reading, ret, err);
        (void)uselocale(before);
        freelocale(locale);
        return result;
}
