/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PUMP_H
#define CLI_PUMP_H

/*
 * Joins our standard streams with a command in a box: output until the exit
 * event, stdin when wanted, signals passed on, the terminal's size followed.
 * Signals must be blocked (pump_block_signals) before the command exists, so
 * that none is lost.
 */

#include "capture.h"

#include <cubby/cubby.h>
#include <signal.h>
#include <stdbool.h>

struct pump_settings {
        cubby_exec *exec;
        bool tty;
        bool input;              /* stdin goes to the command */
        bool detach_keys;        /* ctrl-p ctrl-q leaves */
        int64_t deadline_ms;     /* monotonic; 0: none */
        struct capture *capture; /* output goes here instead of to our streams */
};

enum pump_end {
        PUMP_EXIT,          /* the command ended: exit is filled */
        PUMP_DETACHED,      /* the detach keys */
        PUMP_DEADLINE,      /* deadline_ms passed */
        PUMP_INTERRUPTED,   /* three interrupts in a row: the user wants out */
        PUMP_OUTPUT_CLOSED, /* nobody reads our output any more */
        PUMP_FAILED,        /* err is filled */
};

/* Blocks the signals that are passed on. */
void pump_block_signals(sigset_t *ret_before);
/* The set of those signals. */
void pump_signals(sigset_t *ret);
enum pump_end pump_run(const struct pump_settings *settings, cubby_exit *ret, cubby_error *err);

#endif
