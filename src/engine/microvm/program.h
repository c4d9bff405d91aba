/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_PROGRAM_H
#define ENGINE_MICROVM_PROGRAM_H

#include "base/error.h"

/* The VMM's absolute path with all links resolved; `name` NULL: QEMU from PATH.
 * CUBBY_E_VMM when there is none. */
int program_resolve(const char *name, char **ret, cubby_error *err);

#endif
