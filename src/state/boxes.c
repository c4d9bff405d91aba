/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include <stdio.h>
#include <string.h>

#define BOX_COLUMNS "id, name, image_id, slot, created_ns"
#define NAME_MAX_LENGTH 63

bool box_id_valid(const char *id)
{
        return strspn(id, "0123456789abcdef") == 32 && id[32] == '\0';
}

bool box_name_valid(const char *name)
{
        static const char first[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        static const char later[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
        size_t length = strspn(name, later);
        return length > 0 && length <= NAME_MAX_LENGTH && name[length] == '\0' &&
                strchr(first, name[0]) != NULL;
}

void box_record_clear(struct box_record *record)
{
        if (record == NULL)
                return;
        free(record->id);
        free(record->name);
        free(record->image_id);
        *record = (struct box_record){0};
}

void box_record_list_free(struct box_record *records, size_t count)
{
        for (size_t i = 0; records != NULL && i < count; i++)
                box_record_clear(&records[i]);
        free(records);
}

static bool record_valid(const struct box_record *record)
{
        return record->id != NULL && box_id_valid(record->id) && record->name != NULL &&
                box_name_valid(record->name) && record->image_id != NULL &&
                image_id_valid(record->image_id) && record->slot <= SLOT_MAX &&
                record->created_ns >= 0;
}

static int read_row(sqlite3_stmt *row, struct box_record *ret, cubby_error *err)
{
        int64_t slot = sqlite3_column_int64(row, 3);
        struct box_record record = {
                .slot = slot < 1 || slot > SLOT_MAX ? UINT32_MAX : (uint32_t)slot,
                .created_ns = sqlite3_column_int64(row, 4),
        };
        int result = 0;
        if (db_text(row, 0, &record.id, err) < 0 || db_text(row, 1, &record.name, err) < 0 ||
                db_text(row, 2, &record.image_id, err) < 0)
                result = -1;
        else if (!record_valid(&record))
                result = cubby_error_set(err, CUBBY_E_CORRUPT, "a box record has a bad value");
        if (result < 0) {
                box_record_clear(&record);
                return -1;
        }
        *ret = record;
        return 0;
}

int box_insert_row(struct db *db, const struct box_record *record, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, "INSERT INTO boxes(" BOX_COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5)", &row,
                    err) < 0 ||
                db_bind_text(db, row, 1, record->id, err) < 0 ||
                db_bind_text(db, row, 2, record->name, err) < 0 ||
                db_bind_text(db, row, 3, record->image_id, err) < 0 ||
                db_bind_number(db, row, 4, record->slot, err) < 0 ||
                db_bind_number(db, row, 5, record->created_ns, err) < 0)
                return -1;
        return db_step(db, row, err);
}

/* One number that a query without a row answers with 0. */
static int query_number(
        struct db *db, const char *sql, const char *text, int64_t *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, sql, &row, err) < 0)
                return -1;
        if (text != NULL && db_bind_text(db, row, 1, text, err) < 0)
                return -1;
        int found = db_step(db, row, err);
        if (found < 0)
                return -1;
        *ret = found == 1 ? sqlite3_column_int64(row, 0) : 0;
        return 0;
}

