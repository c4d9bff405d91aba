/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_STATE_FIXTURE_H
#define TESTS_STATE_FIXTURE_H

/* A home in a folder of its own, and records to put into it. */

#include "state/private.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER64 "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define IMAGE "sha256:" HEX64
#define OTHER "sha256:" OTHER64
#define BOX "00112233445566778899aabbccddeeff"

struct place {
        char path[64];
        struct home *home;
};

int make_place(void **state);
int remove_place(void **state);
#define WITH_HOME(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

void put_image(struct home *home, const char *id, const char *name, int64_t created_ns);
/* In the home's own folder. */
bool has_file(struct home *home, const char *name);

#endif
