/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <stdio.h>
#include <string.h>

#define ADOPT_LOCK_MS 2000
#define LOCK_LOOK_MS 100 /* who waits for a peer sees so soon that it is of no use any more */

void source_items_free(struct source_item *items, size_t count)
{
        for (size_t i = 0; items != NULL && i < count; i++)
                free(items[i].memory);
        free(items);
}

int host_lock(struct pool *pool, const char *id, int64_t deadline_ms, const atomic_bool *cancelled,
        struct host_lock *ret, cubby_error *err)
{
        struct host_lock lock = {.fd = -1};
        cubby_error problem = {0};
        /* real time: a file lock knows no other */
        int64_t left = deadline_ms == DEADLINE_NEVER ? -1 : deadline_ms - pool_now(&pool->clock);
        int64_t last = deadline_ms == DEADLINE_NEVER ? DEADLINE_NEVER
                                                     : deadline_after_ms(left < 0 ? 0 : left);
        (void)snprintf(lock.name, sizeof lock.name, "pool-%s-%s", pool->options.prefix, id);
        for (;;) {
                int64_t look = deadline_after_ms(LOCK_LOOK_MS);
                if (home_lock_briefly(pool->home, lock.name, look < last ? look : last, &lock.fd,
                            &problem) == 0)
                        break;
                if (problem.code != CUBBY_E_TIMEOUT || deadline_left_ms(last) == 0)
                        return cubby_error_set(err, problem.code,
                                "another process acquires the same user and thread: %s",
                                problem.message);
                pool_lock(pool);
                int refused = pool_refuse(pool, err);
                pool_unlock(pool);
                if (refused < 0)
                        return -1;
                if (cancelled != NULL && atomic_load(cancelled))
                        return cubby_error_set(err, CUBBY_E_CANCELLED, "the acquire was cancelled");
        }
        *ret = lock;
        return 0;
}

void host_unlock(struct pool *pool, struct host_lock *lock)
{
        home_unlock_briefly(pool->home, lock->name, &lock->fd);
}

int adopt_destroy(struct pool *pool, const struct lease *lease, cubby_error *err)
{
        if (lease->box_id[0] != '\0' &&
                pool->source.destroy(pool->source.data, lease->box_id, err) < 0)
                return -1;
        return lease_remove(pool->store, lease->id, err);
}

