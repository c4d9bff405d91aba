/* SPDX-License-Identifier: Apache-2.0 */
#include "tree/pack.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PIECE (256U * 1024U)
#define WAITING_MAX (32U * 1024U * 1024U) /* paths of folders that are not entered yet */
#define LINKS_MAX 65536U                  /* files with several names that are remembered */
#define LINK_BUCKETS 4096U
#define XATTR_NAMES_MAX 65536U
#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct known_link {
        struct known_link *next;
        dev_t device;
        ino_t inode;
        char path[];
};

struct packing {
        const struct pack_options *options;
        const struct tree_output *output;
        struct tree_count *count;
        dev_t device;
        int root_fd;           /* of a folder */
        struct buffer waiting; /* path, u16 size of it, and so on; the last is the next */
        struct buffer entry;
        struct buffer xattrs;
        struct buffer extents;
        struct known_link *links[LINK_BUCKETS];
        size_t link_count;
        uint8_t *piece;
        char *path; /* of the entry at hand; TREE_PATH_MAX + 1 */
        char *target;
        char *names; /* XATTR_NAMES_MAX, made when first needed */
};

int tree_open(int at_fd, const char *path, int flags, uint32_t mode, uint64_t resolve)
{
        struct open_how how = {
                .flags = (uint64_t)(uint32_t)(flags | O_CLOEXEC), .mode = mode, .resolve = resolve};
        long fd;
        do
                fd = syscall(SYS_openat2, at_fd, path, &how, sizeof how);
        while (fd < 0 && errno == EINTR);
        return (int)fd;
}

static const char *shown(const struct packing *packing)
{
        return packing->path[0] == '\0' ? packing->options->path : packing->path;
}

static int failed(const struct packing *packing, const char *what, cubby_error *err)
{
        return tree_errno(err, errno, what, shown(packing));
}

static bool has_vanished(void)
{
        return errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ESTALE;
}

/* ---- facts ---- */

static bool xattr_wanted(const char *name)
{
        return strcmp(name, "security.capability") == 0 ||
                (strncmp(name, "user.", 5) == 0 && name[5] != '\0');
}

/* Attributes that cannot be read are left out: not every file system has them. */
static int read_xattrs(struct packing *packing, int fd, cubby_error *err)
{
        buffer_clear(&packing->xattrs);
        if (flistxattr(fd, NULL, 0) <= 0)
                return 0;
        if (packing->names == NULL && (packing->names = malloc(XATTR_NAMES_MAX)) == NULL)
                return cubby_error_no_memory(err);
        ssize_t size = flistxattr(fd, packing->names, XATTR_NAMES_MAX);
        for (const char *name = packing->names; size > 0;) {
                size_t length = strlen(name) + 1;
                ssize_t got = -1;
                if (xattr_wanted(name))
                        got = fgetxattr(fd, name, packing->piece, PIECE);
                if (got >= 0) {
                        (void)buffer_slice(&packing->xattrs, name, length - 1);
                        (void)buffer_slice(&packing->xattrs, packing->piece, (size_t)got);
                }
                name += length;
                size -= (ssize_t)length;
        }
        if (packing->xattrs.failed)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "'%s' has more than %u bytes of extended attributes", shown(packing),
                        TREE_XATTR_MAX);
        return 0;
}

/* What is not a hole. Too many pieces: the last of them runs to the end. */
static void find_extents(struct packing *packing, int fd, uint64_t size)
{
        buffer_clear(&packing->extents);
        for (uint64_t at = 0; at < size;) {
                off_t start = lseek(fd, (off_t)at, SEEK_DATA);
                if (start < 0 && errno == ENXIO)
                        return;
                if (start < 0)
                        start = (off_t)at;
                off_t end = lseek(fd, start, SEEK_HOLE);
                bool last = packing->extents.size >= (size_t)16 * (TREE_EXTENTS_MAX - 1);
                if (end <= start || (uint64_t)end > size || last)
                        end = (off_t)size;
                if ((uint64_t)start >= size)
                        return;
                (void)buffer_u64(&packing->extents, (uint64_t)start);
                (void)buffer_u64(&packing->extents, (uint64_t)(end - start));
                at = (uint64_t)end;
        }
}

