/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Deadlines are monotonic; the wall clock is for display only. */

#define DEADLINE_NEVER INT64_MAX

int64_t clock_monotonic_ns(void);
int64_t clock_monotonic_ms(void);
int64_t clock_realtime_ns(void);

/* now + timeout_ms as a deadline in monotonic milliseconds; a negative timeout
 * never ends. */
int64_t deadline_after_ms(int64_t timeout_ms);
/* Milliseconds left for poll(2): 0 when passed, -1 for DEADLINE_NEVER. */
int deadline_left_ms(int64_t deadline_ms);

#endif
