/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static int print_help(struct cli *cli, const void *settings, struct args args)
{
        const struct command *command;
        const char *group = NULL;
        const char *name = args.values[0];

        if (args.count == 0) {
                help_overview(stdout);
                return 0;
        }
        if (command_group_known(name)) {
                group = name;
                name = args.values[1];
                if (name == NULL) {
                        help_group(stdout, group);
                        return 0;
                }
        } else if (args.count > 1)
                return cli_usage(cli, "'%s' has no commands below it", name);
        command = command_find(group, name);
        if (command == NULL)
                return help_unknown_command(cli, group, name);
        help_command(stdout, command);
        return 0;
}

const struct command command_help = {
        .name = "help",
        .usage = "[COMMAND]",
        .summary = "Explain Cubby or one of its commands",
        .examples = "cubby help run\n"
                    "cubby help image import",
        .max_args = 2,
        .arguments = ARGS_COMMAND,
        .run = print_help,
};
