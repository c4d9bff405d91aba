/* SPDX-License-Identifier: Apache-2.0 */
#include "image/plan.h"

#include "image/tree.h"

#include <stdio.h>
#include <string.h>

#define ANNOTATION_NAME "io.containerd.image.name"
#define ANNOTATION_REF "org.opencontainers.image.ref.name"

/* One usable manifest of the top index, with the names that it is given there. */
struct candidate {
        struct descriptor descriptor;
        const char *full_name; /* "" when there is none */
        const char *ref;       /* a full name or only a tag; "" when there is none */
};

static bool is_index_type(const char *type)
{
        return strcmp(type, "application/vnd.oci.image.index.v1+json") == 0 ||
                strcmp(type, "application/vnd.docker.distribution.manifest.list.v2+json") == 0;
}

static bool is_manifest_type(const char *type)
{
        return strcmp(type, "application/vnd.oci.image.manifest.v1+json") == 0 ||
                strcmp(type, "application/vnd.docker.distribution.manifest.v2+json") == 0;
}

/* True unless the entry names another platform. */
static bool entry_matches(const json_t *entry, const char *platform)
{
        const json_t *wanted = json_object_get(entry, "platform");
        const char *os = json_string_value(json_object_get(wanted, "os"));
        const char *architecture = json_string_value(json_object_get(wanted, "architecture"));
        const char *slash = strchrnul(platform, '/');
        size_t length = strcspn(*slash == '\0' ? slash : slash + 1, "/");
        if (wanted == NULL)
                return true;
        return os != NULL && architecture != NULL && strlen(os) == (size_t)(slash - platform) &&
                strncmp(os, platform, strlen(os)) == 0 && *slash != '\0' &&
                strlen(architecture) == length && strncmp(architecture, slash + 1, length) == 0;
}

static const char *annotation(const json_t *entry, const char *key)
{
        const char *value =
                json_string_value(json_object_get(json_object_get(entry, "annotations"), key));
        return value == NULL ? "" : value;
}

/* The entries of an index that may be the image; the array has room for all. */
static int list_candidates(const json_t *index, const char *platform, struct candidate **ret,
        size_t *ret_count, cubby_error *err)
{
        const json_t *entries = json_object_get(index, "manifests");
        const json_t *version = json_object_get(index, "schemaVersion");
        if (!json_is_object(index) || !json_is_array(entries) ||
                json_object_get(index, "layers") != NULL || json_integer_value(version) != 2)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the index is not a list of manifests of version 2");
        size_t total = json_array_size(entries);
        if (total > LIMIT_INDEX_ENTRIES)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the index has more than %u entries (LIMIT_INDEX_ENTRIES)",
                        LIMIT_INDEX_ENTRIES);
        AUTO_FREE struct candidate *list = calloc(total == 0 ? 1 : total, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        size_t count = 0;
        for (size_t i = 0; i < total; i++) {
                const json_t *entry = json_array_get(entries, i);
                struct candidate candidate = {.full_name = annotation(entry, ANNOTATION_NAME),
                        .ref = annotation(entry, ANNOTATION_REF)};
                if (descriptor_parse(entry, &candidate.descriptor, err) < 0)
                        return cubby_error_wrap(err, "entry %zu of the index", i + 1);
                const char *type = candidate.descriptor.media_type;
                if ((is_index_type(type) || is_manifest_type(type)) &&
                        entry_matches(entry, platform))
                        list[count++] = candidate;
        }
        *ret = take_ptr(&list);
        *ret_count = count;
        return 0;
}

/* The full name of a candidate, as far as its source says; *ret may stay NULL. */
static int candidate_name(const struct source *source, const struct candidate *candidate,
        char **ret, cubby_error *err)
{
        char *name = NULL;
        if (candidate->full_name[0] != '\0')
                name = strdup(candidate->full_name);
        else if (strpbrk(candidate->ref, "/:") != NULL)
                name = strdup(candidate->ref);
        else if (source_stem(source)[0] == '\0')
                return 0;
        else if (asprintf(&name, "%s%s%s", source_stem(source),
                         candidate->ref[0] == '\0' ? "" : ":", candidate->ref) < 0)
                name = NULL;
        if (name == NULL)
                return cubby_error_no_memory(err);
        *ret = name;
        return 0;
}

