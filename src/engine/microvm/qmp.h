/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_QMP_H
#define ENGINE_MICROVM_QMP_H

/*
 * QMP, QEMU's control protocol: JSON lines over a socket. The peer is a VMM
 * that may have been taken over by its guest: lines have a ceiling, waits a
 * deadline, replies are matched by id, events are skipped (how the guest ended
 * is kept).
 */

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define QMP_LINE_MAX (64U * 1024)

enum qmp_shutdown {
        QMP_SHUTDOWN_NONE,  /* no event yet */
        QMP_SHUTDOWN_GUEST, /* the guest powered off */
        QMP_SHUTDOWN_RESET, /* the guest restarted or panicked */
        QMP_SHUTDOWN_HOST,  /* asked for from outside: quit, SIGTERM */
};

struct qmp {
        int fd; /* owned; non-blocking */
        struct buffer input;
        uint64_t next_id;
        enum qmp_shutdown shutdown;
};

/* Takes the descriptor over. Waits for the greeting and leaves negotiation. */
int qmp_open(struct qmp *qmp, int fd, int64_t deadline_ms, cubby_error *err);
void qmp_close(struct qmp *qmp); /* also for a zeroed one with fd -1 */

/*
 * Runs a command. `arguments` may be NULL and stays the caller's; `pass_fd` >= 0
 * goes with it. `*ret` (may be NULL) is "return" for the caller to decref. A
 * refusal is CUBBY_E_VMM with QEMU's own words.
 */
int qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, int pass_fd,
        int64_t deadline_ms, json_t **ret, cubby_error *err);

/* Hands QEMU a descriptor under a name of its own, for "fd:NAME". */
int qmp_getfd(struct qmp *qmp, const char *name, int fd, int64_t deadline_ms, cubby_error *err);

/* Takes in whatever waits, without blocking: the last events of a dead VMM. */
void qmp_drain(struct qmp *qmp);

#endif
