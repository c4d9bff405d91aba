/* SPDX-License-Identifier: Apache-2.0 */

/* The client's side of copying a running box. */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define COPY_MS 60000
#define SEAL_MS 2000

void box_copy_close(struct box_copy *copy)
{
        close_quietly(take_fd(&copy->memory_fd));
        close_quietly(take_fd(&copy->state_fd));
        close_quietly(take_fd(&copy->line_fd));
}

/* A connection of its own kind: the reply carries descriptors. */
struct line {
        int fd;
        struct buffer in;
        uint64_t stream;
};

static int line_open(const cubby_box *box, struct line *line, cubby_error *err)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const struct timeval limit = {.tv_sec = COPY_MS / 1000}; /* connect and send wait */
        (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s",
                box->dir_fd, BOX_SOCKET_NAME);
        line->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (line->fd < 0 || setsockopt(line->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
                return cubby_error_errno(err, errno, "making a socket");
        if (connect(line->fd, (const struct sockaddr *)&address, sizeof address) == 0)
                return 0;
        return errno == EAGAIN ? cubby_error_set(err, CUBBY_E_TIMEOUT, "the box did not answer")
                               : box_refuse_ended(box, err);
}

static int line_send(
        struct line *line, uint16_t type, const void *payload, uint32_t size, cubby_error *err)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 256);
        if (!frame_append(&out, type, 0, 0, ++line->stream, payload, size) ||
                send(line->fd, out.data, out.size, MSG_NOSIGNAL) != (ssize_t)out.size)
                return cubby_error_set(err, CUBBY_E_BOX_DEAD, "the box ended");
        return 0;
}

static void close_all(const int *fds, size_t count)
{
        for (size_t i = 0; i < count; i++)
                close_quietly(fds[i]);
}

/* OK, with `want` descriptors; an ERROR becomes err. */
static int line_receive(struct line *line, int *ret_fds, size_t want, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(COPY_MS);
        int fds[FD_PASS_MAX];
        size_t have = 0;
        for (;;) {
                struct frame frame;
                int64_t used =
                        frame_decode(line->in.data, line->in.size, FRAME_FROM_GUEST_MAX, &frame);
                if (used > 0 && frame.type == FRAME_OK && have == want) {
                        if (want > 0)
                                memcpy(ret_fds, fds, want * sizeof *fds);
                        buffer_consume(&line->in, (size_t)used);
                        return 0;
                }
                if (used != 0) {
                        close_all(fds, have);
                        if (used > 0 && frame.type == FRAME_ERROR)
                                return client_error(
                                        (struct slice){frame.payload, frame.length}, err);
                        return cubby_error_set(
                                err, CUBBY_E_PROTOCOL, "the shim sent an unexpected answer");
                }
                struct pollfd poll_fd = {.fd = line->fd, .events = POLLIN};
                uint8_t *end = buffer_reserve(&line->in, 4096);
                int more[FD_PASS_MAX];
                size_t count = 0;
                ssize_t got = end != NULL && poll(&poll_fd, 1, deadline_left_ms(deadline)) > 0
                        ? fd_receive(line->fd, end, 4096, more, &count)
                        : -1;
                for (size_t i = 0; got > 0 && i < count; i++) {
                        if (have < want)
                                fds[have++] = more[i];
                        else
                                close_quietly(more[i]);
                }
                if (got <= 0) {
                        close_all(fds, have);
                        return got == 0 ? cubby_error_set(err, CUBBY_E_BOX_DEAD,
                                                  "the box ended while it was copied")
                                        : cubby_error_set(err, CUBBY_E_TIMEOUT,
                                                  "the box could not be copied in time");
                }
                line->in.size += (size_t)got;
        }
}

static int copy_disk(const cubby_box *box, int to_fd, cubby_error *err)
{
        AUTO_FD int disk =
                openat(box->dir_fd, BOX_DISK_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat info;
        if (disk < 0 || fstat(disk, &info) < 0)
                return cubby_error_errno(err, errno, "opening the box's disk");
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's disk is no file");
        return file_copy_sparse(disk, to_fd, err);
}

static int check_copies(const cubby_box *box, const int fds[2], cubby_error *err)
{
        struct stat info;
        if (fstat(fds[0], &info) < 0 || !S_ISREG(info.st_mode) ||
                (uint64_t)info.st_size != box->config.memory_bytes || fstat(fds[1], &info) < 0 ||
                !S_ISREG(info.st_mode) || info.st_size == 0)
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "the shim gave no copy of the box");
        return memory_seal(fds[0], deadline_after_ms(SEAL_MS), err);
}

/* A shim also leaves a client who takes too long, and its box goes on. */
static void say_late(const cubby_box *box, cubby_error *err)
{
        enum box_life life = BOX_ENDED;
        if (err != NULL && err->code == CUBBY_E_BOX_DEAD && box_life(box, &life, NULL) == 0 &&
                life == BOX_ALIVE)
                (void)cubby_error_set(err, CUBBY_E_TIMEOUT,
                        "box '%s' could not be copied in time, and goes on", box->config.name);
}

int box_copy_take(
        const cubby_box *box, int disk_fd, bool keep_still, struct box_copy *ret, cubby_error *err)
{
        struct line line = {.fd = -1};
        buffer_init(&line.in, 1U << 16);
        int fds[2] = {-1, -1};
        int result = line_open(box, &line, err);
        if (result == 0)
                result = line_send(&line, FRAME_SHIM_SAVE, NULL, 0, err);
        if (result == 0)
                result = line_receive(&line, fds, 2, err);
        if (result == 0 && disk_fd >= 0)
                result = copy_disk(box, disk_fd, err);
        if (result == 0 && !keep_still) {
                result = line_send(&line, FRAME_SHIM_GO_ON, NULL, 0, err);
                if (result == 0)
                        result = line_receive(&line, NULL, 0, err);
        }
        if (result == 0)
                result = check_copies(box, fds, err);
        buffer_free(&line.in);
        if (result < 0) {
                say_late(box, err);
                close_quietly(line.fd);
                close_all(fds, 2);
                return -1;
        }
        *ret = (struct box_copy){
                .memory_fd = fds[0], .state_fd = fds[1], .line_fd = keep_still ? line.fd : -1};
        if (!keep_still)
                close_quietly(line.fd);
        return 0;
}

int box_copy_end(struct box_copy *copy, cubby_error *err)
{
        static const uint8_t end = 1;
        struct line line = {.fd = copy->line_fd, .stream = 1}; /* after that of the copy */
        buffer_init(&line.in, 1U << 16);
        int result = line_send(&line, FRAME_SHIM_GO_ON, &end, sizeof end, err);
        if (result == 0)
                result = line_receive(&line, NULL, 0, err);
        buffer_free(&line.in);
        return result;
}
