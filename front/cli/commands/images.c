/* SPDX-License-Identifier: Apache-2.0 */
#include "../names.h"
#include "../format.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct images_settings {
        bool quiet, no_trunc;
        const char *format;
};

#define AT(field) offsetof(struct images_settings, field)

static const struct option options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.ID}} {{.Name}}'", 0, 0},
        {0, "no-trunc", OPTION_FLAG, AT(no_trunc), NULL, "whole ids", 0, 0},
        {'q', "quiet", OPTION_FLAG, AT(quiet), NULL, "only ids", 0, 0},
        {'a', "all", OPTION_REFUSED, 0, NULL, "all images are listed; leave it out", 0, 0},
        {'f', "filter", OPTION_REFUSED, 0, NULL, "give a name: 'cubby images NAME'", 0, 0},
        {0, "digests", OPTION_REFUSED, 0, NULL, "see 'cubby image inspect IMAGE'", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"Repository", "REPOSITORY"},
        {"Tag", "TAG"},
        {"ID", "IMAGE ID"},
        {"CreatedSince", "CREATED"},
        {"Size", "SIZE"},
        {"Name", NULL},
        {"CreatedAt", NULL},
        {"Architecture", NULL},
        {NULL, NULL},
};

/* "host:5000/a/b:tag" at its last colon behind the last slash. */
static size_t repository_length(const char *name)
{
        const char *slash = strrchr(name, '/');
        const char *last = slash == NULL ? name : slash;
        const char *digest = strchr(last, '@');
        const char *colon = strrchr(last, ':');

        if (digest != NULL)
                return (size_t)(digest - name);
        return colon == NULL ? strlen(name) : (size_t)(colon - name);
}

/* `wanted` is a repository, or one with a tag. */
static bool is_wanted(const char *wanted, const char *name)
{
        if (wanted == NULL)
                return true;
        wanted = familiar_name(wanted);
        return strcmp(wanted, name) == 0 ||
                (strlen(wanted) == repository_length(name) &&
                        strncmp(wanted, name, strlen(wanted)) == 0);
}

static json_t *document(const cubby_image_info *info)
{
        json_t *object = json_object();
        char text[VALUE_TEXT_MAX];

        json_object_set_new(object, "id", json_text(info->id));
        json_object_set_new(object, "name", json_text(info->name));
        json_object_set_new(object, "architecture", json_text(info->architecture));
        json_object_set_new(object, "disk_bytes", json_integer((json_int_t)info->disk_bytes));
        json_object_set_new(object, "created", json_text(format_time(info->created_ns, text)));
        return object;
}

static void add_image(
        struct list *list, const struct images_settings *images, const cubby_image_info *info)
{
        const char *name = familiar_name(info->name);
        size_t length = repository_length(name);
        AUTO_FREE char *repository = strndup(name, length);
        json_t *row = list_row(list, document(info));
        char age[VALUE_TEXT_MAX + 8];
        char text[VALUE_TEXT_MAX];
        char id[13];

        if (row == NULL || repository == NULL) {
                list->failed = true;
                return;
        }
        list_text(list, row, "Repository", *name == '\0' ? "<none>" : repository);
        list_text(list, row, "Tag", name[length] == '\0' ? "<none>" : name + length + 1);
        list_text(list, row, "ID", images->no_trunc ? info->id : short_id(info->id, id));
        (void)snprintf(age, sizeof(age), "%s ago",
                format_age((now_ns() - info->created_ns) / 1000000000, text));
        list_text(list, row, "CreatedSince", age);
        list_text(list, row, "Size", format_size(info->disk_bytes, text));
        list_text(list, row, "Name", name);
        list_text(list, row, "CreatedAt", format_time(info->created_ns, text));
        list_text(list, row, "Architecture", info->architecture);
}

static int list_images(struct cli *cli, const void *settings, struct args args)
{
        const struct images_settings *images = settings;
        struct list list = {.cli = cli,
                .format = images->format,
                .columns = columns,
                .quiet_field = images->quiet ? "ID" : NULL};
        cubby_image_list *found = NULL;
        cubby_error err = {0};
        int rc = list_begin(&list);

        if (rc == 0)
                rc = cli_open(cli);
        if (rc == 0 && cubby_images(cli->cubby, &found, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0) {
                for (size_t i = 0; i < found->count; i++)
                        if (is_wanted(args.values[0], familiar_name(found->images[i].name)))
                                add_image(&list, images, &found->images[i]);
                rc = list_print(&list);
        }
        cubby_image_list_free(found);
        list_clear(&list);
        return rc;
}

#define DETAILS                                                                                 \
        "SIZE is that of the read-only disk made from the layers. Templates know .Repository, " \
        ".Tag, .ID, .CreatedSince, .Size, .Name, .CreatedAt and .Architecture."

const struct command command_images = {
        .name = "images",
        .usage = "[OPTIONS] [NAME]",
        .summary = "List images",
        .details = DETAILS,
        .examples = "cubby images\n"
                    "cubby images --format '{{.Name}} {{.Size}}'",
        .options = {options},
        .settings_size = sizeof(struct images_settings),
        .max_args = 1,
        .arguments = ARGS_IMAGE,
        .run = list_images,
};

const struct command command_image_ls = {
        .group = "image",
        .name = "ls",
        .usage = "[OPTIONS] [NAME]",
        .summary = "List images, as 'cubby images'",
        .details = DETAILS,
        .examples = "cubby image ls",
        .options = {options},
        .settings_size = sizeof(struct images_settings),
        .max_args = 1,
        .arguments = ARGS_IMAGE,
        .run = list_images,
};
