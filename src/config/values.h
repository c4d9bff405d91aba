/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_VALUES_H
#define CONFIG_VALUES_H

#include <stdbool.h>

/* A finite decimal number and nothing else; `whole`: digits only, with a sign. */
bool value_number(const char *text, bool whole, double *ret);
bool value_is_variable(const char *text); /* [A-Za-z_][A-Za-z0-9_]* */
/* A prefix for names of boxes; without '-', which ends it there. */
bool value_is_pool(const char *text);
/* The one with the fewest changes; `names` ends with NULL and has one at least. */
const char *value_nearest(const char *text, const char *const *names);

#endif
