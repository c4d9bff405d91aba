/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

/* A create and a destroy that run hold a place each, so that callers at the same
 * time never overshoot together. */
static uint32_t places(const struct pool *pool)
{
        return pool->active + pool->warm + pool->creating + pool->ending_count;
}

static int full(struct pool *pool, cubby_error *err)
{
        pool->counters[COUNT_REFUSED]++;
        return cubby_error_set(err, CUBBY_E_CAPACITY,
                "the pool '%s' is full: %u active, %u warm, %u reserved of %u replicas; "
                "try again when a box was released",
                pool->options.prefix, pool->active, pool->warm, pool->creating + pool->ending_count,
                pool->options.replicas);
}

/* Makes room by the box that was released longest ago. False when that did not work:
 * its place is not free before it is gone. */
static bool evict(struct pool *pool, struct entry *victim, const char *trace)
{
        pool->counters[COUNT_EVICTED]++;
        end_begin(pool, victim);
        entry_hold(victim);
        pool_unlock(pool);
        (void)FAULT_POINT(pool->faults, "evict.begun", NULL);
        pool_log(pool, LOG_INFO, trace, "box %s makes room for another", victim->id);
        (void)end_finish(pool, victim, NULL);
        pool_lock(pool);
        bool gone = victim->state == ENTRY_GONE;
        pool_unlock(pool);
        entry_drop(pool, victim);
        pool_lock(pool);
        return gone;
}

static bool may_exceed(const struct pool *pool)
{
        switch (pool->options.policy) {
        case POLICY_SOFT:
                return true;
        case POLICY_BURST:
                return places(pool) < pool->options.replicas + pool->options.burst_limit;
        case POLICY_WAIT:
        case POLICY_REJECT:
        default:
                return false;
        }
}

struct reserving {
        const struct pool_order *order;
        int64_t deadline_ms;
        bool waited;
        bool stuck;      /* one that was evicted does not end: no other is tried */
        uint32_t beyond; /* boxes, when it is more than the cap */
};

/* With the lock held: 0 with a place, 1 to try again, -1. */
static int try_reserve(struct pool *pool, struct reserving *reserving, cubby_error *err)
{
        const struct pool_order *order = reserving->order;
        if (pool_refuse(pool, err) < 0)
                return -1;
        if (order->cancelled != NULL && atomic_load(order->cancelled))
                return cubby_error_set(err, CUBBY_E_CANCELLED, "the acquire was cancelled");
        if (places(pool) < pool->options.replicas) {
                pool->creating++;
                return 0;
        }
        if (pool->oldest != NULL && !reserving->stuck) {
                reserving->stuck = !evict(pool, pool->oldest, order->trace);
                return 1;
        }
        if (may_exceed(pool)) {
                if (pool->options.policy == POLICY_SOFT)
                        reserving->beyond = places(pool) + 1;
                pool->creating++;
                return 0;
        }
        if (pool->options.policy == POLICY_REJECT ||
                pool_now(&pool->clock) >= reserving->deadline_ms)
                return full(pool, err);
        if (!reserving->waited)
                pool->counters[COUNT_WAITED]++;
        reserving->waited = true;
        pool_wait(&pool->clock, &pool->room, &pool->lock, reserving->deadline_ms);
        return 1;
}

int capacity_reserve(
        struct pool *pool, const struct pool_order *order, int64_t deadline_ms, cubby_error *err)
{
        struct reserving reserving = {.order = order, .deadline_ms = deadline_ms};
        int result = 1;
        pool_lock(pool);
        while (result > 0)
                result = try_reserve(pool, &reserving, err);
        pool_unlock(pool);
        if (reserving.beyond > 0)
                pool_log(pool, LOG_WARNING, order->trace,
                        "pool %s: %u boxes are more than its %u replicas", pool->options.prefix,
                        reserving.beyond, pool->options.replicas);
        return result;
}

void capacity_return(struct pool *pool)
{
        pool_lock(pool);
        pool->creating--;
        (void)pthread_cond_broadcast(&pool->room);
        pool_unlock(pool);
}
