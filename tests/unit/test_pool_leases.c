/* SPDX-License-Identifier: Apache-2.0 */

/* Take, claim and renew against each state, and turns that wander between processes. */
#include "world.h"

#include "state/records.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TTL 1000
#define TOKEN "0123456789abcdef"

struct table {
        struct world *world;
        struct lease_owner me, peer;
        struct lease_store *mine, *theirs;
        unsigned boxes; /* so many were put */
};

static void open_table(struct world *world, struct table *table)
{
        *table = (struct table){.world = world};
        assert_int_equal(lease_owner_self(&table->me, NULL), 0);
        assert_int_equal(lease_owner_self(&table->peer, NULL), 0);
        assert_int_equal(lease_store_open(world->home, &table->me, &table->mine, NULL), 0);
        assert_int_equal(lease_store_open(world->home, &table->peer, &table->theirs, NULL), 0);
}

static void close_table(struct table *table)
{
        lease_store_close(table->mine);
        lease_store_close(table->theirs);
}

enum owner { MINE, PEER, PEER_LATE, PEER_DEAD, PEER_OTHER_BOOT, LEFT, LEFT_LATE };

/* A lease of this owner and state, as of time 0. */
static void put(struct table *table, enum owner owner, enum lease_state state, char id[33])
{
        struct lease lease = {.pool = "t", .token = TOKEN, .state = LEASE_OWN, .expires_ms = TTL};
        struct lease_owner as = table->peer;
        if (owner == PEER_DEAD)
                as.start_ticks++; /* the pid is another process's now */
        if (owner == PEER_OTHER_BOOT)
                as.boot_id[0] = as.boot_id[0] == '0' ? '1' : '0';
        struct lease_store *store = NULL;
        (void)snprintf(lease.box_id, sizeof lease.box_id, "%032x", ++table->boxes);
        cubby_error err = {0};
        if (owner == PEER_DEAD || owner == PEER_OTHER_BOOT)
                assert_int_equal(lease_store_open(table->world->home, &as, &store, NULL), 0);
        struct lease_store *writer = owner == MINE ? table->mine
                : store != NULL                    ? store
                                                   : table->theirs;
        if (lease_begin(writer, &lease, 0, 0, &err) < 0)
                fail_msg("%s", err.message);
        memcpy(id, lease.id, 33);
        enum lease_renewal renewal;
        lease.state = state;
        int64_t ttl = owner == PEER_LATE ? 1 : TTL;
        assert_int_equal(lease_renew(writer, &lease, 0, ttl, &renewal, NULL), 0);
        if (owner == LEFT || owner == LEFT_LATE)
                assert_int_equal(
                        lease_leave(writer, id, state, 0, owner == LEFT ? TTL : 1, NULL), 0);
        lease_store_close(store);
}

