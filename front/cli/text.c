/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE_CELLS_MAX (1U << 20)
#define COLUMN_GAP 3

size_t utf8_length(const char *text, size_t size)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t length;

        if (size == 0)
                return 0;
        if (p[0] < 0x80)
                return 1;
        length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
        if (p[0] < 0xc2 || p[0] > 0xf4 || size < length)
                return 0;
        for (size_t i = 1; i < length; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
        if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
                (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
                return 0;
        return length;
}

/* C0, DEL and the C1 controls, which are U+0080 to U+009F. */
static bool is_control(const char *text, size_t length)
{
        const unsigned char *p = (const unsigned char *)text;

        if (length == 1)
                return p[0] < 0x20 || p[0] == 0x7f;
        return length == 2 && p[0] == 0xc2 && p[1] < 0xa0;
}

char *text_escape(const char *text, bool keep_lines)
{
        size_t size = strlen(text);
        char *escaped = size > SIZE_MAX / 4 - 1 ? NULL : malloc(size * 4 + 1);
        char *out = escaped;

        if (escaped == NULL)
                return NULL;
        for (size_t i = 0; i < size;) {
                size_t length = utf8_length(text + i, size - i);

                if (keep_lines && (text[i] == '\n' || text[i] == '\t'))
                        *out++ = text[i++];
                else if (text[i] == '\n' || text[i] == '\t') {
                        *out++ = '\\';
                        *out++ = text[i++] == '\n' ? 'n' : 't';
                } else if (length == 0 || is_control(text + i, length))
                        for (size_t n = length == 0 ? 1 : length; n > 0; n--, i++, out += 4)
                                (void)snprintf(out, 5, "\\x%02x", (unsigned char)text[i]);
                else {
                        memcpy(out, text + i, length);
                        out += length;
                        i += length;
                }
        }
        *out = '\0';
        return escaped;
}

size_t text_width(const char *text)
{
        size_t width = 0;

        for (; *text != '\0'; text++)
                width += ((unsigned char)*text & 0xc0) != 0x80;
        return width;
}

char *text_shorten(const char *text, size_t width)
{
        size_t kept = 0;
        char *copy = NULL;

        if (text_width(text) <= width)
                return strdup(text);
        for (size_t characters = 0; characters + 1 < width && text[kept] != '\0'; characters++)
                do
                        kept++;
                while (((unsigned char)text[kept] & 0xc0) == 0x80);
        if (asprintf(&copy, "%.*s\xe2\x80\xa6", (int)kept, text) < 0)
                return NULL;
        return copy;
}

bool text_colour(FILE *out)
{
        const char *no_color = getenv("NO_COLOR");
        const char *term = getenv("TERM");

        if (no_color != NULL && no_color[0] != '\0')
                return false;
        return isatty(fileno(out)) == 1 && (term == NULL || strcmp(term, "dumb") != 0);
}

void table_init(struct table *table, size_t columns)
{
        *table = (struct table){.columns = columns};
}

void table_clear(struct table *table)
{
        for (size_t i = 0; i < table->count; i++)
                free(table->cells[i]);
        free(table->cells);
        *table = (struct table){0};
}

void table_add(struct table *table, const char *text)
{
        char *cell = NULL;

        if (table->count == table->room) {
                size_t room = table->room == 0 ? 64 : table->room * 2;
                char **grown = room > TABLE_CELLS_MAX
                        ? NULL
                        : reallocarray(table->cells, room, sizeof(*grown));

                if (grown == NULL) {
                        table->failed = true;
                        return;
                }
                table->cells = grown;
                table->room = room;
        }
        cell = text_escape(text, false);
        if (cell == NULL)
                table->failed = true;
        else
                table->cells[table->count++] = cell;
}

bool table_print(const struct table *table, FILE *out)
{
        size_t widths[32] = {0};

        if (table->failed || table->columns == 0 || table->columns > 32)
                return !table->failed;
        for (size_t i = 0; i < table->count; i++) {
                size_t width = text_width(table->cells[i]);

                if (width > widths[i % table->columns])
                        widths[i % table->columns] = width;
        }
        for (size_t i = 0; i < table->count; i++) {
                size_t column = i % table->columns;
                bool last = column + 1 == table->columns;
                size_t padding = widths[column] - text_width(table->cells[i]) + COLUMN_GAP;

                (void)fprintf(
                        out, "%s%*s", table->cells[i], last ? 0 : (int)padding, last ? "\n" : "");
        }
        return true;
}
