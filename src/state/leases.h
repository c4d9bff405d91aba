/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_LEASES_H
#define STATE_LEASES_H

/*
 * Leases: who has to end a pool's box, not who may use it. One row a box in
 * cubby.db, from before the box is made until after it is gone.
 *
 * A lease lapses when its time is over or its owner is provably dead: another
 * boot of the host, or, seen from the same pid namespace, no process with that
 * pid and start time. Times are monotonic milliseconds of one boot.
 *
 * The store keeps one connection; it is thread-safe and belongs to the process
 * that opened it. Every failure that is none of the answers below is -1: the
 * store cannot say, and nobody may hand out or destroy on a guess.
 */

#include "state/home.h"

#include <stdbool.h>
#include <stdint.h>

#define LEASE_ID_SIZE 33
#define LEASE_POOL_MAX 40
#define LEASE_KEY_MAX (64U << 10) /* bytes of a user's or a thread's name */

enum lease_state {
        LEASE_OWN = 1, /* in use in its owner's process */
        LEASE_PARKED,  /* warm */
        LEASE_DEL,     /* being destroyed */
};

struct lease_owner {
        int64_t pid; /* 0: no process; it lapses by time only */
        int64_t start_ticks;
        uint64_t pid_namespace;
        char boot_id[37];
        char instance[LEASE_ID_SIZE];
};

struct lease {
        char id[LEASE_ID_SIZE];
        char pool[LEASE_POOL_MAX + 1];
        char token[17];
        char box_id[33]; /* "" while it is made */
        bool keyed;      /* user and thread are known */
        uint8_t *user, *thread;
        size_t user_size, thread_size;
        enum lease_state state;
        struct lease_owner owner;
        int64_t expires_ms;
        int64_t parked_ms; /* since when it is warm */
        uint64_t generation;
};
void lease_clear(struct lease *lease);
void lease_list_free(struct lease *leases, size_t count);

/* This process, with a random instance. */
int lease_owner_self(struct lease_owner *ret, cubby_error *err);
bool lease_owner_same(const struct lease_owner *left, const struct lease_owner *right);
/* True only when nobody can be it any more. */
bool lease_owner_dead(const struct lease_owner *owner, const struct lease_owner *self);
bool lease_lapsed(const struct lease *lease, const struct lease_owner *self, int64_t now_ms);

struct lease_store;
int lease_store_open(struct home *home, const struct lease_owner *self, struct lease_store **ret,
        cubby_error *err);
void lease_store_close(struct lease_store *store);
const struct lease_owner *lease_store_self(const struct lease_store *store);

/* A row for a box that is going to be made; its id is chosen. With `max_boxes`
 * CUBBY_E_CAPACITY when the home has so many already. For a box that is there (box_id set)
 * CUBBY_E_EXISTS when it has a lease. */
int lease_begin(struct lease_store *store, struct lease *lease, uint32_t max_boxes, int64_t now_ms,
        cubby_error *err);
/* The box is there; making it may have taken longer than the lease lasted. CUBBY_E_NOT_FOUND
 * when the lease is not ours any more. */
int lease_attach(struct lease_store *store, const char *id, const char *box_id, int64_t now_ms,
        int64_t ttl_ms, cubby_error *err);
int lease_remove(struct lease_store *store, const char *id, cubby_error *err);

enum lease_answer {
        LEASE_YES = 0,
        LEASE_REFUSED, /* take: it is being destroyed; claim: its owner lives */
        LEASE_GONE,    /* there is no such lease */
};

/* To hand it out: from anybody, but not from a destroyer. `key` set: the lease
 * had no identity and gets this one. */
int lease_take(struct lease_store *store, const char *id, const struct lease *key, int64_t now_ms,
        int64_t ttl_ms, enum lease_answer *ret, cubby_error *err);
/* To end it because it is of no use: from anybody too, and at once, so that nobody takes
 * it between. */
int lease_doom(struct lease_store *store, const char *id, int64_t now_ms, int64_t ttl_ms,
        enum lease_answer *ret, cubby_error *err);
/* To adopt, evict or reap: unowned, lapsed or own. */
int lease_claim(struct lease_store *store, const char *id, enum lease_state state, int64_t now_ms,
        int64_t ttl_ms, enum lease_answer *ret, cubby_error *err);

enum lease_renewal { RENEWED = 0, RENEWED_LAPSED, RENEWAL_LOST };
/* `state` and `parked_ms` are written with it. */
int lease_renew(struct lease_store *store, const struct lease *lease, int64_t now_ms,
        int64_t ttl_ms, enum lease_renewal *ret, cubby_error *err);
/* Whether it is still ours; a read only. */
int lease_ours(struct lease_store *store, const char *id, bool *ret, cubby_error *err);
/* Gives it to nobody until its time is over: for a process that ends. */
int lease_leave(struct lease_store *store, const char *id, enum lease_state state, int64_t now_ms,
        int64_t ttl_ms, cubby_error *err);

/* By pool and token (NULL: all of the pool; pool NULL: all), oldest first. */
int lease_list(struct lease_store *store, const char *pool, const char *token, struct lease **ret,
        size_t *ret_count, cubby_error *err);
/* The lease of a box: LEASE_GONE when it has none. */
int lease_of_box(struct lease_store *store, const char *box_id, struct lease *ret,
        enum lease_answer *ret_answer, cubby_error *err);

/* Counters that outlive their process; name is a short static word. */
struct lease_tally {
        char name[32];
        uint64_t value;
};
int lease_tally_add(struct lease_store *store, const char *pool, const struct lease_tally *deltas,
        size_t count, cubby_error *err);
#define LEASE_TALLIES_MAX 32
int lease_tally_read(struct lease_store *store, const char *pool,
        struct lease_tally ret[LEASE_TALLIES_MAX], size_t *ret_count, cubby_error *err);

#endif
