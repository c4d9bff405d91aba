/* SPDX-License-Identifier: Apache-2.0 */
#include "../values.h"
#include "commands.h"

struct wait_settings {
        struct number timeout;
};

static const struct option options[] = {
        {0, "timeout", OPTION_DURATION, offsetof(struct wait_settings, timeout), "DURATION",
                "give up after this time; exit code 124", 0, UINT64_C(31536000000)},
        OPTIONS_END,
};

/* Milliseconds to the deadline; -1: none. */
static int64_t time_left(const struct wait_settings *settings, int64_t deadline_ms)
{
        int64_t left = deadline_ms - monotonic_ms();

        if (!settings->timeout.given)
                return -1;
        return left > 0 ? left : 0;
}

static int wait_boxes(struct cli *cli, const void *settings, struct args args)
{
        const struct wait_settings *how = settings;
        int64_t deadline_ms = monotonic_ms() + (int64_t)how->timeout.value;
        int result = 0;

        for (size_t i = 0; i < args.count; i++) {
                AUTO_BOX cubby_box *box = NULL;
                cubby_error err = {0};
                int code = 0;
                int rc = cli_open_box(cli, args.values[i], &box);

                if (rc == 0 && cubby_box_wait(box, time_left(how, deadline_ms), &code, &err) < 0) {
                        rc = cli_fail_error(cli, &err);
                        rc = err.code == CUBBY_E_TIMEOUT ? EXIT_TIMED_OUT : rc;
                } else if (rc == 0)
                        (void)printf("%d\n", code);
                (void)fflush(stdout);
                result = rc == 0 ? result : rc;
        }
        return result;
}

const struct command command_wait = {
        .name = "wait",
        .usage = "[OPTIONS] BOX...",
        .summary = "Wait for boxes to end and print their exit codes",
        .examples = "cubby wait work\n"
                    "cubby wait --timeout 1m work",
        .options = {options},
        .settings_size = sizeof(struct wait_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = wait_boxes,
};
