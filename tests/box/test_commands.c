/* SPDX-License-Identifier: Apache-2.0 */

/* Commands in a box: streams, limits, ends, the box's own command and its log. */
#include "place.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define MIB (1U << 20)

static cubby_result run(cubby_box *box, const char *const *argv, const void *input, size_t size)
{
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = argv;
        cubby_result result = {0};
        cubby_error err = {0};
        assert_int_equal(fine(cubby_exec_run(box, &options, input, size, &result, &err), &err), 0);
        return result;
}

static uint8_t *noise(size_t size)
{
        uint8_t *bytes = malloc(size);
        assert_non_null(bytes);
        uint32_t seed = 12345;
        for (size_t i = 0; i < size; i++) {
                seed = seed * 1664525 + 1013904223;
                bytes[i] = (uint8_t)(seed >> 24);
        }
        return bytes;
}

static void test_results(void **state)
{
        const struct {
                const char *const *argv;
                const char *output, *errors;
                int code;
        } rows[] = {
                {LIST("echo", "a", "b c"), "a b c\n", "", 0},
                {LIST("err", "oops"), "", "oops\n", 0},
                {LIST("true"), "", "", 0},
                {LIST("exit", "42"), "", "", 42},
                {LIST("kill", "11"), "", "", 139},
        };
        struct place *place = *state;
        cubby_box *box = place_box(place, "results", NULL, 1);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_result result = run(box, rows[i].argv, NULL, 0);
                assert_string_equal(result.output, rows[i].output);
                assert_string_equal(result.errors, rows[i].errors);
                assert_int_equal(result.exit.code, rows[i].code);
                assert_int_equal(result.output_size, strlen(rows[i].output));
                assert_false(result.truncated);
                cubby_result_clear(&result);
        }
        remove_box(box);
}

static void test_refused(void **state)
{
        char *const long_text = malloc(200000);
        assert_non_null(long_text);
        memset(long_text, 'x', 199999);
        long_text[199999] = '\0';
        struct row {
                cubby_exec_options options;
                int code;
        };
#define ROW(kind, ...)                                                  \
        {                                                               \
                {.size = sizeof(cubby_exec_options), __VA_ARGS__}, kind \
        }
        const struct row rows[] = {
                ROW(CUBBY_E_INVALID, .argv = NULL),
                ROW(CUBBY_E_INVALID, .argv = NOTHING),
                ROW(CUBBY_E_INVALID, .argv = LIST("")),
                ROW(CUBBY_E_INVALID, .argv = LIST("true", long_text)),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .env = LIST("=x")),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .env = LIST("A")),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .env = LIST("1=x")),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .env = LIST("A=1", "B-C=x")),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .workdir = "relative"),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .workdir = ""),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .workdir = "/missing"),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .user = long_text),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .user = "stranger"),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .timeout_ms = -1),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .timeout_ms = INT64_MAX),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .detach = true, .tty = true),
                ROW(CUBBY_E_INVALID, .argv = LIST("true"), .detach = true, .open_stdin = true),
                ROW(CUBBY_E_EXEC_NOT_FOUND, .argv = LIST("no-such-command")),
        };
        struct place *place = *state;
        cubby_box *box = place_box(place, "refused", NULL, 1);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_exec *exec = NULL;
                cubby_error err = {0};
                assert_int_equal(cubby_exec_start(box, &rows[i].options, &exec, &err), -1);
                if (err.code != rows[i].code)
                        print_message("row %zu: %d %s\n", i, err.code, err.message);
                assert_int_equal(err.code, rows[i].code);
                assert_null(exec);
        }
        cubby_result result = run(box, LIST("true"), NULL, 0); /* it still works */
        cubby_result_clear(&result);
        free(long_text);
        remove_box(box);
}

static void test_environment(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "environment", NULL, 1);
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("env");
        options.env = LIST("COLOUR=red", "MORE=a=b\nc", "EMPTY=");
        cubby_result result = {0};
        cubby_error err = {0};
        assert_int_equal(fine(cubby_exec_run(box, &options, NULL, 0, &result, &err), &err), 0);
        assert_non_null(strstr(result.output, "COLOUR=red\n"));
        assert_null(strstr(result.output, "COLOUR=blue"));
        assert_non_null(strstr(result.output, "SIZE=small\n"));
        assert_non_null(strstr(result.output, "MORE=a=b\nc\n"));
        cubby_result_clear(&result);
        result = run(box, LIST("env"), NULL, 0); /* it was for that process only */
        assert_non_null(strstr(result.output, "COLOUR=blue\n"));
        assert_null(strstr(result.output, "MORE"));
        cubby_result_clear(&result);
        remove_box(box);
}

