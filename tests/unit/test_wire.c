/* SPDX-License-Identifier: Apache-2.0 */

/* Frames and messages: round trips, and every way in which they can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/wire.h"

#include <cubby/error.h>
#include <stdlib.h>
#include <string.h>

static struct slice text(const char *words)
{
        return (struct slice){.data = (const uint8_t *)words, .size = strlen(words)};
}

static void test_frame_decode(void **state)
{
        static const struct {
                uint32_t length;
                size_t given;
                uint32_t maximum;
                int64_t want;
        } rows[] = {
                {0, 24, 100, 24},
                {5, 29, 100, 29},
                {100, 124, 100, 124},
                {5, 60, 100, 29}, /* the next one's bytes are left */
                {0, 0, 100, 0},
                {0, 1, 100, 0},
                {0, 23, 100, 0},
                {5, 24, 100, 0},
                {5, 28, 100, 0},
                {101, 24, 100, -1},
                {101, 200, 100, -1},
                {0x7fffffffU, 200, 100, -1},
                {0x80000000U, 200, 100, -1},
                {0xffffffffU, 200, FRAME_FROM_GUEST_MAX, -1},
                {0xffffffe8U, 200, FRAME_TO_GUEST_MAX, -1}, /* with the header: 0 */
                {FRAME_FROM_GUEST_MAX + 1, 24, FRAME_FROM_GUEST_MAX, -1},
                {1, 24, 0, -1},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                /* exactly as long as given: sanitizers see a byte too far */
                uint8_t *data = calloc(1, rows[i].given + 1);
                assert_non_null(data);
                uint8_t header[FRAME_HEADER_SIZE];
                struct frame frame = {.length = rows[i].length, .type = FRAME_PING, .stream = 9};
                frame_encode_header(header, &frame);
                memcpy(data, header, rows[i].given < 24 ? rows[i].given : 24);
                struct frame got = {.stream = 1234};
                int64_t used = frame_decode(data, rows[i].given, rows[i].maximum, &got);
                if (used != rows[i].want)
                        fail_msg("row %zu gives %lld", i, (long long)used);
                assert_int_equal(got.stream, used > 0 ? 9 : 1234);
                free(data);
        }
}

static void test_frame_round_trip(void **state)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 64);
        assert_true(frame_append(
                &out, 0xabcd, 0x1234, 0x1122334455667788ULL, 0x99aabbccddeeff00ULL, "abc", 3));
        static const uint8_t bytes[] = {3, 0, 0, 0, 0xcd, 0xab, 0x34, 0x12, 0x88, 0x77, 0x66, 0x55,
                0x44, 0x33, 0x22, 0x11, 0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 'a', 'b',
                'c'};
        assert_int_equal(out.size, sizeof bytes);
        assert_memory_equal(out.data, bytes, sizeof bytes);
        struct frame frame;
        assert_int_equal(frame_decode(out.data, out.size, 3, &frame), 27);
        assert_int_equal(frame.type, 0xabcd);
        assert_int_equal(frame.flags, 0x1234);
        assert_true(frame.session == 0x1122334455667788ULL);
        assert_true(frame.stream == 0x99aabbccddeeff00ULL);
        assert_memory_equal(frame.payload, "abc", 3);
        /* what does not fit leaves no header behind */
        assert_false(frame_append(&out, 1, 0, 0, 0, bytes, 20));
        assert_int_equal(out.size, sizeof bytes);
}

static void test_types_from_guest(void **state)
{
        static const uint16_t allowed[] = {FRAME_HELLO, FRAME_RESUMED, FRAME_PONG, FRAME_ERROR,
                FRAME_FROZEN, FRAME_THAWED, FRAME_OK, FRAME_EXEC_STARTED, FRAME_DATA, FRAME_EOF,
                FRAME_CREDIT, FRAME_EXIT, FRAME_PROCESS_LIST, FRAME_METRICS_REPLY, FRAME_FILE_REPLY,
                FRAME_FILE_ENTRY};
        size_t count = 0;
        for (uint32_t type = 0; type <= 0xffff; type++)
                if (frame_type_from_guest((uint16_t)type)) {
                        assert_int_equal(type, allowed[count]);
                        count++;
                }
        assert_int_equal(count, sizeof allowed / sizeof allowed[0]);
        assert_string_equal(frame_type_name(FRAME_EXEC), "EXEC");
        assert_string_equal(frame_type_name(9999), "?");
}

/* Every message once: encoded, decoded, and with each byte cut off or added. */
struct sample {
        const char *name;
        bool (*encode)(struct buffer *out);
        bool (*decode)(struct slice payload);
};

