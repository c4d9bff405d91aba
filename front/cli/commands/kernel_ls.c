/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../values.h"
#include "commands.h"

struct kernels_settings {
        bool quiet, no_trunc;
        const char *format;
};

#define AT(field) offsetof(struct kernels_settings, field)
#define DIGEST_SHOWN 12

static const struct option options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Version}} {{.Size}}'", 0, 0},
        {0, "no-trunc", OPTION_FLAG, AT(no_trunc), NULL, "whole digests", 0, 0},
        {'q', "quiet", OPTION_FLAG, AT(quiet), NULL, "only versions", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"Version", "VERSION"},
        {"Digest", "DIGEST"},
        {"Size", "SIZE"},
        {"Default", "DEFAULT"},
        {NULL, NULL},
};

static json_t *document(const cubby_kernel_info *info)
{
        json_t *object = json_object();

        json_object_set_new(object, "version", json_text(info->version));
        json_object_set_new(object, "digest", json_text(info->digest));
        json_object_set_new(object, "disk_bytes", json_integer((json_int_t)info->disk_bytes));
        json_object_set_new(object, "default", json_boolean(info->is_default));
        return object;
}

static void add_kernel(struct list *list, bool whole, const cubby_kernel_info *info)
{
        json_t *row = list_row(list, document(info));
        char digest[DIGEST_SHOWN + 1];
        char size[VALUE_TEXT_MAX];

        if (row == NULL) {
                list->failed = true;
                return;
        }
        (void)snprintf(digest, sizeof(digest), "%.*s", DIGEST_SHOWN, info->digest);
        list_text(list, row, "Version", info->version);
        list_text(list, row, "Digest", whole ? info->digest : digest);
        list_text(list, row, "Size", format_size(info->disk_bytes, size));
        list_text(list, row, "Default", info->is_default ? "yes" : "");
}

static int list_kernels(struct cli *cli, const void *settings, struct args args)
{
        const struct kernels_settings *kernels = settings;
        struct list list = {.cli = cli,
                .format = kernels->format,
                .columns = columns,
                .quiet_field = kernels->quiet ? "Version" : NULL};
        cubby_kernel_list *found = NULL;
        cubby_error err = {0};
        int rc = list_begin(&list);

        if (rc == 0)
                rc = cli_open(cli);
        if (rc == 0 && cubby_kernels(cli->cubby, &found, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0) {
                for (size_t i = 0; i < found->count; i++)
                        add_kernel(&list, kernels->no_trunc, &found->kernels[i]);
                rc = list_print(&list);
        }
        cubby_kernel_list_free(found);
        list_clear(&list);
        return rc;
}

const struct command command_kernel_ls = {
        .group = "kernel",
        .name = "ls",
        .usage = "[OPTIONS]",
        .summary = "List the guest kernels that are unpacked",
        .details = "The newest first: it is the one that a box gets which names none. Templates "
                   "know .Version, .Digest, .Size and .Default.",
        .examples = "cubby kernel ls\n"
                    "cubby kernel ls -q",
        .options = {options},
        .settings_size = sizeof(struct kernels_settings),
        .run = list_kernels,
};
