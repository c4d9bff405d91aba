/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "files/grep.h"

#include "base/clock.h"
#include "base/cleanup.h"
#include "files/literals.h"
#include "files/utf8.h"

#include <pcre2.h>
#include <string.h>

/*
 * PCRE2 counts steps for each place at which a match may begin, so that its limit bounds no
 * line. Nearly all lines are done within QUICK_STEPS. For others the pattern is compiled once
 * more, with a callout before each item of it: these are counted for the whole line, and can
 * pause and end it.
 */
#define QUICK_STEPS 1000000U /* of a line, spread over its places */
#define CAREFUL_STEPS 4000000U
#define CAREFUL_ROUND 1024U   /* steps between two looks at the clock */
#define PLACE_STEPS 20000000U /* of one place, between callouts */
#define DEPTH_LIMIT 200000U   /* nested backtracking points */
#define HEAP_LIMIT_KIB 32768U /* for them */
#define NEST_LIMIT 200U       /* parentheses: the compiler recurses */

#define LINE_BYTES (4U * GREP_LINE_MAX)                             /* valid, in characters */
#define DECODED_MAX (UTF8_REPLACEMENT_SIZE * (size_t)GREP_FILE_MAX) /* a line, replaced */

struct grep {
        pcre2_compile_context *compile;
        pcre2_match_context *match;
        pcre2_match_data *result;
        pcre2_code *code;  /* for any text */
        pcre2_code *ascii; /* the same for ASCII alone, without Unicode's tables; or NULL */
        pcre2_match_context *careful_match;
        pcre2_code *careful; /* with callouts; NULL: not needed so far */
        char *pattern;
        size_t pattern_size;
        uint32_t flags;
        struct literals literals;
        struct buffer decoded, shown;
};

DEFINE_AUTO(grep, grep_free)

void grep_free(struct grep *grep)
{
        if (grep == NULL)
                return;
        pcre2_code_free(grep->careful);
        pcre2_match_context_free(grep->careful_match);
        free(grep->pattern);
        pcre2_code_free(grep->ascii);
        pcre2_code_free(grep->code);
        pcre2_match_data_free(grep->result);
        pcre2_match_context_free(grep->match);
        pcre2_compile_context_free(grep->compile);
        buffer_free(&grep->decoded);
        buffer_free(&grep->shown);
        free(grep);
}

static int make_contexts(struct grep *grep, cubby_error *err)
{
        grep->compile = pcre2_compile_context_create(NULL);
        grep->match = pcre2_match_context_create(NULL);
        grep->careful_match = pcre2_match_context_create(NULL);
        grep->result = pcre2_match_data_create(1, NULL);
        if (grep->compile == NULL || grep->match == NULL || grep->careful_match == NULL ||
                grep->result == NULL)
                return cubby_error_no_memory(err);
        (void)pcre2_set_newline(grep->compile, PCRE2_NEWLINE_LF);
        (void)pcre2_set_parens_nest_limit(grep->compile, NEST_LIMIT);
        (void)pcre2_set_depth_limit(grep->match, DEPTH_LIMIT);
        (void)pcre2_set_heap_limit(grep->match, HEAP_LIMIT_KIB);
        (void)pcre2_set_match_limit(grep->careful_match, PLACE_STEPS);
        (void)pcre2_set_depth_limit(grep->careful_match, DEPTH_LIMIT);
        (void)pcre2_set_heap_limit(grep->careful_match, HEAP_LIMIT_KIB);
        return 0;
}

static int refuse(const char *pattern, size_t size, int code, size_t offset, int64_t *ret_position,
        cubby_error *err)
{
        char text[160] = "";
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        size_t position = utf8_count((const uint8_t *)pattern, offset < size ? offset : size);
        if (code == PCRE2_ERROR_HEAP_FAILED)
                return cubby_error_no_memory(err);
        if (ret_position != NULL)
                *ret_position = (int64_t)position;
        bool large = code == PCRE2_ERROR_PATTERN_TOO_LARGE ||
                code == PCRE2_ERROR_PATTERN_TOO_COMPLICATED ||
                code == PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP;
        return cubby_error_set(err, large ? CUBBY_E_LIMIT : CUBBY_E_INVALID,
                "the pattern is not valid at position %zu: %s", position, text);
}

