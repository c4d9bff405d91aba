/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

static int parse(
        const char *text, struct provider_config *ret, char warnings[512], cubby_error *err)
{
        AUTO_BUFFER struct buffer lines;
        buffer_init(&lines, 4096);
        int result = provider_config_parse(text, strlen(text), "test.yaml", ret, &lines, err);
        (void)snprintf(warnings, 512, "%s", buffer_text(&lines));
        return result;
}

static void test_defaults(void **state)
{
        static const char *const texts[] = {"", "# nothing", "other: {a: 1}",
                "sandbox:", "version: 1\nsandbox: {}", "sandbox:\n  image:\n  user: null\n",
                "sandbox:\n  use: x:Y\n  port: 80\n  api_key: 'k'\n  thread_data_mounts: [a]\n"};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                struct provider_config config = {0};
                char warnings[512];
                assert_int_equal(parse(texts[i], &config, warnings, NULL), 0);
                assert_string_equal(warnings, "");
                assert_string_equal(config.image, "python:3.12-slim");
                assert_int_equal(config.memory_mib, 512);
                assert_int_equal(config.disk_mib, 8192);
                assert_int_equal(config.cpu_milli, 1000);
                assert_int_equal(config.replicas, 3);
                assert_int_equal(config.idle_ms, 600000);
                assert_int_equal(config.skip_ms, 0);
                assert_int_equal(config.acquire_ms, 30000);
                assert_int_equal(config.policy, CONFIG_SOFT);
                assert_int_equal(config.spares, 1);
                assert_int_equal(config.ttl_multiplier, 4);
                assert_string_equal(config.pool, "cubby");
                assert_null(config.user);
                assert_null(config.environment);
                provider_config_clear(&config);
        }
}

static void test_everything(void **state)
{
        static const char text[] =
                "log_level: info\n"
                "sandbox:\n"
                "  image: debian:12\n"
                "  memory_mib: 256\n"
                "  cpus: 0.5\n"
                "  disk_mib: 1024\n"
                "  replicas: 7\n"
                "  idle_timeout: 1.5\n"
                "  health_check_skip_seconds: 2e1\n"
                "  environment: {A_1: x, B: '', C: $CONFIG_TEST_HOME, D: '$5 is a price'}\n"
                "  engine: fake\n"
                "  accel: tcg\n"
                "  spares: 0\n"
                "  warmup: ['python3 -c pass', 'true']\n"
                "  overflow_policy: burst\n"
                "  acquire_timeout: 5\n"
                "  burst_limit: 2\n"
                "  max_boxes: 50\n"
                "  pool: team_1\n"
                "  network: none\n"
                "  user: '1000:1000'\n"
                "  workdir: /work\n"
                "  lease_renewal_seconds: 0.5\n"
                "  lease_ttl_multiplier: 2\n";
        assert_int_equal(setenv("CONFIG_TEST_HOME", "from the host", 1), 0);
        struct provider_config config = {0};
        char warnings[512];
        cubby_error err = {0};
        if (parse(text, &config, warnings, &err) < 0)
                fail_msg("%s", err.message);
        assert_string_equal(warnings, "");
        assert_string_equal(config.image, "debian:12");
        assert_int_equal(config.cpu_milli, 500);
        assert_int_equal(config.idle_ms, 1500);
        assert_int_equal(config.skip_ms, 20000);
        assert_int_equal(config.policy, CONFIG_BURST);
        assert_int_equal(config.renewal_ms, 500);
        assert_string_equal(config.environment[0], "A_1=x");
        assert_string_equal(config.environment[1], "B=");
        assert_string_equal(config.environment[2], "C=from the host");
        assert_string_equal(config.environment[3], "D=$5 is a price");
        assert_null(config.environment[4]);
        assert_string_equal(config.warmup[1], "true");
        assert_string_equal(config.workdir, "/work");
        provider_config_clear(&config);
}

