/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MKE2FS_MS 120000
#define JOURNAL_SMALL_MIB "4"
#define JOURNAL_MIB "16"
#define JOURNAL_FROM (1ULL << 30) /* disks from this size get the larger journal */
#define EXT4_MAGIC_AT 1080
#define DRAFT_NAME ".disk" /* until it is whole */

/* The system's folders are often missing in an ordinary user's PATH. */
const char *box_find_mke2fs(void)
{
        static const char *const places[] = {"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"};
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
                if (program_exists(places[i]))
                        return places[i];
        return NULL;
}

/* The journal stays: a killed machine must find its files again at the next start. */
static int run_mke2fs(const char *path, uint64_t size_bytes, cubby_error *err)
{
        const char *program = box_find_mke2fs();
        if (program == NULL)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND,
                        "mke2fs is not installed; run: apt-get install e2fsprogs");
        char size[32];
        char journal[32];
        (void)snprintf(size, sizeof size, "%" PRIu64 "k", size_bytes / 1024);
        (void)snprintf(journal, sizeof journal, "size=%s",
                size_bytes >= JOURNAL_FROM ? JOURNAL_MIB : JOURNAL_SMALL_MIB);
        /* Room to grow in place is never used, and would be copied for every box. The file is
         * all holes, so the tables need no zeroes, now or by a thread in the guest. */
        const char *const argv[] = {program, "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0",
                "-L", "cubby", "-J", journal, "-O", "^resize_inode", "-E",
                "root_owner=0:0,nodiscard,assume_storage_prezeroed=1", path, size, NULL};
        return spawn_run(argv, NULL, deadline_after_ms(MKE2FS_MS), err);
}

static bool looks_whole(int fd, uint64_t size_bytes)
{
        struct stat info;
        uint8_t magic[2];
        return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                (uint64_t)info.st_size == size_bytes &&
                pread(fd, magic, sizeof magic, EXT4_MAGIC_AT) == (ssize_t)sizeof magic &&
                load_u16(magic) == 0xef53;
}

/* Makes the empty disk of this size once, for all boxes to copy. */
static int make_blank(struct home *home, const char *name, uint64_t size_bytes, cubby_error *err)
{
        char folder[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(home, folder, &dir, &lock, err) < 0)
                return -1;
        AUTO_FD int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || fchmod(fd, 0600) < 0)
                return cubby_error_errno(err, errno, "making '%s'", name);
        AUTO_FREE char *path = NULL;
        if (asprintf(&path, "%s/tmp/%s/%s", home_path(home), folder, name) < 0)
                return cubby_error_no_memory(err);
        int result = ftruncate(fd, (off_t)size_bytes) < 0
                ? cubby_error_errno(err, errno, "making a disk of %" PRIu64 " bytes", size_bytes)
                : run_mke2fs(path, size_bytes, err);
        if (result == 0 && !looks_whole(fd, size_bytes))
                result = cubby_error_set(err, CUBBY_E_SYSTEM,
                        "mke2fs made no disk of %" PRIu64 " bytes", size_bytes);
        if (result == 0 &&
                (fsync(fd) < 0 || renameat(dir, name, home_folder(home, HOME_TEMPLATES), name) < 0))
                result = cubby_error_errno(err, errno, "keeping '%s'", name);
        (void)dir_remove_at(home_folder(home, HOME_TMP), folder, NULL);
        return result;
}

static int open_blank(struct home *home, const char *name, uint64_t size_bytes, int *ret_fd)
{
        AUTO_FD int fd =
                openat(home_folder(home, HOME_TEMPLATES), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || !looks_whole(fd, size_bytes))
                return -1;
        *ret_fd = take_fd(&fd);
        return 0;
}

/* The empty disk of this size, made when it is not there yet. */
static int take_blank(struct home *home, uint64_t size_bytes, int *ret_fd, cubby_error *err)
{
        char name[64];
        (void)snprintf(name, sizeof name, "blank-%" PRIu64 ".ext4", size_bytes);
        if (open_blank(home, name, size_bytes, ret_fd) == 0)
                return 0;
        if (make_blank(home, name, size_bytes, err) < 0)
                return -1;
        if (open_blank(home, name, size_bytes, ret_fd) < 0)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the empty disk '%s' cannot be used", name);
        return 0;
}

static int copy_disk(int from_fd, uint32_t slot, int dir_fd, cubby_error *err)
{
        /* the folder is the box's: what was planted there goes, it is never written to */
        (void)unlinkat(dir_fd, DRAFT_NAME, 0);
        AUTO_FD int disk = openat(
                dir_fd, DRAFT_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        uid_t uid = BOX_UID_FIRST + slot;
        if (disk < 0 || fchmod(disk, 0600) < 0)
                return cubby_error_errno(err, errno, "making '%s'", DRAFT_NAME);
        if (geteuid() == 0 && fchown(disk, uid, uid) < 0)
                return cubby_error_errno(err, errno,
                        "giving it to uid %u (is it mapped in this user namespace?)", uid);
        if (file_copy_sparse(from_fd, disk, err) < 0)
                return -1;
        if (renameat(dir_fd, DRAFT_NAME, dir_fd, BOX_DISK_NAME) < 0)
                return cubby_error_errno(err, errno, "placing it");
        return 0;
}

int box_disk_place(
        cubby *host, const struct box_config *config, int dir_fd, int from_fd, cubby_error *err)
{
        AUTO_FD int blank = -1;
        struct stat info;
        if (from_fd < 0 && fstatat(dir_fd, BOX_DISK_NAME, &info, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        box_progress(host, "disk", config->name, 0, 0);
        if (from_fd < 0 && take_blank(host->home, config->disk_bytes, &blank, err) < 0)
                return cubby_error_wrap(err, "making the writable disk");
        if (copy_disk(from_fd < 0 ? blank : from_fd, config->slot, dir_fd, err) < 0) {
                (void)unlinkat(dir_fd, DRAFT_NAME, 0);
                return cubby_error_wrap(err, "making the writable disk");
        }
        return 0;
}
