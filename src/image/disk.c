/* SPDX-License-Identifier: Apache-2.0 */
#include "image/disk.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/*
 * On-disk format: Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h of the
 * kernel. All numbers are little-endian.
 */
#define EROFS_MAGIC 0xE0F5E1E2U
#define SUPER_OFFSET 1024U
#define SUPER_BYTES 128U
#define COMPAT_CHECKSUM 0x1U
#define COMPAT_MTIME 0x2U
#define BLOCK_BITS 12U
#define SLOT_BYTES 32U /* a nid counts these from the start of the metadata area */
#define INODE_BYTES 64U
#define DIRENT_BYTES 12U
#define XATTR_HEADER_BYTES 12U
#define XATTR_ENTRY_BYTES 4U
#define FORMAT_EXTENDED 1U
#define LAYOUT_PLAIN 0U
#define LAYOUT_INLINE 2U
/* A folder entry of number 0 counts as deleted for readdir(3), so the root is not first. */
#define ROOT_NID 1U
#define WRITE_BYTES (256U << 10)

enum file_type { FT_UNKNOWN, FT_FILE, FT_FOLDER, FT_CHAR, FT_BLOCK, FT_FIFO, FT_SOCKET, FT_LINK };

/* ---- contents ---- */

void disk_start(struct disk *disk, int fd)
{
        disk->fd = fd;
        disk->next_block = 1;
}

static uint64_t blocks_of(uint64_t size)
{
        return size / DISK_BLOCK + (size % DISK_BLOCK != 0);
}

int disk_reserve(struct disk *disk, uint64_t size, uint32_t *ret_block, cubby_error *err)
{
        uint64_t blocks = blocks_of(size);
        if (blocks > UINT32_MAX - disk->next_block)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the image does not fit a disk of 2^32 blocks");
        *ret_block = blocks == 0 ? 0 : (uint32_t)disk->next_block;
        disk->next_block += blocks;
        return 0;
}

static int write_at(int fd, uint64_t offset, const void *data, size_t size, cubby_error *err)
{
        const uint8_t *bytes = data;
        while (size > 0) {
                ssize_t written = pwrite(fd, bytes, size, (off_t)offset);
                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0)
                        return cubby_error_errno(err, errno, "writing the image's disk");
                bytes += written;
                offset += (uint64_t)written;
                size -= (size_t)written;
        }
        return 0;
}

int disk_write(struct disk *disk, uint32_t block, uint64_t offset, const void *data, size_t size,
        cubby_error *err)
{
        return write_at(disk->fd, (uint64_t)block * DISK_BLOCK + offset, data, size, err);
}

void disk_discard(struct disk *disk, uint32_t block, uint64_t size)
{
        (void)fallocate(disk->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                (off_t)block * DISK_BLOCK, (off_t)(blocks_of(size) * DISK_BLOCK));
}

/* ---- numbering ---- */

struct metadata {
        struct disk *disk;
        struct inode **inodes; /* breadth first: a folder's children lie together */
        size_t count;
        size_t capacity;
        uint64_t end;   /* of the metadata area, in bytes */
        uint64_t start; /* of the metadata area, in bytes of the disk */
        struct buffer out;
        uint64_t out_offset; /* in the area, of the first byte in `out` */
};

static int push_inode(struct metadata *meta, struct inode *inode, cubby_error *err)
{
        if (meta->count == meta->capacity) {
                size_t capacity = meta->capacity == 0 ? 1024 : meta->capacity * 2;
                struct inode **larger = reallocarray(meta->inodes, capacity, sizeof(void *));
                if (larger == NULL)
                        return cubby_error_no_memory(err);
                meta->inodes = larger;
                meta->capacity = capacity;
        }
        meta->inodes[meta->count++] = inode;
        return 0;
}

struct prefix {
        const char *text;
        uint8_t index;
        bool whole; /* the prefix is the whole name */
};

