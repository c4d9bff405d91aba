/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROC_BYTES_MAX (64U << 10)

int box_status(
        const cubby_box *box, int64_t deadline_ms, struct message_status *ret, cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        if (box_call(box, FRAME_SHIM_STATUS, NULL, 0, FRAME_SHIM_STATUS_REPLY, deadline_ms, &client,
                    &frame, err) < 0)
                return -1;
        if (!message_status_decode(
                    (struct slice){.data = frame.payload, .size = frame.length}, ret))
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "the shim's status has a bad layout");
        return 0;
}

static const char *read_proc(uint32_t pid, const char *name, struct buffer *text)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/%s", pid, name);
        buffer_clear(text);
        return file_read_at(AT_FDCWD, path, text, NULL) < 0 ? NULL : buffer_text(text);
}

/* For display: a process that just ended counts as nothing. */
static void add_host_use(uint32_t pid, cubby_box_stats *stats)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, PROC_BYTES_MAX);
        if (pid == 0)
                return;
        const char *rollup = read_proc(pid, "smaps_rollup", &text);
        const char *line = rollup == NULL ? NULL : strstr(rollup, "\nPss:");
        uint64_t kilobytes = 0;
        if (line != NULL && sscanf(line, "\nPss: %" SCNu64, &kilobytes) == 1)
                stats->host_pss_bytes += kilobytes * 1024;
        const char *stat = read_proc(pid, "stat", &text);
        const char *after_name = stat == NULL ? NULL : strrchr(stat, ')');
        uint64_t user = 0;
        uint64_t system = 0;
        long ticks = sysconf(_SC_CLK_TCK);
        if (after_name != NULL && ticks > 0 &&
                sscanf(after_name + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &user,
                        &system) == 2)
                stats->host_cpu_us += (user + system) * 1000000 / (uint64_t)ticks;
}

int box_get_stats(cubby_box *box, cubby_box_stats *ret, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(BOX_CALL_MS);
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        struct message_status status;
        struct message_metrics metrics;
        if (box_status(box, deadline, &status, err) < 0 ||
                box_call(box, FRAME_METRICS, NULL, 0, FRAME_METRICS_REPLY, deadline, &client,
                        &frame, err) < 0)
                return cubby_error_wrap(err, "reading the use of box '%s'", box->config.name);
        if (!message_metrics_decode(
                    (struct slice){.data = frame.payload, .size = frame.length}, &metrics))
                return cubby_error_set(
                        err, CUBBY_E_PROTOCOL, "the metrics of the box have a bad layout");
        cubby_box_stats stats = {.uptime_ms = metrics.uptime_ms,
                .cpu_us = metrics.cpu_us,
                .memory_total = metrics.memory_total,
                .memory_available = metrics.memory_available,
                .memory_workload = metrics.memory_workload,
                .disk_total = metrics.disk_total,
                .disk_free = metrics.disk_free,
                .processes = metrics.processes};
        add_host_use(status.shim_pid, &stats);
        add_host_use(status.vmm_pid, &stats);
        *ret = stats;
        return 0;
}

static void copy_process(const struct message_process *from, cubby_process *to)
{
        *to = (cubby_process){.pid = from->pid,
                .parent = from->parent,
                .uid = from->uid,
                .state = from->state > ' ' && from->state < 0x7f ? (char)from->state : '?',
                .cpu_us = from->cpu_us,
                .rss_bytes = from->rss_bytes,
                .age_ms = from->age_ms};
        slice_show(from->command, to->command, sizeof to->command);
}

static int list_processes(const cubby_box *box, struct message_process *entries,
        cubby_process **ret, size_t *ret_count, bool *ret_truncated, cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        if (box_call(box, FRAME_PROCESSES, NULL, 0, FRAME_PROCESS_LIST,
                    deadline_after_ms(BOX_CALL_MS), &client, &frame, err) < 0)
                return cubby_error_wrap(err, "listing processes of box '%s'", box->config.name);
        struct message_processes list = {.entries = entries};
        if (!message_processes_decode(
                    (struct slice){.data = frame.payload, .size = frame.length}, &list))
                return cubby_error_set(
                        err, CUBBY_E_PROTOCOL, "the processes of the box have a bad layout");
        cubby_process *processes = calloc((size_t)list.count + 1, sizeof *processes);
        if (processes == NULL)
                return cubby_error_no_memory(err);
        for (uint32_t i = 0; i < list.count; i++)
                copy_process(&entries[i], &processes[i]);
        *ret = processes;
        *ret_count = list.count;
        if (ret_truncated != NULL)
                *ret_truncated = list.truncated != 0;
        return 0;
}

int box_processes(cubby_box *box, cubby_process **ret, size_t *ret_count, bool *ret_truncated,
        cubby_error *err)
{
        struct message_process *entries = calloc(WIRE_PROCESSES_MAX, sizeof *entries);
        if (entries == NULL)
                return cubby_error_no_memory(err);
        int result = list_processes(box, entries, ret, ret_count, ret_truncated, err);
        free(entries);
        return result;
}
