/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "../foreground.h"
#include "../progress.h"
#include "commands.h"

struct start_settings {
        bool attach, input;
};

static const struct option options[] = {
        {'a', "attach", OPTION_FLAG, offsetof(struct start_settings, attach), NULL,
                "stay with the command: its output comes here", 0, 0},
        {'i', "interactive", OPTION_FLAG, offsetof(struct start_settings, input), NULL,
                "stay, and pass standard input to the command", 0, 0},
        OPTIONS_END,
};

static int start_one(struct cli *cli, const char *name)
{
        AUTO_BOX cubby_box *box = NULL;
        cubby_error err = {0};
        int rc = cli_open_box(cli, name, &box);

        if (rc != 0)
                return rc;
        if (cubby_box_start(box, &err) < 0)
                return cli_fail_error(cli, &err);
        progress_hide(cli->progress);
        (void)printf("%s\n", name);
        (void)fflush(stdout);
        return 0;
}

static int start_attached(struct cli *cli, const struct start_settings *start, const char *name)
{
        AUTO_BOX cubby_box *box = NULL;
        struct foreground how = {.owner = true, .input = start->input};
        struct foreground_end end = {0};
        bool open_stdin = false;
        int rc = cli_open_box(cli, name, &box);

        if (rc == 0)
                rc = box_streams(cli, box, &how.tty, &open_stdin);
        if (rc == 0 && start->input && !open_stdin)
                rc = cli_fail(
                        cli, "box '%s' was made without -i, its command reads no input", name);
        if (rc == 0)
                rc = foreground_check_tty(cli, how.tty, how.input);
        if (rc != 0)
                return rc;
        pump_block_signals(NULL);
        rc = foreground_start(cli, box, false);
        return rc == 0 ? foreground_attach(cli, box, &how, &end) : rc;
}

static int start_boxes(struct cli *cli, const void *settings, struct args args)
{
        const struct start_settings *start = settings;
        int result = 0;

        if (start->attach || start->input) {
                if (args.count != 1)
                        return cli_usage(cli, "-a and -i stay with one box; name only one");
                return start_attached(cli, start, args.values[0]);
        }
        for (size_t i = 0; i < args.count; i++) {
                int rc = start_one(cli, args.values[i]);

                result = rc == 0 ? result : rc;
        }
        return result;
}

const struct command command_start = {
        .name = "start",
        .usage = "[OPTIONS] BOX...",
        .summary = "Start boxes that were made or have ended",
        .details = "Returns when the command of each box runs, or with -a when it has ended.",
        .examples = "cubby start work\n"
                    "cubby start -a work",
        .options = {options},
        .settings_size = sizeof(struct start_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = start_boxes,
};
