/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_MODULES_H
#define KERNEL_MODULES_H

/* Which kernel modules a box needs, in load order, and how they are collected
 * from a package, a modules tree or a flat folder. */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODULE_SIZE_MAX (16U * 1024 * 1024)
#define MODULE_NAME_MAX 32U

enum module_need {
        MODULE_REQUIRED,   /* or built into the kernel */
        MODULE_OPTIONAL,   /* used where the kernel has it as a module */
        MODULE_DEPENDENCY, /* used where a later one of the table depends on it */
        MODULE_NET,        /* loaded only by a box with a network */
};

struct module {
        const char *name; /* as in the kernel's tree, "virtio_blk" */
        enum module_need need;
};

/* In load order; ends with a NULL name. */
extern const struct module module_table[];

/*
 * The entry that a path such as "kernel/fs/erofs/erofs.ko.xz" is for, or NULL.
 * `*ret_compressed` tells whether the file has to be unpacked.
 */
const struct module *module_of_path(const char *path, bool *ret_compressed);

/* True when the module file's "depends=" names the other module. */
bool module_depends(const void *data, size_t size, const char *name);

/*
 * Takes out what costs time at each load and serves nobody in a box: the signature, which the
 * guest has no keys to check with, and the type information (BTF). Returns the new size.
 */
size_t module_strip(uint8_t *data, size_t size);

/* Writes NAME.ko into the folder, unpacked and stripped; checks that it is a module. */
int module_store(int folder_fd, const struct module *module, bool compressed, const void *data,
        size_t size, cubby_error *err);

/* Collects what the tree or flat folder at `source_fd` has. */
int modules_collect(int source_fd, int folder_fd, cubby_error *err);

/*
 * Fails with the names of the required modules that are neither in the folder
 * nor in `builtin`, the text of the kernel's modules.builtin.
 */
int modules_check(int folder_fd, struct buffer *builtin, cubby_error *err);

#endif