/* Where the text stops to be UTF-8. */
static size_t valid_prefix(const uint8_t *bytes, size_t size)
{
        bool valid = true;
        size_t at = 0;
        while (at < size) {
                size_t length = utf8_sequence(bytes + at, size - at, &valid);
                if (!valid)
                        break;
                at += length;
        }
        return at;
}

int grep_new(const char *pattern, size_t size, const struct grep_options *options,
        struct grep **ret, int64_t *ret_position, cubby_error *err)
{
        if (ret_position != NULL)
                *ret_position = -1;
        if (size > GREP_PATTERN_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "the pattern is longer than %u bytes",
                        GREP_PATTERN_MAX);
        AUTO(grep) struct grep *grep = calloc(1, sizeof *grep);
        if (grep == NULL)
                return cubby_error_no_memory(err);
        buffer_init(&grep->decoded, DECODED_MAX);
        buffer_init(&grep->shown, LINE_BYTES);
        if (make_contexts(grep, err) < 0)
                return -1;
        grep->pattern = malloc(size + 1);
        if (grep->pattern == NULL)
                return cubby_error_no_memory(err);
        memcpy(grep->pattern, pattern, size);
        grep->pattern_size = size;
        size_t valid = valid_prefix((const uint8_t *)pattern, size);
        if (valid < size)
                return refuse(pattern, size, PCRE2_ERROR_UTF8_ERR1, valid, ret_position, err);
        uint32_t flags = options->case_sensitive ? 0 : PCRE2_CASELESS;
        flags |= options->literal ? PCRE2_LITERAL : PCRE2_NEVER_BACKSLASH_C | PCRE2_ALT_BSUX;
        uint32_t unicode = options->literal ? PCRE2_UTF : PCRE2_UTF | PCRE2_UCP;
        int code = 0;
        size_t offset = 0;
        PCRE2_SPTR text = (PCRE2_SPTR)grep->pattern;
        grep->flags = flags | unicode | PCRE2_NO_UTF_CHECK;
        grep->code = pcre2_compile(text, size, grep->flags, &code, &offset, grep->compile);
        if (grep->code == NULL)
                return refuse(pattern, size, code, offset, ret_position, err);
        /* Characters beyond ASCII in it are an error here, or the pattern has none. */
        if (utf8_is_ascii((const uint8_t *)pattern, size))
                grep->ascii =
                        pcre2_compile(text, size, flags | (options->literal ? 0 : PCRE2_NEVER_UTF),
                                &code, &offset, grep->compile);
        if (!options->each_line)
                literals_of(
                        pattern, size, options->literal, !options->case_sensitive, &grep->literals);
        *ret = take_ptr(&grep);
        return 0;
}

int grep_pace(struct grep_pace *pace, cubby_error *err)
{
        int64_t now = clock_monotonic_ms();
        if (now - pace->last_ms < GREP_PACE_MS)
                return 0;
        int result = pace->pause(pace->data, err);
        pace->last_ms = clock_monotonic_ms();
        return result;
}

static int explodes(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_LIMIT, "the pattern explodes: a line takes more steps than it may");
}

static int match_failed(int code, cubby_error *err)
{
        if (code == PCRE2_ERROR_NOMEMORY)
                return cubby_error_no_memory(err);
        if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
                code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_RECURSELOOP)
                return explodes(err);
        char text[160] = "";
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return cubby_error_set(err, CUBBY_E_SYSTEM, "matching the pattern: %s", text);
}

/* The line's first GREP_SHOWN characters; a longer one ends with "...". */
static bool show(struct grep *grep, const uint8_t *line, size_t size)
{
        buffer_clear(&grep->shown);
        size_t whole = utf8_prefix(line, size, GREP_SHOWN);
        if (whole == size)
                return buffer_append(&grep->shown, line, size);
        return buffer_append(&grep->shown, line, utf8_prefix(line, whole, GREP_SHOWN - 3)) &&
                buffer_append_text(&grep->shown, "...");
}

/* Makes the line valid UTF-8. False when it is one to pass over. */
static bool decode(struct grep *grep, const uint8_t **line, size_t *size, bool *ret_ascii)
{
        *ret_ascii = utf8_is_ascii(*line, *size);
        if (!*ret_ascii && !utf8_is_valid(*line, *size)) {
                buffer_clear(&grep->decoded);
                if (!utf8_replace(&grep->decoded, *line, *size))
                        return false;
                *line = grep->decoded.data;
                *size = grep->decoded.size;
        }
        return *size <= GREP_LINE_MAX ||
                (*size <= LINE_BYTES && utf8_count(*line, *size) <= GREP_LINE_MAX);
}

