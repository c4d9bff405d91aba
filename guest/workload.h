/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_WORKLOAD_H
#define GUEST_WORKLOAD_H

/*
 * The world of the workload: mount, pid, ipc, host name and cgroup namespaces,
 * whose root is the overlay. One thread of the agent, the spawner, enters it; its
 * children are born there, and the agent and its files do not exist in it. The file threads
 * follow it into its mounts alone.
 */

#include "base/error.h"
#include "base/log.h"
#include "cgroup.h"

#include <sys/types.h>

struct workload {
        pid_t init_pid;
        int init_pidfd; /* readable when the workload's own PID 1 has died: the end */
        int proc_fd;    /* the workload's /proc */
        int files_fd;   /* folder of the files that RESUME writes */
        int random_fd;
        int mounts_fd; /* the workload's mount namespace */
        int root_fd;   /* its root, O_PATH */
        int drafts_fd; /* files that have no place yet, O_PATH; no path leads there */
};

/* On the spawner thread, once. What an odd image makes impossible (its /etc is a
 * file, say) is logged and left out. */
int workload_enter(
        struct workload *ret, struct cgroups *cgroups, const struct log *log, cubby_error *err);

/* Names beneath files_fd; the box sees them in /run/cubby and where they belong. */
#define FILE_HOSTS "hosts"
#define FILE_HOSTNAME "hostname"
#define FILE_RESOLV "resolv.conf"
#define FILE_MACHINE_ID "machine-id"
#define FILE_BOOT_ID "boot_id"
#define FILE_GENERATION "generation"

#endif
