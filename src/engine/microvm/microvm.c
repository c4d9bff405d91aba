/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "engine/microvm/args.h"
#include "engine/microvm/copy.h"
#include "engine/microvm/jail.h"
#include "engine/microvm/probe.h"
#include "engine/microvm/program.h"
#include "engine/microvm/qmp.h"
#include "engine/microvm/migration.h"
#include "engine/microvm/tsc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TIMEOUT_MS 20000 /* until QEMU answers, on a loaded host */
#define COMMAND_TIMEOUT_MS 2000
#define TAIL_SIZE 400
/* above every descriptor that the child gets under a fixed number */
#define PARENT_FD_MIN 64

struct machine {
        struct child child;
        struct qmp qmp;
        int agent_fd;
        bool reaped;
        int status; /* of waitpid, once reaped */
        enum isolation isolation;
        enum machine_origin origin;
        int memory_fd; /* what its memory is, or began with; -1: its own alone */
        uint64_t memory_bytes;
};

struct socket_pair {
        int ours;
        int theirs;
};

static void machine_free(struct machine *machine)
{
        if (machine == NULL)
                return;
        if (machine->reaped) {
                close_quietly(take_fd(&machine->child.pidfd));
                machine->child = CHILD_NONE;
        }
        child_kill(&machine->child);
        qmp_close(&machine->qmp);
        close_quietly(machine->agent_fd);
        close_quietly(machine->memory_fd);
        free(machine);
}
DEFINE_AUTO(machine, machine_free)

static int make_pair(struct socket_pair *ret, cubby_error *err)
{
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return cubby_error_errno(err, errno, "making a socket");
        AUTO_FD int first = fds[0];
        AUTO_FD int second = fds[1];
        int ours = fcntl(first, F_DUPFD_CLOEXEC, PARENT_FD_MIN);
        if (ours < 0)
                return cubby_error_errno(err, errno, "making a socket");
        *ret = (struct socket_pair){.ours = ours, .theirs = take_fd(&second)};
        return 0;
}

/* Says so when KVM would have been wanted. */
static int choose_isolation(
        const struct machine_config *config, enum isolation *ret, cubby_error *err)
{
        struct probe_result probe = {.support = KVM_SUPPORT_NONE};
        if (config->accel != ACCEL_TCG)
                probe = probe_kvm();
        if (probe_choose(&probe, config->accel, config->own_kernel, ret, err) < 0)
                return -1;
        if (*ret == ISOLATION_EMULATED && config->accel != ACCEL_TCG)
                log_line(config->log, LOG_WARNING,
                        "no hardware virtualisation (%s): the machine is emulated, which is slow "
                        "and no security boundary by itself",
                        probe.text);
        return 0;
}

/* A clone's was decided when its template was saved. */
static int find_isolation(const struct machine_config *config, struct machine *machine,
        struct vmm_spec *spec, cubby_error *err)
{
        if (config->origin != MACHINE_CLONE)
                return choose_isolation(config, &machine->isolation, err);
        struct migration_header header = {0};
        if (migration_read_header(config->state_fd, &header, err) < 0)
                return -1;
        bool kvm = header.isolation != ISOLATION_EMULATED;
        if ((config->accel == ACCEL_KVM && !kvm) || (config->accel == ACCEL_TCG && kvm))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the saved machine was made with another accelerator");
        machine->isolation = header.isolation;
        spec->devices_only = header.devices_only;
        return 0;
}

static int disk_size(int fd, uint64_t *ret, cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "checking the disk");
        *ret = (uint64_t)info.st_size;
        return 0;
}

