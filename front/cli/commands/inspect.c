/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "commands.h"

#include <string.h>

struct inspect_settings {
        const char *format;
};

static const struct option options[] = {
        {'f', "format", OPTION_TEXT, offsetof(struct inspect_settings, format), "FORMAT",
                "json (on one line), or a template such as '{{.id}}'", 0, 0},
        {0, "type", OPTION_REFUSED, 0, NULL, "use 'cubby image inspect' for an image", 0, 0},
        {'s', "size", OPTION_REFUSED, 0, NULL, "see a box's disk with 'cubby stats'", 0, 0},
        OPTIONS_END,
};

static const struct option template_options[] = {
        {'f', "format", OPTION_TEXT, offsetof(struct inspect_settings, format), "FORMAT",
                "json (on one line), or a template such as '{{.key}}'", 0, 0},
        OPTIONS_END,
};

/* The library's JSON of one thing, or NULL with err. */
typedef char *(*describer)(struct cli *cli, const char *name, cubby_error *err);

static char *describe_image(struct cli *cli, const char *name, cubby_error *err)
{
        char *text = NULL;

        return cubby_image_inspect(cli->cubby, name, &text, err) < 0 ? NULL : text;
}

static char *describe_template(struct cli *cli, const char *name, cubby_error *err)
{
        char *text = NULL;

        return cubby_template_inspect(cli->cubby, name, &text, err) < 0 ? NULL : text;
}

static char *describe_box(struct cli *cli, const char *name, cubby_error *err)
{
        AUTO_BOX cubby_box *box = NULL;
        char *text = NULL;

        if (cubby_box_open(cli->cubby, name, &box, err) < 0)
                return NULL;
        return cubby_box_inspect(box, &text, err) < 0 ? NULL : text;
}

static int describe(struct cli *cli, describer how, const char *name, json_t *all)
{
        AUTO_CUBBY_FREE char *text = NULL;
        cubby_error err = {0};
        json_t *object;

        text = how(cli, name, &err);
        if (text == NULL && err.code == CUBBY_E_NOT_FOUND && how == describe_box) {
                cubby_error ignored = {0};

                text = describe_image(cli, name, &ignored);
        }
        if (text == NULL)
                return cli_fail_error(cli, &err);
        object = json_loads(text, 0, NULL);
        if (json_array_append_new(all, object) < 0)
                return cli_no_memory(cli);
        return 0;
}

static int inspect(
        struct cli *cli, const struct inspect_settings *settings, struct args args, describer how)
{
        const char *format = settings->format;
        json_t *all = json_array();
        int result = cli_open(cli);
        size_t index;
        json_t *object;

        for (size_t i = 0; cli->cubby != NULL && i < args.count; i++) {
                int rc = describe(cli, how, args.values[i], all);

                result = rc == 0 ? result : rc;
        }
        if (format == NULL || strcmp(format, "json") == 0) {
                if (json_array_size(all) > 0) {
                        int rc = print_json(cli, all, format);

                        result = rc == 0 ? result : rc;
                }
        } else
                json_array_foreach(all, index, object)
                {
                        int rc = print_json(cli, object, format);

                        result = rc == 0 ? result : rc;
                }
        json_decref(all);
        return result;
}

static int inspect_boxes(struct cli *cli, const void *settings, struct args args)
{
        return inspect(cli, settings, args, describe_box);
}

static int inspect_images(struct cli *cli, const void *settings, struct args args)
{
        return inspect(cli, settings, args, describe_image);
}

static int inspect_templates(struct cli *cli, const void *settings, struct args args)
{
        return inspect(cli, settings, args, describe_template);
}

const struct command command_inspect = {
        .name = "inspect",
        .usage = "[OPTIONS] BOX...",
        .summary = "Print everything known of boxes, as JSON",
        .details = "An array with an object for each. A name that is no box may be an image. "
                   "Templates follow the JSON's own names: '{{.config.labels}}'.",
        .examples = "cubby inspect work\n"
                    "cubby inspect -f '{{.state}}' work",
        .options = {options},
        .settings_size = sizeof(struct inspect_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_BOX,
        .run = inspect_boxes,
};

const struct command command_image_inspect = {
        .group = "image",
        .name = "inspect",
        .usage = "[OPTIONS] IMAGE...",
        .summary = "Print everything known of images, as JSON",
        .details = "An array with an object for each.",
        .examples = "cubby image inspect python:3.12\n"
                    "cubby image inspect -f '{{.architecture}}' python:3.12",
        .options = {options},
        .settings_size = sizeof(struct inspect_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_IMAGE,
        .run = inspect_images,
};

const struct command command_template_inspect = {
        .group = "template",
        .name = "inspect",
        .usage = "[OPTIONS] TEMPLATE...",
        .summary = "Show what templates were made from, as JSON",
        .details = "An array with an object for each.",
        .examples = "cubby template inspect 3f9a\n"
                    "cubby template inspect -f '{{.warmups}}' 3f9a",
        .options = {template_options},
        .settings_size = sizeof(struct inspect_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .run = inspect_templates,
};
