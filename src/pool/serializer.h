/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_SERIALIZER_H
#define POOL_SERIALIZER_H

/*
 * One lock per key, in the order of coming. Keys are any bytes; nothing here
 * knows what they stand for. An entry lives as long as somebody holds or waits
 * for it, so the table never holds more keys than there are callers.
 */

#include "base/error.h"
#include "pool/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define SERIALIZER_KEY_MAX 128

struct serializer;

int serializer_create(const struct pool_clock *clock, struct serializer **ret, cubby_error *err);
/* Nobody may hold or wait any more. */
void serializer_free(struct serializer *serializer);

/*
 * CUBBY_E_TIMEOUT at the deadline, CUBBY_E_SHUTDOWN when it is or becomes
 * closed before the lock is ours, CUBBY_E_CANCELLED when *cancelled (may be
 * NULL) became true and serializer_wake was called.
 */
int serializer_lock(struct serializer *serializer, const void *key, size_t size,
        int64_t deadline_ms, const atomic_bool *cancelled, cubby_error *err);
void serializer_unlock(struct serializer *serializer, const void *key, size_t size);
/* Those who wait look at their `cancelled` again. */
void serializer_wake(struct serializer *serializer);
/* Rejects newcomers and all who wait; who holds a lock goes on. Idempotent. */
void serializer_close(struct serializer *serializer);
/* How many keys are held or waited for. */
size_t serializer_keys(struct serializer *serializer);

#endif
