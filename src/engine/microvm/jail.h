/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_JAIL_H
#define ENGINE_MICROVM_JAIL_H

/*
 * The cage of the VMM process. The parent plans it (this may allocate), the
 * child enters it between fork and exec with system calls only. Layers, each
 * for itself enough to keep a plain escape from other tenants' files:
 *
 *   namespaces  own mount tree (the VMM, its libraries and firmware, read-only),
 *               pids, network (none), IPC, host name; for ordinary users in a
 *               user namespace
 *   uid         its own id, no groups, no capability, none to be gained
 *   Landlock    the same few files again, no TCP, no abstract sockets
 *   limits      no core, few descriptors, memory, file size
 *
 * QEMU's own seccomp filter (-sandbox) comes on top.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JAIL_BINDS_MAX 16U
#define JAIL_PATH_MAX 512U
#define JAIL_FILES_MAX 4U
#define JAIL_REPORT_MAX 160U

enum jail_bind_kind {
        JAIL_BIND_FOLDER,
        JAIL_BIND_FILE,
        JAIL_BIND_PROGRAM,
        JAIL_BIND_DEVICE,
        JAIL_LINK
};

struct jail_bind {
        enum jail_bind_kind kind;
        char source[JAIL_PATH_MAX];
        char link[JAIL_PATH_MAX]; /* of JAIL_LINK: where it points */
};

struct jail {
        unsigned long namespaces; /* for spawn; 0: none to be had */
        bool user_namespace;
        bool change_uid;
        uid_t uid;
        gid_t extra_group; /* that may open /dev/kvm; 0: none */
        int landlock_abi;  /* 0: not offered by this kernel */
        uint64_t address_space_bytes;
        uint64_t file_size_bytes;
        char uid_map[64];
        char gid_map[64];
        struct jail_bind binds[JAIL_BINDS_MAX];
        unsigned bind_count;
        int files[JAIL_FILES_MAX]; /* the child's descriptors that it opens again */
        unsigned file_count;
        /* The parent's end of a socket, and the child's: once the child's reads
         * as hung up, the parent is gone. */
        int parent_end;
        int child_end;
};

struct jail_spec {
        const char *program; /* absolute */
        uid_t uid;           /* as root: run as this id; 0: keep the caller's */
        bool kvm;
        bool namespaces; /* false: do without */
        uint64_t memory_bytes;
        uint64_t disk_bytes;
        const int *files; /* the child's descriptors that it opens again by /proc/self/fd */
        unsigned file_count;
        int parent_end;
        int child_end;
};

int jail_plan(const struct jail_spec *spec, struct jail *ret, cubby_error *err);
/* CUBBY_E_UNSUPPORTED when no layer keeps the VMM from the files of its user. */
int jail_check(const struct jail *jail, cubby_error *err);
/* For spawn_options.before_exec; `data` is the struct jail. */
int jail_enter(void *data, const char **ret_step);
/* Which layers are in force, for the log. */
void jail_report(const struct jail *jail, char ret[JAIL_REPORT_MAX]);

#endif
