/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_LEASE_STORE_H
#define STATE_LEASE_STORE_H

/* What lease_store.c and leases.c share; nobody else includes it. */

#include "state/leases.h"
#include "state/private.h"

#include <pthread.h>
#include <sys/types.h>

struct lease_store {
        struct home *home;
        struct lease_owner self;
        pid_t pid;
        pthread_mutex_t lock; /* over all below */
        struct db db;         /* sql NULL: no connection */
        dev_t device;
        ino_t inode;
        int pages; /* in the log after the last commit */
};

/* Runs `work` in one transaction on the kept connection. It leaves `data` alone
 * when it fails, because it may run again over a rebuilt database. */
typedef int (*lease_work)(struct lease_store *store, void *data, cubby_error *err);
int lease_run(struct lease_store *store, bool write, lease_work work, void *data, cubby_error *err);

#endif