static struct tree_entry entry_of(const struct packing *packing, const struct stat *info)
{
        struct tree_entry entry = {.mode = info->st_mode & 07777,
                .uid = info->st_uid,
                .gid = info->st_gid,
                .mtime_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
                .path = packing->path,
                .target = ""};
        switch (info->st_mode & S_IFMT) {
        case S_IFREG:
                entry.type = TREE_REGULAR;
                entry.size = (uint64_t)info->st_size;
                break;
        case S_IFDIR:
                entry.type = TREE_FOLDER;
                break;
        case S_IFLNK:
                entry.type = TREE_LINK;
                break;
        case S_IFIFO:
                entry.type = TREE_FIFO;
                break;
        case S_IFBLK:
        case S_IFCHR:
                entry.type = S_ISBLK(info->st_mode) ? TREE_BLOCK : TREE_CHAR;
                entry.device_major = major(info->st_rdev);
                entry.device_minor = minor(info->st_rdev);
                break;
        default: /* a socket: nothing without its program */
                break;
        }
        return entry;
}

static int put_entry(struct packing *packing, const struct tree_entry *entry, cubby_error *err)
{
        if (packing->count != NULL)
                packing->count->files++;
        if (packing->options->dry)
                return 0;
        return tree_put_entry(packing->output, entry, &packing->entry, err);
}

/* ---- several names ---- */

static const char *find_link(struct packing *packing, const struct stat *info)
{
        struct known_link *link = packing->links[info->st_ino % LINK_BUCKETS];
        while (link != NULL && (link->inode != info->st_ino || link->device != info->st_dev))
                link = link->next;
        return link == NULL ? NULL : link->path;
}

/* False: there is no room, and each name is a file of its own. */
static bool remember_link(struct packing *packing, const struct stat *info)
{
        size_t size = strlen(packing->path) + 1;
        if (packing->link_count >= LINKS_MAX)
                return false;
        struct known_link *link = malloc(sizeof *link + size);
        if (link == NULL)
                return false;
        struct known_link **bucket = &packing->links[info->st_ino % LINK_BUCKETS];
        *link = (struct known_link){.next = *bucket, .device = info->st_dev, .inode = info->st_ino};
        memcpy(link->path, packing->path, size);
        *bucket = link;
        packing->link_count++;
        return true;
}

static void forget_links(struct packing *packing)
{
        for (size_t i = 0; i < LINK_BUCKETS; i++)
                for (struct known_link *link = packing->links[i]; link != NULL;) {
                        struct known_link *next = link->next;
                        free(link);
                        link = next;
                }
}

/* ---- contents ---- */

/* Ends early at the end of the file; `*ret_end` is how far it came. */
static int put_extent(struct packing *packing, int fd, uint64_t offset, uint64_t size,
        uint64_t *ret_end, cubby_error *err)
{
        uint64_t end = offset + size;
        while (offset < end) {
                size_t want = end - offset < PIECE ? (size_t)(end - offset) : PIECE;
                ssize_t got = pread(fd, packing->piece, want, (off_t)offset);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return failed(packing, "reading", err);
                if (got == 0)
                        break;
                if (tree_put_data(packing->output, offset, packing->piece, (size_t)got, err) < 0)
                        return -1;
                if (packing->count != NULL)
                        packing->count->bytes += (uint64_t)got;
                offset += (uint64_t)got;
        }
        *ret_end = offset;
        return 0;
}

static int put_content(
        struct packing *packing, int fd, const struct tree_entry *entry, cubby_error *err)
{
        struct slice extents = entry->extents;
        uint64_t offset = 0;
        uint64_t size = entry->size;
        uint64_t end = entry->sparse ? entry->size : 0;
        bool more = entry->sparse ? tree_next_extent(&extents, &offset, &size) : true;
        while (more && size > 0) {
                if (put_extent(packing, fd, offset, size, &end, err) < 0)
                        return -1;
                if (end < offset + size)
                        return tree_put_close(packing->output, end, err);
                more = tree_next_extent(&extents, &offset, &size);
        }
        return tree_put_close(packing->output, entry->size, err);
}

static int count_content(struct packing *packing, const struct stat *info)
{
        uint64_t size = (uint64_t)info->st_size;
        uint64_t on_disk = (uint64_t)info->st_blocks * 512;
        packing->count->bytes += on_disk < size ? on_disk : size;
        packing->count->files++;
        return 0;
}

