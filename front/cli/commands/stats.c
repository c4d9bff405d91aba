/* SPDX-License-Identifier: Apache-2.0 */
#include "../format.h"
#include "../values.h"
#include "commands.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ONE_SHOT_MS 500
#define REFRESH_MS 1000
#define BOXES_MAX 256

struct stats_settings {
        bool no_stream, all;
        const char *format;
};

#define AT(field) offsetof(struct stats_settings, field)

static const struct option options[] = {
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.Name}} {{.MemUsage}}'", 0, 0},
        {0, "no-stream", OPTION_FLAG, AT(no_stream), NULL, "print once and end", 0, 0},
        {'a', "all", OPTION_REFUSED, 0, NULL, "only running boxes use anything", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"ID", "BOX ID"},
        {"Name", "NAME"},
        {"CPUPerc", "CPU %"},
        {"MemUsage", "MEM USAGE / LIMIT"},
        {"MemPerc", "MEM %"},
        {"DiskUsage", "DISK"},
        {"PIDs", "PIDS"},
        {"HostCPUPerc", "HOST CPU %"},
        {"HostMem", "HOST MEM"},
        {NULL, NULL},
};

/* Two looks at one box; rates are between them. */
struct sample {
        char id[33];
        char name[64];
        cubby_box_stats before, now;
        int64_t before_ms, now_ms;
        bool valid;
};

struct samples {
        struct sample *items;
        size_t count;
};

static double rate(uint64_t before_us, uint64_t now_us, int64_t elapsed_ms)
{
        if (elapsed_ms <= 0 || now_us < before_us)
                return 0;
        return (double)(now_us - before_us) / ((double)elapsed_ms * 10);
}

static bool take(struct cli *cli, struct sample *sample, cubby_error *err)
{
        AUTO_BOX cubby_box *box = NULL;

        if (cubby_box_open(cli->cubby, sample->id, &box, err) < 0)
                return false;
        sample->before = sample->now;
        sample->before_ms = sample->now_ms;
        sample->now_ms = monotonic_ms();
        return cubby_box_get_stats(box, &sample->now, err) == 0;
}

static json_t *document(const struct sample *s)
{
        const cubby_box_stats *now = &s->now;
        int64_t elapsed = s->now_ms - s->before_ms;
        json_t *object = json_object();
        const struct {
                const char *name;
                uint64_t value;
        } numbers[] = {{"uptime_ms", now->uptime_ms}, {"cpu_us", now->cpu_us},
                {"memory_total", now->memory_total}, {"memory_available", now->memory_available},
                {"memory_workload", now->memory_workload}, {"disk_total", now->disk_total},
                {"disk_free", now->disk_free}, {"processes", now->processes},
                {"host_cpu_us", now->host_cpu_us}, {"host_pss_bytes", now->host_pss_bytes}};

        json_object_set_new(object, "id", json_text(s->id));
        json_object_set_new(object, "name", json_text(s->name));
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                json_object_set_new(
                        object, numbers[i].name, json_integer((json_int_t)numbers[i].value));
        json_object_set_new(
                object, "cpu_percent", json_real(rate(s->before.cpu_us, now->cpu_us, elapsed)));
        json_object_set_new(object, "host_cpu_percent",
                json_real(rate(s->before.host_cpu_us, now->host_cpu_us, elapsed)));
        return object;
}

static void add_sample(struct list *list, const struct sample *s)
{
        const cubby_box_stats *now = &s->now;
        int64_t elapsed = s->now_ms - s->before_ms;
        uint64_t used = now->memory_total > now->memory_available
                ? now->memory_total - now->memory_available
                : 0;
        json_t *row = list_row(list, document(s));
        char both[2 * VALUE_TEXT_MAX + 4];
        char text[VALUE_TEXT_MAX];
        char more[VALUE_TEXT_MAX];

        if (row == NULL)
                return;
        (void)snprintf(text, sizeof(text), "%.12s", s->id);
        list_text(list, row, "ID", text);
        list_text(list, row, "Name", s->name);
        (void)snprintf(text, sizeof(text), "%.2f%%", rate(s->before.cpu_us, now->cpu_us, elapsed));
        list_text(list, row, "CPUPerc", text);
        (void)snprintf(both, sizeof(both), "%s / %s", format_binary(used, text),
                format_binary(now->memory_total, more));
        list_text(list, row, "MemUsage", both);
        (void)snprintf(text, sizeof(text), "%.2f%%",
                now->memory_total == 0 ? 0 : (double)used * 100 / (double)now->memory_total);
        list_text(list, row, "MemPerc", text);
        (void)snprintf(both, sizeof(both), "%s / %s",
                format_binary(
                        now->disk_total > now->disk_free ? now->disk_total - now->disk_free : 0,
                        text),
                format_binary(now->disk_total, more));
        list_text(list, row, "DiskUsage", both);
        (void)snprintf(text, sizeof(text), "%" PRIu32, now->processes);
        list_text(list, row, "PIDs", text);
        (void)snprintf(text, sizeof(text), "%.2f%%",
                rate(s->before.host_cpu_us, now->host_cpu_us, elapsed));
        list_text(list, row, "HostCPUPerc", text);
        list_text(list, row, "HostMem", format_binary(now->host_pss_bytes, text));
}

