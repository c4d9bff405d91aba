/* SPDX-License-Identifier: Apache-2.0 */
#include "../names.h"
#include "../format.h"
#include "../progress.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct import_settings {
        const char *name, *platform, *format;
};

#define AT(field) offsetof(struct import_settings, field)

static const struct option options[] = {
        {0, "format", OPTION_TEXT, AT(format), "json", "print one JSON object about the image", 0,
                0},
        {0, "name", OPTION_TEXT, AT(name), "NAME[:TAG]",
                "name of the image (default: the one that it carries)", 0, 0},
        {0, "platform", OPTION_TEXT, AT(platform), "OS/ARCH",
                "which one to take when there are several (default linux/amd64)", 0, 0},
        {'c', "change", OPTION_REFUSED, 0, NULL,
                "give the command and its variables to 'cubby run'", 0, 0},
        {'m', "message", OPTION_REFUSED, 0, NULL, "images keep no messages; leave it out", 0, 0},
        OPTIONS_END,
};

static int print_image(struct cli *cli, const struct import_settings *import,
        const cubby_image_info *info, int64_t started_ms)
{
        char size[VALUE_TEXT_MAX];
        char time[VALUE_TEXT_MAX];
        json_t *object;
        int rc;

        if (import->format != NULL) {
                object = json_pack("{s:o, s:o, s:o, s:I}", "id", json_text(info->id), "name",
                        json_text(info->name), "architecture", json_text(info->architecture),
                        "disk_bytes", (json_int_t)info->disk_bytes);
                rc = print_json(cli, object, "json");
                json_decref(object);
                return rc;
        }
        progress_hide(cli->progress);
        if (cli->progress != NULL)
                cli_note(cli, "imported %s (%s) in %s",
                        *info->name == '\0' ? info->id : familiar_name(info->name),
                        format_size(info->disk_bytes, size),
                        format_millis((uint64_t)(monotonic_ms() - started_ms), time));
        (void)printf("%s\n", info->id);
        return 0;
}

static int import_image(struct cli *cli, const void *settings, struct args args)
{
        const struct import_settings *import = settings;
        cubby_import_options how = CUBBY_INIT(cubby_import_options);
        cubby_image_info info = {0};
        cubby_error err = {0};
        int64_t started_ms = monotonic_ms();
        int rc;

        if (import->format != NULL && strcmp(import->format, "json") != 0)
                return cli_usage(
                        cli, "--format: '%s' is not known; it can be json", import->format);
        how.name = import->name;
        how.platform = import->platform;
        rc = cli_open(cli);
        if (rc == 0 && cubby_image_import(cli->cubby, args.values[0], &how, &info, &err) < 0)
                rc = cli_fail_error(cli, &err);
        if (rc == 0)
                rc = print_image(cli, import, &info, started_ms);
        cubby_image_info_clear(&info);
        return rc;
}

const struct command command_image_import = {
        .group = "image",
        .name = "import",
        .usage = "[OPTIONS] SOURCE",
        .summary = "Make an image from files",
        .details =
                "SOURCE is an OCI layout (a folder or a tar of one), a tar of 'docker save', or a "
                "plain tar of a root file system; - reads standard input. Layers may be gzip or "
                "zstd. Prints the id of the image.",
        .examples = "cubby image import python-oci/ --name python:3.12\n"
                    "docker save debian:12 | cubby image import -\n"
                    "cubby image import rootfs.tar.zst --name mine",
        .options = {options},
        .settings_size = sizeof(struct import_settings),
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_FILE,
        .run = import_image,
};
