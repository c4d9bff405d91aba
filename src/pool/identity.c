/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/identity.h"

#include "base/cleanup.h"
#include "base/hex.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define SHOWN_BYTES 64U /* of a name in a message */
#define SHOWN_SIZE (SHOWN_BYTES * 4 + 8)

static void free_digest(EVP_MD_CTX **context)
{
        EVP_MD_CTX_free(*context);
}

int key_token(const struct pool_key *key, char ret[TOKEN_SIZE], cubby_error *err)
{
        __attribute__((cleanup(free_digest))) EVP_MD_CTX *context = EVP_MD_CTX_new();
        unsigned char digest[EVP_MAX_MD_SIZE];
        if (context == NULL)
                return cubby_error_no_memory(err);
        if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
                EVP_DigestUpdate(context, key->user, key->user_size) != 1 ||
                EVP_DigestUpdate(context, ":", 1) != 1 ||
                EVP_DigestUpdate(context, key->thread, key->thread_size) != 1 ||
                EVP_DigestFinal_ex(context, digest, NULL) != 1)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "SHA-256 failed");
        hex_encode(digest, TOKEN_LENGTH / 2, ret);
        return 0;
}

bool token_valid(const char *text)
{
        return strspn(text, "0123456789abcdef") == TOKEN_LENGTH && text[TOKEN_LENGTH] == '\0';
}

static bool bytes_equal(
        const uint8_t *left, size_t left_size, const uint8_t *right, size_t right_size)
{
        return left_size == right_size && (left_size == 0 || memcmp(left, right, left_size) == 0);
}

bool key_equal(const struct pool_key *left, const struct pool_key *right)
{
        return bytes_equal(left->user, left->user_size, right->user, right->user_size) &&
                bytes_equal(left->thread, left->thread_size, right->thread, right->thread_size);
}

int key_check(const struct pool_key *key, cubby_error *err)
{
        if (key->user_size <= KEY_PART_MAX && key->thread_size <= KEY_PART_MAX)
                return 0;
        return cubby_error_set(err, CUBBY_E_INVALID,
                "the names of user and thread may have %u bytes each, not %zu and %zu",
                KEY_PART_MAX, key->user_size, key->thread_size);
}

int key_copy(const struct pool_key *key, struct pool_key *ret, void **ret_memory, cubby_error *err)
{
        uint8_t *memory = malloc(key->user_size + key->thread_size + 1);
        if (memory == NULL)
                return cubby_error_no_memory(err);
        if (key->user_size > 0)
                memcpy(memory, key->user, key->user_size);
        if (key->thread_size > 0)
                memcpy(memory + key->user_size, key->thread, key->thread_size);
        *ret = (struct pool_key){.user = memory,
                .user_size = key->user_size,
                .thread = memory + key->user_size,
                .thread_size = key->thread_size};
        *ret_memory = memory;
        return 0;
}

/* Printable ASCII as it is, the rest as \xNN. */
static void show(const uint8_t *bytes, size_t size, char ret[SHOWN_SIZE])
{
        size_t used = 0;
        size_t shown = size < SHOWN_BYTES ? size : SHOWN_BYTES;
        for (size_t i = 0; i < shown; i++) {
                bool plain =
                        bytes[i] >= ' ' && bytes[i] < 127 && bytes[i] != '\\' && bytes[i] != '\'';
                used += (size_t)snprintf(
                        ret + used, SHOWN_SIZE - used, plain ? "%c" : "\\x%02x", bytes[i]);
        }
        (void)snprintf(ret + used, SHOWN_SIZE - used, "%s", shown < size ? "..." : "");
}

int key_mismatch(const struct pool_key *asked, const struct pool_key *found, cubby_error *err)
{
        char texts[4][SHOWN_SIZE];
        show(asked->user, asked->user_size, texts[0]);
        show(asked->thread, asked->thread_size, texts[1]);
        show(found->user, found->user_size, texts[2]);
        show(found->thread, found->thread_size, texts[3]);
        return cubby_error_set(err, CUBBY_E_IDENTITY,
                "user '%.200s', thread '%.200s' was asked for, but the box of that name belongs "
                "to user '%.200s', thread '%.200s'",
                texts[0], texts[1], texts[2], texts[3]);
}

int anonymous_id(char ret[TOKEN_SIZE], cubby_error *err)
{
        uint32_t number = 0;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
                return cubby_error_errno(err, errno, "choosing a name for a box");
        (void)snprintf(ret, TOKEN_SIZE, "%08" PRIx32, number);
        return 0;
}
