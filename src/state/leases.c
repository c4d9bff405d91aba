/* SPDX-License-Identifier: Apache-2.0 */
#include "state/lease_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define COLUMNS                                                                        \
        "id, pool, token, box_id, keyed, user, thread, state, owner_pid, owner_start," \
        " owner_namespace, owner_boot, owner_instance, expires_ms, parked_ms, generation"

void lease_clear(struct lease *lease)
{
        if (lease == NULL)
                return;
        free(lease->user);
        free(lease->thread);
        *lease = (struct lease){0};
}

void lease_list_free(struct lease *leases, size_t count)
{
        for (size_t i = 0; leases != NULL && i < count; i++)
                lease_clear(&leases[i]);
        free(leases);
}

/* A short text column into a field; false when it does not fit. */
static bool read_text(sqlite3_stmt *row, int column, char *ret, size_t size)
{
        if (sqlite3_column_type(row, column) != SQLITE_TEXT)
                return false;
        const unsigned char *text = sqlite3_column_text(row, column);
        int bytes = sqlite3_column_bytes(row, column);
        if (text == NULL || bytes < 0 || (size_t)bytes >= size)
                return false;
        memcpy(ret, text, (size_t)bytes);
        ret[bytes] = '\0';
        return strlen(ret) == (size_t)bytes;
}

static bool read_bytes(sqlite3_stmt *row, int column, uint8_t **ret, size_t *ret_size)
{
        int bytes = sqlite3_column_bytes(row, column);
        const void *data = sqlite3_column_blob(row, column);
        if (bytes < 0 || (size_t)bytes > LEASE_KEY_MAX)
                return false;
        uint8_t *copy = malloc((size_t)bytes + 1);
        if (copy == NULL)
                return false;
        if (bytes > 0)
                memcpy(copy, data, (size_t)bytes);
        copy[bytes] = 0;
        *ret = copy;
        *ret_size = (size_t)bytes;
        return true;
}

static bool hex_valid(const char *text, size_t length)
{
        return strspn(text, "0123456789abcdef") == length && text[length] == '\0';
}

static bool lease_valid(const struct lease *lease)
{
        size_t token = strlen(lease->token);
        return hex_valid(lease->id, 32) && (token == 8 || token == 16) &&
                hex_valid(lease->token, token) &&
                (lease->box_id[0] == '\0' || hex_valid(lease->box_id, 32)) &&
                hex_valid(lease->owner.instance, 32) && lease->state >= LEASE_OWN &&
                lease->state <= LEASE_DEL && lease->owner.pid >= 0 && box_name_valid(lease->pool);
}

static int read_row(sqlite3_stmt *row, struct lease *ret, cubby_error *err)
{
        struct lease lease = {.keyed = sqlite3_column_int(row, 4) != 0,
                .state = (enum lease_state)sqlite3_column_int(row, 7),
                .owner.pid = sqlite3_column_int64(row, 8),
                .owner.start_ticks = sqlite3_column_int64(row, 9),
                .owner.pid_namespace = (uint64_t)sqlite3_column_int64(row, 10),
                .expires_ms = sqlite3_column_int64(row, 13),
                .parked_ms = sqlite3_column_int64(row, 14),
                .generation = (uint64_t)sqlite3_column_int64(row, 15)};
        bool good = read_text(row, 0, lease.id, sizeof lease.id) &&
                read_text(row, 1, lease.pool, sizeof lease.pool) &&
                read_text(row, 2, lease.token, sizeof lease.token) &&
                read_text(row, 3, lease.box_id, sizeof lease.box_id) &&
                read_bytes(row, 5, &lease.user, &lease.user_size) &&
                read_bytes(row, 6, &lease.thread, &lease.thread_size) &&
                read_text(row, 11, lease.owner.boot_id, sizeof lease.owner.boot_id) &&
                read_text(row, 12, lease.owner.instance, sizeof lease.owner.instance) &&
                lease_valid(&lease);
        if (!good) {
                lease_clear(&lease);
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a lease has a bad value");
        }
        *ret = lease;
        return 0;
}

