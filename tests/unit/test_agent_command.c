/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

static struct slice slice_of(const char *text)
{
        return (struct slice){(const uint8_t *)text, strlen(text)};
}

static int make(struct slice *argv, uint32_t argc, struct slice *env, uint32_t envc,
        const char *cwd, struct command *ret, cubby_error *err)
{
        const struct message_exec message = {
                .argv = argv, .argc = argc, .env = env, .envc = envc, .cwd = slice_of(cwd)};
        return command_make(&message, ret, err);
}

static bool everywhere(const char *path)
{
        return path[0] == '/';
}

static bool only_usr_bin(const char *path)
{
        return strncmp(path, "/usr/bin/", 9) == 0;
}

static bool nowhere(const char *path)
{
        (void)path;
        return false;
}

static void test_copies(void **state)
{
        (void)state;
        struct slice argv[] = {slice_of("a b"), slice_of(""), slice_of("$x\n\"'")};
        struct slice env[] = {slice_of("A=1"), slice_of("B="), slice_of("C=x=y\n")};
        struct command command;
        cubby_error err = {0};
        assert_int_equal(make(argv, 3, env, 3, "/tmp", &command, &err), 0);
        assert_string_equal(command.argv[0], "a b");
        assert_string_equal(command.argv[1], "");
        assert_string_equal(command.argv[2], "$x\n\"'");
        assert_null(command.argv[3]);
        assert_string_equal(command_variable(&command, "B"), "");
        assert_string_equal(command_variable(&command, "C"), "x=y\n");
        assert_null(command_variable(&command, "D"));
        assert_int_equal(command_default(&command, "A", "2", &err), 0);
        assert_int_equal(command_default(&command, "HOME", "/root", &err), 0);
        assert_string_equal(command_variable(&command, "A"), "1");
        assert_string_equal(command_variable(&command, "HOME"), "/root");
        assert_int_equal(command.envc, 4);
        assert_null(command.env[4]);
        command_free(&command);
        command_free(NULL);
}

static void test_refuses(void **state)
{
        (void)state;
        static const struct {
                struct slice argument;
                struct slice variable;
                const char *cwd;
                int code;
        } cases[] = {
                {{(const uint8_t *)"a\0b", 3}, {(const uint8_t *)"A=1", 3}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a\0", 2}, {(const uint8_t *)"A=1", 3}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"A", 1}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"=1", 2}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"=", 1}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"", 0}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"A=\0b", 4}, "/", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"A=1", 3}, "tmp", CUBBY_E_INVALID},
                {{(const uint8_t *)"a", 1}, {(const uint8_t *)"A=1", 3}, "./", CUBBY_E_INVALID},
                {{NULL, 0}, {(const uint8_t *)"A=1", 3}, "/", CUBBY_E_EXEC_NOT_FOUND},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct slice argv[] = {cases[i].argument};
                struct slice env[] = {cases[i].variable};
                struct command command = {0};
                cubby_error err = {0};
                assert_int_equal(make(argv, 1, env, 1, cases[i].cwd, &command, &err), -1);
                assert_int_equal(err.code, cases[i].code);
                assert_null(command.argv); /* untouched */
        }
}

static void test_look_up(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                const char *path; /* NULL: the environment has none */
                bool (*exists)(const char *path);
                size_t count;
                const char *first;
        } cases[] = {
                {"/bin/sh", "PATH=/usr/bin", nowhere, 1, "/bin/sh"},
                {"./sh", "PATH=/usr/bin", nowhere, 1, "./sh"},
                {"d/sh", NULL, nowhere, 1, "d/sh"},
                {"sh", NULL, only_usr_bin, 1, "/usr/bin/sh"},
                {"sh", NULL, everywhere, 6, "/usr/local/sbin/sh"},
                {"sh", "PATH=/a:/b", everywhere, 2, "/a/sh"},
                {"sh", "PATH=/a::/b", everywhere, 3, "/a/sh"},
                {"sh", "PATH=:/b", nowhere, 1, "./sh"},
                {"sh", "PATH=", nowhere, 1, "./sh"},
                {"sh", "PATH=bin:/b", nowhere, 1, "bin/sh"},
                {"sh", "PATH=/a:/b", nowhere, 0, NULL},
                {"sh", "PATH=/", nowhere, 0, NULL},
                {"sh", "PATHS=/usr/bin", nowhere, 0, NULL},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct slice argv[] = {slice_of(cases[i].name)};
                struct slice env[] = {slice_of(cases[i].path == NULL ? "X=1" : cases[i].path)};
                struct command command;
                cubby_error err = {0};
                assert_int_equal(make(argv, 1, env, 1, "", &command, &err), 0);
                int result = command_look_up(&command, cases[i].exists, &err);
                assert_int_equal(command.path_count, cases[i].count);
                assert_int_equal(result, cases[i].count == 0 ? -1 : 0);
                if (cases[i].count == 0)
                        assert_int_equal(err.code, CUBBY_E_EXEC_NOT_FOUND);
                else
                        assert_string_equal(command.paths[0], cases[i].first);
                command_free(&command);
        }
}

static void test_look_up_bounds(void **state)
{
        (void)state;
        static char path[100000] = "PATH=";
        for (size_t at = 5; at + 2 < sizeof path; at += 3)
                memcpy(path + at, "/a:", 3);
        struct slice argv[] = {slice_of("sh")};
        struct slice env[] = {slice_of(path)};
        struct command command;
        cubby_error err = {0};
        assert_int_equal(make(argv, 1, env, 1, "", &command, &err), 0);
        assert_int_equal(command_look_up(&command, everywhere, &err), 0);
        assert_int_equal(command.path_count, COMMAND_PATHS_MAX);
        command_free(&command);

        memset(path + 5, 'd', sizeof path - 6); /* one folder, longer than a path can be */
        path[5] = '/';
        path[sizeof path - 1] = '\0';
        env[0] = slice_of(path);
        assert_int_equal(make(argv, 1, env, 1, "", &command, &err), 0);
        assert_int_equal(command_look_up(&command, everywhere, &err), -1);
        command_free(&command);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_copies),
                cmocka_unit_test(test_refuses),
                cmocka_unit_test(test_look_up),
                cmocka_unit_test(test_look_up_bounds),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
