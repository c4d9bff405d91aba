/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The fake engine: no machine at all. A child process of the shim plays the
 * agent with real frames, so that everything above an engine can be tested
 * without a kernel or a VMM. It isolates nothing and runs no program.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct machine {
        pid_t pid;
        int pidfd;
        int agent;
        bool reaped;
        int status;
};

static void fake_destroy(struct machine *machine);
static void cleanup_machine(struct machine **machine)
{
        fake_destroy(*machine);
}

/* In the child: nothing of the shim stays but the socket, and it dies with it. */
static void become_agent(int fd, pid_t parent, const struct machine_config *config)
{
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        if (dup2(fd, 3) < 0 || syscall(SYS_close_range, 4U, ~0U, 0U) < 0)
                _exit(4);
        if (config->uid != 0 && geteuid() == 0 &&
                (setgroups(0, NULL) < 0 || setresgid(config->uid, config->uid, config->uid) < 0 ||
                        setresuid(config->uid, config->uid, config->uid) < 0))
                _exit(4);
        /* after the change of uid, which clears it */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(4);
        _exit(fake_agent_run(3, config->memory_bytes, config->vcpus));
}

static int fake_start(const struct machine_config *config, struct machine **ret, cubby_error *err)
{
        __attribute__((cleanup(cleanup_machine))) struct machine *machine =
                calloc(1, sizeof *machine);
        if (machine == NULL)
                return cubby_error_no_memory(err);
        *machine = (struct machine){.pid = -1, .pidfd = -1, .agent = -1};
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return cubby_error_errno(err, errno, "making the agent's socket");
        machine->agent = ends[0];
        AUTO_FD int child_end = ends[1];
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid < 0)
                return cubby_error_errno(err, errno, "starting the fake machine");
        if (pid == 0)
                become_agent(child_end, parent, config);
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
        if (machine->pid > 0 && !machine->reaped) {
                (void)kill(machine->pid, SIGKILL);
                reap(machine);
        }
        close_quietly(machine->pidfd);
        close_quietly(machine->agent);
        free(machine);
}

const struct engine engine_fake = {
        .name = "fake",
        .capabilities = ENGINE_CAN_PAUSE,
        .start = fake_start,
        .agent_fd = fake_agent_fd,
        .exit_fd = fake_exit_fd,
        .pid = fake_pid,
        .isolation = fake_isolation,
        .pause = fake_pause,
        .unpause = fake_unpause,
        .describe_exit = fake_describe_exit,
        .destroy = fake_destroy,
};
