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
/*
 * The folder, empty, in which the agent writes files before they are put in their places:
 * on the box's file system, but where /proc will be mounted over it, so that nothing in the
 * box can look into it. What a killed machine left there goes. Returns an O_PATH descriptor; -1
 * when it cannot be made (the disk is full), which is logged.
 */
int mounts_drafts(const struct log *log);
/* Makes a folder unless there is one, leaving its parent's time of change alone. */
int mounts_folder(const char *path, mode_t mode, cubby_error *err);

#endif
