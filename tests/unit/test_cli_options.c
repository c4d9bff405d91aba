/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WORDS_MAX 12

struct settings {
        bool input, tty;
        const char *name;
        struct text_list env;
        struct number memory, time;
};

#define AT(field) offsetof(struct settings, field)

static const struct option first[] = {
        {'i', "input", OPTION_FLAG, AT(input), NULL, "input", 0, 0},
        {'t', "tty", OPTION_FLAG, AT(tty), NULL, "terminal", 0, 0},
        {0, "name", OPTION_TEXT, AT(name), "NAME", "name", 0, 0},
        {0, NULL, OPTION_END, 0, NULL, NULL, 0, 0},
};

static const struct option second[] = {
        {'e', "env", OPTION_LIST, AT(env), "NAME", "variable", 0, 0},
        {'m', "memory", OPTION_SIZE, AT(memory), "SIZE", "memory", 1024, 4096},
        {0, "time", OPTION_DURATION, AT(time), "DURATION", "time", 0, 1000},
        {'p', "publish", OPTION_REFUSED, 0, NULL, "there is no network", 0, 0},
        {0, NULL, OPTION_END, 0, NULL, NULL, 0, 0},
};

static const struct command verbatim = {
        .name = "verbatim",
        .usage = "",
        .summary = "",
        .options = {first, second},
        .min_args = 1,
        .max_args = 8,
        .stops_at_argument = true,
};

static const struct command mixed = {
        .name = "mixed",
        .usage = "",
        .summary = "",
        .options = {first, second},
        .max_args = 2,
};

const struct command *const commands[] = {&verbatim, &mixed, NULL};

struct row {
        const struct command *command;
        const char *words[WORDS_MAX];
        int code; /* of options_parse */
        const char *args[WORDS_MAX];
        struct settings want; /* but env */
        const char *env;      /* the last one */
};

