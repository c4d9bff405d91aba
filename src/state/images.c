/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include <stdio.h>
#include <string.h>

#define IMAGE_COLUMNS "i.id, i.manifest, i.config, i.architecture, i.disk_bytes, i.created_ns"
#define DIGEST_PREFIX "sha256:"
#define HEX_DIGITS "0123456789abcdef"

bool hex_prefix_valid(const char *text, size_t maximum)
{
        size_t length = strspn(text, HEX_DIGITS);
        return length >= 4 && length <= maximum && text[length] == '\0';
}

bool image_id_valid(const char *id)
{
        size_t prefix = strlen(DIGEST_PREFIX);
        return strncmp(id, DIGEST_PREFIX, prefix) == 0 && strspn(id + prefix, HEX_DIGITS) == 64 &&
                id[prefix + 64] == '\0';
}

bool image_name_valid(const char *name)
{
        size_t length = strlen(name);
        if (length == 0 || length > IMAGE_NAME_MAX)
                return false;
        for (size_t i = 0; i < length; i++)
                if (name[i] <= ' ' || name[i] > '~')
                        return false;
        return true;
}

void image_record_clear(struct image_record *record)
{
        if (record == NULL)
                return;
        free(record->id);
        free(record->name);
        free(record->manifest);
        free(record->config);
        free(record->architecture);
        *record = (struct image_record){0};
}

void image_record_list_free(struct image_record *records, size_t count)
{
        for (size_t i = 0; records != NULL && i < count; i++)
                image_record_clear(&records[i]);
        free(records);
}

static int check_record(const struct image_record *record, int code, cubby_error *err)
{
        if (record->id == NULL || !image_id_valid(record->id))
                return cubby_error_set(err, code, "an image record has a bad id");
        if (record->name != NULL && !image_name_valid(record->name))
                return cubby_error_set(err, code, "image %s has a bad name", record->id);
        if (record->manifest == NULL || record->config == NULL || record->architecture == NULL ||
                strlen(record->manifest) > MANIFEST_MAX || strlen(record->config) > CONFIG_MAX ||
                strlen(record->architecture) > 64)
                return cubby_error_set(
                        err, code, "image %s has a part that is missing or too large", record->id);
        if (record->disk_bytes > INT64_MAX || record->created_ns < 0)
                return cubby_error_set(err, code, "image %s has a bad size or time", record->id);
        return 0;
}

/* The row of IMAGE_COLUMNS and, when there is a seventh column, the name. */
static int read_row(sqlite3_stmt *row, struct image_record *ret, cubby_error *err)
{
        struct image_record record = {
                .disk_bytes = (uint64_t)sqlite3_column_int64(row, 4),
                .created_ns = sqlite3_column_int64(row, 5),
        };
        if (db_text(row, 0, &record.id, err) < 0 || db_text(row, 1, &record.manifest, err) < 0 ||
                db_text(row, 2, &record.config, err) < 0 ||
                db_text(row, 3, &record.architecture, err) < 0 ||
                (sqlite3_column_count(row) > 6 && db_text(row, 6, &record.name, err) < 0)) {
                image_record_clear(&record);
                return -1;
        }
        if (check_record(&record, CUBBY_E_CORRUPT, err) < 0) {
                image_record_clear(&record);
                return -1;
        }
        *ret = record;
        return 0;
}

struct record_list {
        struct image_record *records;
        size_t count;
};

static int read_item(sqlite3_stmt *row, void *item, cubby_error *err)
{
        return read_row(row, item, err);
}

static void free_items(void *items, size_t count)
{
        image_record_list_free(items, count);
}

static const struct db_rows image_rows = {.item_size = sizeof(struct image_record),
        .what = "images",
        .read = read_item,
        .free = free_items};

static const char list_query[] = "SELECT " IMAGE_COLUMNS ", n.name FROM images i LEFT JOIN names n"
                                 " ON n.image_id = i.id ORDER BY i.created_ns DESC, i.id, n.name";

static int list_work(struct db *db, void *data, cubby_error *err)
{
        struct record_list list = {0};
        AUTO_STATEMENT sqlite3_stmt *rows = NULL;
        void *items = NULL;
        if (db_prepare(db, list_query, &rows, err) < 0 ||
                db_list(db, rows, &image_rows, &items, &list.count, err) < 0)
                return -1;
        list.records = items;
        *(struct record_list *)data = list;
        return 0;
}

int image_record_list(
        struct home *home, struct image_record **ret, size_t *ret_count, cubby_error *err)
{
        struct record_list list = {0};
        if (db_run(home, false, list_work, &list, err) < 0)
                return cubby_error_wrap(err, "listing images");
        *ret = list.records;
        *ret_count = list.count;
        return 0;
}

