/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From Documentation/userspace-api/landlock.rst; newer than the headers of the
 * oldest systems that we build on. */
#define FS_REFER (1ULL << 13)     /* version 2 */
#define FS_TRUNCATE (1ULL << 14)  /* version 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* version 5 */
#define FS_VERSION_1 ((1ULL << 13) - 1)
#define NET_TCP 0x3ULL   /* bind and connect, version 4 */
#define SCOPE_ALL 0x3ULL /* abstract sockets and signals, version 6 */

#define READ_EXECUTE \
        (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE)
#define READ_FILE LANDLOCK_ACCESS_FS_READ_FILE

struct ruleset {
        uint64_t fs;
        uint64_t net;
        uint64_t scoped;
};

int landlock_abi(void)
{
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        return abi < 0 ? 0 : (int)abi;
}

static uint64_t fs_rights(int abi)
{
        uint64_t rights = FS_VERSION_1;
        if (abi >= 2)
                rights |= FS_REFER;
        if (abi >= 3)
                rights |= FS_TRUNCATE;
        if (abi >= 5)
                rights |= FS_IOCTL_DEV;
        return rights;
}

static int allow(int ruleset, int fd, uint64_t rights)
{
        struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
        long result = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
        return result < 0 ? -errno : 0;
}

static int allow_bind(int ruleset, const struct jail_bind *bind, uint64_t handled)
{
        uint64_t rights = READ_FILE;
        switch (bind->kind) {
        case JAIL_LINK:
                return 0;
        case JAIL_BIND_FOLDER:
                rights = READ_EXECUTE;
                break;
        case JAIL_BIND_PROGRAM:
                rights = READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE;
                break;
        case JAIL_BIND_DEVICE:
                rights = READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | (FS_IOCTL_DEV & handled);
                break;
        case JAIL_BIND_FILE:
                break;
        }
        int fd = open(bind->source, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        int result = allow(ruleset, fd, rights);
        (void)close(fd);
        return result;
}

int landlock_enter(const struct jail *jail)
{
        struct ruleset attr = {.fs = fs_rights(jail->landlock_abi)};
        size_t size = sizeof attr.fs;
        if (jail->landlock_abi >= 4) {
                attr.net = NET_TCP;
                size = sizeof attr.fs + sizeof attr.net;
        }
        if (jail->landlock_abi >= 6) {
                attr.scoped = SCOPE_ALL;
                size = sizeof attr;
        }
        int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
        if (ruleset < 0)
                return -errno;
        int result = 0;
        for (unsigned i = 0; i < jail->bind_count && result == 0; i++)
                result = allow_bind(ruleset, &jail->binds[i], attr.fs);
        for (unsigned i = 0; i < jail->file_count && result == 0; i++) {
                result = allow(ruleset, jail->files[i], READ_FILE);
                if (result == -EBADFD)
                        result = 0; /* a memfd: on no file system that Landlock watches */
        }
        if (result == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                result = -errno;
        (void)close(ruleset);
        return result;
}
