/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_STORE_H
#define KERNEL_STORE_H

/*
 * kernels/VERSION/: vmlinux, modules/NAME.ko and a manifest that lists both.
 * What is read back is checked against the manifest; a damaged kernel counts as
 * not there and is replaced by the next one of its name.
 */

#include "base/buffer.h"
#include "kernel/bzimage.h"
#include "kernel/kernel.h"
#include "state/home.h"

#include <stdbool.h>

#define KERNEL_DIGEST_SIZE 65U /* hex SHA-256 with the NUL */
#define KERNEL_SOURCE_MAX 128U
#define KERNEL_MODULES_MAX 64U
#define KERNELS_MAX 1000U /* more are not looked at */

struct kernel_manifest {
        char digest[KERNEL_DIGEST_SIZE]; /* of vmlinux */
        uint64_t size;                   /* of vmlinux */
        char source[KERNEL_SOURCE_MAX];  /* which file it was made from; "-": not kept */
        struct kernel_module_entry {
                char name[32];
                uint64_t size;
        } modules[KERNEL_MODULES_MAX];
        size_t module_count;
};

/* Strict: any deviation is CUBBY_E_CORRUPT, another format CUBBY_E_VERSION. */
int manifest_parse(const char *text, struct kernel_manifest *ret, cubby_error *err);
bool manifest_format(const struct kernel_manifest *manifest, struct buffer *out);

/* True for a version that may be a folder's name. */
bool kernel_version_valid(const char *version);

/* Checks that everything the manifest names is there. `*ret_fd`: the folder. */
int store_open(struct home *home, const char *version, struct kernel_manifest *ret, int *ret_fd,
        cubby_error *err);
/* Calls visit for each whole kernel, at most KERNELS_MAX, until it returns true. */
int store_walk(struct home *home,
        bool (*visit)(const char *version, const struct kernel_manifest *manifest, void *data),
        void *data, cubby_error *err);
/* The newest whole kernel; CUBBY_E_NOT_FOUND when there is none. */
int store_newest(struct home *home, char ret[KERNEL_VERSION_MAX], cubby_error *err);
/* The kernel that was made from this source file; CUBBY_E_NOT_FOUND. */
int store_by_source(
        struct home *home, const char *source, char ret[KERNEL_VERSION_MAX], cubby_error *err);

/* A kernel in the making, under tmp/. */
struct store_draft {
        struct home *home;
        char name[32];
        int lock_fd;
        int work_fd;    /* scratch of the maker */
        int kernel_fd;  /* becomes kernels/VERSION */
        int modules_fd; /* its modules folder */
        int vmlinux_fd; /* empty, read-write */
};

int draft_begin(struct home *home, struct store_draft *ret, cubby_error *err);
/* Writes the manifest and publishes. `ret` gets the version: with a part of the
 * digest behind it when another kernel has that name already. */
int draft_publish(struct store_draft *draft, const char *source, char ret[KERNEL_VERSION_MAX],
        cubby_error *err);
void draft_end(struct store_draft *draft); /* removes what was not published */

int digest_of_fd(int fd, char ret[KERNEL_DIGEST_SIZE], cubby_error *err);
int digest_of_memory(const void *data, size_t size, char ret[KERNEL_DIGEST_SIZE], cubby_error *err);

#endif