int images_verify(struct db *db, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *rows = NULL;
        int more = db_prepare(db, list_query, &rows, err);
        while (more == 0 && (more = db_step(db, rows, err)) == 1) {
                struct image_record record = {0};
                more = read_row(rows, &record, err);
                image_record_clear(&record); /* one at a time: manifests are large */
        }
        if (more < 0)
                return -1;
        AUTO_STATEMENT sqlite3_stmt *lost = NULL;
        if (db_prepare(db, "SELECT 1 FROM names WHERE image_id NOT IN (SELECT id FROM images)",
                    &lost, err) < 0)
                return -1;
        int found = db_step(db, lost, err);
        return found == 1 ? cubby_error_set(err, CUBBY_E_CORRUPT, "a name has no image") : found;
}

/*
 * Sets *ret_id to the id that `image` means and *ret_by_name to whether it is a
 * name. Names win over digits.
 */
static int resolve(
        struct db *db, const char *image, char **ret_id, bool *ret_by_name, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *named = NULL;
        if (db_prepare(db, "SELECT image_id FROM names WHERE name = ?1", &named, err) < 0 ||
                db_bind_text(db, named, 1, image, err) < 0)
                return -1;
        int row = db_step(db, named, err);
        if (row < 0)
                return -1;
        if (row == 1) {
                char *id = NULL;
                if (db_text(named, 0, &id, err) < 0)
                        return -1;
                if (id == NULL)
                        return cubby_error_set(err, CUBBY_E_CORRUPT, "a name has no image");
                *ret_id = id;
                *ret_by_name = true;
                return 0;
        }
        size_t prefix = strlen(DIGEST_PREFIX);
        const char *hex = strncmp(image, DIGEST_PREFIX, prefix) == 0 ? image + prefix : image;
        if (!hex_prefix_valid(hex, 64))
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "there is no image '%s'", image);
        AUTO_FREE char *pattern = NULL;
        if (asprintf(&pattern, DIGEST_PREFIX "%s*", hex) < 0)
                return cubby_error_no_memory(err);
        AUTO_STATEMENT sqlite3_stmt *numbered = NULL;
        if (db_prepare(db, "SELECT id FROM images WHERE id GLOB ?1 LIMIT 2", &numbered, err) < 0 ||
                db_bind_text(db, numbered, 1, pattern, err) < 0)
                return -1;
        row = db_step(db, numbered, err);
        if (row < 0)
                return -1;
        if (row == 0)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "there is no image '%s'", image);
        AUTO_FREE char *id = NULL;
        if (db_text(numbered, 0, &id, err) < 0)
                return -1;
        if (id == NULL)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "an image record has a bad id");
        row = db_step(db, numbered, err);
        if (row < 0)
                return -1;
        if (row == 1)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is the beginning of several image ids; write more digits", image);
        *ret_id = take_ptr(&id);
        *ret_by_name = false;
        return 0;
}

/* The record of an id, without a name. CUBBY_E_CORRUPT when a name points nowhere. */
static int load(struct db *db, const char *id, struct image_record *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, "SELECT " IMAGE_COLUMNS " FROM images i WHERE i.id = ?1", &row, err) <
                        0 ||
                db_bind_text(db, row, 1, id, err) < 0)
                return -1;
        int found = db_step(db, row, err);
        if (found < 0)
                return -1;
        if (found == 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a name has no image");
        return read_row(row, ret, err);
}

static int load_names(struct db *db, const char *id, struct image_file *file, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *rows = NULL;
        if (db_prepare(db, "SELECT name FROM names WHERE image_id = ?1 ORDER BY name", &rows, err) <
                        0 ||
                db_bind_text(db, rows, 1, id, err) < 0)
                return -1;
        int more;
        while ((more = db_step(db, rows, err)) == 1) {
                char **names = reallocarray(file->names, file->name_count + 1, sizeof *file->names);
                if (names == NULL)
                        return cubby_error_no_memory(err);
                file->names = names;
                char *name = NULL;
                if (db_text(rows, 0, &name, err) < 0)
                        return -1;
                if (name == NULL)
                        return cubby_error_set(err, CUBBY_E_CORRUPT, "an image has a bad name");
                names[file->name_count++] = name;
        }
        return more;
}

/* Brings images/HEX.json in line with the rows. */
static int store_file(struct db *db, const char *id, cubby_error *err)
{
        struct image_file file = {0};
        int result = load(db, id, &file.record, err);
        if (result == 0)
                result = load_names(db, id, &file, err);
        if (result == 0)
                result = image_file_write(db->home, &file, err);
        image_file_clear(&file);
        return result;
}

static int insert_image(struct db *db, const struct image_record *record, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, "INSERT OR REPLACE INTO images VALUES(?1, ?2, ?3, ?4, ?5, ?6)", &row,
                    err) < 0 ||
                db_bind_text(db, row, 1, record->id, err) < 0 ||
                db_bind_text(db, row, 2, record->manifest, err) < 0 ||
                db_bind_text(db, row, 3, record->config, err) < 0 ||
                db_bind_text(db, row, 4, record->architecture, err) < 0 ||
                db_bind_number(db, row, 5, (int64_t)record->disk_bytes, err) < 0 ||
                db_bind_number(db, row, 6, record->created_ns, err) < 0)
                return -1;
        return db_step(db, row, err);
}

