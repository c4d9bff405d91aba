/* SPDX-License-Identifier: Apache-2.0 */
#include "exec.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define CREDIT_STEP (STREAM_WINDOW / 4)
#define FLOW_SIZE PORT_DATA_SIZE /* so much at once is part of a flood */
#define CREDIT_MAX (1ULL << 40)

struct exec *exec_new(uint64_t stream, uint32_t flags, uint32_t timeout_ms)
{
        struct exec *exec = calloc(1, sizeof *exec);
        if (exec == NULL)
                return NULL;
        exec->stream = stream;
        exec->flags = flags;
        exec->pidfd = -1;
        exec->pid = -1;
        exec->input_window = STREAM_WINDOW;
        for (int i = 0; i < CHANNEL_COUNT; i++) {
                exec->fds[i] = -1;
                exec->credit[i] = STREAM_WINDOW;
        }
        buffer_init(&exec->input, STREAM_WINDOW);
        exec->timeout_at = timeout_ms == 0 ? DEADLINE_NEVER : deadline_after_ms(timeout_ms);
        exec->kill_at = exec->drain_at = DEADLINE_NEVER;
        return exec;
}

void exec_free(struct exec *exec, struct cgroups *cgroups)
{
        if (exec == NULL)
                return;
        for (int i = 0; i < CHANNEL_COUNT; i++)
                close_quietly(exec->fds[i]);
        close_quietly(exec->pidfd);
        buffer_free(&exec->input);
        cgroups_return(cgroups, exec->slot);
        free(exec);
}

void send_error(struct port *port, uint64_t stream, const cubby_error *error)
{
        AUTO_BUFFER struct buffer payload = {.maximum = 8192};
        const struct message_error message = {
                .code = (uint32_t)error->code,
                .sys_errno = (uint32_t)error->sys_errno,
                .text = {(const uint8_t *)error->message, strlen(error->message)},
        };
        if (message_error_encode(&payload, &message))
                (void)port_send(port, FRAME_ERROR, 0, stream, payload.data, payload.size);
}

bool exec_started(struct exec *exec, struct job *job, struct port *port)
{
        exec->job = NULL;
        exec->slot = atomic_load(&job->slot);
        if (job->error.code != CUBBY_OK) {
                if (!exec->silent)
                        send_error(port, exec->stream, &job->error);
                exec->ended = true;
                return false;
        }
        memcpy(exec->fds, job->spawned.fds, sizeof exec->fds);
        exec->pidfd = job->spawned.pidfd;
        exec->pid = job->spawned.pid;
        uint8_t pid[4];
        store_u32(pid, job->spawned.inner_pid);
        job->spawned = SPAWNED_NONE;
        if (!exec->silent)
                (void)port_send(port, FRAME_EXEC_STARTED, 0, exec->stream, pid, sizeof pid);
        exec_write_input(exec, port);
        return true;
}

static int input_fd(const struct exec *exec)
{
        return exec->fds[(exec->flags & EXEC_TTY) != 0 ? CHANNEL_STDOUT : CHANNEL_STDIN];
}

static size_t input_left(const struct exec *exec)
{
        return exec->input.size - exec->input_used;
}

static void grant(struct exec *exec, struct port *port, size_t bytes)
{
        exec->input_written += (uint32_t)bytes;
        if (exec->input_written < CREDIT_STEP || exec->silent)
                return;
        uint8_t credit[4];
        store_u32(credit, exec->input_written);
        if (port_send(port, FRAME_CREDIT, CHANNEL_STDIN, exec->stream, credit, sizeof credit)) {
                exec->input_window += exec->input_written;
                exec->input_written = 0;
        }
}

/* Nobody reads any more: what comes is dropped, and credit goes on being given. */
static void drop_input(struct exec *exec, struct port *port)
{
        if ((exec->flags & EXEC_TTY) == 0)
                close_quietly(take_fd(&exec->fds[CHANNEL_STDIN]));
        size_t left = input_left(exec);
        exec->input_used = exec->input.size = 0;
        grant(exec, port, left);
}

