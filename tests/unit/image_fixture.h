/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_FIXTURE_H
#define IMAGE_FIXTURE_H

/* Tars and OCI layouts for the tests of the image code. Failures end the test. */

#include "base/buffer.h"
#include "image/image.h"
#include "image/stream.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* One entry of a tar. A list ends with kind 0. */
struct item {
        char kind; /* f file, d folder, l symbolic link, h hard link, c device, p FIFO, s socket */
        const char *path;
        const char *text; /* content or target */
        uint32_t mode;    /* 0: 0644, folders 0755 */
        const char *xattr;
        uint64_t holes; /* the file's size when its text is followed by a hole */
};

/* Appends a tar of the items; `filter` is "none", "gzip" or "zstd". */
void fixture_tar(const struct item *items, const char *filter, struct buffer *ret);

/* A descriptor for `data`, which goes into blobs/sha256 of the layout. */
json_t *fixture_blob(int layout_fd, const char *type, const void *data, size_t size);
json_t *fixture_blob_json(int layout_fd, const char *type, const json_t *json);
void fixture_write(int dir_fd, const char *path, const void *data, size_t size);

/* A folder under /tmp for one test; removed with all in it. */
struct fixture_folder {
        char path[64];
        int fd;
};
void fixture_folder_make(struct fixture_folder *folder);
void fixture_folder_remove(struct fixture_folder *folder);

/* How many entries a folder has. */
size_t fixture_count(int dir_fd, const char *path);

/* A home, a folder "layout", and room for sources, in a folder of their own. */
struct setting {
        struct fixture_folder folder;
        struct home *home;
        int layout; /* descriptor of the folder "layout" */
};
void setting_make(struct setting *setting);
void setting_free(struct setting *setting);
void path_in(const struct setting *setting, const char *name, char ret[128]);
/* `source` is a name in the setting's folder. */
int setting_import(struct setting *setting, const char *source, const char *name,
        struct image_record *ret, cubby_error *err);
/* Imports, checks the record and the disk, and forgets the record. */
void assert_imports(struct setting *setting, const char *source, const char *name,
        const char *expected_name, char ret_id[DIGEST_BYTES]);
/* No record, disk or temporary is there. */
void assert_nothing_left(const struct setting *setting);

#define TYPE_INDEX "application/vnd.oci.image.index.v1+json"
#define TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define TYPE_CONFIG "application/vnd.oci.image.config.v1+json"
#define TYPE_LAYER "application/vnd.oci.image.layer.v1.tar"

#endif
