/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POOL_IDENTITY_H
#define POOL_IDENTITY_H

/*
 * Who a box is for. A key is a user and a thread, both any bytes; its token is
 * a name made from them and proves nothing: two keys may share one.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_LENGTH 16
#define TOKEN_SIZE (TOKEN_LENGTH + 1)
#define KEY_PART_MAX (64U << 10) /* bytes of a user's or thread's name */

struct pool_key {
        const uint8_t *user, *thread;
        size_t user_size, thread_size;
};

/* Version 1 of the scheme, a contract: the first 16 hex digits of SHA-256 over
 * user, ":" and thread. */
int key_token(const struct pool_key *key, char ret[TOKEN_SIZE], cubby_error *err);
bool token_valid(const char *text);
bool key_equal(const struct pool_key *left, const struct pool_key *right);
int key_check(const struct pool_key *key, cubby_error *err);
/* An own copy in one piece of memory; the caller frees *ret_memory. */
int key_copy(const struct pool_key *key, struct pool_key *ret, void **ret_memory, cubby_error *err);
/* CUBBY_E_IDENTITY with both keys, shortened and escaped. Returns -1. */
int key_mismatch(const struct pool_key *asked, const struct pool_key *found, cubby_error *err);
/* 8 random hex digits, for a box without a key. */
int anonymous_id(char ret[TOKEN_SIZE], cubby_error *err);

#endif
