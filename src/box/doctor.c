/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "engine/microvm/landlock.h"
#include "engine/microvm/probe.h"
#include "engine/microvm/program.h"
#include "kernel/store.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PROGRAM_MS 10000
#define TEXT_MAX 512
#define SPACE_LOW (2ULL << 30)
#define CGROUP2_MAGIC 0x63677270

enum verdict { GOOD, WARNING, BAD };

struct check {
        enum verdict verdict;
        char found[TEXT_MAX];
        char advice[TEXT_MAX];
};

__attribute__((format(printf, 3, 4))) static void found(
        struct check *check, enum verdict verdict, const char *format, ...)
{
        va_list args;
        va_start(args, format);
        (void)vsnprintf(check->found, sizeof check->found, format, args);
        va_end(args);
        check->verdict = verdict;
}

static void advise(struct check *check, const char *text)
{
        (void)snprintf(check->advice, sizeof check->advice, "%s", text);
}

static void check_qemu(cubby *host, struct check *check)
{
        AUTO_FREE char *path = NULL;
        cubby_error problem = {0};
        if (program_resolve(NULL, &path, &problem) < 0) {
                found(check, BAD, "%s", problem.message);
                advise(check, "run: apt-get install qemu-system-x86");
                return;
        }
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, 64U << 10);
        const char *const argv[] = {path, "--version", NULL};
        const char *line = NULL;
        if (spawn_run(argv, &text, deadline_after_ms(PROGRAM_MS), &problem) == 0)
                line = buffer_text(&text);
        if (line == NULL) {
                found(check, BAD, "%s cannot be run: %.300s", path, problem.message);
                advise(check, "reinstall the package qemu-system-x86");
                return;
        }
        found(check, GOOD, "%.*s at %s", (int)strcspn(line, "\n"), line, path);
}

static void check_kvm(cubby *host, struct check *check)
{
        struct probe_result result = probe_kvm();
        found(check, result.support == KVM_SUPPORT_HARDWARE ? GOOD : WARNING, "%s", result.text);
        if (result.support != KVM_SUPPORT_HARDWARE)
                advise(check,
                        "boxes are emulated: slower, and the process jail is the boundary; use a "
                        "host with hardware virtualisation and give this user access to /dev/kvm");
}

static void check_kernel(cubby *host, struct check *check)
{
        char version[KERNEL_VERSION_MAX];
        if (store_newest(host->home, version, NULL) == 0) {
                found(check, GOOD, "guest kernel %s is unpacked", version);
                return;
        }
        if (program_exists("apt-get")) {
                found(check, WARNING, "no guest kernel is unpacked yet");
                advise(check, "run: cubby kernel ensure (the first box does it too)");
                return;
        }
        found(check, BAD, "no guest kernel is unpacked, and there is no apt-get to fetch one");
        advise(check, "run: cubby kernel ensure FILE with a vmlinuz or a .deb package");
}

static void check_mke2fs(cubby *host, struct check *check)
{
        const char *program = box_find_mke2fs();
        if (program != NULL) {
                found(check, GOOD, "%s makes the writable disks", program);
                return;
        }
        found(check, BAD, "mke2fs is missing: no writable disk can be made");
        advise(check, "run: apt-get install e2fsprogs");
}

static void check_programs(cubby *host, struct check *check)
{
        AUTO_FREE char *shim = NULL;
        AUTO_FREE char *agent = NULL;
        AUTO_FREE char *keeper = NULL;
        cubby_error problem = {0};
        if (box_find_program("cubby-shim", &shim, &problem) < 0 ||
                box_find_program("cubby-agent", &agent, &problem) < 0) {
                found(check, BAD, "%s", problem.message);
                advise(check, "install Cubby wholly: make install");
                return;
        }
        if (box_find_program("cubby-keeper", &keeper, &problem) < 0) {
                found(check, WARNING, "%s", problem.message);
                advise(check, "templates are not made by themselves; run: make install");
                return;
        }
        found(check, GOOD, "%.150s, %.150s and %.150s", shim, keeper, agent);
}

/* In a child: whether this user may make a user namespace. */
static int try_namespace(void *data, const char **ret_step)
{
        *ret_step = "making a user namespace";
        return unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
}

