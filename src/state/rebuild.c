/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REBUILD_LOCK_MS 30000
#define NEW_NAME DB_NAME ".new"
#define ASIDE_MAX 1000
#define BOX_FILE_MAX (4U << 20)

struct name_list {
        char **names;
        size_t count;
};

static void free_names(struct name_list *list)
{
        for (size_t i = 0; i < list->count; i++)
                free(list->names[i]);
        free(list->names);
}

static int list_folder(int folder, struct name_list *list, cubby_error *err)
{
        AUTO_FD int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        AUTO_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir == NULL)
                return cubby_error_errno(err, errno, "reading a folder of the home");
        (void)take_fd(&fd);
        for (;;) {
                errno = 0;
                const struct dirent *entry = readdir(dir);
                if (entry == NULL && errno != 0)
                        return cubby_error_errno(err, errno, "reading a folder of the home");
                if (entry == NULL)
                        return 0;
                if (entry->d_name[0] == '.' || list->count >= RECORDS_MAX)
                        continue;
                char **more = reallocarray(list->names, list->count + 1, sizeof *list->names);
                if (more == NULL)
                        return cubby_error_no_memory(err);
                list->names = more;
                more[list->count] = strdup(entry->d_name);
                if (more[list->count] == NULL)
                        return cubby_error_no_memory(err);
                list->count++;
        }
}

/* A record that is itself at fault is passed over. With any other failure the new
 * database would lack what is there: no database is made. */
static bool at_fault(const cubby_error *problem)
{
        switch (problem->code) {
        case CUBBY_E_CORRUPT:
        case CUBBY_E_INVALID:   /* no regular file */
        case CUBBY_E_LIMIT:     /* too large */
        case CUBBY_E_NOT_FOUND: /* never written */
        case CUBBY_E_EXISTS:    /* what it claims is taken */
        case CUBBY_E_PERMISSION:
                return true;
        default: /* a link or a folder in the file's place, which is not opened */
                return problem->sys_errno == ELOOP || problem->sys_errno == ENOTDIR;
        }
}

static int newest_first(const void *left, const void *right)
{
        const struct image_file *a = left;
        const struct image_file *b = right;
        return (a->record.created_ns < b->record.created_ns) -
                (a->record.created_ns > b->record.created_ns);
}

/* Reads what can be read; a malformed record is passed over, a newer one refused. */
static int read_images(struct home *home, const struct name_list *list, struct image_file *files,
        size_t *count, cubby_error *err)
{
        for (size_t i = 0; i < list->count; i++) {
                char *name = list->names[i];
                size_t length = strlen(name);
                if (length != 64 + strlen(".json") || strcmp(name + 64, ".json") != 0)
                        continue;
                name[64] = '\0';
                cubby_error problem = {0};
                if (image_file_read(home, name, &files[*count], &problem) == 0) {
                        (*count)++;
                        continue;
                }
                if (at_fault(&problem)) {
                        log_line(&home->log, LOG_WARNING, "an image record is lost: %s",
                                problem.message);
                        continue;
                }
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        return 0;
}

static int index_images(struct db *db, cubby_error *err)
{
        struct name_list list = {0};
        size_t count = 0;
        struct image_file *files = NULL;
        int result = list_folder(db->home->folders[HOME_IMAGES], &list, err);
        if (result == 0) {
                files = calloc(list.count + 1, sizeof *files);
                result = files == NULL ? cubby_error_no_memory(err)
                                       : read_images(db->home, &list, files, &count, err);
        }
        if (result == 0)
                qsort(files, count, sizeof *files, newest_first);
        for (size_t i = 0; result == 0 && i < count; i++)
                result = image_file_index(db, &files[i], err);
        for (size_t i = 0; i < count; i++)
                image_file_clear(&files[i]);
        free(files);
        free_names(&list);
        return result;
}

static int parse_box(const json_t *root, const char *id, struct box_record *ret, cubby_error *err)
{
        const char *stored_id = NULL;
        const char *name = NULL;
        const char *image_id = NULL;
        json_int_t slot = 0;
        json_int_t created_ns = 0;
        if (json_unpack((json_t *)(uintptr_t)root, "{s:s, s:s, s:s, s:I, s:I}", "id", &stored_id,
                    "name", &name, "image_id", &image_id, "slot", &slot, "created_ns",
                    &created_ns) < 0 ||
                strcmp(stored_id, id) != 0 || !box_name_valid(name) || !image_id_valid(image_id) ||
                slot < 1 || slot > SLOT_MAX || created_ns < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "its config.json has a bad value");
        struct box_record record = {
                .id = strdup(id),
                .name = strdup(name),
                .image_id = strdup(image_id),
                .slot = (uint32_t)slot,
                .created_ns = created_ns,
        };
        if (record.id == NULL || record.name == NULL || record.image_id == NULL) {
                box_record_clear(&record);
                return cubby_error_no_memory(err);
        }
        *ret = record;
        return 0;
}

/* The few fields of config.json that the index holds. The box layer checks all. */
static int read_box(struct home *home, const char *id, struct box_record *ret, cubby_error *err)
{
        AUTO_FD int dir = openat(
                home->folders[HOME_BOXES], id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return cubby_error_errno(err, errno, "opening its folder");
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, BOX_FILE_MAX);
        if (file_read_at(dir, "config.json", &text, err) < 0)
                return -1;
        json_error_t problem;
        json_t *root =
                json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, &problem);
        if (root == NULL)
                return json_error_code(&problem) == json_error_out_of_memory
                        ? cubby_error_no_memory(err)
                        : cubby_error_set(err, CUBBY_E_CORRUPT, "its config.json is no JSON");
        int result = parse_box(root, id, ret, err);
        json_decref(root);
        return result;
}

