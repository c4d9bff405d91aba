/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/*
 * Machines behind one table. An engine knows nothing of images, boxes or pools:
 * it gets open descriptors and numbers, and gives a running machine with one
 * end of the agent's stream. It runs inside the shim, on the shim's one thread;
 * no call but `start` takes longer than a few milliseconds.
 */

#include "base/error.h"
#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum accel { ACCEL_AUTO, ACCEL_KVM, ACCEL_TCG };
enum isolation {
        ISOLATION_NONE,
        ISOLATION_EMULATED,
        ISOLATION_SOFTWARE, /* KVM without hardware virtualisation, with a guest kernel made for it
                             */
        ISOLATION_HARDWARE
};

enum {
        ENGINE_CAN_PAUSE = 1U << 0,
        ENGINE_CAN_CLONE = 1U << 1, /* save to and start from a template */
};

struct machine_config {
        uint64_t memory_bytes; /* multiple of 1 MiB */
        uint32_t vcpus;
        enum accel accel;
        bool own_kernel; /* the user chose the guest kernel: it may be made for software KVM */
        /* All owned by the caller, who may close them after start. */
        int vmlinux_fd;
        int initramfs_fd;
        int rootfs_fd;        /* O_RDONLY, EROFS */
        int disk_fd;          /* O_RDWR, raw ext4, private to this machine */
        int console_fd;       /* append-only; the console's and the VMM's own messages */
        bool console;         /* a serial console (slow; for diagnosis) */
        uid_t uid;            /* as root: the VMM runs as this id; 0: keep the caller's */
        const char *vmm_path; /* NULL: qemu-system-x86_64 from PATH */
        const struct log *log;
};

struct machine; /* each engine has its own */

struct engine {
        const char *name;
        uint32_t capabilities;

        /* Starts the machine; does not wait for the guest. CUBBY_E_VMM,
         * CUBBY_E_UNSUPPORTED (kvm insisted on and unusable). */
        int (*start)(const struct machine_config *config, struct machine **ret, cubby_error *err);
        /* Byte stream to the agent's port, non-blocking; owned by the machine. */
        int (*agent_fd)(const struct machine *machine);
        /* Readable when the machine has ended; owned by the machine. */
        int (*exit_fd)(const struct machine *machine);
        pid_t (*pid)(const struct machine *machine); /* 0: no process of its own */
        enum isolation (*isolation)(const struct machine *machine);
        int (*pause)(struct machine *machine, cubby_error *err); /* stops the vCPUs */
        int (*unpause)(struct machine *machine, cubby_error *err);
        /* After exit_fd: one sentence on how it ended; `*ret_clean` when the guest
         * powered off by itself. */
        void (*describe_exit)(struct machine *machine, char *ret, size_t size, bool *ret_clean);
        /* Kills what still runs, reaps, frees. NULL is allowed. */
        void (*destroy)(struct machine *machine);
};

/* NULL when there is none of that name. */
const struct engine *engine_find(const char *name);
const char *isolation_name(enum isolation isolation);

extern const struct engine engine_microvm;
extern const struct engine engine_fake;

#endif
