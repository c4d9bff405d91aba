/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_COPY_PLAN_H
#define BOX_COPY_PLAN_H

/*
 * Where a copy goes, by Docker's rules for `docker cp`, as a function of what is known
 * of both ends. Paths are cleaned as texts ("a/../b" is "b"), as Docker does.
 */

#include "base/cleanup.h"
#include "base/error.h"

#include <stdbool.h>

enum copy_found {
        COPY_NOTHING,   /* no such name, but a folder to make it in */
        COPY_NO_PARENT, /* nor such a folder */
        COPY_FOLDER,
        COPY_FILE,
        COPY_OTHER, /* a device, FIFO or socket */
};

struct copy_plan {
        char *folder; /* what is unpacked goes in here; exists */
        char *name;   /* the root's name in there; "": its contents go into the folder itself */
};

void copy_plan_clear(struct copy_plan *plan);
static inline void cleanup_copy_plan(struct copy_plan *plan)
{
        copy_plan_clear(plan);
}
#define AUTO_COPY_PLAN __attribute__((cleanup(cleanup_copy_plan)))

/*
 * `source` and `target` as they were given, absolute. `from_folder`: the source is one.
 * `found`: what is at the target once links are followed; `resolved` its path then (the
 * target itself where no link is).
 */
int copy_plan_make(const char *source, bool from_folder, const char *target, const char *resolved,
        enum copy_found found, struct copy_plan *ret, cubby_error *err);

/* True for a path that ends with "/" or "/.": it asserts a folder. */
bool copy_asserts_folder(const char *path);
/* True for "FOLDER/." and "/": not the folder but what is in it. */
bool copy_means_contents(const char *path);
/* `path` behind `base`, unless it is absolute, cleaned as a text, without a slash at its
 * end, but with "/." where `path` means what is in the folder and "/" where it ends so.
 * The caller frees; NULL when memory ran out. */
char *copy_clean(const char *base, const char *path);
/* The folder part and the last name of a clean absolute path; both the caller's. */
int copy_split(const char *path, char **ret_folder, char **ret_name, cubby_error *err);

#endif
