/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/store.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hex.h"
#include "kernel/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_SIZE_MAX (16U * 1024)
#define MANIFEST_HEAD "cubby-kernel 1\n"

bool kernel_version_valid(const char *version)
{
        size_t length = strspn(
                version, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+~");
        return length > 0 && length < KERNEL_VERSION_MAX && version[length] == '\0' &&
                version[0] != '.' && version[0] != '-';
}

static bool digest_valid(const char *digest)
{
        return strspn(digest, "0123456789abcdef") == KERNEL_DIGEST_SIZE - 1 &&
                digest[KERNEL_DIGEST_SIZE - 1] == '\0';
}

static bool number_parse(const char *text, uint64_t maximum, uint64_t *ret)
{
        uint64_t value = 0;
        size_t length = strspn(text, "0123456789");
        if (length == 0 || length > 12 || text[length] != '\0')
                return false;
        for (size_t i = 0; i < length; i++)
                value = value * 10 + (uint64_t)(text[i] - '0');
        *ret = value;
        return value > 0 && value <= maximum;
}

/* Puts one value into its field; false when it does not fit there. */
static bool take_value(struct kernel_manifest *manifest, const char *key, char *value)
{
        if (strcmp(key, "digest") == 0 && manifest->digest[0] == '\0' && digest_valid(value)) {
                memcpy(manifest->digest, value, KERNEL_DIGEST_SIZE);
                return true;
        }
        if (strcmp(key, "size") == 0 && manifest->size == 0)
                return number_parse(value, VMLINUX_SIZE_MAX, &manifest->size);
        size_t length = strlen(value);
        if (strcmp(key, "source") == 0 && manifest->source[0] == '\0' && length > 0 &&
                length < KERNEL_SOURCE_MAX) {
                memcpy(manifest->source, value, length + 1);
                return true;
        }
        char *space = strchr(value, ' ');
        if (strcmp(key, "module") != 0 || space == NULL ||
                manifest->module_count == KERNEL_MODULES_MAX)
                return false;
        *space = '\0';
        struct kernel_module_entry *entry = &manifest->modules[manifest->module_count++];
        length = strlen(value);
        if (length == 0 || length >= sizeof entry->name || strchr(value, '/') != NULL)
                return false;
        memcpy(entry->name, value, length + 1);
        return number_parse(space + 1, MODULE_SIZE_MAX, &entry->size);
}

int manifest_parse(const char *text, struct kernel_manifest *ret, cubby_error *err)
{
        if (strncmp(text, MANIFEST_HEAD, strlen(MANIFEST_HEAD)) != 0)
                return cubby_error_set(err,
                        strncmp(text, "cubby-kernel ", 13) == 0 ? CUBBY_E_VERSION : CUBBY_E_CORRUPT,
                        "the kernel's manifest is of another format");
        AUTO_FREE char *copy = strdup(text + strlen(MANIFEST_HEAD));
        AUTO_FREE struct kernel_manifest *manifest = calloc(1, sizeof *manifest);
        if (copy == NULL || manifest == NULL)
                return cubby_error_no_memory(err);
        char *line = copy;
        while (*line != '\0') {
                char *end = strchr(line, '\n');
                char *space = strchr(line, ' ');
                if (end == NULL || space == NULL || space > end)
                        return cubby_error_set(
                                err, CUBBY_E_CORRUPT, "the kernel's manifest is damaged");
                *end = '\0';
                *space = '\0';
                if (!take_value(manifest, line, space + 1))
                        return cubby_error_set(err, CUBBY_E_CORRUPT,
                                "the kernel's manifest has a bad line '%.40s'", line);
                line = end + 1;
        }
        if (manifest->digest[0] == '\0' || manifest->size == 0 || manifest->source[0] == '\0')
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the kernel's manifest is not complete");
        *ret = *manifest;
        return 0;
}

bool manifest_format(const struct kernel_manifest *manifest, struct buffer *out)
{
        bool good = buffer_printf(out, MANIFEST_HEAD "digest %s\nsize %llu\nsource %s\n",
                manifest->digest, (unsigned long long)manifest->size, manifest->source);
        for (size_t i = 0; i < manifest->module_count; i++)
                good = good &&
                        buffer_printf(out, "module %s %llu\n", manifest->modules[i].name,
                                (unsigned long long)manifest->modules[i].size);
        return good;
}

static int check_size(int dir_fd, const char *name, uint64_t size, cubby_error *err)
{
        struct stat info;
        if (fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return cubby_error_errno(err, errno, "checking '%s'", name);
        if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != size)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "'%s' has %lld bytes, not %llu", name,
                        (long long)info.st_size, (unsigned long long)size);
        return 0;
}