static const struct prefix xattr_prefixes[] = {
        {"user.", 1, false},
        {"system.posix_acl_access", 2, true},
        {"system.posix_acl_default", 3, true},
        {"trusted.", 4, false},
        {"security.", 6, false},
};

static const struct prefix *xattr_prefix(const char *name)
{
        for (size_t i = 0; i < sizeof xattr_prefixes / sizeof xattr_prefixes[0]; i++) {
                const struct prefix *prefix = &xattr_prefixes[i];
                size_t length = strlen(prefix->text);
                if (strncmp(name, prefix->text, length) == 0 &&
                        (name[length] == '\0') == prefix->whole)
                        return prefix;
        }
        return NULL;
}

static size_t align_xattr(size_t size)
{
        return (size + XATTR_ENTRY_BYTES - 1) / XATTR_ENTRY_BYTES * XATTR_ENTRY_BYTES;
}

/* Bytes between an inode and its inline content; 0 without attributes. */
static size_t xattr_bytes(const struct inode *inode)
{
        size_t size = 0;
        for (size_t i = 0; inode->xattrs != NULL && i < inode->xattrs->count; i++) {
                const struct xattr *xattr = &inode->xattrs->items[i];
                const struct prefix *prefix = xattr_prefix(xattr->name);
                if (prefix != NULL)
                        size += align_xattr(XATTR_ENTRY_BYTES + strlen(xattr->name) -
                                strlen(prefix->text) + xattr->size);
        }
        return size == 0 ? 0 : XATTR_HEADER_BYTES + size;
}

/* One name of a folder as it is stored; "." and ".." are among them. */
struct dirent_source {
        const char *name;
        struct inode *inode;
};

static int compare_dirents(const void *a, const void *b)
{
        return strcmp(
                ((const struct dirent_source *)a)->name, ((const struct dirent_source *)b)->name);
}

/* All names of a folder in the order in which the kernel searches them. */
static int list_folder(
        struct inode *folder, struct dirent_source **ret, size_t *ret_count, cubby_error *err)
{
        AUTO_FREE struct dentry **children = NULL;
        size_t count = 0;
        if (tree_children(folder, &children, &count, err) < 0)
                return -1;
        struct dirent_source *list = reallocarray(NULL, count + 2, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++)
                list[i] = (struct dirent_source){children[i]->name, children[i]->inode};
        list[count] = (struct dirent_source){".", folder};
        list[count + 1] = (struct dirent_source){"..", folder->folder.parent};
        qsort(list, count + 2, sizeof *list, compare_dirents);
        *ret = list;
        *ret_count = count + 2;
        return 0;
}

/* How many of the names fit the next folder block, and the bytes they take. */
static size_t fill_block(const struct dirent_source *list, size_t count, size_t *ret_bytes)
{
        size_t bytes = 0;
        size_t fitting = 0;
        while (fitting < count) {
                size_t more = DIRENT_BYTES + strlen(list[fitting].name);
                if (bytes + more > DISK_BLOCK)
                        break;
                bytes += more;
                fitting++;
        }
        *ret_bytes = bytes;
        return fitting;
}

static uint64_t folder_bytes(const struct dirent_source *list, size_t count)
{
        uint64_t size = 0;
        for (size_t done = 0; done < count;) {
                size_t bytes = 0;
                done += fill_block(list + done, count - done, &bytes);
                size += done < count ? DISK_BLOCK : bytes;
        }
        return size;
}

/* Content that may share the inode's block instead of having blocks of its own. */
static bool has_inline_tail(const struct inode *inode)
{
        if (!S_ISDIR(inode->mode) && !S_ISLNK(inode->mode))
                return false;
        size_t tail = inode->size % DISK_BLOCK;
        return tail != 0 && INODE_BYTES + xattr_bytes(inode) + tail <= DISK_BLOCK;
}

