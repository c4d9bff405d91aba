/* SPDX-License-Identifier: Apache-2.0 */

/* The pool's source over real boxes. */
#include "pool/provider.h"

#include "base/clock.h"
#include "base/hex.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PARK_CALL_MS 2000
#define PREPARE_MS 20000
#define WARMUP_BYTES_MAX BOX_WARMUP_BYTES_MAX
#define WARMUP_FILE "warmup" /* of the home: its owner decides what warms spares up */

/* A box as the pool holds it, with a connection that stays open for checks. */
struct pool_box {
        cubby_box *box;
        pthread_mutex_t lock; /* over the connection */
        struct client *client;
};

/* What a box reports its failure to. */
struct failing {
        struct pool_link *link;
        char id[TOKEN_SIZE];
        atomic_uint_fast64_t generation;
};

struct pool_link *pool_link_share(struct pool_link *link)
{
        (void)atomic_fetch_add(&link->references, 1);
        return link;
}

void pool_link_drop(struct pool_link *link)
{
        if (link == NULL || atomic_fetch_sub(&link->references, 1) > 1)
                return;
        (void)pthread_rwlock_destroy(&link->lock);
        free(link);
}

static void on_failure(void *data, const cubby_error *problem)
{
        struct failing *failing = data;
        (void)pthread_rwlock_rdlock(&failing->link->lock);
        if (failing->link->pool != NULL)
                pool_invalidate(
                        failing->link->pool, failing->id, atomic_load(&failing->generation));
        (void)pthread_rwlock_unlock(&failing->link->lock);
}

static void drop_failing(void *data)
{
        struct failing *failing = data;
        pool_link_drop(failing->link);
        free(failing);
}

static int watch(cubby_provider *provider, cubby_box *box, const char *id, cubby_error *err)
{
        struct failing *failing = calloc(1, sizeof *failing);
        if (failing == NULL)
                return cubby_error_no_memory(err);
        failing->link = pool_link_share(provider->link);
        (void)snprintf(failing->id, sizeof failing->id, "%s", id);
        box->watch =
                (struct box_watch){.failed = on_failure, .drop = drop_failing, .data = failing};
        return 0;
}

/* Takes the box; on failure it is closed. */
static int hold(cubby_provider *provider, cubby_box *box, const char *id, struct pool_box **ret,
        cubby_error *err)
{
        struct pool_box *held = calloc(1, sizeof *held);
        int result = held == NULL ? cubby_error_no_memory(err) : watch(provider, box, id, err);
        if (result == 0)
                result = client_connect(
                        box->dir_fd, deadline_after_ms(BOX_CALL_MS), &held->client, err);
        if (result < 0) {
                free(held);
                box_close(box);
                return -1;
        }
        held->box = box;
        (void)pthread_mutex_init(&held->lock, NULL);
        *ret = held;
        return 0;
}

static char *hex_label(const char *name, const uint8_t *bytes, size_t size)
{
        size_t length = strlen(name);
        char *text = malloc(length + size * 2 + 1);
        if (text == NULL)
                return NULL;
        memcpy(text, name, length + 1);
        hex_encode(bytes, size, text + length);
        return text;
}

struct labels {
        char *texts[4];
};

static void clear_labels(struct labels *labels)
{
        for (size_t i = 0; i < 4; i++)
                free(labels->texts[i]);
}

static int make_labels(const struct source_wish *wish, struct labels *ret, cubby_error *err)
{
        if (asprintf(&ret->texts[0], POOL_LABEL "%s", wish->pool) < 0)
                ret->texts[0] = NULL;
        if (wish->key != NULL) {
                ret->texts[1] = hex_label(POOL_USER_LABEL, wish->key->user, wish->key->user_size);
                ret->texts[2] =
                        hex_label(POOL_THREAD_LABEL, wish->key->thread, wish->key->thread_size);
        }
        if (ret->texts[0] == NULL ||
                (wish->key != NULL && (ret->texts[1] == NULL || ret->texts[2] == NULL)))
                return cubby_error_no_memory(err);
        return 0;
}

