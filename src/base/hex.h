/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* Two lower-case digits for each byte and a NUL. */
static inline void hex_encode(const uint8_t *bytes, size_t size, char *ret)
{
        static const char digits[] = "0123456789abcdef";
        for (size_t i = 0; i < size; i++) {
                *ret++ = digits[bytes[i] >> 4];
                *ret++ = digits[bytes[i] & 15];
        }
        *ret = '\0';
}

#endif
