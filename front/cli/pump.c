/* SPDX-License-Identifier: Apache-2.0 */
#include "pump.h"
#include "terminal.h"
#include "values.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_BYTES 32768
/* A pipe or terminal that polls writable takes this much without blocking. */
#define SAFE_WRITE_BYTES 4096
#define INPUT_RETRY_MS 20
#define IMPATIENT_SIGNALS 3
#define IMPATIENT_MS 2000
#define DETACH_FIRST 0x10  /* ctrl-p */
#define DETACH_SECOND 0x11 /* ctrl-q */

struct pump {
        const struct pump_settings *settings;
        cubby_error *err;
        int signal_fd;
        /* Output of the present event that is not written yet. */
        const char *output;
        size_t output_size;
        int output_fd;
        bool output_is_file[3]; /* by descriptor: never blocks */
        char input[INPUT_BYTES];
        size_t input_start, input_size;
        bool input_open;  /* our stdin may have more */
        bool input_ended; /* the command knows that there is no more */
        bool held_first;  /* ctrl-p was typed and is held back */
        bool detached;
        int interrupts;
        int64_t first_interrupt_ms;
        bool ended;
        enum pump_end end;
        cubby_exit exit;
};

void pump_signals(sigset_t *ret)
{
        static const int passed_on[] = {
                SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

        (void)sigemptyset(ret);
        for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
                (void)sigaddset(ret, passed_on[i]);
}

void pump_block_signals(sigset_t *ret_before)
{
        sigset_t set;

        pump_signals(&set);
        (void)pthread_sigmask(SIG_BLOCK, &set, ret_before);
}

static void finish(struct pump *p, enum pump_end end)
{
        if (!p->ended)
                p->end = end;
        p->ended = true;
}

static void send_size(struct pump *p)
{
        uint16_t rows = 0;
        uint16_t columns = 0;

        if (p->settings->tty && terminal_size(&rows, &columns))
                (void)cubby_exec_resize(p->settings->exec, rows, columns, NULL);
}

static void pass_signal(struct pump *p, int number)
{
        int64_t now = monotonic_ms();

        if (number == SIGINT || number == SIGTERM) {
                if (p->interrupts == 0 || now - p->first_interrupt_ms > IMPATIENT_MS) {
                        p->interrupts = 0;
                        p->first_interrupt_ms = now;
                }
                if (++p->interrupts >= IMPATIENT_SIGNALS) {
                        finish(p, PUMP_INTERRUPTED);
                        return;
                }
        }
        (void)cubby_exec_signal(p->settings->exec, number, NULL);
}

static void take_signals(struct pump *p)
{
        struct signalfd_siginfo info;

        while (!p->ended && read(p->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                if (info.ssi_signo == SIGCONT)
                        terminal_again();
                if (info.ssi_signo == SIGCONT || info.ssi_signo == SIGWINCH)
                        send_size(p);
                else
                        pass_signal(p, (int)info.ssi_signo);
        }
}

static void write_output(struct pump *p)
{
        size_t size = p->output_size;
        ssize_t written;

        if (!p->output_is_file[p->output_fd] && size > SAFE_WRITE_BYTES)
                size = SAFE_WRITE_BYTES;
        written = write(p->output_fd, p->output, size);
        if (written >= 0) {
                p->output += written;
                p->output_size -= (size_t)written;
        } else if (errno == EPIPE || errno == EIO)
                finish(p, PUMP_OUTPUT_CLOSED);
        else if (errno != EINTR && errno != EAGAIN) {
                p->err->code = CUBBY_E_SYSTEM;
                p->err->sys_errno = errno;
                (void)snprintf(p->err->message, sizeof(p->err->message),
                        "the command's output could not be written: %s", strerror(errno));
                finish(p, PUMP_FAILED);
        }
}

static void take_event(struct pump *p, const cubby_event *event)
{
        if (event->kind == CUBBY_EVENT_EXIT) {
                p->exit = event->exit;
                finish(p, PUMP_EXIT);
                return;
        }
        if (p->settings->capture != NULL) {
                if (!capture_add(p->settings->capture, event->kind, event->data, event->size)) {
                        p->err->code = CUBBY_E_NO_MEMORY;
                        (void)snprintf(p->err->message, sizeof(p->err->message), "out of memory");
                        finish(p, PUMP_FAILED);
                }
                return;
        }
        p->output = event->data;
        p->output_size = event->size;
        p->output_fd = event->kind == CUBBY_EVENT_STDERR ? STDERR_FILENO : STDOUT_FILENO;
}

/* Takes what has come, until something has to be written or nothing is left. */
static void take_events(struct pump *p)
{
        while (!p->ended) {
                cubby_event event = {0};
                cubby_error err = {0};

                if (p->output_size > 0) {
                        if (!p->output_is_file[p->output_fd])
                                return;
                        write_output(p);
                        continue;
                }
                if (cubby_exec_next(p->settings->exec, 0, &event, &err) == 0)
                        take_event(p, &event);
                else if (err.code == CUBBY_E_TIMEOUT)
                        return;
                else {
                        *p->err = err;
                        finish(p, PUMP_FAILED);
                }
        }
}

static void input_over(struct pump *p)
{
        p->input_open = false;
        p->input_size = 0;
        p->input_ended = true;
}

/* True when something moved. */
static bool send_input(struct pump *p)
{
        cubby_error err = {0};
        int64_t taken = 0;

        if (p->input_ended)
                return false;
        if (p->input_size > 0) {
                taken = cubby_exec_write(
                        p->settings->exec, p->input + p->input_start, p->input_size, 0, &err);
                if (taken > 0) {
                        p->input_start += (size_t)taken;
                        p->input_size -= (size_t)taken;
                } else if (taken < 0 && err.code != CUBBY_E_TIMEOUT)
                        input_over(p); /* it does not read any more; its exit will follow */
        }
        if (p->input_size == 0 && !p->input_open && !p->input_ended) {
                (void)cubby_exec_close_stdin(p->settings->exec, NULL);
                p->input_ended = true;
                return true;
        }
        return taken > 0;
}

/* Takes ctrl-p ctrl-q out of what was typed; a ctrl-p is held back until the
 * next byte tells what it was. */
static size_t find_detach(struct pump *p, const char *typed, size_t size)
{
        size_t kept = 0;

        for (size_t i = 0; i < size && !p->detached; i++) {
                if (p->held_first) {
                        p->held_first = false;
                        if (typed[i] == DETACH_SECOND) {
                                p->detached = true;
                                break;
                        }
                        p->input[kept++] = DETACH_FIRST;
                }
                if (typed[i] == DETACH_FIRST)
                        p->held_first = true;
                else
                        p->input[kept++] = typed[i];
        }
        return kept;
}

static void read_input(struct pump *p)
{
        char typed[INPUT_BYTES / 2]; /* held bytes may come back: never more than twice */
        bool keys = p->settings->detach_keys;
        ssize_t got = keys ? read(STDIN_FILENO, typed, sizeof(typed))
                           : read(STDIN_FILENO, p->input, sizeof(p->input));

        if (got < 0 && (errno == EINTR || errno == EAGAIN))
                return;
        p->input_start = 0;
        if (got <= 0)
                p->input_open = false;
        else
                p->input_size = keys ? find_detach(p, typed, (size_t)got) : (size_t)got;
        if (p->detached)
                finish(p, PUMP_DETACHED);
}

static int wait_ms(const struct pump *p)
{
        int64_t wait = -1;

        if (p->settings->deadline_ms != 0) {
                wait = p->settings->deadline_ms - monotonic_ms();
                if (wait < 0)
                        wait = 0;
        }
        /* Room in the box shows as a frame on the command's descriptor, but not
         * when the library has read it together with others. */
        if (p->input_size > 0 && (wait < 0 || wait > INPUT_RETRY_MS))
                wait = INPUT_RETRY_MS;
        return wait > INT32_MAX ? INT32_MAX : (int)wait;
}

static void wait_and_act(struct pump *p)
{
        bool reading = p->input_open && p->input_size == 0;
        bool writing = p->output_size > 0;
        struct pollfd fds[] = {
                {.fd = p->signal_fd, .events = POLLIN},
                {.fd = writing ? -1 : cubby_exec_fd(p->settings->exec), .events = POLLIN},
                {.fd = writing ? p->output_fd : -1, .events = POLLOUT},
                {.fd = reading ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int ready = poll(fds, sizeof(fds) / sizeof(fds[0]), wait_ms(p));

        if (ready > 0 && fds[0].revents != 0)
                take_signals(p);
        if (ready > 0 && fds[2].revents != 0 && !p->ended)
                write_output(p);
        if (ready > 0 && fds[3].revents != 0 && !p->ended)
                read_input(p);
        if (p->settings->deadline_ms != 0 && monotonic_ms() >= p->settings->deadline_ms)
                finish(p, PUMP_DEADLINE);
}

static bool never_blocks(int fd)
{
        struct stat info;

        return fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISBLK(info.st_mode));
}

enum pump_end pump_run(const struct pump_settings *settings, cubby_exit *ret, cubby_error *err)
{
        struct pump p = {.settings = settings,
                .err = err,
                .input_open = settings->input,
                .input_ended = !settings->input};
        sigset_t set;

        p.output_is_file[STDOUT_FILENO] = never_blocks(STDOUT_FILENO);
        p.output_is_file[STDERR_FILENO] = never_blocks(STDERR_FILENO);
        pump_signals(&set);
        p.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (p.signal_fd < 0) {
                err->code = CUBBY_E_SYSTEM;
                err->sys_errno = errno;
                (void)snprintf(err->message, sizeof(err->message), "signals cannot be received: %s",
                        strerror(errno));
                return PUMP_FAILED;
        }
        if (settings->tty && settings->input)
                (void)terminal_raw();
        send_size(&p);
        while (!p.ended) {
                take_events(&p);
                /* Sending may have read frames: look again before waiting. */
                if (!p.ended && !send_input(&p))
                        wait_and_act(&p);
        }
        terminal_restore();
        (void)close(p.signal_fd);
        if (p.end == PUMP_EXIT)
                *ret = p.exit;
        return p.end;
}
