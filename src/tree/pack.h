/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TREE_PACK_H
#define TREE_PACK_H

/*
 * Reads a file or folder into records. Nothing but regular files is opened, so no
 * FIFO or device holds the reader up; sockets are left out. Mount points appear as
 * empty folders. What vanishes while it is walked is left out, a file that shrinks is
 * closed at the size that was found, one that grows at the size announced.
 */

#include "tree/records.h"

struct tree_count {
        uint64_t bytes; /* of contents */
        uint64_t files; /* entries */
};

struct pack_options {
        int at_fd;        /* where a relative path begins, or AT_FDCWD */
        const char *path; /* what is packed */
        uint64_t resolve; /* of openat2(2), for `path` */
        bool follow;      /* `path`, when it is a link */
        bool dry;         /* nothing is put, only counted */
        struct tree_count *count;
};

int tree_pack(
        const struct pack_options *options, const struct tree_output *output, cubby_error *err);

/* openat2(2) with O_CLOEXEC; -1 with errno. */
int tree_open(int at_fd, const char *path, int flags, uint32_t mode, uint64_t resolve);

#endif
