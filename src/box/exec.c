/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/*
 * One command, one connection. Output is credited when the caller has taken it,
 * so at most a window of each channel waits here. Whoever waits for something
 * reads frames for all: `turning` says that a thread does, the others wait for
 * `changed`.
 */

#define START_MS 60000
#define SEND_MS 10000
#define TIMEOUT_GRACE_MS 1500 /* the agent itself ends a command that is out of time */
#define CREDIT_PIECE (STREAM_WINDOW / 4)
#define ROWS_DEFAULT 24
#define COLUMNS_DEFAULT 80

struct chunk {
        struct chunk *next;
        int channel;
        size_t size;
        uint8_t bytes[];
};

struct cubby_exec {
        cubby_box *box;
        struct client *client;
        uint64_t stream;
        bool attached; /* to the box's own command */
        bool detached;
        bool with_stdin;
        char box_name[64];
        int64_t deadline_ms; /* of its timeout, with grace: a frozen box cannot hold us */
        int poll_fd;         /* epoll over the socket, event_fd and timer_fd */
        int event_fd;        /* readable while something waits in here */
        int timer_fd;        /* with a timeout: readable when the box has to be given up */

        pthread_mutex_t lock; /* over all below */
        pthread_mutex_t send_lock;
        pthread_cond_t changed;
        bool turning;
        bool signalled;    /* event_fd is readable */
        int64_t active_ms; /* when the box last sent, or was allowed to send, something */
        int64_t armed_ms;  /* what timer_fd is set to */
        struct chunk *first, *last;
        struct chunk *shown;              /* what the last event points to */
        uint32_t window[CHANNEL_COUNT];   /* what the box may still send */
        uint32_t consumed[CHANNEL_COUNT]; /* taken by the caller, not credited yet */
        uint32_t stdin_window;            /* what we may still send */
        bool stdin_ended;                 /* by us */
        bool stdin_refused;               /* by the command */
        bool started;
        uint32_t pid;
        bool ended;
        bool exit_shown;
        struct message_exit exit;
        bool failed;
        cubby_error failure;
};

static int send_frame(cubby_exec *exec, uint16_t type, uint16_t flags, const void *payload,
        size_t size, int64_t deadline_ms, cubby_error *err)
{
        (void)pthread_mutex_lock(&exec->send_lock);
        int result = client_send(
                exec->client, type, flags, exec->stream, payload, size, deadline_ms, err);
        (void)pthread_mutex_unlock(&exec->send_lock);
        return result;
}

/* A frozen box whose line is full holds nobody beyond the command's own limit. */
static int64_t send_deadline(const cubby_exec *exec)
{
        int64_t limit = deadline_after_ms(TIMEOUT_GRACE_MS);
        if (exec->deadline_ms > limit)
                limit = exec->deadline_ms;
        int64_t deadline = deadline_after_ms(SEND_MS);
        return deadline < limit ? deadline : limit;
}

static int send_u32(
        cubby_exec *exec, uint16_t type, uint16_t flags, uint32_t value, cubby_error *err)
{
        uint8_t payload[4];
        store_u32(payload, value);
        return send_frame(exec, type, flags, payload, sizeof payload, send_deadline(exec), err);
}

/* Makes poll_fd tell the truth: also what was read already is something to read. */
static void update_event(cubby_exec *exec)
{
        bool wanted = exec->first != NULL || (exec->ended && !exec->exit_shown) || exec->failed ||
                (!exec->turning && client_has_frame(exec->client));
        if (wanted == exec->signalled)
                return;
        uint64_t value = 1;
        ssize_t done = wanted ? write(exec->event_fd, &value, sizeof value)
                              : read(exec->event_fd, &value, sizeof value);
        if (done == (ssize_t)sizeof value)
                exec->signalled = wanted;
}

/*
 * When a box counts as frozen: its agent should have ended the command, and has
 * not sent anything for a while. A slow reader of much output is no frozen box.
 */
