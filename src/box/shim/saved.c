/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Machines that are saved, and machines that continue from one.
 *
 * A template boots, is resumed, runs the warm-up commands, and once nothing of
 * them is left it is frozen and saved. A clone begins with RESUME: its agent
 * said HELLO in the template. A spare is a clone that runs the warm-up
 * commands too and is then stopped; a claim makes it somebody's box: it runs
 * again, is resumed again with everything fresh, and starts the box's command. A
 * machine that is ahead waits to be claimed as well, but has not continued yet.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "box/shim/shim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARMUP_MS 20000U
#define WARMUP_WORDS 64U
#define LOOKS_MAX 100U
#define LOOK_PAUSE_MS 50
/* A second after its drivers the kernel changes from the early to the real clock
 * source; a machine that is saved in between would stay with the early one. */
#define SETTLED_MS 4000U

static void fail(struct shim *shim, int code, const char *text)
{
        cubby_error error;
        cubby_error_clear(&error);
        (void)cubby_error_set(&error, code, "%s", text);
        boot_fail(shim, "boot-failed", &error, false);
}

static void wait_for_claim(struct shim *shim)
{
        shim->phase = PHASE_SPARE;
        shim->boot_deadline_ms = DEADLINE_NEVER;
        if (shim->config.ttl_ms > 0)
                shim->ttl_deadline_ms = deadline_after_ms(shim->config.ttl_ms);
        boot_report(shim, REPORT_READY, shim->isolation);
        close_quietly(take_fd(&shim->status_fd));
}

void saved_begin(struct shim *shim)
{
        if (shim->options->mode == SHIM_BOOT || shim->options->mode == SHIM_TEMPLATE)
                return;
        if (shim->options->mode == SHIM_AHEAD) {
                wait_for_claim(shim);
                return;
        }
        boot_report(shim, REPORT_PROGRESS, "resume");
        boot_resume(shim);
}

static const char *warmup(const struct shim *shim, size_t index)
{
        char *const *list = shim->options->warmups;
        for (size_t i = 0; list != NULL && list[i] != NULL; i++)
                if (i == index)
                        return list[i];
        return NULL;
}

/* The words of one warm-up command as the argument vector of EXEC. */
static bool encode_warmup(const struct shim *shim, const char *line, struct buffer *payload)
{
        struct slice words[WARMUP_WORDS];
        uint32_t count = 0;
        for (const char *next = line; *next != '\0' && count < WARMUP_WORDS;) {
                size_t length = strcspn(next, " ");
                if (length > 0)
                        words[count++] =
                                (struct slice){.data = (const uint8_t *)next, .size = length};
                next += length + (next[length] == ' ');
        }
        size_t envc = 0;
        char *const *env = shim->config.env;
        while (env != NULL && env[envc] != NULL)
                envc++;
        struct message_exec exec = {.flags = EXEC_DETACH,
                .timeout_ms = WARMUP_MS,
                .argv = words,
                .argc = count,
                .env = calloc(envc + 1, sizeof(struct slice)),
                .envc = (uint32_t)envc};
        for (size_t i = 0; exec.env != NULL && i < envc; i++)
                exec.env[i] =
                        (struct slice){.data = (const uint8_t *)env[i], .size = strlen(env[i])};
        bool done = count > 0 && exec.env != NULL && message_exec_encode(payload, &exec);
        free(exec.env);
        return done;
}

static void ask_metrics(struct shim *shim)
{
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_OWN);
        if (stream == NULL || !guest_send(shim, FRAME_METRICS, 0, stream->id, NULL, 0)) {
                fail(shim, CUBBY_E_BUSY, "the agent takes no requests");
                return;
        }
        stream->reply = FRAME_METRICS_REPLY;
}

static void warm_next(struct shim *shim)
{
        const char *line = warmup(shim, shim->warmed);
        if (line == NULL) {
                ask_metrics(shim);
                return;
        }
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, FRAME_TO_GUEST_MAX);
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_WARM);
        if (stream == NULL || !encode_warmup(shim, line, &payload) ||
                !guest_send(shim, FRAME_EXEC, 0, stream->id, payload.data, payload.size)) {
                fail(shim, CUBBY_E_INVALID, "a warm-up command does not fit into a frame");
                return;
        }
        stream->exec_flags = EXEC_DETACH;
}

void saved_resumed(struct shim *shim)
{
        boot_report(shim, REPORT_PROGRESS, "warm");
        shim->phase = PHASE_WARM;
        warm_next(shim);
}

void saved_warmed(struct shim *shim)
{
        if (shim->phase != PHASE_WARM)
                return;
        shim->warmed++;
        warm_next(shim);
}

static void freeze(struct shim *shim)
{
        boot_report(shim, REPORT_PROGRESS, "save");
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_OWN);
        if (stream == NULL || !guest_send(shim, FRAME_FREEZE, 0, stream->id, NULL, 0)) {
                fail(shim, CUBBY_E_BUSY, "the agent takes no requests");
                return;
        }
        stream->reply = FRAME_FROZEN;
        shim->phase = PHASE_FREEZE;
}

