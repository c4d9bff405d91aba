/* SPDX-License-Identifier: Apache-2.0 */
#include "mounts.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILES_FOLDER "/run/cubby"
#define DRAFTS_FOLDER "/proc/drafts"
#define SAFE (MS_NOSUID | MS_NOEXEC | MS_NODEV)

/* Calls `make` and then gives the parent folder its old times back: a mount point
 * that we add must not make the image's folders look changed. */
static int keep_times(const char *path, int (*make)(const char *path, mode_t mode), mode_t mode)
{
        char parent[PATH_MAX];
        (void)snprintf(parent, sizeof parent, "%s", path);
        char *slash = strrchr(parent, '/');
        slash[slash == parent ? 1 : 0] = '\0';
        struct stat before;
        if (stat(parent, &before) < 0)
                return -1;
        if (make(path, mode) < 0)
                return -1;
        const struct timespec times[2] = {before.st_atim, before.st_mtim};
        (void)utimensat(AT_FDCWD, parent, times, 0);
        return 0;
}

int mounts_folder(const char *path, mode_t mode, cubby_error *err)
{
        if (keep_times(path, mkdir, mode) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "making '%s' in the box", path);
        return 0;
}

int mounts_drafts(const struct log *log)
{
        cubby_error problem = {0};
        int fd = -1;
        if (dir_remove_at(AT_FDCWD, DRAFTS_FOLDER, &problem) == 0 &&
                mounts_folder(DRAFTS_FOLDER, 01777, &problem) == 0) {
                fd = open(DRAFTS_FOLDER, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0)
                        (void)cubby_error_errno(&problem, errno, "opening '%s'", DRAFTS_FOLDER);
        }
        if (fd < 0)
                log_line(log, LOG_WARNING, "files are written beside their place: %s",
                        problem.message);
        return fd;
}

static int mount_new(const char *type, const char *target, unsigned long flags, const char *data,
        cubby_error *err)
{
        if (mounts_folder(target, 0755, err) < 0)
                return -1;
        if (mount(type, target, type, flags, data) < 0)
                return cubby_error_errno(
                        err, errno, "mounting %s on '%s' in the box", type, target);
        return 0;
}

static int make_nodes(cubby_error *err)
{
        static const struct {
                const char *path;
                unsigned major_number, minor_number;
        } nodes[] = {
                {"/dev/null", 1, 3},
                {"/dev/zero", 1, 5},
                {"/dev/full", 1, 7},
                {"/dev/random", 1, 8},
                {"/dev/urandom", 1, 9},
                {"/dev/tty", 5, 0},
        };
        static const struct {
                const char *path;
                const char *target;
        } links[] = {
                {"/dev/fd", "/proc/self/fd"},
                {"/dev/stdin", "/proc/self/fd/0"},
                {"/dev/stdout", "/proc/self/fd/1"},
                {"/dev/stderr", "/proc/self/fd/2"},
                {"/dev/core", "/proc/kcore"},
                {"/dev/ptmx", "pts/ptmx"},
        };
        for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
                if (mknod(nodes[i].path, S_IFCHR | 0666,
                            makedev(nodes[i].major_number, nodes[i].minor_number)) < 0)
                        return cubby_error_errno(err, errno, "making '%s'", nodes[i].path);
        for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
                if (symlink(links[i].target, links[i].path) < 0)
                        return cubby_error_errno(err, errno, "making '%s'", links[i].path);
        return 0;
}

int mounts_devices(cubby_error *err)
{
        if (mount_new("tmpfs", "/dev", MS_NOSUID | MS_STRICTATIME, "mode=755,size=65536k", err) <
                        0 ||
                make_nodes(err) < 0 ||
                mount_new("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC,
                        "newinstance,ptmxmode=0666,mode=0620,gid=5", err) < 0 ||
                mount_new("tmpfs", "/dev/shm", SAFE, "mode=1777,size=65536k", err) < 0 ||
                mount_new("mqueue", "/dev/mqueue", SAFE, NULL, err) < 0 ||
                mount_new("sysfs", "/sys", SAFE | MS_RDONLY, NULL, err) < 0 ||
                mount_new("cgroup2", "/sys/fs/cgroup", SAFE, NULL, err) < 0)
                return -1;
        /* The file system is the agent's too: only this view of it is read-only. */
        if (mount(NULL, "/sys/fs/cgroup", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE, NULL) < 0)
                return cubby_error_errno(err, errno, "write-protecting the box's cgroups");
        return 0;
}