/* 1 with *ret, 0 when there is none, -1. */
static int find_row(
        struct db *db, const char *sql, const char *text, struct lease *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, sql, &row, err) < 0 || db_bind_text(db, row, 1, text, err) < 0)
                return -1;
        int found = db_step(db, row, err);
        if (found != 1)
                return found;
        return read_row(row, ret, err) < 0 ? -1 : 1;
}

static int find_by_id(struct db *db, const char *id, struct lease *ret, cubby_error *err)
{
        return find_row(db, "SELECT " COLUMNS " FROM leases WHERE id = ?1", id, ret, err);
}

static int bind_blob(struct db *db, sqlite3_stmt *row, int index, const void *data, size_t size,
        cubby_error *err)
{
        static const char nothing[1];
        if (sqlite3_bind_blob(row, index, data == NULL ? nothing : data, (int)size,
                    SQLITE_TRANSIENT) != SQLITE_OK)
                return db_error(db, "binding a value", err);
        return 0;
}

static int insert_row(struct db *db, const struct lease *lease, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        const struct lease_owner *owner = &lease->owner;
        if (db_prepare(db,
                    "INSERT OR REPLACE INTO leases(" COLUMNS
                    ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
                    &row, err) < 0 ||
                db_bind_text(db, row, 1, lease->id, err) < 0 ||
                db_bind_text(db, row, 2, lease->pool, err) < 0 ||
                db_bind_text(db, row, 3, lease->token, err) < 0 ||
                db_bind_text(db, row, 4, lease->box_id, err) < 0 ||
                db_bind_number(db, row, 5, lease->keyed, err) < 0 ||
                bind_blob(db, row, 6, lease->user, lease->user_size, err) < 0 ||
                bind_blob(db, row, 7, lease->thread, lease->thread_size, err) < 0 ||
                db_bind_number(db, row, 8, lease->state, err) < 0 ||
                db_bind_number(db, row, 9, owner->pid, err) < 0 ||
                db_bind_number(db, row, 10, owner->start_ticks, err) < 0 ||
                db_bind_number(db, row, 11, (int64_t)owner->pid_namespace, err) < 0 ||
                db_bind_text(db, row, 12, owner->boot_id, err) < 0 ||
                db_bind_text(db, row, 13, owner->instance, err) < 0 ||
                db_bind_number(db, row, 14, lease->expires_ms, err) < 0 ||
                db_bind_number(db, row, 15, lease->parked_ms, err) < 0 ||
                db_bind_number(db, row, 16, (int64_t)lease->generation, err) < 0)
                return -1;
        return db_step(db, row, err) < 0 ? -1 : 0;
}

static int make_id(char ret[LEASE_ID_SIZE], cubby_error *err)
{
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "no random numbers for a lease");
        (void)snprintf(ret, LEASE_ID_SIZE, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
        return 0;
}

/* One request and its answer. */
struct request {
        const char *id;
        const char *text;
        const struct lease *lease;
        enum lease_state state;
        uint32_t max_boxes;
        int64_t now_ms, ttl_ms;
        int answer;
};

static int count_rows(struct db *db, int64_t *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db, "SELECT count(*) FROM leases", &row, err) < 0)
                return -1;
        if (db_step(db, row, err) != 1)
                return -1;
        *ret = sqlite3_column_int64(row, 0);
        return 0;
}

/* Its owner may have established its lease again since one looked. */
static int check_unleased(struct db *db, const char *box_id, cubby_error *err)
{
        struct lease present = {0};
        int found = box_id[0] == '\0'
                ? 0
                : find_row(db, "SELECT " COLUMNS " FROM leases WHERE box_id = ?1", box_id, &present,
                          err);
        lease_clear(&present);
        return found == 1 ? cubby_error_set(err, CUBBY_E_EXISTS, "the box has a lease already")
                          : found;
}

static int begin_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        int64_t count = 0;
        if (check_unleased(&store->db, request->lease->box_id, err) < 0)
                return -1;
        if (count_rows(&store->db, &count, err) < 0)
                return -1;
        if (request->max_boxes > 0 && count >= request->max_boxes)
                return cubby_error_set(err, CUBBY_E_CAPACITY,
                        "the home has %" PRId64 " boxes of pools, max_boxes is %u; "
                        "try again when one was released",
                        count, request->max_boxes);
        if (count >= RECORDS_MAX)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the home has more than %u leases", RECORDS_MAX);
        return insert_row(&store->db, request->lease, err);
}

