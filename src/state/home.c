/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const folder_names[HOME_FOLDER_COUNT] = {
        [HOME_ROOT] = "",
        [HOME_BLOBS] = "blobs/sha256",
        [HOME_IMAGES] = "images",
        [HOME_ROOTFS] = "rootfs",
        [HOME_KERNELS] = "kernels",
        [HOME_TEMPLATES] = "templates",
        [HOME_BOXES] = "boxes",
        [HOME_LOCKS] = "locks",
        [HOME_TMP] = "tmp",
};

static int join(const char *first, const char *second, char **ret, cubby_error *err)
{
        char *joined = NULL;
        if (asprintf(&joined, "%s/%s", first, second) < 0)
                return cubby_error_no_memory(err);
        *ret = joined;
        return 0;
}

static int copy(const char *text, char **ret, cubby_error *err)
{
        char *copied = strdup(text);
        if (copied == NULL)
                return cubby_error_no_memory(err);
        *ret = copied;
        return 0;
}

static int user_folder(char **ret, cubby_error *err)
{
        const char *home = secure_getenv("HOME");
        if (home != NULL && home[0] == '/')
                return join(home, ".local/share/cubby", ret, err);
        char text[4096];
        struct passwd entry;
        struct passwd *found = NULL;
        if (getpwuid_r(geteuid(), &entry, text, sizeof text, &found) != 0 || found == NULL ||
                entry.pw_dir == NULL || entry.pw_dir[0] != '/')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "uid %u has no home folder; set CUBBY_HOME to an absolute path", geteuid());
        return join(entry.pw_dir, ".local/share/cubby", ret, err);
}

static int default_path(char **ret, cubby_error *err)
{
        const char *named = secure_getenv("CUBBY_HOME");
        if (named != NULL && named[0] != '\0') {
                if (named[0] != '/')
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "CUBBY_HOME must be an absolute path, not '%s'", named);
                return copy(named, ret, err);
        }
        if (geteuid() == 0)
                return copy("/var/lib/cubby", ret, err);
        const char *data = secure_getenv("XDG_DATA_HOME");
        if (data != NULL && data[0] == '/')
                return join(data, "cubby", ret, err);
        return user_folder(ret, err);
}

static int absolute_path(const char *path, char **ret, cubby_error *err)
{
        if (path[0] == '/')
                return copy(path, ret, err);
        if (path[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "the home's path is empty");
        AUTO_FREE char *here = getcwd(NULL, 0);
        if (here == NULL)
                return cubby_error_errno(err, errno, "finding the working directory");
        return join(here, path, ret, err);
}

static int open_folders(struct home *home, cubby_error *err)
{
        home->folders[HOME_ROOT] = dir_open_private(home->path, true, err);
        if (home->folders[HOME_ROOT] < 0)
                return -1;
        int root = home->folders[HOME_ROOT];
        if (dir_make_at(root, "blobs", 0700) < 0 && errno != EEXIST)
                return cubby_error_errno(err, errno, "making folder '%s/blobs'", home->path);
        for (int i = HOME_ROOT + 1; i < HOME_FOLDER_COUNT; i++) {
                const char *name = folder_names[i];
                if (dir_make_at(root, name, 0700) < 0 && errno != EEXIST)
                        return cubby_error_errno(
                                err, errno, "making folder '%s/%s'", home->path, name);
                home->folders[i] =
                        openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (home->folders[i] < 0)
                        return cubby_error_errno(
                                err, errno, "opening folder '%s/%s'", home->path, name);
        }
        return 0;
}

static int check_database(struct db *db, void *data, cubby_error *err)
{
        return db_verify(db, err);
}

DEFINE_AUTO(home, home_close)

int home_open(const char *path, const struct log *log, struct home **ret, cubby_error *err)
{
        AUTO(home) struct home *home = calloc(1, sizeof *home);
        if (home == NULL)
                return cubby_error_no_memory(err);
        (void)pthread_mutex_init(&home->kept.mutex, NULL);
        for (int i = 0; i < HOME_FOLDER_COUNT; i++)
                home->folders[i] = -1;
        if (log != NULL)
                home->log = *log;
        int made = path == NULL ? default_path(&home->path, err)
                                : absolute_path(path, &home->path, err);
        if (made < 0)
                return -1;
        for (size_t end = strlen(home->path); end > 1 && home->path[end - 1] == '/'; end--)
                home->path[end - 1] = '\0'; /* a slash at the end would follow a link */
        if (open_folders(home, err) < 0)
                return cubby_error_wrap(err, "opening the home");
        if (db_run(home, false, check_database, NULL, err) < 0)
                return cubby_error_wrap(err, "opening the home '%s'", home->path);
        *ret = take_ptr(&home);
        return 0;
}

void home_close(struct home *home)
{
        if (home == NULL)
                return;
        db_forget(home);
        (void)pthread_mutex_destroy(&home->kept.mutex);
        for (int i = 0; i < HOME_FOLDER_COUNT; i++)
                close_quietly(home->folders[i]);
        free(home->path);
        free(home);
}

const char *home_path(const struct home *home)
{
        return home->path;
}

int home_folder(const struct home *home, enum home_folder folder)
{
        return home->folders[folder];
}

const struct log *home_log(const struct home *home)
{
        return &home->log;
}
