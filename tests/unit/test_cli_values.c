/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/values.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct row {
        const char *text;
        bool good;
        uint64_t value;
};

static void check(bool (*parse)(const char *, uint64_t *), const struct row *rows, size_t count)
{
        for (size_t i = 0; i < count; i++) {
                uint64_t value = UNTOUCHED;

                if (parse(rows[i].text, &value) != rows[i].good)
                        fail_msg("'%s' was %s", rows[i].text, rows[i].good ? "refused" : "taken");
                assert_int_equal(value, rows[i].good ? rows[i].value : UNTOUCHED);
        }
}

static void test_sizes(void **state)
{
        static const struct row rows[] = {
                {"1", true, 1},
                {"1024", true, 1024},
                {"512M", true, UINT64_C(512) << 20},
                {"512m", true, UINT64_C(512) << 20},
                {"1g", true, UINT64_C(1) << 30},
                {"2GB", true, UINT64_C(2) << 30},
                {"2GiB", true, UINT64_C(2) << 30},
                {"1.5G", true, UINT64_C(3) << 29},
                {"0.5k", true, 512},
                {"4T", true, UINT64_C(4) << 40},
                {"10b", true, 10},
                {"0", true, 0},
                {"18446744073709551615", true, UINT64_MAX},
                {"", false, 0},
                {"12x", false, 0},
                {"M", false, 0},
                {".5M", false, 0},
                {"1.M", false, 0},
                {"1.5", false, 0},
                {"1.5b", false, 0},
                {"-5M", false, 0},
                {"+5M", false, 0},
                {" 5M", false, 0},
                {"5M ", false, 0},
                {"5 M", false, 0},
                {"5MM", false, 0},
                {"5Mi", false, 0},
                {"5bb", false, 0},
                {"1e3M", false, 0},
                {"0x10", false, 0},
                {"1,5G", false, 0},
                {"18446744073709551616", false, 0},
                {"99999999999999999999", false, 0},
                {"16777216T", false, 0},
                {"1.0000000001G", false, 0},
                {"nan", false, 0},
                {"inf", false, 0},
                {"1.2.3M", false, 0},
        };

        check(parse_size, rows, COUNT(rows));
}

static void test_durations(void **state)
{
        static const struct row rows[] = {
                {"30s", true, 30000},
                {"500ms", true, 500},
                {"1m30s", true, 90000},
                {"1m", true, 60000},
                {"2h", true, 7200000},
                {"1d12h", true, 129600000},
                {"1.5s", true, 1500},
                {"1h1m1s1ms", true, 3661001},
                {"0s", true, 0},
                {"", false, 0},
                {"30", false, 0},
                {"s", false, 0},
                {"30x", false, 0},
                {"30S", false, 0},
                {"-1s", false, 0},
                {"1s30m", false, 0},
                {"1s1s", false, 0},
                {"1m 30s", false, 0},
                {"30s ", false, 0},
                {"1.s", false, 0},
                {"1m30", false, 0},
                {"soon", false, 0},
                {"1y", false, 0},
                {"1w", false, 0},
                {"1us", false, 0},
                {"1mss", false, 0},
                {"9999999999999d", false, 0},
                {"99999999999999999999s", false, 0},
                {"9223372036854775807ms", false, 0},
        };

        check(parse_duration, rows, COUNT(rows));
}

static void test_seconds(void **state)
{
        static const struct row rows[] = {
                {"10", true, 10000},
                {"0", true, 0},
                {"1m", true, 60000},
                {"500ms", true, 500},
                {"", false, 0},
                {"-1", false, 0},
                {"1.5", false, 0},
                {"ten", false, 0},
                {"99999999999999999999", false, 0},
                {"9223372036854775807", false, 0},
        };

        check(parse_seconds, rows, COUNT(rows));
}

static void test_cpus(void **state)
{
        static const struct row rows[] = {
                {"1", true, 1000},
                {"1.5", true, 1500},
                {"0.25", true, 250},
                {"0.001", true, 1},
                {"64", true, 64000},
                {"0", true, 0},
                {"", false, 0},
                {"-1", false, 0},
                {".5", false, 0},
                {"1.", false, 0},
                {"1.5x", false, 0},
                {"nan", false, 0},
                {"1e2", false, 0},
                {"0.0001", false, 0},
                {"1.0005", false, 0},
                {"99999999999999999999", false, 0},
                {"18446744073709551", true, UINT64_C(18446744073709551000)},
                {"18446744073709552", false, 0},
        };

        check(parse_cpus, rows, COUNT(rows));
}

