/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

static void test_reset(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 60000;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        give(pool, take(world, pool, "b").id);
        assert_int_equal(pool_reset(pool, NULL), 0);
        struct pool_status status = status_of(pool);
        assert_int_equal(status.active, 0);
        assert_int_equal(status.warm, 2);
        assert_int_equal(world_alive(world), 2); /* machines go on */
        assert_int_equal(take_fails(world, pool, "a", NULL), CUBBY_E_SHUTDOWN);
        struct pool_acquired got = {0};
        assert_int_equal(pool_get(pool, a.id, &got, NULL), -1);
        /* under this instance's reaper until its shutdown */
        world_forward(world, options.idle_ms);
        pool_reap(pool);
        assert_int_equal(world_alive(world), 0);
        assert_int_equal(pool_reset(pool, NULL), 0);
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        pool_close(pool);
}

static void test_another_instance_after_reset(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 60000;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        assert_int_equal(pool_reset(pool, NULL), 0);
        pool_flush(pool);
        struct pool *next = world_pool(world, &options);
        struct pool_acquired again = take(world, next, "a");
        assert_string_equal(again.box_id, a.box_id);
        assert_int_equal(world->checks, 1); /* no skip */
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        assert_int_equal(world_alive(world), 1); /* what a peer took is only forgotten */
        assert_int_equal(pool_shutdown(next, 1000, NULL, NULL), 0);
        pool_close(pool);
        pool_close(next);
}

static void test_shutdown_twice(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        give(pool, take(world, pool, "b").id);
        char *left = NULL;
        assert_int_equal(pool_shutdown(pool, 1000, &left, NULL), 0);
        assert_null(left);
        assert_int_equal(world_alive(world), 0);
        assert_int_equal(pool_shutdown(pool, 1000, &left, NULL), 0);
        assert_int_equal(take_fails(world, pool, "a", NULL), CUBBY_E_SHUTDOWN);
        give(pool, a.id);
        assert_int_equal(pool_reset(pool, NULL), 0);
        pool_close(pool);
}

static void *forward(void *data)
{
        struct world *world = data;
        for (int i = 0; i < 40; i++) {
                world_forward(world, 100);
                (void)sched_yield();
        }
        return NULL;
}

static void test_what_is_left(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        world->destroy_fails = true;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, forward, world), 0);
        char *left = NULL;
        cubby_error err = {0};
        assert_int_equal(pool_shutdown(pool, 2000, &left, &err), -1);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_string_equal(left, a.id);
        free(left);
        world->destroy_fails = false;
        world_forward(world, 2000);
        assert_int_equal(pool_shutdown(pool, 2000, &left, NULL), 0); /* it goes on */
        assert_int_equal(world_alive(world), 0);
        pool_close(pool);
}

/* A command line's pool: what it leaves is nobody's to end until its time is over. */
static void test_leaving(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.leave = true;
        struct pool *tool = world_pool(world, &options);
        struct pool_acquired a = take(world, tool, "a");
        pool_close(tool);
        options.leave = false;
        struct pool *gateway = world_pool(world, &options);
        assert_int_equal(pool_adopt(gateway, NULL), 0);
        assert_int_equal(status_of(gateway).warm, 0);
        assert_string_equal(take(world, gateway, "a").box_id, a.box_id); /* its turn moves here */
        pool_close(gateway);
        tool = world_pool(world,
                &(struct pool_options){.prefix = "other",
                        .replicas = 1,
                        .acquire_ms = 1000,
                        .renewal_ms = 30000,
                        .ttl_multiplier = 4,
                        .no_background = true});
        assert_int_equal(pool_adopt(tool, NULL), 0); /* another pool has nothing to do with it */
        assert_int_equal(status_of(tool).warm, 0);
        pool_close(tool);
        gateway = world_pool(world, &options);
        assert_int_equal(pool_adopt(gateway, NULL), 0);
        assert_int_equal(status_of(gateway).warm, 1);
        assert_int_equal(pool_shutdown(gateway, 1000, NULL, NULL), 0);
        pool_close(gateway);
}

static void test_counters_outlive_their_process(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        for (int i = 0; i < 3; i++) {
                struct pool *pool = world_pool(world, &options);
                (void)take(world, pool, "a");
                pool_flush(pool);
                pool_flush(pool);
                assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
                pool_close(pool);
        }
        struct pool *pool = world_pool(world, &options);
        struct lease_tally tallies[LEASE_TALLIES_MAX];
        size_t count = 0;
        uint64_t booted = 0;
        assert_int_equal(lease_tally_read(pool->store, "t", tallies, &count, NULL), 0);
        for (size_t i = 0; i < count; i++)
                if (strcmp(tallies[i].name, "booted") == 0)
                        booted = tallies[i].value;
        assert_int_equal(booted, 3);
        pool_close(pool);
}

/* What an acquire that failed could not end is tried again, and has no lease then. */
static void test_leftovers_of_an_acquire(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        world->destroy_fails = true;
        fault_arm(world->faults, "create.made", FAULT_FAIL, 1);
        (void)take_fails(world, pool, "a", NULL);
        assert_int_equal(world_alive(world), 1);
        assert_int_equal(status_of(pool).reserved, 1);
        /* and it is nobody's meanwhile */
        assert_true(take(world, pool, "a").fresh);
        assert_int_equal(world_alive(world), 2);
        world->destroy_fails = false;
        world_forward(world, 2000);
        pool_reap(pool);
        assert_int_equal(world_alive(world), 1);
        assert_int_equal(status_of(pool).reserved, 0);
        struct lease *leases = NULL;
        size_t count = 0;
        assert_int_equal(lease_list(pool->store, "t", NULL, &leases, &count, NULL), 0);
        lease_list_free(leases, count);
        assert_int_equal(count, 1);
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        pool_close(pool);
}

/* A box that failed its check is not replaced while the store cannot say that it may end. */
static void test_a_failed_check_without_the_store(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        world_find(world, old.id)->hung = true;
        fault_arm(world->faults, "end.claim", FAULT_FAIL, 1);
        (void)take_fails(world, pool, "a", NULL);
        struct lease *leases = NULL;
        size_t count = 0;
        assert_int_equal(lease_list(pool->store, "t", NULL, &leases, &count, NULL), 0);
        lease_list_free(leases, count);
        assert_int_equal(count, 1);
        world_forward(world, 2000);
        pool_reap(pool);
        assert_int_equal(world_alive(world), 0);
        assert_true(take(world, pool, "a").fresh);
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        pool_close(pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_reset),
                WITH_WORLD(test_another_instance_after_reset),
                WITH_WORLD(test_shutdown_twice),
                WITH_WORLD(test_what_is_left),
                WITH_WORLD(test_leaving),
                WITH_WORLD(test_counters_outlive_their_process),
                WITH_WORLD(test_leftovers_of_an_acquire),
                WITH_WORLD(test_a_failed_check_without_the_store),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
