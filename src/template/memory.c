/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hex.h"
#include "template/digest.h"
#include "template/template.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (64U << 10)
#define PAGE 4096U
#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

int memory_create(uint64_t size_bytes, int *ret_fd, cubby_error *err)
{
        AUTO_FD int fd = memfd_create("cubby-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making a memory object");
        /* its VMM runs as another user and opens it by /proc/self/fd */
        if (fchmod(fd, 0666) < 0 || ftruncate(fd, (off_t)size_bytes) < 0)
                return cubby_error_errno(err, errno, "making a memory object");
        *ret_fd = take_fd(&fd);
        return 0;
}

int memory_seal(int fd, int64_t deadline_ms, cubby_error *err)
{
        while (fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
                /* a writable mapping goes with the last thread of its process */
                if (errno != EBUSY || deadline_left_ms(deadline_ms) == 0)
                        return cubby_error_errno(err, errno, "sealing a memory object");
                (void)poll(NULL, 0, 2);
        }
        return 0;
}

bool memory_sealed(int fd)
{
        int seals = fcntl(fd, F_GET_SEALS);
        return seals >= 0 && (seals & SEALS) == SEALS;
}

static bool all_zero(const uint8_t *data, size_t size)
{
        return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

/*
 * Calls `block` for each block of the file that may hold data, in order and
 * whole but for the last.
 */
typedef int (*block_fn)(void *data, uint64_t offset, const uint8_t *bytes, size_t size);

static int each_block(int fd, uint64_t size, block_fn block, void *data, cubby_error *err)
{
        AUTO_FREE uint8_t *bytes = malloc(BLOCK);
        if (bytes == NULL)
                return cubby_error_no_memory(err);
        uint64_t offset = 0;
        while (offset < size) {
                off_t next = lseek(fd, (off_t)offset, SEEK_DATA);
                if (next < 0 && errno == ENXIO)
                        return 0;
                if (next < 0)
                        return cubby_error_errno(err, errno, "looking for data");
                offset = (uint64_t)next / BLOCK * BLOCK;
                size_t want = size - offset < BLOCK ? (size_t)(size - offset) : BLOCK;
                ssize_t got = 0;
                for (size_t have = 0; have < want; have += (size_t)got) {
                        got = pread(fd, bytes + have, want - have, (off_t)(offset + have));
                        if (got < 0 && errno == EINTR) {
                                got = 0;
                                continue;
                        }
                        if (got <= 0)
                                return cubby_error_errno(err, got < 0 ? errno : EIO, "reading");
                }
                if (!all_zero(bytes, want) && block(data, offset, bytes, want) < 0)
                        return cubby_error_errno(err, errno, "copying");
                offset += want;
        }
        return 0;
}

static int save_block(void *data, uint64_t offset, const uint8_t *bytes, size_t size)
{
        int fd = *(int *)data;
        size_t start = 0;
        while (start < size) {
                size_t end = start;
                while (end < size && all_zero(bytes + end, size - end < PAGE ? size - end : PAGE))
                        end += PAGE;
                start = end;
                while (end < size && !all_zero(bytes + end, size - end < PAGE ? size - end : PAGE))
                        end += PAGE;
                if (end > size)
                        end = size;
                while (start < end) {
                        ssize_t put =
                                pwrite(fd, bytes + start, end - start, (off_t)(offset + start));
                        if (put < 0 && errno != EINTR)
                                return -1;
                        start += put > 0 ? (size_t)put : 0;
                }
        }
        return 0;
}

int memory_save(int memory_fd, int file_fd, cubby_error *err)
{
        struct stat info;
        if (fstat(memory_fd, &info) < 0 || ftruncate(file_fd, info.st_size) < 0)
                return cubby_error_errno(err, errno, "writing the machine's memory");
        if (each_block(memory_fd, (uint64_t)info.st_size, save_block, &file_fd, err) < 0)
                return cubby_error_wrap(err, "writing the machine's memory");
        return 0;
}

int memory_load(int file_fd, uint64_t size_bytes, int *ret_fd, cubby_error *err)
{
        struct stat info;
        if (fstat(file_fd, &info) < 0)
                return cubby_error_errno(err, errno, "reading the template's memory");
        if ((uint64_t)info.st_size != size_bytes)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the template's memory is not of its size");
        AUTO_FD int fd = -1;
        if (memory_create(size_bytes, &fd, err) < 0)
                return -1;
        if (file_copy_sparse(file_fd, fd, err) < 0)
                return cubby_error_wrap(err, "reading the template's memory");
        if (memory_seal(fd, 0, err) < 0)
                return -1;
        *ret_fd = take_fd(&fd);
        return 0;
}

static inline void cleanup_context(EVP_MD_CTX **context)
{
        EVP_MD_CTX_free(*context);
}

static int finish(EVP_MD_CTX *context, char ret[65])
{
        uint8_t raw[EVP_MAX_MD_SIZE];
        unsigned int size = 0;
        if (EVP_DigestFinal_ex(context, raw, &size) != 1 || size != 32)
                return -1;
        hex_encode(raw, size, ret);
        return 0;
}

int digest_bytes(const void *data, size_t size, char ret[65], cubby_error *err)
{
        __attribute__((cleanup(cleanup_context))) EVP_MD_CTX *context = EVP_MD_CTX_new();
        char hex[65];
        if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
                EVP_DigestUpdate(context, data, size) != 1 || finish(context, hex) < 0)
                return cubby_error_no_memory(err);
        memcpy(ret, hex, sizeof hex);
        return 0;
}

static int digest_block(void *data, uint64_t offset, const uint8_t *bytes, size_t size)
{
        uint8_t place[8];
        store_u64(place, offset);
        if (EVP_DigestUpdate(data, place, sizeof place) == 1 &&
                EVP_DigestUpdate(data, bytes, size) == 1)
                return 0;
        errno = ENOMEM;
        return -1;
}

int digest_file(int fd, char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "computing a digest");
        uint8_t size[8];
        store_u64(size, (uint64_t)info.st_size);
        __attribute__((cleanup(cleanup_context))) EVP_MD_CTX *context = EVP_MD_CTX_new();
        if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
                EVP_DigestUpdate(context, size, sizeof size) != 1)
                return cubby_error_no_memory(err);
        if (each_block(fd, (uint64_t)info.st_size, digest_block, context, err) < 0)
                return cubby_error_wrap(err, "computing a digest");
        char hex[65];
        if (finish(context, hex) < 0)
                return cubby_error_no_memory(err);
        memcpy(ret, hex, sizeof hex);
        return 0;
}
