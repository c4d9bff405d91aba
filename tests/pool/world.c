/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "base/fd.h"

#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int64_t world_now(void *data)
{
        struct world *world = data;
        return __atomic_load_n(&world->now_ms, __ATOMIC_SEQ_CST);
}

/* Looks again every two milliseconds: the test's clock jumps, nobody is woken. */
static void world_wait(
        void *data, pthread_cond_t *changed, pthread_mutex_t *lock, int64_t deadline_ms)
{
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 2000000;
        if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
        }
        (void)pthread_cond_timedwait(changed, lock, &until);
}

void world_forward(struct world *world, int64_t ms)
{
        (void)__atomic_add_fetch(&world->now_ms, ms, __ATOMIC_SEQ_CST);
}

static void world_log(void *data, int level, const char *line)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        if (level <= LOG_WARNING)
                world->warnings++;
        (void)snprintf(world->last_log, sizeof world->last_log, "%s", line);
        (void)pthread_mutex_unlock(&world->lock);
}

static struct world_box *by_box_id(struct world *world, const char *box_id)
{
        for (size_t i = 0; i < world->count; i++)
                if (world->boxes[i].exists && strcmp(world->boxes[i].box_id, box_id) == 0)
                        return &world->boxes[i];
        return NULL;
}

static int insert(struct world *world, const struct source_wish *wish, struct source_box *ret,
        cubby_error *err)
{
        for (size_t i = 0; i < world->count; i++)
                if (world->boxes[i].exists && strcmp(world->boxes[i].name, wish->name) == 0)
                        return cubby_error_set(err, CUBBY_E_EXISTS, "the name is taken");
        assert_true(world->count < WORLD_BOXES);
        struct world_box *box = &world->boxes[world->count];
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
                return -1;
        (void)snprintf(box->box_id, sizeof box->box_id, "%016llx%016llx",
                (unsigned long long)random[0], (unsigned long long)random[1]);
        (void)snprintf(box->name, sizeof box->name, "%s", wish->name);
        (void)snprintf(box->id, sizeof box->id, "%s", wish->id);
        if (wish->key != NULL && key_copy(wish->key, &box->key, &box->memory, err) < 0)
                return -1;
        box->keyed = wish->key != NULL;
        box->exists = true;
        box->alive = true;
        box->parked_for_ms = -1;
        box->ready = !world->dies_unready;
        world->count++;
        if (world->dies_unready)
                return cubby_error_set(err, CUBBY_E_VMM, "the maker was killed");
        world->handles++;
        *ret = (struct source_box){.handle = box, .served = world->served};
        memcpy(ret->box_id, box->box_id, sizeof ret->box_id);
        return 0;
}

static int world_create(
        void *data, const struct source_wish *wish, struct source_box *ret, cubby_error *err)
{
        struct world *world = data;
        if (FAULT_POINT(world->faults, "source.create", err) < 0)
                return -1;
        (void)pthread_mutex_lock(&world->lock);
        world->creates++;
        int result = world->create_fails
                ? cubby_error_set(err, CUBBY_E_VMM, "the machine does not come up")
                : insert(world, wish, ret, err);
        (void)pthread_mutex_unlock(&world->lock);
        return result;
}

static int world_open(void *data, const char *box_id, struct source_box *ret, cubby_error *err)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        struct world_box *box = by_box_id(world, box_id);
        int result = 0;
        if (box == NULL)
                result = cubby_error_set(err, CUBBY_E_NOT_FOUND, "there is no such box");
        else if (world->open_fails)
                result = cubby_error_set(err, CUBBY_E_SYSTEM, "too many open files");
        else if (!box->alive)
                result = cubby_error_set(err, CUBBY_E_BOX_DEAD, "the box has ended");
        else {
                *ret = (struct source_box){.handle = box, .served = SERVED_BOOTED};
                memcpy(ret->box_id, box_id, sizeof ret->box_id);
                world->handles++;
        }
        (void)pthread_mutex_unlock(&world->lock);
        return result;
}

static int world_list(void *data, const char *pool, const char *id, struct source_item **ret,
        size_t *ret_count, cubby_error *err)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        struct source_item *items = calloc(world->count + 1, sizeof *items);
        size_t count = 0;
        size_t prefix = strlen(pool);
        for (size_t i = 0; i < world->count; i++) {
                struct world_box *box = &world->boxes[i];
                if (!box->exists || strncmp(box->name, pool, prefix) != 0 ||
                        box->name[prefix] != '-' || (id != NULL && strcmp(box->id, id) != 0))
                        continue;
                struct source_item *item = &items[count++];
                memcpy(item->box_id, box->box_id, sizeof item->box_id);
                memcpy(item->id, box->id, sizeof item->id);
                item->keyed = box->keyed;
                if (box->keyed)
                        (void)key_copy(&box->key, &item->key, &item->memory, err);
        }
        (void)pthread_mutex_unlock(&world->lock);
        *ret = items;
        *ret_count = count;
        return 0;
}

