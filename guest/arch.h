/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_ARCH_H
#define GUEST_ARCH_H

/* What depends on the processor: this file and arch_x86_64.c. */

#include <linux/sched.h>
#include <stddef.h>

/*
 * clone3 with CLONE_VM: the child runs `entry(data)`, which must not return, on
 * the stack of `args`. Returns the child's pid or a negative errno.
 */
long arch_clone(
        const struct clone_args *args, size_t args_size, void (*entry)(void *data), void *data);

#endif
