/* SPDX-License-Identifier: Apache-2.0 */

/* The pools of a home seen from outside: by their leases. */
#include "pool/provider.h"

#include "base/clock.h"
#include "box/saved.h"
#include "state/leases.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LOOK_TTL_MS 60000 /* of a lease that is taken to end its box */
#define ID_LOCK_MS 2000   /* whoever makes a box of this id is not waited for longer */
#define LOCK_NAME_SIZE 80

DEFINE_AUTO(lease_store, lease_store_close)

static int open_store(cubby *host, struct lease_store **ret, cubby_error *err)
{
        struct lease_owner self;
        return lease_owner_self(&self, err) < 0 ? -1
                                                : lease_store_open(host->home, &self, ret, err);
}

static const char *state_word(const struct lease *lease)
{
        if (lease->state == LEASE_DEL)
                return "ending";
        if (lease->box_id[0] == '\0')
                return "reserved";
        return lease->state == LEASE_OWN ? "active" : "warm";
}

/* "this process ID", "left" by one that ended, "dead", or the pid. */
static json_t *owner_json(const struct lease *lease, const struct lease_owner *self, int64_t now)
{
        if (lease->owner.pid == 0)
                return json_string(now < lease->expires_ms ? "left" : "nobody");
        if (lease_lapsed(lease, self, now))
                return json_string("dead");
        return json_integer((json_int_t)lease->owner.pid);
}

/* Names of users may be any bytes; JSON has only text. */
static json_t *name_json(const uint8_t *bytes, size_t size)
{
        json_t *text = json_stringn((const char *)bytes, size);
        return text == NULL ? json_null() : text;
}

static json_t *box_json(const struct lease *lease, const struct lease_owner *self, int64_t now)
{
        int64_t made_s = clock_realtime_ns() / 1000000000 - (int64_t)(lease->generation / 1000000);
        json_t *box = json_pack("{s:s, s:s, s:s, s:o, s:I, s:I}", "id", lease->token, "box_id",
                lease->box_id, "state", state_word(lease), "owner", owner_json(lease, self, now),
                "generation", (json_int_t)lease->generation, "age_seconds",
                (json_int_t)(made_s < 0 ? 0 : made_s));
        if (box == NULL)
                return NULL;
        /* a time of another boot may be ahead */
        int64_t warm_ms = now > lease->parked_ms ? now - lease->parked_ms : 0;
        if (lease->state == LEASE_PARKED)
                (void)json_object_set_new(
                        box, "warm_seconds", json_integer((json_int_t)warm_ms / 1000));
        if (lease->keyed) {
                (void)json_object_set_new(box, "user", name_json(lease->user, lease->user_size));
                (void)json_object_set_new(
                        box, "thread", name_json(lease->thread, lease->thread_size));
        }
        return box;
}

static json_t *counters_json(struct lease_store *store, const char *pool)
{
        struct lease_tally tallies[LEASE_TALLIES_MAX];
        size_t count = 0;
        json_t *counters = json_object();
        for (int i = 0; i < COUNT_MAX; i++)
                (void)json_object_set_new(
                        counters, pool_counter_name((enum pool_counter)i), json_integer(0));
        if (lease_tally_read(store, pool, tallies, &count, NULL) < 0)
                return counters;
        for (size_t i = 0; i < count; i++)
                (void)json_object_set_new(
                        counters, tallies[i].name, json_integer((json_int_t)tallies[i].value));
        return counters;
}

static json_t *pool_json(struct lease_store *store, const char *pool, const struct lease *leases,
        size_t count, int64_t now)
{
        static const char *const words[] = {"active", "warm", "reserved", "ending"};
        json_int_t sums[4] = {0};
        json_t *boxes = json_array();
        for (size_t i = 0; i < count; i++) {
                if (strcmp(leases[i].pool, pool) != 0)
                        continue;
                for (size_t word = 0; word < 4; word++)
                        sums[word] += strcmp(words[word], state_word(&leases[i])) == 0;
                (void)json_array_append_new(
                        boxes, box_json(&leases[i], lease_store_self(store), now));
        }
        return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "pool", pool, "active", sums[0],
                "warm", sums[1], "reserved", sums[2], "ending", sums[3], "counters",
                counters_json(store, pool), "boxes", boxes);
}

