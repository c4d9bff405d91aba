/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spawn.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
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
#define START_MS 30000 /* for a go-between to say that the program runs */
#define REAP_MS 5000   /* for what was killed to be gone */

struct failure {
        int error_number;
        char step[64];
};

static int pidfd_kill(int pidfd)
{
        return (int)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* ECHILD is no failure: the embedding program ignores SIGCHLD or reaps all children. */
static void reap(pid_t pid, int flags)
{
        while (waitpid(pid, NULL, flags) < 0 && errno == EINTR)
                ;
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
        if (strchr(name, '/') != NULL) {
                bool fits = snprintf(ret, PROGRAM_PATH_MAX, "%s", name) < PROGRAM_PATH_MAX;
                if (!fits)
                        errno = ENAMETOOLONG;
                return fits && access(ret, X_OK) == 0;
        }
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
        /* Not close-on-exec, for it may be one of the three itself; beyond them all are. */
        int null_fd = open("/dev/null", O_RDWR);
        for (int target = 0; target < 3; target++)
                if (!given[target] && (null_fd < 0 || dup2(null_fd, target) < 0))
                        report(report_fd, errno, "opening /dev/null");
        /* Whatever the embedding program left open must not reach the child. */
        if (syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) < 0)
                report(report_fd, errno, "closing descriptors");
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

/*
 * Returns once the child runs its program or has ended (vfork, but with memory of its
 * own). To wait for the end of a close-on-exec pipe would not do: a fork in another
 * thread may hold that pipe open for ever. No handler of pthread_atfork runs.
 */
static pid_t fork_into(unsigned long namespaces, int *ret_pidfd)
{
        /* its descriptor at once: an ignored child may be gone before anybody asks for it */
        unsigned long flags = namespaces | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
        return (pid_t)syscall(SYS_clone, flags, NULL, ret_pidfd, NULL, NULL);
}

/* No handler of the embedding program may run in the child. */
static void block_signals(sigset_t *ret_before)
{
        sigset_t all;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

static int start_failed(const char *name, struct failure *failure, cubby_error *err)
{
        failure->step[sizeof failure->step - 1] = '\0';
        return cubby_error_errno(
                err, failure->error_number, "starting '%s': %s", name, failure->step);
}

static int check_options(
        const struct spawn_options *options, char ret_program[PROGRAM_PATH_MAX], cubby_error *err)
{
        if (options->fd_count > SPAWN_FDS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "too many descriptors for a child");
        if (!find_program(options->argv[0], ret_program))
                return cubby_error_errno(err, errno, "starting '%s': finding it", options->argv[0]);
        return 0;
}

int spawn(const struct spawn_options *options, struct child *ret, cubby_error *err)
{
        char program[PROGRAM_PATH_MAX];
        if (check_options(options, program, err) < 0)
                return -1;
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", options->argv[0]);
        AUTO_FD int read_end = pipe_fds[0];
        AUTO_FD int write_end = pipe_fds[1];
        sigset_t before;
        block_signals(&before);
        struct child child = CHILD_NONE;
        pid_t pid = fork_into(options->namespaces, &child.pidfd);
        if (pid == 0) {
                reset_signals();
                start_program(options, program, write_end);
        }
        int saved = errno;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return cubby_error_errno(err, saved, "starting '%s'", options->argv[0]);
        child.pid = pid;
        struct failure failure;
        if (read(read_end, &failure, sizeof failure) == sizeof failure) {
                child_kill(&child);
                return start_failed(options->argv[0], &failure, err);
        }
        *ret = child;
        return 0;
}

/* A program that is the child of a go-between, which is a child of ours. */
struct apart {
        pid_t pid;  /* of the go-between */
        int pidfd;  /* of the program */
        int socket; /* the go-between's other end */
};

/*
 * The go-between, which shares nothing with the program that it was forked from.
 * It sends a struct failure or the program's pidfd and, when it is to stay, the
 * program's status at last: its own SIGCHLD is not the embedding program's.
 */
static void go_between(
        const struct spawn_options *options, const char *program, int socket, bool stay)
{
        int status = 0;
        int pidfd = -1;
        pid_t pid = fork_into(options->namespaces, &pidfd);
        if (pid < 0)
                report(socket, errno, "starting a process");
        if (pid == 0)
                start_program(options, program, socket);
        if (fd_send(socket, "p", 1, &pidfd, 1) < 0) {
                int saved = errno;
                (void)kill(pid, SIGKILL);
                report(socket, saved, "watching a process");
        }
        if (!stay)
                _exit(0);
        /* Nobody shall wait for the end of what only it holds open. */
        if (dup2(socket, 0) < 0 || syscall(SYS_close_range, 1U, ~0U, 0U) < 0)
                (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        (void)write_whole(0, &status, sizeof status);
        _exit(0);
}

static bool readable(int fd, int64_t deadline_ms)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        for (;;) {
                int left = deadline_left_ms(deadline_ms);
                int ready = poll(&poll_fd, 1, left);
                if (ready > 0 || left == 0 || (ready < 0 && errno != EINTR))
                        return ready > 0;
        }
}

static int spawn_apart(
        const struct spawn_options *options, bool stay, struct apart *ret, cubby_error *err)
{
        const char *name = options->argv[0];
        char program[PROGRAM_PATH_MAX];
        int pair[2];
        if (check_options(options, program, err) < 0)
                return -1;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", name);
        AUTO_FD int ours = pair[0];
        AUTO_FD int theirs = pair[1];
        sigset_t before;
        block_signals(&before);
        pid_t pid = _Fork();
        if (pid == 0) {
                reset_signals();
                go_between(options, program, theirs, stay);
        }
        int saved = errno;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return cubby_error_errno(err, saved, "starting '%s'", name);
        close_quietly(take_fd(&theirs));
        if (!readable(ours, deadline_after_ms(START_MS))) {
                reap(pid, WNOHANG);
                return cubby_error_set(
                        err, CUBBY_E_TIMEOUT, "'%s' could not be started in time", name);
        }
        struct failure failure;
        int fds[FD_PASS_MAX];
        size_t count = 0;
        ssize_t got = fd_receive(ours, &failure, sizeof failure, fds, &count);
        if (got == 1 && count == 1) {
                *ret = (struct apart){.pid = pid, .pidfd = fds[0], .socket = take_fd(&ours)};
                return 0;
        }
        close_quietly(take_fd(&ours));
        reap(pid, 0);
        if (got == (ssize_t)sizeof failure)
                return start_failed(name, &failure, err);
        return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' could not be started", name);
}

int spawn_detached(const struct spawn_options *options, int *ret_pidfd, cubby_error *err)
{
        struct apart apart;
        if (spawn_apart(options, false, &apart, err) < 0)
                return -1;
        close_quietly(apart.socket);
        reap(apart.pid, 0);
        *ret_pidfd = apart.pidfd;
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
                if (ready == 0 && deadline_left_ms(deadline_ms) == 0)
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
        int saved = errno;
        pid_t pid = child->pid;
        close_quietly(child->pidfd);
        *child = CHILD_NONE; /* it has ended: its number may be somebody else's now */
        if (reaped < 0)
                return cubby_error_errno(err, saved, "learning how process %ld ended", (long)pid);
        *ret_status = status;
        return 0;
}

void child_kill(struct child *child)
{
        if (child->pid > 0) {
                /* by descriptor: who ignores SIGCHLD may see the number used again */
                (void)pidfd_kill(child->pidfd);
                reap(child->pid, 0);
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

struct collection {
        const char *name;
        int pipes[2]; /* stdout and stderr, not blocking; -1 at their ends */
        struct buffer *output;
        char tail[STDERR_TAIL + 1];
        size_t tail_used;
};

/* What one pipe has at this moment. Returns 0, or -1 with the error set. */
static int collect_pipe(struct collection *to, int which, int64_t deadline_ms, cubby_error *err)
{
        char piece[16384];
        while (to->pipes[which] >= 0 && deadline_left_ms(deadline_ms) != 0) {
                ssize_t got = read(to->pipes[which], piece, sizeof piece);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0 && errno == EAGAIN)
                        return 0;
                if (got <= 0)
                        to->pipes[which] = -1;
                else if (which == 1)
                        keep_tail(to->tail, &to->tail_used, piece, (size_t)got);
                else if (to->output != NULL && !buffer_append(to->output, piece, (size_t)got))
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "'%s' printed more than %zu bytes", to->name, to->output->maximum);
        }
        return 0;
}

/*
 * Reads both pipes to their ends, or until the program has ended, which makes `ended`
 * readable: somebody else may hold a pipe open. Returns 0, or -1 with the error set.
 */
static int collect(struct collection *to, int ended, int64_t deadline_ms, cubby_error *err)
{
        bool over = false;
        while (!over && (to->pipes[0] >= 0 || to->pipes[1] >= 0)) {
                struct pollfd fds[3] = {{.fd = to->pipes[0], .events = POLLIN},
                        {.fd = to->pipes[1], .events = POLLIN}, {.fd = ended, .events = POLLIN}};
                int ready = poll(fds, 3, deadline_left_ms(deadline_ms));
                if (ready < 0 && errno == EINTR)
                        continue;
                if (ready < 0)
                        return cubby_error_errno(err, errno, "reading from '%s'", to->name);
                if (deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "'%s' did not end in time", to->name);
                over = fds[2].revents != 0;
                if (collect_pipe(to, 0, deadline_ms, err) < 0 ||
                        collect_pipe(to, 1, deadline_ms, err) < 0)
                        return -1;
        }
        return 0;
}

/* Waits for the program's end and the go-between's; kills at the deadline. Returns 0,
 * or -1 with errno. */
static int apart_wait(struct apart *apart, int64_t deadline_ms, int *ret_status)
{
        bool told = readable(apart->socket, deadline_ms);
        bool killed = !told;
        if (killed) {
                (void)pidfd_kill(apart->pidfd);
                told = readable(apart->socket, deadline_after_ms(REAP_MS));
        }
        int status = 0;
        bool whole = told && read(apart->socket, &status, sizeof status) == sizeof status;
        close_quietly(apart->socket);
        close_quietly(apart->pidfd);
        reap(apart->pid, told ? 0 : WNOHANG);
        if (killed || !whole) {
                errno = killed ? ETIMEDOUT : EPIPE;
                return -1;
        }
        *ret_status = status;
        return 0;
}

static int run_failed(struct collection *from, int status, cubby_error *err)
{
        while (from->tail_used > 0 && from->tail[from->tail_used - 1] == '\n')
                from->tail_used--;
        from->tail[from->tail_used] = '\0';
        if (WIFSIGNALED(status))
                return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' was killed by signal %d: %s",
                        from->name, WTERMSIG(status), from->tail);
        return cubby_error_set(err, CUBBY_E_SYSTEM, "'%s' exited with code %d: %s", from->name,
                WEXITSTATUS(status), from->tail);
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
        if (fd_set_nonblocking(out_read, true) < 0 || fd_set_nonblocking(error_read, true) < 0)
                return cubby_error_errno(err, errno, "starting '%s'", argv[0]);
        const struct spawn_fd fds[] = {{out_write, 1}, {error_write, 2}};
        struct spawn_options options = {.argv = argv, .fds = fds, .fd_count = 2};
        struct apart apart;
        if (spawn_apart(&options, true, &apart, err) < 0)
                return -1;
        close_quietly(take_fd(&out_write));
        close_quietly(take_fd(&error_write));
        struct collection collection = {
                .name = argv[0], .pipes = {out_read, error_read}, .output = output};
        int status = 0;
        if (collect(&collection, apart.socket, deadline_ms, err) < 0) {
                (void)apart_wait(&apart, 0, &status);
                return -1;
        }
        if (apart_wait(&apart, deadline_ms, &status) < 0)
                return errno == ETIMEDOUT
                        ? cubby_error_set(err, CUBBY_E_TIMEOUT, "'%s' did not end in time", argv[0])
                        : cubby_error_set(
                                  err, CUBBY_E_SYSTEM, "how '%s' ended is not known", argv[0]);
        bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        return good ? 0 : run_failed(&collection, status, err);
}

bool program_exists(const char *name)
{
        char path[PROGRAM_PATH_MAX];
        return find_program(name, path);
}
