/* SPDX-License-Identifier: Apache-2.0 */

/* Agents that attack the host. Whatever they send, only their own box suffers. */
#include "harness.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/files.h"

static void start(struct test_box *box, const char *script)
{
        struct box_setup setup = {.engine = "script", .script = script};
        box_start(box, &setup);
}

/* Attacks that end the box as failed("protocol"), soon, whoever waits. */
static void test_fatal(void **state)
{
        static const char *const scripts[] = {"huge-length", "over-length", "zero-frames",
                "half-frame", "drip", "unknown-streams", "stale-session", "flood", "hello-again"};
        for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
                struct test_box box;
                start(&box, scripts[i]);
                struct client *client = NULL;
                /* it may be over already */
                if (client_connect(box.dir_fd, soon(), &client, NULL) == 0) {
                        long pages = resident_pages(&box);
                        if (pages > 4096)
                                fail_msg("%s: %ld pages", scripts[i], pages);
                        if (!closes_within(client, 5000))
                                fail_msg("%s: the box lives on", scripts[i]);
                }
                struct box_exit exit;
                box_wait_end(&box, &exit);
                if (strcmp(exit.reason, "protocol") != 0)
                        fail_msg("%s: reason '%s'", scripts[i], exit.reason);
                client_close(client);
                box_remove(&box);
        }
}

static void test_over_credit(void **state)
{
        struct test_box box;
        start(&box, "over-credit");
        struct client *client = box_client(&box);
        (void)send_exec(client, 0, ARGV("anything"));
        /* the client takes nothing: the window alone bounds what is kept for it */
        struct box_exit exit;
        int64_t begun = clock_monotonic_ms();
        box_wait_end(&box, &exit);
        assert_true(clock_monotonic_ms() - begun < SOON_MS);
        assert_string_equal(exit.reason, "protocol");
        client_close(client);
        box_remove(&box);
}

static uint64_t send_file_call(struct client *client, uint16_t operation)
{
        const struct message_file_call call = {
                .operation = operation, .path = {(const uint8_t *)"/", 1}};
        AUTO_BUFFER struct buffer payload = {.maximum = 1000};
        uint64_t stream = client_new_stream(client);
        assert_true(message_file_call_encode(&payload, &call));
        assert_int_equal(client_send(client, FRAME_FILE_CALL, 0, stream, payload.data, payload.size,
                                 soon(), NULL),
                0);
        return stream;
}

static void test_files_over_credit(void **state)
{
        struct test_box box;
        struct box_exit exit;
        start(&box, "files-over-credit");
        struct client *client = box_client(&box);
        (void)send_file_call(client, FILE_LIST);
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "protocol");
        client_close(client);
        box_remove(&box);
}

/* Only what belongs to the call reaches the client, and only once. */
static void test_wrong_answers_to_files(void **state)
{
        struct test_box box;
        struct frame frame;
        start(&box, "wrong-files");
        struct client *client = box_client(&box);
        uint64_t stream = send_file_call(client, FILE_STAT);
        assert_int_equal(client_next(client, soon(), &frame, NULL), 0);
        assert_int_equal(frame.type, FRAME_FILE_REPLY);
        assert_int_equal(frame.stream, stream);
        assert_memory_equal(frame.payload, "right", 5);
        assert_int_equal(client_next(client, clock_monotonic_ms() + 300, &frame, NULL), -1);
        client_close(client);
        box_drop(&box);
}

/* A client that breaks the rules of a file call loses its connection, no more. */
static void test_clients_that_break_file_calls(void **state)
{
        static const struct {
                uint16_t operation, type, flags;
                size_t size;
        } cases[] = {
                {FILE_STAT, FRAME_DATA, CHANNEL_STDIN, 1},
                {FILE_STAT, FRAME_EOF, CHANNEL_STDIN, 0},
                {FILE_WRITE, FRAME_FILE_ENTRY, 0, 1},
                {FILE_WRITE, FRAME_DATA, CHANNEL_STDOUT, 1},
                {FILE_WRITE, FRAME_DATA, CHANNEL_STDIN, 0},
                {FILE_WRITE, FRAME_SIGNAL, 0, 4},
                {FILE_READ, FRAME_CREDIT, CHANNEL_STDOUT, 4},
        };
        static const uint8_t payload[4] = {1, 0, 0, 1};
        struct test_box box;
        start(&box, "deaf");
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct client *client = box_client(&box);
                uint64_t stream = send_file_call(client, cases[i].operation);
                (void)client_send(client, cases[i].type, cases[i].flags, stream, payload,
                        cases[i].size, soon(), NULL);
                if (!closes_within(client, 5000))
                        fail_msg("case %zu goes on", i);
                client_close(client);
        }
        box_drop(&box);
}

/* A second end of a command never reaches the next one. */
static void test_duplicate_exit(void **state)
{
        struct test_box box;
        start(&box, "duplicate-exit");
        struct client *client = box_client(&box);
        static const uint32_t codes[] = {3, 6};
        for (size_t i = 0; i < 2; i++) {
                struct outcome outcome;
                run(client, ARGV("anything"), &outcome);
                assert_int_equal(outcome.exit.code, codes[i]);
                assert_int_equal(outcome.out.size, 0);
                outcome_free(&outcome);
        }
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.violations, 3);
        client_close(client);
        box_drop(&box);
}

