/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

/*
 * Options are tables: what they are called, what they hold, where the value
 * goes. The parser knows Docker's habits: bundled letters (-it), -w/dir,
 * --flag=value, --flag value, "--".
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
        OPTION_END,
        OPTION_FLAG,     /* bool */
        OPTION_TEXT,     /* const char * */
        OPTION_LIST,     /* struct text_list */
        OPTION_SIZE,     /* struct number, bytes */
        OPTION_DURATION, /* struct number, milliseconds */
        OPTION_SECONDS,  /* the same, but a bare number is seconds */
        OPTION_CPUS,     /* struct number, thousandths */
        OPTION_NUMBER,   /* struct number */
        OPTION_REFUSED,  /* known elsewhere, not offered; help says what to do instead */
};

#define LIST_MAX 1024

struct text_list {
        const char **items; /* NULL-terminated; NULL while empty */
        size_t count;
};

struct number {
        bool given;
        uint64_t value;
};

struct option {
        char letter;      /* 0: none */
        const char *name; /* without dashes */
        enum option_kind kind;
        size_t offset;     /* of the value in the settings */
        const char *value; /* what stands for it in the help; NULL: takes none */
        const char *help;
        uint64_t min, max; /* of numbers, in their unit; max 0: none */
};

struct cli;
struct command;
struct args;

/*
 * Parses argv (without the command's own name) into `settings` and `ret`, whose
 * values point into argv. Returns 0, -1 when help was asked for and printed, or
 * EXIT_USAGE after printing what is wrong.
 */
int options_parse(struct cli *cli, const struct command *command, int argc, char **argv,
        void *settings, struct args *ret);
/* Frees the lists in settings. */
void options_clear(const struct command *command, void *settings);
/* The command's options one after the other; NULL behind the last. */
const struct option *option_at(const struct command *command, size_t index);
/* Adds to a list; false when it is full or memory ran out. */
bool text_list_add(struct text_list *list, const char *text);

#endif
