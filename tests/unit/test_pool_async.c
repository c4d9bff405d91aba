/* SPDX-License-Identifier: Apache-2.0 */

/* Acquires on the pool's threads, and their cancellation: queued, waiting, running, done. */
#include "world.h"

#include <poll.h>

static struct pool *pool_with(struct world *world, uint32_t threads)
{
        struct pool_options options = world_options();
        options.threads = threads;
        return world_pool(world, &options);
}

static void end(struct pool *pool)
{
        assert_int_equal(pool_shutdown(pool, 5000, NULL, NULL), 0);
        pool_close(pool);
}

static struct pool_request *ask(struct pool *pool, const char *thread)
{
        struct pool_key key = key_of("u", thread == NULL ? "" : thread);
        struct pool_order order = {.key = thread == NULL ? NULL : &key, .trace = "turn-7"};
        struct pool_request *request = NULL;
        assert_int_equal(pool_acquire_async(pool, &order, &request, NULL), 0);
        return request;
}

static int finish(struct world *world, struct pool_request *request, struct pool_acquired *ret)
{
        cubby_error err = {0};
        int result = pool_request_finish(request, SOON_MS, ret, &err);
        if (result == 0)
                world_forget_share(world);
        return result == 0 ? 0 : err.code;
}

static void test_result(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 2);
        struct pool_request *request = ask(pool, "a");
        struct pollfd ready = {.fd = pool_request_fd(request), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, request, &box), 0);
        assert_true(box.fresh);
        assert_non_null(strstr(world->last_log, "[turn-7]"));           /* the trace came along */
        assert_int_equal(finish(world, request, &box), CUBBY_E_CLOSED); /* once */
        pool_request_cancel(request);
        pool_request_close(request);
        assert_int_equal(status_of(pool).active, 1); /* fetched: it is the caller's */
        end(pool);
}

static void test_not_yet(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 1);
        struct pool_request *request = ask(pool, "a");
        assert_true(fault_await(world->faults, "source.create", SOON_MS));
        struct pool_acquired box = {0};
        cubby_error err = {0};
        assert_int_equal(pool_request_finish(request, 0, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        fault_release(world->faults, "source.create");
        assert_int_equal(finish(world, request, &box), 0);
        pool_request_close(request);
        end(pool);
}

static void test_failure(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        world->create_fails = true;
        struct pool_request *request = ask(pool, "a");
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, request, &box), CUBBY_E_VMM);
        pool_request_close(request);
        end(pool);
}

/* In the line for a thread: it never runs, and is checked in exactly once. */
static void test_cancel_queued(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        fault_arm(world->faults, "async.run", FAULT_PAUSE, 1);
        struct pool_request *first = ask(pool, "a");
        assert_true(fault_await(world->faults, "async.run", SOON_MS));
        struct pool_request *second = ask(pool, "b");
        assert_int_equal(status_of(pool).queued, 1);
        pool_request_cancel(second);
        pool_request_cancel(second);
        assert_int_equal(status_of(pool).queued, 0);
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, second, &box), CUBBY_E_CANCELLED);
        pool_request_close(second);
        fault_release(world->faults, "async.run");
        assert_int_equal(finish(world, first, &box), 0);
        pool_request_close(first);
        assert_int_equal(world->creates, 1);
        assert_int_equal(status_of(pool).keys, 0);
        end(pool);
}

/* Waiting for the key's lock: the wait is abandoned, the lock's holder is not. */
static void test_cancel_waiting(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 2);
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 1);
        struct taking holder = {0};
        taking_start(&holder, world, pool, "a");
        assert_true(fault_await(world->faults, "source.create", SOON_MS));
        struct pool_request *request = ask(pool, "a");
        while (fault_count(world->faults, "async.run") == 0)
                (void)sched_yield();
        pool_request_cancel(request);
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, request, &box), CUBBY_E_CANCELLED);
        pool_request_close(request);
        fault_release(world->faults, "source.create");
        assert_int_equal(taking_end(&holder), 0);
        assert_int_equal(world->creates, 1);
        assert_int_equal(status_of(pool).active, 1);
        assert_int_equal(status_of(pool).keys, 0);
        end(pool);
}

/* Running: it finishes, and its box is where a retry finds it. */
static void test_cancel_running(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 2);
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 1);
        struct pool_request *request = ask(pool, "a");
        assert_true(fault_await(world->faults, "source.create", SOON_MS));
        pool_request_cancel(request);
        struct taking retry = {0};
        taking_start(&retry, world, pool, "a"); /* waits for the lock */
        fault_release(world->faults, "source.create");
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, request, &box), CUBBY_E_CANCELLED);
        assert_int_equal(taking_end(&retry), 0);
        assert_int_equal(world->creates, 1); /* a retry makes no second box */
        assert_false(retry.acquired.fresh);
        pool_request_close(request);
        end(pool);
        assert_int_equal(world_alive(world), 0);
}