static void test_bad_values(void **state)
{
        struct test_box box;
        start(&box, "bad-values");
        struct client *client = box_client(&box);
        struct outcome outcome;
        run(client, ARGV("anything"), &outcome);
        assert_false(outcome.failed);
        assert_int_equal(outcome.exit.code, 9);
        assert_int_equal(outcome.out.size, 0);
        outcome_free(&outcome);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.violations, 11);
        client_close(client);
        box_drop(&box);
}

static void test_wrong_answers(void **state)
{
        struct test_box box;
        start(&box, "wrong-answers");
        struct client *client = box_client(&box);
        (void)ping(client);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.violations, 3);
        client_close(client);
        box_drop(&box);
}

static void test_escapes(void **state)
{
        struct test_box box;
        start(&box, "escapes");
        struct client *client = box_client(&box);
        struct outcome outcome;
        run(client, ARGV("anything"), &outcome);
        assert_true(outcome.failed);
        assert_string_equal(outcome.error.message, "a?[2Jb?c?d??\xc3\x9c");
        outcome_free(&outcome);
        client_close(client);
        box_drop(&box);
}

/* An agent that reads nothing: stdin stops at its window, nothing blocks. */
static void test_deaf(void **state)
{
        struct test_box box;
        start(&box, "deaf");
        struct client *pusher = box_client(&box);
        static const uint8_t data[FRAME_DATA_MAX];
        for (int i = 0; i < 40; i++) {
                uint64_t stream = send_exec(pusher, EXEC_STDIN, ARGV("cat"));
                for (size_t n = 0; n < STREAM_WINDOW / sizeof data; n++)
                        if (client_send(pusher, FRAME_DATA, CHANNEL_STDIN, stream, data,
                                    sizeof data, deadline_after_ms(200), NULL) < 0)
                                i = 40; /* this client has to wait: that is the brake */
        }
        struct client *other = box_client(&box);
        struct message_status status;
        get_status(other, &status);
        long pages = resident_pages(&box);
        if (pages > 8192)
                fail_msg("%ld pages", pages);
        client_close(pusher);
        get_status(other, &status);
        client_close(other);
        box_drop(&box);
}

/* The same for a while: what an attached client has to tell is not lost. */
static void test_late_reader(void **state)
{
        struct test_box box;
        const struct box_setup setup = {
                .engine = "script", .script = "late-reader", .argv = ARGV("anything")};
        box_start(&box, &setup);
        struct client *attached = box_client(&box);
        uint64_t stream = send_attach(attached, false);
        struct client *pusher = box_client(&box);
        static char big[100000];
        memset(big, 'x', sizeof big - 1);
        for (int i = 0; i < 40; i++) {
                struct frame frame;
                (void)send_exec(pusher, EXEC_STDIN, ARGV("cat", big));
                if (client_next(pusher, deadline_after_ms(5), &frame, NULL) == 0)
                        break; /* refused: the line is full */
        }
        send_u32(attached, FRAME_SIGNAL, 0, stream, 15);
        struct outcome outcome = {0};
        collect(attached, stream, &outcome);
        assert_false(outcome.failed);
        assert_int_equal(outcome.exit.signal, 15);
        outcome_free(&outcome);
        client_close(pusher);
        client_close(attached);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "exited");
        box_remove(&box);
}

/* Half a frame while paused: nothing is asked of the machine then, and nobody spins. */
static void test_half_frame_while_paused(void **state)
{
        struct test_box box;
        start(&box, "late-half-frame");
        struct client *client = box_client(&box);
        struct frame frame;
        (void)ping(client);
        assert_int_equal(
                client_call(client, FRAME_SHIM_PAUSE, NULL, 0, FRAME_OK, soon(), &frame, NULL), 0);
        (void)poll(NULL, 0, 1000); /* beyond the time for a frame */
        int64_t before = processor_ms(&box);
        (void)poll(NULL, 0, 1000);
        assert_true(processor_ms(&box) - before < 300);
        struct message_status status;
        get_status(client, &status);
        assert_int_equal(status.state, SHIM_PAUSED);
        assert_int_equal(
                client_call(client, FRAME_SHIM_UNPAUSE, NULL, 0, FRAME_OK, soon(), &frame, NULL),
                0);
        struct box_exit exit;
        box_wait_end(&box, &exit);
        assert_string_equal(exit.reason, "protocol");
        client_close(client);
        box_remove(&box);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fatal),
                cmocka_unit_test(test_over_credit),
                cmocka_unit_test(test_duplicate_exit),
                cmocka_unit_test(test_bad_values),
                cmocka_unit_test(test_wrong_answers),
                cmocka_unit_test(test_files_over_credit),
                cmocka_unit_test(test_wrong_answers_to_files),
                cmocka_unit_test(test_clients_that_break_file_calls),
                cmocka_unit_test(test_escapes),
                cmocka_unit_test(test_deaf),
                cmocka_unit_test(test_late_reader),
                cmocka_unit_test(test_half_frame_while_paused),
        };
        if (argc > 1) /* a pattern of names */
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, kill_leftovers);
}
