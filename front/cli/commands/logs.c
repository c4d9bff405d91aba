/* SPDX-License-Identifier: Apache-2.0 */
#include "../values.h"
#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

struct logs_settings {
        bool follow, timestamps;
        const char *tail, *since;
};

#define AT(field) offsetof(struct logs_settings, field)

static const struct option options[] = {
        {'f', "follow", OPTION_FLAG, AT(follow), NULL, "go on until the box ends", 0, 0},
        {0, "since", OPTION_TEXT, AT(since), "TIME",
                "only what came after: 10m (ago), 2026-01-02T03:04:05Z or Unix seconds", 0, 0},
        {'n', "tail", OPTION_TEXT, AT(tail), "LINES", "only the last lines; 'all' for all", 0, 0},
        {'t', "timestamps", OPTION_FLAG, AT(timestamps), NULL, "put the time before each line", 0,
                0},
        {0, "until", OPTION_REFUSED, 0, NULL, "cut the output with another tool", 0, 0},
        {0, "details", OPTION_REFUSED, 0, NULL, "labels are in 'cubby inspect BOX'", 0, 0},
        OPTIONS_END,
};

struct printer {
        bool timestamps;
        bool in_line[3]; /* by stream: the last piece ended inside a line */
        int error;       /* errno of a failed write */
};

static void print_stamped(struct printer *printer, FILE *out, int stream, int64_t time_ns,
        const char *text, size_t size)
{
        char stamp[VALUE_TEXT_MAX];

        while (size > 0) {
                const char *end = memchr(text, '\n', size);
                size_t length = end == NULL ? size : (size_t)(end - text) + 1;

                if (!printer->in_line[stream])
                        (void)fprintf(out, "%s ", format_stamp(time_ns, stamp));
                (void)fwrite(text, 1, length, out);
                printer->in_line[stream] = end == NULL;
                text += length;
                size -= length;
        }
}

static int print_piece(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        struct printer *printer = data;
        FILE *out = stream == 2 ? stderr : stdout;

        if (printer->timestamps)
                print_stamped(printer, out, stream == 2 ? 2 : 1, time_ns, bytes, size);
        else
                (void)fwrite(bytes, 1, size, out);
        if (fflush(out) == 0)
                return 0;
        printer->error = errno;
        return -1;
}

static int read_options(struct cli *cli, const struct logs_settings *logs, cubby_log_options *ret)
{
        uint64_t lines = 0;

        ret->follow = logs->follow;
        ret->tail_lines = -1;
        if (logs->tail != NULL && strcmp(logs->tail, "all") != 0) {
                if (!parse_number(logs->tail, &lines) || lines > INT32_MAX)
                        return cli_usage(cli,
                                "--tail: '%s' is not a number of lines; write for example 100 or "
                                "all",
                                logs->tail);
                ret->tail_lines = (int64_t)lines;
        }
        if (logs->since != NULL && !parse_since(logs->since, now_ns(), &ret->since_ns))
                return cli_usage(cli,
                        "--since: '%s' is not a time; write for example 10m, "
                        "2026-01-02T03:04:05Z or Unix seconds",
                        logs->since);
        return 0;
}

static int print_logs(struct cli *cli, const void *settings, struct args args)
{
        const struct logs_settings *logs = settings;
        AUTO_BOX cubby_box *box = NULL;
        cubby_log_options log_options = CUBBY_INIT(cubby_log_options);
        struct printer printer = {.timestamps = logs->timestamps};
        cubby_error err = {0};
        int rc = read_options(cli, logs, &log_options);

        if (rc == 0)
                rc = cli_open_box(cli, args.values[0], &box);
        if (rc != 0)
                return rc;
        if (log_options.tail_lines == 0 && !log_options.follow)
                return 0;
        rc = cubby_box_logs(box, &log_options, print_piece, &printer, &err);
        if (printer.error == EPIPE)
                return EXIT_SIGNAL_BASE + SIGPIPE;
        if (printer.error != 0)
                return cli_fail(
                        cli, "the output could not be written: %s", strerror(printer.error));
        return rc < 0 ? cli_fail_error(cli, &err) : 0;
}

const struct command command_logs = {
        .name = "logs",
        .usage = "[OPTIONS] BOX",
        .summary = "Print the kept output of a box's command",
        .details = "The last 16 MiB are kept. What the command wrote to its standard error goes to "
                   "standard error. With -f it ends with the box, or when the box is removed; a "
                   "box that was not started yet is waited for.",
        .examples = "cubby logs work\n"
                    "cubby logs -f --tail 10 work\n"
                    "cubby logs -t --since 5m work",
        .options = {options},
        .settings_size = sizeof(struct logs_settings),
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_BOX,
        .run = print_logs,
};
