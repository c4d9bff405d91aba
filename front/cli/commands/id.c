/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <string.h>

struct id_settings {
        const char *user, *thread;
};

#define AT(field) offsetof(struct id_settings, field)

static const struct option options[] = {
        {0, "thread", OPTION_TEXT, AT(thread), "NAME", "the conversation", 0, 0},
        {0, "user", OPTION_TEXT, AT(user), "NAME", "whose conversation; default: nobody's", 0, 0},
        OPTIONS_END,
};

static int print_id(struct cli *cli, const void *settings, struct args args)
{
        const struct id_settings *asked = settings;
        const char *user = asked->user == NULL ? "" : asked->user;
        const char *thread = asked->thread == NULL ? "" : asked->thread;
        cubby_error err = {0};
        char token[17];

        if (asked->thread == NULL)
                return cli_usage(cli, "--thread is needed");
        if (cubby_scope_token(user, strlen(user), thread, strlen(thread), token, &err) < 0)
                return cli_fail_error(cli, &err);
        (void)printf("%s\n", token);
        return 0;
}

const struct command command_id = {
        .name = "id",
        .usage = "--user NAME --thread NAME",
        .summary = "Print the id that a conversation's box has",
        .details = "The id is a name made from both, and no secret.",
        .examples = "cubby id --user alice --thread thread-1",
        .options = {options},
        .settings_size = sizeof(struct id_settings),
        .run = print_id,
};
