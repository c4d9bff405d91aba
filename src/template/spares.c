/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "template/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAKEN_PREFIX "taken-"
#define AHEAD_PREFIX "ahead-"
#define ENTRY_SIZE 48

static bool id_valid(const char *id)
{
        return strspn(id, "0123456789abcdef") == 32 && id[32] == '\0';
}

/* The id in an entry of this kind, NULL when it is another's. */
static const char *id_of(const char *entry, enum spare_kind kind)
{
        if (kind == SPARE_AHEAD) {
                if (strncmp(entry, AHEAD_PREFIX, strlen(AHEAD_PREFIX)) != 0)
                        return NULL;
                entry += strlen(AHEAD_PREFIX);
        }
        return id_valid(entry) ? entry : NULL;
}

static void entry_name(enum spare_kind kind, const char *box_id, char ret[ENTRY_SIZE])
{
        (void)snprintf(ret, ENTRY_SIZE, "%s%.32s", kind == SPARE_AHEAD ? AHEAD_PREFIX : "", box_id);
}

static int open_index(int dir_fd)
{
        return openat(
                dir_fd, TEMPLATE_SPARES_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static uint32_t read_wanted(int dir_fd, const char *name)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, 16);
        if (file_read_at(dir_fd, name, &text, NULL) < 0)
                return 0;
        uint32_t count = 0;
        for (size_t i = 0; i < text.size && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
                count = count * 10 + (text.data[i] - '0');
                if (count > TEMPLATE_SPARES_MAX)
                        return TEMPLATE_SPARES_MAX;
        }
        return count;
}

uint32_t template_wanted(int dir_fd)
{
        uint32_t owner = read_wanted(dir_fd, TEMPLATE_WANTED_NAME);
        uint32_t pools = read_wanted(dir_fd, TEMPLATE_POOLS_NAME);
        return owner > pools ? owner : pools;
}

static int write_wanted(int dir_fd, const char *name, uint32_t count, cubby_error *err)
{
        if (count > TEMPLATE_SPARES_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "at most %u spares of one template can be kept, not %u",
                        TEMPLATE_SPARES_MAX, count);
        char text[16];
        int length = snprintf(text, sizeof text, "%u\n", count);
        return file_publish_at(dir_fd, name, text, (size_t)length, 0600, err);
}

int template_set_wanted(int dir_fd, uint32_t count, cubby_error *err)
{
        if (write_wanted(dir_fd, TEMPLATE_WANTED_NAME, count, err) < 0)
                return -1;
        return template_set_pools_wanted(dir_fd, 0, err);
}

