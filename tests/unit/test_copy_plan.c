/* SPDX-License-Identifier: Apache-2.0 */

/* Docker's rules for `docker cp`, sentence by sentence. */
#include "box/copy_plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_rules(void **state)
{
        (void)state;
        static const struct {
                const char *source;
                bool from_folder;
                const char *target;
                enum copy_found found;
                int code; /* CUBBY_OK: what follows */
                const char *folder, *name;
        } rows[] = {
                /* a file, and the destination does not exist: it is created there */
                {"/src/file", false, "/dst/new", COPY_NOTHING, CUBBY_OK, "/dst", "new"},
                {"/src/file", false, "/new", COPY_NOTHING, CUBBY_OK, "/", "new"},
                /* ... and ends with a slash: the folder must exist */
                {"/src/file", false, "/dst/new/", COPY_NOTHING, CUBBY_E_NOT_FOUND, "", ""},
                {"/src/file", false, "/dst/new/.", COPY_NOTHING, CUBBY_E_NOT_FOUND, "", ""},
                /* ... and is a file: it is replaced */
                {"/src/file", false, "/dst/old", COPY_FILE, CUBBY_OK, "/dst", "old"},
                {"/src/file", false, "/dst/old/", COPY_FILE, CUBBY_E_INVALID, "", ""},
                /* ... and is a folder: into it, by its own name */
                {"/src/file", false, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", "file"},
                {"/src/file", false, "/dst/", COPY_FOLDER, CUBBY_OK, "/dst/", "file"},
                {"/src/file", false, "/", COPY_FOLDER, CUBBY_OK, "/", "file"},
                /* a folder, and the destination does not exist: it is made with the contents */
                {"/src/dir", true, "/dst/new", COPY_NOTHING, CUBBY_OK, "/dst", "new"},
                {"/src/dir", true, "/dst/new/", COPY_NOTHING, CUBBY_OK, "/dst", "new"},
                {"/src/dir/.", true, "/dst/new", COPY_NOTHING, CUBBY_OK, "/dst", "new"},
                {"/src/dir/", true, "/dst/new", COPY_NOTHING, CUBBY_OK, "/dst", "new"},
                /* ... and is a file: an error */
                {"/src/dir", true, "/dst/old", COPY_FILE, CUBBY_E_INVALID, "", ""},
                {"/src/dir/.", true, "/dst/old", COPY_FILE, CUBBY_E_INVALID, "", ""},
                /* ... and is a folder: into it, or with "/." only its contents */
                {"/src/dir", true, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", "dir"},
                {"/src/dir/", true, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", "dir"},
                {"/src/dir/.", true, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", ""},
                {"/.", true, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", ""},
                {"/", true, "/dst", COPY_FOLDER, CUBBY_OK, "/dst", ""},
                /* the parent is never made */
                {"/src/dir", true, "/none/new", COPY_NO_PARENT, CUBBY_E_NOT_FOUND, "", ""},
                {"/src/file", false, "/none/new", COPY_NO_PARENT, CUBBY_E_NOT_FOUND, "", ""},
                /* neither devices nor FIFOs are written to */
                {"/src/file", false, "/dev/null", COPY_OTHER, CUBBY_E_INVALID, "", ""},
                {"/src/dir", true, "/dev/null", COPY_OTHER, CUBBY_E_INVALID, "", ""},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                AUTO_COPY_PLAN struct copy_plan plan = {0};
                cubby_error err = {0};
                int result = copy_plan_make(rows[i].source, rows[i].from_folder, rows[i].target,
                        rows[i].target, rows[i].found, &plan, &err);
                if (result != (rows[i].code == CUBBY_OK ? 0 : -1) || err.code != rows[i].code)
                        fail_msg("row %zu: %s", i, err.message);
                if (result < 0) {
                        assert_int_not_equal(err.sys_errno, 0);
                        assert_null(plan.folder);
                        continue;
                }
                if (strcmp(plan.folder, rows[i].folder) != 0 ||
                        strcmp(plan.name, rows[i].name) != 0)
                        fail_msg("row %zu: '%s' '%s'", i, plan.folder, plan.name);
        }
}

static void test_a_linked_destination(void **state)
{
        (void)state;
        AUTO_COPY_PLAN struct copy_plan plan = {0};
        /* a link to nothing: what it leads to is made */
        assert_int_equal(copy_plan_make("/src/file", false, "/dst/link", "/other/made",
                                 COPY_NOTHING, &plan, NULL),
                0);
        assert_string_equal(plan.folder, "/other");
        assert_string_equal(plan.name, "made");
}

static void test_clean(void **state)
{
        (void)state;
        static const struct {
                const char *base, *path, *want;
        } rows[] = {
                {"/work", "a", "/work/a"},
                {"/work", "a/", "/work/a/"},
                {"/work", "a/.", "/work/a/."},
                {"/work", "./a", "/work/a"},
                {"/work", ".", "/work/."},
                {"/work", "./", "/work/"},
                {"/work", "", "/work"},
                {"/work", "..", "/."},
                {"/work/sub", "..", "/work"},
                {"/work", "/a//b/../c", "/a/c"},
                {"/work", "/", "/."},
                {"/work", "/..", "/."},
                {"/work", "/a/..", "/."},
                {"/", "a", "/a"},
                {"/work", "a..b", "/work/a..b"},
                {"/work", "...", "/work/..."},
                {"/work", "..a/.b", "/work/..a/.b"},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                AUTO_FREE char *clean = copy_clean(rows[i].base, rows[i].path);
                assert_non_null(clean);
                assert_string_equal(clean, rows[i].want);
        }
}

static void test_split(void **state)
{
        (void)state;
        static const struct {
                const char *path, *folder, *name;
        } rows[] = {
                {"/a/b", "/a", "b"},
                {"/a/b/", "/a", "b"},
                {"/a/b/.", "/a", "b"},
                {"/a", "/", "a"},
                {"/", "/", ""},
                {"/.", "/", ""},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                AUTO_FREE char *folder = NULL;
                AUTO_FREE char *name = NULL;
                assert_int_equal(copy_split(rows[i].path, &folder, &name, NULL), 0);
                assert_string_equal(folder, rows[i].folder);
                assert_string_equal(name, rows[i].name);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rules),
                cmocka_unit_test(test_a_linked_destination),
                cmocka_unit_test(test_clean),
                cmocka_unit_test(test_split),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
