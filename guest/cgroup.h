/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_CGROUP_H
#define GUEST_CGROUP_H

/*
 * The workload's cgroup, with one child per running command. Making a cgroup is
 * slow in an emulated machine, so empty ones are kept ready and used again once
 * nothing lives in them.
 *
 * All files here are kept by the kernel in memory: no call waits for a disk.
 */

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct slot {
        struct slot *next;
        int dir_fd;
        int events_fd;
        int memory_fd; /* memory.events; -1: there is no memory controller */
        unsigned number;
        uint64_t oom_kills; /* seen before the present command began */
};

struct cgroups {
        int root_fd;
        int workload_fd;
        bool memory; /* the memory controller is on */
        _Atomic unsigned made;
        char task_limit[24]; /* pids.max of a slot; empty before RESUME */
        bool limited;        /* to the two that follow */
        uint32_t cpu_milli;
        uint32_t pids_max;
        unsigned free_count;
        struct slot *free;      /* empty: the spawner's */
        struct slot *lingering; /* a background process may live there: the spawner's */
        pthread_mutex_t lock;   /* guards `returned` */
        struct slot *returned;  /* their commands have ended */
};

/* Makes the workload's cgroup and moves this process into it, so that a cgroup
 * namespace made now has it as its root. */
int cgroups_begin(struct cgroups *cgroups, cubby_error *err);
/* Moves this process out again, turns the controllers on, makes the first slots. */
int cgroups_finish(struct cgroups *cgroups, cubby_error *err);

/* The spawner's: a cgroup for a command. CUBBY_E_LIMIT when all are in use. */
struct slot *cgroups_take(struct cgroups *cgroups, cubby_error *err);
/* The spawner's, between commands: sorts returned slots, keeps some ready. */
void cgroups_tidy(struct cgroups *cgroups);
/* Any thread: the command of this slot has ended. NULL is allowed. */
void cgroups_return(struct cgroups *cgroups, struct slot *slot);

/* 0: no limit, except what the agent itself needs to go on. */
int cgroups_limit(struct cgroups *cgroups, uint32_t cpu_milli, uint32_t pids_max, cubby_error *err);
int cgroups_freeze(const struct cgroups *cgroups, bool frozen); /* 0 or -1 with errno */
void cgroups_kill(const struct cgroups *cgroups);               /* the whole workload */
void cgroups_signal(const struct cgroups *cgroups, int signal); /* each process of it */
bool cgroups_populated(const struct cgroups *cgroups);

void slot_kill(const struct slot *slot);
void slot_signal(const struct slot *slot, int signal);
/* True when the kernel killed a process of this command for lack of memory. */
bool slot_ran_out_of_memory(const struct slot *slot);

#endif
