/* SPDX-License-Identifier: Apache-2.0 */
#include "files/utf8.h"

#include <string.h>

#define HIGH_BITS 0x8080808080808080ULL
#define ESCAPED 0xdc00U /* surrogateescape adds the byte to this */

/* How long a sequence with this first byte is, and what its second byte may be. */
static size_t expect(uint8_t first, uint8_t *ret_low, uint8_t *ret_high)
{
        *ret_low = 0x80;
        *ret_high = 0xbf;
        if (first >= 0xc2 && first <= 0xdf)
                return 2;
        if (first >= 0xe0 && first <= 0xef) {
                if (first == 0xe0)
                        *ret_low = 0xa0;
                if (first == 0xed)
                        *ret_high = 0x9f;
                return 3;
        }
        if (first >= 0xf0 && first <= 0xf4) {
                if (first == 0xf0)
                        *ret_low = 0x90;
                if (first == 0xf4)
                        *ret_high = 0x8f;
                return 4;
        }
        return 0;
}

size_t utf8_sequence(const uint8_t *bytes, size_t size, bool *ret_valid)
{
        *ret_valid = bytes[0] < 0x80;
        if (*ret_valid)
                return 1;
        uint8_t low, high;
        size_t length = expect(bytes[0], &low, &high);
        if (length == 0)
                return 1;
        for (size_t i = 1; i < length; i++) {
                if (i == size || bytes[i] < low || bytes[i] > high)
                        return i;
                low = 0x80;
                high = 0xbf;
        }
        *ret_valid = true;
        return length;
}

size_t utf8_point(const uint8_t *bytes, size_t size, uint32_t *ret)
{
        bool valid;
        size_t length = utf8_sequence(bytes, size, &valid);
        if (!valid) {
                *ret = ESCAPED + bytes[0];
                return 1;
        }
        static const uint8_t lead_bits[] = {0x7f, 0x7f, 0x1f, 0x0f, 0x07};
        uint32_t point = bytes[0] & lead_bits[length];
        for (size_t i = 1; i < length; i++)
                point = point << 6 | (bytes[i] & 0x3fU);
        *ret = point;
        return length;
}

bool utf8_is_ascii(const uint8_t *bytes, size_t size)
{
        uint64_t word;
        size_t i = 0;
        for (; i + sizeof word <= size; i += sizeof word) {
                memcpy(&word, bytes + i, sizeof word);
                if ((word & HIGH_BITS) != 0)
                        return false;
        }
        for (; i < size; i++)
                if (bytes[i] >= 0x80)
                        return false;
        return true;
}

bool utf8_is_valid(const uint8_t *bytes, size_t size)
{
        bool valid = true;
        for (size_t i = 0; i < size && valid;)
                i += utf8_sequence(bytes + i, size - i, &valid);
        return valid;
}

static bool is_continuation(uint8_t byte)
{
        return (byte & 0xc0U) == 0x80;
}

size_t utf8_count(const uint8_t *bytes, size_t size)
{
        size_t count = 0;
        for (size_t i = 0; i < size; i++)
                count += !is_continuation(bytes[i]);
        return count;
}

size_t utf8_prefix(const uint8_t *bytes, size_t size, size_t characters)
{
        size_t i = 0;
        for (; i < size; i++) {
                if (is_continuation(bytes[i]))
                        continue;
                if (characters == 0)
                        break;
                characters--;
        }
        return i;
}

bool utf8_replace(struct buffer *out, const uint8_t *bytes, size_t size)
{
        size_t start = 0; /* of what is valid and not yet appended */
        bool valid;
        for (size_t i = 0; i < size;) {
                size_t length = utf8_sequence(bytes + i, size - i, &valid);
                if (!valid) {
                        (void)buffer_append(out, bytes + start, i - start);
                        (void)buffer_append(out, "\xef\xbf\xbd", UTF8_REPLACEMENT_SIZE);
                        start = i + length;
                }
                i += length;
        }
        return buffer_append(out, bytes + start, size - start);
}
