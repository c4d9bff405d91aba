/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/migration.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/microvm/args.h"
#include "engine/microvm/program.h"
#include "engine/microvm/tsc.h"

#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "cubby machine 1"
#define ACCEL_AT sizeof MAGIC
#define KIND_AT (ACCEL_AT + 1)
#define COPY_SET 9 /* of QEMU's descriptor sets; the drives use lower ones */
#define STATE_NAME "state"
#define LOOK_NS 400000L

static uint8_t accel_letter(enum isolation isolation)
{
        switch (isolation) {
        case ISOLATION_HARDWARE:
                return 'k';
        case ISOLATION_SOFTWARE:
                return 's';
        case ISOLATION_EMULATED:
        case ISOLATION_NONE:
                break;
        }
        return 't';
}

int migration_write_header(int state_fd, const struct migration_header *header, cubby_error *err)
{
        uint8_t bytes[MIGRATION_HEADER_SIZE] = MAGIC;
        bytes[ACCEL_AT] = accel_letter(header->isolation);
        bytes[KIND_AT] = header->devices_only ? 'd' : 'm';
        if (lseek(state_fd, 0, SEEK_SET) < 0 || write_whole(state_fd, bytes, sizeof bytes) < 0)
                return cubby_error_errno(err, errno, "writing the machine's state");
        return 0;
}

int migration_read_header(int state_fd, struct migration_header *ret, cubby_error *err)
{
        uint8_t bytes[MIGRATION_HEADER_SIZE];
        uint8_t expected[MIGRATION_HEADER_SIZE] = MAGIC;
        if (lseek(state_fd, 0, SEEK_SET) < 0)
                return cubby_error_errno(err, errno, "reading the machine's state");
        ssize_t got = read_whole(state_fd, bytes, sizeof bytes);
        if (got < 0)
                return cubby_error_errno(err, errno, "reading the machine's state");
        if (got != (ssize_t)sizeof bytes)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "this is no state of a machine");
        enum isolation isolation = ISOLATION_EMULATED;
        if (bytes[ACCEL_AT] == accel_letter(ISOLATION_HARDWARE))
                isolation = ISOLATION_HARDWARE;
        else if (bytes[ACCEL_AT] == accel_letter(ISOLATION_SOFTWARE))
                isolation = ISOLATION_SOFTWARE;
        expected[ACCEL_AT] = accel_letter(isolation);
        expected[KIND_AT] = bytes[KIND_AT] == 'd' ? 'd' : 'm';
        if (memcmp(bytes, expected, sizeof bytes) != 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "this is no state of a machine");
        *ret = (struct migration_header){
                .isolation = isolation, .devices_only = bytes[KIND_AT] == 'd'};
        return 0;
}

static void pause_briefly(void)
{
        const struct timespec time = {.tv_nsec = LOOK_NS};
        (void)nanosleep(&time, NULL);
}

/* The "status" that a query answers; the caller frees. */
static int query_status(
        struct qmp *qmp, const char *query, int64_t deadline_ms, char **ret, cubby_error *err)
{
        json_t *answer = NULL;
        if (qmp_execute(qmp, query, NULL, -1, deadline_ms, &answer, err) < 0)
                return -1;
        const char *status = json_string_value(json_object_get(answer, "status"));
        char *copy = strdup(status == NULL ? "" : status);
        json_decref(answer);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        *ret = copy;
        return 0;
}

static int execute(struct qmp *qmp, const char *command, json_t *arguments, int64_t deadline_ms,
        cubby_error *err)
{
        int result = qmp_execute(qmp, command, arguments, -1, deadline_ms, NULL, err);
        json_decref(arguments);
        return result;
}

/* What both ends of a migration need: RAM left out, the descriptor known by name. */
static int prepare(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err)
{
        json_t *arguments = json_pack(
                "{s:[{s:s, s:b}]}", "capabilities", "capability", "x-ignore-shared", "state", 1);
        if (arguments == NULL)
                return cubby_error_no_memory(err);
        if (execute(qmp, "migrate-set-capabilities", arguments, deadline_ms, err) < 0)
                return -1;
        return qmp_getfd(qmp, STATE_NAME, state_fd, deadline_ms, err);
}

static int migrate(struct qmp *qmp, const char *command, int64_t deadline_ms, cubby_error *err)
{
        json_t *arguments = json_pack("{s:s}", "uri", "fd:" STATE_NAME);
        if (arguments == NULL)
                return cubby_error_no_memory(err);
        return execute(qmp, command, arguments, deadline_ms, err);
}

/* Asks until the answer is no longer one of the two. */
static int wait_past(struct qmp *qmp, const char *query, const char *first, const char *second,
        int64_t deadline_ms, char **ret, cubby_error *err)
{
        for (;;) {
                AUTO_FREE char *status = NULL;
                if (query_status(qmp, query, deadline_ms, &status, err) < 0)
                        return -1;
                if (strcmp(status, first) != 0 && strcmp(status, second) != 0) {
                        *ret = take_ptr(&status);
                        return 0;
                }
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "the VMM is not through in time");
                pause_briefly();
        }
}

