/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_SOURCE_H
#define IMAGE_SOURCE_H

/*
 * Where an image comes from: an OCI layout in a folder or tar, a docker-archive or
 * the tar of a root file system. Tars that come through a pipe or compressed are
 * first unpacked into a file, because their parts are read in another order.
 */

#include "base/buffer.h"
#include "image/stream.h"

enum source_kind { SOURCE_LAYOUT, SOURCE_DOCKER_ARCHIVE, SOURCE_ROOTFS };

struct source;

/* `path` "-" is standard input. `scratch_fd`: a folder for the unpacked file. */
int source_open(const char *path, int scratch_fd, const struct image_limits *limits,
        struct source **ret, cubby_error *err);
void source_free(struct source *source);
DEFINE_AUTO(source, source_free)

enum source_kind source_kind(const struct source *source);
/* The file's name without folder and endings: what an image without a name is called. */
const char *source_stem(const struct source *source);

/* A file of the layout or archive; CUBBY_E_IMAGE when there is none of that name. */
int source_blob(const struct source *source, const char *name, struct blob *ret, cubby_error *err);
/* All of it, appended to `ret`; CUBBY_E_LIMIT beyond ret->maximum, which `limit` names. */
int source_read(const struct source *source, const char *name, const char *limit,
        struct buffer *ret, cubby_error *err);
/* The tar itself, for SOURCE_ROOTFS. */
int source_whole(const struct source *source, struct blob *ret, cubby_error *err);

#endif