static bool encode_hello(struct buffer *out)
{
        struct message_hello m = {
                .version = 1, .agent_version = text("0.1"), .kernel_release = text("6.1.0")};
        return message_hello_encode(out, &m);
}
static bool decode_hello(struct slice payload)
{
        struct message_hello m;
        return message_hello_decode(payload, &m) && m.version == 1 &&
                slice_equals(m.kernel_release, "6.1.0");
}
static bool encode_resume(struct buffer *out)
{
        static const uint8_t entropy[WIRE_ENTROPY_SIZE] = {7};
        struct message_resume m = {.nonce = 5,
                .entropy = entropy,
                .realtime_ns = 6,
                .cpu_milli = 1500,
                .pids_max = 99,
                .box_id = text("abc"),
                .hostname = text("h")};
        return message_resume_encode(out, &m);
}
static bool decode_resume(struct slice payload)
{
        struct message_resume m;
        return message_resume_decode(payload, &m) && m.nonce == 5 && m.entropy[0] == 7 &&
                m.cpu_milli == 1500 && slice_equals(m.hostname, "h");
}
static bool encode_resumed(struct buffer *out)
{
        struct message_resumed m = {.nonce = 5, .generation = 2, .memory_bytes = 3, .cpus = 4};
        return message_resumed_encode(out, &m);
}
static bool decode_resumed(struct slice payload)
{
        struct message_resumed m;
        return message_resumed_decode(payload, &m) && m.cpus == 4;
}
static bool encode_error(struct buffer *out)
{
        struct message_error m = {.code = CUBBY_E_INVALID, .sys_errno = 22, .text = text("no")};
        return message_error_encode(out, &m);
}
static bool decode_error(struct slice payload)
{
        struct message_error m;
        return message_error_decode(payload, &m) && m.sys_errno == 22;
}
static bool encode_exec(struct buffer *out)
{
        struct slice argv[] = {text("sh"), text("-c"), text("")};
        struct slice env[] = {text("A=B=C")};
        struct message_exec m = {.flags = EXEC_TTY,
                .timeout_ms = 9,
                .rows = 24,
                .columns = 80,
                .user = text("u"),
                .cwd = text("/"),
                .argv = argv,
                .argc = 3,
                .env = env,
                .envc = 1};
        return message_exec_encode(out, &m);
}
static bool decode_exec(struct slice payload)
{
        struct message_exec m;
        bool good = message_exec_decode(payload, &m) && m.argc == 3 && m.argv[2].size == 0 &&
                slice_equals(m.env[0], "A=B=C") && m.columns == 80;
        message_exec_free(&m);
        return good;
}
static bool encode_exit(struct buffer *out)
{
        struct message_exit m = {.code = 255, .signal = 64, .flags = EXIT_FLAGS_ALL, .user_us = 1};
        return message_exit_encode(out, &m);
}
static bool decode_exit(struct slice payload)
{
        struct message_exit m;
        return message_exit_decode(payload, &m) && m.code == 255 && m.signal == 64;
}
static bool encode_processes(struct buffer *out)
{
        struct message_process entries[2] = {
                {.pid = 1, .command = text("init")}, {.pid = 2, .command = text("sh")}};
        struct message_processes m = {.truncated = 1, .count = 2, .entries = entries};
        return message_processes_encode(out, &m);
}
static bool decode_processes(struct slice payload)
{
        struct message_process entries[WIRE_PROCESSES_MAX] = {0};
        struct message_processes m = {.entries = entries};
        return message_processes_decode(payload, &m) && m.count == 2 && entries[1].pid == 2;
}
static bool encode_metrics(struct buffer *out)
{
        struct message_metrics m = {.uptime_ms = 1, .processes = 8};
        return message_metrics_encode(out, &m);
}
static bool decode_metrics(struct slice payload)
{
        struct message_metrics m;
        return message_metrics_decode(payload, &m) && m.processes == 8;
}
static bool encode_status(struct buffer *out)
{
        struct message_status m = {.state = SHIM_PAUSED, .shim_pid = 3, .exit = {.code = 7}};
        return message_status_encode(out, &m);
}
static bool decode_status(struct slice payload)
{
        struct message_status m;
        return message_status_decode(payload, &m) && m.shim_pid == 3 && m.exit.code == 7;
}

static void test_messages(void **state)
{
        static const struct sample samples[] = {
                {"HELLO", encode_hello, decode_hello},
                {"RESUME", encode_resume, decode_resume},
                {"RESUMED", encode_resumed, decode_resumed},
                {"ERROR", encode_error, decode_error},
                {"EXEC", encode_exec, decode_exec},
                {"EXIT", encode_exit, decode_exit},
                {"PROCESS_LIST", encode_processes, decode_processes},
                {"METRICS_REPLY", encode_metrics, decode_metrics},
                {"STATUS_REPLY", encode_status, decode_status},
        };
        for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
                AUTO_BUFFER struct buffer out;
                buffer_init(&out, 4096);
                assert_true(samples[i].encode(&out));
                if (!samples[i].decode((struct slice){.data = out.data, .size = out.size}))
                        fail_msg("%s does not come back", samples[i].name);
                for (size_t size = 0; size <= out.size + 1; size++) {
                        if (size == out.size)
                                continue;
                        uint8_t *piece = calloc(1, size + 1);
                        assert_non_null(piece);
                        memcpy(piece, out.data, size < out.size ? size : out.size);
                        if (samples[i].decode((struct slice){.data = piece, .size = size}))
                                fail_msg("%s of %zu bytes is taken", samples[i].name, size);
                        free(piece);
                }
                struct buffer small;
                buffer_init(&small, out.size - 1);
                assert_false(samples[i].encode(&small));
                buffer_free(&small);
        }
}

