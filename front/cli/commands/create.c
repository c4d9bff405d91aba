/* SPDX-License-Identifier: Apache-2.0 */
#include "../settings.h"
#include "commands.h"

static const struct option refused[] = {
        {'d', "detach", OPTION_REFUSED, 0, NULL,
                "'cubby create' starts nothing; use 'cubby run -d', or 'cubby start' afterwards", 0,
                0},
        {0, "timeout", OPTION_REFUSED, 0, NULL,
                "it bounds a command that is waited for; give the box an end with --ttl", 0, 0},
        OPTIONS_END,
};

static int create_box(struct cli *cli, const void *settings, struct args args)
{
        AUTO_BOX cubby_box *box = NULL;
        struct box_request request = {0};
        cubby_error err = {0};
        int rc = box_request_make(cli, settings, args, &request);

        if (rc != 0)
                return rc;
        rc = cli_open(cli);
        if (rc == 0 && cubby_box_create(cli->cubby, &request.options, &box, &err) < 0)
                rc = box_request_fail(cli, &request, &err);
        if (rc == 0)
                (void)printf("%s\n", cubby_box_id(box));
        box_request_clear(&request);
        return rc;
}

const struct command command_create = {
        .name = "create",
        .usage = "[OPTIONS] IMAGE [COMMAND [ARG...]]",
        .summary = "Make a box without starting it",
        .details = "Prints the id of the box; 'cubby start' starts it.",
        .examples = "cubby create --name work -m 1G debian sleep 1h\n"
                    "cubby start work",
        .options = {box_options, box_options_refused, refused},
        .settings_size = sizeof(struct box_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .stops_at_argument = true,
        .arguments = ARGS_IMAGE,
        .run = create_box,
};
