/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../values.h"
#include "commands.h"

#include <jansson.h>
#include <string.h>

struct prune_settings {
        bool dry_run, all;
        struct number space;
};

#define AT(field) offsetof(struct prune_settings, field)

static const struct option prune_options[] = {
        {'a', "all", OPTION_FLAG, AT(all), NULL, "every template that nobody uses", 0, 0},
        {'n', "dry-run", OPTION_FLAG, AT(dry_run), NULL, "only say how much would be freed", 0, 0},
        {0, "templates", OPTION_SIZE, AT(space), "SIZE",
                "what templates may use (default 16G); the least recently used go", 1,
                UINT64_C(1) << 50},
        OPTIONS_END,
};

static int prune(struct cli *cli, const void *settings, struct args args)
{
        const struct prune_settings *wanted = settings;
        cubby_prune_options options = CUBBY_INIT(cubby_prune_options);
        char text[VALUE_TEXT_MAX];
        cubby_error err = {0};
        uint64_t bytes = 0;
        int rc = cli_open(cli);

        if (rc != 0)
                return rc;
        options.dry_run = wanted->dry_run;
        options.template_bytes = wanted->all ? 1 : wanted->space.value;
        if (cubby_prune(cli->cubby, &options, &bytes, &err) < 0)
                return cli_fail_error(cli, &err);
        (void)printf(wanted->dry_run ? "would free %s\n" : "freed %s\n", format_size(bytes, text));
        return 0;
}

struct df_settings {
        const char *format;
};

static const struct option df_options[] = {
        {0, "format", OPTION_TEXT, offsetof(struct df_settings, format), "FORMAT", "table or json",
                0, 0},
        OPTIONS_END,
};

static void print_table(const json_t *root)
{
        const char *name;
        json_t *part;

        (void)printf("%-12s %8s %12s %12s\n", "TYPE", "COUNT", "SIZE", "RECLAIMABLE");
        json_object_foreach((json_t *)(uintptr_t)root, name, part)
        {
                char size[VALUE_TEXT_MAX];
                char rest[VALUE_TEXT_MAX];

                (void)printf("%-12s %8lld %12s %12s\n", name,
                        (long long)json_integer_value(json_object_get(part, "count")),
                        format_size(
                                (uint64_t)json_integer_value(json_object_get(part, "bytes")), size),
                        format_size(
                                (uint64_t)json_integer_value(json_object_get(part, "reclaimable")),
                                rest));
        }
}

static int show_usage(struct cli *cli, const void *settings, struct args args)
{
        const struct df_settings *df = settings;
        AUTO_CUBBY_FREE char *json = NULL;
        cubby_error err = {0};
        int rc;

        if (df->format != NULL && strcmp(df->format, "json") != 0 &&
                strcmp(df->format, "table") != 0)
                return cli_usage(cli, "--format %s is not known: table or json", df->format);
        rc = cli_open(cli);
        if (rc != 0)
                return rc;
        if (cubby_usage(cli->cubby, &json, &err) < 0)
                return cli_fail_error(cli, &err);
        if (df->format != NULL && strcmp(df->format, "json") == 0) {
                (void)printf("%s\n", json);
                return 0;
        }
        json_t *root = json_loads(json, 0, NULL);
        if (root == NULL)
                return cli_no_memory(cli);
        print_table(root);
        json_decref(root);
        return 0;
}

const struct command command_prune = {
        .name = "prune",
        .usage = "[OPTIONS]",
        .summary = "Free space: what nobody uses, and templates beyond their space",
        .details = "Boxes, images, snapshots and templates in use stay. A template that goes is "
                   "made again by the next box of its image.",
        .examples = "cubby prune --dry-run\n"
                    "cubby prune --templates 4G",
        .options = {prune_options},
        .settings_size = sizeof(struct prune_settings),
        .run = prune,
};

const struct command command_df = {
        .name = "df",
        .usage = "[OPTIONS]",
        .summary = "Show where the space of the home is",
        .details = "RECLAIMABLE is what 'cubby prune --all' would free of it.",
        .examples = "cubby df",
        .options = {df_options},
        .settings_size = sizeof(struct df_settings),
        .run = show_usage,
};