static void test_take_and_claim(void **state)
{
        struct world *world = *state;
        static const struct {
                enum owner owner;
                enum lease_state state;
                enum lease_answer take, claim_parked, claim_del;
        } rows[] = {
                {MINE, LEASE_OWN, LEASE_YES, LEASE_YES, LEASE_YES},
                {MINE, LEASE_PARKED, LEASE_YES, LEASE_YES, LEASE_YES},
                {MINE, LEASE_DEL, LEASE_REFUSED, LEASE_REFUSED, LEASE_YES},
                {PEER, LEASE_OWN, LEASE_YES, LEASE_REFUSED, LEASE_REFUSED},
                {PEER, LEASE_PARKED, LEASE_YES, LEASE_REFUSED, LEASE_REFUSED},
                {PEER, LEASE_DEL, LEASE_REFUSED, LEASE_REFUSED, LEASE_REFUSED},
                {PEER_LATE, LEASE_OWN, LEASE_YES, LEASE_YES, LEASE_YES},
                {PEER_LATE, LEASE_PARKED, LEASE_YES, LEASE_YES, LEASE_YES},
                {PEER_LATE, LEASE_DEL, LEASE_REFUSED, LEASE_REFUSED, LEASE_YES},
                {PEER_DEAD, LEASE_OWN, LEASE_YES, LEASE_YES, LEASE_YES},
                {PEER_DEAD, LEASE_PARKED, LEASE_YES, LEASE_YES, LEASE_YES},
                {PEER_DEAD, LEASE_DEL, LEASE_REFUSED, LEASE_REFUSED, LEASE_YES},
                {PEER_OTHER_BOOT, LEASE_OWN, LEASE_YES, LEASE_YES, LEASE_YES},
                {PEER_OTHER_BOOT, LEASE_DEL, LEASE_REFUSED, LEASE_REFUSED, LEASE_YES},
                {LEFT, LEASE_OWN, LEASE_YES, LEASE_REFUSED, LEASE_REFUSED},
                {LEFT, LEASE_PARKED, LEASE_YES, LEASE_REFUSED, LEASE_REFUSED},
                {LEFT_LATE, LEASE_OWN, LEASE_YES, LEASE_YES, LEASE_YES},
        };
        struct table table;
        open_table(world, &table);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                char id[33];
                enum lease_answer answer;
                bool ours = false;
                put(&table, rows[i].owner, rows[i].state, id);
                assert_int_equal(lease_take(table.mine, id, NULL, 10, TTL, &answer, NULL), 0);
                assert_int_equal(answer, rows[i].take);
                assert_int_equal(lease_ours(table.mine, id, &ours, NULL), 0);
                assert_int_equal(ours, answer == LEASE_YES || rows[i].owner == MINE);
                put(&table, rows[i].owner, rows[i].state, id);
                assert_int_equal(
                        lease_claim(table.mine, id, LEASE_PARKED, 10, TTL, &answer, NULL), 0);
                assert_int_equal(answer, rows[i].claim_parked);
                put(&table, rows[i].owner, rows[i].state, id);
                assert_int_equal(lease_claim(table.mine, id, LEASE_DEL, 10, TTL, &answer, NULL), 0);
                assert_int_equal(answer, rows[i].claim_del);
        }
        enum lease_answer answer;
        assert_int_equal(lease_take(table.mine, "nosuch", NULL, 10, TTL, &answer, NULL), 0);
        assert_int_equal(answer, LEASE_GONE);
        close_table(&table);
}

static void test_renewals(void **state)
{
        struct world *world = *state;
        struct table table;
        open_table(world, &table);
        static const struct {
                enum owner owner;
                int64_t now_ms;
                enum lease_renewal wanted;
        } rows[] = {
                {MINE, 10, RENEWED},
                {MINE, TTL, RENEWED_LAPSED}, /* nobody took it: established again */
                {PEER, 10, RENEWAL_LOST},
                {PEER_LATE, 10, RENEWAL_LOST},
                {PEER_DEAD, 10, RENEWAL_LOST},
                {LEFT, 10, RENEWAL_LOST},
        };
        static const enum lease_state states[] = {LEASE_OWN, LEASE_PARKED, LEASE_DEL};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                for (size_t j = 0; j < 3; j++) {
                        struct lease lease = {.pool = "t", .token = TOKEN, .state = states[j]};
                        enum lease_renewal renewal;
                        put(&table, rows[i].owner, states[j], lease.id);
                        memset(lease.box_id, 'b', 32);
                        assert_int_equal(lease_renew(table.mine, &lease, rows[i].now_ms, TTL,
                                                 &renewal, NULL),
                                0);
                        assert_int_equal(renewal, rows[i].wanted);
                }
        /* its row is gone and so is its box: a peer has ended it */
        struct lease gone = {.pool = "t", .token = TOKEN, .state = LEASE_OWN};
        enum lease_renewal renewal;
        memset(gone.id, 'c', 32);
        memset(gone.box_id, 'd', 32);
        assert_int_equal(lease_renew(table.mine, &gone, 0, TTL, &renewal, NULL), 0);
        assert_int_equal(renewal, RENEWAL_LOST);
        close_table(&table);
}

