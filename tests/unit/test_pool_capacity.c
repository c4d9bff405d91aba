/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

static struct pool *pool_of(
        struct world *world, enum pool_policy policy, uint32_t replicas, uint32_t burst)
{
        struct pool_options options = world_options();
        options.policy = policy;
        options.replicas = replicas;
        options.burst_limit = burst;
        options.acquire_ms = 1000;
        return world_pool(world, &options);
}

static void end(struct pool *pool)
{
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        pool_close(pool);
}

static void test_the_longest_released_goes(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_REJECT, 3, 0);
        struct pool_acquired a = take(world, pool, "a");
        struct pool_acquired b = take(world, pool, "b");
        struct pool_acquired c = take(world, pool, "c");
        give(pool, b.id);
        world_forward(world, 10);
        give(pool, a.id);
        (void)take(world, pool, "d"); /* b goes, not a, and never c */
        assert_null(world_find(world, b.id));
        assert_non_null(world_find(world, a.id));
        assert_non_null(world_find(world, c.id));
        (void)take(world, pool, "e");
        assert_null(world_find(world, a.id));
        cubby_error err = {0};
        assert_int_equal(take_fails(world, pool, "f", &err), CUBBY_E_CAPACITY);
        assert_non_null(strstr(err.message, "3 active, 0 warm, 0 reserved of 3 replicas"));
        assert_non_null(strstr(err.message, "try again"));
        assert_int_equal(world_alive(world), 3);
        end(pool);
}

static void test_soft_goes_beyond(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_SOFT, 1, 0);
        (void)take(world, pool, "a");
        assert_int_equal(world->warnings, 0);
        (void)take(world, pool, "b");
        assert_int_equal(world->warnings, 1);
        assert_int_equal(status_of(pool).active, 2);
        end(pool);
}

static void test_burst(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_BURST, 1, 1);
        (void)take(world, pool, "a");
        struct pool_acquired b = take(world, pool, "b");
        struct taking taking = {.timeout_ms = 1000};
        taking_start(&taking, world, pool, "c");
        while (status_of(pool).counters[COUNT_WAITED] == 0)
                (void)sched_yield();
        give(pool, b.id); /* it may be evicted now */
        assert_int_equal(taking_end(&taking), 0);
        assert_int_equal(status_of(pool).active, 2);
        assert_int_equal(world_alive(world), 2);
        end(pool);
}

static void test_wait(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_WAIT, 1, 0);
        struct pool_acquired a = take(world, pool, "a");
        struct taking taking = {0};
        /* in time */
        taking_start(&taking, world, pool, "b");
        while (status_of(pool).counters[COUNT_WAITED] == 0)
                (void)sched_yield();
        give(pool, a.id);
        assert_int_equal(taking_end(&taking), 0);
        assert_int_equal(world_alive(world), 1);
        /* too late */
        taking_start(&taking, world, pool, "c");
        while (status_of(pool).counters[COUNT_WAITED] == 1)
                (void)sched_yield();
        world_forward(world, 1000);
        assert_int_equal(taking_end(&taking), -1);
        assert_int_equal(taking.error.code, CUBBY_E_CAPACITY);
        /* shutdown wakes who waits */
        taking_start(&taking, world, pool, "d");
        while (status_of(pool).counters[COUNT_WAITED] == 2)
                (void)sched_yield();
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        assert_int_equal(taking_end(&taking), -1);
        assert_int_equal(taking.error.code, CUBBY_E_SHUTDOWN);
        pool_close(pool);
}

/* A create in flight holds its place: callers at once never overshoot. */
static void test_creates_in_flight_count(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_REJECT, 2, 0);
        struct taking takings[2] = {{0}};
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 2);
        taking_start(&takings[0], world, pool, "a");
        taking_start(&takings[1], world, pool, "b");
        while (status_of(pool).reserved < 2)
                (void)sched_yield();
        cubby_error err = {0};
        assert_int_equal(take_fails(world, pool, "c", &err), CUBBY_E_CAPACITY);
        assert_non_null(strstr(err.message, "0 active, 0 warm, 2 reserved"));
        while (fault_count(world->faults, "source.create") < 2)
                (void)sched_yield();
        fault_release(world->faults, "source.create");
        assert_int_equal(taking_end(&takings[0]) + taking_end(&takings[1]), 0);
        end(pool);
}

