/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/fd.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_VERSION 1
#define NAMES_MAX 10000U

static inline void cleanup_json(json_t **json)
{
        json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json)))

void image_file_clear(struct image_file *file)
{
        if (file == NULL)
                return;
        image_record_clear(&file->record);
        for (size_t i = 0; i < file->name_count; i++)
                free(file->names[i]);
        free(file->names);
        *file = (struct image_file){0};
}

/* "sha256:HEX" -> "HEX.json" */
static void file_name(const char *id, char ret[80])
{
        (void)snprintf(ret, 80, "%.64s.json", id + strlen("sha256:"));
}

int image_file_write(struct home *home, const struct image_file *file, cubby_error *err)
{
        const struct image_record *record = &file->record;
        AUTO_JSON json_t *names = json_array();
        if (names == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < file->name_count; i++)
                if (json_array_append_new(names, json_string(file->names[i])) < 0)
                        return cubby_error_no_memory(err);
        json_error_t problem;
        AUTO_JSON json_t *root = json_pack_ex(&problem, 0,
                "{s:i, s:s, s:O, s:s, s:s, s:s, s:I, s:I}", "version", FILE_VERSION, "id",
                record->id, "names", names, "manifest", record->manifest, "config", record->config,
                "architecture", record->architecture, "disk_bytes", (json_int_t)record->disk_bytes,
                "created_ns", (json_int_t)record->created_ns);
        if (root == NULL && json_error_code(&problem) != json_error_invalid_utf8)
                return cubby_error_no_memory(err);
        if (root == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "image %s has a manifest or config that is not UTF-8", record->id);
        AUTO_FREE char *text = json_dumps(root, JSON_COMPACT);
        if (text == NULL)
                return cubby_error_no_memory(err);
        size_t size = strlen(text);
        if (size > IMAGE_FILE_MAX)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the record of image %s is too large", record->id);
        char name[80];
        file_name(record->id, name);
        return file_publish_at(home->folders[HOME_IMAGES], name, text, size, 0600, err);
}

int image_file_remove(struct home *home, const char *id, cubby_error *err)
{
        char name[80];
        file_name(id, name);
        if (unlinkat(home->folders[HOME_IMAGES], name, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing 'images/%s'", name);
        return 0;
}

static int parse_names(json_t *names, struct image_file *file, cubby_error *err)
{
        size_t count = json_array_size(names);
        if (!json_is_array(names) || count > NAMES_MAX)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "bad list of names");
        file->names = calloc(count + 1, sizeof *file->names);
        if (file->names == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                const char *name = json_string_value(json_array_get(names, i));
                if (name == NULL || !image_name_valid(name))
                        return cubby_error_set(err, CUBBY_E_CORRUPT, "bad name");
                file->names[i] = strdup(name);
                if (file->names[i] == NULL)
                        return cubby_error_no_memory(err);
                file->name_count++;
        }
        return 0;
}

static int parse(json_t *root, const char *hex, struct image_file *file, cubby_error *err)
{
        json_error_t problem;
        json_int_t version = 0;
        json_t *names = NULL;
        const char *id = NULL;
        const char *manifest = NULL;
        const char *config = NULL;
        const char *architecture = NULL;
        json_int_t disk_bytes = 0;
        json_int_t created_ns = 0;
        if (json_unpack(root, "{s:I}", "version", &version) == 0 && version > FILE_VERSION)
                return cubby_error_set(err, CUBBY_E_VERSION, "it is of a newer version (%lld)",
                        (long long)version);
        if (json_unpack_ex(root, &problem, JSON_STRICT, "{s:I, s:s, s:o, s:s, s:s, s:s, s:I, s:I}",
                    "version", &version, "id", &id, "names", &names, "manifest", &manifest,
                    "config", &config, "architecture", &architecture, "disk_bytes", &disk_bytes,
                    "created_ns", &created_ns) < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", problem.text);
        if (version != FILE_VERSION || !image_id_valid(id) ||
                strcmp(id + strlen("sha256:"), hex) != 0 || disk_bytes < 0 || created_ns < 0 ||
                strlen(manifest) > MANIFEST_MAX || strlen(config) > CONFIG_MAX ||
                strlen(architecture) > 64)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a value is out of range");
        if (parse_names(names, file, err) < 0)
                return -1;
        file->record = (struct image_record){
                .id = strdup(id),
                .manifest = strdup(manifest),
                .config = strdup(config),
                .architecture = strdup(architecture),
                .disk_bytes = (uint64_t)disk_bytes,
                .created_ns = created_ns,
        };
        if (file->record.id == NULL || file->record.manifest == NULL ||
                file->record.config == NULL || file->record.architecture == NULL)
                return cubby_error_no_memory(err);
        return 0;
}

int image_file_read(struct home *home, const char *hex, struct image_file *ret, cubby_error *err)
{
        char name[80];
        (void)snprintf(name, sizeof name, "%.64s.json", hex);
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, IMAGE_FILE_MAX);
        if (file_read_at(home->folders[HOME_IMAGES], name, &text, err) < 0)
                return -1;
        json_error_t problem;
        AUTO_JSON json_t *root =
                json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, &problem);
        if (root == NULL && json_error_code(&problem) == json_error_out_of_memory)
                return cubby_error_no_memory(err);
        if (root == NULL)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "'images/%s' is no JSON: %s", name, problem.text);
        struct image_file file = {0};
        if (parse(root, hex, &file, err) < 0) {
                image_file_clear(&file);
                return cubby_error_wrap(err, "reading 'images/%s'", name);
        }
        *ret = file;
        return 0;
}
