/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_BOOT_H
#define GUEST_BOOT_H

/* What PID 1 does before anything else. Every call is a stage of its own, with
 * deadlines inside; a failure is fatal for the machine. */

#include "base/error.h"

int boot_file_systems(cubby_error *err); /* proc, sysfs, devtmpfs, cgroup2 */
int boot_modules(cubby_error *err);      /* in the order of /modules/order */
int boot_root_disks(cubby_error *err);   /* vda, vdb and the overlay of both at /box */
int boot_loopback(cubby_error *err);
int boot_hardening(cubby_error *err); /* kernel settings; after the modules */
int boot_limits(cubby_error *err);    /* this process: memory lock, limits, not dumpable */
/* Opens the agent's virtio-serial port, non-blocking. Returns the descriptor. */
int boot_port(cubby_error *err);

/* Overlay, its lower and its upper file system in the agent's own mount namespace. */
#define BOOT_BOX "/box"
#define BOOT_LOWER "/lower"
#define BOOT_UPPER "/upper"
#define BOOT_CGROUP "/sys/fs/cgroup"

#endif
