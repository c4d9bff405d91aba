/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_GREP_H
#define FILES_GREP_H

/*
 * Lines of a text that match a regular expression: PCRE2 with the classes of Unicode, as
 * Python's re has them. Each line is a subject of its own, without its "\n" and one "\r"
 * before it; invalid UTF-8 counts as U+FFFD. Work for one line is bounded.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GREP_PATTERN_MAX 32768U
#define GREP_FILE_MAX 1000000U /* larger files are passed over */
#define GREP_PROBE 8192U       /* so are files with a NUL in their first bytes */
#define GREP_LINE_MAX 2000U    /* characters; longer lines are passed over */
#define GREP_SHOWN 200U        /* characters of a line that are told */
#define GREP_PACE_MS 20        /* between pauses */

struct grep_options {
        bool literal;
        bool case_sensitive;
        bool each_line; /* ask the pattern about each line, for tests */
};

struct grep;

/* A pattern that does not compile is CUBBY_E_INVALID, with *ret_position in characters
 * (-1: none); one that is too large CUBBY_E_LIMIT. */
int grep_new(const char *pattern, size_t size, const struct grep_options *options,
        struct grep **ret, int64_t *ret_position, cubby_error *err);
void grep_free(struct grep *grep);

/* How a long search lets others have their turn. */
struct grep_pace {
        int (*pause)(void *data, cubby_error *err); /* 0, or -1: the search is to end */
        void *data;
        int64_t last_ms;
};

/* Calls pause when GREP_PACE_MS have passed. Cheap. */
int grep_pace(struct grep_pace *pace, cubby_error *err);

/*
 * Called for each line that matches, with its number from 1 and its text cut to GREP_SHOWN
 * characters. 0: go on; 1: enough; -1: failed, with err.
 */
typedef int grep_line(void *data, uint64_t number, const char *text, size_t size, cubby_error *err);

/* Returns 0 at the end of the text, what `line` returned, or -1: CUBBY_E_LIMIT for a pattern
 * that explodes, or as the pause says. Not for two threads at once. */
int grep_text(struct grep *grep, const uint8_t *text, size_t size, struct grep_pace *pace,
        grep_line *tell, void *data, cubby_error *err);

#endif
