/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"

#include <stdint.h>
#include <string.h>

#define OPTIONS_MAX 4096U

int options_read(void *ret, size_t known_size, const void *given, cubby_error *err)
{
        memset(ret, 0, known_size);
        if (given == NULL)
                return 0;
        size_t size = 0;
        memcpy(&size, given, sizeof size);
        if (size < sizeof size || size > OPTIONS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the options have the size %zu; begin them with CUBBY_INIT", size);
        const uint8_t *bytes = given;
        for (size_t i = known_size; i < size; i++)
                if (bytes[i] != 0)
                        return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                                "the options ask for something that this version does not know");
        memcpy(ret, given, size < known_size ? size : known_size);
        return 0;
}

int need(const void *argument, const char *name, cubby_error *err)
{
        if (argument != NULL)
                return 0;
        return cubby_error_set(err, CUBBY_E_INVALID, "the argument %s is NULL", name);
}