int image_file_index(struct db *db, const struct image_file *file, cubby_error *err)
{
        if (insert_image(db, &file->record, err) < 0)
                return -1;
        for (size_t i = 0; i < file->name_count; i++)
                if (db_execute(db, "INSERT OR IGNORE INTO names VALUES(?1, ?2)", file->names[i],
                            file->record.id, err) < 0)
                        return -1;
        return 0;
}

/* Moves a name; the files of both its images follow. */
static int move_name(struct db *db, const char *name, const char *id, cubby_error *err)
{
        AUTO_FREE char *before = NULL;
        bool by_name = false;
        cubby_error problem = {0};
        if (resolve(db, name, &before, &by_name, &problem) < 0 &&
                problem.code != CUBBY_E_NOT_FOUND && problem.code != CUBBY_E_INVALID) {
                if (err != NULL)
                        *err = problem;
                return -1;
        }
        if (db_execute(db, "INSERT OR REPLACE INTO names VALUES(?1, ?2)", name, id, err) < 0)
                return -1;
        if (by_name && strcmp(before, id) != 0 && store_file(db, before, err) < 0)
                return -1;
        return 0;
}

static int put_work(struct db *db, void *data, cubby_error *err)
{
        const struct image_record *record = data;
        if (insert_image(db, record, err) < 0)
                return -1;
        if (record->name != NULL && move_name(db, record->name, record->id, err) < 0)
                return -1;
        return store_file(db, record->id, err);
}

int image_record_put(struct home *home, const struct image_record *record, cubby_error *err)
{
        if (check_record(record, CUBBY_E_INVALID, err) < 0 ||
                db_run(home, true, put_work, (void *)(uintptr_t)record, err) < 0)
                return cubby_error_wrap(err, "recording the image");
        return 0;
}

struct query {
        const char *image;
        const char *name;
        struct image_record *record;
        bool gone;
};

static int find_work(struct db *db, void *data, cubby_error *err)
{
        struct query *query = data;
        AUTO_FREE char *id = NULL;
        bool by_name = false;
        struct image_record record = {0};
        if (resolve(db, query->image, &id, &by_name, err) < 0 || load(db, id, &record, err) < 0)
                return -1;
        struct image_file names = {0};
        int result = 0;
        if (by_name)
                record.name = strdup(query->image);
        else if ((result = load_names(db, id, &names, err)) == 0 && names.name_count > 0)
                record.name = take_ptr(&names.names[0]);
        image_file_clear(&names);
        if (result == 0 && by_name && record.name == NULL)
                result = cubby_error_no_memory(err);
        if (result < 0) {
                image_record_clear(&record);
                return -1;
        }
        *query->record = record;
        return 0;
}

int image_record_find(
        struct home *home, const char *image, struct image_record *ret, cubby_error *err)
{
        struct image_record record = {0};
        struct query query = {.image = image, .record = &record};
        if (db_run(home, false, find_work, &query, err) < 0)
                return -1;
        *ret = record;
        return 0;
}

static int remove_work(struct db *db, void *data, cubby_error *err)
{
        struct query *query = data;
        AUTO_FREE char *id = NULL;
        bool by_name = false;
        if (resolve(db, query->image, &id, &by_name, err) < 0)
                return -1;
        if (by_name) {
                if (db_execute(db, "DELETE FROM names WHERE name = ?1", query->image, NULL, err) <
                        0)
                        return -1;
                struct image_file left = {0};
                int result = load_names(db, id, &left, err);
                size_t count = left.name_count;
                image_file_clear(&left);
                if (result < 0)
                        return -1;
                if (count > 0) {
                        query->gone = false;
                        return store_file(db, id, err);
                }
        }
        if (db_execute(db, "DELETE FROM names WHERE image_id = ?1", id, NULL, err) < 0 ||
                db_execute(db, "DELETE FROM images WHERE id = ?1", id, NULL, err) < 0)
                return -1;
        query->gone = true;
        return image_file_remove(db->home, id, err);
}

int image_record_remove(struct home *home, const char *image, bool *ret_gone, cubby_error *err)
{
        struct query query = {.image = image};
        if (db_run(home, true, remove_work, &query, err) < 0)
                return cubby_error_wrap(err, "removing image '%s'", image);
        if (ret_gone != NULL)
                *ret_gone = query.gone;
        return 0;
}

static int tag_work(struct db *db, void *data, cubby_error *err)
{
        struct query *query = data;
        AUTO_FREE char *id = NULL;
        bool by_name = false;
        if (resolve(db, query->image, &id, &by_name, err) < 0 ||
                move_name(db, query->name, id, err) < 0)
                return -1;
        return store_file(db, id, err);
}

int image_record_tag(struct home *home, const char *image, const char *name, cubby_error *err)
{
        if (!image_name_valid(name))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is no name for an image", name);
        struct query query = {.image = image, .name = name};
        if (db_run(home, true, tag_work, &query, err) < 0)
                return cubby_error_wrap(err, "tagging image '%s'", image);
        return 0;
}
