/* SPDX-License-Identifier: Apache-2.0 */
#include "state/private.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DB_BUSY_MS 10000
#define DB_LOCK_MS 15000
#define DB_CHECKPOINT_PAGES 64 /* a short log is quickly read by the next connection */

static const char schema[] =
        "CREATE TABLE images(id TEXT PRIMARY KEY, manifest TEXT NOT NULL, config TEXT NOT NULL,"
        " architecture TEXT NOT NULL, disk_bytes INTEGER NOT NULL, created_ns INTEGER NOT NULL)"
        " WITHOUT ROWID;"
        "CREATE TABLE names(name TEXT PRIMARY KEY, image_id TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE INDEX names_by_image ON names(image_id);"
        "CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
        " image_id TEXT NOT NULL, slot INTEGER NOT NULL UNIQUE, created_ns INTEGER NOT NULL)"
        " WITHOUT ROWID;"
        "CREATE INDEX boxes_by_image ON boxes(image_id);";

/* Since schema 2. Not in any folder: a rebuilt database begins without them, and
 * the names and labels of boxes say what belongs to a pool. */
static const char lease_schema[] =
        "CREATE TABLE leases(id TEXT PRIMARY KEY, pool TEXT NOT NULL, token TEXT NOT NULL,"
        " box_id TEXT NOT NULL, keyed INTEGER NOT NULL, user BLOB NOT NULL, thread BLOB NOT NULL,"
        " state INTEGER NOT NULL, owner_pid INTEGER NOT NULL, owner_start INTEGER NOT NULL,"
        " owner_namespace INTEGER NOT NULL, owner_boot TEXT NOT NULL,"
        " owner_instance TEXT NOT NULL, expires_ms INTEGER NOT NULL, parked_ms INTEGER NOT NULL,"
        " generation INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE INDEX leases_by_token ON leases(pool, token);"
        "CREATE INDEX leases_by_box ON leases(box_id);"
        "CREATE TABLE tallies(pool TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,"
        " PRIMARY KEY(pool, name)) WITHOUT ROWID;"
        "PRAGMA user_version = 2;";

int db_error(struct db *db, const char *doing, cubby_error *err)
{
        int code = db->sql == NULL ? SQLITE_NOMEM : sqlite3_errcode(db->sql) & 0xff;
        const char *text = db->sql == NULL ? "out of memory" : sqlite3_errmsg(db->sql);
        int kind = CUBBY_E_SYSTEM;
        switch (code) {
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
        case SQLITE_ERROR: /* our statements are constant: the schema is not ours */
        case SQLITE_MISMATCH:
                kind = CUBBY_E_CORRUPT;
                break;
        case SQLITE_CONSTRAINT:
                kind = CUBBY_E_EXISTS;
                break;
        case SQLITE_NOMEM:
                kind = CUBBY_E_NO_MEMORY;
                break;
        case SQLITE_FULL:
                kind = CUBBY_E_NO_SPACE;
                break;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                kind = CUBBY_E_TIMEOUT;
                break;
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
                kind = CUBBY_E_PERMISSION;
                break;
        default:
                break;
        }
        return cubby_error_set(err, kind, "%s in the database: %s", doing, text);
}

int db_prepare(struct db *db, const char *sql, sqlite3_stmt **ret, cubby_error *err)
{
        if (sqlite3_prepare_v2(db->sql, sql, -1, ret, NULL) != SQLITE_OK)
                return db_error(db, "preparing a query", err);
        return 0;
}

int db_bind_text(
        struct db *db, sqlite3_stmt *statement, int index, const char *text, cubby_error *err)
{
        if (sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT) != SQLITE_OK)
                return db_error(db, "binding a value", err);
        return 0;
}

int db_bind_number(
        struct db *db, sqlite3_stmt *statement, int index, int64_t value, cubby_error *err)
{
        if (sqlite3_bind_int64(statement, index, value) != SQLITE_OK)
                return db_error(db, "binding a value", err);
        return 0;
}