/* A real process that ends is dead at once, and its leases with it. */
static void test_owner_of_a_dead_process(void **state)
{
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        struct lease_owner other;
        if (child == 0) {
                struct lease_owner self;
                if (lease_owner_self(&self, NULL) == 0)
                        (void)!write(ends[1], &self, sizeof self);
                (void)pause();
                _exit(0);
        }
        assert_int_equal(read(ends[0], &other, sizeof other), sizeof other);
        struct lease_owner me;
        assert_int_equal(lease_owner_self(&me, NULL), 0);
        assert_false(lease_owner_dead(&other, &me));
        assert_false(lease_owner_dead(&me, &me));
        struct lease_owner elsewhere = other;
        elsewhere.pid_namespace++; /* its pid says nothing here */
        assert_int_equal(kill(child, SIGKILL), 0);
        int64_t end = clock_monotonic_ms() + SOON_MS;
        while (!lease_owner_dead(&other, &me)) /* also before it is reaped */
                assert_true(clock_monotonic_ms() < end);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(lease_owner_dead(&other, &me));
        assert_false(lease_owner_dead(&elsewhere, &me));
        (void)close(ends[0]);
        (void)close(ends[1]);
}

static void end(struct pool *pool)
{
        assert_int_equal(pool_shutdown(pool, 5000, NULL, NULL), 0);
        pool_close(pool);
}

/* B starts while A is busy: A's box lives on and is A's. */
static void test_a_living_owner_is_left_alone(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool_acquired active = take(world, a, "active");
        struct pool_acquired warm = take(world, a, "warm");
        give(a, warm.id);
        pool_flush(a);
        struct pool *b = world_pool(world, &options);
        assert_int_equal(pool_adopt(b, NULL), 0);
        assert_int_equal(status_of(b).warm + status_of(b).active, 0);
        world_forward(world, options.idle_ms * 2);
        pool_renew(a);
        pool_reap(b);
        end(b);
        assert_int_equal(world_alive(world), 2);
        assert_string_equal(take(world, a, "active").box_id, active.box_id);
        assert_string_equal(take(world, a, "warm").box_id, warm.box_id);
        end(a);
}

/* A turn moves to B; A finds its lease lost, forgets the box and does not end it. */
static void test_a_turn_moves(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct pool_acquired first = take(world, a, "x");
        give(a, first.id);
        pool_flush(a);
        struct pool_acquired second = take(world, b, "x");
        assert_string_equal(second.box_id, first.box_id);
        assert_int_equal(second.served, SERVED_RECLAIMED);
        assert_int_equal(second.generation, first.generation);
        pool_renew(a);
        struct pool_status status = status_of(a);
        assert_int_equal(status.warm, 0);
        assert_int_equal(status.counters[COUNT_LOST], 1);
        assert_int_equal(world_alive(world), 1);
        /* and back, also without a renewal between: A takes it again */
        give(b, second.id);
        struct pool_acquired third = take(world, a, "x");
        assert_string_equal(third.box_id, first.box_id);
        end(b); /* B's shutdown only forgets what A took */
        assert_int_equal(world_alive(world), 1);
        end(a);
        assert_int_equal(world_alive(world), 0);
}

/* A parked box that B took is not A's to reap, though A has not renewed since. */
static void test_a_taken_box_is_not_reaped(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        give(a, take(world, a, "x").id);
        pool_flush(a);
        (void)take(world, b, "x");
        world_forward(world, options.idle_ms);
        pool_renew(b);
        pool_reap(a);
        assert_int_equal(world_alive(world), 1);
        assert_int_equal(status_of(a).counters[COUNT_LOST], 1);
        assert_int_equal(take(world, b, "x").served, SERVED_REUSED);
        end(a);
        end(b);
}

