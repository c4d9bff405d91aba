/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_EXEC_H
#define GUEST_EXEC_H

/*
 * One command: its stream, its channels with their credit windows, its end.
 * All calls are the port thread's; none waits.
 */

#include "base/log.h"
#include "cgroup.h"
#include "port.h"
#include "queue.h"

#include <stdbool.h>
#include <stdint.h>

#define EXEC_DRAIN_MS 500 /* for output that a background process still holds open */
#define EXEC_KILL_AGAIN_MS 50

struct exec {
        uint64_t stream;
        struct job *job; /* while the spawner works on it; the spawner's */
        uint32_t flags;
        bool silent;  /* its owner is gone with an old session: no frame is sent */
        bool discard; /* output is read and dropped */
        bool killed;  /* cancelled or timed out: killed until nothing is left */
        bool exited;  /* reaped */
        bool ended;   /* everything is sent: can be freed */
        bool stdin_ended;
        size_t passed; /* bytes of output in the present round of the loop */
        size_t fed;    /* of input */
        bool readable[CHANNEL_COUNT];
        bool large[CHANNEL_COUNT]; /* its pipe was made as large as a window */
        int fds[CHANNEL_COUNT];    /* -1: never there, or ended */
        int pidfd;
        pid_t pid;
        struct slot *slot;

        struct buffer input; /* for stdin, from input_used on */
        size_t input_used;
        uint32_t input_window;  /* bytes the host may still send */
        uint32_t input_written; /* bytes it has no credit for yet */
        uint64_t credit[CHANNEL_COUNT];
        int64_t owed[CHANNEL_COUNT]; /* bytes in the pipe when the command ended */

        int64_t timeout_at; /* monotonic ms, DEADLINE_NEVER */
        int64_t kill_at;
        int64_t drain_at;
        struct message_exit exit;
};

struct exec *exec_new(uint64_t stream, uint32_t flags, uint32_t timeout_ms);
void exec_free(struct exec *exec, struct cgroups *cgroups); /* NULL-safe */

/* The spawner is done; takes what is in `job`. False: it failed and ERROR is sent. */
bool exec_started(struct exec *exec, struct job *job, struct port *port);

void exec_input(struct exec *exec, struct port *port, const struct log *log, struct slice data);
void exec_input_end(struct exec *exec);
void exec_write_input(struct exec *exec, struct port *port);
bool exec_wants_input(const struct exec *exec); /* poll its stdin for room */
void exec_credit(struct exec *exec, uint16_t channel, uint32_t bytes);
void exec_resize(const struct exec *exec, uint16_t rows, uint16_t columns);
void exec_signal(const struct exec *exec, uint32_t number);
void exec_cancel(struct exec *exec);
/* The machine has a new owner: go on, but for nobody. */
void exec_orphan(struct exec *exec);

/* The pidfd is readable. */
void exec_reap(struct exec *exec);
/* Reads output into the port, one frame per channel. True when something was read. */
bool exec_pump(struct exec *exec, struct port *port);
bool exec_wants_output(const struct exec *exec, int channel);
/* It floods: it is left alone for a moment, until its pipe is full. */
bool exec_flows(const struct exec *exec);
/* It is flooded: its pipe is filled before it reads on. Since the last call. */
bool exec_was_fed(struct exec *exec);
/* Timeouts, and EXIT once all is sent; sets `ended`. */
void exec_check(struct exec *exec, struct port *port, int64_t now);
/* The next moment that exec_check has something to do at. */
int64_t exec_deadline(const struct exec *exec);

void send_error(struct port *port, uint64_t stream, const cubby_error *error);

#endif
