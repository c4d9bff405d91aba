/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/archive.h"
#include "kernel/kernel.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/modules.h"
#include "kernel/store.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGENT_SIZE_MAX (32U * 1024 * 1024)
#define LISTS_SIZE_MAX 4096U
#define AGENT_IN_NAME 16
#define PREFIX "initramfs-"
#define SUFFIX ".cpio"
#define LOCK_TIMEOUT_MS 60000

static void close_entry(struct archive_entry **entry)
{
        archive_entry_free(*entry);
}
#define AUTO_ENTRY __attribute__((cleanup(close_entry)))

static int add(struct archive *cpio, const char *path, mode_t mode, const void *data, size_t size,
        cubby_error *err)
{
        AUTO_ENTRY struct archive_entry *entry = archive_entry_new();
        if (entry == NULL)
                return cubby_error_no_memory(err);
        archive_entry_set_pathname(entry, path);
        archive_entry_set_mode(entry, mode);
        archive_entry_set_size(entry, (la_int64_t)size);
        archive_entry_set_nlink(entry, 1);
        archive_entry_set_ino(entry, archive_file_count(cpio) + 1); /* equal ones would be links */
        archive_entry_set_mtime(entry, 0, 0); /* the same input gives the same bytes */
        if (archive_write_header(cpio, entry) != ARCHIVE_OK ||
                (size > 0 && archive_write_data(cpio, data, size) != (la_ssize_t)size))
                return cubby_error_set(err, CUBBY_E_SYSTEM, "writing '%s' into the initramfs: %s",
                        path, archive_error_string(cpio));
        return 0;
}

struct loaded {
        struct buffer content;
        bool used;
};

static void free_loaded(struct loaded **loaded)
{
        for (size_t i = 0; *loaded != NULL && i < KERNEL_MODULES_MAX; i++)
                buffer_free(&(*loaded)[i].content);
        free(*loaded);
}

/* Reads what is there; from the end, since a module's users stand behind it. */
static int load_modules(int modules_fd, struct loaded *loaded, size_t count, cubby_error *err)
{
        for (size_t i = count; i-- > 0;) {
                char file[MODULE_NAME_MAX + 4];
                (void)snprintf(file, sizeof file, "%s.ko", module_table[i].name);
                if (faccessat(modules_fd, file, F_OK, 0) < 0)
                        continue; /* built in, or not there in this version */
                if (file_read_at(modules_fd, file, &loaded[i].content, err) < 0)
                        return -1;
                loaded[i].used = module_table[i].need != MODULE_DEPENDENCY;
                for (size_t user = i + 1; user < count && !loaded[i].used; user++)
                        loaded[i].used = loaded[user].used &&
                                module_table[user].need != MODULE_NET &&
                                module_depends(loaded[user].content.data, loaded[user].content.size,
                                        module_table[i].name);
        }
        return 0;
}

static int add_modules(struct archive *cpio, int modules_fd, cubby_error *err)
{
        AUTO_BUFFER struct buffer order;
        AUTO_BUFFER struct buffer net_order;
        buffer_init(&order, LISTS_SIZE_MAX);
        buffer_init(&net_order, LISTS_SIZE_MAX);
        __attribute__((cleanup(free_loaded))) struct loaded *loaded =
                calloc(KERNEL_MODULES_MAX, sizeof *loaded);
        if (loaded == NULL)
                return cubby_error_no_memory(err);
        size_t count = 0;
        for (; count < KERNEL_MODULES_MAX && module_table[count].name != NULL; count++)
                buffer_init(&loaded[count].content, MODULE_SIZE_MAX);
        if (load_modules(modules_fd, loaded, count, err) < 0)
                return -1;
        for (size_t i = 0; i < count; i++) {
                char path[MODULE_NAME_MAX + 16];
                (void)snprintf(path, sizeof path, "modules/%s.ko", module_table[i].name);
                if (!loaded[i].used)
                        continue;
                if (add(cpio, path, S_IFREG | 0644, loaded[i].content.data, loaded[i].content.size,
                            err) < 0)
                        return -1;
                bool net = module_table[i].need == MODULE_NET;
                (void)buffer_printf(net ? &net_order : &order, "%s.ko\n", module_table[i].name);
        }
        if (order.failed || net_order.failed)
                return cubby_error_no_memory(err);
        if (add(cpio, "modules/order", S_IFREG | 0644, order.data, order.size, err) < 0)
                return -1;
        return add(cpio, "modules/net-order", S_IFREG | 0644, net_order.data, net_order.size, err);
}

