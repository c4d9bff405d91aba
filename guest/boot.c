/* SPDX-License-Identifier: Apache-2.0 */
#include "boot.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "text.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEVICE_TIMEOUT_MS 10000
#define MODULE_LIST_MAX 65536U
#define AGENT_FILES_MAX 8192

static int mount_at(const char *source, const char *target, const char *type, unsigned long flags,
        const char *data, cubby_error *err)
{
        if (mkdir(target, 0755) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "making '%s'", target);
        if (mount(source, target, type, flags, data) < 0 && errno != EBUSY)
                return cubby_error_errno(err, errno, "mounting %s on '%s'", type, target);
        return 0;
}

int boot_file_systems(cubby_error *err)
{
        const unsigned long safe = MS_NOSUID | MS_NOEXEC | MS_NODEV;
        if (mount_at("proc", "/proc", "proc", safe, NULL, err) < 0 ||
                mount_at("sysfs", "/sys", "sysfs", safe, NULL, err) < 0 ||
                mount_at("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755", err) < 0 ||
                mount_at("cgroup2", BOOT_CGROUP, "cgroup2", safe, NULL, err) < 0)
                return -1;
        return 0;
}

static int load_module(const char *name, cubby_error *err)
{
        char path[300];
        int length = snprintf(path, sizeof path, "/modules/%s", name);
        if (length < 0 || (size_t)length >= sizeof path || strchr(name, '/') != NULL)
                return cubby_error_set(err, CUBBY_E_INVALID, "bad module name '%.64s'", name);
        AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening module '%s'", name);
        if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "loading module '%s'", name);
        /* The initramfs lives in memory: give it back. */
        (void)unlink(path);
        return 0;
}

int boot_modules(cubby_error *err)
{
        AUTO_BUFFER struct buffer list = {.maximum = MODULE_LIST_MAX};
        if (file_read_at(AT_FDCWD, "/modules/order", &list, err) < 0)
                return -1;
        if (buffer_text(&list) == NULL)
                return cubby_error_no_memory(err);
        char *line = (char *)list.data;
        while (line != NULL && *line != '\0') {
                char *end = strchr(line, '\n');
                if (end != NULL)
                        *end++ = '\0';
                if (*line != '\0' && load_module(line, err) < 0)
                        return -1;
                line = end;
        }
        (void)unlink("/modules/order");
        (void)rmdir("/modules");
        (void)unlink("/init");
        return 0;
}

static void pause_ms(long ms)
{
        struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        (void)nanosleep(&time, NULL);
}

static int wait_for(const char *path, int64_t deadline, cubby_error *err)
{
        struct stat info;
        while (stat(path, &info) < 0) {
                if (errno != ENOENT)
                        return cubby_error_errno(err, errno, "looking at '%s'", path);
                if (deadline_left_ms(deadline) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "device '%s' did not appear", path);
                pause_ms(2);
        }
        return 0;
}

/* A new upper folder stands for the image's root folder and has to look like it. */
static int make_upper(cubby_error *err)
{
        struct stat root;
        if (stat(BOOT_LOWER, &root) < 0)
                return cubby_error_errno(err, errno, "looking at the image's root");
        if (mkdir(BOOT_UPPER "/work", 0700) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "making the overlay's work folder");
        if (mkdir(BOOT_UPPER "/upper", 0700) < 0)
                return errno == EEXIST
                        ? 0
                        : cubby_error_errno(err, errno, "making the overlay's upper folder");
        const struct timespec times[2] = {root.st_atim, root.st_mtim};
        if (chown(BOOT_UPPER "/upper", root.st_uid, root.st_gid) < 0 ||
                chmod(BOOT_UPPER "/upper", root.st_mode & 07777) < 0 ||
                utimensat(AT_FDCWD, BOOT_UPPER "/upper", times, 0) < 0)
                return cubby_error_errno(err, errno, "preparing the overlay's upper folder");
        return 0;
}

int boot_root_disks(cubby_error *err)
{
        int64_t deadline = deadline_after_ms(DEVICE_TIMEOUT_MS);
        if (wait_for("/dev/vda", deadline, err) < 0 || wait_for("/dev/vdb", deadline, err) < 0)
                return -1;
        if (mount_at("/dev/vda", BOOT_LOWER, "erofs", MS_RDONLY | MS_NODEV, NULL, err) < 0)
                return -1;
        /* noinit_itable: no background writer in a machine that is to be quiet */
        if (mount_at("/dev/vdb", BOOT_UPPER, "ext4", MS_NODEV, "noinit_itable", err) < 0)
                return -1;
        if (make_upper(err) < 0)
                return -1;
        return mount_at("overlay", BOOT_BOX, "overlay", MS_NODEV,
                "lowerdir=" BOOT_LOWER ",upperdir=" BOOT_UPPER "/upper,workdir=" BOOT_UPPER
                "/work,redirect_dir=on",
                err);
}

