/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 32

int pool_check_process(const struct pool *pool, cubby_error *err)
{
        if (pool->pid == getpid())
                return 0;
        return cubby_error_set(err, CUBBY_E_STATE,
                "the pool belongs to the process that opened it, not to a child of it");
}

void pool_log(const struct pool *pool, int level, const char *trace, const char *format, ...)
{
        char text[1200];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        if (trace == NULL)
                log_line(&pool->log, level, "%s", text);
        else
                log_line(&pool->log, level, "%s [%.200s]", text, trace);
}

int64_t pool_lease_ttl(const struct pool *pool)
{
        return pool->options.renewal_ms * pool->options.ttl_multiplier;
}

void pool_measure(struct pool *pool, enum pool_step step, int64_t begun_ns)
{
        uint64_t took_us = (uint64_t)(clock_monotonic_ns() - begun_ns) / 1000;
        pool_lock(pool);
        struct pool_latency *latency = &pool->latencies[step];
        latency->count++;
        latency->total_us += took_us;
        if (took_us > latency->max_us)
                latency->max_us = took_us;
        pool_unlock(pool);
}

int pool_refuse(struct pool *pool, cubby_error *err)
{
        if (!pool->closing && !pool->reset)
                return 0;
        return cubby_error_set(
                err, CUBBY_E_SHUTDOWN, "the pool '%s' is shutting down", pool->options.prefix);
}

const char *pool_counter_name(enum pool_counter counter)
{
        static const char *const names[COUNT_MAX] = {[COUNT_REUSED] = "reused",
                [COUNT_RECLAIMED] = "reclaimed",
                [COUNT_SKIPPED] = "skipped",
                [COUNT_SPARE] = "spare",
                [COUNT_CLONED] = "cloned",
                [COUNT_BOOTED] = "booted",
                [COUNT_ADOPTED] = "adopted",
                [COUNT_RELEASED] = "released",
                [COUNT_CHECK_FAILED] = "check_failed",
                [COUNT_EVICTED] = "evicted",
                [COUNT_REAPED] = "reaped",
                [COUNT_INVALIDATED] = "invalidated",
                [COUNT_LOST] = "lost",
                [COUNT_WAITED] = "waited",
                [COUNT_REFUSED] = "refused",
                [COUNT_FAILED] = "failed",
                [COUNT_CANCELLED] = "cancelled"};
        return counter < COUNT_MAX ? names[counter] : "";
}

const char *pool_step_name(enum pool_step step)
{
        static const char *const names[STEP_MAX] = {[STEP_ACQUIRE] = "acquire",
                [STEP_RECLAIM] = "reclaim",
                [STEP_CHECK] = "check",
                [STEP_CREATE] = "create",
                [STEP_DESTROY] = "destroy"};
        return step < STEP_MAX ? names[step] : "";
}

/* A thread that leaves the program's signals to the program. */
static int start_thread(
        pthread_t *thread, void *(*run)(void *data), struct pool *pool, cubby_error *err)
{
        sigset_t all;
        sigset_t before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int result = pthread_create(thread, NULL, run, pool);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return result == 0 ? 0 : cubby_error_errno(err, result, "starting a thread");
}

static int start_background(struct pool *pool, cubby_error *err)
{
        if (pool->options.no_background)
                return 0;
        cubby_error problem = {0};
        if (!pool->options.leave && pool_adopt(pool, &problem) < 0)
                pool_log(pool, LOG_WARNING, NULL, "boxes of earlier processes were not adopted: %s",
                        problem.message);
        if (start_thread(&pool->writer, lease_writer, pool, err) < 0)
                return -1;
        pool->writer_runs = true;
        if (start_thread(&pool->reaper, reaper_run, pool, err) < 0)
                return -1;
        pool->reaper_runs = true;
        return 0;
}

static unsigned thread_count(const struct pool_options *options)
{
        if (options->threads > 0)
                return options->threads;
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        return cores < 1 || cores + 4 > THREADS_MAX ? THREADS_MAX : (unsigned)cores + 4;
}