static int write_cpio(int out_fd, int modules_fd, const struct buffer *agent, cubby_error *err)
{
        AUTO_ARCHIVE struct archive *cpio = archive_write_new();
        if (cpio == NULL)
                return cubby_error_no_memory(err);
        if (archive_write_set_format_cpio_newc(cpio) != ARCHIVE_OK ||
                archive_write_open_fd(cpio, out_fd) != ARCHIVE_OK)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "starting the initramfs: %s",
                        archive_error_string(cpio));
        static const char *const folders[] = {"dev", "proc", "sys", "modules"};
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
                if (add(cpio, folders[i], S_IFDIR | 0755, NULL, 0, err) < 0)
                        return -1;
        if (add(cpio, "init", S_IFREG | 0755, agent->data, agent->size, err) < 0 ||
                add_modules(cpio, modules_fd, err) < 0)
                return -1;
        if (archive_write_close(cpio) != ARCHIVE_OK)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "ending the initramfs: %s",
                        archive_error_string(cpio));
        return 0;
}

/* Those of other agents; whoever has one open keeps it. */
static void drop_others(int kernel_fd, const char *keep)
{
        int copy = openat(kernel_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        if (dir == NULL) {
                close_quietly(copy);
                return;
        }
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL)
                if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
                        strcmp(entry->d_name, keep) != 0)
                        (void)unlinkat(kernel_fd, entry->d_name, 0);
}

static int make(struct home *home, int kernel_fd, const char *name, const struct buffer *agent,
        cubby_error *err)
{
        char work[32];
        AUTO_FD int work_fd = -1;
        AUTO_LOCK int lock_fd = -1;
        AUTO_FD int modules_fd =
                openat(kernel_fd, "modules", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (modules_fd < 0)
                return cubby_error_errno(err, errno, "opening the kernel's modules");
        if (home_make_temporary(home, work, &work_fd, &lock_fd, err) < 0)
                return -1;
        /* readable for the VMM of another uid, which opens it through its descriptor */
        AUTO_FD int out_fd = openat(work_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        int result = out_fd < 0 ? cubby_error_errno(err, errno, "making '%s'", name)
                                : write_cpio(out_fd, modules_fd, agent, err);
        if (result == 0 &&
                (fchmod(out_fd, 0444) < 0 || fsync(out_fd) < 0 ||
                        renameat(work_fd, name, kernel_fd, name) < 0))
                result = cubby_error_errno(err, errno, "publishing '%s'", name);
        if (result == 0)
                drop_others(kernel_fd, name);
        (void)dir_remove_at(home_folder(home, HOME_TMP), work, NULL);
        return result;
}

static int read_agent(
        const char *path, struct buffer *agent, char digest[KERNEL_DIGEST_SIZE], cubby_error *err)
{
        if (file_read_at(AT_FDCWD, path, agent, err) < 0)
                return cubby_error_wrap(err, "reading the agent");
        if (agent->size < 4 || memcmp(agent->data, "\177ELF", 4) != 0)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "the agent '%s' is not a program", path);
        return digest_of_memory(agent->data, agent->size, digest, err);
}

int kernel_open(struct home *home, const struct kernel *kernel, const char *agent_path,
        int *ret_vmlinux_fd, int *ret_initramfs_fd, cubby_error *err)
{
        struct kernel_manifest manifest;
        AUTO_FD int kernel_fd = -1;
        AUTO_LOCK int lock_fd = -1;
        AUTO_BUFFER struct buffer agent;
        buffer_init(&agent, AGENT_SIZE_MAX);
        char digest[KERNEL_DIGEST_SIZE];
        char name[64];
        if (store_open(home, kernel->version, &manifest, &kernel_fd, err) < 0)
                return -1;
        if (kernel->digest != NULL && strcmp(kernel->digest, manifest.digest) != 0)
                return cubby_error_set(
                        err, CUBBY_E_DIGEST, "kernel '%s' has been exchanged", kernel->version);
        if (read_agent(agent_path, &agent, digest, err) < 0)
                return -1;
        (void)snprintf(name, sizeof name, PREFIX "%.*s" SUFFIX, AGENT_IN_NAME, digest);

        AUTO_FD int vmlinux_fd = openat(kernel_fd, "vmlinux", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (vmlinux_fd < 0)
                return cubby_error_errno(err, errno, "opening kernel '%s'", kernel->version);
        AUTO_FD int initramfs_fd = openat(kernel_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (initramfs_fd < 0) {
                if (home_lock(home, "initramfs", true, deadline_after_ms(LOCK_TIMEOUT_MS), &lock_fd,
                            err) < 0 ||
                        /* another process may have been faster */
                        (faccessat(kernel_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
                                make(home, kernel_fd, name, &agent, err) < 0))
                        return cubby_error_wrap(err, "making the initramfs");
                initramfs_fd = openat(kernel_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
                if (initramfs_fd < 0)
                        return cubby_error_errno(err, errno, "opening '%s'", name);
        }
        *ret_vmlinux_fd = take_fd(&vmlinux_fd);
        *ret_initramfs_fd = take_fd(&initramfs_fd);
        return 0;
}
