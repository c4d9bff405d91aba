/* SPDX-License-Identifier: Apache-2.0 */
#include "../text.h"
#include "commands.h"

#include <string.h>

struct acquire_settings {
        const char *user, *thread, *config, *format;
        struct number timeout;
};

#define AT(field) offsetof(struct acquire_settings, field)

static const struct option options[] = {
        {0, "config", OPTION_TEXT, AT(config), "FILE", "YAML with a section 'sandbox:'", 0, 0},
        {0, "format", OPTION_TEXT, AT(format), "FORMAT", "text or json", 0, 0},
        {0, "thread", OPTION_TEXT, AT(thread), "NAME",
                "the conversation; without it a box that no other call finds", 0, 0},
        {0, "timeout", OPTION_SECONDS, AT(timeout), "DURATION",
                "how long to wait for room or another acquire", 1, 0},
        {0, "user", OPTION_TEXT, AT(user), "NAME", "whose conversation; default: nobody's", 0, 0},
        OPTIONS_END,
};

static int print_acquired(struct cli *cli, const char *format, const cubby_acquired *acquired)
{
        if (format == NULL || strcmp(format, "text") == 0) {
                (void)printf("%s %s%s\n", acquired->id, cubby_served_name(acquired->served),
                        acquired->fresh ? " fresh" : "");
                return 0;
        }
        (void)printf("{\"id\": \"%s\", \"box_id\": \"%s\", \"served\": \"%s\", \"fresh\": %s, "
                     "\"generation\": %llu}\n",
                acquired->id, cubby_box_id(acquired->box), cubby_served_name(acquired->served),
                acquired->fresh ? "true" : "false", (unsigned long long)acquired->generation);
        return 0;
}

static int acquire(struct cli *cli, const void *settings, struct args args)
{
        const struct acquire_settings *asked = settings;
        cubby_provider_options open = CUBBY_INIT(cubby_provider_options);
        cubby_acquire_options wish = CUBBY_INIT(cubby_acquire_options);
        cubby_provider *provider = NULL;
        cubby_acquired acquired = {0};
        cubby_error err = {0};
        int rc;

        if (asked->format != NULL && strcmp(asked->format, "text") != 0 &&
                strcmp(asked->format, "json") != 0)
                return cli_usage(cli, "--format is text or json");
        rc = cli_open(cli);
        if (rc != 0)
                return rc;
        open.config_file = asked->config;
        open.leave = true;
        wish.user = asked->user == NULL ? "" : asked->user;
        wish.user_size = strlen(wish.user);
        wish.thread = asked->thread;
        wish.thread_size = asked->thread == NULL ? 0 : strlen(asked->thread);
        wish.timeout_ms = (int64_t)asked->timeout.value;
        if (cubby_provider_open(cli->cubby, &open, &provider, &err) < 0)
                return cli_fail_error(cli, &err);
        if (cubby_provider_acquire(provider, &wish, &acquired, &err) < 0)
                rc = cli_fail_error(cli, &err);
        else
                rc = print_acquired(cli, asked->format, &acquired);
        cubby_box_close(acquired.box);
        cubby_provider_close(provider);
        return rc;
}

const struct command command_acquire = {
        .name = "acquire",
        .usage = "[OPTIONS]",
        .summary = "Get the box of a conversation",
        .details = "Prints its id and how it was served: reused, reclaimed, spare, cloned or "
                   "booted, and 'fresh' when nothing of an earlier turn is in it. The box is "
                   "called POOL-ID and stays active until 'cubby release ID', or its idle time.",
        .examples = "cubby acquire --user alice --thread t1\n"
                    "cubby exec cubby-$(cubby id --user alice --thread t1) ls",
        .options = {options},
        .settings_size = sizeof(struct acquire_settings),
        .run = acquire,
};
