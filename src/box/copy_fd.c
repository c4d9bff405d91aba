/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copy_tar.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int copy_locale_enter(struct copy_locale *locale, cubby_error *err)
{
        locale->own = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
        if (locale->own == (locale_t)0)
                return cubby_error_errno(err, errno, "loading the locale C.UTF-8");
        locale->before = uselocale(locale->own);
        return 0;
}

void copy_locale_leave(struct copy_locale *locale)
{
        if (locale->own == (locale_t)0)
                return;
        (void)uselocale(locale->before);
        freelocale(locale->own);
}

static int wait_for(int fd, short events, const struct copy_look *look, cubby_error *err)
{
        for (;;) {
                struct pollfd poll_fd = {.fd = fd, .events = events};
                int ready = poll(&poll_fd, 1, COPY_LOOK_MS);
                if (ready < 0 && errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for the archive");
                if (look->look(look->data, err) < 0)
                        return -1;
                if (ready > 0)
                        return 0;
        }
}

ssize_t copy_fd_read(
        int fd, void *data, size_t size, const struct copy_look *look, cubby_error *err)
{
        for (;;) {
                if (wait_for(fd, POLLIN, look, err) < 0)
                        return -1;
                ssize_t got = read(fd, data, size);
                if (got >= 0)
                        return got;
                if (errno != EINTR && errno != EAGAIN)
                        return cubby_error_errno(err, errno, "reading the archive");
        }
}

/* write(2) of which a gone reader is an error, and no signal for the embedding program. */
static ssize_t write_quietly(int fd, const void *data, size_t size)
{
        sigset_t pipe_signal;
        sigset_t before;
        sigset_t pending;
        (void)sigemptyset(&pipe_signal);
        (void)sigaddset(&pipe_signal, SIGPIPE);
        (void)sigpending(&pending);
        bool was_pending = sigismember(&pending, SIGPIPE) == 1;
        (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
        ssize_t put = write(fd, data, size);
        int problem = errno;
        if (put < 0 && problem == EPIPE && !was_pending) {
                const struct timespec now = {0};
                (void)sigtimedwait(&pipe_signal, NULL, &now);
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        errno = problem;
        return put;
}

int copy_fd_write(
        int fd, const void *data, size_t size, const struct copy_look *look, cubby_error *err)
{
        struct stat info;
        const char *next = data;
        /* a pipe that is ready takes this much without waiting */
        size_t most = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? SSIZE_MAX : PIPE_BUF;
        while (size > 0) {
                if (wait_for(fd, POLLOUT, look, err) < 0)
                        return -1;
                ssize_t put = write_quietly(fd, next, size < most ? size : most);
                if (put < 0 && errno != EINTR && errno != EAGAIN)
                        return cubby_error_errno(err, errno, "writing the archive");
                if (put > 0) {
                        next += put;
                        size -= (size_t)put;
                }
        }
        return 0;
}