static void end_input(struct exec *exec)
{
        if ((exec->flags & EXEC_TTY) == 0) {
                close_quietly(take_fd(&exec->fds[CHANNEL_STDIN]));
                return;
        }
        /* A terminal has no end of file of its own: type what means it. */
        struct termios settings;
        int fd = exec->fds[CHANNEL_STDOUT];
        if (fd >= 0 && tcgetattr(fd, &settings) == 0 && (settings.c_lflag & ICANON) != 0)
                (void)!write(fd, &settings.c_cc[VEOF], 1);
}

/* Each switch between a writer and this process costs as much as the copying of a
 * usual pipe's bytes, where translated code has to be looked up again after it. */
static void enlarge(struct exec *exec, int channel)
{
        if (exec->large[channel] || (exec->flags & EXEC_TTY) != 0)
                return;
        exec->large[channel] = true;
        (void)fcntl(exec->fds[channel], F_SETPIPE_SZ, (int)STREAM_WINDOW);
}

void exec_write_input(struct exec *exec, struct port *port)
{
        if (exec->job != NULL)
                return; /* not there yet: kept until it is */
        int fd = input_fd(exec);
        if (fd < 0) {
                drop_input(exec, port);
                return;
        }
        if (input_left(exec) > FLOW_SIZE)
                enlarge(exec, CHANNEL_STDIN);
        size_t written = 0;
        while (input_left(exec) > 0) {
                ssize_t done = write(fd, exec->input.data + exec->input_used, input_left(exec));
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0 && errno == EAGAIN)
                        break;
                if (done < 0) {
                        drop_input(exec, port);
                        break;
                }
                exec->input_used += (size_t)done;
                written += (size_t)done;
        }
        exec->fed += written;
        grant(exec, port, written);
        if (input_left(exec) > 0)
                return;
        exec->input_used = exec->input.size = 0;
        if (exec->stdin_ended)
                end_input(exec);
}

/* What the command takes at once need not wait in a buffer. */
static struct slice pass_input(struct exec *exec, struct port *port, struct slice data)
{
        int fd = input_fd(exec);
        if (exec->job != NULL || fd < 0 || input_left(exec) > 0)
                return data;
        if (data.size >= FLOW_SIZE)
                enlarge(exec, CHANNEL_STDIN);
        ssize_t done = write(fd, data.data, data.size);
        if (done <= 0)
                return data; /* whatever it is comes up again */
        exec->fed += (size_t)done;
        grant(exec, port, (size_t)done);
        return (struct slice){.data = data.data + done, .size = data.size - (size_t)done};
}

void exec_input(struct exec *exec, struct port *port, const struct log *log, struct slice data)
{
        if ((exec->flags & EXEC_STDIN) == 0 || exec->stdin_ended ||
                data.size > exec->input_window) {
                log_line(log, LOG_WARNING, "stream %llu: %zu bytes of input that it may not have",
                        (unsigned long long)exec->stream, data.size);
                return;
        }
        exec->input_window -= (uint32_t)data.size;
        data = pass_input(exec, port, data);
        if (data.size == 0)
                return;
        if (exec->input_used > 0 && exec->input.size + data.size > exec->input.maximum) {
                buffer_consume(&exec->input, exec->input_used);
                exec->input_used = 0;
        }
        if (!buffer_append(&exec->input, data.data, data.size)) {
                /* Memory is short. Half an input would be a lie, so the command ends. */
                exec->input.failed = false;
                log_line(log, LOG_ERROR, "stream %llu: no memory for its input",
                        (unsigned long long)exec->stream);
                exec_cancel(exec);
                return;
        }
        exec_write_input(exec, port);
}

