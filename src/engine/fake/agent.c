/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fake/agent.h"

#include "base/clock.h"
#include "base/fd.h"
#include "engine/fake/files.h"
#include "engine/fake/jobs.h"

#include <cubby/error.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_MAX (FRAME_TO_GUEST_MAX + FRAME_HEADER_SIZE + 65536U)
#define OUT_SOFT (128U * 1024U) /* jobs are not pumped above it */
#define OUT_MAX (8U << 20)
#define POWER_OFF 0
#define CRASH 3

struct agent {
        int fd;
        struct buffer in;
        struct buffer out;
        uint64_t session;
        uint64_t generation;
        uint64_t memory_bytes;
        uint32_t vcpus;
        bool frozen;
        bool shutting_down;
        int64_t started_ms;
        enum machine_fate fate;
        struct fake_files *files;
        size_t next_job; /* who is pumped first: all get their turn */
        struct job jobs[JOBS_MAX];
};

static void reply(struct agent *agent, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        if (!agent->frozen)
                (void)frame_append(
                        &agent->out, type, flags, agent->session, stream, payload, (uint32_t)size);
}

static void reply_error(struct agent *agent, uint64_t stream, int code, const char *text)
{
        struct buffer payload;
        buffer_init(&payload, WIRE_TEXT_MAX * 2);
        struct message_error message = {.code = (uint32_t)code,
                .text = {.data = (const uint8_t *)text, .size = strlen(text)}};
        if (message_error_encode(&payload, &message))
                reply(agent, FRAME_ERROR, 0, stream, payload.data, payload.size);
        buffer_free(&payload);
}

static struct job *find_job(struct agent *agent, uint64_t stream)
{
        for (size_t i = 0; stream != 0 && i < JOBS_MAX; i++)
                if (agent->jobs[i].stream == stream)
                        return &agent->jobs[i];
        return NULL;
}

static void on_resume(struct agent *agent, const struct frame *frame)
{
        struct message_resume resume;
        if (!message_resume_decode(
                    (struct slice){.data = frame->payload, .size = frame->length}, &resume)) {
                reply_error(agent, frame->stream, CUBBY_E_PROTOCOL, "RESUME has a bad layout");
                return;
        }
        agent->session = resume.nonce;
        agent->frozen = false;
        struct message_resumed resumed = {.nonce = resume.nonce,
                .generation = ++agent->generation,
                .memory_bytes = agent->memory_bytes,
                .cpus = agent->vcpus};
        struct buffer payload;
        buffer_init(&payload, 256);
        if (message_resumed_encode(&payload, &resumed))
                reply(agent, FRAME_RESUMED, 0, frame->stream, payload.data, payload.size);
        buffer_free(&payload);
}

static void on_exec(struct agent *agent, const struct frame *frame)
{
        struct job *slot = NULL;
        for (size_t i = 0; i < JOBS_MAX && slot == NULL; i++)
                if (agent->jobs[i].stream == 0)
                        slot = &agent->jobs[i];
        struct message_exec exec = {0};
        const char *text = "";
        int code = 0;
        if (slot == NULL) {
                code = CUBBY_E_LIMIT;
                text = "too many commands";
        } else if (!message_exec_decode(
                           (struct slice){.data = frame->payload, .size = frame->length}, &exec)) {
                code = CUBBY_E_PROTOCOL;
                text = "EXEC has a bad layout";
        } else {
                code = job_start(slot, frame->stream, &exec, &agent->fate, &text);
        }
        message_exec_free(&exec);
        if (code != 0) {
                reply_error(agent, frame->stream, code, text);
                return;
        }
        uint8_t pid[4];
        store_u32(pid, (uint32_t)(slot - agent->jobs) + 2);
        reply(agent, FRAME_EXEC_STARTED, 0, frame->stream, pid, sizeof pid);
}

static void on_processes(struct agent *agent, const struct frame *frame)
{
        struct message_process entries[JOBS_MAX];
        struct message_processes list = {.entries = entries};
        int64_t now = clock_monotonic_ms();
        for (size_t i = 0; i < JOBS_MAX; i++) {
                const struct job *job = &agent->jobs[i];
                if (job->stream == 0)
                        continue;
                entries[list.count++] = (struct message_process){.pid = (uint32_t)i + 2,
                        .parent = 1,
                        .state = 'S',
                        .age_ms = (uint64_t)(now - job->started_ms),
                        .command = {.data = (const uint8_t *)job->command,
                                .size = strlen(job->command)}};
        }
        struct buffer payload;
        buffer_init(&payload, FRAME_FROM_GUEST_MAX);
        if (message_processes_encode(&payload, &list))
                reply(agent, FRAME_PROCESS_LIST, 0, frame->stream, payload.data, payload.size);
        buffer_free(&payload);
}

