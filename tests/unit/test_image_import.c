/* SPDX-License-Identifier: Apache-2.0 */
/* Whole imports: layouts, docker-archives and plain tars; what is refused leaves nothing. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "image/disk.h"
#include "image/image.h"
#include "image_fixture.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static const struct item lower[] = {
        {.kind = 'd', .path = "etc"}, {.kind = 'f', .path = "etc/hosts", .text = "127.0.0.1"}, {0}};
static const struct item upper[] = {{.kind = 'f', .path = "etc/.wh.hosts", .text = ""},
        {.kind = 'f', .path = "new", .text = "new"}, {0}};

struct setting {
        struct fixture_folder folder;
        struct home *home;
        int layout; /* descriptor of the folder "layout" */
};

static void path_in(const struct setting *setting, const char *name, char ret[128])
{
        (void)snprintf(ret, 128, "%s/%s", setting->folder.path, name);
}

static void setting_make(struct setting *setting)
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

static void setting_free(struct setting *setting)
{
        home_close(setting->home);
        close_quietly(setting->layout);
        fixture_folder_remove(&setting->folder);
}

static void assert_nothing_left(const struct setting *setting)
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

static int import(struct setting *setting, const char *source, const char *name,
        struct image_record *ret, cubby_error *err)
{
        char path[128];
        struct image_import_options options = {.name = name};
        path_in(setting, source, path);
        return image_import(setting->home, path, &options, ret, err);
}

