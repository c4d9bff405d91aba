/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../text.h"
#include "commands.h"

#include <string.h>

struct watch_settings {
        const char *format, *user;
        bool flat;
        struct number count, timeout;
};

#define AT(field) offsetof(struct watch_settings, field)

static const struct option options[] = {
        {'n', "count", OPTION_NUMBER, AT(count), "N", "end after so many events", 1, UINT32_MAX},
        {0, "flat", OPTION_FLAG, AT(flat), NULL, "only this folder, none below it", 0, 0},
        {0, "format", OPTION_TEXT, AT(format), "FORMAT", "json: an object for each event", 0, 0},
        {0, "timeout", OPTION_SECONDS, AT(timeout), "TIME",
                "end with exit code 124 when so long nothing has happened", 1, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER", "as this user (default: the box's)", 0, 0},
        OPTIONS_END,
};

static const char *kind_name(int kind)
{
        switch (kind) {
        case CUBBY_WATCH_CREATED:
                return "created";
        case CUBBY_WATCH_WRITTEN:
                return "written";
        case CUBBY_WATCH_REMOVED:
                return "removed";
        case CUBBY_WATCH_RENAMED:
                return "renamed";
        case CUBBY_WATCH_ATTRIBUTES:
                return "attributes";
        default:
                return "overflow";
        }
}

static int print_json_event(struct cli *cli, const cubby_watch_event *event)
{
        json_t *value = json_pack("{s:s, s:b, s:o, s:o}", "event", kind_name(event->kind), "folder",
                event->folder ? 1 : 0, "path", json_text(event->path), "from",
                json_text(event->from));
        int rc = value == NULL || json_dumpf(value, stdout, JSON_COMPACT) < 0 ? cli_no_memory(cli)
                                                                              : 0;

        json_decref(value);
        (void)putchar('\n');
        return rc;
}

/* "created a/b", "renamed a -> b"; a folder ends with a slash. Control bytes are escaped, as
 * a name may hold newlines. */
static int print_event(struct cli *cli, const cubby_watch_event *event)
{
        AUTO_FREE char *path = text_escape(event->path, false);
        AUTO_FREE char *from = text_escape(event->from, false);
        const char *end = event->folder ? "/" : "";

        if (path == NULL || from == NULL)
                return cli_no_memory(cli);
        (void)fputs(kind_name(event->kind), stdout);
        if (event->from[0] != '\0')
                (void)printf(" %s%s ->", from, end);
        if (event->kind != CUBBY_WATCH_OVERFLOW)
                (void)printf(" %s%s", event->path[0] == '\0' ? "." : path, end);
        (void)putchar('\n');
        return 0;
}

static int follow(struct cli *cli, const struct watch_settings *settings, cubby_watch *watch)
{
        int64_t timeout_ms = settings->timeout.given ? (int64_t)settings->timeout.value : -1;

        for (uint64_t left = settings->count.given ? settings->count.value : UINT64_MAX; left > 0;
                left--) {
                cubby_watch_event event;
                cubby_error err = {0};

                if (cubby_watch_next(watch, timeout_ms, &event, &err) < 0) {
                        if (err.code == CUBBY_E_CLOSED)
                                return 0;
                        return err.code == CUBBY_E_TIMEOUT ? EXIT_TIMED_OUT
                                                           : cli_fail_error(cli, &err);
                }
                int rc = settings->format != NULL ? print_json_event(cli, &event)
                                                  : print_event(cli, &event);
                if (rc == 0 && fflush(stdout) != 0)
                        rc = EXIT_CUBBY; /* nobody reads any more: main says so */
                if (rc != 0)
                        return rc;
        }
        return 0;
}

static int watch_folder(struct cli *cli, const void *data, struct args args)
{
        const struct watch_settings *settings = data;
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        AUTO_BOX cubby_box *box = NULL;
        cubby_watch *watch = NULL;
        cubby_error err = {0};

        if (settings->format != NULL && strcmp(settings->format, "json") != 0)
                return cli_usage(cli, "--format of fs watch is json");
        int rc = cli_open_box(cli, args.values[0], &box);
        how.user = settings->user;
        if (rc == 0 &&
                cubby_watch_open(box, args.count > 1 ? args.values[1] : ".", !settings->flat, &how,
                        &watch, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0)
                rc = follow(cli, settings, watch);
        cubby_watch_close(watch);
        return rc;
}

const struct command command_fs_watch = {
        .group = "fs",
        .name = "watch",
        .usage = "[OPTIONS] BOX [FOLDER]",
        .summary = "Tell what happens to the files in a folder of a box",
        .details = "Prints created, written, removed, renamed, attributes, and overflow when some "
                   "were lost, with the path below FOLDER. Without FOLDER: the box's working "
                   "folder. It ends when FOLDER is removed.",
        .examples = "cubby fs watch web /srv\ncubby fs watch -n 1 --timeout 30 web /tmp",
        .options = {options},
        .settings_size = sizeof(struct watch_settings),
        .min_args = 1,
        .max_args = 2,
        .arguments = ARGS_BOX,
        .run = watch_folder,
};
