/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

bool hostname_valid(struct slice name)
{
        if (name.size == 0 || name.size > 63 || name.data[0] == '-' || name.data[0] == '.')
                return false;
        for (size_t i = 0; i < name.size; i++) {
                uint8_t c = name.data[i];
                if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
                        c != '-' && c != '.' && c != '_')
                        return false;
        }
        return true;
}

/* Adding alone would change what is drawn only minutes later: the reseed counts. */
static int add_entropy(int random_fd, const uint8_t *entropy, cubby_error *err)
{
#ifdef AGENT_TEST_UNSEEDED
        /* the control of the test that clones differ: without the reseed they must not */
        return 0;
#endif
        /* struct rand_pool_info, whose bytes follow its two numbers */
        uint32_t pool[2 + WIRE_ENTROPY_SIZE / 4] = {WIRE_ENTROPY_SIZE * 8, WIRE_ENTROPY_SIZE};
        memcpy(pool + 2, entropy, WIRE_ENTROPY_SIZE);
        int result =
                ioctl(random_fd, RNDADDENTROPY, pool) < 0 || ioctl(random_fd, RNDRESEEDCRNG) < 0
                ? cubby_error_errno(err, errno, "reseeding the random numbers")
                : 0;
        explicit_bzero(pool, sizeof pool);
        return result;
}

static int set_clock(struct identity_state *state, uint64_t realtime_ns, cubby_error *err)
{
        if (realtime_ns <= state->newest_stamp)
                return 0;
        const struct timespec now = {.tv_sec = (time_t)(realtime_ns / 1000000000),
                .tv_nsec = (long)(realtime_ns % 1000000000)};
        if (clock_settime(CLOCK_REALTIME, &now) < 0)
                return cubby_error_errno(err, errno, "setting the clock");
        state->newest_stamp = realtime_ns;
        return 0;
}

static int rewrite(
        const struct workload *workload, const char *name, const char *text, cubby_error *err)
{
        AUTO_FD int fd = openat(workload->files_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        size_t size = strlen(text);
        if (fd < 0 || write_whole(fd, text, size) < 0 || ftruncate(fd, (off_t)size) < 0)
                return cubby_error_errno(err, errno, "writing '%s'", name);
        return 0;
}

static int set_hostname(struct identity_state *state, const struct workload *workload,
        struct spawner *spawner, struct slice name, cubby_error *err)
{
        if (!hostname_valid(name))
                return cubby_error_set(err, CUBBY_E_INVALID, "bad host name '%.*s'",
                        (int)(name.size > 64 ? 64 : name.size), (const char *)name.data);
        /* Unchanged: whatever the box wrote into its own hosts file stays. */
        if (slice_equals(name, state->hostname))
                return 0;
        char text[256];
        char hostname[sizeof state->hostname] = {0};
        memcpy(hostname, name.data, name.size);
        if (sethostname(hostname, name.size) < 0)
                return cubby_error_errno(err, errno, "setting the host name");
        (void)snprintf(text, sizeof text, "%s\n", hostname);
        if (rewrite(workload, FILE_HOSTNAME, text, err) < 0)
                return -1;
        (void)snprintf(text, sizeof text,
                "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
                "127.0.1.1\t%s\n",
                hostname);
        if (rewrite(workload, FILE_HOSTS, text, err) < 0)
                return -1;
        memcpy(state->hostname, hostname, sizeof hostname);
        memcpy(spawner->hostname, hostname, sizeof hostname);
        return 0;
}

static int set_ids(const struct workload *workload, cubby_error *err)
{
        uint8_t id[32];
        if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
                return cubby_error_errno(err, errno, "drawing random ids");
        /* Both are random UUIDs of version 4; machine-id is written without dashes. */
        for (size_t i = 0; i < sizeof id; i += 16) {
                id[i + 6] = (uint8_t)((id[i + 6] & 0x0f) | 0x40);
                id[i + 8] = (uint8_t)((id[i + 8] & 0x3f) | 0x80);
        }
        char machine[40];
        char boot[48];
        size_t at = 0;
        for (size_t i = 0; i < 16; i++) {
                (void)snprintf(machine + 2 * i, 3, "%02x", id[i]);
                if (i == 4 || i == 6 || i == 8 || i == 10)
                        boot[at++] = '-';
                (void)snprintf(boot + at, 3, "%02x", id[16 + i]);
                at += 2;
        }
        memcpy(machine + 32, "\n", 2);
        memcpy(boot + at, "\n", 2);
        if (rewrite(workload, FILE_MACHINE_ID, machine, err) < 0)
                return -1;
        return rewrite(workload, FILE_BOOT_ID, boot, err);
}

int resume_apply(struct identity_state *state, const struct message_resume *message,
        const struct workload *workload, struct cgroups *cgroups, struct spawner *spawner,
        struct message_resumed *ret, cubby_error *err)
{
        char text[64];
        if (add_entropy(workload->random_fd, message->entropy, err) < 0 ||
                set_clock(state, message->realtime_ns, err) < 0 ||
                set_hostname(state, workload, spawner, message->hostname, err) < 0 ||
                set_ids(workload, err) < 0 ||
                cgroups_limit(cgroups, message->cpu_milli, message->pids_max, err) < 0)
                return -1;
        (void)snprintf(text, sizeof text, "%llu\n", (unsigned long long)(state->generation + 1));
        if (rewrite(workload, FILE_GENERATION, text, err) < 0)
                return -1;
        state->generation++;
        long pages = sysconf(_SC_PHYS_PAGES);
        long page = sysconf(_SC_PAGESIZE);
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        *ret = (struct message_resumed){
                .nonce = message->nonce,
                .generation = state->generation,
                .memory_bytes = (uint64_t)pages * (uint64_t)page,
                .cpus = (uint32_t)cpus,
        };
        return 0;
}
