/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "box/shim/shim.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define RESUME_BYTES_MAX (16U * 1024U)
#define DEFAULT_ROWS 24
#define DEFAULT_COLUMNS 80
#define CONSOLE_TAIL 2048

void boot_report(const struct shim *shim, int kind, const char *text)
{
        if (shim->status_fd < 0)
                return;
        struct shim_report report = {0};
        report.kind = (__typeof__(report.kind))kind;
        (void)snprintf(report.text, sizeof report.text, "%s", text);
        if (kind == REPORT_FAILED) {
                report.code = shim->error.code;
                report.sys_errno = shim->error.sys_errno;
        }
        /* a creator that died, or does not read, must not hold the box up */
        (void)send(shim->status_fd, &report, sizeof report, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct slice text_slice(const char *text)
{
        return (struct slice){.data = (const uint8_t *)text, .size = strlen(text)};
}

static const char *stage_of(const struct shim *shim)
{
        switch (shim->phase) {
        case PHASE_HELLO:
                return "waiting for the agent";
        case PHASE_RESUME:
                return "preparing the box";
        case PHASE_WARM:
                return "warming up";
        case PHASE_FREEZE:
                return "saving the machine";
        case PHASE_COMMAND:
                return "starting the command";
        case PHASE_SPARE:
        case PHASE_RUNNING:
        case PHASE_SHUTDOWN:
        case PHASE_GONE:
                break;
        }
        return "running";
}

void boot_fail(struct shim *shim, const char *reason, const cubby_error *error, bool with_console)
{
        if (!shim->failed) {
                shim->failed = true;
                shim->error = *error;
                if (with_console) {
                        char tail[CONSOLE_TAIL];
                        console_tail(shim, tail, sizeof tail);
                        (void)cubby_error_wrap(&shim->error, "%s", stage_of(shim));
                        size_t used = strlen(shim->error.message);
                        if (tail[0] != '\0')
                                (void)snprintf(shim->error.message + used,
                                        sizeof shim->error.message - used,
                                        "; the end of its console:\n%s", tail);
                }
        }
        saved_answer(shim, &shim->error);
        end_kill(shim, reason, shim->error.message);
}

void boot_late(struct shim *shim)
{
        cubby_error error;
        cubby_error_clear(&error);
        (void)cubby_error_set(&error, CUBBY_E_VMM, "the box was not ready within %lld ms",
                (long long)shim->config.boot_timeout_ms);
        boot_fail(shim, "boot-failed", &error, true);
}

/* The agent gave up before HELLO, and says at which stage. */
bool boot_agent_failed(struct shim *shim, struct slice payload)
{
        struct message_error message;
        if (shim->phase != PHASE_HELLO || !message_error_decode(payload, &message))
                return false;
        cubby_error said;
        cubby_error error;
        guest_error(&message, &said);
        cubby_error_clear(&error);
        (void)cubby_error_set(&error, CUBBY_E_VMM, "the agent gave up: %s", said.message);
        boot_fail(shim, "boot-failed", &error, true);
        return true;
}

static void fail_system(struct shim *shim, int code, const char *text)
{
        cubby_error error;
        cubby_error_clear(&error);
        (void)cubby_error_set(&error, code, "%s", text);
        boot_fail(shim, "boot-failed", &error, false);
}

void boot_resume(struct shim *shim)
{
        uint8_t entropy[WIRE_ENTROPY_SIZE];
        do {
                if (getrandom(&shim->nonce, sizeof shim->nonce, 0) != sizeof shim->nonce ||
                        getrandom(entropy, sizeof entropy, 0) != sizeof entropy) {
                        fail_system(shim, CUBBY_E_SYSTEM, "the host gives no random bytes");
                        return;
                }
        } while (shim->nonce == 0);
        uint32_t cpu_milli = shim->config.cpu_milli;
        struct message_resume resume = {.nonce = shim->nonce,
                .entropy = entropy,
                .realtime_ns = (uint64_t)clock_realtime_ns(),
                .cpu_milli = cpu_milli % 1000 == 0 ? 0 : cpu_milli,
                .pids_max = shim->config.pids_max,
                .box_id = text_slice(shim->config.id),
                .hostname = text_slice(shim->config.hostname)};
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, RESUME_BYTES_MAX);
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_OWN);
        if (stream == NULL || !message_resume_encode(&payload, &resume) ||
                !guest_send(shim, FRAME_RESUME, 0, stream->id, payload.data, payload.size)) {
                fail_system(shim, CUBBY_E_LIMIT, "RESUME does not fit into a frame");
                return;
        }
        explicit_bzero(entropy, sizeof entropy);
        stream->reply = FRAME_RESUMED;
        shim->phase = PHASE_RESUME;
}

