/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/kernel.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/deb.h"
#include "kernel/modules.h"
#include "kernel/package.h"
#include "kernel/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "kernel"
#define ENSURE_TIMEOUT_MS 900000 /* the wait for another process that does it included */
#define BUILTIN_SIZE_MAX (1024U * 1024)
#define NO_SOURCE "-"

struct work {
        struct home *home;
        kernel_progress progress;
        void *data;
        int64_t deadline_ms;
};

void kernel_clear(struct kernel *kernel)
{
        free(kernel->version);
        free(kernel->digest);
        *kernel = (struct kernel){0};
}

static void tell(const struct work *work, const char *stage, const char *detail)
{
        if (work->progress != NULL)
                work->progress(work->data, stage, detail, 0, 0);
}

static int answer(struct home *home, const char *version, struct kernel *ret, cubby_error *err)
{
        struct kernel_manifest manifest;
        AUTO_FD int fd = -1;
        if (store_open(home, version, &manifest, &fd, err) < 0)
                return -1;
        struct kernel kernel = {.version = strdup(version), .digest = strdup(manifest.digest)};
        if (kernel.version == NULL || kernel.digest == NULL) {
                kernel_clear(&kernel);
                return cubby_error_no_memory(err);
        }
        *ret = kernel;
        return 0;
}

/* Which file this is, and whether it has changed since. */
static int source_key(int fd, char ret[KERNEL_SOURCE_MAX], cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "checking the kernel's file");
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_INVALID, "a kernel must be a regular file");
        (void)snprintf(ret, KERNEL_SOURCE_MAX, "%llx:%llx:%lld:%lld.%09ld",
                (unsigned long long)info.st_dev, (unsigned long long)info.st_ino,
                (long long)info.st_size, (long long)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
        return 0;
}

static int make_from_deb(const struct work *work, int deb_fd, const char *source,
        char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        struct store_draft draft;
        if (draft_begin(work->home, &draft, err) < 0)
                return -1;
        tell(work, "unpack", "kernel package");
        AUTO_BUFFER struct buffer builtin;
        buffer_init(&builtin, BUILTIN_SIZE_MAX);
        AUTO_FD int image_fd = openat(
                draft.work_fd, "image", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        int result = image_fd < 0 ? cubby_error_errno(err, errno, "making a scratch file") : 0;
        if (result == 0)
                result = deb_read(
                        deb_fd, image_fd, draft.modules_fd, &builtin, work->deadline_ms, err);
        if (result == 0)
                result = modules_check(draft.modules_fd, &builtin, err);
        if (result == 0)
                result = vmlinux_extract(image_fd, draft.vmlinux_fd, work->deadline_ms, err);
        if (result == 0)
                result = draft_publish(&draft, source, version, err);
        draft_end(&draft);
        return result;
}

static int open_folder(int dir_fd, const char *path)
{
        return openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/*
 * Where the modules of a kernel that came as a file may be: a folder "modules" beside it,
 * flat or a tree; "../lib/modules/VERSION", as in an unpacked package; those of the host.
 */
static int open_modules(int beside_fd, const char *version)
{
        static const char *const places[] = {"modules", "../lib/modules/", "../usr/lib/modules/"};
        char path[32 + KERNEL_VERSION_MAX];
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
                (void)snprintf(path, sizeof path, "%s%s", places[i], i == 0 ? "" : version);
                int fd = beside_fd < 0 ? -1 : open_folder(beside_fd, path);
                if (fd >= 0)
                        return fd;
        }
        (void)snprintf(path, sizeof path, "/lib/modules/%s", version);
        return open_folder(AT_FDCWD, path);
}

/* Nobody lists what is built in: a kernel with the overlay file system built in has
 * the name of that driver's parameter in it. */
static int check_unlisted(const struct store_draft *draft, const char *version, cubby_error *err)
{
        bool has_it = faccessat(draft->modules_fd, "overlay.ko", F_OK, 0) == 0;
        if (!has_it &&
                vmlinux_contains(draft->vmlinux_fd, "overlay.redirect_dir", &has_it, err) < 0)
                return -1;
        if (has_it)
                return 0;
        return cubby_error_set(err, CUBBY_E_KERNEL,
                "its modules are missing: 'overlay' is neither built in nor found in a folder "
                "'modules' beside it, '../lib/modules/%s' from there, or '/lib/modules/%s'",
                version, version);
}

static int find_modules(struct store_draft *draft, int beside_fd, cubby_error *err)
{
        char version[KERNEL_VERSION_MAX];
        if (vmlinux_version(draft->vmlinux_fd, version, err) < 0)
                return -1;
        AUTO_FD int source = open_modules(beside_fd, version);
        if (source < 0)
                return check_unlisted(draft, version, err);
        if (modules_collect(source, draft->modules_fd, err) < 0)
                return -1;
        AUTO_BUFFER struct buffer builtin;
        buffer_init(&builtin, BUILTIN_SIZE_MAX);
        if (faccessat(source, "modules.builtin", R_OK, 0) < 0)
                return check_unlisted(draft, version, err);
        if (file_read_at(source, "modules.builtin", &builtin, err) < 0)
                return -1;
        return modules_check(draft->modules_fd, &builtin, err);
}

static int make_from_image(const struct work *work, int image_fd, int beside_fd, const char *source,
        char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        struct store_draft draft;
        if (draft_begin(work->home, &draft, err) < 0)
                return -1;
        tell(work, "unpack", "kernel image");
        int result = vmlinux_extract(image_fd, draft.vmlinux_fd, work->deadline_ms, err);
        if (result == 0)
                result = find_modules(&draft, beside_fd, err);
        if (result == 0)
                result = draft_publish(&draft, source, version, err);
        draft_end(&draft);
        return result;
}

/* The folder that the file is in, or -1. */
static int folder_of(const char *path)
{
        AUTO_FREE char *copy = strdup(path);
        if (copy == NULL)
                return -1;
        char *slash = strrchr(copy, '/');
        if (slash == NULL)
                return open_folder(AT_FDCWD, ".");
        *slash = '\0';
        return open_folder(AT_FDCWD, slash == copy ? "/" : copy);
}

static int make_from_file(const struct work *work, const char *path,
        char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return cubby_error_errno(err, errno, "opening kernel '%s'", path);
        char source[KERNEL_SOURCE_MAX];
        if (source_key(fd, source, err) < 0)
                return cubby_error_wrap(err, "kernel '%s'", path);
        if (store_by_source(work->home, source, version, NULL) == 0)
                return 0;
        char magic[8];
        bool deb = pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                memcmp(magic, "!<arch>\n", sizeof magic) == 0;
        AUTO_FD int beside = deb ? -1 : folder_of(path);
        int result = deb ? make_from_deb(work, fd, source, version, err)
                         : make_from_image(work, fd, beside, source, version, err);
        return result < 0 ? cubby_error_wrap(err, "kernel '%s'", path) : 0;
}

/* The newest kernel in /boot that this user can read and that has its modules. */
static int make_from_host(
        const struct work *work, char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        AUTO_DIR DIR *boot = opendir("/boot");
        char newest[KERNEL_VERSION_MAX] = "";
        const struct dirent *entry;
        while (boot != NULL && (entry = readdir(boot)) != NULL) {
                const char *name = entry->d_name + 8;
                if (strncmp(entry->d_name, "vmlinuz-", 8) != 0 || !kernel_version_valid(name))
                        continue;
                char path[32 + KERNEL_VERSION_MAX];
                (void)snprintf(path, sizeof path, "/lib/modules/%s/kernel", name);
                bool usable = access(path, R_OK) == 0 &&
                        faccessat(dirfd(boot), entry->d_name, R_OK, 0) == 0;
                if (usable && (newest[0] == '\0' || strverscmp(name, newest) > 0))
                        (void)snprintf(newest, sizeof newest, "%s", name);
        }
        if (newest[0] == '\0')
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "/boot has no kernel that can be used");
        char path[32 + KERNEL_VERSION_MAX];
        (void)snprintf(path, sizeof path, "/boot/vmlinuz-%s", newest);
        return make_from_file(work, path, version, err);
}

