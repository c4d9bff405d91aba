/* SPDX-License-Identifier: Apache-2.0 */
#include "../progress.h"
#include "commands.h"

static int ensure_kernel(struct cli *cli, const void *settings, struct args args)
{
        AUTO_CUBBY_FREE char *version = NULL;
        cubby_error err = {0};
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        if (cubby_kernel_ensure(cli->cubby, args.values[0], &version, &err) < 0)
                return cli_fail_error(cli, &err);
        progress_hide(cli->progress);
        (void)printf("%s\n", version);
        return 0;
}

const struct command command_kernel_ensure = {
        .group = "kernel",
        .name = "ensure",
        .usage = "[SOURCE]",
        .summary = "Find or fetch the guest kernel",
        .details = "SOURCE is a kernel file or a .deb package. Without it, in this order: one that "
                   "is unpacked already, the host's /boot, the distribution's package, which is "
                   "downloaded and not installed. Prints the version.",
        .examples = "cubby kernel ensure\n"
                    "cubby kernel ensure /boot/vmlinuz-6.1.0-18-cloud-amd64",
        .max_args = 1,
        .arguments = ARGS_FILE,
        .run = ensure_kernel,
};

const struct command command_kernel_add = {
        .group = "kernel",
        .name = "add",
        .usage = "FILE",
        .summary = "Unpack a guest kernel, as 'cubby kernel ensure FILE'",
        .details = "FILE is a kernel file, with its modules beside it, or a .deb package. Prints "
                   "the version.",
        .examples = "cubby kernel add linux-image-6.1.0-18-cloud-amd64_6.1.76-1_amd64.deb",
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_FILE,
        .run = ensure_kernel,
};
