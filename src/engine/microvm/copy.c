/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/copy.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096U
#define PAGE_SHIFT 12
#define MAPS_BYTES_MAX (1U << 20)
#define MEMORY_NAME "/memfd:cubby-memory"
#define PAGES_AT_ONCE 4096U
#define PIECE_BYTES (256U << 10)
#define FLAG_PRESENT (1ULL << 63)
#define FLAG_SWAPPED (1ULL << 62)
#define FLAG_FILE (1ULL << 61) /* of the object, or shared: the base has it */

struct view {
        uint8_t *bytes;
        size_t size;
};

static void cleanup_view(struct view *view)
{
        if (view->bytes != NULL)
                (void)munmap(view->bytes, view->size);
}
#define AUTO_VIEW __attribute__((cleanup(cleanup_view)))

static int open_view(int fd, uint64_t size, int protection, struct view *ret, cubby_error *err)
{
        void *bytes = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED)
                return cubby_error_errno(err, errno, "mapping a memory object");
        *ret = (struct view){.bytes = bytes, .size = size};
        return 0;
}

/*
 * Written, not stored through a mapping: then the kernel neither clears a new page first
 * nor takes a fault for each.
 */
static int write_at(int to_fd, const uint8_t *bytes, size_t size, off_t at, cubby_error *err)
{
        while (size > 0) {
                ssize_t put = pwrite(to_fd, bytes, size, at);
                if (put < 0 && errno == EINTR)
                        continue;
                if (put <= 0)
                        return cubby_error_errno(
                                err, put < 0 ? errno : EIO, "writing a copy of the memory");
                bytes += put;
                size -= (size_t)put;
                at += put;
        }
        return 0;
}

int copy_object(int from_fd, int to_fd, uint64_t size_bytes, cubby_error *err)
{
        AUTO_VIEW struct view from = {0};
        if (open_view(from_fd, size_bytes, PROT_READ, &from, err) < 0)
                return -1;
        for (off_t offset = 0; (uint64_t)offset < size_bytes;) {
                off_t data = lseek(from_fd, offset, SEEK_DATA);
                off_t hole = data < 0 ? -1 : lseek(from_fd, data, SEEK_HOLE);
                if (data < 0 && errno == ENXIO)
                        return 0;
                if (data < 0 || hole < 0)
                        return cubby_error_errno(err, errno, "copying a memory object");
                size_t size = (size_t)(hole - data);
                /* all at once; where the kernel cannot, it faults them in one by one */
                (void)madvise(from.bytes + data, size, MADV_POPULATE_READ);
                if (write_at(to_fd, from.bytes + data, size, data, err) < 0)
                        return -1;
                offset = hole;
        }
        return 0;
}

/* Where in the VMM its guest's memory is. One mapping of exactly that size. */
static int find_memory(pid_t vmm, uint64_t size_bytes, uint64_t *ret_start, cubby_error *err)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)vmm);
        AUTO_BUFFER struct buffer maps;
        buffer_init(&maps, MAPS_BYTES_MAX);
        if (file_read_at(AT_FDCWD, path, &maps, err) < 0)
                return -1;
        const char *text = buffer_text(&maps);
        for (const char *line = text; line != NULL && *line != '\0';) {
                uint64_t start = 0;
                uint64_t end = 0;
                const char *next = strchr(line, '\n');
                size_t length = next == NULL ? strlen(line) : (size_t)(next - line);
                bool named = memmem(line, length, MEMORY_NAME, strlen(MEMORY_NAME)) != NULL;
                if (named && sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 &&
                        end - start == size_bytes) {
                        *ret_start = start;
                        return 0;
                }
                line = next == NULL ? NULL : next + 1;
        }
        return cubby_error_set(
                err, CUBBY_E_UNSUPPORTED, "the VMM's memory is not laid out as expected");
}

static bool is_own(uint64_t entry)
{
        return (entry & (FLAG_PRESENT | FLAG_SWAPPED)) != 0 && (entry & FLAG_FILE) == 0;
}

/* One run of pages that are the VMM's own, through a piece that fits into a cache. */
static int copy_run(pid_t vmm, uint64_t start, uint64_t page, size_t pages, uint8_t *piece,
        int to_fd, cubby_error *err)
{
        uint64_t offset = page << PAGE_SHIFT;
        for (uint64_t end = offset + pages * PAGE; offset < end;) {
                size_t size = end - offset < PIECE_BYTES ? (size_t)(end - offset) : PIECE_BYTES;
                struct iovec local = {.iov_base = piece, .iov_len = size};
                struct iovec remote = {
                        .iov_base = (void *)(uintptr_t)(start + offset), .iov_len = size};
                ssize_t got = process_vm_readv(vmm, &local, 1, &remote, 1, 0);
                if (got != (ssize_t)size)
                        return cubby_error_errno(
                                err, got < 0 ? errno : EIO, "reading the VMM's memory");
                if (write_at(to_fd, piece, size, (off_t)offset, err) < 0)
                        return -1;
                offset += size;
        }
        return 0;
}

int copy_private_pages(pid_t vmm, uint64_t size_bytes, int to_fd, cubby_error *err)
{
        uint64_t start = 0;
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/pagemap", (int)vmm);
        AUTO_FD int pagemap = open(path, O_RDONLY | O_CLOEXEC);
        if (pagemap < 0)
                return cubby_error_errno(err, errno, "opening the VMM's page map");
        AUTO_FREE uint64_t *entries = calloc(PAGES_AT_ONCE, sizeof *entries);
        AUTO_FREE uint8_t *piece = malloc(PIECE_BYTES);
        if (entries == NULL || piece == NULL)
                return cubby_error_no_memory(err);
        if (find_memory(vmm, size_bytes, &start, err) < 0)
                return -1;
        uint64_t total = size_bytes >> PAGE_SHIFT;
        for (uint64_t page = 0; page < total;) {
                size_t want = total - page < PAGES_AT_ONCE ? (size_t)(total - page) : PAGES_AT_ONCE;
                off_t place = (off_t)(((start >> PAGE_SHIFT) + page) * sizeof *entries);
                if (pread(pagemap, entries, want * sizeof *entries, place) !=
                        (ssize_t)(want * sizeof *entries))
                        return cubby_error_errno(err, errno, "reading the VMM's page map");
                for (size_t i = 0; i < want;) {
                        size_t run = 0;
                        while (i + run < want && is_own(entries[i + run]))
                                run++;
                        if (run > 0 && copy_run(vmm, start, page + i, run, piece, to_fd, err) < 0)
                                return -1;
                        i += run > 0 ? run : 1;
                }
                page += want;
        }
        return 0;
}
