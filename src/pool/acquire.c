/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE 96

/* One acquire on its way. */
struct acquiring {
        struct pool *pool;
        const struct pool_order *order;
        char id[TOKEN_SIZE];
        int64_t deadline_ms;
        bool place; /* capacity is reserved */
        struct pool_acquired *ret;
};

/* With the lock held. */
static void hand_out(struct acquiring *now, struct entry *entry, enum pool_served served)
{
        struct pool *pool = now->pool;
        static const enum pool_counter counters[] = {[SERVED_REUSED] = COUNT_REUSED,
                [SERVED_RECLAIMED] = COUNT_RECLAIMED,
                [SERVED_SPARE] = COUNT_SPARE,
                [SERVED_CLONED] = COUNT_CLONED,
                [SERVED_BOOTED] = COUNT_BOOTED};
        pool->counters[counters[served]]++;
        entry->holders++;
        struct pool_acquired acquired = {.served = served,
                .fresh = served != SERVED_REUSED && served != SERVED_RECLAIMED,
                .generation = entry->generation,
                .turn = entry->turn,
                .shared = pool->source.share(pool->source.data, entry->handle, entry->generation)};
        memcpy(acquired.id, entry->id, sizeof acquired.id);
        memcpy(acquired.box_id, entry->box_id, sizeof acquired.box_id);
        *now->ret = acquired;
}

static bool may_skip(const struct pool *pool, const struct entry *entry)
{
        int64_t time = pool_now(&pool->clock);
        return pool->options.skip_ms > 0 && entry->released_here && pool->store_well &&
                time - entry->released_ms < pool->options.skip_ms && time < entry->valid_ms;
}

/* With the lock held and the entry held; lets the lock go. Returns 0, or -1 when the
 * store cannot say that the box may be replaced. */
static int drop_failed(struct acquiring *now, struct entry *entry, cubby_error *err)
{
        struct pool *pool = now->pool;
        bool present = table_find(pool, now->id) == entry;
        if (present) {
                pool->counters[COUNT_CHECK_FAILED]++;
                end_begin(pool, entry);
        }
        pool_unlock(pool);
        return present ? end_finish(pool, entry, err) : 0;
}

/* 1 when the lease is ours, 0 when the box went to a destroyer, -1. */
static int confirm_lease(struct acquiring *now, struct entry *entry, cubby_error *err)
{
        struct pool *pool = now->pool;
        enum lease_answer answer = LEASE_YES;
        bool ours = false;
        if (FAULT_POINT(pool->faults, "reclaim.store", err) < 0 ||
                lease_ours(pool->store, entry->lease_id, &ours, err) < 0)
                return -1;
        if (!ours &&
                lease_take(pool->store, entry->lease_id, NULL, pool_now(&pool->clock),
                        pool_lease_ttl(pool), &answer, err) < 0)
                return -1;
        if (answer == LEASE_YES)
                return 1;
        pool_lock(pool);
        bool present = table_find(pool, now->id) == entry;
        if (present)
                lease_forget(pool, entry);
        pool_unlock(pool);
        if (present)
                entry_drop(pool, entry);
        return 0;
}

/* With the lock held, after a check that went well: the entry is looked at again,
 * it may have been taken out or replaced meanwhile. */
static bool promote(struct acquiring *now, struct entry *entry, struct pool_key *key, void **memory)
{
        struct pool *pool = now->pool;
        if (table_find(pool, now->id) != entry || entry->state != ENTRY_WARM || pool->closing ||
                pool->reset)
                return false;
        if (!entry->keyed && key != NULL) {
                entry->key = *key;
                entry->key_memory = *memory;
                entry->keyed = true;
                *memory = NULL;
        }
        table_set_active(pool, entry);
        entry_mark_dirty(pool, entry);
        hand_out(now, entry, SERVED_RECLAIMED);
        return true;
}

/* A warm box of this instance, held. 1 when it was handed out, 0 when it is no more, -1. */
static int reclaim(struct acquiring *now, struct entry *entry, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct pool_key key = {0};
        AUTO_FREE void *memory = NULL;
        int ours = confirm_lease(now, entry, err);
        if (ours <= 0)
                return ours;
        if (key_copy(now->order->key, &key, &memory, err) < 0)
                return -1;
        if (FAULT_POINT(pool->faults, "reclaim.check", err) < 0)
                return -1;
        cubby_error problem = {0};
        int64_t begun_ns = clock_monotonic_ns();
        int result = pool->source.check(
                pool->source.data, entry->handle, pool->options.check_ms, &problem);
        pool_measure(pool, STEP_CHECK, begun_ns);
        (void)FAULT_POINT(pool->faults, "reclaim.checked", NULL);
        pool_lock(pool);
        if (result < 0) {
                pool_unlock(pool);
                pool_log(pool, LOG_WARNING, now->order->trace,
                        "box %s did not pass its check, another takes its place: %s", entry->id,
                        problem.message);
                pool_lock(pool);
                return drop_failed(now, entry, err);
        }
        bool done = promote(now, entry, &key, &memory);
        pool_unlock(pool);
        return done ? 1 : 0;
}

