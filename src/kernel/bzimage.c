/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/bzimage.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "kernel/expand.h"

#include <inttypes.h>
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Offsets of Documentation/x86/boot.rst in the kernel's source. */
#define HEADER_SETUP_SECTORS 0x1f1U
#define HEADER_BOOT_FLAG 0x1feU
#define HEADER_MAGIC 0x202U
#define HEADER_PROTOCOL 0x206U
#define HEADER_PAYLOAD_OFFSET 0x248U
#define HEADER_PAYLOAD_LENGTH 0x24cU
#define HEADER_END 0x250U
#define BOOT_FLAG 0xaa55U
#define BOOT_MAGIC 0x53726448U   /* "HdrS" */
#define PROTOCOL_PAYLOAD 0x0208U /* the first with payload fields */
#define SECTOR 512U
#define SIZE_FIELD 4U /* the build appends the uncompressed size */

#define NOTE_PVH_ENTRY 18U /* XEN_ELFNOTE_PHYS32_ENTRY */
#define NOTE_SEGMENT_MAX (1024U * 1024)

int bzimage_locate(const uint8_t *head, size_t head_size, uint64_t file_size, struct bzimage *ret,
        cubby_error *err)
{
        if (head_size < HEADER_END || load_u16(head + HEADER_BOOT_FLAG) != BOOT_FLAG ||
                load_u32(head + HEADER_MAGIC) != BOOT_MAGIC)
                return cubby_error_set(err, CUBBY_E_KERNEL, "not a Linux boot image for x86");
        uint16_t protocol = load_u16(head + HEADER_PROTOCOL);
        if (protocol < PROTOCOL_PAYLOAD)
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "boot protocol %u.%02u is too old (2.08 is needed)", protocol >> 8,
                        protocol & 0xffU);
        uint64_t sectors = head[HEADER_SETUP_SECTORS] == 0 ? 4 : head[HEADER_SETUP_SECTORS];
        uint64_t offset = (sectors + 1) * SECTOR + load_u32(head + HEADER_PAYLOAD_OFFSET);
        uint64_t size = load_u32(head + HEADER_PAYLOAD_LENGTH);
        if (size <= SIZE_FIELD)
                return cubby_error_set(err, CUBBY_E_KERNEL, "the boot image holds no kernel");
        if (offset > file_size || size > file_size - offset)
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "the boot image is truncated: its kernel ends at byte %" PRIu64
                        " of %" PRIu64,
                        offset + size, file_size);
        *ret = (struct bzimage){.payload_offset = offset, .payload_size = size};
        return 0;
}

static int extract_payload(int image_fd, const struct bzimage *image, int out_fd,
        int64_t deadline_ms, cubby_error *err)
{
        uint8_t magic[2];
        uint8_t tail[SIZE_FIELD];
        off_t end = (off_t)(image->payload_offset + image->payload_size);
        if (pread(image_fd, magic, sizeof magic, (off_t)image->payload_offset) != sizeof magic ||
                pread(image_fd, tail, sizeof tail, end - (off_t)SIZE_FIELD) != sizeof tail)
                return cubby_error_errno(err, errno, "reading the boot image");
        /* A gzip stream ends with its size; to all others it is appended and,
         * left in place, would be taken for one more block. */
        bool gzip = magic[0] == 0x1f && magic[1] == 0x8b;
        uint64_t size = gzip ? image->payload_size : image->payload_size - SIZE_FIELD;
        uint64_t written = 0;
        if (expand_range(image_fd, image->payload_offset, size, out_fd, VMLINUX_SIZE_MAX,
                    deadline_ms, &written, err) < 0)
                return cubby_error_wrap(err, "unpacking the kernel of the boot image");
        if (written != load_u32(tail))
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "the boot image is damaged: its kernel has %llu bytes instead of %u",
                        (unsigned long long)written, load_u32(tail));
        return 0;
}

int vmlinux_extract(int image_fd, int out_fd, int64_t deadline_ms, cubby_error *err)
{
        struct stat info;
        if (fstat(image_fd, &info) < 0)
                return cubby_error_errno(err, errno, "reading the kernel");
        uint8_t head[BZIMAGE_HEAD_SIZE];
        ssize_t got = pread(image_fd, head, sizeof head, 0);
        if (got < 0)
                return cubby_error_errno(err, errno, "reading the kernel");
        if (got >= SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0) {
                if (info.st_size > (off_t)VMLINUX_SIZE_MAX)
                        return cubby_error_set(
                                err, CUBBY_E_LIMIT, "the kernel has more than 256 MiB");
                if (lseek(image_fd, 0, SEEK_SET) < 0)
                        return cubby_error_errno(err, errno, "reading the kernel");
                if (file_copy_sparse(image_fd, out_fd, err) < 0)
                        return cubby_error_wrap(err, "copying the kernel");
        } else {
                struct bzimage image;
                if (bzimage_locate(head, (size_t)got, (uint64_t)info.st_size, &image, err) < 0 ||
                        extract_payload(image_fd, &image, out_fd, deadline_ms, err) < 0)
                        return -1;
        }
        return vmlinux_check(out_fd, err);
}