static int world_check(void *data, void *handle, int64_t timeout_ms, cubby_error *err)
{
        struct world *world = data;
        struct world_box *box = handle;
        if (FAULT_POINT(world->faults, "source.check", err) < 0)
                return -1;
        (void)pthread_mutex_lock(&world->lock);
        world->checks++;
        int result = 0;
        if (!box->alive || !box->exists)
                result = cubby_error_set(err, CUBBY_E_BOX_DEAD, "the box has ended");
        else if (box->hung || world->check_fails)
                result = cubby_error_set(err, CUBBY_E_TIMEOUT, "the box did not answer in time");
        (void)pthread_mutex_unlock(&world->lock);
        return result;
}

static int world_prepare(void *data, void *handle, cubby_error *err)
{
        struct world *world = data;
        struct world_box *box = handle;
        (void)pthread_mutex_lock(&world->lock);
        int result = 0;
        if (box->hung || world->prepare_fails)
                result = cubby_error_set(err, CUBBY_E_TIMEOUT, "no command runs");
        else
                box->ready = true;
        (void)pthread_mutex_unlock(&world->lock);
        return result;
}

static bool world_closed(void *data, void *handle)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        bool closed = !((struct world_box *)handle)->alive;
        (void)pthread_mutex_unlock(&world->lock);
        return closed;
}

static void world_park(void *data, void *handle, int64_t timeout_ms)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        ((struct world_box *)handle)->parked_for_ms = timeout_ms;
        (void)pthread_mutex_unlock(&world->lock);
}

static int world_destroy(void *data, const char *box_id, cubby_error *err)
{
        struct world *world = data;
        if (FAULT_POINT(world->faults, "source.destroy", err) < 0)
                return -1;
        (void)pthread_mutex_lock(&world->lock);
        struct world_box *box = by_box_id(world, box_id);
        int result = 0;
        if (world->destroy_fails)
                result = cubby_error_set(err, CUBBY_E_TIMEOUT, "it does not end");
        else if (box != NULL) {
                box->exists = false;
                box->alive = false;
                world->destroys++;
        }
        (void)pthread_mutex_unlock(&world->lock);
        return result;
}

static void world_doom(void *data, void *handle)
{
        ((struct world_box *)handle)->doomed = true;
}

static void *world_share(void *data, void *handle, uint64_t generation)
{
        struct world *world = data;
        (void)__atomic_add_fetch(&world->shared, 1, __ATOMIC_SEQ_CST);
        return handle;
}

static void world_forget_shared(void *data, void *shared)
{
        struct world *world = data;
        (void)__atomic_sub_fetch(&world->shared, 1, __ATOMIC_SEQ_CST);
}

static void world_forget(void *data, void *handle)
{
        struct world *world = data;
        (void)pthread_mutex_lock(&world->lock);
        world->handles--;
        (void)pthread_mutex_unlock(&world->lock);
}

int world_make(void **state)
{
        struct world *world = calloc(1, sizeof *world);
        assert_non_null(world);
        (void)snprintf(world->path, sizeof world->path, "/tmp/cubby-pool-XXXXXX");
        assert_non_null(mkdtemp(world->path));
        assert_int_equal(home_open(world->path, NULL, &world->home, NULL), 0);
        assert_int_equal(faults_create(&world->faults, NULL), 0);
        (void)pthread_mutex_init(&world->lock, NULL);
        world->now_ms = 1000000;
        world->served = SERVED_BOOTED;
        *state = world;
        return 0;
}

int world_remove(void **state)
{
        struct world *world = *state;
        int failed = 0;
        if (world->handles != 0 || world->shared != 0) {
                print_message("left over: %u handles, %u shares\n", world->handles, world->shared);
                failed = -1;
        }
        for (size_t i = 0; i < world->count; i++)
                free(world->boxes[i].memory);
        faults_free(world->faults);
        home_close(world->home);
        (void)pthread_mutex_destroy(&world->lock);
        if (dir_remove_at(AT_FDCWD, world->path, NULL) < 0)
                failed = -1;
        free(world);
        return failed;
}

