/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a fuzz target an ordinary test: runs each file named in the arguments,
 * and each file of a folder named there, through the target once.
 */

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (16U << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dir_fd, const char *name)
{
        AUTO_BUFFER struct buffer input = {0};
        cubby_error err;

        buffer_init(&input, INPUT_BYTES_MAX);
        cubby_error_clear(&err);
        if (file_read_at(dir_fd, name, &input, &err) < 0) {
                fprintf(stderr, "%s: %s\n", name, err.message);
                return -1;
        }
        /* An allocation of exactly the input's size lets sanitizers see a read past it. */
        AUTO_FREE uint8_t *copy = malloc(input.size > 0 ? input.size : 1);
        if (copy == NULL)
                return -1;
        if (input.size > 0)
                memcpy(copy, input.data, input.size);
        (void)LLVMFuzzerTestOneInput(copy, input.size);
        return 0;
}

static int replay_folder(const char *path)
{
        AUTO_DIR DIR *dir = opendir(path);
        struct dirent *entry = NULL;
        int count = 0;

        if (dir == NULL) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -1;
        }
        while ((entry = readdir(dir)) != NULL) {
                if (entry->d_name[0] == '.')
                        continue;
                if (replay_file(dirfd(dir), entry->d_name) < 0)
                        return -1;
                count++;
        }
        return count;
}

int main(int argc, char **argv)
{
        int count = 0;

        for (int i = 1; i < argc; i++) {
                struct stat status;

                if (stat(argv[i], &status) < 0) {
                        fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
                        return 1;
                }
                int added = S_ISDIR(status.st_mode) ? replay_folder(argv[i])
                                                    : replay_file(AT_FDCWD, argv[i]) + 1;
                if (added <= 0) {
                        fprintf(stderr, "%s: no input was run\n", argv[i]);
                        return 1;
                }
                count += added;
        }
        printf("%d inputs\n", count);
        return count > 0 ? 0 : 1;
}
