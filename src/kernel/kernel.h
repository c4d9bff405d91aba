/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

/* Where the guest kernel comes from, and the initramfs that goes with it. */

#include "base/error.h"
#include "state/home.h"

#include <stdint.h>

typedef void (*kernel_progress)(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total);

struct kernel {
        char *version; /* "6.1.0-42-cloud-amd64" */
        char *digest;  /* hex SHA-256 of vmlinux; part of a template's key */
};

void kernel_clear(struct kernel *kernel);

/* An unpacked kernel. */
struct kernel_entry {
        char *version;
        char *digest;
        uint64_t disk_bytes; /* of all its files */
};

/* Newest first; the first one is the default. Damaged ones are passed over. */
int kernel_list(struct home *home, struct kernel_entry **ret, size_t *ret_count, cubby_error *err);
void kernel_list_free(struct kernel_entry *entries, size_t count);

/*
 * source NULL: newest unpacked one, else the host's /boot (with /lib/modules),
 * else the distribution's package (apt-get download into tmp/; installs
 * nothing). Else a version already unpacked, a vmlinuz or vmlinux file with
 * `modules` beside it, or a .deb file. kernels/VERSION/ is published by rename:
 * vmlinux (uncompressed ELF, PVH entry), modules/NAME.ko. Everything together
 * takes at most 15 minutes: CUBBY_E_TIMEOUT.
 */
int kernel_ensure(struct home *home, const char *source, kernel_progress progress, void *data,
        struct kernel *ret, cubby_error *err);

/*
 * Opens vmlinux and an initramfs (uncompressed cpio: the agent as /init, the
 * modules in load order and a list of them) for this agent binary, which is made
 * and cached on first use. Both O_RDONLY.
 */
int kernel_open(struct home *home, const struct kernel *kernel, const char *agent_path,
        int *ret_vmlinux_fd, int *ret_initramfs_fd, cubby_error *err);

#endif
