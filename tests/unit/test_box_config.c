/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "box/config.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char good[] =
        "{\"version\":1,\"id\":\"00112233445566778899aabbccddeeff\",\"name\":\"web\","
        "\"hostname\":\"web\",\"image_id\":\"sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
        "\"image_name\":\"python\",\"engine\":\"microvm\",\"accel\":\"auto\",\"kernel\":\"6.1.0\","
        "\"argv\":[\"sh\",\"-c\",\"echo \\u00e9\"],\"env\":[\"A=1\",\"B=x=y\"],"
        "\"labels\":[\"k=v\"],\"workdir\":\"/srv\",\"user\":\"nobody\","
        "\"stop_signal\":\"SIGTERM\",\"tty\":true,\"open_stdin\":false,\"auto_remove\":true,\"no_"
        "template\":true,"
        "\"memory_bytes\":536870912,\"cpu_milli\":1500,\"disk_bytes\":8589934592,"
        "\"pids_max\":4096,\"ttl_ms\":0,\"boot_timeout_ms\":60000,\"slot\":5,\"created_ns\":9}";

static void test_round_trip(void **state)
{
        struct box_config config = {0};
        cubby_error err = {0};
        assert_int_equal(box_config_decode(good, sizeof good - 1, &config, &err), 0);
        assert_string_equal(config.argv[2], "echo \xc3\xa9");
        assert_null(config.argv[3]);
        assert_string_equal(config.env[1], "B=x=y");
        assert_true(config.tty);
        assert_false(config.open_stdin);
        assert_true(config.auto_remove);
        assert_true(config.no_template);
        assert_int_equal(config.cpu_milli, 1500);
        assert_int_equal(config.slot, 5);
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        assert_int_equal(box_config_encode(&config, &json, &err), 0);
        box_config_clear(&config);
        struct box_config again = {0};
        assert_int_equal(box_config_decode(json.data, json.size, &again, &err), 0);
        assert_string_equal(again.workdir, "/srv");
        assert_string_equal(again.labels[0], "k=v");
        assert_int_equal(again.disk_bytes, 8589934592);
        box_config_clear(&again);
        box_config_clear(&again);
        box_config_clear(NULL);
}

