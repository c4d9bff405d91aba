/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spawn.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STDERR_TAIL 1024
#define SPAWN_FDS_MAX 64
#define PROGRAM_PATH_MAX 4096

struct failure {
        int error_number;
        char step[64];
};

static int open_pidfd(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void report(int fd, int error_number, const char *step)
{
        struct failure failure = {.error_number = error_number};
        for (size_t i = 0; step[i] != '\0' && i + 1 < sizeof failure.step; i++)
                failure.step[i] = step[i];
        (void)write_whole(fd, &failure, sizeof failure);
        _exit(127);
}

/* The file that `name` means: itself with a slash, else the first executable of
 * that name in PATH. */
static bool find_program(const char *name, char ret[PROGRAM_PATH_MAX])
{
        if (strchr(name, '/') != NULL)
                return snprintf(ret, PROGRAM_PATH_MAX, "%s", name) < PROGRAM_PATH_MAX &&
                        access(ret, X_OK) == 0;
        const char *path = getenv("PATH");
        if (path == NULL)
                path = "/usr/bin:/bin";
        while (*path != '\0') {
                size_t length = strcspn(path, ":");
                int written = snprintf(ret, PROGRAM_PATH_MAX, "%.*s/%s", (int)length, path, name);
                if (length > 0 && written < PROGRAM_PATH_MAX && access(ret, X_OK) == 0)
                        return true;
                path += length;
                if (*path == ':')
                        path++;
        }
        errno = ENOENT;
        return false;
}

/*
 * In the child. Sources are first moved above every target, so that no dup2
 * overwrites a source that is still needed.
 */
static void start_program(const struct spawn_options *options, const char *program, int report_fd)
{
        int moved[SPAWN_FDS_MAX];
        int floor = 3;
        for (size_t i = 0; i < options->fd_count; i++)
                if (options->fds[i].target >= floor)
                        floor = options->fds[i].target + 1;
        int high_report = fcntl(report_fd, F_DUPFD_CLOEXEC, floor);
        if (high_report < 0)
                report(report_fd, errno, "moving descriptors");
        report_fd = high_report;
        bool given[3] = {false, false, false};
        for (size_t i = 0; i < options->fd_count; i++) {
                moved[i] = fcntl(options->fds[i].source, F_DUPFD_CLOEXEC, floor);
                if (moved[i] < 0)
                        report(report_fd, errno, "moving descriptors");
                if (options->fds[i].target < 3)
                        given[options->fds[i].target] = true;
        }
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int target = 0; target < 3; target++)
                if (!given[target] && dup2(null_fd, target) < 0)
                        report(report_fd, errno, "opening /dev/null");
        /* Whatever the embedding program left open must not reach the child. */
        (void)syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
        for (size_t i = 0; i < options->fd_count; i++)
                if (dup2(moved[i], options->fds[i].target) < 0)
                        report(report_fd, errno, "placing descriptors");
        const char *step = "preparing the child";
        if (options->new_session && setsid() < 0)
                report(report_fd, errno, "making a session");
        if (options->before_exec != NULL) {
                int result = options->before_exec(options->data, &step);
                if (result < 0)
                        report(report_fd, -result, step);
        }
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        /* not execvp: it hands a file of unknown format to a shell */
        char *const *env = options->env == NULL ? environ : (char *const *)(uintptr_t)options->env;
        (void)execve(program, (char *const *)(uintptr_t)options->argv, env);
        report(report_fd, errno, "executing it");
}

static void reset_signals(void)
{
        struct sigaction action = {.sa_handler = SIG_DFL};
        for (int number = 1; number < NSIG; number++)
                (void)sigaction(number, &action, NULL); /* fails for KILL and STOP only */
}

