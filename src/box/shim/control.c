/* SPDX-License-Identifier: Apache-2.0 */

/* What clients ask of the shim itself. */
#include "base/clock.h"
#include "box/shim/shim.h"

#include <unistd.h>

static uint8_t state_of(const struct shim *shim)
{
        if (shim->phase < PHASE_RUNNING)
                return SHIM_BOOTING;
        if (shim->stopping || shim->phase != PHASE_RUNNING)
                return SHIM_STOPPING;
        return shim->paused ? SHIM_PAUSED : SHIM_RUNNING;
}

static void send_status(struct shim *shim, struct peer *peer, uint64_t stream)
{
        struct message_status status = {.state = state_of(shim),
                .has_main = shim->command.exists,
                .main_ended = shim->command.ended,
                .shim_pid = (uint32_t)getpid(),
                .vmm_pid = shim->machine == NULL ? 0 : (uint32_t)shim->engine->pid(shim->machine),
                .clients = (uint32_t)shim->peer_count,
                .generation = shim->generation,
                .uptime_ms = (uint64_t)(clock_monotonic_ms() - shim->started_ms),
                .violations = shim->violations,
                .exit = shim->command.exit};
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 1024);
        if (message_status_encode(&payload, &status))
                peer_send(peer, FRAME_SHIM_STATUS_REPLY, 0, stream, payload.data, payload.size);
        else
                peer->closing = true;
}

static void on_kill(struct shim *shim, struct peer *peer, uint64_t stream, uint32_t number)
{
        struct command *command = &shim->command;
        if (number == 9) {
                peer_send(peer, FRAME_OK, 0, stream, NULL, 0);
                end_kill(shim, "killed", "killed on request");
                return;
        }
        if (shim->phase != PHASE_RUNNING || command->stream == NULL) {
                peer_error(peer, stream, CUBBY_E_STATE, "no command of the box runs");
                return;
        }
        if (guest_is_full(shim)) {
                peer_error(peer, stream, CUBBY_E_BUSY, "the box does not take requests at present");
                return;
        }
        uint8_t payload[4];
        store_u32(payload, number);
        (void)guest_send(shim, FRAME_SIGNAL, 0, command->stream->id, payload, sizeof payload);
        peer_send(peer, FRAME_OK, 0, stream, NULL, 0);
}

static void on_pause(struct shim *shim, struct peer *peer, uint64_t stream, bool pause)
{
        if ((shim->engine->capabilities & ENGINE_CAN_PAUSE) == 0) {
                peer_error(peer, stream, CUBBY_E_UNSUPPORTED, "this engine cannot pause a box");
                return;
        }
        if (shim->saver != NULL) {
                peer_error(peer, stream, CUBBY_E_BUSY, "the box is being copied");
                return;
        }
        if (shim->phase != PHASE_RUNNING || shim->stopping || shim->paused == pause) {
                peer_error(peer, stream, CUBBY_E_STATE,
                        shim->paused    ? "the box is paused already"
                                : pause ? "the box does not run"
                                        : "the box is not paused");
                return;
        }
        cubby_error error;
        cubby_error_clear(&error);
        int result = pause ? shim->engine->pause(shim->machine, &error)
                           : shim->engine->unpause(shim->machine, &error);
        if (result < 0) {
                /* a VMM that hangs may yet obey: what is queued behind it lets it run on */
                if (pause)
                        (void)shim->engine->unpause(shim->machine, NULL);
                peer_error(peer, stream, error.code, error.message);
                return;
        }
        shim->paused = pause;
        guest_watch_part(shim);
        peer_send(peer, FRAME_OK, 0, stream, NULL, 0);
}

bool control_frame(struct shim *shim, struct peer *peer, const struct frame *frame)
{
        struct slice payload = {.data = frame->payload, .size = frame->length};
        uint32_t number = 0;
        switch (frame->type) {
        case FRAME_SHIM_STATUS:
                if (payload.size != 0)
                        return false;
                send_status(shim, peer, frame->stream);
                return true;
        case FRAME_SHIM_ATTACH:
                if (payload.size != 1 || payload.data[0] > 1)
                        return false;
                attach_open(shim, peer, frame->stream, false, payload.data[0] == 1);
                return true;
        case FRAME_SHIM_WAIT:
                if (payload.size != 0)
                        return false;
                attach_open(shim, peer, frame->stream, true, false);
                return true;
        case FRAME_SHIM_STOP:
                if (!message_u32_decode(payload, &number))
                        return false;
                end_stop(shim, "stopped", number);
                return true;
        case FRAME_SHIM_KILL:
                if (!message_u32_decode(payload, &number) || number == 0 || number > 64)
                        return false;
                on_kill(shim, peer, frame->stream, number);
                return true;
        case FRAME_SHIM_PAUSE:
        case FRAME_SHIM_UNPAUSE:
                if (payload.size != 0)
                        return false;
                on_pause(shim, peer, frame->stream, frame->type == FRAME_SHIM_PAUSE);
                return true;
        case FRAME_SHIM_PARK:
                if (!message_u32_decode(payload, &number))
                        return false;
                shim->park_deadline_ms = number == 0 ? DEADLINE_NEVER : deadline_after_ms(number);
                peer_send(peer, FRAME_OK, 0, frame->stream, NULL, 0);
                return true;
        case FRAME_SHIM_SAVE:
                return copy_start(shim, peer, frame);
        case FRAME_SHIM_GO_ON:
                return copy_go_on(shim, peer, frame);
        case FRAME_SHIM_CLAIM:
                return saved_claim(shim, peer, frame);
        default:
                return false;
        }
}
