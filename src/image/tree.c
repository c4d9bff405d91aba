/* SPDX-License-Identifier: Apache-2.0 */
#include "image/tree.h"

#include "base/clock.h"
#include "image/image.h"

#include <search.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 255  /* of one component, as on every Linux file system */
#define LINK_HOPS 40    /* what the kernel follows before ELOOP */
#define WALK_BYTES 8192 /* a path while links are being put in place of components */

const struct image_limits image_limits_default = {
        .layer_bytes = LIMIT_LAYER_BYTES,
        .expansion = LIMIT_EXPANSION,
        .expansion_floor = 64ULL << 20,
        .entries = LIMIT_ENTRIES,
        .path_depth = LIMIT_PATH_DEPTH,
        .path_bytes = LIMIT_PATH_BYTES,
        .xattr_bytes = LIMIT_XATTR_BYTES,
        .metadata_bytes = LIMIT_METADATA_BYTES,
        .deadline_ms = DEADLINE_NEVER,
};

struct tree {
        const struct image_limits *limits;
        tree_discard discard;
        void *data;
        struct inode *root;
        uint32_t layer;
        uint64_t put_count;      /* entries ever put, which is what LIMIT_ENTRIES bounds */
        uint64_t metadata_bytes; /* of names, link targets and attributes ever put */
};

const char *quote_name(char ret[QUOTED_MAX], const char *name)
{
        size_t used = 0;
        for (; *name != '\0' && used + 8 < QUOTED_MAX; name++) {
                unsigned char c = (unsigned char)*name;
                if (c >= 0x20 && c < 0x7f && c != '\\')
                        ret[used++] = (char)c;
                else
                        used += (size_t)snprintf(ret + used, QUOTED_MAX - used, "\\x%02x", c);
        }
        (void)snprintf(ret + used, QUOTED_MAX - used, "%s", *name != '\0' ? "..." : "");
        return ret;
}

/* ---- inodes and entries ---- */

static int compare_entries(const void *a, const void *b)
{
        return strcmp(((const struct dentry *)a)->name, ((const struct dentry *)b)->name);
}

static void inode_free(struct inode *inode)
{
        if (inode == NULL)
                return;
        if (S_ISLNK(inode->mode))
                free(inode->link.target);
        free(inode->xattrs);
        free(inode);
}

struct child_list {
        struct dentry **entries;
        size_t count;
        size_t capacity;
        bool failed;
};

static void collect_child(const void *node, VISIT order, void *data)
{
        struct child_list *list = data;
        if ((order != postorder && order != leaf) || list->failed)
                return;
        if (list->count == list->capacity) {
                size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
                struct dentry **larger = reallocarray(list->entries, capacity, sizeof(void *));
                if (larger == NULL) {
                        list->failed = true;
                        return;
                }
                list->entries = larger;
                list->capacity = capacity;
        }
        list->entries[list->count++] = *(struct dentry *const *)node;
}

int tree_children(
        const struct inode *folder, struct dentry ***ret, size_t *ret_count, cubby_error *err)
{
        struct child_list list = {0};
        twalk_r(folder->folder.children, collect_child, &list);
        if (list.failed) {
                free(list.entries);
                return cubby_error_no_memory(err);
        }
        *ret = list.entries;
        *ret_count = list.count;
        return 0;
}

/* Drops one name of an inode, and with the last one all beneath it. Needs no memory,
 * for it also runs when there is none: a folder is taken apart from its root node. */
static void inode_release(struct tree *tree, struct inode *inode, bool discard)
{
        if (--inode->nlink > 0)
                return;
        while (S_ISDIR(inode->mode) && inode->folder.children != NULL) {
                /* The first member of a tsearch node is the key. */
                struct dentry *child = *(struct dentry **)inode->folder.children;
                (void)tdelete(child, &inode->folder.children, compare_entries);
                inode_release(tree, child->inode, discard);
                free(child);
        }
        if (discard && S_ISREG(inode->mode) && inode->size > 0 && tree->discard != NULL)
                tree->discard(tree->data, inode);
        inode_free(inode);
}

