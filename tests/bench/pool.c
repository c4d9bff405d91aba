/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pool's own work, over boxes that cost nothing: pairs of acquire and release a
 * second on one thread, with 10 and with 10,000 warm boxes around.
 */
#include "base/cleanup.h"
#include "base/fd.h"
#include "pool/pool.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAIRS 300000

static uint64_t made;

static int make(
        void *data, const struct source_wish *wish, struct source_box *ret, cubby_error *err)
{
        *ret = (struct source_box){.handle = &made, .served = SERVED_BOOTED};
        (void)snprintf(ret->box_id, sizeof ret->box_id, "%032" PRIx64, ++made);
        return 0;
}

static int list(void *data, const char *pool, const char *id, struct source_item **ret,
        size_t *ret_count, cubby_error *err)
{
        *ret = NULL;
        *ret_count = 0;
        return 0;
}

static int check(void *data, void *handle, int64_t timeout_ms, cubby_error *err)
{
        return 0;
}

static bool closed(void *data, void *handle)
{
        return false;
}

static void park(void *data, void *handle, int64_t timeout_ms)
{
}

static int destroy(void *data, const char *box_id, cubby_error *err)
{
        return 0;
}

static void *share(void *data, void *handle, uint64_t generation)
{
        return handle;
}

static void nothing(void *data, void *handle)
{
}

static double now_s(void)
{
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int turn(struct pool *pool, unsigned number, char id[TOKEN_SIZE])
{
        char thread[16];
        (void)snprintf(thread, sizeof thread, "%u", number);
        struct pool_key key = {.user = (const uint8_t *)"u",
                .user_size = 1,
                .thread = (const uint8_t *)thread,
                .thread_size = strlen(thread)};
        struct pool_order order = {.key = &key};
        struct pool_acquired acquired;
        if (pool_acquire(pool, &order, &acquired, NULL) < 0)
                return -1;
        memcpy(id, acquired.id, TOKEN_SIZE);
        return pool_release(pool, id, NULL);
}

static int measure(struct home *home, unsigned warm)
{
        struct pool_options options = {.prefix = "bench",
                .replicas = 20000,
                .idle_ms = 600000,
                .skip_ms = 600000,
                .check_ms = 5000,
                .acquire_ms = 30000,
                .renewal_ms = 30000,
                .ttl_multiplier = 4,
                .threads = 1};
        struct pool_parts parts = {.home = home,
                .clock = pool_clock_host(),
                .source = {.create = make,
                        .list = list,
                        .check = check,
                        .closed = closed,
                        .park = park,
                        .destroy = destroy,
                        .share = share,
                        .doom = nothing,
                        .forget_shared = nothing,
                        .forget = nothing}};
        struct pool *pool = NULL;
        cubby_error err = {0};
        char id[TOKEN_SIZE];
        if (pool_open(&options, &parts, &pool, &err) < 0) {
                (void)fprintf(stderr, "%s\n", err.message);
                return 1;
        }
        for (unsigned i = 0; i < warm; i++)
                if (turn(pool, i, id) < 0)
                        return 1;
        double begun = now_s();
        for (unsigned i = 0; i < PAIRS; i++)
                if (turn(pool, i % (warm < 10 ? warm : 10), id) < 0)
                        return 1;
        double took = now_s() - begun;
        (void)printf("%6u warm: %9.0f pairs of acquire and release a second, %.2f us each\n", warm,
                PAIRS / took, took * 1e6 / PAIRS);
        (void)pool_shutdown(pool, 120000, NULL, NULL);
        pool_close(pool);
        return 0;
}

int main(void)
{
        char path[] = "/tmp/cubby-bench-XXXXXX";
        struct home *home = NULL;
        cubby_error err = {0};
        if (mkdtemp(path) == NULL || home_open(path, NULL, &home, &err) < 0)
                return 1;
        int result = measure(home, 10) + measure(home, 1000) + measure(home, 10000);
        home_close(home);
        (void)dir_remove_at(AT_FDCWD, path, NULL);
        return result;
}