static int64_t give_up_ms(const cubby_exec *exec)
{
        if (exec->deadline_ms == DEADLINE_NEVER)
                return DEADLINE_NEVER;
        int64_t quiet = exec->active_ms + TIMEOUT_GRACE_MS;
        return quiet > exec->deadline_ms ? quiet : exec->deadline_ms;
}

static bool is_given_up(const cubby_exec *exec)
{
        return deadline_left_ms(give_up_ms(exec)) == 0;
}

/* Makes timer_fd readable when the box has to be given up; never after the end. */
static void arm_timer(cubby_exec *exec)
{
        int64_t at_ms = exec->ended || exec->failed ? DEADLINE_NEVER : give_up_ms(exec);
        if (exec->timer_fd < 0 || at_ms == exec->armed_ms)
                return;
        struct itimerspec when = {0};
        if (at_ms != DEADLINE_NEVER)
                when.it_value = (struct timespec){
                        .tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000};
        if (timerfd_settime(exec->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
                exec->armed_ms = at_ms;
}

static int violation(cubby_error *err, const char *what)
{
        return cubby_error_set(err, CUBBY_E_PROTOCOL, "the box broke the protocol: %s", what);
}

static int take_output(cubby_exec *exec, const struct frame *frame, cubby_error *err)
{
        int channel = frame->flags;
        if (channel != CHANNEL_STDOUT && channel != CHANNEL_STDERR)
                return violation(err, "output on an unknown channel");
        if (frame->length > FRAME_DATA_MAX || frame->length > exec->window[channel])
                return violation(err, "more output than it was granted");
        if (frame->length == 0)
                return 0;
        struct chunk *chunk = malloc(sizeof *chunk + frame->length);
        if (chunk == NULL)
                return cubby_error_no_memory(err);
        *chunk = (struct chunk){.channel = channel, .size = frame->length};
        memcpy(chunk->bytes, frame->payload, frame->length);
        exec->window[channel] -= frame->length;
        if (exec->last == NULL)
                exec->first = chunk;
        else
                exec->last->next = chunk;
        exec->last = chunk;
        return 0;
}

static int take_credit(cubby_exec *exec, const struct frame *frame, cubby_error *err)
{
        uint32_t more = 0;
        struct slice payload = {.data = frame->payload, .size = frame->length};
        if (frame->flags != CHANNEL_STDIN || !message_u32_decode(payload, &more))
                return violation(err, "bad credit");
        if (more > STREAM_WINDOW || exec->stdin_window > STREAM_WINDOW - more)
                return violation(err, "more credit than a window");
        exec->stdin_window += more;
        return 0;
}

/* One frame of our stream. -1 ends the use of the connection. */
static int take_frame(cubby_exec *exec, const struct frame *frame, cubby_error *err)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        if (frame->stream != exec->stream)
                return 0;
        if (exec->ended)
                return violation(err, "a frame after the exit");
        switch (frame->type) {
        case FRAME_EXEC_STARTED:
                if (exec->started || !message_u32_decode(payload, &exec->pid))
                        return violation(err, "a bad answer to EXEC");
                exec->started = true;
                return 0;
        case FRAME_DATA:
                return take_output(exec, frame, err);
        case FRAME_EOF:
                if (frame->flags == CHANNEL_STDIN)
                        exec->stdin_refused = true;
                return 0;
        case FRAME_CREDIT:
                return take_credit(exec, frame, err);
        case FRAME_EXIT:
                if (!message_exit_decode(payload, &exec->exit))
                        return violation(err, "a bad exit message");
                exec->ended = true;
                return 0;
        case FRAME_ERROR:
                return client_error(payload, err);
        default:
                return violation(err, "an unexpected frame");
        }
}

static int wait_changed(cubby_exec *exec, int64_t deadline_ms, cubby_error *err)
{
        int left = deadline_left_ms(deadline_ms);
        int result = 0;
        if (left < 0) {
                result = pthread_cond_wait(&exec->changed, &exec->lock);
        } else {
                struct timespec until;
                (void)clock_gettime(CLOCK_MONOTONIC, &until);
                until.tv_sec += left / 1000;
                until.tv_nsec += (left % 1000) * 1000000L;
                if (until.tv_nsec >= 1000000000L) {
                        until.tv_nsec -= 1000000000L;
                        until.tv_sec++;
                }
                result = pthread_cond_timedwait(&exec->changed, &exec->lock, &until);
        }
        if (result == ETIMEDOUT && deadline_left_ms(deadline_ms) == 0)
                return cubby_error_set(err, CUBBY_E_TIMEOUT, "nothing came from the box in time");
        return 0;
}

static void say_dead(cubby_exec *exec, cubby_error *err)
{
        if (err->code == CUBBY_E_BOX_DEAD)
                (void)cubby_error_set(err, CUBBY_E_BOX_DEAD,
                        "box '%s' ended before the command did", exec->box_name);
}

/* With the lock held: lets one frame in, or waits while another thread does. */
static int turn(cubby_exec *exec, int64_t deadline_ms, cubby_error *err)
{
        if (exec->failed) {
                if (err != NULL)
                        *err = exec->failure;
                return -1;
        }
        if (exec->turning)
                return wait_changed(exec, deadline_ms, err);
        exec->turning = true;
        (void)pthread_mutex_unlock(&exec->lock);
        struct frame frame;
        cubby_error problem = {0};
        int result = client_next(exec->client, deadline_ms, &frame, &problem);
        (void)pthread_mutex_lock(&exec->lock);
        if (result == 0) {
                exec->active_ms = clock_monotonic_ms();
                result = take_frame(exec, &frame, &problem);
        }
        exec->turning = false;
        if (result < 0 && problem.code != CUBBY_E_TIMEOUT) {
                say_dead(exec, &problem);
                exec->failed = true;
                exec->failure = problem;
        }
        update_event(exec);
        (void)pthread_cond_broadcast(&exec->changed);
        if (result < 0 && err != NULL)
                *err = problem;
        return result;
}

int box_exec_turn(cubby_exec *exec, cubby_error *err)
{
        (void)pthread_mutex_lock(&exec->lock);
        int result = 0;
        cubby_error problem = {0};
        if (exec->first == NULL && !exec->ended)
                result = turn(exec, give_up_ms(exec), &problem);
        (void)pthread_mutex_unlock(&exec->lock);
        if (result == 0 || problem.code == CUBBY_E_TIMEOUT)
                return 0; /* the next event is the end that a frozen box did not send */
        if (err != NULL)
                *err = problem;
        return -1;
}

static int make_poll_fd(cubby_exec *exec, cubby_error *err)
{
        exec->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        exec->poll_fd = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN};
        if (exec->event_fd < 0 || exec->poll_fd < 0 ||
                epoll_ctl(exec->poll_fd, EPOLL_CTL_ADD, exec->event_fd, &event) < 0 ||
                epoll_ctl(exec->poll_fd, EPOLL_CTL_ADD, client_fd(exec->client), &event) < 0)
                return cubby_error_errno(err, errno, "watching a command");
        return 0;
}

