/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/fd.h"
#include "engine/engine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CACHE_BYTES_MAX 8192U
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define LINES 4U
/* Two measurements of one clock differ by less; two machines hardly ever do. */
#define CLOCK_TOLERANCE_PPM 1000U

/* The cached account: the host's boot id, the VMM's build, the host, the clock. */
struct account {
        char boot[64];
        char *build;
        char *host;
        uint32_t clock_khz;
};

static void account_clear(struct account *account)
{
        free(account->build);
        free(account->host);
        *account = (struct account){0};
}

static int read_boot_id(char ret[64], cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, 63);
        if (file_read_at(AT_FDCWD, BOOT_ID, &text, err) < 0)
                return -1;
        size_t length = strcspn(buffer_text(&text) == NULL ? "" : buffer_text(&text), "\n");
        memcpy(ret, text.data, length);
        ret[length] = '\0';
        return 0;
}

static bool parse(char *text, struct account *ret)
{
        char *lines[LINES];
        for (size_t i = 0; i < LINES; i++) {
                lines[i] = text;
                text = strchr(text, '\n');
                if (text == NULL)
                        return false;
                *text++ = '\0';
        }
        char *end = NULL;
        unsigned long khz = strtoul(lines[3], &end, 10);
        if (*text != '\0' || *end != '\0' || khz > UINT32_MAX || strlen(lines[0]) >= 64)
                return false;
        struct account account = {
                .build = strdup(lines[1]), .host = strdup(lines[2]), .clock_khz = (uint32_t)khz};
        (void)snprintf(account.boot, sizeof account.boot, "%s", lines[0]);
        if (account.build == NULL || account.host == NULL) {
                account_clear(&account);
                return false;
        }
        *ret = account;
        return true;
}

static bool read_cache(cubby *host, const char *name, struct account *ret)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, CACHE_BYTES_MAX);
        return file_read_at(home_folder(host->home, HOME_TEMPLATES), name, &text, NULL) == 0 &&
                buffer_text(&text) != NULL && parse((char *)text.data, ret);
}

static bool same_clock(uint32_t left, uint32_t right)
{
        uint64_t more = left > right ? left : right;
        uint64_t difference = left > right ? left - right : right - left;
        return difference * 1000000 <= more * CLOCK_TOLERANCE_PPM;
}

static int survey(cubby *host, const struct engine *engine, const struct machine_config *machine,
        const char *name, struct account *account, cubby_error *err)
{
        uint32_t clock_khz = 0;
        free(take_ptr(&account->host));
        if (engine->host(machine, &account->host, &clock_khz, err) < 0)
                return -1;
        /* what was measured first stays, or noise would make every template anew */
        if (!same_clock(account->clock_khz, clock_khz))
                account->clock_khz = clock_khz;
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, CACHE_BYTES_MAX);
        if (!buffer_printf(&text, "%s\n%s\n%s\n%" PRIu32 "\n", account->boot, account->build,
                    account->host, account->clock_khz))
                return cubby_error_no_memory(err);
        return file_publish_at(
                home_folder(host->home, HOME_TEMPLATES), name, text.data, text.size, 0600, err);
}

int saved_machine(cubby *host, const struct box_config *config, char **ret, cubby_error *err)
{
        const struct engine *engine = engine_find(config->engine);
        if (engine == NULL || (engine->capabilities & ENGINE_CAN_CLONE) == 0)
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "the engine '%s' neither saves nor clones machines", config->engine);
        /* the start of a box says that it is emulated, and says it once */
        static const struct log silent = {0};
        bool own_kernel = config->kernel[0] != '\0';
        struct machine_config machine = {
                .accel = ACCEL_AUTO, .own_kernel = own_kernel, .log = &silent};
        if (strcmp(config->accel, "auto") != 0)
                machine.accel = strcmp(config->accel, "kvm") == 0 ? ACCEL_KVM : ACCEL_TCG;
        char name[64];
        (void)snprintf(name, sizeof name, "host-%.16s-%.8s%s", config->engine, config->accel,
                own_kernel ? "-own" : "");
        char boot[64];
        AUTO_FREE char *build = NULL;
        if (read_boot_id(boot, err) < 0 || engine->build(&machine, &build, err) < 0)
                return -1;
        struct account account = {0};
        int result = 0;
        if (!read_cache(host, name, &account) || strcmp(account.boot, boot) != 0 ||
                strcmp(account.build, build) != 0) {
                free(account.build);
                account.build = take_ptr(&build);
                memcpy(account.boot, boot, sizeof boot);
                result = survey(host, engine, &machine, name, &account, err);
        }
        char *text = NULL;
        if (result == 0 &&
                asprintf(&text, "%s; %s; %s; clock %" PRIu32 " kHz", engine->name, account.build,
                        account.host, account.clock_khz) < 0)
                result = cubby_error_no_memory(err);
        account_clear(&account);
        if (result < 0)
                return -1;
        *ret = text;
        return 0;
}
