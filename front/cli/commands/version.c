/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "commands.h"

struct version_settings {
        const char *format;
};

static const struct option options[] = {
        {'f', "format", OPTION_TEXT, offsetof(struct version_settings, format), "FORMAT",
                "json, or a template such as '{{.version}}'", 0, 0},
        OPTIONS_END,
};

static int print_version(struct cli *cli, const void *settings, struct args args)
{
        const struct version_settings *version = settings;
        json_t *object;
        int rc;

        if (version->format == NULL) {
                (void)printf("cubby %s (library %s)\n", CUBBY_VERSION, cubby_version());
                return 0;
        }
        object = json_pack("{s:s, s:s}", "version", CUBBY_VERSION, "library", cubby_version());
        rc = object == NULL ? cli_no_memory(cli) : print_json(cli, object, version->format);
        json_decref(object);
        return rc;
}

const struct command command_version = {
        .name = "version",
        .usage = "[OPTIONS]",
        .summary = "Print the version",
        .examples = "cubby version\n"
                    "cubby version --format '{{.version}}'",
        .options = {options},
        .settings_size = sizeof(struct version_settings),
        .run = print_version,
};
