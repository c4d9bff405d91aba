/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/provider.h"

#include <string.h>
#include <unistd.h>

#define CHECK_MS 5000
#define WARNINGS_MAX (16U << 10)

static void log_warnings(const cubby *host, struct buffer *warnings)
{
        const char *text = buffer_text(warnings);
        while (text != NULL && *text != '\0') {
                size_t length = strcspn(text, "\n");
                log_line(&host->log, LOG_WARNING, "%.*s", (int)length, text);
                text += length + (text[length] == '\n');
        }
}

int provider_configure(cubby *host, const cubby_provider_options *options,
        struct provider_config *ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer warnings;
        buffer_init(&warnings, WARNINGS_MAX);
        int result = 0;
        if (options->config_file != NULL && options->config_text != NULL)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the configuration is a file or a text, not both");
        if (options->config_file != NULL)
                result = provider_config_read(options->config_file, ret, &warnings, err);
        else if (options->config_text != NULL)
                result = provider_config_parse(options->config_text, strlen(options->config_text),
                        "configuration", ret, &warnings, err);
        else
                result = provider_config_defaults(ret, err);
        if (result == 0)
                log_warnings(host, &warnings);
        return result;
}

static struct pool_options options_of(
        const struct provider_config *config, const cubby_provider_options *asked)
{
        static const enum pool_policy policies[] = {[CONFIG_SOFT] = POLICY_SOFT,
                [CONFIG_WAIT] = POLICY_WAIT,
                [CONFIG_REJECT] = POLICY_REJECT,
                [CONFIG_BURST] = POLICY_BURST};
        struct pool_options options = {.policy = policies[config->policy],
                .replicas = config->replicas,
                .burst_limit = config->burst_limit,
                .max_boxes = config->max_boxes,
                .idle_ms = config->idle_ms,
                .skip_ms = config->skip_ms,
                .check_ms = CHECK_MS,
                .acquire_ms = config->acquire_ms,
                .renewal_ms = config->renewal_ms,
                .ttl_multiplier = config->ttl_multiplier,
                .leave = asked->leave};
        (void)strncpy(options.prefix, config->pool, sizeof options.prefix - 1);
        return options;
}

static int make_link(struct pool_link **ret, cubby_error *err)
{
        struct pool_link *link = calloc(1, sizeof *link);
        if (link == NULL)
                return cubby_error_no_memory(err);
        atomic_init(&link->references, 1);
        (void)pthread_rwlock_init(&link->lock, NULL);
        *ret = link;
        return 0;
}

DEFINE_AUTO(cubby_provider, provider_close)

int provider_open(
        cubby *host, const cubby_provider_options *options, cubby_provider **ret, cubby_error *err)
{
        AUTO(cubby_provider) cubby_provider *provider = calloc(1, sizeof *provider);
        if (provider == NULL)
                return cubby_error_no_memory(err);
        provider->host = host;
        provider->spares_fd = -1;
        (void)pthread_mutex_init(&provider->spares_lock, NULL);
        if (provider_configure(host, options, &provider->config, err) < 0 ||
                make_link(&provider->link, err) < 0)
                return -1;
        struct pool_options chosen = options_of(&provider->config, options);
        struct pool_parts parts = {
                .home = host->home, .clock = pool_clock_host(), .log = host->log};
        struct pool *pool = NULL;
        boxes_source(provider, &parts.source);
        if (pool_open(&chosen, &parts, &pool, err) < 0)
                return -1;
        provider->pool = pool;
        (void)pthread_rwlock_wrlock(&provider->link->lock);
        provider->link->pool = pool;
        (void)pthread_rwlock_unlock(&provider->link->lock);
        *ret = take_ptr(&provider);
        return 0;
}

void provider_close(cubby_provider *provider)
{
        if (provider == NULL)
                return;
        /* a forked child has the parent's locks in any state: it only forgets */
        if (provider->pool != NULL && pool_check_process(provider->pool, NULL) < 0)
                return;
        if (provider->link != NULL) {
                (void)pthread_rwlock_wrlock(&provider->link->lock);
                provider->link->pool = NULL;
                (void)pthread_rwlock_unlock(&provider->link->lock);
        }
        pool_close(provider->pool);
        spares_forget(provider);
        (void)pthread_mutex_destroy(&provider->spares_lock);
        pool_link_drop(provider->link);
        provider_config_clear(&provider->config);
        free(provider);
}

int provider_shutdown(
        cubby_provider *provider, int64_t timeout_ms, char **ret_left, cubby_error *err)
{
        int result = pool_shutdown(provider->pool, timeout_ms, ret_left, err);
        if (pool_check_process(provider->pool, NULL) == 0)
                spares_leave(provider);
        return result;
}

static cubby_latency latency_of(const struct pool_status *status, enum pool_step step)
{
        const struct pool_latency *latency = &status->latencies[step];
        return (cubby_latency){
                .count = latency->count, .total_us = latency->total_us, .max_us = latency->max_us};
}

void provider_counters(cubby_provider *provider, cubby_provider_status *ret)
{
        struct pool_status status;
        pool_get_status(provider->pool, &status);
        const uint64_t *counters = status.counters;
        *ret = (cubby_provider_status){.active = status.active,
                .warm = status.warm,
                .reserved = status.reserved,
                .replicas = status.replicas,
                .queued = status.queued,
                .keys = status.keys,
                .reused = counters[COUNT_REUSED],
                .reclaimed = counters[COUNT_RECLAIMED],
                .skipped = counters[COUNT_SKIPPED],
                .spare = counters[COUNT_SPARE],
                .cloned = counters[COUNT_CLONED],
                .booted = counters[COUNT_BOOTED],
                .failed = counters[COUNT_FAILED],
                .cancelled = counters[COUNT_CANCELLED],
                .waited = counters[COUNT_WAITED],
                .refused = counters[COUNT_REFUSED],
                .adopted = counters[COUNT_ADOPTED],
                .released = counters[COUNT_RELEASED],
                .check_failed = counters[COUNT_CHECK_FAILED],
                .evicted = counters[COUNT_EVICTED],
                .reaped = counters[COUNT_REAPED],
                .invalidated = counters[COUNT_INVALIDATED],
                .lost = counters[COUNT_LOST],
                .acquire = latency_of(&status, STEP_ACQUIRE),
                .reclaim = latency_of(&status, STEP_RECLAIM),
                .check = latency_of(&status, STEP_CHECK),
                .create = latency_of(&status, STEP_CREATE),
                .destroy = latency_of(&status, STEP_DESTROY)};
}
