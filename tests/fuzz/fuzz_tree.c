/* SPDX-License-Identifier: Apache-2.0 */

/* Records of a hostile box, unpacked on the host: nothing may appear beside the destination,
 * nor a temporary stay in it. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "tree/unpack.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE 61 /* so that records come in parts */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int next(void *data, struct slice *ret, cubby_error *err)
{
        struct slice *left = data;
        (void)err;
        size_t some = left->size < PIECE ? left->size : PIECE;
        *ret = (struct slice){.data = left->data, .size = some};
        left->data += some;
        left->size -= some;
        return 0;
}

static char root_path[] = "/tmp/cubby-fuzz-tree-XXXXXX";

static void remove_root(void)
{
        (void)dir_remove_at(AT_FDCWD, root_path, NULL);
}

static int make_root(void)
{
        if (mkdtemp(root_path) == NULL || atexit(remove_root) != 0)
                abort();
        int fd = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                abort();
        return fd;
}

/* Folders that came without their owner's bits. */
static void open_up(int at, const char *name, int depth)
{
        AUTO_DIR DIR *dir = NULL;
        (void)!fchmodat(at, name, 0700, 0);
        int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || depth > 50 || (dir = fdopendir(fd)) == NULL) {
                close_quietly(fd);
                return;
        }
        for (const struct dirent *found; (found = readdir(dir)) != NULL;)
                if (found->d_type == DT_DIR && strcmp(found->d_name, ".") != 0 &&
                        strcmp(found->d_name, "..") != 0)
                        open_up(fd, found->d_name, depth + 1);
}

static void check(int root, const char *name, bool must_be_alone)
{
        AUTO_DIR DIR *dir = fdopendir(openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (dir == NULL)
                return; /* the root came as a file, or may not be read */
        for (const struct dirent *found; (found = readdir(dir)) != NULL;) {
                if (found->d_name[0] == '.' &&
                        (found->d_name[1] == '\0' || strcmp(found->d_name, "..") == 0))
                        continue;
                if (must_be_alone ? strcmp(found->d_name, "to") != 0
                                  : strncmp(found->d_name, ".cubby-", 7) == 0)
                        abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static int root = -1;
        if (root < 0)
                root = make_root();
        if (mkdirat(root, "to", 0700) < 0)
                abort();
        AUTO_FD int to = openat(root, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (symlinkat("../..", to, "up") < 0)
                abort();
        struct slice left = {.data = data, .size = size};
        const struct tree_input input = {.next = next, .data = &left};
        const struct unpack_options options = {.folder_fd = to,
                .drafts_fd = -1,
                .name = size % 2 == 0 ? "" : "copy",
                .strict = true,
                .scattered = size % 3 == 0};
        AUTO_TREE_READER struct tree_reader reader = {0};
        tree_reader_init(&reader, &input);
        (void)tree_unpack(&options, &reader, NULL);
        check(root, ".", true);
        check(to, ".", false);
        check(to, "copy", false);
        open_up(root, "to", 0);
        if (dir_remove_at(root, "to", NULL) < 0)
                abort();
        return 0;
}
