/* SPDX-License-Identifier: Apache-2.0 */
#include "image/source.h"

#include "base/fd.h"
#include "image/image.h"
#include "image/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCAN_BYTES (64U << 10)
#define MEMBER_HOPS 8 /* links from one member of an archive to another */
#define SPOOL_NAME "source.tar"

struct member {
        char *name;
        char *link; /* another member's name; NULL: a file of its own */
        uint64_t offset;
        uint64_t size;
};

struct source {
        enum source_kind kind;
        char *stem;
        int dir_fd;  /* layout in a folder */
        int file_fd; /* tar */
        uint64_t file_size;
        const struct image_limits *limits;
        struct member *members; /* sorted by name */
        size_t member_count;
};

void source_free(struct source *source)
{
        if (source == NULL)
                return;
        for (size_t i = 0; i < source->member_count; i++) {
                free(source->members[i].name);
                free(source->members[i].link);
        }
        free(source->members);
        free(source->stem);
        close_quietly(source->dir_fd);
        close_quietly(source->file_fd);
        free(source);
}

enum source_kind source_kind(const struct source *source)
{
        return source->kind;
}

const char *source_stem(const struct source *source)
{
        return source->stem;
}

/* ---- the members of a tar ---- */

/* What the names at the top of a tar say of its kind. */
struct signs {
        bool layout_file;
        bool index;
        bool manifest;
        bool rootfs;
};

static void note_sign(struct signs *signs, const char *path)
{
        static const char *const root_folders[] = {"bin", "etc", "usr"};
        size_t length = strcspn(path, "/");
        signs->layout_file |= strcmp(path, "oci-layout") == 0;
        signs->index |= strcmp(path, "index.json") == 0;
        signs->manifest |= strcmp(path, "manifest.json") == 0;
        for (size_t i = 0; i < sizeof root_folders / sizeof root_folders[0]; i++)
                signs->rootfs |= strlen(root_folders[i]) == length &&
                        strncmp(path, root_folders[i], length) == 0;
}

/* Removes "." and ".." from a link between members, as text; false when it leaves the root. */
static bool resolve_link(
        const char *folder, size_t folder_length, const char *link, char *ret, size_t ret_size)
{
        size_t used = folder_length;
        if (folder_length + strlen(link) + 2 > ret_size)
                return false;
        memcpy(ret, folder, folder_length);
        while (*link != '\0') {
                size_t length = strcspn(link, "/");
                if (length == 2 && strncmp(link, "..", 2) == 0) {
                        if (used == 0)
                                return false;
                        while (used > 0 && ret[--used] != '/')
                                continue;
                } else if (length > 0 && !(length == 1 && link[0] == '.')) {
                        if (used > 0)
                                ret[used++] = '/';
                        memcpy(ret + used, link, length);
                        used += length;
                }
                link += length;
                link += *link == '/';
        }
        ret[used] = '\0';
        return used > 0;
}

/* The name that a link member points to; *ret stays NULL for a file. */
static int member_link(struct archive_entry *entry, const char *path, char **ret, cubby_error *err)
{
        char target[LIMIT_PATH_BYTES + 1];
        const char *link = archive_entry_hardlink(entry);
        size_t folder = 0;
        if (link == NULL && archive_entry_filetype(entry) == AE_IFLNK) {
                const char *slash = strrchr(path, '/');
                folder = slash == NULL ? 0 : (size_t)(slash - path);
                link = archive_entry_symlink(entry);
                if (link == NULL || link[0] == '/')
                        link = "";
        }
        if (link == NULL)
                return 0;
        if (!resolve_link(path, folder, link, target, sizeof target))
                return cubby_error_set(err, CUBBY_E_IMAGE, "it links out of the archive");
        *ret = strdup(target);
        return *ret == NULL ? cubby_error_no_memory(err) : 0;
}

