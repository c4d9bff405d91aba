/* SPDX-License-Identifier: Apache-2.0 */
#include "state/lease_store.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORE_LOCK_MS 5000
#define STORE_BUSY_MS 5000
#define STORE_CHECKPOINT_PAGES 256

DEFINE_AUTO(lease_store, lease_store_close)

int lease_store_open(struct home *home, const struct lease_owner *self, struct lease_store **ret,
        cubby_error *err)
{
        AUTO(lease_store) struct lease_store *store = calloc(1, sizeof *store);
        if (store == NULL)
                return cubby_error_no_memory(err);
        store->home = home;
        store->self = *self;
        store->pid = getpid();
        (void)pthread_mutex_init(&store->lock, NULL);
        *ret = take_ptr(&store);
        return 0;
}

static void disconnect(struct lease_store *store)
{
        if (store->db.sql != NULL)
                db_close(&store->db);
        store->db.sql = NULL;
}

void lease_store_close(struct lease_store *store)
{
        if (store == NULL)
                return;
        /* the parent's connection: closing it here would touch its files */
        if (store->pid == getpid())
                disconnect(store);
        (void)pthread_mutex_destroy(&store->lock);
        free(store);
}

const struct lease_owner *lease_store_self(const struct lease_store *store)
{
        return &store->self;
}

static int note_pages(void *data, sqlite3 *sql, const char *name, int pages)
{
        ((struct lease_store *)data)->pages = pages;
        return SQLITE_OK;
}

/* A database that was set aside and made anew has another inode. */
static bool same_file(const struct lease_store *store)
{
        struct stat info;
        return fstatat(home_folder(store->home, HOME_ROOT), DB_NAME, &info, AT_SYMLINK_NOFOLLOW) ==
                0 &&
                info.st_dev == store->device && info.st_ino == store->inode;
}

static int connect_store(struct lease_store *store, cubby_error *err)
{
        struct stat info;
        if (store->db.sql != NULL && same_file(store))
                return 0;
        disconnect(store);
        if (db_open(store->home, &store->db, err) < 0)
                return -1;
        if (fstatat(home_folder(store->home, HOME_ROOT), DB_NAME, &info, AT_SYMLINK_NOFOLLOW) < 0) {
                disconnect(store);
                return cubby_error_errno(err, errno, "looking at the database");
        }
        store->device = info.st_dev;
        store->inode = info.st_ino;
        (void)sqlite3_wal_hook(store->db.sql, note_pages, store);
        (void)sqlite3_busy_timeout(store->db.sql, STORE_BUSY_MS);
        /* a crash of the host ends every box: a lease need not survive it, only be whole */
        if (sqlite3_exec(store->db.sql, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL) !=
                SQLITE_OK)
                return db_error(&store->db, "opening it", err);
        return 0;
}

static void shorten_log(struct lease_store *store)
{
        if (store->pages < STORE_CHECKPOINT_PAGES)
                return;
        store->pages = 0;
        (void)sqlite3_busy_timeout(store->db.sql, 0); /* in use: another time */
        (void)sqlite3_wal_checkpoint_v2(
                store->db.sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        (void)sqlite3_busy_timeout(store->db.sql, STORE_BUSY_MS);
}

static int run_once(
        struct lease_store *store, bool write, lease_work work, void *data, cubby_error *err)
{
        AUTO_LOCK int lock = -1;
        if (home_lock(store->home, "db", false, deadline_after_ms(STORE_LOCK_MS), &lock, err) < 0 ||
                connect_store(store, err) < 0)
                return -1;
        int result = 0;
        if (sqlite3_exec(store->db.sql, write ? "BEGIN IMMEDIATE" : "BEGIN", NULL, NULL, NULL) !=
                SQLITE_OK)
                return db_error(&store->db, "beginning a transaction", err);
        result = work(store, data, err);
        if (result == 0 && sqlite3_exec(store->db.sql, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
                result = db_error(&store->db, "committing", err);
        if (sqlite3_get_autocommit(store->db.sql) == 0)
                (void)sqlite3_exec(store->db.sql, "ROLLBACK", NULL, NULL, NULL);
        if (result == 0 && write)
                shorten_log(store);
        return result;
}

static int run_locked(
        struct lease_store *store, bool write, lease_work work, void *data, cubby_error *err)
{
        cubby_error problem = {0};
        if (run_once(store, write, work, data, &problem) == 0)
                return 0;
        if (problem.code == CUBBY_E_CORRUPT) {
                disconnect(store);
                if (db_rebuild(store->home, err) < 0)
                        return -1;
                cubby_error_clear(&problem);
                if (run_once(store, write, work, data, &problem) == 0)
                        return 0;
        }
        if (err != NULL)
                *err = problem;
        return -1;
}

int lease_run(struct lease_store *store, bool write, lease_work work, void *data, cubby_error *err)
{
        if (store->pid != getpid())
                return cubby_error_set(err, CUBBY_E_STATE,
                        "the pool belongs to the process that opened it, not to a child of it");
        (void)pthread_mutex_lock(&store->lock);
        int result = run_locked(store, write, work, data, err);
        (void)pthread_mutex_unlock(&store->lock);
        if (result < 0)
                return cubby_error_wrap(err, "asking the store of leases");
        return 0;
}
