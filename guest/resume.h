/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_RESUME_H
#define GUEST_RESUME_H

/*
 * What makes a machine its own after a boot or a restore: fresh randomness, the
 * host's clock, names and ids, limits, a raised generation. Runs on the spawner
 * thread, before any command of the new owner.
 */

#include "base/error.h"
#include "cgroup.h"
#include "spawn.h"
#include "wire/wire.h"
#include "workload.h"

/* Of the files that RESUME writes; they stay open, for opening one costs as much as
 * everything else together where each instruction is translated first. */
enum resume_file {
        RESUME_HOSTS,
        RESUME_HOSTNAME,
        RESUME_MACHINE_ID,
        RESUME_BOOT_ID,
        RESUME_GENERATION,
        RESUME_FILES
};

struct identity_state {
        bool opened;
        int fds[RESUME_FILES];
        uint64_t memory_bytes; /* of the machine: neither changes while it lives */
        uint32_t cpus;
        uint64_t generation;
        uint64_t newest_stamp; /* the clock never follows an older one */
        char hostname[65];
};

/* CUBBY_E_INVALID for a bad host name; `ret` is what RESUMED says. */
int resume_apply(struct identity_state *state, const struct message_resume *message,
        const struct workload *workload, struct cgroups *cgroups, struct spawner *spawner,
        struct message_resumed *ret, cubby_error *err);

/* Letters, digits, '-', '.' and '_', at most 63 bytes, no dot or dash in front. */
bool hostname_valid(struct slice name);

#endif
