/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copying a running machine for a fork, a snapshot or a suspension. What does
 * not change is copied while it runs. Then nothing is sent to the agent any
 * more, FREEZE is the last frame, FROZEN the agent's last; the machine stops,
 * its devices and the rest of its memory are copied, and the client, who has
 * both as descriptors now, copies the disk. Then it goes on.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAKE_MS 60000 /* a client that takes longer is given up, and the box goes on */

static void close_copies(struct shim *shim)
{
        close_quietly(take_fd(&shim->copy_memory_fd));
        close_quietly(take_fd(&shim->copy_state_fd));
}

static int make_copies(struct shim *shim, cubby_error *err)
{
        uint64_t size = shim->config.memory_bytes;
        shim->copy_memory_fd = memfd_create("cubby-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        shim->copy_state_fd = memfd_create("cubby-state", MFD_CLOEXEC);
        /* another user's VMM opens the memory again by its descriptor */
        if (shim->copy_memory_fd < 0 || shim->copy_state_fd < 0 ||
                fchmod(shim->copy_memory_fd, 0666) < 0 ||
                ftruncate(shim->copy_memory_fd, (off_t)size) < 0)
                return cubby_error_errno(err, errno, "making room for the copy");
        return shim->engine->copy_begin(shim->machine, shim->copy_memory_fd, err);
}

static const char *why_not(const struct shim *shim, int *ret_code)
{
        *ret_code = CUBBY_E_UNSUPPORTED;
        if ((shim->engine->capabilities & ENGINE_CAN_FORK) == 0)
                return "this engine cannot copy a running box";
        *ret_code = CUBBY_E_STATE;
        if (shim->phase != PHASE_RUNNING || shim->stopping)
                return "the box does not run";
        if (shim->paused)
                return "the box is paused; unpause it first";
        *ret_code = CUBBY_E_BUSY;
        bool busy = shim->saver != NULL || shim->freeze_sent;
        return busy ? "the box is being copied already" : NULL;
}

bool copy_start(struct shim *shim, struct peer *peer, const struct frame *frame)
{
        if (frame->length != 0)
                return false;
        cubby_error error;
        cubby_error_clear(&error);
        int code = 0;
        const char *reason = why_not(shim, &code);
        if (reason == NULL && make_copies(shim, &error) < 0) {
                close_copies(shim);
                code = error.code;
                reason = error.message;
        }
        if (reason != NULL) {
                peer_error(peer, frame->stream, code, reason);
                return true;
        }
        shim->saver = peer;
        shim->save_stream = frame->stream;
        shim->look_ms = deadline_after_ms(TAKE_MS);
        return true;
}

/* Past the lines: what waits there is for later. False: nothing of it was sent. */
static bool send_past(struct shim *shim, uint16_t type, uint16_t reply)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 256);
        struct stream *stream = stream_open(shim, NULL, 0, STREAM_OWN);
        if (stream == NULL)
                return false;
        stream->reply = reply;
        if (frame_append(&out, type, 0, shim->session, stream->id, NULL, 0) &&
                send(shim->agent.fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL) ==
                        (ssize_t)out.size)
                return true;
        stream_end(shim, stream);
        return false;
}

/* A FREEZE that waited in the line would freeze a box that nobody thaws any more. */
void copy_pump(struct shim *shim)
{
        if (shim->saver == NULL || shim->freeze_sent || shim->phase != PHASE_RUNNING ||
                connection_queued(&shim->agent) > 0)
                return;
        shim->freeze_sent = send_past(shim, FRAME_FREEZE, FRAME_FROZEN);
        if (!shim->freeze_sent)
                copy_fail(shim, CUBBY_E_BUSY, "the agent takes no requests");
}

static void go_on(struct shim *shim)
{
        bool frozen = shim->frozen;
        bool still = shim->still;
        shim->saver = NULL;
        shim->still = false;
        shim->look_ms = DEADLINE_NEVER;
        close_copies(shim);
        if (shim->freeze_sent && !frozen)
                return; /* FROZEN is on its way; a THAW before it would be lost */
        shim->freeze_sent = false;
        shim->frozen = false;
        if (shim->phase != PHASE_RUNNING)
                return;
        cubby_error error;
        cubby_error_clear(&error);
        if (still && shim->engine->unpause(shim->machine, &error) < 0)
                end_kill(shim, "vmm-died", error.message);
        else if (frozen && !send_past(shim, FRAME_THAW, FRAME_THAWED))
                end_kill(shim, "vmm-died", "the box could not be thawed");
}

void copy_fail(struct shim *shim, int code, const char *text)
{
        struct peer *peer = shim->saver;
        if (peer != NULL && !shim->still)
                peer_error(peer, shim->save_stream, code, text);
        else if (peer != NULL)
                peer->closing = true; /* what it has is of an instant that is over */
        go_on(shim);
}

void copy_leave(struct shim *shim, const struct peer *peer)
{
        if (shim->saver == peer)
                go_on(shim);
}

/* The answer carries the descriptors: past the line, which must be empty. */
static int send_copies(struct shim *shim)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 256);
        const int fds[] = {shim->copy_memory_fd, shim->copy_state_fd};
        if (connection_queued(&shim->saver->connection) > 0 ||
                !frame_append(&out, FRAME_OK, 0, 0, shim->save_stream, NULL, 0))
                return -1;
        return fd_send(shim->saver->connection.fd, out.data, out.size, fds, 2);
}

void copy_refused(struct shim *shim)
{
        shim->freeze_sent = false;
        copy_fail(shim, CUBBY_E_BUSY, "the box cannot be frozen now");
}

void copy_frozen(struct shim *shim)
{
        shim->frozen = true;
        if (shim->saver == NULL) {
                go_on(shim);
                return;
        }
        cubby_error error;
        cubby_error_clear(&error);
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", shim->copy_state_fd);
        /* QEMU takes only a descriptor that can do nothing but write */
        AUTO_FD int state = open(path, O_WRONLY | O_CLOEXEC);
        if (state < 0) {
                copy_fail(shim, CUBBY_E_SYSTEM, "the copy's state cannot be written");
                return;
        }
        if (shim->engine->copy_end(shim->machine, shim->copy_memory_fd, state, &error) < 0) {
                (void)shim->engine->unpause(shim->machine, NULL);
                copy_fail(shim, error.code, error.message);
                return;
        }
        shim->still = true;
        if (send_copies(shim) < 0) {
                shim->saver->closing = true;
                go_on(shim);
        }
}

bool copy_go_on(struct shim *shim, struct peer *peer, const struct frame *frame)
{
        bool ends = frame->length == 1 && frame->payload[0] == 1;
        if (frame->length != 0 && !ends)
                return false;
        if (shim->saver != peer || !shim->still) {
                peer_error(peer, frame->stream, CUBBY_E_STATE, "the box does not stand still");
                return true;
        }
        if (ends) {
                peer_send(peer, FRAME_OK, 0, frame->stream, NULL, 0);
                end_kill(shim, "suspended", "");
                return true;
        }
        go_on(shim);
        peer_send(peer, FRAME_OK, 0, frame->stream, NULL, 0);
        return true;
}