static bool candidate_is(
        const struct source *source, const struct candidate *candidate, const char *wanted)
{
        AUTO_FREE char *name = NULL;
        AUTO_FREE char *normal = NULL;
        const char *tag = strrchr(wanted, ':');
        if (tag != NULL && candidate->ref[0] != '\0' && strcmp(tag + 1, candidate->ref) == 0)
                return true;
        return candidate_name(source, candidate, &name, NULL) == 0 && name != NULL &&
                image_name_normalize(name, &normal, NULL) == 0 && strcmp(normal, wanted) == 0;
}

/* Chooses by name when there are several, and keeps only entries of one digest. */
static int choose(const struct source *source, const char *wanted, struct candidate *list,
        size_t *count, cubby_error *err)
{
        size_t chosen = 0;
        bool several = false;
        for (size_t i = 1; i < *count; i++)
                several |= strcmp(list[i].descriptor.digest, list[0].descriptor.digest) != 0;
        if (!several)
                return 0;
        for (size_t i = 0; i < *count && wanted != NULL; i++)
                if (candidate_is(source, &list[i], wanted))
                        list[chosen++] = list[i];
        for (size_t i = 1; i < chosen; i++)
                if (strcmp(list[i].descriptor.digest, list[0].descriptor.digest) != 0)
                        chosen = 0;
        if (chosen == 0)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the layout holds %zu images; choose one by its name or tag", *count);
        *count = chosen;
        return 0;
}

static int read_document(const struct source *source, const struct descriptor *descriptor,
        const char *what, struct buffer *text, json_t **ret, cubby_error *err)
{
        char digest[DIGEST_BYTES];
        char name[sizeof "blobs/sha256/" + DIGEST_BYTES];
        AUTO_JSON json_t *json = NULL;
        (void)snprintf(
                name, sizeof name, "blobs/sha256/%s", descriptor->digest + strlen(DIGEST_PREFIX));
        if (source_read(source, name, "LIMIT_MANIFEST_BYTES", text, err) < 0 ||
                digest_of(text->data, text->size, digest, err) < 0)
                return -1;
        if (text->size != descriptor->size || strcmp(digest, descriptor->digest) != 0)
                return cubby_error_set(err, CUBBY_E_DIGEST,
                        "the %s is %s of %zu bytes, not %s of %llu", what, digest, text->size,
                        descriptor->digest, (unsigned long long)descriptor->size);
        if (json_parse(text->data, text->size, what, &json, err) < 0)
                return -1;
        const json_t *type = json_object_get(json, "mediaType");
        if (type != NULL && descriptor->media_type[0] != '\0' &&
                (!json_is_string(type) ||
                        strcmp(json_string_value(type), descriptor->media_type) != 0))
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "the %s says that it is of another type than its descriptor", what);
        *ret = take_ptr(&json);
        return 0;
}

/* Follows nested indexes down to the manifest's text and JSON. */
static int read_manifest(const struct source *source, const struct descriptor *from,
        const char *platform, struct buffer *text, json_t **ret, cubby_error *err)
{
        AUTO_JSON json_t *held = NULL; /* what `next` points into */
        struct descriptor next = *from;
        for (unsigned int depth = 1; is_index_type(next.media_type); depth++) {
                AUTO_JSON json_t *index = NULL;
                AUTO_FREE struct candidate *list = NULL;
                size_t count = 0;
                if (depth >= LIMIT_INDEX_DEPTH)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "indexes are nested deeper than %u (LIMIT_INDEX_DEPTH)",
                                LIMIT_INDEX_DEPTH);
                buffer_clear(text);
                if (read_document(source, &next, "index", text, &index, err) < 0 ||
                        list_candidates(index, platform, &list, &count, err) < 0)
                        return -1;
                if (count == 0)
                        return cubby_error_set(
                                err, CUBBY_E_UNSUPPORTED, "there is no image for %s", platform);
                next = list[0].descriptor;
                json_decref(held);
                held = take_ptr(&index);
        }
        buffer_clear(text);
        return read_document(source, &next, "manifest", text, ret, err);
}

