/* SPDX-License-Identifier: Apache-2.0 */

/* What file calls do, on a folder of this host as the root of a box. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "files/files.h"
#include "files/lines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct box {
        char folder[64];
        int root_fd, proc_fd;
        struct buffer out;   /* all data that was sent */
        uint32_t entries;    /* frames of entries */
        const uint8_t *in;   /* data that will come, */
        size_t in_size;      /* in pieces of */
        size_t in_piece;     /* this size */
        size_t cancel_after; /* calls of io, until they say that nobody waits; 0: never */
        struct file_io io;
};

static int step(struct box *box, cubby_error *err)
{
        if (box->cancel_after > 0 && --box->cancel_after == 0)
                return cubby_error_set(err, CUBBY_E_CANCELLED, "given up");
        return 0;
}

static int send_out(void *data, uint16_t type, const void *bytes, size_t size, cubby_error *err)
{
        struct box *box = data;
        if (step(box, err) < 0)
                return -1;
        if (type == FRAME_FILE_ENTRY) {
                assert_true(size > 0 && size <= FILE_ENTRY_MAX);
                box->entries++;
        }
        assert_true(buffer_append(&box->out, bytes, size));
        return 0;
}

static int receive_in(void *data, uint16_t *ret_type, struct slice *ret, cubby_error *err)
{
        struct box *box = data;
        if (step(box, err) < 0)
                return -1;
        size_t size = box->in_size < box->in_piece ? box->in_size : box->in_piece;
        *ret_type = FRAME_DATA;
        *ret = (struct slice){box->in, size};
        box->in += size;
        box->in_size -= size;
        return size > 0;
}

static int pause_here(void *data, cubby_error *err)
{
        return step(data, err);
}

static int find_owner(
        void *data, const char *spec, uid_t *ret_uid, gid_t *ret_gid, cubby_error *err)
{
        if (strcmp(spec, "me") != 0)
                return cubby_error_set(err, CUBBY_E_INVALID, "user '%s' is unknown", spec);
        *ret_uid = geteuid();
        *ret_gid = getegid();
        return 0;
}

