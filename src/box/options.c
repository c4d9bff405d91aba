/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "image/image.h"
#include "kernel/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_DEFAULT (512ULL << 20)
#define DISK_DEFAULT (8ULL << 30)
#define CPU_MILLI_DEFAULT 1000U
#define PIDS_DEFAULT 4096U
#define BOOT_TIMEOUT_DEFAULT 60000
#define VCPUS_PER_HOST_CPU 4U
#define MIB (1ULL << 20)

static inline void cleanup_runtime(struct image_runtime *runtime)
{
        image_runtime_clear(runtime);
}

void box_free_list(char **list)
{
        for (size_t i = 0; list != NULL && list[i] != NULL; i++)
                free(list[i]);
        free(list);
}

static size_t count(const char *const *list)
{
        size_t entries = 0;
        while (list != NULL && list[entries] != NULL)
                entries++;
        return entries;
}

static const char *const *constant(char *const *list)
{
        return (const char *const *)list;
}

/* first and then second, as one list. */
static int join_lists(
        const char *const *first, const char *const *second, char ***ret, cubby_error *err)
{
        size_t firsts = count(first);
        size_t total = firsts + count(second);
        char **list = calloc(total + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < total; i++) {
                list[i] = strdup(i < firsts ? first[i] : second[i - firsts]);
                if (list[i] == NULL) {
                        box_free_list(list);
                        return cubby_error_no_memory(err);
                }
        }
        *ret = list;
        return 0;
}

int box_copy_list(const char *const *list, char ***ret, cubby_error *err)
{
        return join_lists(list, NULL, ret, err);
}

int box_check_env(const char *const *env, cubby_error *err)
{
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
        static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
        for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
                size_t length = strspn(env[i], all);
                if (length == 0 || env[i][length] != '=' || strchr(letters, env[i][0]) == NULL)
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "'%.64s' is no NAME=VALUE with a name of letters, digits and '_', "
                                "the first no digit",
                                env[i]);
        }
        return 0;
}

static bool same_name(const char *left, const char *right)
{
        size_t length = strcspn(left, "=");
        return strncmp(left, right, length) == 0 && right[length] == '=';
}

int box_too_big(cubby_error *err, const char *what, size_t limit, const char *unit)
{
        (void)cubby_error_set(err, CUBBY_E_INVALID, "%s more than %zu %s", what, limit, unit);
        if (err != NULL)
                err->sys_errno = E2BIG;
        return -1;
}