int db_step(struct db *db, sqlite3_stmt *statement, cubby_error *err)
{
        switch (sqlite3_step(statement)) {
        case SQLITE_ROW:
                return 1;
        case SQLITE_DONE:
                return 0;
        default:
                return db_error(db, "running a query", err);
        }
}

int db_list(struct db *db, sqlite3_stmt *rows, const struct db_rows *kind, void **ret,
        size_t *ret_count, cubby_error *err)
{
        char *items = NULL;
        size_t count = 0;
        int more = 0;
        while (more == 0 && (more = db_step(db, rows, err)) == 1) {
                char *grown = count >= RECORDS_MAX
                        ? NULL
                        : reallocarray(items, count + 1, kind->item_size);
                if (grown == NULL) {
                        more = count >= RECORDS_MAX
                                ? cubby_error_set(err, CUBBY_E_LIMIT,
                                          "the home has more than %u %s", RECORDS_MAX, kind->what)
                                : cubby_error_no_memory(err);
                        break;
                }
                items = grown;
                more = kind->read(rows, items + count * kind->item_size, err);
                count += more == 0;
        }
        if (more < 0) {
                kind->free(items, count);
                return -1;
        }
        *ret = items;
        *ret_count = count;
        return 0;
}

int db_execute(
        struct db *db, const char *sql, const char *first, const char *second, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *statement = NULL;
        if (db_prepare(db, sql, &statement, err) < 0)
                return -1;
        if (first != NULL && db_bind_text(db, statement, 1, first, err) < 0)
                return -1;
        if (second != NULL && db_bind_text(db, statement, 2, second, err) < 0)
                return -1;
        return db_step(db, statement, err) < 0 ? -1 : 0;
}

int db_text(sqlite3_stmt *statement, int column, char **ret, cubby_error *err)
{
        if (sqlite3_column_type(statement, column) != SQLITE_TEXT) {
                *ret = NULL;
                return 0;
        }
        const unsigned char *text = sqlite3_column_text(statement, column);
        char *copied = text == NULL ? NULL : strdup((const char *)text);
        if (copied == NULL) /* must not look like damage, which would be mended */
                return cubby_error_no_memory(err);
        *ret = copied;
        return 0;
}

int db_make_schema(struct db *db, cubby_error *err)
{
        if (sqlite3_exec(db->sql, schema, NULL, NULL, NULL) != SQLITE_OK ||
                sqlite3_exec(db->sql, lease_schema, NULL, NULL, NULL) != SQLITE_OK)
                return db_error(db, "making the tables", err);
        return 0;
}

static int read_version(struct db *db, int *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *statement = NULL;
        if (db_prepare(db, "PRAGMA user_version", &statement, err) < 0)
                return -1;
        if (db_step(db, statement, err) != 1)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the database has no version");
        *ret = sqlite3_column_int(statement, 0);
        return 0;
}

