/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STOP_TICK_MS 10
#define REST_NS 700000    /* a flood is read then again: its pipe is full by now */
#define ABSENT_TICK_MS 20 /* nobody holds the other end of the port */
#define FLOOD_NICE (-20)
#define PUMP_ROUNDS 8 /* then requests are looked at again */
#define FIXED 3
#define POLL_MAX (FIXED + EXECS_MAX * 4)

enum { AT_PORT, AT_WAKE, AT_INIT };

struct watch {
        struct pollfd fds[POLL_MAX];
        struct exec *execs[POLL_MAX];
        int channels[POLL_MAX]; /* CHANNEL_COUNT: the pidfd */
        nfds_t count;
        bool absent;
        bool pause; /* somebody floods us */
};

/* Between FROZEN being written and THAW nothing may be sent, so nothing is looked at. */
static bool is_quiet(const struct agent *agent)
{
        return agent->phase == PHASE_FROZEN ||
                (agent->phase == PHASE_FREEZING && agent->freeze_syncing);
}

static void add(struct watch *watch, int fd, short events, struct exec *exec, int channel)
{
        watch->fds[watch->count] = (struct pollfd){.fd = fd, .events = events};
        watch->execs[watch->count] = exec;
        watch->channels[watch->count] = channel;
        watch->count++;
}

static void watch_exec(struct watch *watch, struct exec *exec, bool room)
{
        if (exec->job != NULL)
                return;
        if (exec->pidfd >= 0)
                add(watch, exec->pidfd, POLLIN, exec, CHANNEL_COUNT);
        bool input = exec_wants_input(exec);
        bool tty = (exec->flags & EXEC_TTY) != 0;
        if (input && !tty)
                add(watch, exec->fds[CHANNEL_STDIN], POLLOUT, exec, CHANNEL_STDIN);
        for (int channel = CHANNEL_STDOUT; channel <= CHANNEL_STDERR; channel++) {
                short events = 0;
                bool wanted = exec_wants_output(exec, channel) && (room || exec->discard);
                if (wanted && exec_flows(exec)) {
                        exec->readable[channel] = true; /* looked at after the pause */
                        watch->pause = true;
                } else if (wanted) {
                        events |= POLLIN;
                }
                if (input && tty && channel == CHANNEL_STDOUT)
                        events |= POLLOUT;
                /* Without an event of interest not at all: a hang-up would not let us sleep. */
                if (events != 0)
                        add(watch, exec->fds[channel], events, exec, channel);
        }
}

static int wait_ms(const struct agent *agent, const struct watch *watch)
{
        int64_t next = DEADLINE_NEVER;
        if (!is_quiet(agent))
                for (size_t i = 0; i < agent->exec_count; i++) {
                        int64_t deadline = exec_deadline(agent->execs[i]);
                        next = deadline < next ? deadline : next;
                }
        if (agent->phase == PHASE_FREEZING && agent->freeze_at < next)
                next = agent->freeze_at;
        if (!is_quiet(agent) && agent->files_more && !port_pending(&agent->port))
                return 0;
        int left = deadline_left_ms(next);
        int tick = watch->absent ? ABSENT_TICK_MS : -1;
        if (agent->phase == PHASE_STOPPING && !agent->stop_sent)
                tick = STOP_TICK_MS;
        return tick >= 0 && (left < 0 || left > tick) ? tick : left;
}

static int poll_or_rest(const struct agent *agent, struct watch *watch)
{
        int limit_ms = wait_ms(agent, watch);
        if (!watch->pause || limit_ms == 0)
                return poll(watch->fds, watch->count, limit_ms);
        int64_t left = agent->rest_until_ns - clock_monotonic_ns();
        const struct timespec rest = {.tv_nsec = left < 0 ? 0 : left > REST_NS ? REST_NS : left};
        return ppoll(watch->fds, watch->count, &rest, NULL);
}

static void wait_for_events(struct agent *agent, struct watch *watch)
{
        watch->count = 0;
        watch->pause = false;
        short port_events = 0;
        if (agent->port.control.size < PORT_CONTROL_BUSY)
                port_events |= POLLIN;
        bool room = !port_pending(&agent->port);
        if (!room)
                port_events |= POLLOUT;
        add(watch, watch->absent ? -1 : agent->port.fd, port_events, NULL, 0);
        add(watch, agent->wake_fd, POLLIN, NULL, 0);
        add(watch, agent->workload.init_pidfd, POLLIN, NULL, 0);
        if (!is_quiet(agent))
                for (size_t i = 0; i < agent->exec_count; i++)
                        watch_exec(watch, agent->execs[i], room);
        if (poll_or_rest(agent, watch) <= 0)
                for (nfds_t i = 0; i < watch->count; i++)
                        watch->fds[i].revents = 0;
}

static void receive(struct agent *agent, struct watch *watch)
{
        struct frame frame;
        bool broken = false;
        watch->absent = !port_receive(&agent->port);
        while (port_next(&agent->port, &frame, &broken))
                dispatch_frame(agent, &frame);
        if (broken)
                log_line(&agent->console.log, LOG_ERROR, "a frame beyond all limits was skipped");
}