struct pool_options world_options(void)
{
        return (struct pool_options){.prefix = "t",
                .replicas = 3,
                .idle_ms = 600000,
                .check_ms = 5000,
                .acquire_ms = 30000,
                .renewal_ms = 30000,
                .ttl_multiplier = 4,
                .no_background = true};
}

struct pool *world_pool(struct world *world, const struct pool_options *options)
{
        struct pool_parts parts = {.home = world->home,
                .source = {.data = world,
                        .create = world_create,
                        .open = world_open,
                        .list = world_list,
                        .check = world_check,
                        .prepare = world_prepare,
                        .closed = world_closed,
                        .park = world_park,
                        .destroy = world_destroy,
                        .share = world_share,
                        .doom = world_doom,
                        .forget_shared = world_forget_shared,
                        .forget = world_forget},
                .clock = {.now_ms = world_now, .wait = world_wait, .data = world},
                .log = {.write = world_log, .data = world},
                .faults = world->faults};
        struct pool *pool = NULL;
        cubby_error err = {0};
        if (pool_open(options, &parts, &pool, &err) < 0)
                fail_msg("opening a pool: %s", err.message);
        return pool;
}

unsigned world_alive(struct world *world)
{
        unsigned alive = 0;
        (void)pthread_mutex_lock(&world->lock);
        for (size_t i = 0; i < world->count; i++)
                alive += world->boxes[i].exists;
        (void)pthread_mutex_unlock(&world->lock);
        return alive;
}

struct world_box *world_find(struct world *world, const char *id)
{
        struct world_box *found = NULL;
        (void)pthread_mutex_lock(&world->lock);
        for (size_t i = 0; i < world->count; i++)
                if (world->boxes[i].exists && strcmp(world->boxes[i].id, id) == 0)
                        found = &world->boxes[i];
        (void)pthread_mutex_unlock(&world->lock);
        return found;
}

void world_kill(struct world *world, const char *id)
{
        struct world_box *box = world_find(world, id);
        assert_non_null(box);
        (void)pthread_mutex_lock(&world->lock);
        box->alive = false;
        (void)pthread_mutex_unlock(&world->lock);
}

struct pool_key key_of(const char *user, const char *thread)
{
        return (struct pool_key){.user = (const uint8_t *)user,
                .user_size = strlen(user),
                .thread = (const uint8_t *)thread,
                .thread_size = strlen(thread)};
}

static int acquire(struct world *world, struct pool *pool, const char *thread, int64_t timeout_ms,
        struct pool_acquired *ret, cubby_error *err)
{
        struct pool_key key = key_of("u", thread == NULL ? "" : thread);
        struct pool_order order = {.key = thread == NULL ? NULL : &key, .timeout_ms = timeout_ms};
        if (pool_acquire(pool, &order, ret, err) < 0)
                return -1;
        world_forget_shared(world, ret->shared);
        return 0;
}

struct pool_acquired take(struct world *world, struct pool *pool, const char *thread)
{
        struct pool_acquired acquired = {0};
        cubby_error err = {0};
        if (acquire(world, pool, thread, 0, &acquired, &err) < 0)
                fail_msg("acquire: %s", err.message);
        return acquired;
}

int take_fails(struct world *world, struct pool *pool, const char *thread, cubby_error *err)
{
        struct pool_acquired acquired = {0};
        cubby_error problem = {0};
        assert_int_equal(acquire(world, pool, thread, 0, &acquired, &problem), -1);
        assert_true(problem.message[0] != '\0');
        if (err != NULL)
                *err = problem;
        return problem.code;
}

void give(struct pool *pool, const char *id)
{
        assert_int_equal(pool_release(pool, id, NULL), 0);
}

struct pool_status status_of(struct pool *pool)
{
        struct pool_status status;
        pool_get_status(pool, &status);
        return status;
}

static void *taking_run(void *data)
{
        struct taking *taking = data;
        taking->result = acquire(taking->world, taking->pool, taking->thread_name,
                taking->timeout_ms, &taking->acquired, &taking->error);
        return NULL;
}

void taking_start(struct taking *taking, struct world *world, struct pool *pool, const char *thread)
{
        taking->world = world;
        taking->pool = pool;
        (void)snprintf(taking->thread_name, sizeof taking->thread_name, "%s", thread);
        assert_int_equal(pthread_create(&taking->thread, NULL, taking_run, taking), 0);
}

int taking_end(struct taking *taking)
{
        assert_int_equal(pthread_join(taking->thread, NULL), 0);
        return taking->result;
}

void world_forget_share(struct world *world)
{
        world_forget_shared(world, NULL);
}