static int pack_content(struct packing *packing, int fd, const struct stat *info, cubby_error *err)
{
        struct tree_entry entry = entry_of(packing, info);
        if (packing->options->dry)
                return count_content(packing, info);
        if (info->st_nlink > 1) {
                const char *known = find_link(packing, info);
                if (known != NULL) {
                        entry.type = TREE_SAME;
                        entry.size = 0;
                        entry.target = known;
                        return put_entry(packing, &entry, err);
                }
                entry.linked = remember_link(packing, info);
        }
        if (read_xattrs(packing, fd, err) < 0)
                return -1;
        if ((uint64_t)info->st_blocks * 512 < entry.size) {
                find_extents(packing, fd, entry.size);
                entry.sparse = true;
                entry.extents = (struct slice){packing->extents.data, packing->extents.size};
        }
        entry.xattrs = (struct slice){packing->xattrs.data, packing->xattrs.size};
        if (put_entry(packing, &entry, err) < 0)
                return -1;
        return put_content(packing, fd, &entry, err);
}

/* A regular file by its name; what it became meanwhile is not opened for good. */
static int pack_file(struct packing *packing, int folder_fd, const char *name, uint64_t resolve,
        cubby_error *err)
{
        struct stat info;
        AUTO_FD int fd = tree_open(folder_fd, name,
                O_RDONLY | O_NONBLOCK | O_NOCTTY |
                        (resolve == INSIDE || !packing->options->follow ? O_NOFOLLOW : 0),
                0, resolve);
        if (fd < 0)
                return has_vanished() && packing->path[0] != '\0' ? 0
                                                                  : failed(packing, "opening", err);
        if (fstat(fd, &info) < 0)
                return failed(packing, "reading", err);
        if (!S_ISREG(info.st_mode))
                return packing->path[0] != '\0'
                        ? 0
                        : cubby_error_set(err, CUBBY_E_BUSY, "'%s' changes while it is read",
                                  shown(packing));
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        return pack_content(packing, fd, &info, err);
}

/* A link, FIFO or device: by its facts alone. */
static int pack_other(struct packing *packing, int folder_fd, const char *name,
        const struct stat *info, cubby_error *err)
{
        struct tree_entry entry = entry_of(packing, info);
        if (entry.type == 0)
                return packing->path[0] != '\0'
                        ? 0
                        : cubby_error_set(err, CUBBY_E_INVALID, "'%s' is a socket", shown(packing));
        if (entry.type == TREE_LINK) {
                ssize_t got = readlinkat(folder_fd, name, packing->target, TREE_PATH_MAX);
                if (got < 0)
                        return packing->path[0] != '\0' ? 0 : failed(packing, "reading", err);
                packing->target[got] = '\0';
                if (got == 0)
                        return 0;
                entry.target = packing->target;
        }
        return put_entry(packing, &entry, err);
}

/* ---- folders ---- */

static int push(struct packing *packing, cubby_error *err)
{
        size_t size = strlen(packing->path);
        if (!buffer_append(&packing->waiting, packing->path, size) ||
                !buffer_u16(&packing->waiting, (uint16_t)size))
                return cubby_error_set(err, CUBBY_E_LIMIT, "too many folders beside each other");
        return 0;
}

static void pop(struct packing *packing)
{
        struct buffer *waiting = &packing->waiting;
        size_t size = load_u16(waiting->data + waiting->size - 2);
        waiting->size -= size + 2;
        memcpy(packing->path, waiting->data + waiting->size, size);
        packing->path[size] = '\0';
}

