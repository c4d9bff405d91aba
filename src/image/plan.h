/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_PLAN_H
#define IMAGE_PLAN_H

/* What a source's metadata says is to be imported: config, manifest, layers, names. */

#include "image/image.h"
#include "image/source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan_layer {
        char *member;               /* its name in the source */
        char digest[DIGEST_BYTES];  /* of the stored bytes; "" when the source does not say */
        char diff_id[DIGEST_BYTES]; /* of the unpacked bytes */
        uint64_t size;              /* stored bytes; valid with `digest` */
};

struct plan {
        char id[DIGEST_BYTES]; /* of the config */
        char *config;
        char *manifest; /* NULL: to be made from config and layers */
        char *architecture;
        char **names; /* normalised; may be none */
        size_t name_count;
        struct plan_layer *layers; /* lowest first */
        size_t layer_count;
};

void plan_clear(struct plan *plan);
static inline void cleanup_plan(struct plan *plan)
{
        plan_clear(plan);
}
#define AUTO_PLAN __attribute__((cleanup(cleanup_plan)))

/* A reference to other content, checked: a digest that can be verified, a sane size. */
struct descriptor {
        const char *media_type; /* "" when there is none; lives as long as the JSON */
        const char *digest;
        uint64_t size;
};

/* JSON of a known kind of document; `what` names it in errors. */
int json_parse(const void *data, size_t size, const char *what, json_t **ret, cubby_error *err);
static inline void cleanup_json(json_t **json)
{
        json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json)))

int descriptor_parse(const json_t *json, struct descriptor *ret, cubby_error *err);

/* Adds a name; one that breaks the rules is left out, a known one is not repeated. */
int plan_add_name(struct plan *plan, const char *name, cubby_error *err);
/* The layers of an image manifest, and its config's descriptor (into `manifest`). */
int plan_set_manifest(
        struct plan *plan, const json_t *manifest, struct descriptor *ret_config, cubby_error *err);
/* Config: platform and one diff id per layer. Sets id, config and architecture. */
int plan_set_config(
        struct plan *plan, const void *text, size_t size, const char *platform, cubby_error *err);
/* Makes the manifest where the source has none of this form. */
int plan_make_manifest(struct plan *plan, cubby_error *err);
/* Config of a tar that has none: one layer, nothing to run. */
int plan_make_config(struct plan *plan, const char *diff_id, uint64_t size, cubby_error *err);

/* `name` (may be NULL) chooses among several images of one source. */
int plan_from_layout(const struct source *source, const char *name, const char *platform,
        struct plan *ret, cubby_error *err);
int plan_from_docker_archive(const struct source *source, const char *name, const char *platform,
        struct plan *ret, cubby_error *err);

#endif
