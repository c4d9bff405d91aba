/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_LAUNCH_H
#define BOX_LAUNCH_H

/* Starting shims: what each is given, and how it reports. */

#include "box/box.h"

/* What a shim is given; all of it is the caller's to close. -1: none. */
struct shim_parts {
        int lock;
        int rootfs;
        int vmlinux;
        int initramfs;
        int memory;
        int state;
        int keeper;
        int status; /* our end */
};
#define SHIM_PARTS_NONE                  \
        ((struct shim_parts){.lock = -1, \
                .rootfs = -1,            \
                .vmlinux = -1,           \
                .initramfs = -1,         \
                .memory = -1,            \
                .state = -1,             \
                .keeper = -1,            \
                .status = -1})
void shim_parts_close(struct shim_parts *parts);
#define AUTO_PARTS __attribute__((cleanup(shim_parts_close)))

/* The kernel and initramfs for a config. */
int shim_open_kernel(
        cubby *host, const struct box_config *config, struct shim_parts *parts, cubby_error *err);

/* `warmups` may be NULL. Sets parts->status. */
int shim_launch(const cubby_box *box, enum shim_mode mode, char *const *warmups,
        struct shim_parts *parts, int *ret_pidfd, cubby_error *err);
/* Waits for ready or failed; progress goes to the host's callback. */
int shim_wait_ready(const cubby_box *box, int status, struct shim_report *ret, cubby_error *err);
/* After a failure: it writes its exit file and ends by itself; else it is killed. */
void shim_clean_up(const cubby_box *box, int pidfd);

/* To the log: what isolates the box. Emulation that nobody asked for is never silent. */
void box_tell_isolation(const cubby_box *box, const char *isolation);

#endif
