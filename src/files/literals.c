/* SPDX-License-Identifier: Apache-2.0 */
#include "files/literals.h"

#include <string.h>

#define DEPTH_MAX 16

struct parser {
        const char *next, *end;
        bool fold;
        bool failed; /* something that is not certain to be understood */
};

/* Commonest first, as text and programs go; what is not in it is rare. */
static const char common[] = " etaoinsrldcupmfhg_.,()bywv=\"'-:;x/k>*#1{}0";

static size_t rarity(uint8_t byte)
{
        const char *place = byte == 0 ? NULL : strchr(common, byte);
        return place == NULL ? sizeof common : (size_t)(place - common);
}

static uint8_t lower(uint8_t byte)
{
        return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte | 0x20) : byte;
}

static bool is_letter(uint8_t byte)
{
        return lower(byte) >= 'a' && lower(byte) <= 'z';
}

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* k and s have partners outside ASCII: the Kelvin sign and the long s. */
static bool is_usable(const struct parser *parser, char c)
{
        uint8_t byte = (uint8_t)c;
        return byte < 0x80 && !(parser->fold && (lower(byte) == 'k' || lower(byte) == 's'));
}

static size_t score(const struct literals *set)
{
        size_t least = 0;
        for (size_t i = 0; i < set->count; i++) {
                const struct literal *item = &set->items[i];
                size_t value = 2 * item->size + rarity(item->bytes[item->rare]) / 4;
                if (i == 0 || value < least)
                        least = value;
        }
        return least;
}

static void keep_better(struct literals *best, const struct literals *other)
{
        if (other->count > 0 && (best->count == 0 || score(other) > score(best)))
                *best = *other;
}

struct run {
        struct literal item;
        bool full;
};

static void run_end(const struct parser *parser, struct run *run, struct literals *best)
{
        struct literals set = {.fold = parser->fold};
        struct literal *item = &run->item;
        if (item->size > 0) {
                for (size_t i = 1; i < item->size; i++)
                        if (rarity(item->bytes[i]) > rarity(item->bytes[item->rare]))
                                item->rare = i;
                set.items[set.count++] = *item;
                keep_better(best, &set);
        }
        *run = (struct run){0};
}

static void run_add(const struct parser *parser, struct run *run, char c, struct literals *best)
{
        if (!is_usable(parser, c)) {
                run_end(parser, run, best);
                return;
        }
        if (run->item.size == LITERAL_SIZE)
                run_end(parser, run, best);
        run->item.bytes[run->item.size++] = parser->fold ? lower((uint8_t)c) : (uint8_t)c;
}

/* A quantifier at the parser's place is skipped. 0: there is none; 1: the element occurs
 * at least once; -1: it need not occur. */
static int skip_quantifier(struct parser *parser)
{
        if (parser->next == parser->end)
                return 0;
        int result = -1;
        const char *next = parser->next;
        if (*next == '+') {
                result = 1;
                next++;
        } else if (*next == '*' || *next == '?') {
                next++;
        } else if (*next == '{') {
                next++;
                while (next < parser->end && (is_digit(*next) || *next == ',' || *next == ' '))
                        next++;
                if (next == parser->end || *next != '}') {
                        parser->failed = true; /* plain text that looks like a count */
                        return -1;
                }
                next++;
        } else {
                return 0;
        }
        if (next < parser->end && (*next == '?' || *next == '+'))
                next++;
        if (next < parser->end && *next != '\0' && strchr("*+?{", *next) != NULL)
                parser->failed = true;
        parser->next = next;
        return result;
}

/* Behind the backslash. Returns the character it stands for, or -1: a class or an assertion. */
static int escape(struct parser *parser)
{
        static const char harmless[] = "dDwWsSbBAZznrtfvaehHRX";
        if (parser->next == parser->end) {
                parser->failed = true;
                return -1;
        }
        char c = *parser->next++;
        if (is_letter((uint8_t)c) && strchr(harmless, c) != NULL)
                return -1;
        if (is_letter((uint8_t)c) || is_digit(c) || (uint8_t)c >= 0x80) {
                parser->failed = true; /* may take what follows with it */
                return -1;
        }
        return (uint8_t)c;
}

static void skip_class(struct parser *parser)
{
        const char *next = parser->next;
        if (next < parser->end && *next == '^')
                next++;
        if (next < parser->end && *next == ']')
                next++;
        for (; next < parser->end && *next != ']'; next++) {
                if (*next == '\\') {
                        if (++next == parser->end || *next == 'Q' || *next == 'E' || *next == 'c')
                                break;
                } else if (*next == '[' && next + 1 < parser->end &&
                        strchr(":.=", next[1]) != NULL) {
                        break;
                }
        }
        if (next >= parser->end || *next != ']')
                parser->failed = true;
        else
                parser->next = next + 1;
}

static void parse_alternatives(struct parser *parser, int depth, struct literals *ret);

/* What is behind "(?": true when the group's text is part of each match. */
static bool open_group(struct parser *parser)
{
        static const struct {
                const char *text;
                bool plain;
        } openings[] = {
                {":", true}, {">", true}, {"=", false}, {"!", false}, {"<=", false}, {"<!", false}};
        size_t left = (size_t)(parser->end - parser->next);
        for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
                size_t size = strlen(openings[i].text);
                if (left >= size && memcmp(parser->next, openings[i].text, size) == 0) {
                        parser->next += size;
                        return openings[i].plain;
                }
        }
        size_t skip = left >= 2 && memcmp(parser->next, "P<", 2) == 0 ? 2 : 1;
        const char *close = left > skip && parser->next[skip - 1] == '<'
                ? memchr(parser->next, '>', left)
                : NULL;
        if (close == NULL)
                parser->failed = true; /* flags, conditions, comments, calls */
        else
                parser->next = close + 1;
        return true;
}

