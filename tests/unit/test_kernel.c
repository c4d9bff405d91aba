/* SPDX-License-Identifier: Apache-2.0 */
/* Boot images, modules, manifests, packages: what is taken and what refused. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/bzimage.h"
#include "kernel/deb.h"
#include "kernel/expand.h"
#include "kernel/kernel.h"
#include "kernel/modules.h"
#include "kernel/package.h"
#include "kernel/store.h"

#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define VERSION "6.1.0-test"
#define NOTE_SIZE 24U

static const char banner[] = "Linux version %s (format)\nLinux version " VERSION " (us@here)\n";

/* A vmlinux with nothing in it but a PVH note and the banner. */
static void make_vmlinux(struct buffer *out)
{
        Elf64_Ehdr header = {.e_type = ET_EXEC,
                .e_machine = EM_X86_64,
                .e_phoff = sizeof header,
                .e_phentsize = sizeof(Elf64_Phdr),
                .e_phnum = 1};
        memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        Elf64_Phdr segment = {.p_type = PT_NOTE,
                .p_offset = sizeof header + sizeof segment,
                .p_filesz = NOTE_SIZE};
        assert_true(buffer_append(out, &header, sizeof header));
        assert_true(buffer_append(out, &segment, sizeof segment));
        (void)buffer_u32(out, 4);
        (void)buffer_u32(out, 8);
        (void)buffer_u32(out, 18);
        assert_true(buffer_append(out, "Xen\0", 4));
        (void)buffer_u64(out, 0x1000000);
        assert_true(buffer_append_text(out, banner));
}

static void make_module(struct buffer *out, const char *text, size_t size)
{
        Elf64_Ehdr header = {.e_type = ET_REL, .e_machine = EM_X86_64};
        memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        assert_true(buffer_append(out, &header, sizeof header));
        assert_true(buffer_append(out, text, size));
}

static int file_of(const void *data, size_t size)
{
        int fd = memfd_create("test", MFD_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(write_whole(fd, data, size), 0);
        return fd;
}

/* Packs into one compressed stream. */
static void compress(const void *data, size_t size, const char *filter, struct buffer *out)
{
        size_t used = 0;
        uint8_t *room = buffer_reserve(out, size + 65536);
        assert_non_null(room);
        struct archive *archive = archive_write_new();
        struct archive_entry *entry = archive_entry_new();
        assert_int_equal(archive_write_set_format_raw(archive), ARCHIVE_OK);
        assert_int_equal(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
        assert_int_equal(archive_write_set_bytes_in_last_block(archive, 1), ARCHIVE_OK);
        assert_int_equal(archive_write_open_memory(archive, room, size + 65536, &used), ARCHIVE_OK);
        archive_entry_set_pathname(entry, "data");
        archive_entry_set_filetype(entry, AE_IFREG);
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(archive, data, size), (la_ssize_t)size);
        archive_entry_free(entry);
        assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
        assert_int_equal(archive_write_free(archive), ARCHIVE_OK);
        out->size += used;
}

static void make_bzimage(const struct buffer *vmlinux, const char *filter, struct buffer *out)
{
        uint8_t head[2 * 512] = {0};
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 1 << 20);
        compress(vmlinux->data, vmlinux->size, filter, &payload);
        if (strcmp(filter, "gzip") != 0)
                (void)buffer_u32(&payload, (uint32_t)vmlinux->size);
        head[0x1f1] = 1;
        store_u16(head + 0x1fe, 0xaa55);
        store_u32(head + 0x202, 0x53726448);
        store_u16(head + 0x206, 0x020f);
        store_u32(head + 0x24c, (uint32_t)payload.size);
        assert_true(buffer_append(out, head, sizeof head));
        assert_true(buffer_append(out, payload.data, payload.size));
}