static int spawn_vmm(const struct machine_config *config, const struct args *args,
        const struct jail_spec *spec, const struct socket_pair *qmp,
        const struct socket_pair *agent, struct child *ret, cubby_error *err)
{
        static const char *const environment[] = {"LANG=C", NULL};
        struct spawn_fd fds[9] = {{qmp->theirs, VMM_FD_QMP}, {agent->theirs, VMM_FD_AGENT},
                {config->rootfs_fd, VMM_FD_ROOTFS}, {config->disk_fd, VMM_FD_DISK}};
        size_t count = 4;
        if (config->origin != MACHINE_CLONE) {
                fds[count++] = (struct spawn_fd){config->vmlinux_fd, VMM_FD_VMLINUX};
                fds[count++] = (struct spawn_fd){config->initramfs_fd, VMM_FD_INITRAMFS};
        }
        if (config->origin != MACHINE_BOOT)
                fds[count++] = (struct spawn_fd){config->memory_fd, VMM_FD_MEMORY};
        if (config->console_fd >= 0) {
                fds[count++] = (struct spawn_fd){config->console_fd, STDOUT_FILENO};
                fds[count++] = (struct spawn_fd){config->console_fd, STDERR_FILENO};
        }
        AUTO_FREE struct jail *jail = calloc(1, sizeof *jail);
        if (jail == NULL)
                return cubby_error_no_memory(err);
        if (jail_plan(spec, jail, err) < 0 || (!config->weak_jail && jail_check(jail, err) < 0))
                return -1;
        struct spawn_options options = {.argv = (const char *const *)args->list,
                .env = environment,
                .fds = fds,
                .fd_count = count,
                .namespaces = jail->namespaces,
                .before_exec = jail_enter,
                .data = jail};
        if (spawn(&options, ret, err) < 0)
                return -1;
        char report[JAIL_REPORT_MAX];
        jail_report(jail, report);
        log_line(config->log, jail->namespaces == 0 ? LOG_WARNING : LOG_INFO, "%s", report);
        return 0;
}

/* With namespaces, or, where the host forbids them, without. */
static int spawn_jailed(const struct machine_config *config, const struct vmm_spec *vmm,
        const struct socket_pair *qmp, const struct socket_pair *agent, struct child *ret,
        cubby_error *err)
{
        static const int files[] = {VMM_FD_VMLINUX, VMM_FD_INITRAMFS};
        struct jail_spec spec = {.program = vmm->program,
                .uid = config->uid,
                .kvm = vmm->kvm,
                .namespaces = true,
                .memory_bytes = vmm->memory_bytes,
                .files = files,
                .file_count = vmm->origin == MACHINE_CLONE ? 0 : sizeof files / sizeof *files,
                .parent_end = qmp->ours,
                .child_end = VMM_FD_QMP};
        struct args args = {0};
        if (disk_size(config->disk_fd, &spec.disk_bytes, err) < 0 ||
                args_build(vmm, &args, err) < 0)
                return -1;
        cubby_error why = {0};
        int result = spawn_vmm(config, &args, &spec, qmp, agent, ret, &why);
        if (result < 0) {
                log_line(config->log, LOG_WARNING, "no namespaces for the VMM: %s", why.message);
                spec.namespaces = false;
                result = spawn_vmm(config, &args, &spec, qmp, agent, ret, err);
        }
        args_free(&args);
        return result;
}

/* What QEMU said last, for the error of a start that failed. */
static void append_tail(int console_fd, cubby_error *err)
{
        struct stat info;
        char tail[TAIL_SIZE + 1];
        if (err == NULL || console_fd < 0 || fstat(console_fd, &info) < 0)
                return;
        off_t from = info.st_size > TAIL_SIZE ? info.st_size - TAIL_SIZE : 0;
        ssize_t got = pread(console_fd, tail, TAIL_SIZE, from);
        while (got > 0 && tail[got - 1] == '\n')
                got--;
        if (got <= 0)
                return;
        for (ssize_t i = 0; i < got; i++)
                if ((unsigned char)tail[i] < ' ' || (unsigned char)tail[i] > '~')
                        tail[i] = ' ';
        size_t used = strlen(err->message);
        (void)snprintf(err->message + used, sizeof err->message - used, " (%.*s)", (int)got, tail);
}

static void reap(struct machine *machine)
{
        if (machine->reaped || machine->child.pid <= 0)
                return;
        pid_t pid;
        do
                pid = waitpid(machine->child.pid, &machine->status, WNOHANG);
        while (pid < 0 && errno == EINTR);
        machine->reaped = pid == machine->child.pid;
}

static int microvm_load(struct machine *machine, cubby_error *err)
{
        if (migration_load(&machine->qmp, deadline_after_ms(START_TIMEOUT_MS), err) == 0)
                return 0;
        if (err != NULL && err->code != CUBBY_E_NO_MEMORY)
                err->code = CUBBY_E_VMM;
        return -1;
}

