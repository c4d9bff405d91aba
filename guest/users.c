/* SPDX-License-Identifier: Apache-2.0 */
#include "users.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_MAX 2147483647ULL
#define FIELDS 7

/* Cuts the next line off `text`; false at the end. */
static bool next_line(struct slice *text, struct slice *ret)
{
        if (text->size == 0)
                return false;
        const uint8_t *end = memchr(text->data, '\n', text->size);
        size_t length = end == NULL ? text->size : (size_t)(end - text->data);
        *ret = (struct slice){text->data, length};
        size_t used = end == NULL ? length : length + 1;
        text->data += used;
        text->size -= used;
        return true;
}

/* Splits at colons into at most `max` fields; returns how many there are. */
static size_t split(struct slice line, char separator, struct slice *fields, size_t max)
{
        size_t count = 0;
        while (count < max) {
                const uint8_t *end =
                        line.size == 0 ? NULL : memchr(line.data, separator, line.size);
                size_t length = end == NULL ? line.size : (size_t)(end - line.data);
                fields[count++] = (struct slice){line.data, length};
                if (end == NULL)
                        break;
                line.data += length + 1;
                line.size -= length + 1;
        }
        return count;
}

static bool parse_id(struct slice text, uint32_t *ret)
{
        if (text.size == 0 || text.size > 10)
                return false;
        uint64_t value = 0;
        for (size_t i = 0; i < text.size; i++) {
                if (text.data[i] < '0' || text.data[i] > '9')
                        return false;
                value = value * 10 + (uint64_t)(text.data[i] - '0');
        }
        if (value > ID_MAX)
                return false;
        *ret = (uint32_t)value;
        return true;
}

static bool same(struct slice a, struct slice b)
{
        return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* By name first, as a name may look like a number; else by number. */
static bool find_entry(
        struct slice text, struct slice key, struct slice fields[FIELDS], size_t need)
{
        uint32_t number = 0;
        bool numeric = parse_id(key, &number);
        for (int by_number = 0; by_number < (numeric ? 2 : 1); by_number++) {
                struct slice left = text;
                struct slice line;
                while (next_line(&left, &line)) {
                        uint32_t id = 0;
                        if (split(line, ':', fields, FIELDS) < need || fields[0].size == 0 ||
                                !parse_id(fields[2], &id))
                                continue;
                        if (by_number != 0 ? id == number : same(fields[0], key))
                                return true;
                }
        }
        return false;
}

static bool lists_member(struct slice members, struct slice name)
{
        while (members.size > 0) {
                struct slice one[1];
                (void)split(members, ',', one, 1);
                if (same(one[0], name))
                        return true;
                size_t used = one[0].size < members.size ? one[0].size + 1 : members.size;
                members.data += used;
                members.size -= used;
        }
        return false;
}

static int add_groups(
        struct slice group, struct slice name, struct identity *identity, cubby_error *err)
{
        struct slice line;
        while (next_line(&group, &line)) {
                struct slice fields[FIELDS];
                uint32_t gid = 0;
                if (split(line, ':', fields, FIELDS) < 4 || !parse_id(fields[2], &gid) ||
                        !lists_member(fields[3], name) || gid == identity->gid)
                        continue;
                if (identity->group_count == USER_GROUPS_MAX)
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "user '%.*s' is in more than %d groups", (int)name.size,
                                (const char *)name.data, USER_GROUPS_MAX);
                identity->groups[identity->group_count++] = gid;
        }
        return 0;
}

static int resolve_group(
        struct slice key, struct slice group, struct identity *identity, cubby_error *err)
{
        struct slice fields[FIELDS];
        uint32_t gid = 0;
        if (find_entry(group, key, fields, 3))
                (void)parse_id(fields[2], &gid);
        else if (!parse_id(key, &gid))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "group '%.*s' is unknown in this image", (int)key.size,
                        (const char *)key.data);
        identity->gid = gid;
        return 0;
}

