/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_PROVIDER_H
#define POOL_PROVIDER_H

/* The calls of cubby.h over a pool of real boxes; src/api only checks arguments. */

#include "base/cleanup.h"
#include "box/box.h"
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
};

/* boxes.c */
void boxes_source(cubby_provider *provider, struct pool_source *ret);
#define POOL_LABEL "cubby.pool="
#define POOL_USER_LABEL "cubby.user="     /* hex */
#define POOL_THREAD_LABEL "cubby.thread=" /* hex */

/* provider.c */
int provider_open(
        cubby *host, const cubby_provider_options *options, cubby_provider **ret, cubby_error *err);
void provider_close(cubby_provider *provider);
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