static int microvm_start(
        const struct machine_config *config, struct machine **ret, cubby_error *err)
{
        AUTO(machine) struct machine *machine = calloc(1, sizeof *machine);
        AUTO_FREE char *program = NULL;
        if (machine == NULL)
                return cubby_error_no_memory(err);
        machine->child = CHILD_NONE;
        machine->qmp.fd = -1;
        machine->agent_fd = -1;
        machine->memory_fd = -1;
        machine->origin = config->origin;
        machine->memory_bytes = config->memory_bytes;
        struct vmm_spec vmm = {.origin = config->origin,
                .memory_bytes = config->memory_bytes,
                .vcpus = config->vcpus,
                .console = config->console};
        if (program_resolve(config->vmm_path, &program, err) < 0 ||
                find_isolation(config, machine, &vmm, err) < 0)
                return -1;
        vmm.program = program;
        vmm.kvm = machine->isolation != ISOLATION_EMULATED;
        vmm.software_kvm = machine->isolation == ISOLATION_SOFTWARE;
        if (!vmm.kvm && config->origin != MACHINE_CLONE)
                vmm.tsc_khz = tsc_khz();

        struct socket_pair qmp = {-1, -1};
        struct socket_pair agent = {-1, -1};
        if (make_pair(&qmp, err) < 0)
                return -1;
        AUTO_FD int qmp_ours = qmp.ours;
        AUTO_FD int qmp_theirs = qmp.theirs;
        if (make_pair(&agent, err) < 0)
                return -1;
        machine->agent_fd = agent.ours;
        AUTO_FD int agent_theirs = agent.theirs;
        if (fd_set_nonblocking(agent.ours, true) < 0)
                return cubby_error_errno(err, errno, "preparing the agent's stream");
        if (spawn_jailed(config, &vmm, &qmp, &agent, &machine->child, err) < 0) {
                if (err != NULL &&
                        (err->code == CUBBY_E_SYSTEM || err->code == CUBBY_E_PERMISSION ||
                                err->code == CUBBY_E_NOT_FOUND))
                        err->code = CUBBY_E_VMM; /* of the program, not of what was asked for */
                return cubby_error_wrap(err, "starting the VMM");
        }
        /* ours alone from here on, so that the VMM's end is seen as an end */
        close_quietly(take_fd(&qmp_theirs));
        close_quietly(take_fd(&agent_theirs));
        if (qmp_open(&machine->qmp, take_fd(&qmp_ours), deadline_after_ms(START_TIMEOUT_MS), err) <
                0) {
                append_tail(config->console_fd, err);
                return cubby_error_wrap(err, "starting the VMM '%s'", program);
        }
        if (config->origin == MACHINE_CLONE &&
                (migration_offer(&machine->qmp, config->state_fd,
                         deadline_after_ms(START_TIMEOUT_MS), err) < 0 ||
                        (!config->waits && microvm_load(machine, err) < 0))) {
                append_tail(config->console_fd, err);
                if (err != NULL && err->code != CUBBY_E_NO_MEMORY)
                        err->code = CUBBY_E_VMM;
                return -1;
        }
        if (config->origin != MACHINE_BOOT) {
                machine->memory_fd = fcntl(config->memory_fd, F_DUPFD_CLOEXEC, PARENT_FD_MIN);
                if (machine->memory_fd < 0)
                        return cubby_error_errno(err, errno, "keeping the machine's memory");
        }
        *ret = take_ptr(&machine);
        return 0;
}

/* What a clone began with is sealed and can be copied while it runs. */
static int microvm_copy_begin(struct machine *machine, int memory_fd, cubby_error *err)
{
        if (machine->origin == MACHINE_BOOT)
                return cubby_error_set(
                        err, CUBBY_E_UNSUPPORTED, "this machine's memory cannot be copied");
        if (machine->origin == MACHINE_TEMPLATE)
                return 0;
        return copy_object(machine->memory_fd, memory_fd, machine->memory_bytes, err);
}