static int add_member(struct source *source, struct archive *archive, struct archive_entry *entry,
        const char *path, cubby_error *err)
{
        bool link =
                archive_entry_filetype(entry) == AE_IFLNK || archive_entry_hardlink(entry) != NULL;
        if (!link && archive_entry_filetype(entry) != AE_IFREG)
                return 0;
        if (source->member_count == LIMIT_MEMBERS)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the archive has more than %u files (LIMIT_MEMBERS)", LIMIT_MEMBERS);
        struct member *larger =
                reallocarray(source->members, source->member_count + 1, sizeof *source->members);
        if (larger == NULL)
                return cubby_error_no_memory(err);
        source->members = larger;
        struct member *member = &larger[source->member_count];
        *member = (struct member){.name = strdup(path)};
        if (member->name == NULL)
                return cubby_error_no_memory(err);
        source->member_count++;
        if (member_link(entry, path, &member->link, err) < 0)
                return -1;
        la_int64_t size = link ? 0 : archive_entry_size(entry);
        /* What the reader has used up when it has given a header is where the data begins. */
        la_int64_t offset = archive_filter_bytes(archive, 0);
        if (size < 0 || offset < 0 || (uint64_t)offset > source->file_size ||
                (uint64_t)size > source->file_size - (uint64_t)offset)
                return cubby_error_set(err, CUBBY_E_IMAGE, "the archive ends before its content");
        if (archive_entry_sparse_count(entry) > 0)
                return cubby_error_set(err, CUBBY_E_IMAGE, "it is stored as a sparse file");
        member->offset = (uint64_t)offset;
        member->size = (uint64_t)size;
        return 0;
}

static int scan_entries(
        struct source *source, struct archive *archive, struct signs *signs, cubby_error *err)
{
        char path[LIMIT_PATH_BYTES + 1];
        bool classify = signs != NULL;
        for (uint64_t count = 0;; count++) {
                struct archive_entry *entry = NULL;
                int result = archive_read_next_header(archive, &entry);
                if (result == ARCHIVE_EOF || (classify && signs->rootfs))
                        return 0;
                if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
                        return archive_failed(archive, "not a valid tar archive", err);
                if (count >= source->limits->entries)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "the archive has more than %llu entries (LIMIT_ENTRIES)",
                                (unsigned long long)source->limits->entries);
                const char *name = archive_entry_pathname(entry);
                char quoted[QUOTED_MAX];
                if (name == NULL)
                        return cubby_error_set(err, CUBBY_E_IMAGE, "an entry without a name");
                int added = path_clean(&image_limits_default, name, path, err);
                if (added == 0 && classify)
                        note_sign(signs, path);
                else if (added == 0)
                        added = add_member(source, archive, entry, path, err);
                if (added < 0)
                        return cubby_error_wrap(err, "entry '%s'", quote_name(quoted, name));
        }
}

/* Reads the headers of the tar: its signs, or without `signs` its members. */
static int scan(struct source *source, struct signs *signs, cubby_error *err)
{
        if (lseek(source->file_fd, 0, SEEK_SET) < 0)
                return cubby_error_errno(err, errno, "seeking in the image");
        struct archive *archive = archive_read_new();
        if (archive == NULL)
                return cubby_error_no_memory(err);
        int result = -1;
        if (archive_read_support_format_tar(archive) != ARCHIVE_OK ||
                archive_read_open_fd(archive, source->file_fd, SCAN_BYTES) != ARCHIVE_OK)
                (void)archive_failed(archive, "not a valid tar archive", err);
        else
                result = scan_entries(source, archive, signs, err);
        (void)archive_read_free(archive);
        return result;
}

static int compare_members(const void *a, const void *b)
{
        return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static int index_members(struct source *source, cubby_error *err)
{
        if (scan(source, NULL, err) < 0)
                return -1;
        if (source->member_count == 0)
                return 0;
        qsort(source->members, source->member_count, sizeof *source->members, compare_members);
        for (size_t i = 1; i < source->member_count; i++) {
                char quoted[QUOTED_MAX];
                if (compare_members(&source->members[i - 1], &source->members[i]) == 0)
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "the archive has two files named '%s'",
                                quote_name(quoted, source->members[i].name));
        }
        return 0;
}

