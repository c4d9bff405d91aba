/* SPDX-License-Identifier: Apache-2.0 */

/* What holds for every call: options, arguments, images in use, upkeep, fork. */
#include "place.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_arguments(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = NULL;
        cubby_exec *exec = NULL;
        cubby_event event;
        cubby_box_info info;
        cubby_box_list *list = NULL;
        char *text = NULL;
        int results[] = {cubby_box_create(NULL, NULL, &box, &err),
                cubby_box_create(place->host, NULL, &box, &err),
                cubby_box_open(place->host, NULL, &box, &err),
                cubby_box_open(NULL, "x", &box, &err), cubby_box_start(NULL, &err),
                cubby_box_stop(NULL, 0, &err), cubby_box_kill(NULL, 9, &err),
                cubby_box_remove(NULL, true, &err), cubby_box_rename(NULL, "x", &err),
                cubby_box_wait(NULL, 0, NULL, &err), cubby_box_ping(NULL, 0, &err),
                cubby_box_get_info(NULL, &info, &err), cubby_boxes(NULL, true, &list, &err),
                cubby_boxes(place->host, true, NULL, &err), cubby_box_inspect(NULL, &text, &err),
                cubby_exec_start(NULL, NULL, &exec, &err),
                cubby_box_attach(NULL, true, &exec, &err), cubby_exec_next(NULL, 0, &event, &err),
                cubby_exec_signal(NULL, 9, &err),
                cubby_image_import(place->host, NULL, NULL, NULL, &err),
                cubby_image_inspect(place->host, NULL, &text, &err),
                cubby_image_remove(NULL, "x", false, &err),
                cubby_image_tag(place->host, "small", NULL, &err), cubby_doctor(NULL, &text, &err),
                cubby_gc(NULL, NULL, &err), cubby_kernel_ensure(NULL, NULL, NULL, &err),
                cubby_kernels(NULL, NULL, &err), cubby_kernels(place->host, NULL, &err)};
        for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
                assert_int_equal(results[i], -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        /* without an error to fill, too */
        assert_int_equal(cubby_box_start(NULL, NULL), -1);
        assert_null(cubby_box_id(NULL));
        assert_int_equal(cubby_exec_fd(NULL), -1);
        cubby_close(NULL);
        cubby_kernel_list_free(NULL);
        cubby_box_close(NULL);
        cubby_box_info_clear(NULL);
        cubby_box_list_free(NULL);
        cubby_image_info_clear(NULL);
        cubby_image_list_free(NULL);
        cubby_result_clear(NULL);
        cubby_free(NULL);
        assert_string_equal(cubby_home(place->host), place->path);
        assert_string_equal(cubby_version(), CUBBY_VERSION);
        assert_string_equal(cubby_box_state_name(CUBBY_BOX_PAUSED), "paused");
        assert_string_equal(cubby_box_state_name(99), "unknown");
        assert_string_equal(cubby_code_name(CUBBY_E_DIGEST), "digest mismatch");
        assert_string_equal(cubby_code_name(-3), "unknown error");
}