static int make_from_package(
        const struct work *work, char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        char name[32];
        AUTO_FD int folder_fd = -1;
        AUTO_LOCK int lock_fd = -1;
        AUTO_FD int deb_fd = -1;
        AUTO_FREE char *path = NULL;
        if (home_make_temporary(work->home, name, &folder_fd, &lock_fd, err) < 0)
                return -1;
        int result = asprintf(&path, "%s/tmp/%s", home_path(work->home), name) < 0
                ? cubby_error_no_memory(err)
                : package_download(folder_fd, path, work->progress, work->data, work->deadline_ms,
                          &deb_fd, err);
        if (result == 0)
                result = make_from_deb(work, deb_fd, NO_SOURCE, version, err);
        (void)dir_remove_at(home_folder(work->home, HOME_TMP), name, NULL);
        return result;
}

static int make_default(const struct work *work, char version[KERNEL_VERSION_MAX], cubby_error *err)
{
        cubby_error why = {0};
        if (make_from_host(work, version, &why) == 0)
                return 0;
        if (why.code != CUBBY_E_NOT_FOUND)
                log_line(home_log(work->home), LOG_WARNING,
                        "the host's own kernel cannot be used: %s", why.message);
        return make_from_package(work, version, err);
}

int kernel_ensure(struct home *home, const char *source, kernel_progress progress, void *data,
        struct kernel *ret, cubby_error *err)
{
        char version[KERNEL_VERSION_MAX];
        const struct work work = {.home = home,
                .progress = progress,
                .data = data,
                .deadline_ms = deadline_after_ms(ENSURE_TIMEOUT_MS)};
        bool named = source != NULL && strchr(source, '/') == NULL && kernel_version_valid(source);
        if (named && answer(home, source, ret, NULL) == 0)
                return 0;
        if (source == NULL && store_newest(home, version, NULL) == 0)
                return answer(home, version, ret, err);
        if (named && access(source, F_OK) < 0)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND,
                        "'%s' is neither an unpacked kernel nor a file", source);

        AUTO_LOCK int lock_fd = -1;
        if (home_lock(home, LOCK_NAME, true, work.deadline_ms, &lock_fd, err) < 0)
                return cubby_error_wrap(err, "preparing the guest kernel");
        int result = 0;
        if (source != NULL)
                result = make_from_file(&work, source, version, err);
        else if (store_newest(home, version, NULL) < 0) /* another process may have been faster */
                result = make_default(&work, version, err);
        if (result < 0)
                return cubby_error_wrap(err, "preparing the guest kernel");
        return answer(home, version, ret, err);
}