static int set_up(void **state)
{
        struct box *box = calloc(1, sizeof *box);
        assert_non_null(box);
        (void)snprintf(box->folder, sizeof box->folder, "/tmp/cubby-files-XXXXXX");
        assert_non_null(mkdtemp(box->folder));
        box->root_fd = open(box->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        box->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(box->root_fd >= 0 && box->proc_fd >= 0);
        buffer_init(&box->out, 8U << 20);
        box->in_piece = 1000;
        box->io = (struct file_io){.root_fd = box->root_fd,
                .proc_fd = box->proc_fd,
                .drafts_fd = -1,
                .data = box,
                .send = send_out,
                .receive = receive_in,
                .pause = pause_here,
                .owner = find_owner};
        *state = box;
        return 0;
}

static int tear_down(void **state)
{
        struct box *box = *state;
        assert_int_equal(dir_remove_at(AT_FDCWD, box->folder, NULL), 0);
        (void)close(box->root_fd);
        (void)close(box->proc_fd);
        buffer_free(&box->out);
        free(box);
        return 0;
}

static struct slice text(const char *value)
{
        return (struct slice){(const uint8_t *)value, strlen(value)};
}

static int operate(struct box *box, struct message_file_call call, const char *path,
        struct buffer *reply, cubby_error *err)
{
        call.path = text(path);
        buffer_clear(&box->out);
        box->entries = 0;
        cubby_error_clear(err);
        return file_operation_find(call.operation)(&call, &box->io, reply, err);
}

/* Only whether it works: the errno of a failure, 0, or -1 for one without. */
static int try(struct box *box, struct message_file_call call, const char *path)
{
        AUTO_BUFFER struct buffer reply = {.maximum = FILE_REPLY_MAX};
        cubby_error err;
        if (operate(box, call, path, &reply, &err) == 0)
                return 0;
        return err.sys_errno != 0 ? err.sys_errno : -1;
}

static int put(struct box *box, const char *path, const char *content, uint32_t flags)
{
        box->in = (const uint8_t *)content;
        box->in_size = strlen(content);
        return try(box,
                (struct message_file_call){
                        .operation = FILE_WRITE, .flags = flags, .mode = FILE_MODE_DEFAULT},
                path);
}

static void assert_content(struct box *box, const char *path, const char *want)
{
        assert_int_equal(try(box, (struct message_file_call){.operation = FILE_READ}, path), 0);
        assert_int_equal(box->out.size, strlen(want));
        assert_memory_equal(box->out.data, want, strlen(want));
}

static size_t count_entries(struct box *box, const char *path)
{
        int fd = openat(box->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fdopendir(fd);
        size_t count = 0;
        assert_non_null(dir);
        while (readdir(dir) != NULL)
                count++;
        return count - 2;
}

static void test_write_and_read(void **state)
{
        struct box *box = *state;
        assert_int_equal(put(box, "/a/b", "hello", 0), 0);
        assert_content(box, "/a/b", "hello");
        assert_int_equal(put(box, "/a/b", "", 0), 0);
        assert_content(box, "/a/b", "");
        assert_int_equal(put(box, "/a/b", "one", FILE_NO_SYNC), 0);
        assert_int_equal(put(box, "/a/b", " two", FILE_APPEND), 0);
        assert_content(box, "/a//./b", "one two");
        assert_int_equal(put(box, "/a/c", "new", FILE_APPEND), 0);
        assert_content(box, "/a/c", "new");
        assert_int_equal(put(box, "/a/b", "x", FILE_EXCLUSIVE), EEXIST);
        assert_int_equal(put(box, "/a/d", "x", FILE_EXCLUSIVE), 0);
        assert_int_equal(put(box, "/n/d", "x", FILE_NO_PARENTS), ENOENT);
        assert_int_equal(count_entries(box, "a"), 3);
        struct message_file_call range = {.operation = FILE_READ, .from = 2, .count = 3};
        assert_int_equal(try(box, range, "/a/b"), 0);
        assert_memory_equal(box->out.data, "e t", 3);
        range.from = 1000;
        assert_int_equal(try(box, range, "/a/b"), 0);
        assert_int_equal(box->out.size, 0);
        range.from = UINT64_MAX;
        assert_int_equal(try(box, range, "/a/b"), EINVAL);
        struct message_file_call whole = {.operation = FILE_READ, .flags = FILE_WHOLE, .count = 7};
        assert_int_equal(try(box, whole, "/a/b"), 0);
        whole.count = 6;
        assert_int_equal(try(box, whole, "/a/b"), EFBIG);
}

/* Sizes around those of blocks and pieces, however the data comes. */
static void test_sizes(void **state)
{
        static const size_t sizes[] = {
                1, 4095, 4096, 4097, (1U << 20) - 1, 1U << 20, (1U << 20) + 1, (2U << 20) + 4096};
        static const size_t pieces[] = {1000, 4096, 32768};
        struct box *box = *state;
        AUTO_FREE char *content = malloc((3U << 20) + 1);
        assert_non_null(content);
        for (size_t i = 0; i < 3U << 20; i++)
                content[i] = (char)(i * 7 + i / 251 + 1) == 0 ? 'x' : (char)(i * 7 + i / 251 + 1);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                for (size_t n = 0; n < 2 * (sizeof pieces / sizeof pieces[0]); n++) {
                        struct message_file_call call = {.operation = FILE_WRITE,
                                .flags = FILE_NO_SYNC,
                                .mode = FILE_MODE_DEFAULT,
                                .count = n % 2 == 0 ? sizes[i] : 0};
                        box->in_piece = pieces[n / 2];
                        box->in = (const uint8_t *)content;
                        box->in_size = sizes[i];
                        assert_int_equal(try(box, call, "/f"), 0);
                        call = (struct message_file_call){.operation = FILE_READ};
                        assert_int_equal(try(box, call, "/f"), 0);
                        assert_int_equal(box->out.size, sizes[i]);
                        assert_memory_equal(box->out.data, content, sizes[i]);
                }
        }
        /* less comes than was said */
        struct message_file_call call = {
                .operation = FILE_WRITE, .mode = FILE_MODE_DEFAULT, .count = 3U << 20};
        box->in = (const uint8_t *)content;
        box->in_size = 10;
        assert_int_equal(try(box, call, "/f"), 0);
        call = (struct message_file_call){.operation = FILE_READ};
        assert_int_equal(try(box, call, "/f"), 0);
        assert_int_equal(box->out.size, 10);
}

/* However far a write comes before it is given up: the old file, and nothing else. */
static void test_given_up(void **state)
{
        struct box *box = *state;
        assert_int_equal(put(box, "/d/f", "old", 0), 0);
        box->in_piece = 10;
        for (size_t after = 1; after <= 12; after++) {
                box->cancel_after = after;
                int result = put(box, "/d/f",
                        "something that is a hundred bytes long or a little "
                        "more, so that it comes in more than ten pieces.",
                        0);
                box->cancel_after = 0;
                if (result == 0)
                        break;
                assert_int_equal(result, -1);
                assert_content(box, "/d/f", "old");
                assert_int_equal(count_entries(box, "d"), 1);
                assert_true(after < 12);
        }
}

static void test_modes(void **state)
{
        struct box *box = *state;
        struct stat info;
        struct message_file_call call = {.operation = FILE_WRITE, .mode = 0640};
        assert_int_equal(put(box, "/f", "x", 0), 0);
        assert_int_equal(fstatat(box->root_fd, "f", &info, 0), 0);
        assert_int_equal(info.st_mode & 07777, 0644);
        assert_int_equal(try(box, call, "/f"), 0);
        assert_int_equal(put(box, "/f", "y", 0), 0);
        assert_int_equal(fstatat(box->root_fd, "f", &info, 0), 0);
        assert_int_equal(info.st_mode & 07777, 0640);
        call.text = text("me");
        assert_int_equal(try(box, call, "/f"), 0);
        call.text = text("nobody-knows");
        assert_int_equal(try(box, call, "/f"), -1);
}

static void make_odd_files(struct box *box)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", box->folder);
        AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(mkfifoat(box->root_fd, "fifo", 0600), 0);
        assert_int_equal(mkdirat(box->root_fd, "folder", 0700), 0);
        assert_int_equal(symlinkat("loop", box->root_fd, "loop"), 0);
        assert_int_equal(symlinkat("/etc/passwd", box->root_fd, "absolute"), 0);
        assert_int_equal(symlinkat("../../../../etc/passwd", box->root_fd, "up"), 0);
        assert_int_equal(symlinkat("/proc/self/root", box->root_fd, "magic"), 0);
        assert_int_equal(symlinkat("folder/made", box->root_fd, "dangling"), 0);
}