static void become_spare(struct shim *shim)
{
        cubby_error error;
        cubby_error_clear(&error);
        if (shim->engine->pause(shim->machine, &error) < 0) {
                boot_fail(shim, "boot-failed", &error, false);
                return;
        }
        wait_for_claim(shim);
}

/* Nobody else's process may be in what others continue from. */
bool saved_metrics(struct shim *shim, struct slice payload)
{
        struct message_metrics metrics;
        if (shim->phase != PHASE_WARM || !message_metrics_decode(payload, &metrics))
                return false;
        bool settled = shim->options->mode != SHIM_TEMPLATE || metrics.uptime_ms >= SETTLED_MS;
        if (metrics.processes > 0 || !settled) {
                if (metrics.processes > 0 && ++shim->looks > LOOKS_MAX)
                        fail(shim, CUBBY_E_STATE, "a warm-up command left processes running");
                else
                        shim->look_ms = deadline_after_ms(LOOK_PAUSE_MS);
        } else if (shim->options->mode == SHIM_TEMPLATE) {
                freeze(shim);
        } else {
                become_spare(shim);
        }
        return true;
}

static void save(struct shim *shim)
{
        cubby_error error;
        cubby_error_clear(&error);
        if (shim->engine->save(shim->machine, shim->state_fd, &error) < 0) {
                boot_fail(shim, "boot-failed", &error, false);
                return;
        }
        /* the machine first: nobody may find its memory still in use */
        end_kill(shim, "stopped", "the machine was saved");
        boot_report(shim, REPORT_READY, shim->isolation);
        close_quietly(take_fd(&shim->status_fd));
}

void saved_frozen(struct shim *shim)
{
        shim->look_ms = deadline_after_ms(shim->engine->rest_ms);
}

void saved_look(struct shim *shim, int64_t now_ms)
{
        (void)now_ms;
        shim->look_ms = DEADLINE_NEVER;
        if (shim->saver != NULL)
                copy_fail(shim, CUBBY_E_TIMEOUT, "the copy was not taken in time");
        else if (shim->phase == PHASE_WARM)
                ask_metrics(shim);
        else if (shim->phase == PHASE_FREEZE)
                save(shim);
}

static bool same_machine(const struct box_config *spare, const struct box_config *wanted)
{
        return strcmp(spare->id, wanted->id) == 0 && spare->slot == wanted->slot &&
                strcmp(spare->image_id, wanted->image_id) == 0 &&
                strcmp(spare->engine, wanted->engine) == 0 &&
                spare->memory_bytes == wanted->memory_bytes &&
                spare->disk_bytes == wanted->disk_bytes &&
                (spare->cpu_milli + 999) / 1000 == (wanted->cpu_milli + 999) / 1000;
}

bool saved_claim(struct shim *shim, struct peer *peer, const struct frame *frame)
{
        if (shim->phase != PHASE_SPARE || !shim->unclaimed) {
                peer_error(peer, frame->stream, CUBBY_E_STATE, "the box is no spare");
                return true;
        }
        cubby_error error;
        cubby_error_clear(&error);
        struct box_config config = {0};
        if (box_config_decode(frame->payload, frame->length, &config, &error) < 0)
                return false;
        if (!same_machine(&shim->config, &config)) {
                box_config_clear(&config);
                peer_error(peer, frame->stream, CUBBY_E_INVALID, "the spare is of another size");
                return true;
        }
        /* a claimer that dies before this leaves a box that never ran, one that dies after it
         * a box that runs */
        if (unlinkat(shim->box_fd, BOX_SPARE_NAME, 0) < 0) {
                box_config_clear(&config);
                peer_error(peer, frame->stream, CUBBY_E_STATE, "the box is not wanted any more");
                return true;
        }
        box_config_clear(&shim->config);
        shim->config = config;
        shim->unclaimed = false;
        close_quietly(take_fd(&shim->keeper_fd));
        shim->command.exists = config.argv != NULL && config.argv[0] != NULL;
        shim->claimer = peer;
        shim->claim_stream = frame->stream;
        shim->ttl_deadline_ms = DEADLINE_NEVER;
        shim->boot_deadline_ms = deadline_after_ms(config.boot_timeout_ms);
        shim->exit.started_ns = clock_realtime_ns();
        bool ahead = shim->options->mode == SHIM_AHEAD;
        if (ahead && shim->engine->load(shim->machine, &error) < 0) {
                boot_fail(shim, "boot-failed", &error, false);
                return true;
        }
        boot_resume(shim);
        if (ahead || shim->phase != PHASE_RESUME)
                return true;
        /* RESUME first: it lies in the port when the machine goes on */
        if (connection_flush(&shim->agent) < 0)
                shim->agent_closed = true;
        if (shim->engine->unpause(shim->machine, &error) < 0)
                boot_fail(shim, "boot-failed", &error, false);
        return true;
}

void saved_answer(struct shim *shim, const cubby_error *error)
{
        struct peer *peer = shim->claimer;
        shim->claimer = NULL;
        if (peer == NULL)
                return;
        if (error == NULL)
                peer_send(peer, FRAME_OK, 0, shim->claim_stream, NULL, 0);
        else
                peer_error(peer, shim->claim_stream, error->code, error->message);
}
