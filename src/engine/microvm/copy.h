/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_COPY_H
#define ENGINE_MICROVM_COPY_H

/* Copying the memory of a machine that goes on. */

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* All of one memory object into another, holes left out. */
int copy_object(int from_fd, int to_fd, uint64_t size_bytes, cubby_error *err);

/*
 * The pages that a stopped VMM has of its own over the object that it maps
 * privately: found by its pagemap (present or swapped, not of a file), read
 * from its memory, written into `to_fd` at their places.
 */
int copy_private_pages(pid_t vmm, uint64_t size_bytes, int to_fd, cubby_error *err);

#endif