int migration_save(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err)
{
        AUTO_FREE char *status = NULL;
        if (execute(qmp, "stop", NULL, deadline_ms, err) < 0 ||
                prepare(qmp, state_fd, deadline_ms, err) < 0 ||
                migrate(qmp, "migrate", deadline_ms, err) < 0)
                return cubby_error_wrap(err, "saving the machine");
        for (;;) {
                free(take_ptr(&status));
                if (wait_past(qmp, "query-migrate", "setup", "active", deadline_ms, &status, err) <
                        0)
                        return cubby_error_wrap(err, "saving the machine");
                if (strcmp(status, "completed") == 0)
                        return 0;
                if (strcmp(status, "device") != 0 && strcmp(status, "pre-switchover") != 0)
                        return cubby_error_set(err, CUBBY_E_VMM,
                                "saving the machine: the VMM ended it as '%.32s'; is the disk "
                                "full?",
                                status);
                pause_briefly();
        }
}

int migration_copy_devices(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err)
{
        json_t *add = json_pack("{s:i}", "fdset-id", COPY_SET);
        json_t *save = json_pack("{s:s, s:b}", "filename", "/dev/fdset/9", "live", 0);
        json_t *drop = json_pack("{s:i}", "fdset-id", COPY_SET);
        int result = add == NULL || save == NULL || drop == NULL ? cubby_error_no_memory(err) : 0;
        if (result == 0)
                result = execute(qmp, "stop", NULL, deadline_ms, err);
        if (result == 0)
                result = qmp_execute(qmp, "add-fd", add, state_fd, deadline_ms, NULL, err);
        if (result == 0) {
                result = qmp_execute(
                        qmp, "xen-save-devices-state", save, -1, deadline_ms, NULL, err);
                (void)qmp_execute(qmp, "remove-fd", drop, -1, deadline_ms, NULL, NULL);
        }
        json_decref(add);
        json_decref(save);
        json_decref(drop);
        return result < 0 ? cubby_error_wrap(err, "copying the machine's devices") : 0;
}

int migration_offer(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err)
{
        if (prepare(qmp, state_fd, deadline_ms, err) < 0)
                return cubby_error_wrap(err, "restoring the machine");
        return 0;
}

int migration_load(struct qmp *qmp, int64_t deadline_ms, cubby_error *err)
{
        AUTO_FREE char *status = NULL;
        if (migrate(qmp, "migrate-incoming", deadline_ms, err) < 0 ||
                wait_past(qmp, "query-status", "inmigrate", "restore-vm", deadline_ms, &status,
                        err) < 0)
                return cubby_error_wrap(err, "restoring the machine");
        if (strcmp(status, "paused") != 0 && strcmp(status, "postmigrate") != 0 &&
                strcmp(status, "running") != 0)
                return cubby_error_set(err, CUBBY_E_VMM,
                        "restoring the machine: the VMM is '%.32s' after it", status);
        if (execute(qmp, "cont", NULL, deadline_ms, err) < 0)
                return cubby_error_wrap(err, "restoring the machine");
        return 0;
}

int migration_build(const struct machine_config *config, char **ret, cubby_error *err)
{
        AUTO_FREE char *program = NULL;
        if (program_resolve(config->vmm_path, &program, err) < 0)
                return -1;
        struct stat info;
        if (stat(program, &info) < 0)
                return cubby_error_errno(err, errno, "looking at '%s'", program);
        char *text = NULL;
        if (asprintf(&text, "%s %lld %llu %lld.%09ld, arguments %u", program,
                    (long long)info.st_size, (unsigned long long)info.st_ino,
                    (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                    VMM_ARGUMENTS_VERSION) < 0)
                return cubby_error_no_memory(err);
        *ret = text;
        return 0;
}

/* With KVM the guest sees the host's CPU: its model and features bind the state. */
static void describe_cpu(char ret[80])
{
        unsigned model[4] = {0};
        unsigned more[4] = {0};
        (void)__get_cpuid(1, &model[0], &model[1], &model[2], &model[3]);
        (void)__get_cpuid_count(7, 0, &more[0], &more[1], &more[2], &more[3]);
        (void)snprintf(ret, 80, "host %08x %08x %08x %08x %08x %08x", model[0], model[2], model[3],
                more[1], more[2], more[3]);
}

int migration_host(enum isolation isolation, char **ret, uint32_t *ret_clock_khz, cubby_error *err)
{
        char cpu[80] = VMM_CPU_EMULATED;
        bool kvm = isolation != ISOLATION_EMULATED;
        if (kvm)
                describe_cpu(cpu);
        uint32_t khz = tsc_khz();
        if (khz == 0)
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "the host's time stamp counter could not be measured");
        char *text = NULL;
        if (asprintf(&text, "%s, cpu %s", isolation_name(isolation), cpu) < 0)
                return cubby_error_no_memory(err);
        *ret = text;
        *ret_clock_khz = khz;
        return 0;
}
