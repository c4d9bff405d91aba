/* SPDX-License-Identifier: Apache-2.0 */
#include <cubby/cubby.h> /* which includes this one */

#ifndef CUBBY_FILES_H
#define CUBBY_FILES_H

/*
 * Files of a running box, a part of cubby.h. The box's agent does all of it itself, so that
 * an image needs no shell, find, grep or base64.
 *
 * Rules that hold for every call here
 *   - A path is bytes without NUL, at most 4,095, absolute or relative to the box's working
 *     folder. Links are followed inside the box as a program in it would; ".." stays in it.
 *   - The box's own kernel checks what the asked user may do, and what is made belongs to
 *     that user.
 *   - Only regular files are read and written: anything else is CUBBY_E_INVALID, and nothing
 *     hangs on a FIFO or a device. The links of /proc/PID lead nowhere.
 *   - Errors carry the box's errno in sys_errno. CUBBY_E_NOT_FOUND is ENOENT; CUBBY_E_EXISTS
 *     EEXIST; CUBBY_E_PERMISSION EACCES, EPERM and EROFS; CUBBY_E_NO_SPACE ENOSPC and EDQUOT;
 *     CUBBY_E_LIMIT EFBIG; CUBBY_E_INVALID EINVAL, EISDIR, ENOTDIR, ELOOP, ENAMETOOLONG,
 *     ENOTEMPTY and a user or path that cannot be; CUBBY_E_SYSTEM any other.
 *     CUBBY_E_BUSY: too many file calls run in the box. CUBBY_E_TIMEOUT, CUBBY_E_BOX_DEAD.
 *   - Legal in: running. `options` may be NULL.
 *   - A call on a box may run beside any other; a cubby_file is for one thread at a time.
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cubby_file_options {
        size_t size;
        const char *user;   /* as whom: "name", "uid", "name:group", "uid:gid"; NULL: the box's */
        int64_t timeout_ms; /* of the whole call; 0: 60 s, none for streams and copies */
} cubby_file_options;

enum cubby_file_type {
        CUBBY_FILE_REGULAR = 'f',
        CUBBY_FILE_FOLDER = 'd',
        CUBBY_FILE_LINK = 'l',
        CUBBY_FILE_FIFO = 'p',
        CUBBY_FILE_SOCKET = 's',
        CUBBY_FILE_BLOCK = 'b',
        CUBBY_FILE_CHAR = 'c',
};

typedef struct cubby_file_info {
        char *path;                 /* as asked; of an entry in a list: absolute */
        char *target;               /* where a link leads; "" for others */
        int type;                   /* enum cubby_file_type */
        uint32_t mode;              /* permission bits, at most 07777 */
        uint32_t uid, gid, links;   /* links: names it has */
        uint64_t bytes, disk_bytes; /* its length, and what it takes on the disk */
        uint64_t inode;
        uint32_t device_major, device_minor; /* of a device node */
        int64_t modified_ns, changed_ns, accessed_ns;
} cubby_file_info;

/* `follow`: where a link leads to, not the link itself. */
CUBBY_API int cubby_file_stat(cubby_box *box, const char *path, bool follow,
        const cubby_file_options *options, cubby_file_info *ret, cubby_error *err);
CUBBY_API void cubby_file_info_clear(cubby_file_info *info);

typedef struct cubby_list_options {
        size_t size;
        cubby_file_options file; /* its own size may be 0 */
        int32_t depth;           /* 0: the folder itself only; 1: its entries ... */
        uint32_t max_entries;    /* 0: 500; at most 100,000 */
        bool all_types;          /* else regular files and folders only */
} cubby_list_options;

typedef struct cubby_file_list {
        cubby_file_info *files;
        size_t count;
        bool truncated; /* there is more than max_entries, or names too long to be shown */
} cubby_file_list;

/*
 * What is in a folder: the folder itself first, then its entries by name (as bytes), each
 * folder before what is in it. Linked folders are not entered, those that the user may not
 * read are shown without entries. What comes and goes meanwhile may be there or not.
 */
CUBBY_API int cubby_file_list_folder(cubby_box *box, const char *path,
        const cubby_list_options *options, cubby_file_list **ret, cubby_error *err);
CUBBY_API void cubby_file_list_free(cubby_file_list *list);

