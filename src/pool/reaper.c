/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#define LOOK_MS 60000 /* at least so often */

/* With the lock held: the box that was warm too long, decided and taken out at once. */
static struct entry *take_expired(struct pool *pool)
{
        struct entry *entry = pool->oldest;
        if (pool->options.idle_ms == 0 || entry == NULL ||
                pool_now(&pool->clock) - entry->released_ms < pool->options.idle_ms)
                return NULL;
        pool->counters[COUNT_REAPED]++;
        end_begin(pool, entry);
        return entry;
}

void pool_reap(struct pool *pool)
{
        for (;;) {
                (void)FAULT_POINT(pool->faults, "reap.look", NULL);
                pool_lock(pool);
                struct entry *entry = take_expired(pool);
                pool_unlock(pool);
                if (entry == NULL)
                        break;
                (void)FAULT_POINT(pool->faults, "reap.taken", NULL);
                (void)end_finish(pool, entry, NULL);
        }
        end_retry(pool);
}

/* With the lock held: when the next one is due. */
static int64_t next_look(const struct pool *pool)
{
        int64_t next = pool_deadline(&pool->clock, LOOK_MS);
        if (pool->options.idle_ms > 0 && pool->oldest != NULL &&
                pool->oldest->released_ms + pool->options.idle_ms < next)
                next = pool->oldest->released_ms + pool->options.idle_ms;
        for (const struct entry *entry = pool->ending; entry != NULL; entry = entry->next)
                if (!entry->destroying && entry->retry_ms < next)
                        next = entry->retry_ms;
        return next;
}

void *reaper_run(void *data)
{
        struct pool *pool = data;
        pool_lock(pool);
        while (!pool->stop_threads) {
                int64_t next = next_look(pool);
                if (pool_now(&pool->clock) < next) {
                        pool_wait(&pool->clock, &pool->reaping, &pool->lock, next);
                        continue;
                }
                pool_unlock(pool);
                pool_reap(pool);
                pool_lock(pool);
        }
        pool_unlock(pool);
        return NULL;
}
