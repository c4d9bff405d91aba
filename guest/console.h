/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_CONSOLE_H
#define GUEST_CONSOLE_H

/* The agent's own lines: to the machine's console, else to the kernel log. */

#include "base/error.h"
#include "base/log.h"

struct console {
        int fd;
        struct log log; /* for log_line(); lives as long as this struct */
};

/* Works from the moment /dev is mounted; before that, or without a console,
 * lines go nowhere. Also puts /dev/null on descriptors 0 to 2. */
void console_open(struct console *console);

/* Names the stage, syncs and powers the machine off. PID 1 may never exit. */
_Noreturn void fatal(const struct console *console, const char *stage, const cubby_error *err);
_Noreturn void power_off(void);

#endif
