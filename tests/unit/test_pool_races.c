/* SPDX-License-Identifier: Apache-2.0 */

/* Each race of the contract at its interleaving, forced by a fault point. */
#include "world.h"

#include <sched.h>

static void *reap(void *data)
{
        pool_reap(data);
        return NULL;
}

static void *shut_down(void *data)
{
        return pool_shutdown(data, SOON_MS, NULL, NULL) < 0 ? data : NULL;
}

static void end(struct pool *pool)
{
        assert_int_equal(pool_shutdown(pool, 5000, NULL, NULL), 0);
        pool_close(pool);
}

/* The reaper wins: it took the box out while its check ran. */
static void test_reaper_during_check(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        struct taking taking = {0};
        fault_arm(world->faults, "reclaim.checked", FAULT_PAUSE, 1);
        taking_start(&taking, world, pool, "a");
        assert_true(fault_await(world->faults, "reclaim.checked", SOON_MS));
        world_forward(world, options.idle_ms);
        pool_reap(pool);
        fault_release(world->faults, "reclaim.checked");
        assert_int_equal(taking_end(&taking), 0);
        assert_true(taking.acquired.fresh);
        assert_string_not_equal(taking.acquired.box_id, old.box_id);
        assert_int_equal(world_alive(world), 1);
        end(pool);
}

/* The reclaim wins: the box is active when the reaper looks. */
static void test_reclaim_before_reaper(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        world_forward(world, options.idle_ms);
        fault_arm(world->faults, "reap.look", FAULT_PAUSE, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, reap, pool), 0);
        assert_true(fault_await(world->faults, "reap.look", SOON_MS));
        struct pool_acquired again = take(world, pool, "a");
        fault_release(world->faults, "reap.look");
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_string_equal(again.box_id, old.box_id);
        assert_int_equal(again.served, SERVED_RECLAIMED);
        assert_int_equal(world_alive(world), 1);
        end(pool);
}

/* The reaper has taken it out and has not ended it yet: another box, never the dying one. */
static void test_acquire_while_reaped(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        world_forward(world, options.idle_ms);
        fault_arm(world->faults, "end.destroy", FAULT_PAUSE, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, reap, pool), 0);
        assert_true(fault_await(world->faults, "end.destroy", SOON_MS));
        struct pool_acquired next = take(world, pool, "a"); /* its name is still taken */
        assert_true(next.fresh);
        assert_string_not_equal(next.box_id, old.box_id);
        fault_release(world->faults, "end.destroy");
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(world_alive(world), 1);
        assert_int_equal(take(world, pool, "a").served, SERVED_REUSED);
        end(pool);
}

/* The same before the store knows of it: its lease still says that it is warm. */
static void test_acquire_before_the_claim(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        world_forward(world, options.idle_ms);
        fault_arm(world->faults, "end.claim", FAULT_PAUSE, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, reap, pool), 0);
        assert_true(fault_await(world->faults, "end.claim", SOON_MS));
        struct pool_acquired next = take(world, pool, "a");
        assert_true(next.fresh);
        assert_string_not_equal(next.box_id, old.box_id);
        fault_release(world->faults, "end.claim");
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(world_alive(world), 1);
        assert_string_equal(take(world, pool, "a").box_id, next.box_id);
        end(pool);
}

/* A destroy that the store did not answer is tried again, and never hits a box that was
 * handed out meanwhile. */
static void test_acquire_before_the_second_try(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        fault_arm(world->faults, "end.claim", FAULT_FAIL, 1);
        pool_invalidate(pool, old.id, old.generation);
        assert_int_equal(world_alive(world), 1);
        struct pool_acquired next = take(world, pool, "a");
        assert_string_not_equal(next.box_id, old.box_id);
        world_forward(world, 2000);
        pool_reap(pool);
        assert_int_equal(world_alive(world), 1);
        assert_string_equal(world_find(world, next.id)->box_id, next.box_id);
        end(pool);
}

/* Evicted and replaced while it was checked: that check promotes nothing. */
static void test_eviction_during_check(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.replicas = 1;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        struct taking taking = {0};
        fault_arm(world->faults, "reclaim.checked", FAULT_PAUSE, 1);
        taking_start(&taking, world, pool, "a");
        assert_true(fault_await(world->faults, "reclaim.checked", SOON_MS));
        struct pool_acquired other = take(world, pool, "b");
        assert_null(world_find(world, old.id));
        give(pool, other.id);
        fault_release(world->faults, "reclaim.checked");
        assert_int_equal(taking_end(&taking), 0);
        assert_true(taking.acquired.fresh);
        assert_int_equal(world_alive(world), 1);
        end(pool);
}

