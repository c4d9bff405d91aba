/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_USERS_H
#define GUEST_USERS_H

/*
 * Who a command runs as: the image's own passwd and group files, read as text.
 * No name service, no library of the image. An unknown name is an error and
 * never root.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <sys/types.h>

#define USER_FILE_MAX (1U << 20)
#define USER_GROUPS_MAX 256
#define USER_HOME_MAX 1024

struct identity {
        uid_t uid;
        gid_t gid;
        size_t group_count;
        gid_t groups[USER_GROUPS_MAX];
        char home[USER_HOME_MAX]; /* "/" when the image does not say */
};

/*
 * `spec` as in message_exec: "", "name", "uid", each with ":group" or ":gid".
 * Either file may be empty. CUBBY_E_INVALID names what is unknown or malformed.
 */
int identity_resolve(const char *spec, struct slice passwd, struct slice group,
        struct identity *ret, cubby_error *err);

/* Remembers the last answer until one of the files changes. Not for two threads. */
struct user_cache;
struct user_cache *user_cache_new(void);
void user_cache_free(struct user_cache *cache);
/* Reads /etc/passwd and /etc/group beneath the thread's root. The result belongs
 * to the cache and holds until the next call. */
int user_cache_resolve(
        struct user_cache *cache, const char *spec, const struct identity **ret, cubby_error *err);

#endif
