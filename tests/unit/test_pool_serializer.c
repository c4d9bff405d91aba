/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <poll.h>
#include <sched.h>

#define KEY(text) (text), strlen(text)

static struct serializer *make(void)
{
        struct pool_clock clock = pool_clock_host();
        struct serializer *serializer = NULL;
        assert_int_equal(serializer_create(&clock, &serializer, NULL), 0);
        return serializer;
}

struct caller {
        struct serializer *serializer;
        const char *key;
        int64_t timeout_ms;
        atomic_bool cancelled;
        atomic_int *turn;
        int got; /* which turn it had */
        int result;
        cubby_error error;
        pthread_t thread;
};

static void *call(void *data)
{
        struct caller *caller = data;
        int64_t deadline =
                caller->timeout_ms == 0 ? DEADLINE_NEVER : deadline_after_ms(caller->timeout_ms);
        caller->result = serializer_lock(
                caller->serializer, KEY(caller->key), deadline, &caller->cancelled, &caller->error);
        if (caller->result == 0) {
                if (caller->turn != NULL)
                        caller->got = atomic_fetch_add(caller->turn, 1);
                serializer_unlock(caller->serializer, KEY(caller->key));
        }
        return NULL;
}

static void begin(struct caller *caller)
{
        assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void end(struct caller *caller)
{
        assert_int_equal(pthread_join(caller->thread, NULL), 0);
}

static void test_table_vanishes(void **state)
{
        struct serializer *serializer = make();
        char key[16];
        for (int i = 0; i < 10000; i++) {
                (void)snprintf(key, sizeof key, "%d", i);
                assert_int_equal(
                        serializer_lock(serializer, KEY(key), DEADLINE_NEVER, NULL, NULL), 0);
                if (i % 2 == 0)
                        serializer_unlock(serializer, KEY(key));
        }
        assert_int_equal(serializer_keys(serializer), 5000);
        for (int i = 1; i < 10000; i += 2) {
                (void)snprintf(key, sizeof key, "%d", i);
                serializer_unlock(serializer, KEY(key));
        }
        assert_int_equal(serializer_keys(serializer), 0);
        serializer_unlock(serializer, KEY("nobody holds it"));
        serializer_free(serializer);
}

static void test_keys_are_bytes(void **state)
{
        struct serializer *serializer = make();
        assert_int_equal(serializer_lock(serializer, "a\0b", 3, DEADLINE_NEVER, NULL, NULL), 0);
        assert_int_equal(serializer_lock(serializer, "a\0c", 3, DEADLINE_NEVER, NULL, NULL), 0);
        assert_int_equal(serializer_lock(serializer, "a", 1, DEADLINE_NEVER, NULL, NULL), 0);
        assert_int_equal(serializer_lock(serializer, "", 0, DEADLINE_NEVER, NULL, NULL), 0);
        cubby_error err = {0};
        assert_int_equal(serializer_lock(serializer, "a", 1, 0, NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        char long_key[SERIALIZER_KEY_MAX + 1] = {0};
        assert_int_equal(serializer_lock(serializer, long_key, sizeof long_key, 0, NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        serializer_unlock(serializer, "a\0b", 3);
        serializer_unlock(serializer, "a\0c", 3);
        serializer_unlock(serializer, "a", 1);
        serializer_unlock(serializer, "", 0);
        assert_int_equal(serializer_keys(serializer), 0);
        serializer_free(serializer);
}

static void test_one_at_a_time(void **state)
{
        struct serializer *serializer = make();
        atomic_int turn = 0;
        struct caller callers[8];
        assert_int_equal(serializer_lock(serializer, KEY("k"), DEADLINE_NEVER, NULL, NULL), 0);
        for (size_t i = 0; i < 8; i++) {
                callers[i] = (struct caller){.serializer = serializer, .key = "k", .turn = &turn};
                begin(&callers[i]);
        }
        assert_int_equal(atomic_load(&turn), 0);
        /* another key is free meanwhile */
        assert_int_equal(serializer_lock(serializer, KEY("other"), 0, NULL, NULL), 0);
        serializer_unlock(serializer, KEY("other"));
        serializer_unlock(serializer, KEY("k"));
        int sum = 0;
        for (size_t i = 0; i < 8; i++) {
                end(&callers[i]);
                assert_int_equal(callers[i].result, 0);
                sum += callers[i].got;
        }
        assert_int_equal(sum, 28);
        assert_int_equal(serializer_keys(serializer), 0);
        serializer_free(serializer);
}

static void test_waiters_end(void **state)
{
        static const struct {
                int code;
                int64_t timeout_ms;
        } cases[] = {{CUBBY_E_TIMEOUT, 20}, {CUBBY_E_CANCELLED, 0}, {CUBBY_E_SHUTDOWN, 0}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct serializer *serializer = make();
                assert_int_equal(
                        serializer_lock(serializer, KEY("k"), DEADLINE_NEVER, NULL, NULL), 0);
                struct caller caller = {
                        .serializer = serializer, .key = "k", .timeout_ms = cases[i].timeout_ms};
                begin(&caller);
                if (cases[i].code == CUBBY_E_CANCELLED) {
                        atomic_store(&caller.cancelled, true);
                        serializer_wake(serializer);
                }
                if (cases[i].code == CUBBY_E_SHUTDOWN) {
                        serializer_close(serializer);
                        serializer_close(serializer);
                }
                end(&caller);
                assert_int_equal(caller.result, -1);
                assert_int_equal(caller.error.code, cases[i].code);
                /* the running section is not broken, and still the only holder */
                assert_int_equal(serializer_keys(serializer), 1);
                serializer_unlock(serializer, KEY("k"));
                assert_int_equal(serializer_keys(serializer), 0);
                cubby_error err = {0};
                if (cases[i].code == CUBBY_E_SHUTDOWN) {
                        assert_int_equal(
                                serializer_lock(serializer, KEY("k"), DEADLINE_NEVER, NULL, &err),
                                -1);
                        assert_int_equal(err.code, CUBBY_E_SHUTDOWN);
                }
                serializer_free(serializer);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table_vanishes),
                cmocka_unit_test(test_keys_are_bytes),
                cmocka_unit_test(test_one_at_a_time),
                cmocka_unit_test(test_waiters_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