/* A check that failed late ends its own entry, not the successor. */
static void test_failed_check_of_an_evicted_box(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.replicas = 1;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        give(pool, old.id);
        world_find(world, old.id)->hung = true;
        struct taking taking = {0};
        fault_arm(world->faults, "reclaim.checked", FAULT_PAUSE, 1);
        taking_start(&taking, world, pool, "a");
        assert_true(fault_await(world->faults, "reclaim.checked", SOON_MS));
        give(pool, take(world, pool, "b").id);
        fault_release(world->faults, "reclaim.checked");
        assert_int_equal(taking_end(&taking), 0);
        assert_int_equal(status_of(pool).counters[COUNT_CHECK_FAILED], 0);
        assert_int_equal(world_alive(world), 1);
        end(pool);
}

static void test_release_during_shutdown(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        fault_arm(world->faults, "shutdown.closing", FAULT_PAUSE, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, shut_down, pool), 0);
        assert_true(fault_await(world->faults, "shutdown.closing", SOON_MS));
        give(pool, box.id); /* destroyed, not parked */
        assert_int_equal(world_alive(world), 0);
        assert_int_equal(status_of(pool).warm, 0);
        assert_int_equal(take_fails(world, pool, "a", NULL), CUBBY_E_SHUTDOWN);
        fault_release(world->faults, "shutdown.closing");
        assert_int_equal(pthread_join(thread, NULL), 0);
        pool_close(pool);
}

/* A box that was being made when the shutdown began is not handed out and not left. */
static void test_create_during_shutdown(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct taking taking = {0};
        fault_arm(world->faults, "create.made", FAULT_PAUSE, 1);
        taking_start(&taking, world, pool, "a");
        assert_true(fault_await(world->faults, "create.made", SOON_MS));
        fault_arm(world->faults, "shutdown.closing", FAULT_PAUSE, 1);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, shut_down, pool), 0);
        assert_true(fault_await(world->faults, "shutdown.closing", SOON_MS));
        fault_release(world->faults, "shutdown.closing");
        fault_release(world->faults, "create.made");
        assert_int_equal(taking_end(&taking), -1);
        assert_int_equal(taking.error.code, CUBBY_E_SHUTDOWN);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(world_alive(world), 0);
        pool_close(pool);
}

/* The release's record is written after the acquire that followed it: never seen out of order. */
static void test_acquire_waits_for_a_write(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.no_background = false;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        pool_flush(pool);
        fault_arm(world->faults, "lease.answered", FAULT_PAUSE, 1);
        give(pool, box.id);
        bool standing = false;
        for (int i = 0; i < 10 && !standing; i++) { /* the writer waits a moment of this clock */
                world_forward(world, 100);
                standing = fault_await(world->faults, "lease.answered", 1000);
        }
        assert_true(standing);
        struct taking taking = {0};
        taking_start(&taking, world, pool, "a");
        while (status_of(pool).keys == 0)
                (void)sched_yield();
        assert_int_equal(world->checks, 0); /* it waits */
        fault_release(world->faults, "lease.answered");
        assert_int_equal(taking_end(&taking), 0);
        assert_int_equal(taking.acquired.served, SERVED_RECLAIMED);
        pool_flush(pool);
        struct lease lease = {0};
        enum lease_answer answer;
        assert_int_equal(lease_of_box(pool->store, box.box_id, &lease, &answer, NULL), 0);
        assert_int_equal(lease.state, LEASE_OWN);
        lease_clear(&lease);
        end(pool);
}

/* One key, many callers: one box. */
static void test_one_box_for_one_key(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pools[2] = {world_pool(world, &options), world_pool(world, &options)};
        struct taking takings[16] = {{0}};
        for (size_t i = 0; i < 16; i++)
                taking_start(&takings[i], world, pools[i % 2], "a");
        for (size_t i = 0; i < 16; i++)
                assert_int_equal(taking_end(&takings[i]), 0);
        for (size_t i = 1; i < 16; i++)
                assert_string_equal(takings[i].acquired.box_id, takings[0].acquired.box_id);
        assert_int_equal(world->creates, 1);
        end(pools[0]);
        end(pools[1]);
        assert_int_equal(world_alive(world), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_reaper_during_check),
                WITH_WORLD(test_reclaim_before_reaper),
                WITH_WORLD(test_acquire_while_reaped),
                WITH_WORLD(test_acquire_before_the_claim),
                WITH_WORLD(test_acquire_before_the_second_try),
                WITH_WORLD(test_eviction_during_check),
                WITH_WORLD(test_failed_check_of_an_evicted_box),
                WITH_WORLD(test_release_during_shutdown),
                WITH_WORLD(test_create_during_shutdown),
                WITH_WORLD(test_acquire_waits_for_a_write),
                WITH_WORLD(test_one_box_for_one_key),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
