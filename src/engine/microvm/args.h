/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_ARGS_H
#define ENGINE_MICROVM_ARGS_H

/* QEMU's argument vector. Everything reaches the VMM as a descriptor with a
 * fixed number: no path of the host but QEMU's own is named. */

#include "base/error.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* The VMM's descriptors, from 3 on without a gap. */
enum vmm_fd {
        VMM_FD_QMP = 3,
        VMM_FD_AGENT,
        VMM_FD_VMLINUX,
        VMM_FD_INITRAMFS,
        VMM_FD_ROOTFS,
        VMM_FD_DISK,
        VMM_FD_MEMORY, /* of a template and its clones; a clone has neither kernel nor initramfs */
        VMM_FD_END
};

#define VMM_MEMORY_MIN (64ULL * 1024 * 1024)
#define VMM_MEMORY_MAX (1024ULL * 1024 * 1024 * 1024)
#define VMM_VCPUS_MAX 64U
/* Raised with every change of what a machine consists of: saved ones end with it. */
#define VMM_ARGUMENTS_VERSION 4U
#define VMM_CPU_EMULATED "max,-la57,-erms,-fsrm,-pcid,-umip,-pku"
#define VMM_TB_MIB 128U /* translated code: the host's memory that a guest can claim */

struct vmm_spec {
        enum machine_origin origin;
        bool devices_only;   /* a clone of a machine that went on */
        const char *program; /* absolute path */
        uint64_t memory_bytes;
        uint32_t vcpus;
        bool kvm;
        bool software_kvm; /* and that without hardware */
        bool console;
        uint32_t tsc_khz; /* of the host; used without KVM */
};

struct args {
        char **list; /* NULL-terminated */
        unsigned count;
};

int vmm_spec_check(const struct vmm_spec *spec, cubby_error *err);
int args_build(const struct vmm_spec *spec, struct args *ret, cubby_error *err);
void args_free(struct args *args);

#endif
