/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_UTF8_H
#define FILES_UTF8_H

/* Text as Python decodes it: strict UTF-8 without surrogates. */

#include "base/buffer.h"

#define UTF8_REPLACEMENT_SIZE 3U /* bytes of U+FFFD */

/*
 * The character at `bytes` (size > 0). Returns the bytes it takes and sets *ret_valid; of an
 * invalid sequence, the bytes that Python's errors="replace" makes one U+FFFD of.
 */
size_t utf8_sequence(const uint8_t *bytes, size_t size, bool *ret_valid);

/* As utf8_sequence, with the code point. As in Python's file names (surrogateescape), an
 * invalid byte counts as one character, U+DC80 to U+DCFF. */
size_t utf8_point(const uint8_t *bytes, size_t size, uint32_t *ret);

bool utf8_is_ascii(const uint8_t *bytes, size_t size);
bool utf8_is_valid(const uint8_t *bytes, size_t size);

/* Of valid text: its characters, and the bytes that its first `characters` take. */
size_t utf8_count(const uint8_t *bytes, size_t size);
size_t utf8_prefix(const uint8_t *bytes, size_t size, size_t characters);

/* Appends the text with U+FFFD for what is invalid. False when it does not fit. */
bool utf8_replace(struct buffer *out, const uint8_t *bytes, size_t size);

#endif
