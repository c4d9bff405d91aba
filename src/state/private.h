/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_PRIVATE_H
#define STATE_PRIVATE_H

/* What the files of src/state share; nobody else includes it. */

#include "base/buffer.h"
#include "base/cleanup.h"
#include "state/home.h"
#include "state/records.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/types.h>

#define SCHEMA_VERSION 2
#define DB_NAME "cubby.db"
#define IMAGE_NAME_MAX 512
#define MANIFEST_MAX (4U << 20)
#define CONFIG_MAX (1U << 20)
#define IMAGE_FILE_MAX (16U << 20) /* JSON strings escape: twice both and some */
#define RECORDS_MAX 100000U        /* of one kind in a home */
#define SLOT_MAX 60000U

/*
 * A connection that is kept from one transaction to the next: opening one costs
 * more than most transactions. It belongs to the process that made it, and to
 * the file it was made for.
 */
struct kept_connection {
        pthread_mutex_t mutex; /* whoever finds it taken opens one of his own */
        sqlite3 *sql;
        pid_t pid;
        struct stat file; /* as it was when the connection was put away */
};

struct home {
        char *path;
        int folders[HOME_FOLDER_COUNT];
        struct log log;
        struct kept_connection kept;
};

struct db {
        struct home *home;
        sqlite3 *sql;
};

static inline void cleanup_statement(sqlite3_stmt **statement)
{
        (void)sqlite3_finalize(*statement);
}
#define AUTO_STATEMENT __attribute__((cleanup(cleanup_statement)))

/*
 * Runs `work` in one transaction. After a fork of the embedding program the child
 * leaves its parent's connection alone and opens another. A database
 * that is missing or corrupt is rebuilt first and `work` runs again, so it must
 * leave `data` alone when it fails.
 */
typedef int (*db_work)(struct db *db, void *data, cubby_error *err);
int db_run(struct home *home, bool write, db_work work, void *data, cubby_error *err);
/* A writing one that is not synced: a crash of the host may lose it, not tear it. */
int db_run_quickly(struct home *home, db_work work, void *data, cubby_error *err);
void db_forget(struct home *home); /* closes the kept connection */

/* The error of the last SQLite call; corruption becomes CUBBY_E_CORRUPT. */
int db_error(struct db *db, const char *doing, cubby_error *err);
int db_prepare(struct db *db, const char *sql, sqlite3_stmt **ret, cubby_error *err);
int db_bind_text(
        struct db *db, sqlite3_stmt *statement, int index, const char *text, cubby_error *err);
int db_bind_number(
        struct db *db, sqlite3_stmt *statement, int index, int64_t value, cubby_error *err);
/* 1 with a row, 0 at the end, -1 on failure. */
int db_step(struct db *db, sqlite3_stmt *statement, cubby_error *err);
/* Rows as an array of records. */
struct db_rows {
        size_t item_size;
        const char *what; /* for a message: "boxes" */
        int (*read)(sqlite3_stmt *row, void *item, cubby_error *err);
        void (*free)(void *items, size_t count);
};
/* All rows of a statement that is bound; at most RECORDS_MAX. */
int db_list(struct db *db, sqlite3_stmt *rows, const struct db_rows *kind, void **ret,
        size_t *ret_count, cubby_error *err);
/* A statement with up to two texts and without rows. */
int db_execute(
        struct db *db, const char *sql, const char *first, const char *second, cubby_error *err);
/* A copy of a text column; *ret is NULL when it holds no text, as in a damaged row. */
int db_text(sqlite3_stmt *statement, int column, char **ret, cubby_error *err);
int db_make_schema(struct db *db, cubby_error *err);

/* Every row of the kind passes its checks. */
int images_verify(struct db *db, cubby_error *err);
int boxes_verify(struct db *db, cubby_error *err);
int leases_verify(struct db *db, cubby_error *err);
int box_insert_row(struct db *db, const struct box_record *record, cubby_error *err);

/* quick_check and the rows. */
int db_verify(struct db *db, cubby_error *err);
/* A connection without a transaction; the caller holds the lock "db". */
int db_open(struct home *home, struct db *ret, cubby_error *err);
void db_close(struct db *db);

/* Sets a missing or corrupt database aside and makes it anew from the folders. */
int db_rebuild(struct home *home, cubby_error *err);

/* Whether the text is "sha256:" and 64 lower-case hex digits. */
bool image_id_valid(const char *id);
bool box_id_valid(const char *id);
bool box_name_valid(const char *name);
bool image_name_valid(const char *name);
/* 4 to `maximum` lower-case hex digits. */
bool hex_prefix_valid(const char *text, size_t maximum);

/* A record with all its names: images/HEX.json. */
struct image_file {
        struct image_record record; /* its name is not used */
        char **names;
        size_t name_count;
};
void image_file_clear(struct image_file *file);
int image_file_write(struct home *home, const struct image_file *file, cubby_error *err);
/* CUBBY_E_CORRUPT, CUBBY_E_VERSION. `hex` is the file's name without ".json". */
int image_file_read(struct home *home, const char *hex, struct image_file *ret, cubby_error *err);
int image_file_remove(struct home *home, const char *id, cubby_error *err);
/* Inserts the row and its names; a name that is taken by a newer image stays there. */
int image_file_index(struct db *db, const struct image_file *file, cubby_error *err);

#endif
