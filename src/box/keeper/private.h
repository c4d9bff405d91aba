/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_KEEPER_PRIVATE_H
#define BOX_KEEPER_PRIVATE_H

#include "box/keeper.h"
#include "box/saved.h"

struct keeper {
        cubby *host;
        struct box_config config; /* of the machine; has nothing of an owner */
        struct template *template;
        int lock_fd; /* borrowed; its children let go of it, so that it ends with the keeper */
        int memory_fd;
        int listen_fd;
        int watch_fd;     /* inotify on the index of spares */
        int spare_end;    /* given to each spare */
        int keeper_end;   /* hung up with this process */
        pid_t worker;     /* makes a spare, or a machine ahead; 0: none */
        int worker_fd;    /* its pidfd */
        int64_t idle_ms;  /* how long to stay without a client */
        int64_t used_ms;  /* the last one */
        int64_t retry_ms; /* no spare is made before it */
        int64_t ahead_ms; /* nor a machine ahead */
        uint32_t ahead;   /* how many of them are kept */
        int failures;     /* of the worker, in a row */
        bool ended;
};

/* Takes the template, makes it when it is missing, and its memory. */
int keeper_prepare(struct keeper *keeper, cubby_error *err);
/* Serves until it is told to end or nobody needs it. */
int keeper_run(struct keeper *keeper, cubby_error *err);
void keeper_close(struct keeper *keeper);

#endif
