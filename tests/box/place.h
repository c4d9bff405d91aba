/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_PLACE_H
#define TEST_PLACE_H

/* A home of its own with one small image, for tests over cubby.h alone. */

#include <cubby/cubby.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING ((const char *const[]){NULL})
#define SOON_MS 20000

struct place {
        char path[64];
        cubby *host;
        int fds_before;
};

int place_make(void **state);
/* Also checks that nothing is left: children, descriptors, shims. */
int place_remove(void **state);

/* A box of the fake engine; `command` NULL: none of its own. Started when asked. */
cubby_box *place_box(
        struct place *place, const char *name, const char *const *command, int started);
/* 0, or -1 with the message printed. */
int fine(int result, const cubby_error *err);
void remove_box(cubby_box *box);
/* The shim's pid; not 0. */
int64_t shim_of(cubby_box *box);
cubby_box_info info_of(cubby_box *box);
int count_fds(void);
void shim_is_gone(const char *id);
int64_t now_ms(void);

#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

#endif
