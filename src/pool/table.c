/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <string.h>

static size_t hash_of(const char *id)
{
        uint32_t hash = 2166136261U;
        for (; *id != '\0'; id++)
                hash = (hash ^ (uint8_t)*id) * 16777619U;
        return hash;
}

int table_grow(struct pool *pool, cubby_error *err)
{
        if (pool->buckets != NULL && pool->entry_count < pool->bucket_count)
                return 0;
        size_t count = pool->buckets == NULL ? BUCKETS_FIRST : pool->bucket_count * 2;
        struct entry **buckets = calloc(count, sizeof(struct entry *));
        if (buckets == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < pool->bucket_count; i++) {
                struct entry *entry = pool->buckets[i];
                while (entry != NULL) {
                        struct entry *next = entry->next;
                        size_t place = hash_of(entry->id) % count;
                        entry->next = buckets[place];
                        buckets[place] = entry;
                        entry = next;
                }
        }
        free(pool->buckets);
        pool->buckets = buckets;
        pool->bucket_count = count;
        return 0;
}

static struct entry **place_of(struct pool *pool, const char *id)
{
        struct entry **place = &pool->buckets[hash_of(id) % pool->bucket_count];
        while (*place != NULL && strcmp((*place)->id, id) != 0)
                place = &(*place)->next;
        return place;
}

struct entry *table_find(struct pool *pool, const char *id)
{
        return pool->buckets == NULL ? NULL : *place_of(pool, id);
}

/* Releases come in the order of time, adoptions may be older: searched from the end. */
static void link_warm(struct pool *pool, struct entry *entry)
{
        struct entry *older = pool->newest;
        while (older != NULL && older->released_ms > entry->released_ms)
                older = older->older;
        entry->older = older;
        entry->newer = older == NULL ? pool->oldest : older->newer;
        if (entry->older == NULL)
                pool->oldest = entry;
        else
                entry->older->newer = entry;
        if (entry->newer == NULL)
                pool->newest = entry;
        else
                entry->newer->older = entry;
        pool->warm++;
}

static void unlink_warm(struct pool *pool, struct entry *entry)
{
        if (entry->older == NULL)
                pool->oldest = entry->newer;
        else
                entry->older->newer = entry->newer;
        if (entry->newer == NULL)
                pool->newest = entry->older;
        else
                entry->newer->older = entry->older;
        entry->older = NULL;
        entry->newer = NULL;
        pool->warm--;
}

void table_add(struct pool *pool, struct entry *entry)
{
        struct entry **place = place_of(pool, entry->id);
        entry->next = *place;
        *place = entry;
        pool->entry_count++;
        if (entry->state == ENTRY_WARM)
                link_warm(pool, entry);
        else
                pool->active++;
}

void table_remove(struct pool *pool, struct entry *entry)
{
        struct entry **place = &pool->buckets[hash_of(entry->id) % pool->bucket_count];
        while (*place != NULL && *place != entry)
                place = &(*place)->next;
        if (*place == NULL)
                return;
        *place = entry->next;
        entry->next = NULL;
        pool->entry_count--;
        if (entry->state == ENTRY_WARM)
                unlink_warm(pool, entry);
        else
                pool->active--;
        entry->state = ENTRY_GONE;
}

void table_set_active(struct pool *pool, struct entry *entry)
{
        unlink_warm(pool, entry);
        entry->state = ENTRY_ACTIVE;
        entry->turn++;
        entry->epoch++;
        pool->active++;
}

void table_set_warm(struct pool *pool, struct entry *entry, int64_t released_ms)
{
        pool->active--;
        entry->holders = 0;
        entry->state = ENTRY_WARM;
        entry->released_ms = released_ms;
        link_warm(pool, entry);
}

void entry_hold(struct entry *entry)
{
        entry->references++;
}

void entry_drop(struct pool *pool, struct entry *entry)
{
        if (entry == NULL)
                return;
        pool_lock(pool);
        bool last = --entry->references == 0;
        pool_unlock(pool);
        if (!last)
                return;
        if (entry->handle != NULL)
                pool->source.forget(pool->source.data, entry->handle);
        free(entry->key_memory);
        free(entry);
}

void entry_mark_dirty(struct pool *pool, struct entry *entry)
{
        if (entry->dirty)
                return;
        entry->dirty = true;
        entry->references++;
        entry->next_dirty = pool->first_dirty;
        if (pool->first_dirty == NULL)
                (void)pthread_cond_signal(&pool->upkeep);
        pool->first_dirty = entry;
}

int entry_create(const char *id, const struct pool_key *key, const struct source_box *box,
        struct entry **ret, cubby_error *err)
{
        struct entry *entry = calloc(1, sizeof *entry);
        if (entry == NULL)
                return cubby_error_no_memory(err);
        if (key != NULL && key_copy(key, &entry->key, &entry->key_memory, err) < 0) {
                free(entry);
                return -1;
        }
        entry->keyed = key != NULL;
        entry->references = 1;
        entry->handle = box->handle;
        memcpy(entry->id, id, strlen(id) + 1);
        memcpy(entry->box_id, box->box_id, sizeof entry->box_id);
        *ret = entry;
        return 0;
}

/* Never the same again in this process, and later than those of processes before. */
uint64_t next_generation(struct pool *pool)
{
        uint64_t generation = (uint64_t)(clock_realtime_ns() / 1000);
        if (generation <= pool->last_generation)
                generation = pool->last_generation + 1;
        pool->last_generation = generation;
        return generation;
}
