/* SPDX-License-Identifier: Apache-2.0 */
#include "image/plan.h"

#include "image/tree.h"

#include <string.h>

/*
 * What `docker save` writes: manifest.json is a list of images, each with the names
 * of its config and layer files. Nothing but the config's diff ids vouches for the
 * layers, and nothing but its file name for the config.
 */

static bool image_is(const json_t *image, const char *wanted)
{
        const json_t *tags = json_object_get(image, "RepoTags");
        for (size_t i = 0; i < json_array_size(tags); i++) {
                const char *tag = json_string_value(json_array_get(tags, i));
                AUTO_FREE char *normal = NULL;
                if (tag != NULL && image_name_normalize(tag, &normal, NULL) == 0 &&
                        strcmp(normal, wanted) == 0)
                        return true;
        }
        return false;
}

static const json_t *choose(const json_t *images, const char *wanted, cubby_error *err)
{
        size_t count = json_array_size(images);
        if (!json_is_array(images) || count == 0) {
                (void)cubby_error_set(err, CUBBY_E_IMAGE, "manifest.json is not a list of images");
                return NULL;
        }
        if (count > LIMIT_INDEX_ENTRIES) {
                (void)cubby_error_set(err, CUBBY_E_LIMIT,
                        "manifest.json has more than %u images (LIMIT_INDEX_ENTRIES)",
                        LIMIT_INDEX_ENTRIES);
                return NULL;
        }
        if (count == 1)
                return json_array_get(images, 0);
        for (size_t i = 0; i < count && wanted != NULL; i++)
                if (image_is(json_array_get(images, i), wanted))
                        return json_array_get(images, i);
        (void)cubby_error_set(err, CUBBY_E_INVALID,
                "the archive holds %zu images; choose one by its name", count);
        return NULL;
}

static int set_layers(struct plan *plan, const json_t *layers, cubby_error *err)
{
        size_t count = json_array_size(layers);
        if (!json_is_array(layers))
                return cubby_error_set(err, CUBBY_E_IMAGE, "manifest.json has no list of layers");
        if (count > LIMIT_LAYERS)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image has more than %u layers (LIMIT_LAYERS)", LIMIT_LAYERS);
        plan->layers = calloc(count == 0 ? 1 : count, sizeof *plan->layers);
        if (plan->layers == NULL)
                return cubby_error_no_memory(err);
        plan->layer_count = count;
        for (size_t i = 0; i < count; i++) {
                const char *name = json_string_value(json_array_get(layers, i));
                if (name == NULL)
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "layer %zu in manifest.json has no name", i + 1);
                plan->layers[i].member = strdup(name);
                if (plan->layers[i].member == NULL)
                        return cubby_error_no_memory(err);
        }
        return 0;
}

/* "HEX.json" or ".../HEX" says which digest the config has. */
static int check_config_name(const char *name, const char *id, cubby_error *err)
{
        const char *slash = strrchr(name, '/');
        const char *hex = slash == NULL ? name : slash + 1;
        size_t length = strspn(hex, "0123456789abcdef");
        if (length == 64 && (hex[64] == '\0' || strcmp(hex + 64, ".json") == 0) &&
                memcmp(hex, id + strlen(DIGEST_PREFIX), 64) != 0)
                return cubby_error_set(
                        err, CUBBY_E_DIGEST, "the config is %s, not sha256:%.64s", id, hex);
        return 0;
}

static int set_config(const struct source *source, const json_t *image, const char *platform,
        struct plan *plan, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        const char *name = json_string_value(json_object_get(image, "Config"));
        buffer_init(&text, LIMIT_CONFIG_BYTES);
        if (name == NULL)
                return cubby_error_set(err, CUBBY_E_IMAGE, "manifest.json names no config");
        if (source_read(source, name, "LIMIT_CONFIG_BYTES", &text, err) < 0 ||
                plan_set_config(plan, text.data, text.size, platform, err) < 0)
                return -1;
        return check_config_name(name, plan->id, err);
}

static int set_sizes(const struct source *source, struct plan *plan, cubby_error *err)
{
        for (size_t i = 0; i < plan->layer_count; i++) {
                AUTO_BLOB struct blob blob = BLOB_NONE;
                if (source_blob(source, plan->layers[i].member, &blob, err) < 0)
                        return cubby_error_wrap(err, "layer %zu", i + 1);
                plan->layers[i].size = blob.size;
        }
        return 0;
}

int plan_from_docker_archive(const struct source *source, const char *name, const char *platform,
        struct plan *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        AUTO_JSON json_t *images = NULL;
        AUTO_PLAN struct plan plan = {0};
        buffer_init(&text, LIMIT_MANIFEST_BYTES);
        if (source_read(source, "manifest.json", "LIMIT_MANIFEST_BYTES", &text, err) < 0 ||
                json_parse(text.data, text.size, "file manifest.json", &images, err) < 0)
                return -1;
        const json_t *image = choose(images, name, err);
        if (image == NULL || set_layers(&plan, json_object_get(image, "Layers"), err) < 0 ||
                set_config(source, image, platform, &plan, err) < 0 ||
                set_sizes(source, &plan, err) < 0 || plan_make_manifest(&plan, err) < 0)
                return -1;
        const json_t *tags = json_object_get(image, "RepoTags");
        if (json_array_size(tags) > LIMIT_INDEX_ENTRIES)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image has more than %u names (LIMIT_INDEX_ENTRIES)",
                        LIMIT_INDEX_ENTRIES);
        for (size_t i = 0; i < json_array_size(tags); i++) {
                const char *tag = json_string_value(json_array_get(tags, i));
                if (tag != NULL && plan_add_name(&plan, tag, err) < 0)
                        return -1;
        }
        *ret = plan;
        plan = (struct plan){0};
        return 0;
}