static void check_namespaces(cubby *host, struct check *check)
{
        const char *const argv[] = {"true", NULL};
        const struct spawn_options options = {.argv = argv, .before_exec = try_namespace};
        struct child child = CHILD_NONE;
        cubby_error problem = {0};
        if (spawn(&options, &child, &problem) == 0) {
                child_kill(&child);
                found(check, GOOD, "user namespaces can be made");
                return;
        }
        found(check, WARNING, "%s", problem.message);
        advise(check,
                geteuid() == 0 ? "root does not need them"
                               : "the jail of a box has fewer layers; see "
                                 "kernel.unprivileged_userns_clone");
}

static void check_landlock(cubby *host, struct check *check)
{
        int version = landlock_abi();
        if (version > 0) {
                found(check, GOOD, "Landlock, version %d of its interface", version);
                return;
        }
        found(check, WARNING, "Landlock is not available: %s", strerrorname_np(errno));
        advise(check, "the jail of a box has one layer less; kernels from 5.13 offer it");
}

static void check_cgroups(cubby *host, struct check *check)
{
        struct statfs info;
        if (statfs("/sys/fs/cgroup", &info) == 0 && info.f_type == CGROUP2_MAGIC &&
                access("/sys/fs/cgroup/cgroup.procs", W_OK) == 0) {
                found(check, GOOD, "cgroup v2, writable");
                return;
        }
        found(check, WARNING, "no writable cgroup v2 tree at /sys/fs/cgroup");
        advise(check, "boxes have no host-side limit of their own beyond their machine's size");
}

static void check_space(cubby *host, struct check *check)
{
        struct statvfs info;
        if (fstatvfs(home_folder(host->home, HOME_ROOT), &info) < 0) {
                found(check, WARNING, "the free space of the home is unknown: %s",
                        strerrorname_np(errno));
                return;
        }
        uint64_t available = (uint64_t)info.f_bavail * info.f_frsize;
        found(check, available < SPACE_LOW ? WARNING : GOOD, "%llu MiB free in %.300s",
                (unsigned long long)(available >> 20), home_path(host->home));
        if (available < SPACE_LOW)
                advise(check, "free some space: images and disks need it (cubby prune may help)");
}

static void check_home(cubby *host, struct check *check)
{
        struct stat info;
        if (fstat(home_folder(host->home, HOME_ROOT), &info) < 0) {
                found(check, BAD, "the home cannot be read: %s", strerrorname_np(errno));
                return;
        }
        bool private = (info.st_mode & 0077) == 0;
        found(check, private ? GOOD : WARNING, "%.300s, mode %04o", home_path(host->home),
                info.st_mode & 07777U);
        if (!private)
                advise(check, "others can look into the home; run: chmod 700 on it");
}

static const struct {
        const char *name;
        void (*run)(cubby *host, struct check *check);
} checks[] = {
        {"qemu", check_qemu},
        {"kvm", check_kvm},
        {"kernel", check_kernel},
        {"programs", check_programs},
        {"mke2fs", check_mke2fs},
        {"namespaces", check_namespaces},
        {"landlock", check_landlock},
        {"cgroups", check_cgroups},
        {"home", check_home},
        {"space", check_space},
};

/* Paths may be any bytes, and a shortened text may end within a character. */
static json_t *text_json(char *text)
{
        json_t *value = json_string(text);
        for (char *at = text; value == NULL && *at != '\0'; at++)
                if ((unsigned char)*at >= 0x80)
                        *at = '?';
        return value != NULL ? value : json_string(text);
}

static json_t *check_json(const char *name, struct check *check)
{
        static const char *const words[] = {[GOOD] = "ok", [WARNING] = "warning", [BAD] = "error"};
        return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "status", words[check->verdict],
                "found", text_json(check->found), "advice", text_json(check->advice));
}

int box_doctor(cubby *host, char **ret_json, cubby_error *err)
{
        json_t *list = json_array();
        for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
                struct check check = {0};
                checks[i].run(host, &check);
                if (json_array_append_new(list, check_json(checks[i].name, &check)) < 0) {
                        json_decref(list);
                        return cubby_error_no_memory(err);
                }
        }
        json_t *root = json_pack("{s:o}", "checks", list);
        char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        if (text == NULL)
                return cubby_error_no_memory(err);
        *ret_json = text;
        return 0;
}
