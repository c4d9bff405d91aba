/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void log_line(const struct log *log, int level, const char *format, ...)
{
        if (log == NULL || log->write == NULL)
                return;
        char line[1024];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(line, sizeof line, format, args);
        va_end(args);
        log->write(log->data, level, line);
}
