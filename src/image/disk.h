/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_DISK_H
#define IMAGE_DISK_H

/*
 * Writer of an uncompressed EROFS image, in the order of an import: file contents
 * as they stream by, then, once the tree is complete, folders and inodes.
 *
 *   block 0    superblock at byte 1024
 *   block 1..  contents of files, each from a block of its own
 *   then       folder blocks and long link targets
 *   then       the metadata area: inodes (64 bytes), xattrs, small contents
 */

#include "base/error.h"
#include "image/tree.h"

#include <stddef.h>
#include <stdint.h>

#define DISK_BLOCK 4096U

struct disk {
        int fd; /* not owned */
        uint64_t next_block;
};

void disk_start(struct disk *disk, int fd);
/* Room for a file's content. */
int disk_reserve(struct disk *disk, uint64_t size, uint32_t *ret_block, cubby_error *err);
/* A part of that content; what is never written reads as zeros. */
int disk_write(struct disk *disk, uint32_t block, uint64_t offset, const void *data, size_t size,
        cubby_error *err);
/* Gives the space of a content back to the host. Best effort. */
void disk_discard(struct disk *disk, uint32_t block, uint64_t size);
/* Writes all metadata and the superblock. Numbers the inodes of the tree. */
int disk_finish(struct disk *disk, struct tree *tree, const uint8_t uuid[16], cubby_error *err);

/* CUBBY_E_CORRUPT unless `fd` is a whole disk as disk_finish leaves it. */
int disk_check(int fd, cubby_error *err);

#endif
