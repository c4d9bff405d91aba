/* SPDX-License-Identifier: Apache-2.0 */
#include "../foreground.h"
#include "../format.h"
#include "../progress.h"
#include "../settings.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct run_settings {
        struct box_settings box; /* first: the shared tables count on it */
        bool detach;
        struct number timeout;
        const char *format, *from;
};

static const struct option options[] = {
        {'d', "detach", OPTION_FLAG, offsetof(struct run_settings, detach), NULL,
                "leave when the command runs, print the id of the box", 0, 0},
        {0, "format", OPTION_TEXT, offsetof(struct run_settings, format), "json",
                "print one JSON object about the run, with the output in it", 0, 0},
        {0, "from", OPTION_TEXT, offsetof(struct run_settings, from), "SNAPSHOT",
                "continue a snapshot; the arguments are a command in it, if any", 0, 0},
        {0, "timeout", OPTION_DURATION, offsetof(struct run_settings, timeout), "DURATION",
                "kill the command after this time; exit code 124", 1, UINT64_C(31536000000)},
        OPTIONS_END,
};

static int check(struct cli *cli, const struct run_settings *run)
{
        if (run->format != NULL && strcmp(run->format, "json") != 0)
                return cli_usage(cli, "--format: '%s' is not known; it can be json", run->format);
        if (run->detach && run->timeout.given)
                return cli_usage(cli,
                        "--timeout bounds a command that is waited for; give a "
                        "detached box an end with --ttl");
        if (run->format != NULL && run->box.tty)
                return cli_usage(cli, "--format json collects the output; leave out -t");
        if (run->box.idle && !run->detach)
                return cli_usage(cli, "--idle runs no command to wait for; add -d");
        return run->detach ? 0 : foreground_check_tty(cli, run->box.tty, run->box.input);
}

static int print_result(struct cli *cli, cubby_box *box, const struct foreground_end *end,
        const struct capture *capture, int code, int64_t started_ms, int64_t booted_ms)
{
        cubby_box_info info = {0};
        json_t *object = json_object();
        int rc;

        /* A box that is removed when it ends has no record any more. */
        (void)cubby_box_get_info(box, &info, NULL);
        json_object_set_new(object, "id", json_string(cubby_box_id(box)));
        if (info.name != NULL)
                json_object_set_new(object, "name", json_string(info.name));
        if (end != NULL) {
                json_object_set_new(object, "exit_code", json_integer(code));
                json_object_set_new(object, "signal", json_integer(end->exit.signal));
                json_object_set_new(object, "timed_out", json_boolean(end->timed_out));
                json_object_set_new(object, "oom", json_boolean(end->exit.oom));
                json_object_set_new(object, "incomplete", json_boolean(end->exit.incomplete));
                json_object_set_new(
                        object, "duration_ms", json_integer(monotonic_ms() - booted_ms));
        }
        json_object_set_new(object, "start_ms", json_integer(booted_ms - started_ms));
        cubby_box_info_clear(&info);
        if (capture != NULL && !capture_to_json(capture, object))
                rc = cli_no_memory(cli);
        else
                rc = print_json(cli, object, "json");
        json_decref(object);
        return rc;
}

static int run_detached(
        struct cli *cli, cubby_box *box, const struct run_settings *run, int64_t started_ms)
{
        if (run->format != NULL)
                return print_result(cli, box, NULL, NULL, 0, started_ms, monotonic_ms());
        (void)printf("%s\n", cubby_box_id(box));
        return 0;
}

static int run_attached(struct cli *cli, cubby_box *box, const struct run_settings *run,
        bool remove, int64_t started_ms)
{
        struct capture capture = {0};
        struct foreground_end end = {0};
        struct foreground how = {.tty = run->box.tty,
                .input = run->box.input,
                .remove = remove,
                .owner = true,
                .timeout_ms = (int64_t)run->timeout.value,
                .capture = run->format == NULL ? NULL : &capture};
        int64_t booted_ms = monotonic_ms();
        int rc = foreground_attach(cli, box, &how, &end);

        if (run->format != NULL && (end.ended || end.timed_out)) {
                int printed = print_result(cli, box, &end, &capture, rc, started_ms, booted_ms);

                rc = printed == 0 ? rc : printed;
        }
        capture_clear(&capture);
        return rc;
}

/*
 * The first run in a home fetches the guest kernel, which can take minutes. It is done before
 * there is a box, so that an interrupt leaves none.
 */
