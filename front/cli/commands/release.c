/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

struct release_settings {
        const char *config;
};

#define AT(field) offsetof(struct release_settings, field)

static const struct option options[] = {
        {0, "config", OPTION_TEXT, AT(config), "FILE", "YAML with a section 'sandbox:'", 0, 0},
        OPTIONS_END,
};

/* An unknown id is no error, as in the library; it is worth a note. */
static int release(struct cli *cli, const void *settings, struct args args)
{
        const struct release_settings *asked = settings;
        cubby_provider_options open = CUBBY_INIT(cubby_provider_options);
        cubby_error err = {0};
        int rc = cli_open(cli);

        open.config_file = asked->config;
        for (size_t i = 0; rc == 0 && i < args.count; i++) {
                if (cubby_pool_release(cli->cubby, &open, args.values[i], &err) == 0)
                        (void)printf("%s\n", args.values[i]);
                else if (err.code == CUBBY_E_NOT_FOUND)
                        cli_note(cli, "%s", err.message);
                else
                        rc = cli_fail_error(cli, &err);
        }
        return rc;
}

const struct command command_release = {
        .name = "release",
        .usage = "[OPTIONS] ID...",
        .summary = "Let the box of a conversation wait, warm",
        .details = "For boxes of 'cubby acquire': the next acquire of the same user and thread "
                   "gets it back. It ends when its idle time is over. Boxes that a living process "
                   "has are left alone.",
        .examples = "cubby release $(cubby id --user alice --thread t1)",
        .options = {options},
        .settings_size = sizeof(struct release_settings),
        .min_args = 1,
        .max_args = LIST_MAX,
        .run = release,
};
