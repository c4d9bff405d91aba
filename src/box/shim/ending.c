/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/shim/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EXIT_BYTES_MAX (16U * 1024U)

/* The first reason stands. */
void end_reason(struct shim *shim, const char *reason, const char *detail)
{
        if (shim->exit.reason[0] != '\0')
                return;
        (void)snprintf(shim->exit.reason, sizeof shim->exit.reason, "%s", reason);
        (void)snprintf(shim->exit.detail, sizeof shim->exit.detail, "%.*s",
                (int)sizeof shim->exit.detail - 1, detail);
}

void end_text(const struct shim *shim, char *ret, size_t size)
{
        (void)snprintf(ret, size, "the box has ended (%s)%s%s", shim->exit.reason,
                shim->exit.detail[0] != '\0' ? ": " : "", shim->exit.detail);
}

/* There is no machine any more: every call fails now, attached clients get the rest. */
static void become_gone(struct shim *shim)
{
        shim->phase = PHASE_GONE;
        shim->paused = false;
        shim->engine->destroy(shim->machine);
        shim->machine = NULL;
        shim->kill_deadline_ms = DEADLINE_NEVER;
        shim->ttl_deadline_ms = DEADLINE_NEVER;
        shim->park_deadline_ms = DEADLINE_NEVER;
        shim->boot_deadline_ms = DEADLINE_NEVER;
        shim->part_deadline_ms = DEADLINE_NEVER;
        char text[END_TEXT_MAX];
        end_text(shim, text, sizeof text);
        streams_fail(shim, CUBBY_E_BOX_DEAD, text);
}

void end_kill(struct shim *shim, const char *reason, const char *detail)
{
        if (shim->phase == PHASE_GONE)
                return;
        end_reason(shim, reason, detail);
        const char *first = shim->exit.reason;
        if (strcmp(first, "killed") == 0 || strcmp(first, "stopped") == 0 ||
                strcmp(first, "ttl") == 0 || strcmp(first, "idle") == 0)
                command_killed(shim);
        become_gone(shim);
}

static void unpause(struct shim *shim)
{
        if (!shim->paused || shim->engine->unpause(shim->machine, NULL) < 0)
                return; /* what stays paused is killed in the end */
        shim->paused = false;
        guest_watch_part(shim);
}

void end_shutdown(struct shim *shim, int64_t timeout_ms)
{
        if (shim->phase >= PHASE_SHUTDOWN)
                return;
        shim->phase = PHASE_SHUTDOWN;
        int64_t deadline = deadline_after_ms(timeout_ms);
        if (deadline < shim->kill_deadline_ms)
                shim->kill_deadline_ms = deadline;
        uint8_t payload[4];
        store_u32(payload, (uint32_t)(timeout_ms / 2));
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_OWN);
        if (stream == NULL)
                return; /* the deadline ends it */
        stream->reply = FRAME_OK;
        (void)guest_send(shim, FRAME_SHUTDOWN, 0, stream->id, payload, sizeof payload);
}

void end_stop(struct shim *shim, const char *reason, int64_t timeout_ms)
{
        if (shim->phase == PHASE_GONE)
                return;
        int64_t deadline = deadline_after_ms(timeout_ms);
        if (deadline < shim->kill_deadline_ms)
                shim->kill_deadline_ms = deadline;
        if (shim->stopping || shim->phase == PHASE_SHUTDOWN)
                return;
        shim->stopping = true;
        end_reason(shim, reason, "");
        unpause(shim);
        if (shim->phase < PHASE_RUNNING) {
                end_kill(shim, reason, "stopped while it was starting");
                return;
        }
        struct stream *stream = shim->command.stream;
        if (stream == NULL) {
                end_shutdown(shim, timeout_ms);
                return;
        }
        uint8_t payload[4];
        store_u32(payload, (uint32_t)box_signal_number(shim->config.stop_signal));
        (void)guest_send(shim, FRAME_SIGNAL, 0, stream->id, payload, sizeof payload);
}

void end_machine_exited(struct shim *shim)
{
        if (shim->phase == PHASE_GONE)
                return;
        /* What the agent said before its end still counts. */
        while (guest_read(shim))
                ;
        if (shim->phase == PHASE_GONE)
                return;
        char text[400];
        bool clean = false;
        text[0] = '\0';
        shim->engine->describe_exit(shim->machine, text, sizeof text, &clean);
        if (shim->phase < PHASE_RUNNING) {
                cubby_error error;
                cubby_error_clear(&error);
                (void)cubby_error_set(&error, CUBBY_E_VMM, "the machine ended: %s", text);
                boot_fail(shim, "boot-failed", &error, true);
                return;
        }
        end_reason(shim, clean ? "guest-shutdown" : "vmm-died", text);
        if (shim->stopping)
                command_killed(shim);
        become_gone(shim);
}

/*
 * The end as others see it, in this order: the exit file, the socket's name, the
 * lock. From here on the box has ended and may be started again or removed; this
 * process uses nothing in its folder any more but files that it holds open.
 */
void end_publish(struct shim *shim)
{
        shim->published = true;
        shim->exit.finished_ns = clock_realtime_ns();
        shim->exit.generation = shim->generation;
        (void)snprintf(shim->exit.isolation, sizeof shim->exit.isolation, "%s", shim->isolation);
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, EXIT_BYTES_MAX);
        cubby_error error;
        cubby_error_clear(&error);
        shim->result = shim->failed ? 1 : 0;
        if (shim->box_fd >= 0 &&
                (box_exit_encode(&shim->exit, &json, &error) < 0 ||
                        file_publish_at(shim->box_fd, BOX_EXIT_NAME, json.data, json.size, 0600,
                                &error) < 0)) {
                log_line(&shim->log, LOG_ERROR, "the exit file: %s", error.message);
                shim->result = 1;
        }
        if (shim->listen_fd >= 0)
                (void)unlink(BOX_SOCKET_NAME);
        close_quietly(take_fd(&shim->listen_fd));
        /* A process that the creator's program forked meanwhile may share the open file:
         * closing it would not do. */
        if (shim->lock_fd >= 0)
                (void)flock(shim->lock_fd, LOCK_UN);
        close_quietly(take_fd(&shim->lock_fd));
        if (shim->failed)
                boot_report(shim, REPORT_FAILED, shim->error.message);
        close_quietly(take_fd(&shim->status_fd));
}

/* A command that was quick: its creator, who has just heard READY, may want to attach. */
static bool awaits_creator(const struct shim *shim)
{
        return !shim->failed && strcmp(shim->exit.reason, "exited") == 0 && !shim->command.seen;
}

/*
 * After the machine: the end is published at once. Clients who have all that is
 * theirs are let go, and see their connection closed when the rest is done; for
 * the others this process waits, as long as their connection lives.
 */
void end_settle(struct shim *shim, int64_t now_ms)
{
        if (shim->phase != PHASE_GONE)
                return;
        if (!shim->published) {
                shim->drain_deadline_ms = shim->ready_ms + shim->options->linger_ms;
                if (awaits_creator(shim) && now_ms < shim->drain_deadline_ms)
                        return;
                end_publish(shim);
                shim->drain_deadline_ms = deadline_after_ms(shim->options->drain_ms);
        }
        for (struct peer *peer = shim->peers; peer != NULL; peer = peer->next)
                if (peer->attaches == NULL && connection_queued(&peer->connection) == 0)
                        peer->closing = true;
        peers_drop_closing(shim);
        shim->finished = shim->peers == NULL || now_ms >= shim->drain_deadline_ms;
}