static int set_timeout(cubby_exec *exec, int64_t deadline_ms, cubby_error *err)
{
        struct epoll_event event = {.events = EPOLLIN};
        exec->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (exec->timer_fd < 0 ||
                epoll_ctl(exec->poll_fd, EPOLL_CTL_ADD, exec->timer_fd, &event) < 0)
                return cubby_error_errno(err, errno, "timing a command");
        exec->deadline_ms = deadline_ms;
        arm_timer(exec);
        return 0;
}

static int make(cubby_box *box, int64_t deadline_ms, cubby_exec **ret, cubby_error *err)
{
        cubby_exec *exec = calloc(1, sizeof *exec);
        if (exec == NULL)
                return cubby_error_no_memory(err);
        exec->box = box_share(box);
        exec->poll_fd = -1;
        exec->event_fd = -1;
        exec->timer_fd = -1;
        exec->deadline_ms = DEADLINE_NEVER;
        exec->armed_ms = DEADLINE_NEVER;
        pthread_condattr_t monotonic;
        (void)pthread_condattr_init(&monotonic);
        (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&exec->changed, &monotonic);
        (void)pthread_condattr_destroy(&monotonic);
        (void)pthread_mutex_init(&exec->lock, NULL);
        (void)pthread_mutex_init(&exec->send_lock, NULL);
        (void)snprintf(exec->box_name, sizeof exec->box_name, "%s", box->config.name);
        for (int i = 0; i < CHANNEL_COUNT; i++)
                exec->window[i] = STREAM_WINDOW;
        exec->stdin_window = STREAM_WINDOW;
        if (box_connect(box, deadline_ms, &exec->client, err) < 0 || make_poll_fd(exec, err) < 0) {
                box_exec_close(exec);
                return -1;
        }
        exec->stream = client_new_stream(exec->client);
        *ret = exec;
        return 0;
}

