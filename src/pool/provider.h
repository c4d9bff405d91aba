/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_PROVIDER_H
#define POOL_PROVIDER_H

/* The calls of cubby.h over a pool of real boxes; src/api only checks arguments. */

#include "base/cleanup.h"
#include "box/box.h"
#include "box/saved.h"
#include "config/config.h"
#include "pool/pool.h"

/*
 * What the boxes of a provider point to when one fails: it outlives the
 * provider, which is taken out under the lock when it closes.
 */
struct pool_link {
        atomic_uint references;
        pthread_rwlock_t lock;
        struct pool *pool; /* NULL: closed */
};
struct pool_link *pool_link_share(struct pool_link *link);
void pool_link_drop(struct pool_link *link);

struct cubby_provider {
        cubby *host; /* outlives it */
        struct provider_config config;
        struct pool_link *link;
        struct pool *pool;
        pthread_mutex_t spares_lock;        /* over the two below */
        int spares_fd;                      /* a shared lock says that it uses them; -1: not yet */
        char spares_key[TEMPLATE_KEY_SIZE]; /* of their template */
};

/* boxes.c */
void boxes_source(cubby_provider *provider, struct pool_source *ret);

/* spares.c: those of the provider's template, which belong to the home */
/* A box was made, of a spare or not: as many as are wanted, where there is a template; else
 * one is made meanwhile. */
void spares_want(cubby_provider *provider, cubby_box *box, bool was_spare);
/* They end when no other provider uses them, and the home's owner wants none. Waits for
 * them for some seconds. */
void spares_leave(cubby_provider *provider);
void spares_forget(cubby_provider *provider); /* as the end of its process would */
#define POOL_LABEL "cubby.pool="
#define POOL_USER_LABEL "cubby.user="     /* hex */
#define POOL_THREAD_LABEL "cubby.thread=" /* hex */

/* provider.c */
int provider_open(
        cubby *host, const cubby_provider_options *options, cubby_provider **ret, cubby_error *err);
void provider_close(cubby_provider *provider);
int provider_shutdown(
        cubby_provider *provider, int64_t timeout_ms, char **ret_left, cubby_error *err);
void provider_counters(cubby_provider *provider, cubby_provider_status *ret);
/* Parses as provider_open does; for tools that only look. */
int provider_configure(cubby *host, const cubby_provider_options *options,
        struct provider_config *ret, cubby_error *err);

/* pools.c: what is known of a pool in the home, whoever has it */
int pools_status(cubby *host, const char *pool, char **ret_json, cubby_error *err);
int pools_drain(
        cubby *host, const char *pool, uint32_t *ret_ended, uint32_t *ret_left, cubby_error *err);
/* Parks a box that a process left when it ended. CUBBY_E_NOT_FOUND when none is. */
int pools_release(
        cubby *host, const struct provider_config *config, const char *id, cubby_error *err);

#endif
