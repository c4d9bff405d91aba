/* SPDX-License-Identifier: Apache-2.0 */
#include "box/keeper/private.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define IDLE_DEFAULT_S 600
#define IDLE_MAX_S 86400
#define AHEAD_DEFAULT 1
#define AHEAD_MAX 8
#define LOCK_MS 500 /* who only looks whether a keeper lives has the lock for an instant */

/* Only when somebody runs it by hand: else standard error is /dev/null. */
static void print_line(void *data, int level, const char *line)
{
        (void)data;
        if (level <= CUBBY_LOG_WARNING)
                (void)fprintf(stderr, "cubby-keeper: %s\n", line);
}

static bool parse_number(const char *text, uint64_t *ret)
{
        char *end = NULL;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
                return false;
        *ret = value;
        return true;
}

/* A number from the environment; the default when there is none that will do. */
static uint64_t setting(const char *variable, uint64_t maximum, uint64_t otherwise)
{
        const char *text = secure_getenv(variable);
        uint64_t value = 0;
        if (text == NULL || !parse_number(text, &value) || value > maximum)
                return otherwise;
        return value;
}

static int plan(struct keeper *keeper, char **argv, cubby_error *err)
{
        uint64_t memory = 0;
        uint64_t cpu_milli = 0;
        uint64_t disk = 0;
        if (!parse_number(argv[KEEPER_ARGUMENT_MEMORY], &memory) ||
                !parse_number(argv[KEEPER_ARGUMENT_CPU_MILLI], &cpu_milli) ||
                cpu_milli > UINT32_MAX || !parse_number(argv[KEEPER_ARGUMENT_DISK], &disk))
                return cubby_error_set(err, CUBBY_E_INVALID, "a size is no number");
        const struct box_config wanted = {.image_id = argv[KEEPER_ARGUMENT_IMAGE_ID],
                .image_name = argv[KEEPER_ARGUMENT_IMAGE_NAME],
                .memory_bytes = memory,
                .cpu_milli = (uint32_t)cpu_milli,
                .disk_bytes = disk,
                .engine = argv[KEEPER_ARGUMENT_ENGINE],
                .accel = argv[KEEPER_ARGUMENT_ACCEL],
                .kernel = argv[KEEPER_ARGUMENT_KERNEL],
                .warmup = argv[KEEPER_ARGUMENT_WARMUP]};
        return saved_plain_config(keeper->host, &wanted, &keeper->config, err);
}

/* One keeper for a template: who comes second has nothing to do. */
static int take_lock(struct keeper *keeper, int *ret_fd, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        char name[96];
        if (saved_key(keeper->host, &keeper->config, key, err) < 0)
                return -1;
        (void)snprintf(name, sizeof name, "keeper-%s", key);
        return home_lock(keeper->host->home, name, true, deadline_after_ms(LOCK_MS), ret_fd, err);
}

static int keep(struct keeper *keeper, char **argv, cubby_error *err)
{
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        options.home = argv[KEEPER_ARGUMENT_HOME];
        options.log = print_line;
        AUTO_LOCK int lock = -1;
        if (box_home_open(&options, &keeper->host, err) < 0 || plan(keeper, argv, err) < 0)
                return -1;
        keeper->host->unattended = true;
        cubby_error taken = {0};
        if (take_lock(keeper, &lock, &taken) < 0)
                return taken.code == CUBBY_E_TIMEOUT
                        ? 0
                        : cubby_error_set(err, taken.code, "%s", taken.message);
        keeper->lock_fd = lock;
        if (keeper_prepare(keeper, err) < 0)
                return -1;
        return keeper_run(keeper, err);
}

int main(int argc, char **argv)
{
        if (argc != KEEPER_ARGUMENT_COUNT) {
                (void)fprintf(stderr, "cubby-keeper is started by Cubby itself\n");
                return 2;
        }
        (void)signal(SIGPIPE, SIG_IGN);
        struct keeper keeper = {.lock_fd = -1,
                .memory_fd = -1,
                .listen_fd = -1,
                .watch_fd = -1,
                .spare_end = -1,
                .keeper_end = -1,
                .worker_fd = -1,
                .ahead = (uint32_t)setting(KEEPER_AHEAD_VARIABLE, AHEAD_MAX, AHEAD_DEFAULT),
                .idle_ms =
                        (int64_t)setting(KEEPER_IDLE_VARIABLE, IDLE_MAX_S, IDLE_DEFAULT_S) * 1000};
        cubby_error err = {0};
        int result = keep(&keeper, argv, &err);
        if (result < 0)
                print_line(NULL, CUBBY_LOG_ERROR, err.message);
        keeper_close(&keeper);
        return result < 0 ? 1 : 0;
}
