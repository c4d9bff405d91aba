/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_LITERALS_H
#define FILES_LITERALS_H

/*
 * Texts of which one at least is in every line that a pattern matches. Looking for them in
 * a whole file is far cheaper than asking the pattern about each line. What the parser does
 * not know for certain gives no texts, and then each line is asked.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LITERALS_MAX 8U
#define LITERAL_SIZE 32U /* longer ones are cut */

struct literal {
        uint8_t bytes[LITERAL_SIZE]; /* ASCII; small letters when case does not matter */
        size_t size;
        size_t rare;  /* index of the byte to look for */
        int64_t next; /* its next place in the text: -1: not looked for; the text's size: none */
};

struct literals {
        bool fold; /* case does not matter */
        size_t count;
        struct literal items[LITERALS_MAX];
};

/* Of a PCRE2 pattern; `literal`: of a plain text. A count of 0 says nothing about the lines. */
void literals_of(const char *pattern, size_t size, bool literal, bool fold, struct literals *ret);

/* Before another text is searched. */
void literals_reset(struct literals *literals);
/* Where at or after `from` the first of them begins; `size` when none does. */
size_t literals_find(struct literals *literals, const uint8_t *text, size_t size, size_t from);

#endif
