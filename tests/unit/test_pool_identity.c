/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

/* A compatibility contract: these never change. */
static void test_golden_vectors(void **state)
{
        static const struct {
                const char *user, *thread, *token;
        } vectors[] = {
                {"alice", "thread-1", "dc977b840cb8638e"},
                {"", "t", "983743815e8fe2ac"},
                {"u", "", "27e14d2b41b03178"},
                {"\xe7\x94\xa8\xe6\x88\xb7", "\xe7\xba\xbf\xe7\xa8\x8b", "cfa8a5bf41ddff8d"},
                {"None", "abc", "c0b80df1b97d187e"},
        };
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
                struct pool_key key = key_of(vectors[i].user, vectors[i].thread);
                char token[TOKEN_SIZE];
                assert_int_equal(key_token(&key, token, NULL), 0);
                assert_string_equal(token, vectors[i].token);
                assert_true(token_valid(token));
        }
}

static void test_token_shape(void **state)
{
        static const char *const bad[] = {"", "0", "0123456789abcde", "0123456789abcdef0",
                "0123456789abcdeF", "0123456789abcdeg", " 123456789abcdef", "0123456789abcde\n",
                "0123-456789abcde"};
        assert_true(token_valid("0123456789abcdef"));
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                assert_false(token_valid(bad[i]));
}

static void test_keys_are_not_their_tokens(void **state)
{
        struct pool_key one = key_of("a:b", "c");
        struct pool_key two = key_of("a", "b:c");
        char first[TOKEN_SIZE];
        char second[TOKEN_SIZE];
        assert_int_equal(key_token(&one, first, NULL), 0);
        assert_int_equal(key_token(&two, second, NULL), 0);
        assert_string_equal(first, second);
        assert_false(key_equal(&one, &two));
        assert_true(key_equal(&one, &one));
        cubby_error err = {0};
        assert_int_equal(key_mismatch(&one, &two, &err), -1);
        assert_int_equal(err.code, CUBBY_E_IDENTITY);
        assert_non_null(strstr(err.message, "'a:b', thread 'c'"));
        assert_non_null(strstr(err.message, "'a', thread 'b:c'"));
}

static void test_any_bytes(void **state)
{
        static uint8_t huge[KEY_PART_MAX + 1];
        memset(huge, 0xff, sizeof huge);
        huge[17] = 0;
        struct pool_key key = {.user = huge,
                .user_size = KEY_PART_MAX,
                .thread = huge,
                .thread_size = KEY_PART_MAX};
        char token[TOKEN_SIZE];
        assert_int_equal(key_check(&key, NULL), 0);
        assert_int_equal(key_token(&key, token, NULL), 0);
        struct pool_key copy = {0};
        void *memory = NULL;
        assert_int_equal(key_copy(&key, &copy, &memory, NULL), 0);
        assert_true(key_equal(&key, &copy));
        copy.thread_size--;
        assert_false(key_equal(&key, &copy));
        free(memory);
        cubby_error err = {0};
        key.user_size++;
        assert_int_equal(key_check(&key, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        /* a mismatch of such keys is one short printable line */
        key.user_size--;
        struct pool_key other = key_of("", "");
        assert_int_equal(key_mismatch(&key, &other, &err), -1);
        for (const char *next = err.message; *next != '\0'; next++)
                assert_true(*next >= ' ' && *next < 127);
}

static void test_anonymous(void **state)
{
        char one[TOKEN_SIZE];
        char two[TOKEN_SIZE];
        assert_int_equal(anonymous_id(one, NULL), 0);
        assert_int_equal(anonymous_id(two, NULL), 0);
        assert_int_equal(strlen(one), 8);
        assert_string_not_equal(one, two);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_golden_vectors),
                cmocka_unit_test(test_token_shape),
                cmocka_unit_test(test_keys_are_not_their_tokens),
                cmocka_unit_test(test_any_bytes),
                cmocka_unit_test(test_anonymous),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
