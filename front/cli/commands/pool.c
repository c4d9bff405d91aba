/* SPDX-License-Identifier: Apache-2.0 */
#include "../text.h"
#include "../values.h"
#include "commands.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define WATCH_MS 1000

struct status_settings {
        bool watch;
        const char *format;
};

#define AT(field) offsetof(struct status_settings, field)

static const struct option status_options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT", "table or json", 0, 0},
        {'w', "watch", OPTION_FLAG, AT(watch), NULL, "again every second, until interrupted", 0, 0},
        OPTIONS_END,
};

static void add_seconds(struct table *table, const json_t *box, const char *name)
{
        char text[VALUE_TEXT_MAX];
        const json_t *seconds = json_object_get(box, name);

        table_add(table,
                json_is_integer(seconds) ? format_age(json_integer_value(seconds), text) : "");
}

static void add_owner(struct table *table, const json_t *owner)
{
        char text[32];

        if (json_is_string(owner)) {
                table_add(table, json_string_value(owner));
                return;
        }
        (void)snprintf(text, sizeof(text), "pid %" PRId64, (int64_t)json_integer_value(owner));
        table_add(table, text);
}

static const char *text_of(const json_t *box, const char *name)
{
        const char *text = json_string_value(json_object_get(box, name));

        return text == NULL ? "" : text;
}

static void print_counters(const json_t *pool)
{
        const char *name;
        json_t *value;
        const char *separator = "  ";

        json_object_foreach(json_object_get(pool, "counters"), name, value)
        {
                if (json_integer_value(value) == 0)
                        continue;
                (void)printf("%s%s %" PRId64, separator, name, (int64_t)json_integer_value(value));
                separator = ", ";
        }
        (void)printf("%s", *separator == ',' ? "\n" : "");
}

static long long number_of(const json_t *pool, const char *name)
{
        return json_integer_value(json_object_get(pool, name));
}

static bool print_pool(const json_t *pool)
{
        struct table table;
        size_t index;
        json_t *box;
        bool done;

        (void)printf("pool %s: %lld active, %lld warm, %lld reserved, %lld ending\n",
                text_of(pool, "pool"), number_of(pool, "active"), number_of(pool, "warm"),
                number_of(pool, "reserved"), number_of(pool, "ending"));
        print_counters(pool);
        table_init(&table, 7);
        table_add(&table, "ID");
        table_add(&table, "STATE");
        table_add(&table, "OWNER");
        table_add(&table, "AGE");
        table_add(&table, "WARM FOR");
        table_add(&table, "USER");
        table_add(&table, "THREAD");
        json_array_foreach(json_object_get(pool, "boxes"), index, box)
        {
                table_add(&table, text_of(box, "id"));
                table_add(&table, text_of(box, "state"));
                add_owner(&table, json_object_get(box, "owner"));
                add_seconds(&table, box, "age_seconds");
                add_seconds(&table, box, "warm_seconds");
                table_add(&table, text_of(box, "user"));
                table_add(&table, text_of(box, "thread"));
        }
        done = json_array_size(json_object_get(pool, "boxes")) == 0 || table_print(&table, stdout);
        table_clear(&table);
        return done;
}

static int print_table(struct cli *cli, const char *text)
{
        json_t *root = json_loads(text, 0, NULL);
        size_t index;
        json_t *pool;
        bool done = root != NULL;

        json_array_foreach(json_object_get(root, "pools"), index, pool) done =
                print_pool(pool) && done;
        if (done)
                (void)printf("spares ready: %lld\n", number_of(root, "spares"));
        json_decref(root);
        return done ? 0 : cli_no_memory(cli);
}

static int show_status(struct cli *cli, const struct status_settings *asked, const char *pool)
{
        AUTO_CUBBY_FREE char *text = NULL;
        cubby_error err = {0};

        if (cubby_pool_status(cli->cubby, pool, &text, &err) < 0)
                return cli_fail_error(cli, &err);
        if (asked->format != NULL && strcmp(asked->format, "json") == 0) {
                (void)printf("%s\n", text);
                return 0;
        }
        if (asked->watch && isatty(STDOUT_FILENO))
                (void)printf("\033[H\033[J");
        return print_table(cli, text);
}

static int pool_status(struct cli *cli, const void *settings, struct args args)
{
        const struct status_settings *asked = settings;
        int rc;

        if (asked->format != NULL && strcmp(asked->format, "table") != 0 &&
                strcmp(asked->format, "json") != 0)
                return cli_usage(cli, "--format is table or json");
        rc = cli_open(cli);
        while (rc == 0) {
                rc = show_status(cli, asked, args.values[0]);
                if (!asked->watch || fflush(stdout) != 0 || ferror(stdout) != 0)
                        break;
                (void)poll(NULL, 0, WATCH_MS);
        }
        return rc;
}

const struct command command_pool_status = {
        .group = "pool",
        .name = "status",
        .usage = "[OPTIONS] [POOL]",
        .summary = "Show the boxes of pools, and what their processes counted",
        .details = "OWNER is the process that has the box, 'left' for one of 'cubby acquire', "
                   "'dead' when its process died: the next provider of the pool takes it over. "
                   "Counters are of all processes of the pool that ever were.",
        .examples = "cubby pool status\n"
                    "cubby pool status --format json cubby",
        .options = {status_options},
        .settings_size = sizeof(struct status_settings),
        .max_args = 1,
        .run = pool_status,
};

static int pool_drain(struct cli *cli, const void *settings, struct args args)
{
        const char *pool = args.count == 0 ? "cubby" : args.values[0];
        cubby_error err = {0};
        uint32_t ended = 0;
        uint32_t left = 0;
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        if (cubby_pool_drain(cli->cubby, pool, &ended, &left, &err) < 0)
                return cli_fail_error(cli, &err);
        (void)printf("ended %u\n", ended);
        if (left > 0)
                cli_note(cli, "%u boxes stay: living processes have them", left);
        return 0;
}

const struct command command_pool_drain = {
        .group = "pool",
        .name = "drain",
        .usage = "[POOL]",
        .summary = "End the boxes of a pool that no living process has",
        .details = "POOL is the configured prefix, 'cubby' by default. Boxes of living processes "
                   "stay; their provider ends them.",
        .examples = "cubby pool drain",
        .max_args = 1,
        .run = pool_drain,
};
