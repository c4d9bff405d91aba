/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_CLOCK_H
#define POOL_CLOCK_H

/* The pool's time: monotonic milliseconds, from outside, so that tests own it. */

#include <pthread.h>
#include <stdint.h>

struct pool_clock {
        int64_t (*now_ms)(void *data);
        /* Waits for `changed` until the deadline (DEADLINE_NEVER: none), or less:
         * whoever waits looks at his condition and at the time again. */
        void (*wait)(
                void *data, pthread_cond_t *changed, pthread_mutex_t *lock, int64_t deadline_ms);
        void *data;
};

/* The host's monotonic clock. */
struct pool_clock pool_clock_host(void);
/* A condition variable that this clock can wait for. */
void pool_cond_init(pthread_cond_t *changed);

static inline int64_t pool_now(const struct pool_clock *clock)
{
        return clock->now_ms(clock->data);
}

static inline void pool_wait(const struct pool_clock *clock, pthread_cond_t *changed,
        pthread_mutex_t *lock, int64_t deadline_ms)
{
        clock->wait(clock->data, changed, lock, deadline_ms);
}

/* now + timeout, without overflow; a negative timeout never ends. */
int64_t pool_deadline(const struct pool_clock *clock, int64_t timeout_ms);

#endif