/* The configured commands and the one that prepare() runs; NULL: the home's. */
static int make_warmup(const struct provider_config *config, char **ret, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, WARMUP_BYTES_MAX);
        if (config->warmup == NULL)
                return 0;
        bool whole = true;
        for (size_t i = 0; config->warmup[i] != NULL; i++)
                whole = whole && buffer_printf(&text, "%s\n", config->warmup[i]);
        if (!whole || !buffer_append_text(&text, BOX_WORK_FOLDERS_COMMAND "\n"))
                return cubby_error_set(err, CUBBY_E_LIMIT, "the warm-up commands are too long");
        const char *lines = buffer_text(&text);
        *ret = lines == NULL ? NULL : strdup(lines);
        return *ret == NULL ? cubby_error_no_memory(err) : 0;
}

static cubby_box_options options_of(const struct provider_config *config, const char *warmup)
{
        return (cubby_box_options){.size = sizeof(cubby_box_options),
                .image = config->image,
                .no_main = true,
                .env = (const char *const *)config->environment,
                .workdir = config->workdir,
                .user = config->user,
                .memory_bytes = (uint64_t)config->memory_mib << 20,
                .cpu_milli = config->cpu_milli,
                .disk_bytes = (uint64_t)config->disk_mib << 20,
                .engine = config->engine,
                .accel = config->accel,
                .auto_remove = true,
                .warmup = warmup};
}

/* The folders exist and a command has run: the whole way works. */
static int prepare(cubby_box *box, cubby_error *err)
{
        static const char *const command[] = {"mkdir", "-p", "-m", "777",
                "/mnt/user-data/workspace", "/mnt/user-data/uploads", "/mnt/user-data/outputs",
                "/mnt/skills", NULL};
        cubby_exec_options options = {.size = sizeof options,
                .argv = command,
                .user = "0:0",
                .workdir = "/",
                .timeout_ms = PREPARE_MS};
        cubby_result result = {0};
        cubby_error problem = {0};
        if (box_run(box, &options, NULL, 0, &result, &problem) < 0) {
                enum box_life life = BOX_ENDED;
                bool dead = box_life(box, &life, NULL) < 0 || life != BOX_ALIVE;
                return cubby_error_set(err, dead ? CUBBY_E_BOX_DEAD : problem.code,
                        "making the folders of the box: %s", problem.message);
        }
        bool done = result.exit.code == 0;
        if (!done)
                (void)cubby_error_set(err, CUBBY_E_STATE,
                        "the folders of the box could not be made: %.300s", result.errors);
        free(result.output);
        free(result.errors);
        return done ? 0 : -1;
}

/* A spare was warmed up by just this command, unless its home's commands are used and are
 * not the usual ones. */
static bool is_prepared(const cubby_provider *provider, enum pool_served served)
{
        return served == SERVED_SPARE &&
                (provider->config.warmup != NULL ||
                        faccessat(home_folder(provider->host->home, HOME_ROOT), WARMUP_FILE, F_OK,
                                0) < 0);
}

static enum pool_served served_of(const cubby_box *box)
{
        struct box_started started = {0};
        (void)box_read_started(box, &started);
        if (strcmp(started.served, "spare") == 0)
                return SERVED_SPARE;
        return strcmp(started.served, "cloned") == 0 ? SERVED_CLONED : SERVED_BOOTED;
}

static int start(cubby_provider *provider, cubby_box *box, const struct source_wish *wish,
        struct source_box *ret, cubby_error *err)
{
        if (box_start(box, err) < 0)
                return -1;
        enum pool_served served = served_of(box);
        struct pool_box *held = NULL;
        if ((!is_prepared(provider, served) && prepare(box, err) < 0) ||
                hold(provider, box_share(box), wish->id, &held, err) < 0)
                return -1;
        *ret = (struct source_box){.handle = held, .served = served};
        memcpy(ret->box_id, box->id, sizeof ret->box_id);
        if (provider->config.spares > 0)
                spares_want(provider, box, served == SERVED_SPARE);
        return 0;
}

static int boxes_create(
        void *data, const struct source_wish *wish, struct source_box *ret, cubby_error *err)
{
        cubby_provider *provider = data;
        __attribute__((cleanup(clear_labels))) struct labels labels = {0};
        AUTO(cubby_box) cubby_box *box = NULL;
        AUTO_FREE char *warmup = NULL;
        if (make_labels(wish, &labels, err) < 0 || make_warmup(&provider->config, &warmup, err) < 0)
                return -1;
        cubby_box_options options = options_of(&provider->config, warmup);
        options.name = wish->name;
        options.labels = (const char *const *)labels.texts;
        if (box_create(provider->host, &options, &box, err) < 0)
                return -1;
        if (start(provider, box, wish, ret, err) < 0) {
                cubby_error problem = {0};
                if (box_remove(box, true, &problem) < 0 && problem.code != CUBBY_E_NOT_FOUND)
                        log_line(&provider->host->log, LOG_WARNING, "box %s stays: %s", wish->name,
                                problem.message);
                return -1;
        }
        return 0;
}