static void test_warnings(void **state)
{
        static const struct {
                const char *text, *says;
        } cases[] = {
                {"sandbox:\n  mounts: [{a: b}]\n", "test.yaml:2: mounts: "},
                {"sandbox:\n\n  ownership: {type: redis, url: x}\n", "test.yaml:3: ownership: "},
                {"sandbox: {ownership: {type: memory}}", ""},
                {"sandbox: {network: open}", "test.yaml:1: network: "},
                {"sandbox: {allow_net: [a.org]}", "test.yaml:1: allow_net: "},
                {"sandbox: {network: none}", ""},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct provider_config config = {0};
                char warnings[512];
                assert_int_equal(parse(cases[i].text, &config, warnings, NULL), 0);
                assert_int_equal(strncmp(warnings, cases[i].says, strlen(cases[i].says)), 0);
                if (cases[i].says[0] == '\0')
                        assert_string_equal(warnings, "");
                provider_config_clear(&config);
        }
}

static void test_mistakes(void **state)
{
        static const struct {
                const char *text, *says;
        } cases[] = {
                {"sandbox:\n  replicas: 0\n",
                        "test.yaml:2: replicas: 0 is out of range, it may be from 1 to 10000"},
                {"sandbox:\n  replicas: -3\n", "from 1 to 10000"},
                {"sandbox:\n  replicas: 1.5\n", "no whole number"},
                {"sandbox:\n  replicas: nan\n", "no whole number"},
                {"sandbox:\n  replicas: [1]\n", "no whole number"},
                {"sandbox:\n  replicas: 99999999999999999999\n", "out of range"},
                {"sandbox:\n  idle_timeout: nan\n",
                        "test.yaml:2: idle_timeout: 'nan' is no number"},
                {"sandbox:\n  idle_timeout: .nan\n", "is no number"},
                {"sandbox:\n  idle_timeout: .inf\n", "is no number"},
                {"sandbox:\n  idle_timeout: 1e308\n", "out of range, it may be from 0 to 31622400"},
                {"sandbox:\n  idle_timeout: 1e999\n", "is no number"},
                {"sandbox:\n  idle_timeout: -1\n", "out of range"},
                {"sandbox:\n  idle_timeout: 0x10\n", "is no number"},
                {"sandbox:\n  idle_timeout: ten\n", "is no number"},
                {"sandbox:\n  acquire_timeout: 0\n", "from 0.001"},
                {"sandbox:\n  cpus: 0\n", "from 0.01 to 64"},
                {"sandbox:\n  memory_mib: 63\n", "from 64"},
                {"sandbox:\n  lease_ttl_multiplier: 1\n", "from 2 to 100"},
                {"sandbox:\n  replica: 3\n",
                        "test.yaml:2: replica: unknown key; the nearest known one is 'replicas'"},
                {"sandbox:\n  idle_time: 3\n", "'idle_timeout'"},
                {"sandbox:\n  Image: x\n", "'image'"},
                {"sandbox:\n  replicas: 1\n  replicas: 2\n",
                        "test.yaml:3: replicas: is there twice"},
                {"sandbox: {}\nsandbox: {}\n", "is there twice"},
                {"sandbox: 7\n", "must be a mapping"},
                {"[1, 2]\n", "must be a mapping"},
                {"sandbox: {[a]: b}\n", "a key must be a text"},
                {"sandbox: {image: ''}\n", "must have 1 to 512 characters"},
                {"sandbox: {image: {a: b}}\n", "must be a text"},
                {"sandbox: {image: \"a\\0b\"}\n", "must be a text"},
                {"sandbox: {pool: a-b}\n", "pool: 'a-b' must be"},
                {"sandbox: {pool: .a}\n", "pool: '.a' must be"},
                {"sandbox: {pool: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n", "1 to 40"},
                {"sandbox: {engine: container}\n", "none of microvm, fake"},
                {"sandbox: {accel: hvf}\n", "none of auto, kvm, tcg"},
                {"sandbox: {capacity_policy: hard}\n", "none of soft, wait, reject, burst"},
                {"sandbox: {capacity_policy: [soft]}\n", "none of soft"},
                {"sandbox: {network: all}\n", "none of none, public, open, allowlist"},
                {"sandbox: {workdir: work}\n", "absolute path"},
                {"sandbox: {environment: [A]}\n", "must be a mapping"},
                {"sandbox: {environment: {1A: x}}\n", "'1A' is no name of a variable"},
                {"sandbox: {environment: {'A B': x}}\n", "is no name of a variable"},
                {"sandbox: {environment: {A: {b: c}}}\n", "A must be a text"},
                {"sandbox: {environment: {A: $CONFIG_TEST_NO_SUCH}}\n",
                        "A asks for $CONFIG_TEST_NO_SUCH"},
                {"sandbox: {warmup: true}\n", "must be a list"},
                {"sandbox: {warmup: ['']}\n", "must be a list of texts"},
                {"sandbox: {warmup: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}\n", "more than 15"},
                {"sandbox: {warmup: [\"a\\nb\"]}\n", "in one line"},
                {"sandbox: {warmup: ['# a']}\n", "in one line"},
                {"sandbox: {warmup: [' ']}\n", "in one line"},
                {"version: 2\nsandbox: {}\n", "test.yaml:1: version: "},
                {"version: {}\n", "version: "},
                {"sandbox:\n\t- x\n", "test.yaml:2: no YAML: "},
                {"sandbox: {image: 'x}\n", "no YAML"},
                {"a: *unknown\n", "no YAML"},
                {"\xff\xfe\xfd", "no YAML"},
                {"sandbox: \xc3(\n", "no YAML"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct provider_config config = {0};
                char warnings[512];
                cubby_error err = {0};
                if (parse(cases[i].text, &config, warnings, &err) == 0)
                        fail_msg("taken: %s", cases[i].text);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                if (strstr(err.message, cases[i].says) == NULL)
                        fail_msg("'%s' does not say '%s'", err.message, cases[i].says);
                assert_null(config.image); /* untouched */
        }
}

static void test_files(void **state)
{
        struct provider_config config = {0};
        cubby_error err = {0};
        AUTO_BUFFER struct buffer lines;
        buffer_init(&lines, 4096);
        assert_int_equal(provider_config_read("/nonexistent/x.yaml", &config, &lines, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(provider_config_read("/tmp", &config, &lines, &err), -1);
        assert_int_equal(provider_config_read("/dev/zero", &config, &lines, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        char *big = calloc(1, CONFIG_BYTES_MAX + 1);
        assert_non_null(big);
        memset(big, ' ', CONFIG_BYTES_MAX + 1);
        assert_int_equal(
                provider_config_parse(big, CONFIG_BYTES_MAX + 1, "big", &config, &lines, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        free(big);
}

/* Documents on which libyaml would work for minutes. */
static void test_shapes(void **state)
{
        static const struct {
                const char *what;
                size_t count;
        } rows[] = {{"[", 500000}, {"{a: ", 250000}, {"- ", 500000}, {"? ", 500000}};
        struct provider_config config = {0};
        AUTO_BUFFER struct buffer lines;
        buffer_init(&lines, 4096);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                AUTO_BUFFER struct buffer text;
                cubby_error err = {0};
                buffer_init(&text, CONFIG_BYTES_MAX);
                for (size_t j = 0; j < rows[i].count; j++)
                        assert_true(buffer_append(&text, rows[i].what, strlen(rows[i].what)));
                assert_int_equal(provider_config_parse((const char *)text.data, text.size, "deep",
                                         &config, &lines, &err),
                        -1);
                assert_int_equal(err.code, CUBBY_E_LIMIT);
                assert_non_null(strstr(err.message, "deep:1: more than 32 levels"));
        }
        AUTO_BUFFER struct buffer anchors;
        cubby_error err = {0};
        buffer_init(&anchors, CONFIG_BYTES_MAX);
        for (int i = 0; i < 50000; i++)
                assert_true(buffer_printf(&anchors, "- &a%d x\n", i));
        assert_int_equal(provider_config_parse((const char *)anchors.data, anchors.size, "many",
                                 &config, &lines, &err),
                -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_null(config.image);
}

static void test_an_empty_file(void **state)
{
        char path[] = "/tmp/cubby-config-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(close(fd), 0);
        struct provider_config config = {0};
        AUTO_BUFFER struct buffer lines;
        buffer_init(&lines, 4096);
        int result = provider_config_read(path, &config, &lines, NULL);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(result, 0);
        assert_int_equal(config.replicas, 3);
        provider_config_clear(&config);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_defaults),
                cmocka_unit_test(test_everything),
                cmocka_unit_test(test_warnings),
                cmocka_unit_test(test_mistakes),
                cmocka_unit_test(test_files),
                cmocka_unit_test(test_shapes),
                cmocka_unit_test(test_an_empty_file),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
