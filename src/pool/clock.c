/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/clock.h"

#include "base/clock.h"

#include <time.h>

static int64_t host_now(void *data)
{
        return clock_monotonic_ms();
}

static void host_wait(
        void *data, pthread_cond_t *changed, pthread_mutex_t *lock, int64_t deadline_ms)
{
        if (deadline_ms == DEADLINE_NEVER) {
                (void)pthread_cond_wait(changed, lock);
                return;
        }
        /* a moment too late rather than too early: no loop around the deadline */
        struct timespec until = {
                .tv_sec = (deadline_ms + 1) / 1000, .tv_nsec = (deadline_ms + 1) % 1000 * 1000000};
        (void)pthread_cond_timedwait(changed, lock, &until);
}

struct pool_clock pool_clock_host(void)
{
        return (struct pool_clock){.now_ms = host_now, .wait = host_wait};
}

void pool_cond_init(pthread_cond_t *changed)
{
        pthread_condattr_t monotonic;
        (void)pthread_condattr_init(&monotonic);
        (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        (void)pthread_cond_init(changed, &monotonic);
        (void)pthread_condattr_destroy(&monotonic);
}

int64_t pool_deadline(const struct pool_clock *clock, int64_t timeout_ms)
{
        int64_t now = pool_now(clock);
        if (timeout_ms < 0 || timeout_ms > DEADLINE_NEVER - now)
                return DEADLINE_NEVER;
        return now + timeout_ms;
}
