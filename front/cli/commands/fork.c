/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#define CHILDREN_MAX 64

struct fork_settings {
        struct number count;
};

static const struct option fork_options[] = {
        {'n', "count", OPTION_NUMBER, offsetof(struct fork_settings, count), "COUNT",
                "how many children (default 1)", 1, CHILDREN_MAX},
        OPTIONS_END,
};

static int fork_box(struct cli *cli, const void *settings, struct args args)
{
        const struct fork_settings *wanted = settings;
        size_t count = wanted->count.given ? (size_t)wanted->count.value : 1;
        AUTO_FREE cubby_error *errors = calloc(count, sizeof(*errors));
        cubby_box *children[CHILDREN_MAX] = {NULL};
        AUTO_BOX cubby_box *box = NULL;
        cubby_error err = {0};
        int rc = errors == NULL ? cli_no_memory(cli) : cli_open_box(cli, args.values[0], &box);

        if (rc == 0 && cubby_box_fork(box, NULL, count, children, errors, &err) < 0)
                rc = cli_fail_error(cli, &err);
        else if (rc == 0)
                for (size_t i = 0; i < count; i++) {
                        if (children[i] == NULL)
                                rc = cli_fail_error(cli, &errors[i]);
                        else
                                (void)printf("%s\n", cubby_box_id(children[i]));
                        cubby_box_close(children[i]);
                }
        return rc;
}

const struct command command_fork = {
        .name = "fork",
        .usage = "[OPTIONS] BOX",
        .summary = "Make boxes that continue from a running one",
        .details = "The children have the processes, memory and files of the box at one instant, "
                   "and an identity, random numbers and disk of their own. The box goes on. "
                   "Prints the ids of the children.",
        .examples = "cubby fork work\n"
                    "cubby fork -n 4 work",
        .options = {fork_options},
        .settings_size = sizeof(struct fork_settings),
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_BOX,
        .run = fork_box,
};

static int create_snapshot(struct cli *cli, const void *settings, struct args args)
{
        AUTO_BOX cubby_box *box = NULL;
        cubby_error err = {0};
        int rc = cli_open_box(cli, args.values[0], &box);

        if (rc == 0 && cubby_box_snapshot(box, args.values[1], &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0)
                (void)printf("%s\n", args.values[1]);
        return rc;
}

const struct command command_snapshot_create = {
        .group = "snapshot",
        .name = "create",
        .usage = "BOX NAME",
        .summary = "Keep one instant of a running box under a name",
        .details = "Processes, memory and files are saved; the box goes on. 'cubby run --from "
                   "NAME' continues from it as often as you like, 'cubby template ls' lists it, "
                   "'cubby template rm NAME' removes it.",
        .examples = "cubby snapshot create work ready\n"
                    "cubby run --from ready -d --name again",
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_BOX,
        .run = create_snapshot,
};
