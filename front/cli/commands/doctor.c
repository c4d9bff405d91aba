/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../text.h"
#include "commands.h"

#include <string.h>

#define EXIT_UNFIT 1

struct doctor_settings {
        const char *format;
};

static const struct option options[] = {
        {0, "format", OPTION_TEXT, offsetof(struct doctor_settings, format), "FORMAT",
                "table, json, or a template such as '{{.checks}}'", 0, 0},
        OPTIONS_END,
};

static const char *text_of(const json_t *check, const char *name)
{
        const char *text = json_string_value(json_object_get(check, name));

        return text == NULL ? "" : text;
}

static size_t count_status(const json_t *checks, const char *status)
{
        size_t count = 0;
        size_t index;
        json_t *check;

        json_array_foreach(checks, index, check)
        {
                count += strcmp(text_of(check, "status"), status) == 0;
        }
        return count;
}

static const char *colour_of(const char *status)
{
        if (strcmp(status, "ok") == 0)
                return "\033[32m";
        return strcmp(status, "warning") == 0 ? "\033[33m" : "\033[31m";
}

static void print_check(const json_t *check, bool colour, size_t width)
{
        AUTO_FREE char *name = text_escape(text_of(check, "name"), false);
        AUTO_FREE char *found = text_escape(text_of(check, "found"), false);
        AUTO_FREE char *advice = text_escape(text_of(check, "advice"), false);
        const char *status = text_of(check, "status");

        if (name == NULL || found == NULL || advice == NULL)
                return;
        (void)printf("%s%-7s%s  %-*s  %s\n", colour ? colour_of(status) : "", status,
                colour ? "\033[0m" : "", (int)width, name, found);
        if (*advice != '\0')
                (void)printf("%*s%s\n", (int)width + 11, "", advice);
}

static void print_checks(const json_t *checks)
{
        size_t errors = count_status(checks, "error");
        size_t warnings = count_status(checks, "warning");
        bool colour = text_colour(stdout);
        size_t width = 0;
        size_t index;
        json_t *check;

        json_array_foreach(checks, index, check)
        {
                size_t length = strlen(text_of(check, "name"));

                width = length > width && length < 32 ? length : width;
        }
        json_array_foreach(checks, index, check)
        {
                print_check(check, colour, width);
        }
        if (errors > 0)
                (void)printf(
                        "\nBoxes cannot run here until what is marked 'error' is put right.\n");
        else if (warnings > 0)
                (void)printf("\nBoxes can run here; see what is marked 'warning'.\n");
        else
                (void)printf("\nBoxes can run here.\n");
}

static int examine(struct cli *cli, const void *settings, struct args args)
{
        const struct doctor_settings *doctor = settings;
        AUTO_CUBBY_FREE char *text = NULL;
        cubby_error err = {0};
        json_t *report;
        const json_t *checks;
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        if (cubby_doctor(cli->cubby, &text, &err) < 0)
                return cli_fail_error(cli, &err);
        report = json_loads(text, 0, NULL);
        if (report == NULL)
                return cli_no_memory(cli);
        checks = json_object_get(report, "checks");
        if (doctor->format == NULL || strcmp(doctor->format, "table") == 0)
                print_checks(checks);
        else
                rc = print_json(cli, report, doctor->format);
        if (rc == 0 && count_status(checks, "error") > 0)
                rc = EXIT_UNFIT;
        json_decref(report);
        return rc;
}

const struct command command_doctor = {
        .name = "doctor",
        .usage = "[OPTIONS]",
        .summary = "Say what this host offers and lacks",
        .details = "Exit code 1 when something that boxes need is missing.",
        .examples = "cubby doctor\n"
                    "cubby doctor --format json",
        .options = {options},
        .settings_size = sizeof(struct doctor_settings),
        .run = examine,
};
