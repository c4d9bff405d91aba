/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <string.h>

#define WRITE_DELAY_MS 20   /* changes of one box that follow each other are one write */
#define STORE_RETRY_MS 1000 /* after a failure of the store */
#define PARK_GRACE_MIN_MS 60000

void lease_of_entry(const struct pool *pool, const struct entry *entry, struct lease *ret)
{
        *ret = (struct lease){.keyed = entry->keyed,
                .user = (uint8_t *)(uintptr_t)entry->key.user,
                .user_size = entry->key.user_size,
                .thread = (uint8_t *)(uintptr_t)entry->key.thread,
                .thread_size = entry->key.thread_size,
                .state = entry->state == ENTRY_ACTIVE ? LEASE_OWN
                        : entry->state == ENTRY_WARM  ? LEASE_PARKED
                                                      : LEASE_DEL,
                .parked_ms = entry->released_ms,
                .generation = entry->generation};
        memcpy(ret->id, entry->lease_id, sizeof ret->id);
        memcpy(ret->box_id, entry->box_id, sizeof ret->box_id);
        memcpy(ret->token, entry->id, sizeof ret->token);
        memcpy(ret->pool, pool->options.prefix, sizeof ret->pool);
}

void lease_wait_written(struct pool *pool, struct entry *entry)
{
        while (entry->writing)
                (void)pthread_cond_wait(&pool->room, &pool->lock);
}

void lease_forget(struct pool *pool, struct entry *entry)
{
        table_remove(pool, entry);
        pool->counters[COUNT_LOST]++;
        (void)pthread_cond_broadcast(&pool->room);
}

/* What the store answered to one renewal. */
struct outcome {
        int result;
        enum lease_renewal renewal;
        uint64_t epoch; /* hand-outs of the entry when it was asked */
        int64_t asked_ms;
};

static int ask(struct pool *pool, const struct lease *lease, bool take, struct outcome *outcome,
        cubby_error *err)
{
        if (FAULT_POINT(pool->faults, "lease.store", err) < 0)
                return -1;
        if (!take)
                return lease_renew(pool->store, lease, outcome->asked_ms, pool_lease_ttl(pool),
                        &outcome->renewal, err);
        enum lease_answer answer = LEASE_YES;
        if (lease_take(pool->store, lease->id, NULL, outcome->asked_ms, pool_lease_ttl(pool),
                    &answer, err) < 0)
                return -1;
        outcome->renewal = answer == LEASE_YES ? RENEWED : RENEWAL_LOST;
        return 0;
}

static void tell_box(struct pool *pool, struct entry *entry, bool warm)
{
        int64_t idle = pool->options.idle_ms;
        if (warm == entry->parked_told || idle == 0)
                return;
        int64_t grace = idle / 2 > PARK_GRACE_MIN_MS ? idle / 2 : PARK_GRACE_MIN_MS;
        pool->source.park(pool->source.data, entry->handle, warm ? idle + grace : 0);
        entry->parked_told = warm;
}

/* With the lock held. Returns true when the entry left the table: the table's
 * reference is the caller's then. */
static bool apply(struct pool *pool, struct entry *entry, const struct outcome *outcome)
{
        pool->store_well = outcome->result == 0;
        if (outcome->result < 0) {
                if (entry->state == ENTRY_ACTIVE || entry->state == ENTRY_WARM)
                        entry_mark_dirty(pool, entry);
                return false;
        }
        if (outcome->renewal != RENEWAL_LOST) {
                entry->valid_ms = outcome->asked_ms + pool_lease_ttl(pool);
                return false;
        }
        /* handed out since the store was asked: that acquire wins */
        bool stays = entry->epoch != outcome->epoch ||
                (entry->state != ENTRY_ACTIVE && entry->state != ENTRY_WARM);
        if (!stays)
                lease_forget(pool, entry);
        return !stays;
}

