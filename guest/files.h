/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_FILES_H
#define GUEST_FILES_H

/*
 * File calls. Each runs on a file thread, which lives in the workload's mount namespace
 * with the ids of whoever asked and no capability that root in the box has not; the port
 * thread only moves bytes between the port and the buffers of a call. A call that waits
 * for a disk holds one thread and nothing else.
 *
 * A freeze finds every call at a place where it may stop (see struct file_io): `running`
 * counts those that are between two such places, and none leaves one while `paused`.
 */

#include "base/log.h"
#include "files/files.h"
#include "port.h"
#include "users.h"
#include "workload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FILE_THREADS_KEPT 3U /* there from the beginning: a template has them */
#define FILE_THREADS_MAX 16U
#define FILE_STREAMS_MAX 12U        /* calls that may last: the others never wait for one of them */
#define FILE_WATCHES_MAX 8U         /* of these; they may last for ever, so nobody waits for one */
#define FILE_CALLS_MAX 64U          /* that run or wait for a thread */
#define FILE_OUT_MAX (256U * 1024U) /* a call waits with more; it goes on at half of it */

/* One frame's worth of what travels. */
struct record {
        struct record *next;
        uint16_t type;
        uint32_t size, room;
        uint8_t bytes[];
};

struct records {
        struct record *first, **last;
        struct record *newest; /* NULL: there is none */
        size_t bytes;
};

struct file_call {
        struct file_call *next; /* in the line for a thread */
        struct files *files;
        uint64_t stream;
        struct buffer payload;
        struct message_file_call message; /* points into payload */
        uint32_t traffic;
        bool lasts;  /* takes part in FILE_STREAMS_MAX */
        bool waits;  /* for its turn in there: no thread knows it yet */
        bool silent; /* its owner is gone with an old session: the port thread's */

        /* Under files->lock. */
        pthread_cond_t changed; /* its thread may go on */
        bool cancelled;
        int wait_fd; /* an event descriptor, once its thread waits for another one; or -1 */
        bool done;   /* the thread has left it: the port thread's now */
        struct records out;
        uint64_t credit; /* that the host has given for them */
        struct records in;
        uint32_t in_window;   /* bytes the host may still send */
        uint32_t in_consumed; /* bytes it has no credit for yet */
        bool in_ended;
        bool credit_due;

        /* The thread's, then the port thread's. */
        struct record *taken; /* what receive has given out */
        struct buffer reply;
        cubby_error error;
};

struct files {
        int wake_fd; /* tells the port thread; the agent's */
        const struct workload *workload;
        const struct log *log;
        pthread_mutex_t lock;
        pthread_cond_t filled;  /* a call waits for a thread */
        pthread_cond_t resumed; /* not paused any more */
        struct file_call *first, **last;
        unsigned threads, idle, running;
        bool paused;
        atomic_bool woken; /* wake_fd is readable, or the port thread is about to look */

        /* The port thread's. */
        struct file_call *calls[FILE_CALLS_MAX];
        size_t count;
        size_t lasting, watching;
        size_t turn;
};

void records_init(struct records *records);
void records_clear(struct records *records);
/* NULL when memory ran out. */
struct record *record_new(uint16_t type, const void *bytes, size_t size);
void records_put(struct records *records, struct record *record);
struct record *records_take(struct records *records); /* NULL: none */
/* Adds to the data that came last; false when that has no room. */
bool records_extend(struct records *records, const void *bytes, size_t size);

/* file_threads.c */
int files_init(struct files *files, int wake_fd, const struct workload *workload,
        const struct log *log, cubby_error *err); /* once the workload exists */
/* Gives the call to a thread, making one when none is idle. */
void files_push(struct files *files, struct file_call *call);

/* files.c: the port thread's */
void files_begin(struct files *files, struct port *port, const struct frame *frame);
/* True when the frame belongs to a file call, also to one that has just ended. */
bool files_frame(struct files *files, const struct frame *frame);
/* Moves what the calls have to send into the port. True when there may be more as soon as
 * the port has room. */
bool files_pump(struct files *files, struct port *port);
void files_pause(struct files *files, bool paused);
bool files_busy(struct files *files);   /* a call runs, and is not at a place to stop at */
void files_orphan(struct files *files); /* the box has a new owner: all end, silently */
void files_cancel(struct files *files);

#endif