static int microvm_copy_end(struct machine *machine, int memory_fd, int state_fd, cubby_error *err)
{
        const struct migration_header header = {
                .isolation = machine->isolation, .devices_only = true};
        /* the header comes last: QEMU empties the file, but keeps the offset */
        if (lseek(state_fd, MIGRATION_HEADER_SIZE, SEEK_SET) < 0)
                return cubby_error_errno(err, errno, "writing the machine's state");
        if (migration_copy_devices(
                    &machine->qmp, state_fd, deadline_after_ms(START_TIMEOUT_MS), err) < 0 ||
                migration_write_header(state_fd, &header, err) < 0)
                return -1;
        if (machine->origin == MACHINE_TEMPLATE)
                return copy_object(machine->memory_fd, memory_fd, machine->memory_bytes, err);
        return copy_private_pages(machine->child.pid, machine->memory_bytes, memory_fd, err);
}

static int microvm_save(struct machine *machine, int state_fd, cubby_error *err)
{
        const struct migration_header header = {.isolation = machine->isolation};
        if (migration_write_header(state_fd, &header, err) < 0)
                return -1;
        return migration_save(&machine->qmp, state_fd, deadline_after_ms(START_TIMEOUT_MS), err);
}

static int microvm_host(
        const struct machine_config *config, char **ret, uint32_t *ret_clock_khz, cubby_error *err)
{
        enum isolation isolation = ISOLATION_NONE;
        if (choose_isolation(config, &isolation, err) < 0)
                return -1;
        return migration_host(isolation, ret, ret_clock_khz, err);
}

static int microvm_agent_fd(const struct machine *machine)
{
        return machine->agent_fd;
}

static int microvm_exit_fd(const struct machine *machine)
{
        return machine->child.pidfd;
}

static pid_t microvm_pid(const struct machine *machine)
{
        return machine->child.pid;
}

static enum isolation microvm_isolation(const struct machine *machine)
{
        return machine->isolation;
}

static int command(struct machine *machine, const char *name, cubby_error *err)
{
        return qmp_execute(
                &machine->qmp, name, NULL, -1, deadline_after_ms(COMMAND_TIMEOUT_MS), NULL, err);
}

static int microvm_pause(struct machine *machine, cubby_error *err)
{
        return command(machine, "stop", err);
}

static int microvm_unpause(struct machine *machine, cubby_error *err)
{
        return command(machine, "cont", err);
}

static void describe_signal(int number, char *ret, size_t size)
{
        if (number == SIGSYS)
                (void)snprintf(ret, size,
                        "the VMM was stopped by its sandbox: it made a forbidden system call");
        else
                (void)snprintf(ret, size, "the VMM was killed by signal %d (%s)", number,
                        sigdescr_np(number) == NULL ? "?" : sigdescr_np(number));
}

static void microvm_describe_exit(struct machine *machine, char *ret, size_t size, bool *ret_clean)
{
        qmp_drain(&machine->qmp);
        reap(machine);
        *ret_clean = false;
        if (!machine->reaped) {
                (void)snprintf(ret, size, "the VMM still runs");
        } else if (WIFSIGNALED(machine->status)) {
                describe_signal(WTERMSIG(machine->status), ret, size);
        } else if (WEXITSTATUS(machine->status) != 0) {
                (void)snprintf(
                        ret, size, "the VMM exited with code %d", WEXITSTATUS(machine->status));
        } else if (machine->qmp.shutdown == QMP_SHUTDOWN_GUEST) {
                *ret_clean = true;
                (void)snprintf(ret, size, "the guest powered off");
        } else if (machine->qmp.shutdown == QMP_SHUTDOWN_RESET) {
                (void)snprintf(ret, size, "the guest's kernel panicked or restarted");
        } else {
                (void)snprintf(ret, size, "the VMM was asked to quit");
        }
}

const struct engine engine_microvm = {
        .name = "microvm",
        .capabilities = ENGINE_CAN_PAUSE | ENGINE_CAN_CLONE | ENGINE_CAN_FORK,
        .rest_ms = 2000,
        .start = microvm_start,
        .agent_fd = microvm_agent_fd,
        .exit_fd = microvm_exit_fd,
        .pid = microvm_pid,
        .isolation = microvm_isolation,
        .pause = microvm_pause,
        .unpause = microvm_unpause,
        .save = microvm_save,
        .load = microvm_load,
        .copy_begin = microvm_copy_begin,
        .copy_end = microvm_copy_end,
        .build = migration_build,
        .host = microvm_host,
        .describe_exit = microvm_describe_exit,
        .destroy = machine_free,
};
