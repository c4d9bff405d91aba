/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, buffers, readers, files, descriptors over sockets and child processes. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void error_text_reads_outside_in(void **state)
{
        (void)state;
        cubby_error err = {0};
        assert_int_equal(cubby_error_errno(&err, ENOSPC, "writing '%s'", "disk"), -1);
        assert_int_equal(cubby_error_wrap(&err, "starting box '%s'", "web"), -1);
        assert_string_equal(
                err.message, "starting box 'web': writing 'disk': No space left on device");
        assert_int_equal(err.code, CUBBY_E_NO_SPACE);
        assert_int_equal(err.sys_errno, ENOSPC);
        cubby_error_clear(&err);
        assert_int_equal(err.code, CUBBY_OK);
        assert_string_equal(err.message, "");
        assert_int_equal(cubby_error_set(NULL, CUBBY_E_BUSY, "nobody looks"), -1);
}

static void error_text_is_cut_not_overrun(void **state)
{
        (void)state;
        cubby_error err = {0};
        char *longer = malloc(5000);
        assert_non_null(longer);
        memset(longer, 'x', 4999);
        longer[4999] = '\0';
        (void)cubby_error_set(&err, CUBBY_E_INVALID, "%s", longer);
        for (int i = 0; i < 3; i++)
                (void)cubby_error_wrap(&err, "%s", longer);
        assert_int_equal(strlen(err.message), CUBBY_ERROR_MESSAGE_MAX - 1);
        free(longer);
}