void exec_input_end(struct exec *exec)
{
        if (exec->stdin_ended)
                return;
        exec->stdin_ended = true;
        if (exec->job == NULL && input_left(exec) == 0)
                end_input(exec);
}

bool exec_wants_input(const struct exec *exec)
{
        return exec->job == NULL && input_left(exec) > 0 && input_fd(exec) >= 0;
}

void exec_credit(struct exec *exec, uint16_t channel, uint32_t bytes)
{
        if (exec->credit[channel] < CREDIT_MAX)
                exec->credit[channel] += bytes;
}

void exec_resize(const struct exec *exec, uint16_t rows, uint16_t columns)
{
        const struct winsize size = {.ws_row = rows, .ws_col = columns};
        if ((exec->flags & EXEC_TTY) != 0 && exec->fds[CHANNEL_STDOUT] >= 0)
                (void)ioctl(exec->fds[CHANNEL_STDOUT], TIOCSWINSZ, &size);
}

void exec_signal(const struct exec *exec, uint32_t number)
{
        /* Until it is reaped its pid and process group cannot be anybody else's. */
        if (exec->job != NULL || exec->exited)
                return;
        if ((exec->flags & EXEC_TTY) != 0)
                slot_signal(exec->slot, (int)number); /* a shell's jobs have groups of their own */
        else
                (void)kill(-exec->pid, (int)number);
}

static void kill_tree(struct exec *exec)
{
        const struct slot *slot = exec->job != NULL ? atomic_load(&exec->job->slot) : exec->slot;
        exec->killed = true;
        /* Again and again: the process may not have existed yet. */
        exec->kill_at = deadline_after_ms(EXEC_KILL_AGAIN_MS);
        if (slot != NULL)
                slot_kill(slot);
}

void exec_cancel(struct exec *exec)
{
        exec->discard = true;
        kill_tree(exec);
}

void exec_orphan(struct exec *exec)
{
        exec->silent = true;
        exec->discard = true;
        exec->timeout_at = DEADLINE_NEVER;
        if (!exec->stdin_ended)
                exec_input_end(exec);
}

