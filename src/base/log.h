/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

/* Log lines go to a callback that the owner of the process sets; without one
 * they go nowhere. No global state: whoever logs carries its `struct log`. */

enum log_level { LOG_ERROR = 0, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct log {
        void (*write)(void *data, int level, const char *line); /* NULL: silent */
        void *data;
};

void log_line(const struct log *log, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

#endif
