/* SPDX-License-Identifier: Apache-2.0 */
#include "users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
                             "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                             "\n"
                             "short:x:5\n"
                             "app:x:500:600:App:/home/app:/bin/sh\n"
                             "77:x:770:771::/seventy:/bin/sh\n"
                             "badgid:x:501:zz::/home/bad:/bin/sh\n"
                             "baduid:x:-1:0::/:/bin/sh\n"
                             "huge:x:4294967296:0::/:/bin/sh\n"
                             ":x:0:0::/nameless:/bin/sh\n"
                             "homeless:x:502:502:::/bin/sh\n"
                             "last:x:503:503::/last:/bin/sh"; /* no newline at the end */
static const char group[] = "root:x:0:\n"
                            "daemon:x:1:app\n"
                            "app:x:600:app\n"
                            "one:x:701:x,app,y\n"
                            "two:x:702:apple,ap\n"
                            "three:x:703:,app\n"
                            "bad:x:704x:app\n"
                            "broken\n";

static struct slice slice_of(const char *text)
{
        return (struct slice){(const uint8_t *)text, strlen(text)};
}

static void test_known(void **state)
{
        (void)state;
        static const struct {
                const char *spec;
                uid_t uid;
                gid_t gid;
                const char *home;
                size_t groups;
        } cases[] = {
                {"", 0, 0, "/root", 0},
                {"root", 0, 0, "/root", 0},
                {"0", 0, 0, "/root", 0},
                {"00", 0, 0, "/root", 0},
                {"app", 500, 600, "/home/app", 3},
                {"500", 500, 600, "/home/app", 3},
                {"app:two", 500, 702, "/home/app", 0},
                {"app:9", 500, 9, "/home/app", 0},
                {"1234", 1234, 0, "/", 0},
                {"1234:daemon", 1234, 1, "/", 0},
                {"1234:5678", 1234, 5678, "/", 0},
                {"77", 770, 771, "/seventy", 0}, /* a name wins over a number */
                {"homeless", 502, 502, "/", 0},
                {"last", 503, 503, "/last", 0},
                {":daemon", 0, 1, "/root", 0},
                {"2147483647", 2147483647, 0, "/", 0},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct identity identity;
                cubby_error err = {0};
                int result = identity_resolve(
                        cases[i].spec, slice_of(passwd), slice_of(group), &identity, &err);
                if (result < 0)
                        fail_msg("'%s': %s", cases[i].spec, err.message);
                assert_int_equal(identity.uid, cases[i].uid);
                assert_int_equal(identity.gid, cases[i].gid);
                assert_string_equal(identity.home, cases[i].home);
                assert_int_equal(identity.group_count, cases[i].groups);
        }
        struct identity identity;
        assert_int_equal(
                identity_resolve("app", slice_of(passwd), slice_of(group), &identity, NULL), 0);
        assert_int_equal(identity.groups[0], 1);
        assert_int_equal(identity.groups[1], 701);
        assert_int_equal(identity.groups[2], 703);
}

static void test_refused(void **state)
{
        (void)state;
        static const char *const cases[] = {"nobody", "ap", "appp", "App", "app ", " app", "short",
                "badgid", "baduid", "huge", "-1", "+1", "0x1", "1e3", "2147483648", "4294967295",
                "4294967296", "99999999999999999999", "app:", ":", "::", "app:nogroup",
                "app:2147483648", "app:-1", "app:bad", "app:broken", "app:1:2", "a:b:c", "root\n",
                "app\nroot", "/etc/passwd", "x:x:0:0"};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct identity identity = {.uid = 4711};
                cubby_error err = {0};
                if (identity_resolve(
                            cases[i], slice_of(passwd), slice_of(group), &identity, &err) != -1)
                        fail_msg("'%s' became uid %u", cases[i], (unsigned)identity.uid);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_int_equal(identity.uid, 4711); /* untouched */
        }
}

static void test_hostile_files(void **state)
{
        (void)state;
        const struct slice nothing = {0};
        struct identity identity;
        cubby_error err = {0};
        assert_int_equal(identity_resolve("", nothing, nothing, &identity, &err), 0);
        assert_int_equal(identity.uid, 0);
        assert_string_equal(identity.home, "/");
        assert_int_equal(identity_resolve("root", nothing, nothing, &identity, &err), -1);

        static const char nul[] = "a:x:1:1::/ho\0me:/s\n";
        const struct slice with_nul = {(const uint8_t *)nul, sizeof nul - 1};
        assert_int_equal(identity_resolve("a", with_nul, nothing, &identity, &err), 0);
        assert_string_equal(identity.home, "/");

        char many[16384];
        size_t used = 0;
        for (int i = 0; i < USER_GROUPS_MAX + 1; i++)
                used += (size_t)snprintf(
                        many + used, sizeof many - used, "g%d:x:%d:a\n", i, 10 + i);
        assert_int_equal(identity_resolve("a", with_nul, slice_of(many), &identity, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);

        char spec[1024];
        memset(spec, '1', sizeof spec - 1);
        spec[sizeof spec - 1] = '\0';
        assert_int_equal(identity_resolve(spec, nothing, nothing, &identity, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_known),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_hostile_files),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