static void entry_remove(struct tree *tree, struct inode *folder, struct dentry *entry)
{
        (void)tdelete(entry, &folder->folder.children, compare_entries);
        if (S_ISDIR(entry->inode->mode))
                folder->folder.folder_count--;
        inode_release(tree, entry->inode, true);
        free(entry);
}

/* An entry is small, what is said of it need not be: all of it stays in memory. */
static int count_metadata(struct tree *tree, uint64_t bytes, cubby_error *err)
{
        if (bytes > tree->limits->metadata_bytes - tree->metadata_bytes)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image's names, link targets and attributes have more than %llu bytes "
                        "(LIMIT_METADATA_BYTES)",
                        (unsigned long long)tree->limits->metadata_bytes);
        tree->metadata_bytes += bytes;
        return 0;
}

static uint64_t facts_bytes(const struct entry_facts *facts)
{
        uint64_t bytes = S_ISLNK(facts->mode) ? strlen(facts->target) : 0;
        for (size_t i = 0; facts->xattrs != NULL && i < facts->xattrs->count; i++)
                bytes += sizeof facts->xattrs->items[i] + strlen(facts->xattrs->items[i].name) +
                        facts->xattrs->items[i].size;
        return bytes;
}

static struct dentry *entry_new(
        const char *name, size_t length, struct inode *inode, uint32_t layer)
{
        struct dentry *entry = malloc(sizeof *entry + length + 1);
        if (entry == NULL)
                return NULL;
        entry->inode = inode;
        entry->layer = layer;
        memcpy(entry->name, name, length);
        entry->name[length] = '\0';
        return entry;
}

/* Puts a new name for `inode` into `folder`, which has no such name. */
static int folder_insert(struct tree *tree, struct inode *folder, const char *name,
        struct inode *inode, cubby_error *err)
{
        if (count_metadata(tree, strlen(name), err) < 0)
                return -1;
        struct dentry *entry = entry_new(name, strlen(name), inode, tree->layer);
        if (entry == NULL)
                return cubby_error_no_memory(err);
        if (tsearch(entry, &folder->folder.children, compare_entries) == NULL) {
                free(entry);
                return cubby_error_no_memory(err);
        }
        if (S_ISDIR(inode->mode)) {
                inode->folder.parent = folder;
                inode->folder.depth = folder->folder.depth + 1;
                inode->layer = tree->layer;
                folder->folder.folder_count++;
        }
        inode->nlink++;
        return 0;
}

static struct dentry *folder_find(const struct inode *folder, const char *name)
{
        union {
                struct dentry entry;
                char room[sizeof(struct dentry) + NAME_BYTES + 1];
        } key;
        size_t length = strlen(name);
        if (length > NAME_BYTES)
                return NULL;
        memcpy(key.room + offsetof(struct dentry, name), name, length + 1);
        void *node = tfind(&key.entry, &folder->folder.children, compare_entries);
        return node == NULL ? NULL : *(struct dentry **)node;
}

static uint32_t entry_layer(const struct dentry *entry)
{
        return S_ISDIR(entry->inode->mode) ? entry->inode->layer : entry->layer;
}

int tree_new(const struct image_limits *limits, tree_discard discard, void *data, struct tree **ret,
        cubby_error *err)
{
        AUTO(tree) struct tree *tree = calloc(1, sizeof *tree);
        if (tree == NULL)
                return cubby_error_no_memory(err);
        tree->limits = limits;
        tree->discard = discard;
        tree->data = data;
        tree->root = calloc(1, sizeof *tree->root);
        if (tree->root == NULL)
                return cubby_error_no_memory(err);
        tree->root->mode = S_IFDIR | 0755;
        tree->root->nlink = 1;
        tree->root->folder.parent = tree->root;
        *ret = take_ptr(&tree);
        return 0;
}

void tree_free(struct tree *tree)
{
        if (tree == NULL)
                return;
        if (tree->root != NULL)
                inode_release(tree, tree->root, false);
        free(tree);
}

struct inode *tree_root(const struct tree *tree)
{
        return tree->root;
}