/* With the lock held: what needs no round trip. 1, 0 to go on with *ret_entry held
 * (NULL: the id is unknown), -1. */
static int look_up(struct acquiring *now, struct entry **ret_entry, cubby_error *err)
{
        struct pool *pool = now->pool;
        if (pool_refuse(pool, err) < 0)
                return -1;
        struct entry *entry = table_find(pool, now->id);
        if (entry == NULL)
                return 0;
        if (entry->keyed && !key_equal(now->order->key, &entry->key))
                return key_mismatch(now->order->key, &entry->key, err);
        bool closed = pool->source.closed(pool->source.data, entry->handle);
        if (!closed && entry->state == ENTRY_ACTIVE) {
                entry->epoch++;
                hand_out(now, entry, SERVED_REUSED);
                return 1;
        }
        if (!closed && may_skip(pool, entry)) {
                table_set_active(pool, entry);
                entry->taken = true;
                entry_mark_dirty(pool, entry);
                pool->counters[COUNT_SKIPPED]++;
                hand_out(now, entry, SERVED_RECLAIMED);
                return 1;
        }
        entry->known_closed = closed;
        entry_hold(entry);
        *ret_entry = entry;
        return 0;
}

/* A box that this instance knows. 1, 0 when there is none, -1. */
static int acquire_known(struct acquiring *now, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct entry *entry = NULL;
        int64_t begun_ns = clock_monotonic_ns();
        pool_lock(pool);
        int result = look_up(now, &entry, err);
        if (entry == NULL) {
                pool_unlock(pool);
                return result;
        }
        if (entry->known_closed) {
                result = drop_failed(now, entry, err);
        } else {
                lease_wait_written(pool, entry);
                pool_unlock(pool);
                result = reclaim(now, entry, err);
        }
        entry_drop(pool, entry);
        if (result == 1)
                pool_measure(pool, STEP_RECLAIM, begun_ns);
        return result;
}

static int take_place(struct acquiring *now, cubby_error *err)
{
        if (now->place)
                return 0;
        if (capacity_reserve(now->pool, now->order, now->deadline_ms, err) < 0)
                return -1;
        now->place = true;
        return 0;
}

/* A box of another process with this token. 1, 0 when it is of no use, -1. */
static int adopt_one(struct acquiring *now, struct lease *lease, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct pool_key key = {.user = lease->user,
                .user_size = lease->user_size,
                .thread = lease->thread,
                .thread_size = lease->thread_size};
        /* being ended here too, though the store may not know of it yet */
        if (lease->state == LEASE_DEL || end_runs(pool, lease->id, lease->box_id))
                return 0;
        /* its maker held the file lock that is ours now: he is dead */
        if (lease->box_id[0] == '\0')
                return lease_remove(pool->store, lease->id, err);
        if (lease->keyed && !key_equal(now->order->key, &key))
                return key_mismatch(now->order->key, &key, err);
        if (take_place(now, err) < 0)
                return -1;
        struct entry *entry = NULL;
        int result = adopt_box(pool, lease, now->order->key, ENTRY_ACTIVE, &entry, err);
        if (result <= 0)
                return result;
        now->place = false;
        pool_lock(pool);
        hand_out(now, entry, SERVED_RECLAIMED);
        pool_unlock(pool);
        entry_drop(pool, entry);
        return 1;
}

/* What the other processes of this host have for the token. 1, 0, -1. */
static int acquire_shared(struct acquiring *now, cubby_error *err)
{
        struct lease *leases = NULL;
        size_t count = 0;
        if (FAULT_POINT(now->pool->faults, "acquire.store", err) < 0 ||
                lease_list(now->pool->store, now->pool->options.prefix, now->id, &leases, &count,
                        err) < 0)
                return -1;
        int result = 0;
        for (size_t i = 0; result == 0 && i < count; i++)
                result = adopt_one(now, &leases[i], err);
        lease_list_free(leases, count);
        return result;
}