/* 0 with *ret open and answering, 1 when it is dead or does not answer, -1. */
static int open_box(
        struct pool *pool, const char *box_id, bool check, struct source_box *ret, cubby_error *err)
{
        cubby_error problem = {0};
        struct source_box box = {0};
        if (pool->source.open(pool->source.data, box_id, &box, &problem) < 0) {
                if (problem.code == CUBBY_E_BOX_DEAD || problem.code == CUBBY_E_NOT_FOUND ||
                        problem.code == CUBBY_E_STATE)
                        return 1;
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (check &&
                pool->source.check(
                        pool->source.data, box.handle, pool->options.check_ms, &problem) < 0) {
                pool->source.forget(pool->source.data, box.handle);
                pool_log(pool, LOG_WARNING, NULL, "box %.12s did not pass its check: %s", box_id,
                        problem.message);
                return 1;
        }
        *ret = box;
        return 0;
}

/* With the lock held. */
static int add(struct pool *pool, struct entry *entry, cubby_error *err)
{
        if (pool_refuse(pool, err) < 0 || table_grow(pool, err) < 0)
                return -1;
        if (table_find(pool, entry->id) != NULL)
                return cubby_error_set(
                        err, CUBBY_E_BUSY, "box %s is in the pool already", entry->id);
        if (entry->generation > pool->last_generation)
                pool->last_generation = entry->generation;
        table_add(pool, entry);
        pool->counters[COUNT_ADOPTED]++;
        if (entry->state == ENTRY_ACTIVE)
                pool->creating--;
        entry_hold(entry);
        (void)pthread_cond_signal(&pool->reaping);
        return 0;
}

static int make_entry(struct pool *pool, const struct lease *lease, const struct pool_key *key,
        enum entry_state state, const struct source_box *box, struct entry **ret, cubby_error *err)
{
        struct entry *entry = NULL;
        if (entry_create(lease->token, key, box, &entry, err) < 0)
                return -1;
        memcpy(entry->lease_id, lease->id, sizeof entry->lease_id);
        entry->generation = lease->generation;
        entry->valid_ms = pool_now(&pool->clock) + pool_lease_ttl(pool);
        entry->state = state;
        entry->parked_told = true; /* or not: it is told again */
        /* a clock of another boot is ahead of ours at most by accident */
        int64_t now = pool_now(&pool->clock);
        entry->released_ms = lease->state == LEASE_PARKED && lease->parked_ms <= now &&
                        lease->parked_ms > 0 &&
                        strcmp(lease->owner.boot_id, lease_store_self(pool->store)->boot_id) == 0
                ? lease->parked_ms
                : now;
        *ret = entry;
        return 0;
}

/* The lease becomes ours, to hand its box out. 1, 0 when a destroyer has it, -1. */
static int take_lease(
        struct pool *pool, const struct lease *lease, const struct pool_key *key, cubby_error *err)
{
        struct lease asked = {.user = (uint8_t *)(uintptr_t)key->user,
                .user_size = key->user_size,
                .thread = (uint8_t *)(uintptr_t)key->thread,
                .thread_size = key->thread_size};
        enum lease_answer answer = LEASE_YES;
        if (lease_take(pool->store, lease->id, &asked, pool_now(&pool->clock), pool_lease_ttl(pool),
                    &answer, err) < 0)
                return -1;
        return answer == LEASE_YES ? 1 : 0;
}

/* A box that is dead or does not answer. */
static int end_useless(struct pool *pool, const struct lease *lease, cubby_error *err)
{
        enum lease_answer answer = LEASE_YES;
        pool_lock(pool);
        pool->counters[COUNT_CHECK_FAILED]++;
        pool_unlock(pool);
        if (lease_doom(pool->store, lease->id, pool_now(&pool->clock), pool_lease_ttl(pool),
                    &answer, err) < 0)
                return -1;
        return answer == LEASE_YES ? adopt_destroy(pool, lease, err) : 0;
}

/* Nobody's again: it goes on, and ends by itself when nobody comes. */
static void leave(struct pool *pool, const struct lease *lease, void *handle)
{
        int64_t idle = pool->options.idle_ms;
        if (handle != NULL && idle > 0)
                pool->source.park(pool->source.data, handle, idle);
        (void)lease_leave(pool->store, lease->id, LEASE_PARKED, pool_now(&pool->clock), 0, NULL);
}

/* Takes the box of the source. */
static int add_box(struct pool *pool, const struct lease *lease, const struct pool_key *key,
        enum entry_state state, const struct source_box *box, struct entry **ret, cubby_error *err)
{
        struct entry *entry = NULL;
        if (make_entry(pool, lease, key, state, box, &entry, err) < 0) {
                leave(pool, lease, box->handle);
                pool->source.forget(pool->source.data, box->handle);
                return -1;
        }
        pool_lock(pool);
        int result = add(pool, entry, err);
        if (result == 0)
                entry_mark_dirty(pool, entry);
        pool_unlock(pool);
        if (result < 0) {
                leave(pool, lease, box->handle);
                entry_drop(pool, entry);
                return -1;
        }
        *ret = entry;
        return 1;
}

int adopt_box(struct pool *pool, const struct lease *lease, const struct pool_key *key,
        enum entry_state state, struct entry **ret_entry, cubby_error *err)
{
        struct source_box box = {0};
        bool take = state == ENTRY_ACTIVE;
        /* before it is taken: what fails here leaves it to its owner */
        int opened = open_box(pool, lease->box_id, take, &box, err);
        if (opened > 0)
                return end_useless(pool, lease, err);
        int ours = opened < 0 ? -1 : take ? take_lease(pool, lease, key, err) : 1;
        if (ours <= 0) {
                if (box.handle != NULL)
                        pool->source.forget(pool->source.data, box.handle);
                if (!take)
                        leave(pool, lease, NULL);
                return ours;
        }
        return add_box(pool, lease, key, state, &box, ret_entry, err);
}

/*
 * Its maker may have died before it was ready, or it was ended since the boxes were
 * listed, before the id's lock was ours. 1 with what its lease shall say, 0 when there
 * is none any more, -1.
 */
static int look_nameless(
        struct pool *pool, const char *box_id, enum lease_state *ret, cubby_error *err)
{
        cubby_error problem = {0};
        struct source_box box = {0};
        int result = pool->source.open(pool->source.data, box_id, &box, &problem);
        if (result == 0) {
                result = pool->source.prepare(pool->source.data, box.handle, &problem);
                pool->source.forget(pool->source.data, box.handle);
        } else if (problem.code == CUBBY_E_NOT_FOUND) {
                return 0;
        } else if (problem.code != CUBBY_E_BOX_DEAD && problem.code != CUBBY_E_STATE) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (result < 0)
                pool_log(pool, LOG_WARNING, NULL, "box %.12s was not ready and is ended: %s",
                        box_id, problem.message);
        *ret = result == 0 ? LEASE_PARKED : LEASE_DEL;
        return 1;
}

static int lease_nameless(struct pool *pool, const struct source_item *item, cubby_error *err)
{
        struct lease present = {0};
        enum lease_answer answer = LEASE_GONE;
        struct lease lease = {.keyed = item->keyed,
                .user = (uint8_t *)(uintptr_t)item->key.user,
                .user_size = item->key.user_size,
                .thread = (uint8_t *)(uintptr_t)item->key.thread,
                .thread_size = item->key.thread_size,
                .expires_ms = pool_now(&pool->clock) + pool_lease_ttl(pool)};
        if (lease_of_box(pool->store, item->box_id, &present, &answer, err) < 0)
                return -1;
        lease_clear(&present);
        int found = answer == LEASE_YES || end_runs(pool, "", item->box_id)
                ? 0
                : look_nameless(pool, item->box_id, &lease.state, err);
        if (found <= 0)
                return found;
        memcpy(lease.pool, pool->options.prefix, sizeof lease.pool);
        memcpy(lease.token, item->id, sizeof lease.token);
        memcpy(lease.box_id, item->box_id, sizeof lease.box_id);
        pool_lock(pool);
        lease.generation = next_generation(pool);
        pool_unlock(pool);
        cubby_error problem = {0};
        if (lease_begin(pool->store, &lease, 0, pool_now(&pool->clock), &problem) < 0) {
                if (problem.code == CUBBY_E_EXISTS)
                        return 0;
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (lease.state == LEASE_DEL)
                return adopt_destroy(pool, &lease, err);
        return lease_leave(pool->store, lease.id, LEASE_PARKED, pool_now(&pool->clock), 0, err);
}

int adopt_nameless(struct pool *pool, const char *id, cubby_error *err)
{
        struct source_item *items = NULL;
        size_t count = 0;
        if (pool->source.list(pool->source.data, pool->options.prefix, id, &items, &count, err) < 0)
                return -1;
        int result = 0;
        for (size_t i = 0; result == 0 && i < count; i++)
                result = lease_nameless(pool, &items[i], err);
        source_items_free(items, count);
        return result;
}

/* With the token's locks held. 0 also when it is not ours to have. */
static int adopt_lease(struct pool *pool, const struct lease *lease, cubby_error *err)
{
        enum lease_state wanted =
                lease->state == LEASE_DEL || lease->box_id[0] == '\0' ? LEASE_DEL : LEASE_PARKED;
        enum lease_answer answer = LEASE_YES;
        pool_lock(pool);
        bool known = table_find(pool, lease->token) != NULL;
        pool_unlock(pool);
        if (known ||
                lease_claim(pool->store, lease->id, wanted, pool_now(&pool->clock),
                        pool_lease_ttl(pool), &answer, err) < 0)
                return known ? 0 : -1;
        if (answer != LEASE_YES)
                return 0;
        if (wanted == LEASE_DEL)
                return adopt_destroy(pool, lease, err);
        struct pool_key key = {.user = lease->user,
                .user_size = lease->user_size,
                .thread = lease->thread,
                .thread_size = lease->thread_size};
        struct entry *entry = NULL;
        int result = adopt_box(pool, lease, lease->keyed ? &key : NULL, ENTRY_WARM, &entry, err);
        if (result == 1)
                entry_drop(pool, entry);
        return result < 0 ? -1 : 0;
}

static void adopt_one(struct pool *pool, const struct lease *lease)
{
        cubby_error problem = {0};
        struct host_lock lock = {.fd = -1};
        int64_t deadline = pool_deadline(&pool->clock, ADOPT_LOCK_MS);
        if (lease_owner_same(&lease->owner, lease_store_self(pool->store)) ||
                !lease_lapsed(lease, lease_store_self(pool->store), pool_now(&pool->clock)))
                return;
        if (serializer_lock(pool->serializer, lease->token, strlen(lease->token), deadline, NULL,
                    &problem) < 0)
                return;
        if (host_lock(pool, lease->token, deadline, NULL, &lock, &problem) == 0 &&
                adopt_lease(pool, lease, &problem) < 0)
                pool_log(pool, LOG_WARNING, NULL, "box %s was not adopted: %s", lease->token,
                        problem.message);
        host_unlock(pool, &lock);
        serializer_unlock(pool->serializer, lease->token, strlen(lease->token));
}

/* A box without a lease may be one that a peer just makes: he holds its id's lock. */
static void adopt_item(struct pool *pool, const struct source_item *item)
{
        cubby_error problem = {0};
        struct host_lock lock = {.fd = -1};
        int64_t deadline = pool_deadline(&pool->clock, ADOPT_LOCK_MS);
        if (host_lock(pool, item->id, deadline, NULL, &lock, &problem) == 0 &&
                lease_nameless(pool, item, &problem) < 0)
                pool_log(pool, LOG_WARNING, NULL, "box %s was not adopted: %s", item->id,
                        problem.message);
        host_unlock(pool, &lock);
}

static int adopt_items(struct pool *pool, cubby_error *err)
{
        struct source_item *items = NULL;
        size_t count = 0;
        if (pool->source.list(pool->source.data, pool->options.prefix, NULL, &items, &count, err) <
                0)
                return -1;
        (void)FAULT_POINT(pool->faults, "adopt.listed", NULL);
        for (size_t i = 0; i < count; i++)
                adopt_item(pool, &items[i]);
        source_items_free(items, count);
        return 0;
}

int pool_adopt(struct pool *pool, cubby_error *err)
{
        struct lease *leases = NULL;
        size_t count = 0;
        if (pool_check_process(pool, err) < 0 || adopt_items(pool, err) < 0 ||
                lease_list(pool->store, pool->options.prefix, NULL, &leases, &count, err) < 0)
                return -1;
        for (size_t i = 0; i < count; i++)
                adopt_one(pool, &leases[i]);
        lease_list_free(leases, count);
        return 0;
}
