/* SPDX-License-Identifier: Apache-2.0 */

/* Spares without an owner: whoever made, kept or claimed them was killed. */
#include "box/saved.h"

#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool recorded(const char *id, const struct box_record *records, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (strcmp(records[i].id, id) == 0)
                        return true;
        return false;
}

/* The config is written anew by the claim: until then it has the name of a spare. */
static bool has_no_owner(cubby *host, const char *id)
{
        AUTO_BUFFER struct buffer json;
        AUTO_CONFIG struct box_config config = {0};
        char path[64];
        char name[32];
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        (void)snprintf(path, sizeof path, "%.32s/" BOX_CONFIG_NAME, id);
        (void)snprintf(name, sizeof name, SAVED_SPARE_PREFIX "%.12s", id);
        return file_read_at(home_folder(host->home, HOME_BOXES), path, &json, NULL) == 0 &&
                box_config_decode(json.data, json.size, &config, NULL) == 0 &&
                strcmp(config.id, id) == 0 && strcmp(config.name, name) == 0;
}

static bool is_marked(cubby *host, const char *id)
{
        char path[64];
        struct stat info;
        (void)snprintf(path, sizeof path, "%.32s/" BOX_SPARE_NAME, id);
        return fstatat(home_folder(host->home, HOME_BOXES), path, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * A record beside the mark and the spare's own config: the claim was not finished.
 * No record: one that lives is kept while it is offered, or is still being made.
 */
static bool is_lost(cubby *host, const char *id, bool has_record)
{
        bool marked = is_marked(host, id);
        if (has_record)
                return marked && has_no_owner(host, id);
        if (saved_spare_lives(host, id) && (!marked || spare_indexed(host->home, id)))
                return false;
        return has_no_owner(host, id);
}

void saved_sweep_spares(cubby *host, const struct box_record *records, size_t count)
{
        AUTO_FD int fd = openat(
                home_folder(host->home, HOME_BOXES), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return;
        (void)take_fd(&fd);
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                const char *id = entry->d_name;
                if (strspn(id, "0123456789abcdef") != 32 || id[32] != '\0' ||
                        !is_lost(host, id, recorded(id, records, count)))
                        continue;
                log_line(&host->log, LOG_INFO, "removing a spare that nobody has, %.12s", id);
                saved_remove_spare(host, id);
        }
}