/* fork(2) has no flags, and unshare(2) cannot move its caller to a new pid namespace. */
static pid_t fork_into(unsigned long namespaces)
{
        if (namespaces == 0)
                return fork();
        return (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
}

int spawn(const struct spawn_options *options, struct child *ret, cubby_error *err)
{
        if (options->fd_count > SPAWN_FDS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "too many descriptors for a child");
        char program[PROGRAM_PATH_MAX];
        if (!find_program(options->argv[0], program))
                return cubby_error_errno(err, errno, "starting '%s': finding it", options->argv[0]);
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", options->argv[0]);
        AUTO_FD int read_end = pipe_fds[0];
        AUTO_FD int write_end = pipe_fds[1];

        /* No handler of the embedding program may run in the child. */
        sigset_t all;
        sigset_t before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        pid_t pid = fork_into(options->namespaces);
        if (pid == 0) {
                reset_signals();
                start_program(options, program, write_end);
        }
        int saved = errno;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return cubby_error_errno(err, saved, "starting '%s'", options->argv[0]);
        close_quietly(take_fd(&write_end));

        struct child child = {.pid = pid, .pidfd = open_pidfd(pid)};
        if (child.pidfd < 0) {
                saved = errno;
                child_kill(&child);
                return cubby_error_errno(err, saved, "watching '%s'", options->argv[0]);
        }
        struct failure failure;
        if (read_whole(read_end, &failure, sizeof failure) == sizeof failure) {
                child_kill(&child);
                failure.step[sizeof failure.step - 1] = '\0';
                return cubby_error_errno(err, failure.error_number, "starting '%s': %s",
                        options->argv[0], failure.step);
        }
        *ret = child;
        return 0;
}

/*
 * In the intermediate process, which shares nothing with the program that it was
 * forked from: starts the grandchild, hands its pidfd over, ends.
 */
static void start_grandchild(
        const struct spawn_options *options, const char *program, int handover, int report_fd)
{
        /* not fork(): a lock of another thread must not be waited for here */
        pid_t pid = _Fork();
        if (pid < 0)
                report(report_fd, errno, "starting a process");
        if (pid == 0)
                start_program(options, program, report_fd);
        int pidfd = open_pidfd(pid); /* not reaped before this process ends: it is the one */
        if (pidfd < 0 || fd_send(handover, "p", 1, &pidfd, 1) < 0) {
                int saved = errno;
                (void)kill(pid, SIGKILL);
                report(report_fd, saved, "watching a process");
        }
        _exit(0);
}

int spawn_detached(const struct spawn_options *options, int *ret_pidfd, cubby_error *err)
{
        const char *name = options->argv[0];
        if (options->fd_count > SPAWN_FDS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "too many descriptors for a child");
        char program[PROGRAM_PATH_MAX];
        if (!find_program(name, program))
                return cubby_error_errno(err, errno, "starting '%s': finding it", name);
        int pipe_fds[2];
        int pair[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", name);
        AUTO_FD int read_end = pipe_fds[0];
        AUTO_FD int write_end = pipe_fds[1];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", name);
        AUTO_FD int ours = pair[0];
        AUTO_FD int theirs = pair[1];
        sigset_t all;
        sigset_t before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        pid_t pid = fork();
        if (pid == 0) {
                reset_signals();
                start_grandchild(options, program, theirs, write_end);
        }
        int saved = errno;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return cubby_error_errno(err, saved, "starting '%s'", name);
        close_quietly(take_fd(&write_end));
        close_quietly(take_fd(&theirs));
        /* fails only where the embedding program ignores SIGCHLD: reaped already */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        struct failure failure;
        if (read_whole(read_end, &failure, sizeof failure) == sizeof failure) {
                failure.step[sizeof failure.step - 1] = '\0';
                return cubby_error_errno(
                        err, failure.error_number, "starting '%s': %s", name, failure.step);
        }
        char byte;
        int fds[FD_PASS_MAX];
        size_t count = 0;
        if (fd_receive(ours, &byte, 1, fds, &count) != 1 || count != 1)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' could not be started", name);
        *ret_pidfd = fds[0];
        return 0;
}

int child_wait(struct child *child, int64_t deadline_ms, int *ret_status, cubby_error *err)
{
        for (;;) {
                struct pollfd poll_fd = {.fd = child->pidfd, .events = POLLIN};
                int ready = poll(&poll_fd, 1, deadline_left_ms(deadline_ms));
                if (ready < 0 && errno != EINTR)
                        return cubby_error_errno(
                                err, errno, "waiting for process %ld", (long)child->pid);
                if (ready == 0)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT,
                                "process %ld did not end in time", (long)child->pid);
                if (ready > 0)
                        break;
        }
        int status = 0;
        pid_t reaped;
        do
                reaped = waitpid(child->pid, &status, 0);
        while (reaped < 0 && errno == EINTR);
        if (reaped < 0)
                return cubby_error_errno(err, errno, "waiting for process %ld", (long)child->pid);
        close_quietly(child->pidfd);
        *child = CHILD_NONE;
        *ret_status = status;
        return 0;
}

void child_kill(struct child *child)
{
        if (child->pid > 0) {
                (void)kill(child->pid, SIGKILL);
                while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        close_quietly(child->pidfd);
        *child = CHILD_NONE;
}

static void keep_tail(char *tail, size_t *used, const char *data, size_t size)
{
        if (size >= STDERR_TAIL) {
                memcpy(tail, data + size - STDERR_TAIL, STDERR_TAIL);
                *used = STDERR_TAIL;
                return;
        }
        if (*used + size > STDERR_TAIL) {
                size_t drop = *used + size - STDERR_TAIL;
                memmove(tail, tail + drop, *used - drop);
                *used -= drop;
        }
        memcpy(tail + *used, data, size);
        *used += size;
}

/* Reads both pipes to their ends. Returns 0, or -1 with the error set. */
static int collect(int out, int errors, struct buffer *output, char *tail, size_t *tail_used,
        int64_t deadline_ms, const char *name, cubby_error *err)
{
        struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = errors, .events = POLLIN}};
        char piece[16384];
        while (fds[0].fd >= 0 || fds[1].fd >= 0) {
                int ready = poll(fds, 2, deadline_left_ms(deadline_ms));
                if (ready < 0 && errno == EINTR)
                        continue;
                if (ready < 0)
                        return cubby_error_errno(err, errno, "reading from '%s'", name);
                if (ready == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "'%s' did not end in time", name);
                for (int i = 0; i < 2; i++) {
                        if (fds[i].fd < 0 || fds[i].revents == 0)
                                continue;
                        ssize_t got = read(fds[i].fd, piece, sizeof piece);
                        if (got < 0 && errno == EINTR)
                                continue;
                        if (got <= 0)
                                fds[i].fd = -1;
                        else if (i == 1)
                                keep_tail(tail, tail_used, piece, (size_t)got);
                        else if (output != NULL && !buffer_append(output, piece, (size_t)got))
                                return cubby_error_set(err, CUBBY_E_LIMIT,
                                        "'%s' printed more than %zu bytes", name, output->maximum);
                }
        }
        return 0;
}

