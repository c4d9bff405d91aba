/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/private.h"

#include <poll.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE_MAX 10000U
#define TRACE_MAX 200U

enum request_state { REQUEST_QUEUED, REQUEST_RUNNING, REQUEST_DONE, REQUEST_FETCHED };

struct pool_request {
        struct pool_request *next; /* in the queue */
        struct async *async;
        unsigned references; /* the caller's and the worker's */
        enum request_state state;
        bool abandoned; /* nobody will fetch the result */
        atomic_bool cancelled;
        int event_fd;
        bool keyed;
        struct pool_key key;
        void *key_memory;
        int64_t timeout_ms;
        char trace[TRACE_MAX + 1];
        bool no_user;
        int result;
        struct pool_acquired acquired;
        cubby_error error;
};

struct async {
        struct pool *pool;
        pthread_mutex_t lock;
        pthread_cond_t work;
        struct pool_request *first, *last;
        uint32_t queued;
        unsigned threads_max, threads, idle;
        unsigned references; /* the pool's, and one of each request */
        bool stopped;
        bool ended; /* threads leave */
        pthread_t ids[];
};

int async_create(struct pool *pool, unsigned threads, struct async **ret, cubby_error *err)
{
        struct async *async = calloc(1, sizeof *async + threads * sizeof(pthread_t));
        if (async == NULL)
                return cubby_error_no_memory(err);
        async->pool = pool;
        async->threads_max = threads;
        async->references = 1;
        (void)pthread_mutex_init(&async->lock, NULL);
        (void)pthread_cond_init(&async->work, NULL);
        *ret = async;
        return 0;
}

/* With the lock held, which is gone then. */
static void drop_async(struct async *async)
{
        bool last = --async->references == 0;
        (void)pthread_mutex_unlock(&async->lock);
        if (!last)
                return;
        (void)pthread_cond_destroy(&async->work);
        (void)pthread_mutex_destroy(&async->lock);
        free(async);
}

/* With the lock held, which is gone then. */
static void drop_request(struct async *async, struct pool_request *request)
{
        if (--request->references > 0) {
                (void)pthread_mutex_unlock(&async->lock);
                return;
        }
        close_quietly(request->event_fd);
        free(request->key_memory);
        free(request);
        drop_async(async);
}

/* With the lock held: the result is there. */
static void finish(struct pool_request *request, int result)
{
        uint64_t one = 1;
        request->result = result;
        request->state = REQUEST_DONE;
        (void)!write(request->event_fd, &one, sizeof one); /* cannot be full */
}

/* A result that nobody fetches goes where a retry finds it; one without a key is found by nobody.
 */
static void give_back(struct pool *pool, bool keyed, struct pool_acquired *acquired)
{
        if (acquired->shared != NULL)
                pool->source.forget_shared(pool->source.data, acquired->shared);
        acquired->shared = NULL;
        if (keyed)
                pool_give_back(pool, acquired);
        else
                pool_invalidate(pool, acquired->id, acquired->generation);
}

static void run(struct async *async, struct pool_request *request)
{
        struct pool *pool = async->pool;
        struct pool_acquired acquired = {0};
        cubby_error problem = {0};
        struct pool_order order = {.key = request->keyed ? &request->key : NULL,
                .timeout_ms = request->timeout_ms,
                .trace = request->trace[0] == '\0' ? NULL : request->trace,
                .no_user = request->no_user,
                .cancelled = &request->cancelled};
        int result = FAULT_POINT(pool->faults, "async.run", &problem);
        if (result == 0)
                result = pool_acquire(pool, &order, &acquired, &problem);
        (void)FAULT_POINT(pool->faults, "async.done", NULL);
        (void)pthread_mutex_lock(&async->lock);
        bool unwanted = result == 0 && request->abandoned;
        if (unwanted) {
                (void)pthread_mutex_unlock(&async->lock);
                give_back(pool, request->keyed, &acquired);
                (void)pthread_mutex_lock(&async->lock);
                result = cubby_error_set(&problem, CUBBY_E_CANCELLED, "the acquire was cancelled");
        }
        request->acquired = acquired;
        request->error = problem;
        finish(request, result);
        drop_request(async, request);
}

static void *work(void *data)
{
        struct async *async = data;
        (void)pthread_mutex_lock(&async->lock);
        for (;;) {
                struct pool_request *request = async->first;
                if (request == NULL && async->ended)
                        break;
                if (request == NULL) {
                        async->idle++;
                        (void)pthread_cond_wait(&async->work, &async->lock);
                        async->idle--;
                        continue;
                }
                async->first = request->next;
                if (async->first == NULL)
                        async->last = NULL;
                async->queued--;
                request->state = REQUEST_RUNNING;
                (void)pthread_mutex_unlock(&async->lock);
                run(async, request);
                (void)pthread_mutex_lock(&async->lock);
        }
        (void)pthread_mutex_unlock(&async->lock);
        return NULL;
}

/* With the lock held. */
static int add_thread(struct async *async, cubby_error *err)
{
        if (async->idle > async->queued || async->threads >= async->threads_max)
                return 0;
        sigset_t all;
        sigset_t before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int result = pthread_create(&async->ids[async->threads], NULL, work, async);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (result == 0)
                async->threads++;
        else if (async->threads == 0)
                return cubby_error_errno(err, result, "starting a thread");
        return 0;
}

static int enqueue(struct async *async, struct pool_request *request, cubby_error *err)
{
        if (async->stopped)
                return cubby_error_set(err, CUBBY_E_SHUTDOWN, "the pool is shutting down");
        if (async->queued >= QUEUE_MAX)
                return cubby_error_set(
                        err, CUBBY_E_BUSY, "%u acquires wait already", async->queued);
        if (add_thread(async, err) < 0)
                return -1;
        if (async->last == NULL)
                async->first = request;
        else
                async->last->next = request;
        async->last = request;
        async->queued++;
        async->references++;
        (void)pthread_cond_signal(&async->work);
        return 0;
}

