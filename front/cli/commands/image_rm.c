/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

struct rm_settings {
        bool force;
};

static const struct option options[] = {
        {'f', "force", OPTION_FLAG, offsetof(struct rm_settings, force), NULL,
                "take the name away even while boxes use the image", 0, 0},
        OPTIONS_END,
};

static int remove_images(struct cli *cli, const void *settings, struct args args)
{
        const struct rm_settings *rm = settings;
        int result = cli_open(cli);

        for (size_t i = 0; cli->cubby != NULL && i < args.count; i++) {
                cubby_error err = {0};

                if (cubby_image_remove(cli->cubby, args.values[i], rm->force, &err) < 0)
                        result = cli_fail_error(cli, &err);
                else
                        (void)printf("%s\n", args.values[i]);
        }
        return result;
}

const struct command command_image_rm = {
        .group = "image",
        .name = "rm",
        .usage = "[OPTIONS] IMAGE...",
        .summary = "Remove images",
        .details = "Takes the name away; with the last name the image goes.",
        .examples = "cubby image rm python:3.12",
        .options = {options},
        .settings_size = sizeof(struct rm_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_IMAGE,
        .run = remove_images,
};