void box_exec_close(cubby_exec *exec)
{
        if (exec == NULL)
                return;
        /* the shim cancels what a vanished client has begun */
        client_close(exec->client);
        close_quietly(exec->poll_fd);
        close_quietly(exec->event_fd);
        close_quietly(exec->timer_fd);
        for (struct chunk *chunk = exec->first; chunk != NULL;) {
                struct chunk *next = chunk->next;
                free(chunk);
                chunk = next;
        }
        free(exec->shown);
        box_close(exec->box);
        (void)pthread_cond_destroy(&exec->changed);
        (void)pthread_mutex_destroy(&exec->lock);
        (void)pthread_mutex_destroy(&exec->send_lock);
        free(exec);
}

static struct slice text_slice(const char *text)
{
        return (struct slice){.data = (const uint8_t *)text, .size = strlen(text)};
}

static int slices_of(
        const char *const *texts, struct slice **ret, uint32_t *ret_count, cubby_error *err)
{
        size_t count = 0;
        while (texts != NULL && texts[count] != NULL)
                count++;
        if (count > WIRE_ARGUMENTS_MAX)
                return box_too_big(err, "there are", WIRE_ARGUMENTS_MAX, "arguments or variables");
        struct slice *slices = calloc(count + 1, sizeof *slices);
        if (slices == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                slices[i] = text_slice(texts[i]);
                if (slices[i].size >= WIRE_ARGUMENT_MAX) {
                        free(slices);
                        return box_too_big(
                                err, "an argument or variable has", WIRE_ARGUMENT_MAX - 1, "bytes");
                }
        }
        *ret = slices;
        *ret_count = (uint32_t)count;
        return 0;
}

static int encode(
        cubby_box *box, const cubby_exec_options *options, struct buffer *payload, cubby_error *err)
{
        const char *cwd = options->workdir != NULL ? options->workdir : box->config.workdir;
        const char *user = options->user != NULL ? options->user : box->config.user;
        struct message_exec message = {.flags = (options->tty ? EXEC_TTY : 0U) |
                        (options->open_stdin ? EXEC_STDIN : 0U) |
                        (options->detach ? EXEC_DETACH : 0U),
                .timeout_ms = (uint32_t)options->timeout_ms,
                .rows = options->tty && options->rows == 0 ? ROWS_DEFAULT : options->rows,
                .columns =
                        options->tty && options->columns == 0 ? COLUMNS_DEFAULT : options->columns,
                .user = text_slice(user),
                .cwd = text_slice(cwd)};
        char **env = NULL;
        int result = box_merge_env(box->config.env, options->env, &env, err);
        if (result == 0)
                result = slices_of(options->argv, &message.argv, &message.argc, err);
        if (result == 0)
                result = slices_of((const char *const *)env, &message.env, &message.envc, err);
        if (result == 0 && !message_exec_encode(payload, &message))
                result = box_too_big(
                        err, "the command and its environment have", payload->maximum, "bytes");
        message_exec_free(&message);
        box_free_list(env);
        return result;
}