static void bzimage_head(void **state)
{
        enum { FILE_SIZE = 100000 };
        static const struct {
                const char *what;
                unsigned offset;
                unsigned width; /* bytes that are changed; 0: none */
                uint32_t value;
                uint64_t file_size;
                int want;
        } cases[] = {
                {"good", 0, 0, 0, FILE_SIZE, 0},
                {"no setup sectors means four", 0x1f1, 1, 0, FILE_SIZE, 0},
                {"payload that ends with the file", 0x24c, 4, FILE_SIZE - 1024, FILE_SIZE, 0},
                {"no boot flag", 0x1fe, 2, 0, FILE_SIZE, -1},
                {"no magic", 0x202, 4, 0x53726449, FILE_SIZE, -1},
                {"protocol before payloads", 0x206, 2, 0x0207, FILE_SIZE, -1},
                {"empty payload", 0x24c, 4, 0, FILE_SIZE, -1},
                {"payload of the size field only", 0x24c, 4, 4, FILE_SIZE, -1},
                {"payload past the end by one", 0x24c, 4, FILE_SIZE - 1023, FILE_SIZE, -1},
                {"absurd payload", 0x24c, 4, UINT32_MAX, FILE_SIZE, -1},
                {"absurd offset", 0x248, 4, UINT32_MAX, FILE_SIZE, -1},
                {"setup past the end", 0x1f1, 1, 255, 4096, -1},
                {"empty file", 0, 0, 0, 0, -1},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                uint8_t head[BZIMAGE_HEAD_SIZE] = {0};
                head[0x1f1] = 1;
                store_u16(head + 0x1fe, 0xaa55);
                store_u32(head + 0x202, 0x53726448);
                store_u16(head + 0x206, 0x020f);
                store_u32(head + 0x24c, 5000);
                for (unsigned byte = 0; byte < cases[i].width; byte++)
                        head[cases[i].offset + byte] = (uint8_t)(cases[i].value >> (8 * byte));
                struct bzimage image = {0};
                cubby_error err = {0};
                int got = bzimage_locate(head, sizeof head, cases[i].file_size, &image, &err);
                if (got != cases[i].want)
                        fail_msg("%s: %d %s", cases[i].what, got, err.message);
                if (got < 0)
                        assert_int_equal(err.code, CUBBY_E_KERNEL);
        }
        uint8_t small[0x24f] = {0};
        struct bzimage image;
        assert_int_equal(bzimage_locate(small, sizeof small, 1000, &image, NULL), -1);
}

static void extract_all_compressions(void **state)
{
        static const char *const filters[] = {"gzip", "bzip2", "xz", "lzma", "zstd", "lz4"};
        AUTO_BUFFER struct buffer vmlinux;
        buffer_init(&vmlinux, 65536);
        make_vmlinux(&vmlinux);
        for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
                AUTO_BUFFER struct buffer image;
                buffer_init(&image, 1 << 20);
                make_bzimage(&vmlinux, filters[i], &image);
                AUTO_FD int image_fd = file_of(image.data, image.size);
                AUTO_FD int out_fd = memfd_create("out", MFD_CLOEXEC);
                cubby_error err = {0};
                if (vmlinux_extract(image_fd, out_fd, DEADLINE_NEVER, &err) < 0)
                        fail_msg("%s: %s", filters[i], err.message);
                char version[KERNEL_VERSION_MAX];
                assert_int_equal(vmlinux_version(out_fd, version, &err), 0);
                assert_string_equal(version, VERSION);
        }
}

static void extract_refuses(void **state)
{
        AUTO_BUFFER struct buffer vmlinux;
        AUTO_BUFFER struct buffer good;
        buffer_init(&vmlinux, 65536);
        buffer_init(&good, 1 << 20);
        make_vmlinux(&vmlinux);
        make_bzimage(&vmlinux, "xz", &good);
        static const struct {
                const char *what;
                size_t cut;    /* bytes cut off the end */
                size_t damage; /* offset of a byte that is changed; 0: none */
        } cases[] = {{"whole", 0, 0}, {"truncated", 10, 0}, {"wrong size field", 0, 1},
                {"damaged stream", 0, 1024 + 40}, {"not compressed", 0, 1024}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                AUTO_BUFFER struct buffer image;
                buffer_init(&image, 1 << 20);
                assert_true(buffer_append(&image, good.data, good.size - cases[i].cut));
                size_t at = cases[i].damage == 1 ? image.size - 1 : cases[i].damage;
                if (cases[i].damage != 0)
                        image.data[at] ^= 0x5a;
                AUTO_FD int image_fd = file_of(image.data, image.size);
                AUTO_FD int out_fd = memfd_create("out", MFD_CLOEXEC);
                cubby_error err = {0};
                int got = vmlinux_extract(image_fd, out_fd, DEADLINE_NEVER, &err);
                if (got != (i == 0 ? 0 : -1))
                        fail_msg("%s: %d %s", cases[i].what, got, err.message);
                if (got < 0)
                        assert_int_equal(err.code, CUBBY_E_KERNEL);
        }
}