/* Every byte goes there and comes back, whatever the windows are. */
static void test_bytes(void **state)
{
        static const size_t sizes[] = {
                0, 1, 32768, 32769, 262143, 262144, 262145, 1048577, 7 * MIB};
        struct place *place = *state;
        cubby_box *box = place_box(place, "bytes", NULL, 1);
        uint8_t *input = noise(7 * MIB);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                cubby_result result = run(box, LIST("cat"), input, sizes[i]);
                assert_int_equal(result.exit.code, 0);
                assert_int_equal(result.output_size, sizes[i]);
                assert_int_equal(result.output_total, sizes[i]);
                assert_memory_equal(result.output, input, sizes[i]);
                assert_int_equal(result.output[sizes[i]], '\0');
                cubby_result_clear(&result);
        }
        free(input);
        remove_box(box);
}

/* More than is kept: head and tail with a marked gap, and the true count. */
static void test_truncated(void **state)
{
        enum { SIZE = 20 * MIB, KEPT_HALF = 4 * MIB };
        struct place *place = *state;
        cubby_box *box = place_box(place, "truncated", NULL, 1);
        uint8_t *input = noise(SIZE);
        cubby_result result = run(box, LIST("cat"), input, SIZE);
        assert_true(result.truncated);
        assert_int_equal(result.output_total, SIZE);
        assert_memory_equal(result.output, input, KEPT_HALF);
        static const char gap[] = "\n[... 12582912 bytes left out ...]\n";
        assert_memory_equal(result.output + KEPT_HALF, gap, sizeof gap - 1);
        assert_int_equal(result.output_size, 2 * KEPT_HALF + sizeof gap - 1);
        assert_memory_equal(result.output + result.output_size - KEPT_HALF,
                input + SIZE - KEPT_HALF, KEPT_HALF);
        cubby_result_clear(&result);
        free(input);
        remove_box(box);
}

static cubby_exec *start(cubby_box *box, const char *const *argv, bool with_stdin)
{
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = argv;
        options.open_stdin = with_stdin;
        cubby_exec *exec = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_exec_start(box, &options, &exec, &err), &err), 0);
        return exec;
}

