/* SPDX-License-Identifier: Apache-2.0 */
#include "image/plan.h"

#include "image/tree.h"

#include <stdio.h>
#include <string.h>

#define TYPE_CONFIG_OCI "application/vnd.oci.image.config.v1+json"
#define TYPE_CONFIG_DOCKER "application/vnd.docker.container.image.v1+json"
#define TYPE_MANIFEST_OCI "application/vnd.oci.image.manifest.v1+json"
#define TYPE_LAYER_OCI "application/vnd.oci.image.layer.v1.tar"

void plan_clear(struct plan *plan)
{
        free(plan->config);
        free(plan->manifest);
        free(plan->architecture);
        for (size_t i = 0; i < plan->name_count; i++)
                free(plan->names[i]);
        free(plan->names);
        for (size_t i = 0; i < plan->layer_count; i++)
                free(plan->layers[i].member);
        free(plan->layers);
        *plan = (struct plan){0};
}

int json_parse(const void *data, size_t size, const char *what, json_t **ret, cubby_error *err)
{
        json_error_t problem;
        char quoted[QUOTED_MAX];
        json_t *json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &problem);
        if (json == NULL && json_error_code(&problem) == json_error_out_of_memory)
                return cubby_error_no_memory(err);
        if (json == NULL)
                return cubby_error_set(err, CUBBY_E_IMAGE, "the %s is not valid JSON: %s", what,
                        quote_name(quoted, problem.text));
        *ret = json;
        return 0;
}

int descriptor_parse(const json_t *json, struct descriptor *ret, cubby_error *err)
{
        const char *digest = json_string_value(json_object_get(json, "digest"));
        const json_t *size = json_object_get(json, "size");
        const json_t *type = json_object_get(json, "mediaType");
        char quoted[QUOTED_MAX];
        if (digest == NULL)
                return cubby_error_set(err, CUBBY_E_IMAGE, "a descriptor has no digest");
        if (!digest_valid(digest))
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "'%s' is not a digest of the form sha256:HEX", quote_name(quoted, digest));
        if (!json_is_integer(size) || json_integer_value(size) < 0)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the descriptor of %s has no valid size", digest);
        if (type != NULL && !json_is_string(type))
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the descriptor of %s has no valid type", digest);
        *ret = (struct descriptor){.media_type = type == NULL ? "" : json_string_value(type),
                .digest = digest,
                .size = (uint64_t)json_integer_value(size)};
        return 0;
}

int plan_add_name(struct plan *plan, const char *name, cubby_error *err)
{
        AUTO_FREE char *normal = NULL;
        cubby_error ignored;
        if (image_name_normalize(name, &normal, &ignored) < 0)
                return ignored.code == CUBBY_E_NO_MEMORY ? cubby_error_no_memory(err) : 0;
        for (size_t i = 0; i < plan->name_count; i++)
                if (strcmp(plan->names[i], normal) == 0)
                        return 0;
        char **larger = reallocarray(plan->names, plan->name_count + 1, sizeof *plan->names);
        if (larger == NULL)
                return cubby_error_no_memory(err);
        plan->names = larger;
        plan->names[plan->name_count++] = take_ptr(&normal);
        return 0;
}

/* ---- manifest ---- */

static bool layer_type_known(const char *type)
{
        static const char *const types[] = {
                TYPE_LAYER_OCI,
                TYPE_LAYER_OCI "+gzip",
                TYPE_LAYER_OCI "+zstd",
                "application/vnd.docker.image.rootfs.diff.tar",
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "application/vnd.docker.image.rootfs.diff.tar.zstd",
        };
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
                if (strcmp(type, types[i]) == 0)
                        return true;
        return false;
}

static int set_layer(struct plan_layer *layer, const json_t *json, cubby_error *err)
{
        struct descriptor descriptor;
        char quoted[QUOTED_MAX];
        if (descriptor_parse(json, &descriptor, err) < 0)
                return -1;
        if (!layer_type_known(descriptor.media_type))
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "layer %s is of the type '%s', which is not a layer that can be imported",
                        descriptor.digest, quote_name(quoted, descriptor.media_type));
        memcpy(layer->digest, descriptor.digest, sizeof layer->digest);
        layer->size = descriptor.size;
        if (asprintf(&layer->member, "blobs/sha256/%s", descriptor.digest + strlen(DIGEST_PREFIX)) <
                0) {
                layer->member = NULL;
                return cubby_error_no_memory(err);
        }
        return 0;
}

int plan_set_manifest(
        struct plan *plan, const json_t *manifest, struct descriptor *ret_config, cubby_error *err)
{
        const json_t *layers = json_object_get(manifest, "layers");
        struct descriptor config;
        char quoted[QUOTED_MAX];
        if (!json_is_object(manifest) ||
                json_integer_value(json_object_get(manifest, "schemaVersion")) != 2)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the manifest is not of schema version 2");
        /* A document that is both would mean different images to different readers. */
        if (json_object_get(manifest, "manifests") != NULL || !json_is_array(layers))
                return cubby_error_set(err, CUBBY_E_IMAGE, "the manifest has no list of layers");
        size_t count = json_array_size(layers);
        if (count > LIMIT_LAYERS)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image has more than %u layers (LIMIT_LAYERS)", LIMIT_LAYERS);
        if (descriptor_parse(json_object_get(manifest, "config"), &config, err) < 0)
                return cubby_error_wrap(err, "the manifest's config");
        if (strcmp(config.media_type, TYPE_CONFIG_OCI) != 0 &&
                strcmp(config.media_type, TYPE_CONFIG_DOCKER) != 0)
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "this is no container image: its config is of the type '%s'",
                        quote_name(quoted, config.media_type));
        plan->layers = calloc(count == 0 ? 1 : count, sizeof *plan->layers);
        if (plan->layers == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                plan->layer_count++;
                if (set_layer(&plan->layers[i], json_array_get(layers, i), err) < 0)
                        return -1;
        }
        *ret_config = config;
        return 0;
}

