/* SPDX-License-Identifier: Apache-2.0 */
#include "../text.h"
#include "commands.h"

#include <unistd.h>

struct find_settings {
        const char *user;
        bool folders, null;
        struct number most;
};

#define AT(field) offsetof(struct find_settings, field)
#define FOUND_DEFAULT 10000

static const struct option options[] = {
        {'0', "null", OPTION_FLAG, AT(null), NULL, "end each path with a NUL byte", 0, 0},
        {0, "folders", OPTION_FLAG, AT(folders), NULL, "folders too", 0, 0},
        {0, "max", OPTION_NUMBER, AT(most), "N", "at most so many (default: 10000)", 1, 100000},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

static int print_paths(struct cli *cli, const cubby_glob_result *found, bool null)
{
        bool escape = !null && isatty(STDOUT_FILENO) == 1;

        for (size_t i = 0; i < found->count; i++) {
                AUTO_FREE char *shown = escape ? text_escape(found->paths[i], false) : NULL;

                if (escape && shown == NULL)
                        return cli_no_memory(cli);
                (void)fputs(escape ? shown : found->paths[i], stdout);
                (void)putchar(null ? '\0' : '\n');
        }
        if (found->truncated)
                cli_note(cli, "there may be more than is shown; see --max");
        return 0;
}

static int find(struct cli *cli, const void *data, struct args args)
{
        const struct find_settings *settings = data;
        cubby_search_options how = CUBBY_INIT(cubby_search_options);
        AUTO_BOX cubby_box *box = NULL;
        cubby_glob_result *found = NULL;
        cubby_error err = {0};
        int rc = cli_open_box(cli, args.values[0], &box);

        how.file.user = settings->user;
        how.include_folders = settings->folders;
        how.max_results = settings->most.given ? (uint32_t)settings->most.value : FOUND_DEFAULT;
        if (rc != 0)
                return rc;
        if (cubby_glob(box, args.count > 2 ? args.values[2] : ".", args.values[1], &how, &found,
                    &err) < 0)
                return cli_fail_error(cli, &err);
        rc = print_paths(cli, found, settings->null);
        cubby_glob_result_free(found);
        return rc;
}

const struct command command_fs_find = {
        .group = "fs",
        .name = "find",
        .usage = "[OPTIONS] BOX PATTERN [FOLDER]",
        .summary = "Find files of a box by their names",
        .details =
                "PATTERN is compared with the end of a path below FOLDER, component by component: "
                "'*.py' finds at any depth, 'src/*.c' in any folder src, and a leading '**/' may "
                "also stand for nothing. Version control, caches, build output and logs are passed "
                "over. Without FOLDER: the box's working folder.",
        .examples = "cubby fs find web '*.py' /srv\ncubby fs find --folders web 'src/*'",
        .options = {options},
        .settings_size = sizeof(struct find_settings),
        .min_args = 2,
        .max_args = 3,
        .arguments = ARGS_BOX,
        .run = find,
};