static bool named_before(const struct lease *leases, size_t index)
{
        for (size_t i = 0; i < index; i++)
                if (strcmp(leases[i].pool, leases[index].pool) == 0)
                        return true;
        return false;
}

int pools_status(cubby *host, const char *pool, char **ret_json, cubby_error *err)
{
        AUTO(lease_store) struct lease_store *store = NULL;
        struct lease *leases = NULL;
        size_t count = 0;
        uint64_t spares = 0;
        if (open_store(host, &store, err) < 0 ||
                lease_list(store, pool, NULL, &leases, &count, err) < 0)
                return -1;
        int64_t now = clock_monotonic_ms();
        json_t *pools = json_array();
        for (size_t i = 0; i < count; i++)
                if (!named_before(leases, i))
                        (void)json_array_append_new(
                                pools, pool_json(store, leases[i].pool, leases, count, now));
        if (count == 0 && pool != NULL)
                (void)json_array_append_new(pools, pool_json(store, pool, leases, 0, now));
        lease_list_free(leases, count);
        cubby_template_list *templates = NULL;
        if (saved_list(host, &templates, NULL) == 0)
                for (size_t i = 0; i < templates->count; i++)
                        spares += templates->templates[i].spares;
        saved_list_free(templates);
        json_t *root = json_pack("{s:o, s:I}", "pools", pools, "spares", (json_int_t)spares);
        char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        if (text == NULL)
                return cubby_error_no_memory(err);
        *ret_json = text;
        return 0;
}

/* Only what no living process has: lapsed, or left. */
static bool is_free(const struct lease *lease, const struct lease_store *store)
{
        return lease->owner.pid == 0 ||
                lease_lapsed(lease, lease_store_self(store), clock_monotonic_ms());
}

/* While it is ours no acquire of this id takes a box. */
struct id_lock {
        struct home *home;
        char name[LOCK_NAME_SIZE];
        int fd;
};

static void id_unlock(struct id_lock *lock)
{
        home_unlock_briefly(lock->home, lock->name, &lock->fd);
}
#define AUTO_ID_LOCK __attribute__((cleanup(id_unlock)))

static int id_lock(
        cubby *host, const char *pool, const char *id, struct id_lock *lock, cubby_error *err)
{
        (void)snprintf(lock->name, sizeof lock->name, "pool-%.40s-%.16s", pool, id);
        if (home_lock_briefly(
                    host->home, lock->name, deadline_after_ms(ID_LOCK_MS), &lock->fd, err) < 0)
                return cubby_error_wrap(err, "another process acquires the same user and thread");
        return 0;
}

static int end_box(
        cubby *host, struct lease_store *store, const struct lease *lease, cubby_error *err)
{
        enum lease_answer answer = LEASE_YES;
        int64_t now = clock_monotonic_ms();
        AUTO(cubby_box) cubby_box *box = NULL;
        cubby_error problem = {0};
        if ((lease->state == LEASE_DEL
                            ? lease_claim(
                                      store, lease->id, LEASE_DEL, now, LOOK_TTL_MS, &answer, err)
                            : lease_doom(store, lease->id, now, LOOK_TTL_MS, &answer, err)) < 0)
                return -1;
        if (answer != LEASE_YES)
                return 0;
        if (lease->box_id[0] != '\0' &&
                (box_open(host, lease->box_id, &box, &problem) < 0 ||
                        box_remove(box, true, &problem) < 0) &&
                problem.code != CUBBY_E_NOT_FOUND)
                return cubby_error_set(err, problem.code, "%s", problem.message);
        return lease_remove(store, lease->id, err) < 0 ? -1 : 1;
}