int lease_begin(struct lease_store *store, struct lease *lease, uint32_t max_boxes, int64_t now_ms,
        cubby_error *err)
{
        struct lease made = *lease;
        if (make_id(made.id, err) < 0)
                return -1;
        made.owner = store->self;
        if (!lease_valid(&made) || made.user_size > LEASE_KEY_MAX ||
                made.thread_size > LEASE_KEY_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID, "the lease has a bad value");
        struct request request = {.lease = &made, .max_boxes = max_boxes, .now_ms = now_ms};
        if (lease_run(store, true, begin_work, &request, err) < 0)
                return -1;
        memcpy(lease->id, made.id, sizeof made.id);
        lease->owner = made.owner;
        return 0;
}

static int attach_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        struct db *db = &store->db;
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db,
                    "UPDATE leases SET box_id = ?1, expires_ms = ?2"
                    " WHERE id = ?3 AND owner_instance = ?4",
                    &row, err) < 0 ||
                db_bind_text(db, row, 1, request->text, err) < 0 ||
                db_bind_number(db, row, 2, request->now_ms + request->ttl_ms, err) < 0 ||
                db_bind_text(db, row, 3, request->id, err) < 0 ||
                db_bind_text(db, row, 4, store->self.instance, err) < 0 ||
                db_step(db, row, err) < 0)
                return -1;
        if (sqlite3_changes(db->sql) != 1)
                return cubby_error_set(err, CUBBY_E_NOT_FOUND, "the lease is gone");
        return 0;
}

int lease_attach(struct lease_store *store, const char *id, const char *box_id, int64_t now_ms,
        int64_t ttl_ms, cubby_error *err)
{
        struct request request = {.id = id, .text = box_id, .now_ms = now_ms, .ttl_ms = ttl_ms};
        return lease_run(store, true, attach_work, &request, err);
}

static int remove_work(struct lease_store *store, void *data, cubby_error *err)
{
        const struct request *request = data;
        return db_execute(&store->db, "DELETE FROM leases WHERE id = ?1", request->id, NULL, err);
}

int lease_remove(struct lease_store *store, const char *id, cubby_error *err)
{
        struct request request = {.id = id};
        return lease_run(store, true, remove_work, &request, err);
}

/* Puts the present owner's name on a lease. */
static int own_row(struct lease_store *store, struct lease *lease, const struct request *request,
        cubby_error *err)
{
        lease->owner = store->self;
        lease->state = request->state;
        lease->expires_ms = request->now_ms + request->ttl_ms;
        return insert_row(&store->db, lease, err);
}

static int take_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        struct lease lease = {0};
        int found = find_by_id(&store->db, request->id, &lease, err);
        if (found < 0)
                return -1;
        int result = 0;
        int answer = found == 0 ? LEASE_GONE : LEASE_YES;
        if (found == 1 && lease.state == LEASE_DEL)
                answer = LEASE_REFUSED;
        if (answer == LEASE_YES) {
                struct lease taken = lease;
                if (request->lease != NULL && !lease.keyed) {
                        taken.keyed = true;
                        taken.user = request->lease->user;
                        taken.user_size = request->lease->user_size;
                        taken.thread = request->lease->thread;
                        taken.thread_size = request->lease->thread_size;
                }
                result = own_row(store, &taken, request, err);
        }
        lease_clear(&lease);
        request->answer = answer;
        return result;
}

int lease_take(struct lease_store *store, const char *id, const struct lease *key, int64_t now_ms,
        int64_t ttl_ms, enum lease_answer *ret, cubby_error *err)
{
        struct request request = {
                .id = id, .lease = key, .state = LEASE_OWN, .now_ms = now_ms, .ttl_ms = ttl_ms};
        if (lease_run(store, true, take_work, &request, err) < 0)
                return -1;
        *ret = (enum lease_answer)request.answer;
        return 0;
}

int lease_doom(struct lease_store *store, const char *id, int64_t now_ms, int64_t ttl_ms,
        enum lease_answer *ret, cubby_error *err)
{
        struct request request = {.id = id, .state = LEASE_DEL, .now_ms = now_ms, .ttl_ms = ttl_ms};
        if (lease_run(store, true, take_work, &request, err) < 0)
                return -1;
        *ret = (enum lease_answer)request.answer;
        return 0;
}