/* The renewal decided that the box is lost; an acquire that came between wins. */
static void test_an_acquire_wins_over_forgetting(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.no_background = false;
        struct pool *a = world_pool(world, &options);
        options.no_background = true;
        struct pool *b = world_pool(world, &options);
        struct pool_acquired box = take(world, a, "x");
        give(a, box.id);
        pool_flush(a);
        (void)take(world, b, "x");
        give(b, box.id);
        fault_arm(world->faults, "lease.answered", FAULT_PAUSE, 1);
        world_forward(world, options.renewal_ms); /* A's writer renews: lost */
        assert_true(fault_await(world->faults, "lease.answered", SOON_MS));
        struct taking taking = {0};
        taking_start(&taking, world, a, "x");
        while (status_of(a).keys == 0)
                (void)sched_yield();
        fault_release(world->faults, "lease.answered");
        assert_int_equal(taking_end(&taking), 0);
        assert_string_equal(taking.acquired.box_id, box.box_id);
        assert_int_equal(world->creates, 1);
        struct pool_acquired got = {0};
        pool_renew(a);
        assert_int_equal(pool_get(a, box.id, &got, NULL), 0);
        world->shared--;
        pool_flush(b);
        end(b);
        assert_int_equal(world_alive(world), 1);
        end(a);
}

/* Longer than the lease: the destroyer renews, and nobody gets or ends it beside him. */
static void test_a_long_destroy(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct pool_acquired old = take(world, a, "x");
        give(a, old.id);
        fault_arm(world->faults, "source.destroy", FAULT_PAUSE, 1);
        struct taking taking = {0};
        world_find(world, old.id)->hung = true;
        taking_start(&taking, world, a, "x");
        assert_true(fault_await(world->faults, "source.destroy", SOON_MS));
        for (int i = 0; i < 10; i++) {
                world_forward(world, options.renewal_ms);
                pool_renew(a);
        }
        assert_int_equal(pool_adopt(b, NULL), 0);
        assert_int_equal(world->destroys, 0);
        assert_int_equal(status_of(b).warm, 0);
        fault_release(world->faults, "source.destroy");
        assert_int_equal(taking_end(&taking), 0);
        assert_true(taking.acquired.fresh);
        end(a);
        end(b);
        assert_int_equal(world_alive(world), 0);
}

/* The store cannot answer: nothing is handed out, nothing is ended, and all is kept. */
static void test_the_store_is_away(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 60000;
        struct pool *pool = world_pool(world, &options);
        struct pool_acquired a = take(world, pool, "a");
        struct pool_acquired b = take(world, pool, "b");
        give(pool, a.id);
        fault_arm(world->faults, "lease.store", FAULT_FAIL, 1000);
        fault_arm(world->faults, "reclaim.store", FAULT_FAIL, 1000);
        fault_arm(world->faults, "acquire.store", FAULT_FAIL, 1000);
        fault_arm(world->faults, "end.claim", FAULT_FAIL, 1000);
        pool_flush(pool); /* unknown: kept, and tried again */
        pool_renew(pool);
        struct pool_status status = status_of(pool);
        assert_int_equal(status.active, 1);
        assert_int_equal(status.warm, 1);
        (void)take_fails(world, pool, "a", NULL); /* no skip on a guess either */
        (void)take_fails(world, pool, "c", NULL);
        world_forward(world, options.idle_ms);
        pool_reap(pool);
        assert_int_equal(world->destroys, 0);
        assert_int_equal(world_alive(world), 2);
        fault_release(world->faults, "lease.store");
        fault_release(world->faults, "reclaim.store");
        fault_release(world->faults, "acquire.store");
        fault_release(world->faults, "end.claim");
        pool_flush(pool);
        world_forward(world, 2000);
        pool_reap(pool);
        assert_int_equal(world_alive(world), 1);
        assert_string_equal(take(world, pool, "b").box_id, b.box_id);
        assert_true(take(world, pool, "a").fresh);
        end(pool);
}

/* A process dies; the next one has its boxes, warm, with their keys, and checks before use. */
static void test_adoption(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 60000;
        struct pool *a = world_pool(world, &options);
        struct pool_acquired one = take(world, a, "one");
        struct pool_acquired two = take(world, a, "two");
        struct pool_acquired dead = take(world, a, "dead");
        give(a, two.id);
        world_kill(world, dead.id);
        pool_close(a); /* without shutdown, as a crash */
        struct pool *b = world_pool(world, &options);
        assert_int_equal(pool_adopt(b, NULL), 0);
        struct pool_status status = status_of(b);
        assert_int_equal(status.warm, 2);
        assert_int_equal(world_alive(world), 2); /* the dead one was cleared away */
        struct pool_acquired again = take(world, b, "one");
        assert_string_equal(again.box_id, one.box_id);
        assert_int_equal(again.generation, one.generation);
        assert_int_equal(again.served, SERVED_RECLAIMED);
        assert_int_equal(world->checks, 1); /* adopted: no skip */
        world_forward(world, options.idle_ms);
        pool_reap(b);
        assert_null(world_find(world, two.id)); /* its time went on */
        end(b);
}

