/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/serializer.h"

#include "base/cleanup.h"

#include <stdint.h>
#include <string.h>

#define BUCKETS 256U

struct waiter {
        struct waiter *next;
        pthread_cond_t changed;
        bool granted;
};

struct entry {
        struct entry *next;
        struct waiter *first, *last; /* who waits, the longest first */
        bool held;
        size_t users; /* holder and waiters */
        size_t size;
        uint8_t key[];
};

struct serializer {
        struct pool_clock clock;
        pthread_mutex_t lock;
        bool closed;
        size_t keys;
        struct entry *buckets[BUCKETS];
};

int serializer_create(const struct pool_clock *clock, struct serializer **ret, cubby_error *err)
{
        struct serializer *serializer = calloc(1, sizeof *serializer);
        if (serializer == NULL)
                return cubby_error_no_memory(err);
        serializer->clock = *clock;
        (void)pthread_mutex_init(&serializer->lock, NULL);
        *ret = serializer;
        return 0;
}

void serializer_free(struct serializer *serializer)
{
        if (serializer == NULL)
                return;
        (void)pthread_mutex_destroy(&serializer->lock);
        free(serializer);
}

/* FNV-1a; the keys are digests already. */
static size_t bucket_of(const uint8_t *key, size_t size)
{
        uint32_t hash = 2166136261U;
        for (size_t i = 0; i < size; i++)
                hash = (hash ^ key[i]) * 16777619U;
        return hash % BUCKETS;
}

static struct entry **find(struct serializer *serializer, const void *key, size_t size)
{
        struct entry **place = &serializer->buckets[bucket_of(key, size)];
        while (*place != NULL && ((*place)->size != size || memcmp((*place)->key, key, size) != 0))
                place = &(*place)->next;
        return place;
}

static struct entry *use(struct serializer *serializer, const void *key, size_t size)
{
        struct entry **place = find(serializer, key, size);
        if (*place == NULL) {
                struct entry *entry = calloc(1, sizeof *entry + size);
                if (entry == NULL)
                        return NULL;
                entry->size = size;
                memcpy(entry->key, key, size);
                *place = entry;
                serializer->keys++;
        }
        (*place)->users++;
        return *place;
}

static void leave(struct serializer *serializer, struct entry *entry)
{
        if (--entry->users > 0)
                return;
        struct entry **place = find(serializer, entry->key, entry->size);
        *place = entry->next;
        serializer->keys--;
        free(entry);
}

static void drop_waiter(struct entry *entry, struct waiter *waiter)
{
        struct waiter **place = &entry->first;
        struct waiter *before = NULL;
        while (*place != NULL && *place != waiter) {
                before = *place;
                place = &(*place)->next;
        }
        if (*place == NULL)
                return;
        *place = waiter->next;
        if (entry->last == waiter)
                entry->last = before;
}

/* The lock goes to whoever has waited longest; nobody can overtake. */
static void grant_next(struct entry *entry)
{
        struct waiter *waiter = entry->first;
        entry->held = waiter != NULL;
        if (waiter == NULL)
                return;
        drop_waiter(entry, waiter);
        waiter->granted = true;
        (void)pthread_cond_signal(&waiter->changed);
}

static int closed_error(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_SHUTDOWN, "the pool is shutting down");
}

/* With the lock held: until it is ours, or why not. */
static int wait_turn(struct serializer *serializer, struct entry *entry, int64_t deadline_ms,
        const atomic_bool *cancelled, cubby_error *err)
{
        struct waiter waiter = {0};
        pool_cond_init(&waiter.changed);
        if (entry->last == NULL)
                entry->first = &waiter;
        else
                entry->last->next = &waiter;
        entry->last = &waiter;
        int result = 0;
        while (!waiter.granted && result == 0) {
                if (serializer->closed)
                        result = closed_error(err);
                else if (cancelled != NULL && atomic_load(cancelled))
                        result = cubby_error_set(
                                err, CUBBY_E_CANCELLED, "the acquire was cancelled");
                else if (pool_now(&serializer->clock) >= deadline_ms)
                        result = cubby_error_set(err, CUBBY_E_TIMEOUT,
                                "another acquire of the same user and thread still runs");
                else
                        pool_wait(&serializer->clock, &waiter.changed, &serializer->lock,
                                deadline_ms);
        }
        if (result < 0)
                drop_waiter(entry, &waiter);
        (void)pthread_cond_destroy(&waiter.changed);
        return result;
}

static int lock_entry(struct serializer *serializer, const void *key, size_t size,
        int64_t deadline_ms, const atomic_bool *cancelled, cubby_error *err)
{
        if (serializer->closed)
                return closed_error(err);
        struct entry *entry = use(serializer, key, size);
        if (entry == NULL)
                return cubby_error_no_memory(err);
        if (!entry->held) {
                entry->held = true;
                return 0;
        }
        int result = wait_turn(serializer, entry, deadline_ms, cancelled, err);
        if (result < 0)
                leave(serializer, entry);
        return result;
}

int serializer_lock(struct serializer *serializer, const void *key, size_t size,
        int64_t deadline_ms, const atomic_bool *cancelled, cubby_error *err)
{
        if (size > SERIALIZER_KEY_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "a key of %zu bytes is longer than %d",
                        size, SERIALIZER_KEY_MAX);
        (void)pthread_mutex_lock(&serializer->lock);
        int result = lock_entry(serializer, key, size, deadline_ms, cancelled, err);
        (void)pthread_mutex_unlock(&serializer->lock);
        return result;
}

void serializer_unlock(struct serializer *serializer, const void *key, size_t size)
{
        (void)pthread_mutex_lock(&serializer->lock);
        struct entry *entry = *find(serializer, key, size);
        if (entry != NULL && entry->held) {
                grant_next(entry);
                leave(serializer, entry);
        }
        (void)pthread_mutex_unlock(&serializer->lock);
}

static void wake_all(struct serializer *serializer)
{
        for (size_t i = 0; i < BUCKETS; i++)
                for (struct entry *entry = serializer->buckets[i]; entry != NULL;
                        entry = entry->next)
                        for (struct waiter *waiter = entry->first; waiter != NULL;
                                waiter = waiter->next)
                                (void)pthread_cond_signal(&waiter->changed);
}

void serializer_wake(struct serializer *serializer)
{
        (void)pthread_mutex_lock(&serializer->lock);
        wake_all(serializer);
        (void)pthread_mutex_unlock(&serializer->lock);
}

void serializer_close(struct serializer *serializer)
{
        (void)pthread_mutex_lock(&serializer->lock);
        serializer->closed = true;
        wake_all(serializer);
        (void)pthread_mutex_unlock(&serializer->lock);
}

size_t serializer_keys(struct serializer *serializer)
{
        (void)pthread_mutex_lock(&serializer->lock);
        size_t keys = serializer->keys;
        (void)pthread_mutex_unlock(&serializer->lock);
        return keys;
}
