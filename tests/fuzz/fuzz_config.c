/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML of a provider: what is taken is within its ranges, what is not leaves nothing. */

#include "config/config.h"
#include "config/values.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WARNINGS_MAX (16U << 10)
#define YEAR_MS 31622400000LL

static void need(bool good)
{
        if (!good)
                abort();
}

static void check(const struct provider_config *config)
{
        need(config->memory_mib >= 64 && config->memory_mib <= 4194304);
        need(config->disk_mib >= 64 && config->disk_mib <= 16777216);
        need(config->cpu_milli >= 10 && config->cpu_milli <= 255000);
        need(config->replicas >= 1 && config->replicas <= 10000 && config->burst_limit <= 10000);
        need(config->spares <= 64 && config->max_boxes <= 60000);
        need(config->idle_ms >= 0 && config->idle_ms <= YEAR_MS);
        need(config->skip_ms >= 0 && config->skip_ms <= YEAR_MS);
        need(config->acquire_ms >= 1 && config->acquire_ms <= YEAR_MS);
        need(config->renewal_ms >= 100 && config->renewal_ms <= 3600000);
        need(config->ttl_multiplier >= 2 && config->ttl_multiplier <= 100);
        need(config->policy <= CONFIG_BURST);
        need(config->pool != NULL && strlen(config->pool) <= 40 && value_is_pool(config->pool));
        need(config->image != NULL && config->image[0] != '\0');
        need(config->engine != NULL && config->accel != NULL && config->network != NULL);
        need(config->workdir == NULL || config->workdir[0] == '/');
        for (size_t i = 0; config->environment != NULL && config->environment[i] != NULL; i++)
                need(i < CONFIG_ITEMS_MAX && strchr(config->environment[i], '=') != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct provider_config config = {0};
        struct buffer warnings;
        cubby_error err = {0};
        buffer_init(&warnings, WARNINGS_MAX);
        if (provider_config_parse((const char *)data, size, "input", &config, &warnings, &err) ==
                0) {
                check(&config);
                provider_config_clear(&config);
        } else {
                need(err.code != CUBBY_OK && err.message[0] != '\0');
                need(config.image == NULL && config.pool == NULL && config.environment == NULL);
                need(config.warmup == NULL && config.memory_mib == 0 && config.idle_ms == 0);
        }
        buffer_free(&warnings);
        return 0;
}
