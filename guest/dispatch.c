/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define PING_MAX 64U
#define FREEZE_START_MS 2000 /* a command that is being started may take this long */
#define STOP_KILL_MS 2000    /* after KILL, before the power goes anyway */
#define SIGNAL_MAX 64U

static struct exec *find_exec(struct agent *agent, uint64_t stream)
{
        for (size_t i = 0; i < agent->exec_count; i++)
                if (agent->execs[i]->stream == stream && !agent->execs[i]->silent)
                        return agent->execs[i];
        return NULL;
}

static void ignore(struct agent *agent, const struct frame *frame, const char *why)
{
        log_line(&agent->console.log, LOG_WARNING, "%s (%u) on stream %llu ignored: %s",
                frame_type_name(frame->type), (unsigned)frame->type,
                (unsigned long long)frame->stream, why);
}

static void refuse(struct agent *agent, uint64_t stream, int code, const char *text)
{
        cubby_error error = {0};
        (void)cubby_error_set(&error, code, "%s", text);
        send_error(&agent->port, stream, &error);
}

static void hand_over(struct agent *agent, enum job_kind kind, const struct frame *frame)
{
        if (agent->jobs >= JOBS_MAX) {
                refuse(agent, frame->stream, CUBBY_E_BUSY, "too many requests wait in this box");
                return;
        }
        struct job *job = job_new(kind, frame->stream, frame->payload, frame->length);
        if (job == NULL) {
                refuse(agent, frame->stream, CUBBY_E_NO_MEMORY, "the box's agent is out of memory");
                return;
        }
        agent->jobs++;
        agent->resuming += kind == JOB_RESUME;
        queue_push(kind == JOB_RESUME ? &agent->spawner_jobs : &agent->worker_jobs, job);
}

/* What runs in the box for its owner needs one, and a box that goes on. */
static bool may_begin(struct agent *agent, const struct frame *frame)
{
        if (agent->phase != PHASE_BOOTED && agent->phase != PHASE_STOPPING)
                return true;
        refuse(agent, frame->stream,
                agent->phase == PHASE_BOOTED ? CUBBY_E_STATE : CUBBY_E_SHUTDOWN,
                agent->phase == PHASE_BOOTED ? "the box has not been resumed yet"
                                             : "the box is shutting down");
        return false;
}

static void begin_exec(struct agent *agent, const struct frame *frame)
{
        struct reader reader = reader_over(frame->payload, frame->length);
        uint32_t flags = 0;
        uint32_t timeout_ms = 0;
        if (!reader_u32(&reader, &flags) || !reader_u32(&reader, &timeout_ms)) {
                refuse(agent, frame->stream, CUBBY_E_INVALID, "EXEC has a bad layout");
                return;
        }
        if (!may_begin(agent, frame))
                return;
        if (find_exec(agent, frame->stream) != NULL) {
                ignore(agent, frame, "the stream is in use");
                return;
        }
        if (agent->exec_count == EXECS_MAX) {
                refuse(agent, frame->stream, CUBBY_E_LIMIT, "too many commands run in this box");
                return;
        }
        struct exec *exec = exec_new(frame->stream, flags, timeout_ms);
        struct job *job = job_new(JOB_EXEC, frame->stream, frame->payload, frame->length);
        if (exec == NULL || job == NULL) {
                exec_free(exec, &agent->cgroups);
                job_free(job);
                refuse(agent, frame->stream, CUBBY_E_NO_MEMORY, "the box's agent is out of memory");
                return;
        }
        exec->job = job;
        agent->execs[agent->exec_count++] = exec;
        queue_push(&agent->spawner_jobs, job);
}

/* Frames of a running command; after its end they are late, not wrong. */
static void exec_frame(struct agent *agent, const struct frame *frame)
{
        struct exec *exec = find_exec(agent, frame->stream);
        const struct slice payload = {frame->payload, frame->length};
        uint32_t number = 0;
        uint16_t rows = 0;
        uint16_t columns = 0;
        if (exec == NULL)
                return;
        switch (frame->type) {
        case FRAME_DATA:
                if (frame->flags != CHANNEL_STDIN || frame->length > FRAME_DATA_MAX)
                        break;
                exec_input(exec, &agent->port, &agent->console.log, payload);
                return;
        case FRAME_EOF:
                if (frame->flags != CHANNEL_STDIN || frame->length != 0)
                        break;
                exec_input_end(exec);
                return;
        case FRAME_CREDIT:
                if (frame->flags >= CHANNEL_COUNT || !message_u32_decode(payload, &number))
                        break;
                exec_credit(exec, frame->flags, number);
                return;
        case FRAME_RESIZE:
                if (!message_resize_decode(payload, &rows, &columns))
                        break;
                exec_resize(exec, rows, columns);
                return;
        case FRAME_SIGNAL:
                if (!message_u32_decode(payload, &number) || number == 0 || number > SIGNAL_MAX)
                        break;
                exec_signal(exec, number);
                return;
        case FRAME_CANCEL:
                exec_cancel(exec);
                return;
        default:
                break;
        }
        ignore(agent, frame, "bad layout");
}

