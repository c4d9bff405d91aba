/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_AGENT_H
#define GUEST_AGENT_H

/*
 * The agent's threads:
 *   port     PID 1's first thread: frames, pipes, ends of commands. Never touches
 *            a disk, so it always answers.
 *   spawner  lives in the workload's namespaces: starts commands, does RESUME.
 *   worker   sync, lists, figures, power off.
 *   file threads  see files.h.
 * They meet in queues; `wake` tells the port thread of finished work.
 */

#include "cgroup.h"
#include "console.h"
#include "exec.h"
#include "files.h"
#include "port.h"
#include "queue.h"
#include "resume.h"
#include "spawn.h"
#include "workload.h"

#include <stdatomic.h>
#include <stdbool.h>

#define EXECS_MAX 192U
#define JOBS_MAX 64U /* requests other than EXEC that wait for an answer */

enum phase {
        PHASE_BOOTED, /* HELLO sent; no RESUME yet: nothing of a tenant may run */
        PHASE_RUNNING,
        PHASE_FREEZING, /* FREEZE came; FROZEN is not out yet */
        PHASE_FROZEN,   /* silent until THAW or RESUME */
        PHASE_STOPPING, /* SHUTDOWN came */
};

struct agent {
        struct console console;
        struct port port;
        struct cgroups cgroups;
        struct workload workload;
        struct spawner spawner;
        struct identity_state identity;
        struct queue spawner_jobs, worker_jobs, done;
        int wake_fd;
        struct files files;
        bool files_more; /* they had something to send when they were last looked at */

        struct exec *execs[EXECS_MAX];
        size_t exec_count;
        size_t turn;           /* whose output goes first */
        bool hurried;          /* somebody floods us: the port thread goes before all others */
        int64_t rest_until_ns; /* whose pipes are not looked at before it */
        bool untidy;           /* a command has ended: the spawner tidies once that is told */
        size_t jobs;           /* handed over and not done, EXEC not counted */
        size_t resuming;       /* of these, RESUME */
        enum phase phase;
        enum phase thawed; /* the phase that FREEZE interrupted */
        uint64_t freeze_stream;
        bool freeze_syncing;
        bool held; /* the workload is frozen; without a process there is nothing to freeze */
        int64_t freeze_at; /* FREEZE fails then if a command is still being started */
        int64_t stop_at;   /* STOPPING: kill what is left */
        bool stop_killed, stop_sent;
};

/* threads.c */
int threads_start(struct agent *agent, cubby_error *err); /* returns when the box is ready */

/* dispatch.c */
void dispatch_frame(struct agent *agent, const struct frame *frame);
void dispatch_done(struct agent *agent, struct job *job); /* frees the job */
void dispatch_freeze(struct agent *agent, int64_t now);   /* moves FREEZE on */
void dispatch_stop(struct agent *agent, int64_t now);     /* moves SHUTDOWN on */

/* loop.c */
_Noreturn void loop_run(struct agent *agent);

#endif
