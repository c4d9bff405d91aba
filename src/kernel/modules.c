/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/modules.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "kernel/expand.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_DEPTH_MAX 12
#define TREE_ENTRIES_MAX 100000U

const struct module module_table[] = {
        {"virtio_ring", MODULE_REQUIRED},
        {"virtio", MODULE_REQUIRED},
        {"virtio_mmio", MODULE_REQUIRED},
        {"virtio_console", MODULE_REQUIRED},
        {"virtio_blk", MODULE_REQUIRED},
        {"crc32c_generic", MODULE_OPTIONAL},
        {"libcrc32c", MODULE_DEPENDENCY},
        {"crc16", MODULE_DEPENDENCY},
        {"mbcache", MODULE_DEPENDENCY},
        {"jbd2", MODULE_DEPENDENCY},
        {"ext4", MODULE_REQUIRED},
        {"netfs", MODULE_DEPENDENCY},
        {"erofs", MODULE_REQUIRED},
        {"overlay", MODULE_REQUIRED},
        {"failover", MODULE_NET},
        {"net_failover", MODULE_NET},
        {"virtio_net", MODULE_NET},
        {NULL, MODULE_OPTIONAL},
};

static const char *const suffixes[] = {".ko", ".ko.xz", ".ko.zst", ".ko.gz"};

const struct module *module_of_path(const char *path, bool *ret_compressed)
{
        const char *slash = strrchr(path, '/');
        const char *file = slash == NULL ? path : slash + 1;
        for (const struct module *module = module_table; module->name != NULL; module++) {
                size_t length = strlen(module->name);
                if (strncmp(file, module->name, length) != 0)
                        continue;
                for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
                        if (strcmp(file + length, suffixes[i]) == 0) {
                                *ret_compressed = i != 0;
                                return module;
                        }
        }
        return NULL;
}

bool module_depends(const void *data, size_t size, const char *name)
{
        static const char key[] = "\0depends="; /* in .modinfo each text ends with a NUL */
        const char *from = memmem(data, size, key, sizeof key - 1);
        if (from == NULL)
                return false;
        from += sizeof key - 1;
        const char *end = memchr(from, '\0', size - (size_t)(from - (const char *)data));
        size_t length = strlen(name);
        while (end != NULL && from < end) {
                const char *comma = memchr(from, ',', (size_t)(end - from));
                size_t part = (size_t)((comma == NULL ? end : comma) - from);
                if (part == length && memcmp(from, name, length) == 0)
                        return true;
                from = comma == NULL ? end : comma + 1;
        }
        return false;
}

static bool is_module(const uint8_t *data, size_t size)
{
        Elf64_Ehdr header;
        if (size < sizeof header)
                return false;
        memcpy(&header, data, sizeof header);
        return memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == EM_X86_64 &&
                header.e_type == ET_REL;
}

/* As the kernel's scripts/sign-file.c appends it: signature, struct, magic. */
#define SIGNATURE_MAGIC "~Module signature appended~\n"
#define SIGNATURE_STRUCT 12U /* its last four bytes: the signature's size, big-endian */

static size_t size_without_signature(const uint8_t *data, size_t size)
{
        const size_t tail = sizeof SIGNATURE_MAGIC - 1 + SIGNATURE_STRUCT;
        if (size < tail ||
                memcmp(data + size - (sizeof SIGNATURE_MAGIC - 1), SIGNATURE_MAGIC,
                        sizeof SIGNATURE_MAGIC - 1) != 0)
                return size;
        const uint8_t *field = data + size - (sizeof SIGNATURE_MAGIC - 1) - 4;
        size_t signature =
                (size_t)field[0] << 24 | (size_t)field[1] << 16 | (size_t)field[2] << 8 | field[3];
        return signature > size - tail ? size : size - tail - signature;
}

/* Empties the section of type information: the kernel passes over an empty one. */
static void drop_types(uint8_t *data, size_t size)
{
        Elf64_Ehdr header;
        Elf64_Shdr names;
        memcpy(&header, data, sizeof header);
        uint64_t table = header.e_shoff;
        if (header.e_shentsize != sizeof names || header.e_shstrndx >= header.e_shnum ||
                table > size || (size - table) / sizeof names < header.e_shnum)
                return;
        memcpy(&names, data + table + header.e_shstrndx * sizeof names, sizeof names);
        if (names.sh_offset > size || names.sh_size > size - names.sh_offset)
                return;
        for (size_t i = 0; i < header.e_shnum; i++) {
                static const char types[] = ".BTF";
                Elf64_Shdr section;
                uint8_t *at = data + table + i * sizeof section;
                memcpy(&section, at, sizeof section);
                if (section.sh_name > names.sh_size ||
                        names.sh_size - section.sh_name < sizeof types ||
                        memcmp(data + names.sh_offset + section.sh_name, types, sizeof types) != 0)
                        continue;
                section.sh_size = 0;
                memcpy(at, &section, sizeof section);
        }
}

