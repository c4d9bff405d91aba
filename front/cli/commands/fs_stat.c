/* SPDX-License-Identifier: Apache-2.0 */
#include "../file_rows.h"
#include "commands.h"

struct stat_settings {
        const char *format, *user;
        bool follow;
};

#define AT(field) offsetof(struct stat_settings, field)

static const struct option options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Mode}} {{.Path}}'", 0, 0},
        {'L', "dereference", OPTION_FLAG, AT(follow), NULL, "where a link leads to", 0, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

static int stat_files(struct cli *cli, const void *data, struct args args)
{
        const struct stat_settings *settings = data;
        struct list list = {.cli = cli, .format = settings->format, .columns = file_columns};
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        int rc = list_begin(&list);

        how.user = settings->user;
        if (rc == 0)
                rc = cli_open_box(cli, args.values[0], &box);
        for (size_t i = 1; box != NULL && i < args.count; i++) {
                cubby_file_info info = {0};
                cubby_error err = {0};

                if (cubby_file_stat(box, args.values[i], settings->follow, &how, &info, &err) < 0)
                        rc = cli_fail_error(cli, &err);
                else
                        file_row_add(&list, &info);
                cubby_file_info_clear(&info);
        }
        if (box != NULL && json_array_size(list.rows) > 0) {
                int printed = list_print(&list);

                rc = rc != 0 ? rc : printed;
        }
        list_clear(&list);
        return rc;
}

const struct command command_fs_stat = {
        .group = "fs",
        .name = "stat",
        .usage = "[OPTIONS] BOX PATH...",
        .summary = "Show what files of a box are",
        .details = FILE_FORMAT_HELP,
        .examples = "cubby fs stat web /etc/hostname\ncubby fs stat -L web /bin/sh",
        .options = {options},
        .settings_size = sizeof(struct stat_settings),
        .min_args = 2,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = stat_files,
};
