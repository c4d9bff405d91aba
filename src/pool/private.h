/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_PRIVATE_H
#define POOL_PRIVATE_H

/* What the files of src/pool share; nobody else includes it. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "pool/pool.h"
#include "pool/serializer.h"
#include "state/leases.h"

#include <sys/types.h>

enum entry_state {
        ENTRY_ACTIVE,
        ENTRY_WARM,
        ENTRY_ENDING, /* out of the table, being destroyed */
        ENTRY_GONE,
};

/* One box of this instance. */
struct entry {
        struct entry *next;          /* in its bucket, or in the list of ending ones */
        struct entry *older, *newer; /* while warm: by time of release */
        struct entry *next_dirty;    /* while its lease is to be written */
        unsigned references;         /* the table's, and of whoever works with it unlocked */
        char id[TOKEN_SIZE];
        char box_id[33];
        void *handle;
        bool keyed;
        struct pool_key key;
        void *key_memory;
        enum entry_state state;
        uint64_t generation;
        int64_t released_ms;
        bool released_here;
        bool known_closed;

        char lease_id[LEASE_ID_SIZE];
        uint64_t turn;    /* how often it became active */
        unsigned holders; /* who got it in this turn, and did not give it back */
        uint64_t epoch;   /* hand-outs; a decision that is older than one is void */
        bool taken;       /* handed out without asking the store: to be taken there */
        bool parked_told; /* the box itself knows that it is warm */
        bool dirty;       /* in the list of those to be written */
        bool writing;     /* its lease is being written just now */
        int64_t valid_ms; /* the lease is ours until then */
        bool destroying;  /* somebody works on its end */
        bool claimed;     /* ending: the store says so */
        int64_t retry_ms; /* ending: not before */
};

#define BUCKETS_FIRST 64U

struct async;

struct pool {
        struct pool_options options;
        struct home *home;
        struct pool_source source;
        struct pool_clock clock;
        struct log log;
        struct faults *faults;
        pid_t pid;
        struct serializer *serializer;
        struct lease_store *store;
        struct async *async;

        pthread_mutex_t lock;   /* over all below */
        pthread_cond_t room;    /* a slot may be free, a write is done, it is closing */
        pthread_cond_t upkeep;  /* the writer has something to do */
        pthread_cond_t reaping; /* the reaper has */
        bool closing;           /* no acquires; releases destroy */
        bool reset;             /* no acquires; boxes stay warm */
        bool stop_threads;
        bool writer_runs, reaper_runs;
        pthread_t writer, reaper;
        unsigned busy;   /* acquires that run */
        bool store_well; /* its last answer came */
        uint64_t last_generation;

        struct entry **buckets;
        size_t bucket_count, entry_count;
        struct entry *oldest, *newest; /* warm */
        struct entry *ending;
        struct entry *first_dirty;
        uint32_t active, warm, creating, ending_count;
        uint64_t counters[COUNT_MAX];
        uint64_t written_counters[COUNT_MAX];
        struct pool_latency latencies[STEP_MAX];
};

static inline void pool_lock(struct pool *pool)
{
        (void)pthread_mutex_lock(&pool->lock);
}

static inline void pool_unlock(struct pool *pool)
{
        (void)pthread_mutex_unlock(&pool->lock);
}

/* table.c: all with the lock held */
int table_grow(struct pool *pool, cubby_error *err); /* room for one more */
struct entry *table_find(struct pool *pool, const char *id);
void table_add(struct pool *pool, struct entry *entry); /* active or warm */
void table_remove(struct pool *pool, struct entry *entry);
void table_set_active(struct pool *pool, struct entry *entry);
void table_set_warm(struct pool *pool, struct entry *entry, int64_t released_ms);
void entry_hold(struct entry *entry);
/* Without the lock: gives a reference back; the last one frees. */
void entry_drop(struct pool *pool, struct entry *entry);
/* Its lease is to be written by the writer. */
void entry_mark_dirty(struct pool *pool, struct entry *entry);
/* A new one; takes the box of the source. */
int entry_create(const char *id, const struct pool_key *key, const struct source_box *box,
        struct entry **ret, cubby_error *err);
uint64_t next_generation(struct pool *pool);

/* pool.c */

void pool_log(const struct pool *pool, int level, const char *trace, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
int64_t pool_lease_ttl(const struct pool *pool);
void pool_measure(struct pool *pool, enum pool_step step, int64_t begun_ns);
int pool_refuse(struct pool *pool, cubby_error *err);

/* capacity.c: without the lock. A place for one box, which is given back or taken
 * by adding the box under the lock with `creating` one less. */
int capacity_reserve(
        struct pool *pool, const struct pool_order *order, int64_t deadline_ms, cubby_error *err);
void capacity_return(struct pool *pool);

/* end.c */
/* With the lock held: out of the table, to be destroyed; its place stays taken. */
void end_begin(struct pool *pool, struct entry *entry);
/* Without: claims, destroys, removes the lease. What cannot be done now stays in
 * the list of ending ones, for the reaper. -1 only when the store could not say
 * whether the box may be ended. */
int end_finish(struct pool *pool, struct entry *entry, cubby_error *err);
/* What is left of an acquire that failed, with its lease: for the reaper too. */
void end_leftover(struct pool *pool, const struct lease *lease, const struct source_box *box);
void end_retry(struct pool *pool);
/* Whether the box, or that of the lease, is in that list. */
bool end_runs(struct pool *pool, const char *lease_id, const char *box_id);

/* lease.c */
/* A lease row's contents for an entry, pointing into it. */
void lease_of_entry(const struct pool *pool, const struct entry *entry, struct lease *ret);
/* With the lock held: until nobody writes its lease. */
void lease_wait_written(struct pool *pool, struct entry *entry);
/* With the lock held: out of the table without an end. */
void lease_forget(struct pool *pool, struct entry *entry);
void *lease_writer(void *data);

/* reaper.c */
void *reaper_run(void *data);

/* adopt.c */
/* With the token's locks held. ENTRY_ACTIVE, with a place reserved: opens and checks the box, takes
 * its lease and adds it. ENTRY_WARM: the lease was claimed. 1 with *ret_entry held, 0 when the box
 * was of no use and is gone, or a destroyer has it, -1. */
int adopt_box(struct pool *pool, const struct lease *lease, const struct pool_key *key,
        enum entry_state state, struct entry **ret_entry, cubby_error *err);
/* Boxes of this id that no lease knows get one, of nobody. */
int adopt_nameless(struct pool *pool, const char *id, cubby_error *err);
/* Ends a box whose lease was claimed with LEASE_DEL. */
int adopt_destroy(struct pool *pool, const struct lease *lease, cubby_error *err);
/* The file lock of an id between processes. */
struct host_lock {
        int fd;
        char name[80];
};
/* CUBBY_E_TIMEOUT at the deadline; soon after the pool closes or *cancelled (may be NULL) became
 * true CUBBY_E_SHUTDOWN or CUBBY_E_CANCELLED. */
int host_lock(struct pool *pool, const char *id, int64_t deadline_ms, const atomic_bool *cancelled,
        struct host_lock *ret, cubby_error *err);
void host_unlock(struct pool *pool, struct host_lock *lock);

/* async.c */
int async_create(struct pool *pool, unsigned threads, struct async **ret, cubby_error *err);
void async_stop(struct async *async); /* queued ones fail with CUBBY_E_SHUTDOWN */
void async_free(struct async *async); /* waits for its threads */
uint32_t async_queued(struct async *async);

#endif
