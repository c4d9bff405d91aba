/* SPDX-License-Identifier: Apache-2.0 */

/* File calls through the library, on the fake engine's files. */
#include "place.h"

#include <errno.h>

#define MIB (1U << 20)

static void put(cubby_box *box, const char *path, const void *data, size_t size)
{
        cubby_error err = {0};
        assert_int_equal(fine(cubby_file_write(box, path, data, size, NULL, &err), &err), 0);
}

static void assert_content(cubby_box *box, const char *path, const void *want, size_t size)
{
        cubby_error err = {0};
        void *data = NULL;
        size_t got = 0;
        assert_int_equal(fine(cubby_file_read(box, path, 0, 0, NULL, &data, &got, &err), &err), 0);
        assert_int_equal(got, size);
        assert_memory_equal(data, want, size);
        assert_int_equal(((char *)data)[size], '\0');
        cubby_free(data);
}

static uint8_t *noise(size_t size)
{
        uint8_t *bytes = malloc(size);
        uint32_t seed = 99;
        assert_non_null(bytes);
        for (size_t i = 0; i < size; i++) {
                seed = seed * 1664525 + 1013904223;
                bytes[i] = (uint8_t)(seed >> 24);
        }
        return bytes;
}

static void test_whole_files(void **state)
{
        static const size_t sizes[] = {0, 1, 32767, 32768, 65536, MIB, 3 * MIB + 5};
        cubby_box *box = place_box(*state, "files", NULL, 1);
        uint8_t *data = noise(3 * MIB + 5);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                put(box, "/d/f", data, sizes[i]);
                assert_content(box, "/d/f", data, sizes[i]);
        }
        cubby_error err = {0};
        void *part = NULL;
        size_t got = 0;
        assert_int_equal(cubby_file_read(box, "d/f", MIB, 1000, NULL, &part, &got, &err), 0);
        assert_int_equal(got, 1000);
        assert_memory_equal(part, data + MIB, 1000);
        cubby_free(part);
        char *text = NULL;
        put(box, "/lines", "one\r\ntwo\nthree\n", 15);
        assert_int_equal(cubby_file_read_lines(box, "/lines", 1, 2, NULL, &text, &got, &err), 0);
        assert_string_equal(text, "one\ntwo");
        assert_int_equal(got, 7);
        cubby_free(text);
        assert_int_equal(cubby_file_read_lines(box, "/lines", 4, 0, NULL, &text, &got, &err), 0);
        assert_string_equal(text, "");
        cubby_free(text);
        free(data);
        remove_box(box);
}