int box_merge_env(char *const *base, const char *const *over, char ***ret, cubby_error *err)
{
        size_t bases = count(constant(base));
        size_t total = bases + count(over);
        if (total > WIRE_ARGUMENTS_MAX * 2U) /* some may replace others */
                return box_too_big(err, "the environment has", WIRE_ARGUMENTS_MAX, "variables");
        char **list = calloc(total + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        size_t kept = 0;
        for (size_t i = 0; i < total; i++) {
                const char *entry = i < bases ? base[i] : over[i - bases];
                size_t place = 0; /* the last of a name wins, in the place of the first */
                while (place < kept && !same_name(entry, list[place]))
                        place++;
                char *copy = strdup(entry);
                if (copy == NULL) {
                        box_free_list(list);
                        return cubby_error_no_memory(err);
                }
                free(list[place]);
                list[place] = copy;
                if (place == kept)
                        kept++;
        }
        *ret = list;
        return 0;
}

static int set_text(char **field, const char *given, const char *otherwise, cubby_error *err)
{
        *field = strdup(given != NULL ? given : otherwise);
        return *field == NULL ? cubby_error_no_memory(err) : 0;
}

/* Docker's rules: another Entrypoint also drops the image's Cmd. */
static int plan_command(const cubby_box_options *options, const struct image_runtime *runtime,
        struct box_config *config, cubby_error *err)
{
        if (options->no_main) {
                if (options->command != NULL || options->entrypoint != NULL)
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "a box without a command of its own cannot be given one");
                return box_copy_list(NULL, &config->argv, err);
        }
        const char *const *entrypoint = options->entrypoint;
        const char *const *command = options->command;
        if (entrypoint == NULL)
                entrypoint = constant(runtime->entrypoint);
        if (command == NULL && options->entrypoint == NULL)
                command = constant(runtime->command);
        if (join_lists(entrypoint, command, &config->argv, err) < 0)
                return -1;
        if (config->argv[0] == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the image '%s' names no command; give one", options->image);
        return 0;
}

static int plan_texts(const cubby_box_options *options, const struct image_runtime *runtime,
        struct box_config *config, cubby_error *err)
{
        char short_id[13];
        (void)snprintf(short_id, sizeof short_id, "%.12s", config->id);
        const char *signal = runtime->stop_signal[0] != '\0' ? runtime->stop_signal : "SIGTERM";
        char name[64];
        box_make_name(name, false);
        return set_text(&config->name, options->name, name, err) < 0 ||
                        set_text(&config->hostname, options->hostname, short_id, err) < 0 ||
                        set_text(&config->image_name, options->image, "", err) < 0 ||
                        set_text(&config->engine, options->engine, "microvm", err) < 0 ||
                        set_text(&config->accel, options->accel, "auto", err) < 0 ||
                        set_text(&config->workdir, options->workdir, runtime->workdir, err) < 0 ||
                        set_text(&config->user, options->user, runtime->user, err) < 0 ||
                        set_text(&config->stop_signal, options->stop_signal, signal, err) < 0 ||
                        set_text(&config->warmup, options->warmup, "", err) < 0
                ? -1
                : 0;
}

static uint64_t whole_mib(uint64_t bytes)
{
        return bytes > UINT64_MAX - MIB ? bytes : (bytes + MIB - 1) / MIB * MIB;
}

static int plan_numbers(
        const cubby_box_options *options, struct box_config *config, cubby_error *err)
{
        config->memory_bytes =
                options->memory_bytes == 0 ? MEMORY_DEFAULT : whole_mib(options->memory_bytes);
        config->disk_bytes =
                options->disk_bytes == 0 ? DISK_DEFAULT : whole_mib(options->disk_bytes);
        config->cpu_milli = options->cpu_milli == 0 ? CPU_MILLI_DEFAULT : options->cpu_milli;
        config->pids_max = options->pids_max == 0 ? PIDS_DEFAULT : options->pids_max;
        config->ttl_ms = options->ttl_ms;
        config->boot_timeout_ms =
                options->boot_timeout_ms == 0 ? BOOT_TIMEOUT_DEFAULT : options->boot_timeout_ms;
        config->tty = options->tty;
        config->open_stdin = options->open_stdin;
        config->auto_remove = options->auto_remove;
        config->no_template = options->no_template || secure_getenv("CUBBY_NO_TEMPLATE") != NULL;
        config->created_ns = clock_realtime_ns();
        uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
        uint64_t host_memory = pages * (uint64_t)sysconf(_SC_PAGESIZE);
        if (config->memory_bytes < BOX_MEMORY_MIN || config->memory_bytes > host_memory)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "memory must be from 64 MiB to the %llu MiB of this host, not %llu MiB",
                        (unsigned long long)(host_memory / MIB),
                        (unsigned long long)(config->memory_bytes / MIB));
        uint32_t most = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) * VCPUS_PER_HOST_CPU * 1000U;
        if (most > BOX_CPU_MILLI_MAX)
                most = BOX_CPU_MILLI_MAX;
        if (config->cpu_milli < BOX_CPU_MILLI_MIN || config->cpu_milli > most)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "cpus must be from 0.01 to %u, %u for each of this host, not %u.%03u",
                        most / 1000, VCPUS_PER_HOST_CPU, config->cpu_milli / 1000,
                        config->cpu_milli % 1000);
        return 0;
}

static int plan_kernel(
        cubby *host, const cubby_box_options *options, struct box_config *config, cubby_error *err)
{
        struct kernel kernel = {0};
        if (kernel_ensure(host->home, options->kernel, host->progress, host->progress_data, &kernel,
                    err) < 0)
                return -1;
        config->kernel = take_ptr(&kernel.version);
        kernel_clear(&kernel);
        return 0;
}

static int plan(cubby *host, const cubby_box_options *options, const struct image_record *image,
        struct box_config *config, cubby_error *err)
{
        __attribute__((cleanup(cleanup_runtime))) struct image_runtime runtime = {0};
        char id[33];
        box_make_id(id);
        config->slot = 1; /* the record gives the right one; this one passes the checks */
        if (image_runtime_parse(image->config, &runtime, err) < 0)
                return cubby_error_wrap(err, "reading the config of image '%s'", options->image);
        if (set_text(&config->id, id, "", err) < 0 ||
                set_text(&config->image_id, image->id, "", err) < 0 ||
                plan_texts(options, &runtime, config, err) < 0 ||
                plan_numbers(options, config, err) < 0 ||
                plan_command(options, &runtime, config, err) < 0 ||
                box_check_env(options->env, err) < 0 ||
                box_merge_env(runtime.env, options->env, &config->env, err) < 0 ||
                box_copy_list(options->labels, &config->labels, err) < 0 ||
                set_text(&config->kernel, NULL, "", err) < 0 || box_config_check(config, err) < 0)
                return -1;
        if (options->kernel == NULL)
                return 0;
        free(take_ptr(&config->kernel));
        return plan_kernel(host, options, config, err) < 0 ? -1 : box_config_check(config, err);
}

int box_plan(
        cubby *host, const cubby_box_options *options, struct box_config *ret, cubby_error *err)
{
        if (options->image == NULL || options->image[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "a box needs an image");
        struct image_record image = {0};
        if (image_find(host->home, options->image, &image, err) < 0)
                return -1;
        AUTO_CONFIG struct box_config config = {0};
        int result = plan(host, options, &image, &config, err);
        image_record_clear(&image);
        if (result < 0)
                return -1;
        *ret = config;
        config = (struct box_config){0};
        return 0;
}
