/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

/* What we print about a box came from it or from a stored file: control bytes
 * are shown as escapes, so that no name can drive a terminal. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A copy with control bytes and bytes that are no UTF-8 written as \xNN, and
 * newlines as \n unless `keep_lines`. NULL when memory ran out. */
char *text_escape(const char *text, bool keep_lines);
/* The bytes of the well-formed UTF-8 character at `text`; 0: none. */
size_t utf8_length(const char *text, size_t size);
/* At most `width` characters, the last replaced by an ellipsis when cut. */
char *text_shorten(const char *text, size_t width);
/* Text columns: characters, not bytes. */
size_t text_width(const char *text);

/* Standard stream that is a terminal, with colours wanted. */
bool text_colour(FILE *out);

/* Rows of the same number of cells, printed with aligned columns. */
struct table {
        size_t columns;
        char **cells; /* owned */
        size_t count, room;
        bool failed; /* memory ran out on the way */
};
void table_init(struct table *table, size_t columns);
void table_clear(struct table *table);
/* Adds the next cell, escaped. */
void table_add(struct table *table, const char *text);
/* False when memory had run out. */
bool table_print(const struct table *table, FILE *out);

#endif
