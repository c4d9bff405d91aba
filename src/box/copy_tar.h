/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_COPY_TAR_H
#define BOX_COPY_TAR_H

/* Tar streams on a descriptor, to and from records of a tree. */

#include "tree/pack.h"
#include "tree/records.h"

#include <locale.h>
#include <sys/types.h>

/* Called at least every COPY_LOOK_MS while a descriptor is waited for: -1 ends the wait. */
struct copy_look {
        int (*look)(void *data, cubby_error *err);
        void *data;
};
#define COPY_LOOK_MS 100

/*
 * Writes an uncompressed pax archive. `first` was taken from the reader already. `name` is the
 * root's name in it ("etc", "etc/shadow" becomes its path), "" for contents: "./", "./shadow". A
 * file that shrank while it was read is filled with zeros, and CUBBY_E_BUSY, once all is written.
 */
int copy_tar_write(struct tree_reader *reader, const struct tree_record *first, const char *name,
        int fd, const struct copy_look *look, struct tree_count *count, cubby_error *err);

/*
 * Reads one (also compressed by gzip, bzip2, xz, zstd, lz4 or compress). Names that lead out
 * of the tree are CUBBY_E_INVALID, a broken archive CUBBY_E_IMAGE.
 */
int copy_tar_read(int fd, const struct tree_output *output, const struct copy_look *look,
        struct tree_count *count, cubby_error *err);

/*
 * libarchive takes names in the charset of the thread's locale. In UTF-8 they come through
 * byte for byte; the caller's own locale is not ours to change.
 */
struct copy_locale {
        locale_t own, before; /* 0: not entered */
};
int copy_locale_enter(struct copy_locale *locale, cubby_error *err);
void copy_locale_leave(struct copy_locale *locale);
#define AUTO_LOCALE __attribute__((cleanup(copy_locale_leave)))

/* One read or write of what there is or fits, without a SIGPIPE. -1 with err set. */
ssize_t copy_fd_read(
        int fd, void *data, size_t size, const struct copy_look *look, cubby_error *err);
int copy_fd_write(
        int fd, const void *data, size_t size, const struct copy_look *look, cubby_error *err);

#endif
