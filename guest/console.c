/* SPDX-License-Identifier: Apache-2.0 */
#include "console.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

static void write_line(void *data, int level, const char *line)
{
        const struct console *console = data;
        char text[1200];
        /* The prefix is a priority for the kernel log and noise of two letters elsewhere. */
        int length = snprintf(
                text, sizeof text, "%scubby-agent: %s\n", level == LOG_ERROR ? "<3>" : "<4>", line);
        if (length > 0 && console->fd >= 0)
                (void)write_whole(console->fd, text, strlen(text));
}

static void fill_standard_descriptors(void)
{
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        while (fd >= 0 && fd < 3)
                fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return;
        /* The kernel may have put its own console there: no child may inherit that. */
        for (int target = 0; target < 3; target++)
                (void)dup3(fd, target, O_CLOEXEC);
        (void)close(fd);
}

void console_open(struct console *console)
{
        fill_standard_descriptors();
        console->fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
        if (console->fd < 0)
                console->fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
        console->log = (struct log){.write = write_line, .data = console};
}

_Noreturn void power_off(void)
{
        sync();
        (void)reboot(RB_POWER_OFF);
        (void)reboot(RB_AUTOBOOT); /* a machine that cannot switch itself off ends this way */
        for (;;)
                (void)pause();
}

_Noreturn void fatal(const struct console *console, const char *stage, const cubby_error *err)
{
        log_line(&console->log, LOG_ERROR, "stage '%s' failed: %s", stage, err->message);
        power_off();
}