DEFINE_AUTO(pool, pool_close)

int pool_open(const struct pool_options *options, const struct pool_parts *parts, struct pool **ret,
        cubby_error *err)
{
        struct pool *made = calloc(1, sizeof *made);
        if (made == NULL)
                return cubby_error_no_memory(err);
        made->options = *options;
        made->home = parts->home;
        made->source = parts->source;
        made->clock = parts->clock;
        made->log = parts->log;
        made->faults = parts->faults;
        made->pid = getpid();
        made->store_well = true;
        (void)pthread_mutex_init(&made->lock, NULL);
        pool_cond_init(&made->room);
        pool_cond_init(&made->upkeep);
        pool_cond_init(&made->reaping);
        AUTO(pool) struct pool *pool = made;
        struct lease_owner self;
        if (lease_owner_self(&self, err) < 0 || table_grow(pool, err) < 0 ||
                serializer_create(&pool->clock, &pool->serializer, err) < 0 ||
                lease_store_open(pool->home, &self, &pool->store, err) < 0 ||
                async_create(pool, thread_count(options), &pool->async, err) < 0 ||
                start_background(pool, err) < 0)
                return cubby_error_wrap(err, "opening the pool '%s'", options->prefix);
        *ret = take_ptr(&pool);
        return 0;
}

static void stop_background(struct pool *pool)
{
        pool_lock(pool);
        pool->stop_threads = true;
        (void)pthread_cond_broadcast(&pool->upkeep);
        (void)pthread_cond_broadcast(&pool->reaping);
        pool_unlock(pool);
        if (pool->writer_runs)
                (void)pthread_join(pool->writer, NULL);
        if (pool->reaper_runs)
                (void)pthread_join(pool->reaper, NULL);
        pool->writer_runs = false;
        pool->reaper_runs = false;
}

/* An entry on its way out with the pool itself. */
static void leave_entry(struct pool *pool, struct entry *entry)
{
        static const int64_t day_ms = 24LL * 3600 * 1000;
        int64_t idle = pool->options.idle_ms > 0 ? pool->options.idle_ms : day_ms;
        enum lease_state state = entry->state == ENTRY_ACTIVE ? LEASE_OWN : LEASE_PARKED;
        if (pool->store != NULL && entry->lease_id[0] != '\0' && entry->state != ENTRY_ENDING)
                (void)lease_leave(pool->store, entry->lease_id, state, pool_now(&pool->clock),
                        pool->options.leave ? idle : 0, NULL);
        entry_drop(pool, entry);
}

static void leave_all(struct pool *pool)
{
        for (size_t i = 0; i < pool->bucket_count; i++)
                while (pool->buckets[i] != NULL) {
                        struct entry *entry = pool->buckets[i];
                        pool->buckets[i] = entry->next;
                        leave_entry(pool, entry);
                }
        while (pool->ending != NULL) {
                struct entry *entry = pool->ending;
                pool->ending = entry->next;
                leave_entry(pool, entry);
        }
}

void pool_close(struct pool *pool)
{
        if (pool == NULL)
                return;
        /* in a forked child threads and locks are the parent's: only memory is given up */
        if (pool->pid != getpid())
                return;
        if (pool->serializer != NULL)
                serializer_close(pool->serializer);
        pool_lock(pool);
        pool->reset = true;
        (void)pthread_cond_broadcast(&pool->room);
        pool_unlock(pool);
        if (pool->async != NULL)
                async_stop(pool->async);
        async_free(pool->async);
        stop_background(pool);
        if (pool->store != NULL)
                pool_flush(pool);
        leave_all(pool);
        serializer_free(pool->serializer);
        lease_store_close(pool->store);
        free(pool->buckets);
        (void)pthread_cond_destroy(&pool->room);
        (void)pthread_cond_destroy(&pool->upkeep);
        (void)pthread_cond_destroy(&pool->reaping);
        (void)pthread_mutex_destroy(&pool->lock);
        free(pool);
}

