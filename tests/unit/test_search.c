/* SPDX-License-Identifier: Apache-2.0 */

/* What search_compare.py cannot ask Python: limits, bad input, the texts looked for first. */

#include "base/fd.h"
#include "files/literals.h"
#include "files/search.h"
#include "files/utf8.h"
#include "wire/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int go_on(void *data, cubby_error *err)
{
        (void)data;
        (void)err;
        return 0;
}

static int give_up(void *data, cubby_error *err)
{
        (void)data;
        return cubby_error_set(err, CUBBY_E_CANCELLED, "enough");
}

static void test_literals(void **state)
{
        (void)state;
        static const struct {
                const char *pattern;
                bool literal, fold;
                const char *texts; /* with a slash between two of them; "": none */
        } cases[] = {
                {"needle", false, false, "needle"},
                {"Needle", false, true, "needle"},
                {"sky", false, true, "y"},
                {"sk", false, true, ""},
                {"a.b", true, false, "a.b"},
                {"", false, false, ""},
                {"foo.*barbaz", false, false, "barbaz"},
                {"ab+c", false, false, "ab"},
                {"abc?d", false, false, "ab"},
                {"abc*", false, false, "ab"},
                {"abc{0}", false, false, "ab"},
                {"abc{0,3}?de", false, false, "ab"},
                {"foo|bar", false, false, "foo/bar"},
                {"foo|", false, false, ""},
                {"(foo|bar)x?", false, false, "foo/bar"},
                {"(foo|bar)?x", false, false, "x"},
                {"(foo)*x", false, false, "x"},
                {"(?:foobar)+x", false, false, "foobar"},
                {"(?P<n>needle)", false, false, "needle"},
                {"(?<n>needle)", false, false, "needle"},
                {"(?=needle)x", false, false, "x"},
                {"(?!needle)x", false, false, "x"},
                {"(?<=needle)x", false, false, "x"},
                {"x(?i)needle", false, false, ""},
                {"(?x)a b", false, false, ""},
                {"(?#needle)x", false, false, ""},
                {"(*UTF)needle", false, false, ""},
                {"\\Qneedle", false, false, ""},
                {"\\x41bc", false, false, ""},
                {"\\u0041bc", false, false, ""},
                {"(n)\\1eedle", false, false, ""},
                {"\\bneedle\\b", false, false, "needle"},
                {"\\[needle\\]", false, false, "[needle]"},
                {"[needle]", false, false, ""},
                {"[]x]needle", false, false, "needle"},
                {"[^]x]needle", false, false, "needle"},
                {"[\\]x]needle", false, false, "needle"},
                {"[[:alpha:]]needle", false, false, ""},
                {"[a", false, false, ""},
                {"(a", false, false, ""},
                {"a)b", false, false, ""},
                {"a{b", false, false, ""},
                {"a{2}b", false, false, "b"},
                {"a+{0}b", false, false, ""},
                {"[ab]{2,3}foo", false, false, "foo"},
                {"^needle$", false, false, "needle"},
                {"\xc3\xa9needle", false, false, "needle"},
                {"a|b|c|d|e|f|g|h|i", false, false, ""},
                {"((((((((((((((((((a))))))))))))))))))", false, false, ""},
                {"\\", false, false, ""},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct literals set;
                char texts[512] = "";
                literals_of(cases[i].pattern, strlen(cases[i].pattern), cases[i].literal,
                        cases[i].fold, &set);
                for (size_t j = 0; j < set.count; j++) {
                        size_t used = strlen(texts);
                        (void)snprintf(texts + used, sizeof texts - used, "%s%.*s",
                                j == 0 ? "" : "/", (int)set.items[j].size, set.items[j].bytes);
                }
                if (strcmp(texts, cases[i].texts) != 0)
                        fail_msg("'%s': '%s' instead of '%s'", cases[i].pattern, texts,
                                cases[i].texts);
        }
}

