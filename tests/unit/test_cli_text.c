/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/copy_bar.h"
#include "cli/capture.h"
#include "cli/format.h"
#include "cli/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const struct command *const commands[] = {NULL};

static void test_escape(void **state)
{
        static const struct {
                const char *text;
                bool keep_lines;
                const char *escaped;
        } rows[] = {
                {"plain", false, "plain"},
                {"", false, ""},
                {"\xc3\xbcn\xc3\xaf", false, "\xc3\xbcn\xc3\xaf"},
                {"\xf0\x9f\x90\xbb", false, "\xf0\x9f\x90\xbb"},
                {"a\033[31mb", false, "a\\x1b[31mb"},
                {"a\nb\tc", false, "a\\nb\\tc"},
                {"a\nb\tc", true, "a\nb\tc"},
                {"a\rb", true, "a\\x0db"},
                {"bell\a", false, "bell\\x07"},
                {"\x7f", false, "\\x7f"},
                {"\xc2\x9b"
                 "31m",
                        false, "\\xc2\\x9b31m"},
                {"\xff\xfe", false, "\\xff\\xfe"},
                {"\xc3", false, "\\xc3"},
                {"\xc0\xaf", false, "\\xc0\\xaf"},
                {"\xe0\x80\xaf", false, "\\xe0\\x80\\xaf"},
                {"\xed\xa0\x80", false, "\\xed\\xa0\\x80"},
                {"\xf4\x90\x80\x80", false, "\\xf4\\x90\\x80\\x80"},
                {"\xf0\x9f\x90", false, "\\xf0\\x9f\\x90"},
        };

        for (size_t i = 0; i < COUNT(rows); i++) {
                char *escaped = text_escape(rows[i].text, rows[i].keep_lines);

                assert_non_null(escaped);
                assert_string_equal(escaped, rows[i].escaped);
                free(escaped);
        }
}

