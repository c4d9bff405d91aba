/* SPDX-License-Identifier: Apache-2.0 */
/* The home folder: where it is, who may use it, its locks and temporaries. */
#include "base/clock.h"
#include "base/fd.h"
#include "state_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_home_paths(void **state)
{
        struct place *place = *state;
        struct stat info;
        assert_int_equal(fstat(home_folder(place->home, HOME_ROOT), &info), 0);
        assert_int_equal(info.st_mode & 0777, 0700);
        assert_string_equal(home_path(place->home), place->path);
        char with_slash[80];
        (void)snprintf(with_slash, sizeof with_slash, "%s//", place->path);
        struct home *again = NULL;
        assert_int_equal(home_open(with_slash, NULL, &again, NULL), 0);
        assert_string_equal(home_path(again), place->path);
        home_close(again);
}

static void test_home_refused(void **state)
{
        struct place *place = *state;
        char inner[100];
        struct home *home = NULL;
        cubby_error err = {0};
        (void)snprintf(inner, sizeof inner, "%s/open", place->path);
        assert_int_equal(mkdir(inner, 0700), 0);
        assert_int_equal(chmod(inner, 0777), 0);
        assert_int_equal(home_open(inner, NULL, &home, &err), -1);
        assert_int_equal(err.code, CUBBY_E_PERMISSION);

        char link[100];
        (void)snprintf(link, sizeof link, "%s/link", place->path);
        assert_int_equal(symlink(place->path, link), 0);
        assert_int_equal(home_open(link, NULL, &home, &err), -1);
        (void)snprintf(link, sizeof link, "%s/link/", place->path);
        assert_int_equal(home_open(link, NULL, &home, &err), -1);

        (void)snprintf(inner, sizeof inner, "%s/file", place->path);
        int fd = open(inner, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(close(fd), 0);
        assert_int_equal(home_open(inner, NULL, &home, &err), -1);
        assert_int_equal(home_open("", NULL, &home, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_null(home);
}

static void test_default_paths(void **state)
{
        static const struct {
                const char *home, *data, *user;
                const char *want; /* beneath the test's folder; NULL: refused */
        } rows[] = {
                {"@/named", NULL, NULL, "@/named"},
                {"relative", NULL, NULL, NULL},
                {"./x", "@/data", NULL, NULL},
                {"@/a/b/c", "@/data", "@/me", "@/a/b/c"},
        };
        struct place *place = *state;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                char text[200];
                char want[200] = "";
                (void)snprintf(text, sizeof text, "%s%s", rows[i].home[0] == '@' ? place->path : "",
                        rows[i].home + (rows[i].home[0] == '@'));
                if (rows[i].want != NULL)
                        (void)snprintf(want, sizeof want, "%s%s", place->path, rows[i].want + 1);
                assert_int_equal(setenv("CUBBY_HOME", text, 1), 0);
                struct home *home = NULL;
                cubby_error err = {0};
                int result = home_open(NULL, NULL, &home, &err);
                assert_int_equal(result, rows[i].want == NULL ? -1 : 0);
                if (result == 0)
                        assert_string_equal(home_path(home), want);
                else
                        assert_int_equal(err.code, CUBBY_E_INVALID);
                home_close(home);
        }
        assert_int_equal(unsetenv("CUBBY_HOME"), 0);
}

static void test_locks(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        cubby_error err = {0};
        int first = -1;
        int second = -1;
        assert_int_equal(home_lock(home, "work", true, 0, &first, &err), 0);
        int64_t before = clock_monotonic_ms();
        assert_int_equal(home_lock(home, "work", false, deadline_after_ms(60), &second, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(clock_monotonic_ms() - before >= 60);
        assert_int_equal(second, -1);
        close_quietly(first);
        assert_int_equal(home_lock(home, "work", false, 0, &first, &err), 0);
        assert_int_equal(home_lock(home, "work", false, 0, &second, &err), 0);
        close_quietly(first);
        close_quietly(second);
        static const char *const bad[] = {"", "a/b", "..", ".hidden", "a b", "\n", "../x"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                assert_int_equal(home_lock(home, bad[i], true, 0, &first, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
}

/* The lock of a killed process is free. */
static void test_lock_of_killed(void **state)
{
        struct place *place = *state;
        int ready[2];
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                int lock = -1;
                char name[32];
                int dir = -1;
                int dir_lock = -1;
                if (home_lock(place->home, "mine", true, 0, &lock, NULL) == 0 &&
                        home_make_temporary(place->home, name, &dir, &dir_lock, NULL) == 0)
                        (void)!write(ready[1], "x", 1);
                for (;;)
                        (void)pause();
        }
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        uint64_t freed = 1;
        assert_int_equal(home_sweep(place->home, &freed, NULL), 0);
        assert_int_equal(freed, 0); /* its maker lives */
        int lock = -1;
        assert_int_equal(home_lock(place->home, "mine", true, 0, &lock, NULL), -1);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(home_lock(place->home, "mine", true, 0, &lock, NULL), 0);
        close_quietly(lock);
        assert_int_equal(home_sweep(place->home, &freed, NULL), 0);
        assert_true(freed > 0);
        (void)close(ready[0]);
        (void)close(ready[1]);
}

/* A worker that the embedding program forks off has all descriptors, and holds nothing. */
static void test_locks_and_forks(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        char name[32];
        int dir = -1;
        int dir_lock = -1;
        int lock = -1;
        uint64_t freed = 0;
        assert_int_equal(home_lock(home, "work", true, 0, &lock, NULL), 0);
        assert_int_equal(home_make_temporary(home, name, &dir, &dir_lock, NULL), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void)alarm(60);
                for (;;)
                        (void)pause();
        }
        home_unlock(lock);
        home_unlock(dir_lock);
        close_quietly(dir);
        int again = home_lock(home, "work", true, 0, &lock, NULL);
        int swept = home_sweep(home, &freed, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(again, 0);
        assert_int_equal(swept, 0);
        assert_int_equal(faccessat(home_folder(home, HOME_TMP), name, F_OK, 0), -1);
        home_unlock(lock);
        home_unlock(-1);
}

static void check_modes(int dir_fd, const char *name, bool *ret_seen)
{
        struct stat info;
        assert_int_equal(fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW), 0);
        mode_t wanted = S_ISDIR(info.st_mode) ? 0700 : 0600;
        if ((info.st_mode & 0777) != wanted)
                fail_msg("'%s' has the mode %04o", name, info.st_mode & 07777);
        if (!S_ISDIR(info.st_mode))
                return;
        *ret_seen = true;
        int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fdopendir(fd);
        assert_non_null(dir);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        check_modes(dirfd(dir), entry->d_name, ret_seen);
}

/* Whatever the umask of the embedding program, an owner can use his home again. */
static void test_odd_umask(void **state)
{
        struct place *place = *state;
        char path[100];
        (void)snprintf(path, sizeof path, "%s/parent/home", place->path);
        static const mode_t masks[] = {0777, 0};
        for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
                struct home *home = NULL;
                char name[32];
                int dir = -1;
                int dir_lock = -1;
                int lock = -1;
                mode_t before = umask(masks[i]);
                cubby_error err = {0};
                int result = home_open(path, NULL, &home, &err);
                if (result == 0) {
                        put_image(home, IMAGE, "a:1", 10);
                        result = home_lock(home, "mine", true, 0, &lock, &err) |
                                home_make_temporary(home, name, &dir, &dir_lock, &err);
                }
                (void)umask(before);
                if (result < 0)
                        fail_msg("umask %04o: %s", masks[i], err.message);
                bool seen = false;
                check_modes(AT_FDCWD, path, &seen);
                assert_true(seen);
                home_unlock(lock);
                home_unlock(dir_lock);
                close_quietly(dir);
                home_close(home);
                assert_int_equal(home_open(path, NULL, &home, &err), 0);
                home_close(home);
                assert_int_equal(dir_remove_at(AT_FDCWD, path, &err), 0);
        }
}

/* A leftover that cannot be removed (it is too deep) keeps nobody out. */
static void test_stubborn_leftover(void **state)
{
        struct place *place = *state;
        int tmp = home_folder(place->home, HOME_TMP);
        int fds[100];
        uint64_t freed = 0;
        assert_int_equal(mkdirat(tmp, "w-deep", 0700), 0);
        fds[0] = openat(tmp, "w-deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (size_t i = 1; i < 100; i++) {
                assert_int_equal(mkdirat(fds[i - 1], "d", 0700), 0);
                fds[i] = openat(fds[i - 1], "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(fds[i] >= 0);
        }
        (void)close(openat(tmp, "v-plain", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        (void)close(openat(tmp, "x-plain", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        assert_int_equal(home_sweep(place->home, &freed, NULL), 0);
        assert_int_equal(faccessat(tmp, "v-plain", F_OK, 0), -1);
        assert_int_equal(faccessat(tmp, "x-plain", F_OK, 0), -1);
        assert_int_equal(faccessat(tmp, "w-deep", F_OK, 0), 0);
        for (size_t i = 99; i > 0; i--) {
                close_quietly(fds[i]);
                assert_int_equal(unlinkat(fds[i - 1], "d", AT_REMOVEDIR), 0);
        }
        close_quietly(fds[0]);
}

/* What a killed writer of a record leaves beside it. */
static void test_drafts(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        int images = home_folder(home, HOME_IMAGES);
        static const char draft[] = "." HEX64 ".json.0123456789abcdef.tmp";
        uint64_t freed = 0;
        int lock = -1;
        put_image(home, IMAGE, "a:1", 10);
        (void)close(openat(images, draft, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        assert_int_equal(home_lock(home, "db", false, 0, &lock, NULL), 0); /* as a writer does */
        assert_int_equal(home_sweep(home, &freed, NULL), 0);
        assert_int_equal(faccessat(images, draft, F_OK, 0), 0);
        home_unlock(lock);
        assert_int_equal(home_sweep(home, &freed, NULL), 0);
        assert_int_equal(faccessat(images, draft, F_OK, 0), -1);
        assert_int_equal(faccessat(images, HEX64 ".json", F_OK, 0), 0);
}

static void test_temporary(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        char name[32];
        int dir = -1;
        int lock = -1;
        uint64_t freed = 0;
        assert_int_equal(home_make_temporary(home, name, &dir, &lock, NULL), 0);
        int fd = openat(dir, "data", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        char block[8192];
        memset(block, 'x', sizeof block);
        assert_int_equal(write_whole(fd, block, sizeof block), 0);
        (void)close(fd);
        assert_int_equal(home_sweep(home, &freed, NULL), 0);
        assert_int_equal(freed, 0);
        assert_int_equal(faccessat(home_folder(home, HOME_TMP), name, F_OK, 0), 0);
        close_quietly(lock);
        close_quietly(dir);
        /* a plain file and a link are leftovers too; the link's target is not touched */
        fd = openat(home_folder(home, HOME_TMP), "plain", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        (void)close(fd);
        assert_int_equal(symlinkat(place->path, home_folder(home, HOME_TMP), "link"), 0);
        assert_int_equal(home_sweep(home, &freed, NULL), 0);
        assert_true(freed >= sizeof block);
        assert_int_equal(faccessat(home_folder(home, HOME_TMP), name, F_OK, 0), -1);
        assert_int_equal(faccessat(home_folder(home, HOME_TMP), "plain", F_OK, 0), -1);
        assert_int_equal(faccessat(home_folder(home, HOME_TMP), "link", F_OK, 0), -1);
        assert_true(has_file(home, "cubby.db"));
}

struct sweeper {
        struct home *home;
        atomic_bool ended;
        bool failed;
};

static void *sweep_on(void *data)
{
        struct sweeper *sweeper = data;
        while (!atomic_load(&sweeper->ended))
                if (home_sweep(sweeper->home, NULL, NULL) < 0)
                        sweeper->failed = true;
        return NULL;
}

/* A sweep may see a folder before its maker has locked it. */
static void test_sweep_against_making(void **state)
{
        struct place *place = *state;
        struct sweeper sweeper = {.home = place->home};
        pthread_t thread;
        int failures = 0;
        assert_int_equal(pthread_create(&thread, NULL, sweep_on, &sweeper), 0);
        for (int i = 0; i < 1500; i++) {
                char name[32];
                int dir = -1;
                int lock = -1;
                cubby_error err = {0};
                if (home_make_temporary(place->home, name, &dir, &lock, &err) < 0) {
                        print_message("%s\n", err.message);
                        failures++;
                        continue;
                }
                failures += mkdirat(dir, "mine", 0700) < 0;
                failures += dir_remove_at(home_folder(place->home, HOME_TMP), name, NULL) < 0;
                (void)close(dir);
                home_unlock(lock);
        }
        atomic_store(&sweeper.ended, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(failures, 0);
        assert_false(sweeper.failed);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_HOME(test_home_paths),
                WITH_HOME(test_home_refused),
                WITH_HOME(test_default_paths),
                WITH_HOME(test_locks),
                WITH_HOME(test_lock_of_killed),
                WITH_HOME(test_locks_and_forks),
                WITH_HOME(test_odd_umask),
                WITH_HOME(test_stubborn_leftover),
                WITH_HOME(test_drafts),
                WITH_HOME(test_temporary),
                WITH_HOME(test_sweep_against_making),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
