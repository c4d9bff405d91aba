/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* newer than Debian 12's headers */
#endif
#define PEER_GONE (-2)
#define CONNECT_PAUSE_MS 20
#define KILL_MS 3000 /* a shim that does not end its box within it is killed itself */

int box_refuse_ended(const cubby_box *box, cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_STATE,
                box_is_suspended(box) ? "box '%s' is suspended; resume it first"
                                      : "box '%s' does not run",
                box->config.name);
}

/* A shim binds its socket a moment after it took the lock. */
static int connect_once(
        const cubby_box *box, int64_t deadline_ms, struct client **ret, cubby_error *err)
{
        cubby_error problem = {0};
        if (client_connect(box->dir_fd, deadline_ms, ret, &problem) == 0)
                return 0;
        enum box_life life = BOX_ENDED;
        if (problem.code != CUBBY_E_BOX_DEAD) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (box_life(box, &life, err) < 0)
                return -1;
        if (life == BOX_NEVER_STARTED)
                return cubby_error_set(
                        err, CUBBY_E_STATE, "box '%s' was not started yet", box->config.name);
        if (life == BOX_ENDED)
                return box_refuse_ended(box, err);
        return cubby_error_set(
                err, CUBBY_E_BUSY, "box '%s' is just starting or ending", box->config.name);
}

int box_connect(const cubby_box *box, int64_t deadline_ms, struct client **ret, cubby_error *err)
{
        if (saved_waits(box))
                return cubby_error_set(
                        err, CUBBY_E_STATE, "box '%s' was not started yet", box->config.name);
        for (;;) {
                cubby_error problem = {0};
                if (connect_once(box, deadline_ms, ret, &problem) == 0)
                        return 0;
                if (problem.code != CUBBY_E_BUSY || deadline_left_ms(deadline_ms) == 0) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                (void)poll(NULL, 0, CONNECT_PAUSE_MS);
        }
}

int box_call(const cubby_box *box, uint16_t type, const void *payload, size_t size,
        uint16_t reply_type, int64_t deadline_ms, struct client **ret_client, struct frame *ret,
        cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        if (box_connect(box, deadline_ms, &client, err) < 0 ||
                client_call(client, type, payload, size, reply_type, deadline_ms, ret, err) < 0)
                return -1;
        *ret_client = take_ptr(&client);
        return 0;
}

static int simple_call(const cubby_box *box, uint16_t type, const void *payload, size_t size,
        uint16_t reply_type, int64_t deadline_ms, cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        return box_call(box, type, payload, size, reply_type, deadline_ms, &client, &frame, err);
}

/* Reads on until the shim closes the connection. -1 on an ERROR frame or at the deadline. */
static int drain(struct client *client, int64_t deadline_ms, cubby_error *err)
{
        for (;;) {
                struct frame frame;
                cubby_error problem = {0};
                if (client_next(client, deadline_ms, &frame, &problem) < 0) {
                        if (problem.code == CUBBY_E_BOX_DEAD)
                                return 0;
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                if (frame.type == FRAME_ERROR)
                        return client_error(
                                (struct slice){.data = frame.payload, .size = frame.length}, err);
        }
}

/* The process at the other end: named by the kernel since Linux 6.5, by its number before. */
static int peer_pidfd(int fd, cubby_error *err)
{
        int pidfd = -1;
        socklen_t size = sizeof pidfd;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
                return pidfd;
        if (errno == ESRCH || errno == EINVAL)
                return PEER_GONE;
        struct ucred peer;
        size = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return cubby_error_errno(err, errno, "finding the shim");
        pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0U);
        if (pidfd < 0 && errno != ESRCH)
                return cubby_error_errno(err, errno, "finding the shim");
        return pidfd < 0 ? PEER_GONE : pidfd;
}

int box_kill_shim(const cubby_box *box, cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        if (client_connect(box->dir_fd, deadline_after_ms(BOX_PROBE_MS), &client, err) < 0)
                return -1;
        AUTO_FD int pidfd = peer_pidfd(client_fd(client), err);
        if (pidfd < 0)
                return pidfd == PEER_GONE ? 0 : -1;
        /* Where it was found by its number: it holds the lock now, so it lived when the
         * pidfd was made, and the number was its own. */
        enum box_life life;
        if (box_life(box, &life, err) < 0)
                return -1;
        if (life != BOX_ALIVE)
                return 0;
        if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0U) < 0 && errno != ESRCH)
                return cubby_error_errno(err, errno, "killing the shim");
        return 0;
}

/* After a request to end: waits, and uses force where that did not help. */
static int finish(const cubby_box *box, int64_t deadline_ms, cubby_error *err)
{
        if (box_wait_end(box, deadline_ms, NULL) < 0) {
                log_line(&box->cubby->log, LOG_WARNING, "box %.12s did not end; it is killed",
                        box->id);
                if (box_kill_shim(box, err) < 0 ||
                        box_wait_end(box, deadline_after_ms(BOX_END_MS), err) < 0)
                        return -1;
        }
        return 0;
}

/* 1 when it lives, 0 when it ended, -1 with CUBBY_E_STATE when it was never started. */
static int check_alive(const cubby_box *box, cubby_error *err)
{
        enum box_life life;
        if (box_life(box, &life, err) < 0)
                return -1;
        return life == BOX_ALIVE && !saved_waits(box);
}

