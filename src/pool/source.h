/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_SOURCE_H
#define POOL_SOURCE_H

/*
 * Where a pool's boxes come from. The pool decides who gets which box and when
 * one ends; the source makes, checks and ends them. Calls may block up to the
 * source's own deadlines and are never made under a lock of the pool, except
 * `closed` and `share`, which must not block. Thread-safe for different boxes,
 * and `check` beside every other call.
 */

#include "pool/identity.h"

#include <stdbool.h>
#include <stdint.h>

enum pool_served {
        SERVED_REUSED = 1, /* it was active already */
        SERVED_RECLAIMED,  /* it was warm */
        SERVED_SPARE,
        SERVED_CLONED,
        SERVED_BOOTED,
};

struct source_box {
        void *handle;
        char box_id[33];
        enum pool_served served;
};

/* What is wanted; `key` NULL: a box without identity. */
struct source_wish {
        const char *pool;
        const char *id;   /* token, or the random id */
        const char *name; /* of the box */
        const struct pool_key *key;
};

/* A box that is there, by its name. */
struct source_item {
        char box_id[33];
        char id[TOKEN_SIZE]; /* from its name */
        bool keyed;          /* its labels name user and thread */
        struct pool_key key;
        void *memory; /* of the key */
};

struct pool_source {
        void *data;
        /* CUBBY_E_EXISTS: the name is taken. Nothing is left behind by a failure. The
         * box is ready: its folders exist and a command has run. */
        int (*create)(void *data, const struct source_wish *wish, struct source_box *ret,
                cubby_error *err);
        /* CUBBY_E_BOX_DEAD when it has ended, CUBBY_E_NOT_FOUND when it is no more. */
        int (*open)(void *data, const char *box_id, struct source_box *ret, cubby_error *err);
        /* The boxes named POOL-ID or POOL-ID-MORE; `id` NULL: all of the pool. */
        int (*list)(void *data, const char *pool, const char *id, struct source_item **ret,
                size_t *ret_count, cubby_error *err);
        /* A round trip to the agent. */
        int (*check)(void *data, void *handle, int64_t timeout_ms, cubby_error *err);
        /* Makes one ready that may not be: its maker may have died. CUBBY_E_BOX_DEAD. */
        int (*prepare)(void *data, void *handle, cubby_error *err);
        /* True when it is known to be gone. Does not block. */
        bool (*closed)(void *data, void *handle);
        /* The box ends by itself when nobody says otherwise within this; 0: never. */
        void (*park)(void *data, void *handle, int64_t timeout_ms);
        /* Ends and removes a box; no error when it is gone already. */
        int (*destroy)(void *data, const char *box_id, cubby_error *err);
        /* What the user of the pool works with, one reference more; a failure of it is
         * one of this generation. Does not block. */
        void *(*share)(void *data, void *handle, uint64_t generation);
        /* It is going to be destroyed: who has a share of it is refused from now on.
         * Does not block. */
        void (*doom)(void *data, void *handle);
        void (*forget_shared)(void *data, void *shared);
        /* Closes the handle; the box goes on. */
        void (*forget)(void *data, void *handle);
};

void source_items_free(struct source_item *items, size_t count);

#endif
