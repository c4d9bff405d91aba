/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_COMMAND_H
#define GUEST_COMMAND_H

/*
 * An EXEC request turned into what execve takes: arguments, environment, and the
 * paths to try, all in memory that is ready before the new process exists.
 */

#include "base/error.h"
#include "wire/wire.h"

#include <stdbool.h>

#define COMMAND_PATHS_MAX 64
#define COMMAND_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct command {
        char **argv;
        char **env; /* room for COMMAND_EXTRA_ENV more entries */
        size_t envc;
        char *user;
        char *cwd;
        char *paths[COMMAND_PATHS_MAX]; /* to try in this order */
        size_t path_count;
        char *text; /* what the pointers point into */
        char *path_text;
        char *extra[4];
        size_t extra_count;
};

/* Copies and checks; CUBBY_E_INVALID for a NUL inside, or a variable without a name. */
int command_make(const struct message_exec *message, struct command *ret, cubby_error *err);
void command_free(struct command *command); /* NULL-safe */

/* The value of a variable, or NULL. */
const char *command_variable(const struct command *command, const char *name);
/* Adds NAME=value unless the environment has NAME. */
int command_default(struct command *command, const char *name, const char *value, cubby_error *err);

/*
 * Fills paths: argv[0] itself when it has a slash, else each folder of PATH in
 * which `exists` sees it. CUBBY_E_EXEC_NOT_FOUND when there is none.
 */
int command_look_up(struct command *command, bool (*exists)(const char *path), cubby_error *err);

#endif