/* A rebuilt database has no leases: boxes are found by their names, keys by their labels. */
static void test_boxes_without_leases(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool_acquired box = take(world, a, "x");
        struct lease *leases = NULL;
        size_t count = 0;
        pool_close(a);
        struct pool *b = world_pool(world, &options);
        assert_int_equal(lease_list(b->store, "t", NULL, &leases, &count, NULL), 0);
        for (size_t i = 0; i < count; i++)
                assert_int_equal(lease_remove(b->store, leases[i].id, NULL), 0);
        lease_list_free(leases, count);
        assert_string_equal(take(world, b, "x").box_id, box.box_id);
        pool_close(b);
        struct pool *c = world_pool(world, &options);
        assert_int_equal(pool_adopt(c, NULL), 0);
        assert_int_equal(status_of(c).warm, 1);
        end(c);
        assert_int_equal(world_alive(world), 0);
}

static void *adopt(void *data)
{
        assert_int_equal(pool_adopt(data, NULL), 0);
        return NULL;
}

/* B listed a box that A ends and replaces before B looks at its lease: B gives no
 * lease to what is gone, so the key has one box at all times. */
static void test_a_box_that_ends_while_it_is_adopted(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct pool_acquired old = take(world, a, "x");
        pthread_t thread;
        fault_arm(world->faults, "adopt.listed", FAULT_PAUSE, 1);
        assert_int_equal(pthread_create(&thread, NULL, adopt, b), 0);
        assert_true(fault_await(world->faults, "adopt.listed", SOON_MS));
        world_kill(world, old.id);
        give(a, old.id);
        struct pool_acquired now = take(world, a, "x");
        assert_string_not_equal(now.box_id, old.box_id);
        fault_release(world->faults, "adopt.listed");
        assert_int_equal(pthread_join(thread, NULL), 0);
        /* it had no second lease, not even for a moment */
        assert_int_equal(status_of(b).counters[COUNT_CHECK_FAILED], 0);
        assert_int_equal(status_of(b).counters[COUNT_ADOPTED], 0);
        assert_string_equal(take(world, a, "x").box_id, now.box_id);
        end(b);
        end(a);
        assert_int_equal(world_alive(world), 0);
}