uint64_t tree_entry_count(const struct tree *tree)
{
        return tree->put_count;
}

void tree_begin_layer(struct tree *tree)
{
        tree->layer++;
}

/* ---- paths ---- */

int path_clean(const struct image_limits *limits, const char *path, char *ret, cubby_error *err)
{
        char quoted[QUOTED_MAX];
        size_t used = 0;
        uint32_t depth = 0;
        if (strlen(path) > limits->path_bytes)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the path '%s' is longer than %u bytes (LIMIT_PATH_BYTES)",
                        quote_name(quoted, path), limits->path_bytes);
        for (const char *p = path; *p != '\0';) {
                size_t length = strcspn(p, "/");
                if (length == 2 && p[0] == '.' && p[1] == '.')
                        return cubby_error_set(err, CUBBY_E_IMAGE, "the path '%s' has a '..' in it",
                                quote_name(quoted, path));
                if (length > NAME_BYTES)
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "the path '%s' has a component of more than %d bytes",
                                quote_name(quoted, path), NAME_BYTES);
                if (length > 0 && !(length == 1 && p[0] == '.')) {
                        if (++depth > limits->path_depth)
                                return cubby_error_set(err, CUBBY_E_LIMIT,
                                        "the path '%s' is deeper than %u folders "
                                        "(LIMIT_PATH_DEPTH)",
                                        quote_name(quoted, path), limits->path_depth);
                        if (used > 0)
                                ret[used++] = '/';
                        memcpy(ret + used, p, length);
                        used += length;
                }
                p += length;
                p += *p == '/';
        }
        ret[used] = '\0';
        return 0;
}

static int count_entry(struct tree *tree, cubby_error *err)
{
        if (tree->put_count >= tree->limits->entries)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image has more than %llu entries (LIMIT_ENTRIES)",
                        (unsigned long long)tree->limits->entries);
        tree->put_count++;
        return 0;
}

static int make_folder(struct tree *tree, struct inode *parent, const char *name,
        struct inode **ret, cubby_error *err)
{
        if (parent->folder.depth >= tree->limits->path_depth)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "folders are nested deeper than %u (LIMIT_PATH_DEPTH)",
                        tree->limits->path_depth);
        if (count_entry(tree, err) < 0)
                return -1;
        struct inode *inode = calloc(1, sizeof *inode);
        if (inode == NULL)
                return cubby_error_no_memory(err);
        inode->mode = S_IFDIR | 0755;
        if (folder_insert(tree, parent, name, inode, err) < 0) {
                inode_free(inode);
                return -1;
        }
        *ret = inode;
        return 0;
}

struct walk {
        char path[WALK_BYTES]; /* what is still to be walked starts at `next` */
        char *next;
        struct inode *folder;
        int hops;
};

/* Puts the link's target in front of what is still to be walked. */
static int walk_link(
        struct tree *tree, struct walk *walk, const struct inode *link, cubby_error *err)
{
        size_t target = strlen(link->link.target);
        size_t rest = strlen(walk->next);
        if (++walk->hops > LINK_HOPS || target + 1 + rest + 1 > sizeof walk->path)
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "too many levels of symbolic links in a parent folder");
        memmove(walk->path + target + 1, walk->next, rest + 1);
        memcpy(walk->path, link->link.target, target);
        walk->path[target] = '/';
        walk->next = walk->path;
        if (link->link.target[0] == '/')
                walk->folder = tree->root;
        return 0;
}

/* Counts a folder as touched by this layer, and all above it: none of them may be
 * removed as a whole. Above one that is touched all are. */
static void touch(const struct tree *tree, struct inode *folder)
{
        for (; folder->layer != tree->layer; folder = folder->folder.parent)
                folder->layer = tree->layer;
}

/*
 * Finds the folder at `path`, from the tree's root, following links. With
 * `create`, missing folders are made and all on the way count as touched by this
 * layer. Without, *ret is NULL when there is no such folder.
 */
