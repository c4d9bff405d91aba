/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_QUEUE_H
#define GUEST_QUEUE_H

/* Work handed from the port thread to the threads that may wait for a disk. */

#include "base/buffer.h"
#include "base/error.h"
#include "spawn.h"

#include <pthread.h>
#include <stdatomic.h>

enum job_kind { JOB_EXEC, JOB_RESUME, JOB_SYNC, JOB_PROCESSES, JOB_METRICS, JOB_POWER_OFF };

struct job {
        struct job *next;
        enum job_kind kind;
        uint64_t stream;
        struct buffer payload; /* of the request */

        /* The answer. */
        cubby_error error; /* code CUBBY_OK: it worked */
        struct buffer reply;
        struct spawned spawned;
        uint64_t session;            /* RESUME: the new nonce */
        _Atomic(struct slot *) slot; /* EXEC: set before the process exists */
};

/* NULL when memory ran out. */
struct job *job_new(enum job_kind kind, uint64_t stream, const void *payload, size_t size);
void job_free(struct job *job); /* NULL-safe; closes what nobody took */

struct queue {
        pthread_mutex_t lock;
        pthread_cond_t filled;
        struct job *first;
        struct job **last;
        bool idle_work; /* asked for by queue_nudge */
};

void queue_init(struct queue *queue);
void queue_push(struct queue *queue, struct job *job);
/* Waits for a job; NULL once after a nudge, when no job waits. */
struct job *queue_wait(struct queue *queue);
void queue_nudge(struct queue *queue);       /* whoever waits there has time for chores */
struct job *queue_poll(struct queue *queue); /* NULL when there is none */

#endif
