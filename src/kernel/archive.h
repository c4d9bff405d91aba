/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_ARCHIVE_H
#define KERNEL_ARCHIVE_H

#include <archive.h>

/* Frees one that is read or written; NULL is allowed. */
static inline void close_archive(struct archive **archive)
{
        if (*archive != NULL)
                (void)archive_free(*archive);
}
#define AUTO_ARCHIVE __attribute__((cleanup(close_archive)))

#endif
