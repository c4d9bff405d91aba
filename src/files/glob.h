/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_GLOB_H
#define FILES_GLOB_H

/*
 * Patterns for paths, as PurePosixPath.match of Python 3.12 has them: from the right end,
 * component by component, each as fnmatch.fnmatchcase. A leading "**" component may also be
 * absent; any other is one component. Names are characters with invalid bytes as
 * surrogateescape makes them.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLOB_PATTERN_MAX 4095U

struct glob;

/* A pattern without a component, or too long, is CUBBY_E_INVALID. */
int glob_new(const char *pattern, struct glob **ret, cubby_error *err);
void glob_free(struct glob *glob);

/* `path` is relative to the root, without "." components and double slashes. */
bool glob_matches(const struct glob *glob, const char *path, size_t size);

/* True for names that a search passes over below its root: version control, caches, logs. */
bool glob_ignores(const char *name, size_t size);

#endif