static void test_streams(void **state)
{
        cubby_box *box = place_box(*state, "streams", NULL, 1);
        cubby_error err = {0};
        cubby_file *file = NULL;
        uint8_t *data = noise(5 * MIB);
        put(box, "/f", "old", 3);
        assert_int_equal(fine(cubby_file_open_write(box, "/f", NULL, &file, &err), &err), 0);
        assert_int_equal(cubby_file_put(file, data, 3 * MIB, SOON_MS, &err), 3 * MIB);
        assert_int_equal(cubby_file_put(file, "", 0, SOON_MS, &err), 0);
        cubby_file_close(file); /* not committed */
        assert_content(box, "/f", "old", 3);

        assert_int_equal(cubby_file_open_write(box, "/f", NULL, &file, &err), 0);
        assert_int_equal(cubby_file_next(file, data, 1, 0, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        for (size_t at = 0; at < 5 * MIB; at += 100000) {
                size_t piece = 5 * MIB - at < 100000 ? 5 * MIB - at : 100000;
                assert_int_equal(cubby_file_put(file, data + at, piece, SOON_MS, &err), piece);
        }
        assert_int_equal(fine(cubby_file_commit(file, SOON_MS, &err), &err), 0);
        assert_int_equal(cubby_file_put(file, "x", 1, SOON_MS, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_file_commit(file, SOON_MS, &err), -1);
        cubby_file_close(file);

        uint8_t *back = malloc(5 * MIB);
        size_t size = 0;
        int64_t got;
        assert_non_null(back);
        assert_int_equal(cubby_file_open_read(box, "/f", 0, NULL, &file, &err), 0);
        assert_int_equal(cubby_file_put(file, "x", 1, 0, &err), -1);
        while ((got = cubby_file_next(file, back + size, 77777, SOON_MS, &err)) > 0)
                size += (size_t)got;
        assert_int_equal(got, 0);
        assert_int_equal(cubby_file_next(file, back, 10, SOON_MS, &err), 0);
        assert_int_equal(size, 5 * MIB);
        assert_memory_equal(back, data, size);
        cubby_file_close(file);
        /* left in the middle */
        assert_int_equal(cubby_file_open_read(box, "/f", 4, NULL, &file, &err), 0);
        assert_int_equal(cubby_file_next(file, back, 10, SOON_MS, &err), 10);
        assert_memory_equal(back, data + 4, 10);
        cubby_file_close(file);
        /* ... which keeps nobody waiting */
        cubby_write_options how = CUBBY_INIT(cubby_write_options);
        how.file.timeout_ms = SOON_MS;
        for (int i = 0; i < 20; i++) {
                assert_int_equal(cubby_file_open_read(box, "/f", 0, NULL, &file, &err), 0);
                cubby_file_close(file);
                assert_int_equal(
                        fine(cubby_file_open_write(box, "/g", &how, &file, &err), &err), 0);
                cubby_file_close(file);
        }
        cubby_file_close(NULL);
        free(back);
        free(data);
        remove_box(box);
}

static void test_lists(void **state)
{
        cubby_box *box = place_box(*state, "lists", NULL, 1);
        cubby_list_options options = CUBBY_INIT(cubby_list_options);
        cubby_file_list *list = NULL;
        cubby_error err = {0};
        put(box, "/d/b/x", "1", 1);
        put(box, "/d/a", "22", 2);
        options.depth = 5;
        assert_int_equal(cubby_file_list_folder(box, "/d//", &options, &list, &err), 0);
        static const char *const want[] = {"/d", "/d/a", "/d/b", "/d/b/x"};
        assert_int_equal(list->count, 4);
        assert_false(list->truncated);
        for (size_t i = 0; i < 4; i++)
                assert_string_equal(list->files[i].path, want[i]);
        assert_int_equal(list->files[1].bytes, 2);
        assert_int_equal(list->files[2].type, CUBBY_FILE_FOLDER);
        cubby_file_list_free(list);
        options.max_entries = 2;
        assert_int_equal(cubby_file_list_folder(box, "/d", &options, &list, &err), 0);
        assert_int_equal(list->count, 2);
        assert_true(list->truncated);
        cubby_file_list_free(list);
        cubby_file_list_free(NULL);
        options.max_entries = 100001;
        assert_int_equal(cubby_file_list_folder(box, "/d", &options, &list, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.max_entries = 0;
        options.depth = -1;
        assert_int_equal(cubby_file_list_folder(box, "/d", &options, &list, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        remove_box(box);
}

static void test_errors(void **state)
{
        cubby_box *box = place_box(*state, "errors", NULL, 1);
        cubby_error err = {0};
        cubby_file_info info = {0};
        void *data = NULL;
        size_t size = 0;
        char long_path[5000];
        put(box, "/d/f", "x", 1);
        memset(long_path, 'x', sizeof long_path - 1);
        long_path[sizeof long_path - 1] = '\0';
        static const struct {
                const char *path; /* NULL: the long one */
                int code, number;
        } rows[] = {
                {"/none", CUBBY_E_NOT_FOUND, ENOENT},
                {"/d", CUBBY_E_INVALID, EISDIR},
                {"/d/f/x", CUBBY_E_INVALID, ENOTDIR},
                {"", CUBBY_E_INVALID, 0},
                {NULL, CUBBY_E_INVALID, ENAMETOOLONG},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                const char *path = rows[i].path != NULL ? rows[i].path : long_path;
                assert_int_equal(cubby_file_read(box, path, 0, 0, NULL, &data, &size, &err), -1);
                assert_int_equal(err.code, rows[i].code);
                assert_int_equal(err.sys_errno, rows[i].number);
                assert_null(data);
        }
        cubby_write_options write = CUBBY_INIT(cubby_write_options);
        write.exclusive = true;
        assert_int_equal(cubby_file_write(box, "/d/f", "y", 1, &write, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        write.append = true;
        assert_int_equal(cubby_file_write(box, "/d/f", "y", 1, &write, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        write = CUBBY_INIT(cubby_write_options);
        write.mode = 010000;
        assert_int_equal(cubby_file_write(box, "/d/f", "y", 1, &write, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        how.timeout_ms = -1;
        assert_int_equal(cubby_file_stat(box, "/d/f", false, &how, &info, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(cubby_file_stat(box, NULL, false, NULL, &info, &err), -1);
        assert_int_equal(cubby_file_stat(NULL, "/", false, NULL, &info, &err), -1);
        assert_int_equal(cubby_file_make_folder(box, "/x", 010000, false, NULL, &err), -1);
        assert_int_equal(cubby_file_rename(box, "/d/f", "/d/f2", false, NULL, &err), 0);
        assert_int_equal(cubby_file_make_folder(box, "/d/e", 0700, false, NULL, &err), 0);
        assert_int_equal(cubby_file_stat(box, "/d/e", false, NULL, &info, &err), 0);
        assert_int_equal(info.mode, 0700);
        assert_string_equal(info.path, "/d/e");
        cubby_file_info_clear(&info);
        assert_int_equal(cubby_file_remove(box, "/d", false, NULL, &err), -1);
        assert_int_equal(err.sys_errno, ENOTEMPTY);
        assert_int_equal(cubby_file_remove(box, "/d", true, NULL, &err), 0);
        remove_box(box);
}

/* A box that stands still, or is gone: the call's time limit, or why. */
static void test_boxes_that_do_not_answer(void **state)
{
        cubby_box *box = place_box(*state, "still", NULL, 1);
        cubby_file_options how = CUBBY_INIT(cubby_file_options);
        cubby_file *file = NULL;
        cubby_error err = {0};
        cubby_file_info info = {0};
        put(box, "/f", "x", 1);
        how.timeout_ms = 300;
        assert_int_equal(cubby_file_open_write(box, "/g", NULL, &file, &err), 0);
        assert_int_equal(cubby_box_pause(box, &err), 0);
        int64_t begun = now_ms();
        assert_int_equal(cubby_file_commit(file, 200, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(now_ms() - begun < 5000);
        assert_int_equal(cubby_file_stat(box, "/f", false, &how, &info, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_unpause(box, &err), 0);
        assert_int_equal(fine(cubby_file_commit(file, SOON_MS, &err), &err), 0);
        cubby_file_close(file);
        assert_int_equal(cubby_file_open_write(box, "/g", NULL, &file, &err), 0);
        assert_int_equal(cubby_box_kill(box, 9, &err), 0);
        assert_int_equal(cubby_file_commit(file, SOON_MS, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BOX_DEAD);
        cubby_file_close(file);
        assert_int_equal(cubby_file_stat(box, "/f", false, NULL, &info, &err), -1);
        remove_box(box);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_whole_files),
                WITH_PLACE(test_streams),
                WITH_PLACE(test_lists),
                WITH_PLACE(test_errors),
                WITH_PLACE(test_boxes_that_do_not_answer),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