bool boot_hello(struct shim *shim, struct slice payload)
{
        struct message_hello hello;
        if (shim->phase != PHASE_HELLO || !message_hello_decode(payload, &hello))
                return false;
        if (hello.version != WIRE_VERSION) {
                cubby_error error;
                cubby_error_clear(&error);
                (void)cubby_error_set(&error, CUBBY_E_VERSION,
                        "the agent speaks version %u of the protocol, not %u", hello.version,
                        WIRE_VERSION);
                boot_fail(shim, "boot-failed", &error, false);
                return true;
        }
        boot_report(shim, REPORT_PROGRESS, "resume");
        boot_resume(shim);
        return true;
}

static size_t count_texts(char *const *texts)
{
        size_t count = 0;
        while (texts != NULL && texts[count] != NULL)
                count++;
        return count;
}

static struct slice *slices_of(char *const *texts, size_t count)
{
        struct slice *slices = calloc(count + 1, sizeof *slices);
        for (size_t i = 0; slices != NULL && i < count; i++)
                slices[i] = text_slice(texts[i]);
        return slices;
}

static bool encode_command(const struct shim *shim, struct buffer *payload)
{
        const struct box_config *config = &shim->config;
        size_t argc = count_texts(config->argv);
        size_t envc = count_texts(config->env);
        if (argc > WIRE_ARGUMENTS_MAX || envc > WIRE_ARGUMENTS_MAX)
                return false;
        struct message_exec exec = {.flags = EXEC_MAIN | (config->tty ? EXEC_TTY : 0U) |
                        (config->open_stdin ? EXEC_STDIN : 0U),
                .rows = config->tty ? DEFAULT_ROWS : 0,
                .columns = config->tty ? DEFAULT_COLUMNS : 0,
                .user = text_slice(config->user),
                .cwd = text_slice(config->workdir),
                .argv = slices_of(config->argv, argc),
                .argc = (uint32_t)argc,
                .env = slices_of(config->env, envc),
                .envc = (uint32_t)envc};
        bool done = exec.argv != NULL && exec.env != NULL && message_exec_encode(payload, &exec);
        message_exec_free(&exec);
        return done;
}

static void send_command(struct shim *shim)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, FRAME_TO_GUEST_MAX);
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_MAIN);
        if (stream == NULL || !encode_command(shim, &payload) ||
                !guest_send(shim, FRAME_EXEC, 0, stream->id, payload.data, payload.size)) {
                fail_system(shim, CUBBY_E_LIMIT,
                        "the box's command and environment are larger than a frame");
                return;
        }
        stream->exec_flags = EXEC_MAIN | (shim->config.tty ? EXEC_TTY : 0U) |
                (shim->config.open_stdin ? EXEC_STDIN : 0U);
        shim->command.stream = stream;
        shim->phase = PHASE_COMMAND;
}

static void become_ready(struct shim *shim)
{
        shim->phase = PHASE_RUNNING;
        shim->ready_ms = clock_monotonic_ms();
        shim->boot_deadline_ms = DEADLINE_NEVER;
        if (shim->config.ttl_ms > 0)
                shim->ttl_deadline_ms = deadline_after_ms(shim->config.ttl_ms);
        saved_answer(shim, NULL);
        boot_report(shim, REPORT_READY, shim->isolation);
        close_quietly(take_fd(&shim->status_fd));
}

bool boot_resumed(struct shim *shim, struct slice payload)
{
        struct message_resumed resumed;
        if (shim->phase != PHASE_RESUME || !message_resumed_decode(payload, &resumed) ||
                resumed.nonce != shim->nonce || resumed.generation < 1 ||
                resumed.generation > INT64_MAX)
                return false;
        shim->session = shim->nonce;
        shim->generation = resumed.generation;
        if (shim->unclaimed || shim->options->mode == SHIM_TEMPLATE) {
                saved_resumed(shim);
                return true;
        }
        if (!shim->command.exists) {
                become_ready(shim);
                return true;
        }
        boot_report(shim, REPORT_PROGRESS, "command");
        send_command(shim);
        return true;
}

void boot_command_started(struct shim *shim)
{
        if (shim->phase == PHASE_COMMAND)
                become_ready(shim);
}