static void begin_freeze(struct agent *agent, const struct frame *frame)
{
        if (agent->phase != PHASE_BOOTED && agent->phase != PHASE_RUNNING) {
                refuse(agent, frame->stream, CUBBY_E_STATE, "the box cannot be frozen now");
                return;
        }
        agent->thawed = agent->phase;
        agent->phase = PHASE_FREEZING;
        agent->freeze_stream = frame->stream;
        agent->freeze_syncing = false;
        agent->freeze_at = deadline_after_ms(FREEZE_START_MS);
        files_pause(&agent->files, true);
        dispatch_freeze(agent, clock_monotonic_ms());
}

/* Something is under way that must not be cut in two. */
static bool is_between(struct agent *agent)
{
        if (agent->resuming > 0 || files_busy(&agent->files))
                return true;
        for (size_t i = 0; i < agent->exec_count; i++)
                if (agent->execs[i]->job != NULL)
                        return true;
        return false;
}

static void let_go(struct agent *agent)
{
        if (agent->held)
                (void)cgroups_freeze(&agent->cgroups, false);
        agent->held = false;
        files_pause(&agent->files, false);
}

/*
 * A command that is being started has to be through: frozen in between it would
 * hold the spawner, whom RESUME needs, until a thaw that comes after RESUME. File calls
 * have to have come to a place where they may stop.
 */
void dispatch_freeze(struct agent *agent, int64_t now)
{
        if (agent->phase != PHASE_FREEZING || agent->freeze_syncing)
                return;
        struct job *job = NULL;
        cubby_error error = {0};
        if (is_between(agent)) {
                if (now < agent->freeze_at)
                        return;
                (void)cubby_error_set(
                        &error, CUBBY_E_BUSY, "what the box is doing does not come to an end");
        } else if ((agent->held = cgroups_populated(&agent->cgroups)) &&
                cgroups_freeze(&agent->cgroups, true) < 0) {
                (void)cubby_error_errno(&error, errno, "freezing the workload");
        } else if ((job = job_new(JOB_SYNC, agent->freeze_stream, NULL, 0)) == NULL) {
                (void)cubby_error_no_memory(&error);
        }
        if (job != NULL) {
                agent->freeze_syncing = true;
                queue_push(&agent->worker_jobs, job);
                return;
        }
        let_go(agent);
        agent->phase = agent->thawed;
        send_error(&agent->port, agent->freeze_stream, &error);
}

static void thaw(struct agent *agent)
{
        if (agent->phase == PHASE_FROZEN) {
                let_go(agent);
                agent->phase = agent->thawed;
        }
}

static void begin_stop(struct agent *agent, const struct frame *frame)
{
        uint32_t grace_ms = 0;
        const struct slice payload = {frame->payload, frame->length};
        if (!message_u32_decode(payload, &grace_ms)) {
                refuse(agent, frame->stream, CUBBY_E_INVALID, "SHUTDOWN has a bad layout");
                return;
        }
        bool main_told = false;
        if (agent->phase == PHASE_FREEZING) {
                let_go(agent);
                agent->freeze_syncing = false;
        }
        agent->phase = PHASE_STOPPING;
        agent->stop_at = deadline_after_ms(grace_ms);
        for (size_t i = 0; i < agent->exec_count; i++) {
                const struct exec *exec = agent->execs[i];
                if ((exec->flags & EXEC_MAIN) == 0 || exec->job != NULL || exec->exited)
                        continue;
                exec_signal(exec, SIGTERM);
                main_told = true;
        }
        if (!main_told)
                cgroups_signal(&agent->cgroups, SIGTERM);
        dispatch_stop(agent, clock_monotonic_ms());
}

static bool main_runs(const struct agent *agent)
{
        for (size_t i = 0; i < agent->exec_count; i++)
                if ((agent->execs[i]->flags & EXEC_MAIN) != 0 && !agent->execs[i]->exited)
                        return true;
        return false;
}

/* TERM, then KILL at the deadline or once the main command is gone, then the power. */
void dispatch_stop(struct agent *agent, int64_t now)
{
        if (agent->phase != PHASE_STOPPING || agent->stop_sent)
                return;
        bool populated = cgroups_populated(&agent->cgroups);
        if (!agent->stop_killed) {
                bool had_main = false;
                for (size_t i = 0; i < agent->exec_count; i++)
                        had_main |= (agent->execs[i]->flags & EXEC_MAIN) != 0;
                bool main_gone = had_main && !main_runs(agent);
                if (populated && !main_gone && now < agent->stop_at)
                        return;
                cgroups_kill(&agent->cgroups);
                files_cancel(&agent->files);
                agent->stop_killed = true;
                agent->stop_at = deadline_after_ms(STOP_KILL_MS);
                return;
        }
        bool told = agent->exec_count == 0 && agent->files.count == 0 && port_idle(&agent->port);
        if ((populated || !told) && now < agent->stop_at)
                return;
        struct job *job = job_new(JOB_POWER_OFF, 0, NULL, 0);
        if (job == NULL)
                power_off();
        agent->stop_sent = true;
        queue_push(&agent->worker_jobs, job);
}

