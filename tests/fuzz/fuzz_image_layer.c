/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's bytes, through decompression and tar, into tree and disk. */

#include "base/clock.h"
#include "base/fd.h"
#include "image/layer.h"

#include <stdlib.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct image_limits limits = {
        .layer_bytes = 4U << 20,
        .expansion = 50,
        .expansion_floor = 1U << 20,
        .entries = 2000,
        .path_depth = 40,
        .path_bytes = 1000,
        .xattr_bytes = 10000,
        .metadata_bytes = 1U << 20,
        .deadline_ms = DEADLINE_NEVER,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const uint8_t uuid[16];
        AUTO_BLOB struct blob blob = {.fd = memfd_create("layer", MFD_CLOEXEC), .size = size};
        AUTO_FD int disk_fd = memfd_create("disk", MFD_CLOEXEC);
        AUTO(tree) struct tree *tree = NULL;
        struct image_usage usage = {0};
        struct layer_result result;
        struct disk disk;
        if (blob.fd < 0 || disk_fd < 0 || write_whole(blob.fd, data, size) < 0 ||
                tree_new(&limits, NULL, NULL, &tree, NULL) < 0)
                return 0;
        struct layer layer = {.blob = blob};
        disk_start(&disk, disk_fd);
        /* Twice: the second time over what the first has left. */
        for (int pass = 0; pass < 2; pass++)
                if (layer_apply(&layer, &limits, &usage, tree, &disk, &result, NULL) < 0)
                        return 0;
        if (disk_finish(&disk, tree, uuid, NULL) == 0 && disk_check(disk_fd, NULL) < 0)
                abort();
        return 0;
}
