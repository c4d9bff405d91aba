/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the shim does with an agent's frames. A shim in the middle of its work: a
 * command of its own with an attached client, a client's command, a detached one,
 * requests of each kind. The first byte chooses the phase, the rest is frames.
 */
#include "base/clock.h"
#include "box/shim/shim.h"
#include "wire/files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSION 0x5eULL

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_destroy(struct machine *machine)
{
        (void)machine;
}

static const struct engine engine_none = {.name = "none", .destroy = no_destroy};
static const struct shim_options options = {.part_ms = 1000, .drain_ms = 1000, .shutdown_ms = 1000};

static struct stream *add(struct shim *shim, struct peer *peer, enum stream_kind kind,
        uint16_t reply, uint32_t flags, bool started)
{
        uint64_t id = peer == NULL ? 0 : ++peer->last_stream;
        struct stream *stream = stream_open(shim, peer, id, kind);
        if (stream == NULL)
                abort();
        stream->reply = reply;
        stream->exec_flags = flags;
        stream->started = started;
        return stream;
}

static struct peer *add_peer(struct shim *shim)
{
        int ends[2];
        struct peer *peer = calloc(1, sizeof *peer);
        if (peer == NULL ||
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
                abort();
        (void)close(ends[1]);
        connection_init(
                &peer->connection, ends[0], FRAME_TO_GUEST_MAX, PEER_QUEUE_MAX, PEER_QUEUE_MAX);
        shim->peers = peer;
        shim->peer_count = 1;
        return peer;
}

static void make(struct shim *shim, uint8_t phase)
{
        *shim = (struct shim){.options = &options,
                .engine = &engine_none,
                .box_fd = -1,
                .given_fds = {-1, -1, -1},
                .status_fd = -1,
                .lock_fd = -1,
                .listen_fd = -1,
                .signal_fd = -1,
                .console_fd = -1,
                .disk_fd = -1,
                .session = SESSION,
                .nonce = SESSION,
                .boot_deadline_ms = DEADLINE_NEVER,
                .kill_deadline_ms = DEADLINE_NEVER,
                .ttl_deadline_ms = DEADLINE_NEVER,
                .part_deadline_ms = DEADLINE_NEVER,
                .drain_deadline_ms = DEADLINE_NEVER};
        shim->phase = (enum phase)(phase % PHASE_GONE);
        shim->violations_ms = clock_monotonic_ms();
        shim->config.id = shim->config.hostname = shim->config.stop_signal = NULL;
        connection_init(&shim->agent, -1, FRAME_FROM_GUEST_MAX, AGENT_QUEUE_MAX, AGENT_QUEUE_MAX);
        shim->kept = (struct kept_log){
                .dir_fd = -1, .fd = memfd_create("log", MFD_CLOEXEC), .number = 1};
        struct peer *peer = add_peer(shim);
        shim->command.exists = true;
        shim->command.stream = add(
                shim, NULL, STREAM_MAIN, 0, EXEC_MAIN | EXEC_STDIN, shim->phase >= PHASE_RUNNING);
        add(shim, peer, STREAM_EXEC, 0, EXEC_STDIN, true)->window[CHANNEL_STDIN] = 0;
        (void)add(shim, peer, STREAM_EXEC, 0, EXEC_TTY, false);
        (void)add(shim, NULL, STREAM_EXEC, 0, EXEC_DETACH, true);
        (void)add(shim, peer, STREAM_REQUEST, FRAME_PONG, 0, false);
        (void)add(shim, peer, STREAM_REQUEST, FRAME_PROCESS_LIST, 0, false);
        (void)add(shim, peer, STREAM_REQUEST, FRAME_METRICS_REPLY, 0, false);
        (void)add(shim, NULL, STREAM_OWN, FRAME_RESUMED, 0, false);
        (void)add(shim, NULL, STREAM_OWN, FRAME_OK, 0, false);
        for (int operation = FILE_STAT; operation < FILE_OPERATION_MAX; operation++)
                add(shim, operation % 4 == 0 ? NULL : peer, STREAM_FILE, 0, 0, false)->traffic =
                        file_traffic((uint16_t)operation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 1)
                return 0;
        struct shim *shim = malloc(sizeof *shim);
        if (shim == NULL)
                return 0;
        char id[] = "id";
        char signal[] = "SIGTERM";
        make(shim, data[0]);
        if (shim->phase == PHASE_HELLO)
                shim->session = 0;
        shim->config = (struct box_config){.id = id,
                .hostname = id,
                .user = id,
                .workdir = id,
                .stop_signal = signal,
                .tty = false};
        data++;
        size--;
        struct frame frame;
        int64_t used = 0;
        while (shim->phase != PHASE_GONE &&
                (used = frame_decode(data, size, FRAME_FROM_GUEST_MAX, &frame)) > 0) {
                guest_frame(shim, &frame);
                data += used;
                size -= (size_t)used;
        }
        /* What is kept for a client and for the agent stays within bounds. */
        if (connection_queued(&shim->agent) > AGENT_QUEUE_MAX ||
                shim->violations > VIOLATIONS_MAX + 1 + size || shim->stream_count > STREAMS_MAX)
                abort();
        peers_free(shim);
        streams_free(shim);
        shim->config = (struct box_config){0};
        setup_close(shim);
        free(shim);
        return 0;
}