int boot_loopback(cubby_error *err)
{
        AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = {.ifr_name = "lo"};
        if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
                return cubby_error_errno(err, errno, "looking at the loopback interface");
        request.ifr_flags = (short)(request.ifr_flags | IFF_UP | IFF_RUNNING);
        if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                return cubby_error_errno(err, errno, "bringing the loopback interface up");
        return 0;
}

int boot_hardening(cubby_error *err)
{
        static const struct {
                const char *path;
                const char *value;
        } settings[] = {
                {"/proc/sys/kernel/kptr_restrict", "2"},
                {"/proc/sys/kernel/dmesg_restrict", "1"},
                {"/proc/sys/kernel/unprivileged_bpf_disabled", "1"},
                {"/proc/sys/kernel/perf_event_paranoid", "3"},
                {"/proc/sys/kernel/kexec_load_disabled", "1"},
                {"/proc/sys/kernel/sysrq", "0"},
                {"/proc/sys/kernel/core_pattern", "core"},
                /* nothing that wakes a quiet machine twice a second */
                {"/proc/sys/vm/compaction_proactiveness", "0"},
                {"/proc/sys/fs/suid_dumpable", "0"},
                {"/proc/sys/fs/protected_symlinks", "1"},
                {"/proc/sys/fs/protected_hardlinks", "1"},
                /* as Docker, whose system call filter forbids them */
                {"/proc/sys/user/max_user_namespaces", "0"},
                {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
                {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
                {"/proc/sys/kernel/modules_disabled", "1"},
        };
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
                if (text_write_at(AT_FDCWD, settings[i].path, settings[i].value) < 0 &&
                        errno != ENOENT) /* a kernel without the feature has no such file */
                        return cubby_error_errno(err, errno, "setting '%s'", settings[i].path);
        return 0;
}

int boot_limits(cubby_error *err)
{
        const struct rlimit files = {.rlim_cur = AGENT_FILES_MAX, .rlim_max = 524288};
        const struct rlimit no_core = {0};
        if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0)
                return cubby_error_errno(err, errno, "setting resource limits");
        /*
         * A new process shares this memory until it calls exec: nobody in the box
         * may attach to it then. The kernel never picks the machine's PID 1 when
         * memory runs out, so no oom score has to be set (and reset in children).
         */
        if (prctl(PR_SET_DUMPABLE, 0) < 0)
                return cubby_error_errno(err, errno, "making the agent undumpable");
        if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
                return cubby_error_errno(err, errno, "locking the agent's memory");
        (void)umask(0);
        return 0;
}

/* Returns the descriptor, -1 for failure, -2 when the port is not there yet. */
static int find_port(cubby_error *err)
{
        AUTO_DIR DIR *ports = opendir("/sys/class/virtio-ports");
        if (ports == NULL)
                return -2;
        const struct dirent *entry;
        while ((entry = readdir(ports)) != NULL) {
                char path[320];
                char name[64];
                if (entry->d_name[0] == '.')
                        continue;
                (void)snprintf(path, sizeof path, "%s/name", entry->d_name);
                if (text_read_at(dirfd(ports), path, name, sizeof name) < 0)
                        continue;
                name[strcspn(name, "\n")] = '\0';
                if (strcmp(name, WIRE_PORT_NAME) != 0)
                        continue;
                (void)snprintf(path, sizeof path, "/dev/%s", entry->d_name);
                (void)chmod(path, 0600);
                /* The driver lets one process open a port: nobody else can from now on. */
                int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
                if (fd < 0)
                        return cubby_error_errno(err, errno, "opening '%s'", path);
                return fd;
        }
        return -2;
}

int boot_port(cubby_error *err)
{
        int64_t deadline = deadline_after_ms(DEVICE_TIMEOUT_MS);
        for (;;) {
                int fd = find_port(err);
                if (fd != -2)
                        return fd;
                if (deadline_left_ms(deadline) == 0)
                        return cubby_error_set(err, CUBBY_E_TIMEOUT,
                                "no virtio-serial port is named '%s'", WIRE_PORT_NAME);
                pause_ms(2);
        }
}
