/* SPDX-License-Identifier: Apache-2.0 */
#include "workload.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "boot.h"
#include "mounts.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What Docker leaves to root in a container, without MKNOD. */
static bool may_keep(int capability)
{
        switch (capability) {
        case CAP_CHOWN:
        case CAP_DAC_OVERRIDE:
        case CAP_FSETID:
        case CAP_FOWNER:
        case CAP_NET_RAW:
        case CAP_SETGID:
        case CAP_SETUID:
        case CAP_SETFCAP:
        case CAP_SETPCAP:
        case CAP_NET_BIND_SERVICE:
        case CAP_SYS_CHROOT:
        case CAP_KILL:
        case CAP_AUDIT_WRITE:
                return true;
        default:
                return false;
        }
}

/* The set is this thread's alone and is inherited by what it starts. */
static int bound_capabilities(cubby_error *err)
{
        for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
                if (!may_keep(capability) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
                        return cubby_error_errno(err, errno, "dropping capability %d", capability);
        return 0;
}

/*
 * The overlay becomes this namespace's root. The initramfs cannot be left with
 * pivot_root; it stays below as an empty file system that nothing can reach,
 * because ".." ends at the mount that covers it. What else the agent mounted is
 * taken out of this namespace.
 */
static int enter_root(cubby_error *err)
{
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return cubby_error_errno(err, errno, "making mounts private");
        static const char *const leave[] = {"/dev", "/proc", "/sys", BOOT_LOWER, BOOT_UPPER};
        for (size_t i = 0; i < sizeof leave / sizeof leave[0]; i++)
                if (umount2(leave[i], MNT_DETACH) < 0)
                        return cubby_error_errno(err, errno, "leaving '%s'", leave[i]);
        if (chdir(BOOT_BOX) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
                chdir("/") < 0)
                return cubby_error_errno(err, errno, "entering the box's root");
        /* Device nodes of the image are there to be seen, not to be opened. */
        if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL) < 0)
                return cubby_error_errno(err, errno, "disabling device nodes");
        return 0;
}

/*
 * The workload's PID 1. It mounts /proc, which shows the pid namespace of who
 * mounts it, and then only exists: children that lose their parent become its
 * own, and the kernel reaps them by itself since it ignores SIGCHLD. Signals from
 * inside do nothing to it.
 */
static _Noreturn void run_init(int report_fd)
{
        int result = mount("proc", "/proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL) < 0
                ? errno
                : 0;
        if (result == 0 && text_write_at(AT_FDCWD, "/proc/self/oom_score_adj", "-1000") < 0)
                result = errno;
        (void)prctl(PR_SET_NAME, "cubby-init", 0, 0, 0);
        (void)signal(SIGCHLD, SIG_IGN);
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        if (syscall(SYS_capset, &header, none) < 0 && result == 0)
                result = errno;
        (void)write_whole(report_fd, &result, sizeof result);
        (void)syscall(SYS_close_range, 0U, ~0U, 0U);
        for (;;)
                (void)pause();
}

static int start_init(struct workload *workload, cubby_error *err)
{
        int ends[2];
        if (unshare(CLONE_NEWPID) < 0 || pipe2(ends, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "making the pid namespace");
        AUTO_FD int read_end = ends[0];
        AUTO_FD int write_end = ends[1];
        pid_t pid = fork();
        if (pid == 0)
                run_init(write_end);
        if (pid < 0)
                return cubby_error_errno(err, errno, "starting the workload's init");
        close_quietly(take_fd(&write_end));
        int result = 0;
        if (read_whole(read_end, &result, sizeof result) != sizeof result)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "the workload's init died");
        if (result != 0)
                return cubby_error_errno(err, result, "preparing the workload's init");
        workload->init_pid = pid;
        workload->init_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (workload->init_pidfd < 0)
                return cubby_error_errno(err, errno, "watching the workload's init");
        return 0;
}

int workload_enter(
        struct workload *ret, struct cgroups *cgroups, const struct log *log, cubby_error *err)
{
        struct workload workload = {.init_pid = -1,
                .init_pidfd = -1,
                .proc_fd = -1,
                .files_fd = -1,
                .random_fd = -1,
                .mounts_fd = -1,
                .root_fd = -1,
                .drafts_fd = -1};
        workload.random_fd = open("/dev/random", O_RDWR | O_CLOEXEC);
        if (workload.random_fd < 0)
                return cubby_error_errno(err, errno, "opening /dev/random");
        if (unshare(CLONE_FS | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP) < 0)
                return cubby_error_errno(err, errno, "making the workload's namespaces");
        workload.mounts_fd = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
        if (workload.mounts_fd < 0)
                return cubby_error_errno(err, errno, "opening the workload's namespace");
        if (cgroups_finish(cgroups, err) < 0 || enter_root(err) < 0 ||
                mounts_folder("/proc", 0555, err) < 0 || bound_capabilities(err) < 0)
                return -1;
        workload.drafts_fd = mounts_drafts(log);
        if (start_init(&workload, err) < 0 || mounts_devices(err) < 0 || mounts_masks(err) < 0)
                return -1;
        workload.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        workload.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (workload.root_fd < 0 || workload.proc_fd < 0)
                return cubby_error_errno(err, errno, "opening the box's /proc");
        workload.files_fd = mounts_files(log, err);
        if (workload.files_fd < 0)
                return -1;
        (void)umask(0022);
        *ret = workload;
        return 0;
}
