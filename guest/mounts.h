/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_MOUNTS_H
#define GUEST_MOUNTS_H

/* The mounts inside the box. All calls run with the overlay as root, so that no
 * link in an image leads anywhere else. */

#include "base/error.h"
#include "base/log.h"

#include <sys/types.h>

/* /dev, /sys, its cgroup tree, /dev/shm and the like; /proc must be mounted. */
int mounts_devices(cubby_error *err);
/* Hides and write-protects parts of /proc and /sys as Docker does. */
int mounts_masks(cubby_error *err);
/* /run/cubby with the agent's files, and these over their places in the image.
 * Returns a descriptor of the folder through which they can be rewritten. */
int mounts_files(const struct log *log, cubby_error *err);
/* Makes a folder unless there is one, leaving its parent's time of change alone. */
int mounts_folder(const char *path, mode_t mode, cubby_error *err);

#endif
