/* SPDX-License-Identifier: Apache-2.0 */
#include "files/lines.h"

#include <string.h>

void lines_init(struct lines *lines, uint64_t first, uint64_t last)
{
        *lines = (struct lines){
                .first = first == 0 ? 1 : first, .last = last == 0 ? UINT64_MAX : last, .line = 1};
}

bool lines_done(const struct lines *lines)
{
        return lines->line > lines->last || lines->first > lines->last;
}

static bool is_shown(const struct lines *lines)
{
        return lines->line >= lines->first && lines->line <= lines->last;
}

static bool begin_line(struct lines *lines, struct buffer *out)
{
        if (lines->begun)
                return true;
        lines->begun = true;
        if (!is_shown(lines))
                return true;
        bool join = lines->any;
        lines->any = true;
        return !join || buffer_append(out, "\n", 1);
}

static bool end_line(struct lines *lines, struct buffer *out)
{
        if (!begin_line(lines, out))
                return false;
        lines->begun = false;
        lines->line++;
        return true;
}

/* Characters that end no line. */
static bool put(struct lines *lines, const uint8_t *data, size_t size, struct buffer *out)
{
        lines->after_return = false;
        return begin_line(lines, out) && (!is_shown(lines) || buffer_append(out, data, size));
}

static bool put_replacement(struct lines *lines, struct buffer *out)
{
        return put(lines, (const uint8_t *)"\xef\xbf\xbd", 3, out);
}

/* A whole character of several bytes: U+0085, U+2028 and U+2029 end lines. */
static bool put_character(struct lines *lines, struct buffer *out)
{
        const uint8_t *part = lines->part;
        size_t size = lines->part_size;
        lines->part_size = 0;
        if ((size == 2 && part[0] == 0xc2 && part[1] == 0x85) ||
                (size == 3 && part[0] == 0xe2 && part[1] == 0x80 &&
                        (part[2] == 0xa8 || part[2] == 0xa9))) {
                lines->after_return = false;
                return end_line(lines, out);
        }
        return put(lines, part, size, out);
}

/* The first byte of a character of several; false for one that begins none. */
static bool begin_character(struct lines *lines, uint8_t byte)
{
        if (byte < 0xc2 || byte > 0xf4)
                return false;
        lines->part_need = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        lines->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
        lines->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        lines->part[0] = byte;
        lines->part_size = 1;
        return true;
}

static bool is_plain(uint8_t byte)
{
        return byte < 0x80 && (byte >= 0x1f || byte < '\n' || (byte > '\r' && byte < 0x1c));
}

static bool feed_special(struct lines *lines, uint8_t byte, struct buffer *out)
{
        if (byte >= 0x80)
                return begin_character(lines, byte) || put_replacement(lines, out);
        if (byte == '\n' && lines->after_return) {
                lines->after_return = false;
                return true;
        }
        lines->after_return = byte == '\r';
        return end_line(lines, out);
}

bool lines_feed(struct lines *lines, const uint8_t *data, size_t size, struct buffer *out)
{
        size_t at = 0;
        while (at < size && !lines_done(lines)) {
                if (lines->part_size > 0) {
                        if (data[at] < lines->low || data[at] > lines->high) {
                                lines->part_size = 0; /* the byte itself is looked at again */
                                if (!put_replacement(lines, out))
                                        return false;
                                continue;
                        }
                        lines->part[lines->part_size++] = data[at++];
                        lines->low = 0x80;
                        lines->high = 0xbf;
                        if (lines->part_size == lines->part_need && !put_character(lines, out))
                                return false;
                        continue;
                }
                size_t run = at;
                while (run < size && is_plain(data[run]))
                        run++;
                if (run > at && !put(lines, data + at, run - at, out))
                        return false;
                at = run;
                if (at < size && !feed_special(lines, data[at++], out))
                        return false;
        }
        return true;
}

bool lines_end(struct lines *lines, struct buffer *out)
{
        bool cut = lines->part_size > 0;
        lines->part_size = 0;
        return !cut || lines_done(lines) || put_replacement(lines, out);
}