/* Imports, checks the record and the disk, and forgets the record. */
static void assert_imports(struct setting *setting, const char *source, const char *name,
        const char *expected_name, char ret_id[DIGEST_BYTES])
{
        struct image_record record = {0};
        cubby_error err = {0};
        AUTO_FD int disk = -1;
        if (import(setting, source, name, &record, &err) < 0)
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

/* ---- an OCI layout, with one thing changed ---- */

enum change {
        CHANGE_NOTHING,
        LAYER_CONTENT,
        LAYER_CUT,
        LAYER_MISSING,
        LAYER_SIZE,
        LAYER_LINK,
        LAYER_TYPE,
        LAYER_FOREIGN,
        LAYER_SHA512,
        LAYER_TRAVERSAL,
        LAYER_BAD_TAR,
        LAYER_TRAILING,
        DIFF_ID,
        DIFF_ID_COUNT,
        DIFF_ID_FORM,
        CONFIG_CONTENT,
        CONFIG_TYPE,
        CONFIG_JSON,
        CONFIG_ARRAY,
        CONFIG_ARCHITECTURE,
        CONFIG_NO_ARCHITECTURE,
        CONFIG_OS,
        CONFIG_LARGE,
        CONFIG_ENV,
        MANIFEST_CONTENT,
        MANIFEST_BOTH,
        MANIFEST_VERSION,
        MANIFEST_TYPE,
        MANIFEST_LARGE,
        MANIFEST_NO_CONFIG,
        MANIFEST_MANY_LAYERS,
        MANIFEST_NEGATIVE_SIZE,
        INDEX_JSON,
        INDEX_DUPLICATE_KEY,
        INDEX_EMPTY,
        INDEX_MANY,
        INDEX_OTHER_PLATFORM,
        INDEX_NESTED,
        INDEX_DEEP,
        INDEX_SEVERAL,
        INDEX_ATTESTATION,
        LAYOUT_VERSION,
        LAYOUT_NO_MARK,
};

static void set(json_t *json, const char *key, json_t *value)
{
        assert_int_equal(json_object_set_new(json, key, value), 0);
}

static void overwrite_blob(struct setting *setting, const json_t *descriptor, enum change change,
        const void *data, size_t size)
{
        char path[128];
        const char *digest = json_string_value(json_object_get(descriptor, "digest"));
        (void)snprintf(path, sizeof path, "blobs/sha256/%s", digest + strlen(DIGEST_PREFIX));
        switch ((int)change) {
        case LAYER_MISSING:
                assert_int_equal(unlinkat(setting->layout, path, 0), 0);
                break;
        case LAYER_LINK:
                assert_int_equal(unlinkat(setting->layout, path, 0), 0);
                assert_int_equal(symlinkat("/etc/passwd", setting->layout, path), 0);
                break;
        default:
                fixture_write(setting->layout, path, data, size);
                break;
        }
}

static json_t *make_layer(struct setting *setting, const struct item *items, const char *filter,
        enum change change, char ret_diff_id[DIGEST_BYTES])
{
        AUTO_BUFFER struct buffer plain;
        AUTO_BUFFER struct buffer packed;
        char type[64];
        buffer_init(&plain, 1U << 20);
        buffer_init(&packed, 1U << 20);
        fixture_tar(items, "none", &plain);
        assert_int_equal(digest_of(plain.data, plain.size, ret_diff_id, NULL), 0);
        fixture_tar(items, filter, &packed);
        if (change == LAYER_BAD_TAR)
                memset(packed.data, 'x', packed.size);
        if (change == LAYER_TRAILING)
                assert_true(buffer_append_text(&packed, "trailing"));
        (void)snprintf(type, sizeof type, "%s%s%s", TYPE_LAYER,
                strcmp(filter, "none") == 0 ? "" : "+", strcmp(filter, "none") == 0 ? "" : filter);
        json_t *layer = fixture_blob(setting->layout, type, packed.data, packed.size);
        packed.data[packed.size / 2] ^= 1;
        if (change == LAYER_CONTENT)
                overwrite_blob(setting, layer, change, packed.data, packed.size);
        if (change == LAYER_CUT)
                overwrite_blob(setting, layer, change, packed.data, packed.size / 2);
        if (change == LAYER_MISSING || change == LAYER_LINK)
                overwrite_blob(setting, layer, change, NULL, 0);
        if (change == LAYER_SIZE)
                set(layer, "size", json_integer((json_int_t)packed.size + 1));
        if (change == LAYER_TYPE)
                set(layer, "mediaType", json_string("application/x-tar"));
        if (change == LAYER_FOREIGN)
                set(layer, "mediaType",
                        json_string("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"));
        if (change == LAYER_SHA512)
                set(layer, "digest", json_string("sha512:" ZEROS ZEROS));
        if (change == LAYER_TRAVERSAL)
                set(layer, "digest", json_string("sha256:../../../../../../../../etc/passwd"));
        if (change == MANIFEST_NEGATIVE_SIZE)
                set(layer, "size", json_integer(-1));
        return layer;
}

static json_t *make_config(
        struct setting *setting, enum change change, const char *first, const char *second)
{
        json_t *config = json_pack("{s:s, s:s, s:{s:[s]}, s:{s:s, s:[s, s]}}", "architecture",
                change == CONFIG_ARCHITECTURE ? "arm64" : "amd64", "os",
                change == CONFIG_OS ? "windows" : "linux", "config", "Env",
                change == CONFIG_ENV ? "no-equals-sign" : "A=b", "rootfs", "type", "layers",
                "diff_ids", first, change == DIFF_ID ? "sha256:" ZEROS : second);
        json_t *ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
        AUTO_FREE char *filler = NULL;
        if (change == DIFF_ID_COUNT)
                assert_int_equal(json_array_append_new(ids, json_string("sha256:" ZEROS)), 0);
        if (change == DIFF_ID_FORM)
                assert_int_equal(json_array_set_new(ids, 0, json_string("sha256:x")), 0);
        if (change == CONFIG_NO_ARCHITECTURE)
                assert_int_equal(json_object_del(config, "architecture"), 0);
        if (change == CONFIG_LARGE) {
                filler = calloc(1, LIMIT_CONFIG_BYTES + 1);
                assert_non_null(filler);
                memset(filler, 'x', LIMIT_CONFIG_BYTES);
                set(config, "author", json_string(filler));
        }
        json_t *blob;
        if (change == CONFIG_JSON)
                blob = fixture_blob(setting->layout, TYPE_CONFIG, "{\"os\":", 6);
        else if (change == CONFIG_ARRAY)
                blob = fixture_blob(setting->layout, TYPE_CONFIG, "[1,2]", 5);
        else
                blob = fixture_blob_json(setting->layout,
                        change == CONFIG_TYPE ? "application/vnd.cncf.helm.config.v1+json"
                                              : TYPE_CONFIG,
                        config);
        if (change == CONFIG_CONTENT)
                overwrite_blob(setting, blob, change, "{}", 2);
        json_decref(config);
        return blob;
}

static json_t *make_manifest(struct setting *setting, enum change change)
{
        char first[DIGEST_BYTES];
        char second[DIGEST_BYTES];
        json_t *layers = json_array();
        assert_int_equal(json_array_append_new(
                                 layers, make_layer(setting, lower, "none", CHANGE_NOTHING, first)),
                0);
        assert_int_equal(
                json_array_append_new(layers, make_layer(setting, upper, "gzip", change, second)),
                0);
        for (size_t i = 0; change == MANIFEST_MANY_LAYERS && i < LIMIT_LAYERS; i++)
                assert_int_equal(json_array_append(layers, json_array_get(layers, 0)), 0);
        json_t *manifest = json_pack("{s:i, s:s, s:o, s:o}", "schemaVersion",
                change == MANIFEST_VERSION ? 1 : 2, "mediaType",
                change == MANIFEST_TYPE ? TYPE_INDEX : TYPE_MANIFEST, "config",
                make_config(setting, change, first, second), "layers", layers);
        AUTO_FREE char *filler = NULL;
        if (change == MANIFEST_BOTH)
                set(manifest, "manifests", json_array());
        if (change == MANIFEST_NO_CONFIG)
                assert_int_equal(json_object_del(manifest, "config"), 0);
        if (change == MANIFEST_LARGE) {
                filler = calloc(1, LIMIT_MANIFEST_BYTES + 1);
                assert_non_null(filler);
                memset(filler, 'x', LIMIT_MANIFEST_BYTES);
                set(manifest, "filler", json_string(filler));
        }
        json_t *blob = fixture_blob_json(setting->layout, TYPE_MANIFEST, manifest);
        if (change == MANIFEST_CONTENT)
                overwrite_blob(setting, blob, change, "{}", 2);
        json_decref(manifest);
        return blob;
}

static json_t *wrap_in_index(struct setting *setting, json_t *entry)
{
        json_t *index = json_pack("{s:i, s:[o]}", "schemaVersion", 2, "manifests", entry);
        json_t *blob = fixture_blob_json(setting->layout, TYPE_INDEX, index);
        json_decref(index);
        return blob;
}

static void set_platform(json_t *entry, const char *os, const char *architecture)
{
        set(entry, "platform", json_pack("{s:s, s:s}", "os", os, "architecture", architecture));
}

static json_t *make_index(struct setting *setting, enum change change)
{
        json_t *entry = make_manifest(setting, change);
        json_t *entries = json_array();
        int nested = change == INDEX_NESTED ? 2 : change == INDEX_DEEP ? 3 : 0;
        for (int i = 0; i < nested; i++)
                entry = wrap_in_index(setting, entry);
        set(entry, "annotations", json_pack("{s:s}", "org.opencontainers.image.ref.name", "v1"));
        if (change == INDEX_OTHER_PLATFORM)
                set_platform(entry, "linux", "s390x");
        if (change != INDEX_EMPTY)
                assert_int_equal(json_array_append(entries, entry), 0);
        for (size_t i = 0; change == INDEX_MANY && i < LIMIT_INDEX_ENTRIES; i++)
                assert_int_equal(json_array_append(entries, entry), 0);
        if (change == INDEX_SEVERAL || change == INDEX_ATTESTATION) {
                json_t *other = fixture_blob(setting->layout, TYPE_MANIFEST, "{}", 2);
                if (change == INDEX_ATTESTATION)
                        set_platform(other, "unknown", "unknown");
                assert_int_equal(json_array_append_new(entries, other), 0);
        }
        json_decref(entry);
        return json_pack("{s:i, s:o}", "schemaVersion", 2, "manifests", entries);
}

static void make_layout(struct setting *setting, enum change change)
{
        static const char mark[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
        static const char old_mark[] = "{\"imageLayoutVersion\":\"0.9.0\"}";
        json_t *index = make_index(setting, change);
        AUTO_FREE char *text = json_dumps(index, 0);
        json_decref(index);
        assert_non_null(text);
        if (change == INDEX_JSON)
                text[strlen(text) / 2] = '\0';
        fixture_write(setting->layout, "index.json", text, strlen(text));
        if (change == INDEX_DUPLICATE_KEY)
                fixture_write(setting->layout, "index.json",
                        "{\"schemaVersion\":2,\"manifests\":[],\"manifests\":[]}", 47);
        if (change != LAYOUT_NO_MARK)
                fixture_write(setting->layout, "oci-layout",
                        change == LAYOUT_VERSION ? old_mark : mark, sizeof mark - 1);
}

static const struct {
        enum change change;
        int code; /* CUBBY_OK: it imports */
        const char *message;
} layouts[] = {
        {CHANGE_NOTHING, CUBBY_OK, ""},
        {INDEX_NESTED, CUBBY_OK, ""},
        {INDEX_ATTESTATION, CUBBY_OK, ""},
        {LAYER_CONTENT, 0, "layer 2"}, /* digest, or the checksum of gzip, whichever is first */
        {LAYER_CUT, CUBBY_E_DIGEST, "layer 2"},
        {LAYER_MISSING, CUBBY_E_IMAGE, "layer 2"},
        {LAYER_SIZE, CUBBY_E_DIGEST, "layer 2"},
        {LAYER_LINK, CUBBY_E_SYSTEM, "layer 2"},
        {LAYER_TYPE, CUBBY_E_UNSUPPORTED, "application/x-tar"},
        {LAYER_FOREIGN, CUBBY_E_UNSUPPORTED, "foreign"},
        {LAYER_SHA512, CUBBY_E_IMAGE, "not a digest"},
        {LAYER_TRAVERSAL, CUBBY_E_IMAGE, "not a digest"},
        {LAYER_BAD_TAR, CUBBY_E_IMAGE, "tar"},
        {LAYER_TRAILING, CUBBY_E_IMAGE, "layer 2"},
        {DIFF_ID, CUBBY_E_DIGEST, "unpacked"},
        {DIFF_ID_COUNT, CUBBY_E_IMAGE, "names 3 layers"},
        {DIFF_ID_FORM, CUBBY_E_IMAGE, "layer 1"},
        {CONFIG_CONTENT, CUBBY_E_DIGEST, "config"},
        {CONFIG_TYPE, CUBBY_E_IMAGE, "helm"},
        {CONFIG_JSON, CUBBY_E_IMAGE, "JSON"},
        {CONFIG_ARRAY, CUBBY_E_IMAGE, "object"},
        {CONFIG_ARCHITECTURE, CUBBY_E_UNSUPPORTED, "linux/arm64"},
        {CONFIG_NO_ARCHITECTURE, CUBBY_E_IMAGE, "platform"},
        {CONFIG_OS, CUBBY_E_UNSUPPORTED, "windows"},
        {CONFIG_LARGE, CUBBY_E_LIMIT, "LIMIT_CONFIG_BYTES"},
        {CONFIG_ENV, CUBBY_E_IMAGE, "Env"},
        {MANIFEST_CONTENT, CUBBY_E_DIGEST, "manifest"},
        {MANIFEST_BOTH, CUBBY_E_IMAGE, "layers"},
        {MANIFEST_VERSION, CUBBY_E_IMAGE, "version"},
        {MANIFEST_TYPE, CUBBY_E_IMAGE, "another type"},
        {MANIFEST_LARGE, CUBBY_E_LIMIT, "LIMIT_MANIFEST_BYTES"},
        {MANIFEST_NO_CONFIG, CUBBY_E_IMAGE, "config"},
        {MANIFEST_MANY_LAYERS, CUBBY_E_LIMIT, "LIMIT_LAYERS"},
        {MANIFEST_NEGATIVE_SIZE, CUBBY_E_IMAGE, "size"},
        {INDEX_JSON, CUBBY_E_IMAGE, "JSON"},
        {INDEX_DUPLICATE_KEY, CUBBY_E_IMAGE, "JSON"},
        {INDEX_EMPTY, CUBBY_E_UNSUPPORTED, "linux/amd64"},
        {INDEX_MANY, CUBBY_E_LIMIT, "LIMIT_INDEX_ENTRIES"},
        {INDEX_OTHER_PLATFORM, CUBBY_E_UNSUPPORTED, "linux/amd64"},
        {INDEX_DEEP, CUBBY_E_LIMIT, "LIMIT_INDEX_DEPTH"},
        {INDEX_SEVERAL, CUBBY_E_INVALID, "2 images"},
        {LAYOUT_VERSION, CUBBY_E_UNSUPPORTED, "1.0.0"},
        {LAYOUT_NO_MARK, CUBBY_E_IMAGE, "OCI layout"},
};

static void layouts_are_imported_or_refused_whole(void **state)
{
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
                struct setting setting;
                setting_make(&setting);
                make_layout(&setting, layouts[i].change);
                if (layouts[i].code == CUBBY_OK && layouts[i].message[0] == '\0') {
                        char id[DIGEST_BYTES];
                        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
                } else {
                        struct image_record record = {0};
                        cubby_error err = {0};
                        if (import(&setting, "layout", NULL, &record, &err) == 0)
                                fail_msg("row %zu, '%s': taken", i, layouts[i].message);
                        if ((layouts[i].code != 0 && err.code != layouts[i].code) ||
                                strstr(err.message, layouts[i].message) == NULL)
                                fail_msg("row %zu: wanted %d '%s', got %d '%s'", i, layouts[i].code,
                                        layouts[i].message, err.code, err.message);
                        assert_null(record.id);
                        assert_nothing_left(&setting);
                }
                setting_free(&setting);
        }
}

/* ---- tars ---- */

static void add_to_tar(struct archive *archive, const char *name, const void *data, size_t size)
{
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)size);
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(archive, data, size), size);
        archive_entry_free(entry);
}

