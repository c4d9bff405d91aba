/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

/*
 * From a source (OCI layout, docker-archive, plain tar) to a verified image with
 * a read-only root file system disk. Entries of a layer never touch the host's
 * file system: layers are merged in memory as a tree of metadata, file contents
 * go straight into the disk image (EROFS, uncompressed).
 */

#include "base/error.h"
#include "state/records.h"

#include <stdint.h>

/* Ceilings; docs/images.md lists them under these names. */
#define LIMIT_MANIFEST_BYTES (4U << 20)
#define LIMIT_CONFIG_BYTES (1U << 20)
#define LIMIT_INDEX_ENTRIES 1000U
#define LIMIT_INDEX_DEPTH 3U
#define LIMIT_LAYERS 256U
#define LIMIT_MEMBERS 16384U            /* files in the tar of a layout or docker-archive */
#define LIMIT_LAYER_BYTES (64ULL << 30) /* unpacked, per image, holes included */
#define LIMIT_EXPANSION 200U            /* unpacked : packed, beyond the first 64 MiB */
#define LIMIT_ENTRIES 4000000U          /* per image */
#define LIMIT_PATH_DEPTH 256U
#define LIMIT_PATH_BYTES 4096U
#define LIMIT_XATTR_BYTES (64U * 1024U)     /* per entry */
#define LIMIT_METADATA_BYTES (512ULL << 20) /* names, link targets and attributes, per image */

/*
 * Stages: "open" (detail: the source), "layer" (detail: the layer's diff id, or a tar's
 * name; done and total in stored bytes of all layers), "disk" (detail: the image's id).
 */
typedef void (*image_progress)(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total);

struct image_import_options {
        const char *name;     /* NULL: from the source */
        const char *platform; /* NULL: "linux/amd64" */
        int64_t timeout_ms;   /* 0: none */
        image_progress progress;
        void *progress_data;
};

/* Publishes rootfs/HEX/disk.erofs and the record. On failure nothing is published. */
int image_import(struct home *home, const char *source, const struct image_import_options *options,
        struct image_record *ret, cubby_error *err);

/* "python" -> "docker.io/library/python:latest"; CUBBY_E_INVALID names the rule. Caller frees. */
int image_name_normalize(const char *name, char **ret, cubby_error *err);

/* The record of `image`: a name in any form, an id, or a unique hex prefix. A name wins. */
int image_find(struct home *home, const char *image, struct image_record *ret, cubby_error *err);

/* The read-only disk of an image, opened O_RDONLY. CUBBY_E_CORRUPT when it is missing. */
int image_open_rootfs(struct home *home, const char *image_id, int *ret_fd, cubby_error *err);

/* Removes name or image, and the rootfs when no record uses it any more. */
int image_remove(struct home *home, const char *image, bool force, cubby_error *err);
/* Removes rootfs disks and blobs without a record; returns the bytes freed. */
int image_gc(struct home *home, uint64_t *ret_bytes, cubby_error *err);

/* What of an image's config a box needs. Lists are NULL-terminated. */
struct image_runtime {
        char **env;
        char **entrypoint;
        char **command;
        char *workdir;     /* "" when unset */
        char *user;        /* "" when unset */
        char *stop_signal; /* "" when unset */
};
int image_runtime_parse(const char *config_json, struct image_runtime *ret, cubby_error *err);
void image_runtime_clear(struct image_runtime *runtime);

#endif