static void test_shorten(void **state)
{
        static const struct {
                const char *text;
                size_t width;
                const char *shortened;
        } rows[] = {
                {"abc", 3, "abc"},
                {"abcd", 3, "ab\xe2\x80\xa6"},
                {"\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 3, "\xc3\xbc\xc3\xbc\xe2\x80\xa6"},
                {"\xc3\xbc\xc3\xbc\xc3\xbc", 3, "\xc3\xbc\xc3\xbc\xc3\xbc"},
                {"", 1, ""},
        };

        for (size_t i = 0; i < COUNT(rows); i++) {
                char *shortened = text_shorten(rows[i].text, rows[i].width);

                assert_string_equal(shortened, rows[i].shortened);
                free(shortened);
        }
}

static void test_table(void **state)
{
        struct table table;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        table_init(&table, 2);
        table_add(&table, "NAME");
        table_add(&table, "STATE");
        table_add(&table, "\xc3\xbc\033");
        table_add(&table, "up\nFAKE");
        assert_true(table_print(&table, out));
        table_clear(&table);
        assert_int_equal(fclose(out), 0);
        assert_string_equal(text, "NAME    STATE\n\xc3\xbc\\x1b   up\\nFAKE\n");
        free(text);
}

static void test_templates(void **state)
{
        static const struct {
                const char *text;
                size_t parts;      /* 0: refused */
                const char *field; /* of the last part */
                const char *last;  /* its text, when it is none */
        } rows[] = {
                {"{{.ID}}", 1, "ID", NULL},
                {"{{ .ID }}", 1, "ID", NULL},
                {"{{.}}", 1, "", NULL},
                {"{{json .}}", 1, "", NULL},
                {"{{json .A.B}}", 1, "A.B", NULL},
                {"{{.A.B.0}}", 1, "A.B.0", NULL},
                {"{{.ID}} {{.Names}}", 3, "Names", NULL},
                {"{{.ID}}\\t", 2, NULL, "\t"},
                {"{{.ID}}\\n\\\\x", 2, NULL, "\n\\x"},
                {"a}}b", 1, NULL, "a}}b"},
                {"{{", 0, NULL, NULL},
                {"{{.ID", 0, NULL, NULL},
                {"{{.ID}", 0, NULL, NULL},
                {"{{}}", 0, NULL, NULL},
                {"{{ID}}", 0, NULL, NULL},
                {"{{.ID.}}", 0, NULL, NULL},
                {"{{.I D}}", 0, NULL, NULL},
                {"{{json}}", 0, NULL, NULL},
                {"{{json ID}}", 0, NULL, NULL},
                {"{{range .}}", 0, NULL, NULL},
                {"{{.ID | upper}}", 0, NULL, NULL},
                {"{{.ID}}{{", 0, NULL, NULL},
                {"{{.A}}{{.B}}{{(.C)}}", 0, NULL, NULL},
                {"{{{{.ID}}}}", 0, NULL, NULL},
        };

        for (size_t i = 0; i < COUNT(rows); i++) {
                struct template template = {(struct template_part *)(uintptr_t)8, 99};
                const char *problem = NULL;
                bool good = template_parse(rows[i].text, &template, &problem);

                if (good != (rows[i].parts > 0))
                        fail_msg("'%s'", rows[i].text);
                if (!good) {
                        assert_non_null(problem);
                        assert_int_equal(template.count, 99);
                        continue;
                }
                assert_int_equal(template.count, rows[i].parts);
                if (rows[i].field != NULL)
                        assert_string_equal(
                                template.parts[template.count - 1].field, rows[i].field);
                else
                        assert_string_equal(template.parts[template.count - 1].text, rows[i].last);
                template_clear(&template);
        }
}

static void test_template_has_a_ceiling(void **state)
{
        struct template template = {0};
        const char *problem = NULL;
        char text[257 * 6 + 1] = "";

        for (size_t i = 0; i < 257; i++)
                memcpy(text + i * 6, "{{.A}}", 6);
        assert_false(template_parse(text, &template, &problem));
        text[(size_t)256 * 6] = '\0';
        assert_true(template_parse(text, &template, &problem));
        assert_int_equal(template.count, 256);
        template_clear(&template);
}

static void test_capture(void **state)
{
        struct capture capture = {0};
        char *block = calloc(1, 1U << 20);
        json_t *object = json_object();

        assert_non_null(block);
        assert_true(capture_add(&capture, 1, "text \xc3\xbc", 7));
        assert_true(capture_add(&capture, 2, "\xff\x00\x01", 3));
        assert_true(capture_to_json(&capture, object));
        assert_string_equal(json_string_value(json_object_get(object, "stdout")), "text \xc3\xbc");
        assert_null(json_object_get(object, "stderr"));
        assert_string_equal(json_string_value(json_object_get(object, "stderr_base64")), "/wAB");
        assert_true(json_is_false(json_object_get(object, "truncated")));
        for (size_t i = 0; i < 20; i++)
                assert_true(capture_add(&capture, 1, block, 1U << 20));
        assert_int_equal(capture.streams[0].size, CAPTURE_BYTES_MAX);
        assert_int_equal(capture.streams[0].total, (20U << 20) + 7);
        assert_true(capture_to_json(&capture, object));
        assert_true(json_is_true(json_object_get(object, "truncated")));
        json_decref(object);
        capture_clear(&capture);
        free(block);
}

static void copies_show_how_far_they_are(void **state)
{
        (void)state;
        static const struct {
                int columns;
                uint64_t bytes, total, files;
                const char *want;
        } rows[] = {
                {79, 0, 0, 0, "copied 0B 0B/s, 0 files"},
                {79, 3 << 20, 0, 1, "copied 3.00MiB 3.00MiB/s, 1 file"},
                {60, 16 << 20, 64 << 20, 2,
                        "copied 16.0MiB of 64.0MiB  25% [==>     ] 16.0MiB/s, 2 files"},
                {60, 64 << 20, 64 << 20, 2,
                        "copied 64.0MiB of 64.0MiB 100% [========] 64.0MiB/s, 2 files"},
                {20, 64 << 20, 32 << 20, 2, "copied 64.0MiB of 64.0MiB 100% 64.0MiB/s, 2 files"},
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                char text[400];

                copy_bar_text(text, sizeof(text), rows[i].columns, rows[i].bytes, rows[i].total,
                        rows[i].files, 1000);
                assert_string_equal(text, rows[i].want);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(copies_show_how_far_they_are),
                cmocka_unit_test(test_escape),
                cmocka_unit_test(test_shorten),
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_templates),
                cmocka_unit_test(test_template_has_a_ceiling),
                cmocka_unit_test(test_capture),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