/* True when the notes hold a PVH entry point. */
static bool notes_have_pvh(const uint8_t *notes, size_t size)
{
        struct reader reader = reader_over(notes, size);
        for (;;) {
                uint32_t name_size;
                uint32_t text_size;
                uint32_t type;
                struct slice name;
                struct slice text;
                if (!reader_u32(&reader, &name_size) || !reader_u32(&reader, &text_size) ||
                        !reader_u32(&reader, &type))
                        return false;
                if (name_size > size || text_size > size ||
                        !reader_bytes(&reader, (name_size + 3U) & ~3U, &name) ||
                        !reader_bytes(&reader, (text_size + 3U) & ~3U, &text))
                        return false;
                if (type == NOTE_PVH_ENTRY && name_size == 4 && memcmp(name.data, "Xen", 4) == 0)
                        return true;
        }
}

static bool segment_has_pvh(int fd, const Elf64_Phdr *segment)
{
        if (segment->p_filesz == 0 || segment->p_filesz > NOTE_SEGMENT_MAX ||
                segment->p_offset > VMLINUX_SIZE_MAX)
                return false;
        AUTO_FREE uint8_t *notes = malloc(segment->p_filesz);
        if (notes == NULL)
                return false;
        ssize_t got = pread(fd, notes, segment->p_filesz, (off_t)segment->p_offset);
        return got == (ssize_t)segment->p_filesz && notes_have_pvh(notes, (size_t)got);
}

int vmlinux_check(int fd, cubby_error *err)
{
        Elf64_Ehdr header;
        if (pread(fd, &header, sizeof header, 0) != sizeof header ||
                memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
                return cubby_error_set(err, CUBBY_E_KERNEL, "the kernel is not an ELF file");
        if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
                header.e_machine != EM_X86_64)
                return cubby_error_set(err, CUBBY_E_KERNEL, "the kernel is not for x86-64");
        if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
                header.e_phnum > 64 || header.e_phoff > VMLINUX_SIZE_MAX)
                return cubby_error_set(err, CUBBY_E_KERNEL, "the kernel's ELF header is damaged");
        for (unsigned i = 0; i < header.e_phnum; i++) {
                Elf64_Phdr segment;
                off_t offset = (off_t)(header.e_phoff + i * sizeof segment);
                if (pread(fd, &segment, sizeof segment, offset) != sizeof segment)
                        return cubby_error_set(
                                err, CUBBY_E_KERNEL, "the kernel's ELF header is truncated");
                if (segment.p_type == PT_NOTE && segment_has_pvh(fd, &segment))
                        return 0;
        }
        return cubby_error_set(err, CUBBY_E_KERNEL,
                "the kernel has no PVH entry (it must be built with CONFIG_PVH)");
}

static bool version_char(int c)
{
        return isalnum(c) || c == '.' || c == '-' || c == '_' || c == '+' || c == '~';
}

/* The whole file, read-only; MAP_FAILED with an error otherwise. */
static uint8_t *map_vmlinux(int fd, size_t *ret_size, cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0) {
                (void)cubby_error_errno(err, errno, "reading the kernel");
                return MAP_FAILED;
        }
        if (info.st_size <= 0 || info.st_size > (off_t)VMLINUX_SIZE_MAX) {
                (void)cubby_error_set(err, CUBBY_E_KERNEL, "the kernel has an absurd size");
                return MAP_FAILED;
        }
        uint8_t *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
                (void)cubby_error_errno(err, errno, "reading the kernel");
        else
                *ret_size = (size_t)info.st_size;
        return map;
}

int vmlinux_contains(int fd, const char *text, bool *ret, cubby_error *err)
{
        size_t size;
        uint8_t *map = map_vmlinux(fd, &size, err);
        if (map == MAP_FAILED)
                return -1;
        *ret = memmem(map, size, text, strlen(text)) != NULL;
        (void)munmap(map, size);
        return 0;
}

int vmlinux_version(int fd, char ret[KERNEL_VERSION_MAX], cubby_error *err)
{
        static const char banner[] = "Linux version ";
        size_t size;
        uint8_t *map = map_vmlinux(fd, &size, err);
        if (map == MAP_FAILED)
                return -1;
        char version[KERNEL_VERSION_MAX];
        size_t length = 0;
        const uint8_t *from = map;
        while (length == 0) {
                size_t left = size - (size_t)(from - map);
                const uint8_t *hit = memmem(from, left, banner, sizeof banner - 1);
                if (hit == NULL)
                        break;
                from = hit + sizeof banner - 1;
                /* The format string "Linux version %s" of the kernel matches, too. */
                while (from + length < map + size && length < sizeof version - 1 &&
                        version_char(from[length])) {
                        version[length] = (char)from[length];
                        length++;
                }
                if (length > 0 &&
                        (!isdigit(version[0]) || from + length == map + size ||
                                from[length] != ' '))
                        length = 0;
        }
        (void)munmap(map, size);
        if (length == 0)
                return cubby_error_set(
                        err, CUBBY_E_KERNEL, "the kernel does not say which version it is");
        version[length] = '\0';
        memcpy(ret, version, length + 1);
        return 0;
}
