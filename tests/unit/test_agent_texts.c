/* SPDX-License-Identifier: Apache-2.0 */
#include "procs.h"
#include "resume.h"
#include "text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#define TAIL " 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15 16 17 18 900 20 300 22\n"

static void test_stat(void **state)
{
        (void)state;
        static const struct {
                const char *text;
                bool good;
                const char *name;
                uint32_t pid;
                uint8_t letter;
        } cases[] = {
                {"7 (sleep) S" TAIL, true, "sleep", 7, 'S'},
                {"8 (a b) c) R) Z" TAIL, true, "a b) c) R", 8, 'Z'},
                {"9 () R" TAIL, true, "", 9, 'R'},
                {"9 ((((((() R" TAIL, true, "((((((", 9, 'R'},
                {"", false, NULL, 0, 0},
                {"9 sleep S" TAIL, false, NULL, 0, 0},
                {"9 (sleep S" TAIL, false, NULL, 0, 0},
                {"9 )sleep( S" TAIL, false, NULL, 0, 0},
                {"9 (sleep)", false, NULL, 0, 0},
                {"9 (sleep) S", false, NULL, 0, 0},
                {"9 (sleep) S 1 2 3", false, NULL, 0, 0},
                {"0 (sleep) S" TAIL, false, NULL, 0, 0},
                {"x (sleep) S" TAIL, false, NULL, 0, 0},
                {"99999999999 (sleep) S" TAIL, false, NULL, 0, 0},
                {"9 (sleep) S -1 2 3 4 5 6 7 8 9 10 1 1 13 14 15 16 17 18 9 20 3\n", false, NULL, 0,
                        0},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct message_process process;
                char name[64];
                bool good = procs_parse_stat(cases[i].text, 1000, 100, 4096, &process, name);
                if (good != cases[i].good)
                        fail_msg("'%s'", cases[i].text);
                if (!good)
                        continue;
                assert_string_equal(name, cases[i].name);
                assert_int_equal(process.pid, cases[i].pid);
                assert_int_equal(process.state, cases[i].letter);
                assert_int_equal(process.parent, 1);
                assert_int_equal(process.cpu_us, 4000000);
                assert_int_equal(process.age_ms, 1000);
                assert_int_equal(process.rss_bytes, 300 * 4096);
        }
        struct message_process process;
        char name[64];
        assert_true(procs_parse_stat("7 (x) S" TAIL, 100, 100, 4096, &process, name));
        assert_int_equal(process.age_ms, 0); /* born after the clock was read */
}

static void test_value(void **state)
{
        (void)state;
        static const struct {
                const char *text;
                const char *key;
                bool good;
                uint64_t value;
        } cases[] = {
                {"populated 1\nfrozen 0\n", "populated", true, 1},
                {"populated 1\nfrozen 0\n", "frozen", true, 0},
                {"oom 5\noom_kill 3\n", "oom_kill", true, 3},
                {"oom_kill 3\noom 5\n", "oom", true, 5},
                {"MemTotal:   12 kB\n", "MemTotal:", true, 12},
                {"Uid:\t0\t1\t2\n", "Uid:", true, 0},
                {"a 18446744073709551615", "a", true, UINT64_MAX},
                {"a 18446744073709551616", "a", false, 0},
                {"a\n", "a", false, 0},
                {"a \n", "a", false, 0},
                {"a -1\n", "a", false, 0},
                {"a x\n", "a", false, 0},
                {"xa 1\n", "a", false, 0},
                {"ab 1\n", "a", false, 0},
                {"", "a", false, 0},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                uint64_t value = 4711;
                if (text_value(cases[i].text, cases[i].key, &value) != cases[i].good)
                        fail_msg("'%s' of '%s'", cases[i].key, cases[i].text);
                assert_int_equal(value, cases[i].good ? cases[i].value : 4711);
        }
}

static void test_hostname(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                bool good;
        } cases[] = {
                {"box", true},
                {"a-b.c_d9", true},
                {"9", true},
                {"", false},
                {"-a", false},
                {".a", false},
                {"a b", false},
                {"a\n", false},
                {"a/b", false},
                {"a\tb", false},
                {"\xc3\xa4", false},
                {"1234567890123456789012345678901234567890123456789012345678901234", false},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                const struct slice name = {(const uint8_t *)cases[i].name, strlen(cases[i].name)};
                if (hostname_valid(name) != cases[i].good)
                        fail_msg("'%s'", cases[i].name);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_stat),
                cmocka_unit_test(test_value),
                cmocka_unit_test(test_hostname),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
