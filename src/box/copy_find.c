/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copying.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel */

struct seen {
        bool exists;
        enum copy_found found;
        char *target; /* of a link, else NULL; the caller's */
};

struct place {
        struct copying *copying; /* of a box */
        cubby_box *box;          /* NULL: the host */
};

static enum copy_found found_of(int type)
{
        return type == CUBBY_FILE_FOLDER     ? COPY_FOLDER
                : type == CUBBY_FILE_REGULAR ? COPY_FILE
                                             : COPY_OTHER;
}

static int see_in_box(
        const struct place *place, const char *path, struct seen *ret, cubby_error *err)
{
        cubby_file_info info = {0};
        cubby_error problem = {0};
        if (box_file_stat(
                    place->box, path, false, &place->copying->options->file, &info, &problem) < 0) {
                if (problem.code == CUBBY_E_NOT_FOUND && problem.sys_errno == ENOENT)
                        return 0;
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        ret->exists = true;
        ret->found = found_of(info.type);
        if (info.type == CUBBY_FILE_LINK)
                ret->target = take_ptr(&info.target);
        box_file_info_clear(&info);
        return 0;
}

static int see_on_host(const char *path, struct seen *ret, cubby_error *err)
{
        struct stat info;
        if (lstat(path, &info) < 0)
                return errno == ENOENT ? 0 : tree_errno(err, errno, "looking at", path);
        ret->exists = true;
        ret->found = S_ISDIR(info.st_mode) ? COPY_FOLDER
                : S_ISREG(info.st_mode)    ? COPY_FILE
                                           : COPY_OTHER;
        if (!S_ISLNK(info.st_mode))
                return 0;
        char target[TREE_PATH_MAX + 1];
        ssize_t length = readlink(path, target, TREE_PATH_MAX);
        if (length < 0)
                return tree_errno(err, errno, "looking at", path);
        ret->target = strndup(target, (size_t)length);
        return ret->target == NULL ? cubby_error_no_memory(err) : 0;
}

static int see(const struct place *place, const char *path, struct seen *ret, cubby_error *err)
{
        *ret = (struct seen){0};
        return place->box != NULL ? see_in_box(place, path, ret, err) : see_on_host(path, ret, err);
}

/* Nothing has the name: is there a folder for it? */
static int see_parent(
        const struct place *place, const char *path, enum copy_found *ret, cubby_error *err)
{
        AUTO_FREE char *folder = NULL;
        AUTO_FREE char *name = NULL;
        AUTO_FREE char *inside = NULL;
        struct seen seen = {0};
        if (copy_split(path, &folder, &name, err) < 0)
                return -1;
        /* with a dot behind it, a link to a folder is one */
        if (asprintf(&inside, "%s/.", folder) < 0)
                return cubby_error_no_memory(err);
        if (see(place, inside, &seen, err) < 0)
                return -1;
        free(seen.target);
        *ret = seen.exists ? COPY_NOTHING : COPY_NO_PARENT;
        return 0;
}

static int find(const struct place *place, const char *path, enum copy_found *ret,
        char **ret_resolved, cubby_error *err)
{
        AUTO_FREE char *at = strdup(path);
        if (at == NULL)
                return cubby_error_no_memory(err);
        for (int links = 0;; links++) {
                struct seen seen;
                if (see(place, at, &seen, err) < 0)
                        return -1;
                AUTO_FREE char *target = seen.target;
                if (target == NULL) {
                        *ret = seen.found;
                        if (!seen.exists && see_parent(place, at, ret, err) < 0)
                                return -1;
                        *ret_resolved = take_ptr(&at);
                        return 0;
                }
                if (links == LINKS_MAX)
                        return tree_errno(err, ELOOP, "looking at", path);
                AUTO_FREE char *folder = NULL;
                AUTO_FREE char *name = NULL;
                if (copy_split(at, &folder, &name, err) < 0)
                        return -1;
                /* not cleaned: ".." of a linked folder is the kernel's to find */
                char *next = NULL;
                if (target[0] == '/')
                        next = strdup(target);
                else if (asprintf(&next, "%s/%s", folder, target) < 0)
                        next = NULL;
                if (next == NULL)
                        return cubby_error_no_memory(err);
                free(at);
                at = next;
        }
}

int copy_find_in_box(struct copying *copying, cubby_box *box, const char *path,
        enum copy_found *ret, char **ret_resolved, cubby_error *err)
{
        const struct place place = {.copying = copying, .box = box};
        return find(&place, path, ret, ret_resolved, err);
}

int copy_find_on_host(const char *path, enum copy_found *ret, char **ret_resolved, cubby_error *err)
{
        const struct place place = {0};
        return find(&place, path, ret, ret_resolved, err);
}