static int pack_name(
        struct packing *packing, int folder_fd, const struct dirent *found, cubby_error *err)
{
        struct stat info;
        if (found->d_type == DT_DIR)
                return push(packing, err);
        if (found->d_type == DT_REG && !packing->options->dry)
                return pack_file(packing, folder_fd, found->d_name, INSIDE, err);
        if (fstatat(folder_fd, found->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : failed(packing, "reading", err);
        if (S_ISDIR(info.st_mode))
                return push(packing, err);
        if (S_ISREG(info.st_mode) && packing->options->dry)
                return count_content(packing, &info);
        if (S_ISREG(info.st_mode))
                return pack_file(packing, folder_fd, found->d_name, INSIDE, err);
        return pack_other(packing, folder_fd, found->d_name, &info, err);
}

static int pack_names(struct packing *packing, int folder_fd, cubby_error *err)
{
        AUTO_DIR DIR *dir = fdopendir(folder_fd);
        if (dir == NULL) {
                close_quietly(folder_fd);
                return cubby_error_no_memory(err);
        }
        size_t length = strlen(packing->path);
        for (;;) {
                errno = 0;
                const struct dirent *found = readdir(dir);
                if (found == NULL && errno != 0) {
                        packing->path[length] = '\0';
                        return has_vanished() ? 0 : failed(packing, "reading folder", err);
                }
                if (found == NULL)
                        break;
                if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
                        continue;
                int put = snprintf(packing->path + length, TREE_PATH_MAX + 1 - length, "%s%s",
                        length == 0 ? "" : "/", found->d_name);
                if (put < 0 || length + (size_t)put > TREE_PATH_MAX) {
                        errno = ENAMETOOLONG;
                        return failed(packing, "reading", err);
                }
                if (pack_name(packing, folder_fd, found, err) < 0)
                        return -1;
        }
        packing->path[length] = '\0';
        return 0;
}

/* Takes the descriptor. */
static int pack_folder(struct packing *packing, int fd, cubby_error *err)
{
        AUTO_FD int folder_fd = fd;
        struct stat info;
        if (fstat(folder_fd, &info) < 0)
                return failed(packing, "reading folder", err);
        struct tree_entry entry = entry_of(packing, &info);
        if (!packing->options->dry) {
                if (read_xattrs(packing, folder_fd, err) < 0)
                        return -1;
                entry.xattrs = (struct slice){packing->xattrs.data, packing->xattrs.size};
        }
        if (put_entry(packing, &entry, err) < 0)
                return -1;
        if (info.st_dev != packing->device)
                return 0;
        return pack_names(packing, take_fd(&folder_fd), err);
}

static int pack_folders(struct packing *packing, cubby_error *err)
{
        AUTO_FD int first = fcntl(packing->root_fd, F_DUPFD_CLOEXEC, 0);
        if (first < 0)
                return failed(packing, "opening", err);
        if (pack_folder(packing, take_fd(&first), err) < 0)
                return -1;
        while (packing->waiting.size > 0) {
                pop(packing);
                int fd = tree_open(
                        packing->root_fd, packing->path, O_RDONLY | O_DIRECTORY, 0, INSIDE);
                if (fd < 0 && has_vanished())
                        continue;
                if (fd < 0)
                        return failed(packing, "opening folder", err);
                if (pack_folder(packing, fd, err) < 0)
                        return -1;
        }
        return 0;
}

static int pack_root(struct packing *packing, cubby_error *err)
{
        const struct pack_options *options = packing->options;
        struct stat info;
        AUTO_FD int found = tree_open(options->at_fd, options->path,
                O_PATH | (options->follow ? 0 : O_NOFOLLOW), 0, options->resolve);
        if (found < 0 || fstat(found, &info) < 0)
                return failed(packing, "opening", err);
        packing->device = info.st_dev;
        if (S_ISREG(info.st_mode))
                return pack_file(packing, options->at_fd, options->path, options->resolve, err);
        if (!S_ISDIR(info.st_mode))
                return pack_other(packing, found, "", &info, err);
        AUTO_FD int root_fd = openat(found, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root_fd < 0)
                return failed(packing, "opening folder", err);
        packing->root_fd = root_fd;
        return pack_folders(packing, err);
}

int tree_pack(
        const struct pack_options *options, const struct tree_output *output, cubby_error *err)
{
        AUTO_FREE struct packing *packing = calloc(1, sizeof *packing);
        AUTO_FREE char *path = malloc(TREE_PATH_MAX + 1);
        AUTO_FREE char *target = malloc(TREE_PATH_MAX + 1);
        AUTO_FREE uint8_t *piece = malloc(PIECE);
        if (packing == NULL || path == NULL || target == NULL || piece == NULL)
                return cubby_error_no_memory(err);
        path[0] = '\0';
        packing->options = options;
        packing->output = output;
        packing->count = options->count;
        packing->path = path;
        packing->target = target;
        packing->piece = piece;
        buffer_init(&packing->waiting, WAITING_MAX);
        buffer_init(&packing->entry, TREE_ENTRY_MAX);
        buffer_init(&packing->xattrs, TREE_XATTR_MAX);
        buffer_init(&packing->extents, (size_t)16 * TREE_EXTENTS_MAX);
        int result = pack_root(packing, err);
        if (result == 0 && !options->dry)
                result = tree_put_end(output, err);
        buffer_free(&packing->waiting);
        buffer_free(&packing->entry);
        buffer_free(&packing->xattrs);
        buffer_free(&packing->extents);
        forget_links(packing);
        free(packing->names);
        return result;
}
