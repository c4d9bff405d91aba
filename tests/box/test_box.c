/* SPDX-License-Identifier: Apache-2.0 */

/* From creation to removal: states, ends, and what other processes see. */
#include "place.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ID_LENGTH 32

static void expect(cubby_box *box, int state, const char *reason, int exit_code)
{
        cubby_box_info info = info_of(box);
        if (info.state != state || strcmp(info.reason, reason) != 0)
                print_message("state %s, reason '%s', detail '%s'\n",
                        cubby_box_state_name(info.state), info.reason, info.detail);
        assert_int_equal(info.state, state);
        assert_string_equal(info.reason, reason);
        assert_int_equal(info.exit_code, exit_code);
        cubby_box_info_clear(&info);
}

static void test_life(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "life", NULL, 0);
        assert_int_equal(strlen(cubby_box_id(box)), ID_LENGTH);
        expect(box, CUBBY_BOX_CREATED, "", -1);
        int code = -1;
        assert_int_equal(cubby_box_wait(box, 0, &code, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_ping(box, 100, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_pause(box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_kill(box, SIGKILL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_stop(box, 0, &err), 0); /* nothing to stop */

        for (int round = 0; round < 3; round++) {
                assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
                expect(box, CUBBY_BOX_RUNNING, "", -1);
                assert_int_equal(cubby_box_start(box, &err), -1);
                assert_int_equal(err.code, CUBBY_E_STATE);
                assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
                assert_int_equal(cubby_box_wait(box, 20, &code, &err), -1);
                assert_int_equal(err.code, CUBBY_E_TIMEOUT);
                assert_int_equal(fine(cubby_box_stop(box, 1000, &err), &err), 0);
                expect(box, CUBBY_BOX_STOPPED, "stopped", -1);
                assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
                assert_int_equal(code, 0);
        }
        assert_int_equal(fine(cubby_box_remove(box, false, &err), &err), 0);
        cubby_box_info info = {0};
        assert_int_equal(cubby_box_get_info(box, &info, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(cubby_box_start(box, &err), -1);
        assert_int_equal(cubby_box_remove(box, true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        cubby_box_close(box);
}

static void test_ends(void **state)
{
        const struct {
                const char *const *command;
                int exit_code;
        } rows[] = {
                {LIST("true"), 0},
                {LIST("false"), 1},
                {LIST("exit", "7"), 7},
                {LIST("exit", "255"), 255},
                {LIST("kill", "9"), 137},
                {LIST("kill", "15"), 143},
        };
        struct place *place = *state;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_box *box = place_box(place, "ends", rows[i].command, 1);
                int code = -1;
                cubby_error err = {0};
                assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
                assert_int_equal(code, rows[i].exit_code);
                expect(box, CUBBY_BOX_STOPPED, "exited", rows[i].exit_code);
                remove_box(box);
        }
}

struct waiter {
        cubby_box *box;
        pthread_t thread;
        int result, code;
        cubby_error err;
};

static void *wait_for_box(void *data)
{
        struct waiter *waiter = data;
        waiter->result = cubby_box_wait(waiter->box, SOON_MS, &waiter->code, &waiter->err);
        return NULL;
}

/* The first who hears of the end removes the box; all hear how it ended. */
static void test_many_waiters(void **state)
{
        struct place *place = *state;
        struct waiter waiters[12];
        cubby_error err = {0};
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "small";
        options.engine = "fake";
        options.name = "brief";
        options.command = LIST("sleep", "1");
        options.auto_remove = true;
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        for (size_t i = 0; i < sizeof waiters / sizeof waiters[0]; i++) {
                waiters[i] = (struct waiter){.code = -1};
                assert_int_equal(cubby_box_open(place->host, "brief", &waiters[i].box, &err), 0);
                assert_int_equal(
                        pthread_create(&waiters[i].thread, NULL, wait_for_box, &waiters[i]), 0);
        }
        for (size_t i = 0; i < sizeof waiters / sizeof waiters[0]; i++)
                assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        for (size_t i = 0; i < sizeof waiters / sizeof waiters[0]; i++) {
                assert_int_equal(fine(waiters[i].result, &waiters[i].err), 0);
                assert_int_equal(waiters[i].code, 0);
                cubby_box_close(waiters[i].box);
        }
        cubby_box_close(box);
        assert_int_equal(cubby_box_open(place->host, "brief", &box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
}

/* What does not start leaves a box that can be removed, and nothing running. */
static void test_bad_starts(void **state)
{
        const struct {
                const char *const *command;
                const char *workdir, *user, *engine;
                int code;
        } rows[] = {
                {LIST("no-such-command"), NULL, NULL, "fake", CUBBY_E_EXEC_NOT_FOUND},
                {LIST("true"), "/missing", NULL, "fake", CUBBY_E_INVALID},
                {LIST("true"), NULL, "stranger", "fake", CUBBY_E_INVALID},
        };
        struct place *place = *state;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                options.image = "small";
                options.engine = rows[i].engine;
                options.command = rows[i].command;
                options.workdir = rows[i].workdir;
                options.user = rows[i].user;
                options.disk_bytes = 64U << 20;
                cubby_box *box = NULL;
                cubby_error err = {0};
                assert_int_equal(
                        fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
                assert_int_equal(cubby_box_start(box, &err), -1);
                if (err.code != rows[i].code)
                        print_message("row %zu: %d %s\n", i, err.code, err.message);
                assert_int_equal(err.code, rows[i].code);
                cubby_box_info info = info_of(box);
                assert_int_equal(info.state, CUBBY_BOX_FAILED);
                assert_string_not_equal(info.reason, "");
                assert_int_equal(info.shim_pid, 0);
                cubby_box_info_clear(&info);
                shim_is_gone(cubby_box_id(box));
                remove_box(box);
        }
}

static void test_killed(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "killed", LIST("sleep", "1000"), 1);
        assert_int_equal(cubby_box_kill(box, 0, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(cubby_box_kill(box, 65, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(cubby_box_remove(box, false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(fine(cubby_box_kill(box, SIGTERM, &err), &err), 0);
        int code = 0;
        assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
        assert_int_equal(code, 143);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_kill(box, SIGKILL, &err), &err), 0);
        expect(box, CUBBY_BOX_STOPPED, "killed", 137);
        assert_int_equal(fine(cubby_box_wait(box, 0, &code, &err), &err), 0);
        assert_int_equal(code, 137);
        remove_box(box);
}

static void test_ttl_and_auto_remove(void **state)
{
        struct place *place = *state;
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "small";
        options.engine = "fake";
        options.name = "short";
        options.no_main = true;
        options.disk_bytes = 64U << 20;
        options.ttl_ms = 300;
        cubby_box *box = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        int64_t before = now_ms();
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        int code = 0;
        assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
        assert_true(now_ms() - before >= 300);
        expect(box, CUBBY_BOX_STOPPED, "ttl", -1);
        remove_box(box);

        options.ttl_ms = 0;
        options.auto_remove = true;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_stop(box, 0, &err), &err), 0);
        cubby_box *again = NULL;
        assert_int_equal(cubby_box_open(place->host, "short", &again, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        cubby_box_close(box);
}

/* A shim that is killed takes its machine with it and leaves a box that says so. */
static void test_dead_shim(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "orphan", LIST("sleep", "1000"), 1);
        cubby_exec *exec = NULL;
        cubby_exec_options sleeping = CUBBY_INIT(cubby_exec_options);
        sleeping.argv = LIST("sleep", "1000");
        assert_int_equal(fine(cubby_exec_start(box, &sleeping, &exec, &err), &err), 0);
        int64_t before = now_ms();
        assert_int_equal(kill((pid_t)shim_of(box), SIGKILL), 0);
        cubby_event event;
        assert_int_equal(cubby_exec_next(exec, SOON_MS, &event, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BOX_DEAD);
        assert_true(now_ms() - before < 1000);
        cubby_exec_close(exec);
        int code = 0;
        assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
        assert_int_equal(code, 137);
        expect(box, CUBBY_BOX_FAILED, "shim-died", -1);
        assert_int_equal(cubby_exec_start(box, &sleeping, &exec, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        expect(box, CUBBY_BOX_RUNNING, "", -1);
        remove_box(box);
}

/* A frozen shim holds nobody beyond a deadline, and can be ended. */
static void test_frozen_shim(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "frozen", NULL, 1);
        pid_t shim = (pid_t)shim_of(box);
        assert_int_equal(kill(shim, SIGSTOP), 0);
        int64_t before = now_ms();
        assert_int_equal(cubby_box_ping(box, 200, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(now_ms() - before < 2000);
        cubby_box_info info = info_of(box);
        assert_int_equal(info.state, CUBBY_BOX_RUNNING);
        cubby_box_info_clear(&info);
        assert_int_equal(fine(cubby_box_kill(box, SIGKILL, &err), &err), 0);
        shim_is_gone(cubby_box_id(box));
        expect(box, CUBBY_BOX_FAILED, "shim-died", -1);
        remove_box(box);
}

static void test_names(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "first", NULL, 1);
        cubby_box *other = place_box(place, "second", NULL, 0);
        static const char *const bad[] = {"", "-x", "a b", "a/b", "\x1b[2J"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                assert_int_equal(cubby_box_rename(box, bad[i], &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
        assert_int_equal(cubby_box_rename(box, "second", &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        assert_int_equal(fine(cubby_box_rename(box, "third", &err), &err), 0);
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "small";
        options.engine = "fake";
        options.no_main = true;
        options.name = "second";
        cubby_box *none = NULL;
        assert_int_equal(cubby_box_create(place->host, &options, &none, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        assert_null(none);

        char prefix[8];
        (void)snprintf(prefix, sizeof prefix, "%.6s", cubby_box_id(box));
        const char *const ways[] = {"third", cubby_box_id(box), prefix};
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
                cubby_box *same = NULL;
                assert_int_equal(fine(cubby_box_open(place->host, ways[i], &same, &err), &err), 0);
                assert_string_equal(cubby_box_id(same), cubby_box_id(box));
                cubby_box_info info = info_of(same);
                assert_string_equal(info.name, "third");
                cubby_box_info_clear(&info);
                cubby_box_close(same);
        }
        assert_int_equal(cubby_box_open(place->host, "first", &none, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);

        cubby_box_list *list = NULL;
        assert_int_equal(fine(cubby_boxes(place->host, false, &list, &err), &err), 0);
        assert_int_equal(list->count, 1);
        assert_string_equal(list->boxes[0].name, "third");
        assert_string_equal(list->boxes[0].image_name, "small");
        cubby_box_list_free(list);
        assert_int_equal(fine(cubby_boxes(place->host, true, &list, &err), &err), 0);
        assert_int_equal(list->count, 2);
        assert_string_equal(list->boxes[0].name, "second"); /* newest first */
        cubby_box_list_free(list);
        remove_box(box);
        remove_box(other);
}

static void test_inspect(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "seen", LIST("sleep", "1000"), 1);
        char *json = NULL;
        assert_int_equal(fine(cubby_box_inspect(box, &json, &err), &err), 0);
        static const char *const parts[] = {"\"name\": \"seen\"", "\"running\": true", "\"sleep\"",
                "COLOUR=blue", "\"engine\": \"fake\"", "\"isolation\": \"none\""};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
                if (strstr(json, parts[i]) == NULL)
                        print_message("no %s in %s\n", parts[i], json);
                assert_non_null(strstr(json, parts[i]));
        }
        cubby_free(json);
        cubby_box_stats stats = {0};
        assert_int_equal(fine(cubby_box_get_stats(box, &stats, &err), &err), 0);
        assert_true(stats.host_pss_bytes > 0);
        assert_true(stats.memory_total > 0);
        cubby_process *processes = NULL;
        size_t count = 0;
        bool truncated = true;
        assert_int_equal(
                fine(cubby_box_processes(box, &processes, &count, &truncated, &err), &err), 0);
        assert_true(count >= 1);
        assert_false(truncated);
        cubby_free(processes);
        remove_box(box);
}

/* Another process finds the box, runs in it and ends it. */
static void test_two_processes(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_box *box = place_box(place, "shared", NULL, 1);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                cubby *mine = NULL;
                cubby_box *same = NULL;
                cubby_open_options options = CUBBY_INIT(cubby_open_options);
                cubby_exec_options exec = CUBBY_INIT(cubby_exec_options);
                cubby_result result = {0};
                options.home = place->path;
                exec.argv = LIST("exit", "5");
                int good = cubby_open(&options, &mine, NULL) == 0 &&
                        cubby_box_open(mine, "shared", &same, NULL) == 0 &&
                        cubby_exec_run(same, &exec, NULL, 0, &result, NULL) == 0 &&
                        result.exit.code == 5 && cubby_box_stop(same, 0, NULL) == 0;
                _exit(good ? 0 : 1);
        }
        int status = 0;
        int code = -1;
        assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        expect(box, CUBBY_BOX_STOPPED, "stopped", -1);
        remove_box(box);
}

/* The creator of a box dies; the box lives on and the next one adopts it. */
static void test_creator_dies(void **state)
{
        struct place *place = *state;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                cubby_box *box = NULL;
                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                options.image = "small";
                options.engine = "fake";
                options.name = "left";
                options.no_main = true;
                options.disk_bytes = 64U << 20;
                if (cubby_box_create(place->host, &options, &box, NULL) == 0 &&
                        cubby_box_start(box, NULL) == 0)
                        (void)raise(SIGKILL);
                _exit(1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        cubby_error err = {0};
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_open(place->host, "left", &box, &err), &err), 0);
        expect(box, CUBBY_BOX_RUNNING, "", -1);
        assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
        remove_box(box);
}

static int entries(const char *home, const char *folder)
{
        char path[200];
        (void)snprintf(path, sizeof path, "%s/%s", home, folder);
        DIR *dir = opendir(path);
        assert_non_null(dir);
        int count = 0;
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                count += entry->d_name[0] != '.';
        (void)closedir(dir);
        return count;
}

/* kill -9 anywhere in create, start or remove: the next start finds order. */
static void test_killed_creators(void **state)
{
        struct place *place = *state;
        for (int round = 0; round < 20; round++) {
                pid_t pid = fork();
                assert_true(pid >= 0);
                if (pid == 0) {
                        for (;;) {
                                cubby_box *box = NULL;
                                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                                options.image = "small";
                                options.engine = "fake";
                                options.no_main = true;
                                options.disk_bytes = 64U << 20;
                                if (cubby_box_create(place->host, &options, &box, NULL) < 0)
                                        _exit(1);
                                (void)cubby_box_start(box, NULL);
                                (void)cubby_box_remove(box, true, NULL);
                                cubby_box_close(box);
                        }
                }
                struct timespec wait = {.tv_nsec = (20 + round * 7) * 1000000L};
                (void)nanosleep(&wait, NULL);
                assert_int_equal(kill(pid, SIGKILL), 0);
                assert_int_equal(waitpid(pid, NULL, 0), pid);
        }
        cubby *again = NULL;
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        options.home = place->path;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_open(&options, &again, &err), &err), 0);
        assert_int_equal(entries(place->path, "tmp"), 0);
        cubby_box_list *list = NULL;
        assert_int_equal(fine(cubby_boxes(again, true, &list, &err), &err), 0);
        assert_int_equal(entries(place->path, "boxes"), (int)list->count);
        for (size_t i = 0; i < list->count; i++) {
                cubby_box *box = NULL;
                assert_int_equal(
                        fine(cubby_box_open(again, list->boxes[i].id, &box, &err), &err), 0);
                remove_box(box);
        }
        cubby_box_list_free(list);
        assert_int_equal(entries(place->path, "boxes"), 0);
        cubby_close(again);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_life),
                WITH_PLACE(test_ends),
                WITH_PLACE(test_many_waiters),
                WITH_PLACE(test_bad_starts),
                WITH_PLACE(test_killed),
                WITH_PLACE(test_ttl_and_auto_remove),
                WITH_PLACE(test_dead_shim),
                WITH_PLACE(test_frozen_shim),
                WITH_PLACE(test_names),
                WITH_PLACE(test_inspect),
                WITH_PLACE(test_two_processes),
                WITH_PLACE(test_creator_dies),
                WITH_PLACE(test_killed_creators),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