static struct archive *start_tar(
        const struct setting *setting, const char *name, const char *filter)
{
        char path[128];
        struct archive *archive = archive_write_new();
        path_in(setting, name, path);
        assert_int_equal(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
        if (filter != NULL)
                assert_int_equal(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
        assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
        return archive;
}

static void end_tar(struct archive *archive)
{
        assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
        archive_write_free(archive);
}

/* The files of setting->layout, as a tar; `how` is "-cf" or "-czf". */
static void tar_layout(struct setting *setting, const char *name, const char *how)
{
        char folder[128];
        char path[128];
        cubby_error err = {0};
        path_in(setting, "layout", folder);
        path_in(setting, name, path);
        const char *const argv[] = {"tar", "-C", folder, how, path, ".", NULL};
        if (spawn_run(argv, NULL, deadline_after_ms(30000), &err) < 0)
                fail_msg("%s", err.message);
}

static void a_layout_in_a_tar_is_the_same_image(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        char again[DIGEST_BYTES];
        struct image_record *records = NULL;
        size_t count = 0;
        setting_make(&setting);
        make_layout(&setting, CHANGE_NOTHING);
        tar_layout(&setting, "plain.tar", "-cf");
        tar_layout(&setting, "packed.tar.gz", "-czf");
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        assert_imports(&setting, "plain.tar", NULL, "docker.io/library/plain:v1", again);
        assert_string_equal(id, again);
        assert_imports(&setting, "packed.tar.gz", "x:1", "docker.io/library/x:1", again);
        assert_string_equal(id, again);
        assert_int_equal(fixture_count(home_folder(setting.home, HOME_ROOTFS), "."), 1);
        assert_int_equal(image_record_list(setting.home, &records, &count, NULL), 0);
        image_record_list_free(records, count);
        assert_int_equal(count, 3);
        setting_free(&setting);
}

static void a_plain_tar_is_an_image(void **state)
{
        struct setting setting;
        AUTO_BUFFER struct buffer tar;
        char id[DIGEST_BYTES];
        char again[DIGEST_BYTES];
        struct image_record record = {0};
        struct image_runtime runtime;
        setting_make(&setting);
        buffer_init(&tar, 1U << 20);
        fixture_tar(lower, "none", &tar);
        fixture_write(setting.folder.fd, "root.tar", tar.data, tar.size);
        buffer_clear(&tar);
        fixture_tar(lower, "zstd", &tar);
        fixture_write(setting.folder.fd, "root.tar.zst", tar.data, tar.size);
        assert_imports(&setting, "root.tar", NULL, "docker.io/library/root:latest", id);
        assert_imports(&setting, "root.tar.zst", "debian:12", "docker.io/library/debian:12", again);
        assert_string_equal(id, again);
        assert_int_equal(image_find(setting.home, "debian:12", &record, NULL), 0);
        assert_int_equal(image_runtime_parse(record.config, &runtime, NULL), 0);
        assert_null(runtime.command[0]);
        image_runtime_clear(&runtime);
        image_record_clear(&record);
        setting_free(&setting);
}

static void standard_input_is_a_source(void **state)
{
        struct setting setting;
        AUTO_BUFFER struct buffer tar;
        struct image_record record = {0};
        int pipes[2];
        setting_make(&setting);
        buffer_init(&tar, 1U << 16);
        fixture_tar(lower, "gzip", &tar);
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        assert_int_equal(write_whole(pipes[1], tar.data, tar.size), 0);
        close_quietly(pipes[1]);
        int before = dup(STDIN_FILENO);
        assert_true(dup2(pipes[0], STDIN_FILENO) >= 0);
        cubby_error err = {0};
        if (image_import(setting.home, "-", NULL, &record, &err) < 0)
                fail_msg("%s", err.message);
        assert_true(dup2(before, STDIN_FILENO) >= 0);
        close_quietly(before);
        close_quietly(pipes[0]);
        assert_null(record.name);
        image_record_clear(&record);
        setting_free(&setting);
}

/* ---- docker-archives ---- */

struct archive_case {
        const char *manifest; /* %s: the config's file name */
        const char *config_name;
        const char *diff_id; /* NULL: the right one */
        int code;
        const char *message;
};

static void write_docker_archive(const struct setting *setting, const struct archive_case *row)
{
        AUTO_BUFFER struct buffer tar;
        char diff_id[DIGEST_BYTES];
        char digest[DIGEST_BYTES];
        char config[512];
        char name[128];
        char manifest[1024];
        buffer_init(&tar, 1U << 20);
        fixture_tar(lower, "none", &tar);
        assert_int_equal(digest_of(tar.data, tar.size, diff_id, NULL), 0);
        (void)snprintf(config, sizeof config,
                "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":"
                "\"layers\",\"diff_ids\":[\"%s\"]}}",
                row->diff_id == NULL ? diff_id : row->diff_id);
        assert_int_equal(digest_of(config, strlen(config), digest, NULL), 0);
        (void)snprintf(name, sizeof name, "%s.json",
                row->config_name == NULL ? digest + strlen(DIGEST_PREFIX) : row->config_name);
        const char *mark = strstr(row->manifest, "%s");
        (void)snprintf(manifest, sizeof manifest, "%.*s%s%s",
                mark == NULL ? (int)strlen(row->manifest) : (int)(mark - row->manifest),
                row->manifest, mark == NULL ? "" : name, mark == NULL ? "" : mark + 2);
        struct archive *archive = start_tar(setting, "saved.tar", NULL);
        add_to_tar(archive, name, config, strlen(config));
        add_to_tar(archive, "one/layer.tar", tar.data, tar.size);
        struct archive_entry *link = archive_entry_new();
        archive_entry_set_pathname(link, "two/layer.tar");
        archive_entry_set_filetype(link, AE_IFLNK);
        archive_entry_set_symlink(link, "../one/layer.tar");
        assert_int_equal(archive_write_header(archive, link), ARCHIVE_OK);
        archive_entry_free(link);
        add_to_tar(archive, "manifest.json", manifest, strlen(manifest));
        end_tar(archive);
}

static void docker_archives_are_imported_or_refused_whole(void **state)
{
        static const struct archive_case cases[] = {
                {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\",\"b:2\"],\"Layers\":[\"one/"
                 "layer.tar\"]}]",
                        NULL, NULL, CUBBY_OK, ""},
                {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\"],\"Layers\":[\"two/layer.tar\"]}]",
                        "renamed", NULL, CUBBY_OK, ""},
                {"[{\"Config\":\"%s\",\"Layers\":[\"one/layer.tar\"]}]", ZEROS, NULL,
                        CUBBY_E_DIGEST, "config"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"one/layer.tar\"]}]", NULL, "sha256:" ZEROS,
                        CUBBY_E_DIGEST, "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[]}]", NULL, NULL, CUBBY_E_IMAGE, "1 layers"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"../../etc/passwd\"]}]", NULL, NULL,
                        CUBBY_E_IMAGE, "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"/etc/passwd\"]}]", NULL, NULL, CUBBY_E_IMAGE,
                        "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[7]}]", NULL, NULL, CUBBY_E_IMAGE, "layer 1"},
                {"[{\"Config\":\"%s\"}]", NULL, NULL, CUBBY_E_IMAGE, "list of layers"},
                {"[{\"Config\":\"absent.json\",\"Layers\":[\"one/layer.tar\"]}]", NULL, NULL,
                        CUBBY_E_IMAGE, "absent.json"},
                {"[{\"Layers\":[\"one/layer.tar\"]}]", NULL, NULL, CUBBY_E_IMAGE, "config"},
                {"[{},{}]", NULL, NULL, CUBBY_E_INVALID, "2 images"},
                {"[]", NULL, NULL, CUBBY_E_IMAGE, "list of images"},
                {"{}", NULL, NULL, CUBBY_E_IMAGE, "list of images"},
                {"[", NULL, NULL, CUBBY_E_IMAGE, "JSON"},
                {"[5]", NULL, NULL, CUBBY_E_IMAGE, "layers"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct setting setting;
                char id[DIGEST_BYTES];
                struct image_record record = {0};
                cubby_error err = {0};
                setting_make(&setting);
                write_docker_archive(&setting, &cases[i]);
                if (cases[i].code == CUBBY_OK) {
                        assert_imports(&setting, "saved.tar", NULL, "docker.io/library/a:1", id);
                } else {
                        if (import(&setting, "saved.tar", NULL, &record, &err) == 0)
                                fail_msg("row %zu: taken", i);
                        if (err.code != cases[i].code ||
                                strstr(err.message, cases[i].message) == NULL)
                                fail_msg("row %zu: code %d, '%s'", i, err.code, err.message);
                        assert_nothing_left(&setting);
                }
                setting_free(&setting);
        }
}

static void all_names_of_a_docker_archive_are_kept(void **state)
{
        static const struct archive_case row = {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\","
                                                "\"BAD NAME\",\"b:2\"],\"Layers\":[\"one/"
                                                "layer.tar\"]}]",
                NULL, NULL, CUBBY_OK, ""};
        struct setting setting;
        char id[DIGEST_BYTES];
        struct image_record record = {0};
        setting_make(&setting);
        write_docker_archive(&setting, &row);
        assert_imports(&setting, "saved.tar", NULL, "docker.io/library/a:1", id);
        assert_int_equal(image_find(setting.home, "b:2", &record, NULL), 0);
        assert_string_equal(record.id, id);
        image_record_clear(&record);
        assert_int_equal(image_find(setting.home, "c", &record, NULL), -1);
        setting_free(&setting);
}

/* ---- sources that are none ---- */

static void bad_sources_are_refused(void **state)
{
        static const struct {
                const char *name;
                const char *content; /* NULL: nothing is there */
                int code;
        } cases[] = {
                {"absent.tar", NULL, CUBBY_E_NOT_FOUND}, {"empty.tar", "", CUBBY_E_IMAGE},
                {"text.tar", "this is not a tar archive at all, only some words", CUBBY_E_IMAGE},
                {"short.tar.gz", "\x1f\x8b\x08\x02\x03", CUBBY_E_IMAGE},
                {"layout", NULL, CUBBY_E_IMAGE}, /* a folder without any mark */
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct setting setting;
                struct image_record record = {0};
                cubby_error err = {0};
                setting_make(&setting);
                if (cases[i].content != NULL)
                        fixture_write(setting.folder.fd, cases[i].name, cases[i].content,
                                strlen(cases[i].content));
                assert_int_equal(import(&setting, cases[i].name, NULL, &record, &err), -1);
                if (err.code != cases[i].code)
                        fail_msg("%s: code %d, %s", cases[i].name, err.code, err.message);
                assert_non_null(strstr(err.message, cases[i].name));
                assert_int_equal(import(&setting, cases[i].name, "BAD", &record, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_nothing_left(&setting);
                setting_free(&setting);
        }
}

/* ---- the store ---- */

static void disks_go_with_their_last_record(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        cubby_error err = {0};
        AUTO_FD int disk = -1;
        uint64_t freed = 1;
        setting_make(&setting);
        make_layout(&setting, CHANGE_NOTHING);
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        assert_imports(&setting, "layout", "other", "docker.io/library/other:latest", id);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_int_equal(freed, 0);
        assert_int_equal(image_remove(setting.home, id, false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        assert_int_equal(image_remove(setting.home, "layout:v1", false, NULL), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &disk, NULL), 0);
        assert_int_equal(image_remove(setting.home, "other", false, NULL), 0);
        assert_nothing_left(&setting);
        assert_int_equal(image_remove(setting.home, "other", true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        /* Who has it open keeps it. */
        assert_int_equal(disk_check(disk, NULL), 0);
        setting_free(&setting);
}

static void a_box_keeps_its_disk(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        cubby_error err = {0};
        uint64_t freed = 0;
        setting_make(&setting);
        make_layout(&setting, CHANGE_NOTHING);
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        struct box_record box = {.id = strdup("0123456789abcdef0123456789abcdef"),
                .name = strdup("web"),
                .image_id = strdup(id),
                .created_ns = 1};
        if (box_record_insert(setting.home, &box, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(image_remove(setting.home, "layout:v1", false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        assert_int_equal(image_remove(setting.home, "layout:v1", true, NULL), 0);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_int_equal(freed, 0);
        assert_int_equal(fixture_count(home_folder(setting.home, HOME_ROOTFS), "."), 1);
        assert_int_equal(box_record_remove(setting.home, box.id, NULL), 0);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_true(freed > 0);
        assert_nothing_left(&setting);
        box_record_clear(&box);
        setting_free(&setting);
}

static void damaged_disks_are_found_and_made_again(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        char path[DIGEST_BYTES + 16];
        cubby_error err = {0};
        int fd = -1;
        setting_make(&setting);
        make_layout(&setting, CHANGE_NOTHING);
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        int folder = home_folder(setting.home, HOME_ROOTFS);
        (void)snprintf(path, sizeof path, "%s/disk.erofs", id + strlen(DIGEST_PREFIX));
        assert_int_equal(fchmodat(folder, path, 0600, 0), 0);
        AUTO_FD int disk = openat(folder, path, O_RDWR | O_CLOEXEC);
        assert_true(disk >= 0);
        assert_int_equal(ftruncate(disk, 8192), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        assert_int_equal(unlinkat(folder, path, 0), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_int_equal(fd, -1);
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        assert_int_equal(image_open_rootfs(setting.home, "sha256:../x", &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        setting_free(&setting);
}

/* Several processes import, collect and remove the same image at once. */
static void processes_do_not_break_each_other(void **state)
{
        struct setting setting;
        char layout[128];
        char home_path[128];
        char id[DIGEST_BYTES];
        pid_t children[6];
        setting_make(&setting);
        make_layout(&setting, CHANGE_NOTHING);
        path_in(&setting, "layout", layout);
        path_in(&setting, "home", home_path);
        for (size_t i = 0; i < 6; i++) {
                children[i] = fork();
                if (children[i] != 0)
                        continue;
                struct home *home = NULL;
                int failures = home_open(home_path, NULL, &home, NULL) < 0;
                for (int round = 0; round < 5 && failures == 0; round++) {
                        struct image_record record = {0};
                        uint64_t freed = 0;
                        cubby_error err = {0};
                        if (i == 5)
                                failures += image_gc(home, &freed, NULL) < 0;
                        else if (i == 4)
                                (void)image_remove(home, "layout:v1", true, NULL);
                        else if (image_import(home, layout, NULL, &record, &err) < 0) {
                                (void)fprintf(stderr, "%s\n", err.message);
                                failures++;
                        }
                        image_record_clear(&record);
                }
                home_close(home);
                _exit(failures);
        }
        for (size_t i = 0; i < 6; i++) {
                int status = -1;
                assert_int_equal(waitpid(children[i], &status, 0), children[i]);
                assert_int_equal(status, 0);
        }
        assert_imports(&setting, "layout", NULL, "docker.io/library/layout:v1", id);
        setting_free(&setting);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(layouts_are_imported_or_refused_whole),
                cmocka_unit_test(a_layout_in_a_tar_is_the_same_image),
                cmocka_unit_test(a_plain_tar_is_an_image),
                cmocka_unit_test(standard_input_is_a_source),
                cmocka_unit_test(docker_archives_are_imported_or_refused_whole),
                cmocka_unit_test(all_names_of_a_docker_archive_are_kept),
                cmocka_unit_test(bad_sources_are_refused),
                cmocka_unit_test(disks_go_with_their_last_record),
                cmocka_unit_test(a_box_keeps_its_disk),
                cmocka_unit_test(damaged_disks_are_found_and_made_again),
                cmocka_unit_test(processes_do_not_break_each_other),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