static int claim_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        struct lease lease = {0};
        int found = find_by_id(&store->db, request->id, &lease, err);
        if (found < 0)
                return -1;
        int result = 0;
        int answer = found == 0 ? LEASE_GONE : LEASE_YES;
        if (found == 1 && !lease_owner_same(&lease.owner, &store->self) &&
                !lease_lapsed(&lease, &store->self, request->now_ms))
                answer = LEASE_REFUSED;
        /* what another began to destroy is not handed out again */
        if (answer == LEASE_YES && lease.state == LEASE_DEL && request->state != LEASE_DEL)
                answer = LEASE_REFUSED;
        if (answer == LEASE_YES)
                result = own_row(store, &lease, request, err);
        lease_clear(&lease);
        request->answer = answer;
        return result;
}

int lease_claim(struct lease_store *store, const char *id, enum lease_state state, int64_t now_ms,
        int64_t ttl_ms, enum lease_answer *ret, cubby_error *err)
{
        struct request request = {.id = id, .state = state, .now_ms = now_ms, .ttl_ms = ttl_ms};
        if (lease_run(store, true, claim_work, &request, err) < 0)
                return -1;
        *ret = (enum lease_answer)request.answer;
        return 0;
}

/* A rebuilt database has lost its leases. One whose box is gone is not made again, nor
 * one whose box a peer found without a lease and gave another. */
static int box_is_free(struct db *db, const char *box_id, bool *ret, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(db,
                    "SELECT 1 FROM boxes WHERE id = ?1"
                    " AND NOT EXISTS (SELECT 1 FROM leases WHERE box_id = ?1)",
                    &row, err) < 0 ||
                db_bind_text(db, row, 1, box_id, err) < 0)
                return -1;
        int found = db_step(db, row, err);
        if (found < 0)
                return -1;
        *ret = found == 1;
        return 0;
}

static int renew_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        struct lease present = {0};
        bool is_free = false;
        int found = find_by_id(&store->db, request->lease->id, &present, err);
        if (found < 0)
                return -1;
        int answer = RENEWED;
        if (found == 0) {
                if (box_is_free(&store->db, request->lease->box_id, &is_free, err) < 0)
                        return -1;
                answer = is_free ? RENEWED_LAPSED : RENEWAL_LOST;
        } else if (!lease_owner_same(&present.owner, &store->self)) {
                answer = RENEWAL_LOST;
        } else if (present.expires_ms <= request->now_ms) {
                answer = RENEWED_LAPSED;
        }
        lease_clear(&present);
        int result = 0;
        if (answer != RENEWAL_LOST) {
                struct lease renewed = *request->lease;
                renewed.owner = store->self;
                renewed.expires_ms = request->now_ms + request->ttl_ms;
                result = insert_row(&store->db, &renewed, err);
        }
        request->answer = answer;
        return result;
}

int lease_renew(struct lease_store *store, const struct lease *lease, int64_t now_ms,
        int64_t ttl_ms, enum lease_renewal *ret, cubby_error *err)
{
        struct request request = {.lease = lease, .now_ms = now_ms, .ttl_ms = ttl_ms};
        if (lease_run(store, true, renew_work, &request, err) < 0)
                return -1;
        *ret = (enum lease_renewal)request.answer;
        return 0;
}

static int ours_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        AUTO_STATEMENT sqlite3_stmt *row = NULL;
        if (db_prepare(&store->db, "SELECT 1 FROM leases WHERE id = ?1 AND owner_instance = ?2",
                    &row, err) < 0 ||
                db_bind_text(&store->db, row, 1, request->id, err) < 0 ||
                db_bind_text(&store->db, row, 2, store->self.instance, err) < 0)
                return -1;
        int found = db_step(&store->db, row, err);
        if (found < 0)
                return -1;
        request->answer = found;
        return 0;
}

int lease_ours(struct lease_store *store, const char *id, bool *ret, cubby_error *err)
{
        struct request request = {.id = id};
        if (lease_run(store, false, ours_work, &request, err) < 0)
                return -1;
        *ret = request.answer == 1;
        return 0;
}