static void test_a_failed_create_returns_its_place(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_REJECT, 1, 0);
        world->create_fails = true;
        for (int i = 0; i < 3; i++)
                assert_int_equal(take_fails(world, pool, "a", NULL), CUBBY_E_VMM);
        world->create_fails = false;
        (void)take(world, pool, "a");
        end(pool);
}

/* A destroy in flight holds its place until the box is gone. */
static void test_destroys_in_flight_count(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_of(world, POLICY_WAIT, 1, 0);
        give(pool, take(world, pool, "a").id);
        fault_arm(world->faults, "source.destroy", FAULT_PAUSE, 1);
        struct taking first = {0};
        struct taking second = {0};
        taking_start(&first, world, pool, "b"); /* evicts a */
        assert_true(fault_await(world->faults, "source.destroy", SOON_MS));
        taking_start(&second, world, pool, "c");
        while (status_of(pool).counters[COUNT_WAITED] == 0)
                (void)sched_yield();
        struct pool_status status = status_of(pool);
        assert_int_equal(status.active + status.warm, 0);
        assert_int_equal(status.reserved, 1);
        fault_release(world->faults, "source.destroy");
        while (status_of(pool).active == 0)
                (void)sched_yield();
        assert_int_equal(world_alive(world), 1);
        world_forward(world, 1000);
        assert_int_equal((taking_end(&first) == 0) + (taking_end(&second) == 0), 1);
        end(pool);
}

static void test_host_wide_ceiling(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.max_boxes = 2;
        struct pool *one = world_pool(world, &options);
        struct pool *two = world_pool(world, &options);
        (void)take(world, one, "a");
        struct pool_acquired b = take(world, two, "b");
        cubby_error err = {0};
        assert_int_equal(take_fails(world, one, "c", &err), CUBBY_E_CAPACITY);
        assert_non_null(strstr(err.message, "max_boxes is 2"));
        pool_invalidate(two, b.id, b.generation);
        (void)take(world, one, "c");
        end(two);
        end(one);
}

static void test_own_boxes_only(void **state)
{
        struct world *world = *state;
        struct pool *one = pool_of(world, POLICY_REJECT, 1, 0);
        struct pool *two = pool_of(world, POLICY_REJECT, 1, 0);
        struct pool_acquired a = take(world, one, "a");
        give(one, a.id); /* the other's warm box is not two's to evict */
        (void)take(world, two, "b");
        assert_int_equal(take_fails(world, two, "c", NULL), CUBBY_E_CAPACITY);
        assert_non_null(world_find(world, a.id));
        end(one);
        end(two);
}

/* One that does not end costs no other its box: it keeps its place until it is gone. */
static void test_an_eviction_that_fails(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.policy = POLICY_REJECT;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired boxes[3];
        static const char *const names[] = {"a", "b", "c"};
        for (size_t i = 0; i < 3; i++)
                boxes[i] = take(world, pool, names[i]);
        for (size_t i = 0; i < 3; i++)
                give(pool, boxes[i].id);
        world->destroy_fails = true;
        assert_int_equal(take_fails(world, pool, "d", NULL), CUBBY_E_CAPACITY);
        struct pool_status status = status_of(pool);
        assert_int_equal(status.warm, 2);
        assert_int_equal(status.reserved, 1);
        world->destroy_fails = false;
        world_forward(world, 2000);
        pool_reap(pool);
        assert_true(take(world, pool, "d").fresh);
        assert_int_equal(status_of(pool).counters[COUNT_EVICTED], 1);
        end(pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_the_longest_released_goes),
                WITH_WORLD(test_soft_goes_beyond),
                WITH_WORLD(test_burst),
                WITH_WORLD(test_wait),
                WITH_WORLD(test_creates_in_flight_count),
                WITH_WORLD(test_a_failed_create_returns_its_place),
                WITH_WORLD(test_destroys_in_flight_count),
                WITH_WORLD(test_host_wide_ceiling),
                WITH_WORLD(test_own_boxes_only),
                WITH_WORLD(test_an_eviction_that_fails),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