static void on_metrics(struct agent *agent, const struct frame *frame)
{
        struct message_metrics metrics = {
                .uptime_ms = (uint64_t)(clock_monotonic_ms() - agent->started_ms),
                .cpu_us = 1000,
                .memory_total = agent->memory_bytes,
                .memory_available = agent->memory_bytes / 2,
                .memory_workload = agent->memory_bytes / 16,
                .disk_total = 1U << 30,
                .disk_free = 1U << 29};
        for (size_t i = 0; i < JOBS_MAX; i++)
                metrics.processes += agent->jobs[i].stream != 0;
        struct buffer payload;
        buffer_init(&payload, 256);
        if (message_metrics_encode(&payload, &metrics))
                reply(agent, FRAME_METRICS_REPLY, 0, frame->stream, payload.data, payload.size);
        buffer_free(&payload);
}

static void on_shutdown(struct agent *agent)
{
        for (size_t i = 0; i < JOBS_MAX; i++)
                if (agent->jobs[i].stream != 0)
                        job_signal(&agent->jobs[i], 15);
        agent->shutting_down = true;
}

/* Frames that belong to a running command. */
static void on_job_frame(struct agent *agent, struct job *job, const struct frame *frame)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        uint32_t number = 0;
        uint16_t rows = 0;
        uint16_t columns = 0;
        switch (frame->type) {
        case FRAME_DATA:
                if (frame->flags == CHANNEL_STDIN)
                        (void)job_input(job, payload.data, payload.size);
                break;
        case FRAME_EOF:
                if (frame->flags == CHANNEL_STDIN)
                        job->stdin_ended = true;
                break;
        case FRAME_CREDIT:
                if (frame->flags < CHANNEL_COUNT && message_u32_decode(payload, &number))
                        job->window[frame->flags] += number;
                break;
        case FRAME_RESIZE:
                if (message_resize_decode(payload, &rows, &columns))
                        job_resize(job, rows, columns);
                break;
        case FRAME_SIGNAL:
                if (message_u32_decode(payload, &number))
                        job_signal(job, number);
                break;
        case FRAME_CANCEL:
                job_signal(job, 9);
                break;
        default:
                break;
        }
}

static void on_frame(struct agent *agent, const struct frame *frame)
{
        if (frame->type == FRAME_RESUME) {
                on_resume(agent, frame);
                return;
        }
        if (frame->session != agent->session)
                return;
        if (fake_files_frame(agent->files, frame))
                return;
        struct job *job = find_job(agent, frame->stream);
        switch (frame->type) {
        case FRAME_PING:
                reply(agent, FRAME_PONG, 0, frame->stream, frame->payload, frame->length);
                break;
        case FRAME_EXEC:
                on_exec(agent, frame);
                break;
        case FRAME_PROCESSES:
                on_processes(agent, frame);
                break;
        case FRAME_METRICS:
                on_metrics(agent, frame);
                break;
        case FRAME_FREEZE:
                reply(agent, FRAME_FROZEN, 0, frame->stream, NULL, 0);
                agent->frozen = true;
                break;
        case FRAME_THAW:
                agent->frozen = false;
                reply(agent, FRAME_THAWED, 0, frame->stream, NULL, 0);
                break;
        case FRAME_SHUTDOWN:
                on_shutdown(agent);
                break;
        default:
                if (job != NULL)
                        on_job_frame(agent, job, frame);
                break;
        }
}

/* Sends what a job has and may send; ends it when it is through. */
static void pump_job(struct agent *agent, struct job *job)
{
        bool left = false;
        for (unsigned channel = CHANNEL_STDOUT; channel < CHANNEL_COUNT; channel++) {
                struct buffer *output = &job->output[channel];
                if (job->killed || (job->flags & EXEC_DETACH) != 0)
                        buffer_clear(output);
                size_t size = output->size < FRAME_DATA_MAX ? output->size : FRAME_DATA_MAX;
                if (size > job->window[channel])
                        size = job->window[channel];
                if (size > 0) {
                        reply(agent, FRAME_DATA, (uint16_t)channel, job->stream, output->data,
                                size);
                        buffer_consume(output, size);
                        job->window[channel] -= (uint32_t)size;
                        if (job->kind == JOB_CAT)
                                job->stdin_taken += (uint32_t)size;
                }
                left = left || output->size > 0;
        }
        if (job->stdin_taken > 0 && !job->stdin_ended) {
                uint8_t credit[4];
                store_u32(credit, job->stdin_taken);
                reply(agent, FRAME_CREDIT, CHANNEL_STDIN, job->stream, credit, sizeof credit);
                job->window[CHANNEL_STDIN] += job->stdin_taken;
        }
        job->stdin_taken = 0;
        if (!job_ended(job) || left)
                return;
        if ((job->flags & EXEC_DETACH) == 0)
                reply(agent, FRAME_EOF, CHANNEL_STDOUT, job->stream, NULL, 0);
        if ((job->flags & (EXEC_DETACH | EXEC_TTY)) == 0)
                reply(agent, FRAME_EOF, CHANNEL_STDERR, job->stream, NULL, 0);
        struct buffer payload;
        buffer_init(&payload, 256);
        if (message_exit_encode(&payload, &job->exit))
                reply(agent, FRAME_EXIT, 0, job->stream, payload.data, payload.size);
        buffer_free(&payload);
        job_free(job);
}