static int leave_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct request *request = data;
        struct lease lease = {0};
        int found = find_by_id(&store->db, request->id, &lease, err);
        if (found <= 0)
                return found;
        int result = 0;
        if (lease_owner_same(&lease.owner, &store->self)) {
                lease.owner.pid = 0;
                lease.owner.start_ticks = 0;
                if (make_id(lease.owner.instance, err) < 0)
                        result = -1;
                if (lease.state != LEASE_PARKED || request->state != LEASE_PARKED)
                        lease.parked_ms = request->now_ms;
                lease.state = request->state;
                lease.expires_ms = request->now_ms + request->ttl_ms;
                if (result == 0)
                        result = insert_row(&store->db, &lease, err);
        }
        lease_clear(&lease);
        return result;
}

int lease_leave(struct lease_store *store, const char *id, enum lease_state state, int64_t now_ms,
        int64_t ttl_ms, cubby_error *err)
{
        struct request request = {.id = id, .state = state, .now_ms = now_ms, .ttl_ms = ttl_ms};
        return lease_run(store, true, leave_work, &request, err);
}

struct listing {
        const char *pool, *token;
        struct lease *leases;
        size_t count;
};

static int read_item(sqlite3_stmt *row, void *item, cubby_error *err)
{
        return read_row(row, item, err);
}

static void free_items(void *items, size_t count)
{
        lease_list_free(items, count);
}

static const struct db_rows lease_rows = {
        .item_size = sizeof(struct lease), .what = "leases", .read = read_item, .free = free_items};

static int list_rows(struct db *db, struct listing *list, cubby_error *err)
{
        AUTO_STATEMENT sqlite3_stmt *rows = NULL;
        const char *sql = list->pool == NULL ? "SELECT " COLUMNS
                                               " FROM leases ORDER BY generation, id"
                : list->token == NULL
                ? "SELECT " COLUMNS " FROM leases WHERE pool = ?1 ORDER BY generation, id"
                : "SELECT " COLUMNS " FROM leases WHERE pool = ?1 AND token = ?2"
                  " ORDER BY generation, id";
        int more = db_prepare(db, sql, &rows, err);
        if (more == 0 && list->pool != NULL)
                more = db_bind_text(db, rows, 1, list->pool, err);
        if (more == 0 && list->pool != NULL && list->token != NULL)
                more = db_bind_text(db, rows, 2, list->token, err);
        void *items = NULL;
        if (more < 0 || db_list(db, rows, &lease_rows, &items, &list->count, err) < 0)
                return -1;
        list->leases = items;
        return 0;
}

static int list_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct listing list = *(struct listing *)data;
        if (list_rows(&store->db, &list, err) < 0)
                return -1;
        *(struct listing *)data = list;
        return 0;
}

int lease_list(struct lease_store *store, const char *pool, const char *token, struct lease **ret,
        size_t *ret_count, cubby_error *err)
{
        struct listing list = {.pool = pool, .token = token};
        if (lease_run(store, false, list_work, &list, err) < 0)
                return -1;
        *ret = list.leases;
        *ret_count = list.count;
        return 0;
}

int leases_verify(struct db *db, cubby_error *err)
{
        struct listing list = {0};
        if (list_rows(db, &list, err) < 0)
                return -1;
        lease_list_free(list.leases, list.count);
        return 0;
}

struct box_query {
        const char *box_id;
        struct lease lease;
        bool found;
};

static int box_work(struct lease_store *store, void *data, cubby_error *err)
{
        struct box_query *query = data;
        struct lease lease = {0};
        int found = find_row(&store->db, "SELECT " COLUMNS " FROM leases WHERE box_id = ?1",
                query->box_id, &lease, err);
        if (found < 0)
                return -1;
        query->found = found == 1;
        query->lease = lease;
        return 0;
}

int lease_of_box(struct lease_store *store, const char *box_id, struct lease *ret,
        enum lease_answer *ret_answer, cubby_error *err)
{
        struct box_query query = {.box_id = box_id};
        if (lease_run(store, false, box_work, &query, err) < 0)
                return -1;
        *ret_answer = query.found ? LEASE_YES : LEASE_GONE;
        if (query.found)
                *ret = query.lease;
        return 0;
}