static const struct member *find_member(const struct source *source, const char *name)
{
        for (int hops = 0; hops <= MEMBER_HOPS && source->member_count > 0; hops++) {
                struct member key = {.name = (char *)(uintptr_t)name};
                const struct member *member = bsearch(&key, source->members, source->member_count,
                        sizeof *source->members, compare_members);
                if (member == NULL || member->link == NULL)
                        return member;
                name = member->link;
        }
        return NULL;
}

/* ---- opening ---- */

static int open_beneath(int dir_fd, const char *name, cubby_error *err)
{
        struct open_how how = {
                .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        char quoted[QUOTED_MAX];
        struct stat status;
        AUTO_FD int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof how);
        if (fd < 0 && errno == ENOENT)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the image has no '%s'", quote_name(quoted, name));
        if (fd < 0 || fstat(fd, &status) < 0)
                return cubby_error_errno(err, errno, "opening '%s'", quote_name(quoted, name));
        if (!S_ISREG(status.st_mode))
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "'%s' is not a file", quote_name(quoted, name));
        return take_fd(&fd);
}

static int file_size(int fd, uint64_t *ret, cubby_error *err)
{
        struct stat status;
        if (fstat(fd, &status) < 0)
                return cubby_error_errno(err, errno, "reading the image");
        *ret = (uint64_t)status.st_size;
        return 0;
}

/* Unpacks a pipe or a compressed file into the scratch folder, and goes on with that. */
static int spool(struct source *source, int scratch_fd, cubby_error *err)
{
        AUTO_FD int to = openat(
                scratch_fd, SPOOL_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (to < 0)
                return cubby_error_errno(err, errno, "making a file for the unpacked image");
        (void)unlinkat(scratch_fd, SPOOL_NAME, 0);
        struct blob from = {.fd = source->file_fd, .size = BLOB_TO_END};
        struct image_usage usage = {0};
        AUTO(stream) struct stream *stream = NULL;
        if (stream_open(&from, source->limits, &usage, &stream, err) < 0)
                return -1;
        for (;;) {
                const void *data = NULL;
                ssize_t got = stream_read(stream, &data, err);
                if (got < 0)
                        return -1;
                if (got == 0)
                        break;
                if (write_whole(to, data, (size_t)got) < 0)
                        return cubby_error_errno(err, errno, "storing the unpacked image");
        }
        char packed[DIGEST_BYTES];
        char unpacked[DIGEST_BYTES];
        if (stream_finish(stream, packed, unpacked, err) < 0)
                return -1;
        close_quietly(source->file_fd);
        source->file_fd = take_fd(&to);
        return file_size(source->file_fd, &source->file_size, err);
}

static bool is_compressed(int fd)
{
        static const uint8_t gzip[] = {0x1f, 0x8b};
        static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
        uint8_t start[4] = {0};
        if (pread(fd, start, sizeof start, 0) != sizeof start)
                return false;
        return memcmp(start, gzip, sizeof gzip) == 0 || memcmp(start, zstd, sizeof zstd) == 0;
}

static int open_tar(struct source *source, int scratch_fd, bool regular, cubby_error *err)
{
        struct signs signs = {0};
        if (file_size(source->file_fd, &source->file_size, err) < 0)
                return -1;
        if ((!regular || is_compressed(source->file_fd)) && spool(source, scratch_fd, err) < 0)
                return -1;
        if (source->file_size == 0)
                return cubby_error_set(err, CUBBY_E_IMAGE, "the archive is empty");
        if (scan(source, &signs, err) < 0)
                return -1;
        if (!signs.rootfs && signs.layout_file && signs.index)
                source->kind = SOURCE_LAYOUT;
        else if (!signs.rootfs && signs.manifest)
                source->kind = SOURCE_DOCKER_ARCHIVE;
        else
                source->kind = SOURCE_ROOTFS;
        return source->kind == SOURCE_ROOTFS ? 0 : index_members(source, err);
}

static char *make_stem(const char *path)
{
        static const char *const endings[] = {
                ".gz", ".tgz", ".zst", ".zstd", ".tar", ".oci", ".docker"};
        size_t end = strlen(path);
        while (end > 1 && path[end - 1] == '/')
                end--;
        size_t start = end;
        while (start > 0 && path[start - 1] != '/')
                start--;
        if (strcmp(path, "-") == 0)
                return strdup("");
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
                size_t length = strlen(endings[i]);
                if (end - start > length && strncmp(path + end - length, endings[i], length) == 0)
                        end -= length;
        }
        return strndup(path + start, end - start);
}