static void error_text_is_printable_utf8(void **state)
{
        (void)state;
        static const struct {
                const char *name, *shown;
        } cases[] = {
                {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xbb",
                        "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xbb"},
                {"a\tb\nc", "a\tb\nc"},
                {"a\r\nb\r\n", "a\nb\n"},
                {"\x1b[2Jx\x7f\r\x08", "?[2Jx???"},
                {"\xc2\x9b"
                 "31m",
                        "??31m"},   /* a C1 control */
                {"\xff\xfe", "??"}, /* no UTF-8 at all */
                {"\xc3", "?"},      /* cut short */
                {"\xe2\x82", "??"},
                {"\xc0\xaf", "??"}, /* too long a form */
                {"\xe0\x80\xaf", "???"},
                {"\xed\xa0\x80", "???"},      /* half of a pair */
                {"\xf4\x90\x80\x80", "????"}, /* beyond the last one */
                {"\x80x", "?x"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                cubby_error err = {0};
                (void)cubby_error_set(&err, CUBBY_E_INVALID, "%s", cases[i].name);
                assert_string_equal(err.message, cases[i].shown);
                (void)cubby_error_errno(&err, ENOENT, "%s", cases[i].name);
                assert_int_equal(strncmp(err.message, cases[i].shown, strlen(cases[i].shown)), 0);
                (void)cubby_error_wrap(&err, "%s", cases[i].name);
                assert_int_equal(strncmp(err.message, cases[i].shown, strlen(cases[i].shown)), 0);
        }
        /* the end of the room may fall into a character */
        char text[CUBBY_ERROR_MESSAGE_MAX + 8];
        for (size_t shift = 0; shift < 4; shift++) {
                cubby_error err = {0};
                memset(text, 'x', sizeof text);
                memcpy(text + CUBBY_ERROR_MESSAGE_MAX - 1 - shift, "\xf0\x9f\x90\xbb", 5);
                (void)cubby_error_set(&err, CUBBY_E_INVALID, "%s", text);
                assert_int_equal(strlen(err.message), CUBBY_ERROR_MESSAGE_MAX - 1);
                assert_null(strstr(err.message, "\xf0"));
        }
}

static void every_code_has_a_name(void **state)
{
        (void)state;
        for (int code = 0; code < CUBBY_E_CODE_MAX; code++)
                assert_true(strlen(cubby_code_name(code)) > 1);
        assert_string_equal(cubby_code_name(-1), "unknown error");
        assert_string_equal(cubby_code_name(CUBBY_E_CODE_MAX), "unknown error");
}

static void errno_maps_to_code(void **state)
{
        (void)state;
        static const struct {
                int error_number;
                int code;
        } cases[] = {
                {ENOMEM, CUBBY_E_NO_MEMORY},
                {EDQUOT, CUBBY_E_NO_SPACE},
                {EACCES, CUBBY_E_PERMISSION},
                {EPERM, CUBBY_E_PERMISSION},
                {ENOENT, CUBBY_E_NOT_FOUND},
                {EEXIST, CUBBY_E_EXISTS},
                {ETIMEDOUT, CUBBY_E_TIMEOUT},
                {EIO, CUBBY_E_SYSTEM},
                {0x7fffffff, CUBBY_E_SYSTEM},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                cubby_error err = {0};
                (void)cubby_error_errno(&err, cases[i].error_number, "call");
                assert_int_equal(err.code, cases[i].code);
        }
}

static void buffer_stops_at_its_maximum(void **state)
{
        (void)state;
        AUTO_BUFFER struct buffer buffer;
        buffer_init(&buffer, 10);
        assert_true(buffer_append(&buffer, "12345678", 8));
        assert_false(buffer_append(&buffer, "901", 3));
        assert_true(buffer.failed);
        assert_int_equal(buffer.size, 8);
        assert_false(buffer_u8(&buffer, 1)); /* failure is sticky */
        buffer_clear(&buffer);
        assert_true(buffer_append_text(&buffer, "0123456789"));
        assert_false(buffer_u8(&buffer, 1));
        assert_null(buffer_reserve(&buffer, SIZE_MAX));
}

static void buffer_formats_and_consumes(void **state)
{
        (void)state;
        AUTO_BUFFER struct buffer buffer;
        buffer_init(&buffer, 4096);
        assert_true(buffer_printf(&buffer, "%s-%d", "abc", 7));
        buffer_consume(&buffer, 2);
        assert_string_equal(buffer_text(&buffer), "c-7");
        buffer_consume(&buffer, 100);
        assert_int_equal(buffer.size, 0);
        assert_string_equal(buffer_text(&buffer), "");
        for (int i = 0; i < 4096; i++)
                assert_true(buffer_u8(&buffer, (uint8_t)i));
        assert_int_equal(buffer.data[4095], 0xff);
}

static void numbers_are_little_endian(void **state)
{
        (void)state;
        AUTO_BUFFER struct buffer buffer;
        buffer_init(&buffer, 64);
        assert_true(buffer_u16(&buffer, 0x0102) && buffer_u32(&buffer, 0x03040506) &&
                buffer_u64(&buffer, 0x0708090a0b0c0d0eULL));
        static const uint8_t want[] = {2, 1, 6, 5, 4, 3, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 8, 7};
        assert_int_equal(buffer.size, sizeof want);
        assert_memory_equal(buffer.data, want, sizeof want);
        struct reader r = reader_over(buffer.data, buffer.size);
        uint16_t a = 0;
        uint32_t b = 0;
        uint64_t c = 0;
        assert_true(reader_u16(&r, &a) && reader_u32(&r, &b) && reader_u64(&r, &c));
        assert_true(reader_done(&r));
        assert_int_equal(a, 0x0102);
        assert_int_equal(b, 0x03040506);
        assert_true(c == 0x0708090a0b0c0d0eULL);
}

static void reader_refuses_short_and_long_input(void **state)
{
        (void)state;
        static const struct {
                const char *bytes;
                size_t size;
                size_t maximum;
                bool want;
        } cases[] = {
                {"\x03\0\0\0abc", 7, 3, true}, {"\x00\0\0\0", 4, 3, true},
                {"\x03\0\0\0abc", 7, 2, false}, /* over the caller's maximum */
                {"\x03\0\0\0ab", 6, 8, false},  /* bytes missing */
                {"\x03\0\0", 3, 8, false},      /* half a length */
                {"", 0, 8, false},
                {"\xff\xff\xff\xff"
                 "abc",
                        7, SIZE_MAX, false},    /* huge length */
                {"\x02\0\0\0abc", 7, 8, false}, /* a byte left over */
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                /* the input ends where the allocation ends, so ASan sees one byte too far */
                uint8_t *copy = malloc(cases[i].size + (cases[i].size == 0));
                assert_non_null(copy);
                memcpy(copy, cases[i].bytes, cases[i].size);
                struct reader r = reader_over(copy, cases[i].size);
                struct slice slice = {0};
                bool got = reader_slice(&r, cases[i].maximum, &slice) && reader_done(&r);
                assert_int_equal(got, cases[i].want);
                free(copy);
        }
}

static void slices_with_nul_are_no_text(void **state)
{
        (void)state;
        struct slice bad = {(const uint8_t *)"a\0b", 3};
        assert_null(slice_dup_text(bad));
        struct slice good = {(const uint8_t *)"ab", 2};
        AUTO_FREE char *text = slice_dup_text(good);
        assert_string_equal(text, "ab");
        assert_true(slice_equals(good, "ab"));
        assert_false(slice_equals(good, "abc"));
        assert_false(slice_equals(bad, "a"));
}

static void deadlines_do_not_overflow(void **state)
{
        (void)state;
        assert_true(deadline_after_ms(-1) == DEADLINE_NEVER);
        assert_true(deadline_after_ms(INT64_MAX) == DEADLINE_NEVER);
        assert_int_equal(deadline_left_ms(DEADLINE_NEVER), -1);
        assert_int_equal(deadline_left_ms(clock_monotonic_ms() - 5), 0);
        assert_int_equal(deadline_left_ms(clock_monotonic_ms() + (int64_t)INT_MAX * 4), INT_MAX);
}

/* A private scratch folder, removed by its test. */
static int make_scratch(char *path)
{
        assert_non_null(mkdtemp(path));
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

static void files_are_published_whole(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        cubby_error err = {0};
        assert_int_equal(file_publish_at(dir, "f", "old", 3, 0600, &err), 0);
        assert_int_equal(file_publish_at(dir, "f", "newer", 5, 0600, &err), 0);
        AUTO_BUFFER struct buffer buffer;
        buffer_init(&buffer, 5);
        assert_int_equal(file_read_at(dir, "f", &buffer, &err), 0);
        assert_string_equal("newer", (buffer.maximum = 64, buffer_text(&buffer)));
        struct buffer small;
        buffer_init(&small, 4);
        assert_int_equal(file_read_at(dir, "f", &small, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        buffer_free(&small);
        assert_int_equal(file_read_at(dir, "missing", &buffer, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
        assert_int_equal(file_read_at(dir, "fifo", &buffer, &err), -1); /* and does not hang */
        assert_int_equal(symlinkat("f", dir, "link"), 0);
        assert_int_equal(file_read_at(dir, "link", &buffer, &err), -1);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

#define PUBLISHERS 4

static void *publish_often(void *data)
{
        int dir = *(const int *)data;
        char text[3000];
        for (int i = 0; i < 40; i++) {
                memset(text, 'a' + i % 26, sizeof text);
                if (file_publish_at(dir, "shared", text, sizeof text, 0600, NULL) < 0)
                        return data;
        }
        return NULL;
}

/* Several at once under one name: each time the file is whole. */
static void publishers_do_not_meet(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        pthread_t threads[PUBLISHERS];
        assert_int_equal(file_publish_at(dir, "shared", "", 0, 0600, NULL), 0);
        for (int i = 0; i < PUBLISHERS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, publish_often, &dir), 0);
        for (int i = 0; i < 100; i++) {
                AUTO_BUFFER struct buffer text;
                buffer_init(&text, 4096);
                assert_int_equal(file_read_at(dir, "shared", &text, NULL), 0);
                assert_true(text.size == 0 || text.size == 3000);
                for (size_t at = 1; at < text.size; at++)
                        assert_int_equal(text.data[at], text.data[0]);
        }
        for (int i = 0; i < PUBLISHERS; i++) {
                void *failed = &dir;
                assert_int_equal(pthread_join(threads[i], &failed), 0);
                assert_null(failed);
        }
        assert_int_equal(dir_remove_at(AT_FDCWD, path, NULL), 0);
        static const struct {
                const char *name;
                bool draft;
        } names[] = {{".a.0123456789abcdef.tmp", true}, {"a.tmp", false}, {".tmp", false},
                {".a.tmp.b", false}, {"", false}, {".", false}, {"..", false}, {"..tmp", false}};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                assert_int_equal(file_is_draft(names[i].name), names[i].draft);
}

static void trees_are_removed_without_following_links(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        cubby_error err = {0};
        assert_int_equal(mkdirat(dir, "tree", 0700), 0);
        assert_int_equal(mkdirat(dir, "tree/inner", 0700), 0);
        assert_int_equal(mkdirat(dir, "outside", 0700), 0);
        assert_int_equal(file_publish_at(dir, "keep", "x", 1, 0600, &err), 0);
        assert_int_equal(symlinkat("../outside", dir, "tree/link"), 0);
        assert_int_equal(symlinkat("../../keep", dir, "tree/inner/link"), 0);
        assert_int_equal(dir_remove_at(dir, "tree", &err), 0);
        assert_int_equal(faccessat(dir, "tree", F_OK, 0), -1);
        assert_int_equal(faccessat(dir, "outside", F_OK, 0), 0);
        assert_int_equal(faccessat(dir, "keep", F_OK, 0), 0);
        assert_int_equal(dir_remove_at(dir, "tree", &err), 0); /* missing is fine */
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

static void private_folders_are_checked(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        char inner[64];
        (void)snprintf(inner, sizeof inner, "%s/a/b/home", path);
        cubby_error err = {0};
        AUTO_FD int home = dir_open_private(inner, true, &err);
        assert_true(home >= 0);
        struct stat info;
        assert_int_equal(fstat(home, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0700);
        assert_int_equal(fchmod(home, 0777), 0);
        assert_int_equal(dir_open_private(inner, true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_PERMISSION);
        assert_int_equal(symlinkat("a", dir, "link"), 0);
        (void)snprintf(inner, sizeof inner, "%s/link", path);
        assert_int_equal(dir_open_private(inner, false, &err), -1);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

static void copies_keep_holes(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        cubby_error err = {0};
        AUTO_FD int from = openat(dir, "from", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        AUTO_FD int to = openat(dir, "to", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(from >= 0 && to >= 0);
        assert_int_equal(ftruncate(from, 64 << 20), 0);
        assert_int_equal(pwrite(from, "middle", 6, 32 << 20), 6);
        assert_int_equal(pwrite(to, "stale", 5, 1 << 20), 5); /* must not show through a hole */
        assert_int_equal(file_copy_sparse(from, to, &err), 0);
        struct stat info;
        assert_int_equal(fstat(to, &info), 0);
        assert_int_equal(info.st_size, 64 << 20);
        assert_true(info.st_blocks * 512 < 1 << 20);
        char text[7] = {0};
        assert_int_equal(pread(to, text, 6, 32 << 20), 6);
        assert_string_equal(text, "middle");
        assert_int_equal(pread(to, text, 5, 1 << 20), 5);
        assert_int_equal(text[0], 0);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

static void descriptors_cross_a_socket(void **state)
{
        (void)state;
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        int pipe_fds[2];
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_int_equal(fd_send(pair[0], "x", 1, &pipe_fds[1], 1), 0);
        char byte;
        int received[FD_PASS_MAX];
        size_t count = 0;
        assert_int_equal(fd_receive(pair[1], &byte, 1, received, &count), 1);
        assert_int_equal(count, 1);
        assert_int_equal(fcntl(received[0], F_GETFD), FD_CLOEXEC);
        assert_int_equal(write(received[0], "y", 1), 1);
        assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
        assert_int_equal(byte, 'y');
        close_quietly(received[0]);
        for (int i = 0; i < 2; i++) {
                close_quietly(pair[i]);
                close_quietly(pipe_fds[i]);
        }
}

static void failed_exec_is_reported(void **state)
{
        (void)state;
        cubby_error err = {0};
        const char *const missing[] = {"/nonexistent/program", NULL};
        struct child child = CHILD_NONE;
        struct spawn_options options = {.argv = missing};
        assert_int_equal(spawn(&options, &child, &err), -1);
        assert_int_equal(err.sys_errno, ENOENT);
        assert_non_null(strstr(err.message, "/nonexistent/program"));
        assert_int_equal(child.pid, -1);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing left to reap */
}

static void unknown_formats_meet_no_shell(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-base-XXXXXX";
        AUTO_FD int dir = make_scratch(path);
        cubby_error err = {0};
        assert_int_equal(file_publish_at(dir, "text", "exit 0\n", 7, 0755, &err), 0);
        char program[64];
        (void)snprintf(program, sizeof program, "%s/text", path);
        const char *const argv[] = {program, NULL};
        assert_int_equal(spawn_run(argv, NULL, deadline_after_ms(10000), &err), -1);
        assert_int_equal(err.sys_errno, ENOEXEC);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

static int refuse(void *data, const char **ret_step)
{
        *ret_step = data;
        return -EPERM;
}

static void failed_preparation_names_its_step(void **state)
{
        (void)state;
        cubby_error err = {0};
        const char *const argv[] = {"true", NULL};
        struct child child = CHILD_NONE;
        static char step[] = "dropping privileges";
        struct spawn_options options = {.argv = argv, .before_exec = refuse, .data = step};
        assert_int_equal(spawn(&options, &child, &err), -1);
        assert_non_null(strstr(err.message, "dropping privileges"));
        assert_int_equal(err.code, CUBBY_E_PERMISSION);
}

static void children_get_only_named_descriptors(void **state)
{
        (void)state;
        cubby_error err = {0};
        int stray = 77; /* deliberately not close-on-exec */
        assert_int_equal(dup2(STDIN_FILENO, stray), stray);
        AUTO_BUFFER struct buffer output;
        buffer_init(&output, 4096);
        const char *const argv[] = {
                "sh", "-c", "for f in /proc/$$/fd/*; do echo ${f##*/}; done", NULL};
        assert_int_equal(spawn_run(argv, &output, deadline_after_ms(10000), &err), 0);
        char number[16];
        (void)snprintf(number, sizeof number, "%d\n", stray);
        assert_null(strstr(buffer_text(&output), number));
        close_quietly(stray);
}

static void runs_have_a_deadline_and_a_ceiling(void **state)
{
        (void)state;
        cubby_error err = {0};
        const char *const slow[] = {"sleep", "60", NULL};
        assert_int_equal(spawn_run(slow, NULL, deadline_after_ms(50), &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        AUTO_BUFFER struct buffer output;
        buffer_init(&output, 1000);
        const char *const flood[] = {"yes", NULL};
        assert_int_equal(spawn_run(flood, &output, deadline_after_ms(10000), &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_int_equal(spawn_run(flood, NULL, deadline_after_ms(100), &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        /* what it leaves behind may keep its output open, but nobody waiting */
        const char *const leaving[] = {"sh", "-c", "sleep 5 & echo done", NULL};
        int64_t start = clock_monotonic_ms();
        buffer_clear(&output);
        assert_int_equal(spawn_run(leaving, &output, deadline_after_ms(10000), &err), 0);
        assert_string_equal(buffer_text(&output), "done\n");
        assert_true(clock_monotonic_ms() - start < 4000);
        const char *const failing[] = {"sh", "-c", "echo why >&2; exit 3", NULL};
        assert_int_equal(spawn_run(failing, NULL, deadline_after_ms(10000), &err), -1);
        assert_non_null(strstr(err.message, "exited with code 3: why"));
        const char *const killed[] = {"sh", "-c", "kill -9 $$", NULL};
        assert_int_equal(spawn_run(killed, NULL, deadline_after_ms(10000), &err), -1);
        assert_non_null(strstr(err.message, "signal 9"));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void descriptors_may_swap_places(void **state)
{
        (void)state;
        cubby_error err = {0};
        int a[2];
        int b[2];
        assert_int_equal(pipe2(a, O_CLOEXEC), 0);
        assert_int_equal(pipe2(b, O_CLOEXEC), 0);
        char script[64];
        (void)snprintf(script, sizeof script, "echo A >&%d; echo B >&%d", b[1], a[1]);
        const char *const argv[] = {"sh", "-c", script, NULL};
        const struct spawn_fd fds[] = {{a[1], b[1]}, {b[1], a[1]}};
        struct spawn_options options = {.argv = argv, .fds = fds, .fd_count = 2};
        struct child child = CHILD_NONE;
        /* one-digit descriptors only, as the shell writes them */
        assert_true(a[1] < 10 && b[1] < 10);
        assert_int_equal(spawn(&options, &child, &err), 0);
        int status = -1;
        assert_int_equal(child_wait(&child, deadline_after_ms(10000), &status, &err), 0);
        assert_int_equal(status, 0);
        char text[3] = {0};
        assert_int_equal(read(a[0], text, 2), 2);
        assert_string_equal(text, "A\n");
        assert_int_equal(read(b[0], text, 2), 2);
        assert_string_equal(text, "B\n");
        for (int i = 0; i < 2; i++) {
                close_quietly(a[i]);
                close_quietly(b[i]);
        }
}

/* What the embedding program does with SIGCHLD is its own affair. */
static void ignored_children_are_waited_for(void **state)
{
        (void)state;
        cubby_error err = {0};
        const char *const failing[] = {"sh", "-c", "echo why >&2; exit 3", NULL};
        const char *const good[] = {"true", NULL};
        const char *const missing[] = {"/nonexistent/program", NULL};
        struct spawn_options options = {.argv = good};
        struct child child = CHILD_NONE;
        int status = 77;
        assert_ptr_not_equal(signal(SIGCHLD, SIG_IGN), SIG_ERR);
        assert_int_equal(spawn_run(good, NULL, deadline_after_ms(10000), &err), 0);
        assert_int_equal(spawn_run(failing, NULL, deadline_after_ms(10000), &err), -1);
        assert_non_null(strstr(err.message, "exited with code 3: why"));
        assert_int_equal(spawn_run(missing, NULL, deadline_after_ms(10000), &err), -1);
        assert_int_equal(err.sys_errno, ENOENT);
        assert_int_equal(spawn(&options, &child, &err), 0);
        assert_int_equal(child_wait(&child, deadline_after_ms(10000), &status, &err), -1);
        assert_int_equal(err.sys_errno, ECHILD);
        assert_int_equal(child.pid, -1); /* nobody kills a number that is not its own any more */
        assert_int_equal(child.pidfd, -1);
        assert_int_equal(status, 77);
        int pidfd = -1;
        assert_int_equal(spawn_detached(&options, &pidfd, &err), 0);
        close_quietly(pidfd);
        assert_ptr_not_equal(signal(SIGCHLD, SIG_DFL), SIG_ERR);
}

static void closed_standard_descriptors_are_filled(void **state)
{
        (void)state;
        cubby_error err = {0};
        AUTO_BUFFER struct buffer output;
        buffer_init(&output, 4096);
        const char *const argv[] = {"readlink", "/proc/self/fd/0", NULL};
        AUTO_FD int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        assert_true(kept >= 0);
        (void)close(STDIN_FILENO);
        int result = spawn_run(argv, &output, deadline_after_ms(10000), &err);
        assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
        assert_int_equal(result, 0);
        assert_string_equal(buffer_text(&output), "/dev/null\n");
}

#define FORKS 60

/* Forks that never call exec, as a worker pool does, and lives on with every
 * descriptor that was open in that moment. */
static void *fork_on(void *data)
{
        pid_t *pids = data;
        for (int i = 0; i < FORKS; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        (void)alarm(60);
                        for (;;)
                                (void)pause();
                }
        }
        return NULL;
}

static void forks_of_other_threads_hold_nothing_up(void **state)
{
        (void)state;
        pid_t pids[FORKS];
        pthread_t thread;
        cubby_error err = {0};
        const char *const argv[] = {"true", NULL};
        const char *const folder[] = {"/", NULL};
        struct spawn_options options = {.argv = argv};
        int64_t start = clock_monotonic_ms();
        assert_int_equal(pthread_create(&thread, NULL, fork_on, pids), 0);
        for (int i = 0; i < 30; i++) {
                struct child child = CHILD_NONE;
                int pidfd = -1;
                int status = -1;
                assert_int_equal(spawn(&options, &child, &err), 0);
                assert_int_equal(child_wait(&child, deadline_after_ms(20000), &status, &err), 0);
                assert_int_equal(status, 0);
                assert_int_equal(spawn_detached(&options, &pidfd, &err), 0);
                close_quietly(pidfd);
                options.argv = folder;
                assert_int_equal(spawn_detached(&options, &pidfd, &err), -1);
                assert_int_equal(err.sys_errno, EACCES);
                options.argv = argv;
                assert_int_equal(spawn_run(argv, NULL, deadline_after_ms(20000), &err), 0);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (int i = 0; i < FORKS; i++) {
                assert_true(pids[i] > 0);
                (void)kill(pids[i], SIGKILL);
                assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        }
        assert_true(clock_monotonic_ms() - start < 20000);
}

static void remember_line(void *data, int level, const char *line)
{
        *(int *)data = level;
        assert_string_equal(line, "box 7");
}

static void log_goes_to_its_callback(void **state)
{
        (void)state;
        int seen = -1;
        struct log log = {.write = remember_line, .data = &seen};
        log_line(&log, LOG_WARNING, "box %d", 7);
        assert_int_equal(seen, LOG_WARNING);
        log_line(NULL, LOG_ERROR, "nobody");
        log_line(&(struct log){0}, LOG_ERROR, "nobody");
}

static void test_slice_show(void **state)
{
        static const struct {
                const char *text;
                size_t size; /* of the copy */
                const char *shown;
        } rows[] = {
                {"", 8, ""},
                {"plain", 8, "plain"},
                {"plain", 3, "pl"},
                {"plain", 1, ""},
                {"\x1b[2J\n\t\x7f", 16, "?[2J???"},
                {"\xc3\xa4\xc2\xa0", 16, "\xc3\xa4\xc2\xa0"},
                {"\xc2\x9b\x33m", 16, "??3m"}, /* CSI as UTF-8, and as a byte */
                {"a\x9b\x33m", 16, "a?3m"},
                {"\x80", 16, "?"},
                {"\xe2\x82\xac", 16, "\xe2\x82\xac"}, /* these bytes go on */
                {"\xc2", 16, "\xc2"},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                char shown[16];
                struct slice slice = {(const uint8_t *)rows[i].text, strlen(rows[i].text)};
                slice_show(slice, shown, rows[i].size);
                assert_string_equal(shown, rows[i].shown);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_slice_show),
                cmocka_unit_test(error_text_reads_outside_in),
                cmocka_unit_test(error_text_is_cut_not_overrun),
                cmocka_unit_test(error_text_is_printable_utf8),
                cmocka_unit_test(every_code_has_a_name),
                cmocka_unit_test(errno_maps_to_code),
                cmocka_unit_test(buffer_stops_at_its_maximum),
                cmocka_unit_test(buffer_formats_and_consumes),
                cmocka_unit_test(numbers_are_little_endian),
                cmocka_unit_test(reader_refuses_short_and_long_input),
                cmocka_unit_test(slices_with_nul_are_no_text),
                cmocka_unit_test(deadlines_do_not_overflow),
                cmocka_unit_test(files_are_published_whole),
                cmocka_unit_test(publishers_do_not_meet),
                cmocka_unit_test(trees_are_removed_without_following_links),
                cmocka_unit_test(private_folders_are_checked),
                cmocka_unit_test(copies_keep_holes),
                cmocka_unit_test(descriptors_cross_a_socket),
                cmocka_unit_test(failed_exec_is_reported),
                cmocka_unit_test(unknown_formats_meet_no_shell),
                cmocka_unit_test(failed_preparation_names_its_step),
                cmocka_unit_test(children_get_only_named_descriptors),
                cmocka_unit_test(runs_have_a_deadline_and_a_ceiling),
                cmocka_unit_test(descriptors_may_swap_places),
                cmocka_unit_test(ignored_children_are_waited_for),
                cmocka_unit_test(closed_standard_descriptors_are_filled),
                cmocka_unit_test(forks_of_other_threads_hold_nothing_up),
                cmocka_unit_test(log_goes_to_its_callback),
        };
        return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
