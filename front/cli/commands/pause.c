/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "commands.h"

static int pause_box(cubby_box *box, const void *settings, cubby_error *err)
{
        return cubby_box_pause(box, err);
}

static int unpause_box(cubby_box *box, const void *settings, cubby_error *err)
{
        return cubby_box_unpause(box, err);
}

static int pause_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, pause_box, settings);
}

static int unpause_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, unpause_box, settings);
}

const struct command command_pause = {
        .name = "pause",
        .usage = "BOX...",
        .summary = "Hold the machines of boxes still",
        .details = "A paused box takes no processor time and answers nothing until "
                   "'cubby unpause'.",
        .examples = "cubby pause work",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = pause_boxes,
};

const struct command command_unpause = {
        .name = "unpause",
        .usage = "BOX...",
        .summary = "Let paused boxes go on",
        .examples = "cubby unpause work",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = unpause_boxes,
};