/* One thread, one poll loop: the descriptor says when there is something. */
static void test_poll_loop(void **state)
{
        enum { SIZE = 3 * MIB };
        struct place *place = *state;
        cubby_box *box = place_box(place, "poll", NULL, 1);
        uint8_t *input = noise(SIZE);
        cubby_exec *exec = start(box, LIST("cat"), true);
        assert_true(cubby_exec_pid(exec) > 0);
        size_t sent = 0;
        size_t got = 0;
        bool ended = false;
        cubby_error err = {0};
        int64_t deadline = now_ms() + SOON_MS;
        while (!ended) {
                assert_true(now_ms() < deadline);
                bool stuck = true;
                if (sent < SIZE) {
                        int64_t taken = cubby_exec_write(exec, input + sent, SIZE - sent, 0, &err);
                        if (taken > 0) {
                                sent += (size_t)taken;
                                stuck = false;
                        } else {
                                assert_int_equal(err.code, CUBBY_E_TIMEOUT);
                        }
                        if (sent == SIZE)
                                assert_int_equal(cubby_exec_close_stdin(exec, &err), 0);
                }
                struct pollfd poll_fd = {.fd = cubby_exec_fd(exec), .events = POLLIN};
                int ready = poll(&poll_fd, 1, stuck ? SOON_MS : 0);
                assert_true(ready >= 0);
                assert_true(ready > 0 || !stuck);
                cubby_event event;
                while (ready > 0 && !ended && cubby_exec_next(exec, 0, &event, &err) == 0) {
                        if (event.kind == CUBBY_EVENT_EXIT) {
                                assert_int_equal(event.exit.code, 0);
                                ended = true;
                                break;
                        }
                        assert_true(got + event.size <= SIZE);
                        assert_memory_equal(event.data, input + got, event.size);
                        got += event.size;
                }
        }
        assert_int_equal(got, SIZE);
        cubby_event event;
        assert_int_equal(cubby_exec_next(exec, 0, &event, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CLOSED);
        assert_int_equal(cubby_exec_write(exec, "x", 1, 0, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CLOSED);
        assert_int_equal(err.sys_errno, EPIPE);
        assert_int_equal(cubby_exec_signal(exec, SIGTERM, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CLOSED);
        cubby_exec_close(exec);
        free(input);
        remove_box(box);
}

struct writing {
        cubby_exec *exec;
        const uint8_t *input;
        size_t size;
        bool good;
};

static void *write_all(void *data)
{
        struct writing *writing = data;
        cubby_error err = {0};
        writing->good = cubby_exec_write(writing->exec, writing->input, writing->size, SOON_MS,
                                &err) == (int64_t)writing->size &&
                cubby_exec_close_stdin(writing->exec, &err) == 0;
        return NULL;
}

/* A writing thread beside a reading one. */
static void test_two_threads(void **state)
{
        enum { SIZE = 5 * MIB };
        struct place *place = *state;
        cubby_box *box = place_box(place, "threads", NULL, 1);
        uint8_t *input = noise(SIZE);
        struct writing writing = {
                .exec = start(box, LIST("cat"), true), .input = input, .size = SIZE};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_all, &writing), 0);
        size_t got = 0;
        cubby_event event = {0};
        cubby_error err = {0};
        for (;;) {
                assert_int_equal(
                        fine(cubby_exec_next(writing.exec, SOON_MS, &event, &err), &err), 0);
                if (event.kind == CUBBY_EVENT_EXIT)
                        break;
                assert_true(got + event.size <= SIZE);
                assert_memory_equal(event.data, input + got, event.size);
                got += event.size;
        }
        assert_int_equal(got, SIZE);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(writing.good);
        cubby_exec_close(writing.exec);
        free(input);
        remove_box(box);
}

static void test_timeout(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "timeout", NULL, 1);
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("sleep", "1000");
        options.timeout_ms = 150;
        cubby_result result = {0};
        cubby_error err = {0};
        int64_t before = now_ms();
        assert_int_equal(fine(cubby_exec_run(box, &options, NULL, 0, &result, &err), &err), 0);
        assert_true(result.exit.timed_out);
        assert_true(now_ms() - before >= 150);
        assert_true(now_ms() - before < 5000);
        cubby_result_clear(&result);
        /* the caller's patience is another matter: the command goes on */
        cubby_exec *exec = start(box, LIST("sleep", "1000"), false);
        cubby_event event;
        assert_int_equal(cubby_exec_next(exec, 50, &event, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_int_equal(fine(cubby_exec_signal(exec, SIGKILL, &err), &err), 0);
        assert_int_equal(fine(cubby_exec_next(exec, SOON_MS, &event, &err), &err), 0);
        assert_int_equal(event.kind, CUBBY_EVENT_EXIT);
        assert_int_equal(event.exit.code, 137);
        assert_int_equal(event.exit.signal, 9);
        cubby_exec_close(exec);
        remove_box(box);
}

static void freeze(cubby_box *box)
{
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("hang");
        options.detach = true;
        cubby_exec *exec = NULL;
        (void)cubby_exec_start(box, &options, &exec, NULL);
        cubby_exec_close(exec);
        assert_int_equal(cubby_box_ping(box, 200, NULL), -1);
}

/* A box that does not answer any more: the command's timeout still counts. */
static void test_timeout_of_a_frozen_box(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "frozen", NULL, 1);
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("sleep", "1000");
        options.timeout_ms = 700;
        cubby_exec *waiting = NULL;
        cubby_exec *polling = NULL;
        cubby_error err = {0};
        int64_t before = now_ms();
        assert_int_equal(fine(cubby_exec_start(box, &options, &waiting, &err), &err), 0);
        assert_int_equal(fine(cubby_exec_start(box, &options, &polling, &err), &err), 0);
        freeze(box);
        cubby_event event;
        assert_int_equal(fine(cubby_exec_next(waiting, -1, &event, &err), &err), 0);
        int64_t took = now_ms() - before;
        assert_true(took >= 700 && took < 2700);
        assert_int_equal(event.kind, CUBBY_EVENT_EXIT);
        assert_true(event.exit.timed_out);
        assert_true(event.exit.incomplete);
        assert_int_equal(event.exit.code, 137);
        assert_int_equal(cubby_exec_next(waiting, -1, &event, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CLOSED);
        struct pollfd poll_fd = {.fd = cubby_exec_fd(polling), .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 2000), 1);
        assert_int_equal(fine(cubby_exec_next(polling, 0, &event, &err), &err), 0);
        assert_true(event.exit.timed_out);
        cubby_exec_close(waiting);
        cubby_exec_close(polling);

        cubby_result result = {0};
        before = now_ms();
        assert_int_equal(cubby_exec_run(box, &options, "x", 1, &result, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(now_ms() - before < 2700);
        before = now_ms();
        assert_int_equal(fine(cubby_box_stop(box, 300, &err), &err), 0);
        assert_true(now_ms() - before < 3000);
        remove_box(box);
}

/* The timeout ends the command, not the reading of what it printed before. */
static void test_timeout_and_a_slow_reader(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "slow", NULL, 1);
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("yes");
        options.timeout_ms = 200;
        cubby_exec *exec = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_exec_start(box, &options, &exec, &err), &err), 0);
        (void)poll(NULL, 0, 2500);
        cubby_event event = {0};
        size_t got = 0;
        while (event.kind != CUBBY_EVENT_EXIT) {
                assert_int_equal(fine(cubby_exec_next(exec, -1, &event, &err), &err), 0);
                got += event.size;
        }
        assert_true(got >= MIB / 4);
        assert_true(event.exit.timed_out);
        assert_false(event.exit.incomplete);
        cubby_exec_close(exec);
        remove_box(box);
}