int box_stop(cubby_box *box, int64_t timeout_ms, cubby_error *err)
{
        if (timeout_ms < 0)
                timeout_ms = BOX_TIME_MAX_MS;
        if (timeout_ms > BOX_TIME_MAX_MS)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the time to stop must be at most 366 days");
        int alive = check_alive(box, err);
        if (alive <= 0) {
                if (alive == 0)
                        box_reap(box);
                return alive;
        }
        uint8_t payload[4];
        store_u32(payload, timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)timeout_ms);
        int64_t deadline = deadline_after_ms(timeout_ms + BOX_END_MS);
        AUTO(client) struct client *client = NULL;
        cubby_error problem = {0};
        if (box_connect(box, deadline_after_ms(BOX_CALL_MS), &client, &problem) == 0 &&
                client_send(client, FRAME_SHIM_STOP, 0, client_new_stream(client), payload,
                        sizeof payload, deadline_after_ms(BOX_CALL_MS), &problem) == 0 &&
                drain(client, deadline, &problem) < 0 && problem.code != CUBBY_E_TIMEOUT) {
                if (err != NULL)
                        *err = problem;
                return cubby_error_wrap(err, "stopping box '%s'", box->config.name);
        }
        if (finish(box, deadline, err) < 0)
                return cubby_error_wrap(err, "stopping box '%s'", box->config.name);
        box_reap(box);
        return 0;
}

int box_end(const cubby_box *box, cubby_error *err)
{
        uint8_t payload[4];
        store_u32(payload, SIGKILL);
        int64_t deadline = deadline_after_ms(KILL_MS);
        AUTO(client) struct client *client = NULL;
        if (box_connect(box, deadline, &client, NULL) == 0 &&
                client_send(client, FRAME_SHIM_KILL, 0, client_new_stream(client), payload,
                        sizeof payload, deadline, NULL) == 0)
                (void)drain(client, deadline, NULL);
        return finish(box, deadline, err);
}

int box_kill(cubby_box *box, int signal, cubby_error *err)
{
        if (signal < 1 || signal > SIGRTMAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "there is no signal %d; they are 1 to %d", signal, SIGRTMAX);
        int alive = check_alive(box, err);
        if (alive < 0)
                return -1;
        if (alive == 0)
                return box_refuse_ended(box, err);
        uint8_t payload[4];
        store_u32(payload, (uint32_t)signal);
        int result = signal == SIGKILL ? box_end(box, err)
                                       : simple_call(box, FRAME_SHIM_KILL, payload, sizeof payload,
                                                 FRAME_OK, deadline_after_ms(BOX_CALL_MS), err);
        if (result < 0)
                return cubby_error_wrap(err, "killing box '%s'", box->config.name);
        if (signal == SIGKILL)
                box_reap(box);
        return 0;
}

int box_pause(cubby_box *box, bool pause, cubby_error *err)
{
        if (simple_call(box, pause ? FRAME_SHIM_PAUSE : FRAME_SHIM_UNPAUSE, NULL, 0, FRAME_OK,
                    deadline_after_ms(BOX_CALL_MS), err) < 0)
                return cubby_error_wrap(
                        err, "%s box '%s'", pause ? "pausing" : "unpausing", box->config.name);
        return 0;
}

int box_ping(cubby_box *box, int64_t timeout_ms, cubby_error *err)
{
        static const char word[] = "ping";
        int64_t limit = timeout_ms < 0 ? -1 : timeout_ms;
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        if (box_call(box, FRAME_PING, word, sizeof word, FRAME_PONG, deadline_after_ms(limit),
                    &client, &frame, err) < 0)
                return -1;
        if (!slice_equals((struct slice){.data = frame.payload, .size = frame.length - 1}, word))
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "the box answered another ping");
        return 0;
}

/* Waits until the shim closes the connection. `*ret_code` is set when the box's
 * command has ended: whoever waits beside us may remove the record of it. */
static int watch_end(const cubby_box *box, int64_t deadline_ms, int *ret_code, cubby_error *err)
{
        AUTO(client) struct client *client = NULL;
        cubby_error problem = {0};
        if (box_connect(box, deadline_ms, &client, NULL) < 0 ||
                client_send(client, FRAME_SHIM_WAIT, 0, client_new_stream(client), NULL, 0,
                        deadline_ms, NULL) < 0)
                return 0; /* the lock tells the rest */
        struct frame frame;
        while (client_next(client, deadline_ms, &frame, &problem) == 0) {
                struct message_exit exit;
                if (frame.type == FRAME_EXIT &&
                        message_exit_decode(
                                (struct slice){.data = frame.payload, .size = frame.length}, &exit))
                        *ret_code = exit.signal > 0 ? 128 + (int)exit.signal : (int)exit.code;
        }
        if (problem.code == CUBBY_E_TIMEOUT)
                return cubby_error_set(
                        err, CUBBY_E_TIMEOUT, "box '%s' still runs", box->config.name);
        return 0;
}

int box_wait(cubby_box *box, int64_t timeout_ms, int *ret_exit_code, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(timeout_ms);
        enum box_life life;
        if (box_life(box, &life, err) < 0)
                return -1;
        if (life == BOX_NEVER_STARTED || (life == BOX_ALIVE && saved_waits(box)))
                return cubby_error_set(
                        err, CUBBY_E_STATE, "box '%s' was not started yet", box->config.name);
        int code = -1;
        if (life == BOX_ALIVE &&
                (watch_end(box, deadline, &code, err) < 0 || box_wait_end(box, deadline, err) < 0))
                return -1;
        struct box_exit end;
        cubby_error problem = {0};
        if (box_read_end(box, &end, &problem) == 0) {
                code = box_exit_code(&end);
        } else if (code < 0 || problem.code != CUBBY_E_NOT_FOUND) {
                if (err != NULL)
                        *err = problem;
                return cubby_error_wrap(err, "waiting for box '%s'", box->config.name);
        }
        *ret_exit_code = code;
        box_reap(box);
        return 0;
}
