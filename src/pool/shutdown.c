/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include "base/buffer.h"

#include <string.h>

#define LEFT_BYTES_MAX (1U << 20)

int pool_reset(struct pool *pool, cubby_error *err)
{
        if (pool_check_process(pool, err) < 0)
                return -1;
        serializer_close(pool->serializer);
        async_stop(pool->async);
        pool_lock(pool);
        pool->reset = true;
        int64_t now = pool_now(&pool->clock);
        for (size_t i = 0; i < pool->bucket_count; i++)
                for (struct entry *entry = pool->buckets[i]; entry != NULL; entry = entry->next) {
                        if (entry->state == ENTRY_ACTIVE)
                                table_set_warm(pool, entry, now);
                        entry->released_here = false; /* a check before it is used again */
                        entry_mark_dirty(pool, entry);
                }
        (void)pthread_cond_broadcast(&pool->room);
        (void)pthread_cond_signal(&pool->reaping);
        pool_unlock(pool);
        return 0;
}

/* With the lock held: until no acquire runs. */
static void wait_idle(struct pool *pool, int64_t deadline_ms)
{
        while (pool->busy > 0 && pool_now(&pool->clock) < deadline_ms)
                pool_wait(&pool->clock, &pool->room, &pool->lock, deadline_ms);
}

static void end_table(struct pool *pool)
{
        for (size_t i = 0; i < pool->bucket_count; i++)
                while (pool->buckets[i] != NULL) {
                        struct entry *entry = pool->buckets[i];
                        end_begin(pool, entry);
                        entry->destroying = false;
                        entry->retry_ms = 0;
                }
}

/* With the lock held: one that nobody works on yet. */
static struct entry *take_ending(struct pool *pool)
{
        for (struct entry *entry = pool->ending; entry != NULL; entry = entry->next)
                if (!entry->destroying && pool_now(&pool->clock) >= entry->retry_ms) {
                        entry->destroying = true;
                        return entry;
                }
        return NULL;
}

static int64_t next_retry(const struct pool *pool, int64_t deadline_ms)
{
        for (const struct entry *entry = pool->ending; entry != NULL; entry = entry->next)
                if (!entry->destroying && entry->retry_ms < deadline_ms)
                        deadline_ms = entry->retry_ms;
        return deadline_ms;
}

/* With the lock held, which is let go meanwhile. */
static void end_all(struct pool *pool, int64_t deadline_ms)
{
        while (pool->ending_count > 0 && pool_now(&pool->clock) < deadline_ms) {
                struct entry *entry = take_ending(pool);
                if (entry == NULL) {
                        pool_wait(&pool->clock, &pool->room, &pool->lock,
                                next_retry(pool, deadline_ms));
                        continue;
                }
                pool_unlock(pool);
                (void)end_finish(pool, entry, NULL);
                pool_lock(pool);
        }
}

/* With the lock held. */
static char *list_left(const struct pool *pool)
{
        struct buffer text;
        buffer_init(&text, LEFT_BYTES_MAX);
        for (const struct entry *entry = pool->ending; entry != NULL; entry = entry->next)
                (void)buffer_printf(&text, text.size == 0 ? "%s" : " %s", entry->id);
        const char *whole = buffer_text(&text);
        char *copy = whole == NULL ? NULL : strdup(whole);
        buffer_free(&text);
        return copy;
}

int pool_shutdown(struct pool *pool, int64_t timeout_ms, char **ret_left, cubby_error *err)
{
        if (pool_check_process(pool, err) < 0)
                return -1;
        int64_t deadline = pool_deadline(&pool->clock, timeout_ms);
        pool_lock(pool);
        pool->closing = true;
        (void)pthread_cond_broadcast(&pool->room);
        pool_unlock(pool);
        (void)FAULT_POINT(pool->faults, "shutdown.closing", NULL);
        serializer_close(pool->serializer);
        async_stop(pool->async);
        pool_lock(pool);
        wait_idle(pool, deadline);
        end_table(pool);
        end_all(pool, deadline);
        uint32_t left = pool->ending_count + pool->busy;
        char *names = left == 0 ? NULL : list_left(pool);
        pool_unlock(pool);
        pool_flush(pool);
        if (ret_left != NULL)
                *ret_left = names;
        else
                free(names);
        if (left == 0)
                return 0;
        return cubby_error_set(err, CUBBY_E_TIMEOUT,
                "%u boxes of the pool '%s' have not ended in time", left, pool->options.prefix);
}
