/* SPDX-License-Identifier: Apache-2.0 */
#include "../copy_bar.h"
#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct cp_settings {
        bool archive, follow, quiet;
        const char *user, *owner;
};

#define AT(field) offsetof(struct cp_settings, field)

static const struct option options[] = {
        {'a', "archive", OPTION_FLAG, AT(archive), NULL, "keep owners (uid and gid)", 0, 0},
        {'L', "follow-link", OPTION_FLAG, AT(follow), NULL,
                "copy what SOURCE leads to when it is a link", 0, 0},
        {'q', "quiet", OPTION_FLAG, AT(quiet), NULL, "show no progress", 0, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user in a box (default: the box's)",
                0, 0},
        {0, "owner", OPTION_TEXT, AT(owner), "USER[:GROUP]",
                "what comes into a box belongs to this user", 0, 0},
        OPTIONS_END,
};

/* One of the two ends: a box and a path in it, or a path here. */
struct end {
        char *box; /* NULL: here; the caller's */
        const char *path;
        bool stream; /* "-" */
};

/* As with Docker: "BOX:PATH"; a path here with a colon in it begins with "/" or ".". */
static struct end read_end(const char *word)
{
        struct end end = {.path = word, .stream = strcmp(word, "-") == 0};
        const char *colon = strchr(word, ':');

        if (colon == NULL || word[0] == '/' || word[0] == '.')
                return end;
        end.box = strndup(word, (size_t)(colon - word));
        end.path = colon + 1;
        return end;
}

static int check(
        struct cli *cli, const struct cp_settings *cp, const struct end *from, const struct end *to)
{
        if (from->box == NULL && to->box == NULL)
                return cli_usage(cli, "one of SOURCE and DESTINATION must be BOX:PATH");
        if ((from->box != NULL && *from->path == '\0') || (to->box != NULL && *to->path == '\0'))
                return cli_usage(cli, "a path must follow the ':' of a box");
        if (cp->archive && cp->owner != NULL)
                return cli_usage(cli, "'--archive' keeps owners and '--owner' sets them; give one");
        if (to->box == NULL && cp->owner != NULL)
                return cli_usage(cli, "'--owner' is for what comes into a box");
        if (to->stream && cp->archive)
                return cli_usage(cli, "an archive always has the owners; leave '--archive' out");
        if (from->stream && cp->follow)
                return cli_usage(cli, "links of an archive are never followed");
        if (to->stream && isatty(STDOUT_FILENO) == 1)
                return cli_usage(cli, "an archive is not written to a terminal; redirect it");
        return 0;
}

static int copy(const struct end *from, cubby_box *from_box, const struct end *to,
        cubby_box *to_box, const cubby_copy_options *how, cubby_error *err)
{
        if (from_box != NULL && to_box != NULL)
                return cubby_copy_between(from_box, from->path, to_box, to->path, how, err);
        if (from->stream)
                return cubby_tar_in(to_box, STDIN_FILENO, to->path, how, err);
        if (to->stream)
                return cubby_tar_out(from_box, from->path, STDOUT_FILENO, how, err);
        if (to_box != NULL)
                return cubby_copy_in(to_box, from->path, to->path, how, err);
        return cubby_copy_out(from_box, from->path, to->path, how, err);
}

static int run(
        struct cli *cli, const struct cp_settings *cp, const struct end *from, const struct end *to)
{
        cubby_copy_options how = CUBBY_INIT(cubby_copy_options);
        AUTO_BOX cubby_box *from_box = NULL;
        AUTO_BOX cubby_box *to_box = NULL;
        struct copy_bar bar = {0};
        cubby_error err = {0};
        int rc = check(cli, cp, from, to);
        int number;

        if (rc == 0 && from->box != NULL)
                rc = cli_open_box(cli, from->box, &from_box);
        if (rc == 0 && to->box != NULL)
                rc = cli_open_box(cli, to->box, &to_box);
        if (rc != 0)
                return rc;
        how.file.user = cp->user;
        how.archive = cp->archive;
        how.follow = cp->follow;
        how.owner = cp->owner;
        how.progress = copy_bar_progress;
        how.progress_data = &bar;
        copy_bar_begin(&bar, cp->quiet);
        rc = copy(from, from_box, to, to_box, &how, &err);
        number = copy_bar_end(&bar);
        if (rc == 0)
                return 0;
        if (err.code == CUBBY_E_CANCELLED && number != 0)
                return EXIT_SIGNAL_BASE + number;
        if (err.sys_errno == EPIPE && to->stream)
                return EXIT_SIGNAL_BASE + SIGPIPE; /* nobody reads the archive any more */
        return cli_fail_error(cli, &err);
}

static int copy_files(struct cli *cli, const void *settings, struct args args)
{
        struct end from = read_end(args.values[0]);
        struct end to = read_end(args.values[1]);
        int rc = run(cli, settings, &from, &to);

        free(from.box);
        free(to.box);
        return rc;
}

const struct command command_cp = {
        .name = "cp",
        .usage = "[OPTIONS] SOURCE DESTINATION",
        .summary = "Copy files into a box, out of it, or from one to another",
        .details = "One of the two is BOX:PATH, or both are. A folder goes into a folder that is "
                   "there, or becomes one that is not; FOLDER/. means what is in it. '-' stands "
                   "for a tar archive on standard input or output. A path in a box begins at /; "
                   "a path here with a colon in it is written with ./ in front.",
        .examples = "cubby cp notes.txt work:/srv\n"
                    "cubby cp work:/var/log ./logs\n"
                    "cubby cp one:/data/. two:/data\n"
                    "cubby cp - work:/srv <files.tar.gz\n"
                    "cubby cp work:/etc - >etc.tar",
        .options = {options},
        .settings_size = sizeof(struct cp_settings),
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_FILE,
        .run = copy_files,
};
