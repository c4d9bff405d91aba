/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_TEXT_H
#define GUEST_TEXT_H

/* The small text files of proc, sysfs and cgroups. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes to an existing file. Returns 0, or -1 with errno. */
int text_write_at(int dir_fd, const char *path, const char *text);
/* Reads at most size - 1 bytes and ends them with NUL. Returns the count or -1. */
ssize_t text_read_at(int dir_fd, const char *path, char *ret, size_t size);
/* As above, of an open file from its beginning. */
ssize_t text_read_fd(int fd, char *ret, size_t size);

/* The number behind `key` at the start of a line ("oom_kill 3", "MemTotal:  9 kB"). */
bool text_value(const char *text, const char *key, uint64_t *ret);

#endif