static int check(const cubby_exec_options *options, cubby_error *err)
{
        if (options->argv == NULL || options->argv[0] == NULL || options->argv[0][0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "there is no command to run");
        if (options->timeout_ms < 0 || options->timeout_ms > UINT32_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the timeout must be from 1 ms to %u ms, or 0 for none", UINT32_MAX);
        if (options->detach && (options->open_stdin || options->tty))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "a detached command has neither a terminal nor an open stdin");
        if (options->workdir != NULL &&
                (options->workdir[0] != '/' || strlen(options->workdir) > WIRE_TEXT_MAX))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the working directory '%.128s' must be an absolute path",
                        options->workdir);
        if (options->user != NULL && strlen(options->user) > 256)
                return cubby_error_set(err, CUBBY_E_INVALID, "the user's name is too long");
        return box_check_env(options->env, err);
}

static int await_start(cubby_exec *exec, int64_t deadline_ms, cubby_error *err)
{
        (void)pthread_mutex_lock(&exec->lock);
        int result = 0;
        while (result == 0 && !exec->started && !exec->ended)
                result = turn(exec, deadline_ms, err);
        (void)pthread_mutex_unlock(&exec->lock);
        return result;
}

int box_exec_start(
        cubby_box *box, const cubby_exec_options *options, cubby_exec **ret, cubby_error *err)
{
        if (box_check_whole(box, err) < 0 || check(options, err) < 0)
                return -1;
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, BOX_ARGUMENT_BYTES_MAX);
        if (encode(box, options, &payload, err) < 0)
                return -1;
        int64_t limit = options->timeout_ms > 0
                ? deadline_after_ms(options->timeout_ms + TIMEOUT_GRACE_MS)
                : DEADLINE_NEVER;
        int64_t deadline = deadline_after_ms(START_MS);
        if (limit < deadline)
                deadline = limit;
        AUTO(cubby_exec) cubby_exec *exec = NULL;
        if (make(box, deadline, &exec, err) < 0 ||
                (limit != DEADLINE_NEVER && set_timeout(exec, limit, err) < 0))
                return -1;
        exec->detached = options->detach;
        exec->with_stdin = options->open_stdin;
        if (send_frame(exec, FRAME_EXEC, 0, payload.data, payload.size, deadline, err) < 0 ||
                await_start(exec, deadline, err) < 0)
                return cubby_error_wrap(
                        err, "starting '%.128s' in box '%s'", options->argv[0], box->config.name);
        *ret = take_ptr(&exec);
        return 0;
}

int box_attach(cubby_box *box, bool replay, cubby_exec **ret, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(BOX_CALL_MS);
        AUTO(cubby_exec) cubby_exec *exec = NULL;
        if (make(box, deadline, &exec, err) < 0)
                return -1;
        exec->attached = true;
        exec->started = true;
        exec->with_stdin = box->config.open_stdin;
        uint8_t payload = replay ? 1 : 0;
        if (send_frame(exec, FRAME_SHIM_ATTACH, 0, &payload, 1, deadline, err) < 0)
                return cubby_error_wrap(err, "attaching to box '%s'", box->config.name);
        *ret = take_ptr(&exec);
        return 0;
}

/* What the last event showed is done with: the box may send as much again. */
static int release_shown(cubby_exec *exec, cubby_error *err)
{
        struct chunk *chunk = take_ptr(&exec->shown);
        if (chunk == NULL)
                return 0;
        int channel = chunk->channel;
        exec->consumed[channel] += (uint32_t)chunk->size;
        free(chunk);
        if (exec->consumed[channel] < CREDIT_PIECE || exec->ended || exec->failed)
                return 0;
        uint32_t credit = exec->consumed[channel];
        exec->consumed[channel] = 0;
        exec->window[channel] += credit;
        (void)pthread_mutex_unlock(&exec->lock);
        cubby_error problem = {0};
        int result = send_u32(exec, FRAME_CREDIT, (uint16_t)channel, credit, &problem);
        (void)pthread_mutex_lock(&exec->lock);
        exec->active_ms = clock_monotonic_ms();
        /* a box that ended may still have left its last frames in the socket */
        if (result < 0 && problem.code != CUBBY_E_BOX_DEAD) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        return 0;
}