int pool_acquire_async(struct pool *pool, const struct pool_order *order, struct pool_request **ret,
        cubby_error *err)
{
        struct async *async = pool->async;
        if (pool_check_process(pool, err) < 0 ||
                (order->key != NULL && key_check(order->key, err) < 0))
                return -1;
        struct pool_request *request = calloc(1, sizeof *request);
        if (request == NULL)
                return cubby_error_no_memory(err);
        request->async = async;
        request->references = 2;
        request->keyed = order->key != NULL;
        request->timeout_ms = order->timeout_ms;
        request->no_user = order->no_user;
        atomic_init(&request->cancelled, false);
        if (order->trace != NULL)
                (void)strncpy(request->trace, order->trace, TRACE_MAX);
        request->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int result = request->event_fd >= 0
                ? 0
                : cubby_error_errno(err, errno, "making an event for an acquire");
        if (result == 0 && request->keyed)
                result = key_copy(order->key, &request->key, &request->key_memory, err);
        if (result == 0) {
                (void)pthread_mutex_lock(&async->lock);
                result = enqueue(async, request, err);
                (void)pthread_mutex_unlock(&async->lock);
        }
        if (result < 0) {
                close_quietly(request->event_fd);
                free(request->key_memory);
                free(request);
                return -1;
        }
        *ret = request;
        return 0;
}

int pool_request_fd(const struct pool_request *request)
{
        return request->event_fd;
}

int pool_request_finish(struct pool_request *request, int64_t timeout_ms, struct pool_acquired *ret,
        cubby_error *err)
{
        struct async *async = request->async;
        int64_t deadline = deadline_after_ms(timeout_ms);
        for (;;) {
                struct pollfd ready = {.fd = request->event_fd, .events = POLLIN};
                int count = poll(&ready, 1, deadline_left_ms(deadline));
                if (count > 0)
                        break;
                if (count == 0)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT, "the acquire still runs");
                if (errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for an acquire");
        }
        (void)pthread_mutex_lock(&async->lock);
        int result = request->result;
        if (request->state != REQUEST_DONE || (result == 0 && request->abandoned)) {
                bool fetched = request->state == REQUEST_FETCHED && !request->abandoned;
                result = cubby_error_set(err, fetched ? CUBBY_E_CLOSED : CUBBY_E_CANCELLED,
                        fetched ? "the result was fetched already" : "the acquire was cancelled");
        } else if (result == 0) {
                *ret = request->acquired;
        } else if (err != NULL) {
                *err = request->error;
        }
        request->state = REQUEST_FETCHED;
        (void)pthread_mutex_unlock(&async->lock);
        return result;
}

/* With the lock held: out of the queue, with this end. */
static void unqueue(struct async *async, struct pool_request *request, int code, const char *text)
{
        struct pool_request **place = &async->first;
        struct pool_request *before = NULL;
        while (*place != NULL && *place != request) {
                before = *place;
                place = &(*place)->next;
        }
        *place = request->next;
        if (async->last == request)
                async->last = before;
        async->queued--;
        (void)cubby_error_set(&request->error, code, "%s", text);
        finish(request, -1);
        request->references--; /* the worker's; the caller's remains */
}

void pool_request_cancel(struct pool_request *request)
{
        struct async *async = request->async;
        bool wake = false;
        bool unwanted = false;
        struct pool_acquired acquired = {0};
        (void)pthread_mutex_lock(&async->lock);
        if (!request->abandoned && request->state != REQUEST_FETCHED) {
                request->abandoned = true;
                atomic_store(&request->cancelled, true);
                wake = request->state == REQUEST_RUNNING;
                if (request->state == REQUEST_QUEUED)
                        unqueue(async, request, CUBBY_E_CANCELLED, "the acquire was cancelled");
                else if (request->state == REQUEST_DONE && request->result == 0) {
                        acquired = request->acquired;
                        unwanted = true;
                }
        }
        struct pool *pool = async->ended ? NULL : async->pool;
        (void)pthread_mutex_unlock(&async->lock);
        if (wake && pool != NULL) {
                serializer_wake(pool->serializer);
                pool_lock(pool);
                (void)pthread_cond_broadcast(&pool->room);
                pool_unlock(pool);
        }
        if (unwanted && pool != NULL)
                give_back(pool, request->keyed, &acquired);
}

void pool_request_close(struct pool_request *request)
{
        if (request == NULL)
                return;
        struct async *async = request->async;
        pool_request_cancel(request);
        (void)pthread_mutex_lock(&async->lock);
        drop_request(async, request);
}

void async_stop(struct async *async)
{
        (void)pthread_mutex_lock(&async->lock);
        async->stopped = true;
        while (async->first != NULL)
                unqueue(async, async->first, CUBBY_E_SHUTDOWN, "the pool is shutting down");
        (void)pthread_mutex_unlock(&async->lock);
}

void async_free(struct async *async)
{
        if (async == NULL)
                return;
        (void)pthread_mutex_lock(&async->lock);
        async->stopped = true;
        async->ended = true;
        (void)pthread_cond_broadcast(&async->work);
        unsigned threads = async->threads;
        (void)pthread_mutex_unlock(&async->lock);
        for (unsigned i = 0; i < threads; i++)
                (void)pthread_join(async->ids[i], NULL);
        (void)pthread_mutex_lock(&async->lock);
        drop_async(async);
}

uint32_t async_queued(struct async *async)
{
        (void)pthread_mutex_lock(&async->lock);
        uint32_t queued = async->queued;
        (void)pthread_mutex_unlock(&async->lock);
        return queued;
}