static void test_find(void **state)
{
        (void)state;
        static const uint8_t text[] = "xxFOO foo bar fo\nBAR foO";
        struct literals set;
        literals_of("foo|bar", 7, false, true, &set);
        size_t size = sizeof text - 1;
        static const size_t places[] = {2, 6, 10, 17, 21};
        size_t from = 0;
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
                from = literals_find(&set, text, size, from);
                assert_int_equal(from, places[i]);
                from++;
        }
        assert_int_equal(literals_find(&set, text, size, from), size);
        literals_reset(&set);
        assert_int_equal(literals_find(&set, text, 2, 0), 2);
        assert_int_equal(literals_find(&set, text, 0, 0), 0);
}

static void test_replace(void **state)
{
        (void)state;
        static const struct {
                const char *bytes, *text;
        } cases[] = {
                {"", ""},
                {"abc", "abc"},
                {"\xc3\xa9", "\xc3\xa9"},
                {"\xff", "\xef\xbf\xbd"},
                {"a\xc3", "a\xef\xbf\xbd"},
                {"\xe2\x82", "\xef\xbf\xbd"},
                {"\xe2\x82z", "\xef\xbf\xbdz"},
                {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf0\x9f\x98", "\xef\xbf\xbd"},
                {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct buffer out;
                buffer_init(&out, 100);
                assert_true(utf8_replace(
                        &out, (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes)));
                assert_int_equal(out.size, strlen(cases[i].text));
                assert_memory_equal(
                        out.data == NULL ? (void *)"" : out.data, cases[i].text, out.size);
                assert_int_equal(
                        utf8_is_valid((const uint8_t *)cases[i].bytes, strlen(cases[i].bytes)),
                        strcmp(cases[i].bytes, cases[i].text) == 0);
                buffer_free(&out);
        }
        struct buffer small;
        buffer_init(&small, 2);
        assert_false(utf8_replace(&small, (const uint8_t *)"\xff", 1));
        buffer_free(&small);
        assert_int_equal(utf8_prefix((const uint8_t *)"\xc3\xa9\xc3\xa9z", 5, 2), 4);
        assert_int_equal(utf8_prefix((const uint8_t *)"ab", 2, 5), 2);
}

static int no_line(void *data, uint64_t number, const char *text, size_t size, cubby_error *err)
{
        (void)text;
        (void)size;
        (void)err;
        *(uint64_t *)data = number;
        return 0;
}

static void test_pattern_limits(void **state)
{
        (void)state;
        const struct grep_options options = {0};
        struct grep *grep = NULL;
        int64_t position = 7;
        cubby_error err = {0};
        char *long_one = malloc(GREP_PATTERN_MAX + 2);
        assert_non_null(long_one);
        memset(long_one, 'a', GREP_PATTERN_MAX + 1);
        assert_int_equal(
                grep_new(long_one, GREP_PATTERN_MAX + 1, &options, &grep, &position, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(position, -1);
        assert_int_equal(grep_new(long_one, 20000, &options, &grep, NULL, &err), 0);
        grep_free(grep);
        free(long_one);

        assert_int_equal(grep_new("a\xc3\xa9\xff", 4, &options, &grep, &position, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(position, 2);

        /* Cancelled in the middle of a text, by a pause that comes late enough. */
        uint64_t last = 0;
        struct grep_pace pace = {.pause = give_up, .last_ms = 0};
        assert_int_equal(grep_new("x", 1, &options, &grep, &position, &err), 0);
        assert_int_equal(
                grep_text(grep, (const uint8_t *)"x\nx\n", 4, &pace, no_line, &last, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CANCELLED);
        assert_int_equal(last, 0);
        pace.pause = go_on;
        assert_int_equal(
                grep_text(grep, (const uint8_t *)"x\nx\n", 4, &pace, no_line, &last, &err), 0);
        assert_int_equal(last, 2);
        grep_free(grep);
        grep_free(NULL);
}

/* The deepest patterns on a stack as small as that of a file thread. */
static void *compile_deep(void *data)
{
        char pattern[2048];
        uint64_t last = 0;
        size_t depth = 190;
        const struct grep_options options = {0};
        struct grep_pace pace = {.pause = go_on};
        struct grep *grep = NULL;
        (void)data;
        for (int kind = 0; kind < 3; kind++) {
                static const char *const openings[] = {"(", "(?:a|", "(?=(?<!"};
                static const char *const endings[] = {")*", ")+", ".))"};
                size_t levels = kind == 2 ? depth / 2 : depth;
                pattern[0] = '\0';
                for (size_t i = 0; i < levels; i++)
                        (void)snprintf(pattern + strlen(pattern), sizeof pattern - strlen(pattern),
                                "%s", openings[kind]);
                (void)snprintf(pattern + strlen(pattern), sizeof pattern - strlen(pattern), "x");
                for (size_t i = 0; i < levels; i++)
                        (void)snprintf(pattern + strlen(pattern), sizeof pattern - strlen(pattern),
                                "%s", endings[kind]);
                cubby_error err = {0};
                if (grep_new(pattern, strlen(pattern), &options, &grep, NULL, &err) < 0)
                        continue;
                (void)grep_text(
                        grep, (const uint8_t *)"aaxaa xx\n", 9, &pace, no_line, &last, &err);
                grep_free(grep);
                grep = NULL;
        }
        return NULL;
}

static void test_small_stack(void **state)
{
        (void)state;
        pthread_attr_t attributes;
        pthread_t thread;
        assert_int_equal(pthread_attr_init(&attributes), 0);
        assert_int_equal(pthread_attr_setstacksize(&attributes, 256U * 1024U), 0);
        assert_int_equal(pthread_create(&thread, &attributes, compile_deep, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)pthread_attr_destroy(&attributes);
}

static int count_hit(void *data, const struct search_hit *hit, cubby_error *err)
{
        (void)err;
        (void)hit;
        ++*(unsigned *)data;
        return 0;
}

static int refuse_hit(void *data, const struct search_hit *hit, cubby_error *err)
{
        (void)hit;
        ++*(unsigned *)data;
        return cubby_error_set(err, CUBBY_E_CLOSED, "nobody listens");
}

/* Folders so deep that their path has more bytes than a path may have. */
static int make_deep(const char *root, int depth)
{
        int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char name[101];
        memset(name, 'd', 100);
        name[100] = '\0';
        for (int i = 0; fd >= 0 && i < depth; i++) {
                assert_int_equal(mkdirat(fd, name, 0755), 0);
                int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                int file = openat(fd, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
                assert_true(next >= 0 && file >= 0);
                (void)close(file);
                (void)close(fd);
                fd = next;
        }
        return fd;
}

static void test_deep(void **state)
{
        (void)state;
        char root[] = "/tmp/cubby-search-XXXXXX";
        cubby_error err = {0};
        assert_non_null(mkdtemp(root));
        (void)close(make_deep(root, 45));
        unsigned hits = 0;
        bool truncated = true;
        struct glob *glob = NULL;
        assert_int_equal(glob_new("f", &glob, &err), 0);
        struct search search = {.root_fd = open(root, O_RDONLY | O_CLOEXEC),
                .root_name = "root",
                .glob = glob,
                .max_results = 1000,
                .pace = {.pause = go_on},
                .tell = count_hit,
                .data = &hits};
        assert_true(search.root_fd >= 0);
        assert_int_equal(search_run(&search, &truncated, &err), 0);
        assert_false(truncated);
        assert_int_equal(hits, 41); /* those whose path has at most 4,095 bytes */

        hits = 0;
        search.max_results = 5;
        (void)lseek(search.root_fd, 0, SEEK_SET);
        assert_int_equal(search_run(&search, &truncated, &err), 0);
        assert_true(truncated);
        assert_int_equal(hits, 5);

        hits = 0;
        search.tell = refuse_hit;
        (void)lseek(search.root_fd, 0, SEEK_SET);
        assert_int_equal(search_run(&search, &truncated, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CLOSED);
        assert_int_equal(hits, 1);

        search.pace = (struct grep_pace){.pause = give_up};
        (void)lseek(search.root_fd, 0, SEEK_SET);
        assert_int_equal(search_run(&search, &truncated, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CANCELLED);
        (void)close(search.root_fd);
        glob_free(glob);
        assert_int_equal(dir_remove_at(AT_FDCWD, root, &err), 0);
}

static void test_root_kinds(void **state)
{
        (void)state;
        cubby_error err = {0};
        unsigned hits = 0;
        bool truncated = false;
        struct glob *glob = NULL;
        assert_int_equal(glob_new("*", &glob, &err), 0);
        struct search search = {.root_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                .root_name = "exe",
                .glob = glob,
                .max_results = 1,
                .pace = {.pause = go_on},
                .tell = count_hit,
                .data = &hits};
        assert_int_equal(search_run(&search, &truncated, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(err.sys_errno, ENOTDIR);
        (void)close(search.root_fd);
        glob_free(glob);

        assert_int_equal(glob_new("", &glob, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(glob_new("/", &glob, &err), 0);
        assert_false(glob_matches(glob, "a", 1));
        glob_free(glob);
        glob_free(NULL);
}

static void test_messages(void **state)
{
        (void)state;
        struct buffer out;
        buffer_init(&out, 10000);
        const struct message_file_hit hit = {
                {(const uint8_t *)"a/b", 3}, 12, {(const uint8_t *)"x\0y", 3}};
        assert_true(message_file_hit_encode(&out, &hit));
        struct message_file_hit read_hit;
        struct reader reader = reader_over(out.data, out.size);
        assert_true(message_file_hit_read(&reader, &read_hit) && reader_done(&reader));
        assert_int_equal(read_hit.text.size, 3);
        for (size_t size = 0; size < out.size; size++) {
                reader = reader_over(out.data, size);
                assert_false(message_file_hit_read(&reader, &read_hit));
        }
        out.data[4] = '\0'; /* a NUL in the path */
        reader = reader_over(out.data, out.size);
        assert_false(message_file_hit_read(&reader, &read_hit));

        buffer_clear(&out);
        const struct message_file_found found = {1, CUBBY_E_INVALID, 3, {(const uint8_t *)"no", 2}};
        struct message_file_found read_found;
        assert_true(message_file_found_encode(&out, &found));
        assert_true(message_file_found_decode((struct slice){out.data, out.size}, &read_found));
        assert_int_equal(read_found.position, 3);
        assert_false(
                message_file_found_decode((struct slice){out.data, out.size - 1}, &read_found));
        out.data[0] = 2;
        assert_false(message_file_found_decode((struct slice){out.data, out.size}, &read_found));
        out.data[0] = 1;
        out.data[11] = 1; /* a position beyond any pattern */
        assert_false(message_file_found_decode((struct slice){out.data, out.size}, &read_found));

        buffer_clear(&out);
        const struct message_file_event event = {
                FILE_RENAMED, 1, {(const uint8_t *)"b", 1}, {(const uint8_t *)"a", 1}};
        struct message_file_event read_event;
        assert_true(message_file_event_encode(&out, &event));
        reader = reader_over(out.data, out.size);
        assert_true(message_file_event_read(&reader, &read_event) && reader_done(&reader));
        out.data[0] = FILE_EVENT_MAX;
        reader = reader_over(out.data, out.size);
        assert_false(message_file_event_read(&reader, &read_event));
        out.data[0] = FILE_RENAMED;
        out.data[1] = 2;
        reader = reader_over(out.data, out.size);
        assert_false(message_file_event_read(&reader, &read_event));
        buffer_free(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_literals),
                cmocka_unit_test(test_find),
                cmocka_unit_test(test_replace),
                cmocka_unit_test(test_pattern_limits),
                cmocka_unit_test(test_small_stack),
                cmocka_unit_test(test_deep),
                cmocka_unit_test(test_root_kinds),
                cmocka_unit_test(test_messages),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
