/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/store.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "kernel/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGEST_IN_NAME 8
#define MANIFEST_SIZE_MAX (16U * 1024)

static int make_folder(int dir_fd, const char *name, cubby_error *err)
{
        int fd = dir_make_at(dir_fd, name, 0700) < 0
                ? -1
                : openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making folder '%s'", name);
        return fd;
}

int draft_begin(struct home *home, struct store_draft *ret, cubby_error *err)
{
        struct store_draft draft = {.home = home,
                .lock_fd = -1,
                .work_fd = -1,
                .kernel_fd = -1,
                .modules_fd = -1,
                .vmlinux_fd = -1};
        if (home_make_temporary(home, draft.name, &draft.work_fd, &draft.lock_fd, err) < 0)
                return -1;
        draft.kernel_fd = make_folder(draft.work_fd, "kernel", err);
        if (draft.kernel_fd >= 0)
                draft.modules_fd = make_folder(draft.kernel_fd, "modules", err);
        if (draft.modules_fd >= 0) {
                draft.vmlinux_fd = openat(draft.kernel_fd, "vmlinux",
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
                if (draft.vmlinux_fd < 0)
                        (void)cubby_error_errno(err, errno, "making 'vmlinux'");
        }
        if (draft.vmlinux_fd < 0) {
                draft_end(&draft);
                return -1;
        }
        *ret = draft;
        return 0;
}

void draft_end(struct store_draft *draft)
{
        close_quietly(take_fd(&draft->vmlinux_fd));
        close_quietly(take_fd(&draft->modules_fd));
        close_quietly(take_fd(&draft->kernel_fd));
        close_quietly(take_fd(&draft->work_fd));
        if (draft->lock_fd >= 0)
                (void)dir_remove_at(home_folder(draft->home, HOME_TMP), draft->name, NULL);
        home_unlock(take_fd(&draft->lock_fd));
}

static int list_modules(int modules_fd, struct kernel_manifest *manifest, cubby_error *err)
{
        for (const struct module *module = module_table; module->name != NULL; module++) {
                char name[MODULE_NAME_MAX + 4];
                (void)snprintf(name, sizeof name, "%s.ko", module->name);
                struct stat info;
                if (fstatat(modules_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (errno == ENOENT)
                                continue;
                        return cubby_error_errno(err, errno, "checking module '%s'", name);
                }
                struct kernel_module_entry *entry = &manifest->modules[manifest->module_count++];
                (void)snprintf(entry->name, sizeof entry->name, "%s", module->name);
                entry->size = (uint64_t)info.st_size;
        }
        return 0;
}

static int write_manifest(struct store_draft *draft, const char *source,
        struct kernel_manifest *manifest, cubby_error *err)
{
        struct stat info;
        /* the VMM of another uid opens it again through its descriptor */
        if (fchmod(draft->vmlinux_fd, 0444) < 0 || fsync(draft->vmlinux_fd) < 0 ||
                fstat(draft->vmlinux_fd, &info) < 0)
                return cubby_error_errno(err, errno, "writing the kernel");
        manifest->size = (uint64_t)info.st_size;
        (void)snprintf(manifest->source, sizeof manifest->source, "%s", source);
        if (digest_of_fd(draft->vmlinux_fd, manifest->digest, err) < 0 ||
                list_modules(draft->modules_fd, manifest, err) < 0)
                return -1;
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, MANIFEST_SIZE_MAX);
        if (!manifest_format(manifest, &text))
                return cubby_error_no_memory(err);
        return file_publish_at(draft->kernel_fd, "manifest", text.data, text.size, 0644, err);
}

/* 1: published under that name, 0: another kernel has it, -1: failed. */
static int publish_as(
        struct store_draft *draft, const char *version, const char *digest, cubby_error *err)
{
        int kernels = home_folder(draft->home, HOME_KERNELS);
        struct kernel_manifest present = {0};
        cubby_error why = {0};
        AUTO_FD int present_fd = -1;
        if (store_open(draft->home, version, &present, &present_fd, &why) == 0)
                return strcmp(present.digest, digest) == 0 ? 1 : 0;
        if (why.code != CUBBY_E_NOT_FOUND) {
                log_line(home_log(draft->home), LOG_WARNING, "replacing a damaged kernel: %s",
                        why.message);
                if (dir_remove_at(kernels, version, err) < 0)
                        return -1;
        }
        if (renameat(draft->work_fd, "kernel", kernels, version) < 0)
                return cubby_error_errno(err, errno, "publishing kernel '%s'", version);
        (void)fsync(kernels);
        return 1;
}

int draft_publish(struct store_draft *draft, const char *source, char ret[KERNEL_VERSION_MAX],
        cubby_error *err)
{
        AUTO_FREE struct kernel_manifest *manifest = calloc(1, sizeof *manifest);
        char version[KERNEL_VERSION_MAX];
        if (manifest == NULL)
                return cubby_error_no_memory(err);
        if (vmlinux_version(draft->vmlinux_fd, version, err) < 0 ||
                write_manifest(draft, source, manifest, err) < 0)
                return -1;
        if (!kernel_version_valid(version))
                return cubby_error_set(
                        err, CUBBY_E_KERNEL, "the kernel calls itself '%s'", version);
        int published = publish_as(draft, version, manifest->digest, err);
        if (published == 0) {
                size_t length = strlen(version);
                if (length + 1 + DIGEST_IN_NAME >= sizeof version)
                        return cubby_error_set(err, CUBBY_E_KERNEL,
                                "the kernel's name is too long: '%s'", version);
                (void)snprintf(version + length, sizeof version - length, "+%.*s", DIGEST_IN_NAME,
                        manifest->digest);
                published = publish_as(draft, version, manifest->digest, err);
        }
        if (published < 0)
                return -1;
        if (published == 0)
                return cubby_error_set(
                        err, CUBBY_E_EXISTS, "two other kernels are called '%s'", version);
        memcpy(ret, version, KERNEL_VERSION_MAX);
        return 0;
}