struct careful {
        uint32_t steps;
        struct grep_pace *pace;
        cubby_error problem;
};

static int step(pcre2_callout_block *block, void *data)
{
        struct careful *careful = data;
        (void)block;
        if (++careful->steps > CAREFUL_STEPS)
                (void)explodes(&careful->problem);
        else if (careful->steps % CAREFUL_ROUND == 0)
                (void)grep_pace(careful->pace, &careful->problem);
        return careful->problem.code == CUBBY_OK ? 0 : PCRE2_ERROR_CALLOUT;
}

/* Returns 1 for a match, 0 for none, -1. */
static int match_carefully(struct grep *grep, const uint8_t *line, size_t size,
        struct grep_pace *pace, cubby_error *err)
{
        struct careful careful = {.pace = pace};
        int code = 0;
        size_t offset = 0;
        if (grep->careful == NULL)
                grep->careful = pcre2_compile((PCRE2_SPTR)grep->pattern, grep->pattern_size,
                        grep->flags | PCRE2_AUTO_CALLOUT, &code, &offset, grep->compile);
        if (grep->careful == NULL)
                return explodes(err); /* too large with its callouts */
        (void)pcre2_set_callout(grep->careful_match, step, &careful);
        code = pcre2_match(grep->careful, line, size, 0, PCRE2_NO_UTF_CHECK, grep->result,
                grep->careful_match);
        if (code == PCRE2_ERROR_CALLOUT) {
                if (err != NULL)
                        *err = careful.problem;
                return -1;
        }
        return code == PCRE2_ERROR_NOMATCH ? 0 : code < 0 ? match_failed(code, err) : 1;
}

static int match(struct grep *grep, const uint8_t *line, size_t size, bool plain,
        struct grep_pace *pace, cubby_error *err)
{
        (void)pcre2_set_match_limit(grep->match, QUICK_STEPS / (uint32_t)(size + 1));
        int code = pcre2_match(plain ? grep->ascii : grep->code, line, size, 0,
                plain ? 0 : PCRE2_NO_UTF_CHECK, grep->result, grep->match);
        if (code == PCRE2_ERROR_NOMATCH)
                return 0;
        if (code == PCRE2_ERROR_MATCHLIMIT)
                return match_carefully(grep, line, size, pace, err);
        return code < 0 ? match_failed(code, err) : 1;
}

static int try_line(struct grep *grep, const uint8_t *line, size_t size, uint64_t number,
        struct grep_pace *pace, grep_line *tell, void *data, cubby_error *err)
{
        bool ascii;
        if (size > 0 && line[size - 1] == '\r')
                size--;
        if (!decode(grep, &line, &size, &ascii))
                return 0;
        int result = match(grep, line, size, ascii && grep->ascii != NULL, pace, err);
        if (result <= 0)
                return result;
        if (!show(grep, line, size))
                return cubby_error_no_memory(err);
        return tell(data, number, (const char *)grep->shown.data, grep->shown.size, err);
}

static uint64_t count_lines(const uint8_t *text, size_t size)
{
        uint64_t count = 0;
        for (size_t i = 0; i < size; i++)
                count += text[i] == '\n';
        return count;
}

int grep_text(struct grep *grep, const uint8_t *text, size_t size, struct grep_pace *pace,
        grep_line *tell, void *data, cubby_error *err)
{
        uint64_t number = 1;
        literals_reset(&grep->literals);
        for (size_t start = 0; start < size; number++) {
                if (grep->literals.count > 0) {
                        size_t place = literals_find(&grep->literals, text, size, start);
                        if (place == size)
                                return 0;
                        const uint8_t *before = memrchr(text + start, '\n', place - start);
                        size_t line = before == NULL ? start : (size_t)(before - text) + 1;
                        number += count_lines(text + start, line - start);
                        start = line;
                }
                const uint8_t *feed = memchr(text + start, '\n', size - start);
                size_t end = feed == NULL ? size : (size_t)(feed - text);
                int result = grep_pace(pace, err);
                if (result == 0)
                        result = try_line(
                                grep, text + start, end - start, number, pace, tell, data, err);
                if (result != 0)
                        return result;
                start = end + 1;
        }
        return 0;
}
