/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SPAWN_H
#define BASE_SPAWN_H

/*
 * The one way to start a child process on the host. Never a shell: an argument
 * vector, descriptors by name, everything else closed on exec, signal handlers
 * and mask reset. The caller learns whether exec succeeded before a call returns.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn_fd {
        int source; /* the caller's descriptor */
        int target; /* its number in the child */
};

struct spawn_options {
        const char *const
                *argv; /* NULL-terminated; argv[0] is looked up in PATH when it has no slash */
        const char *const *env;     /* NULL-terminated; NULL: the caller's environment */
        const struct spawn_fd *fds; /* 0, 1 and 2 that are not named get /dev/null */
        size_t fd_count;
        bool new_session;
        unsigned long namespaces; /* CLONE_NEW* the child is born into; 0: the caller's */
        /*
         * Runs in the child just before exec; only async-signal-safe calls.
         * Returns 0, or a negative errno that is reported to the parent with
         * *ret_step naming what failed (a string literal).
         */
        int (*before_exec)(void *data, const char **ret_step);
        void *data;
};

struct child {
        pid_t pid; /* reap with child_wait */
        int pidfd; /* close-on-exec */
};

#define CHILD_NONE ((struct child){.pid = -1, .pidfd = -1})

int spawn(const struct spawn_options *options, struct child *ret, cubby_error *err);

/*
 * Like spawn, for a process that outlives this one: nobody has to reap it. An
 * intermediate process starts it and ends at once. `*ret_pidfd` (close-on-exec)
 * tells when it ends and can signal it.
 */
int spawn_detached(const struct spawn_options *options, int *ret_pidfd, cubby_error *err);

/*
 * Waits until the deadline (monotonic ms). Returns 0 with the waitpid status, -1
 * with CUBBY_E_TIMEOUT. In a program that ignores SIGCHLD, or reaps children that
 * are not its own, -1 with ECHILD. Unless it timed out, `child` is CHILD_NONE then.
 */
int child_wait(struct child *child, int64_t deadline_ms, int *ret_status, cubby_error *err);
/* SIGKILL and reap; harmless on CHILD_NONE. */
void child_kill(struct child *child);

/*
 * Runs a program to its end with output collected: stdout into `output` (may be
 * NULL: discarded), the last kilobyte of stderr into the error text when it
 * exits non-zero. The child is killed at the deadline. Works, too, where the
 * embedding program ignores SIGCHLD.
 */
int spawn_run(
        const char *const *argv, struct buffer *output, int64_t deadline_ms, cubby_error *err);

/* True if `name` is found executable in PATH. */
bool program_exists(const char *name);

#endif