static int walk_to_folder(struct tree *tree, const char *path, size_t length, bool create,
        struct inode **ret, cubby_error *err)
{
        struct walk walk = {.folder = tree->root};
        if (length >= sizeof walk.path)
                return cubby_error_set(err, CUBBY_E_LIMIT, "a path is too long (LIMIT_PATH_BYTES)");
        memcpy(walk.path, path, length);
        walk.path[length] = '\0';
        walk.next = walk.path;
        while (*walk.next != '\0') {
                char *name = walk.next;
                char *slash = strchrnul(name, '/');
                walk.next = *slash == '\0' ? slash : slash + 1;
                *slash = '\0';
                if (name[0] == '\0' || strcmp(name, ".") == 0)
                        continue;
                if (strcmp(name, "..") == 0) {
                        walk.folder = walk.folder->folder.parent;
                        continue;
                }
                struct dentry *entry = folder_find(walk.folder, name);
                if (entry == NULL) {
                        if (!create) {
                                *ret = NULL;
                                return 0;
                        }
                        touch(tree, walk.folder);
                        if (make_folder(tree, walk.folder, name, &walk.folder, err) < 0)
                                return -1;
                } else if (S_ISDIR(entry->inode->mode)) {
                        walk.folder = entry->inode;
                } else if (S_ISLNK(entry->inode->mode)) {
                        if (walk_link(tree, &walk, entry->inode, err) < 0)
                                return -1;
                } else if (!create) {
                        *ret = NULL;
                        return 0;
                } else {
                        char quoted[QUOTED_MAX];
                        return cubby_error_set(err, CUBBY_E_IMAGE,
                                "the parent '%s' is not a folder", quote_name(quoted, name));
                }
        }
        if (create)
                touch(tree, walk.folder);
        *ret = walk.folder;
        return 0;
}

/* Splits a clean path that is not the root's. */
static int walk_to_parent(struct tree *tree, const char *path, bool create, struct inode **ret,
        const char **ret_name, cubby_error *err)
{
        const char *slash = strrchr(path, '/');
        size_t length = slash == NULL ? 0 : (size_t)(slash - path);
        *ret_name = slash == NULL ? path : slash + 1;
        return walk_to_folder(tree, path, length, create, ret, err);
}

const struct dentry *tree_find(struct tree *tree, const char *path)
{
        struct inode *folder = NULL;
        const char *name = NULL;
        if (path[0] == '\0' || walk_to_parent(tree, path, false, &folder, &name, NULL) < 0 ||
                folder == NULL)
                return NULL;
        return folder_find(folder, name);
}

/* ---- putting and removing ---- */

static void set_facts(struct inode *inode, struct entry_facts *facts)
{
        inode->mode = facts->mode;
        inode->uid = facts->uid;
        inode->gid = facts->gid;
        inode->mtime_sec = facts->mtime_sec;
        inode->mtime_nsec = facts->mtime_nsec;
        free(inode->xattrs);
        inode->xattrs = take_ptr(&facts->xattrs);
}

static int inode_from_facts(const struct entry_facts *facts, struct inode **ret, cubby_error *err)
{
        struct inode *inode = calloc(1, sizeof *inode);
        if (inode == NULL)
                return cubby_error_no_memory(err);
        inode->mode = facts->mode;
        if (S_ISREG(facts->mode)) {
                inode->size = facts->size;
                inode->block = facts->block;
        } else if (S_ISLNK(facts->mode)) {
                inode->link.target = strdup(facts->target);
                if (inode->link.target == NULL) {
                        inode_free(inode);
                        return cubby_error_no_memory(err);
                }
                inode->size = strlen(inode->link.target);
        } else if (S_ISCHR(facts->mode) || S_ISBLK(facts->mode)) {
                inode->device = facts->device;
        }
        *ret = inode;
        return 0;
}

