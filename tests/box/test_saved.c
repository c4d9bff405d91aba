/* SPDX-License-Identifier: Apache-2.0 */

/* Templates, clones, spares and claims, with the fake engine and the real keeper. */
#include "place.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static cubby_box_options options_of(const char *name, const char *const *command)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "small";
        options.engine = "fake";
        options.name = name;
        options.command = command;
        options.no_main = command == NULL;
        return options;
}

static void build(struct place *place)
{
        cubby_error err = {0};
        cubby_box_options options = options_of(NULL, NULL);
        assert_int_equal(fine(cubby_template_build(place->host, &options, false, &err), &err), 0);
}

static void expect_served(cubby_box *box, const char *served)
{
        cubby_box_info info = info_of(box);
        assert_string_equal(info.served, served);
        assert_int_equal(info.state, CUBBY_BOX_RUNNING);
        cubby_box_info_clear(&info);
}

static cubby_template_info *one_template(struct place *place, cubby_template_list **list)
{
        cubby_error err = {0};
        assert_int_equal(fine(cubby_templates(place->host, list, &err), &err), 0);
        return (*list)->count == 1 ? &(*list)->templates[0] : NULL;
}

static bool has_spares(struct place *place, uint32_t count)
{
        cubby_template_list *list = NULL;
        const cubby_template_info *info = one_template(place, &list);
        bool has = info != NULL && info->spares == count;
        cubby_template_list_free(list);
        return has;
}

static void set_spares(struct place *place, uint32_t count)
{
        cubby_error err = {0};
        cubby_box_options options = options_of(NULL, NULL);
        assert_int_equal(fine(cubby_spares_set(place->host, &options, count, &err), &err), 0);
        int64_t deadline = now_ms() + SOON_MS;
        while (!has_spares(place, count)) {
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 10);
        }
}

/* The keeper ends with the template, and its spares with it. */
static void end_templates(struct place *place)
{
        cubby_template_list *list = NULL;
        cubby_error err = {0};
        assert_int_equal(cubby_templates(place->host, &list, &err), 0);
        for (size_t i = 0; i < list->count; i++)
                assert_int_equal(
                        fine(cubby_template_remove(place->host, list->templates[i].key, &err),
                                &err),
                        0);
        cubby_template_list_free(list);
}

static size_t entries(struct place *place, const char *folder)
{
        char path[100];
        (void)snprintf(path, sizeof path, "%s/%s", place->path, folder);
        DIR *dir = opendir(path);
        assert_non_null(dir);
        size_t count = 0;
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                count += entry->d_name[0] != '.';
        (void)closedir(dir);
        return count;
}