static int bind_read_only(const char *source, const char *target, unsigned long flags)
{
        if (mount(source, target, NULL, MS_BIND, NULL) < 0)
                return -1;
        return mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL);
}

int mounts_masks(cubby_error *err)
{
        static const char *const read_only[] = {
                "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};
        static const char *const hidden[] = {"/proc/acpi", "/proc/asound", "/proc/interrupts",
                "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags",
                "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
                "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"};
        for (size_t i = 0; i < sizeof read_only / sizeof read_only[0]; i++)
                if (bind_read_only(read_only[i], read_only[i], SAFE) < 0 && errno != ENOENT)
                        return cubby_error_errno(err, errno, "write-protecting '%s'", read_only[i]);
        for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
                struct stat info;
                if (stat(hidden[i], &info) < 0)
                        continue; /* this kernel has none */
                int result = S_ISDIR(info.st_mode)
                        ? mount("tmpfs", hidden[i], "tmpfs", SAFE | MS_RDONLY, "size=0,mode=755")
                        : bind_read_only("/dev/null", hidden[i], MS_NOSUID | MS_NOEXEC);
                if (result < 0)
                        return cubby_error_errno(err, errno, "hiding '%s'", hidden[i]);
        }
        return 0;
}

static int make_file(const char *path, mode_t mode)
{
        AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
        return fd < 0 ? -1 : 0;
}

/* A plain file to mount over; a dangling link in its place is replaced. */
static int make_mount_point(const char *path)
{
        struct stat info;
        if (stat(path, &info) == 0) {
                if (S_ISREG(info.st_mode))
                        return 0;
                errno = EINVAL;
                return -1;
        }
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && unlink(path) < 0)
                return -1;
        return keep_times(path, make_file, 0644);
}

static int place_files(const struct log *log, cubby_error *err)
{
        static const struct {
                const char *name;
                const char *place;
                mode_t mode;
                bool make; /* where the image has no such file */
                bool writable;
        } files[] = {
                {FILE_HOSTS, "/etc/hosts", 0644, true, true},
                {FILE_HOSTNAME, "/etc/hostname", 0644, true, true},
                {FILE_RESOLV, "/etc/resolv.conf", 0644, true, true},
                {FILE_MACHINE_ID, "/etc/machine-id", 0444, false, false},
                {FILE_BOOT_ID, "/proc/sys/kernel/random/boot_id", 0444, false, false},
                {FILE_GENERATION, NULL, 0444, false, false},
        };
        (void)mounts_folder("/etc", 0755, NULL);
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
                char path[64];
                (void)snprintf(path, sizeof path, FILES_FOLDER "/%s", files[i].name);
                if (make_file(path, files[i].mode) < 0)
                        return cubby_error_errno(err, errno, "making '%s'", path);
                const char *place = files[i].place;
                struct stat info;
                if (place == NULL || (!files[i].make && stat(place, &info) < 0))
                        continue;
                int result = files[i].make ? make_mount_point(place) : 0;
                if (result == 0)
                        result = files[i].writable ? mount(path, place, NULL, MS_BIND, NULL)
                                                   : bind_read_only(path, place, SAFE);
                if (result < 0)
                        log_line(log, LOG_WARNING, "the image's '%s' stays as it is: %s", place,
                                strerror(errno));
        }
        return 0;
}

int mounts_files(const struct log *log, cubby_error *err)
{
        if (mounts_folder("/run", 0755, err) < 0 || mounts_folder(FILES_FOLDER, 0755, err) < 0)
                return -1;
        if (mount("tmpfs", FILES_FOLDER, "tmpfs", SAFE, "mode=755,size=1024k") < 0)
                return cubby_error_errno(err, errno, "mounting '%s'", FILES_FOLDER);
        /* A second, writable mount that has no place in the box's tree. */
        AUTO_FD int fd = (int)syscall(
                SYS_open_tree, AT_FDCWD, FILES_FOLDER, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening '%s'", FILES_FOLDER);
        if (place_files(log, err) < 0)
                return -1;
        if (mount(NULL, FILES_FOLDER, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE, NULL) < 0)
                return cubby_error_errno(err, errno, "write-protecting '%s'", FILES_FOLDER);
        return take_fd(&fd);
}
