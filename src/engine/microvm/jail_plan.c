/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/jail.h"

#include "engine/microvm/landlock.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024ULL * 1024)
/* libraries, thread stacks, translated code, device state */
#define VMM_OWN_BYTES (3072ULL * MIB)
#define FILE_SLACK_BYTES (16ULL * MIB)

static int add_bind(
        struct jail *jail, enum jail_bind_kind kind, const char *source, cubby_error *err)
{
        if (jail->bind_count == JAIL_BINDS_MAX || strlen(source) >= JAIL_PATH_MAX)
                return cubby_error_set(err, CUBBY_E_LIMIT, "path '%.80s' is too long", source);
        struct jail_bind *bind = &jail->binds[jail->bind_count++];
        bind->kind = kind;
        memcpy(bind->source, source, strlen(source) + 1);
        return 0;
}

/* A folder, or the link that stands in its place where /lib is part of /usr;
 * nothing when there is neither. */
static int add_folder(struct jail *jail, const char *path, cubby_error *err)
{
        struct stat info;
        if (lstat(path, &info) < 0)
                return errno == ENOENT ? 0 : cubby_error_errno(err, errno, "checking '%s'", path);
        if (!S_ISLNK(info.st_mode))
                return S_ISDIR(info.st_mode) ? add_bind(jail, JAIL_BIND_FOLDER, path, err) : 0;
        if (add_bind(jail, JAIL_LINK, path, err) < 0)
                return -1;
        struct jail_bind *bind = &jail->binds[jail->bind_count - 1];
        ssize_t length = readlink(path, bind->link, sizeof bind->link - 1);
        if (length < 0)
                return cubby_error_errno(err, errno, "reading link '%s'", path);
        bind->link[length] = '\0';
        return 0;
}

static int add_binds(struct jail *jail, const struct jail_spec *spec, cubby_error *err)
{
        static const char *const folders[] = {"/usr/lib", "/usr/lib32", "/usr/lib64", "/lib",
                "/lib64", "/usr/local/lib", "/usr/share/qemu", "/usr/share/seabios",
                "/usr/local/share/qemu"};
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
                if (add_folder(jail, folders[i], err) < 0)
                        return -1;
        if (access("/etc/ld.so.cache", R_OK) == 0 &&
                add_bind(jail, JAIL_BIND_FILE, "/etc/ld.so.cache", err) < 0)
                return -1;
        if (add_bind(jail, JAIL_BIND_PROGRAM, spec->program, err) < 0 ||
                add_bind(jail, JAIL_BIND_DEVICE, "/dev/null", err) < 0 ||
                add_bind(jail, JAIL_BIND_DEVICE, "/dev/urandom", err) < 0)
                return -1;
        return spec->kvm ? add_bind(jail, JAIL_BIND_DEVICE, "/dev/kvm", err) : 0;
}

static void plan_ids(struct jail *jail, const struct jail_spec *spec)
{
        bool root = geteuid() == 0;
        jail->change_uid = root && spec->uid != 0;
        jail->uid = spec->uid;
        struct stat info;
        if (jail->change_uid && spec->kvm && stat("/dev/kvm", &info) == 0)
                jail->extra_group = info.st_gid;
        if (!spec->namespaces)
                return;
        jail->namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
        if (root)
                return;
        jail->user_namespace = true;
        jail->namespaces |= CLONE_NEWUSER;
        (void)snprintf(jail->uid_map, sizeof jail->uid_map, "%u %u 1\n", geteuid(), geteuid());
        (void)snprintf(jail->gid_map, sizeof jail->gid_map, "%u %u 1\n", getegid(), getegid());
}

int jail_plan(const struct jail_spec *spec, struct jail *ret, cubby_error *err)
{
        struct jail jail = {.landlock_abi = landlock_abi(),
                .address_space_bytes = spec->memory_bytes + VMM_OWN_BYTES,
                .file_size_bytes = spec->disk_bytes + FILE_SLACK_BYTES,
                .file_count = spec->file_count,
                .parent_end = spec->parent_end,
                .child_end = spec->child_end};
        if (spec->file_count > JAIL_FILES_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "too many files for a jail");
        for (unsigned i = 0; i < spec->file_count; i++)
                jail.files[i] = spec->files[i];
        plan_ids(&jail, spec);
        if (add_binds(&jail, spec, err) < 0)
                return cubby_error_wrap(err, "planning the VMM's jail");
        *ret = jail;
        return 0;
}

int jail_check(const struct jail *jail, cubby_error *err)
{
        if (jail->namespaces != 0 || jail->change_uid || jail->landlock_abi > 0)
                return 0;
        return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                "this host gives the user %u neither namespaces (kernel.unprivileged_userns_clone, "
                "user.max_user_namespaces) nor Landlock: nothing would keep who breaks out of a "
                "box "
                "from this user's files; run as root, or accept it with CUBBY_WEAK_JAIL=1 in the "
                "environment",
                geteuid());
}

void jail_report(const struct jail *jail, char ret[JAIL_REPORT_MAX])
{
        char landlock[32] = "no Landlock";
        if (jail->landlock_abi > 0)
                (void)snprintf(landlock, sizeof landlock, "Landlock %d", jail->landlock_abi);
        char id[32] = "the caller's uid";
        if (jail->change_uid)
                (void)snprintf(id, sizeof id, "uid %u", jail->uid);
        (void)snprintf(ret, JAIL_REPORT_MAX,
                "VMM jail: %s, %s, %s, no capabilities, limits: rlimits",
                jail->namespaces == 0          ? "no namespaces"
                        : jail->user_namespace ? "namespaces (user, mount, pid, net, ipc, uts)"
                                               : "namespaces (mount, pid, net, ipc, uts)",
                id, landlock);
}
