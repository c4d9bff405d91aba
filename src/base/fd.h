/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FD_H
#define BASE_FD_H

/* Whole reads and writes, files published by rename, descriptors over sockets. */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Retries EINTR and short counts. Returns 0, or -1 with errno set. */
int write_whole(int fd, const void *data, size_t size);
/* Reads until `size` bytes or end of file; returns the count, or -1 with errno. */
ssize_t read_whole(int fd, void *data, size_t size);

/* Appends the whole file to `ret`; a file beyond ret->maximum is CUBBY_E_LIMIT. A
 * failure appends nothing. */
int file_read_at(int dir_fd, const char *name, struct buffer *ret, cubby_error *err);

/* Writes under a temporary name, syncs, renames over `name`, syncs the folder. */
int file_publish_at(
        int dir_fd, const char *name, const void *data, size_t size, mode_t mode, cubby_error *err);
/* True for the temporary names that file_publish_at makes; a killed one leaves its file. */
bool file_is_draft(const char *name);

/* mkdirat(2), but whatever the umask is, the owner may use the folder. */
int dir_make_at(int dir_fd, const char *name, mode_t mode);

/* Opens (making it, mode 0700, with its parents when `parents`) a folder that
 * must belong to this user and not be writable by others; never follows a link
 * in the last component. Returns the descriptor or -1. */
int dir_open_private(const char *path, bool parents, cubby_error *err);

/* Removes a folder beneath dir_fd and all in it; never follows links, stays on
 * one file system. A missing one is no error. */
int dir_remove_at(int dir_fd, const char *name, cubby_error *err);

/* Makes the content of `to_fd` that of `from_fd`, keeping holes (copy_file_range where
 * possible). */
int file_copy_sparse(int from_fd, int to_fd, cubby_error *err);

int fd_set_nonblocking(int fd, bool nonblocking); /* 0 or -1 with errno */

/* Sends `size` bytes (at least one) with up to FD_PASS_MAX descriptors. The
 * descriptors stay the caller's. Returns 0 or -1 with errno. */
#define FD_PASS_MAX 8
int fd_send(int socket, const void *data, size_t size, const int *fds, size_t fd_count);
/* Receives what one call gives, and the descriptors with it (close-on-exec,
 * the caller's). Returns bytes, 0 at end of file, -1 with errno. */
ssize_t fd_receive(int socket, void *data, size_t size, int *ret_fds, size_t *ret_fd_count);

#endif