/* The good text with one member replaced, added (no such key) or removed (NULL). */
static void test_bad_members(void **state)
{
        static const struct {
                const char *key, *value;
                int code;
        } rows[] = {
                {"version", "2", CUBBY_E_VERSION},
                {"version", "0", CUBBY_E_CORRUPT},
                {"version", "\"1\"", CUBBY_E_CORRUPT},
                {"version", NULL, CUBBY_E_CORRUPT},
                {"surprise", "1", CUBBY_E_CORRUPT},
                {"id", "\"\"", CUBBY_E_CORRUPT},
                {"id", "\"../112233445566778899aabbccddeeff\"", CUBBY_E_CORRUPT},
                {"id", "\"00112233445566778899AABBCCDDEEFF\"", CUBBY_E_CORRUPT},
                {"id", "null", CUBBY_E_CORRUPT},
                {"name", "\"-x\"", CUBBY_E_CORRUPT},
                {"name", "\"a/b\"", CUBBY_E_CORRUPT},
                {"name", "\"a\\n\"", CUBBY_E_CORRUPT},
                {"hostname", "\"a b\"", CUBBY_E_CORRUPT},
                {"hostname", "\"\"", CUBBY_E_CORRUPT},
                {"hostname", "\".x\"", CUBBY_E_CORRUPT},
                {"image_id", "\"sha256:12\"", CUBBY_E_CORRUPT},
                {"engine", "\"../x\"", CUBBY_E_CORRUPT},
                {"engine", "\"\"", CUBBY_E_CORRUPT},
                {"accel", "\"xen\"", CUBBY_E_CORRUPT},
                {"kernel", "\"../6.1\"", CUBBY_E_CORRUPT},
                {"kernel", "\"a/b\"", CUBBY_E_CORRUPT},
                {"argv", "\"sh\"", CUBBY_E_CORRUPT},
                {"argv", "[1]", CUBBY_E_CORRUPT},
                {"argv", "[[\"sh\"]]", CUBBY_E_CORRUPT},
                {"env", "[\"A\"]", CUBBY_E_CORRUPT},
                {"env", "[\"=x\"]", CUBBY_E_CORRUPT},
                {"env", "{}", CUBBY_E_CORRUPT},
                {"labels", "[\"=\"]", CUBBY_E_CORRUPT},
                {"workdir", "\"relative\"", CUBBY_E_CORRUPT},
                {"workdir", "7", CUBBY_E_CORRUPT},
                {"user", NULL, CUBBY_E_CORRUPT},
                {"stop_signal", "\"SIGNOTHING\"", CUBBY_E_CORRUPT},
                {"tty", "1", CUBBY_E_CORRUPT},
                {"memory_bytes", "0", CUBBY_E_CORRUPT},
                {"memory_bytes", "-1", CUBBY_E_CORRUPT},
                {"memory_bytes", "536870913", CUBBY_E_CORRUPT},
                {"memory_bytes", "5.5", CUBBY_E_CORRUPT},
                {"memory_bytes", "99999999999999999999999", CUBBY_E_CORRUPT},
                {"memory_bytes", "9223372036854775807", CUBBY_E_CORRUPT},
                {"cpu_milli", "0", CUBBY_E_CORRUPT},
                {"cpu_milli", "64001", CUBBY_E_CORRUPT}, /* no machine has more than 64 */
                {"cpu_milli", "4294968296", CUBBY_E_CORRUPT},
                {"disk_bytes", "1", CUBBY_E_CORRUPT},
                {"pids_max", "0", CUBBY_E_CORRUPT},
                {"ttl_ms", "-1", CUBBY_E_CORRUPT},
                {"boot_timeout_ms", "0", CUBBY_E_CORRUPT},
                {"slot", "0", CUBBY_E_CORRUPT},
                {"slot", "60001", CUBBY_E_CORRUPT},
                {"slot", "4294967297", CUBBY_E_CORRUPT},
                {"created_ns", "-1", CUBBY_E_CORRUPT},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                json_t *root = json_loads(good, 0, NULL);
                assert_non_null(root);
                if (rows[i].value == NULL)
                        assert_int_equal(json_object_del(root, rows[i].key), 0);
                else
                        /* also numbers that JSON readers refuse must reach the decoder */
                        assert_int_equal(
                                json_object_set_new(root, rows[i].key, json_string("@@")), 0);
                char *text = json_dumps(root, JSON_COMPACT);
                json_decref(root);
                assert_non_null(text);
                char changed[4096];
                char *mark = strstr(text, "\"@@\"");
                if (mark != NULL)
                        (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(mark - text),
                                text, rows[i].value, mark + 4);
                else
                        (void)snprintf(changed, sizeof changed, "%s", text);
                free(text);
                struct box_config config = {0};
                cubby_error err = {0};
                int result = box_config_decode(changed, strlen(changed), &config, &err);
                if (result != -1 || err.code != rows[i].code)
                        print_message("row %s = %s: %d, code %d, %s\n", rows[i].key,
                                rows[i].value == NULL ? "(none)" : rows[i].value, result, err.code,
                                err.message);
                assert_int_equal(result, -1);
                assert_int_equal(err.code, rows[i].code);
                assert_null(config.id);
        }
}

static void test_bad_texts(void **state)
{
        static const char *const texts[] = {"", " ", "{", "[]", "null", "1", "\"x\"", "{}",
                "{\"version\":1}", "{\"version\":1,\"version\":1}", "\xff\xfe",
                "{\"id\":\"\\u0000\"}"};
        struct box_config config = {0};
        cubby_error err = {0};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                assert_int_equal(box_config_decode(texts[i], strlen(texts[i]), &config, &err), -1);
                assert_int_equal(err.code, CUBBY_E_CORRUPT);
        }
        for (size_t cut = 0; cut < sizeof good - 1; cut++)
                assert_int_equal(box_config_decode(good, cut, &config, &err), -1);
        AUTO_FREE char *deep = malloc(200000);
        assert_non_null(deep);
        memset(deep, '[', 200000);
        assert_int_equal(box_config_decode(deep, 200000, &config, &err), -1);
        assert_int_equal(box_config_decode(deep, BOX_CONFIG_BYTES_MAX + 1, &config, &err), -1);
}