static void parse_group(struct parser *parser, int depth, struct literals *best)
{
        bool plain = true;
        if (parser->next < parser->end && *parser->next == '*') {
                parser->failed = true; /* a verb */
        } else if (parser->next < parser->end && *parser->next == '?') {
                parser->next++;
                plain = open_group(parser);
        }
        if (parser->failed || depth == DEPTH_MAX) {
                parser->failed = true;
                return;
        }
        struct literals set = {.fold = parser->fold};
        parse_alternatives(parser, depth + 1, &set);
        if (parser->failed || parser->next == parser->end) {
                parser->failed = true; /* no closing parenthesis */
                return;
        }
        parser->next++;
        if (skip_quantifier(parser) >= 0 && plain)
                keep_better(best, &set);
}

static void parse_character(struct parser *parser, struct run *run, char c, struct literals *best)
{
        int quantifier = skip_quantifier(parser);
        if (quantifier >= 0)
                run_add(parser, run, c, best);
        if (quantifier != 0)
                run_end(parser, run, best);
}

/* Up to a bar, a closing parenthesis or the end. */
static void parse_sequence(struct parser *parser, int depth, struct literals *ret)
{
        struct run run = {0};
        struct literals best = {.fold = parser->fold};
        while (!parser->failed && parser->next < parser->end && *parser->next != '|' &&
                *parser->next != ')') {
                char c = *parser->next++;
                int plain = -1;
                if (c == '\\')
                        plain = escape(parser);
                else if (strchr("([.^$*+?{", c) == NULL || c == '\0')
                        plain = (uint8_t)c;
                if (plain >= 0) {
                        parse_character(parser, &run, (char)plain, &best);
                        continue;
                }
                run_end(parser, &run, &best);
                if (c == '(') {
                        parse_group(parser, depth, &best);
                        continue;
                }
                if (c == '[')
                        skip_class(parser);
                else if (c == '{')
                        parser->failed = true; /* counts nothing, or is a text that looks so */
                (void)skip_quantifier(parser);
        }
        run_end(parser, &run, &best);
        *ret = best;
}

static void parse_alternatives(struct parser *parser, int depth, struct literals *ret)
{
        struct literals all = {.fold = parser->fold};
        bool complete = true;
        for (;;) {
                struct literals one;
                parse_sequence(parser, depth, &one);
                if (one.count == 0 || all.count + one.count > LITERALS_MAX)
                        complete = false;
                for (size_t i = 0; complete && i < one.count; i++)
                        all.items[all.count++] = one.items[i];
                if (parser->failed || parser->next == parser->end || *parser->next != '|')
                        break;
                parser->next++;
        }
        *ret = all;
        if (!complete || parser->failed)
                ret->count = 0;
}

void literals_of(const char *pattern, size_t size, bool literal, bool fold, struct literals *ret)
{
        struct parser parser = {pattern, pattern + size, fold, false};
        struct literals set = {.fold = fold};
        if (literal) {
                struct run run = {0};
                for (size_t i = 0; i < size; i++)
                        run_add(&parser, &run, pattern[i], &set);
                run_end(&parser, &run, &set);
        } else {
                parse_alternatives(&parser, 0, &set);
                if (parser.failed || parser.next != parser.end)
                        set.count = 0;
        }
        *ret = set;
        literals_reset(ret);
}

void literals_reset(struct literals *literals)
{
        for (size_t i = 0; i < literals->count; i++)
                literals->items[i].next = -1;
}

static bool is_here(const struct literal *item, bool fold, const uint8_t *text)
{
        if (!fold)
                return memcmp(text, item->bytes, item->size) == 0;
        for (size_t i = 0; i < item->size; i++)
                if (lower(text[i]) != item->bytes[i])
                        return false;
        return true;
}

struct cursor {
        const uint8_t *place; /* of the byte's next occurrence, or the end */
        uint8_t byte;
};

static void cursor_move(struct cursor *cursor, const uint8_t *from, const uint8_t *end)
{
        if (cursor->place != NULL && cursor->place >= from)
                return;
        const uint8_t *place = from < end ? memchr(from, cursor->byte, (size_t)(end - from)) : NULL;
        cursor->place = place == NULL ? end : place;
}

static size_t find_one(
        const struct literal *item, bool fold, const uint8_t *text, size_t size, size_t from)
{
        if (size < item->size || from > size - item->size)
                return size;
        uint8_t byte = item->bytes[item->rare];
        bool both = fold && is_letter(byte);
        const uint8_t *end = text + size - (item->size - 1 - item->rare);
        const uint8_t *at = text + from + item->rare;
        struct cursor small = {NULL, byte};
        struct cursor capital = {both ? NULL : end, (uint8_t)(byte & 0xdf)};
        for (;;) {
                cursor_move(&small, at, end);
                cursor_move(&capital, at, end);
                at = small.place < capital.place ? small.place : capital.place;
                if (at == end)
                        return size;
                if (is_here(item, fold, at - item->rare))
                        return (size_t)(at - item->rare - text);
                at++;
        }
}

size_t literals_find(struct literals *literals, const uint8_t *text, size_t size, size_t from)
{
        size_t first = size;
        for (size_t i = 0; i < literals->count; i++) {
                struct literal *item = &literals->items[i];
                if (item->next < (int64_t)from)
                        item->next = (int64_t)find_one(item, literals->fold, text, size, from);
                if ((size_t)item->next < first)
                        first = (size_t)item->next;
        }
        return first;
}
