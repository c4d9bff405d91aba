/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_LIMITS_H
#define IMAGE_LIMITS_H

/* The ceilings of image.h as values, so that tests can reach them with small input,
 * and how long an import may take. */

#include <stdint.h>

struct image_limits {
        uint64_t layer_bytes;
        uint64_t expansion;
        uint64_t expansion_floor; /* below this many unpacked bytes no ratio is asked for */
        uint64_t entries;
        uint32_t path_depth;
        uint32_t path_bytes;
        uint32_t xattr_bytes;
        uint64_t metadata_bytes; /* names, link targets and attributes of an image */
        int64_t deadline_ms;     /* monotonic; DEADLINE_NEVER: none */
};

extern const struct image_limits image_limits_default;

/* What an image has used of its limits so far; spans all of its layers. */
struct image_usage {
        uint64_t stream_bytes; /* unpacked bytes of the layer streams */
        uint64_t file_bytes;   /* sizes of all files, holes included */
};

#endif
