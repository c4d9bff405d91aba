/* SPDX-License-Identifier: Apache-2.0 */
#include "../file_rows.h"
#include "commands.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PIECE (256U * 1024U)

struct write_settings {
        const char *user, *owner, *mode;
        bool append, exclusive, no_parents, no_sync;
};

#define AT(field) offsetof(struct write_settings, field)

static const struct option options[] = {
        {'a', "append", OPTION_FLAG, AT(append), NULL, "to what is there; this is not atomic", 0,
                0},
        {0, "exclusive", OPTION_FLAG, AT(exclusive), NULL, "fail when there is such a file", 0, 0},
        {'m', "mode", OPTION_TEXT, AT(mode), "MODE",
                "permissions in octal (default: the present file's, or 644)", 0, 0},
        {0, "no-parents", OPTION_FLAG, AT(no_parents), NULL, "do not make missing folders", 0, 0},
        {0, "no-sync", OPTION_FLAG, AT(no_sync), NULL, "do not wait for the disk", 0, 0},
        {0, "owner", OPTION_TEXT, AT(owner), "USER[:GROUP]",
                "whom it belongs to (default: the present file's owner, or the user)", 0, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

/* All of standard input. */
static int copy_input(struct cli *cli, cubby_file *file)
{
        AUTO_FREE char *piece = malloc(PIECE);
        cubby_error err = {0};

        if (piece == NULL)
                return cli_no_memory(cli);
        for (;;) {
                ssize_t got = read(STDIN_FILENO, piece, PIECE);

                if (got == 0)
                        return 0;
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return cli_fail(cli, "reading standard input: %s", strerror(errno));
                if (cubby_file_put(file, piece, (size_t)got, -1, &err) < 0)
                        return cli_fail_error(cli, &err);
        }
}

static int write_file(struct cli *cli, const void *settings, struct args args)
{
        const struct write_settings *given = settings;
        cubby_write_options how = CUBBY_INIT(cubby_write_options);
        AUTO_BOX cubby_box *box = NULL;
        cubby_file *file = NULL;
        cubby_error err = {0};
        uint32_t mode = 0;

        if (given->mode != NULL && !parse_mode(given->mode, &mode))
                return cli_usage(cli, "--mode: '%s' is no octal number up to 7777", given->mode);
        how.file.user = given->user;
        how.owner = given->owner;
        how.mode = (int32_t)mode;
        how.append = given->append;
        how.exclusive = given->exclusive;
        how.no_parents = given->no_parents;
        how.no_sync = given->no_sync;
        int rc = cli_open_box(cli, args.values[0], &box);
        if (rc == 0 && cubby_file_open_write(box, args.values[1], &how, &file, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0)
                rc = copy_input(cli, file);
        if (rc == 0 && cubby_file_commit(file, -1, &err) < 0)
                rc = cli_fail_error(cli, &err);
        cubby_file_close(file);
        return rc;
}

const struct command command_fs_write = {
        .group = "fs",
        .name = "write",
        .usage = "[OPTIONS] BOX FILE",
        .summary = "Write standard input to a file of a box",
        .details = "The file is replaced in one step, once everything is on the disk: whatever "
                   "fails, the old content stays.",
        .examples = "echo hello | cubby fs write web /srv/greeting\n"
                    "cubby fs write -m 755 --owner app web /usr/local/bin/tool <tool",
        .options = {options},
        .settings_size = sizeof(struct write_settings),
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_BOX,
        .run = write_file,
};