static cubby_box *start(struct place *place, const cubby_box_options *options)
{
        cubby_box *box = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_create(place->host, options, &box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        return box;
}

static void test_clone(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        build(place);
        build(place); /* there already: nothing to do */
        cubby_box_options options = options_of("first", LIST("sleep", "100"));
        cubby_box *box = start(place, &options);
        expect_served(box, "cloned");
        cubby_box_info info = info_of(box);
        assert_int_equal(info.generation, 2); /* the template was resumed once */
        cubby_box_info_clear(&info);
        assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
        assert_int_equal(fine(cubby_box_stop(box, 1000, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        expect_served(box, "booted"); /* its disk is its own by now */
        remove_box(box);

        options = options_of("second", NULL);
        options.no_template = true;
        box = start(place, &options);
        expect_served(box, "booted");
        remove_box(box);
        end_templates(place);
}

static void test_errors_of_the_command(void **state)
{
        struct place *place = *state;
        build(place);
        for (int spare = 0; spare < 2; spare++) {
                if (spare == 1)
                        set_spares(place, 1);
                cubby_box_options options = options_of(NULL, LIST("no-such-program"));
                cubby_error err = {0};
                cubby_box *box = NULL;
                assert_int_equal(
                        fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
                assert_int_equal(cubby_box_start(box, &err), -1);
                assert_int_equal(err.code, CUBBY_E_EXEC_NOT_FOUND);
                remove_box(box);
        }
        cubby_template_list *list = NULL;
        assert_non_null(one_template(place, &list)); /* not suspect for that */
        cubby_template_list_free(list);
        end_templates(place);
}

static void test_claim(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        build(place);
        set_spares(place, 2);
        cubby_box_list *boxes = NULL;
        assert_int_equal(cubby_boxes(place->host, true, &boxes, &err), 0);
        assert_int_equal(boxes->count, 0); /* nobody's box yet */
        cubby_box_list_free(boxes);

        cubby_box_options options = options_of("claimed", LIST("sleep", "100"));
        options.hostname = "mine";
        options.labels = LIST("a=b");
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        cubby_box_info info = info_of(box);
        assert_int_equal(info.state, CUBBY_BOX_CREATED);
        cubby_box_info_clear(&info);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        expect_served(box, "spare");
        info = info_of(box);
        assert_int_equal(info.generation, 3); /* template, spare, claim */
        assert_string_equal(info.name, "claimed");
        assert_string_equal(info.command, "sleep 100");
        cubby_box_info_clear(&info);
        assert_int_equal(cubby_box_start(box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);

        /* a name that is taken costs no spare */
        cubby_box *other = NULL;
        assert_int_equal(cubby_box_create(place->host, &options, &other, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        remove_box(box);
        set_spares(place, 2); /* made anew by the keeper */
        set_spares(place, 0);
        int64_t deadline = now_ms() + SOON_MS;
        while (entries(place, "boxes") > 0) { /* the index first, the folder after it */
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 10);
        }
        end_templates(place);
}

/* Its worker, a fork, has the same command line, yet leads no session. */
static pid_t keeper_of(struct place *place)
{
        pid_t keeper = 0;
        DIR *dir = opendir("/proc");
        assert_non_null(dir);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                char path[300];
                char text[512] = "";
                (void)snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                if (fd < 0)
                        continue;
                ssize_t got = read(fd, text, sizeof text - 1);
                (void)close(fd);
                pid_t pid = (pid_t)atoi(entry->d_name);
                if (got > 0 && pid > 1 && getsid(pid) == pid &&
                        strstr(text, "cubby-keeper") != NULL &&
                        memmem(text, (size_t)got, place->path, strlen(place->path)) != NULL)
                        keeper = pid;
        }
        (void)closedir(dir);
        assert_true(keeper > 1);
        return keeper;
}

/* The index of spares of the only template, from the home on. */
static const char *place_spares(struct place *place)
{
        static char folder[120];
        cubby_template_list *list = NULL;
        const cubby_template_info *info = one_template(place, &list);
        assert_non_null(info);
        (void)snprintf(folder, sizeof folder, "templates/%s/spares", info->key);
        cubby_template_list_free(list);
        return folder;
}

static void first_entry(struct place *place, const char *folder, char ret[33])
{
        char path[300];
        (void)snprintf(path, sizeof path, "%s/%s", place->path, folder);
        DIR *dir = opendir(path);
        assert_non_null(dir);
        ret[0] = '\0';
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                if (entry->d_name[0] != '.')
                        (void)snprintf(ret, 33, "%.32s", entry->d_name);
        (void)closedir(dir);
        assert_int_equal(strlen(ret), 32);
}

/* As every start of a program does. */
static void open_again(struct place *place)
{
        cubby_error err = {0};
        cubby *host = NULL;
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        options.home = place->path;
        assert_int_equal(fine(cubby_open(&options, &host, &err), &err), 0);
        cubby_close(host);
}

/* A keeper that is killed takes its spares with it; the index is passed over. */
static void test_killed_keeper(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        build(place);
        set_spares(place, 1);
        cubby_box_options options = options_of(NULL, NULL);
        cubby_box *claimed = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &claimed, &err), &err), 0);
        set_spares(place, 1);
        char spare[33];
        first_entry(place, place_spares(place), spare);
        char taken[33];
        cubby_box_info info = info_of(claimed);
        (void)snprintf(taken, sizeof taken, "%s", info.id);
        cubby_box_info_clear(&info);

        pid_t keeper = keeper_of(place);
        assert_int_equal(kill(keeper, SIGKILL), 0);
        /* until a spare has seen it, its machine is as good as any */
        shim_is_gone(spare);
        shim_is_gone(taken);
        /* the one that was taken is kept by its record, yet lost its machine: it is replaced */
        assert_int_equal(fine(cubby_box_start(claimed, &err), &err), 0);
        cubby_box *box = start(place, &options);
        info = info_of(box);
        /* a new keeper may have been quick; what the dead one left is passed over */
        assert_true(strcmp(info.served, "cloned") == 0 || strcmp(info.served, "spare") == 0);
        cubby_box_info_clear(&info);
        assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
        remove_box(box);
        remove_box(claimed);
        end_templates(place);
        int64_t deadline = now_ms() + SOON_MS;
        while (entries(place, "boxes") > 0) {
                assert_true(now_ms() < deadline);
                assert_int_equal(fine(cubby_gc(place->host, NULL, &err), &err), 0);
                (void)poll(NULL, 0, 20);
        }
}

/* What a killed keeper leaves is gone after the next start, and the next keeper
 * does not count dead spares. */
static void test_spares_after_a_killed_keeper(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        char spare[33];
        build(place);
        set_spares(place, 1);
        first_entry(place, place_spares(place), spare);
        assert_int_equal(kill(keeper_of(place), SIGKILL), 0);
        shim_is_gone(spare);
        cubby_box_options options = options_of(NULL, NULL);
        assert_int_equal(fine(cubby_spares_set(place->host, &options, 1, &err), &err), 0);
        int64_t deadline = now_ms() + SOON_MS;
        char next[33] = "";
        do {
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 20);
                if (has_spares(place, 1))
                        first_entry(place, place_spares(place), next);
        } while (next[0] == '\0' || strcmp(next, spare) == 0);

        assert_int_equal(kill(keeper_of(place), SIGKILL), 0);
        shim_is_gone(next);
        open_again(place);
        assert_int_equal(entries(place, "boxes"), 0);
        end_templates(place);
}

/* Killed after it took a spare, before it had a record or wrote the box's config. */
static void test_killed_claimer(void **state)
{
        struct place *place = *state;
        char spare[33];
        char path[300];
        build(place);
        set_spares(place, 1);
        first_entry(place, place_spares(place), spare);
        open_again(place);
        assert_int_equal(entries(place, "boxes"), 1); /* offered: it stays */
        (void)snprintf(path, sizeof path, "%s/%s/%s", place->path, place_spares(place), spare);
        assert_int_equal(unlink(path), 0);
        (void)snprintf(path, sizeof path, "%s/boxes/%s", place->path, spare);
        int64_t deadline = now_ms() + SOON_MS;
        do { /* while the keeper makes the next one, a start leaves it to another */
                assert_true(now_ms() < deadline);
                open_again(place);
        } while (access(path, F_OK) == 0);
        shim_is_gone(spare);
        end_templates(place);
}

/* To its owner a claimed spare that was not started is a box that never ran. */
static void test_claimed_and_not_started(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        int code = 0;
        build(place);
        set_spares(place, 1);
        cubby_box_options options = options_of("early", LIST("sleep", "100"));
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        assert_int_equal(cubby_box_wait(box, 0, &code, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_kill(box, SIGKILL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(cubby_box_ping(box, 1000, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        assert_int_equal(fine(cubby_box_stop(box, 0, &err), &err), 0);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        expect_served(box, "spare");
        assert_int_equal(cubby_box_remove(box, false, &err), -1); /* it runs */
        assert_int_equal(err.code, CUBBY_E_STATE);
        remove_box(box);
        set_spares(place, 1);
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        assert_int_equal(fine(cubby_box_remove(box, false, &err), &err), 0);
        cubby_box_close(box);
        end_templates(place);
}

/* A state that cannot be restored: one boot instead, and the template goes. */
static void test_suspect(void **state)
{
        struct place *place = *state;
        build(place);
        cubby_template_list *list = NULL;
        cubby_template_info *info = one_template(place, &list);
        assert_non_null(info);
        char path[300];
        (void)snprintf(path, sizeof path, "%s/templates/%s/memory", place->path, info->key);
        struct stat before;
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(stat(path, &before), 0);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, "other", 5, 0), 5);
        const struct timespec times[2] = {before.st_atim, before.st_mtim};
        assert_int_equal(futimens(fd, times), 0); /* no check sees it */
        (void)close(fd);
        cubby_error err = {0};
        assert_int_equal(cubby_template_verify(place->host, info->key, &err), -1);
        assert_int_equal(err.code, CUBBY_E_DIGEST);
        cubby_template_list_free(list);
        cubby_box_options options = options_of(NULL, NULL);
        cubby_box *box = start(place, &options);
        expect_served(box, "booted");
        remove_box(box);
        /* made anew beside it */
        int64_t deadline = now_ms() + SOON_MS;
        for (bool good = false; !good;) {
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 50);
                info = one_template(place, &list);
                good = info != NULL && cubby_template_verify(place->host, info->key, &err) == 0;
                cubby_template_list_free(list);
        }
        end_templates(place);
}

static void test_no_fork(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        cubby_error errors[1];
        cubby_box *child = NULL;
        cubby_box_options options = options_of(NULL, NULL);
        options.no_template = true;
        cubby_box *box = start(place, &options);
        assert_int_equal(cubby_box_fork(box, NULL, 1, &child, errors, &err), -1);
        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
        assert_int_equal(cubby_box_suspend(box, &err), -1);
        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
        assert_int_equal(cubby_box_snapshot(box, "x", &err), -1);
        assert_int_equal(cubby_box_resume(box, &err), -1);
        assert_int_equal(cubby_box_ping(box, SOON_MS, &err), 0);
        remove_box(box);
}

#ifdef CUBBY_FAULT_POINTS
/* Killed just before the claim was sent: the box never ran, and starts as if nothing was. */
static void test_killed_starter(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        build(place);
        set_spares(place, 1);
        cubby_box_options options = options_of("again", LIST("sleep", "100"));
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void)setenv("CUBBY_FAULT_KILL", "claim.send", 1);
                _exit(cubby_box_start(box, NULL) == 0 ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        cubby_box_info info = info_of(box);
        assert_int_equal(info.state, CUBBY_BOX_CREATED);
        cubby_box_info_clear(&info);
        assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        expect_served(box, "spare");
        assert_int_equal(cubby_box_start(box, &err), -1);
        remove_box(box);
        end_templates(place);
}
#endif

static cubby_provider *provider_open(struct place *place)
{
        cubby_error err = {0};
        cubby_provider *provider = NULL;
        cubby_provider_options options = CUBBY_INIT(cubby_provider_options);
        options.config_text = "sandbox: {image: small, engine: fake, spares: 2}\n";
        assert_int_equal(
                fine(cubby_provider_open(place->host, &options, &provider, &err), &err), 0);
        return provider;
}

static int acquire(cubby_provider *provider, const char *thread)
{
        cubby_error err = {0};
        cubby_acquired got = {0};
        cubby_acquire_options options = CUBBY_INIT(cubby_acquire_options);
        options.thread = thread;
        options.thread_size = strlen(thread);
        assert_int_equal(fine(cubby_provider_acquire(provider, &options, &got, &err), &err), 0);
        cubby_box_close(got.box);
        return got.served;
}

static void shut(cubby_provider *provider)
{
        cubby_error err = {0};
        assert_int_equal(fine(cubby_provider_shutdown(provider, SOON_MS, NULL, &err), &err), 0);
        cubby_provider_close(provider);
}

static void wait_for_spares(struct place *place, uint32_t count)
{
        int64_t deadline = now_ms() + SOON_MS;
        while (!has_spares(place, count)) {
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 10);
        }
}

/* They go with the last provider that uses them, unless the home's owner wants some. */
static void test_spares_of_providers(void **state)
{
        struct place *place = *state;
        build(place);
        cubby_provider *first = provider_open(place);
        assert_int_equal(acquire(first, "a"), CUBBY_SERVED_CLONED);
        wait_for_spares(place, 2);
        cubby_provider *second = provider_open(place);
        assert_int_equal(acquire(second, "b"), CUBBY_SERVED_SPARE);
        wait_for_spares(place, 2);
        shut(first);
        (void)poll(NULL, 0, 200);
        assert_true(has_spares(place, 2));
        shut(second);
        wait_for_spares(place, 0);
        (void)poll(NULL, 0, 200);
        assert_true(has_spares(place, 0));
        set_spares(place, 1);
        first = provider_open(place);
        assert_int_equal(acquire(first, "c"), CUBBY_SERVED_SPARE);
        wait_for_spares(place, 2);
        shut(first);
        wait_for_spares(place, 1);
        end_templates(place);
}

/* The machine that the keeper has started ahead; its id once there is one. */
static void ahead_of(struct place *place, char ret[33])
{
        int64_t deadline = now_ms() + SOON_MS;
        char path[300];
        (void)snprintf(path, sizeof path, "%s/%s", place->path, place_spares(place));
        ret[0] = '\0';
        while (ret[0] == '\0') {
                DIR *dir = opendir(path);
                assert_non_null(dir);
                for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                        if (strncmp(entry->d_name, "ahead-", 6) == 0)
                                (void)snprintf(ret, 33, "%.32s", entry->d_name + 6);
                (void)closedir(dir);
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 10);
        }
}

/* A clone takes it, another comes in its place, and none outlives its keeper. */
static void test_ahead(void **state)
{
        struct place *place = *state;
        cubby_error err = {0};
        char first[33];
        char second[33];
        assert_int_equal(setenv("CUBBY_AHEAD", "1", 1), 0);
        build(place);
        set_spares(place, 1);
        ahead_of(place, first);
        cubby_box_options options = options_of(NULL, LIST("sleep", "100"));
        cubby_box *warm = start(place, &options); /* the warm one first */
        expect_served(warm, "spare");
        set_spares(place, 0);
        cubby_box *box = start(place, &options);
        expect_served(box, "cloned");
        cubby_box_info info = info_of(box);
        assert_string_equal(info.id, first);
        assert_int_equal(info.generation, 2); /* template, clone */
        cubby_box_info_clear(&info);
        ahead_of(place, second);
        assert_string_not_equal(first, second);

        /* a name that is taken costs none */
        cubby_box *other = NULL;
        info = info_of(box);
        options.name = info.name;
        assert_int_equal(cubby_box_create(place->host, &options, &other, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        cubby_box_info_clear(&info);
        char again[33];
        ahead_of(place, again);
        assert_string_equal(again, second);

        /* its shim is killed: the next clone begins by itself */
        options.name = NULL;
        remove_box(warm);
        assert_int_equal(kill(keeper_of(place), SIGKILL), 0);
        shim_is_gone(second);
        cubby_box *late = start(place, &options);
        expect_served(late, "cloned");
        remove_box(late);
        remove_box(box);
        assert_int_equal(setenv("CUBBY_AHEAD", "0", 1), 0);
        end_templates(place);
        open_again(place);
        assert_int_equal(entries(place, "boxes"), 0);
}

int main(void)
{
        /* the other tests count what is there */
        if (setenv("CUBBY_AHEAD", "0", 1) != 0)
                return 1;
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_clone),
                WITH_PLACE(test_errors_of_the_command),
                WITH_PLACE(test_claim),
                WITH_PLACE(test_killed_keeper),
                WITH_PLACE(test_spares_after_a_killed_keeper),
                WITH_PLACE(test_killed_claimer),
                WITH_PLACE(test_claimed_and_not_started),
#ifdef CUBBY_FAULT_POINTS
                WITH_PLACE(test_killed_starter),
#endif
                WITH_PLACE(test_ahead),
                WITH_PLACE(test_suspect),
                WITH_PLACE(test_no_fork),
                WITH_PLACE(test_spares_of_providers),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
