/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_LANDLOCK_H
#define ENGINE_MICROVM_LANDLOCK_H

#include "engine/microvm/jail.h"

/* The Landlock version of this kernel, 0 when it has none. */
int landlock_abi(void);

/* In the child, after no_new_privs: confines it to the files of the jail's
 * plan. System calls only; 0 or a negative errno. */
int landlock_enter(const struct jail *jail);

#endif