static int fetch_kernel(struct cli *cli, const struct run_settings *run, const char *image)
{
        AUTO_CUBBY_FREE char *found = NULL;
        cubby_kernel_list *kernels = NULL;
        cubby_error err = {0};
        size_t count = 0;
        bool machine = run->box.engine == NULL || strcmp(run->box.engine, "microvm") == 0;

        /* a missing image is told by the creation */
        if (!machine || run->box.kernel != NULL ||
                cubby_image_inspect(cli->cubby, image, &found, NULL) < 0)
                return 0;
        if (cubby_kernels(cli->cubby, &kernels, &err) < 0)
                return cli_fail_error(cli, &err);
        count = kernels->count;
        cubby_kernel_list_free(kernels);
        if (count == 0 && cubby_kernel_ensure(cli->cubby, NULL, NULL, &err) < 0)
                return cli_fail_error(cli, &err);
        return 0;
}

/* The box and its machine; with --from the machine goes on already. */
static int make_box(struct cli *cli, const struct run_settings *run,
        const struct box_request *request, cubby_box **ret)
{
        cubby_error err = {0};
        int rc = cli_open(cli);
        int made;

        if (rc == 0 && run->from == NULL) {
                rc = fetch_kernel(cli, run, request->options.image);
                pump_block_signals(NULL); /* the start takes them; nothing here takes long */
        }
        if (rc != 0)
                return rc;
        made = run->from == NULL
                ? cubby_box_create(cli->cubby, &request->options, ret, &err)
                : cubby_box_continue(cli->cubby, run->from, &request->options, ret, &err);
        if (made == 0)
                return 0;
        return run->from == NULL ? box_request_fail(cli, request, &err) : cli_fail_error(cli, &err);
}

/* With --from the snapshot stands where the image would. */
static int check_words(
        struct cli *cli, const struct run_settings *run, struct args args, struct args *ret)
{
        if (run->from == NULL && args.count == 0)
                return cli_usage(cli,
                        "'run' needs an image, or --from SNAPSHOT; usage: cubby run [OPTIONS] "
                        "IMAGE [COMMAND [ARG...]]");
        if (run->from != NULL && args.count == 0 && !run->detach)
                return cli_usage(cli, "without a command, --from wants -d");
        ret->values = calloc(args.count + 2, sizeof(*ret->values));
        if (ret->values == NULL)
                return cli_no_memory(cli);
        if (run->from != NULL)
                ret->values[ret->count++] = (char *)(uintptr_t)run->from;
        for (size_t i = 0; i < args.count; i++)
                ret->values[ret->count++] = args.values[i];
        return 0;
}

static int run_box(struct cli *cli, const void *settings, struct args args)
{
        const struct run_settings *run = settings;
        AUTO_BOX cubby_box *box = NULL;
        struct box_request request = {0};
        struct args words = {0};
        int64_t started_ms = monotonic_ms();
        bool remove;
        int rc = check_words(cli, run, args, &words);

        if (rc == 0)
                rc = check(cli, run);
        if (rc == 0)
                rc = box_request_make(cli, &run->box, words, &request);
        if (rc != 0) {
                free(words.values);
                return rc;
        }
        /* Nobody could name it again. */
        remove = run->box.remove || (!run->detach && run->box.name == NULL);
        request.options.auto_remove = remove;
        rc = make_box(cli, run, &request, &box);
        box_request_clear(&request);
        free(words.values);
        if (rc != 0)
                return rc;
        pump_block_signals(NULL);
        rc = run->from != NULL ? 0 : foreground_start(cli, box, true);
        if (rc != 0) {
                /* It never ran its command: the name is free again. */
                (void)cubby_box_remove(box, true, NULL);
                return rc;
        }
        if (run->detach)
                return run_detached(cli, box, run, started_ms);
        return run_attached(cli, box, run, remove, started_ms);
}

const struct command command_run = {
        .name = "run",
        .usage = "[OPTIONS] IMAGE [COMMAND [ARG...]]",
        .summary = "Make a box from an image and run a command in it",
        .details =
                "Without -d, the command's output comes here and its exit code is returned. A box "
                "that has neither a name nor -d is removed when the command has ended, as with "
                "--rm. Options end at IMAGE. With -i and -t, ctrl-p ctrl-q leaves and the box goes "
                "on. Interrupts are passed on to the command; three within two seconds end the "
                "box.",
        .examples = "cubby run busybox echo hello\n"
                    "cubby run -it debian bash\n"
                    "cubby run --timeout 30s -m 1G --cpus 2 python python3 -c 'print(6*7)'\n"
                    "cubby run -i busybox wc -c <file\n"
                    "cubby run -d --idle --name work debian",
        .options = {options, box_options, box_options_refused},
        .settings_size = sizeof(struct run_settings),
        .max_args = SIZE_MAX,
        .stops_at_argument = true,
        .arguments = ARGS_IMAGE,
        .run = run_box,
};