/* The row that says, before the box is made, whose it will be. */
static int begin_lease(struct acquiring *now, struct lease *lease, cubby_error *err)
{
        struct pool *pool = now->pool;
        const struct pool_key *key = now->order->key;
        pool_lock(pool);
        uint64_t generation = next_generation(pool);
        pool_unlock(pool);
        *lease = (struct lease){.keyed = key != NULL,
                .state = LEASE_OWN,
                .expires_ms = pool_now(&pool->clock) + pool_lease_ttl(pool),
                .generation = generation};
        if (key != NULL) {
                lease->user = (uint8_t *)(uintptr_t)key->user;
                lease->user_size = key->user_size;
                lease->thread = (uint8_t *)(uintptr_t)key->thread;
                lease->thread_size = key->thread_size;
        }
        memcpy(lease->pool, pool->options.prefix, sizeof lease->pool);
        memcpy(lease->token, now->id, sizeof lease->token);
        return lease_begin(
                pool->store, lease, pool->options.max_boxes, pool_now(&pool->clock), err);
}

/* The usual name may be that of a box which just ends: then one with a suffix. */
static int make_box(struct acquiring *now, struct source_box *ret, cubby_error *err)
{
        struct pool *pool = now->pool;
        char name[NAME_SIZE];
        (void)snprintf(name, sizeof name, "%s-%s", pool->options.prefix, now->id);
        struct source_wish wish = {
                .pool = pool->options.prefix, .id = now->id, .name = name, .key = now->order->key};
        cubby_error problem = {0};
        if (pool->source.create(pool->source.data, &wish, ret, &problem) == 0)
                return 0;
        if (problem.code == CUBBY_E_EXISTS) {
                char more[TOKEN_SIZE];
                if (anonymous_id(more, err) < 0)
                        return -1;
                (void)snprintf(name, sizeof name, "%s-%s-%s", pool->options.prefix, now->id, more);
                return pool->source.create(pool->source.data, &wish, ret, err);
        }
        if (err != NULL)
                *err = problem;
        return -1;
}

/* The new box comes into the table, unless the pool has begun to end meanwhile. */
static int add_new(struct acquiring *now, const struct lease *lease, const struct source_box *box,
        struct entry **ret, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct entry *entry = NULL;
        if (FAULT_POINT(pool->faults, "create.made", err) < 0 ||
                lease_attach(pool->store, lease->id, box->box_id, pool_now(&pool->clock),
                        pool_lease_ttl(pool), err) < 0 ||
                entry_create(now->id, now->order->key, box, &entry, err) < 0)
                return -1;
        memcpy(entry->lease_id, lease->id, sizeof entry->lease_id);
        entry->generation = lease->generation;
        entry->valid_ms = lease->expires_ms; /* at least; it was renewed just now */
        entry->state = ENTRY_ACTIVE;
        pool_lock(pool);
        int result = pool_refuse(pool, err);
        if (result == 0)
                result = table_grow(pool, err);
        if (result == 0) {
                table_add(pool, entry);
                pool->creating--;
                now->place = false;
                hand_out(now, entry, box->served);
        }
        pool_unlock(pool);
        if (result < 0) {
                entry->handle = NULL; /* the caller's still */
                entry_drop(pool, entry);
                return -1;
        }
        *ret = entry;
        return 0;
}

/* Nothing stays behind an acquire that failed; what cannot be ended now is tried again. */
static void drop_unfinished(
        struct acquiring *now, const struct lease *lease, struct source_box *box)
{
        struct pool *pool = now->pool;
        cubby_error problem = {0};
        if ((box->box_id[0] == '\0' ||
                    pool->source.destroy(pool->source.data, box->box_id, &problem) == 0) &&
                lease_remove(pool->store, lease->id, &problem) == 0) {
                if (box->handle != NULL)
                        pool->source.forget(pool->source.data, box->handle);
                return;
        }
        pool_log(pool, LOG_WARNING, now->order->trace,
                "box %s could not be ended, it is tried again: %s", now->id, problem.message);
        if (box->box_id[0] != '\0')
                (void)lease_attach(pool->store, lease->id, box->box_id, pool_now(&pool->clock),
                        pool_lease_ttl(pool), NULL);
        end_leftover(pool, lease, box);
}

static int create(struct acquiring *now, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct lease lease = {0};
        struct source_box box = {0};
        struct entry *entry = NULL;
        int64_t begun_ns = clock_monotonic_ns();
        if (take_place(now, err) < 0 || FAULT_POINT(pool->faults, "create.reserved", err) < 0 ||
                begin_lease(now, &lease, err) < 0)
                return -1;
        int result = FAULT_POINT(pool->faults, "create.leased", err);
        if (result == 0)
                result = make_box(now, &box, err);
        if (result == 0)
                result = add_new(now, &lease, &box, &entry, err);
        if (result == 0) {
                pool_measure(pool, STEP_CREATE, begun_ns);
                return 0;
        }
        drop_unfinished(now, &lease, &box);
        return -1;
}