static bool add_box(struct samples *samples, const char *id, const char *name)
{
        struct sample *sample;

        if (samples->count >= BOXES_MAX)
                return false;
        sample = &samples->items[samples->count++];
        (void)snprintf(sample->id, sizeof(sample->id), "%s", id);
        (void)snprintf(sample->name, sizeof(sample->name), "%s", name);
        return true;
}

static int choose_named(struct cli *cli, struct args args, struct samples *samples)
{
        for (size_t i = 0; i < args.count; i++) {
                AUTO_BOX cubby_box *box = NULL;
                cubby_box_info info = {0};
                cubby_error err = {0};
                int rc = cli_open_box(cli, args.values[i], &box);

                if (rc != 0)
                        return rc;
                if (cubby_box_get_info(box, &info, &err) < 0)
                        return cli_fail_error(cli, &err);
                if (!add_box(samples, info.id, info.name))
                        rc = cli_usage(cli, "at most %d boxes at once", BOXES_MAX);
                cubby_box_info_clear(&info);
                if (rc != 0)
                        return rc;
        }
        return 0;
}

static int choose_running(struct cli *cli, struct samples *samples)
{
        cubby_box_list *boxes = NULL;
        cubby_error err = {0};

        samples->count = 0;
        if (cubby_boxes(cli->cubby, false, &boxes, &err) < 0)
                return cli_fail_error(cli, &err);
        for (size_t i = 0; i < boxes->count; i++)
                if (boxes->boxes[i].state == CUBBY_BOX_RUNNING &&
                        !add_box(samples, boxes->boxes[i].id, boxes->boxes[i].name))
                        break;
        cubby_box_list_free(boxes);
        return 0;
}

/* A box that was named must answer; others may end at any time. */
static int take_all(struct cli *cli, struct samples *samples, bool named)
{
        for (size_t i = 0; i < samples->count; i++) {
                cubby_error err = {0};

                samples->items[i].valid = take(cli, &samples->items[i], &err);
                if (!samples->items[i].valid && named)
                        return cli_fail_error(cli, &err);
        }
        return 0;
}

static int print_all(
        struct cli *cli, const struct stats_settings *stats, const struct samples *samples)
{
        struct list list = {.cli = cli, .format = stats->format, .columns = columns};
        int rc = list_begin(&list);

        for (size_t i = 0; rc == 0 && i < samples->count; i++)
                if (samples->items[i].valid)
                        add_sample(&list, &samples->items[i]);
        if (rc == 0)
                rc = list_print(&list);
        list_clear(&list);
        if (rc == 0 && fflush(stdout) != 0)
                rc = EXIT_CUBBY;
        return rc;
}

static void pause_ms(long milliseconds)
{
        struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

        (void)nanosleep(&time, NULL);
}

static int watch(struct cli *cli, const struct stats_settings *stats, struct args args,
        struct samples *samples)
{
        bool named = args.count > 0;
        bool screen = !stats->no_stream && isatty(STDOUT_FILENO) == 1;
        int rc = named ? choose_named(cli, args, samples) : choose_running(cli, samples);

        if (rc == 0)
                rc = take_all(cli, samples, named);
        do {
                if (rc != 0)
                        return rc;
                pause_ms(stats->no_stream ? ONE_SHOT_MS : REFRESH_MS);
                rc = take_all(cli, samples, named);
                if (screen)
                        (void)printf("\033[H\033[J");
                if (rc == 0)
                        rc = print_all(cli, stats, samples);
        } while (!stats->no_stream);
        return rc;
}

static int print_stats(struct cli *cli, const void *settings, struct args args)
{
        const struct stats_settings *stats = settings;
        struct list check = {.cli = cli, .format = stats->format, .columns = columns};
        struct samples samples = {calloc(BOXES_MAX, sizeof(struct sample)), 0};
        int rc = samples.items == NULL ? cli_no_memory(cli) : list_begin(&check);

        list_clear(&check);
        if (rc == 0)
                rc = cli_open(cli);
        if (rc == 0)
                rc = watch(cli, stats, args, &samples);
        free(samples.items);
        return rc;
}

const struct command command_stats = {
        .name = "stats",
        .usage = "[OPTIONS] [BOX...]",
        .summary = "Show what boxes use, again and again",
        .details = "All running boxes when none is named. CPU and MEM are seen from inside the "
                   "box, HOST CPU and HOST MEM are what the machine costs the host. Templates "
                   "know .ID, .Name, .CPUPerc, .MemUsage, .MemPerc, .DiskUsage, .PIDs, "
                   ".HostCPUPerc and .HostMem.",
        .examples = "cubby stats --no-stream\n"
                    "cubby stats --no-stream --format json work",
        .options = {options},
        .settings_size = sizeof(struct stats_settings),
        .max_args = BOXES_MAX,
        .arguments = ARGS_BOX,
        .run = print_stats,
};
