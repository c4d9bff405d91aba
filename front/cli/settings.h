/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

/* The options that `run` and `create` share, and those of Docker that are
 * refused with advice. */

#include "cli.h"

struct box_settings {
        const char *name, *hostname, *workdir, *user, *entrypoint;
        const char *engine, *accel, *kernel, *stop_signal, *network;
        struct text_list env, env_files, labels;
        struct number memory, cpus, disk, pids, ttl, boot_timeout;
        bool input, tty, idle, remove, no_template;
};

/* Options of a new box; the settings must begin with a struct box_settings. */
extern const struct option box_options[];
extern const struct option box_options_refused[];

/* Arguments of the library, made from settings; owns the lists in it. */
struct box_request {
        cubby_box_options options;
        struct text_list env, labels;
        const char *entrypoint[2];
        char **owned; /* texts made here */
        size_t owned_count;
};

/* Fills `ret`; args are IMAGE [COMMAND...]. Returns 0 or the exit code. */
int box_request_make(struct cli *cli, const struct box_settings *settings, struct args args,
        struct box_request *ret);
/* The box could not be made: says why, and where images come from if that is it. */
int box_request_fail(struct cli *cli, const struct box_request *request, const cubby_error *err);
void box_request_clear(struct box_request *request);

/* NAME[=VALUE] and files of them, for exec. */
int env_collect(struct cli *cli, const struct text_list *given, const struct text_list *files,
        struct box_request *ret);

#endif
