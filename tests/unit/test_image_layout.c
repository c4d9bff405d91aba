/* SPDX-License-Identifier: Apache-2.0 */
/* OCI layouts, whole and with one thing changed; what is refused leaves nothing. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spawn.h"
#include "image/image.h"
#include "image_fixture.h"

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
                        if (setting_import(&setting, "layout", NULL, &record, &err) == 0)
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

/* ---- the same in other ways ---- */

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
                cmocka_unit_test(processes_do_not_break_each_other),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