int tree_put(struct tree *tree, const char *path, struct entry_facts *facts, cubby_error *err)
{
        struct inode *folder = NULL;
        const char *name = NULL;
        if (count_metadata(tree, facts_bytes(facts), err) < 0)
                return -1;
        if (path[0] == '\0') {
                if (!S_ISDIR(facts->mode))
                        return cubby_error_set(
                                err, CUBBY_E_IMAGE, "the root is not a folder in this layer");
                set_facts(tree->root, facts);
                tree->root->layer = tree->layer;
                return 0;
        }
        if (walk_to_parent(tree, path, true, &folder, &name, err) < 0)
                return -1;
        struct dentry *old = folder_find(folder, name);
        if (old != NULL && S_ISDIR(old->inode->mode) && S_ISDIR(facts->mode)) {
                set_facts(old->inode, facts);
                old->inode->layer = tree->layer;
                return 0;
        }
        if (old != NULL)
                entry_remove(tree, folder, old);
        struct inode *inode = NULL;
        if (S_ISDIR(facts->mode)) {
                if (make_folder(tree, folder, name, &inode, err) < 0)
                        return -1;
        } else if (count_entry(tree, err) < 0 || inode_from_facts(facts, &inode, err) < 0) {
                return -1;
        } else if (folder_insert(tree, folder, name, inode, err) < 0) {
                inode_free(inode);
                return -1;
        }
        set_facts(inode, facts);
        return 0;
}

int tree_link(struct tree *tree, const char *path, const char *target, cubby_error *err)
{
        char quoted[QUOTED_MAX];
        struct inode *folder = NULL;
        const char *name = NULL;
        const struct dentry *from = tree_find(tree, target);
        if (from == NULL)
                return cubby_error_set(err, CUBBY_E_IMAGE, "the hard link's target '%s' is missing",
                        quote_name(quoted, target));
        if (S_ISDIR(from->inode->mode))
                return cubby_error_set(err, CUBBY_E_IMAGE,
                        "the hard link's target '%s' is a folder", quote_name(quoted, target));
        if (path[0] == '\0')
                return cubby_error_set(
                        err, CUBBY_E_IMAGE, "the root is not a folder in this layer");
        if (count_entry(tree, err) < 0 || walk_to_parent(tree, path, true, &folder, &name, err) < 0)
                return -1;
        struct dentry *old = folder_find(folder, name);
        if (old == from)
                return cubby_error_set(err, CUBBY_E_IMAGE, "a hard link to itself");
        /* Held across the removal, which may take away the target's own folder. */
        struct inode *inode = from->inode;
        inode->nlink++;
        if (old != NULL)
                entry_remove(tree, folder, old);
        int result = folder_insert(tree, folder, name, inode, err);
        inode_release(tree, inode, true);
        return result;
}

/*
 * Removes what lower layers put beneath a folder. Once in a layer is enough, for
 * nothing comes from below again; a layer of whiteouts must not cost more than that.
 */
static int prune(struct tree *tree, struct inode *folder, cubby_error *err)
{
        AUTO_FREE struct dentry **children = NULL;
        size_t count = 0;
        if (folder->folder.pruned == tree->layer)
                return 0;
        if (tree_children(folder, &children, &count, err) < 0)
                return -1;
        folder->folder.pruned = tree->layer;
        for (size_t i = 0; i < count; i++) {
                if (entry_layer(children[i]) != tree->layer)
                        entry_remove(tree, folder, children[i]);
                else if (S_ISDIR(children[i]->inode->mode) &&
                        prune(tree, children[i]->inode, err) < 0)
                        return -1;
        }
        return 0;
}

int tree_whiteout(struct tree *tree, const char *folder, const char *name, cubby_error *err)
{
        struct inode *inode = NULL;
        if (walk_to_folder(tree, folder, strlen(folder), false, &inode, err) < 0)
                return -1;
        struct dentry *entry = inode == NULL ? NULL : folder_find(inode, name);
        if (entry == NULL)
                return 0;
        if (entry_layer(entry) != tree->layer)
                entry_remove(tree, inode, entry);
        else if (S_ISDIR(entry->inode->mode))
                return prune(tree, entry->inode, err);
        return 0;
}

int tree_opaque(struct tree *tree, const char *folder, cubby_error *err)
{
        struct inode *inode = NULL;
        if (walk_to_folder(tree, folder, strlen(folder), false, &inode, err) < 0)
                return -1;
        return inode == NULL ? 0 : prune(tree, inode, err);
}
