/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FOREGROUND_H
#define CLI_FOREGROUND_H

/* Starting a box and staying with its command, for run, start and attach. */

#include "capture.h"
#include "cli.h"
#include "pump.h"

struct foreground {
        bool tty, input;
        bool remove;             /* the box goes when its command has ended */
        bool owner;              /* we started it: an impatient user ends it */
        int64_t timeout_ms;      /* of the command; 0: none */
        struct capture *capture; /* NULL: our streams */
};

struct foreground_end {
        bool ended; /* exit is filled */
        bool timed_out;
        cubby_exit exit;
};

/* Boots the box; an interrupt on the way removes it when `remove`, else stops
 * it. Signals of pump_block_signals must be blocked. Returns the exit code. */
int foreground_start(struct cli *cli, cubby_box *box, bool remove);
/* Joins the command until it ends or is left; returns the exit code. */
int foreground_attach(
        struct cli *cli, cubby_box *box, const struct foreground *how, struct foreground_end *ret);
/* A terminal was asked for with input from something else. Returns 0 or the
 * exit code. */
int foreground_check_tty(struct cli *cli, bool tty, bool input);
/* Whether the box was made with a terminal or with open input. */
int box_streams(struct cli *cli, cubby_box *box, bool *ret_tty, bool *ret_input);
/* Exit code for a command that was joined; prints what is to be said. */
int exit_code_of(struct cli *cli, const cubby_exit *ended);

#endif
