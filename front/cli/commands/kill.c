/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "../values.h"
#include "commands.h"

#include <signal.h>

struct kill_settings {
        const char *signal;
};

static const struct option options[] = {
        {'s', "signal", OPTION_TEXT, offsetof(struct kill_settings, signal), "SIGNAL",
                "name or number (default KILL, which ends the machine at once)", 0, 0},
        OPTIONS_END,
};

static int kill_box(cubby_box *box, const void *number, cubby_error *err)
{
        return cubby_box_kill(box, *(const int *)number, err);
}

static int kill_boxes(struct cli *cli, const void *settings, struct args args)
{
        const struct kill_settings *kill_settings = settings;
        int number = SIGKILL;

        if (kill_settings->signal != NULL && !parse_signal(kill_settings->signal, &number))
                return cli_usage(cli,
                        "--signal: '%s' is not a signal; write for example TERM or 15",
                        kill_settings->signal);
        return each_box(cli, args, kill_box, &number);
}

const struct command command_kill = {
        .name = "kill",
        .usage = "[OPTIONS] BOX...",
        .summary = "Send a signal to the commands of boxes",
        .details = "KILL, the default, ends the machine at once.",
        .examples = "cubby kill work\n"
                    "cubby kill -s HUP work",
        .options = {options},
        .settings_size = sizeof(struct kill_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = kill_boxes,
};