static size_t process_count(cubby_box *box)
{
        cubby_process *processes = NULL;
        size_t count = 0;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_processes(box, &processes, &count, NULL, &err), &err), 0);
        cubby_free(processes);
        return count;
}

/* Closing ends the command, unless it was detached. A flood holds nobody up. */
static void test_close(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "close", NULL, 1);
        size_t before = process_count(box);
        cubby_exec *flood = start(box, LIST("yes"), false);
        cubby_exec *sleeper = start(box, LIST("sleep", "1000"), false);
        cubby_error err = {0};
        for (int i = 0; i < 20; i++)
                assert_int_equal(fine(cubby_box_ping(box, 2000, &err), &err), 0);
        assert_int_equal(process_count(box), before + 2);
        cubby_exec_close(flood);
        cubby_exec_close(sleeper);
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = LIST("sleep", "1000");
        options.detach = true;
        cubby_exec *detached = NULL;
        assert_int_equal(fine(cubby_exec_start(box, &options, &detached, &err), &err), 0);
        cubby_exec_close(detached);
        int64_t deadline = now_ms() + SOON_MS;
        while (process_count(box) != before + 1)
                assert_true(now_ms() < deadline);
        cubby_exec_close(NULL);
        remove_box(box);
}

static int keep(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        char *text = data;
        size_t used = strlen(text);
        assert_true(used + size < 4096);
        assert_true(time_ns > 0);
        memcpy(text + used, bytes, size);
        text[used + size] = '\0';
        return 0;
}

static void read_log(
        cubby_box *box, bool follow, int64_t tail_lines, int64_t since_ns, const char *want)
{
        char text[4096] = "";
        cubby_log_options options = CUBBY_INIT(cubby_log_options);
        options.follow = follow;
        options.tail_lines = tail_lines;
        options.since_ns = since_ns;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_logs(box, &options, keep, text, &err), &err), 0);
        assert_string_equal(text, want);
}