static int index_boxes(struct db *db, cubby_error *err)
{
        struct name_list list = {0};
        int result = list_folder(db->home->folders[HOME_BOXES], &list, err);
        for (size_t i = 0; result == 0 && i < list.count; i++) {
                if (!box_id_valid(list.names[i]))
                        continue;
                struct box_record record = {0};
                cubby_error problem = {0};
                if (read_box(db->home, list.names[i], &record, &problem) < 0 ||
                        box_insert_row(db, &record, &problem) < 0) {
                        log_line(&db->home->log, LOG_WARNING, "box %s is left aside: %s",
                                list.names[i], problem.message);
                        if (!at_fault(&problem)) {
                                if (err != NULL)
                                        *err = problem;
                                result = -1;
                        }
                }
                box_record_clear(&record);
        }
        free_names(&list);
        return result;
}

/* 0 when the database is in order, 1 when it must be made anew, -1. */
static int needs_rebuild(struct home *home, cubby_error *err)
{
        struct db db = {0};
        cubby_error problem = {0};
        int result = db_open(home, &db, &problem);
        if (result == 0) {
                result = db_verify(&db, &problem);
                db_close(&db);
        }
        if (result == 0)
                return 0;
        if (problem.code == CUBBY_E_CORRUPT) {
                log_line(&home->log, LOG_INFO, "%s; it is made from the folders", problem.message);
                return 1;
        }
        if (err != NULL)
                *err = problem;
        return -1;
}

static int set_aside(struct home *home, cubby_error *err)
{
        int root = home->folders[HOME_ROOT];
        struct stat info;
        for (int n = 1; n <= ASIDE_MAX; n++) {
                char name[64];
                char log_name[64];
                (void)snprintf(name, sizeof name, DB_NAME ".corrupt-%d", n);
                (void)snprintf(log_name, sizeof log_name, DB_NAME ".corrupt-%d-wal", n);
                if (fstatat(root, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
                        continue;
                if (renameat(root, DB_NAME, root, name) < 0) {
                        if (errno != ENOENT)
                                return cubby_error_errno(
                                        err, errno, "setting the corrupt database aside");
                } else {
                        log_line(&home->log, LOG_WARNING,
                                "the database was corrupt and is kept as %s", name);
                }
                /* a log of the old database must never meet the new one */
                if (renameat(root, DB_NAME "-wal", root, log_name) < 0 && errno != ENOENT)
                        return cubby_error_errno(err, errno, "setting the corrupt database aside");
                if (unlinkat(root, DB_NAME "-shm", 0) < 0 && errno != ENOENT)
                        return cubby_error_errno(err, errno, "setting the corrupt database aside");
                return 0;
        }
        return cubby_error_set(err, CUBBY_E_LIMIT,
                "there are %d corrupt databases in '%s'; remove some", ASIDE_MAX, home->path);
}

static int fill(struct db *db, cubby_error *err)
{
        if (sqlite3_exec(db->sql, "PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE", NULL, NULL,
                    NULL) != SQLITE_OK)
                return db_error(db, "making it", err);
        if (db_make_schema(db, err) < 0 || index_images(db, err) < 0 || index_boxes(db, err) < 0)
                return -1;
        if (sqlite3_exec(db->sql, "COMMIT; PRAGMA journal_mode = WAL", NULL, NULL, NULL) !=
                SQLITE_OK)
                return db_error(db, "making it", err);
        return 0;
}

static int make_new(struct home *home, cubby_error *err)
{
        static const char *const leftovers[] = {
                NEW_NAME, NEW_NAME "-journal", NEW_NAME "-wal", NEW_NAME "-shm"};
        int root = home->folders[HOME_ROOT];
        for (size_t i = 0; i < sizeof leftovers / sizeof leftovers[0]; i++)
                if (unlinkat(root, leftovers[i], 0) < 0 && errno != ENOENT)
                        return cubby_error_errno(err, errno, "removing '%s'", leftovers[i]);
        /* empty, for SQLite to fill: it gives its other files the mode of this one */
        AUTO_FD int fd =
                openat(root, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fchmod(fd, 0600) < 0)
                return cubby_error_errno(err, errno, "making '%s'", NEW_NAME);
        close_quietly(take_fd(&fd)); /* closed later it would take SQLite's locks away */
        AUTO_FREE char *path = NULL;
        if (asprintf(&path, "%s/" NEW_NAME, home->path) < 0)
                return cubby_error_no_memory(err);
        struct db db = {.home = home};
        int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
        int result = sqlite3_open_v2(path, &db.sql, flags, NULL) == SQLITE_OK
                ? fill(&db, err)
                : db_error(&db, "making it", err);
        db_close(&db);
        if (result < 0)
                return -1;
        if (renameat(root, NEW_NAME, root, DB_NAME) < 0)
                return cubby_error_errno(err, errno, "publishing the database");
        (void)fsync(root);
        return 0;
}

int db_rebuild(struct home *home, cubby_error *err)
{
        AUTO_LOCK int lock = -1;
        if (home_lock(home, "db", true, deadline_after_ms(REBUILD_LOCK_MS), &lock, err) < 0)
                return -1;
        int needed = needs_rebuild(home, err);
        if (needed <= 0)
                return needed;
        if (set_aside(home, err) < 0 || make_new(home, err) < 0)
                return cubby_error_wrap(err, "rebuilding the database of '%s'", home->path);
        return 0;
}