static void show_exit(cubby_exec *exec, cubby_event *ret)
{
        const struct message_exit *exit = &exec->exit;
        *ret = (cubby_event){.kind = CUBBY_EVENT_EXIT,
                .exit = {.code = exit->signal > 0 ? 128 + (int)exit->signal : (int)exit->code,
                        .signal = (int)exit->signal,
                        .timed_out = (exit->flags & EXIT_FLAG_TIMED_OUT) != 0,
                        .oom = (exit->flags & EXIT_FLAG_OOM) != 0,
                        .incomplete = (exit->flags & EXIT_FLAG_INCOMPLETE) != 0,
                        .user_us = exit->user_us,
                        .system_us = exit->system_us,
                        .max_rss_bytes = exit->max_rss_bytes}};
        exec->exit_shown = true;
}

/* The end that a frozen box did not send. What runs on in there is cancelled, now by
 * this frame or with the connection. */
static void give_up(cubby_exec *exec)
{
        exec->ended = true;
        exec->exit = (struct message_exit){
                .signal = SIGKILL, .flags = EXIT_FLAG_TIMED_OUT | EXIT_FLAG_INCOMPLETE};
        (void)pthread_mutex_unlock(&exec->lock);
        (void)send_frame(exec, FRAME_CANCEL, 0, NULL, 0, clock_monotonic_ms(), NULL);
        (void)pthread_mutex_lock(&exec->lock);
}

static int next_locked(cubby_exec *exec, int64_t deadline_ms, cubby_event *ret, cubby_error *err)
{
        if (release_shown(exec, err) < 0)
                return -1;
        for (;;) {
                if (exec->first != NULL) {
                        struct chunk *chunk = exec->first;
                        exec->first = chunk->next;
                        if (exec->first == NULL)
                                exec->last = NULL;
                        exec->shown = chunk;
                        *ret = (cubby_event){.kind = chunk->channel == CHANNEL_STDOUT
                                        ? CUBBY_EVENT_STDOUT
                                        : CUBBY_EVENT_STDERR,
                                .data = chunk->bytes,
                                .size = chunk->size};
                        return 0;
                }
                if (exec->exit_shown)
                        return cubby_error_set(err, CUBBY_E_CLOSED, "the command has ended");
                if (exec->ended) {
                        show_exit(exec, ret);
                        return 0;
                }
                int64_t limit = give_up_ms(exec);
                cubby_error problem = {0};
                if (turn(exec, limit < deadline_ms ? limit : deadline_ms, &problem) == 0)
                        continue;
                bool late = problem.code == CUBBY_E_TIMEOUT;
                if (late && is_given_up(exec)) {
                        give_up(exec);
                } else if (!late || deadline_left_ms(deadline_ms) == 0) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
        }
}

int box_exec_next(cubby_exec *exec, int64_t timeout_ms, cubby_event *ret, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(timeout_ms);
        (void)pthread_mutex_lock(&exec->lock);
        int result = next_locked(exec, deadline, ret, err);
        update_event(exec);
        arm_timer(exec);
        (void)pthread_mutex_unlock(&exec->lock);
        return result;
}

cubby_box *box_exec_box(const cubby_exec *exec)
{
        return exec->box;
}

int box_exec_fd(const cubby_exec *exec)
{
        return exec->poll_fd;
}

uint32_t box_exec_pid(const cubby_exec *exec)
{
        return exec->pid;
}

static int stdin_closed(cubby_error *err, const char *text)
{
        (void)cubby_error_set(err, CUBBY_E_CLOSED, "%s", text);
        if (err != NULL)
                err->sys_errno = EPIPE;
        return -1;
}

