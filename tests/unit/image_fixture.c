/* SPDX-License-Identifier: Apache-2.0 */
#include "image_fixture.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned int file_type(char kind)
{
        switch (kind) {
        case 'd':
                return AE_IFDIR;
        case 'l':
                return AE_IFLNK;
        case 'c':
                return AE_IFCHR;
        case 'p':
                return AE_IFIFO;
        case 's':
                return AE_IFSOCK;
        default:
                return AE_IFREG;
        }
}

static la_ssize_t append(struct archive *archive, void *data, const void *bytes, size_t size)
{
        (void)archive;
        assert_true(buffer_append(data, bytes, size));
        return (la_ssize_t)size;
}

static void add_item(struct archive *archive, const struct item *item)
{
        struct archive_entry *entry = archive_entry_new();
        const char *text = item->text == NULL ? "" : item->text;
        size_t size = item->kind == 'f' ? strlen(text) : 0;
        archive_entry_set_pathname(entry, item->path);
        archive_entry_set_filetype(entry, file_type(item->kind));
        archive_entry_set_perm(entry,
                item->mode != 0             ? item->mode
                        : item->kind == 'd' ? 0755
                                            : 0644);
        archive_entry_set_mtime(entry, 1000000000, 123456789);
        archive_entry_set_size(entry, (la_int64_t)size);
        if (item->kind == 'l')
                archive_entry_set_symlink(entry, text);
        if (item->kind == 'h')
                archive_entry_set_hardlink(entry, text);
        if (item->kind == 'c') {
                archive_entry_set_rdevmajor(entry, 1);
                archive_entry_set_rdevminor(entry, 3);
        }
        if (item->xattr != NULL)
                archive_entry_xattr_add_entry(entry, "user.test", item->xattr, strlen(item->xattr));
        if (item->holes > 0) {
                archive_entry_set_size(entry, (la_int64_t)item->holes);
                archive_entry_sparse_add_entry(entry, 0, (la_int64_t)size);
        }
        assert_true(archive_write_header(archive, entry) >= ARCHIVE_WARN);
        if (size > 0)
                assert_int_equal(archive_write_data(archive, text, size), size);
        archive_entry_free(entry);
}

void fixture_tar(const struct item *items, const char *filter, struct buffer *ret)
{
        struct archive *archive = archive_write_new();
        assert_int_equal(archive_write_set_format_pax(archive), ARCHIVE_OK);
        if (strcmp(filter, "none") != 0)
                assert_int_equal(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
        assert_int_equal(archive_write_set_bytes_in_last_block(archive, 1), ARCHIVE_OK);
        assert_int_equal(archive_write_open(archive, ret, NULL, append, NULL), ARCHIVE_OK);
        for (; items->kind != 0; items++)
                add_item(archive, items);
        assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
        archive_write_free(archive);
}

void fixture_write(int dir_fd, const char *path, const void *data, size_t size)
{
        AUTO_FD int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write_whole(fd, data, size), 0);
}

json_t *fixture_blob(int layout_fd, const char *type, const void *data, size_t size)
{
        char digest[DIGEST_BYTES];
        char path[DIGEST_BYTES + 16];
        (void)mkdirat(layout_fd, "blobs", 0700);
        (void)mkdirat(layout_fd, "blobs/sha256", 0700);
        assert_int_equal(digest_of(data, size, digest, NULL), 0);
        (void)snprintf(path, sizeof path, "blobs/sha256/%s", digest + strlen(DIGEST_PREFIX));
        fixture_write(layout_fd, path, data, size);
        json_t *json = json_pack(
                "{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size", (json_int_t)size);
        assert_non_null(json);
        return json;
}

json_t *fixture_blob_json(int layout_fd, const char *type, const json_t *json)
{
        AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
        assert_non_null(text);
        return fixture_blob(layout_fd, type, text, strlen(text));
}

void fixture_folder_make(struct fixture_folder *folder)
{
        (void)snprintf(folder->path, sizeof folder->path, "/tmp/cubby-test-XXXXXX");
        assert_non_null(mkdtemp(folder->path));
        folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(folder->fd >= 0);
}

void fixture_folder_remove(struct fixture_folder *folder)
{
        close_quietly(folder->fd);
        assert_int_equal(dir_remove_at(AT_FDCWD, folder->path, NULL), 0);
}

size_t fixture_count(int dir_fd, const char *path)
{
        int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        AUTO_DIR DIR *dir = fdopendir(fd);
        assert_non_null(dir);
        size_t count = 0;
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL)
                count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        return count;
}

void path_in(const struct setting *setting, const char *name, char ret[128])
{
        (void)snprintf(ret, 128, "%s/%s", setting->folder.path, name);
}

void setting_make(struct setting *setting)
{
        char path[128];
        fixture_folder_make(&setting->folder);
        path_in(setting, "home", path);
        cubby_error err = {0};
        if (home_open(path, NULL, &setting->home, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(mkdirat(setting->folder.fd, "layout", 0700), 0);
        setting->layout = openat(setting->folder.fd, "layout", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(setting->layout >= 0);
}

void setting_free(struct setting *setting)
{
        home_close(setting->home);
        close_quietly(setting->layout);
        fixture_folder_remove(&setting->folder);
}

void assert_nothing_left(const struct setting *setting)
{
        struct image_record *records = NULL;
        size_t count = 1;
        assert_int_equal(image_record_list(setting->home, &records, &count, NULL), 0);
        image_record_list_free(records, count);
        assert_int_equal(count, 0);
        assert_int_equal(fixture_count(home_folder(setting->home, HOME_ROOTFS), "."), 0);
        assert_int_equal(fixture_count(home_folder(setting->home, HOME_TMP), "."), 0);
        assert_int_equal(fixture_count(home_folder(setting->home, HOME_IMAGES), "."), 0);
}

int setting_import(struct setting *setting, const char *source, const char *name,
        struct image_record *ret, cubby_error *err)
{
        char path[128];
        struct image_import_options options = {.name = name};
        path_in(setting, source, path);
        return image_import(setting->home, path, &options, ret, err);
}

void assert_imports(struct setting *setting, const char *source, const char *name,
        const char *expected_name, char ret_id[DIGEST_BYTES])
{
        struct image_record record = {0};
        cubby_error err = {0};
        AUTO_FD int disk = -1;
        if (setting_import(setting, source, name, &record, &err) < 0)
                fail_msg("%s: %s", source, err.message);
        assert_string_equal(record.name, expected_name);
        assert_string_equal(record.architecture, "amd64");
        assert_true(record.disk_bytes > 0);
        assert_int_equal(image_open_rootfs(setting->home, record.id, &disk, &err), 0);
        assert_int_equal(fcntl(disk, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fixture_count(home_folder(setting->home, HOME_TMP), "."), 0);
        (void)snprintf(ret_id, DIGEST_BYTES, "%s", record.id);
        image_record_clear(&record);
}
