/* SPDX-License-Identifier: Apache-2.0 */
#include "spawn.h"

#include "arch.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum step {
        STEP_NONE,
        STEP_SESSION,
        STEP_TERMINAL,
        STEP_DESCRIPTORS,
        STEP_FOLDER,
        STEP_LIMITS,
        STEP_USER,
        STEP_EXEC,
};

/* Shared with the new process, which runs while the spawner waits in clone. */
struct plan {
        const struct command *command;
        const struct identity *identity;
        int in, out, errors;
        bool tty;
        bool plain_root; /* has the spawner's own ids already */
        volatile int error_number;
        volatile enum step step;
        volatile pid_t inner_pid;
};

int spawner_init(struct spawner *spawner, cubby_error *err)
{
        *spawner = (struct spawner){.null_fd = -1, .ready = {{-1, -1}, {-1, -1}}};
        spawner->users = user_cache_new();
        if (spawner->users == NULL)
                return cubby_error_no_memory(err);
        spawner->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (spawner->null_fd < 0)
                return cubby_error_errno(err, errno, "opening the box's /dev/null");
        void *stack = mmap(NULL, SPAWN_STACK_SIZE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (stack == MAP_FAILED)
                return cubby_error_no_memory(err);
        spawner->stack = stack;
        spawner_prepare(spawner);
        return 0;
}

/* Ends the new process; the spawner, which shares its memory, sees why. */
static _Noreturn void give_up(struct plan *plan, enum step step, int error_number)
{
        plan->error_number = error_number;
        plan->step = step;
        for (;;)
                (void)syscall(SYS_exit_group, 127);
}

static void become_user(struct plan *plan)
{
        const struct identity *identity = plan->identity;
        if (plan->plain_root)
                return;
        /* The C library's calls would try to change every thread of the agent. */
        if (syscall(SYS_setgroups, identity->group_count, identity->groups) < 0 ||
                syscall(SYS_setresgid, identity->gid, identity->gid, identity->gid) < 0 ||
                syscall(SYS_setresuid, identity->uid, identity->uid, identity->uid) < 0)
                give_up(plan, STEP_USER, errno);
}

/*
 * In the new process: memory is the agent's until exec, so only system calls.
 * Capabilities need none of them: the spawner's bounding set is what exec gives
 * to root, and another user gets nothing.
 */
static void child_main(void *data)
{
        struct plan *plan = data;
        const struct command *command = plan->command;
        const struct rlimit files = {.rlim_cur = 1024, .rlim_max = 524288};
        plan->inner_pid = (pid_t)syscall(SYS_getpid);
        if (syscall(SYS_setsid) < 0)
                give_up(plan, STEP_SESSION, errno);
        if (plan->tty && ioctl(plan->in, TIOCSCTTY, 0) < 0)
                give_up(plan, STEP_TERMINAL, errno);
        if (dup2(plan->in, 0) < 0 || dup2(plan->out, 1) < 0 || dup2(plan->errors, 2) < 0)
                give_up(plan, STEP_DESCRIPTORS, errno);
        if (command->cwd[0] != '\0' && chdir(command->cwd) < 0)
                give_up(plan, STEP_FOLDER, errno);
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
                give_up(plan, STEP_LIMITS, errno);
        become_user(plan);
        int refused = 0;
        int last = ENOENT;
        for (size_t i = 0; i < command->path_count; i++) {
                (void)syscall(SYS_execve, command->paths[i], command->argv, command->env);
                last = errno;
                if (last == EACCES)
                        refused = last;
                else if (last != ENOENT && last != ENOTDIR)
                        break;
        }
        if (last == ENOENT || last == ENOTDIR)
                last = refused != 0 ? refused : last;
        give_up(plan, STEP_EXEC, last);
}

void spawned_close(struct spawned *spawned)
{
        for (int i = 0; i < CHANNEL_COUNT; i++)
                close_quietly(take_fd(&spawned->fds[i]));
        close_quietly(take_fd(&spawned->pidfd));
}

/* Our end is ret[1] for the child's stdin, ret[0] for its output. */
static int make_pipe(int ours, int ret[2])
{
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -1;
        /* Non-blocking even where only ready pipes are read: the box can open the
         * same pipe through /proc and take the bytes away. */
        if (fcntl(ends[ours], F_SETFL, O_NONBLOCK) < 0) {
                close_quietly(ends[0]);
                close_quietly(ends[1]);
                return -1;
        }
        ret[0] = ends[0];
        ret[1] = ends[1];
        return 0;
}

void spawner_prepare(struct spawner *spawner)
{
        for (int i = 0; i < 2; i++)
                if (spawner->ready[i][0] < 0)
                        (void)make_pipe(0, spawner->ready[i]); /* else when it is needed */
}

static int take_output_pipe(struct spawner *spawner, int ret[2])
{
        for (int i = 0; i < 2; i++) {
                if (spawner->ready[i][0] < 0)
                        continue;
                ret[0] = take_fd(&spawner->ready[i][0]);
                ret[1] = take_fd(&spawner->ready[i][1]);
                return 0;
        }
        return make_pipe(0, ret);
}

static int open_terminal(const struct message_exec *message, const struct identity *identity,
        struct spawned *spawned, int *ret_terminal, cubby_error *err)
{
        int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (master < 0)
                return cubby_error_errno(err, errno, "opening a terminal");
        spawned->fds[CHANNEL_STDOUT] = master;
        int unlocked = 0;
        if (ioctl(master, TIOCSPTLCK, &unlocked) < 0)
                return cubby_error_errno(err, errno, "unlocking a terminal");
        AUTO_FD int terminal = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        const struct winsize size = {.ws_row = message->rows, .ws_col = message->columns};
        if (terminal < 0 || fchown(terminal, identity->uid, (gid_t)-1) < 0 ||
                (size.ws_row != 0 && ioctl(master, TIOCSWINSZ, &size) < 0))
                return cubby_error_errno(err, errno, "preparing a terminal");
        *ret_terminal = take_fd(&terminal);
        return 0;
}

/* The child's three descriptors; each is closed by the caller after the clone. */
static int open_channels(struct spawner *spawner, const struct message_exec *message,
        const struct identity *identity, struct spawned *spawned, int child[3], cubby_error *err)
{
        if ((message->flags & EXEC_TTY) != 0)
                return open_terminal(message, identity, spawned, &child[0], err);
        int ends[2];
        if ((message->flags & EXEC_DETACH) != 0)
                return 0;
        if ((message->flags & EXEC_STDIN) != 0) {
                if (make_pipe(1, ends) < 0)
                        return cubby_error_errno(err, errno, "making a pipe");
                child[0] = ends[0];
                spawned->fds[CHANNEL_STDIN] = ends[1];
        }
        for (int channel = CHANNEL_STDOUT; channel <= CHANNEL_STDERR; channel++) {
                if (take_output_pipe(spawner, ends) < 0)
                        return cubby_error_errno(err, errno, "making a pipe");
                spawned->fds[channel] = ends[0];
                child[channel] = ends[1];
                if (identity->uid != 0) /* it may open /dev/stdout again by name */
                        (void)!fchown(ends[1], identity->uid, identity->gid);
        }
        return 0;
}

static int exec_error(const struct plan *plan, cubby_error *err)
{
        const char *name = plan->command->argv[0];
        int number = plan->error_number;
        switch (plan->step) {
        case STEP_FOLDER:
                (void)cubby_error_errno(err, number, "working folder '%.256s'", plan->command->cwd);
                break;
        case STEP_USER:
                (void)cubby_error_errno(
                        err, number, "changing to user '%.256s'", plan->command->user);
                break;
        case STEP_EXEC:
                (void)cubby_error_errno(err, number, "'%.256s'", name);
                if (err != NULL)
                        err->code = number == ENOENT || number == ENOTDIR ? CUBBY_E_EXEC_NOT_FOUND
                                : number == ENOMEM                        ? CUBBY_E_NO_MEMORY
                                                                          : CUBBY_E_EXEC_REFUSED;
                return -1;
        case STEP_NONE:
        case STEP_SESSION:
        case STEP_TERMINAL:
        case STEP_DESCRIPTORS:
        case STEP_LIMITS:
                return cubby_error_errno(err, number, "preparing '%.256s'", name);
        }
        if (err != NULL)
                err->code = CUBBY_E_INVALID;
        return -1;
}

/* clone, exec, and what came of both. `spawned` gets pid and pidfd. */
static int run_plan(struct spawner *spawner, struct plan *plan, const struct slot *slot,
        struct spawned *spawned, cubby_error *err)
{
        int pidfd = -1;
        const struct clone_args args = {
                .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_INTO_CGROUP,
                .pidfd = (uint64_t)(uintptr_t)&pidfd,
                .exit_signal = SIGCHLD,
                .stack = (uint64_t)(uintptr_t)spawner->stack,
                .stack_size = SPAWN_STACK_SIZE,
                .cgroup = (uint32_t)slot->dir_fd,
        };
        long pid = arch_clone(&args, sizeof args, child_main, plan);
        if (pid == -EAGAIN)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the box has reached its limit of processes");
        if (pid < 0)
                return cubby_error_errno(err, (int)-pid, "making a process");
        spawned->pid = (pid_t)pid;
        spawned->pidfd = pidfd;
        spawned->inner_pid = (uint32_t)plan->inner_pid;
        if (plan->step == STEP_NONE)
                return 0;
        siginfo_t info;
        while (syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED, NULL) < 0 && errno == EINTR)
                ;
        return exec_error(plan, err);
}

