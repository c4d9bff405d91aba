/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../text.h"
#include "../values.h"
#include "commands.h"

#include <unistd.h>

#define EXIT_NONE 1
#define MATCHES_DEFAULT 10000

struct grep_settings {
        const char *format, *glob, *user;
        bool fixed, ignore_case;
        struct number most;
};

#define AT(field) offsetof(struct grep_settings, field)

static const struct option options[] = {
        {'F', "fixed-strings", OPTION_FLAG, AT(fixed), NULL, "PATTERN is plain text", 0, 0},
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Path}} {{.Line}}'", 0, 0},
        {0, "glob", OPTION_TEXT, AT(glob), "GLOB", "only files that 'fs find' would find so", 0, 0},
        {'i', "ignore-case", OPTION_FLAG, AT(ignore_case), NULL, "case does not matter", 0, 0},
        {0, "max", OPTION_NUMBER, AT(most), "N", "at most so many lines (default: 10000)", 1,
                100000},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"Path", "PATH"},
        {"Line", "LINE"},
        {"Text", "TEXT"},
        {NULL, NULL},
};

static int print_rows(struct list *list, const cubby_grep_result *found)
{
        for (size_t i = 0; i < found->count; i++) {
                const cubby_match *match = &found->matches[i];
                char number[VALUE_TEXT_MAX];
                json_t *text = json_stringn(match->text, match->text_size);
                json_t *row = list_row(list,
                        json_pack("{s:o, s:I, s:o}", "path", json_text(match->path), "line",
                                (json_int_t)match->line, "text",
                                text != NULL ? text : json_text(match->text)));

                if (row == NULL)
                        break;
                (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)match->line);
                list_text(list, row, "Path", match->path);
                list_text(list, row, "Line", number);
                list_text(list, row, "Text", match->text);
        }
        return list_print(list);
}

static int print_lines(struct cli *cli, const cubby_grep_result *found)
{
        bool escape = isatty(STDOUT_FILENO) == 1;

        for (size_t i = 0; i < found->count; i++) {
                const cubby_match *match = &found->matches[i];
                AUTO_FREE char *path = escape ? text_escape(match->path, false) : NULL;
                AUTO_FREE char *text = escape ? text_escape(match->text, false) : NULL;

                if (escape && (path == NULL || text == NULL))
                        return cli_no_memory(cli);
                (void)printf(
                        "%s:%llu:", escape ? path : match->path, (unsigned long long)match->line);
                if (escape)
                        (void)fputs(text, stdout);
                else
                        (void)fwrite(match->text, 1, match->text_size, stdout);
                (void)putchar('\n');
        }
        return 0;
}

static int search(struct cli *cli, const struct grep_settings *settings, struct args args,
        cubby_grep_result **ret)
{
        cubby_search_options how = CUBBY_INIT(cubby_search_options);
        AUTO_BOX cubby_box *box = NULL;
        cubby_error err = {0};
        int64_t position = -1;
        int rc = cli_open_box(cli, args.values[0], &box);

        how.file.user = settings->user;
        how.literal = settings->fixed;
        how.case_sensitive = !settings->ignore_case;
        how.glob = settings->glob;
        how.max_results = settings->most.given ? (uint32_t)settings->most.value : MATCHES_DEFAULT;
        if (rc == 0 &&
                cubby_grep(box, args.count > 2 ? args.values[2] : ".", args.values[1], &how, ret,
                        &position, &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

static int grep(struct cli *cli, const void *data, struct args args)
{
        const struct grep_settings *settings = data;
        struct list list = {.cli = cli, .format = settings->format, .columns = columns};
        cubby_grep_result *found = NULL;
        int rc = list_begin(&list);

        if (rc == 0)
                rc = search(cli, settings, args, &found);
        if (rc == 0)
                rc = settings->format != NULL ? print_rows(&list, found) : print_lines(cli, found);
        if (rc == 0 && found->truncated)
                cli_note(cli, "there may be more than is shown; see --max");
        if (rc == 0 && found->count == 0)
                rc = EXIT_NONE;
        cubby_grep_result_free(found);
        list_clear(&list);
        return rc;
}

const struct command command_fs_grep = {
        .group = "fs",
        .name = "grep",
        .usage = "[OPTIONS] BOX PATTERN [PATH]",
        .summary = "Find lines in files of a box",
        .details =
                "PATTERN is a regular expression (PCRE2), PATH a file or a folder; without it: "
                "the box's working folder. Files of more than 1,000,000 bytes, binary ones, lines "
                "of more than 2,000 characters, and what 'fs find' passes over are not "
                "searched. Lines are cut to 200 characters. The exit code is 1 when nothing is "
                "found. Templates of --format know .Path, .Line and .Text.",
        .examples = "cubby fs grep web 'def \\w+_test' /srv\n"
                    "cubby fs grep -i --glob '*.py' web 'def main'",
        .options = {options},
        .settings_size = sizeof(struct grep_settings),
        .min_args = 2,
        .max_args = 3,
        .arguments = ARGS_BOX,
        .run = grep,
};