/* With the lock held, which is let go meanwhile; the entry is held by the caller. */
static void write_lease(struct pool *pool, struct entry *entry)
{
        struct lease lease;
        lease_wait_written(pool, entry);
        if (entry->state == ENTRY_GONE)
                return;
        lease_of_entry(pool, entry, &lease);
        struct outcome outcome = {.epoch = entry->epoch, .asked_ms = pool_now(&pool->clock)};
        bool take = entry->taken && entry->state == ENTRY_ACTIVE;
        bool warm = entry->state == ENTRY_WARM;
        bool ending = entry->state == ENTRY_ENDING;
        entry->writing = true;
        entry->taken = false;
        pool_unlock(pool);
        cubby_error problem = {0};
        outcome.result = ask(pool, &lease, take, &outcome, &problem);
        if (outcome.result < 0)
                pool_log(pool, LOG_WARNING, NULL, "the lease of box %s could not be written: %s",
                        entry->id, problem.message);
        else if (!ending)
                tell_box(pool, entry, warm);
        (void)FAULT_POINT(pool->faults, "lease.answered", NULL);
        pool_lock(pool);
        entry->writing = false;
        if (outcome.result < 0 && take)
                entry->taken = true;
        bool left = apply(pool, entry, &outcome);
        (void)pthread_cond_broadcast(&pool->room);
        if (!left)
                return;
        pool_unlock(pool);
        pool_log(pool, LOG_INFO, NULL, "box %s went to another process", entry->id);
        entry_drop(pool, entry);
        pool_lock(pool);
}

static void write_counters(struct pool *pool)
{
        struct lease_tally deltas[COUNT_MAX] = {0};
        uint64_t values[COUNT_MAX];
        bool any = false;
        pool_lock(pool);
        for (size_t i = 0; i < COUNT_MAX; i++) {
                values[i] = pool->counters[i];
                deltas[i].value = values[i] - pool->written_counters[i];
                any |= deltas[i].value > 0;
                (void)strncpy(deltas[i].name, pool_counter_name((enum pool_counter)i),
                        sizeof deltas[i].name - 1);
        }
        pool_unlock(pool);
        if (!any || lease_tally_add(pool->store, pool->options.prefix, deltas, COUNT_MAX, NULL) < 0)
                return;
        pool_lock(pool);
        memcpy(pool->written_counters, values, sizeof values);
        pool_unlock(pool);
}

void pool_flush(struct pool *pool)
{
        pool_lock(pool);
        struct entry *list = pool->first_dirty;
        pool->first_dirty = NULL;
        while (list != NULL) {
                struct entry *entry = list;
                list = entry->next_dirty;
                entry->next_dirty = NULL;
                entry->dirty = false;
                write_lease(pool, entry);
                pool_unlock(pool);
                entry_drop(pool, entry);
                pool_lock(pool);
        }
        pool_unlock(pool);
        write_counters(pool);
}

static struct entry **snapshot(struct pool *pool, size_t *ret_count)
{
        size_t count = 0;
        struct entry **entries =
                calloc(pool->entry_count + pool->ending_count + 1, sizeof(struct entry *));
        if (entries == NULL)
                return NULL;
        for (size_t i = 0; i < pool->bucket_count; i++)
                for (struct entry *entry = pool->buckets[i]; entry != NULL; entry = entry->next)
                        entries[count++] = entry;
        for (struct entry *entry = pool->ending; entry != NULL; entry = entry->next)
                entries[count++] = entry;
        for (size_t i = 0; i < count; i++)
                entry_hold(entries[i]);
        *ret_count = count;
        return entries;
}

void pool_renew(struct pool *pool)
{
        size_t count = 0;
        pool_lock(pool);
        struct entry **entries = snapshot(pool, &count);
        pool_unlock(pool);
        for (size_t i = 0; entries != NULL && i < count; i++) {
                pool_lock(pool);
                write_lease(pool, entries[i]);
                pool_unlock(pool);
                entry_drop(pool, entries[i]);
        }
        free(entries);
}

/* With the lock held: sleeps until then, or until it shall stop. */
static void sleep_until(struct pool *pool, int64_t deadline_ms)
{
        while (!pool->stop_threads && pool_now(&pool->clock) < deadline_ms)
                pool_wait(&pool->clock, &pool->upkeep, &pool->lock, deadline_ms);
}

void *lease_writer(void *data)
{
        struct pool *pool = data;
        pool_lock(pool);
        int64_t renewal_ms = pool_deadline(&pool->clock, pool->options.renewal_ms);
        while (!pool->stop_threads) {
                int64_t now = pool_now(&pool->clock);
                if (now >= renewal_ms) {
                        pool_unlock(pool);
                        pool_renew(pool);
                        pool_lock(pool);
                        renewal_ms = pool_deadline(&pool->clock, pool->options.renewal_ms);
                } else if (pool->first_dirty == NULL) {
                        pool_wait(&pool->clock, &pool->upkeep, &pool->lock, renewal_ms);
                } else {
                        sleep_until(
                                pool, now + (pool->store_well ? WRITE_DELAY_MS : STORE_RETRY_MS));
                        pool_unlock(pool);
                        pool_flush(pool);
                        pool_lock(pool);
                }
        }
        pool_unlock(pool);
        return NULL;
}
