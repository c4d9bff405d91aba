/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/package.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define META_PACKAGE "linux-image-cloud-amd64"
#define PACKAGE_NAME_MAX 128U
#define SHOW_SIZE_MAX (256U * 1024)
#define SHOW_TIMEOUT_MS 60000
#define DOWNLOAD_TIMEOUT_MS 600000

#define OTHER_WAYS                                                          \
        "or name one yourself: 'cubby kernel add FILE' takes a vmlinuz, a " \
        "vmlinux or a kernel's .deb"

/* The value of the first field of that name in control-file text, or NULL. */
static const char *field_value(const char *text, const char *name)
{
        size_t length = strlen(name);
        for (const char *line = text; line != NULL && *line != '\0';) {
                if (strncmp(line, name, length) == 0)
                        return line + length;
                line = strchr(line, '\n');
                if (line != NULL)
                        line++;
        }
        return NULL;
}

int package_of_depends(const char *show, char *ret, size_t size, cubby_error *err)
{
        const char *from = field_value(show, "Depends:");
        while (from != NULL) {
                from += strspn(from, " ");
                size_t length = strspn(from, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
                if (strncmp(from, "linux-image-", 12) == 0 && length > 12 && length < size &&
                        strchr(" ,\n", from[length]) != NULL) {
                        memcpy(ret, from, length);
                        ret[length] = '\0';
                        return 0;
                }
                size_t alternative = strcspn(from, ",\n");
                from = from[alternative] == ',' ? from + alternative + 1 : NULL;
        }
        return cubby_error_set(
                err, CUBBY_E_KERNEL, "package '" META_PACKAGE "' names no kernel package");
}

static int64_t earlier(int64_t deadline_ms, int64_t timeout_ms)
{
        int64_t own = deadline_after_ms(timeout_ms);
        return own < deadline_ms ? own : deadline_ms;
}

static int resolve(char name[PACKAGE_NAME_MAX], int64_t deadline_ms, cubby_error *err)
{
        const char *const argv[] = {"apt-cache", "show", "--no-all-versions", META_PACKAGE, NULL};
        AUTO_BUFFER struct buffer show;
        buffer_init(&show, SHOW_SIZE_MAX);
        cubby_error why = {0};
        if (spawn_run(argv, &show, earlier(deadline_ms, SHOW_TIMEOUT_MS), &why) < 0 ||
                show.size == 0)
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "apt does not know package '" META_PACKAGE
                        "'; run: apt-get update (as root), " OTHER_WAYS);
        const char *text = buffer_text(&show);
        if (text == NULL)
                return cubby_error_no_memory(err);
        return package_of_depends(text, name, PACKAGE_NAME_MAX, err);
}

static int find_deb(int folder_fd, int *ret_fd, cubby_error *err)
{
        int copy = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        if (dir == NULL) {
                close_quietly(copy);
                return cubby_error_errno(err, errno, "looking for the downloaded package");
        }
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
                size_t length = strlen(entry->d_name);
                if (length < 5 || strcmp(entry->d_name + length - 4, ".deb") != 0)
                        continue;
                int fd = openat(folder_fd, entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
                if (fd < 0)
                        return cubby_error_errno(err, errno, "opening '%s'", entry->d_name);
                *ret_fd = fd;
                return 0;
        }
        return cubby_error_set(err, CUBBY_E_KERNEL, "apt-get download left no package behind");
}

int package_download(int folder_fd, const char *folder_path, kernel_progress progress, void *data,
        int64_t deadline_ms, int *ret_fd, cubby_error *err)
{
        char package[PACKAGE_NAME_MAX];
        if (!program_exists("apt-get") || !program_exists("apt-cache"))
                return cubby_error_set(err, CUBBY_E_KERNEL,
                        "no guest kernel on this host, and no apt-get to fetch one with: install "
                        "a kernel with its modules, " OTHER_WAYS);
        if (resolve(package, deadline_ms, err) < 0)
                return -1;
        if (progress != NULL)
                progress(data, "download", package, 0, 0);
        /* apt-get writes into its working directory */
        const char *const argv[] = {
                "env", "-C", folder_path, "apt-get", "-q", "download", package, NULL};
        if (spawn_run(argv, NULL, earlier(deadline_ms, DOWNLOAD_TIMEOUT_MS), err) < 0)
                return cubby_error_wrap(err,
                        "downloading '%s' (run apt-get update and try again, " OTHER_WAYS ")",
                        package);
        return find_deb(folder_fd, ret_fd, err);
}