static void test_encode_refuses(void **state)
{
        struct box_config config = {0};
        cubby_error err = {0};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        assert_int_equal(box_config_encode(&config, &json, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(box_config_decode(good, sizeof good - 1, &config, &err), 0);
        free(config.argv[2]);
        config.argv[2] = strdup("\xff\xfe");
        assert_int_equal(box_config_encode(&config, &json, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        free(config.argv[2]);
        config.argv[2] = malloc(140000);
        assert_non_null(config.argv[2]);
        memset(config.argv[2], 'x', 139999);
        config.argv[2][139999] = '\0';
        assert_int_equal(box_config_encode(&config, &json, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(json.size, 0);
        box_config_clear(&config);
}

static void test_signals(void **state)
{
        static const struct {
                const char *name;
                int number;
        } rows[] = {
                {"SIGTERM", SIGTERM},
                {"TERM", SIGTERM},
                {"15", SIGTERM},
                {"SIGKILL", SIGKILL},
                {"9", SIGKILL},
                {"SIGUSR1", SIGUSR1},
                {"64", 64},
                {"", -1},
                {"SIG", -1},
                {"0", -1},
                {"-1", -1},
                {"65", -1},
                {"9x", -1},
                {" 9", -1},
                {"sigterm", -1},
                {"SIGSIGTERM", -1},
                {"RTMIN-1", -1},
                {"SIGRTMIN+", -1},
                {"SIGRTMIN+99", -1},
                {"SIGRTMAX+1", -1},
                {"99999999999999999999", -1},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                assert_int_equal(box_signal_number(rows[i].name), rows[i].number);
        assert_int_equal(box_signal_number("SIGRTMIN+3"), SIGRTMIN + 3);
        assert_int_equal(box_signal_number("RTMAX-1"), SIGRTMAX - 1);
}

static void test_exit_round_trip(void **state)
{
        struct box_exit end = {.reason = "exited",
                .detail = "odd \xff\x1b[2J bytes",
                .exit_code = 3,
                .oom = true,
                .started_ns = 5,
                .finished_ns = 9,
                .generation = 2,
                .isolation = "emulated"};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, 65536);
        cubby_error err = {0};
        assert_int_equal(box_exit_encode(&end, &json, &err), 0);
        struct box_exit read = {0};
        assert_int_equal(box_exit_decode(json.data, json.size, &read, &err), 0);
        assert_string_equal(read.reason, "exited");
        assert_string_equal(read.detail, "odd ??[2J bytes");
        assert_int_equal(read.exit_code, 3);
        assert_true(read.oom);
        assert_int_equal(read.generation, 2);
        assert_string_equal(read.isolation, "emulated");
}

static void test_bad_exits(void **state)
{
        static const char *const texts[] = {
                "",
                "{}",
                "{\"version\":1}",
                "{\"version\":9,\"reason\":\"exited\"}",
                /* one thing wrong in each */
                "{\"version\":1,\"reason\":\"\",\"detail\":\"\",\"exit_code\":0,\"signal\":0,"
                "\"oom\":false,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"EXITED!\",\"detail\":\"\",\"exit_code\":0,"
                "\"signal\":0,\"oom\":false,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"exited\",\"detail\":\"\",\"exit_code\":256,"
                "\"signal\":0,\"oom\":false,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"exited\",\"detail\":\"\",\"exit_code\":0,"
                "\"signal\":65,\"oom\":false,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"exited\",\"detail\":\"\",\"exit_code\":4294967296,"
                "\"signal\":0,\"oom\":false,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"exited\",\"detail\":\"\",\"exit_code\":0,"
                "\"signal\":0,\"oom\":0,\"started_ns\":1,\"finished_ns\":1,\"generation\":1,"
                "\"isolation\":\"\"}",
                "{\"version\":1,\"reason\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"detail\":\"\","
                "\"exit_code\":0,\"signal\":0,\"oom\":false,\"started_ns\":1,\"finished_ns\":1,"
                "\"generation\":1,\"isolation\":\"\"}",
        };
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                struct box_exit end = {0};
                cubby_error err = {0};
                assert_int_equal(box_exit_decode(texts[i], strlen(texts[i]), &end, &err), -1);
        }
        struct box_exit wrong = {.reason = "", .exit_code = 0};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, 65536);
        assert_int_equal(box_exit_encode(&wrong, &json, NULL), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_bad_members),
                cmocka_unit_test(test_bad_texts),
                cmocka_unit_test(test_encode_refuses),
                cmocka_unit_test(test_signals),
                cmocka_unit_test(test_exit_round_trip),
                cmocka_unit_test(test_bad_exits),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