static void test_signals(void **state)
{
        static const struct {
                const char *text;
                int value; /* 0: refused */
        } rows[] = {{"KILL", SIGKILL}, {"SIGKILL", SIGKILL}, {"kill", SIGKILL},
                {"sigusr1", SIGUSR1}, {"9", 9}, {"1", 1}, {"TERM", SIGTERM}, {"", 0}, {"0", 0},
                {"-9", 0}, {"65", 0}, {"9.0", 0}, {"SIG", 0}, {"SIGSIGKILL", 0}, {"NOSUCH", 0},
                {"KILL ", 0}, {"99999999999999999999", 0}};

        for (size_t i = 0; i < COUNT(rows); i++) {
                int value = -7;

                assert_int_equal(parse_signal(rows[i].text, &value), rows[i].value != 0);
                assert_int_equal(value, rows[i].value != 0 ? rows[i].value : -7);
        }
}

static void test_since(void **state)
{
        const int64_t second = 1000000000;
        const int64_t now = 1000000 * second;
        const struct {
                const char *text;
                int64_t value; /* -1: refused */
        } rows[] = {
                {"10s", now - 10 * second},
                {"500ms", now - second / 2},
                {"100000d", 0},
                {"1234", 1234 * second},
                {"0", 0},
                {"1970-01-02T00:00:00Z", 86400 * second},
                {"1970-01-02T01:00:00+01:00", 86400 * second},
                {"1970-01-01T23:30:00-00:30", 86400 * second},
                {"1970-01-01T00:00:01.5Z", second + second / 2},
                {"1970-01-01T00:00:00.000000001Z", 1},
                {"", -1},
                {"yesterday", -1},
                {"-5s", -1},
                {"1970-01-02", -1},
                {"1970-01-02T00:00:00", -1},
                {"1970-01-02 00:00:00Z", -1},
                {"1970-13-02T00:00:00Z", -1},
                {"1970-01-02T00:00:00z", -1},
                {"1970-01-02T00:00:00+1:00", -1},
                {"1970-01-02T00:00:00+01:0", -1},
                {"1970-01-02T00:00:00+01:000", -1},
                {"1970-01-02T00:00:00+99:00", -1},
                {"1970-01-02T00:00:00+-1:00", -1},
                {"1960-01-02T00:00:00Z", -1},
                {"9999-01-02T00:00:00Z", -1},
                {"99999999999999999999", -1},
                {"9223372037", -1},
        };

        for (size_t i = 0; i < COUNT(rows); i++) {
                int64_t value = -7;

                if (parse_since(rows[i].text, now, &value) != (rows[i].value >= 0))
                        fail_msg("'%s'", rows[i].text);
                assert_int_equal(value, rows[i].value >= 0 ? rows[i].value : -7);
        }
}

static void test_writers(void **state)
{
        char text[VALUE_TEXT_MAX];

        assert_string_equal(format_size(0, text), "0B");
        assert_string_equal(format_size(999, text), "999B");
        assert_string_equal(format_size(1000, text), "1.00kB");
        assert_string_equal(format_size(12345678, text), "12.3MB");
        assert_string_equal(format_size(UINT64_MAX, text), "18446744TB");
        assert_string_equal(format_binary(1536, text), "1.50KiB");
        assert_string_equal(format_binary(UINT64_C(512) << 20, text), "512MiB");
        assert_string_equal(format_age(0, text), "Less than a second");
        assert_string_equal(format_age(-5, text), "Less than a second");
        assert_string_equal(format_age(1, text), "1 second");
        assert_string_equal(format_age(119, text), "1 minute");
        assert_string_equal(format_age(7200, text), "2 hours");
        assert_string_equal(format_age(800000, text), "1 week");
        assert_string_equal(format_time(0, text), "");
        assert_string_equal(
                format_time(INT64_C(1767323045000000000), text), "2026-01-02T03:04:05Z");
        assert_string_equal(
                format_stamp(INT64_C(1767323045000000007), text), "2026-01-02T03:04:05.000000007Z");
        assert_string_equal(format_millis(999, text), "999ms");
        assert_string_equal(format_millis(1250, text), "1.25s");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_durations),
                cmocka_unit_test(test_seconds),
                cmocka_unit_test(test_cpus),
                cmocka_unit_test(test_signals),
                cmocka_unit_test(test_since),
                cmocka_unit_test(test_writers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
