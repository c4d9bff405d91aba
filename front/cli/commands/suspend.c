/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "commands.h"

static int suspend_box(cubby_box *box, const void *settings, cubby_error *err)
{
        return cubby_box_suspend(box, err);
}

static int resume_box(cubby_box *box, const void *settings, cubby_error *err)
{
        return cubby_box_resume(box, err);
}

static int suspend_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, suspend_box, settings);
}

static int resume_boxes(struct cli *cli, const void *settings, struct args args)
{
        return each_box(cli, args, resume_box, settings);
}

const struct command command_suspend = {
        .name = "suspend",
        .usage = "BOX...",
        .summary = "Put the machines of boxes away on the disk",
        .details = "A suspended box takes no memory; 'cubby resume' brings it back with its "
                   "processes. Commands that were open elsewhere end with an error there. The "
                   "box's own command runs on after 'cubby resume', but its output is not "
                   "kept any more, and the box does not end with it.",
        .examples = "cubby suspend work\n"
                    "cubby resume work",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = suspend_boxes,
};

const struct command command_resume = {
        .name = "resume",
        .usage = "BOX...",
        .summary = "Let suspended or paused boxes go on",
        .examples = "cubby resume work",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = resume_boxes,
};
