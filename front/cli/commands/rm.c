/* SPDX-License-Identifier: Apache-2.0 */
#include "../boxes.h"
#include "commands.h"

struct rm_settings {
        bool force, all;
};

static const struct option options[] = {
        {'a', "all", OPTION_FLAG, offsetof(struct rm_settings, all), NULL,
                "every box that has ended, with -f every box", 0, 0},
        {'f', "force", OPTION_FLAG, offsetof(struct rm_settings, force), NULL,
                "kill it first when it runs", 0, 0},
        {'v', "volumes", OPTION_REFUSED, 0, NULL, "a box's disk always goes with it; leave it out",
                0, 0},
        {'l', "link", OPTION_REFUSED, 0, NULL, "boxes have no network", 0, 0},
        OPTIONS_END,
};

static int remove_box(cubby_box *box, const void *settings, cubby_error *err)
{
        const struct rm_settings *rm = settings;

        return cubby_box_remove(box, rm->force, err);
}

static bool may_go(const struct rm_settings *rm, const cubby_box_info *info)
{
        return rm->force || (info->state != CUBBY_BOX_RUNNING && info->state != CUBBY_BOX_PAUSED);
}

static int remove_all(struct cli *cli, const struct rm_settings *rm)
{
        cubby_box_list *boxes = NULL;
        cubby_error err = {0};
        struct args args = {0};
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        if (cubby_boxes(cli->cubby, true, &boxes, &err) < 0)
                return cli_fail_error(cli, &err);
        args.values = calloc(boxes->count + 1, sizeof(*args.values));
        if (args.values == NULL)
                rc = cli_no_memory(cli);
        for (size_t i = 0; rc == 0 && i < boxes->count; i++)
                if (may_go(rm, &boxes->boxes[i]))
                        args.values[args.count++] = boxes->boxes[i].name;
        if (rc == 0)
                rc = each_box(cli, args, remove_box, rm);
        free(args.values);
        cubby_box_list_free(boxes);
        return rc;
}

static int remove_boxes(struct cli *cli, const void *settings, struct args args)
{
        const struct rm_settings *rm = settings;

        if (rm->all && args.count > 0)
                return cli_usage(cli, "'rm -a' takes all boxes; name none");
        if (!rm->all && args.count == 0)
                return cli_usage(cli, "'rm' needs a box; usage: cubby rm [OPTIONS] BOX...");
        return rm->all ? remove_all(cli, rm) : each_box(cli, args, remove_box, rm);
}

const struct command command_rm = {
        .name = "rm",
        .usage = "[OPTIONS] BOX...",
        .summary = "Remove boxes with their disks and logs",
        .examples = "cubby rm work\n"
                    "cubby rm -f work\n"
                    "cubby rm -a",
        .options = {options},
        .settings_size = sizeof(struct rm_settings),
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = remove_boxes,
};
