/* SPDX-License-Identifier: Apache-2.0 */
#include "procs.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "boot.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_TEXT_MAX 256U
#define LIST_ROOM (FRAME_FROM_GUEST_MAX - 512U) /* an entry always fits in what is left */

bool procs_parse_stat(const char *text, uint64_t now_ticks, uint64_t ticks_per_second,
        uint64_t page_size, struct message_process *ret, char ret_name[64])
{
        const char *open_bracket = strchr(text, '(');
        const char *close_bracket = strrchr(text, ')');
        if (open_bracket == NULL || close_bracket == NULL || close_bracket < open_bracket)
                return false;
        size_t length = (size_t)(close_bracket - open_bracket - 1);
        if (length > 63)
                length = 63;
        /* Field 3 is a letter, 4 to 24 are numbers. */
        enum { PARENT = 4, USER = 14, SYSTEM = 15, START = 22, PAGES = 24, FIELDS };
        const char *at = close_bracket + 1;
        if (at[0] != ' ' || at[1] == '\0')
                return false;
        const char state = at[1];
        at += 2;
        long long fields[FIELDS] = {0};
        for (int i = PARENT; i < FIELDS; i++) {
                char *end = NULL;
                fields[i] = strtoll(at, &end, 10);
                if (end == at)
                        return false;
                at = end;
        }
        unsigned long pid = strtoul(text, NULL, 10);
        if (pid == 0 || pid > INT32_MAX || ticks_per_second == 0 || fields[PARENT] < 0 ||
                fields[PARENT] > INT32_MAX || fields[USER] < 0 || fields[SYSTEM] < 0 ||
                fields[START] < 0)
                return false;
        uint64_t start = (uint64_t)fields[START];
        memcpy(ret_name, open_bracket + 1, length);
        ret_name[length] = '\0';
        *ret = (struct message_process){
                .pid = (uint32_t)pid,
                .parent = (uint32_t)fields[PARENT],
                .state = (uint8_t)state,
                .cpu_us = ((uint64_t)fields[USER] + (uint64_t)fields[SYSTEM]) * 1000000 /
                        ticks_per_second,
                .rss_bytes = fields[PAGES] < 0 ? 0 : (uint64_t)fields[PAGES] * page_size,
                .age_ms = start > now_ticks ? 0 : (now_ticks - start) * 1000 / ticks_per_second,
        };
        return true;
}

static bool is_process(const char *name)
{
        return name[0] >= '1' && name[0] <= '9' && strcmp(name, "1") != 0;
}

/* The command line with blanks between its arguments, or [name] of a task without. */
static size_t read_command(int proc_fd, const char *pid, const char *name, char *ret)
{
        char path[300];
        (void)snprintf(path, sizeof path, "%s/cmdline", pid);
        ssize_t size = text_read_at(proc_fd, path, ret, COMMAND_TEXT_MAX + 1);
        while (size > 0 && ret[size - 1] == '\0')
                size--;
        if (size <= 0)
                return (size_t)snprintf(ret, COMMAND_TEXT_MAX, "[%s]", name);
        for (ssize_t i = 0; i < size; i++)
                if (ret[i] == '\0')
                        ret[i] = ' ';
        return (size_t)size;
}

/* False when the process has ended meanwhile. */
static bool read_process(int proc_fd, const char *pid, uint64_t now_ticks,
        struct message_process *ret, char command[COMMAND_TEXT_MAX + 1])
{
        char path[300];
        char text[2048];
        char name[64];
        uint64_t uid = 0;
        (void)snprintf(path, sizeof path, "%s/stat", pid);
        if (text_read_at(proc_fd, path, text, sizeof text) <= 0 ||
                !procs_parse_stat(text, now_ticks, (uint64_t)sysconf(_SC_CLK_TCK),
                        (uint64_t)sysconf(_SC_PAGESIZE), ret, name))
                return false;
        (void)snprintf(path, sizeof path, "%s/status", pid);
        if (text_read_at(proc_fd, path, text, sizeof text) <= 0 || !text_value(text, "Uid:", &uid))
                return false;
        ret->uid = (uint32_t)uid;
        ret->command.size = read_command(proc_fd, pid, name, command);
        ret->command.data = (const uint8_t *)command;
        return true;
}

