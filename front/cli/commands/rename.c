/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static int rename_box(struct cli *cli, const void *settings, struct args args)
{
        AUTO_BOX cubby_box *box = NULL;
        cubby_error err = {0};
        int rc = cli_open_box(cli, args.values[0], &box);

        if (rc == 0 && cubby_box_rename(box, args.values[1], &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

const struct command command_rename = {
        .name = "rename",
        .usage = "BOX NAME",
        .summary = "Give a box another name",
        .examples = "cubby rename brave_otter work",
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_BOX,
        .run = rename_box,
};