static int insert_work(struct db *db, void *data, cubby_error *err)
{
        struct box_record *record = data;
        int64_t taken = 0;
        int64_t known = 0;
        int64_t slots = 0;
        int64_t slot = 0;
        int64_t wanted = record->slot;
        char number[16];
        (void)snprintf(number, sizeof number, "%u", record->slot);
        if (query_number(db, "SELECT count(*) FROM boxes WHERE name = ?1", record->name, &taken,
                    err) < 0 ||
                (wanted != 0 && taken == 0 &&
                        query_number(db,
                                "SELECT count(*) FROM boxes WHERE slot = CAST(?1 AS INTEGER)",
                                number, &slots, err) < 0) ||
                query_number(db, "SELECT count(*) FROM images WHERE id = ?1", record->image_id,
                        &known, err) < 0 ||
                /* the lowest number that nobody has: 1, or the one behind a taken one */
                query_number(db,
                        "SELECT min(s) FROM (SELECT 1 AS s UNION ALL SELECT slot + 1 FROM boxes)"
                        " WHERE s NOT IN (SELECT slot FROM boxes)",
                        NULL, &slot, err) < 0)
                return -1;
        if (taken > 0)
                return cubby_error_set(
                        err, CUBBY_E_EXISTS, "there is already a box named '%s'", record->name);
        if (slots > 0)
                return cubby_error_set(
                        err, CUBBY_E_EXISTS, "there is already a box in slot %u", record->slot);
        if (known == 0)
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "there is no image %s any more", record->image_id);
        if (wanted != 0)
                slot = wanted;
        if (slot < 1 || slot > SLOT_MAX)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the home has its most boxes, %u", SLOT_MAX);
        record->slot = (uint32_t)slot;
        return box_insert_row(db, record, err);
}

int box_record_insert(struct home *home, struct box_record *record, cubby_error *err)
{
        struct box_record checked = *record;
        if (checked.slot == 0)
                checked.slot = 1; /* the real one is chosen; this one passes the checks */
        if (!record_valid(&checked))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is no name for a box: letters, digits, '_', '.' and '-', "
                        "at most %d, the first a letter or digit",
                        record->name == NULL ? "" : record->name, NAME_MAX_LENGTH);
        checked.slot = record->slot;
        int inserted = record->slot == 0 ? db_run(home, true, insert_work, &checked, err)
                                         : db_run_quickly(home, insert_work, &checked, err);
        if (inserted < 0)
                return cubby_error_wrap(err, "recording the box");
        record->slot = checked.slot;
        return 0;
}

struct query {
        const char *box;
        const char *name;
        struct box_record *record;
};

/* 1 with *ret filled, 0 when the query has no row, -1. */
static int find_by(
        struct db *db, const char *sql, const char *text, struct box_record *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, sql, &row, err) < 0 || db_bind_text(db, row, 1, text, err) < 0)
                return -1;
        int found = db_step(db, row, err);
        if (found != 1)
                return found;
        struct box_record record = {0};
        if (read_row(row, &record, err) < 0)
                return -1;
        found = db_step(db, row, err);
        if (found != 0) {
                box_record_clear(&record);
                return found < 0 ? -1
                                 : cubby_error_set(err, CUBBY_E_INVALID,
                                           "'%s' is the beginning of several box ids; "
                                           "write more digits",
                                           text);
        }
        *ret = record;
        return 1;
}

static int find_work(struct db *db, void *data, cubby_error *err)
{
        struct query *query = data;
        int found = find_by(db, "SELECT " BOX_COLUMNS " FROM boxes WHERE id = ?1", query->box,
                query->record, err);
        if (found == 0)
                found = find_by(db, "SELECT " BOX_COLUMNS " FROM boxes WHERE name = ?1", query->box,
                        query->record, err);
        if (found == 0 && hex_prefix_valid(query->box, 32))
                found = find_by(db,
                        "SELECT " BOX_COLUMNS " FROM boxes WHERE id GLOB ?1 || '*' LIMIT 2",
                        query->box, query->record, err);
        if (found == 0)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "there is no box '%s'", query->box);
        return found < 0 ? -1 : 0;
}

int box_record_find(struct home *home, const char *box, struct box_record *ret, cubby_error *err)
{
        struct box_record record = {0};
        struct query query = {.box = box, .record = &record};
        if (db_run(home, false, find_work, &query, err) < 0)
                return -1;
        *ret = record;
        return 0;
}

struct record_list {
        const char *name; /* what is asked for; NULL: all */
        struct box_record *records;
        size_t count;
};

static int read_item(sqlite3_stmt *row, void *item, cubby_error *err)
{
        return read_row(row, item, err);
}

static void free_items(void *items, size_t count)
{
        box_record_list_free(items, count);
}

static const struct db_rows box_rows = {.item_size = sizeof(struct box_record),
        .what = "boxes",
        .read = read_item,
        .free = free_items};

