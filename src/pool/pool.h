/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

/*
 * One instance of a pool: the boxes that this process hands out, keeps warm and
 * ends. docs/provider.md is its contract.
 *
 *   identity    names and tokens of users and threads
 *   serializer  one acquire per key at a time, in this process
 *   capacity    how many boxes there may be, and who makes room
 *   acquire     reuse, reclaim, adopt, create; reclaim checks before it hands out
 *   reaper      ends what was warm too long
 *   lease       tells other processes, renews, and learns what they took
 *   adopt       takes over what dead processes left
 *   async       acquires on threads of the pool's own
 *   boxes       the source over real boxes
 *
 * Thread-safe. Under the pool's lock nothing blocks and nothing is read or
 * written outside of memory.
 */

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "pool/clock.h"
#include "pool/source.h"
#include "state/home.h"

#include <stdatomic.h>

struct pool;

enum pool_policy { POLICY_SOFT, POLICY_WAIT, POLICY_REJECT, POLICY_BURST };

struct pool_options {
        char prefix[41];
        enum pool_policy policy;
        uint32_t replicas; /* at least 1 */
        uint32_t burst_limit;
        uint32_t max_boxes; /* 0: off */
        int64_t idle_ms;    /* 0: never */
        int64_t skip_ms;    /* 0: a check each time */
        int64_t check_ms;
        int64_t acquire_ms;
        int64_t renewal_ms;
        uint32_t ttl_multiplier;
        uint32_t threads;   /* of async acquires; 0: min(32, cores + 4) */
        bool no_background; /* the caller does pool_flush, pool_renew and pool_reap */
        bool leave;         /* closing leaves active boxes to nobody for idle_ms */
};

struct pool_parts {
        struct home *home;
        struct pool_source source;
        struct pool_clock clock;
        struct log log;
        struct faults *faults; /* NULL outside of tests */
};

int pool_open(const struct pool_options *options, const struct pool_parts *parts, struct pool **ret,
        cubby_error *err);
/* CUBBY_E_STATE in a child of the process that opened it. */
int pool_check_process(const struct pool *pool, cubby_error *err);
/* Boxes go on; without pool_shutdown before it they belong to nobody then. */
void pool_close(struct pool *pool);

struct pool_order {
        const struct pool_key *key;   /* NULL: a box of its own, never found again */
        int64_t timeout_ms;           /* 0: the pool's */
        const char *trace;            /* for log lines; may be NULL */
        bool no_user;                 /* the token is that of the user "None" */
        const atomic_bool *cancelled; /* NULL: cannot be */
};

struct pool_acquired {
        char id[TOKEN_SIZE];
        char box_id[33];
        enum pool_served served;
        bool fresh;
        uint64_t generation;
        uint64_t turn; /* how often the box had become active */
        void *shared;  /* of the source */
};

int pool_acquire(struct pool *pool, const struct pool_order *order, struct pool_acquired *ret,
        cubby_error *err);
/* An active box; CUBBY_E_NOT_FOUND. In memory. */
int pool_get(struct pool *pool, const char *id, struct pool_acquired *ret, cubby_error *err);
/* No error for an unknown id. */
int pool_release(struct pool *pool, const char *id, cubby_error *err);
/* Undoes one acquire whose result nobody got: the box becomes warm, unless somebody else
 * got it too and has not released it. */
void pool_give_back(struct pool *pool, const struct pool_acquired *acquired);
/* The box of this generation failed for good: it is taken out and ended. */
void pool_invalidate(struct pool *pool, const char *id, uint64_t generation);

int pool_reset(struct pool *pool, cubby_error *err);
/* Ids of what could not be ended, separated by blanks, for the caller to free;
 * NULL when nothing is left. CUBBY_E_TIMEOUT then. */
int pool_shutdown(struct pool *pool, int64_t timeout_ms, char **ret_left, cubby_error *err);

/* Rounds that the pool's own threads make. */
void pool_flush(struct pool *pool); /* what is not written yet */
void pool_renew(struct pool *pool);
void pool_reap(struct pool *pool);
int pool_adopt(struct pool *pool, cubby_error *err);

enum pool_counter {
        COUNT_REUSED,
        COUNT_RECLAIMED,
        COUNT_SKIPPED, /* of those reclaimed: without a check */
        COUNT_SPARE,
        COUNT_CLONED,
        COUNT_BOOTED,
        COUNT_ADOPTED,
        COUNT_RELEASED,
        COUNT_CHECK_FAILED,
        COUNT_EVICTED,
        COUNT_REAPED,
        COUNT_INVALIDATED,
        COUNT_LOST,
        COUNT_WAITED, /* for room */
        COUNT_REFUSED,
        COUNT_FAILED, /* acquires */
        COUNT_CANCELLED,
        COUNT_MAX
};
const char *pool_counter_name(enum pool_counter counter);

enum pool_step { STEP_ACQUIRE, STEP_RECLAIM, STEP_CHECK, STEP_CREATE, STEP_DESTROY, STEP_MAX };
const char *pool_step_name(enum pool_step step);

struct pool_latency {
        uint64_t count;
        uint64_t total_us;
        uint64_t max_us;
};

struct pool_status {
        uint32_t active, warm, reserved, replicas;
        uint32_t queued; /* async acquires that wait */
        uint32_t keys;   /* held or waited for */
        uint64_t counters[COUNT_MAX];
        struct pool_latency latencies[STEP_MAX];
};
void pool_get_status(struct pool *pool, struct pool_status *ret);

/* ------------------------------------------------------------- async -- */

struct pool_request;

int pool_acquire_async(struct pool *pool, const struct pool_order *order, struct pool_request **ret,
        cubby_error *err);
/* Readable when the result is there. */
int pool_request_fd(const struct pool_request *request);
/* Waits for it; CUBBY_E_TIMEOUT after timeout_ms (-1: none). Once. */
int pool_request_finish(struct pool_request *request, int64_t timeout_ms, struct pool_acquired *ret,
        cubby_error *err);
/* Abandons the wait. A result that comes later, or was not fetched, is parked. */
void pool_request_cancel(struct pool_request *request);
/* Cancels what is not fetched. NULL is allowed. */
void pool_request_close(struct pool_request *request);

#endif
