/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NOTICE_LOCK "emulation" /* holds the boot that was told */
#define NOTICE_LOCK_MS 1000
#define BOOT_ID_SIZE 36

DEFINE_AUTO(cubby, box_home_close)

int box_home_open(const cubby_open_options *options, cubby **ret, cubby_error *err)
{
        AUTO(cubby) cubby *opened = calloc(1, sizeof *opened);
        if (opened == NULL)
                return cubby_error_no_memory(err);
        opened->log = (struct log){.write = options->log, .data = options->log_data};
        opened->progress = options->progress;
        opened->progress_data = options->progress_data;
        if (home_open(options->home, &opened->log, &opened->home, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_recover(opened, NULL, &problem) < 0)
                log_line(&opened->log, LOG_WARNING, "leftovers could not be removed: %s",
                        problem.message);
        *ret = take_ptr(&opened);
        return 0;
}

void box_home_close(cubby *host)
{
        if (host == NULL)
                return;
        home_close(host->home);
        free(host);
}

static bool read_boot_id(char ret[BOOT_ID_SIZE])
{
        AUTO_FD int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        return fd >= 0 && read(fd, ret, BOOT_ID_SIZE) == BOOT_ID_SIZE;
}

/* Who cannot find out tells it once more. */
static bool was_announced(const cubby *host)
{
        char now[BOOT_ID_SIZE];
        char told[BOOT_ID_SIZE];
        AUTO_LOCK int fd = -1;
        if (!read_boot_id(now) ||
                home_lock(host->home, NOTICE_LOCK, true, deadline_after_ms(NOTICE_LOCK_MS), &fd,
                        NULL) < 0)
                return false;
        if (pread(fd, told, sizeof told, 0) == BOOT_ID_SIZE && memcmp(told, now, sizeof now) == 0)
                return true;
        if (pwrite(fd, now, sizeof now, 0) != BOOT_ID_SIZE)
                log_line(&host->log, LOG_INFO, "the notice about emulation could not be noted");
        return false;
}

void box_announce_emulation(const cubby *host)
{
        /* who has nobody to tell does not use the notice up */
        if (!host->unattended && host->log.write != NULL && !was_announced(host))
                log_line(&host->log, LOG_WARNING,
                        "no usable KVM here: boxes are emulated (TCG), slower, and emulation is no "
                        "security boundary; see cubby doctor");
}

void box_progress(
        const cubby *host, const char *stage, const char *detail, uint64_t done, uint64_t total)
{
        if (host->progress != NULL)
                host->progress(host->progress_data, stage, detail, done, total);
}
