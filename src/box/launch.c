/* SPDX-License-Identifier: Apache-2.0 */
#include "box/launch.h"

#include "base/clock.h"
#include "base/spawn.h"
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

#define REPORT_SLACK_MS 15000 /* beyond the boot timeout: the shim itself reports that */
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void shim_parts_close(struct shim_parts *parts)
{
        close_quietly(parts->lock);
        close_quietly(parts->rootfs);
        close_quietly(parts->vmlinux);
        close_quietly(parts->initramfs);
        close_quietly(parts->memory);
        close_quietly(parts->state);
        close_quietly(parts->keeper);
        close_quietly(parts->status);
        *parts = SHIM_PARTS_NONE;
}

int shim_open_kernel(
        cubby *host, const struct box_config *config, struct shim_parts *parts, cubby_error *err)
{
        AUTO_FREE char *agent = NULL;
        if (strcmp(config->engine, "fake") == 0)
                return 0;
        if (box_find_program("cubby-agent", &agent, err) < 0)
                return -1;
        struct kernel kernel = {0};
        const char *wanted = config->kernel[0] == '\0' ? NULL : config->kernel;
        if (kernel_ensure(host->home, wanted, host->progress, host->progress_data, &kernel, err) <
                0)
                return -1;
        int result =
                kernel_open(host->home, &kernel, agent, &parts->vmlinux, &parts->initramfs, err);
        kernel_clear(&kernel);
        return result;
}

static const char *mode_word(enum shim_mode mode)
{
        switch (mode) {
        case SHIM_TEMPLATE:
                return "template";
        case SHIM_CLONE:
                return "clone";
        case SHIM_RESUME:
                return "resume";
        case SHIM_SPARE:
                return "spare";
        case SHIM_AHEAD:
                return "ahead";
        case SHIM_BOOT:
                break;
        }
        return "boot";
}

static size_t place_parts(const cubby_box *box, const struct shim_parts *parts, int status,
        struct spawn_fd fds[SHIM_FD_LAST])
{
        const struct spawn_fd all[] = {{box->dir_fd, SHIM_FD_BOX}, {status, SHIM_FD_STATUS},
                {parts->lock, SHIM_FD_LOCK}, {parts->rootfs, SHIM_FD_ROOTFS},
                {parts->vmlinux, SHIM_FD_VMLINUX}, {parts->initramfs, SHIM_FD_INITRAMFS},
                {parts->memory, SHIM_FD_MEMORY}, {parts->state, SHIM_FD_STATE},
                {parts->keeper, SHIM_FD_KEEPER}};
        size_t count = 0;
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
                if (all[i].source >= 0)
                        fds[count++] = all[i];
        return count;
}

int shim_launch(const cubby_box *box, enum shim_mode mode, char *const *warmups,
        struct shim_parts *parts, int *ret_pidfd, cubby_error *err)
{
        AUTO_FREE char *program = NULL;
        if (box_find_program("cubby-shim", &program, err) < 0)
                return -1;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cubby_error_errno(err, errno, "making a socket pair");
        parts->status = pair[0];
        AUTO_FD int theirs = pair[1];
        struct spawn_fd fds[SHIM_FD_LAST];
        size_t count = place_parts(box, parts, theirs, fds);
        /* The embedding program's environment may hold secrets; a shim needs none. */
        AUTO_FREE char *path = NULL;
        const char *known = secure_getenv("PATH");
        if (asprintf(&path, "PATH=%s", known == NULL ? PATH_DEFAULT : known) < 0)
                return cubby_error_no_memory(err);
        const char *argv[4 + SHIM_WARMUPS_MAX] = {program, box->id, mode_word(mode)};
        for (size_t i = 0; warmups != NULL && i < SHIM_WARMUPS_MAX && warmups[i] != NULL; i++)
                argv[3 + i] = warmups[i];
        const char *weak = secure_getenv(BOX_WEAK_JAIL);
        bool accepted = weak != NULL && strcmp(weak, "1") == 0;
        const char *const env[] = {path, "LANG=C", accepted ? BOX_WEAK_JAIL "=1" : NULL, NULL};
        const struct spawn_options options = {
                .argv = argv, .env = env, .fds = fds, .fd_count = count, .new_session = true};
        return spawn_detached(&options, ret_pidfd, err);
}

void box_tell_isolation(const cubby_box *box, const char *isolation)
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
                box_tell_isolation(box, report->text);
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

int shim_wait_ready(const cubby_box *box, int status, struct shim_report *ret, cubby_error *err)
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
                int result = read_report(box, status, ret, err);
                if (result != 0)
                        return result < 0 ? -1 : 0;
        }
}

void shim_clean_up(const cubby_box *box, int pidfd)
{
        if (box_wait_end(box, deadline_after_ms(BOX_PROBE_MS), NULL) == 0)
                return;
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0U);
        (void)box_wait_end(box, deadline_after_ms(BOX_END_MS), NULL);
}
