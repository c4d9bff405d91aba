/* SPDX-License-Identifier: Apache-2.0 */
#include <cubby/cubby.h> /* which includes this one */

#ifndef CUBBY_COPY_H
#define CUBBY_COPY_H

/*
 * Files and folders carried into a box, out of it, and from one to another, a part of
 * cubby.h. The rules are Docker's for `docker cp`:
 *   - A file goes to the destination's name, replacing a file that is there, or into a
 *     destination that is a folder. A folder goes into a destination that is a folder, or is
 *     made there when nothing is. "FOLDER/." means what is in the folder, not itself.
 *   - The folder that the destination lies in must exist. A destination that ends with "/"
 *     must be a folder, or become one. A folder is never copied onto a file.
 *   - Folders are merged; a file, link or FIFO replaces one of its name, but neither does a
 *     folder take the place of something else nor the reverse: CUBBY_E_INVALID.
 *   - A relative path in a box begins at "/"; one on the host at the current folder.
 *   - A link as the source is copied as a link, unless `follow`; as the destination it is
 *     followed. Links within a copied folder stay links.
 *   - Modes and times are kept; owners with `archive`, else all belongs to whoever copies.
 *     Holes stay holes, several names of one file stay one file, "user." attributes and
 *     capabilities are kept where the file systems take them. Sockets are left out. Other
 *     file systems below the source appear as empty folders.
 *   - Towards the host a box is not trusted: nothing is made outside of the destination and
 *     no link in it is followed; set-id bits and capabilities are dropped, devices are left
 *     out (CUBBY_E_UNSUPPORTED, once all else is copied), folders that were there keep their
 *     mode.
 *   - Each file appears whole or not at all; a copy that fails leaves what it had finished,
 *     and no temporary. A file that shrinks while it is copied comes as long as it then is.
 *
 * Errors are those of file calls, and CUBBY_E_CANCELLED when `progress` asks for it,
 * CUBBY_E_TIMEOUT also when the box moves nothing for a minute. Legal in: running.
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cubby_copy_options {
        size_t size;
        cubby_file_options file; /* its size may stay 0 */
        bool archive;            /* keep uid and gid */
        bool follow;             /* the source, when it is a link */
        const char *owner;       /* into a box: all belongs to "name", "uid:gid", ...; not with
                                    `archive`. NULL: to the user of the call */
        /*
         * How much has been carried, `total` 0 when unknown. Called on the calling thread, a few
         * times a second also while nothing moves; false ends the copy. NULL: none.
         */
        bool (*progress)(void *data, uint64_t bytes, uint64_t total, uint64_t files);
        void *progress_data;
} cubby_copy_options;

CUBBY_API int cubby_copy_in(cubby_box *box, const char *host_path, const char *path,
        const cubby_copy_options *options, cubby_error *err);
CUBBY_API int cubby_copy_out(cubby_box *box, const char *path, const char *host_path,
        const cubby_copy_options *options, cubby_error *err);
/* Through this process; `user` is asked for in both boxes. */
CUBBY_API int cubby_copy_between(cubby_box *from, const char *from_path, cubby_box *to,
        const char *to_path, const cubby_copy_options *options, cubby_error *err);

/*
 * A tar archive from a descriptor, unpacked in the folder `path`, which must exist. It may be
 * compressed (gzip, bzip2, xz, zstd, lz4, compress). Folders that it does not name are made.
 * Names with ".." are CUBBY_E_INVALID, a broken archive is CUBBY_E_IMAGE; what came before
 * stays.
 */
CUBBY_API int cubby_tar_in(cubby_box *box, int fd, const char *path,
        const cubby_copy_options *options, cubby_error *err);
/*
 * A file or folder of the box as an uncompressed pax archive, to a descriptor; its entries
 * begin with the last name of `path`. A file that shrinks meanwhile is filled with zeros, and
 * CUBBY_E_BUSY once all is written.
 */
CUBBY_API int cubby_tar_out(cubby_box *box, const char *path, int fd,
        const cubby_copy_options *options, cubby_error *err);

#ifdef __cplusplus
}
#endif
#endif
