/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/tsc.h"

#include "base/clock.h"

#include <stdbool.h>
#include <time.h>
#include <x86intrin.h>

#define SLEEP_NS 10000000L
#define PAIRS 8
#define KHZ_MIN 100000U /* slower machines do not run x86-64 */
#define KHZ_MAX 20000000U

struct sample {
        uint64_t ticks;
        int64_t ns;
};

/* Of several pairs of readings the one with the least time in between. */
static struct sample take_sample(void)
{
        struct sample best = {0};
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < PAIRS; i++) {
                uint64_t before = __rdtsc();
                int64_t ns = clock_monotonic_ns();
                uint64_t after = __rdtsc();
                if (after - before < least) {
                        least = after - before;
                        best = (struct sample){.ticks = before + least / 2, .ns = ns};
                }
        }
        return best;
}

uint32_t tsc_khz(void)
{
        struct sample first = take_sample();
        struct timespec pause = {.tv_nsec = SLEEP_NS};
        (void)nanosleep(&pause, NULL);
        struct sample second = take_sample();
        if (second.ns <= first.ns || second.ticks <= first.ticks)
                return 0;
        double khz = (double)(second.ticks - first.ticks) * 1e6 / (double)(second.ns - first.ns);
        bool sane = khz >= KHZ_MIN && khz <= KHZ_MAX;
        return sane ? (uint32_t)(khz + 0.5) : 0;
}
