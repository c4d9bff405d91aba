/* SPDX-License-Identifier: Apache-2.0 */
#include "../foreground.h"
#include "commands.h"

struct attach_settings {
        bool no_stdin;
};

static const struct option options[] = {
        {0, "no-stdin", OPTION_FLAG, offsetof(struct attach_settings, no_stdin), NULL,
                "pass no input to the command", 0, 0},
        {0, "detach-keys", OPTION_REFUSED, 0, NULL, "leave with ctrl-p ctrl-q", 0, 0},
        {0, "sig-proxy", OPTION_REFUSED, 0, NULL, "signals always go to the command; leave it out",
                0, 0},
        OPTIONS_END,
};

static int attach_box(struct cli *cli, const void *settings, struct args args)
{
        const struct attach_settings *attach = settings;
        AUTO_BOX cubby_box *box = NULL;
        struct foreground how = {0};
        struct foreground_end end = {0};
        int rc = cli_open_box(cli, args.values[0], &box);

        if (rc == 0)
                rc = box_streams(cli, box, &how.tty, &how.input);
        if (rc != 0)
                return rc;
        how.input = how.input && !attach->no_stdin;
        rc = foreground_check_tty(cli, how.tty, how.input);
        if (rc != 0)
                return rc;
        pump_block_signals(NULL);
        return foreground_attach(cli, box, &how, &end);
}

const struct command command_attach = {
        .name = "attach",
        .usage = "[OPTIONS] BOX",
        .summary = "Join the command of a running box",
        .details = "Output comes from now on; 'cubby logs' has what was before. Input is passed on "
                   "when the box was made with -i. In a terminal, ctrl-p ctrl-q leaves. Returns "
                   "the exit code of the command.",
        .examples = "cubby attach work\n"
                    "cubby attach --no-stdin work",
        .options = {options},
        .settings_size = sizeof(struct attach_settings),
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_BOX,
        .run = attach_box,
};
