/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copy_plan.h"

#include <errno.h>
#include <string.h>

enum ending { ENDS_PLAIN, ENDS_SLASH, ENDS_DOT };

static enum ending ending_of(const char *path)
{
        size_t length = strlen(path);
        if (length > 0 && path[length - 1] == '/')
                return ENDS_SLASH;
        if (strcmp(path, ".") == 0 || (length > 1 && strcmp(path + length - 2, "/.") == 0))
                return ENDS_DOT;
        return ENDS_PLAIN;
}

bool copy_asserts_folder(const char *path)
{
        return ending_of(path) != ENDS_PLAIN;
}

bool copy_means_contents(const char *path)
{
        return ending_of(path) == ENDS_DOT || strspn(path, "/") == strlen(path);
}

void copy_plan_clear(struct copy_plan *plan)
{
        free(plan->folder);
        free(plan->name);
        *plan = (struct copy_plan){0};
}

/* Appends the parts of `path` to the clean `to`, which has room. */
static void clean_into(char *to, const char *path)
{
        size_t used = strlen(to);
        while (*path != '\0') {
                size_t part = strcspn(path, "/");
                if (part == 2 && path[0] == '.' && path[1] == '.') {
                        while (used > 0 && to[--used] != '/')
                                ;
                        to[used] = '\0';
                } else if (part > 0 && !(part == 1 && path[0] == '.')) {
                        to[used++] = '/';
                        memcpy(to + used, path, part);
                        used += part;
                        to[used] = '\0';
                }
                path += part + (path[part] == '/');
        }
}

char *copy_clean(const char *base, const char *path)
{
        char *clean = calloc(1, strlen(base) + strlen(path) + 8);
        if (clean == NULL)
                return NULL;
        if (path[0] != '/')
                clean_into(clean, base);
        clean_into(clean, path);
        enum ending ending = clean[0] == '\0' ? ENDS_DOT : ending_of(path);
        if (ending != ENDS_PLAIN)
                (void)stpcpy(clean + strlen(clean), ending == ENDS_DOT ? "/." : "/");
        return clean;
}

int copy_split(const char *path, char **ret_folder, char **ret_name, cubby_error *err)
{
        size_t length = strlen(path);
        if (ending_of(path) == ENDS_DOT)
                length--;
        while (length > 1 && path[length - 1] == '/')
                length--;
        const char *slash = memrchr(path, '/', length);
        const char *last = slash == NULL ? path : slash + 1;
        char *folder = slash == path || slash == NULL ? strdup("/")
                                                      : strndup(path, (size_t)(slash - path));
        char *name = strndup(last, (size_t)(path + length - last));
        if (folder == NULL || name == NULL) {
                free(folder);
                free(name);
                return cubby_error_no_memory(err);
        }
        *ret_folder = folder;
        *ret_name = name;
        return 0;
}

static int refuse(cubby_error *err, int code, int sys_errno, const char *format, const char *path)
{
        (void)cubby_error_set(err, code, "%s%s", format, path);
        if (err != NULL)
                err->sys_errno = sys_errno;
        return -1;
}

static int check(bool from_folder, const char *target, enum copy_found found, cubby_error *err)
{
        bool asserts = copy_asserts_folder(target);
        switch (found) {
        case COPY_NO_PARENT:
                return refuse(err, CUBBY_E_NOT_FOUND, ENOENT,
                        "the folder that the copy would be made in does not exist: ", target);
        case COPY_OTHER:
                return refuse(err, CUBBY_E_INVALID, EINVAL,
                        "the destination must be a folder or a regular file: ", target);
        case COPY_FILE:
                if (asserts)
                        return refuse(err, CUBBY_E_INVALID, ENOTDIR,
                                "the destination is not a folder: ", target);
                if (from_folder)
                        return refuse(err, CUBBY_E_INVALID, ENOTDIR,
                                "a folder cannot be copied onto a file: ", target);
                return 0;
        case COPY_NOTHING:
                if (asserts && !from_folder)
                        return refuse(err, CUBBY_E_NOT_FOUND, ENOENT,
                                "the destination folder must exist: ", target);
                return 0;
        case COPY_FOLDER:
                return 0;
        }
        return 0;
}

int copy_plan_make(const char *source, bool from_folder, const char *target, const char *resolved,
        enum copy_found found, struct copy_plan *ret, cubby_error *err)
{
        AUTO_FREE char *from = NULL;
        AUTO_FREE char *name = NULL;
        struct copy_plan plan = {0};
        if (check(from_folder, target, found, err) < 0)
                return -1;
        if (found != COPY_FOLDER) {
                if (copy_split(resolved, &plan.folder, &plan.name, err) < 0)
                        return -1;
                *ret = plan;
                return 0;
        }
        if (copy_split(source, &from, &name, err) < 0)
                return -1;
        bool contents = from_folder && copy_means_contents(source);
        plan.folder = strdup(resolved);
        plan.name = strdup(contents ? "" : name);
        if (plan.folder == NULL || plan.name == NULL) {
                copy_plan_clear(&plan);
                return cubby_error_no_memory(err);
        }
        *ret = plan;
        return 0;
}