/* With the lock held; NULL when it is not active. */
static struct entry *find_active(struct pool *pool, const char *id)
{
        struct entry *entry = strlen(id) < TOKEN_SIZE ? table_find(pool, id) : NULL;
        return entry != NULL && entry->state == ENTRY_ACTIVE ? entry : NULL;
}

int pool_get(struct pool *pool, const char *id, struct pool_acquired *ret, cubby_error *err)
{
        if (pool_check_process(pool, err) < 0)
                return -1;
        pool_lock(pool);
        struct entry *entry = find_active(pool, id);
        if (entry != NULL) {
                struct pool_acquired got = {.served = SERVED_REUSED,
                        .generation = entry->generation,
                        .shared = pool->source.share(
                                pool->source.data, entry->handle, entry->generation)};
                memcpy(got.id, entry->id, sizeof got.id);
                memcpy(got.box_id, entry->box_id, sizeof got.box_id);
                *ret = got;
                pool_unlock(pool);
                return 0;
        }
        pool_unlock(pool);
        return cubby_error_set(err, CUBBY_E_NOT_FOUND, "no active box '%.64s' in this pool", id);
}

/* With the lock held: out of its conversation's hands. True when it is to be ended. */
static bool release(struct pool *pool, struct entry *entry)
{
        pool->counters[COUNT_RELEASED]++;
        if (pool->closing) {
                end_begin(pool, entry);
                return true;
        }
        table_set_warm(pool, entry, pool_now(&pool->clock));
        entry->released_here = true;
        entry->taken = false;
        entry_mark_dirty(pool, entry);
        if (pool->oldest == entry)
                (void)pthread_cond_signal(&pool->reaping);
        (void)pthread_cond_broadcast(&pool->room);
        return false;
}

int pool_release(struct pool *pool, const char *id, cubby_error *err)
{
        if (pool_check_process(pool, err) < 0)
                return -1;
        pool_lock(pool);
        struct entry *entry = find_active(pool, id);
        bool ends = entry != NULL && release(pool, entry);
        pool_unlock(pool);
        if (ends)
                (void)end_finish(pool, entry, NULL);
        return 0;
}

void pool_give_back(struct pool *pool, const struct pool_acquired *acquired)
{
        pool_lock(pool);
        struct entry *entry = find_active(pool, acquired->id);
        bool same = entry != NULL && entry->generation == acquired->generation &&
                entry->turn == acquired->turn && entry->holders > 0;
        bool ends = same && --entry->holders == 0 && release(pool, entry);
        pool_unlock(pool);
        if (ends)
                (void)end_finish(pool, entry, NULL);
}

void pool_invalidate(struct pool *pool, const char *id, uint64_t generation)
{
        if (pool_check_process(pool, NULL) < 0)
                return;
        (void)FAULT_POINT(pool->faults, "invalidate", NULL);
        pool_lock(pool);
        struct entry *entry = strlen(id) < TOKEN_SIZE ? table_find(pool, id) : NULL;
        if (entry != NULL && entry->generation == generation) {
                pool->counters[COUNT_INVALIDATED]++;
                end_begin(pool, entry);
        } else {
                entry = NULL;
        }
        pool_unlock(pool);
        if (entry != NULL)
                (void)end_finish(pool, entry, NULL);
}

void pool_get_status(struct pool *pool, struct pool_status *ret)
{
        uint32_t queued = async_queued(pool->async);
        uint32_t keys = (uint32_t)serializer_keys(pool->serializer);
        pool_lock(pool);
        *ret = (struct pool_status){.active = pool->active,
                .warm = pool->warm,
                .reserved = pool->creating + pool->ending_count,
                .replicas = pool->options.replicas,
                .queued = queued,
                .keys = keys};
        memcpy(ret->counters, pool->counters, sizeof ret->counters);
        memcpy(ret->latencies, pool->latencies, sizeof ret->latencies);
        pool_unlock(pool);
}
