/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_SPAWN_H
#define GUEST_SPAWN_H

/* Starts a command in the workload. Runs on the spawner thread only. */

#include "base/error.h"
#include "cgroup.h"
#include "command.h"
#include "users.h"

#include <stdint.h>
#include <sys/types.h>

#define SPAWN_STACK_SIZE (64U * 1024U)

struct spawner {
        struct user_cache *users;
        int null_fd;     /* /dev/null of the box */
        int ready[2][2]; /* pipes made ahead for the next command's output; -1: none */
        char hostname[65];
        uint8_t *stack; /* of the new process until it calls exec */
};

int spawner_init(struct spawner *spawner, cubby_error *err); /* inside the box's root */
void spawner_prepare(struct spawner *spawner);               /* between commands */

struct spawned {
        int fds[CHANNEL_COUNT]; /* ours, non-blocking; -1: channel not used. A PTY is in STDOUT */
        int pidfd;
        pid_t pid;          /* as the agent sees it */
        uint32_t inner_pid; /* as the box sees it */
};

#define SPAWNED_NONE ((struct spawned){.fds = {-1, -1, -1}, .pidfd = -1, .pid = -1})

void spawned_close(struct spawned *spawned); /* descriptors only */

int spawn_command(struct spawner *spawner, const struct message_exec *message,
        const struct slot *slot, struct spawned *ret, cubby_error *err);

#endif
