/* SPDX-License-Identifier: Apache-2.0 */
#include "../foreground.h"
#include "../format.h"
#include "../settings.h"
#include "../terminal.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct exec_settings {
        bool detach, input, tty;
        struct text_list env, env_files;
        const char *workdir, *user, *format;
        struct number timeout;
};

#define AT(field) offsetof(struct exec_settings, field)

static const struct option options[] = {
        {'d', "detach", OPTION_FLAG, AT(detach), NULL, "leave when the command runs", 0, 0},
        {'e', "env", OPTION_LIST, AT(env), "NAME[=VALUE]",
                "set a variable; without a value, pass yours on", 0, 0},
        {0, "env-file", OPTION_LIST, AT(env_files), "FILE",
                "read variables from a file, one a line", 0, 0},
        {0, "format", OPTION_TEXT, AT(format), "json",
                "print one JSON object about the command, with its output in it", 0, 0},
        {'i', "interactive", OPTION_FLAG, AT(input), NULL, "pass standard input to the command", 0,
                0},
        {0, "timeout", OPTION_DURATION, AT(timeout), "DURATION",
                "kill the command and all it started after this time; exit code 124", 1,
                UINT64_C(31536000000)},
        {'t', "tty", OPTION_FLAG, AT(tty), NULL, "give the command a terminal", 0, 0},
        {'u', "user", OPTION_TEXT, AT(user), "USER[:GROUP]",
                "run the command as this user, by name or number", 0, 0},
        {'w', "workdir", OPTION_TEXT, AT(workdir), "DIR",
                "run the command in this folder of the box", 0, 0},
        {0, "privileged", OPTION_REFUSED, 0, NULL,
                "a box has a kernel of its own; run the command as root in it with '-u root'", 0,
                0},
        {0, "detach-keys", OPTION_REFUSED, 0, NULL, "end the command instead", 0, 0},
        OPTIONS_END,
};

static int check(struct cli *cli, const struct exec_settings *exec)
{
        if (exec->format != NULL && strcmp(exec->format, "json") != 0)
                return cli_usage(cli, "--format: '%s' is not known; it can be json", exec->format);
        if (exec->format != NULL && (exec->tty || exec->detach))
                return cli_usage(cli, "--format json collects the output; leave out -t and -d");
        if (exec->detach && (exec->tty || exec->input))
                return cli_usage(cli, "-d leaves the command alone; leave out -i and -t");
        return foreground_check_tty(cli, exec->tty, exec->input);
}

static int print_result(struct cli *cli, const cubby_exit *ended, const struct capture *capture,
        int code, int64_t started_ms)
{
        json_t *object = json_pack("{s:i, s:i, s:b, s:b, s:b, s:I}", "exit_code", code, "signal",
                ended->signal, "timed_out", ended->timed_out, "oom", ended->oom, "incomplete",
                ended->incomplete, "duration_ms", (json_int_t)(monotonic_ms() - started_ms));
        int rc;

        if (object == NULL || !capture_to_json(capture, object))
                rc = cli_no_memory(cli);
        else
                rc = print_json(cli, object, "json");
        json_decref(object);
        return rc == 0 ? code : rc;
}

static int join(struct cli *cli, cubby_exec *command, const struct exec_settings *exec)
{
        struct capture capture = {0};
        struct pump_settings settings = {.exec = command,
                .tty = exec->tty,
                .input = exec->input,
                .capture = exec->format == NULL ? NULL : &capture};
        int64_t started_ms = monotonic_ms();
        cubby_exit ended = {0};
        cubby_error err = {0};
        int rc = EXIT_CUBBY;

        pump_block_signals(NULL);
        switch (pump_run(&settings, &ended, &err)) {
        case PUMP_EXIT:
                rc = exit_code_of(cli, &ended);
                if (exec->format != NULL)
                        rc = print_result(cli, &ended, &capture, rc, started_ms);
                break;
        case PUMP_INTERRUPTED:
                rc = EXIT_SIGNAL_BASE + SIGINT;
                break;
        case PUMP_OUTPUT_CLOSED:
                rc = EXIT_SIGNAL_BASE + SIGPIPE;
                break;
        case PUMP_DETACHED:
        case PUMP_DEADLINE:
        case PUMP_FAILED:
                rc = cli_fail_error(cli, &err);
                break;
        }
        capture_clear(&capture);
        return rc;
}

static void fill(const struct exec_settings *exec, struct args args,
        const struct box_request *request, cubby_exec_options *ret)
{
        *ret = CUBBY_INIT(cubby_exec_options);
        ret->argv = (const char *const *)(args.values + 1);
        ret->env = request->env.items;
        ret->workdir = exec->workdir;
        ret->user = exec->user;
        ret->tty = exec->tty;
        ret->open_stdin = exec->input;
        ret->detach = exec->detach;
        ret->timeout_ms = (int64_t)exec->timeout.value;
        if (exec->tty)
                (void)terminal_size(&ret->rows, &ret->columns);
}

static int exec_command(struct cli *cli, const void *settings, struct args args)
{
        const struct exec_settings *exec = settings;
        AUTO_BOX cubby_box *box = NULL;
        AUTO_EXEC cubby_exec *command = NULL;
        struct box_request request = {0};
        cubby_exec_options start;
        cubby_error err = {0};
        int rc = check(cli, exec);

        if (rc == 0)
                rc = env_collect(cli, &exec->env, &exec->env_files, &request);
        if (rc == 0)
                rc = cli_open_box(cli, args.values[0], &box);
        if (rc == 0) {
                fill(exec, args, &request, &start);
                if (cubby_exec_start(box, &start, &command, &err) < 0)
                        rc = cli_fail_error(cli, &err);
                if (err.code == CUBBY_E_TIMEOUT && start.timeout_ms > 0)
                        rc = EXIT_TIMED_OUT;
        }
        box_request_clear(&request);
        if (rc != 0 || exec->detach)
                return rc;
        return join(cli, command, exec);
}

const struct command command_exec = {
        .name = "exec",
        .usage = "[OPTIONS] BOX COMMAND [ARG...]",
        .summary = "Run a command in a running box",
        .details = "The command's output comes here and its exit code is returned. No shell is "
                   "involved unless you name one. Options end at BOX.",
        .examples = "cubby exec work ls -l /\n"
                    "cubby exec -it work bash\n"
                    "cubby exec -i work tar -x -C /srv <files.tar\n"
                    "cubby exec --timeout 10s -u nobody -w /tmp work sh -c 'id; pwd'",
        .options = {options},
        .settings_size = sizeof(struct exec_settings),
        .min_args = 2,
        .max_args = SIZE_MAX,
        .stops_at_argument = true,
        .arguments = ARGS_BOX,
        .run = exec_command,
};