static void expansion_has_a_ceiling(void **state)
{
        AUTO_BUFFER struct buffer zeros;
        AUTO_BUFFER struct buffer packed;
        AUTO_BUFFER struct buffer out;
        buffer_init(&zeros, 1 << 20);
        buffer_init(&packed, 2 << 20);
        buffer_init(&out, 1000);
        assert_non_null(buffer_reserve(&zeros, 1 << 20));
        memset(zeros.data, 0, 1 << 20);
        compress(zeros.data, 1 << 20, "xz", &packed);
        cubby_error err = {0};
        assert_int_equal(expand_memory(packed.data, packed.size, &out, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        AUTO_FD int from = file_of(packed.data, packed.size);
        AUTO_FD int to = memfd_create("out", MFD_CLOEXEC);
        uint64_t written = 42;
        assert_int_equal(expand_range(from, 0, packed.size, to, (1 << 20) - 1, DEADLINE_NEVER,
                                 &written, &err),
                -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_int_equal(written, 42);
        assert_int_equal(
                expand_range(from, 0, packed.size, to, 1 << 20, DEADLINE_NEVER, &written, &err), 0);
        int64_t passed = clock_monotonic_ms();
        assert_int_equal(
                expand_range(from, 0, packed.size, to, 1 << 20, passed, &written, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_int_equal(written, 1 << 20);
}

static void vmlinux_headers(void **state)
{
        static const struct {
                const char *what;
                size_t offset;
                uint8_t value;
                int want;
        } cases[] = {
                {"good", 0, 0x7f, 0},
                {"no ELF", 0, 'M', -1},
                {"32 bits", EI_CLASS, ELFCLASS32, -1},
                {"big endian", EI_DATA, ELFDATA2MSB, -1},
                {"arm64", offsetof(Elf64_Ehdr, e_machine), EM_AARCH64, -1},
                {"odd segment size", offsetof(Elf64_Ehdr, e_phentsize), 1, -1},
                {"no segments", offsetof(Elf64_Ehdr, e_phnum), 0, -1},
                {"too many segments", offsetof(Elf64_Ehdr, e_phnum), 65, -1},
                {"segments past the end", offsetof(Elf64_Ehdr, e_phoff), 200, -1},
                {"segments far away", offsetof(Elf64_Ehdr, e_phoff) + 7, 0x7f, -1},
                {"no note segment", sizeof(Elf64_Ehdr), PT_LOAD, -1},
                {"note past the end", sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_offset) + 2, 9,
                        -1},
                {"huge note", sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_filesz) + 6, 1, -1},
                {"other note", sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 8, 17, -1},
                {"other owner", sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 12, 'Y', -1},
                {"name past the end", sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 3, 0xff, -1},
                {"text past the end", sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 7, 0xff, -1},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                AUTO_BUFFER struct buffer vmlinux;
                buffer_init(&vmlinux, 65536);
                make_vmlinux(&vmlinux);
                vmlinux.data[cases[i].offset] = cases[i].value;
                /* nothing behind the notes, so that what is past them is past the end */
                size_t size = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + NOTE_SIZE;
                AUTO_FD int fd = file_of(vmlinux.data, size);
                cubby_error err = {0};
                int got = vmlinux_check(fd, &err);
                if (got != cases[i].want)
                        fail_msg("%s: %d %s", cases[i].what, got, err.message);
        }
}

static void versions(void **state)
{
        static const struct {
                const char *text;
                int want;
        } cases[] = {
                {"Linux version 6.1.0-57-cloud-amd64 (x)", 0},
                {"xxLinux version %s yy Linux version 6.12.1+deb13 (x)", 0},
                {"Linux version ", -1},
                {"Linux version 6.1", -1},
                {"Linux version ../../etc (x)", -1},
                {"Linux version 6.1/../x (x)", -1},
                {"Linux version 6666666666666666666666666666666666666666666666666666666666666666 x",
                        -1},
                {"nothing", -1},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                AUTO_FD int fd = file_of(cases[i].text, strlen(cases[i].text));
                char version[KERNEL_VERSION_MAX];
                if (vmlinux_version(fd, version, NULL) != cases[i].want)
                        fail_msg("'%s'", cases[i].text);
        }
        AUTO_FD int empty = file_of("", 0);
        char version[KERNEL_VERSION_MAX];
        assert_int_equal(vmlinux_version(empty, version, NULL), -1);
        assert_true(kernel_version_valid("6.1.0-57-cloud-amd64"));
        static const char *const bad[] = {"", ".", "..", ".hidden", "-x", "a/b", "a b", "a\n"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_false(kernel_version_valid(bad[i]));
}

static void module_paths(void **state)
{
        static const struct {
                const char *path;
                const char *want; /* NULL: no module of ours */
                bool compressed;
        } cases[] = {
                {"kernel/drivers/block/virtio_blk.ko", "virtio_blk", false},
                {"erofs.ko.xz", "erofs", true},
                {"./lib/modules/6/kernel/fs/overlayfs/overlay.ko.zst", "overlay", true},
                {"virtio.ko.gz", "virtio", true},
                {"virtio_ring.ko", "virtio_ring", false},
                {"virtio", NULL, false},
                {"virtio.ko.bz2", NULL, false},
                {"xvirtio.ko", NULL, false},
                {"virtio_pci.ko", NULL, false},
                {"virtio.ko/other", NULL, false},
                {"", NULL, false},
                {"/", NULL, false},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                bool compressed = false;
                const struct module *module = module_of_path(cases[i].path, &compressed);
                if (cases[i].want == NULL) {
                        assert_null(module);
                        continue;
                }
                assert_non_null(module);
                assert_string_equal(module->name, cases[i].want);
                assert_int_equal(compressed, cases[i].compressed);
        }
}

static size_t position(const char *name)
{
        for (size_t i = 0; module_table[i].name != NULL; i++)
                if (strcmp(module_table[i].name, name) == 0)
                        return i;
        fail_msg("no module '%s'", name);
        return 0;
}

static void module_order(void **state)
{
        static const char *const order[] = {"virtio_ring", "virtio", "virtio_mmio",
                "virtio_console", "virtio_blk", "libcrc32c", "erofs", "overlay", "failover",
                "net_failover", "virtio_net"};
        for (size_t i = 1; i < sizeof order / sizeof *order; i++)
                assert_true(position(order[i - 1]) < position(order[i]));
        assert_true(position("mbcache") < position("ext4"));
        assert_true(position("jbd2") < position("ext4"));
        for (size_t i = 0; module_table[i].name != NULL; i++) {
                assert_true(strlen(module_table[i].name) < MODULE_NAME_MAX);
                assert_true(i < KERNEL_MODULES_MAX);
        }
}

static void module_dependencies(void **state)
{
        static const char info[] = "x\0name=erofs\0depends=libcrc32c,netfs\0license=GPL";
        assert_true(module_depends(info, sizeof info, "libcrc32c"));
        assert_true(module_depends(info, sizeof info, "netfs"));
        assert_false(module_depends(info, sizeof info, "net"));
        assert_false(module_depends(info, sizeof info, "crc32c"));
        assert_false(module_depends(info, sizeof info, ""));
        assert_false(module_depends("x\0depends=a", 11, "a")); /* cut off: no end */
        assert_false(module_depends("x\0depends=\0", 11, "a"));
        assert_false(module_depends("", 0, "a"));
}

struct folder {
        char path[32];
        int fd;
};

static struct folder make_folder(void)
{
        struct folder folder = {.path = "/tmp/cubby-kernel-XXXXXX"};
        assert_non_null(mkdtemp(folder.path));
        folder.fd = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(folder.fd >= 0);
        return folder;
}

static void remove_folder(struct folder *folder)
{
        (void)close(folder->fd);
        assert_int_equal(dir_remove_at(AT_FDCWD, folder->path, NULL), 0);
}

/* A module with sections of these names, and a signature of `signature` bytes. */
static void make_signed_module(struct buffer *out, const char *types, uint32_t signature)
{
        char names[32] = "";
        (void)snprintf(names + 1, sizeof names - 1, "%s", types);
        Elf64_Ehdr header = {.e_type = ET_REL,
                .e_machine = EM_X86_64,
                .e_shoff = sizeof header,
                .e_shentsize = sizeof(Elf64_Shdr),
                .e_shnum = 2,
                .e_shstrndx = 0};
        memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        const Elf64_Shdr sections[2] = {
                {.sh_offset = sizeof header + sizeof sections, .sh_size = sizeof names},
                {.sh_name = 1, .sh_offset = sizeof header, .sh_size = 64}};
        assert_true(buffer_append(out, &header, sizeof header));
        assert_true(buffer_append(out, sections, sizeof sections));
        assert_true(buffer_append(out, names, sizeof names));
        const uint8_t tail[12] = {[8] = (uint8_t)(signature >> 24),
                (uint8_t)(signature >> 16),
                (uint8_t)(signature >> 8),
                (uint8_t)signature};
        assert_true(buffer_append(out, "SIGNATURE", 9));
        assert_true(buffer_append(out, tail, sizeof tail));
        assert_true(buffer_append_text(out, "~Module signature appended~\n"));
}

static void modules_stripped(void **state)
{
        const size_t plain = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr) + 32;
        const size_t whole = plain + 9 + 12 + 28;
        static const struct {
                const char *types;
                uint32_t signature;
                bool signature_goes;
                uint64_t section_left;
                size_t section_count;
        } cases[] = {
                {".BTF", 9, true, 0, 2}, {".BTFX", 9, true, 64, 2},
                {".BTF", 0xffffffff, false, 0, 2}, {".BTF", 10000, false, 0, 2},
                {".BTF", 9, true, 64, 60000}, /* a table that ends outside */
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                AUTO_BUFFER struct buffer module;
                buffer_init(&module, 4096);
                make_signed_module(&module, cases[i].types, cases[i].signature);
                assert_int_equal(module.size, whole);
                ((Elf64_Ehdr *)(void *)module.data)->e_shnum = (uint16_t)cases[i].section_count;
                assert_int_equal(module_strip(module.data, module.size),
                        cases[i].signature_goes ? plain : whole);
                Elf64_Shdr section;
                memcpy(&section, module.data + sizeof(Elf64_Ehdr) + sizeof section, sizeof section);
                assert_int_equal(section.sh_size, cases[i].section_left);
        }
        uint8_t short_one[] = "~Module signature appended~\n";
        assert_int_equal(module_strip(short_one, 28), 28);
        assert_int_equal(module_strip(short_one, 0), 0);
}

static void modules_stored(void **state)
{
        struct folder folder = make_folder();
        const struct module *erofs = &module_table[position("erofs")];
        AUTO_BUFFER struct buffer module;
        AUTO_BUFFER struct buffer packed;
        AUTO_BUFFER struct buffer builtin;
        buffer_init(&module, 4096);
        buffer_init(&packed, 1 << 20);
        buffer_init(&builtin, 4096);
        make_module(&module, "text", 4);
        compress(module.data, module.size, "xz", &packed);
        cubby_error err = {0};
        assert_int_equal(module_store(folder.fd, erofs, false, "no", 2, &err), -1);
        assert_int_equal(module_store(folder.fd, erofs, false, NULL, 0, &err), -1);
        assert_int_equal(module_store(folder.fd, erofs, true, "no", 2, &err), -1);
        assert_int_equal(module_store(folder.fd, erofs, true, module.data, module.size, &err), -1);
        assert_int_equal(faccessat(folder.fd, "erofs.ko", F_OK, 0), -1);
        assert_int_equal(module_store(folder.fd, erofs, true, packed.data, packed.size, &err), 0);
        AUTO_BUFFER struct buffer back;
        buffer_init(&back, 4096);
        assert_int_equal(file_read_at(folder.fd, "erofs.ko", &back, &err), 0);
        assert_int_equal(back.size, module.size);
        assert_memory_equal(back.data, module.data, module.size);

        assert_true(buffer_append_text(&builtin,
                "kernel/fs/ext4/ext4.ko\nkernel/virtio.ko\nkernel/virtio_ring.ko\n"
                "kernel/virtio_mmio.ko\nkernel/xvirtio_blk.ko\nkernel/overlay.ko\n"));
        assert_int_equal(modules_check(folder.fd, &builtin, &err), -1);
        assert_int_equal(err.code, CUBBY_E_KERNEL);
        assert_non_null(strstr(err.message, ": virtio_console virtio_blk"));
        assert_true(
                buffer_append_text(&builtin, "kernel/virtio_blk.ko\nkernel/virtio_console.ko\n"));
        assert_int_equal(modules_check(folder.fd, &builtin, &err), 0);
        remove_folder(&folder);
}

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEAD "cubby-kernel 1\ndigest " DIGEST "\nsize 5000\nsource -\n"

static void manifests(void **state)
{
        static const struct {
                const char *text;
                int want; /* error code, 0: good */
        } cases[] = {
                {HEAD, 0},
                {HEAD "module erofs 100\nmodule overlay 200\n", 0},
                {"", CUBBY_E_CORRUPT},
                {"garbage", CUBBY_E_CORRUPT},
                {"cubby-kernel 2\n", CUBBY_E_VERSION},
                {"cubby-kernel 1\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "\nsize 5000\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest 12\nsize 5000\nsource -\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "0\nsize 5000\nsource -\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "\nsize 0\nsource -\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "\nsize -5\nsource -\n", CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "\nsize 99999999999\nsource -\n",
                        CUBBY_E_CORRUPT},
                {"cubby-kernel 1\ndigest " DIGEST "\nsize 5000\nsource \n", CUBBY_E_CORRUPT},
                {HEAD "size 5000\n", CUBBY_E_CORRUPT},
                {HEAD "digest " DIGEST "\n", CUBBY_E_CORRUPT},
                {HEAD "module erofs\n", CUBBY_E_CORRUPT},
                {HEAD "module ../../x 5\n", CUBBY_E_CORRUPT},
                {HEAD "module  5\n", CUBBY_E_CORRUPT},
                {HEAD "module erofs 99999999999\n", CUBBY_E_CORRUPT},
                {HEAD "module erofs 1x\n", CUBBY_E_CORRUPT},
                {HEAD "unknown 1\n", CUBBY_E_CORRUPT},
                {HEAD "module erofs 100", CUBBY_E_CORRUPT},
                {HEAD "\n", CUBBY_E_CORRUPT},
                {HEAD "modulewithoutspace\nx y\n", CUBBY_E_CORRUPT},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct kernel_manifest manifest = {.size = 42};
                cubby_error err = {0};
                int got = manifest_parse(cases[i].text, &manifest, &err);
                if (err.code != cases[i].want || (got == 0) != (cases[i].want == 0))
                        fail_msg("case %zu: code %d %s", i, err.code, err.message);
                if (got < 0) {
                        assert_int_equal(manifest.size, 42);
                        continue;
                }
                AUTO_BUFFER struct buffer out;
                buffer_init(&out, 4096);
                assert_true(manifest_format(&manifest, &out));
                assert_string_equal(buffer_text(&out), cases[i].text);
        }
        AUTO_BUFFER struct buffer many;
        buffer_init(&many, 65536);
        assert_true(buffer_append_text(&many, HEAD));
        for (unsigned i = 0; i <= KERNEL_MODULES_MAX; i++)
                assert_true(buffer_append_text(&many, "module a 1\n"));
        struct kernel_manifest manifest;
        assert_int_equal(manifest_parse(buffer_text(&many), &manifest, NULL), -1);
}

static void packages(void **state)
{
        static const struct {
                const char *show;
                const char *want;
        } cases[] = {
                {"Package: x\nDepends: linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3)\nX: y\n",
                        "linux-image-6.1.0-57-cloud-amd64"},
                {"Depends: linux-base, linux-image-6.12+x-amd64\n", "linux-image-6.12+x-amd64"},
                {"Depends: linux-image-1\n", "linux-image-1"},
                {"", NULL},
                {"Package: x\n", NULL},
                {"Depends: \n", NULL},
                {"Depends: linux-base\nPre-Depends: linux-image-1\n", NULL},
                {"Suggests: linux-image-1\n", NULL},
                {"Depends: linux-image-\n", NULL},
                {"Depends: linux-image-../../x\n", NULL},
                {"Depends: linux-image-1;rm\n", NULL},
                {"Depends: --option, x\n", NULL},
                {"Depends: linux-image-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
                        NULL},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                char name[48] = "untouched";
                cubby_error err = {0};
                int got = package_of_depends(cases[i].show, name, sizeof name, &err);
                assert_int_equal(got, cases[i].want == NULL ? -1 : 0);
                assert_string_equal(name, cases[i].want == NULL ? "untouched" : cases[i].want);
        }
}

static void add_file(struct archive *archive, const char *path, const void *data, size_t size)
{
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, path);
        archive_entry_set_mode(entry, S_IFREG | 0644);
        archive_entry_set_size(entry, (la_int64_t)size);
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(archive, data, size), (la_ssize_t)size);
        archive_entry_free(entry);
}

/* A kernel package: all modules that are required, in `image` the boot image. */
static int make_deb(const struct buffer *image, const char *member)
{
        static uint8_t tar_bytes[1 << 20];
        size_t tar_size = 0;
        AUTO_BUFFER struct buffer module;
        buffer_init(&module, 4096);
        make_module(&module, "\0depends=libcrc32c\0", 19);
        struct archive *tar = archive_write_new();
        (void)archive_write_set_format_gnutar(tar);
        (void)archive_write_add_filter_xz(tar);
        (void)archive_write_open_memory(tar, tar_bytes, sizeof tar_bytes, &tar_size);
        if (image != NULL)
                add_file(tar, "./boot/vmlinuz-" VERSION, image->data, image->size);
        add_file(tar, "./usr/share/doc/erofs.ko", "no", 2);
        for (size_t i = 0; module_table[i].name != NULL; i++) {
                char path[128];
                (void)snprintf(path, sizeof path, "./usr/lib/modules/" VERSION "/kernel/x/%s.ko",
                        module_table[i].name);
                if (strcmp(module_table[i].name, "ext4") != 0)
                        add_file(tar, path, module.data, module.size);
        }
        static const char builtin[] = "kernel/fs/ext4/ext4.ko\n";
        add_file(tar, "./usr/lib/modules/" VERSION "/modules.builtin", builtin, sizeof builtin - 1);
        (void)archive_write_close(tar);
        (void)archive_write_free(tar);

        char *deb_bytes = malloc(2 << 20);
        size_t deb_size = 0;
        assert_non_null(deb_bytes);
        struct archive *ar = archive_write_new();
        (void)archive_write_set_format_ar_bsd(ar);
        (void)archive_write_set_bytes_in_last_block(ar, 1);
        (void)archive_write_open_memory(ar, deb_bytes, 2 << 20, &deb_size);
        add_file(ar, "debian-binary", "2.0\n", 4);
        add_file(ar, member, tar_bytes, tar_size);
        (void)archive_write_close(ar);
        (void)archive_write_free(ar);
        int fd = file_of(deb_bytes, deb_size);
        free(deb_bytes);
        return fd;
}

static void deb_files(void **state)
{
        static const struct {
                const char *what;
                const char *member;
                bool image;
                off_t size; /* 0: whole */
                int want;
        } cases[] = {{"good", "data.tar.xz", true, 0, 0},
                {"no data", "control.tar.xz", true, 0, -1},
                {"no kernel", "data.tar.xz", false, 0, -1},
                {"truncated", "data.tar.xz", true, 300, -1},
                {"head only", "data.tar.xz", true, 70, -1}, {"empty", "data.tar.xz", true, -1, -1}};
        AUTO_BUFFER struct buffer image;
        buffer_init(&image, 4096);
        assert_true(buffer_append_text(&image, "image"));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct folder folder = make_folder();
                AUTO_FD int deb = make_deb(cases[i].image ? &image : NULL, cases[i].member);
                AUTO_FD int out = memfd_create("out", MFD_CLOEXEC);
                AUTO_BUFFER struct buffer builtin;
                buffer_init(&builtin, 4096);
                if (cases[i].size != 0)
                        assert_int_equal(ftruncate(deb, cases[i].size < 0 ? 0 : cases[i].size), 0);
                cubby_error err = {0};
                int got = deb_read(deb, out, folder.fd, &builtin, DEADLINE_NEVER, &err);
                if (got != cases[i].want)
                        fail_msg("%s: %d %s", cases[i].what, got, err.message);
                if (got == 0) {
                        assert_int_equal(modules_check(folder.fd, &builtin, &err), 0);
                        assert_int_equal(lseek(out, 0, SEEK_END), 5);
                }
                remove_folder(&folder);
        }
}