void exec_reap(struct exec *exec)
{
        siginfo_t info = {0};
        struct rusage usage = {0};
        if (syscall(SYS_waitid, P_PIDFD, exec->pidfd, &info, WEXITED | WNOHANG, &usage) < 0 ||
                info.si_pid == 0)
                return;
        close_quietly(take_fd(&exec->pidfd));
        exec->exited = true;
        exec->exit.code = info.si_code == CLD_EXITED ? (uint32_t)info.si_status & 0xff : 0;
        exec->exit.signal = info.si_code == CLD_EXITED ? 0 : (uint32_t)info.si_status;
        exec->exit.user_us =
                (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec;
        exec->exit.system_us =
                (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec;
        exec->exit.max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
        /* Only a killed command, or a shell that tells of one, can have met the OOM killer. */
        if ((exec->exit.signal == SIGKILL || exec->exit.code == 128 + SIGKILL) &&
                slot_ran_out_of_memory(exec->slot))
                exec->exit.flags |= EXIT_FLAG_OOM;
        exec->drain_at = deadline_after_ms(EXEC_DRAIN_MS);
        for (int i = CHANNEL_STDOUT; i <= CHANNEL_STDERR; i++) {
                int left = 0;
                if (exec->fds[i] >= 0 && ioctl(exec->fds[i], FIONREAD, &left) == 0)
                        exec->owed[i] = left;
                exec->readable[i] = exec->fds[i] >= 0;
        }
}

static void end_channel(struct exec *exec, struct port *port, int channel)
{
        close_quietly(take_fd(&exec->fds[channel]));
        exec->readable[channel] = false;
        if (!exec->silent)
                (void)port_send(port, FRAME_EOF, (uint16_t)channel, exec->stream, NULL, 0);
}

bool exec_wants_output(const struct exec *exec, int channel)
{
        return exec->fds[channel] >= 0 && (exec->discard || exec->credit[channel] > 0);
}

/* One read. True when bytes were taken. */
static bool pump_channel(struct exec *exec, struct port *port, int channel)
{
        uint8_t scrap[4096];
        size_t size = sizeof scrap;
        uint8_t *room = scrap;
        if (!exec->discard) {
                room = port_data_room(port, &size);
                if (room == NULL)
                        return false; /* stays readable: after the next write */
                if (size > exec->credit[channel])
                        size = (size_t)exec->credit[channel];
        }
        ssize_t got = read(exec->fds[channel], room, size);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                exec->readable[channel] = errno == EINTR;
                if (errno == EAGAIN)
                        exec->owed[channel] = 0; /* empty: the rest was taken inside the box */
                return false;
        }
        if (got <= 0) { /* a terminal ends with EIO */
                end_channel(exec, port, channel);
                return false;
        }
        exec->passed += (size_t)got;
        if ((size_t)got < size)
                exec->readable[channel] = false; /* probably empty: poll will tell */
        if (exec->passed >= FLOW_SIZE)
                enlarge(exec, channel);
        exec->owed[channel] -= got;
        if (!exec->discard) {
                exec->credit[channel] -= (uint64_t)got;
                port_data_done(port, exec->stream, (uint16_t)channel, (size_t)got);
        }
        return true;
}

bool exec_flows(const struct exec *exec)
{
        return exec->passed >= FLOW_SIZE && !exec->exited && !exec->discard &&
                (exec->flags & EXEC_TTY) == 0;
}

bool exec_was_fed(struct exec *exec)
{
        bool much = exec->fed >= FLOW_SIZE;
        exec->fed = 0;
        return much;
}

bool exec_pump(struct exec *exec, struct port *port)
{
        bool moved = false;
        for (int channel = CHANNEL_STDOUT; channel <= CHANNEL_STDERR; channel++)
                if (exec->readable[channel] && exec_wants_output(exec, channel))
                        moved |= pump_channel(exec, port, channel);
        return moved;
}

/* True when nothing of the output is missing that should still be sent. */
static bool output_done(struct exec *exec, int64_t now)
{
        if (exec->discard)
                return true;
        bool open = false;
        for (int channel = CHANNEL_STDOUT; channel <= CHANNEL_STDERR; channel++) {
                if (exec->fds[channel] < 0)
                        continue;
                open = true;
                if (exec->owed[channel] > 0 || now < exec->drain_at)
                        return false;
        }
        if (open)
                exec->exit.flags |= EXIT_FLAG_INCOMPLETE;
        return true;
}

void exec_check(struct exec *exec, struct port *port, int64_t now)
{
        if (!exec->exited && now >= exec->timeout_at) {
                exec->timeout_at = DEADLINE_NEVER;
                exec->exit.flags |= EXIT_FLAG_TIMED_OUT;
                kill_tree(exec);
        } else if (exec->killed && now >= exec->kill_at) {
                kill_tree(exec);
        }
        if (!exec->exited || exec->ended || !output_done(exec, now))
                return;
        AUTO_BUFFER struct buffer payload = {.maximum = 256};
        if (!exec->silent && message_exit_encode(&payload, &exec->exit))
                (void)port_send(port, FRAME_EXIT, 0, exec->stream, payload.data, payload.size);
        exec->ended = true;
}

int64_t exec_deadline(const struct exec *exec)
{
        int64_t next = exec->exited ? DEADLINE_NEVER : exec->timeout_at;
        if (exec->killed && exec->kill_at < next)
                next = exec->kill_at;
        if (!exec->exited || exec->drain_at >= next)
                return next;
        /* While bytes are owed, data or credit ends the wait, not the clock. */
        for (int channel = CHANNEL_STDOUT; channel <= CHANNEL_STDERR; channel++)
                if (exec->fds[channel] >= 0 && exec->owed[channel] > 0)
                        return next;
        return exec->drain_at;
}
