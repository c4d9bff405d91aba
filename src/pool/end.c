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

/* The lease is lost: another, unless a peer found the box and gave it one. 1, 0, -1. */
static int claim_again(struct pool *pool, struct entry *entry, cubby_error *err)
{
        struct lease lease;
        cubby_error problem = {0};
        pool_lock(pool);
        lease_of_entry(pool, entry, &lease);
        pool_unlock(pool);
        lease.state = LEASE_DEL;
        lease.expires_ms = pool_now(&pool->clock) + pool_lease_ttl(pool);
        if (lease_begin(pool->store, &lease, 0, pool_now(&pool->clock), &problem) == 0) {
                pool_lock(pool);
                memcpy(entry->lease_id, lease.id, sizeof entry->lease_id);
                pool_unlock(pool);
                return 1;
        }
        if (problem.code == CUBBY_E_EXISTS)
                return 0;
        if (err != NULL)
                *err = problem;
        return -1;
}

/* It may be ended: 1, 0 when a peer has it, -1 when the store cannot say. */
static int claim(struct pool *pool, struct entry *entry, cubby_error *err)
{
        enum lease_answer answer = LEASE_YES;
        if (FAULT_POINT(pool->faults, "end.claim", err) < 0 ||
                lease_claim(pool->store, entry->lease_id, LEASE_DEL, pool_now(&pool->clock),
                        pool_lease_ttl(pool), &answer, err) < 0)
                return -1;
        if (answer == LEASE_GONE && entry->box_id[0] != '\0')
                return claim_again(pool, entry, err);
        return answer == LEASE_REFUSED ? 0 : 1;
}

/* 1 when it is gone, 0 when a peer has it, -1 when that could not be done. */
static int destroy(struct pool *pool, struct entry *entry, cubby_error *err)
{
        int claimed = claim(pool, entry, err);
        if (claimed <= 0)
                return claimed;
        entry->claimed = true;
        if (FAULT_POINT(pool->faults, "end.destroy", err) < 0 ||
                (entry->box_id[0] != '\0' &&
                        pool->source.destroy(pool->source.data, entry->box_id, err) < 0) ||
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

int end_finish(struct pool *pool, struct entry *entry, cubby_error *err)
{
        cubby_error problem = {0};
        int64_t begun_ns = clock_monotonic_ns();
        pool_lock(pool);
        lease_wait_written(pool, entry);
        pool_unlock(pool);
        int result = destroy(pool, entry, &problem);
        bool unclaimed = result < 0 && !entry->claimed;
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
        if (!unclaimed)
                return 0;
        if (err != NULL)
                *err = problem;
        return -1;
}

void end_leftover(struct pool *pool, const struct lease *lease, const struct source_box *box)
{
        struct entry *entry = NULL;
        if (entry_create(lease->token, NULL, box, &entry, NULL) < 0) {
                if (box->handle != NULL)
                        pool->source.forget(pool->source.data, box->handle);
                return;
        }
        memcpy(entry->lease_id, lease->id, sizeof entry->lease_id);
        entry->generation = lease->generation;
        entry->state = ENTRY_ENDING;
        pool_lock(pool);
        entry->retry_ms = pool_now(&pool->clock) + RETRY_MS;
        entry->next = pool->ending;
        pool->ending = entry;
        pool->ending_count++;
        (void)pthread_cond_signal(&pool->reaping);
        pool_unlock(pool);
}

bool end_runs(struct pool *pool, const char *lease_id, const char *box_id)
{
        pool_lock(pool);
        const struct entry *entry = pool->ending;
        while (entry != NULL && strcmp(entry->lease_id, lease_id) != 0 &&
                (box_id[0] == '\0' || strcmp(entry->box_id, box_id) != 0))
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
                (void)end_finish(pool, entry, NULL);
        }
}
