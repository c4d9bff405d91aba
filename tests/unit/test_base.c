/* SPDX-License-Identifier: Apache-2.0 */
/* The base library: errors, buffers, readers, files, deadlines, children. */

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_error_texts(void **state)
{
        cubby_error err;
        char text[2 * CUBBY_ERROR_MESSAGE_MAX];

        assert_int_equal(cubby_error_set(NULL, CUBBY_E_BUSY, "nobody listens"), -1);
        assert_int_equal(cubby_error_set(&err, CUBBY_E_IMAGE, "layer %d", 3), -1);
        assert_string_equal(err.message, "layer 3");
        assert_int_equal(cubby_error_wrap(&err, "importing '%s'", "a.tar"), -1);
        assert_string_equal(err.message, "importing 'a.tar': layer 3");
        assert_int_equal(err.code, CUBBY_E_IMAGE);

        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        (void)cubby_error_set(&err, CUBBY_E_IMAGE, "%s", text);
        assert_int_equal(strlen(err.message), CUBBY_ERROR_MESSAGE_MAX - 1);
        (void)cubby_error_wrap(&err, "%s", text);
        assert_int_equal(strlen(err.message), CUBBY_ERROR_MESSAGE_MAX - 1);
        cubby_error_clear(&err);
        assert_int_equal(err.code, CUBBY_OK);
}

static void test_error_codes(void **state)
{
        static const struct {
                int error_number;
                int code;
        } cases[] = {
                {ENOMEM, CUBBY_E_NO_MEMORY},
                {ENOSPC, CUBBY_E_NO_SPACE},
                {EDQUOT, CUBBY_E_NO_SPACE},
                {EACCES, CUBBY_E_PERMISSION},
                {EPERM, CUBBY_E_PERMISSION},
                {ENOENT, CUBBY_E_NOT_FOUND},
                {EEXIST, CUBBY_E_EXISTS},
                {EIO, CUBBY_E_SYSTEM},
        };

        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                cubby_error err;
                (void)cubby_error_errno(&err, cases[i].error_number, "opening");
                assert_int_equal(err.code, cases[i].code);
                assert_int_equal(err.sys_errno, cases[i].error_number);
                assert_non_null(strstr(err.message, "opening: "));
        }
        for (int code = 0; code < CUBBY_E_CODE_MAX; code++)
                assert_string_not_equal(cubby_code_name(code), "unknown error");
        assert_string_equal(cubby_code_name(-1), "unknown error");
        assert_string_equal(cubby_code_name(CUBBY_E_CODE_MAX), "unknown error");
}

static void test_buffer_ceiling(void **state)
{
        AUTO_BUFFER struct buffer buffer;

        buffer_init(&buffer, 8);
        assert_true(buffer_u32(&buffer, 0x04030201));
        assert_true(buffer_append_text(&buffer, "abcd"));
        assert_memory_equal(buffer.data, "\1\2\3\4abcd", 8);
        assert_false(buffer_u8(&buffer, 9));
        assert_true(buffer.failed);
        /* sticky, even for what would fit */
        buffer_consume(&buffer, 4);
        assert_false(buffer_u8(&buffer, 9));
        buffer_clear(&buffer);
        assert_true(buffer_u8(&buffer, 9));
        buffer_consume(&buffer, 100);
        assert_int_equal(buffer.size, 0);
        assert_false(buffer_slice(&buffer, "12345", 5));
}

static void test_reader_bad_input(void **state)
{
        static const struct {
                const char *bytes;
                size_t size;
                size_t maximum;
                int good;
        } cases[] = {
                {"\3\0\0\0abc", 7, 3, 1},
                {"\0\0\0\0", 4, 0, 1},
                {"\3\0\0\0abc", 7, 2, 0}, /* beyond its maximum */
                {"\4\0\0\0abc", 7, 9, 0}, /* short */
                {"\xff\xff\xff\xff"
                 "abc",
                        7, 9, 0},          /* wraps */
                {"\3\0\0\0abcd", 8, 9, 0}, /* a byte left over */
                {"\3\0\0", 3, 9, 0},
                {"", 0, 9, 0},
        };

        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct reader reader = reader_over(cases[i].bytes, cases[i].size);
                struct slice slice = {0};
                int good = reader_slice(&reader, cases[i].maximum, &slice) && reader_done(&reader);
                assert_int_equal(good, cases[i].good);
        }
        struct slice with_nul = {(const uint8_t *)"a\0b", 3};
        assert_null(slice_dup_text(with_nul));
}

