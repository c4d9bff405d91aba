/* SPDX-License-Identifier: Apache-2.0 */
#include "../values.h"
#include "commands.h"

#include <errno.h>
#include <string.h>

#define PIECE (256U * 1024U)

struct cat_settings {
        const char *user, *lines;
};

#define AT(field) offsetof(struct cat_settings, field)

static const struct option options[] = {
        {0, "lines", OPTION_TEXT, AT(lines), "FIRST:LAST",
                "only these lines, from 1; either may be left out", 0, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

static bool parse_lines(const char *text, uint64_t *ret_first, uint64_t *ret_last)
{
        char first[32] = "0";
        const char *colon = strchr(text, ':');
        size_t size = colon == NULL ? 0 : (size_t)(colon - text);

        if (colon == NULL || size >= sizeof(first))
                return false;
        if (size > 0) {
                memcpy(first, text, size);
                first[size] = '\0';
        }
        return parse_number(first, ret_first) &&
                parse_number(colon[1] == '\0' ? "0" : colon + 1, ret_last);
}

static int write_out(struct cli *cli, const void *data, size_t size)
{
        if (fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0)
                return 0;
        return cli_fail(cli, "writing to standard output: %s", strerror(errno));
}

static int print_lines(struct cli *cli, cubby_box *box, const char *path,
        const struct cat_settings *cat, const cubby_file_options *how)
{
        AUTO_CUBBY_FREE char *text = NULL;
        uint64_t first = 0;
        uint64_t last = 0;
        size_t size = 0;
        cubby_error err = {0};

        if (!parse_lines(cat->lines, &first, &last))
                return cli_usage(cli, "--lines: '%s' is not of the form FIRST:LAST", cat->lines);
        if (cubby_file_read_lines(box, path, first, last, how, &text, &size, &err) < 0)
                return cli_fail_error(cli, &err);
        if (size == 0)
                return 0;
        int rc = write_out(cli, text, size);
        return rc != 0 ? rc : write_out(cli, "\n", 1);
}

static int print_file(
        struct cli *cli, cubby_box *box, const char *path, const cubby_file_options *how)
{
        AUTO_FREE char *piece = malloc(PIECE);
        cubby_file *file = NULL;
        cubby_error err = {0};
        int64_t got = 0;
        int rc = 0;

        if (piece == NULL)
                return cli_no_memory(cli);
        if (cubby_file_open_read(box, path, 0, how, &file, &err) < 0)
                return cli_fail_error(cli, &err);
        while (rc == 0 && (got = cubby_file_next(file, piece, PIECE, -1, &err)) > 0)
                rc = write_out(cli, piece, (size_t)got);
        if (got < 0)
                rc = cli_fail_error(cli, &err);
        cubby_file_close(file);
        return rc;
}

static int print_files(struct cli *cli, const void *settings, struct args args)
{
        const struct cat_settings *cat = settings;
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        int rc = cli_open_box(cli, args.values[0], &box);

        how.user = cat->user;
        for (size_t i = 1; box != NULL && i < args.count; i++) {
                int one = cat->lines != NULL ? print_lines(cli, box, args.values[i], cat, &how)
                                             : print_file(cli, box, args.values[i], &how);

                if (one != 0)
                        rc = one;
        }
        return rc;
}

const struct command command_fs_cat = {
        .group = "fs",
        .name = "cat",
        .usage = "[OPTIONS] BOX FILE...",
        .summary = "Print files of a box",
        .details = "Byte for byte, or some lines as UTF-8 text. Only regular files are read.",
        .examples = "cubby fs cat web /etc/hostname\n"
                    "cubby fs cat --lines 10:20 web /var/log/app.log",
        .options = {options},
        .settings_size = sizeof(struct cat_settings),
        .min_args = 2,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = print_files,
};
