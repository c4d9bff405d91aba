/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

/*
 * The command line. Everything here is a client of cubby.h. A command is one
 * file in commands/, one row of the table in main.c, and one list of options;
 * help, completion and the checks of arguments are made from the table.
 */

#include "options.h"

#include <cubby/cubby.h>
#include <stdio.h>
#include <stdlib.h>

enum {
        EXIT_USAGE = 2,
        EXIT_TIMED_OUT = 124, /* like timeout(1) */
        EXIT_CUBBY = 125,
        EXIT_REFUSED = 126,
        EXIT_NOT_FOUND = 127,
        EXIT_SIGNAL_BASE = 128,
};

struct progress;

struct cli {
        const char *home; /* NULL: the library's default */
        int verbosity;    /* -v: 1, -vv: 2 */
        cubby *cubby;     /* NULL until cli_open */
        struct progress *progress;
};

/* What the words after the options are, for completion. */
enum argument_kind { ARGS_NONE, ARGS_BOX, ARGS_IMAGE, ARGS_FILE, ARGS_COMMAND, ARGS_SHELL };

struct args {
        char **values; /* NULL-terminated */
        size_t count;
};

struct command {
        const char *group; /* "image" of "image import"; NULL: none */
        const char *name;
        const char *usage; /* the words behind the name */
        const char *summary;
        const char *details; /* more sentences for --help; may be NULL */
        const char *examples;
        const struct option *options[4]; /* tables, NULL behind the last */
        size_t settings_size;
        size_t min_args, max_args;
        bool stops_at_argument; /* options end at the first argument */
        enum argument_kind arguments;
        int (*run)(struct cli *cli, const void *settings, struct args args);
};

extern const struct command *const commands[]; /* NULL-terminated */

/* Opens the home once. Returns 0, or the exit code after printing why not. */
int cli_open(struct cli *cli);
/* Opens the home and a box. */
int cli_open_box(struct cli *cli, const char *name, cubby_box **ret);

/* "cubby: TEXT" on stderr with control bytes escaped; return the exit code. */
int cli_fail(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_fail_error(struct cli *cli, const cubby_error *err);
int cli_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_note(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_no_memory(struct cli *cli);
/* 127, 126 or 125. */
int cli_exit_code(const cubby_error *err);

/* help.c */
const struct command *command_find(const char *group, const char *name);
bool command_group_known(const char *group);
void help_command(FILE *out, const struct command *command);
void help_overview(FILE *out);
void help_group(FILE *out, const char *group);
/* The nearest of `names` to `word`, or NULL when none is near. */
const char *nearest_name(const char *word, const char *const *names);
/* Usage error about an unknown command, with advice. */
int help_unknown_command(struct cli *cli, const char *group, const char *name);

/* Owners of the library's handles. */
static inline void cli_box_cleanup(cubby_box **box)
{
        cubby_box_close(*box);
}
static inline void cli_exec_cleanup(cubby_exec **exec)
{
        cubby_exec_close(*exec);
}
static inline void cli_free_cleanup(void *owner)
{
        free(*(void **)owner);
}
static inline void cli_cubby_free_cleanup(void *owner)
{
        cubby_free(*(void **)owner);
}
#define AUTO_BOX __attribute__((cleanup(cli_box_cleanup)))
#define AUTO_EXEC __attribute__((cleanup(cli_exec_cleanup)))
#define AUTO_FREE __attribute__((cleanup(cli_free_cleanup)))
#define AUTO_CUBBY_FREE __attribute__((cleanup(cli_cubby_free_cleanup)))

#endif
