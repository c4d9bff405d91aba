/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images, and what a box needs of an image's config. */
#include "base/cleanup.h"
#include "image/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void names_are_normalised(void **state)
{
        static const struct {
                const char *name;
                const char *normal;
        } cases[] = {
                {"python", "docker.io/library/python:latest"},
                {"python:3.12-slim", "docker.io/library/python:3.12-slim"},
                {"alpine@sha256:" HEX, "docker.io/library/alpine@sha256:" HEX},
                {"alpine:3@sha256:" HEX, "docker.io/library/alpine:3@sha256:" HEX},
                {"grafana/grafana", "docker.io/grafana/grafana:latest"},
                {"docker.io/python", "docker.io/library/python:latest"},
                {"index.docker.io/library/python", "docker.io/library/python:latest"},
                {"ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"},
                {"localhost/x", "localhost/x:latest"},
                {"localhost:5000/x", "localhost:5000/x:latest"},
                {"10.0.0.1:5000/x:y", "10.0.0.1:5000/x:y"},
                {"Host/x", "Host/x:latest"},
                {"a__b/c--d.e_f", "docker.io/a__b/c--d.e_f:latest"},
                {"x:TAG_1.2-3", "docker.io/library/x:TAG_1.2-3"},
                {"docker.io/library/python:latest", "docker.io/library/python:latest"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                AUTO_FREE char *normal = NULL;
                cubby_error err = {0};
                if (image_name_normalize(cases[i].name, &normal, &err) < 0)
                        fail_msg("%s", err.message);
                assert_string_equal(normal, cases[i].normal);
        }
}

static void bad_names_are_refused(void **state)
{
        static const struct {
                const char *name;
                const char *rule; /* part of the message */
        } cases[] = {
                {"", "empty"},
                {"../etc/passwd", "registry"},
                {"/x", "repository"},
                {"x/", "repository"},
                {"a//b", "repository"},
                {"Python", "repository"},
                {"a/B", "repository"},
                {"-a", "repository"},
                {"a-", "repository"},
                {"a___b", "repository"},
                {"a..b", "repository"},
                {"a._b", "repository"},
                {"a b", "repository"},
                {"a\nb", "\\x0a"},
                {"\xff", "\\xff"},
                {"caf\xc3\xa9", "repository"},
                {":tag", "repository"},
                {"@sha256:" HEX, "repository"},
                {"x:", "tag"},
                {"x:-a", "tag"},
                {"x:.a", "tag"},
                {"x:a b", "tag"},
                {"x:y:z", "repository"},
                {"x:" A64 A64 "a", "tag"},
                {"x@", "digest"},
                {"a/b@sha256:zz", "digest"},
                {"x@sha256:" A64 "a", "digest"},
                {"x@sha512:" HEX HEX, "digest"},
                {"x@sha256:0123456789ABCDEF" A64, "digest"},
                {"x@sha256:" HEX "@sha256:" HEX, "digest"},
                {"host.:5000/x", "registry"},
                {".host/x", "registry"},
                {"host.a:/x", "registry"},
                {"host.a:999999/x", "registry"},
                {"host.a:80a/x", "registry"},
                {"-h.a/x", "registry"},
                {"h-.a/x", "registry"},
                {"[::1]:5000/x", "registry"},
                {HEX, "image id"},
                {A64 A64 A64 A64 "/b", "255"},
                {"http://host/x", "registry"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                char untouched;
                char *normal = &untouched;
                cubby_error err = {0};
                if (image_name_normalize(cases[i].name, &normal, &err) == 0)
                        fail_msg("'%s' was taken as '%s'", cases[i].name, normal);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_ptr_equal(normal, &untouched);
                if (strstr(err.message, cases[i].rule) == NULL)
                        fail_msg("'%s': '%s' does not name '%s'", cases[i].name, err.message,
                                cases[i].rule);
        }
        assert_int_equal(image_name_normalize(NULL, NULL, NULL), -1);
}

static void runtime_is_read(void **state)
{
        static const char config[] =
                "{\"config\":{\"Env\":[\"A=b\",\"PATH=/bin\",\"E=\"],\"Entrypoint\":[\"/x\"],"
                "\"Cmd\":[\"-c\",\"\"],\"WorkingDir\":\"/w\",\"User\":\"1000:5\","
                "\"StopSignal\":\"SIGINT\",\"Labels\":{\"a\":1}}}";
        struct image_runtime runtime;
        assert_int_equal(image_runtime_parse(config, &runtime, NULL), 0);
        assert_string_equal(runtime.env[0], "A=b");
        assert_string_equal(runtime.env[2], "E=");
        assert_null(runtime.env[3]);
        assert_string_equal(runtime.entrypoint[0], "/x");
        assert_null(runtime.entrypoint[1]);
        assert_string_equal(runtime.command[1], "");
        assert_null(runtime.command[2]);
        assert_string_equal(runtime.workdir, "/w");
        assert_string_equal(runtime.user, "1000:5");
        assert_string_equal(runtime.stop_signal, "SIGINT");
        image_runtime_clear(&runtime);
        assert_null(runtime.env);

        static const char *const empty[] = {"{}", "{\"config\":{}}", "{\"config\":null}",
                "{\"config\":{\"Env\":null,\"Cmd\":null,\"User\":null}}"};
        for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
                assert_int_equal(image_runtime_parse(empty[i], &runtime, NULL), 0);
                assert_null(runtime.env[0]);
                assert_null(runtime.command[0]);
                assert_string_equal(runtime.user, "");
                image_runtime_clear(&runtime);
        }
        image_runtime_clear(NULL);
}

static void bad_runtimes_are_refused(void **state)
{
        static const char *const cases[] = {
                "",
                "{",
                "[]",
                "null",
                "\"config\"",
                "{\"config\":[]}",
                "{\"config\":\"x\"}",
                "{\"config\":{\"Env\":\"A=b\"}}",
                "{\"config\":{\"Env\":{}}}",
                "{\"config\":{\"Env\":[1]}}",
                "{\"config\":{\"Env\":[null]}}",
                "{\"config\":{\"Env\":[\"A\"]}}",
                "{\"config\":{\"Env\":[\"=b\"]}}",
                "{\"config\":{\"Env\":[\"\"]}}",
                "{\"config\":{\"Env\":[\"A=\\u0000\"]}}",
                "{\"config\":{\"Cmd\":\"sh\"}}",
                "{\"config\":{\"Cmd\":[[\"sh\"]]}}",
                "{\"config\":{\"Entrypoint\":5}}",
                "{\"config\":{\"User\":0}}",
                "{\"config\":{\"User\":[]}}",
                "{\"config\":{\"WorkingDir\":true}}",
                "{\"config\":{\"StopSignal\":15}}",
                "{\"config\":{},\"config\":{\"User\":\"root\"}}",
                "{\"config\":{}} trailing",
                "{\"config\":{\"User\":\"\xff\"}}",
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct image_runtime runtime;
                cubby_error err = {0};
                if (image_runtime_parse(cases[i], &runtime, &err) == 0)
                        fail_msg("taken: %s", cases[i]);
                assert_int_equal(err.code, CUBBY_E_IMAGE);
        }
}

/* Deeper than the parser goes, and larger than a config may be. */
static void huge_runtimes_are_refused(void **state)
{
        size_t size = LIMIT_CONFIG_BYTES + 16;
        AUTO_FREE char *text = malloc(size + 1);
        assert_non_null(text);
        struct image_runtime runtime;
        cubby_error err = {0};
        memset(text, '[', size);
        text[100000] = '\0';
        assert_int_equal(image_runtime_parse(text, &runtime, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IMAGE);
        memset(text, ' ', size);
        text[size] = '\0';
        assert_int_equal(image_runtime_parse(text, &runtime, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_non_null(strstr(err.message, "LIMIT_CONFIG_BYTES"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_are_normalised),
                cmocka_unit_test(bad_names_are_refused),
                cmocka_unit_test(runtime_is_read),
                cmocka_unit_test(bad_runtimes_are_refused),
                cmocka_unit_test(huge_runtimes_are_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