static void test_what_is_no_file(void **state)
{
        static const struct {
                const char *path;
                int reading, writing;
        } cases[] = {
                {"/fifo", EINVAL, EINVAL},
                {"/socket", EINVAL, EINVAL},
                {"/folder", EISDIR, EISDIR},
                {"/", EISDIR, EISDIR},
                {"/loop", ELOOP, ELOOP},
                {"/folder/", EISDIR, EISDIR},
                {"/folder/.", EISDIR, EISDIR},
                {"/folder/..", EISDIR, EISDIR},
                {"/fifo/x", ENOTDIR, ENOTDIR},
        };
        struct box *box = *state;
        make_odd_files(box);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct message_file_call read = {.operation = FILE_READ};
                assert_int_equal(try(box, read, cases[i].path), cases[i].reading);
                assert_int_equal(put(box, cases[i].path, "x", 0), cases[i].writing);
                assert_int_equal(put(box, cases[i].path, "x", FILE_APPEND), cases[i].writing);
        }
        char name[300];
        memset(name, 'n', sizeof name);
        name[0] = '/';
        name[257] = '\0';
        assert_int_equal(put(box, name, "x", 0), ENAMETOOLONG);
        assert_int_equal(count_entries(box, "folder"), 0);
}

/* The host has a passwd; this root has none until one is written. */
static void test_links_stay_beneath_the_root(void **state)
{
        struct box *box = *state;
        struct message_file_call read = {.operation = FILE_READ};
        make_odd_files(box);
        assert_int_equal(try(box, read, "/absolute"), ENOENT);
        assert_int_equal(try(box, read, "/up"), ENOENT);
        assert_int_equal(try(box, read, "/../../../../../etc/passwd"), ENOENT);
        assert_int_equal(put(box, "/etc/passwd", "of the box", 0), 0);
        assert_content(box, "/absolute", "of the box");
        assert_content(box, "/up", "of the box");
        assert_int_equal(put(box, "/up", "changed", 0), 0);
        assert_content(box, "/etc/passwd", "changed");
        assert_int_equal(try(box, read, "/magic/etc/passwd"), ENOENT);
        assert_int_equal(put(box, "/dangling", "made", 0), 0);
        assert_content(box, "/folder/made", "made");
        struct stat info;
        assert_int_equal(fstatat(box->root_fd, "up", &info, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISLNK(info.st_mode));
}

static void test_list(void **state)
{
        struct box *box = *state;
        struct message_file_call list = {.operation = FILE_LIST, .mode = 9, .count = 100};
        AUTO_BUFFER struct buffer reply = {.maximum = FILE_REPLY_MAX};
        cubby_error err;
        assert_int_equal(put(box, "/b/2", "x", 0), 0);
        assert_int_equal(put(box, "/b/1", "xyz", 0), 0);
        assert_int_equal(put(box, "/a b\n\xff", "x", 0), 0);
        make_odd_files(box);
        assert_int_equal(operate(box, list, "//b/..//./", &reply, &err), 0);
        static const struct {
                const char *path;
                uint8_t type;
        } want[] = {{"/b/..", 'd'}, {"/b/../a b\n\xff", 'f'}, {"/b/../b", 'd'}, {"/b/../b/1", 'f'},
                {"/b/../b/2", 'f'}, {"/b/../folder", 'd'}};
        struct reader reader = reader_over(box->out.data, box->out.size);
        for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
                struct message_file_info info;
                assert_true(message_file_info_read(&reader, &info));
                assert_true(slice_equals(info.path, want[i].path));
                assert_int_equal(info.type, want[i].type);
        }
        assert_true(reader_done(&reader));
        assert_int_equal(reply.size, 1);
        assert_int_equal(reply.data[0], 0);
        for (uint64_t most = 1; most <= 6; most++) {
                buffer_clear(&reply);
                list.count = most;
                assert_int_equal(operate(box, list, "/", &reply, &err), 0);
                assert_int_equal(reply.data[0], most < 6);
                reader = reader_over(box->out.data, box->out.size);
                for (uint64_t i = 0; i < most; i++) {
                        struct message_file_info info;
                        assert_true(message_file_info_read(&reader, &info));
                }
                assert_true(reader_done(&reader));
        }
        assert_int_equal(try(box, list, "/b/1"), ENOTDIR);
        assert_int_equal(try(box, list, "/none"), ENOENT);
}

