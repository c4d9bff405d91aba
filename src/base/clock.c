/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

static int64_t read_ns(clockid_t clock)
{
        struct timespec now = {0};
        (void)clock_gettime(clock, &now); /* cannot fail for these clocks */
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
        return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_monotonic_ms(void)
{
        return read_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_realtime_ns(void)
{
        return read_ns(CLOCK_REALTIME);
}

int64_t deadline_after_ms(int64_t timeout_ms)
{
        int64_t now = clock_monotonic_ms();
        if (timeout_ms < 0 || timeout_ms > DEADLINE_NEVER - now)
                return DEADLINE_NEVER;
        return now + timeout_ms;
}

int deadline_left_ms(int64_t deadline_ms)
{
        if (deadline_ms == DEADLINE_NEVER)
                return -1;
        int64_t left = deadline_ms - clock_monotonic_ms();
        if (left <= 0)
                return 0;
        return left > INT_MAX ? INT_MAX : (int)left;
}
