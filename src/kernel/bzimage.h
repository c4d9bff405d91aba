/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_BZIMAGE_H
#define KERNEL_BZIMAGE_H

/* Linux x86 boot images: where the compressed kernel lies in one, and what an
 * uncompressed one must be to boot without firmware. */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BZIMAGE_HEAD_SIZE 4096U               /* enough of a file for bzimage_locate */
#define VMLINUX_SIZE_MAX (256U * 1024 * 1024) /* uncompressed */
#define KERNEL_VERSION_MAX 64U                /* with the NUL */

struct bzimage {
        uint64_t payload_offset; /* in the file */
        uint64_t payload_size;   /* compressed, the appended size field included */
};

/* `head` are the first bytes of a file of `file_size` bytes. */
int bzimage_locate(const uint8_t *head, size_t head_size, uint64_t file_size, struct bzimage *ret,
        cubby_error *err);

/* Writes the uncompressed kernel of `image_fd` (a vmlinux, or a bzImage in any
 * compression that Linux offers but LZO) to `out_fd` and checks it. */
int vmlinux_extract(int image_fd, int out_fd, int64_t deadline_ms, cubby_error *err);

/* ELF64 for x86-64 with an entry point for direct boot (PVH note). */
int vmlinux_check(int fd, cubby_error *err);

/* The release of the banner "Linux version RELEASE (...", fit to be a file name. */
int vmlinux_version(int fd, char ret[KERNEL_VERSION_MAX], cubby_error *err);

/* Whether the text, without its NUL, stands anywhere in the kernel. */
int vmlinux_contains(int fd, const char *text, bool *ret, cubby_error *err);

#endif