/* Gives an inode its place in the metadata area, and blocks to its content. */
static int place_inode(struct metadata *meta, struct inode *inode, cubby_error *err)
{
        bool inlined = has_inline_tail(inode);
        uint64_t outside = inode->size;
        size_t bytes = INODE_BYTES + xattr_bytes(inode);
        if (inlined) {
                bytes += inode->size % DISK_BLOCK;
                outside -= inode->size % DISK_BLOCK;
                /* Inline content may not cross a block. */
                if (meta->end % DISK_BLOCK + bytes > DISK_BLOCK)
                        meta->end = blocks_of(meta->end) * DISK_BLOCK;
        }
        inode->nid = meta->end / SLOT_BYTES;
        meta->end += (bytes + SLOT_BYTES - 1) / SLOT_BYTES * SLOT_BYTES;
        if (S_ISDIR(inode->mode))
                return disk_reserve(meta->disk, outside, &inode->folder.block, err);
        if (S_ISLNK(inode->mode))
                return disk_reserve(meta->disk, outside, &inode->link.block, err);
        return 0;
}

static int number_inodes(struct metadata *meta, struct inode *root, cubby_error *err)
{
        meta->end = ROOT_NID * SLOT_BYTES;
        root->queued = true;
        if (push_inode(meta, root, err) < 0)
                return -1;
        for (size_t next = 0; next < meta->count; next++) {
                struct inode *inode = meta->inodes[next];
                if (S_ISDIR(inode->mode)) {
                        AUTO_FREE struct dirent_source *list = NULL;
                        size_t count = 0;
                        if (list_folder(inode, &list, &count, err) < 0)
                                return -1;
                        inode->size = folder_bytes(list, count);
                        for (size_t i = 0; i < count; i++) {
                                if (list[i].inode->queued)
                                        continue;
                                list[i].inode->queued = true;
                                if (push_inode(meta, list[i].inode, err) < 0)
                                        return -1;
                        }
                }
                if (place_inode(meta, inode, err) < 0)
                        return -1;
        }
        return 0;
}

/* ---- writing ---- */

static int flush(struct metadata *meta, cubby_error *err)
{
        if (meta->out.failed)
                return cubby_error_no_memory(err);
        if (write_at(meta->disk->fd, meta->start + meta->out_offset, meta->out.data, meta->out.size,
                    err) < 0)
                return -1;
        meta->out_offset += meta->out.size;
        buffer_clear(&meta->out);
        return 0;
}

/* Zeros up to a place in the metadata area. */
static void pad_to(struct metadata *meta, uint64_t offset)
{
        static const uint8_t zeros[DISK_BLOCK];
        uint64_t at = meta->out_offset + meta->out.size;
        if (offset > at)
                (void)buffer_append(&meta->out, zeros, (size_t)(offset - at));
}

static uint8_t file_type(uint32_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFREG:
                return FT_FILE;
        case S_IFDIR:
                return FT_FOLDER;
        case S_IFCHR:
                return FT_CHAR;
        case S_IFBLK:
                return FT_BLOCK;
        case S_IFIFO:
                return FT_FIFO;
        case S_IFSOCK:
                return FT_SOCKET;
        case S_IFLNK:
                return FT_LINK;
        default:
                return FT_UNKNOWN;
        }
}

static uint32_t content_field(const struct inode *inode)
{
        switch (inode->mode & S_IFMT) {
        case S_IFREG:
                return inode->block;
        case S_IFDIR:
                return inode->folder.block;
        case S_IFLNK:
                return inode->link.block;
        case S_IFCHR:
        case S_IFBLK:
                return inode->device;
        default:
                return 0;
        }
}

static uint32_t link_count(const struct inode *inode)
{
        return S_ISDIR(inode->mode) ? inode->folder.folder_count + 2 : inode->nlink;
}

