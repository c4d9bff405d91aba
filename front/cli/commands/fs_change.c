/* SPDX-License-Identifier: Apache-2.0 */
#include "../file_rows.h"
#include "commands.h"

#include <string.h>

struct change_settings {
        const char *user, *mode;
        bool recursive, force, parents, no_clobber;
};

#define AT(field) offsetof(struct change_settings, field)
#define OPTION_USER                                                                              \
        {                                                                                        \
                'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", \
                        0, 0                                                                     \
        }

static const struct option rm_options[] = {
        {'f', "force", OPTION_FLAG, AT(force), NULL, "a missing file is no error", 0, 0},
        {'r', "recursive", OPTION_FLAG, AT(recursive), NULL, "folders with all that is in them", 0,
                0},
        OPTION_USER,
        OPTIONS_END,
};

static const struct option mkdir_options[] = {
        {'m', "mode", OPTION_TEXT, AT(mode), "MODE", "permissions in octal (default: 755)", 0, 0},
        {'p', "parents", OPTION_FLAG, AT(parents), NULL,
                "make missing folders above; one that exists is no error", 0, 0},
        OPTION_USER,
        OPTIONS_END,
};

static const struct option mv_options[] = {
        {'n', "no-clobber", OPTION_FLAG, AT(no_clobber), NULL, "never replace a file", 0, 0},
        OPTION_USER,
        OPTIONS_END,
};

static int remove_files(struct cli *cli, const void *settings, struct args args)
{
        const struct change_settings *rm = settings;
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        int rc = cli_open_box(cli, args.values[0], &box);

        how.user = rm->user;
        for (size_t i = 1; box != NULL && i < args.count; i++) {
                cubby_error err = {0};

                if (cubby_file_remove(box, args.values[i], rm->recursive, &how, &err) < 0 &&
                        !(rm->force && err.code == CUBBY_E_NOT_FOUND))
                        rc = cli_fail_error(cli, &err);
        }
        return rc;
}

static int make_folders(struct cli *cli, const void *settings, struct args args)
{
        const struct change_settings *mkdir = settings;
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        uint32_t mode = 0;

        if (mkdir->mode != NULL && !parse_mode(mkdir->mode, &mode))
                return cli_usage(cli, "--mode: '%s' is no octal number up to 7777", mkdir->mode);
        int rc = cli_open_box(cli, args.values[0], &box);
        how.user = mkdir->user;
        for (size_t i = 1; box != NULL && i < args.count; i++) {
                cubby_error err = {0};

                if (cubby_file_make_folder(box, args.values[i], mode, mkdir->parents, &how, &err) <
                        0)
                        rc = cli_fail_error(cli, &err);
        }
        return rc;
}

/* Into a folder: under its own name. NULL: out of memory. */
static char *place_in(const char *folder, const char *from)
{
        size_t size = strlen(from);
        char *place = NULL;

        while (size > 1 && from[size - 1] == '/')
                size--;
        size_t begin = size;
        while (begin > 0 && from[begin - 1] != '/')
                begin--;
        return asprintf(&place, "%s/%.*s", folder, (int)(size - begin), from + begin) < 0 ? NULL
                                                                                          : place;
}

static int move_file(struct cli *cli, const void *settings, struct args args)
{
        const struct change_settings *mv = settings;
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        AUTO_FREE char *inside = NULL;
        const char *from = args.values[1];
        const char *to = args.values[2];
        cubby_file_info info = {0};
        cubby_error err = {0};
        int rc = cli_open_box(cli, args.values[0], &box);

        if (rc != 0)
                return rc;
        how.user = mv->user;
        if (cubby_file_stat(box, to, true, &how, &info, &err) == 0 &&
                info.type == CUBBY_FILE_FOLDER) {
                inside = place_in(to, from);
                if (inside == NULL)
                        rc = cli_no_memory(cli);
                to = inside;
        }
        cubby_file_info_clear(&info);
        if (rc == 0 && cubby_file_rename(box, from, to, !mv->no_clobber, &how, &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

const struct command command_fs_rm = {
        .group = "fs",
        .name = "rm",
        .usage = "[OPTIONS] BOX PATH...",
        .summary = "Remove files, links and folders of a box",
        .details = "A link goes, not what it leads to. Without -r a folder has to be empty.",
        .examples = "cubby fs rm web /srv/greeting\ncubby fs rm -r web /srv/old",
        .options = {rm_options},
        .settings_size = sizeof(struct change_settings),
        .min_args = 2,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = remove_files,
};

const struct command command_fs_mkdir = {
        .group = "fs",
        .name = "mkdir",
        .usage = "[OPTIONS] BOX FOLDER...",
        .summary = "Make folders in a box",
        .examples = "cubby fs mkdir -p web /srv/data/in",
        .options = {mkdir_options},
        .settings_size = sizeof(struct change_settings),
        .min_args = 2,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = make_folders,
};

const struct command command_fs_mv = {
        .group = "fs",
        .name = "mv",
        .usage = "[OPTIONS] BOX FROM TO",
        .summary = "Move or rename a file of a box",
        .details = "Into a folder when TO is one. Between two file systems of the box (/dev/shm is "
                   "one) nothing is moved.",
        .examples = "cubby fs mv web /srv/new /srv/current",
        .options = {mv_options},
        .settings_size = sizeof(struct change_settings),
        .min_args = 3,
        .max_args = 3,
        .arguments = ARGS_BOX,
        .run = move_file,
};
