/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

/*
 * What a provider is told in YAML, section `sandbox:`, as checked options.
 * docs/provider.md lists the keys. A mistake names file, line, key and what is
 * allowed; an unknown key names the nearest known one.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_BYTES_MAX (1U << 20)
#define CONFIG_ITEMS_MAX 1024U /* of a list or mapping */
#define CONFIG_DEPTH_MAX 32U   /* lists and mappings within each other */
#define CONFIG_ANCHORS_MAX 64U
#define CONFIG_WARMUPS_MAX 15U        /* one of a template's sixteen is the provider's own */
#define CONFIG_WARMUP_BYTES_MAX 4096U /* of one */

enum config_policy { CONFIG_SOFT, CONFIG_WAIT, CONFIG_REJECT, CONFIG_BURST };

struct provider_config {
        char *image;
        uint32_t memory_mib, disk_mib, cpu_milli;
        uint32_t replicas, burst_limit, max_boxes, spares;
        int64_t idle_ms, skip_ms, acquire_ms, renewal_ms;
        uint32_t ttl_multiplier;
        uint32_t policy;    /* enum config_policy */
        char **environment; /* NAME=VALUE, ends with NULL; NULL: none */
        char **warmup;      /* command lines; NULL: automatic */
        char *engine, *accel;
        char *pool; /* prefix */
        char *network;
        char *user, *workdir; /* NULL: the image's */
};

void provider_config_clear(struct provider_config *config);
/* All defaults. */
int provider_config_defaults(struct provider_config *ret, cubby_error *err);
/*
 * Reads a text; `name` stands for it in messages. Lines that the user should
 * see are appended to `warnings`. Without a section `sandbox` all is default.
 */
int provider_config_parse(const char *text, size_t size, const char *name,
        struct provider_config *ret, struct buffer *warnings, cubby_error *err);
int provider_config_read(
        const char *path, struct provider_config *ret, struct buffer *warnings, cubby_error *err);

#endif
