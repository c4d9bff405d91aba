/* SPDX-License-Identifier: Apache-2.0 */
#include "../values.h"
#include "commands.h"

#include <string.h>

/* What makes a machine; the same words as for 'cubby run'. */
struct machine_settings {
        const char *accel, *engine, *kernel;
        struct number memory, cpus, disk, boot_timeout;
        bool again;
};

#define AT(field) offsetof(struct machine_settings, field)

static const struct option machine_options[] = {
        {0, "accel", OPTION_TEXT, AT(accel), "KIND",
                "auto (default), kvm (insist on hardware) or tcg (emulate)", 0, 0},
        {0, "boot-timeout", OPTION_DURATION, AT(boot_timeout), "DURATION",
                "how long the boot may take (default 60s)", 1000, 3600000},
        {0, "cpus", OPTION_CPUS, AT(cpus), "NUMBER", "CPUs of the machine (default 1)", 10, 64000},
        {0, "disk", OPTION_SIZE, AT(disk), "SIZE", "writable disk (default 8G)", 64U << 20,
                UINT64_C(1) << 44},
        {0, "engine", OPTION_TEXT, AT(engine), "NAME", "microvm (default)", 0, 0},
        {0, "kernel", OPTION_TEXT, AT(kernel), "FILE", "guest kernel: a file or a version", 0, 0},
        {'m', "memory", OPTION_SIZE, AT(memory), "SIZE", "memory (default 512M)", 64U << 20,
                UINT64_C(1) << 42},
        OPTIONS_END,
};

static const struct option build_options[] = {
        {0, "again", OPTION_FLAG, AT(again), NULL, "also when there is one", 0, 0},
        OPTIONS_END,
};

static cubby_box_options machine_of(const struct machine_settings *machine, const char *image)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);

        options.image = image;
        options.accel = machine->accel;
        options.engine = machine->engine;
        options.kernel = machine->kernel;
        options.memory_bytes = machine->memory.value;
        options.cpu_milli = (uint32_t)machine->cpus.value;
        options.disk_bytes = machine->disk.value;
        options.boot_timeout_ms = (int64_t)machine->boot_timeout.value;
        return options;
}

static int build_templates(struct cli *cli, const void *settings, struct args args)
{
        const struct machine_settings *machine = settings;
        int result = cli_open(cli);

        for (size_t i = 0; cli->cubby != NULL && i < args.count; i++) {
                cubby_box_options options = machine_of(machine, args.values[i]);
                cubby_error err = {0};

                if (cubby_template_build(cli->cubby, &options, machine->again, &err) < 0)
                        result = cli_fail_error(cli, &err);
                else
                        (void)printf("%s\n", args.values[i]);
        }
        return result;
}

static int set_spares(struct cli *cli, const void *settings, struct args args)
{
        cubby_box_options options = machine_of(settings, args.values[1]);
        cubby_error err = {0};
        char *end = NULL;
        unsigned long count = strtoul(args.values[0], &end, 10);
        int rc;

        if (args.values[0][0] < '0' || args.values[0][0] > '9' || *end != '\0' || count > 64)
                return cli_usage(cli, "'%s' is no number of spares: from 0 to 64", args.values[0]);
        rc = cli_open(cli);
        if (rc == 0 && cubby_spares_set(cli->cubby, &options, (uint32_t)count, &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

const struct command command_template_build = {
        .group = "template",
        .name = "build",
        .usage = "[OPTIONS] IMAGE...",
        .summary = "Make the templates of images now",
        .details = "A template is a booted and warmed-up machine that boxes continue from. The "
                   "first box of an image makes it beside itself; this makes it beforehand.",
        .examples = "cubby template build debian\n"
                    "cubby template build -m 1G --cpus 2 python:3.12",
        .options = {machine_options, build_options},
        .settings_size = sizeof(struct machine_settings),
        .min_args = 1,
        .max_args = SIZE_MAX,
        .arguments = ARGS_IMAGE,
        .run = build_templates,
};

const struct command command_spare_set = {
        .group = "spare",
        .name = "set",
        .usage = "[OPTIONS] COUNT IMAGE",
        .summary = "Keep machines of an image ready to be taken",
        .details = "A spare is a machine that runs already and is stopped: the next box of this "
                   "image and these sizes takes it, and neither boots nor restores anything. "
                   "They end by themselves after ten minutes in which none was taken, and first "
                   "of all when the host is short of memory.",
        .examples = "cubby spare set 2 python:3.12\n"
                    "cubby spare set 0 python:3.12",
        .options = {machine_options},
        .settings_size = sizeof(struct machine_settings),
        .min_args = 2,
        .max_args = 2,
        .arguments = ARGS_IMAGE,
        .run = set_spares,
};
