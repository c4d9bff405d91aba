/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

static int tag_image(struct cli *cli, const void *settings, struct args args)
{
        cubby_error err = {0};
        int rc = cli_open(cli);

        if (rc == 0 && cubby_image_tag(cli->cubby, args.values[0], args.values[1], &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

const struct command command_image_tag = {
        .group = "image",
        .name = "tag",
        .usage = "IMAGE NAME[:TAG]",
        .summary = "Give an image one more name",
        .examples = "cubby image tag python:3.12 tools:stable",
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_IMAGE,
        .run = tag_image,
};
