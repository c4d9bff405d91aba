/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* There is one terminal, and it has to be given back on every way out. */
static struct termios found;
static bool is_raw;

static bool apply_raw(void)
{
        struct termios raw = found;

        cfmakeraw(&raw);
        return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

bool terminal_raw(void)
{
        if (is_raw)
                return true;
        if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, &found) < 0)
                return false;
        if (atexit(terminal_restore) != 0 || !apply_raw())
                return false;
        is_raw = true;
        return true;
}

void terminal_restore(void)
{
        if (!is_raw)
                return;
        is_raw = false;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &found);
}

void terminal_again(void)
{
        if (is_raw)
                (void)apply_raw();
}

bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns)
{
        static const int fds[] = {STDOUT_FILENO, STDIN_FILENO};
        struct winsize size;

        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                if (ioctl(fds[i], TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
                        *ret_rows = size.ws_row;
                        *ret_columns = size.ws_col;
                        return true;
                }
        return false;
}