int spawn_run(const char *const *argv, struct buffer *output, int64_t deadline_ms, cubby_error *err)
{
        int out_pipe[2];
        int error_pipe[2];
        if (pipe2(out_pipe, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", argv[0]);
        AUTO_FD int out_read = out_pipe[0];
        AUTO_FD int out_write = out_pipe[1];
        if (pipe2(error_pipe, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", argv[0]);
        AUTO_FD int error_read = error_pipe[0];
        AUTO_FD int error_write = error_pipe[1];
        const struct spawn_fd fds[] = {{out_write, 1}, {error_write, 2}};
        struct spawn_options options = {.argv = argv, .fds = fds, .fd_count = 2};
        struct child child = CHILD_NONE;
        if (spawn(&options, &child, err) < 0)
                return -1;
        close_quietly(take_fd(&out_write));
        close_quietly(take_fd(&error_write));
        char tail[STDERR_TAIL + 1];
        size_t tail_used = 0;
        int status = 0;
        if (collect(out_read, error_read, output, tail, &tail_used, deadline_ms, argv[0], err) <
                        0 ||
                child_wait(&child, deadline_ms, &status, err) < 0) {
                child_kill(&child);
                return -1;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        while (tail_used > 0 && tail[tail_used - 1] == '\n')
                tail_used--;
        tail[tail_used] = '\0';
        if (WIFSIGNALED(status))
                return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' was killed by signal %d: %s",
                        argv[0], WTERMSIG(status), tail);
        return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' exited with code %d: %s", argv[0],
                WEXITSTATUS(status), tail);
}

bool program_exists(const char *name)
{
        char path[PROGRAM_PATH_MAX];
        return find_program(name, path);
}
