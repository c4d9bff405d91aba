/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../names.h"
#include "../settings.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct ls_settings {
        bool quiet, no_trunc;
        const char *format;
};

#define AT(field) offsetof(struct ls_settings, field)

static const struct option ls_options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Key}} {{.Image}}'", 0, 0},
        {0, "no-trunc", OPTION_FLAG, AT(no_trunc), NULL, "whole keys", 0, 0},
        {'q', "quiet", OPTION_FLAG, AT(quiet), NULL, "only keys", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"Key", "KEY"},
        {"Image", "IMAGE"},
        {"Snapshot", "SNAPSHOT"},
        {"Memory", "MEMORY"},
        {"CPUs", "CPUS"},
        {"Disk", "DISK"},
        {"Spares", "SPARES"},
        {"Used", "USED"},
        {"Size", "SIZE"},
        {"Problem", NULL},
        {NULL, NULL},
};

static json_t *document(const cubby_template_info *info)
{
        json_t *object = json_object();
        char text[VALUE_TEXT_MAX];

        json_object_set_new(object, "key", json_text(info->key));
        json_object_set_new(object, "image_id", json_text(info->image_id));
        json_object_set_new(object, "image", json_text(info->image_name));
        json_object_set_new(object, "snapshot", json_text(info->snapshot));
        json_object_set_new(object, "problem", json_text(info->problem));
        json_object_set_new(object, "memory_bytes", json_integer((json_int_t)info->memory_bytes));
        json_object_set_new(object, "disk_bytes", json_integer((json_int_t)info->disk_bytes));
        json_object_set_new(object, "vcpus", json_integer(info->vcpus));
        json_object_set_new(object, "usage_bytes", json_integer((json_int_t)info->usage_bytes));
        json_object_set_new(object, "spares", json_integer(info->spares));
        json_object_set_new(object, "spares_wanted", json_integer(info->spares_wanted));
        json_object_set_new(object, "created", json_text(format_time(info->created_ns, text)));
        return object;
}

static void add_template(
        struct list *list, const struct ls_settings *ls, const cubby_template_info *info)
{
        json_t *row = list_row(list, document(info));
        char age[VALUE_TEXT_MAX + 8];
        char text[VALUE_TEXT_MAX];
        char id[13];

        if (row == NULL) {
                list->failed = true;
                return;
        }
        list_text(list, row, "Key", ls->no_trunc ? info->key : short_id(info->key, id));
        list_text(list, row, "Image",
                *info->problem != '\0' ? "<damaged>" : familiar_name(info->image_name));
        list_text(list, row, "Snapshot", info->snapshot);
        list_text(list, row, "Memory", format_binary(info->memory_bytes, text));
        (void)snprintf(age, sizeof(age), "%u", info->vcpus);
        list_text(list, row, "CPUs", age);
        list_text(list, row, "Disk", format_binary(info->disk_bytes, text));
        (void)snprintf(age, sizeof(age), "%u/%u", info->spares, info->spares_wanted);
        list_text(list, row, "Spares", age);
        (void)snprintf(age, sizeof(age), "%s ago",
                format_age((now_ns() - info->used_ns) / 1000000000, text));
        list_text(list, row, "Used", age);
        list_text(list, row, "Size", format_size(info->usage_bytes, text));
        list_text(list, row, "Problem", info->problem);
}

static int list_some(struct cli *cli, const struct ls_settings *ls, bool only_spares)
{
        struct list list = {.cli = cli,
                .format = ls->format,
                .columns = columns,
                .quiet_field = ls->quiet ? "Key" : NULL};
        cubby_template_list *found = NULL;
        cubby_error err = {0};
        int rc = list_begin(&list);

        if (rc == 0)
                rc = cli_open(cli);
        if (rc == 0 && cubby_templates(cli->cubby, &found, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0) {
                for (size_t i = 0; i < found->count; i++) {
                        const cubby_template_info *info = &found->templates[i];

                        if (!only_spares || info->spares > 0 || info->spares_wanted > 0)
                                add_template(&list, ls, info);
                }
                rc = list_print(&list);
        }
        cubby_template_list_free(found);
        list_clear(&list);
        return rc;
}

static int list_templates(struct cli *cli, const void *settings, struct args args)
{
        return list_some(cli, settings, false);
}

static int list_spares(struct cli *cli, const void *settings, struct args args)
{
        return list_some(cli, settings, true);
}

static int each_name(struct cli *cli, struct args args,
        int (*work)(cubby *cubby, const char *name, cubby_error *err))
{
        int result = cli_open(cli);

        for (size_t i = 0; cli->cubby != NULL && i < args.count; i++) {
                cubby_error err = {0};

                if (work(cli->cubby, args.values[i], &err) < 0)
                        result = cli_fail_error(cli, &err);
                else
                        (void)printf("%s\n", args.values[i]);
        }
        return result;
}

static int remove_templates(struct cli *cli, const void *settings, struct args args)
{
        return each_name(cli, args, cubby_template_remove);
}

static int verify_templates(struct cli *cli, const void *settings, struct args args)
{
        return each_name(cli, args, cubby_template_verify);
}

#define LS_DETAILS                                                                           \
        "SPARES are those that wait, and those that are wanted. Templates of --format know " \
        ".Key, .Image, .Snapshot, .Memory, .CPUs, .Disk, .Spares, .Used, .Size and .Problem."

const struct command command_template_ls = {
        .group = "template",
        .name = "ls",
        .usage = "[OPTIONS]",
        .summary = "List templates and snapshots",
        .details = LS_DETAILS,
        .examples = "cubby template ls",
        .options = {ls_options},
        .settings_size = sizeof(struct ls_settings),
        .run = list_templates,
};

const struct command command_spare_ls = {
        .group = "spare",
        .name = "ls",
        .usage = "[OPTIONS]",
        .summary = "List templates that spares are kept of",
        .details = LS_DETAILS,
        .examples = "cubby spare ls",
        .options = {ls_options},
        .settings_size = sizeof(struct ls_settings),
        .run = list_spares,
};

const struct command command_template_rm = {
        .group = "template",
        .name = "rm",
        .usage = "TEMPLATE...",
        .summary = "Remove templates or snapshots",
        .details = "Named by the first digits of the key, or by a snapshot's name. Boxes that "
                   "were made from it go on; the next box of the image makes a template anew.",
        .examples = "cubby template rm 3f9a",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .run = remove_templates,
};

const struct command command_template_verify = {
        .group = "template",
        .name = "verify",
        .usage = "TEMPLATE...",
        .summary = "Compare the files of templates with their digests",
        .examples = "cubby template verify 3f9a",
        .min_args = 1,
        .max_args = SIZE_MAX,
        .run = verify_templates,
};