static const struct row rows[] = {
        {&verbatim, {"a"}, 0, {"a"}, {0}, NULL},
        {&verbatim, {"-it", "a", "-x", "--", "--name"}, 0, {"a", "-x", "--", "--name"},
                {.input = true, .tty = true}, NULL},
        {&verbatim, {"--", "-i"}, 0, {"-i"}, {0}, NULL},
        {&verbatim, {"--", "--", "a"}, 0, {"--", "a"}, {0}, NULL},
        {&verbatim, {"-"}, 0, {"-"}, {0}, NULL},
        {&verbatim, {"--name", "n", "a"}, 0, {"a"}, {.name = "n"}, NULL},
        {&verbatim, {"--name=n", "a"}, 0, {"a"}, {.name = "n"}, NULL},
        {&verbatim, {"--name=", "a"}, 0, {"a"}, {.name = ""}, NULL},
        {&verbatim, {"--name", "--", "a"}, 0, {"a"}, {.name = "--"}, NULL},
        {&verbatim, {"-e", "A=1", "-eB=2", "a"}, 0, {"a"}, {0}, "B=2"},
        {&verbatim, {"-e=C", "a"}, 0, {"a"}, {0}, "C"},
        {&verbatim, {"-ite", "A=1", "a"}, 0, {"a"}, {.input = true, .tty = true}, "A=1"},
        {&verbatim, {"-m", "2k", "a"}, 0, {"a"}, {.memory = {true, 2048}}, NULL},
        {&verbatim, {"-m2k", "a"}, 0, {"a"}, {.memory = {true, 2048}}, NULL},
        {&verbatim, {"--memory=4k", "a"}, 0, {"a"}, {.memory = {true, 4096}}, NULL},
        {&verbatim, {"--time", "0s", "a"}, 0, {"a"}, {.time = {true, 0}}, NULL},
        {&verbatim, {"--tty=false", "a"}, 0, {"a"}, {0}, NULL},
        {&verbatim, {"-i=true", "a"}, 0, {"a"}, {.input = true}, NULL},
        {&mixed, {"a", "-i", "b", "--name", "n"}, 0, {"a", "b"}, {.input = true, .name = "n"},
                NULL},
        {&mixed, {"a", "--", "-i"}, 0, {"a", "-i"}, {0}, NULL},
        {&mixed, {NULL}, 0, {NULL}, {0}, NULL},
        {&verbatim, {NULL}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-i"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&mixed, {"a", "b", "c"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--nam", "n", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--names=n", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-x", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-ix", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-p", "80:80", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--publish=80:80", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-ip", "80:80", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--tty=maybe", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-i=", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m", "12x", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m", "", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m=", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m", "1023", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m", "4097", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--time", "-1s", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--time", "2s", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--name"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-m"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"-ie"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"--=x", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
        {&verbatim, {"---", "a"}, EXIT_USAGE, {NULL}, {0}, NULL},
};

static void same_text(const char *a, const char *b)
{
        if (a == NULL || b == NULL)
                assert_ptr_equal(a, b);
        else
                assert_string_equal(a, b);
}

static void check_settings(const struct row *row, const struct settings *got)
{
        assert_int_equal(got->input, row->want.input);
        assert_int_equal(got->tty, row->want.tty);
        same_text(got->name, row->want.name);
        assert_int_equal(got->memory.given, row->want.memory.given);
        assert_int_equal(got->memory.value, row->want.memory.value);
        assert_int_equal(got->time.given, row->want.time.given);
        same_text(got->env.count == 0 ? NULL : got->env.items[got->env.count - 1], row->env);
}

static void check_row(const struct row *row)
{
        char texts[WORDS_MAX][32];
        char *argv[WORDS_MAX + 1] = {NULL};
        struct settings got = {0};
        struct args args = {0};
        struct cli cli = {0};
        int argc = 0;
        int code;

        for (; row->words[argc] != NULL; argc++) {
                (void)snprintf(texts[argc], sizeof(texts[argc]), "%s", row->words[argc]);
                argv[argc] = texts[argc];
        }
        code = options_parse(&cli, row->command, argc, argv, &got, &args);
        if (code != row->code)
                fail_msg("row %td gave %d", row - rows, code);
        if (code == 0) {
                size_t count = 0;

                for (; row->args[count] != NULL; count++)
                        assert_string_equal(args.values[count], row->args[count]);
                assert_int_equal(args.count, count);
                assert_null(args.values[count]);
                check_settings(row, &got);
        }
        options_clear(row->command, &got);
        assert_null(got.env.items);
}

static void test_parse(void **state)
{
        for (size_t i = 0; i < COUNT(rows); i++)
                check_row(&rows[i]);
}

static void test_list_has_a_ceiling(void **state)
{
        struct text_list list = {0};

        for (size_t i = 0; i < LIST_MAX; i++)
                assert_true(text_list_add(&list, "x"));
        assert_false(text_list_add(&list, "x"));
        assert_int_equal(list.count, LIST_MAX);
        assert_null(list.items[LIST_MAX]);
        free(list.items);
}

static void test_nearest(void **state)
{
        static const char *const names[] = {"exec", "memory", "images", "rm", "ps", NULL};
        static const struct {
                const char *word;
                const char *nearest;
        } cases[] = {{"exce", "exec"}, {"exe", "exec"}, {"memroy", "memory"}, {"image", "images"},
                {"pss", "ps"}, {"frobnicate", NULL}, {"", NULL}, {"x", NULL}, {"memories", NULL},
                {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", NULL}};

        for (size_t i = 0; i < COUNT(cases); i++)
                same_text(nearest_name(cases[i].word, names), cases[i].nearest);
}

static bool matches(const char *const *texts, const cubby_box_info *info, const json_t *labels)
{
        struct text_list list = {0};
        struct box_filter filter = {0};
        struct cli cli = {0};
        bool match;

        for (; *texts != NULL; texts++)
                assert_true(text_list_add(&list, *texts));
        assert_int_equal(box_filter_parse(&cli, &list, &filter), 0);
        match = box_filter_match(&filter, info, labels);
        box_filter_clear(&filter);
        free(list.items);
        return match;
}

static void test_filters(void **state)
{
        static char id[] = "0123456789abcdef0123456789abcdef";
        static char name[] = "web-1";
        static char image[] = "docker.io/library/python:3.12";
        static char image_id[] = "sha256:feedbeef";
        const cubby_box_info info = {.id = id,
                .name = name,
                .image_name = image,
                .image_id = image_id,
                .state = CUBBY_BOX_STOPPED,
                .exit_code = 3};
        static const struct {
                const char *texts[4];
                bool match;
        } cases[] = {
                {{NULL}, true},
                {{"name=web"}, true},
                {{"name=^web-1$"}, true},
                {{"name=^eb"}, false},
                {{"name=db", "name=web"}, true},
                {{"id=0123"}, true},
                {{"id=123"}, false},
                {{"status=exited"}, true},
                {{"status=stopped", "status=running"}, true},
                {{"status=running"}, false},
                {{"exited=3"}, true},
                {{"exited=0"}, false},
                {{"label=team"}, true},
                {{"label=team=blue"}, true},
                {{"label=team=red"}, false},
                {{"label=tea"}, false},
                {{"label=team", "label=other"}, false},
                {{"ancestor=python:3.12"}, true},
                {{"ancestor=docker.io/library/python:3.12"}, true},
                {{"ancestor=python"}, false},
                {{"ancestor=feedb"}, true},
                {{"ancestor=fee"}, false},
                {{"ancestor=sha256:feed"}, true},
                {{"name=web", "status=running"}, false},
                {{"name=web", "status=exited", "label=team"}, true},
        };
        json_t *labels = json_pack("{s:s}", "team", "blue");

        for (size_t i = 0; i < COUNT(cases); i++)
                if (matches(cases[i].texts, &info, labels) != cases[i].match)
                        fail_msg("case %zu, '%s'", i, cases[i].texts[0]);
        json_decref(labels);
}

static void test_bad_filters(void **state)
{
        static const char *const bad[] = {"", "name", "colour=red", "=x", "status=asleep",
                "status=", "exited=x", "exited=256", "exited=-1", "name=[", "Name=x"};
        struct cli cli = {0};

        for (size_t i = 0; i < COUNT(bad); i++) {
                struct text_list list = {0};
                struct box_filter filter = {0};

                assert_true(text_list_add(&list, bad[i]));
                assert_int_equal(box_filter_parse(&cli, &list, &filter), EXIT_USAGE);
                box_filter_clear(&filter);
                free(list.items);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_parse),
                cmocka_unit_test(test_list_has_a_ceiling),
                cmocka_unit_test(test_nearest),
                cmocka_unit_test(test_filters),
                cmocka_unit_test(test_bad_filters),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