static void write_xattrs(struct buffer *out, const struct inode *inode)
{
        static const uint8_t padding[XATTR_ENTRY_BYTES];
        static const uint8_t header[XATTR_HEADER_BYTES]; /* no shared attributes */
        (void)buffer_append(out, header, sizeof header);
        for (size_t i = 0; i < inode->xattrs->count; i++) {
                const struct xattr *xattr = &inode->xattrs->items[i];
                const struct prefix *prefix = xattr_prefix(xattr->name);
                if (prefix == NULL)
                        continue;
                const char *name = xattr->name + strlen(prefix->text);
                size_t length = strlen(name);
                size_t size = XATTR_ENTRY_BYTES + length + xattr->size;
                (void)buffer_u8(out, (uint8_t)length);
                (void)buffer_u8(out, prefix->index);
                (void)buffer_u16(out, (uint16_t)xattr->size);
                (void)buffer_append(out, name, length);
                (void)buffer_append(out, xattr->value, xattr->size);
                (void)buffer_append(out, padding, align_xattr(size) - size);
        }
}

static void write_inode(struct metadata *meta, const struct inode *inode, uint32_t number)
{
        static const uint8_t reserved[16];
        struct buffer *out = &meta->out;
        size_t xattrs = xattr_bytes(inode);
        uint16_t layout = has_inline_tail(inode) ? LAYOUT_INLINE : LAYOUT_PLAIN;
        pad_to(meta, inode->nid * SLOT_BYTES);
        (void)buffer_u16(out, (uint16_t)(FORMAT_EXTENDED | (unsigned int)layout << 1));
        (void)buffer_u16(out,
                xattrs == 0 ? 0
                            : (uint16_t)((xattrs - XATTR_HEADER_BYTES) / XATTR_ENTRY_BYTES + 1));
        (void)buffer_u16(out, (uint16_t)inode->mode);
        (void)buffer_u16(out, 0);
        (void)buffer_u64(out, inode->size);
        (void)buffer_u32(out, content_field(inode));
        (void)buffer_u32(out, number);
        (void)buffer_u32(out, inode->uid);
        (void)buffer_u32(out, inode->gid);
        (void)buffer_u64(out, (uint64_t)inode->mtime_sec);
        (void)buffer_u32(out, inode->mtime_nsec);
        (void)buffer_u32(out, link_count(inode));
        (void)buffer_append(out, reserved, sizeof reserved);
        if (xattrs > 0)
                write_xattrs(out, inode);
}

/* One folder block: entries, then names without a separator. */
static void build_block(uint8_t *block, const struct dirent_source *list, size_t count)
{
        size_t name_offset = count * DIRENT_BYTES;
        for (size_t i = 0; i < count; i++) {
                uint8_t *dirent = block + i * DIRENT_BYTES;
                size_t length = strlen(list[i].name);
                store_u64(dirent, list[i].inode->nid);
                store_u16(dirent + 8, (uint16_t)name_offset);
                dirent[10] = file_type(list[i].inode->mode);
                dirent[11] = 0;
                memcpy(block + name_offset, list[i].name, length);
                name_offset += length;
        }
}

static int write_folder(struct metadata *meta, struct inode *inode, cubby_error *err)
{
        AUTO_FREE struct dirent_source *list = NULL;
        size_t count = 0;
        if (list_folder(inode, &list, &count, err) < 0)
                return -1;
        uint64_t offset = 0;
        for (size_t done = 0; done < count;) {
                uint8_t block[DISK_BLOCK] = {0};
                size_t bytes = 0;
                size_t names = fill_block(list + done, count - done, &bytes);
                build_block(block, list + done, names);
                done += names;
                if (done == count && has_inline_tail(inode))
                        (void)buffer_append(&meta->out, block, bytes);
                else if (disk_write(meta->disk, inode->folder.block, offset, block, sizeof block,
                                 err) < 0)
                        return -1;
                offset += DISK_BLOCK;
        }
        return 0;
}

