/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "commands.h"

#define DEFAULT_STOP_MS 10000

struct stop_settings {
        struct number time;
};

static const struct option options[] = {
        {'t', "time", OPTION_SECONDS, offsetof(struct stop_settings, time), "SECONDS",
                "how long the command may take before it is killed (default 10)", 0, 86400000},
        {'s', "signal", OPTION_REFUSED, 0, NULL,
                "choose it with 'cubby run --stop-signal', or use 'cubby kill -s'", 0, 0},
        OPTIONS_END,
};

static int64_t stop_time_ms(const struct stop_settings *stop)
{
        return stop->time.given ? (int64_t)stop->time.value : DEFAULT_STOP_MS;
}

static int stop_box(cubby_box *box, const void *settings, cubby_error *err)
{
        return cubby_box_stop(box, stop_time_ms(settings), err);
}

static int restart_box(cubby_box *box, const void *settings, cubby_error *err)
{
        if (cubby_box_stop(box, stop_time_ms(settings), err) < 0)
                return -1;
        return cubby_box_start(box, err);
}

static int stop_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, stop_box, settings);
}

static int restart_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, restart_box, settings);
}

const struct command command_stop = {
        .name = "stop",
        .usage = "[OPTIONS] BOX...",
        .summary = "Stop running boxes",
        .details = "Sends the box's stop signal to its command, ends the machine when the command "
                   "has ended or the time has passed. The disk stays; 'cubby start' goes on with "
                   "it.",
        .examples = "cubby stop work\n"
                    "cubby stop -t 2 work",
        .options = {options},
        .settings_size = sizeof(struct stop_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = stop_boxes,
};

const struct command command_restart = {
        .name = "restart",
        .usage = "[OPTIONS] BOX...",
        .summary = "Stop boxes and start them again",
        .details = "Files stay, processes do not.",
        .examples = "cubby restart -t 2 work",
        .options = {options},
        .settings_size = sizeof(struct stop_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = restart_boxes,
};