static int acquire_beyond(struct acquiring *now, cubby_error *err)
{
        struct pool *pool = now->pool;
        struct host_lock lock = {.fd = -1};
        if (host_lock(pool, now->id, now->deadline_ms, now->order->cancelled, &lock, err) < 0)
                return -1;
        int result = FAULT_POINT(pool->faults, "acquire.host", err);
        if (result == 0)
                result = acquire_shared(now, err);
        if (result == 0 && adopt_nameless(pool, now->id, err) < 0)
                result = -1;
        if (result == 0)
                result = acquire_shared(now, err);
        if (result == 0)
                result = create(now, err) < 0 ? -1 : 1;
        host_unlock(pool, &lock);
        return result;
}

static int acquire_keyed(struct acquiring *now, cubby_error *err)
{
        struct pool *pool = now->pool;
        if (serializer_lock(pool->serializer, now->id, TOKEN_LENGTH, now->deadline_ms,
                    now->order->cancelled, err) < 0)
                return -1;
        int result = FAULT_POINT(pool->faults, "acquire.locked", err);
        if (result == 0 && now->order->cancelled != NULL && atomic_load(now->order->cancelled))
                result = cubby_error_set(err, CUBBY_E_CANCELLED, "the acquire was cancelled");
        if (result == 0)
                result = acquire_known(now, err);
        if (result == 0)
                result = acquire_beyond(now, err);
        serializer_unlock(pool->serializer, now->id, TOKEN_LENGTH);
        return result < 0 ? -1 : 0;
}

/* Its lock keeps those away who look for boxes without a lease. */
static int acquire_anonymous(struct acquiring *now, cubby_error *err)
{
        struct host_lock lock = {.fd = -1};
        if (anonymous_id(now->id, err) < 0 ||
                host_lock(now->pool, now->id, now->deadline_ms, now->order->cancelled, &lock, err) <
                        0)
                return -1;
        int result = create(now, err);
        host_unlock(now->pool, &lock);
        return result;
}

/* The token is a contract with callers that write "None" where there is no user. */
static int order_token(const struct pool_order *order, char ret[TOKEN_SIZE], cubby_error *err)
{
        struct pool_key named = *order->key;
        if (order->no_user) {
                named.user = (const uint8_t *)"None";
                named.user_size = strlen("None");
        }
        return key_token(&named, ret, err);
}

static int acquire_counted(struct acquiring *now, cubby_error *err)
{
        struct pool *pool = now->pool;
        const struct pool_key *key = now->order->key;
        int result = 0;
        if (key == NULL)
                result = acquire_anonymous(now, err);
        else if (key_check(key, err) < 0 || order_token(now->order, now->id, err) < 0)
                result = -1;
        else
                result = acquire_keyed(now, err);
        if (now->place)
                capacity_return(pool);
        return result;
}

static const char *served_name(enum pool_served served)
{
        static const char *const names[] = {[SERVED_REUSED] = "reused",
                [SERVED_RECLAIMED] = "reclaimed",
                [SERVED_SPARE] = "spare",
                [SERVED_CLONED] = "cloned",
                [SERVED_BOOTED] = "booted"};
        return names[served];
}

int pool_acquire(struct pool *pool, const struct pool_order *order, struct pool_acquired *ret,
        cubby_error *err)
{
        if (pool_check_process(pool, err) < 0)
                return -1;
        struct pool_acquired acquired = {0};
        int64_t timeout = order->timeout_ms > 0 ? order->timeout_ms : pool->options.acquire_ms;
        struct acquiring now = {.pool = pool,
                .order = order,
                .deadline_ms = pool_deadline(&pool->clock, timeout),
                .ret = &acquired};
        int64_t begun_ns = clock_monotonic_ns();
        pool_lock(pool);
        int result = pool_refuse(pool, err);
        if (result == 0)
                pool->busy++;
        pool_unlock(pool);
        if (result < 0)
                return -1;
        cubby_error problem = {0};
        result = acquire_counted(&now, &problem);
        pool_lock(pool);
        pool->busy--;
        if (result < 0)
                pool->counters[problem.code == CUBBY_E_CANCELLED ? COUNT_CANCELLED
                                                                 : COUNT_FAILED]++;
        if (pool->closing)
                (void)pthread_cond_broadcast(&pool->room);
        pool_unlock(pool);
        if (result < 0) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        pool_measure(pool, STEP_ACQUIRE, begun_ns);
        if (acquired.served != SERVED_REUSED && acquired.served != SERVED_RECLAIMED)
                pool_log(pool, LOG_INFO, order->trace, "box %s is there (%s, %lld us)", acquired.id,
                        served_name(acquired.served),
                        (long long)((clock_monotonic_ns() - begun_ns) / 1000));
        *ret = acquired;
        return 0;
}
