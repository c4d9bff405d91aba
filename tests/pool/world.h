/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POOL_WORLD_H
#define TESTS_POOL_WORLD_H

/*
 * A world for tests of the pool: a home, a clock that the test moves, fault
 * points, and boxes that exist in memory only. Several pools over one world are
 * as many processes to each other, because each has an instance of its own.
 */

#include <setjmp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/private.h"

#define WORLD_BOXES 4096
#define SOON_MS 10000

struct world_box {
        char box_id[33];
        char name[96];
        char id[TOKEN_SIZE];
        bool exists, alive, hung;
        bool keyed;
        bool doomed;
        bool ready; /* its folders exist */
        struct pool_key key;
        void *memory;
        int64_t parked_for_ms; /* what it was told; -1: nothing */
};

struct world {
        char path[64];
        struct home *home;
        struct faults *faults;
        pthread_mutex_t lock;
        int64_t now_ms;
        struct world_box boxes[WORLD_BOXES];
        size_t count; /* ever made */
        bool create_fails, destroy_fails, check_fails, prepare_fails, open_fails;
        bool dies_unready; /* a create ends as if its maker was killed before the folders */
        unsigned handles;  /* open ones */
        unsigned shared;   /* references that users hold */
        unsigned checks, creates, destroys;
        unsigned warnings;
        char last_log[512];
        enum pool_served served; /* what a create says */
};

int world_make(void **state);
int world_remove(void **state);
void world_forget_share(struct world *world);

/* Defaults: prefix "t", 3 replicas, soft, no background threads. */
struct pool_options world_options(void);
struct pool *world_pool(struct world *world, const struct pool_options *options);
void world_forward(struct world *world, int64_t ms);
/* Boxes that are there. */
unsigned world_alive(struct world *world);
struct world_box *world_find(struct world *world, const char *id);
/* Kills the box of this id, as its machine's end would. */
void world_kill(struct world *world, const char *id);

struct pool_key key_of(const char *user, const char *thread);
/* Must work; gives the share back. */
struct pool_acquired take(struct world *world, struct pool *pool, const char *thread);
/* Returns the code of the error. */
int take_fails(struct world *world, struct pool *pool, const char *thread, cubby_error *err);
void give(struct pool *pool, const char *id);
struct pool_status status_of(struct pool *pool);

/* An acquire on a thread of its own. */
struct taking {
        struct world *world;
        struct pool *pool;
        char thread_name[32];
        pthread_t thread;
        int64_t timeout_ms;
        int result;
        struct pool_acquired acquired;
        cubby_error error;
};
void taking_start(
        struct taking *taking, struct world *world, struct pool *pool, const char *thread);
int taking_end(struct taking *taking); /* the result */

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, world_make, world_remove)

#endif