/* With the lock held: how many bytes may go now; 0 with the window empty. */
static int64_t room(cubby_exec *exec, size_t size, cubby_error *err)
{
        if (!exec->with_stdin)
                return cubby_error_set(
                        err, CUBBY_E_STATE, "the command was started without an open stdin");
        if (exec->stdin_ended)
                return stdin_closed(err, "stdin was closed");
        if (exec->ended || exec->stdin_refused)
                return stdin_closed(err, "the command does not read its stdin any more");
        if (exec->failed) {
                if (err != NULL)
                        *err = exec->failure;
                return -1;
        }
        size_t most = exec->stdin_window < FRAME_DATA_MAX ? exec->stdin_window : FRAME_DATA_MAX;
        return (int64_t)(size < most ? size : most);
}

/* Reserves room, waiting for credit. 0 when none came by the deadline. */
static int64_t take_room(cubby_exec *exec, size_t size, int64_t deadline_ms, cubby_error *err)
{
        for (;;) {
                int64_t piece = room(exec, size, err);
                if (piece != 0) {
                        if (piece > 0)
                                exec->stdin_window -= (uint32_t)piece;
                        return piece;
                }
                cubby_error problem = {0};
                if (turn(exec, deadline_ms, &problem) < 0) {
                        if (problem.code == CUBBY_E_TIMEOUT)
                                return 0;
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
        }
}

/* Nothing of it was sent, or the connection is of no use any more. */
static void give_room_back(cubby_exec *exec, uint32_t size)
{
        (void)pthread_mutex_lock(&exec->lock);
        exec->stdin_window += size;
        (void)pthread_mutex_unlock(&exec->lock);
}

int64_t box_exec_write(
        cubby_exec *exec, const void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(timeout_ms);
        const uint8_t *next = data;
        size_t done = 0;
        while (done < size) {
                (void)pthread_mutex_lock(&exec->lock);
                int64_t piece = take_room(exec, size - done, deadline, err);
                (void)pthread_mutex_unlock(&exec->lock);
                if (piece < 0)
                        return done > 0 ? (int64_t)done : -1;
                if (piece == 0)
                        break;
                /* a frame is sent wholly or the connection is of no use any more */
                if (send_frame(exec, FRAME_DATA, CHANNEL_STDIN, next + done, (size_t)piece,
                            send_deadline(exec), err) < 0) {
                        give_room_back(exec, (uint32_t)piece);
                        return done > 0 ? (int64_t)done : -1;
                }
                done += (size_t)piece;
        }
        if (done == 0 && size > 0)
                return cubby_error_set(
                        err, CUBBY_E_TIMEOUT, "the command did not read its stdin in time");
        return (int64_t)done;
}

int box_exec_close_stdin(cubby_exec *exec, cubby_error *err)
{
        (void)pthread_mutex_lock(&exec->lock);
        bool nothing = exec->stdin_ended || exec->ended || exec->failed || !exec->with_stdin;
        exec->stdin_ended = true;
        (void)pthread_mutex_unlock(&exec->lock);
        if (nothing)
                return 0;
        return send_frame(exec, FRAME_EOF, CHANNEL_STDIN, NULL, 0, send_deadline(exec), err);
}

static int check_running(cubby_exec *exec, cubby_error *err)
{
        (void)pthread_mutex_lock(&exec->lock);
        bool ended = exec->ended || exec->failed;
        (void)pthread_mutex_unlock(&exec->lock);
        return ended ? cubby_error_set(err, CUBBY_E_CLOSED, "the command has ended") : 0;
}

int box_exec_signal(cubby_exec *exec, int signal, cubby_error *err)
{
        if (signal < 1 || signal > SIGRTMAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "there is no signal %d", signal);
        if (check_running(exec, err) < 0)
                return -1;
        return send_u32(exec, FRAME_SIGNAL, 0, (uint32_t)signal, err);
}

int box_exec_resize(cubby_exec *exec, uint16_t rows, uint16_t columns, cubby_error *err)
{
        uint8_t payload[4];
        store_u16(payload, rows);
        store_u16(payload + 2, columns);
        if (check_running(exec, err) < 0)
                return -1;
        return send_frame(exec, FRAME_RESIZE, 0, payload, sizeof payload, send_deadline(exec), err);
}