/* The box's own command: kept, replayed, fed, followed. */
static void test_attach(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "attach", LIST("cat"), 1);
        cubby_exec *first = NULL;
        cubby_exec *second = NULL;
        cubby_error err = {0};
        cubby_event event;
        assert_int_equal(fine(cubby_box_attach(box, true, &first, &err), &err), 0);
        assert_int_equal(cubby_exec_write(first, "one\n", 4, SOON_MS, &err), 4);
        assert_int_equal(fine(cubby_exec_next(first, SOON_MS, &event, &err), &err), 0);
        assert_int_equal(event.size, 4);
        assert_memory_equal(event.data, "one\n", 4);
        assert_int_equal(fine(cubby_box_attach(box, true, &second, &err), &err), 0);
        assert_int_equal(fine(cubby_exec_next(second, SOON_MS, &event, &err), &err), 0);
        assert_memory_equal(event.data, "one\n", 4); /* replayed */
        assert_int_equal(cubby_exec_write(second, "two\n", 4, SOON_MS, &err), 4);
        assert_int_equal(fine(cubby_exec_next(first, SOON_MS, &event, &err), &err), 0);
        assert_memory_equal(event.data, "two\n", 4);
        cubby_exec_close(first); /* does not end it */
        assert_int_equal(fine(cubby_box_ping(box, SOON_MS, &err), &err), 0);
        assert_int_equal(cubby_exec_write(second, "three", 5, SOON_MS, &err), 5);
        assert_int_equal(fine(cubby_exec_close_stdin(second, &err), &err), 0);
        read_log(box, true, -1, 0, "one\ntwo\nthree"); /* until its end */
        do
                assert_int_equal(fine(cubby_exec_next(second, SOON_MS, &event, &err), &err), 0);
        while (event.kind != CUBBY_EVENT_EXIT);
        assert_int_equal(event.exit.code, 0);
        cubby_exec_close(second);
        int code = -1;
        assert_int_equal(fine(cubby_box_wait(box, SOON_MS, &code, &err), &err), 0);
        read_log(box, false, -1, 0, "one\ntwo\nthree");
        read_log(box, false, 0, 0, "");
        read_log(box, false, 1, 0, "three");
        read_log(box, false, 2, 0, "two\nthree");
        read_log(box, false, 99, 0, "one\ntwo\nthree");
        read_log(box, false, -1, INT64_MAX, "");
        read_log(box, true, -1, 0, "one\ntwo\nthree"); /* ended: does not wait */
        assert_int_equal(cubby_box_attach(box, true, &first, &err), -1);
        assert_int_equal(err.code, CUBBY_E_STATE);
        remove_box(box);
}

static int count_bytes(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        *(size_t *)data += size;
        return 0;
}

static int stop_reading(void *data, int stream, int64_t time_ns, const void *bytes, size_t size)
{
        return ++*(int *)data >= 3;
}

/* The log of a flood stays bounded while it is being read. */
static void test_long_log(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "flood", LIST("yes"), 1);
        cubby_log_options options = CUBBY_INIT(cubby_log_options);
        options.tail_lines = -1;
        size_t bytes = 0;
        cubby_error err = {0};
        int64_t deadline = now_ms() + SOON_MS;
        do {
                bytes = 0;
                assert_int_equal(
                        fine(cubby_box_logs(box, &options, count_bytes, &bytes, &err), &err), 0);
                assert_true(now_ms() < deadline);
        } while (bytes < 9 * MIB);
        assert_true(bytes <= 18 * MIB);
        int calls = 0;
        options.follow = true;
        assert_int_equal(fine(cubby_box_logs(box, &options, stop_reading, &calls, &err), &err), 0);
        assert_int_equal(calls, 3);
        remove_box(box);
}

/* A thousand commands leave nothing behind, here or there. */
static void test_many(void **state)
{
        struct place *place = *state;
        cubby_box *box = place_box(place, "many", NULL, 1);
        size_t processes = process_count(box);
        int fds = count_fds();
        for (int i = 0; i < 1000; i++) {
                cubby_result result = run(box, LIST("echo", "x"), NULL, 0);
                assert_string_equal(result.output, "x\n");
                cubby_result_clear(&result);
        }
        assert_int_equal(count_fds(), fds);
        assert_int_equal(process_count(box), processes);
        remove_box(box);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_PLACE(test_results),
                WITH_PLACE(test_refused),
                WITH_PLACE(test_environment),
                WITH_PLACE(test_bytes),
                WITH_PLACE(test_truncated),
                WITH_PLACE(test_poll_loop),
                WITH_PLACE(test_two_threads),
                WITH_PLACE(test_timeout),
                WITH_PLACE(test_timeout_of_a_frozen_box),
                WITH_PLACE(test_timeout_and_a_slow_reader),
                WITH_PLACE(test_close),
                WITH_PLACE(test_attach),
                WITH_PLACE(test_long_log),
                WITH_PLACE(test_many),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
