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
        ENGINE_CAN_FORK = 1U << 2,  /* copy a machine that goes on */
};

/* Where a machine begins. */
enum machine_origin {
        MACHINE_BOOT,
        MACHINE_TEMPLATE, /* boots, with its RAM in an object of the caller's: it can be saved */
        MACHINE_CLONE,    /* continues from a saved machine; runs when start returns, or waits */
};

struct machine_config {
        uint64_t memory_bytes; /* multiple of 1 MiB */
        uint32_t vcpus;
        enum accel accel;
        bool own_kernel; /* the user chose the guest kernel: it may be made for software KVM */
        /* All owned by the caller, who may close them after start. */
        int vmlinux_fd; /* not used by a clone, nor is initramfs_fd */
        int initramfs_fd;
        int rootfs_fd; /* O_RDONLY, EROFS */
        int disk_fd;   /* O_RDWR, raw ext4, private to this machine */
        enum machine_origin origin;
        int memory_fd;        /* template: its RAM; clone: a sealed copy of it, mapped privately.
                                 Of exactly memory_bytes; not used by a boot */
        int state_fd;         /* clone: what save wrote, at its beginning */
        bool waits;           /* clone: continues only when `load` is called */
        int console_fd;       /* append-only; the console's and the VMM's own messages */
        bool console;         /* a serial console (slow; for diagnosis) */
        uid_t uid;            /* as root: the VMM runs as this id; 0: keep the caller's */
        bool weak_jail;       /* start even where nothing keeps the VMM from the caller's files */
        const char *vmm_path; /* NULL: qemu-system-x86_64 from PATH */
        const struct log *log;
};

struct machine; /* each engine has its own */

struct engine {
        const char *name;
        uint32_t capabilities;
        /* ENGINE_CAN_CLONE: how long a frozen guest is left alone before it is saved, so that
         * its kernel's own timers are through: every clone would begin with them. */
        int64_t rest_ms;

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
        /* ENGINE_CAN_CLONE: stops a template's machine and writes its device state; what
         * its RAM and disk then hold belongs to it. Only destroy may follow. */
        int (*save)(struct machine *machine, int state_fd, cubby_error *err);
        /* ENGINE_CAN_CLONE: a clone that waits continues. Once, some milliseconds. */
        int (*load)(struct machine *machine, cubby_error *err);
        /* ENGINE_CAN_FORK, in this order. `copy_begin` fills `memory_fd` (empty, of the
         * machine's size) with what does not change any more; it may take a while and the
         * machine runs on. `copy_end` stops the machine, writes its devices and adds the
         * rest of its memory; `unpause` lets it go on. A clone continues from the two like
         * from a template. */
        int (*copy_begin)(struct machine *machine, int memory_fd, cubby_error *err);
        int (*copy_end)(struct machine *machine, int memory_fd, int state_fd, cubby_error *err);
        /* ENGINE_CAN_CLONE: what binds a saved state, as one line each. `build`: the VMM's
         * build and arguments, cheap. `host`: accelerator and CPU, about 60 ms, true
         * until the host's next boot; *ret_clock_khz is the rate that a guest takes
         * from the host, 0 when none. */
        int (*build)(const struct machine_config *config, char **ret, cubby_error *err);
        int (*host)(const struct machine_config *config, char **ret, uint32_t *ret_clock_khz,
                cubby_error *err);
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