/*
 * The bytes from `offset` on, at most max_bytes; 0: to the end, CUBBY_E_LIMIT (EFBIG) when
 * that is more than 1 GiB. `*ret` has a NUL behind its *ret_size bytes; cubby_free. A file
 * that changes meanwhile gives what was there when each piece was read.
 */
CUBBY_API int cubby_file_read(cubby_box *box, const char *path, uint64_t offset, uint64_t max_bytes,
        const cubby_file_options *options, void **ret, size_t *ret_size, cubby_error *err);
/*
 * Lines `first` to `last` (from 1, inclusive; 0: from the start, to the end) as Python's
 * str.splitlines() sees them, joined by newlines, without a final one; past the end nothing.
 * Bytes that are no UTF-8 become U+FFFD as with Python's errors="replace". Freed as above.
 */
CUBBY_API int cubby_file_read_lines(cubby_box *box, const char *path, uint64_t first, uint64_t last,
        const cubby_file_options *options, char **ret, size_t *ret_size, cubby_error *err);

typedef struct cubby_write_options {
        size_t size;
        cubby_file_options file; /* its own size may be 0 */
        bool append;             /* to what is there; not atomic */
        bool no_parents;         /* missing folders are an error; else they are made (0755) */
        bool exclusive;          /* CUBBY_E_EXISTS when there is such a file, or a link */
        bool no_sync;            /* may be lost, whole, when the machine is killed */
        int32_t mode;            /* at most 07777; 0 and -1: the present file's, else 0644 */
        const char *owner;       /* "user", "uid:gid"; NULL: the present file's, or the user */
} cubby_write_options;

/*
 * Writes a whole file. Unless it appends, it is written beside its place, synced, put there
 * by one rename and that synced: whatever fails, the old content is intact and nothing
 * is left behind. What is a mount of its own (/etc/hosts, /etc/hostname, /etc/resolv.conf)
 * cannot be replaced and is overwritten in its place. Other names of the present file (hard
 * links) keep the old content; extended attributes are not kept.
 */
CUBBY_API int cubby_file_write(cubby_box *box, const char *path, const void *data, size_t size,
        const cubby_write_options *options, cubby_error *err);

/*
 * The same as streams of any size, in memory that does not grow with them. The timeout of the
 * options is that of opening; 0: 60 s. The calls on a stream have their own (-1: none).
 */
typedef struct cubby_file cubby_file;

CUBBY_API int cubby_file_open_read(cubby_box *box, const char *path, uint64_t offset,
        const cubby_file_options *options, cubby_file **ret, cubby_error *err);
CUBBY_API int cubby_file_open_write(cubby_box *box, const char *path,
        const cubby_write_options *options, cubby_file **ret, cubby_error *err);
/* Waits for some bytes; returns how many, 0 at the end, -1 with CUBBY_E_TIMEOUT or why the
 * file cannot be read (also when it cannot be opened). */
CUBBY_API int64_t cubby_file_next(
        cubby_file *file, void *data, size_t size, int64_t timeout_ms, cubby_error *err);
/* Waits until all is taken; returns the bytes taken, fewer after the timeout, -1 with
 * CUBBY_E_TIMEOUT when none were, or with why the file cannot be written. */
CUBBY_API int64_t cubby_file_put(
        cubby_file *file, const void *data, size_t size, int64_t timeout_ms, cubby_error *err);
/* Publishes what was written. Without it cubby_file_close leaves the old file; after
 * CUBBY_E_TIMEOUT it may be called again. */
CUBBY_API int cubby_file_commit(cubby_file *file, int64_t timeout_ms, cubby_error *err);
CUBBY_API void cubby_file_close(cubby_file *file); /* NULL is allowed */

/* A file, a link itself, an empty folder; `recursive`: also a folder with all that is in it
 * (when that fails, some of it is gone). */
CUBBY_API int cubby_file_remove(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_error *err);
/* Within one file system of the box: between two it is CUBBY_E_INVALID (EXDEV). Without
 * `replace`, CUBBY_E_EXISTS when the new name is taken. */
CUBBY_API int cubby_file_rename(cubby_box *box, const char *from, const char *to, bool replace,
        const cubby_file_options *options, cubby_error *err);
/* `mode` 0: 0755. With `parents` missing folders above are made (0755) and one that exists is
 * no error. */
CUBBY_API int cubby_file_make_folder(cubby_box *box, const char *path, uint32_t mode, bool parents,
        const cubby_file_options *options, cubby_error *err);

#ifdef __cplusplus
}
#endif
#endif