/* From schema 1 to 2, unless another process was faster. */
static int migrate(struct db *db, int *version, cubby_error *err)
{
        if (sqlite3_exec(db->sql, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
                return db_error(db, "beginning a migration", err);
        int result = read_version(db, version, err);
        if (result == 0 && *version == 1) {
                if (sqlite3_exec(db->sql, lease_schema, NULL, NULL, NULL) != SQLITE_OK)
                        result = db_error(db, "migrating", err);
                else
                        *version = SCHEMA_VERSION;
        }
        const char *end = result == 0 ? "COMMIT" : "ROLLBACK";
        if (sqlite3_exec(db->sql, end, NULL, NULL, NULL) != SQLITE_OK && result == 0)
                result = db_error(db, "ending a migration", err);
        return result;
}

static int check_version(struct db *db, cubby_error *err)
{
        int version = 0;
        if (read_version(db, &version, err) < 0 || (version == 1 && migrate(db, &version, err) < 0))
                return -1;
        if (version > SCHEMA_VERSION)
                return cubby_error_set(err, CUBBY_E_VERSION,
                        "the home was written by a newer Cubby (schema %d, this one knows %d); "
                        "use that version or another home",
                        version, SCHEMA_VERSION);
        if (version != SCHEMA_VERSION)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the database has no known version (%d)", version);
        return 0;
}

void db_close(struct db *db)
{
        (void)sqlite3_close_v2(db->sql);
        db->sql = NULL;
}

int db_open(struct home *home, struct db *ret, cubby_error *err)
{
        struct stat info;
        if (fstatat(home->folders[HOME_ROOT], DB_NAME, &info, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno == ENOENT)
                        return cubby_error_set(err, CUBBY_E_CORRUPT, "there is no database");
                return cubby_error_errno(err, errno, "opening the database");
        }
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the database is no regular file");
        AUTO_FREE char *path = NULL;
        if (asprintf(&path, "%s/" DB_NAME, home->path) < 0)
                return cubby_error_no_memory(err);
        struct db db = {.home = home};
        int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
        if (sqlite3_open_v2(path, &db.sql, flags, NULL) != SQLITE_OK) {
                (void)db_error(&db, "opening it", err);
                db_close(&db);
                return -1;
        }
        int keep_log = 1;
        (void)sqlite3_busy_timeout(db.sql, DB_BUSY_MS);
        (void)sqlite3_db_config(db.sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        (void)sqlite3_db_config(db.sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        (void)sqlite3_db_config(db.sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        (void)sqlite3_file_control(db.sql, "main", SQLITE_FCNTL_PERSIST_WAL, &keep_log);
        (void)sqlite3_limit(db.sql, SQLITE_LIMIT_LENGTH, (int)IMAGE_FILE_MAX);
        (void)sqlite3_wal_autocheckpoint(db.sql, 0); /* run_once does it */
        if (sqlite3_exec(db.sql, "PRAGMA synchronous = FULL", NULL, NULL, NULL) != SQLITE_OK) {
                (void)db_error(&db, "opening it", err);
                db_close(&db);
                return -1;
        }
        if (check_version(&db, err) < 0) {
                db_close(&db);
                return -1;
        }
        *ret = db;
        return 0;
}

int db_verify(struct db *db, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *statement = NULL;
        if (db_prepare(db, "PRAGMA quick_check(1)", &statement, err) < 0)
                return -1;
        int row = db_step(db, statement, err);
        if (row < 0)
                return -1;
        const unsigned char *text = row == 1 ? sqlite3_column_text(statement, 0) : NULL;
        if (text == NULL || strcmp((const char *)text, "ok") != 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the database failed its check: %s",
                        text == NULL ? "no answer" : (const char *)text);
        return images_verify(db, err) < 0 || boxes_verify(db, err) < 0 || leases_verify(db, err) < 0
                ? -1
                : 0;
}

static int note_pages(void *data, sqlite3 *sql, const char *name, int pages)
{
        *(int *)data = pages;
        return SQLITE_OK;
}

/*
 * Empties a long log. SQLite's own checkpoint would copy the log but never begin
 * it anew, because no connection lives until the next write.
 */
static void checkpoint(struct db *db, int pages)
{
        if (pages < DB_CHECKPOINT_PAGES)
                return;
        (void)sqlite3_busy_timeout(db->sql, 0); /* in use: the next writer tries again */
        (void)sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        (void)sqlite3_busy_timeout(db->sql, DB_BUSY_MS);
}

/* Written to by another's checkpoint, or by somebody who should not: looked at anew. */
static bool same_file(const struct home *home)
{
        const struct stat *was = &home->kept.file;
        struct stat info;
        return fstatat(home->folders[HOME_ROOT], DB_NAME, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                info.st_dev == was->st_dev && info.st_ino == was->st_ino &&
                info.st_size == was->st_size && info.st_mtim.tv_sec == was->st_mtim.tv_sec &&
                info.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

/* The kept connection if it can be used, else a new one. */
static int take_connection(struct home *home, struct db *ret, cubby_error *err)
{
        struct kept_connection *kept = &home->kept;
        if (kept->sql != NULL && kept->pid != getpid())
                kept->sql = NULL; /* the parent's: closing it here would touch its files */
        if (kept->sql != NULL && !same_file(home)) {
                (void)sqlite3_close_v2(kept->sql);
                kept->sql = NULL;
        }
        if (kept->sql == NULL)
                return db_open(home, ret, err);
        struct db db = {.home = home, .sql = kept->sql};
        kept->sql = NULL;
        if (check_version(&db, err) < 0) {
                db_close(&db);
                return -1;
        }
        *ret = db;
        return 0;
}

static void keep_connection(struct home *home, struct db *db)
{
        if (fstatat(home->folders[HOME_ROOT], DB_NAME, &home->kept.file, AT_SYMLINK_NOFOLLOW) < 0) {
                db_close(db);
                return;
        }
        home->kept.sql = db->sql;
        home->kept.pid = getpid();
}

void db_forget(struct home *home)
{
        if (home->kept.sql != NULL && home->kept.pid == getpid())
                (void)sqlite3_close_v2(home->kept.sql);
        home->kept.sql = NULL;
}

enum run_mode { RUN_READ, RUN_WRITE, RUN_WRITE_QUICKLY };

static int transact(struct db *db, enum run_mode mode, db_work work, void *data, cubby_error *err)
{
        int result = 0;
        int pages = 0;
        if (mode == RUN_WRITE_QUICKLY)
                (void)sqlite3_exec(db->sql, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
        (void)sqlite3_wal_hook(db->sql, note_pages, &pages);
        if (sqlite3_exec(db->sql, mode == RUN_READ ? "BEGIN" : "BEGIN IMMEDIATE", NULL, NULL,
                    NULL) != SQLITE_OK)
                result = db_error(db, "beginning a transaction", err);
        if (result == 0)
                result = work(db, data, err);
        if (result == 0 && sqlite3_exec(db->sql, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
                result = db_error(db, "committing", err);
        if (result == 0)
                checkpoint(db, pages);
        if (sqlite3_get_autocommit(db->sql) == 0)
                (void)sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
        (void)sqlite3_wal_hook(db->sql, NULL, NULL);
        if (mode == RUN_WRITE_QUICKLY)
                (void)sqlite3_exec(db->sql, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
        return result;
}

static int run_once(
        struct home *home, enum run_mode mode, db_work work, void *data, cubby_error *err)
{
        /* Held as long as the transaction: nobody swaps the database beneath it. */
        AUTO_LOCK int lock = -1;
        if (home_lock(home, "db", false, deadline_after_ms(DB_LOCK_MS), &lock, err) < 0)
                return -1;
        struct db db = {0};
        bool ours = pthread_mutex_trylock(&home->kept.mutex) == 0;
        int result = ours ? take_connection(home, &db, err) : db_open(home, &db, err);
        if (result == 0)
                result = transact(&db, mode, work, data, err);
        if (result == 0 && ours)
                keep_connection(home, &db);
        else
                db_close(&db);
        if (ours)
                (void)pthread_mutex_unlock(&home->kept.mutex);
        return result;
}

static int run(struct home *home, enum run_mode mode, db_work work, void *data, cubby_error *err)
{
        cubby_error problem = {0};
        if (run_once(home, mode, work, data, &problem) == 0)
                return 0;
        if (problem.code == CUBBY_E_CORRUPT) {
                if (db_rebuild(home, err) < 0)
                        return -1;
                cubby_error_clear(&problem);
                if (run_once(home, mode, work, data, &problem) == 0)
                        return 0;
        }
        if (err != NULL)
                *err = problem;
        return -1;
}

int db_run(struct home *home, bool write, db_work work, void *data, cubby_error *err)
{
        return run(home, write ? RUN_WRITE : RUN_READ, work, data, err);
}

int db_run_quickly(struct home *home, db_work work, void *data, cubby_error *err)
{
        return run(home, RUN_WRITE_QUICKLY, work, data, err);
}