static void control_frame(struct agent *agent, const struct frame *frame)
{
        switch (frame->type) {
        case FRAME_PING:
                if (frame->length > PING_MAX)
                        ignore(agent, frame, "too long");
                else
                        (void)port_send(&agent->port, FRAME_PONG, 0, frame->stream, frame->payload,
                                frame->length);
                return;
        case FRAME_EXEC:
                begin_exec(agent, frame);
                return;
        case FRAME_FILE_CALL:
                if (may_begin(agent, frame))
                        files_begin(&agent->files, &agent->port, frame);
                return;
        case FRAME_PROCESSES:
                hand_over(agent, JOB_PROCESSES, frame);
                return;
        case FRAME_METRICS:
                hand_over(agent, JOB_METRICS, frame);
                return;
        case FRAME_FREEZE:
                begin_freeze(agent, frame);
                return;
        case FRAME_SHUTDOWN:
                begin_stop(agent, frame);
                return;
        case FRAME_THAW:
                ignore(agent, frame, "the box is not frozen");
                return;
        default:
                ignore(agent, frame, "not a request");
                return;
        }
}

void dispatch_frame(struct agent *agent, const struct frame *frame)
{
        /* RESUME makes the session, so it cannot belong to one. */
        if (frame->type == FRAME_RESUME) {
                if (agent->phase == PHASE_FREEZING || agent->phase == PHASE_STOPPING)
                        ignore(agent, frame, "not now");
                else
                        hand_over(agent, JOB_RESUME, frame);
                return;
        }
        if (frame->session != agent->port.session) {
                ignore(agent, frame, "of another session");
                return;
        }
        if (agent->phase == PHASE_FROZEN) {
                if (frame->type != FRAME_THAW) {
                        ignore(agent, frame, "the box is frozen");
                        return;
                }
                thaw(agent);
                (void)port_send(&agent->port, FRAME_THAWED, 0, frame->stream, NULL, 0);
                return;
        }
        bool of_stream = frame->type == FRAME_FILE_ENTRY ||
                (frame->type >= FRAME_DATA && frame->type <= FRAME_CANCEL &&
                        frame->type != FRAME_EXIT);
        if (of_stream && files_frame(&agent->files, frame))
                return;
        if (of_stream)
                exec_frame(agent, frame);
        else
                control_frame(agent, frame);
}

static void resumed(struct agent *agent, struct job *job)
{
        if (job->error.code != CUBBY_OK) {
                send_error(&agent->port, job->stream, &job->error);
                return;
        }
        if (agent->port.session != job->session) {
                for (size_t i = 0; i < agent->exec_count; i++)
                        exec_orphan(agent->execs[i]);
                files_orphan(&agent->files);
        }
        agent->port.session = job->session;
        (void)port_send(
                &agent->port, FRAME_RESUMED, 0, job->stream, job->reply.data, job->reply.size);
        /* answered before anything else runs, the workload and its thaw included */
        (void)port_fill(&agent->port);
        port_flush(&agent->port);
        thaw(agent);
        if (agent->phase == PHASE_BOOTED)
                agent->phase = PHASE_RUNNING;
}

void dispatch_done(struct agent *agent, struct job *job)
{
        switch (job->kind) {
        case JOB_EXEC:
                for (size_t i = 0; i < agent->exec_count; i++)
                        if (agent->execs[i]->job == job) {
                                (void)exec_started(agent->execs[i], job, &agent->port);
                                break;
                        }
                break;
        case JOB_RESUME:
                agent->jobs--;
                agent->resuming--;
                resumed(agent, job);
                break;
        case JOB_SYNC:
                if (agent->phase != PHASE_FREEZING)
                        break; /* SHUTDOWN came in between */
                (void)port_send(&agent->port, FRAME_FROZEN, 0, job->stream, NULL, 0);
                agent->phase = PHASE_FROZEN;
                break;
        case JOB_PROCESSES:
        case JOB_METRICS:
                agent->jobs--;
                if (job->error.code != CUBBY_OK)
                        send_error(&agent->port, job->stream, &job->error);
                else
                        (void)port_send(&agent->port,
                                job->kind == JOB_METRICS ? FRAME_METRICS_REPLY : FRAME_PROCESS_LIST,
                                0, job->stream, job->reply.data, job->reply.size);
                break;
        case JOB_POWER_OFF:
                break;
        }
        job_free(job);
}
