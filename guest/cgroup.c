/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup.h"

#include "base/cleanup.h"
#include "boot.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS_READY 8U
#define SLOTS_KEPT 32U /* empty ones beyond this are removed */
#define SLOTS_MAX 1024U
#define AGENT_RESERVE_BYTES (48ULL << 20)
#define AGENT_TASKS 64U
#define SPARE_TASKS 16U /* beyond one command's limit, for the next command */
#define CPU_PERIOD_US 100000U

int cgroups_begin(struct cgroups *cgroups, cubby_error *err)
{
        *cgroups = (struct cgroups){
                .root_fd = -1, .workload_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
        cgroups->root_fd = open(BOOT_CGROUP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (cgroups->root_fd < 0 || mkdirat(cgroups->root_fd, "workload", 0755) < 0)
                return cubby_error_errno(err, errno, "making the workload's cgroup");
        cgroups->workload_fd =
                openat(cgroups->root_fd, "workload", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (cgroups->workload_fd < 0 ||
                text_write_at(cgroups->workload_fd, "cgroup.procs", "0") < 0)
                return cubby_error_errno(err, errno, "entering the workload's cgroup");
        return 0;
}

/* What the kernel tells in a few lines; one read, for a second would make them again. */
static bool read_lines(int fd, char *ret, size_t size)
{
        ssize_t got = fd < 0 ? -1 : pread(fd, ret, size - 1, 0);
        ret[got < 0 ? 0 : got] = '\0';
        return got > 0;
}

static uint64_t read_oom_kills(const struct slot *slot)
{
        char text[512];
        uint64_t kills = 0;
        if (read_lines(slot->memory_fd, text, sizeof text))
                (void)text_value(text, "oom_kill", &kills);
        return kills;
}

static bool is_populated(int events_fd)
{
        char text[128];
        uint64_t populated = 1;
        return !read_lines(events_fd, text, sizeof text) ||
                !text_value(text, "populated", &populated) || populated != 0;
}

static void slot_free(struct slot *slot)
{
        if (slot == NULL)
                return;
        close_quietly(slot->dir_fd);
        close_quietly(slot->events_fd);
        close_quietly(slot->memory_fd);
        free(slot);
}

DEFINE_AUTO(slot, slot_free)

static struct slot *make_slot(struct cgroups *cgroups, cubby_error *err)
{
        AUTO(slot) struct slot *slot = calloc(1, sizeof *slot);
        if (slot == NULL) {
                (void)cubby_error_no_memory(err);
                return NULL;
        }
        slot->dir_fd = slot->events_fd = slot->memory_fd = -1;
        slot->number = cgroups->made;
        char name[32];
        (void)snprintf(name, sizeof name, "exec%u", slot->number);
        if (mkdirat(cgroups->workload_fd, name, 0755) < 0 && errno != EEXIST) {
                (void)cubby_error_errno(err, errno, "making a cgroup");
                return NULL;
        }
        slot->dir_fd = openat(cgroups->workload_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (slot->dir_fd >= 0)
                slot->events_fd = openat(slot->dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
        if (slot->events_fd >= 0 && cgroups->memory)
                slot->memory_fd = openat(slot->dir_fd, "memory.events", O_RDONLY | O_CLOEXEC);
        if (slot->events_fd < 0 || (cgroups->memory && slot->memory_fd < 0)) {
                (void)cubby_error_errno(err, errno, "opening a cgroup");
                return NULL;
        }
        if (cgroups->task_limit[0] != '\0' &&
                text_write_at(slot->dir_fd, "pids.max", cgroups->task_limit) < 0) {
                (void)cubby_error_errno(err, errno, "limiting a cgroup's tasks");
                return NULL;
        }
        cgroups->made++;
        return take_ptr(&slot);
}

static void put_free(struct cgroups *cgroups, struct slot *slot)
{
        slot->next = cgroups->free;
        cgroups->free = slot;
        cgroups->free_count++;
}

int cgroups_finish(struct cgroups *cgroups, cubby_error *err)
{
        if (text_write_at(cgroups->root_fd, "cgroup.procs", "0") < 0)
                return cubby_error_errno(err, errno, "leaving the workload's cgroup");
        if (text_write_at(cgroups->root_fd, "cgroup.subtree_control", "+cpu +pids") < 0 ||
                text_write_at(cgroups->workload_fd, "cgroup.subtree_control", "+cpu +pids") < 0)
                return cubby_error_errno(err, errno, "turning cgroup controllers on");
        char text[4096];
        uint64_t total_kib = 0;
        if (text_write_at(cgroups->root_fd, "cgroup.subtree_control", "+memory") == 0 &&
                text_write_at(cgroups->workload_fd, "cgroup.subtree_control", "+memory") == 0 &&
                text_read_at(AT_FDCWD, "/proc/meminfo", text, sizeof text) > 0 &&
                text_value(text, "MemTotal:", &total_kib)) {
                uint64_t total = total_kib << 10;
                uint64_t limit =
                        total > 2 * AGENT_RESERVE_BYTES ? total - AGENT_RESERVE_BYTES : total / 2;
                (void)snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
                if (text_write_at(cgroups->workload_fd, "memory.max", text) < 0)
                        return cubby_error_errno(err, errno, "limiting the workload's memory");
                cgroups->memory = true;
        }
        for (unsigned i = 0; i < SLOTS_READY; i++) {
                struct slot *slot = make_slot(cgroups, err);
                if (slot == NULL)
                        return -1;
                put_free(cgroups, slot);
        }
        return 0;
}

void cgroups_tidy(struct cgroups *cgroups)
{
        (void)pthread_mutex_lock(&cgroups->lock);
        struct slot *waiting = cgroups->returned;
        cgroups->returned = NULL;
        (void)pthread_mutex_unlock(&cgroups->lock);
        struct slot **end = &waiting;
        while (*end != NULL)
                end = &(*end)->next;
        *end = cgroups->lingering;
        cgroups->lingering = NULL;
        while (waiting != NULL) {
                struct slot *slot = waiting;
                waiting = slot->next;
                if (is_populated(slot->events_fd)) {
                        slot->next = cgroups->lingering;
                        cgroups->lingering = slot;
                        continue;
                }
                if (cgroups->memory)
                        slot->oom_kills = read_oom_kills(slot);
                put_free(cgroups, slot);
        }
        /* The newest has the highest number: numbers stay without holes. */
        while (cgroups->free_count > SLOTS_KEPT) {
                struct slot **last = NULL;
                for (struct slot **s = &cgroups->free; *s != NULL; s = &(*s)->next)
                        if ((*s)->number + 1 == cgroups->made)
                                last = s;
                if (last == NULL)
                        break;
                struct slot *slot = *last;
                char name[32];
                (void)snprintf(name, sizeof name, "exec%u", slot->number);
                if (unlinkat(cgroups->workload_fd, name, AT_REMOVEDIR) < 0)
                        break;
                *last = slot->next;
                cgroups->free_count--;
                cgroups->made--;
                slot_free(slot);
        }
}

struct slot *cgroups_take(struct cgroups *cgroups, cubby_error *err)
{
        if (cgroups->free == NULL)
                cgroups_tidy(cgroups);
        struct slot *slot = cgroups->free;
        if (slot != NULL) {
                cgroups->free = slot->next;
                cgroups->free_count--;
                slot->next = NULL;
                return slot;
        }
        if (cgroups->made >= SLOTS_MAX) {
                (void)cubby_error_set(err, CUBBY_E_LIMIT,
                        "%u commands of this box still have running processes", SLOTS_MAX);
                return NULL;
        }
        return make_slot(cgroups, err);
}

void cgroups_return(struct cgroups *cgroups, struct slot *slot)
{
        if (slot == NULL)
                return;
        (void)pthread_mutex_lock(&cgroups->lock);
        slot->next = cgroups->returned;
        cgroups->returned = slot;
        (void)pthread_mutex_unlock(&cgroups->lock);
}

/*
 * Each command has the limit by itself, all of them together a little more: a
 * fork bomb fills its own share, and the next command still starts.
 */
static int limit_tasks(struct cgroups *cgroups, uint32_t pids_max, cubby_error *err)
{
        uint64_t limit = pids_max == 0 ? UINT32_MAX : pids_max;
        char text[64];
        if (text_read_at(AT_FDCWD, "/proc/sys/kernel/threads-max", text, sizeof text) > 0) {
                uint64_t all = strtoull(text, NULL, 10);
                if (all > 2ULL * AGENT_TASKS && limit > all - AGENT_TASKS - SPARE_TASKS)
                        limit = all - AGENT_TASKS - SPARE_TASKS;
        }
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)limit + SPARE_TASKS);
        if (text_write_at(cgroups->workload_fd, "pids.max", text) < 0)
                return cubby_error_errno(err, errno, "limiting the workload to %s tasks", text);
        (void)snprintf(
                cgroups->task_limit, sizeof cgroups->task_limit, "%llu", (unsigned long long)limit);
        for (unsigned number = 0; number < cgroups->made; number++) {
                (void)snprintf(text, sizeof text, "exec%u/pids.max", number);
                if (text_write_at(cgroups->workload_fd, text, cgroups->task_limit) < 0)
                        return cubby_error_errno(err, errno, "limiting a command's tasks");
        }
        return 0;
}

int cgroups_limit(struct cgroups *cgroups, uint32_t cpu_milli, uint32_t pids_max, cubby_error *err)
{
        if (cgroups->limited && cgroups->cpu_milli == cpu_milli && cgroups->pids_max == pids_max)
                return 0;
        char text[64] = "max 100000";
        if (cpu_milli != 0)
                (void)snprintf(text, sizeof text, "%llu %u",
                        (unsigned long long)cpu_milli * CPU_PERIOD_US / 1000, CPU_PERIOD_US);
        if (text_write_at(cgroups->workload_fd, "cpu.max", text) < 0)
                return cubby_error_errno(err, errno, "limiting the workload to %u/1000 of a CPU",
                        (unsigned)cpu_milli);
        if (limit_tasks(cgroups, pids_max, err) < 0)
                return -1;
        cgroups->limited = true;
        cgroups->cpu_milli = cpu_milli;
        cgroups->pids_max = pids_max;
        return 0;
}

int cgroups_freeze(const struct cgroups *cgroups, bool frozen)
{
        return text_write_at(cgroups->workload_fd, "cgroup.freeze", frozen ? "1" : "0");
}

void cgroups_kill(const struct cgroups *cgroups)
{
        (void)text_write_at(cgroups->workload_fd, "cgroup.kill", "1");
}

bool cgroups_populated(const struct cgroups *cgroups)
{
        AUTO_FD int fd = openat(cgroups->workload_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
        return fd < 0 || is_populated(fd);
}

void slot_kill(const struct slot *slot)
{
        (void)text_write_at(slot->dir_fd, "cgroup.kill", "1");
}

void slot_signal(const struct slot *slot, int signal)
{
        char text[16384]; /* two thousand processes */
        if (text_read_at(slot->dir_fd, "cgroup.procs", text, sizeof text) <= 0)
                return;
        for (char *line = text; line != NULL && *line != '\0';) {
                long pid = strtol(line, &line, 10);
                if (pid > 1)
                        (void)kill((pid_t)pid, signal);
                if (*line != '\n')
                        break;
                line++;
        }
}

void cgroups_signal(const struct cgroups *cgroups, int signal)
{
        for (unsigned number = 0; number < cgroups->made; number++) {
                char name[32];
                (void)snprintf(name, sizeof name, "exec%u", number);
                AUTO_FD int fd =
                        openat(cgroups->workload_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                const struct slot slot = {.dir_fd = fd};
                if (fd >= 0)
                        slot_signal(&slot, signal);
        }
}

bool slot_ran_out_of_memory(const struct slot *slot)
{
        return read_oom_kills(slot) > slot->oom_kills;
}