int plan_make_manifest(struct plan *plan, cubby_error *err)
{
        AUTO_JSON json_t *layers = json_array();
        bool whole = layers != NULL;
        for (size_t i = 0; i < plan->layer_count && whole; i++)
                whole = json_array_append_new(layers,
                                json_pack("{s:s, s:s, s:I}", "mediaType", TYPE_LAYER_OCI, "digest",
                                        plan->layers[i].diff_id, "size",
                                        (json_int_t)plan->layers[i].size)) == 0;
        AUTO_JSON json_t *manifest = !whole
                ? NULL
                : json_pack("{s:i, s:s, s:{s:s, s:s, s:I}, s:O}", "schemaVersion", 2, "mediaType",
                          TYPE_MANIFEST_OCI, "config", "mediaType", TYPE_CONFIG_OCI, "digest",
                          plan->id, "size", (json_int_t)strlen(plan->config), "layers", layers);
        plan->manifest = manifest == NULL ? NULL : json_dumps(manifest, JSON_COMPACT);
        return plan->manifest == NULL ? cubby_error_no_memory(err) : 0;
}

/* ---- config ---- */

/* "linux/amd64", with or without a variant behind it. */
static bool platform_matches(const char *platform, const char *os, const char *architecture)
{
        size_t os_length = strlen(os);
        size_t architecture_length = strlen(architecture);
        return strncmp(platform, os, os_length) == 0 && platform[os_length] == '/' &&
                strncmp(platform + os_length + 1, architecture, architecture_length) == 0 &&
                (platform[os_length + 1 + architecture_length] == '\0' ||
                        platform[os_length + 1 + architecture_length] == '/');
}

static int check_platform(const json_t *config, const char *platform, cubby_error *err)
{
        const char *os = json_string_value(json_object_get(config, "os"));
        const char *architecture = json_string_value(json_object_get(config, "architecture"));
        char quoted_os[QUOTED_MAX];
        char quoted_architecture[QUOTED_MAX];
        if (os == NULL || architecture == NULL)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the config does not say for which platform it is");
        if (!platform_matches(platform, os, architecture))
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "the image is for %s/%s, not for %s", quote_name(quoted_os, os),
                        quote_name(quoted_architecture, architecture), platform);
        return 0;
}

static int set_diff_ids(struct plan *plan, const json_t *config, cubby_error *err)
{
        const json_t *rootfs = json_object_get(config, "rootfs");
        const json_t *ids = json_object_get(rootfs, "diff_ids");
        const char *type = json_string_value(json_object_get(rootfs, "type"));
        if (!json_is_array(ids) || type == NULL || strcmp(type, "layers") != 0)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the config has no list of layer digests");
        if (json_array_size(ids) != plan->layer_count)
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "the config names %zu layers, the manifest %zu", json_array_size(ids),
                        plan->layer_count);
        for (size_t i = 0; i < plan->layer_count; i++) {
                const char *id = json_string_value(json_array_get(ids, i));
                if (id == NULL || !digest_valid(id))
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "the config's digest of layer %zu is not of the form sha256:HEX",
                                i + 1);
                memcpy(plan->layers[i].diff_id, id, sizeof plan->layers[i].diff_id);
        }
        return 0;
}

int plan_set_config(
        struct plan *plan, const void *text, size_t size, const char *platform, cubby_error *err)
{
        AUTO_JSON json_t *config = NULL;
        if (json_parse(text, size, "config", &config, err) < 0)
                return -1;
        if (!json_is_object(config))
                return cubby_error_set(err, CUBBY_E_IMAGE, "the config is not an object");
        if (check_platform(config, platform, err) < 0 || set_diff_ids(plan, config, err) < 0 ||
                digest_of(text, size, plan->id, err) < 0)
                return -1;
        plan->config = strndup(text, size);
        plan->architecture = strdup(json_string_value(json_object_get(config, "architecture")));
        if (plan->config == NULL || plan->architecture == NULL)
                return cubby_error_no_memory(err);
        /* Refused now rather than when the first box is made. */
        struct image_runtime runtime;
        if (image_runtime_parse(plan->config, &runtime, err) < 0)
                return -1;
        image_runtime_clear(&runtime);
        return 0;
}

int plan_make_config(struct plan *plan, const char *diff_id, uint64_t size, cubby_error *err)
{
        AUTO_JSON json_t *config = json_pack("{s:s, s:s, s:{}, s:{s:s, s:[s]}}", "architecture",
                "amd64", "os", "linux", "config", "rootfs", "type", "layers", "diff_ids", diff_id);
        AUTO_FREE char *text = config == NULL ? NULL : json_dumps(config, JSON_COMPACT);
        plan->layers = calloc(1, sizeof *plan->layers);
        if (text == NULL || plan->layers == NULL)
                return cubby_error_no_memory(err);
        plan->layer_count = 1;
        plan->layers[0].size = size;
        return plan_set_config(plan, text, strlen(text), "linux/amd64", err);
}
