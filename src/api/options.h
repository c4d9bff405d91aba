/* SPDX-License-Identifier: Apache-2.0 */
#ifndef API_OPTIONS_H
#define API_OPTIONS_H

#include "base/error.h"

#include <stddef.h>

/*
 * Copies an options struct of a caller that may be older (shorter: the rest is
 * zero) or newer (longer: the rest must be zero, or it asks for something that
 * this library does not know). `given` NULL: all defaults.
 */
int options_read(void *ret, size_t known_size, const void *given, cubby_error *err);

/* Fails with CUBBY_E_INVALID naming the first argument that is NULL. */
int need(const void *argument, const char *name, cubby_error *err);

#endif
