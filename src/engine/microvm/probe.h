/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_PROBE_H
#define ENGINE_MICROVM_PROBE_H

/*
 * Whether KVM is worth using. /dev/kvm may be there and interpret every
 * instruction, or break off in the middle of a boot; so a guest of a few bytes
 * counts down in long mode, in a child process that can be killed.
 */

#include "engine/engine.h"

#include <stddef.h>
#include <stdint.h>

#define PROBE_BOUND_MS 50
#define PROBE_TEXT_MAX 160U

enum kvm_support { KVM_SUPPORT_NONE, KVM_SUPPORT_SOFTWARE, KVM_SUPPORT_HARDWARE };

/* What the probe guest did. */
enum probe_end {
        PROBE_NO_DEVICE, /* /dev/kvm cannot be opened: error_number */
        PROBE_REFUSED,   /* a call before the run failed: error_number */
        PROBE_HALTED,    /* counted down and halted after elapsed_ns */
        PROBE_BROKE,     /* any other exit: exit_reason */
        PROBE_TIMED_OUT, /* killed */
};

struct probe_facts {
        int software_module; /* kvm_pvm is loaded */
        enum probe_end end;
        int error_number;
        uint32_t exit_reason;
        int64_t elapsed_ns;
};

struct probe_result {
        enum kvm_support support;
        char text[PROBE_TEXT_MAX]; /* one sentence for people */
};

struct probe_result probe_decide(const struct probe_facts *facts);

/*
 * What a machine gets that wants `accel`. Software KVM runs no plain kernel, so it
 * has to be asked for, together with a kernel of the user's own.
 * CUBBY_E_UNSUPPORTED: KVM is insisted on and of no use.
 */
int probe_choose(const struct probe_result *probe, enum accel accel, bool own_kernel,
        enum isolation *ret, cubby_error *err);

/* Takes at most about PROBE_BOUND_MS. The answer holds until the next boot of
 * the host; the caller may keep it. */
struct probe_result probe_kvm(void);

#endif