/* Writes the .deb where kernel_ensure can be pointed at it. */
static void save(int fd, const char *path)
{
        AUTO_FD int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(to >= 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(file_copy_sparse(fd, to, NULL), 0);
}

static int list_initramfs(const char *home, char *first, size_t size)
{
        char path[160];
        (void)snprintf(path, sizeof path, "%s/kernels/" VERSION, home);
        AUTO_DIR DIR *dir = opendir(path);
        assert_non_null(dir);
        int count = 0;
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL)
                if (strncmp(entry->d_name, "initramfs-", 10) == 0) {
                        (void)snprintf(first, size, "%.64s", entry->d_name);
                        count++;
                }
        return count;
}

static void check_initramfs(int fd)
{
        struct archive *cpio = archive_read_new();
        (void)archive_read_support_format_cpio(cpio);
        assert_int_equal(archive_read_open_fd(cpio, fd, 4096), ARCHIVE_OK);
        struct archive_entry *entry;
        bool init = false;
        bool netfs = false;
        char order[512] = "";
        while (archive_read_next_header(cpio, &entry) == ARCHIVE_OK) {
                const char *path = archive_entry_pathname(entry);
                if (strcmp(path, "init") == 0)
                        init = archive_entry_perm(entry) == 0755;
                netfs = netfs || strstr(path, "netfs") != NULL;
                if (strcmp(path, "modules/order") == 0)
                        assert_true(archive_read_data(cpio, order, sizeof order - 1) > 0);
        }
        (void)archive_read_free(cpio);
        assert_true(init);
        assert_false(netfs); /* nothing depends on it here */
        assert_string_equal(order,
                "virtio_ring.ko\nvirtio.ko\nvirtio_mmio.ko\nvirtio_console.ko\nvirtio_blk.ko\n"
                "crc32c_generic.ko\nlibcrc32c.ko\nerofs.ko\noverlay.ko\n");
}

