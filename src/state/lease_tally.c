/* SPDX-License-Identifier: Apache-2.0 */
#include "state/lease_store.h"

#include <string.h>

struct tallies {
        const char *pool;
        const struct lease_tally *deltas;
        struct lease_tally *ret;
        size_t count;
};

static int add_one(
        struct db *db, const char *pool, const struct lease_tally *delta, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db,
                    "INSERT INTO tallies(pool, name, value) VALUES(?1, ?2, ?3)"
                    " ON CONFLICT(pool, name) DO UPDATE SET value = value + excluded.value",
                    &row, err) < 0 ||
                db_bind_text(db, row, 1, pool, err) < 0 ||
                db_bind_text(db, row, 2, delta->name, err) < 0 ||
                db_bind_number(db, row, 3, (int64_t)delta->value, err) < 0)
                return -1;
        return db_step(db, row, err) < 0 ? -1 : 0;
}

static int add_work(struct lease_store *store, void *data, cubby_error *err)
{
        const struct tallies *tallies = data;
        for (size_t i = 0; i < tallies->count; i++)
                if (tallies->deltas[i].value > 0 &&
                        add_one(&store->db, tallies->pool, &tallies->deltas[i], err) < 0)
                        return -1;
        return 0;
}

int lease_tally_add(struct lease_store *store, const char *pool, const struct lease_tally *deltas,
        size_t count, cubby_error *err)
{
        struct tallies tallies = {.pool = pool, .deltas = deltas, .count = count};
        return lease_run(store, true, add_work, &tallies, err);
}

static int read_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct tallies *tallies = data;
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        struct lease_tally read[LEASE_TALLIES_MAX] = {0};
        size_t count = 0;
        int more = db_prepare(
                &store->db, "SELECT name, value FROM tallies WHERE pool = ?1", &row, err);
        if (more == 0)
                more = db_bind_text(&store->db, row, 1, tallies->pool, err);
        while (more == 0 && (more = db_step(&store->db, row, err)) == 1) {
                const unsigned char *name = sqlite3_column_text(row, 0);
                more = 0;
                if (name == NULL || count >= LEASE_TALLIES_MAX ||
                        strlen((const char *)name) >= sizeof read[0].name)
                        continue;
                (void)strncpy(read[count].name, (const char *)name, sizeof read[0].name - 1);
                int64_t value = sqlite3_column_int64(row, 1);
                read[count++].value = value < 0 ? 0 : (uint64_t)value;
        }
        if (more < 0)
                return -1;
        memcpy(tallies->ret, read, sizeof read);
        tallies->count = count;
        return 0;
}

int lease_tally_read(struct lease_store *store, const char *pool,
        struct lease_tally ret[LEASE_TALLIES_MAX], size_t *ret_count, cubby_error *err)
{
        struct tallies tallies = {.pool = pool, .ret = ret};
        if (lease_run(store, false, read_work, &tallies, err) < 0)
                return -1;
        *ret_count = tallies.count;
        return 0;
}
