/* SPDX-License-Identifier: Apache-2.0 */
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

#include <cubby/cubby.h>

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

#ifdef __cplusplus
}
#endif
#endif
