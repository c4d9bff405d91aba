/* SPDX-License-Identifier: Apache-2.0 */

/* cubby/copy.h over the fake engine, with nothing of the library but its exports. */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (3U * 1024 * 1024 + 17)

static char *here(const struct place *place, const char *name)
{
        char *path = NULL;
        assert_true(asprintf(&path, "%s/%s", place->path, name) > 0);
        return path;
}

static uint8_t byte_at(size_t i)
{
        return (uint8_t)(i * 131 + i / 4096);
}

/* work/dir with a large file, a link and a second name. */
static void lay_out(const struct place *place)
{
        char *dir = here(place, "work");
        char *bytes = malloc(SIZE);
        assert_non_null(bytes);
        for (size_t i = 0; i < SIZE; i++)
                bytes[i] = (char)byte_at(i);
        assert_int_equal(mkdir(dir, 0755), 0);
        int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(at, "dir", 0750), 0);
        int fd = openat(at, "dir/large", O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
        assert_int_equal(write(fd, bytes, SIZE), SIZE);
        assert_int_equal(symlinkat("large", at, "dir/link"), 0);
        assert_int_equal(linkat(at, "dir/large", at, "dir/same", 0), 0);
        (void)close(fd);
        (void)close(at);
        free(bytes);
        free(dir);
}

static void expect_copy(const char *folder)
{
        struct stat info;
        struct stat same;
        char target[16] = "";
        uint8_t *bytes = malloc(SIZE);
        int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(at >= 0 && bytes != NULL);
        assert_int_equal(fstat(at, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0750);
        assert_int_equal(fstatat(at, "large", &info, 0), 0);
        assert_int_equal(fstatat(at, "same", &same, 0), 0);
        assert_true(info.st_ino == same.st_ino && info.st_size == SIZE);
        assert_int_equal(info.st_mode & 07777, 0640);
        assert_int_equal(readlinkat(at, "link", target, sizeof target), 5);
        int fd = openat(at, "large", O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, bytes, SIZE), SIZE);
        for (size_t i = 0; i < SIZE; i++)
                if (bytes[i] != byte_at(i))
                        fail_msg("byte %zu", i);
        (void)close(fd);
        (void)close(at);
        free(bytes);
}

static void test_there_back_and_between(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *one = place_box(place, "one", NULL, 1);
        cubby_box *two = place_box(place, "two", NULL, 1);
        char *source = here(place, "work/dir");
        char *back = here(place, "work/back");
        char *again = here(place, "work/again");
        lay_out(place);
        assert_int_equal(fine(cubby_copy_in(one, source, "/copy", NULL, &err), &err), 0);
        assert_int_equal(fine(cubby_copy_out(one, "copy", back, NULL, &err), &err), 0);
        expect_copy(back);
        assert_int_equal(
                fine(cubby_copy_between(one, "/copy", two, "/other", NULL, &err), &err), 0);
        assert_int_equal(fine(cubby_copy_out(two, "/other", again, NULL, &err), &err), 0);
        expect_copy(again);
        free(source);
        free(back);
        free(again);
        remove_box(one);
        remove_box(two);
}

static void test_archives(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "box", NULL, 1);
        char *source = here(place, "work/dir");
        char *archive = here(place, "work/archive");
        char *back = here(place, "work/back");
        lay_out(place);
        assert_int_equal(fine(cubby_copy_in(box, source, "/copy", NULL, &err), &err), 0);
        int fd = open(archive, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(fine(cubby_tar_out(box, "/copy", fd, NULL, &err), &err), 0);
        assert_int_equal(cubby_file_make_folder(box, "/in", 0755, false, NULL, &err), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(fine(cubby_tar_in(box, fd, "/in", NULL, &err), &err), 0);
        assert_int_equal(fine(cubby_copy_out(box, "/in/copy", back, NULL, &err), &err), 0);
        expect_copy(back);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(cubby_tar_in(box, fd, "/none", NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(err.sys_errno, ENOENT);
        assert_int_equal(cubby_tar_in(box, fd, "/copy/large", NULL, &err), -1);
        assert_int_equal(err.sys_errno, ENOTDIR);
        (void)close(fd);
        static const int closed[] = {-1, 987654};
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(cubby_tar_out(box, "/copy", closed[i], NULL, &err), -1);
                assert_int_equal(err.sys_errno, EBADF);
                assert_int_equal(cubby_tar_in(box, closed[i], "/in", NULL, &err), -1);
                assert_int_equal(err.sys_errno, EBADF);
        }
        free(source);
        free(archive);
        free(back);
        remove_box(box);
}

struct seen {
        unsigned calls;
        bool go_on;
};

static bool note(void *data, uint64_t bytes, uint64_t total, uint64_t files)
{
        struct seen *seen = data;
        (void)files;
        assert_true(bytes <= SIZE * 4ULL && total <= SIZE * 4ULL);
        seen->calls++;
        return seen->go_on;
}

static void test_options(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "box", NULL, 1);
        cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
        char *source = here(place, "work/dir");
        lay_out(place);
        assert_int_equal(cubby_copy_in(NULL, source, "/x", NULL, &err), -1);
        assert_int_equal(cubby_copy_in(box, NULL, "/x", NULL, &err), -1);
        assert_int_equal(cubby_copy_in(box, source, NULL, NULL, &err), -1);
        assert_int_equal(cubby_copy_out(box, NULL, source, NULL, &err), -1);
        assert_int_equal(cubby_copy_between(box, "/x", NULL, "/y", NULL, &err), -1);
        assert_int_equal(cubby_copy_in(box, "", "/x", NULL, &err), -1);
        assert_int_equal(cubby_copy_in(box, source, "", NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.archive = true;
        options.owner = "0:0";
        assert_int_equal(cubby_copy_in(box, source, "/x", &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.archive = false;
        assert_int_equal(cubby_copy_out(box, "/x", source, &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.owner = NULL;
        options.file.timeout_ms = -1;
        assert_int_equal(cubby_copy_in(box, source, "/x", &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.file.timeout_ms = 0;
        options.size = 3;
        assert_int_equal(cubby_copy_in(box, source, "/x", &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        options.size = sizeof options;
        struct seen seen = {.go_on = true};
        options.progress = note;
        options.progress_data = &seen;
        assert_int_equal(fine(cubby_copy_in(box, source, "/x", &options, &err), &err), 0);
        free(source);
        remove_box(box);
}

/* A pipe that nobody writes to is waited for as long as the caller wishes. */
static void test_given_up(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "box", NULL, 1);
        cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
        struct seen seen = {.go_on = false};
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        options.progress = note;
        options.progress_data = &seen;
        int64_t begun = now_ms();
        assert_int_equal(cubby_tar_in(box, ends[0], "/", &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CANCELLED);
        assert_int_equal(seen.calls, 1);
        options.progress = NULL;
        options.file.timeout_ms = 300;
        assert_int_equal(cubby_tar_in(box, ends[0], "/", &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(now_ms() - begun < SOON_MS);
        (void)close(ends[0]);
        (void)close(ends[1]);
        remove_box(box);
}

static void test_states(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "box", NULL, 0);
        assert_int_equal(cubby_copy_in(box, place->path, "/x", NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_copy_out(box, "/", place->path, NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        remove_box(box);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_there_back_and_between),
                WITH_PLACE(test_archives),
                WITH_PLACE(test_options),
                WITH_PLACE(test_given_up),
                WITH_PLACE(test_states),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