static void take_done(struct agent *agent)
{
        uint64_t count;
        (void)!read(agent->wake_fd, &count, sizeof count);
        struct job *job;
        while ((job = queue_poll(&agent->done)) != NULL)
                dispatch_done(agent, job);
}

static void handle_exec_events(struct agent *agent, struct watch *watch)
{
        for (nfds_t i = FIXED; i < watch->count; i++) {
                struct exec *exec = watch->execs[i];
                short events = watch->fds[i].revents;
                int channel = watch->channels[i];
                if (events == 0)
                        continue;
                if (channel == CHANNEL_COUNT) {
                        exec_reap(exec);
                        continue;
                }
                bool input = channel == CHANNEL_STDIN || (exec->flags & EXEC_TTY) != 0;
                if (input && (events & (POLLOUT | POLLERR)) != 0)
                        exec_write_input(exec, &agent->port);
                if (channel != CHANNEL_STDIN && (events & (POLLIN | POLLHUP | POLLERR)) != 0)
                        exec->readable[channel] = true;
        }
}

/*
 * Whoever floods us is left alone between two looks, and neither he nor who is flooded
 * interrupts us: what a switch between the two costs in an emulated machine, where the
 * translated code has to be looked up again, is more than the copying of what a usual pipe
 * holds.
 */
static void rest(struct agent *agent)
{
        bool floods = false;
        bool hurried = false;
        for (size_t i = 0; i < agent->exec_count; i++) {
                floods |= exec_flows(agent->execs[i]);
                hurried |= exec_was_fed(agent->execs[i]);
        }
        hurried |= floods;
        if (floods)
                agent->rest_until_ns = clock_monotonic_ns() + REST_NS;
        if (hurried != agent->hurried) {
                agent->hurried = hurried;
                (void)setpriority(PRIO_PROCESS, 0, hurried ? FLOOD_NICE : 0); /* this thread's */
        }
}

static bool pump_execs(struct agent *agent, bool all)
{
        bool moved = false;
        for (size_t i = 0; i < agent->exec_count; i++) {
                struct exec *exec = agent->execs[(agent->turn + i) % agent->exec_count];
                if (all || !exec_flows(exec))
                        moved |= exec_pump(exec, &agent->port);
        }
        agent->turn++;
        return moved;
}

/* Files and commands in turn have the first word: either could fill the port alone. */
static bool pump_all(struct agent *agent, bool all)
{
        bool files_first = agent->turn % 2 == 0;
        bool moved = !files_first && pump_execs(agent, all);
        agent->files_more = files_pump(&agent->files, &agent->port);
        moved |= agent->files_more;
        if (files_first)
                moved |= pump_execs(agent, all);
        return moved;
}

/* Each command with output gets one frame's turn before any gets its second. */
static void pump(struct agent *agent)
{
        bool all = clock_monotonic_ns() >= agent->rest_until_ns;
        for (size_t i = 0; all && i < agent->exec_count; i++)
                agent->execs[i]->passed = 0;
        for (int round = 0; round < PUMP_ROUNDS; round++) {
                (void)port_fill(&agent->port);
                bool moved = pump_all(agent, all);
                port_flush(&agent->port);
                if (!moved || port_pending(&agent->port))
                        break;
        }
        if (all)
                rest(agent);
}

static void check_execs(struct agent *agent)
{
        int64_t now = clock_monotonic_ms();
        size_t kept = 0;
        for (size_t i = 0; i < agent->exec_count; i++) {
                struct exec *exec = agent->execs[i];
                exec_check(exec, &agent->port, now);
                if (exec->ended) {
                        exec_free(exec, &agent->cgroups);
                        agent->untidy = true;
                } else {
                        agent->execs[kept++] = exec;
                }
        }
        agent->exec_count = kept;
        dispatch_freeze(agent, now);
        dispatch_stop(agent, now);
}

static void send_waiting(struct agent *agent)
{
        while (agent->port.control.size > 0 && !port_pending(&agent->port)) {
                (void)port_fill(&agent->port);
                port_flush(&agent->port);
        }
        port_flush(&agent->port);
}

_Noreturn void loop_run(struct agent *agent)
{
        struct watch watch = {0};
        for (;;) {
                send_waiting(agent);
                if (agent->untidy) {
                        agent->untidy = false;
                        queue_nudge(&agent->spawner_jobs);
                }
                wait_for_events(agent, &watch);
                watch.absent = watch.absent || (watch.fds[AT_PORT].revents & POLLHUP) != 0;
                if (watch.fds[AT_INIT].revents != 0) {
                        cubby_error error = {0};
                        (void)cubby_error_set(
                                &error, CUBBY_E_SYSTEM, "the workload's init has died");
                        fatal(&agent->console, "running", &error);
                }
                if (watch.fds[AT_WAKE].revents != 0)
                        take_done(agent);
                if (watch.absent || (watch.fds[AT_PORT].revents & POLLIN) != 0)
                        receive(agent, &watch);
                if (is_quiet(agent))
                        continue;
                handle_exec_events(agent, &watch);
                pump(agent);
                check_execs(agent);
        }
}