static void test_files(void **state)
{
        char path[] = "/tmp/cubby-test-base-XXXXXX";
        cubby_error err;

        assert_non_null(mkdtemp(path));
        AUTO_FD int dir_fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        assert_true(dir_fd >= 0);
        assert_int_equal(file_publish_at(dir_fd, "a", "12345", 5, 0600, &err), 0);
        assert_int_equal(file_publish_at(dir_fd, "a", "123", 3, 0600, &err), 0);

        AUTO_BUFFER struct buffer buffer;
        buffer_init(&buffer, 3);
        assert_int_equal(file_read_at(dir_fd, "a", &buffer, &err), 0);
        assert_memory_equal(buffer.data, "123", 3);
        buffer_clear(&buffer);
        buffer.maximum = 2;
        assert_int_equal(file_read_at(dir_fd, "a", &buffer, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_int_equal(file_read_at(dir_fd, "none", &buffer, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(mkfifoat(dir_fd, "pipe", 0600), 0);
        assert_int_equal(file_read_at(dir_fd, "pipe", &buffer, &err), -1);
        assert_int_equal(symlinkat("a", dir_fd, "link"), 0);
        assert_int_equal(file_read_at(dir_fd, "link", &buffer, &err), -1);

        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
        assert_int_equal(access(path, F_OK), -1);
}

static void test_remove_follows_no_link(void **state)
{
        char path[] = "/tmp/cubby-test-base-XXXXXX";
        char keep[] = "/tmp/cubby-test-keep-XXXXXX";
        cubby_error err;

        assert_non_null(mkdtemp(path));
        assert_non_null(mkdtemp(keep));
        AUTO_FD int dir_fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        AUTO_FD int keep_fd = open(keep, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        assert_int_equal(file_publish_at(keep_fd, "precious", "1", 1, 0600, &err), 0);
        assert_int_equal(symlinkat(keep, dir_fd, "trap"), 0);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
        assert_int_equal(faccessat(keep_fd, "precious", F_OK, 0), 0);
        assert_int_equal(dir_remove_at(AT_FDCWD, keep, &err), 0);
}

static void test_private_folder(void **state)
{
        char path[] = "/tmp/cubby-test-base-XXXXXX";
        char below[64], link[64];
        cubby_error err;

        assert_non_null(mkdtemp(path));
        (void)snprintf(below, sizeof below, "%s/a/b", path);
        (void)snprintf(link, sizeof link, "%s/link", path);
        assert_int_equal(dir_open_private(below, false, &err), -1);
        int fd = dir_open_private(below, true, &err);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(symlink(below, link), 0);
        assert_int_equal(dir_open_private(link, false, &err), -1);
        assert_int_equal(chmod(below, 0777), 0);
        assert_int_equal(dir_open_private(below, false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_PERMISSION);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
}

static void test_descriptors_over_a_socket(void **state)
{
        int pair[2], got[FD_PASS_MAX];
        size_t count = FD_PASS_MAX;
        char byte = 0;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(fd_send(pair[0], "x", 1, pair, 2), 0);
        assert_int_equal(fd_receive(pair[1], &byte, 1, got, &count), 1);
        assert_int_equal(byte, 'x');
        assert_int_equal(count, 2);
        for (size_t i = 0; i < count; i++) {
                assert_true((fcntl(got[i], F_GETFD) & FD_CLOEXEC) != 0);
                close(got[i]);
        }
        close(pair[0]);
        count = FD_PASS_MAX;
        assert_int_equal(fd_receive(pair[1], &byte, 1, got, &count), 0);
        assert_int_equal(count, 0);
        close(pair[1]);
}

static void test_deadlines(void **state)
{
        assert_int_equal(deadline_after_ms(-1), DEADLINE_NEVER);
        assert_int_equal(deadline_left_ms(DEADLINE_NEVER), -1);
        assert_int_equal(deadline_left_ms(deadline_after_ms(0)), 0);
        assert_int_equal(deadline_left_ms(clock_monotonic_ms() - 5000), 0);
        assert_in_range(deadline_left_ms(deadline_after_ms(10000)), 9000, 10000);
        assert_true(deadline_left_ms(deadline_after_ms(INT64_MAX - 1)) != 0);
}

static void test_child_output(void **state)
{
        static const char *const good[] = {"echo", "a b", NULL};
        static const char *const bad[] = {"sh", "-c", "echo why >&2; exit 3", NULL};
        static const char *const missing[] = {"/nonexistent/program", NULL};
        static const char *const slow[] = {"sleep", "30", NULL};
        cubby_error err;
        AUTO_BUFFER struct buffer output;

        buffer_init(&output, 100);
        assert_int_equal(spawn_run(good, &output, deadline_after_ms(20000), &err), 0);
        assert_int_equal(output.size, 4);
        assert_memory_equal(output.data, "a b\n", 4);
        assert_int_equal(spawn_run(bad, NULL, deadline_after_ms(20000), &err), -1);
        assert_non_null(strstr(err.message, "why"));
        assert_int_equal(spawn_run(missing, NULL, deadline_after_ms(20000), &err), -1);
        assert_non_null(strstr(err.message, "/nonexistent/program"));
        int64_t start = clock_monotonic_ms();
        assert_int_equal(spawn_run(slow, NULL, deadline_after_ms(100), &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(clock_monotonic_ms() - start < 10000);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left to reap */
}

static void test_child_descriptors(void **state)
{
        static const char *const list[] = {"ls", "/proc/self/fd", NULL};
        int pipe_fds[2];
        char text[256] = "";
        struct child child = CHILD_NONE;
        cubby_error err;
        int status = 0;

        AUTO_FD int stray = open("/dev/null", O_RDONLY); /* not close-on-exec on purpose */
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        const struct spawn_fd fds[] = {{pipe_fds[1], 1}, {pipe_fds[1], 7}};
        const struct spawn_options options = {.argv = list, .fds = fds, .fd_count = 2};
        assert_int_equal(spawn(&options, &child, &err), 0);
        close(pipe_fds[1]);
        assert_true(read_whole(pipe_fds[0], text, sizeof text - 1) > 0);
        close(pipe_fds[0]);
        assert_int_equal(child_wait(&child, deadline_after_ms(20000), &status, &err), 0);
        /* 3 is ls's own view of the folder */
        assert_string_equal(text, "0\n1\n2\n3\n7\n");
        child_kill(&child);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_error_texts),
                cmocka_unit_test(test_error_codes),
                cmocka_unit_test(test_buffer_ceiling),
                cmocka_unit_test(test_reader_bad_input),
                cmocka_unit_test(test_files),
                cmocka_unit_test(test_remove_follows_no_link),
                cmocka_unit_test(test_private_folder),
                cmocka_unit_test(test_descriptors_over_a_socket),
                cmocka_unit_test(test_deadlines),
                cmocka_unit_test(test_child_output),
                cmocka_unit_test(test_child_descriptors),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
