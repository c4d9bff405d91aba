/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/jail.h"

#include "engine/microvm/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All of this runs between fork and exec: system calls and the stack only. */

/* Where the new root is put together: a folder that every system has and that
 * nothing is taken from afterwards. */
#define NEW_ROOT "/proc"
#define DESCRIPTORS_MAX 128U
#define CAPABILITIES_MAX 64

static int fail(const char **ret_step, const char *step)
{
        int saved = errno;
        *ret_step = step;
        return saved == 0 ? -EIO : -saved;
}

static int write_file(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        ssize_t written = write(fd, text, strlen(text));
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return written < 0 ? -1 : 0;
}

static int enter_user_namespace(const struct jail *jail)
{
        if (write_file("/proc/self/setgroups", "deny") < 0 ||
                write_file("/proc/self/uid_map", jail->uid_map) < 0)
                return -1;
        return write_file("/proc/self/gid_map", jail->gid_map);
}

/* Joins the new root and a path; the plan keeps paths short enough. */
static void inside(const char *path, char ret[JAIL_PATH_MAX + sizeof NEW_ROOT])
{
        memcpy(ret, NEW_ROOT, sizeof NEW_ROOT - 1);
        memcpy(ret + sizeof NEW_ROOT - 1, path, strlen(path) + 1);
}

static int make_parents(char *path)
{
        for (char *at = path + sizeof NEW_ROOT; *at != '\0'; at++) {
                if (*at != '/')
                        continue;
                *at = '\0';
                int result = mkdir(path, 0755);
                *at = '/';
                if (result < 0 && errno != EEXIST)
                        return -1;
        }
        return 0;
}

static int place(const struct jail_bind *bind)
{
        char target[JAIL_PATH_MAX + sizeof NEW_ROOT];
        inside(bind->source, target);
        if (make_parents(target) < 0)
                return -1;
        if (bind->kind == JAIL_LINK)
                return symlink(bind->link, target);
        if (bind->kind == JAIL_BIND_FOLDER) {
                if (mkdir(target, 0755) < 0 && errno != EEXIST)
                        return -1;
        } else if (mknod(target, S_IFREG | 0444, 0) < 0 && errno != EEXIST) {
                return -1;
        }
        if (mount(bind->source, target, NULL, MS_BIND | MS_REC, NULL) < 0)
                return -1;
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
        if (bind->kind != JAIL_BIND_DEVICE)
                attr.attr_set |= MOUNT_ATTR_NODEV;
        if (bind->kind == JAIL_BIND_FILE)
                attr.attr_set |= MOUNT_ATTR_NOEXEC;
        return mount_setattr(AT_FDCWD, target, AT_RECURSIVE, &attr, sizeof attr);
}

static int enter_mounts(const struct jail *jail, const char **ret_step)
{
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return fail(ret_step, "cutting off the mounts");
        if (mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                    "mode=0755,size=64k,nr_inodes=128") < 0)
                return fail(ret_step, "mounting the jail's root");
        for (unsigned i = 0; i < jail->bind_count; i++)
                if (place(&jail->binds[i]) < 0)
                        return fail(ret_step, "placing a file in the jail");
        if (mkdir(NEW_ROOT "/proc", 0555) < 0 ||
                mount("proc", NEW_ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                        "subset=pid") < 0)
                return fail(ret_step, "mounting the jail's /proc");
        if (chdir(NEW_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
                umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                return fail(ret_step, "entering the jail's root");
        if (mount(NULL, "/", NULL,
                    MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                return fail(ret_step, "closing the jail's root");
        return 0;
}

/* Lowers only: raising needs a capability that even root may lack. */
static int set_limit(int resource, rlim_t value)
{
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
                return -1;
        if (limit.rlim_max > value)
                limit.rlim_max = value;
        limit.rlim_cur = limit.rlim_max;
        return setrlimit((__rlimit_resource_t)resource, &limit);
}

static int enter_limits(const struct jail *jail, const char **ret_step)
{
        if (set_limit(RLIMIT_CORE, 0) < 0 || set_limit(RLIMIT_NOFILE, DESCRIPTORS_MAX) < 0 ||
                set_limit(RLIMIT_AS, jail->address_space_bytes) < 0 ||
                set_limit(RLIMIT_FSIZE, jail->file_size_bytes) < 0 ||
                set_limit(RLIMIT_MEMLOCK, 0) < 0)
                return fail(ret_step, "setting limits");
        return 0;
}

static int drop_capabilities(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        return (int)syscall(SYS_capset, &header, none);
}

static int enter_ids(const struct jail *jail, const char **ret_step)
{
        /* fails where the caller has no capabilities anyway */
        for (int capability = 0; capability < CAPABILITIES_MAX; capability++)
                if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
                        break;
        if (jail->change_uid) {
                gid_t group = jail->extra_group;
                if (setgroups(group == 0 ? 0 : 1, &group) < 0 ||
                        setresgid(jail->uid, jail->uid, jail->uid) < 0 ||
                        setresuid(jail->uid, jail->uid, jail->uid) < 0)
                        return fail(ret_step, "changing the user");
        }
        if (drop_capabilities() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return fail(ret_step, "dropping privileges");
        return 0;
}

/* To die with the parent. The signal is lost if the parent is dead already, and
 * getppid() tells nothing in a pid namespace: so a socket is asked. */
static int bind_to_parent(const struct jail *jail, const char **ret_step)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
                return fail(ret_step, "binding the VMM's life");
        (void)close(jail->parent_end);
        struct pollfd poll_fd = {.fd = jail->child_end, .events = POLLIN};
        if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & POLLHUP) != 0) {
                errno = ESRCH;
                return fail(ret_step, "finding the parent");
        }
        return 0;
}

int jail_enter(void *data, const char **ret_step)
{
        const struct jail *jail = data;
        (void)umask(077);
        if (jail->user_namespace && enter_user_namespace(jail) < 0)
                return fail(ret_step, "mapping the user");
        int result = 0;
        if (jail->namespaces != 0) {
                (void)umask(022);
                result = enter_mounts(jail, ret_step);
                (void)umask(077);
                if (result == 0 && sethostname("box", 3) < 0)
                        result = fail(ret_step, "naming the jail");
        }
        if (result == 0)
                result = enter_limits(jail, ret_step);
        if (result == 0)
                result = enter_ids(jail, ret_step);
        if (result == 0 && jail->landlock_abi > 0) {
                result = landlock_enter(jail);
                if (result < 0)
                        *ret_step = "entering Landlock";
        }
        if (result == 0)
                result = bind_to_parent(jail, ret_step);
        return result;
}
