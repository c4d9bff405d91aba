/* SPDX-License-Identifier: Apache-2.0 */

/* Acquire, release, reclaim, failure: each sentence of the contract, one caller at a time. */
#include "world.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_reuse_and_reclaim(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired first = take(world, pool, "a");
        assert_int_equal(first.served, SERVED_BOOTED);
        assert_true(first.fresh);
        struct pool_acquired again = take(world, pool, "a");
        assert_int_equal(again.served, SERVED_REUSED);
        assert_false(again.fresh);
        assert_string_equal(again.box_id, first.box_id);
        assert_int_equal(again.generation, first.generation);
        assert_int_equal(world->checks, 0);
        give(pool, first.id);
        assert_int_equal(status_of(pool).warm, 1);
        again = take(world, pool, "a");
        assert_int_equal(again.served, SERVED_RECLAIMED);
        assert_false(again.fresh);
        assert_string_equal(again.box_id, first.box_id);
        assert_int_equal(world->checks, 1);
        struct pool_acquired other = take(world, pool, "b");
        assert_string_not_equal(other.box_id, first.box_id);
        assert_int_equal(world_alive(world), 2);
        assert_int_equal(pool_shutdown(pool, 1000, NULL, NULL), 0);
        assert_int_equal(world_alive(world), 0);
        pool_close(pool);
}