size_t module_strip(uint8_t *data, size_t size)
{
        size_t rest = size_without_signature(data, size);
        if (!is_module(data, rest))
                return size;
        drop_types(data, rest);
        return rest;
}

int module_store(int folder_fd, const struct module *module, bool compressed, const void *data,
        size_t size, cubby_error *err)
{
        AUTO_BUFFER struct buffer plain;
        buffer_init(&plain, MODULE_SIZE_MAX);
        if (compressed) {
                if (expand_memory(data, size, &plain, err) < 0)
                        return cubby_error_wrap(err, "unpacking module '%s'", module->name);
        } else if (size > MODULE_SIZE_MAX) {
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "module '%s' is too large", module->name);
        } else if (size > 0 && !buffer_append(&plain, data, size)) {
                return cubby_error_no_memory(err);
        }
        if (!is_module(plain.data, plain.size))
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "module '%s' is not a kernel module for x86-64", module->name);
        size = module_strip(plain.data, plain.size);
        char name[MODULE_NAME_MAX + 4];
        (void)snprintf(name, sizeof name, "%s.ko", module->name);
        AUTO_FD int fd = openat(
                folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 || fchmod(fd, 0644) < 0 || write_whole(fd, plain.data, size) < 0 ||
                fsync(fd) < 0)
                return cubby_error_errno(err, errno, "writing module '%s'", name);
        return 0;
}

static int collect_file(int dir_fd, const char *name, const struct module *module, bool compressed,
        int folder_fd, cubby_error *err)
{
        AUTO_BUFFER struct buffer content;
        buffer_init(&content, MODULE_SIZE_MAX);
        if (file_read_at(dir_fd, name, &content, err) < 0)
                return cubby_error_wrap(err, "reading module '%s'", name);
        return module_store(folder_fd, module, compressed, content.data, content.size, err);
}

static int collect_folder(int dir_fd, int depth, unsigned *seen, int folder_fd, cubby_error *err)
{
        int copy = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
        AUTO_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        if (dir == NULL) {
                close_quietly(copy);
                return cubby_error_errno(err, errno, "reading a folder of modules");
        }
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
                if (entry->d_name[0] == '.')
                        continue;
                if (++*seen > TREE_ENTRIES_MAX)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "the folder of modules has more than %u entries", TREE_ENTRIES_MAX);
                bool compressed;
                const struct module *module = module_of_path(entry->d_name, &compressed);
                if (module != NULL) {
                        if (collect_file(dirfd(dir), entry->d_name, module, compressed, folder_fd,
                                    err) < 0)
                                return -1;
                        continue;
                }
                if (depth >= TREE_DEPTH_MAX ||
                        (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
                        continue;
                AUTO_FD int below = openat(
                        dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (below >= 0 && collect_folder(below, depth + 1, seen, folder_fd, err) < 0)
                        return -1;
        }
        return 0;
}

int modules_collect(int source_fd, int folder_fd, cubby_error *err)
{
        unsigned seen = 0;
        return collect_folder(source_fd, 0, &seen, folder_fd, err);
}

/* True when modules.builtin ("kernel/fs/ext4/ext4.ko" per line) has the module. */
static bool is_builtin(const char *builtin, const char *name)
{
        char line[MODULE_NAME_MAX + 8];
        (void)snprintf(line, sizeof line, "/%s.ko\n", name);
        return strstr(builtin, line) != NULL;
}

int modules_check(int folder_fd, struct buffer *builtin, cubby_error *err)
{
        const char *text = buffer_text(builtin);
        if (text == NULL)
                return cubby_error_no_memory(err);
        AUTO_BUFFER struct buffer missing;
        buffer_init(&missing, 1024);
        for (const struct module *module = module_table; module->name != NULL; module++) {
                char name[MODULE_NAME_MAX + 4];
                (void)snprintf(name, sizeof name, "%s.ko", module->name);
                if (module->need != MODULE_REQUIRED || faccessat(folder_fd, name, R_OK, 0) == 0 ||
                        is_builtin(text, module->name))
                        continue;
                (void)buffer_printf(&missing, " %s", module->name);
        }
        if (missing.size == 0)
                return 0;
        const char *names = buffer_text(&missing);
        return cubby_error_set(err, CUBBY_E_KERNEL, "these kernel modules are missing:%s",
                names == NULL ? "" : names);
}