static bool exists(const char *path)
{
        struct stat info;
        return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static int spawn_ready(struct spawner *spawner, const struct message_exec *message,
        struct command *command, const struct slot *slot, struct spawned *spawned, cubby_error *err)
{
        const struct identity *identity = NULL;
        if (user_cache_resolve(spawner->users, command->user, &identity, err) < 0 ||
                command_look_up(command, exists, err) < 0 ||
                command_default(command, "PATH", COMMAND_DEFAULT_PATH, err) < 0 ||
                command_default(command, "HOSTNAME", spawner->hostname, err) < 0 ||
                command_default(command, "HOME", identity->home, err) < 0 ||
                ((message->flags & EXEC_TTY) != 0 &&
                        command_default(command, "TERM", "xterm", err) < 0))
                return -1;
        int child[3] = {-1, -1, -1};
        int result = open_channels(spawner, message, identity, spawned, child, err);
        if (result == 0) {
                bool tty = (message->flags & EXEC_TTY) != 0;
                struct plan plan = {
                        .command = command,
                        .identity = identity,
                        .in = child[0] >= 0 ? child[0] : spawner->null_fd,
                        .out = tty              ? child[0]
                                : child[1] >= 0 ? child[1]
                                                : spawner->null_fd,
                        .errors = tty           ? child[0]
                                : child[2] >= 0 ? child[2]
                                                : spawner->null_fd,
                        .tty = tty,
                        .plain_root = identity->uid == 0 && identity->gid == 0 &&
                                identity->group_count == 0,
                };
                result = run_plan(spawner, &plan, slot, spawned, err);
        }
        for (int i = 0; i < 3; i++)
                close_quietly(child[i]);
        return result;
}

int spawn_command(struct spawner *spawner, const struct message_exec *message,
        const struct slot *slot, struct spawned *ret, cubby_error *err)
{
        struct command command = {0};
        struct spawned spawned = SPAWNED_NONE;
        if (command_make(message, &command, err) < 0)
                return -1;
        int result = spawn_ready(spawner, message, &command, slot, &spawned, err);
        command_free(&command);
        if (result < 0) {
                spawned_close(&spawned);
                return -1;
        }
        *ret = spawned;
        return 0;
}
