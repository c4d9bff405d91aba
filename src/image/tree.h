/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IMAGE_TREE_H
#define IMAGE_TREE_H

/*
 * The merged root file system of an image, as metadata in memory. Layers are put
 * into it one after the other, lowest first. Names are resolved inside the tree
 * only, as after a chroot: neither links nor ".." reach the host. Not thread-safe.
 */

#include "base/error.h"
#include "image/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct xattr {
        const char *name; /* full name, "user.x" */
        const uint8_t *value;
        size_t size;
};

struct xattr_list {
        size_t count;
        struct xattr items[];
};

struct inode {
        uint32_t mode; /* type and permissions */
        uint32_t uid;
        uint32_t gid;
        uint32_t nlink; /* names in the tree; the disk writer counts folders its own way */
        int64_t mtime_sec;
        uint32_t mtime_nsec;
        uint32_t layer;            /* folders: the last layer that touched them */
        uint64_t size;             /* files and links */
        uint64_t nid;              /* the disk writer's number */
        bool queued;               /* the disk writer has seen it */
        struct xattr_list *xattrs; /* NULL: none */
        union {
                struct {
                        void *children; /* tsearch(3) tree of struct dentry */
                        struct inode *parent;
                        uint32_t depth;
                        uint32_t folder_count;
                        uint32_t pruned; /* the layer that removed all from below it */
                        uint32_t block;  /* the disk writer's */
                } folder;
                struct {
                        char *target;
                        uint32_t block; /* the disk writer's */
                } link;
                uint32_t block; /* file: its first data block */
                uint32_t device;
        };
};

struct dentry {
        struct inode *inode;
        uint32_t layer; /* that put this name here */
        char name[];
};

/* What a layer says of one entry. `xattrs` is taken by tree_put when it succeeds. */
struct entry_facts {
        uint32_t mode;
        uint32_t uid;
        uint32_t gid;
        int64_t mtime_sec;
        uint32_t mtime_nsec;
        uint64_t size;
        uint32_t block;
        uint32_t device; /* encoded as the disk stores it */
        const char *target;
        struct xattr_list *xattrs;
};

struct tree;

/* Called when the last name of a file with content goes. */
typedef void (*tree_discard)(void *data, const struct inode *file);

int tree_new(const struct image_limits *limits, tree_discard discard, void *data, struct tree **ret,
        cubby_error *err);
void tree_free(struct tree *tree);
struct inode *tree_root(const struct tree *tree);
uint64_t tree_entry_count(const struct tree *tree);

/* Starts the next layer: whiteouts spare what is put from here on. */
void tree_begin_layer(struct tree *tree);

/*
 * Cleans an entry's path: no leading "/" or "./", no empty components, "" for the
 * root. ".." , names that no file system can hold and paths beyond the limits are
 * refused. `ret` must hold limits->path_bytes + 1.
 */
int path_clean(const struct image_limits *limits, const char *path, char *ret, cubby_error *err);

/* Paths below are clean. Missing parents are made, 0755 and root's. */
int tree_put(struct tree *tree, const char *path, struct entry_facts *facts, cubby_error *err);
/* Another name for the file at `target`, which must exist and be no folder. */
int tree_link(struct tree *tree, const char *path, const char *target, cubby_error *err);
/* Removes `name` in `folder`, as far as lower layers put it there. */
int tree_whiteout(struct tree *tree, const char *folder, const char *name, cubby_error *err);
/* Removes what lower layers put into `folder`. */
int tree_opaque(struct tree *tree, const char *folder, cubby_error *err);

/* The entry at a path, links in parent components followed; NULL when there is none. */
const struct dentry *tree_find(struct tree *tree, const char *path);

/* Children of a folder in byte order of their names; the array is the caller's. */
int tree_children(
        const struct inode *folder, struct dentry ***ret, size_t *ret_count, cubby_error *err);

/* Foreign text made fit for a message: printable ASCII, the rest as \xHH, shortened. */
#define QUOTED_MAX 160
const char *quote_name(char ret[QUOTED_MAX], const char *name);

#include "base/cleanup.h"
DEFINE_AUTO(tree, tree_free)

#endif
