/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../values.h"
#include "commands.h"

struct top_settings {
        const char *format;
};

static const struct option options[] = {
        {0, "format", OPTION_TEXT, offsetof(struct top_settings, format), "FORMAT",
                "table, json, or a template such as '{{.PID}} {{.Command}}'", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"UID", "UID"},
        {"PID", "PID"},
        {"PPID", "PPID"},
        {"State", "STATE"},
        {"Age", "AGE"},
        {"Time", "CPU TIME"},
        {"RSS", "RSS"},
        {"Command", "COMMAND"},
        {NULL, NULL},
};

static json_t *document(const cubby_process *process)
{
        char state[2] = {process->state, '\0'};

        return json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:o}", "pid",
                (json_int_t)process->pid, "ppid", (json_int_t)process->parent, "uid",
                (json_int_t)process->uid, "state", json_text(state), "cpu_us",
                (json_int_t)process->cpu_us, "rss_bytes", (json_int_t)process->rss_bytes, "age_ms",
                (json_int_t)process->age_ms, "command", json_text(process->command));
}

static void add_process(struct list *list, const cubby_process *process)
{
        char state[2] = {process->state, '\0'};
        char text[VALUE_TEXT_MAX];
        json_t *row = list_row(list, document(process));

        if (row == NULL)
                return;
        (void)snprintf(text, sizeof(text), "%u", process->uid);
        list_text(list, row, "UID", text);
        (void)snprintf(text, sizeof(text), "%u", process->pid);
        list_text(list, row, "PID", text);
        (void)snprintf(text, sizeof(text), "%u", process->parent);
        list_text(list, row, "PPID", text);
        list_text(list, row, "State", state);
        list_text(list, row, "Age", format_age((int64_t)(process->age_ms / 1000), text));
        list_text(list, row, "Time", format_millis(process->cpu_us / 1000, text));
        list_text(list, row, "RSS", format_binary(process->rss_bytes, text));
        list_text(list, row, "Command", process->command);
}

static int print_processes(struct cli *cli, const void *settings, struct args args)
{
        const struct top_settings *top = settings;
        struct list list = {.cli = cli, .format = top->format, .columns = columns};
        AUTO_BOX cubby_box *box = NULL;
        cubby_process *processes = NULL;
        cubby_error err = {0};
        bool truncated = false;
        size_t count = 0;
        int rc = list_begin(&list);

        if (rc == 0)
                rc = cli_open_box(cli, args.values[0], &box);
        if (rc == 0 && cubby_box_processes(box, &processes, &count, &truncated, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0) {
                for (size_t i = 0; i < count; i++)
                        add_process(&list, &processes[i]);
                rc = list_print(&list);
        }
        if (rc == 0 && truncated)
                cli_note(cli, "there are more processes than are shown");
        cubby_free(processes);
        list_clear(&list);
        return rc;
}

const struct command command_top = {
        .name = "top",
        .usage = "[OPTIONS] BOX",
        .summary = "List the processes in a box",
        .details = "Templates know .UID, .PID, .PPID, .State, .Age, .Time, .RSS and .Command.",
        .examples = "cubby top work",
        .options = {options},
        .settings_size = sizeof(struct top_settings),
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_BOX,
        .run = print_processes,
};