/* A stream over the folder of a descriptor that stays the caller's. */
static DIR *open_folder(int fd, cubby_error *err)
{
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *folder = copy < 0 ? NULL : fdopendir(copy);
        if (folder == NULL) {
                (void)cubby_error_errno(err, errno, "listing processes");
                close_quietly(copy);
        }
        return folder;
}

int procs_list(int proc_fd, struct buffer *ret, cubby_error *err)
{
        AUTO_DIR DIR *folder = open_folder(proc_fd, err);
        if (folder == NULL)
                return -1;
        struct timespec now = {0};
        (void)clock_gettime(CLOCK_BOOTTIME, &now);
        uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK);
        uint64_t now_ticks =
                (uint64_t)now.tv_sec * hertz + (uint64_t)now.tv_nsec * hertz / 1000000000;

        /* The head is written again when the count is known. */
        AUTO_BUFFER struct buffer one = {.maximum = 4096};
        struct message_processes list = {0};
        size_t head = ret->size;
        if (!message_processes_encode(ret, &list))
                return cubby_error_no_memory(err);
        const struct dirent *entry;
        while ((entry = readdir(folder)) != NULL) {
                struct message_process process;
                char command[COMMAND_TEXT_MAX + 1];
                if (!is_process(entry->d_name) ||
                        !read_process(proc_fd, entry->d_name, now_ticks, &process, command))
                        continue;
                if (list.count == WIRE_PROCESSES_MAX || ret->size > LIST_ROOM) {
                        list.truncated = 1;
                        break;
                }
                buffer_clear(&one);
                struct message_processes single = {.count = 1, .entries = &process};
                if (!message_processes_encode(&one, &single) ||
                        !buffer_append(ret, one.data + 5, one.size - 5))
                        return cubby_error_no_memory(err);
                list.count++;
        }
        ret->data[head] = list.truncated;
        store_u32(ret->data + head + 1, list.count);
        return 0;
}

static uint64_t read_number(int dir_fd, const char *name, const char *key)
{
        char text[4096];
        uint64_t value = 0;
        if (text_read_at(dir_fd, name, text, sizeof text) <= 0)
                return 0;
        if (key == NULL)
                return strtoull(text, NULL, 10);
        (void)text_value(text, key, &value);
        return value;
}

int procs_metrics(int proc_fd, const struct cgroups *cgroups, struct buffer *ret, cubby_error *err)
{
        AUTO_DIR DIR *folder = open_folder(proc_fd, err);
        if (folder == NULL)
                return -1;
        struct statvfs disk;
        if (statvfs(BOOT_UPPER, &disk) < 0)
                return cubby_error_errno(err, errno, "measuring the disk");
        struct message_metrics metrics = {
                .uptime_ms = (uint64_t)clock_monotonic_ms(),
                .cpu_us = read_number(cgroups->workload_fd, "cpu.stat", "usage_usec"),
                .memory_total = read_number(AT_FDCWD, "/proc/meminfo", "MemTotal:") << 10,
                .memory_available = read_number(AT_FDCWD, "/proc/meminfo", "MemAvailable:") << 10,
                .memory_workload = read_number(cgroups->workload_fd, "memory.current", NULL),
                .disk_total = (uint64_t)disk.f_blocks * disk.f_frsize,
                .disk_free = (uint64_t)disk.f_bavail * disk.f_frsize,
        };
        const struct dirent *entry;
        while ((entry = readdir(folder)) != NULL)
                if (is_process(entry->d_name))
                        metrics.processes++;
        return message_metrics_encode(ret, &metrics) ? 0 : cubby_error_no_memory(err);
}
