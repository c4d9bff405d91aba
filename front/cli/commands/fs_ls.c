/* SPDX-License-Identifier: Apache-2.0 */
#include "../file_rows.h"
#include "../text.h"
#include "commands.h"

#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 4096
#define ENTRIES_DEFAULT 10000

struct ls_settings {
        const char *format, *user;
        bool details, null;
        struct number depth, most;
};

#define AT(field) offsetof(struct ls_settings, field)

static const struct option options[] = {
        {'0', "null", OPTION_FLAG, AT(null), NULL, "end each name with a NUL byte", 0, 0},
        {0, "depth", OPTION_NUMBER, AT(depth), "N", "folders in folders, so deep (default: 1)", 0,
                DEPTH_MAX},
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Mode}} {{.Path}}'", 0, 0},
        {'l', "long", OPTION_FLAG, AT(details), NULL, "mode, owner, size and time, with the folder",
                0, 0},
        {0, "max", OPTION_NUMBER, AT(most), "N", "at most so many entries (default: 10000)", 1,
                100000},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

/* The path below the folder that was asked for, which is the first of the list. */
static const char *name_below(const cubby_file_list *found, size_t index)
{
        const char *folder = found->files[0].path;
        size_t size = strcmp(folder, "/") == 0 ? 0 : strlen(folder);

        return found->files[index].path + size + 1;
}

static int print_names(struct cli *cli, const struct ls_settings *ls, const cubby_file_list *found)
{
        bool escape = !ls->null && isatty(STDOUT_FILENO) == 1;

        for (size_t i = 1; i < found->count; i++) {
                const char *name = name_below(found, i);
                AUTO_FREE char *shown = escape ? text_escape(name, false) : NULL;

                if (escape && shown == NULL)
                        return cli_no_memory(cli);
                (void)fputs(escape ? shown : name, stdout);
                (void)putchar(ls->null ? '\0' : '\n');
        }
        return 0;
}

static int print_rows(const cubby_file_list *found, struct list *list)
{
        for (size_t i = 0; i < found->count; i++)
                file_row_add(list, &found->files[i]);
        return list_print(list);
}

static int list_folder(struct cli *cli, const void *settings, struct args args)
{
        const struct ls_settings *ls = settings;
        struct list list = {.cli = cli, .format = ls->format, .columns = file_columns};
        cubby_list_options how = CUBBY_INIT(cubby_list_options);
        AUTO_BOX cubby_box *box = NULL;
        cubby_file_list *found = NULL;
        cubby_error err = {0};
        int rc = list_begin(&list);

        how.file.user = ls->user;
        how.depth = ls->depth.given ? (int32_t)ls->depth.value : 1;
        how.max_entries = ls->most.given ? (uint32_t)ls->most.value : ENTRIES_DEFAULT;
        how.all_types = true;
        if (rc == 0)
                rc = cli_open_box(cli, args.values[0], &box);
        if (rc == 0 &&
                cubby_file_list_folder(
                        box, args.count > 1 ? args.values[1] : ".", &how, &found, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0)
                rc = ls->details || ls->format != NULL ? print_rows(found, &list)
                                                       : print_names(cli, ls, found);
        if (rc == 0 && found->truncated)
                cli_note(cli, "there is more than is shown; see --max");
        cubby_file_list_free(found);
        list_clear(&list);
        return rc;
}

const struct command command_fs_ls = {
        .group = "fs",
        .name = "ls",
        .usage = "[OPTIONS] BOX [FOLDER]",
        .summary = "List a folder of a box",
        .details = "Names are sorted as bytes and printed as they are, except on a terminal, where "
                   "control bytes are escaped. Without FOLDER: the box's working "
                   "folder. " FILE_FORMAT_HELP,
        .examples = "cubby fs ls web /etc\ncubby fs ls -l --depth 2 web /srv\n"
                    "cubby fs ls -0 web | xargs -0 -n 1 printf '<%s>\\n'",
        .options = {options},
        .settings_size = sizeof(struct ls_settings),
        .min_args = 1,
        .max_args = 2,
        .arguments = ARGS_BOX,
        .run = list_folder,
};
