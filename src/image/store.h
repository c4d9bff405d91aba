/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_STORE_H
#define IMAGE_STORE_H

#define ROOTFS_DISK "disk.erofs"

/* Held while a disk and its record appear or go together. */
#define STORE_LOCK "images"
#define STORE_LOCK_MS 60000

#endif
