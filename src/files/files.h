/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_FILES_H
#define FILES_FILES_H

/*
 * What the file calls do, beneath a root descriptor: the agent runs them on its file
 * threads, the fake engine on a folder of the host. No call here knows of frames, streams
 * or sessions; what travels goes through struct file_io.
 *
 * Nothing but regular files is ever opened for reading or writing, so no FIFO, device or
 * socket can hold a call. Paths are walked by the kernel beneath the root, with ".." and
 * absolute links staying in it, and the magic links of /proc lead nowhere.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "wire/files.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define FILE_PIECE (256U * 1024U) /* of one read or write of a disk */

struct file_io {
        int root_fd; /* the box's root, O_PATH */
        int proc_fd; /* our own /proc, O_PATH: descriptors are opened again through it */
        /* Where files of the root's file system are written before they get their place; they are
         * removed by others should we be killed. -1: beside their place. */
        int drafts_fd;
        bool own_folder; /* the thread's working folder is its own: it may be changed */
        void *data;
        /*
         * Each of these is a place where a call may be stopped for a freeze, so nothing may be
         * half done around it, and where it learns that nobody waits for it any more: -1 (with
         * err set to CUBBY_E_CANCELLED). None is to be called with a lock held.
         */
        /* Sends DATA (FRAME_DATA, cut into frames) or one FILE_ENTRY; waits for credit. */
        int (*send)(void *data, uint16_t type, const void *bytes, size_t size, cubby_error *err);
        /* The next that came: 1 and the frame's type and payload, valid until the next call;
         * 0 at the end. */
        int (*receive)(void *data, uint16_t *ret_type, struct slice *ret, cubby_error *err);
        /* To be called now and then in long work. */
        int (*pause)(void *data, cubby_error *err);
        /* Waits until a descriptor is readable; the call may be frozen all the while. */
        int (*wait)(void *data, int fd, cubby_error *err);
        /* A user's ids, for an owner ("name", "uid:gid", ...); the box's own passwd and group. */
        int (*owner)(
                void *data, const char *spec, uid_t *ret_uid, gid_t *ret_gid, cubby_error *err);
};

/* `reply` takes the payload of FILE_REPLY. */
typedef int file_operation_fn(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err);

/* The operations of this folder; NULL for others. */
file_operation_fn *file_operation_find(uint16_t operation);

file_operation_fn operate_stat;        /* info.c */
file_operation_fn operate_list;        /* list.c */
file_operation_fn operate_read;        /* read.c */
file_operation_fn operate_read_lines;  /* read.c */
file_operation_fn operate_write;       /* write.c */
file_operation_fn operate_remove;      /* change.c */
file_operation_fn operate_rename;      /* change.c */
file_operation_fn operate_make_folder; /* change.c */
file_operation_fn operate_tree_out;    /* copy.c */
file_operation_fn operate_tree_in;     /* copy.c */
file_operation_fn operate_search;      /* find.c */
file_operation_fn operate_watch;       /* watch.c */

/* place.c ------------------------------------------------------------------------------ */

/* cubby_error_errno with the codes of file calls: what is no file, or not this kind of
 * file, is CUBBY_E_INVALID; a read-only one CUBBY_E_PERMISSION. Returns -1. */
int file_error(cubby_error *err, int error_number, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* openat2 beneath the root. Returns the descriptor, or -1 with errno. */
int file_open(const struct file_io *io, const char *path, int flags);
/* As above, beneath a folder of the box; `path` must be one name without a slash. */
int file_open_name(int dir_fd, const char *name, int flags);
/* The same file, which O_PATH found, opened: no name is looked up again. -1 with errno. */
int file_reopen(const struct file_io *io, int path_fd, int flags);
/* A regular file for reading, its state in *ret_info; sets err. */
int file_open_regular(
        const struct file_io *io, const char *path, struct stat *ret_info, cubby_error *err);
/* A NUL-terminated copy for the caller to free; sets err. */
char *file_text(struct slice text, cubby_error *err);

struct file_place {
        int dir_fd;     /* the folder, O_PATH */
        char name[256]; /* in it; no slash, neither "." nor ".."; "" for the root itself */
};
/*
 * The folder and the last name of a path. `follow`: while that name is a link, the place
 * that it leads to, whether or not something is there. A slash at the end is allowed only
 * when `folder`.
 */
int file_find_place(const struct file_io *io, const char *path, bool follow, bool folder,
        struct file_place *ret, cubby_error *err);

/* change.c: makes the folders of a path that are missing, with mode 0755, and, when `last`,
 * the path itself with `mode`. What is there already is left alone. */
int file_make_folders(
        const struct file_io *io, const char *path, bool last, mode_t mode, cubby_error *err);

/* info.c: fills all but the path; `target` is the caller's room of FILE_PATH_MAX + 1. */
int file_describe(int fd, const char *name, char *target, struct message_file_info *ret);

#endif
