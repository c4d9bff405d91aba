/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "box/shim/shim.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define STOP_ON_SIGNAL_MS 10000
#define CLOSED_GRACE_MS 2000 /* between the end of the agent's port and of the machine */

enum { POLL_SIGNAL, POLL_LISTEN, POLL_AGENT, POLL_EXIT, POLL_KEEPER, POLL_PEERS };

static int64_t earlier(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

static int64_t next_deadline(const struct shim *shim, int64_t now_ms)
{
        if (shim->again)
                return now_ms;
        int64_t next = earlier(shim->boot_deadline_ms, shim->kill_deadline_ms);
        next = earlier(next, earlier(shim->ttl_deadline_ms, shim->part_deadline_ms));
        next = earlier(next, shim->park_deadline_ms);
        if (now_ms < shim->accept_ms)
                next = earlier(next, shim->accept_ms);
        next = earlier(next, shim->look_ms);
        return earlier(
                next, shim->phase == PHASE_GONE ? shim->drain_deadline_ms : shim->console_ms);
}

static size_t fill_poll(struct shim *shim, struct pollfd *fds, int64_t now_ms)
{
        bool gone = shim->phase == PHASE_GONE;
        fds[POLL_SIGNAL] = (struct pollfd){.fd = shim->signal_fd, .events = POLLIN};
        bool full = now_ms < shim->accept_ms || shim->peer_count >= PEERS_MAX;
        fds[POLL_LISTEN] = (struct pollfd){.fd = full ? -1 : shim->listen_fd, .events = POLLIN};
        fds[POLL_AGENT] = (struct pollfd){
                .fd = gone || shim->agent_closed ? -1 : shim->agent.fd, .events = POLLIN};
        if (!gone && !shim->freeze_sent && connection_queued(&shim->agent) > 0)
                fds[POLL_AGENT].events |= POLLOUT;
        fds[POLL_EXIT] = (struct pollfd){
                .fd = gone ? -1 : shim->engine->exit_fd(shim->machine), .events = POLLIN};
        /* who waits for a template or keeps a spare: without them it has no purpose */
        int owner = shim->options->mode == SHIM_TEMPLATE ? shim->status_fd : shim->keeper_fd;
        fds[POLL_KEEPER] = (struct pollfd){.fd = gone ? -1 : owner};
        size_t count = POLL_PEERS;
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next) {
                peer->poll_index = count;
                fds[count] = (struct pollfd){
                        .fd = peer->connection.fd, .events = peer->held ? 0 : POLLIN};
                if (connection_queued(&peer->connection) > 0)
                        fds[count].events |= POLLOUT;
                count++;
        }
        return count;
}

static void on_signals(struct shim *shim)
{
        struct signalfd_siginfo info;
        while (read(shim->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
                if (shim->published)
                        shim->drain_deadline_ms = 0; /* nobody is waited for any more */
                end_stop(shim, "stopped", STOP_ON_SIGNAL_MS);
        }
}

static void on_timers(struct shim *shim, int64_t now_ms)
{
        if (now_ms >= shim->boot_deadline_ms)
                boot_late(shim);
        if (now_ms >= shim->look_ms)
                saved_look(shim, now_ms);
        if (now_ms >= shim->kill_deadline_ms)
                end_kill(shim, shim->agent_closed ? "vmm-died" : "stopped",
                        shim->agent_closed ? "the agent's port was closed" : "");
        if (now_ms >= shim->ttl_deadline_ms) {
                shim->ttl_deadline_ms = DEADLINE_NEVER;
                end_stop(shim, "ttl", STOP_ON_SIGNAL_MS);
        }
        if (now_ms >= shim->park_deadline_ms) {
                shim->park_deadline_ms = DEADLINE_NEVER;
                end_stop(shim, "idle", STOP_ON_SIGNAL_MS);
        }
        if (now_ms >= shim->part_deadline_ms)
                end_kill(shim, "protocol",
                        "the agent broke the protocol: half a frame, then silence");
        if (shim->phase != PHASE_GONE)
                console_bound(shim, now_ms);
}

/* All that can be sent now is sent at once: nobody waits for another round. */
static void flush_all(struct shim *shim, int64_t now_ms)
{
        command_pump(shim);
        copy_pump(shim);
        if (shim->phase != PHASE_GONE && !shim->agent_closed && !shim->freeze_sent &&
                connection_flush(&shim->agent) < 0)
                shim->agent_closed = true;
        bool room = !guest_is_full(shim);
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next) {
                if (peer->held && room && !peer->closing)
                        peer_handle(shim, peer);
                if (!peer->closing)
                        peer_flush(peer);
        }
        if (shim->agent_closed && shim->phase != PHASE_GONE)
                shim->kill_deadline_ms = earlier(shim->kill_deadline_ms, now_ms + CLOSED_GRACE_MS);
}

static void one_round(struct shim *shim, struct pollfd *fds)
{
        int64_t before = clock_monotonic_ms();
        size_t count = fill_poll(shim, fds, before);
        if (poll(fds, count, deadline_left_ms(next_deadline(shim, before))) < 0 && errno != EINTR)
                end_kill(shim, "vmm-died", "the shim cannot poll");
        int64_t now_ms = clock_monotonic_ms();
        if ((fds[POLL_SIGNAL].revents & POLLIN) != 0)
                on_signals(shim);
        if (shim->phase != PHASE_GONE && fds[POLL_EXIT].revents != 0)
                end_machine_exited(shim);
        if (shim->phase != PHASE_GONE && fds[POLL_KEEPER].revents != 0 &&
                (shim->unclaimed || shim->options->mode == SHIM_TEMPLATE))
                end_kill(shim, "stopped", "nobody waits for it any more");
        if (shim->phase != PHASE_GONE && (fds[POLL_AGENT].revents & ~POLLOUT) != 0)
                (void)guest_read(shim);
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next)
                if ((fds[peer->poll_index].revents & ~POLLOUT) != 0 && !peer->closing) {
                        if (peer->held) /* not asked to read: it has hung up */
                                peer->closing = true;
                        else
                                peer_read(shim, peer);
                }
        if ((fds[POLL_LISTEN].revents & POLLIN) != 0)
                peers_accept(shim);
        on_timers(shim, now_ms);
        flush_all(shim, now_ms);
        peers_drop_closing(shim);
        end_settle(shim, now_ms);
}

void loop_run(struct shim *shim)
{
        struct pollfd fds[POLL_PEERS + PEERS_MAX];
        while (!shim->finished)
                one_round(shim, fds);
}