int store_open(struct home *home, const char *version, struct kernel_manifest *ret, int *ret_fd,
        cubby_error *err)
{
        if (!kernel_version_valid(version))
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "'%.80s' is no kernel version", version);
        AUTO_FD int fd = openat(home_folder(home, HOME_KERNELS), version,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT
                        ? cubby_error_set(
                                  err, CUBBY_E_NOT_FOUND, "there is no kernel '%s'", version)
                        : cubby_error_errno(err, errno, "opening kernel '%s'", version);
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, MANIFEST_SIZE_MAX);
        AUTO_FREE struct kernel_manifest *manifest = calloc(1, sizeof *manifest);
        if (manifest == NULL)
                return cubby_error_no_memory(err);
        if (file_read_at(fd, "manifest", &text, err) < 0)
                return cubby_error_wrap(err, "kernel '%s'", version);
        const char *plain = buffer_text(&text);
        if (plain == NULL || strlen(plain) != text.size)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "kernel '%s': the manifest is not text", version);
        if (manifest_parse(plain, manifest, err) < 0 ||
                check_size(fd, "vmlinux", manifest->size, err) < 0)
                return cubby_error_wrap(err, "kernel '%s'", version);
        for (size_t i = 0; i < manifest->module_count; i++) {
                char name[64];
                (void)snprintf(name, sizeof name, "modules/%s.ko", manifest->modules[i].name);
                if (check_size(fd, name, manifest->modules[i].size, err) < 0)
                        return cubby_error_wrap(err, "kernel '%s'", version);
        }
        *ret = *manifest;
        *ret_fd = take_fd(&fd);
        return 0;
}

int store_walk(struct home *home,
        bool (*visit)(const char *version, const struct kernel_manifest *manifest, void *data),
        void *data, cubby_error *err)
{
        AUTO_FREE struct kernel_manifest *manifest = calloc(1, sizeof *manifest);
        if (manifest == NULL)
                return cubby_error_no_memory(err);
        int kernels =
                openat(home_folder(home, HOME_KERNELS), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = kernels < 0 ? NULL : fdopendir(kernels);
        if (dir == NULL) {
                close_quietly(kernels);
                return cubby_error_errno(err, errno, "listing the kernels");
        }
        const struct dirent *entry;
        for (unsigned count = 0; count < KERNELS_MAX && (entry = readdir(dir)) != NULL; count++) {
                if (entry->d_name[0] == '.')
                        continue;
                cubby_error why = {0};
                AUTO_FD int fd = -1;
                if (store_open(home, entry->d_name, manifest, &fd, &why) < 0)
                        log_line(
                                home_log(home), LOG_WARNING, "kernel passed over: %s", why.message);
                else if (visit(entry->d_name, manifest, data))
                        break;
        }
        return 0;
}

static bool keep_newest(const char *version, const struct kernel_manifest *manifest, void *data)
{
        char *newest = data;
        if (newest[0] == '\0' || strverscmp(version, newest) > 0)
                (void)snprintf(newest, KERNEL_VERSION_MAX, "%s", version);
        return false;
}

int store_newest(struct home *home, char ret[KERNEL_VERSION_MAX], cubby_error *err)
{
        char newest[KERNEL_VERSION_MAX] = "";
        if (store_walk(home, keep_newest, newest, err) < 0)
                return -1;
        if (newest[0] == '\0')
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "no kernel has been unpacked yet");
        memcpy(ret, newest, KERNEL_VERSION_MAX);
        return 0;
}

struct by_source {
        const char *source;
        char version[KERNEL_VERSION_MAX];
};

static bool match_source(const char *version, const struct kernel_manifest *manifest, void *data)
{
        struct by_source *search = data;
        if (strcmp(manifest->source, search->source) != 0)
                return false;
        (void)snprintf(search->version, KERNEL_VERSION_MAX, "%s", version);
        return true;
}

int store_by_source(
        struct home *home, const char *source, char ret[KERNEL_VERSION_MAX], cubby_error *err)
{
        struct by_source search = {.source = source};
        if (store_walk(home, match_source, &search, err) < 0)
                return -1;
        if (search.version[0] == '\0')
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "no kernel has been made from that file");
        memcpy(ret, search.version, KERNEL_VERSION_MAX);
        return 0;
}

static int checked_digest(
        const uint8_t *raw, unsigned length, char ret[KERNEL_DIGEST_SIZE], cubby_error *err)
{
        if (length * 2 + 1 != KERNEL_DIGEST_SIZE)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "SHA-256 is not to be had");
        hex_encode(raw, length, ret);
        return 0;
}

int digest_of_memory(const void *data, size_t size, char ret[KERNEL_DIGEST_SIZE], cubby_error *err)
{
        uint8_t raw[EVP_MAX_MD_SIZE];
        unsigned length = 0;
        if (EVP_Digest(data, size, raw, &length, EVP_sha256(), NULL) != 1)
                length = 0;
        return checked_digest(raw, length, ret, err);
}

int digest_of_fd(int fd, char ret[KERNEL_DIGEST_SIZE], cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "reading a file for its digest");
        if (info.st_size <= 0)
                return digest_of_memory("", 0, ret, err);
        size_t size = (size_t)info.st_size;
        void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
                return cubby_error_errno(err, errno, "reading a file for its digest");
        int result = digest_of_memory(map, size, ret, err);
        (void)munmap(map, size);
        return result;
}