int identity_resolve(const char *spec, struct slice passwd, struct slice group,
        struct identity *ret, cubby_error *err)
{
        struct slice parts[3];
        struct slice whole = {(const uint8_t *)spec, strlen(spec)};
        size_t count = split(whole, ':', parts, 3);
        if (count > 2 || (count == 2 && parts[1].size == 0) || whole.size > 512)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "user '%.64s' is not of the form name, uid, name:group or uid:gid", spec);
        struct slice key = parts[0];
        if (key.size == 0)
                key = (struct slice){(const uint8_t *)"0", 1};

        struct identity identity = {.home = "/"};
        struct slice fields[FIELDS];
        struct slice name = {0};
        uint32_t id = 0;
        if (find_entry(passwd, key, fields, 6)) {
                uint32_t gid = 0;
                (void)parse_id(fields[2], &id);
                if (!parse_id(fields[3], &gid))
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "user '%.64s' has a malformed entry in the image's /etc/passwd",
                                spec);
                identity.gid = gid;
                name = fields[0];
                size_t length = fields[5].size;
                if (length > 0 && length < sizeof identity.home &&
                        memchr(fields[5].data, '\0', length) == NULL) {
                        memcpy(identity.home, fields[5].data, length);
                        identity.home[length] = '\0';
                }
        } else if (!parse_id(key, &id)) {
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "user '%.64s' is unknown in this image", spec);
        }
        identity.uid = id;
        if (count == 2) {
                if (resolve_group(parts[1], group, &identity, err) < 0)
                        return -1;
        } else if (name.size > 0 && add_groups(group, name, &identity, err) < 0) {
                return -1;
        }
        *ret = identity;
        return 0;
}

struct user_cache {
        bool valid;
        char spec[520];
        struct stat seen[2];
        struct identity identity;
};

struct user_cache *user_cache_new(void)
{
        return calloc(1, sizeof(struct user_cache));
}

void user_cache_free(struct user_cache *cache)
{
        free(cache);
}

static bool unchanged(const struct stat *a, const struct stat *b)
{
        return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
                a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
                a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
                a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static const char *const user_files[2] = {"/etc/passwd", "/etc/group"};

/* A missing file counts as an empty one; anything but a plain file is refused. */
static int read_file(const char *path, struct buffer *ret, cubby_error *err)
{
        struct stat info;
        AUTO_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
                return 0;
        if (fd < 0 || fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "reading the image's '%s'", path);
        if (!S_ISREG(info.st_mode) || info.st_size > (off_t)ret->maximum)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the image's '%s' is not a plain file of at most %zu bytes", path,
                        ret->maximum);
        size_t size = (size_t)info.st_size;
        uint8_t *data = buffer_reserve(ret, size);
        if (data == NULL)
                return cubby_error_no_memory(err);
        ssize_t got = read_whole(fd, data, size);
        if (got < 0)
                return cubby_error_errno(err, errno, "reading the image's '%s'", path);
        ret->size = (size_t)got;
        return 0;
}

int user_cache_resolve(
        struct user_cache *cache, const char *spec, const struct identity **ret, cubby_error *err)
{
        struct stat now[2];
        for (int i = 0; i < 2; i++)
                if (stat(user_files[i], &now[i]) < 0)
                        memset(&now[i], 0, sizeof now[i]);
        if (cache->valid && strcmp(cache->spec, spec) == 0 && unchanged(&cache->seen[0], &now[0]) &&
                unchanged(&cache->seen[1], &now[1])) {
                *ret = &cache->identity;
                return 0;
        }
        AUTO_BUFFER struct buffer passwd = {.maximum = USER_FILE_MAX};
        AUTO_BUFFER struct buffer group = {.maximum = USER_FILE_MAX};
        cache->valid = false;
        if (read_file(user_files[0], &passwd, err) < 0 || read_file(user_files[1], &group, err) < 0)
                return -1;
        if (identity_resolve(spec, (struct slice){passwd.data, passwd.size},
                    (struct slice){group.data, group.size}, &cache->identity, err) < 0)
                return -1;
        (void)snprintf(cache->spec, sizeof cache->spec, "%s", spec);
        memcpy(cache->seen, now, sizeof now);
        cache->valid = true;
        *ret = &cache->identity;
        return 0;
}