/* One without a recorded identity takes the key of its first reclaim, and keeps it. */
static void test_an_unknown_identity(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool_key key = key_of("a:b", "c");
        struct pool_order order = {.key = &key};
        struct pool_acquired box = {0};
        assert_int_equal(pool_acquire(a, &order, &box, NULL), 0);
        world->shared--;
        world_find(world, box.id)->keyed = false;
        pool_close(a);
        struct pool *b = world_pool(world, &options);
        struct lease *leases = NULL;
        size_t count = 0;
        assert_int_equal(lease_list(b->store, "t", NULL, &leases, &count, NULL), 0);
        assert_int_equal(count, 1);
        assert_int_equal(lease_remove(b->store, leases[0].id, NULL), 0);
        lease_list_free(leases, count);
        assert_int_equal(pool_adopt(b, NULL), 0);
        assert_int_equal(status_of(b).warm, 1);
        struct pool_acquired again = {0};
        assert_int_equal(pool_acquire(b, &order, &again, NULL), 0);
        world->shared--;
        assert_string_equal(again.box_id, box.box_id);
        struct pool_key other = key_of("a", "b:c");
        order.key = &other;
        cubby_error err = {0};
        assert_int_equal(pool_acquire(b, &order, &again, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        end(b);
}

/* Its maker was killed before the folders were made: whoever gets it next makes them. */
static void test_a_box_that_was_not_ready(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *pool = world_pool(world, &options);
        world->dies_unready = true;
        (void)take_fails(world, pool, "a", NULL);
        world->dies_unready = false;
        assert_int_equal(world_alive(world), 1);
        struct pool_acquired box = take(world, pool, "a");
        assert_int_equal(box.served, SERVED_RECLAIMED);
        assert_true(world_find(world, box.id)->ready);
        assert_int_equal(world->creates, 1);
        /* one in which nothing runs is no box */
        world->dies_unready = true;
        (void)take_fails(world, pool, "b", NULL);
        world->dies_unready = false;
        world->prepare_fails = true;
        assert_true(take(world, pool, "b").fresh);
        assert_int_equal(world->creates, 3);
        assert_int_equal(world_alive(world), 2);
        world->prepare_fails = false;
        end(pool);
        assert_int_equal(world_alive(world), 0);
}

/* A failure of this process costs a peer nothing: its box is not taken before it was opened. */
static void test_a_take_that_fails(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct pool_acquired box = take(world, a, "x");
        struct pool_acquired got = {0};
        world->open_fails = true;
        assert_int_equal(take_fails(world, b, "x", NULL), CUBBY_E_SYSTEM);
        world->open_fails = false;
        pool_renew(a);
        assert_int_equal(pool_get(a, box.id, &got, NULL), 0);
        world_forget_share(world);
        assert_string_equal(got.box_id, box.box_id);
        end(b);
        end(a);
}

/* A box that does not answer is found by a peer just as its owner hands it out without a
 * check: whoever ends it does so before the owner can say that he has it. */
static void test_a_useless_box_that_is_handed_out(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        options.skip_ms = 60000;
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct pool_acquired box = take(world, a, "x");
        give(a, box.id);
        pool_flush(a);
        world_find(world, box.id)->hung = true;
        struct taking taking = {0};
        fault_arm(world->faults, "source.destroy", FAULT_PAUSE, 1);
        taking_start(&taking, world, b, "x");
        assert_true(fault_await(world->faults, "source.destroy", SOON_MS));
        assert_string_equal(take(world, a, "x").box_id, box.box_id); /* without a check */
        pool_flush(a);
        assert_int_equal(status_of(a).active, 0); /* it learns that the box is being ended */
        fault_release(world->faults, "source.destroy");
        assert_int_equal(taking_end(&taking), 0);
        assert_true(taking.acquired.fresh);
        struct lease *leases = NULL;
        size_t count = 0;
        assert_int_equal(lease_list(b->store, "t", NULL, &leases, &count, NULL), 0);
        lease_list_free(leases, count);
        assert_int_equal(count, 1);
        end(a);
        assert_int_equal(world_alive(world), 1);
        end(b);
}

/* Leases are lost, a peer finds the box and gives it another: it has one then, not two. */
static void test_one_lease_for_a_box(void **state)
{
        struct world *world = *state;
        struct table table;
        open_table(world, &table);
        struct lease lease = {.pool = "t", .token = TOKEN, .state = LEASE_OWN, .expires_ms = TTL};
        (void)snprintf(lease.box_id, sizeof lease.box_id, "%032x", 7U);
        struct lease second = lease;
        cubby_error err = {0};
        char image[72];
        (void)snprintf(image, sizeof image, "sha256:%064x", 1U);
        const struct image_record known = {.id = image,
                .manifest = (char[]){"{}"},
                .config = (char[]){"{}"},
                .architecture = (char[]){"amd64"}};
        assert_int_equal(image_record_put(world->home, &known, NULL), 0);
        struct box_record record = {
                .id = lease.box_id, .name = (char[]){"name"}, .image_id = image, .slot = 1};
        if (box_record_insert(world->home, &record, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(lease_begin(table.mine, &lease, 0, 0, NULL), 0);
        assert_int_equal(lease_begin(table.theirs, &second, 0, 0, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        assert_int_equal(lease_remove(table.mine, lease.id, NULL), 0);
        enum lease_renewal renewal = RENEWED;
        assert_int_equal(lease_renew(table.mine, &lease, 0, TTL, &renewal, NULL), 0);
        assert_int_equal(renewal, RENEWED_LAPSED); /* established again */
        assert_int_equal(lease_remove(table.mine, lease.id, NULL), 0);
        assert_int_equal(lease_begin(table.theirs, &second, 0, 0, NULL), 0);
        assert_int_equal(lease_renew(table.mine, &lease, 0, TTL, &renewal, NULL), 0);
        assert_int_equal(renewal, RENEWAL_LOST);
        close_table(&table);
}

/* A create that took longer than its lease: the new box is nobody's to adopt. */
static void test_a_long_create(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct taking taking = {0};
        fault_arm(world->faults, "create.made", FAULT_PAUSE, 1);
        taking_start(&taking, world, a, "x");
        assert_true(fault_await(world->faults, "create.made", SOON_MS));
        world_forward(world, options.renewal_ms * options.ttl_multiplier + 1);
        fault_release(world->faults, "create.made");
        assert_int_equal(taking_end(&taking), 0);
        assert_int_equal(pool_adopt(b, NULL), 0);
        assert_int_equal(status_of(b).warm, 0);
        pool_renew(a);
        assert_int_equal(status_of(a).active, 1);
        end(a);
        end(b);
}

/* Left warm: it is as old as it was, not as the end of its process. */
static void test_the_time_of_release_stays(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        give(a, take(world, a, "x").id);
        pool_flush(a);
        world_forward(world, options.idle_ms - 1);
        pool_close(a);
        struct pool *b = world_pool(world, &options);
        assert_int_equal(pool_adopt(b, NULL), 0);
        assert_int_equal(status_of(b).warm, 1);
        world_forward(world, 1);
        pool_reap(b);
        assert_int_equal(status_of(b).warm, 0);
        end(b);
}

/* A peer that makes a box for the key is waited for, but not after shutdown or a cancel. */
static void test_waiting_for_a_peer(void **state)
{
        struct world *world = *state;
        struct pool_options options = world_options();
        struct pool *a = world_pool(world, &options);
        struct pool *b = world_pool(world, &options);
        struct taking first = {0};
        struct taking second = {0};
        fault_arm(world->faults, "source.create", FAULT_PAUSE, 1);
        taking_start(&first, world, a, "x");
        assert_true(fault_await(world->faults, "source.create", SOON_MS));
        taking_start(&second, world, b, "x");
        while (status_of(b).keys == 0)
                (void)sched_yield();
        int64_t begun = clock_monotonic_ms();
        assert_int_equal(pool_shutdown(b, 20000, NULL, NULL), 0);
        assert_int_equal(taking_end(&second), -1);
        assert_int_equal(second.error.code, CUBBY_E_SHUTDOWN);
        assert_true(clock_monotonic_ms() - begun < SOON_MS);
        fault_release(world->faults, "source.create");
        assert_int_equal(taking_end(&first), 0);
        pool_close(b);
        end(a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_WORLD(test_take_and_claim),
                WITH_WORLD(test_renewals),
                WITH_WORLD(test_owner_of_a_dead_process),
                WITH_WORLD(test_a_living_owner_is_left_alone),
                WITH_WORLD(test_a_turn_moves),
                WITH_WORLD(test_a_taken_box_is_not_reaped),
                WITH_WORLD(test_an_acquire_wins_over_forgetting),
                WITH_WORLD(test_a_long_destroy),
                WITH_WORLD(test_the_store_is_away),
                WITH_WORLD(test_adoption),
                WITH_WORLD(test_boxes_without_leases),
                WITH_WORLD(test_a_box_that_ends_while_it_is_adopted),
                WITH_WORLD(test_an_unknown_identity),
                WITH_WORLD(test_a_box_that_was_not_ready),
                WITH_WORLD(test_a_take_that_fails),
                WITH_WORLD(test_one_lease_for_a_box),
                WITH_WORLD(test_a_useless_box_that_is_handed_out),
                WITH_WORLD(test_a_long_create),
                WITH_WORLD(test_the_time_of_release_stays),
                WITH_WORLD(test_waiting_for_a_peer),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
