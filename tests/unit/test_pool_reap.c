/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

static void test_idle_boxes_end(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        struct pool_acquired b = take(world, pool, "b");
        give(pool, a.id);
        world_forward(world, options.idle_ms - 1);
        pool_reap(pool);
        assert_non_null(world_find(world, a.id));
        world_forward(world, 1);
        pool_reap(pool);
        assert_null(world_find(world, a.id));
        assert_non_null(world_find(world, b.id)); /* active ones never */
        assert_int_equal(status_of(pool).counters[COUNT_REAPED], 1);
        assert_true(take(world, pool, "a").fresh);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_zero_is_never(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.idle_ms = 0;
        struct pool *pool = world_pool(world, &options);
        give(pool, take(world, pool, "a").id);
        world_forward(world, 366LL * 24 * 3600 * 1000);
        pool_reap(pool);
        assert_int_equal(status_of(pool).warm, 1);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

/* The pool's own thread is never later than a tenth of the timeout, also for a box that
 * was released while it slept. */
static void test_the_reaper_is_in_time(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.no_background = false;
        options.idle_ms = 10000;
        struct pool *pool = world_pool(world, &options);
        give(pool, take(world, pool, "a").id);
        world_forward(world, 9999);
        give(pool, take(world, pool, "a").id); /* used again: its time begins anew */
        world_forward(world, 9999);
        assert_int_equal(status_of(pool).warm, 1);
        world_forward(world, 1);
        int64_t end = clock_monotonic_ms() + SOON_MS;
        while (world_alive(world) > 0)
                assert_true(clock_monotonic_ms() < end);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

/* The box knows itself how long it may wait, for the day that no provider lives. */
static void test_the_box_is_told(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        pool_flush(pool);
        assert_int_equal(world_find(world, a.id)->parked_for_ms, -1);
        give(pool, a.id);
        pool_flush(pool);
        assert_int_equal(world_find(world, a.id)->parked_for_ms, options.idle_ms * 3 / 2);
        (void)take(world, pool, "a");
        pool_flush(pool);
        assert_int_equal(world_find(world, a.id)->parked_for_ms, 0);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_a_box_that_does_not_end(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        give(pool, take(world, pool, "a").id);
        world->destroy_fails = true;
        world_forward(world, options.idle_ms);
        pool_reap(pool);
        assert_int_equal(status_of(pool).reserved, 1); /* its place stays taken */
        world->destroy_fails = false;
        pool_reap(pool); /* not at once again */
        assert_int_equal(status_of(pool).reserved, 1);
        world_forward(world, 1000);
        pool_reap(pool);
        assert_int_equal(status_of(pool).reserved, 0);
        assert_int_equal(world_alive(world), 0);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_idle_boxes_end),
                WITH_WORLD(test_zero_is_never),
                WITH_WORLD(test_the_reaper_is_in_time),
                WITH_WORLD(test_the_box_is_told),
                WITH_WORLD(test_a_box_that_does_not_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