static int open_path(struct source *source, const char *path, int scratch_fd, cubby_error *err)
{
        struct stat status;
        char quoted[QUOTED_MAX];
        bool standard_input = strcmp(path, "-") == 0;
        AUTO_FD int fd = standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                        : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0 || fstat(fd, &status) < 0)
                return cubby_error_errno(err, errno, "opening '%s'", quote_name(quoted, path));
        if (S_ISDIR(status.st_mode)) {
                source->kind = SOURCE_LAYOUT;
                source->dir_fd = take_fd(&fd);
                AUTO_FD int marker = open_beneath(source->dir_fd, "oci-layout", err);
                return marker < 0 ? cubby_error_wrap(err, "the folder is no OCI layout") : 0;
        }
        if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is neither a file, a folder nor a pipe", quote_name(quoted, path));
        source->file_fd = take_fd(&fd);
        /* Standard input may stand anywhere in its file; it is read from there. */
        return open_tar(source, scratch_fd, S_ISREG(status.st_mode) && !standard_input, err);
}

int source_open(const char *path, int scratch_fd, const struct image_limits *limits,
        struct source **ret, cubby_error *err)
{
        AUTO(source) struct source *source = calloc(1, sizeof *source);
        if (source == NULL)
                return cubby_error_no_memory(err);
        source->dir_fd = -1;
        source->file_fd = -1;
        source->limits = limits;
        source->stem = make_stem(path);
        if (source->stem == NULL)
                return cubby_error_no_memory(err);
        if (open_path(source, path, scratch_fd, err) < 0)
                return -1;
        *ret = take_ptr(&source);
        return 0;
}

/* ---- reading ---- */

int source_whole(const struct source *source, struct blob *ret, cubby_error *err)
{
        int fd = fcntl(source->file_fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening the archive");
        *ret = (struct blob){.fd = fd, .offset = 0, .size = source->file_size};
        return 0;
}

int source_blob(const struct source *source, const char *name, struct blob *ret, cubby_error *err)
{
        char quoted[QUOTED_MAX];
        if (source->dir_fd >= 0) {
                AUTO_FD int fd = open_beneath(source->dir_fd, name, err);
                uint64_t size = 0;
                if (fd < 0 || file_size(fd, &size, err) < 0)
                        return -1;
                *ret = (struct blob){.fd = take_fd(&fd), .offset = 0, .size = size};
                return 0;
        }
        const struct member *member = find_member(source, name);
        if (member == NULL)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the image has no '%s'", quote_name(quoted, name));
        struct blob blob = BLOB_NONE;
        if (source_whole(source, &blob, err) < 0)
                return -1;
        blob.offset = member->offset;
        blob.size = member->size;
        *ret = blob;
        return 0;
}

int source_read(const struct source *source, const char *name, const char *limit,
        struct buffer *ret, cubby_error *err)
{
        AUTO_BLOB struct blob blob = BLOB_NONE;
        char quoted[QUOTED_MAX];
        if (source_blob(source, name, &blob, err) < 0)
                return -1;
        if (blob.size > ret->maximum - ret->size)
                return cubby_error_set(err, CUBBY_E_LIMIT, "'%s' is larger than %zu bytes (%s)",
                        quote_name(quoted, name), ret->maximum, limit);
        uint8_t *room = buffer_reserve(ret, (size_t)blob.size);
        if (room == NULL)
                return cubby_error_no_memory(err);
        size_t done = 0;
        while (done < blob.size) {
                ssize_t got = pread(blob.fd, room + done, (size_t)blob.size - done,
                        (off_t)(blob.offset + done));
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return cubby_error_errno(
                                err, errno, "reading '%s'", quote_name(quoted, name));
                if (got == 0)
                        return cubby_error_set(
                                err, CUBBY_E_IMAGE, "'%s' is cut short", quote_name(quoted, name));
                done += (size_t)got;
        }
        ret->size += done;
        return 0;
}
