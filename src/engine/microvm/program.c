/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/program.h"

#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PROGRAM "qemu-system-x86_64"
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static int resolve(const char *path, char **ret, cubby_error *err)
{
        char *resolved = realpath(path, NULL);
        if (resolved == NULL)
                return cubby_error_errno(err, errno, "finding the VMM '%s'", path);
        *ret = resolved;
        return 0;
}

int program_resolve(const char *name, char **ret, cubby_error *err)
{
        if (name == NULL)
                name = DEFAULT_PROGRAM;
        if (strchr(name, '/') != NULL) {
                if (access(name, X_OK) < 0)
                        return cubby_error_set(err, CUBBY_E_VMM, "the VMM '%s' cannot be run: %s",
                                name, strerrordesc_np(errno));
                return resolve(name, ret, err);
        }
        const char *path = getenv("PATH");
        if (path == NULL || *path == '\0')
                path = DEFAULT_PATH;
        while (*path != '\0') {
                char candidate[PATH_MAX];
                size_t length = strcspn(path, ":");
                int written =
                        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, name);
                if (length > 0 && written > 0 && (size_t)written < sizeof candidate &&
                        access(candidate, X_OK) == 0)
                        return resolve(candidate, ret, err);
                path += length;
                path += *path == ':';
        }
        return cubby_error_set(err, CUBBY_E_VMM,
                "the VMM '%s' is not installed; on Debian and Ubuntu: apt-get install "
                "qemu-system-x86",
                name);
}