static int write_metadata(struct metadata *meta, cubby_error *err)
{
        for (size_t i = 0; i < meta->count; i++) {
                struct inode *inode = meta->inodes[i];
                write_inode(meta, inode, (uint32_t)i + 1);
                if (S_ISDIR(inode->mode)) {
                        if (write_folder(meta, inode, err) < 0)
                                return -1;
                } else if (S_ISLNK(inode->mode) && has_inline_tail(inode)) {
                        (void)buffer_append(&meta->out, inode->link.target, inode->size);
                } else if (S_ISLNK(inode->mode)) {
                        if (disk_write(meta->disk, inode->link.block, 0, inode->link.target,
                                    inode->size, err) < 0)
                                return -1;
                }
                if ((meta->out.failed || meta->out.size >= WRITE_BYTES) && flush(meta, err) < 0)
                        return -1;
        }
        pad_to(meta, blocks_of(meta->end) * DISK_BLOCK);
        return flush(meta, err);
}

/* CRC-32C as the kernel computes it over the superblock's block: no final inversion. */
static uint32_t crc32c(const uint8_t *data, size_t size)
{
        uint32_t crc = UINT32_MAX;
        for (size_t i = 0; i < size; i++) {
                crc ^= data[i];
                for (int bit = 0; bit < 8; bit++)
                        crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
        }
        return crc;
}

static int write_super(const struct metadata *meta, const uint8_t uuid[16], cubby_error *err)
{
        uint8_t block[DISK_BLOCK] = {0};
        uint8_t *super = block + SUPER_OFFSET;
        uint64_t meta_block = meta->start / DISK_BLOCK;
        store_u32(super, EROFS_MAGIC);
        store_u32(super + 8, COMPAT_CHECKSUM | COMPAT_MTIME);
        super[12] = BLOCK_BITS;
        store_u16(super + 14, ROOT_NID);
        store_u64(super + 16, meta->count);
        store_u32(super + 36, (uint32_t)(meta_block + blocks_of(meta->end)));
        store_u32(super + 40, (uint32_t)meta_block);
        memcpy(super + 48, uuid, 16);
        memcpy(super + 64, "cubby", sizeof "cubby");
        store_u32(super + 4, crc32c(super, DISK_BLOCK - SUPER_OFFSET));
        return write_at(meta->disk->fd, 0, block, sizeof block, err);
}

int disk_finish(struct disk *disk, struct tree *tree, const uint8_t uuid[16], cubby_error *err)
{
        struct metadata meta = {.disk = disk};
        /* A flush leaves at most one inode with its attributes and content beyond the mark. */
        buffer_init(&meta.out, WRITE_BYTES * 3);
        int result = number_inodes(&meta, tree_root(tree), err);
        uint32_t meta_block = 0;
        if (result == 0)
                result = disk_reserve(disk, meta.end, &meta_block, err);
        meta.start = (uint64_t)meta_block * DISK_BLOCK;
        if (result == 0)
                result = write_metadata(&meta, err);
        if (result == 0)
                result = write_super(&meta, uuid, err);
        if (result == 0 && ftruncate(disk->fd, (off_t)(disk->next_block * DISK_BLOCK)) < 0)
                result = cubby_error_errno(err, errno, "sizing the image's disk");
        buffer_free(&meta.out);
        free(meta.inodes);
        return result;
}

int disk_check(int fd, cubby_error *err)
{
        uint8_t block[DISK_BLOCK];
        struct stat status;
        ssize_t got;
        do {
                got = pread(fd, block, sizeof block, 0);
        } while (got < 0 && errno == EINTR);
        if (got < 0 || fstat(fd, &status) < 0)
                return cubby_error_errno(err, errno, "reading the image's disk");
        uint8_t *super = block + SUPER_OFFSET;
        if (!S_ISREG(status.st_mode) || got != sizeof block || load_u32(super) != EROFS_MAGIC)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the image's disk is not EROFS");
        uint32_t checksum = load_u32(super + 4);
        store_u32(super + 4, 0);
        if (crc32c(super, DISK_BLOCK - SUPER_OFFSET) != checksum ||
                (uint64_t)status.st_size != (uint64_t)load_u32(super + 36) * DISK_BLOCK)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the image's disk is damaged or cut short");
        return 0;
}
