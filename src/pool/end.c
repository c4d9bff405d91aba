/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <string.h>

#define RETRY_MS 1000

void end_begin(struct pool *pool, struct entry *entry)
{
        table_remove(pool, entry);
        pool->source.doom(pool->source.data, entry->handle);
        entry->state = ENTRY_ENDING;
        entry->destroying = true;
        entry->next = pool->ending;
        pool->ending = entry;
        pool->ending_count++;
}

/* 1 when it is gone, 0 when a peer has it, -1 when that could not be done. */
static int destroy(struct pool *pool, struct entry *entry, cubby_error *err)
{
        enum lease_answer answer = LEASE_YES;
        if (FAULT_POINT(pool->faults, "end.claim", err) < 0 ||
                lease_claim(pool->store, entry->lease_id, LEASE_DEL, pool_now(&pool->clock),
                        pool_lease_ttl(pool), &answer, err) < 0)
                return -1;
        if (answer == LEASE_REFUSED)
                return 0;
        if (FAULT_POINT(pool->faults, "end.destroy", err) < 0 ||
                pool->source.destroy(pool->source.data, entry->box_id, err) < 0 ||
                lease_remove(pool->store, entry->lease_id, err) < 0)
                return -1;
        return 1;
}

static void unlink_ending(struct pool *pool, struct entry *entry)
{
        struct entry **place = &pool->ending;
        while (*place != NULL && *place != entry)
                place = &(*place)->next;
        if (*place == NULL)
                return;
        *place = entry->next;
        entry->next = NULL;
        entry->state = ENTRY_GONE;
        pool->ending_count--;
}

void end_finish(struct pool *pool, struct entry *entry)
{
        cubby_error problem = {0};
        int64_t begun_ns = clock_monotonic_ns();
        pool_lock(pool);
        lease_wait_written(pool, entry);
        pool_unlock(pool);
        int result = destroy(pool, entry, &problem);
        if (result < 0)
                pool_log(pool, LOG_WARNING, NULL,
                        "box %s could not be ended, it is tried again: %s", entry->id,
                        problem.message);
        pool_measure(pool, STEP_DESTROY, begun_ns);
        pool_lock(pool);
        entry->destroying = false;
        entry->retry_ms = pool_now(&pool->clock) + RETRY_MS;
        if (result == 0)
                pool->counters[COUNT_LOST]++;
        if (result >= 0)
                unlink_ending(pool, entry);
        (void)pthread_cond_broadcast(&pool->room);
        (void)pthread_cond_signal(&pool->reaping);
        pool_unlock(pool);
        if (result >= 0)
                entry_drop(pool, entry);
}

bool end_runs(struct pool *pool, const char *lease_id)
{
        pool_lock(pool);
        const struct entry *entry = pool->ending;
        while (entry != NULL && strcmp(entry->lease_id, lease_id) != 0)
                entry = entry->next;
        pool_unlock(pool);
        return entry != NULL;
}

void end_retry(struct pool *pool)
{
        for (;;) {
                pool_lock(pool);
                int64_t now = pool_now(&pool->clock);
                struct entry *entry = pool->ending;
                while (entry != NULL && (entry->destroying || now < entry->retry_ms))
                        entry = entry->next;
                if (entry != NULL)
                        entry->destroying = true;
                pool_unlock(pool);
                if (entry == NULL)
                        return;
                end_finish(pool, entry);
        }
}
