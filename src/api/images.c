/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"
#include "image/image.h"

#include <jansson.h>
#include <string.h>

static void clear_info(cubby_image_info *info)
{
        free(info->id);
        free(info->name);
        free(info->architecture);
        *info = (cubby_image_info){0};
}

static int describe(const struct image_record *record, cubby_image_info *ret, cubby_error *err)
{
        cubby_image_info info = {.id = strdup(record->id),
                .name = strdup(record->name == NULL ? "" : record->name),
                .architecture = strdup(record->architecture),
                .disk_bytes = record->disk_bytes,
                .created_ns = record->created_ns};
        if (info.id == NULL || info.name == NULL || info.architecture == NULL) {
                clear_info(&info);
                return cubby_error_no_memory(err);
        }
        *ret = info;
        return 0;
}

int cubby_image_import(cubby *host, const char *source, const cubby_import_options *options,
        cubby_image_info *ret, cubby_error *err)
{
        cubby_import_options read;
        if (need(host, "cubby", err) < 0 || need(source, "source", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        const struct image_import_options chosen = {.name = read.name,
                .platform = read.platform,
                .timeout_ms = read.timeout_ms,
                .progress = host->progress,
                .progress_data = host->progress_data};
        struct image_record record = {0};
        if (image_import(host->home, source, &chosen, &record, err) < 0)
                return -1;
        int result = ret == NULL ? 0 : describe(&record, ret, err);
        image_record_clear(&record);
        return result;
}

void cubby_image_info_clear(cubby_image_info *info)
{
        if (info != NULL)
                clear_info(info);
}

void cubby_image_list_free(cubby_image_list *list)
{
        if (list == NULL)
                return;
        for (size_t i = 0; i < list->count; i++)
                clear_info(&list->images[i]);
        free(list->images);
        free(list);
}

DEFINE_AUTO(cubby_image_list, cubby_image_list_free)

int cubby_images(cubby *host, cubby_image_list **ret, cubby_error *err)
{
        struct image_record *records = NULL;
        size_t count = 0;
        if (need(host, "cubby", err) < 0 || need(ret, "ret", err) < 0 ||
                image_record_list(host->home, &records, &count, err) < 0)
                return -1;
        AUTO(cubby_image_list) cubby_image_list *list = calloc(1, sizeof *list);
        int result = 0;
        if (list != NULL)
                list->images = calloc(count + 1, sizeof *list->images);
        if (list == NULL || list->images == NULL)
                result = cubby_error_no_memory(err);
        for (size_t i = 0; i < count && result == 0; i++) {
                result = describe(&records[i], &list->images[i], err);
                if (result == 0)
                        list->count++;
        }
        image_record_list_free(records, count);
        if (result == 0)
                *ret = take_ptr(&list);
        return result;
}

static json_t *names_json(struct home *home, const char *id)
{
        struct image_record *records = NULL;
        size_t count = 0;
        json_t *names = json_array();
        if (image_record_list(home, &records, &count, NULL) < 0)
                return names;
        for (size_t i = 0; i < count; i++)
                if (strcmp(records[i].id, id) == 0 && records[i].name != NULL)
                        (void)json_array_append_new(names, json_string(records[i].name));
        image_record_list_free(records, count);
        return names;
}

/* A member of a stored document, or an empty value of its kind. */
static json_t *member(json_t *document, const char *name, json_t *otherwise)
{
        json_t *found = json_object_get(document, name);
        if (found == NULL || json_typeof(found) != json_typeof(otherwise))
                return otherwise;
        json_decref(otherwise);
        return json_incref(found);
}

static char *inspect(struct home *home, const struct image_record *record)
{
        json_t *config = json_loads(record->config, JSON_REJECT_DUPLICATES, NULL);
        json_t *manifest = json_loads(record->manifest, JSON_REJECT_DUPLICATES, NULL);
        json_t *root = json_pack("{s:s, s:o, s:I, s:s, s:o, s:I, s:o, s:o}", "id", record->id,
                "names", names_json(home, record->id), "created_ns", (json_int_t)record->created_ns,
                "architecture", record->architecture, "os",
                member(config, "os", json_string("linux")), "disk_bytes",
                (json_int_t)record->disk_bytes, "config", member(config, "config", json_object()),
                "layers", member(manifest, "layers", json_array()));
        json_decref(config);
        json_decref(manifest);
        char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        return text;
}

int cubby_image_inspect(cubby *host, const char *image, char **ret_json, cubby_error *err)
{
        struct image_record record = {0};
        if (need(host, "cubby", err) < 0 || need(image, "image", err) < 0 ||
                need(ret_json, "ret_json", err) < 0 ||
                image_find(host->home, image, &record, err) < 0)
                return -1;
        char *text = inspect(host->home, &record);
        image_record_clear(&record);
        if (text == NULL)
                return cubby_error_no_memory(err);
        *ret_json = text;
        return 0;
}

int cubby_image_remove(cubby *host, const char *image, bool force, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(image, "image", err) < 0)
                return -1;
        return image_remove(host->home, image, force, err);
}

int cubby_image_tag(cubby *host, const char *image, const char *name, cubby_error *err)
{
        AUTO_FREE char *normal = NULL;
        struct image_record record = {0};
        if (need(host, "cubby", err) < 0 || need(image, "image", err) < 0 ||
                need(name, "name", err) < 0 || image_name_normalize(name, &normal, err) < 0 ||
                image_find(host->home, image, &record, err) < 0)
                return -1;
        int result = image_record_tag(host->home, record.id, normal, err);
        image_record_clear(&record);
        return result;
}
