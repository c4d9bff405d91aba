/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/spawn.h"
#include "image/image.h"
#include "kernel/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_MS 1000          /* a probe holds the lock for moments only */
#define REPORT_SLACK_MS 15000 /* beyond the boot timeout: the shim itself reports that */
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What a shim is given; all of it is the caller's to close. */
struct parts {
        int lock;
        int rootfs;
        int vmlinux;
        int initramfs;
        int status; /* our end */
};

static void close_parts(struct parts *parts)
{
        close_quietly(parts->lock);
        close_quietly(parts->rootfs);
        close_quietly(parts->vmlinux);
        close_quietly(parts->initramfs);
        close_quietly(parts->status);
}
#define AUTO_PARTS __attribute__((cleanup(close_parts)))

static bool needs_kernel(const cubby_box *box)
{
        return strcmp(box->config.engine, "fake") != 0;
}

static int open_kernel(const cubby_box *box, struct parts *parts, cubby_error *err)
{
        cubby *host = box->cubby;
        AUTO_FREE char *agent = NULL;
        if (box_find_program("cubby-agent", &agent, err) < 0)
                return -1;
        struct kernel kernel = {0};
        const char *wanted = box->config.kernel[0] == '\0' ? NULL : box->config.kernel;
        if (kernel_ensure(host->home, wanted, host->progress, host->progress_data, &kernel, err) <
                0)
                return -1;
        int result =
                kernel_open(host->home, &kernel, agent, &parts->vmlinux, &parts->initramfs, err);
        kernel_clear(&kernel);
        return result;
}

/* From here on the folder says "started": a shim that leaves no exit file has died. */
static int mark_started(const cubby_box *box, const char *isolation, cubby_error *err)
{
        struct box_started started = {.started_ns = clock_realtime_ns()};
        (void)snprintf(started.isolation, sizeof started.isolation, "%.15s", isolation);
        return box_write_started(box, &started, err);
}

static int launch(const cubby_box *box, struct parts *parts, int *ret_pidfd, cubby_error *err)
{
        AUTO_FREE char *program = NULL;
        if (box_find_program("cubby-shim", &program, err) < 0)
                return -1;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cubby_error_errno(err, errno, "making a socket pair");
        parts->status = pair[0];
        AUTO_FD int theirs = pair[1];
        struct spawn_fd fds[6] = {{box->dir_fd, SHIM_FD_BOX}, {theirs, SHIM_FD_STATUS},
                {parts->lock, SHIM_FD_LOCK}, {parts->rootfs, SHIM_FD_ROOTFS}};
        size_t count = 4;
        if (parts->vmlinux >= 0) {
                fds[count++] = (struct spawn_fd){parts->vmlinux, SHIM_FD_VMLINUX};
                fds[count++] = (struct spawn_fd){parts->initramfs, SHIM_FD_INITRAMFS};
        }
        /* The embedding program's environment may hold secrets; a shim needs none. */
        AUTO_FREE char *path = NULL;
        const char *known = secure_getenv("PATH");
        if (asprintf(&path, "PATH=%s", known == NULL ? PATH_DEFAULT : known) < 0)
                return cubby_error_no_memory(err);
        const char *const argv[] = {program, box->id, NULL};
        const char *const env[] = {path, "LANG=C", NULL};
        const struct spawn_options options = {
                .argv = argv, .env = env, .fds = fds, .fd_count = count, .new_session = true};
        return spawn_detached(&options, ret_pidfd, err);
}

/* Emulation that nobody asked for is never silent. */
static void tell_isolation(const cubby_box *box, const char *isolation)
{
        log_line(&box->cubby->log, LOG_INFO, "box '%s': isolation %s", box->config.name, isolation);
        if (strcmp(isolation, "emulated") == 0 && strcmp(box->config.accel, "auto") == 0)
                box_announce_emulation(box->cubby);
}

/* 1 ready, 0 progress, -1 failed. */
static int read_report(
        const cubby_box *box, int status, struct shim_report *report, cubby_error *err)
{
        ssize_t got;
        do
                got = recv(status, report, sizeof *report, 0);
        while (got < 0 && errno == EINTR);
        if (got != (ssize_t)sizeof *report)
                return cubby_error_set(err, CUBBY_E_BOX_DEAD,
                        "its shim ended before the box was ready; see console.log in its folder");
        report->text[sizeof report->text - 1] = '\0';
        switch (report->kind) {
        case REPORT_PROGRESS:
                box_progress(box->cubby, "boot", report->text, 0, 0);
                return 0;
        case REPORT_MACHINE:
                tell_isolation(box, report->text);
                return 0;
        case REPORT_READY:
                return 1;
        case REPORT_FAILED:
                (void)cubby_error_set(err, report->code, "%s", report->text);
                if (err != NULL)
                        err->sys_errno = report->sys_errno;
                return -1;
        default:
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "its shim sent an unknown report");
        }
}

static int wait_ready(
        const cubby_box *box, int status, struct shim_report *report, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(box->config.boot_timeout_ms + REPORT_SLACK_MS);
        for (;;) {
                struct pollfd poll_fd = {.fd = status, .events = POLLIN};
                int ready = poll(&poll_fd, 1, deadline_left_ms(deadline));
                if (ready < 0 && errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for the shim");
                if (ready == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "its shim did not report in time");
                if (ready < 0)
                        continue;
                int result = read_report(box, status, report, err);
                if (result != 0)
                        return result < 0 ? -1 : 0;
        }
}

/* A shim that failed writes its exit file and ends by itself; the rest is killed. */
static void clean_up(const cubby_box *box, int pidfd)
{
        if (box_wait_end(box, deadline_after_ms(BOX_PROBE_MS), NULL) == 0)
                return;
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0U);
        (void)box_wait_end(box, deadline_after_ms(BOX_END_MS), NULL);
}

static int start_locked(cubby_box *box, struct parts *parts, cubby_error *err)
{
        if (image_open_rootfs(box->cubby->home, box->image_id, &parts->rootfs, err) < 0 ||
                (needs_kernel(box) && open_kernel(box, parts, err) < 0) ||
                mark_started(box, "", err) < 0)
                return -1;
        if (unlinkat(box->dir_fd, BOX_EXIT_NAME, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing the record of the last run");
        AUTO_FD int pidfd = -1;
        if (launch(box, parts, &pidfd, err) < 0) {
                (void)unlinkat(box->dir_fd, BOX_STARTED_NAME, 0);
                return -1;
        }
        close_quietly(take_fd(&parts->lock)); /* the shim's alone now */
        struct shim_report report = {0};
        if (wait_ready(box, parts->status, &report, err) < 0) {
                clean_up(box, pidfd);
                return -1;
        }
        /* only for display: a box that runs is not ended for the lack of it */
        (void)mark_started(box, report.text, NULL);
        return 0;
}

int box_start(cubby_box *box, cubby_error *err)
{
        if (box_check_whole(box, err) < 0)
                return -1;
        AUTO_PARTS struct parts parts = {
                .lock = -1, .rootfs = -1, .vmlinux = -1, .initramfs = -1, .status = -1};
        if (box_lock(box, deadline_after_ms(LOCK_MS), &parts.lock, err) < 0)
                return cubby_error_wrap(err, "starting the box");
        if (start_locked(box, &parts, err) < 0)
                return cubby_error_wrap(err, "starting box '%s'", box->config.name);
        return 0;
}