static void test_how_it_was_served(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        static const enum pool_served kinds[] = {SERVED_SPARE, SERVED_CLONED, SERVED_BOOTED};
        for (size_t i = 0; i < 3; i++) {
                char thread[2] = {(char)('a' + i), '\0'};
                world->served = kinds[i];
                struct pool_acquired acquired = take(world, pool, thread);
                assert_int_equal(acquired.served, kinds[i]);
                assert_true(acquired.fresh);
        }
        struct pool_status status = status_of(pool);
        assert_int_equal(status.counters[COUNT_SPARE], 1);
        assert_int_equal(status.counters[COUNT_CLONED], 1);
        assert_int_equal(status.counters[COUNT_BOOTED], 1);
        assert_int_equal(status.latencies[STEP_CREATE].count, 3);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_skip(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 10000;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        give(pool, box.id);
        world_forward(world, 9999);
        assert_int_equal(take(world, pool, "a").served, SERVED_RECLAIMED);
        assert_int_equal(world->checks, 0);
        give(pool, box.id);
        world_forward(world, 10000);
        assert_int_equal(take(world, pool, "a").served, SERVED_RECLAIMED);
        assert_int_equal(world->checks, 1); /* too old to skip */
        give(pool, box.id);
        world_kill(world, box.id); /* known to be closed: no skip, and nothing silent */
        struct pool_acquired next = take(world, pool, "a");
        assert_int_equal(next.served, SERVED_BOOTED);
        assert_true(next.fresh);
        assert_true(next.generation > box.generation);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_dead_parked_box(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        give(pool, box.id);
        world_find(world, box.id)->hung = true; /* only a round trip finds out */
        struct pool_acquired next = take(world, pool, "a");
        assert_true(next.fresh);
        assert_string_not_equal(next.box_id, box.box_id);
        assert_int_equal(world_alive(world), 1);
        assert_int_equal(status_of(pool).counters[COUNT_CHECK_FAILED], 1);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_dead_active_box(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        world_kill(world, box.id);
        struct pool_acquired next = take(world, pool, "a");
        assert_true(next.fresh);
        assert_int_equal(world_alive(world), 1);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_two_keys_with_one_token(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_key one = key_of("a:b", "c");
        struct pool_key two = key_of("a", "b:c");
        struct pool_order order = {.key = &one};
        struct pool_acquired box = {0};
        cubby_error err = {0};
        assert_int_equal(pool_acquire(pool, &order, &box, NULL), 0);
        world->shared--;
        order.key = &two;
        assert_int_equal(pool_acquire(pool, &order, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        give(pool, box.id); /* warm it is still another's */
        assert_int_equal(pool_acquire(pool, &order, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        assert_non_null(strstr(err.message, "b:c"));
        assert_int_equal(world_alive(world), 1);
        /* and for another process as well */
        struct pool *peer = world_pool(world, &options);
        assert_int_equal(pool_acquire(peer, &order, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        pool_close(peer);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

/* Nobody has the token of the user "None", and is not that user; alone and on a thread. */
static void test_no_user(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_key nobody = key_of("", "abc");
        struct pool_key none = key_of("None", "abc");
        struct pool_order order = {.key = &nobody, .no_user = true};
        struct pool_acquired box = {0};
        struct pool_request *request = NULL;
        cubby_error err = {0};
        assert_int_equal(pool_acquire(pool, &order, &box, NULL), 0);
        world->shared--;
        assert_string_equal(box.id, "c0b80df1b97d187e");
        struct pool_order other = {.key = &none};
        assert_int_equal(pool_acquire(pool, &other, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        give(pool, box.id);
        assert_int_equal(pool_acquire_async(pool, &order, &request, NULL), 0);
        assert_int_equal(pool_request_finish(request, SOON_MS, &box, NULL), 0);
        world->shared--;
        pool_request_close(request);
        assert_int_equal(box.served, SERVED_RECLAIMED);
        order.no_user = false; /* the empty user is one of its own */
        assert_int_equal(pool_acquire(pool, &order, &box, NULL), 0);
        world->shared--;
        assert_string_not_equal(box.id, "c0b80df1b97d187e");
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_anonymous(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired one = take(world, pool, NULL);
        struct pool_acquired two = take(world, pool, NULL);
        assert_int_equal(strlen(one.id), 8);
        assert_string_not_equal(one.id, two.id);
        assert_string_not_equal(one.box_id, two.box_id);
        assert_int_equal(status_of(pool).active, 2);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_a_failed_acquire_leaves_nothing(void **state)
{
        struct world *world = *state;
        static const char *const points[] = {"acquire.locked", "acquire.host", "acquire.store",
                "create.reserved", "create.leased", "source.create", "create.made"};
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
                fault_arm(world->faults, points[i], FAULT_FAIL, 1);
                (void)take_fails(world, pool, "a", NULL);
                assert_int_equal(world_alive(world), 0);
                struct pool_status status = status_of(pool);
                assert_int_equal(status.active + status.warm + status.reserved + status.keys, 0);
                struct lease *leases = NULL;
                size_t count = 0;
                assert_int_equal(lease_list(pool->store, "t", NULL, &leases, &count, NULL), 0);
                assert_int_equal(count, 0);
                lease_list_free(leases, count);
        }
        world->create_fails = true;
        cubby_error err = {0};
        assert_int_equal(take_fails(world, pool, "a", &err), CUBBY_E_VMM);
        world->create_fails = false;
        assert_true(take(world, pool, "a").fresh);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_release_of_anything(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool *other = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        static const char *const ids[] = {"", "x", "0123456789abcdef", "0123456789abcdef0123",
                "../../etc/passwd", "\xff\xfe"};
        for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
                give(pool, ids[i]);
        give(other, box.id); /* not its own */
        assert_int_equal(status_of(pool).active, 1);
        give(pool, box.id);
        give(pool, box.id); /* twice */
        struct pool_status status = status_of(pool);
        assert_int_equal(status.active, 0);
        assert_int_equal(status.warm, 1);
        assert_int_equal(status.counters[COUNT_RELEASED], 1);
        struct pool_acquired got = {0};
        cubby_error err = {0};
        assert_int_equal(pool_get(pool, box.id, &got, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        (void)take(world, pool, "a");
        assert_int_equal(pool_get(pool, box.id, &got, &err), 0);
        assert_string_equal(got.box_id, box.box_id);
        world->shared--;
        pool_close(other);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_invalidation(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired old = take(world, pool, "a");
        pool_invalidate(pool, old.id, old.generation);
        assert_int_equal(world_alive(world), 0);
        struct pool_acquired next = take(world, pool, "a");
        assert_true(next.fresh);
        pool_invalidate(pool, old.id, old.generation); /* late, of the old one */
        pool_invalidate(pool, "unknown", 7);
        assert_int_equal(status_of(pool).active, 1);
        give(pool, next.id);
        pool_invalidate(pool, next.id, next.generation); /* a warm one */
        assert_int_equal(world_alive(world), 0);
        assert_int_equal(status_of(pool).counters[COUNT_INVALIDATED], 2);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_many_keys_over_time(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        char thread[16];
        for (int i = 0; i < 500; i++) {
                (void)snprintf(thread, sizeof thread, "t%d", i);
                give(pool, take(world, pool, thread).id);
        }
        struct pool_status status = status_of(pool);
        assert_int_equal(status.warm, 3);
        assert_int_equal(status.keys, 0);
        assert_int_equal(world_alive(world), 3);
        assert_int_equal(status.counters[COUNT_EVICTED], 497);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        assert_int_equal(status_of(pool).warm, 0);
        pool_close(pool);
        /* no lock file for each of them either */
        int copy = dup(home_folder(world->home, HOME_LOCKS));
        DIR *dir = fdopendir(copy);
        assert_non_null(dir);
        rewinddir(dir);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                assert_null(strstr(entry->d_name, "pool-"));
        (void)closedir(dir);
}

static void test_forked_child(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired box = take(world, pool, "a");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                struct pool_key key = key_of("u", "a");
                struct pool_order order = {.key = &key};
                struct pool_acquired got = {0};
                struct pool_request *request = NULL;
                cubby_error err = {0};
                int bad = pool_acquire(pool, &order, &got, &err) == 0 ||
                        err.code != CUBBY_E_STATE || pool_release(pool, box.id, &err) == 0 ||
                        pool_get(pool, box.id, &got, &err) == 0 || pool_reset(pool, &err) == 0 ||
                        pool_shutdown(pool, 1000, NULL, &err) == 0 ||
                        pool_acquire_async(pool, &order, &request, &err) == 0 ||
                        err.code != CUBBY_E_STATE;
                pool_invalidate(pool, box.id, box.generation);
                pool_close(pool);
                _exit(bad || world->destroys > 0 ? 1 : 0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(take(world, pool, "a").served, SERVED_REUSED);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

static void test_huge_and_odd_keys(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.replicas = 10;
        struct pool *pool = world_pool(world, &options);
        static uint8_t bytes[KEY_PART_MAX + 1];
        for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)i;
        static const size_t sizes[] = {0, 1, 7, KEY_PART_MAX};
        struct pool_acquired box = {0};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                struct pool_key key = {.user = bytes,
                        .user_size = sizes[i],
                        .thread = bytes,
                        .thread_size = sizes[3 - i]};
                struct pool_order order = {.key = &key};
                assert_int_equal(pool_acquire(pool, &order, &box, NULL), 0);
                world->shared--;
                assert_true(box.fresh);
                give(pool, box.id);
                assert_int_equal(pool_acquire(pool, &order, &box, NULL), 0);
                world->shared--;
                assert_int_equal(box.served, SERVED_RECLAIMED);
        }
        struct pool_key key = {.user = bytes, .user_size = sizeof bytes, .thread = bytes};
        struct pool_order order = {.key = &key};
        cubby_error err = {0};
        assert_int_equal(pool_acquire(pool, &order, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        (void)pool_shutdown(pool, 1000, NULL, NULL);
        pool_close(pool);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_reuse_and_reclaim),
                WITH_WORLD(test_how_it_was_served),
                WITH_WORLD(test_skip),
                WITH_WORLD(test_dead_parked_box),
                WITH_WORLD(test_dead_active_box),
                WITH_WORLD(test_two_keys_with_one_token),
                WITH_WORLD(test_no_user),
                WITH_WORLD(test_anonymous),
                WITH_WORLD(test_a_failed_acquire_leaves_nothing),
                WITH_WORLD(test_release_of_anything),
                WITH_WORLD(test_invalidation),
                WITH_WORLD(test_many_keys_over_time),
                WITH_WORLD(test_forked_child),
                WITH_WORLD(test_huge_and_odd_keys),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
