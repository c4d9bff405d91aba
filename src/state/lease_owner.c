/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/fd.h"
#include "state/leases.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAT_BYTES_MAX 4096U
#define FIELDS_BEHIND_NAME 20 /* start time is field 22 of /proc/PID/stat, see proc(5) */

/* 1 with the start time, 0 when no such process lives, -1 when that is unknown. */
static int process_start(int64_t pid, int64_t *ret_ticks)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
        AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -1;
        char text[STAT_BYTES_MAX];
        ssize_t size = read_whole(fd, text, sizeof text - 1);
        if (size <= 0)
                return size < 0 && errno == ESRCH ? 0 : -1;
        text[size] = '\0';
        /* the name may hold anything, also blanks and parentheses */
        char *next = strrchr(text, ')');
        if (next == NULL || next[1] != ' ')
                return -1;
        next += 2;
        if (*next == 'Z' || *next == 'X')
                return 0;
        for (int i = 1; i < FIELDS_BEHIND_NAME; i++) {
                next = strchr(next, ' ');
                if (next == NULL)
                        return -1;
                next++;
        }
        int64_t ticks = 0;
        if (sscanf(next, "%" SCNd64, &ticks) != 1 || ticks < 0)
                return -1;
        *ret_ticks = ticks;
        return 1;
}

static int read_boot_id(char ret[37], cubby_error *err)
{
        AUTO_FD int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        char text[37] = "";
        if (fd < 0 || read_whole(fd, text, 36) != 36)
                return cubby_error_errno(err, errno, "reading the host's boot id");
        memcpy(ret, text, sizeof text);
        return 0;
}

int lease_owner_self(struct lease_owner *ret, cubby_error *err)
{
        struct lease_owner owner = {.pid = getpid()};
        uint64_t random[2];
        struct stat info;
        if (read_boot_id(owner.boot_id, err) < 0)
                return -1;
        if (process_start(owner.pid, &owner.start_ticks) != 1)
                return cubby_error_set(
                        err, CUBBY_E_SYSTEM, "/proc does not show this process; is it mounted?");
        if (stat("/proc/self/ns/pid", &info) == 0)
                owner.pid_namespace = info.st_ino;
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
                return cubby_error_errno(err, errno, "choosing an instance id");
        (void)snprintf(owner.instance, sizeof owner.instance, "%016" PRIx64 "%016" PRIx64,
                random[0], random[1]);
        *ret = owner;
        return 0;
}

bool lease_owner_same(const struct lease_owner *left, const struct lease_owner *right)
{
        return strcmp(left->instance, right->instance) == 0;
}

bool lease_owner_dead(const struct lease_owner *owner, const struct lease_owner *self)
{
        if (strcmp(owner->boot_id, self->boot_id) != 0)
                return true;
        if (owner->pid == 0 || owner->pid_namespace != self->pid_namespace)
                return false;
        int64_t ticks = 0;
        int found = process_start(owner->pid, &ticks);
        return found == 0 || (found == 1 && ticks != owner->start_ticks);
}

bool lease_lapsed(const struct lease *lease, const struct lease_owner *self, int64_t now_ms)
{
        return now_ms >= lease->expires_ms || lease_owner_dead(&lease->owner, self);
}