/* "POOL-ID" or "POOL-ID-MORE"; false when the name is none of the pool. */
static bool id_of_name(const char *pool, const char *name, char ret[TOKEN_SIZE])
{
        size_t length = strlen(pool);
        if (strncmp(name, pool, length) != 0 || name[length] != '-')
                return false;
        const char *id = name + length + 1;
        size_t digits = strspn(id, "0123456789abcdef");
        if ((digits != TOKEN_LENGTH && digits != 8) || (id[digits] != '\0' && id[digits] != '-'))
                return false;
        memcpy(ret, id, digits);
        ret[digits] = '\0';
        return true;
}

static int boxes_open(void *data, const char *box_id, struct source_box *ret, cubby_error *err)
{
        cubby_provider *provider = data;
        AUTO(cubby_box) cubby_box *box = NULL;
        enum box_life life = BOX_ENDED;
        char id[TOKEN_SIZE] = "";
        struct pool_box *held = NULL;
        if (box_open(provider->host, box_id, &box, err) < 0 || box_life(box, &life, err) < 0)
                return -1;
        if (life != BOX_ALIVE)
                return cubby_error_set(
                        err, CUBBY_E_BOX_DEAD, "box '%s' has ended", box->config.name);
        (void)id_of_name(provider->config.pool, box->config.name, id);
        if (hold(provider, box_share(box), id, &held, err) < 0)
                return -1;
        *ret = (struct source_box){.handle = held, .served = SERVED_BOOTED};
        memcpy(ret->box_id, box->id, sizeof ret->box_id);
        return 0;
}

static int boxes_prepare(void *data, void *handle, cubby_error *err)
{
        (void)data;
        return prepare(((struct pool_box *)handle)->box, err);
}