/* More names than a frame, or twice what may be shown, holds. */
static void test_long_list(void **state)
{
        struct box *box = *state;
        struct message_file_call list = {.operation = FILE_LIST, .mode = 1, .count = 100};
        AUTO_BUFFER struct buffer reply = {.maximum = FILE_REPLY_MAX};
        cubby_error err;
        for (int i = 999; i >= 0; i--) {
                char name[16];
                (void)snprintf(name, sizeof name, "f%03d", i);
                AUTO_FD int fd = openat(box->root_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                assert_true(fd >= 0);
        }
        assert_int_equal(operate(box, list, "/", &reply, &err), 0);
        assert_int_equal(reply.data[0], 1);
        struct reader reader = reader_over(box->out.data, box->out.size);
        struct message_file_info info;
        assert_true(message_file_info_read(&reader, &info));
        for (int i = 0; i < 99; i++) {
                char path[16];
                (void)snprintf(path, sizeof path, "/f%03d", i);
                assert_true(message_file_info_read(&reader, &info));
                assert_true(slice_equals(info.path, path));
        }
        assert_true(reader_done(&reader));
        list.count = 5000;
        assert_int_equal(try(box, list, "/"), 0);
        assert_true(box->entries > 3);
}

static void test_change(void **state)
{
        struct box *box = *state;
        struct message_file_call make = {.operation = FILE_MAKE_FOLDER, .mode = 0750};
        struct message_file_call remove = {.operation = FILE_REMOVE};
        struct message_file_call rename = {.operation = FILE_RENAME};
        struct stat info;
        assert_int_equal(try(box, make, "/a/b"), ENOENT);
        assert_int_equal(try(box, make, "/a"), 0);
        assert_int_equal(try(box, make, "/a"), EEXIST);
        assert_int_equal(try(box, make, "/"), EEXIST);
        make.flags = FILE_PARENTS;
        make.mode = 03770;
        assert_int_equal(try(box, make, "/a//b/./c/../d/"), 0);
        assert_int_equal(try(box, make, "/a/b/d"), 0);
        assert_int_equal(try(box, make, "/"), 0);
        assert_int_equal(fstatat(box->root_fd, "a/b/d", &info, 0), 0);
        assert_int_equal(info.st_mode & 07777, 03770);
        assert_int_equal(fstatat(box->root_fd, "a/b", &info, 0), 0);
        assert_int_equal(info.st_mode & 07777, 0755);
        assert_int_equal(put(box, "/a/f", "f", 0), 0);
        assert_int_equal(try(box, make, "/a/f"), EEXIST);
        assert_int_equal(try(box, make, "/a/f/x"), ENOTDIR);

        rename.text = text("/a/g");
        assert_int_equal(try(box, rename, "/a/f"), 0);
        assert_int_equal(put(box, "/a/f", "second", 0), 0);
        assert_int_equal(try(box, rename, "/a/f"), EEXIST);
        rename.flags = FILE_REPLACE;
        assert_int_equal(try(box, rename, "/a/f"), 0);
        assert_content(box, "/a/g", "second");
        assert_int_equal(try(box, rename, "/a/none"), ENOENT);
        rename.text = text("relative");
        assert_int_equal(try(box, rename, "/a/g"), ENAMETOOLONG);

        assert_int_equal(try(box, remove, "/a/b"), ENOTEMPTY);
        assert_int_equal(try(box, remove, "/a/g"), 0);
        assert_int_equal(try(box, remove, "/a/g"), ENOENT);
        assert_int_equal(try(box, remove, "/"), EINVAL);
        assert_int_equal(try(box, remove, "/a/b/."), EINVAL);
        make_odd_files(box);
        assert_int_equal(symlinkat("/folder", box->root_fd, "a/b/link"), 0);
        assert_int_equal(put(box, "/folder/kept", "k", 0), 0);
        remove.flags = FILE_RECURSIVE;
        box->cancel_after = 2;
        assert_int_equal(try(box, remove, "/a"), -1);
        box->cancel_after = 0;
        assert_int_equal(try(box, remove, "/a"), 0);
        assert_int_equal(try(box, remove, "/loop"), 0);
        assert_content(box, "/folder/kept", "k");
}

static void test_stat(void **state)
{
        struct box *box = *state;
        struct message_file_call stat = {.operation = FILE_STAT};
        AUTO_BUFFER struct buffer reply = {.maximum = FILE_REPLY_MAX};
        struct message_file_info info;
        cubby_error err;
        make_odd_files(box);
        assert_int_equal(operate(box, stat, "/up", &reply, &err), 0);
        assert_true(message_file_info_decode((struct slice){reply.data, reply.size}, &info));
        assert_int_equal(info.type, 'l');
        assert_true(slice_equals(info.target, "../../../../etc/passwd"));
        stat.flags = FILE_FOLLOW;
        assert_int_equal(try(box, stat, "/up"), ENOENT);
        assert_int_equal(try(box, stat, "/loop"), ELOOP);
        buffer_clear(&reply);
        assert_int_equal(operate(box, stat, "/fifo", &reply, &err), 0);
        assert_true(message_file_info_decode((struct slice){reply.data, reply.size}, &info));
        assert_int_equal(info.type, 'p');
        assert_int_equal(info.mode, 0600);
        assert_int_equal(info.uid, geteuid());
}

static void test_lines(void **state)
{
        static const struct {
                const char *in;
                uint64_t first, last;
                const char *want;
        } cases[] = {
                {"", 0, 0, ""},
                {"a", 0, 0, "a"},
                {"a\n", 0, 0, "a"},
                {"a\n\n", 0, 0, "a\n"},
                {"\n", 0, 0, ""},
                {"\n\n", 0, 0, "\n"},
                {"a\r\nb\rc\nd", 0, 0, "a\nb\nc\nd"},
                {"a\r\n\nb", 0, 0, "a\n\nb"},
                {"a\r\r\nb", 0, 0, "a\n\nb"},
                {"1\v2\f3\x1c"
                 "4\x1d"
                 "5\x1e"
                 "6\x1f"
                 "7",
                        0, 0,
                        "1\n2\n3\n4\n5\n6\x1f"
                        "7"},
                {"1\xc2\x85"
                 "2\xe2\x80\xa8"
                 "3\xe2\x80\xa9"
                 "4\xe2\x80\xaa",
                        0, 0, "1\n2\n3\n4\xe2\x80\xaa"},
                {"a\nb\nc\nd", 2, 3, "b\nc"},
                {"a\nb\nc\nd", 4, 9, "d"},
                {"a\nb\nc\nd\n", 5, 9, ""},
                {"a\nb\nc\nd", 3, 2, ""},
                {"a\n\nc", 2, 3, "\nc"},
                {"a\n\nc", 2, 2, ""},
                {"a\nb", 1, 1, "a"},
                /* bytes that are no UTF-8, as errors="replace" sees them */
                {"\xff", 0, 0, "\xef\xbf\xbd"},
                {"\xe2\x82", 0, 0, "\xef\xbf\xbd"},
                {"\xe2\x82x", 0, 0, "\xef\xbf\xbdx"},
                {"\xe2x", 0, 0, "\xef\xbf\xbdx"},
                {"\xc0\x80", 0, 0, "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xed\xa0\x80", 0, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf4\x90\x80\x80", 0, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf0\x9f\x98\n\xf0\x9f\x98\x80", 0, 0, "\xef\xbf\xbd\n\xf0\x9f\x98\x80"},
                {"\xe2\x82\xff\n\xe2", 2, 2, "\xef\xbf\xbd"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                size_t size = strlen(cases[i].in);
                for (size_t piece = 1; piece <= size + 1; piece++) {
                        struct lines lines;
                        AUTO_BUFFER struct buffer out = {.maximum = 256};
                        lines_init(&lines, cases[i].first, cases[i].last);
                        for (size_t at = 0; at < size; at += piece) {
                                size_t part = size - at < piece ? size - at : piece;
                                assert_true(lines_feed(
                                        &lines, (const uint8_t *)cases[i].in + at, part, &out));
                        }
                        assert_true(lines_end(&lines, &out));
                        assert_int_equal(out.size, strlen(cases[i].want));
                        assert_memory_equal(
                                out.data != NULL ? (char *)out.data : "", cases[i].want, out.size);
                }
        }
}

static void test_messages(void **state)
{
        const struct message_file_call call = {.operation = FILE_GREP,
                .flags = FILE_CASE,
                .mode = 7,
                .from = 8,
                .count = 9,
                .user = text("user"),
                .path = text("/p"),
                .text = text("pattern"),
                .extra = text("*.c")};
        AUTO_BUFFER struct buffer out = {.maximum = 1000};
        struct message_file_call read;
        assert_true(message_file_call_encode(&out, &call));
        assert_true(message_file_call_decode((struct slice){out.data, out.size}, &read));
        assert_int_equal(read.operation, FILE_GREP);
        assert_true(slice_equals(read.extra, "*.c") && slice_equals(read.path, "/p"));
        for (size_t size = 0; size < out.size; size++)
                assert_false(message_file_call_decode((struct slice){out.data, size}, &read));
        static const struct {
                struct message_file_call call;
                const char *path;
                size_t path_size;
        } bad[] = {
                {{.operation = 0}, "/", 1},
                {{.operation = FILE_OPERATION_MAX}, "/", 1},
                {{.operation = FILE_STAT, .flags = FILE_FLAGS_ALL + 1U}, "/", 1},
                {{.operation = FILE_STAT}, "", 0},
                {{.operation = FILE_STAT}, "relative", 8},
                {{.operation = FILE_STAT}, "/\0x", 3},
        };
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                struct message_file_call one = bad[i].call;
                buffer_clear(&out);
                one.path = (struct slice){(const uint8_t *)bad[i].path, bad[i].path_size};
                assert_true(message_file_call_encode(&out, &one));
                assert_false(message_file_call_decode((struct slice){out.data, out.size}, &read));
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_write_and_read),
                TEST(test_sizes),
                TEST(test_given_up),
                TEST(test_modes),
                TEST(test_what_is_no_file),
                TEST(test_links_stay_beneath_the_root),
                TEST(test_list),
                TEST(test_long_list),
                TEST(test_change),
                TEST(test_stat),
                cmocka_unit_test(test_lines),
                cmocka_unit_test(test_messages),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
