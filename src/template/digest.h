/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEMPLATE_DIGEST_H
#define TEMPLATE_DIGEST_H

#include "base/error.h"

#include <stddef.h>

/* SHA-256 as 64 hex digits and a NUL. */
int digest_bytes(const void *data, size_t size, char ret[65], cubby_error *err);

#endif