/* Structs of older and newer programs. */
static void test_option_sizes(void **state)
{
        struct place *place = *state;
        struct {
                cubby_box_options known;
                uint64_t later[4];
        } newer = {0};
        newer.known.size = sizeof newer;
        newer.known.image = "small";
        newer.known.engine = "fake";
        newer.known.no_main = true;
        newer.known.disk_bytes = 64U << 20;
        cubby_box *box = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_create(place->host, &newer.known, &box, &err), &err), 0);
        remove_box(box);
        newer.later[2] = 1; /* a wish that this version does not know */
        assert_int_equal(cubby_box_create(place->host, &newer.known, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
        static const size_t sizes[] = {0, 1, 7, 4097, SIZE_MAX};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                newer.known.size = sizes[i];
                assert_int_equal(cubby_box_create(place->host, &newer.known, &box, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
        /* an old program's struct ends early: what it does not name is the default */
        newer.known.size = offsetof(cubby_box_options, hostname);
        assert_int_equal(cubby_box_create(place->host, &newer.known, &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID); /* no_main is beyond it: no command */
}

static void test_image_in_use(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "user", NULL, 1);
        assert_int_equal(cubby_image_remove(place->host, "small", false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        assert_int_equal(fine(cubby_image_tag(place->host, "small", "other:2", &err), &err), 0);
        cubby_image_list *list = NULL;
        assert_int_equal(fine(cubby_images(place->host, &list, &err), &err), 0);
        assert_int_equal(list->count, 2);
        assert_string_equal(list->images[0].id, list->images[1].id);
        cubby_image_list_free(list);
        char *json = NULL;
        assert_int_equal(fine(cubby_image_inspect(place->host, "other:2", &json, &err), &err), 0);
        assert_non_null(strstr(json, "docker.io/library/small:latest"));
        assert_non_null(strstr(json, "\"architecture\": \"amd64\""));
        cubby_free(json);
        assert_int_equal(fine(cubby_image_remove(place->host, "small", false, &err), &err), 0);
        assert_int_equal(fine(cubby_image_remove(place->host, "other:2", true, &err), &err), 0);
        assert_int_equal(cubby_image_inspect(place->host, "other:2", &json, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        /* the box keeps its disk: it starts again, after a collection too */
        uint64_t freed = 0;
        assert_int_equal(fine(cubby_box_stop(box, 0, &err), &err), 0);
        assert_int_equal(fine(cubby_gc(place->host, &freed, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        remove_box(box);
        assert_int_equal(fine(cubby_gc(place->host, &freed, &err), &err), 0);
        assert_true(freed > 0);
}

static int open_folder(const struct place *place, const char *name)
{
        char path[200];
        (void)snprintf(path, sizeof path, "%s/%s", place->path, name);
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

/* A folder without a record is kept by a start and taken by a collection. */
static void test_collection(void **state)
{
        struct place *place = *state;
        static const char orphan[] = "ffffffffffffffffffffffffffffffff";
        cubby_error err = {0};
        int boxes = open_folder(place, "boxes");
        int tmp = open_folder(place, "tmp");
        assert_int_equal(mkdirat(boxes, orphan, 0700), 0);
        assert_int_equal(mkdirat(tmp, "w-leftover", 0700), 0);
        cubby *again = NULL;
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        options.home = place->path;
        assert_int_equal(fine(cubby_open(&options, &again, &err), &err), 0);
        assert_int_equal(faccessat(tmp, "w-leftover", F_OK, 0), -1);
        assert_int_equal(faccessat(boxes, orphan, F_OK, 0), 0);
        cubby_box *box = place_box(place, "running", NULL, 1);
        assert_int_equal(fine(cubby_gc(again, NULL, &err), &err), 0);
        assert_int_equal(faccessat(boxes, orphan, F_OK, 0), -1);
        assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
        remove_box(box);
        cubby_close(again);
        (void)close(boxes);
        (void)close(tmp);
}

static int refuse(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        fail_msg("a log was read that is none");
        return 1;
}

/* A box whose config cannot be used can be looked at, and nothing else but removed. */
static void assert_damaged(struct place *place)
{
        cubby_error err = {0};
        cubby_box *box = NULL;
        cubby_box_info info = {0};
        assert_int_equal(fine(cubby_box_open(place->host, "victim", &box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_get_info(box, &info, &err), &err), 0);
        assert_int_equal(info.state, CUBBY_BOX_FAILED);
        assert_string_equal(info.reason, "damaged");
        assert_true(info.detail[0] != '\0');
        cubby_box_info_clear(&info);
        assert_int_equal(cubby_box_start(box, &err), -1);
        assert_non_null(strstr(err.message, "victim"));
        assert_int_equal(cubby_box_rename(box, "renamed", &err), -1);
        cubby_box_close(box);
}

/* What somebody put into a box's folder is not believed. */
static void test_hostile_folder(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "victim", NULL, 0);
        cubby_box *other = place_box(place, "other", NULL, 0);
        char path[300];
        char theirs[300];
        (void)snprintf(
                path, sizeof path, "%s/boxes/%s/config.json", place->path, cubby_box_id(box));
        (void)snprintf(
                theirs, sizeof theirs, "%s/boxes/%s/config.json", place->path, cubby_box_id(other));
        char kept[320];
        (void)snprintf(kept, sizeof kept, "%s.kept", path);
        assert_int_equal(rename(path, kept), 0);
        assert_damaged(place);
        assert_int_equal(link(theirs, path), 0); /* the config of another box */
        assert_damaged(place);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("/etc/passwd", path), 0);
        assert_damaged(place);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
        assert_damaged(place);
        assert_int_equal(unlink(path), 0);
        cubby_box_list *list = NULL;
        assert_int_equal(fine(cubby_boxes(place->host, true, &list, &err), &err), 0);
        assert_int_equal(list->count, 2); /* it is listed as what it is, with the rest */
        cubby_box_list_free(list);
        assert_int_equal(rename(kept, path), 0);
        char log[300];
        (void)snprintf(log, sizeof log, "%s/boxes/%s/log", place->path, cubby_box_id(box));
        assert_int_equal(symlink("/etc/passwd", log), 0);
        cubby_log_options options = CUBBY_INIT(cubby_log_options);
        options.tail_lines = -1;
        assert_int_equal(cubby_box_logs(box, &options, NULL, NULL, &err), -1);
        assert_int_equal(cubby_box_logs(box, &options, refuse, NULL, &err), -1);
        remove_box(box);
        remove_box(other);
}

static void test_doctor(void **state)
{
        struct place *place = *state;
        char *json = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_doctor(place->host, &json, &err), &err), 0);
        static const char *const names[] = {"\"qemu\"", "\"kvm\"", "\"kernel\"", "\"mke2fs\"",
                "\"namespaces\"", "\"landlock\"", "\"cgroups\"", "\"home\"", "\"space\"",
                "\"programs\""};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                assert_non_null(strstr(json, names[i]));
        cubby_free(json);
}

/* The library in a program that ignores SIGCHLD, has no stdin and an open umask. */
static void test_odd_program(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *shared = place_box(place, "shared", NULL, 1);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void)signal(SIGCHLD, SIG_IGN);
                (void)signal(SIGPIPE, SIG_DFL);
                (void)umask(0);
                (void)close(0);
                (void)close(1);
                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                cubby_exec_options exec = CUBBY_INIT(cubby_exec_options);
                cubby_result result = {0};
                cubby_box *box = NULL;
                options.image = "small";
                options.engine = "fake";
                options.name = "odd";
                options.no_main = true;
                options.disk_bytes = 64U << 20;
                exec.argv = LIST("exit", "3");
                /* the handles of the parent work in the child too */
                int good = cubby_box_ping(shared, SOON_MS, &err) == 0 &&
                        cubby_box_create(place->host, &options, &box, &err) == 0 &&
                        cubby_box_start(box, &err) == 0 &&
                        cubby_exec_run(box, &exec, NULL, 0, &result, &err) == 0 &&
                        result.exit.code == 3 && cubby_box_remove(box, true, &err) == 0;
                if (!good)
                        (void)fprintf(stderr, "in the odd program: %s\n", err.message);
                _exit(good ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(fine(cubby_box_ping(shared, SOON_MS, &err), &err), 0);
        remove_box(shared);
}

/* A missing shim is a clear error, not a half-made box. */
static void test_missing_programs(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "helpless", NULL, 0);
        const char *given = getenv("CUBBY_LIBEXEC");
        char *before = given == NULL ? NULL : strdup(given);
        static const char *const folders[] = {"/nowhere", "relative", "/etc"};
        for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
                assert_int_equal(setenv("CUBBY_LIBEXEC", folders[i], 1), 0);
                assert_int_equal(cubby_box_start(box, &err), -1);
                assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
                assert_non_null(strstr(err.message, "cubby-shim"));
                assert_non_null(strstr(err.message, folders[i]));
                cubby_box_info info = info_of(box);
                assert_int_equal(info.state, CUBBY_BOX_CREATED);
                cubby_box_info_clear(&info);
        }
        if (before != NULL)
                assert_int_equal(setenv("CUBBY_LIBEXEC", before, 1), 0);
        else
                assert_int_equal(unsetenv("CUBBY_LIBEXEC"), 0);
        free(before);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        remove_box(box);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_arguments),
                WITH_PLACE(test_option_sizes),
                WITH_PLACE(test_image_in_use),
                WITH_PLACE(test_collection),
                WITH_PLACE(test_hostile_folder),
                WITH_PLACE(test_doctor),
                WITH_PLACE(test_odd_program),
                WITH_PLACE(test_missing_programs),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
