/* SPDX-License-Identifier: Apache-2.0 */
#include "../values.h"
#include "commands.h"

static int collect(struct cli *cli, const void *settings, struct args args)
{
        char text[VALUE_TEXT_MAX];
        cubby_error err = {0};
        uint64_t bytes = 0;
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        if (cubby_gc(cli->cubby, &bytes, &err) < 0)
                return cli_fail_error(cli, &err);
        (void)printf("freed %s\n", format_size(bytes, text));
        return 0;
}

const struct command command_gc = {
        .name = "gc",
        .usage = "",
        .summary = "Remove what nobody uses any more",
        .details = "Leftovers of crashes, and disks of images that were removed. Boxes and images "
                   "stay.",
        .examples = "cubby gc",
        .run = collect,
};