static int digit(char letter)
{
        if (letter >= '0' && letter <= '9')
                return letter - '0';
        return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The bytes of a label, behind `used` ones; -1 when there is none or it is bad. */
static int64_t label_bytes(char *const *labels, const char *name, uint8_t *into, size_t room)
{
        size_t length = strlen(name);
        for (size_t i = 0; labels != NULL && labels[i] != NULL; i++) {
                if (strncmp(labels[i], name, length) != 0)
                        continue;
                const char *next = labels[i] + length;
                size_t size = 0;
                for (; next[0] != '\0'; next += 2) {
                        int high = digit(next[0]);
                        int low = high < 0 ? -1 : digit(next[1]);
                        if (low < 0 || size >= room)
                                return -1;
                        into[size++] = (uint8_t)(high << 4 | low);
                }
                return (int64_t)size;
        }
        return -1;
}

static void read_identity(const cubby_box *box, struct source_item *item)
{
        uint8_t *memory = malloc(2 * (size_t)KEY_PART_MAX);
        if (memory == NULL)
                return;
        int64_t user = label_bytes(box->config.labels, POOL_USER_LABEL, memory, KEY_PART_MAX);
        int64_t thread = label_bytes(
                box->config.labels, POOL_THREAD_LABEL, memory + KEY_PART_MAX, KEY_PART_MAX);
        struct pool_key key = {.user = memory,
                .user_size = (size_t)user,
                .thread = memory + KEY_PART_MAX,
                .thread_size = (size_t)thread};
        if (user >= 0 && thread >= 0 && key_copy(&key, &item->key, &item->memory, NULL) == 0)
                item->keyed = true;
        free(memory);
}

static void list_one(cubby_provider *provider, const struct box_record *record, const char *pool,
        struct source_item *items, size_t *count)
{
        struct source_item item = {0};
        AUTO(cubby_box) cubby_box *box = NULL;
        if (!id_of_name(pool, record->name, item.id) ||
                box_open_record(provider->host, record, &box, NULL) < 0)
                return;
        memcpy(item.box_id, record->id, sizeof item.box_id);
        read_identity(box, &item);
        items[(*count)++] = item;
}

static int boxes_list(void *data, const char *pool, const char *id, struct source_item **ret,
        size_t *ret_count, cubby_error *err)
{
        cubby_provider *provider = data;
        char name[96];
        struct box_record *records = NULL;
        size_t count = 0;
        (void)snprintf(name, sizeof name, "%s-%s", pool, id == NULL ? "" : id);
        if ((id == NULL ? box_record_list(provider->host->home, &records, &count, err)
                        : box_record_list_named(
                                  provider->host->home, name, &records, &count, err)) < 0)
                return -1;
        struct source_item *items = calloc(count + 1, sizeof *items);
        size_t found = 0;
        for (size_t i = 0; items != NULL && i < count; i++)
                list_one(provider, &records[i], pool, items, &found);
        box_record_list_free(records, count);
        if (items == NULL)
                return cubby_error_no_memory(err);
        *ret = items;
        *ret_count = found;
        return 0;
}

static int ping(struct pool_box *held, int64_t deadline_ms, cubby_error *err)
{
        static const char word[] = "check";
        struct frame frame;
        if (held->client == NULL &&
                client_connect(held->box->dir_fd, deadline_ms, &held->client, err) < 0)
                return -1;
        if (client_call(held->client, FRAME_PING, word, sizeof word, FRAME_PONG, deadline_ms,
                    &frame, err) == 0)
                return 0;
        client_close(take_ptr(&held->client));
        return -1;
}

static int boxes_check(void *data, void *handle, int64_t timeout_ms, cubby_error *err)
{
        struct pool_box *held = handle;
        int64_t deadline = deadline_after_ms(timeout_ms);
        (void)pthread_mutex_lock(&held->lock);
        int result = ping(held, deadline, err);
        (void)pthread_mutex_unlock(&held->lock);
        return result;
}

/* The shim closes every connection when the box has ended. */
static bool boxes_closed(void *data, void *handle)
{
        struct pool_box *held = handle;
        if (pthread_mutex_trylock(&held->lock) != 0)
                return false; /* a check is at it just now */
        struct pollfd hung = {.fd = held->client == NULL ? -1 : client_fd(held->client)};
        bool closed = poll(&hung, 1, 0) > 0 && (hung.revents & (POLLHUP | POLLERR)) != 0;
        (void)pthread_mutex_unlock(&held->lock);
        return closed;
}

static void boxes_park(void *data, void *handle, int64_t timeout_ms)
{
        struct pool_box *held = handle;
        uint8_t payload[4];
        AUTO(client) struct client *client = NULL;
        struct frame frame;
        store_u32(payload, timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)timeout_ms);
        (void)box_call(held->box, FRAME_SHIM_PARK, payload, sizeof payload, FRAME_OK,
                deadline_after_ms(PARK_CALL_MS), &client, &frame, NULL);
}

static int boxes_destroy(void *data, const char *box_id, cubby_error *err)
{
        cubby_provider *provider = data;
        AUTO(cubby_box) cubby_box *box = NULL;
        cubby_error problem = {0};
        if (box_open(provider->host, box_id, &box, &problem) == 0 &&
                box_remove(box, true, &problem) == 0)
                return 0;
        if (problem.code == CUBBY_E_NOT_FOUND)
                return 0;
        if (err != NULL)
                *err = problem;
        return -1;
}

static void *boxes_share(void *data, void *handle, uint64_t generation)
{
        struct pool_box *held = handle;
        struct failing *failing = held->box->watch.data;
        atomic_store(&failing->generation, generation);
        return box_share(held->box);
}

static void boxes_forget_shared(void *data, void *shared)
{
        box_close(shared);
}

static void boxes_doom(void *data, void *handle)
{
        atomic_store(&((struct pool_box *)handle)->box->doomed, true);
}

static void boxes_forget(void *data, void *handle)
{
        struct pool_box *held = handle;
        client_close(held->client);
        (void)pthread_mutex_destroy(&held->lock);
        box_close(held->box);
        free(held);
}

void boxes_source(cubby_provider *provider, struct pool_source *ret)
{
        *ret = (struct pool_source){.data = provider,
                .create = boxes_create,
                .open = boxes_open,
                .list = boxes_list,
                .check = boxes_check,
                .prepare = boxes_prepare,
                .closed = boxes_closed,
                .park = boxes_park,
                .destroy = boxes_destroy,
                .share = boxes_share,
                .doom = boxes_doom,
                .forget_shared = boxes_forget_shared,
                .forget = boxes_forget};
}