/* Right layouts with wrong values: at `offset` of the sample, `size` bytes are `value`. */
static void test_wrong_values(void **state)
{
        static const struct {
                struct sample sample;
                size_t offset, size;
                uint64_t value;
        } rows[] = {
                {{"RESUME nonce", encode_resume, decode_resume}, 0, 8, 0},
                {{"RESUME id length", encode_resume, decode_resume}, 88, 4, 0xffffffffU},
                {{"HELLO text", encode_hello, decode_hello}, 6, 4, WIRE_TEXT_MAX + 1},
                {{"HELLO text", encode_hello, decode_hello}, 6, 4, 0x80000000U},
                {{"ERROR ok", encode_error, decode_error}, 0, 4, CUBBY_OK},
                {{"ERROR code", encode_error, decode_error}, 0, 4, CUBBY_E_CODE_MAX},
                {{"ERROR code", encode_error, decode_error}, 0, 4, 0xffffffffU},
                {{"ERROR errno", encode_error, decode_error}, 4, 4, 4096},
                {{"EXEC flags", encode_exec, decode_exec}, 0, 4, 0x10},
                {{"EXEC flags", encode_exec, decode_exec}, 0, 4, 0x80000000U},
                {{"EXEC argc 0", encode_exec, decode_exec}, 22, 4, 0},
                {{"EXEC argc", encode_exec, decode_exec}, 22, 4, WIRE_ARGUMENTS_MAX},
                {{"EXEC argc", encode_exec, decode_exec}, 22, 4, 0xffffffffU},
                {{"EXEC argv[0]", encode_exec, decode_exec}, 26, 4, WIRE_ARGUMENT_MAX + 1},
                {{"EXIT code", encode_exit, decode_exit}, 0, 4, 256},
                {{"EXIT code", encode_exit, decode_exit}, 0, 4, 0xffffffffU},
                {{"EXIT signal", encode_exit, decode_exit}, 4, 4, 65},
                {{"EXIT flags", encode_exit, decode_exit}, 8, 4, 8},
                {{"PROCESSES truncated", encode_processes, decode_processes}, 0, 1, 2},
                {{"PROCESSES count", encode_processes, decode_processes}, 1, 4,
                        WIRE_PROCESSES_MAX + 1},
                {{"PROCESSES count", encode_processes, decode_processes}, 1, 4, 0xffffffffU},
                {{"PROCESSES command", encode_processes, decode_processes}, 42, 4, 257},
                {{"STATUS state", encode_status, decode_status}, 0, 1, 0},
                {{"STATUS state", encode_status, decode_status}, 0, 1, 5},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                AUTO_BUFFER struct buffer out;
                buffer_init(&out, 4096);
                assert_true(rows[i].sample.encode(&out));
                for (size_t n = 0; n < rows[i].size; n++)
                        out.data[rows[i].offset + n] = (uint8_t)(rows[i].value >> (8 * n));
                if (rows[i].sample.decode((struct slice){.data = out.data, .size = out.size}))
                        fail_msg("%s = %llu is taken", rows[i].sample.name,
                                (unsigned long long)rows[i].value);
        }
}

static void test_numbers(void **state)
{
        static const uint8_t bytes[5] = {1, 0, 2, 0, 0};
        for (size_t size = 0; size <= 5; size++) {
                struct slice payload = {.data = bytes, .size = size};
                uint32_t number = 0;
                uint16_t rows = 0;
                uint16_t columns = 0;
                assert_int_equal(message_u32_decode(payload, &number), size == 4);
                assert_int_equal(message_resize_decode(payload, &rows, &columns), size == 4);
                if (size == 4) {
                        assert_int_equal(number, 0x20001);
                        assert_int_equal(rows, 1);
                        assert_int_equal(columns, 2);
                }
        }
}

static void test_long_error_text_is_cut(void **state)
{
        char words[WIRE_TEXT_MAX + 100];
        memset(words, 'w', sizeof words);
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 2 * WIRE_TEXT_MAX);
        struct message_error m = {.code = CUBBY_E_SYSTEM,
                .text = {.data = (const uint8_t *)words, .size = sizeof words}};
        assert_true(message_error_encode(&out, &m));
        struct message_error got;
        assert_true(message_error_decode((struct slice){.data = out.data, .size = out.size}, &got));
        assert_int_equal(got.text.size, WIRE_TEXT_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_frame_decode),
                cmocka_unit_test(test_frame_round_trip),
                cmocka_unit_test(test_types_from_guest),
                cmocka_unit_test(test_messages),
                cmocka_unit_test(test_wrong_values),
                cmocka_unit_test(test_numbers),
                cmocka_unit_test(test_long_error_text_is_cut),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