/* The names from NAME- on end before NAME. because '.' follows '-'. */
static int list_work(struct db *db, void *data, cubby_error *err)
{
        struct record_list list = {.name = ((struct record_list *)data)->name};
        AUTO_STATEMENT sqlite3_stmt *rows = NULL;
        const char *sql = list.name == NULL
                ? "SELECT " BOX_COLUMNS " FROM boxes ORDER BY created_ns DESC, id"
                : "SELECT " BOX_COLUMNS " FROM boxes WHERE name = ?1"
                  " OR (name >= ?1 || '-' AND name < ?1 || '.') ORDER BY created_ns DESC, id";
        int more = db_prepare(db, sql, &rows, err);
        if (more == 0 && list.name != NULL)
                more = db_bind_text(db, rows, 1, list.name, err);
        void *items = NULL;
        if (more < 0 || db_list(db, rows, &box_rows, &items, &list.count, err) < 0)
                return -1;
        list.records = items;
        *(struct record_list *)data = list;
        return 0;
}

int box_record_list_named(struct home *home, const char *name, struct box_record **ret,
        size_t *ret_count, cubby_error *err)
{
        struct record_list list = {.name = name};
        if (db_run(home, false, list_work, &list, err) < 0)
                return cubby_error_wrap(err, "listing boxes");
        *ret = list.records;
        *ret_count = list.count;
        return 0;
}

int box_record_list(struct home *home, struct box_record **ret, size_t *ret_count, cubby_error *err)
{
        return box_record_list_named(home, NULL, ret, ret_count, err);
}

int boxes_verify(struct db *db, cubby_error *err)
{
        struct record_list list = {0};
        if (list_work(db, &list, err) < 0)
                return -1;
        box_record_list_free(list.records, list.count);
        return 0;
}

static int rename_work(struct db *db, void *data, cubby_error *err)
{
        struct query *query = data;
        struct box_record other = {0};
        int found = find_by(
                db, "SELECT " BOX_COLUMNS " FROM boxes WHERE name = ?1", query->name, &other, err);
        bool same = found == 1 && strcmp(other.id, query->box) == 0;
        box_record_clear(&other);
        if (found < 0)
                return -1;
        if (found == 1 && !same)
                return cubby_error_set(
                        err, CUBBY_E_EXISTS, "there is already a box named '%s'", query->name);
        if (db_execute(db, "UPDATE boxes SET name = ?1 WHERE id = ?2", query->name, query->box,
                    err) < 0)
                return -1;
        if (sqlite3_changes(db->sql) == 0)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "there is no box '%s'", query->box);
        return 0;
}

int box_record_rename(struct home *home, const char *id, const char *name, cubby_error *err)
{
        if (!box_name_valid(name))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is no name for a box: letters, digits, '_', '.' and '-', "
                        "at most %d, the first a letter or digit",
                        name, NAME_MAX_LENGTH);
        struct query query = {.box = id, .name = name};
        return db_run(home, true, rename_work, &query, err);
}

static int remove_work(struct db *db, void *data, cubby_error *err)
{
        const struct query *query = data;
        return db_execute(db, "DELETE FROM boxes WHERE id = ?1", query->box, NULL, err);
}

int box_record_remove(struct home *home, const char *id, cubby_error *err)
{
        struct query query = {.box = id};
        return db_run(home, true, remove_work, &query, err);
}

struct count {
        const char *image_id;
        int64_t count;
};

static int count_work(struct db *db, void *data, cubby_error *err)
{
        struct count *count = data;
        return query_number(db, "SELECT count(*) FROM boxes WHERE image_id = ?1", count->image_id,
                &count->count, err);
}

int box_record_count_by_image(
        struct home *home, const char *image_id, size_t *ret, cubby_error *err)
{
        struct count count = {.image_id = image_id};
        if (db_run(home, false, count_work, &count, err) < 0)
                return -1;
        *ret = (size_t)count.count;
        return 0;
}
