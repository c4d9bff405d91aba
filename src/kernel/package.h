/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_PACKAGE_H
#define KERNEL_PACKAGE_H

/* The distribution's kernel package, downloaded with apt and not installed. */

#include "base/error.h"
#include "kernel/kernel.h"

/* The real package that a "Depends:" field of apt-cache show names first
 * ("linux-image-6.1.0-57-cloud-amd64"). */
int package_of_depends(const char *show, char *ret, size_t size, cubby_error *err);

/* Downloads into the folder, which is `folder_path` too. Gives the open .deb. */
int package_download(int folder_fd, const char *folder_path, kernel_progress progress, void *data,
        int64_t deadline_ms, int *ret_fd, cubby_error *err);

#endif
