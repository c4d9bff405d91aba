/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The fake engine: no machine at all. A child process of the shim plays the
 * agent with real frames, so that everything above an engine can be tested
 * without a kernel or a VMM. It isolates nothing and runs no program. Its files are in a
 * folder beside the box's disk.
 */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAVED_MARK "fake machine"
#define FILES_FOLDER "files"

struct machine {
        pid_t pid;
        int pidfd;
        int agent;
        bool reaped;
        int status;
};

static void fake_destroy(struct machine *machine);
DEFINE_AUTO(machine, fake_destroy)

/* In the child: nothing of the shim stays but the socket, and it dies with it. */
static void become_agent(
        int fd, int root_fd, pid_t parent, const struct machine_config *config, uint64_t generation)
{
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        int socket_fd = fcntl(fd, F_DUPFD, 5);
        int files_fd = root_fd < 0 ? -1 : fcntl(root_fd, F_DUPFD, 5);
        if (socket_fd < 0 || dup2(socket_fd, 3) < 0 || (files_fd >= 0 && dup2(files_fd, 4) < 0) ||
                syscall(SYS_close_range, files_fd >= 0 ? 5U : 4U, ~0U, 0U) < 0)
                _exit(4);
        if (config->uid != 0 && geteuid() == 0 &&
                (setgroups(0, NULL) < 0 || setresgid(config->uid, config->uid, config->uid) < 0 ||
                        setresuid(config->uid, config->uid, config->uid) < 0))
                _exit(4);
        /* after the change of uid, which clears it */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(4);
        _exit(fake_agent_run(
                3, files_fd >= 0 ? 4 : -1, config->memory_bytes, config->vcpus, generation));
}

/* A saved fake machine is its mark in the memory and its generation in the state. */
static int take_origin(
        const struct machine_config *config, uint64_t *ret_generation, cubby_error *err)
{
        char mark[sizeof SAVED_MARK];
        if (config->origin == MACHINE_TEMPLATE &&
                pwrite(config->memory_fd, SAVED_MARK, sizeof mark, 0) != (ssize_t)sizeof mark)
                return cubby_error_errno(err, errno, "writing the fake machine's memory");
        if (config->origin != MACHINE_CLONE)
                return 0;
        uint8_t state[8];
        if (pread(config->memory_fd, mark, sizeof mark, 0) != (ssize_t)sizeof mark ||
                memcmp(mark, SAVED_MARK, sizeof mark) != 0 ||
                pread(config->state_fd, state, sizeof state, 0) != (ssize_t)sizeof state)
                return cubby_error_set(err, CUBBY_E_VMM, "this is no saved fake machine");
        *ret_generation = load_u64(state);
        return 0;
}

/* Its agent says nothing before RESUME: one that waits is one that runs. */
static int fake_load(struct machine *machine, cubby_error *err)
{
        (void)machine;
        (void)err;
        return 0;
}

static int fake_save(struct machine *machine, int state_fd, cubby_error *err)
{
        uint8_t state[8];
        store_u64(state, 1);
        if (pwrite(state_fd, state, sizeof state, 0) != (ssize_t)sizeof state)
                return cubby_error_errno(err, errno, "saving the fake machine");
        return 0;
}

static int copy_text(const char *text, char **ret, cubby_error *err)
{
        char *copy = strdup(text);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        *ret = copy;
        return 0;
}

static int fake_build(const struct machine_config *config, char **ret, cubby_error *err)
{
        return copy_text("fake 1", ret, err);
}

static int fake_host(
        const struct machine_config *config, char **ret, uint32_t *ret_clock_khz, cubby_error *err)
{
        *ret_clock_khz = 0;
        return copy_text("any host", ret, err);
}