static void send_file(void *data, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        reply(data, type, flags, stream, payload, size);
}

/* Gives every job a turn. Returns the milliseconds until one of them wants another. */
static int pump(struct agent *agent)
{
        int64_t now = clock_monotonic_ms();
        int64_t next = DEADLINE_NEVER;
        /* what has no room now has some when that is sent, and nobody else says so */
        bool more = !agent->frozen &&
                (agent->out.size > OUT_SOFT || fake_files_pump(agent->files, send_file, agent));
        for (size_t i = 0; i < JOBS_MAX; i++) {
                struct job *job = &agent->jobs[(agent->next_job + i) % JOBS_MAX];
                if (job->stream == 0 || agent->frozen)
                        continue;
                if (agent->out.size > OUT_SOFT) {
                        more = true; /* the rest when that is sent */
                        break;
                }
                job_work(job, now);
                pump_job(agent, job);
                if (job->stream == 0)
                        continue;
                more = more ||
                        ((job->output[1].size > 0 || job->kind == JOB_FLOOD) &&
                                job->window[1] > 0) ||
                        (job->output[2].size > 0 && job->window[2] > 0);
                if (job->limit_ms < next)
                        next = job->limit_ms;
                if (job->kind == JOB_SLEEP && job->ends_ms < next)
                        next = job->ends_ms;
        }
        agent->next_job = (agent->next_job + 1) % JOBS_MAX;
        return more ? 0 : deadline_left_ms(next);
}

static bool is_idle(const struct agent *agent)
{
        for (size_t i = 0; i < JOBS_MAX; i++)
                if (agent->jobs[i].stream != 0)
                        return false;
        return agent->out.size == 0;
}

/* Reads what is there and handles it. False when the host is gone. */
static bool take_in(struct agent *agent)
{
        uint8_t *end = buffer_reserve(&agent->in, 65536);
        if (end == NULL)
                return false;
        ssize_t got = recv(agent->fd, end, 65536, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                return false;
        agent->in.size += got > 0 ? (size_t)got : 0;
        size_t at = 0;
        while (agent->fate == FATE_NONE) {
                struct frame frame;
                int64_t used = frame_decode(
                        agent->in.data + at, agent->in.size - at, FRAME_TO_GUEST_MAX, &frame);
                if (used < 0)
                        return false;
                if (used == 0)
                        break;
                at += (size_t)used;
                on_frame(agent, &frame);
        }
        buffer_consume(&agent->in, at);
        return true;
}

static bool send_out(struct agent *agent)
{
        ssize_t sent = agent->out.size == 0
                ? 0
                : send(agent->fd, agent->out.data, agent->out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
                return errno == EAGAIN || errno == EINTR;
        buffer_consume(&agent->out, (size_t)sent);
        return true;
}

static int serve(struct agent *agent)
{
        for (;;) {
                int wait_ms = pump(agent);
                if (!send_out(agent))
                        return CRASH;
                if (agent->fate == FATE_CRASH)
                        return CRASH;
                if (agent->fate == FATE_POWEROFF)
                        return POWER_OFF;
                while (agent->fate == FATE_HANG)
                        (void)pause();
                if (agent->shutting_down && is_idle(agent))
                        return POWER_OFF;
                bool full = agent->out.size > OUT_SOFT;
                if (full)
                        wait_ms = -1;
                struct pollfd poll_fd = {.fd = agent->fd,
                        .events = (short)(POLLIN | (agent->out.size > 0 ? POLLOUT : 0))};
                if (poll(&poll_fd, 1, wait_ms) < 0 && errno != EINTR)
                        return CRASH;
                if ((poll_fd.revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_in(agent))
                        return CRASH;
        }
}

int fake_agent_run(int fd, int root_fd, uint64_t memory_bytes, uint32_t vcpus, uint64_t generation)
{
        struct agent *agent = calloc(1, sizeof *agent);
        if (agent == NULL)
                return CRASH;
        agent->fd = fd;
        agent->generation = generation;
        agent->frozen = generation > 0; /* it was saved so, and its HELLO is long past */
        agent->memory_bytes = memory_bytes;
        agent->vcpus = vcpus;
        agent->started_ms = clock_monotonic_ms();
        buffer_init(&agent->in, IN_MAX);
        buffer_init(&agent->out, OUT_MAX);
        struct buffer payload;
        buffer_init(&payload, 256);
        struct message_hello hello = {.version = WIRE_VERSION,
                .agent_version = {.data = (const uint8_t *)"fake", .size = 4},
                .kernel_release = {.data = (const uint8_t *)"none", .size = 4}};
        int code = CRASH;
        agent->files = fake_files_new(root_fd);
        if (agent->files != NULL && message_hello_encode(&payload, &hello)) {
                reply(agent, FRAME_HELLO, 0, 0, payload.data, payload.size);
                code = serve(agent);
        }
        buffer_free(&payload);
        for (size_t i = 0; i < JOBS_MAX; i++)
                job_free(&agent->jobs[i]);
        fake_files_free(agent->files);
        buffer_free(&agent->in);
        buffer_free(&agent->out);
        free(agent);
        return code;
}
