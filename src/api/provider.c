/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "pool/provider.h"

#include <string.h>

int cubby_provider_open(
        cubby *host, const cubby_provider_options *options, cubby_provider **ret, cubby_error *err)
{
        cubby_provider_options read;
        if (need(host, "cubby", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return provider_open(host, &read, ret, err);
}

void cubby_provider_close(cubby_provider *provider)
{
        provider_close(provider);
}

const char *cubby_served_name(int served)
{
        switch (served) {
        case CUBBY_SERVED_REUSED:
                return "reused";
        case CUBBY_SERVED_RECLAIMED:
                return "reclaimed";
        case CUBBY_SERVED_SPARE:
                return "spare";
        case CUBBY_SERVED_CLONED:
                return "cloned";
        case CUBBY_SERVED_BOOTED:
                return "booted";
        default:
                return "unknown";
        }
}

static int check_acquire(const cubby_acquire_options *options, cubby_error *err)
{
        if ((options->user == NULL && options->user_size > 0) ||
                (options->thread == NULL && options->thread_size > 0))
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the user or thread is NULL but has a size");
        if (options->no_user && (options->user_size > 0 || options->thread == NULL))
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "no_user goes with a thread and an empty user");
        if (options->timeout_ms < 0)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the timeout must be from 1 ms, or 0 for the configured one");
        return 0;
}

static struct pool_order order_of(const cubby_acquire_options *options, struct pool_key *key)
{
        *key = (struct pool_key){.user = options->user,
                .user_size = options->user_size,
                .thread = options->thread,
                .thread_size = options->thread_size};
        return (struct pool_order){.key = options->thread == NULL ? NULL : key,
                .timeout_ms = options->timeout_ms,
                .trace = options->trace,
                .no_user = options->no_user};
}

static void show(const struct pool_acquired *acquired, cubby_acquired *ret)
{
        cubby_acquired shown = {.served = (int)acquired->served,
                .fresh = acquired->fresh,
                .generation = acquired->generation,
                .box = acquired->shared};
        memcpy(shown.id, acquired->id, sizeof shown.id);
        *ret = shown;
}

int cubby_provider_acquire(cubby_provider *provider, const cubby_acquire_options *options,
        cubby_acquired *ret, cubby_error *err)
{
        cubby_acquire_options read;
        struct pool_key key;
        struct pool_acquired acquired;
        if (need(provider, "provider", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0 || check_acquire(&read, err) < 0)
                return -1;
        struct pool_order order = order_of(&read, &key);
        if (pool_acquire(provider->pool, &order, &acquired, err) < 0)
                return -1;
        show(&acquired, ret);
        return 0;
}

int cubby_provider_acquire_async(cubby_provider *provider, const cubby_acquire_options *options,
        cubby_request **ret, cubby_error *err)
{
        cubby_acquire_options read;
        struct pool_key key;
        struct pool_request *request = NULL;
        if (need(provider, "provider", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0 || check_acquire(&read, err) < 0)
                return -1;
        struct pool_order order = order_of(&read, &key);
        if (pool_acquire_async(provider->pool, &order, &request, err) < 0)
                return -1;
        *ret = (cubby_request *)request;
        return 0;
}

int cubby_request_fd(const cubby_request *request)
{
        return request == NULL ? -1 : pool_request_fd((const struct pool_request *)request);
}

int cubby_request_finish(
        cubby_request *request, int64_t timeout_ms, cubby_acquired *ret, cubby_error *err)
{
        struct pool_acquired acquired;
        if (need(request, "request", err) < 0 || need(ret, "ret", err) < 0 ||
                pool_request_finish((struct pool_request *)request, timeout_ms, &acquired, err) < 0)
                return -1;
        show(&acquired, ret);
        return 0;
}

void cubby_request_cancel(cubby_request *request)
{
        if (request != NULL)
                pool_request_cancel((struct pool_request *)request);
}

void cubby_request_close(cubby_request *request)
{
        pool_request_close((struct pool_request *)request);
}

int cubby_provider_get(cubby_provider *provider, const char *id, cubby_box **ret, cubby_error *err)
{
        struct pool_acquired acquired;
        if (need(provider, "provider", err) < 0 || need(id, "id", err) < 0 ||
                need(ret, "ret", err) < 0 || pool_get(provider->pool, id, &acquired, err) < 0)
                return -1;
        *ret = acquired.shared;
        return 0;
}

int cubby_provider_release(cubby_provider *provider, const char *id, cubby_error *err)
{
        if (need(provider, "provider", err) < 0 || need(id, "id", err) < 0)
                return -1;
        return pool_release(provider->pool, id, err);
}

int cubby_provider_reset(cubby_provider *provider, cubby_error *err)
{
        return need(provider, "provider", err) < 0 ? -1 : pool_reset(provider->pool, err);
}

int cubby_provider_shutdown(
        cubby_provider *provider, int64_t timeout_ms, char **ret_left, cubby_error *err)
{
        if (need(provider, "provider", err) < 0)
                return -1;
        return provider_shutdown(provider, timeout_ms, ret_left, err);
}

int cubby_provider_get_status(
        cubby_provider *provider, cubby_provider_status *ret, cubby_error *err)
{
        if (need(provider, "provider", err) < 0 || need(ret, "ret", err) < 0 ||
                pool_check_process(provider->pool, err) < 0)
                return -1;
        provider_counters(provider, ret);
        return 0;
}

int cubby_scope_token(const void *user, size_t user_size, const void *thread, size_t thread_size,
        char ret[17], cubby_error *err)
{
        struct pool_key key = {
                .user = user, .user_size = user_size, .thread = thread, .thread_size = thread_size};
        if ((user_size > 0 && need(user, "user", err) < 0) ||
                (thread_size > 0 && need(thread, "thread", err) < 0) || need(ret, "ret", err) < 0 ||
                key_check(&key, err) < 0)
                return -1;
        return key_token(&key, ret, err);
}

bool cubby_is_scope_token(const char *text)
{
        return text != NULL && token_valid(text);
}

int cubby_pool_status(cubby *host, const char *pool, char **ret_json, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(ret_json, "ret_json", err) < 0)
                return -1;
        return pools_status(host, pool, ret_json, err);
}

int cubby_pool_drain(
        cubby *host, const char *pool, uint32_t *ret_ended, uint32_t *ret_left, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(pool, "pool", err) < 0)
                return -1;
        return pools_drain(host, pool, ret_ended, ret_left, err);
}

int cubby_pool_release(
        cubby *host, const cubby_provider_options *options, const char *id, cubby_error *err)
{
        cubby_provider_options read;
        struct provider_config config = {0};
        if (need(host, "cubby", err) < 0 || need(id, "id", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0 ||
                provider_configure(host, &read, &config, err) < 0)
                return -1;
        int result = pools_release(host, &config, id, err);
        provider_config_clear(&config);
        return result;
}