/* The folder of the box's files, made when missing; -1: there is no place for one. */
static int open_files(const struct machine_config *config)
{
        char link[48];
        char path[PATH_MAX];
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", config->disk_fd);
        ssize_t length = config->disk_fd < 0 ? -1 : readlink(link, path, sizeof path - 1);
        if (length < 0 || path[0] != '/')
                return -1;
        path[length] = '\0';
        *strrchr(path, '/') = '\0';
        AUTO_FD int box_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (box_fd < 0 || (mkdirat(box_fd, FILES_FOLDER, 0700) < 0 && errno != EEXIST))
                return -1;
        AUTO_FD int fd =
                openat(box_fd, FILES_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 ||
                (config->uid != 0 && geteuid() == 0 && fchown(fd, config->uid, config->uid) < 0))
                return -1;
        return take_fd(&fd);
}

static int fake_start(const struct machine_config *config, struct machine **ret, cubby_error *err)
{
        AUTO(machine) struct machine *machine = calloc(1, sizeof *machine);
        if (machine == NULL)
                return cubby_error_no_memory(err);
        *machine = (struct machine){.pid = -1, .pidfd = -1, .agent = -1};
        uint64_t generation = 0;
        if (take_origin(config, &generation, err) < 0)
                return -1;
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return cubby_error_errno(err, errno, "making the agent's socket");
        machine->agent = ends[0];
        AUTO_FD int child_end = ends[1];
        AUTO_FD int root_fd = open_files(config);
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid < 0)
                return cubby_error_errno(err, errno, "starting the fake machine");
        if (pid == 0)
                become_agent(child_end, root_fd, parent, config, generation);
        machine->pid = pid;
        machine->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (machine->pidfd < 0)
                return cubby_error_errno(err, errno, "watching the fake machine");
        *ret = take_ptr(&machine);
        return 0;
}

static int fake_agent_fd(const struct machine *machine)
{
        return machine->agent;
}

static int fake_exit_fd(const struct machine *machine)
{
        return machine->pidfd;
}

static pid_t fake_pid(const struct machine *machine)
{
        return machine->pid;
}

static enum isolation fake_isolation(const struct machine *machine)
{
        return ISOLATION_NONE;
}

static int send_signal(const struct machine *machine, int number, cubby_error *err)
{
        if (syscall(SYS_pidfd_send_signal, machine->pidfd, number, NULL, 0U) < 0)
                return cubby_error_errno(err, errno, "signalling the fake machine");
        return 0;
}

static int fake_pause(struct machine *machine, cubby_error *err)
{
        return send_signal(machine, SIGSTOP, err);
}

static int fake_unpause(struct machine *machine, cubby_error *err)
{
        return send_signal(machine, SIGCONT, err);
}

static void reap(struct machine *machine)
{
        while (!machine->reaped && machine->pid > 0) {
                if (waitpid(machine->pid, &machine->status, 0) == machine->pid || errno != EINTR)
                        machine->reaped = true;
        }
}

static void fake_describe_exit(struct machine *machine, char *ret, size_t size, bool *ret_clean)
{
        reap(machine);
        *ret_clean = WIFEXITED(machine->status) && WEXITSTATUS(machine->status) == 0;
        if (WIFSIGNALED(machine->status))
                (void)snprintf(ret, size, "the fake machine was killed by signal %d",
                        WTERMSIG(machine->status));
        else
                (void)snprintf(ret, size, "the fake machine exited with code %d",
                        WEXITSTATUS(machine->status));
}

static void fake_destroy(struct machine *machine)
{
        if (machine == NULL)
                return;
        /* first: a child that has not changed its uid yet cannot be killed, but ends by itself */
        close_quietly(take_fd(&machine->agent));
        if (machine->pid > 0 && !machine->reaped) {
                (void)kill(machine->pid, SIGKILL);
                reap(machine);
        }
        close_quietly(machine->pidfd);
        free(machine);
}

const struct engine engine_fake = {
        .name = "fake",
        .capabilities = ENGINE_CAN_PAUSE | ENGINE_CAN_CLONE,
        .start = fake_start,
        .agent_fd = fake_agent_fd,
        .exit_fd = fake_exit_fd,
        .pid = fake_pid,
        .isolation = fake_isolation,
        .pause = fake_pause,
        .unpause = fake_unpause,
        .save = fake_save,
        .load = fake_load,
        .build = fake_build,
        .host = fake_host,
        .describe_exit = fake_describe_exit,
        .destroy = fake_destroy,
};