static void whole_way(void **state)
{
        struct folder folder = make_folder();
        char deb[64];
        char agent[64];
        (void)snprintf(deb, sizeof deb, "%s/x.deb", folder.path);
        (void)snprintf(agent, sizeof agent, "%s/agent", folder.path);
        AUTO_BUFFER struct buffer vmlinux;
        AUTO_BUFFER struct buffer image;
        buffer_init(&vmlinux, 65536);
        buffer_init(&image, 1 << 20);
        make_vmlinux(&vmlinux);
        make_bzimage(&vmlinux, "xz", &image);
        AUTO_FD int deb_fd = make_deb(&image, "data.tar.xz");
        save(deb_fd, deb);
        assert_int_equal(
                file_publish_at(folder.fd, "agent", vmlinux.data, vmlinux.size, 0700, NULL), 0);

        struct home *home = NULL;
        struct kernel kernel = {0};
        cubby_error err = {0};
        char home_folder_path[64];
        (void)snprintf(home_folder_path, sizeof home_folder_path, "%s/home", folder.path);
        assert_int_equal(home_open(home_folder_path, NULL, &home, &err), 0);
        if (kernel_ensure(home, deb, NULL, NULL, &kernel, &err) < 0)
                fail_msg("%s", err.message);
        assert_string_equal(kernel.version, VERSION);
        assert_int_equal(strlen(kernel.digest), 64);

        int vmlinux_fd = -1;
        int initramfs_fd = -1;
        char first[80] = "";
        char second[80] = "";
        assert_int_equal(kernel_open(home, &kernel, agent, &vmlinux_fd, &initramfs_fd, &err), 0);
        check_initramfs(initramfs_fd);
        (void)close(vmlinux_fd);
        (void)close(initramfs_fd);
        assert_int_equal(list_initramfs(home_folder_path, first, sizeof first), 1);
        vmlinux.data[vmlinux.size - 1] ^= 1; /* another agent: its archive replaces the first */
        assert_int_equal(
                file_publish_at(folder.fd, "agent", vmlinux.data, vmlinux.size, 0700, NULL), 0);
        assert_int_equal(kernel_open(home, &kernel, agent, &vmlinux_fd, &initramfs_fd, &err), 0);
        (void)close(vmlinux_fd);
        (void)close(initramfs_fd);
        assert_int_equal(list_initramfs(home_folder_path, second, sizeof second), 1);
        assert_string_not_equal(first, second);

        struct kernel_entry *listed = NULL;
        size_t count = 0;
        assert_int_equal(kernel_list(home, &listed, &count, &err), 0);
        assert_int_equal(count, 1);
        assert_string_equal(listed[0].version, VERSION);
        assert_string_equal(listed[0].digest, kernel.digest);
        assert_true(listed[0].disk_bytes > 0);
        kernel_list_free(listed, count);
        kernel_list_free(NULL, 0);

        /* by name, and as the newest; then damaged: not there any more */
        struct kernel again = {0};
        assert_int_equal(kernel_ensure(home, VERSION, NULL, NULL, &again, &err), 0);
        kernel_clear(&again);
        assert_int_equal(kernel_ensure(home, NULL, NULL, NULL, &again, &err), 0);
        assert_string_equal(again.version, VERSION);
        kernel_clear(&again);
        char module[160];
        (void)snprintf(
                module, sizeof module, "%s/kernels/" VERSION "/modules/erofs.ko", home_folder_path);
        assert_int_equal(truncate(module, 5), 0);
        assert_int_equal(kernel_ensure(home, VERSION, NULL, NULL, &again, &err), -1);
        assert_int_equal(kernel_list(home, &listed, &count, &err), 0);
        assert_int_equal(count, 0);
        kernel_list_free(listed, count);
        assert_int_equal(kernel_open(home, &kernel, agent, &vmlinux_fd, &initramfs_fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_int_equal(kernel_ensure(home, deb, NULL, NULL, &again, &err), 0);
        kernel_clear(&again);
        assert_int_equal(kernel_open(home, &kernel, agent, &vmlinux_fd, &initramfs_fd, &err), 0);
        (void)close(vmlinux_fd);
        (void)close(initramfs_fd);

        static const char *const bad[] = {
                "/nonexistent/vmlinuz", "/", "/dev/null", "/etc/passwd", "no-such-version", ""};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_int_equal(kernel_ensure(home, bad[i], NULL, NULL, &again, &err), -1);
        kernel_clear(&kernel);
        home_close(home);
        remove_folder(&folder);
}

static void put_file(int dir_fd, const char *path, const struct buffer *content)
{
        AUTO_FD int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write_whole(fd, content->data, content->size), 0);
}

/* A kernel given as a file: where its modules may be, and the refusal when they are nowhere. */
static void files_without_modules(void **state)
{
        static const struct {
                const char *folder; /* with overlay.ko in it */
                const char *built_in;
                int want;
        } cases[] = {
                {"boot/modules", "", 0},
                {"lib/modules/" VERSION, "", 0},
                {"usr/lib/modules/" VERSION, "", 0},
                {NULL, "overlay.redirect_dir", 0},
                {NULL, "", -1},
                {"boot/other", "", -1},
                {"lib/modules/6.1.0-other", "", -1},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct folder folder = make_folder();
                AUTO_BUFFER struct buffer vmlinux;
                AUTO_BUFFER struct buffer module;
                buffer_init(&vmlinux, 65536);
                buffer_init(&module, 4096);
                make_vmlinux(&vmlinux);
                assert_true(buffer_append_text(&vmlinux, cases[i].built_in));
                make_module(&module, "text", 4);
                char path[128];
                static const char *const above[] = {
                        "boot", "lib", "lib/modules", "usr", "usr/lib", "usr/lib/modules"};
                for (size_t k = 0; k < sizeof above / sizeof *above; k++)
                        assert_int_equal(mkdirat(folder.fd, above[k], 0700), 0);
                if (cases[i].folder != NULL) {
                        (void)mkdirat(folder.fd, cases[i].folder, 0700);
                        (void)snprintf(path, sizeof path, "%s/overlay.ko", cases[i].folder);
                        put_file(folder.fd, path, &module);
                }
                put_file(folder.fd, "boot/vmlinuz", &vmlinux);
                struct home *home = NULL;
                struct kernel kernel = {0};
                cubby_error err = {0};
                (void)snprintf(path, sizeof path, "%s/home", folder.path);
                assert_int_equal(home_open(path, NULL, &home, &err), 0);
                (void)snprintf(path, sizeof path, "%s/boot/vmlinuz", folder.path);
                int got = kernel_ensure(home, path, NULL, NULL, &kernel, &err);
                if (got != cases[i].want)
                        fail_msg("%zu: %d %s", i, got, err.message);
                if (got < 0)
                        assert_non_null(strstr(err.message, "'/lib/modules/" VERSION "'"));
                kernel_clear(&kernel);
                home_close(home);
                remove_folder(&folder);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bzimage_head),
                cmocka_unit_test(extract_all_compressions),
                cmocka_unit_test(extract_refuses),
                cmocka_unit_test(expansion_has_a_ceiling),
                cmocka_unit_test(vmlinux_headers),
                cmocka_unit_test(versions),
                cmocka_unit_test(module_paths),
                cmocka_unit_test(module_order),
                cmocka_unit_test(module_dependencies),
                cmocka_unit_test(modules_stripped),
                cmocka_unit_test(modules_stored),
                cmocka_unit_test(files_without_modules),
                cmocka_unit_test(manifests),
                cmocka_unit_test(packages),
                cmocka_unit_test(deb_files),
                cmocka_unit_test(whole_way),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