static int read_config(const struct source *source, const struct descriptor *descriptor,
        const char *platform, struct plan *plan, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        char name[sizeof "blobs/sha256/" + DIGEST_BYTES];
        buffer_init(&text, LIMIT_CONFIG_BYTES);
        (void)snprintf(
                name, sizeof name, "blobs/sha256/%s", descriptor->digest + strlen(DIGEST_PREFIX));
        if (source_read(source, name, "LIMIT_CONFIG_BYTES", &text, err) < 0)
                return -1;
        char digest[DIGEST_BYTES];
        if (digest_of(text.data, text.size, digest, err) < 0)
                return -1;
        if (strcmp(digest, descriptor->digest) != 0 || text.size != descriptor->size)
                return cubby_error_set(err, CUBBY_E_DIGEST,
                        "the config is %s of %zu bytes, not %s of %llu", digest, text.size,
                        descriptor->digest, (unsigned long long)descriptor->size);
        return plan_set_config(plan, text.data, text.size, platform, err);
}

static int check_layout_version(const struct source *source, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        AUTO_JSON json_t *json = NULL;
        buffer_init(&text, LIMIT_CONFIG_BYTES);
        if (source_read(source, "oci-layout", "LIMIT_CONFIG_BYTES", &text, err) < 0 ||
                json_parse(text.data, text.size, "file oci-layout", &json, err) < 0)
                return -1;
        const char *version = json_string_value(json_object_get(json, "imageLayoutVersion"));
        if (version == NULL || strcmp(version, "1.0.0") != 0)
                return cubby_error_set(
                        err, CUBBY_E_UNSUPPORTED, "the layout is not of version 1.0.0");
        return 0;
}

static int plan_image(const struct source *source, const struct candidate *list, size_t count,
        const char *platform, struct plan *plan, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        AUTO_JSON json_t *manifest = NULL;
        struct descriptor config;
        buffer_init(&text, LIMIT_MANIFEST_BYTES);
        if (read_manifest(source, &list[0].descriptor, platform, &text, &manifest, err) < 0 ||
                plan_set_manifest(plan, manifest, &config, err) < 0 ||
                read_config(source, &config, platform, plan, err) < 0)
                return -1;
        plan->manifest = strndup((const char *)text.data, text.size);
        if (plan->manifest == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                AUTO_FREE char *name = NULL;
                if (candidate_name(source, &list[i], &name, err) < 0)
                        return -1;
                if (name != NULL && plan_add_name(plan, name, err) < 0)
                        return -1;
        }
        return 0;
}

int plan_from_layout(const struct source *source, const char *name, const char *platform,
        struct plan *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        AUTO_JSON json_t *index = NULL;
        AUTO_FREE struct candidate *list = NULL;
        AUTO_PLAN struct plan plan = {0};
        size_t count = 0;
        buffer_init(&text, LIMIT_MANIFEST_BYTES);
        if (check_layout_version(source, err) < 0 ||
                source_read(source, "index.json", "LIMIT_MANIFEST_BYTES", &text, err) < 0 ||
                json_parse(text.data, text.size, "index", &index, err) < 0 ||
                list_candidates(index, platform, &list, &count, err) < 0)
                return -1;
        if (count == 0)
                return cubby_error_set(
                        err, CUBBY_E_UNSUPPORTED, "there is no image for %s", platform);
        if (choose(source, name, list, &count, err) < 0 ||
                plan_image(source, list, count, platform, &plan, err) < 0)
                return -1;
        *ret = plan;
        plan = (struct plan){0};
        return 0;
}