int template_set_pools_wanted(int dir_fd, uint32_t count, cubby_error *err)
{
        if (count > 0)
                return write_wanted(dir_fd, TEMPLATE_POOLS_NAME, count, err);
        if (unlinkat(dir_fd, TEMPLATE_POOLS_NAME, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "setting the number of spares");
        return 0;
}

int spare_add(int dir_fd, enum spare_kind kind, const char *box_id, cubby_error *err)
{
        char entry[ENTRY_SIZE];
        entry_name(kind, box_id, entry);
        AUTO_FD int index = open_index(dir_fd);
        AUTO_FD int fd = index < 0
                ? -1
                : openat(index, entry, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return cubby_error_errno(err, errno, "recording a spare");
        return 0;
}

static void taken_name(const char *box_id, char ret[ENTRY_SIZE])
{
        (void)snprintf(ret, ENTRY_SIZE, "%s%.32s", TAKEN_PREFIX, box_id);
}

void spare_settle(int dir_fd, const char *box_id)
{
        char taken[ENTRY_SIZE];
        taken_name(box_id, taken);
        AUTO_FD int index = open_index(dir_fd);
        if (index >= 0)
                (void)unlinkat(index, taken, 0);
}

void spare_return(int dir_fd, enum spare_kind kind, const char *box_id)
{
        char taken[ENTRY_SIZE];
        char entry[ENTRY_SIZE];
        entry_name(kind, box_id, entry);
        taken_name(box_id, taken);
        AUTO_FD int index = open_index(dir_fd);
        if (index >= 0)
                (void)renameat(index, taken, index, entry);
}

int spare_forgotten(int dir_fd, int64_t age_ms, char ret_id[33])
{
        AUTO_FD int fd = open_index(dir_fd);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return 0;
        (void)take_fd(&fd);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                struct stat info;
                if (strncmp(entry->d_name, TAKEN_PREFIX, strlen(TAKEN_PREFIX)) != 0 ||
                        !id_valid(entry->d_name + strlen(TAKEN_PREFIX)) ||
                        fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                /* the rename set it */
                int64_t changed_ms = (int64_t)info.st_ctim.tv_sec * 1000;
                if (clock_realtime_ns() / 1000000 - changed_ms < age_ms)
                        continue;
                memcpy(ret_id, entry->d_name + strlen(TAKEN_PREFIX), 33);
                return 1;
        }
        return 0;
}

int spare_take(int dir_fd, enum spare_kind kind, char ret_id[33], cubby_error *err)
{
        AUTO_FD int fd = open_index(dir_fd);
        if (fd < 0)
                return errno == ENOENT ? 0 : cubby_error_errno(err, errno, "looking for a spare");
        AUTO_DIR DIR *dir = fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "looking for a spare");
        (void)take_fd(&fd);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                const char *id = id_of(entry->d_name, kind);
                if (id == NULL)
                        continue;
                char taken[ENTRY_SIZE];
                taken_name(id, taken);
                /* of several processes only one renames it */
                if (renameat(dirfd(dir), entry->d_name, dirfd(dir), taken) == 0) {
                        memcpy(ret_id, id, 33);
                        return 1;
                }
                if (errno != ENOENT)
                        return cubby_error_errno(err, errno, "taking a spare");
        }
        return 0;
}

bool spare_drop(int dir_fd, enum spare_kind kind, const char *box_id)
{
        char entry[ENTRY_SIZE];
        entry_name(kind, box_id, entry);
        AUTO_FD int index = open_index(dir_fd);
        return index >= 0 && unlinkat(index, entry, 0) == 0;
}

size_t spare_list(int dir_fd, enum spare_kind kind, char ret_ids[TEMPLATE_SPARES_MAX][33])
{
        AUTO_FD int fd = open_index(dir_fd);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return 0;
        (void)take_fd(&fd);
        size_t count = 0;
        for (struct dirent *entry = readdir(dir); entry != NULL && count < TEMPLATE_SPARES_MAX;
                entry = readdir(dir))
                if (id_of(entry->d_name, kind) != NULL)
                        memcpy(ret_ids[count++], id_of(entry->d_name, kind), 33);
        return count;
}

bool spare_indexed(struct home *home, const char *box_id)
{
        int templates = home_folder(home, HOME_TEMPLATES);
        AUTO_FD int fd = openat(templates, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return false;
        (void)take_fd(&fd);
        bool found = false;
        for (struct dirent *entry = readdir(dir); entry != NULL && !found; entry = readdir(dir)) {
                char path[TEMPLATE_KEY_SIZE + 64];
                struct stat info;
                if (!template_key_valid(entry->d_name))
                        continue;
                for (int kind = SPARE_WARM; kind <= SPARE_AHEAD && !found; kind++) {
                        char name[ENTRY_SIZE];
                        entry_name((enum spare_kind)kind, box_id, name);
                        (void)snprintf(path, sizeof path, "%.64s/" TEMPLATE_SPARES_NAME "/%s",
                                entry->d_name, name);
                        found = fstatat(templates, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
                }
        }
        return found;
}

uint32_t spare_count(int dir_fd, enum spare_kind kind)
{
        AUTO_FD int fd = open_index(dir_fd);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return 0;
        (void)take_fd(&fd);
        uint32_t count = 0;
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
                count += id_of(entry->d_name, kind) != NULL ? 1 : 0;
        return count;
}
