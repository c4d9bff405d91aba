/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the library or program that holds this code. */
static const char here;

static int try_folder(const char *folder, size_t length, const char *name, char **ret)
{
        char *path = NULL;
        if (asprintf(&path, "%.*s/%s", (int)length, folder, name) < 0)
                return -1;
        if (access(path, X_OK) == 0) {
                *ret = path;
                return 0;
        }
        free(path);
        return -1;
}

/* Beside this library (a build folder), or beside the program. */
static int try_neighbours(const char *name, char **ret)
{
        Dl_info info;
        if (dladdr(&here, &info) != 0 && info.dli_fname != NULL) {
                AUTO_FREE char *real = realpath(info.dli_fname, NULL);
                const char *slash = real == NULL ? NULL : strrchr(real, '/');
                if (slash != NULL && try_folder(real, (size_t)(slash - real), name, ret) == 0)
                        return 0;
        }
        char program[PATH_MAX];
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        if (length <= 0)
                return -1;
        program[length] = '\0';
        const char *slash = strrchr(program, '/');
        return slash == NULL ? -1 : try_folder(program, (size_t)(slash - program), name, ret);
}

int box_find_program(const char *name, char **ret, cubby_error *err)
{
        const char *named = secure_getenv("CUBBY_LIBEXEC");
        if (named != NULL && named[0] != '\0') {
                if (named[0] == '/' && try_folder(named, strlen(named), name, ret) == 0)
                        return 0;
                return cubby_error_set(err, CUBBY_E_NOT_FOUND,
                        "there is no %s in the folder '%s' that CUBBY_LIBEXEC names", name, named);
        }
        if (try_neighbours(name, ret) == 0 ||
                try_folder(CUBBY_LIBEXEC_DIR, strlen(CUBBY_LIBEXEC_DIR), name, ret) == 0)
                return 0;
        return cubby_error_set(err, CUBBY_E_NOT_FOUND,
                "%s was found neither beside this program nor in %s; install Cubby wholly or set "
                "CUBBY_LIBEXEC to its folder",
                name, CUBBY_LIBEXEC_DIR);
}