/* Closed without a look: clean-up needs nothing of the caller. */
static void test_closed_while_running(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 1);
        pool_request_close(ask(pool, "a"));
        assert_int_equal(world_alive(world), 0);
        struct pool_request *request = ask(pool, "a");
        assert_true(fault_await(world->faults, "source.create", SOON_MS));
        pool_request_close(request);
        fault_release(world->faults, "source.create");
        int64_t limit = clock_monotonic_ms() + SOON_MS;
        while (status_of(pool).warm == 0)
                assert_true(clock_monotonic_ms() < limit);
        assert_int_equal(take(world, pool, "a").served, SERVED_RECLAIMED);
        end(pool);
}

static void test_cancel_done(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        struct pool_request *request = ask(pool, "a");
        struct pollfd ready = {.fd = pool_request_fd(request), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        pool_request_cancel(request);
        assert_int_equal(status_of(pool).warm, 1);
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, request, &box), CUBBY_E_CANCELLED);
        pool_request_close(request);
        assert_int_equal(take(world, pool, "a").served, SERVED_RECLAIMED);
        /* one without a key would be found by nobody: it ends */
        request = ask(pool, NULL);
        ready.fd = pool_request_fd(request);
        assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        pool_request_close(request);
        assert_int_equal(world_alive(world), 1);
        end(pool);
}

static void test_shutdown_ends_the_line(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 1);
        fault_arm(world->faults, "async.run", FAULT_PAUSE, 1);
        struct pool_request *first = ask(pool, "a");
        assert_true(fault_await(world->faults, "async.run", SOON_MS));
        struct pool_request *second = ask(pool, "b");
        assert_int_equal(pool_reset(pool, NULL), 0);
        struct pool_acquired box = {0};
        assert_int_equal(finish(world, second, &box), CUBBY_E_SHUTDOWN); /* not cancelled */
        fault_release(world->faults, "async.run");
        assert_int_equal(finish(world, first, &box), CUBBY_E_SHUTDOWN);
        pool_request_close(first);
        struct pool_key key = key_of("u", "c");
        struct pool_order order = {.key = &key};
        struct pool_request *third = NULL;
        cubby_error err = {0};
        assert_int_equal(pool_acquire_async(pool, &order, &third, &err), -1);
        assert_int_equal(err.code, CUBBY_E_SHUTDOWN);
        end(pool);
        pool_request_close(second); /* after its pool */
}

/* Two asked, one gave up: the box stays the other's. */
static void test_cancel_beside_a_user(void **state)
{
        struct world *world = *state;
        struct pool *pool = pool_with(world, 2);
        struct pool_acquired box = take(world, pool, "a");
        struct pool_request *request = ask(pool, "a");
        struct pollfd ready = {.fd = pool_request_fd(request), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        pool_request_close(request); /* was `reused`, and is not fetched */
        assert_int_equal(status_of(pool).active, 1);
        /* both give up: nobody has it any more */
        give(pool, box.id);
        struct pool_request *both[2];
        for (size_t i = 0; i < 2; i++) {
                both[i] = ask(pool, "a");
                ready.fd = pool_request_fd(both[i]);
                assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        }
        pool_request_close(both[0]);
        assert_int_equal(status_of(pool).active, 1);
        pool_request_close(both[1]);
        assert_int_equal(status_of(pool).warm, 1);
        /* a release that came between counts, and its successor's box is left alone */
        both[0] = ask(pool, "a");
        ready.fd = pool_request_fd(both[0]);
        assert_int_equal(poll(&ready, 1, SOON_MS), 1);
        give(pool, box.id);
        (void)take(world, pool, "a");
        pool_request_close(both[0]);
        assert_int_equal(status_of(pool).active, 1);
        end(pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_result),
                WITH_WORLD(test_not_yet),
                WITH_WORLD(test_failure),
                WITH_WORLD(test_cancel_queued),
                WITH_WORLD(test_cancel_waiting),
                WITH_WORLD(test_cancel_running),
                WITH_WORLD(test_closed_while_running),
                WITH_WORLD(test_cancel_done),
                WITH_WORLD(test_shutdown_ends_the_line),
                WITH_WORLD(test_cancel_beside_a_user),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