/* Ends the box of one lease of a list, which may be old by now. 1, 0 when somebody has it, -1. */
static int drain_one(
        cubby *host, struct lease_store *store, const struct lease *listed, cubby_error *err)
{
        AUTO_ID_LOCK struct id_lock lock = {.home = host->home, .fd = -1};
        cubby_error problem = {0};
        struct lease *leases = NULL;
        size_t count = 0;
        if (id_lock(host, listed->pool, listed->token, &lock, &problem) < 0)
                return problem.code == CUBBY_E_TIMEOUT
                        ? 0
                        : cubby_error_set(err, problem.code, "%s", problem.message);
        if (lease_list(store, listed->pool, listed->token, &leases, &count, err) < 0)
                return -1;
        int result = 0;
        for (size_t i = 0; i < count; i++)
                if (strcmp(leases[i].id, listed->id) == 0 && is_free(&leases[i], store))
                        result = end_box(host, store, &leases[i], err);
        lease_list_free(leases, count);
        return result;
}

int pools_drain(
        cubby *host, const char *pool, uint32_t *ret_ended, uint32_t *ret_left, cubby_error *err)
{
        AUTO(lease_store) struct lease_store *store = NULL;
        struct lease *leases = NULL;
        size_t count = 0;
        uint32_t ended = 0;
        uint32_t left = 0;
        if (open_store(host, &store, err) < 0 ||
                lease_list(store, pool, NULL, &leases, &count, err) < 0)
                return -1;
        int result = 0;
        for (size_t i = 0; i < count && result >= 0; i++) {
                result = drain_one(host, store, &leases[i], err);
                ended += result == 1;
                left += result == 0;
        }
        lease_list_free(leases, count);
        if (result < 0)
                return cubby_error_wrap(err, "draining the pool '%s'", pool);
        if (ret_ended != NULL)
                *ret_ended = ended;
        if (ret_left != NULL)
                *ret_left = left;
        return 0;
}

/* The box itself ends when nobody comes back in time. */
static void park_box(cubby *host, const struct lease *lease, int64_t idle_ms)
{
        AUTO(cubby_box) cubby_box *box = NULL;
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        uint8_t payload[4];
        store_u32(payload, idle_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)idle_ms);
        if (box_open(host, lease->box_id, &box, NULL) == 0)
                (void)box_call(box, FRAME_SHIM_PARK, payload, sizeof payload, FRAME_OK,
                        deadline_after_ms(BOX_CALL_MS), &client, &frame, NULL);
}

static bool token_or_anonymous(const char *id)
{
        size_t length = strspn(id, "0123456789abcdef");
        return (length == 8 || length == TOKEN_LENGTH) && id[length] == '\0';
}

int pools_release(
        cubby *host, const struct provider_config *config, const char *id, cubby_error *err)
{
        AUTO(lease_store) struct lease_store *store = NULL;
        AUTO_ID_LOCK struct id_lock lock = {.home = host->home, .fd = -1};
        struct lease *leases = NULL;
        size_t count = 0;
        if (!token_or_anonymous(id))
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "no box '%.64s' of this pool was left", id);
        if (open_store(host, &store, err) < 0 || id_lock(host, config->pool, id, &lock, err) < 0 ||
                lease_list(store, config->pool, id, &leases, &count, err) < 0)
                return -1;
        int result = 0;
        bool found = false;
        int64_t now = clock_monotonic_ms();
        int64_t ttl = config->idle_ms > 0 ? config->idle_ms : BOX_TIME_MAX_MS;
        for (size_t i = 0; i < count && result == 0; i++) {
                enum lease_answer answer = LEASE_REFUSED;
                if (leases[i].state != LEASE_OWN || leases[i].box_id[0] == '\0' ||
                        !is_free(&leases[i], store))
                        continue;
                result = lease_take(store, leases[i].id, NULL, now, ttl, &answer, err);
                if (result < 0 || answer != LEASE_YES)
                        continue;
                found = true;
                result = lease_leave(store, leases[i].id, LEASE_PARKED, now, ttl, err);
                if (result == 0 && config->idle_ms > 0)
                        park_box(host, &leases[i], config->idle_ms);
        }
        lease_list_free(leases, count);
        if (result == 0 && !found)
                return cubby_error_set(
                        err, CUBBY_E_NOT_FOUND, "no box '%.64s' of this pool was left", id);
        return result;
}
