/* SPDX-License-Identifier: Apache-2.0 */

/* Trees of files as records: there and back, and what a stranger may send. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "tree/pack.h"
#include "tree/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
        char root[64];
        int fd;      /* of root */
        int from_fd; /* root/from */
        int to_fd;   /* root/to */
        struct buffer stream;
        size_t taken;
        size_t step; /* bytes that the input gives at a time */
};

static int put(void *data, const void *bytes, size_t size, cubby_error *err)
{
        struct world *world = data;
        return buffer_append(&world->stream, bytes, size) ? 0 : cubby_error_no_memory(err);
}

static int next(void *data, struct slice *ret, cubby_error *err)
{
        struct world *world = data;
        size_t left = world->stream.size - world->taken;
        size_t size = left < world->step ? left : world->step;
        *ret = (struct slice){.data = world->stream.data + world->taken, .size = size};
        world->taken += size;
        return 0;
}

static int set_up(void **state)
{
        struct world *world = calloc(1, sizeof *world);
        assert_non_null(world);
        const char *base = getenv("TMPDIR");
        (void)snprintf(world->root, sizeof world->root, "%.40s/cubby-tree-XXXXXX",
                base == NULL ? "/tmp" : base);
        assert_non_null(mkdtemp(world->root));
        world->fd = open(world->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(world->fd, "from", 0755), 0);
        assert_int_equal(mkdirat(world->fd, "to", 0755), 0);
        world->from_fd = openat(world->fd, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        world->to_fd = openat(world->fd, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(world->from_fd >= 0 && world->to_fd >= 0);
        buffer_init(&world->stream, (size_t)64 << 20);
        world->step = 1000;
        *state = world;
        return 0;
}

static int tear_down(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        close_quietly(world->fd);
        close_quietly(world->from_fd);
        close_quietly(world->to_fd);
        assert_int_equal(dir_remove_at(AT_FDCWD, world->root, &err), 0);
        buffer_free(&world->stream);
        free(world);
        return 0;
}

static void make(int at, const char *name, const char *text, mode_t mode)
{
        AUTO_FD int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write_whole(fd, text, strlen(text)), 0);
        assert_int_equal(fchmod(fd, mode), 0);
}

static void expect(int at, const char *name, const char *text)
{
        AUTO_BUFFER struct buffer content;
        buffer_init(&content, 1 << 20);
        cubby_error err = {0};
        if (file_read_at(at, name, &content, &err) < 0)
                fail_msg("%s", err.message);
        assert_string_equal(buffer_text(&content), text);
}

static bool is_there(int at, const char *name)
{
        struct stat info;
        return fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static mode_t mode_at(int at, const char *name)
{
        struct stat info;
        assert_int_equal(fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW), 0);
        return info.st_mode & 07777;
}

static int pack(struct world *world, const char *path, bool follow, cubby_error *err)
{
        const struct pack_options options = {
                .at_fd = world->from_fd, .path = path, .follow = follow};
        const struct tree_output output = {.put = put, .data = world};
        buffer_clear(&world->stream);
        world->taken = 0;
        return tree_pack(&options, &output, err);
}

static int unpack(struct world *world, const char *name, bool strict, cubby_error *err)
{
        const struct tree_input input = {.next = next, .data = world};
        AUTO_TREE_READER struct tree_reader reader = {0};
        tree_reader_init(&reader, &input);
        const struct unpack_options options = {
                .folder_fd = world->to_fd, .drafts_fd = -1, .name = name, .strict = strict};
        world->taken = 0;
        return tree_unpack(&options, &reader, err);
}

/* No temporary is left, however a copy ended. */
static void expect_no_draft(int at)
{
        AUTO_DIR DIR *dir = fdopendir(openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        assert_non_null(dir);
        for (const struct dirent *found; (found = readdir(dir)) != NULL;)
                assert_int_not_equal(strncmp(found->d_name, ".cubby-", 7), 0);
}

static void test_there_and_back(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        int at = world->from_fd;
        static const char odd[] = "new\nline \xff\x80 -rf";
        assert_int_equal(mkdirat(at, "a", 0750), 0);
        assert_int_equal(mkdirat(at, "a/b", 0755), 0);
        make(at, "a/hello", "hello world", 0640);
        make(at, "a/empty", "", 0600);
        make(at, "a/b/tool", "#!/bin/sh\n", 04755);
        AUTO_FD int folder = openat(at, "a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make(folder, odd, "odd", 0644);
        assert_int_equal(symlinkat("/etc/passwd", at, "a/link"), 0);
        assert_int_equal(linkat(at, "a/hello", at, "a/b/same", 0), 0);
        assert_int_equal(mkfifoat(at, "a/fifo", 0600), 0);
        const struct timespec times[2] = {
                {.tv_sec = -5, .tv_nsec = 7}, {.tv_sec = 1000000000, .tv_nsec = 123456789}};
        assert_int_equal(utimensat(at, "a/hello", times, 0), 0);
        assert_int_equal(utimensat(at, "a", times, 0), 0);
        for (int strict = 0; strict < 2; strict++) {
                struct stat info;
                struct stat same;
                char target[64] = "";
                const char *name = strict ? "strict" : "plain";
                world->step = strict ? 1 : 100000;
                if (pack(world, "a", false, &err) < 0 || unpack(world, name, strict, &err) < 0)
                        fail_msg("%s", err.message);
                AUTO_FD int to = openat(world->to_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                expect(to, "hello", "hello world");
                expect(to, "empty", "");
                AUTO_FD int inner = openat(to, "b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                expect(inner, odd, "odd");
                expect(inner, "same", "hello world");
                assert_int_equal(mode_at(to, "."), 0750);
                assert_int_equal(mode_at(to, "hello"), 0640);
                assert_int_equal(mode_at(inner, "tool"), strict ? 0755 : 04755);
                assert_int_equal(readlinkat(to, "link", target, sizeof target), 11);
                assert_string_equal(target, "/etc/passwd");
                assert_int_equal(fstatat(to, "fifo", &info, 0), 0);
                assert_true(S_ISFIFO(info.st_mode));
                assert_int_equal(fstatat(to, "hello", &info, 0), 0);
                assert_int_equal(fstatat(inner, "same", &same, 0), 0);
                assert_true(info.st_ino == same.st_ino);
                assert_int_equal(info.st_mtim.tv_sec, 1000000000);
                assert_int_equal(info.st_mtim.tv_nsec, 123456789);
                assert_int_equal(fstatat(to, ".", &info, 0), 0);
                assert_int_equal(info.st_mtim.tv_sec, 1000000000);
                expect_no_draft(to);
                expect_no_draft(inner);
        }
}

static void test_sockets_are_left_out(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        AUTO_FD int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(mkdirat(world->from_fd, "d", 0755), 0);
        (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/from/d/s", world->root);
        assert_int_equal(bind(socket_fd, (struct sockaddr *)&address, sizeof address), 0);
        make(world->from_fd, "d/f", "x", 0644);
        assert_int_equal(pack(world, "d", false, &err), 0);
        assert_int_equal(unpack(world, "d", true, &err), 0);
        expect(world->to_fd, "d/f", "x");
        assert_false(is_there(world->to_fd, "d/s"));
        assert_int_equal(pack(world, "d/s", false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
}

static void test_root_as_link(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        char target[64] = "";
        make(world->from_fd, "file", "content", 0644);
        assert_int_equal(symlinkat("file", world->from_fd, "link"), 0);
        assert_int_equal(pack(world, "link", false, &err), 0);
        assert_int_equal(unpack(world, "l", true, &err), 0);
        assert_int_equal(readlinkat(world->to_fd, "l", target, sizeof target), 4);
        assert_int_equal(pack(world, "link", true, &err), 0);
        assert_int_equal(unpack(world, "f", true, &err), 0);
        expect(world->to_fd, "f", "content");
        assert_int_equal(pack(world, "none", true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
}

static void test_holes_stay_holes(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        struct stat info;
        const off_t size = (off_t)1 << 34;
        AUTO_FD int fd = openat(world->from_fd, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(ftruncate(fd, size), 0);
        assert_int_equal(pwrite(fd, "middle", 6, 5000000), 6);
        assert_int_equal(pack(world, "sparse", false, &err), 0);
        assert_true(world->stream.size < 100000);
        for (int strict = 0; strict < 2; strict++) {
                char text[7] = "";
                if (unpack(world, "sparse", strict, &err) < 0)
                        fail_msg("%s", err.message);
                AUTO_FD int to = openat(world->to_fd, "sparse", O_RDONLY | O_CLOEXEC);
                assert_int_equal(fstat(to, &info), 0);
                assert_true(info.st_size == size);
                assert_true(info.st_blocks * 512 < 1000000);
                assert_int_equal(pread(to, text, 6, 5000000), 6);
                assert_string_equal(text, "middle");
        }
}

/* Written past the page cache, with a tail that is no whole block. */
static void test_large_file(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        const size_t size = 3 * 1024 * 1024 + 4096 + 17;
        AUTO_FREE uint8_t *bytes = malloc(size);
        AUTO_FREE uint8_t *back = malloc(size + 1);
        assert_true(bytes != NULL && back != NULL);
        for (size_t i = 0; i < size; i++)
                bytes[i] = (uint8_t)(i * 31 + i / 4096);
        AUTO_FD int fd = openat(world->from_fd, "large", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(write_whole(fd, bytes, size), 0);
        assert_int_equal(pack(world, "large", false, &err), 0);
        world->step = 32744;
        for (int strict = 0; strict < 2; strict++) {
                if (unpack(world, "large", strict, &err) < 0)
                        fail_msg("%s", err.message);
                AUTO_FD int to = openat(world->to_fd, "large", O_RDONLY | O_CLOEXEC);
                assert_int_equal(read_whole(to, back, size + 1), size);
                assert_memory_equal(bytes, back, size);
        }
}

static void test_merge_and_replace(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        assert_int_equal(mkdirat(world->from_fd, "d", 0700), 0);
        make(world->from_fd, "d/new", "new", 0644);
        make(world->from_fd, "d/old", "changed", 0644);
        assert_int_equal(mkdirat(world->to_fd, "d", 0755), 0);
        make(world->to_fd, "d/old", "old", 0600);
        make(world->to_fd, "d/kept", "kept", 0600);
        make(world->to_fd, "outside", "outside", 0600);
        assert_int_equal(unlinkat(world->to_fd, "d/old", 0), 0);
        assert_int_equal(symlinkat("../outside", world->to_fd, "d/old"), 0);
        assert_int_equal(pack(world, "d", false, &err), 0);
        assert_int_equal(unpack(world, "d", true, &err), 0);
        expect(world->to_fd, "d/new", "new");
        expect(world->to_fd, "d/old", "changed");
        expect(world->to_fd, "d/kept", "kept");
        expect(world->to_fd, "outside", "outside");
        assert_int_equal(mode_at(world->to_fd, "d"), 0755);
        assert_int_equal(unpack(world, "d", false, &err), 0);
        assert_int_equal(mode_at(world->to_fd, "d"), 0700);
        /* into the folder itself: the root's own facts do not count */
        assert_int_equal(unpack(world, "", false, &err), 0);
        assert_int_equal(mode_at(world->to_fd, "."), 0755);
        expect(world->to_fd, "new", "new");
}

static void test_folder_and_file_never_mix(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        assert_int_equal(mkdirat(world->from_fd, "d", 0700), 0);
        make(world->from_fd, "f", "file", 0644);
        make(world->to_fd, "file", "old", 0644);
        assert_int_equal(mkdirat(world->to_fd, "folder", 0700), 0);
        assert_int_equal(symlinkat("folder", world->to_fd, "link"), 0);
        static const struct {
                const char *what, *onto;
                int problem;
        } rows[] = {
                {"d", "file", ENOTDIR},
                {"d", "link", ENOTDIR},
                {"f", "folder", EISDIR},
                {"f", "", ENOTDIR},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                assert_int_equal(pack(world, rows[i].what, false, &err), 0);
                for (int strict = 0; strict < 2; strict++) {
                        if (i == 1 && !strict)
                                continue;
                        assert_int_equal(unpack(world, rows[i].onto, strict, &err), -1);
                        assert_int_equal(err.code, CUBBY_E_INVALID);
                        assert_int_equal(err.sys_errno, rows[i].problem);
                }
        }
        expect(world->to_fd, "file", "old");
        expect_no_draft(world->to_fd);
}

static void test_folder_without_write_bit(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        assert_int_equal(mkdirat(world->from_fd, "d", 0755), 0);
        assert_int_equal(mkdirat(world->from_fd, "d/e", 0755), 0);
        make(world->from_fd, "d/e/f", "x", 0444);
        assert_int_equal(fchmodat(world->from_fd, "d/e", 0555, 0), 0);
        assert_int_equal(fchmodat(world->from_fd, "d", 0555, 0), 0);
        assert_int_equal(pack(world, "d", false, &err), 0);
        if (unpack(world, "d", true, &err) < 0)
                fail_msg("%s", err.message);
        expect(world->to_fd, "d/e/f", "x");
        assert_int_equal(mode_at(world->to_fd, "d"), 0555);
        assert_int_equal(mode_at(world->to_fd, "d/e"), 0555);
        static const char *const folders[] = {"d", "d/e"};
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(fchmodat(world->to_fd, folders[i], 0755, 0), 0);
                assert_int_equal(fchmodat(world->from_fd, folders[i], 0755, 0), 0);
        }
}

/* As in a box: what is unfinished is where nobody looks. */
static void test_drafts_elsewhere(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        struct stat info;
        gid_t group = geteuid() == 0 ? 4242 : getegid();
        assert_int_equal(mkdirat(world->fd, "drafts", 0700), 0);
        AUTO_FD int drafts = openat(world->fd, "drafts", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(world->from_fd, "d", 0755), 0);
        make(world->from_fd, "d/f", "content", 0640);
        assert_int_equal(fchownat(world->to_fd, ".", (uid_t)-1, group, AT_EMPTY_PATH), 0);
        assert_int_equal(fchmodat(world->to_fd, ".", 02755, 0), 0);
        assert_int_equal(pack(world, "d/f", false, &err), 0);
        const struct tree_input input = {.next = next, .data = world};
        for (size_t size = 0; size <= world->stream.size; size++) {
                struct buffer whole = world->stream;
                AUTO_TREE_READER struct tree_reader reader = {0};
                tree_reader_init(&reader, &input);
                const struct unpack_options options = {
                        .folder_fd = world->to_fd, .drafts_fd = drafts, .name = "f"};
                world->taken = 0;
                world->stream.size = size;
                int result = tree_unpack(&options, &reader, &err);
                world->stream = whole;
                assert_int_equal(result, size == world->stream.size ? 0 : -1);
                expect_no_draft(world->to_fd);
                AUTO_FD int readable = openat(drafts, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                expect_no_draft(readable);
        }
        expect(world->to_fd, "f", "content");
        assert_int_equal(mode_at(world->to_fd, "f"), 0640);
        assert_int_equal(fstatat(world->to_fd, "f", &info, 0), 0);
        assert_int_equal(info.st_gid, group);
}

/* Also what has no content: a machine that is killed leaves none of it in anybody's way. */
static void test_all_drafts_elsewhere(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        struct stat info;
        char path[48];
        union {
                struct inotify_event event;
                char bytes[4096];
        } events;
        gid_t group = geteuid() == 0 ? 4242 : getegid();
        assert_int_equal(mkdirat(world->fd, "drafts", 0700), 0);
        AUTO_FD int drafts = openat(world->fd, "drafts", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(world->from_fd, "d", 0755), 0);
        make(world->from_fd, "d/f", "content", 0640);
        assert_int_equal(linkat(world->from_fd, "d/f", world->from_fd, "d/same", 0), 0);
        assert_int_equal(symlinkat("f", world->from_fd, "d/link"), 0);
        assert_int_equal(mkfifoat(world->from_fd, "d/fifo", 0600), 0);
        assert_int_equal(pack(world, "d", false, &err), 0);
        assert_int_equal(mkdirat(world->to_fd, "d", 0755), 0);
        assert_int_equal(fchownat(world->to_fd, "d", (uid_t)-1, group, 0), 0);
        assert_int_equal(fchmodat(world->to_fd, "d", 02755, 0), 0);
        AUTO_FD int folder = openat(world->to_fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_FD int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
        assert_true(inotify_add_watch(watch, path, IN_CREATE) >= 0);

        const struct tree_input input = {.next = next, .data = world};
        AUTO_TREE_READER struct tree_reader reader = {0};
        tree_reader_init(&reader, &input);
        const struct unpack_options options = {
                .folder_fd = world->to_fd, .drafts_fd = drafts, .name = "d"};
        if (tree_unpack(&options, &reader, &err) < 0)
                fail_msg("%s", err.message);
        /* all was moved there, but the second name, which came to be in one step */
        assert_true(read(watch, &events, sizeof events) > 0);
        assert_true(strcmp(events.event.name, "same") == 0 || strcmp(events.event.name, "f") == 0);
        assert_int_equal(read(watch, &events, sizeof events), -1);
        static const char *const names[] = {"f", "same", "link", "fifo"};
        for (size_t i = 0; i < 4; i++) {
                assert_int_equal(fstatat(folder, names[i], &info, AT_SYMLINK_NOFOLLOW), 0);
                assert_int_equal(info.st_gid, group);
        }
        assert_int_equal(fstatat(folder, "same", &info, 0), 0);
        assert_int_equal(info.st_nlink, 2);
        AUTO_FD int readable = openat(drafts, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        expect_no_draft(readable);
}

/* ---- what a stranger may send ---- */

static struct buffer scratch;

static void add_entry(struct world *world, uint8_t type, const char *path, const char *target,
        uint32_t mode, uint64_t size)
{
        const struct tree_output output = {.put = put, .data = world};
        const struct tree_entry entry = {.type = type,
                .path = path,
                .target = target,
                .mode = mode,
                .size = size,
                .device_major = 1,
                .device_minor = 3};
        assert_int_equal(tree_put_entry(&output, &entry, &scratch, NULL), 0);
}

static void add_file(struct world *world, const char *path, const char *text, uint32_t mode)
{
        const struct tree_output output = {.put = put, .data = world};
        add_entry(world, TREE_REGULAR, path, "", mode, strlen(text));
        if (text[0] != '\0')
                assert_int_equal(tree_put_data(&output, 0, text, strlen(text), NULL), 0);
        assert_int_equal(tree_put_close(&output, strlen(text), NULL), 0);
}

static void add_end(struct world *world)
{
        const struct tree_output output = {.put = put, .data = world};
        assert_int_equal(tree_put_end(&output, NULL), 0);
}

static void begin(struct world *world)
{
        buffer_clear(&world->stream);
        buffer_init(&scratch, TREE_ENTRY_MAX);
        add_entry(world, TREE_FOLDER, "", "", 0755, 0);
}

static int finish(struct world *world, cubby_error *err)
{
        add_end(world);
        buffer_free(&scratch);
        *err = (cubby_error){0};
        int result = unpack(world, "copy", true, err);
        expect_no_draft(world->to_fd);
        if (is_there(world->to_fd, "copy")) {
                AUTO_FD int copy = openat(world->to_fd, "copy", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                expect_no_draft(copy);
        }
        return result;
}

static void test_bad_names(void **state)
{
        struct world *world = *state;
        char longest[TREE_NAME_MAX + 2];
        memset(longest, 'n', sizeof longest - 1);
        longest[sizeof longest - 1] = '\0';
        const char *const names[] = {"../x", "a/../../x", "..", "/x", "/etc/passwd", "a//x", "a/",
                ".", "./x", "a/.", "", longest};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                cubby_error err;
                begin(world);
                add_file(world, names[i], "evil", 0644);
                assert_int_equal(finish(world, &err), -1);
                assert_int_equal(err.code, CUBBY_E_PROTOCOL);
                assert_false(is_there(world->fd, "x"));
        }
}

static void test_link_then_file_through_it(void **state)
{
        struct world *world = *state;
        cubby_error err;
        make(world->fd, "victim", "untouched", 0600);
        assert_int_equal(mkdirat(world->fd, "outside", 0755), 0);
        /* through a linked folder */
        begin(world);
        add_entry(world, TREE_LINK, "out", "../../outside", 0777, 0);
        add_file(world, "out/evil", "evil", 0644);
        assert_int_equal(finish(world, &err), -1);
        assert_false(is_there(world->fd, "outside/evil"));
        /* onto the link itself: it is replaced */
        begin(world);
        add_entry(world, TREE_LINK, "file", "../../victim", 0777, 0);
        add_file(world, "file", "mine", 0644);
        assert_int_equal(finish(world, &err), 0);
        expect(world->fd, "victim", "untouched");
        expect(world->to_fd, "copy/file", "mine");
        /* a folder that follows a link of the same name, then a file in it */
        begin(world);
        add_entry(world, TREE_LINK, "dir", "../../outside", 0777, 0);
        add_entry(world, TREE_FOLDER, "dir", "", 0777, 0);
        add_file(world, "dir/evil", "evil", 0644);
        assert_int_equal(finish(world, &err), -1);
        assert_false(is_there(world->fd, "outside/evil"));
        assert_int_equal(mode_at(world->fd, "outside"), 0755);
}

static void test_links_that_were_there(void **state)
{
        struct world *world = *state;
        cubby_error err;
        assert_int_equal(mkdirat(world->fd, "outside", 0755), 0);
        assert_int_equal(mkdirat(world->to_fd, "copy", 0755), 0);
        assert_int_equal(symlinkat("../../outside", world->to_fd, "copy/out"), 0);
        begin(world);
        add_file(world, "out/evil", "evil", 0644);
        assert_int_equal(finish(world, &err), -1);
        assert_false(is_there(world->fd, "outside/evil"));
}

static void test_other_names_of_foreign_files(void **state)
{
        struct world *world = *state;
        static const char *const targets[] = {"secret", "link", "none", "dir", "dir/file"};
        cubby_error err;
        assert_int_equal(mkdirat(world->to_fd, "copy", 0755), 0);
        assert_int_equal(mkdirat(world->to_fd, "copy/dir", 0755), 0);
        make(world->to_fd, "copy/secret", "secret", 0600);
        make(world->to_fd, "copy/dir/file", "secret", 0600);
        assert_int_equal(symlinkat("secret", world->to_fd, "copy/link"), 0);
        for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
                begin(world);
                add_entry(world, TREE_SAME, "mine", targets[i], 0644, 0);
                assert_int_equal(finish(world, &err), -1);
                assert_false(is_there(world->to_fd, "copy/mine"));
        }
        begin(world);
        add_entry(world, TREE_SAME, "mine", "../victim", 0644, 0);
        assert_int_equal(finish(world, &err), -1);
        assert_int_equal(err.code, CUBBY_E_PROTOCOL);
}

static void test_devices_and_set_id(void **state)
{
        struct world *world = *state;
        cubby_error err;
        begin(world);
        add_entry(world, TREE_CHAR, "null", "", 0666, 0);
        add_entry(world, TREE_BLOCK, "disk", "", 0666, 0);
        add_file(world, "setuid", "x", 06755);
        add_entry(world, TREE_FOLDER, "setgid", "", 03777, 0);
        add_file(world, "behind", "x", 0644);
        assert_int_equal(finish(world, &err), -1);
        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
        assert_non_null(strstr(err.message, "copy/null"));
        assert_false(is_there(world->to_fd, "copy/null"));
        assert_false(is_there(world->to_fd, "copy/disk"));
        assert_int_equal(mode_at(world->to_fd, "copy/setuid"), 0755);
        assert_int_equal(mode_at(world->to_fd, "copy/setgid"), 01777);
        expect(world->to_fd, "copy/behind", "x");
}

static void test_contents_that_lie(void **state)
{
        struct world *world = *state;
        const struct tree_output output = {.put = put, .data = world};
        static const struct {
                uint64_t size;           /* announced */
                uint64_t offset, length; /* of one piece; length 0: none */
                uint64_t second;         /* offset of another byte; 0: none */
                int64_t close;           /* -1: none */
                int want;
        } rows[] = {
                {4, 0, 4, 0, 4, 0},
                {4, 0, 2, 0, 2, 0},               /* it shrank */
                {4, 0, 2, 0, -1, -1},             /* it ends early */
                {4, 0, 5, 0, 5, -1},              /* longer than announced */
                {4, 3, 4, 0, 4, -1},              /* behind its end */
                {4, UINT64_MAX - 1, 4, 0, 4, -1}, /* the sum overflows */
                {4, 0, 4, 0, 5, -1},              /* closes larger */
                {4, 0, 4, 0, 3, -1},              /* closes before its content */
                {16, 8, 4, 4, 16, -1},            /* backwards */
                {UINT64_C(1) << 63, 0, 4, 0, 4, -1},
                {UINT64_MAX, 0, 4, 0, 4, -1},
                {0, 0, 0, 0, 0, 0},
                {0, 0, 1, 0, 1, -1},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_error err;
                begin(world);
                add_entry(world, TREE_REGULAR, "f", "", 0644, rows[i].size);
                if (rows[i].length > 0)
                        assert_int_equal(tree_put_data(&output, rows[i].offset, "12345678",
                                                 rows[i].length, NULL),
                                0);
                if (rows[i].second > 0)
                        assert_int_equal(tree_put_data(&output, rows[i].second, "x", 1, NULL), 0);
                if (rows[i].close >= 0)
                        assert_int_equal(tree_put_close(&output, (uint64_t)rows[i].close, NULL), 0);
                if (finish(world, &err) != rows[i].want)
                        fail_msg("row %zu: %s", i, err.message);
                assert_int_equal(err.code, rows[i].want == 0 ? CUBBY_OK : CUBBY_E_PROTOCOL);
                assert_int_equal(is_there(world->to_fd, "copy/f"), rows[i].want == 0);
                (void)unlinkat(world->to_fd, "copy/f", 0);
        }
}

/* A byte string of a stranger: cut anywhere, and with each byte of it changed. */
static void test_damage(void **state)
{
        struct world *world = *state;
        cubby_error err;
        begin(world);
        add_file(world, "f", "content", 0644);
        add_entry(world, TREE_LINK, "l", "f", 0777, 0);
        assert_int_equal(finish(world, &err), 0);
        size_t whole = world->stream.size;
        for (size_t size = 0; size < whole; size++) {
                world->stream.size = size;
                assert_int_equal(unpack(world, "copy", true, &err), -1);
                assert_int_equal(err.code, CUBBY_E_PROTOCOL);
        }
        world->stream.size = whole;
        for (size_t i = 0; i < whole; i++) {
                world->stream.data[i] ^= 0x81;
                (void)unpack(world, "copy", true, &err);
                world->stream.data[i] ^= 0x81;
        }
        assert_false(is_there(world->fd, "f"));
        expect_no_draft(world->to_fd);
}

static void test_paths(void **state)
{
        static const struct {
                const char *path;
                bool want;
        } rows[] = {{"", true}, {"a", true}, {"a/b", true}, {"a..b", true}, {"..a", true},
                {"...", true}, {".a", true}, {"a/..", false}, {"../a", false}, {"..", false},
                {".", false}, {"a/./b", false}, {"/", false}, {"/a", false}, {"a/", false},
                {"a//b", false}, {"\xff", true}, {" ", true}, {"-", true}, {"\n", true}};
        (void)state;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                if (tree_path_valid(rows[i].path) != rows[i].want)
                        fail_msg("row %zu", i);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_paths),
                cmocka_unit_test_setup_teardown(test_there_and_back, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_sockets_are_left_out, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_root_as_link, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_holes_stay_holes, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_large_file, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_merge_and_replace, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_folder_and_file_never_mix, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_folder_without_write_bit, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_drafts_elsewhere, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_all_drafts_elsewhere, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_bad_names, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_link_then_file_through_it, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_links_that_were_there, set_up, tear_down),
                cmocka_unit_test_setup_teardown(
                        test_other_names_of_foreign_files, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_devices_and_set_id, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_contents_that_lie, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
