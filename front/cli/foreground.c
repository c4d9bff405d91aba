/* SPDX-License-Identifier: Apache-2.0 */
#include "foreground.h"
#include "progress.h"
#include "text.h"
#include "values.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define END_WAIT_MS 15000
#define ABANDON_MS 5000

/* ----------------------------------------------------------------- start -- */

/* Waits for an interrupt while the main thread is in the boot. */
struct guard {
        struct cli *cli;
        cubby_box *box;
        bool remove;
        int stop_fd;
        int signal_fd;
        int caught; /* the signal; read after the thread has ended */
        pthread_t thread;
};

static void abandon(struct guard *guard)
{
        struct pollfd stop = {.fd = guard->stop_fd, .events = POLLIN};

        if (guard->remove)
                (void)cubby_box_remove(guard->box, true, NULL);
        else
                (void)cubby_box_kill(guard->box, SIGKILL, NULL);
        if (poll(&stop, 1, ABANDON_MS) == 0) {
                progress_hide(guard->cli->progress);
                _exit(EXIT_SIGNAL_BASE + guard->caught);
        }
}

static void *guard_thread(void *data)
{
        struct guard *guard = data;
        struct pollfd fds[] = {{.fd = guard->stop_fd, .events = POLLIN},
                {.fd = guard->signal_fd, .events = POLLIN}};
        struct signalfd_siginfo info;

        while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
                if (fds[0].revents != 0)
                        break;
                if (read(guard->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
                        continue;
                if (info.ssi_signo == SIGWINCH || info.ssi_signo == SIGCONT)
                        continue;
                guard->caught = (int)info.ssi_signo;
                abandon(guard);
                break;
        }
        return NULL;
}

static bool guard_start(struct guard *guard)
{
        sigset_t set;

        pump_signals(&set);
        guard->stop_fd = eventfd(0, EFD_CLOEXEC);
        guard->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return guard->stop_fd >= 0 && guard->signal_fd >= 0 &&
                pthread_create(&guard->thread, NULL, guard_thread, guard) == 0;
}

static void guard_stop(struct guard *guard, bool started)
{
        uint64_t one = 1;

        if (started && write(guard->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
                (void)pthread_join(guard->thread, NULL);
        if (guard->stop_fd >= 0)
                (void)close(guard->stop_fd);
        if (guard->signal_fd >= 0)
                (void)close(guard->signal_fd);
}

int foreground_start(struct cli *cli, cubby_box *box, bool remove)
{
        struct guard guard = {
                .cli = cli, .box = box, .remove = remove, .stop_fd = -1, .signal_fd = -1};
        bool guarded = guard_start(&guard);
        cubby_error err = {0};
        int rc = cubby_box_start(box, &err);

        guard_stop(&guard, guarded);
        progress_hide(cli->progress);
        if (guard.caught != 0) {
                if (remove)
                        (void)cubby_box_remove(box, true, NULL);
                return EXIT_SIGNAL_BASE + guard.caught;
        }
        return rc < 0 ? cli_fail_error(cli, &err) : 0;
}

/* ---------------------------------------------------------------- attach -- */

int foreground_check_tty(struct cli *cli, bool tty, bool input)
{
        if (tty && input && isatty(STDIN_FILENO) != 1)
                return cli_fail(cli,
                        "-t with -i wants a terminal, and standard input is none; leave out -t");
        return 0;
}

static bool flag_in(const json_t *object, const char *name)
{
        const json_t *inner = json_object_get(object, "config");

        return json_is_true(json_object_get(object, name)) ||
                json_is_true(json_object_get(inner, name));
}

int box_streams(struct cli *cli, cubby_box *box, bool *ret_tty, bool *ret_input)
{
        AUTO_CUBBY_FREE char *text = NULL;
        cubby_error err = {0};
        json_t *object;

        if (cubby_box_inspect(box, &text, &err) < 0)
                return cli_fail_error(cli, &err);
        object = json_loads(text, 0, NULL);
        *ret_tty = flag_in(object, "tty");
        *ret_input = flag_in(object, "open_stdin");
        json_decref(object);
        return 0;
}

int exit_code_of(struct cli *cli, const cubby_exit *ended)
{
        if (ended->oom)
                cli_note(cli, "the box ran out of memory; give it more with --memory");
        if (ended->timed_out) {
                cli_note(cli, "the command ran longer than its --timeout and was killed");
                return EXIT_TIMED_OUT;
        }
        return ended->code & 0xff;
}

/* The machine went away under the command. */
static int explain_end(struct cli *cli, cubby_box *box, const cubby_error *err)
{
        cubby_box_info info = {0};
        int rc = EXIT_CUBBY;

        (void)cubby_box_wait(box, END_WAIT_MS, &rc, NULL);
        if (cubby_box_get_info(box, &info, NULL) < 0)
                return cli_fail_error(cli, err);
        if (info.state == CUBBY_BOX_STOPPED)
                cli_note(cli, "box %s ended: %s%s%s", info.name, info.reason,
                        info.detail[0] == '\0' ? "" : ", ", info.detail);
        else
                cli_note(cli, "%s%s%s", err->message, info.detail[0] == '\0' ? "" : ": ",
                        info.detail);
        rc = EXIT_CUBBY;
        if (info.state == CUBBY_BOX_STOPPED)
                rc = info.exit_code >= 0 ? info.exit_code & 0xff : EXIT_SIGNAL_BASE + SIGKILL;
        cubby_box_info_clear(&info);
        return rc;
}

struct replay {
        struct capture *capture;
        bool closed;
};

static int replay_piece(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        struct replay *replay = data;
        const char *rest = bytes;

        if (replay->capture != NULL)
                return capture_add(replay->capture, stream, bytes, size) ? 0 : -1;
        while (size > 0) {
                ssize_t written = write(stream == 2 ? STDERR_FILENO : STDOUT_FILENO, rest, size);

                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0) {
                        replay->closed = true;
                        return -1;
                }
                rest += written;
                size -= (size_t)written;
        }
        return 0;
}

/* The command was over before we could join it: its kept output and its exit. */
static int replay_ended(
        struct cli *cli, cubby_box *box, const struct foreground *how, struct foreground_end *ret)
{
        cubby_log_options options = CUBBY_INIT(cubby_log_options);
        struct replay replay = {.capture = how->capture};
        cubby_box_info info = {0};
        cubby_error err = {0};
        int code = 0;

        options.tail_lines = -1;
        if (cubby_box_wait(box, END_WAIT_MS, &code, &err) < 0 ||
                cubby_box_get_info(box, &info, &err) < 0)
                return cli_fail_error(cli, &err);
        if (cubby_box_logs(box, &options, replay_piece, &replay, &err) < 0 && !replay.closed)
                cli_note(cli, "%s", err.message);
        if (info.state != CUBBY_BOX_STOPPED || info.exit_code < 0) {
                err.code = CUBBY_E_BOX_DEAD;
                (void)snprintf(err.message, sizeof(err.message), "box %s ended", info.name);
                cubby_box_info_clear(&info);
                return explain_end(cli, box, &err);
        }
        ret->ended = true;
        ret->exit = (cubby_exit){.code = info.exit_code,
                .oom = info.oom,
                .signal = info.exit_code > 128 ? info.exit_code - 128 : 0};
        cubby_box_info_clear(&info);
        return replay.closed ? EXIT_SIGNAL_BASE + SIGPIPE : exit_code_of(cli, &ret->exit);
}

static int after_pump(struct cli *cli, cubby_box *box, const struct foreground *how,
        enum pump_end end, const cubby_error *err, struct foreground_end *ret)
{
        char text[VALUE_TEXT_MAX];

        switch (end) {
        case PUMP_EXIT:
                ret->ended = true;
                return exit_code_of(cli, &ret->exit);
        case PUMP_DETACHED:
                cli_note(cli, "detached; the box goes on");
                return 0;
        case PUMP_DEADLINE:
                ret->timed_out = true;
                (void)cubby_box_kill(box, SIGKILL, NULL);
                cli_note(cli, "the command ran longer than %s and was killed",
                        format_millis((uint64_t)how->timeout_ms, text));
                return EXIT_TIMED_OUT;
        case PUMP_INTERRUPTED:
                if (how->owner)
                        (void)cubby_box_kill(box, SIGKILL, NULL);
                return EXIT_SIGNAL_BASE + SIGINT;
        case PUMP_OUTPUT_CLOSED:
                return EXIT_SIGNAL_BASE + SIGPIPE;
        case PUMP_FAILED:
                break;
        }
        if (err->code == CUBBY_E_BOX_DEAD || err->code == CUBBY_E_CLOSED)
                return explain_end(cli, box, err);
        return cli_fail_error(cli, err);
}

static void end_box(struct cli *cli, cubby_box *box, bool remove)
{
        cubby_error err = {0};
        int code = 0;

        if (!remove)
                (void)cubby_box_wait(box, END_WAIT_MS, &code, NULL);
        else if (cubby_box_remove(box, true, &err) < 0 && err.code != CUBBY_E_NOT_FOUND)
                cli_note(cli, "%s", err.message);
}

int foreground_attach(
        struct cli *cli, cubby_box *box, const struct foreground *how, struct foreground_end *ret)
{
        AUTO_EXEC cubby_exec *exec = NULL;
        struct pump_settings settings = {.tty = how->tty,
                .input = how->input,
                .detach_keys = how->tty && how->input,
                .capture = how->capture};
        enum pump_end end = PUMP_DETACHED;
        cubby_error err = {0};
        int rc;

        if (how->timeout_ms > 0)
                settings.deadline_ms = monotonic_ms() + how->timeout_ms;
        if (cubby_box_attach(box, how->owner, &exec, &err) < 0) {
                if (!how->owner || (err.code != CUBBY_E_BOX_DEAD && err.code != CUBBY_E_STATE))
                        return cli_fail_error(cli, &err);
                rc = replay_ended(cli, box, how, ret);
                end = PUMP_EXIT;
        } else {
                settings.exec = exec;
                end = pump_run(&settings, &ret->exit, &err);
                rc = after_pump(cli, box, how, end, &err, ret);
                /* The box waits a while for whoever reads its last output. */
                cubby_exec_close(exec);
                exec = NULL;
        }
        if (how->owner && (end != PUMP_DETACHED && (end != PUMP_OUTPUT_CLOSED || how->remove)))
                end_box(cli, box, how->remove);
        return rc;
}
