/* SPDX-License-Identifier: Apache-2.0 */
#include "config/values.h"

#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

bool value_number(const char *text, bool whole, double *ret)
{
        const char *allowed = whole ? "+-" DIGITS : "+-.eE" DIGITS;
        size_t length = strlen(text);
        if (length == 0 || length > 64 || strspn(text, allowed) != length)
                return false; /* also no nan, inf, 0x10, 1_000 */
        /* a program that has set a locale may write 0,5 */
        locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
        if (plain == (locale_t)0)
                return false;
        char *end = NULL;
        double value = strtod_l(text, &end, plain);
        freelocale(plain);
        if (end != text + length || !isfinite(value))
                return false;
        *ret = value;
        return true;
}

bool value_is_variable(const char *text)
{
        return text[0] != '\0' && strchr(LETTERS "_", text[0]) != NULL &&
                text[strspn(text, LETTERS DIGITS "_")] == '\0';
}

bool value_is_pool(const char *text)
{
        return text[0] != '\0' && strchr(LETTERS DIGITS, text[0]) != NULL &&
                text[strspn(text, LETTERS DIGITS "_.")] == '\0';
}

static size_t least(size_t a, size_t b, size_t c)
{
        size_t smaller = a < b ? a : b;
        return smaller < c ? smaller : c;
}

/* Levenshtein's distance over the first WORD_MAX characters. */
static size_t distance(const char *left, const char *right)
{
        size_t right_length = strnlen(right, WORD_MAX);
        size_t row[WORD_MAX + 1];
        for (size_t i = 0; i <= right_length; i++)
                row[i] = i;
        for (size_t i = 0; i < WORD_MAX && left[i] != '\0'; i++) {
                size_t diagonal = row[0];
                row[0] = i + 1;
                for (size_t j = 0; j < right_length; j++) {
                        size_t above = row[j + 1];
                        row[j + 1] = least(
                                row[j] + 1, above + 1, diagonal + (left[i] == right[j] ? 0 : 1));
                        diagonal = above;
                }
        }
        return row[right_length];
}

const char *value_nearest(const char *text, const char *const *names)
{
        const char *nearest = names[0];
        size_t fewest = distance(text, names[0]);
        for (size_t i = 1; names[i] != NULL; i++) {
                size_t changes = distance(text, names[i]);
                if (changes < fewest) {
                        fewest = changes;
                        nearest = names[i];
                }
        }
        return nearest;
}
