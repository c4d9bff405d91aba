/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_DEB_H
#define KERNEL_DEB_H

/* Reads a kernel out of a Debian package: nothing of it is installed or run. */

#include "base/buffer.h"
#include "base/error.h"

/*
 * Writes the boot image (compressed as it is) to `image_fd`, the modules that
 * a box needs to `modules_fd`, and the text of modules.builtin to `builtin`.
 */
int deb_read(int deb_fd, int image_fd, int modules_fd, struct buffer *builtin, int64_t deadline_ms,
        cubby_error *err);

#endif
