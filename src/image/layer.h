/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_LAYER_H
#define IMAGE_LAYER_H

/* One layer: its bytes are verified while its entries go into tree and disk. */

#include "image/disk.h"
#include "image/stream.h"
#include "image/tree.h"

struct layer {
        struct blob blob;
        const char *digest;  /* expected of the stored bytes; NULL: unknown */
        const char *diff_id; /* expected of the unpacked bytes; NULL: unknown */
        bool whole_tar;      /* not content-addressed: the end-of-archive mark must be there */
        void (*progress)(void *data, uint64_t packed_done); /* may be NULL */
        void *progress_data;
};

struct layer_result {
        char digest[DIGEST_BYTES];
        char diff_id[DIGEST_BYTES];
        uint64_t unpacked_bytes;
};

/* A failure leaves tree and disk half changed: they can only be thrown away. */
int layer_apply(const struct layer *layer, const struct image_limits *limits,
        struct image_usage *usage, struct tree *tree, struct disk *disk, struct layer_result *ret,
        cubby_error *err);

#endif
