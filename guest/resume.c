/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
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

static int open_files(
        struct identity_state *state, const struct workload *workload, cubby_error *err)
{
        static const char *const names[RESUME_FILES] = {[RESUME_HOSTS] = FILE_HOSTS,
                [RESUME_HOSTNAME] = FILE_HOSTNAME,
                [RESUME_MACHINE_ID] = FILE_MACHINE_ID,
                [RESUME_BOOT_ID] = FILE_BOOT_ID,
                [RESUME_GENERATION] = FILE_GENERATION};
        if (state->opened)
                return 0;
        for (size_t i = 0; i < RESUME_FILES; i++) {
                state->fds[i] =
                        openat(workload->files_fd, names[i], O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
                if (state->fds[i] < 0) {
                        int saved = errno;
                        while (i-- > 0)
                                (void)close(state->fds[i]);
                        return cubby_error_errno(err, saved, "opening the box's own files");
                }
        }
        state->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        state->cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
        state->opened = true;
        return 0;
}

/* What the box wrote behind it goes: hosts and hostname are the box's to change. */
static int rewrite(const struct identity_state *state, enum resume_file file, const char *text,
        size_t size, cubby_error *err)
{
        int fd = state->fds[file];
        off_t end = -1;
        if (pwrite(fd, text, size, 0) != (ssize_t)size || (end = lseek(fd, 0, SEEK_END)) < 0 ||
                (end != (off_t)size && ftruncate(fd, (off_t)size) < 0))
                return cubby_error_errno(err, errno, "writing the box's own files");
        return 0;
}

/* Where formatted output would cost more than the rest: code that never ran before is
 * translated first. */
static size_t put(char *to, size_t at, const char *text, size_t size)
{
        memcpy(to + at, text, size);
        return at + size;
}

static size_t put_hex(char *to, size_t at, uint8_t byte)
{
        static const char digits[] = "0123456789abcdef";
        to[at] = digits[byte >> 4];
        to[at + 1] = digits[byte & 15];
        return at + 2;
}

static int set_hostname(
        struct identity_state *state, struct spawner *spawner, struct slice name, cubby_error *err)
{
        static const char hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost "
                                    "ip6-loopback\n127.0.1.1\t";
        if (!hostname_valid(name))
                return cubby_error_set(err, CUBBY_E_INVALID, "bad host name '%.*s'",
                        (int)(name.size > 64 ? 64 : name.size), (const char *)name.data);
        /* Unchanged: whatever the box wrote into its own hosts file stays. */
        if (slice_equals(name, state->hostname))
                return 0;
        char text[sizeof hosts + sizeof state->hostname + 1];
        char hostname[sizeof state->hostname] = {0};
        memcpy(hostname, name.data, name.size);
        if (sethostname(hostname, name.size) < 0)
                return cubby_error_errno(err, errno, "setting the host name");
        size_t size = put(text, 0, hosts, sizeof hosts - 1);
        size_t begin = size;
        size = put(text, size, hostname, name.size);
        size = put(text, size, "\n", 1);
        if (rewrite(state, RESUME_HOSTS, text, size, err) < 0 ||
                rewrite(state, RESUME_HOSTNAME, text + begin, size - begin, err) < 0)
                return -1;
        memcpy(state->hostname, hostname, sizeof hostname);
        memcpy(spawner->hostname, hostname, sizeof hostname);
        return 0;
}

static int set_ids(const struct identity_state *state, cubby_error *err)
{
        uint8_t id[32];
        if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
                return cubby_error_errno(err, errno, "drawing random ids");
        /* Both are random UUIDs of version 4; machine-id is written without dashes. */
        for (size_t i = 0; i < sizeof id; i += 16) {
                id[i + 6] = (uint8_t)((id[i + 6] & 0x0f) | 0x40);
                id[i + 8] = (uint8_t)((id[i + 8] & 0x3f) | 0x80);
        }
        char machine[33];
        char boot[37];
        size_t machine_at = 0;
        size_t boot_at = 0;
        for (size_t i = 0; i < 16; i++) {
                machine_at = put_hex(machine, machine_at, id[i]);
                if (i == 4 || i == 6 || i == 8 || i == 10)
                        boot_at = put(boot, boot_at, "-", 1);
                boot_at = put_hex(boot, boot_at, id[16 + i]);
        }
        machine_at = put(machine, machine_at, "\n", 1);
        boot_at = put(boot, boot_at, "\n", 1);
        if (rewrite(state, RESUME_MACHINE_ID, machine, machine_at, err) < 0)
                return -1;
        return rewrite(state, RESUME_BOOT_ID, boot, boot_at, err);
}

static int set_generation(struct identity_state *state, cubby_error *err)
{
        char text[24];
        size_t at = sizeof text - 1;
        text[at] = '\n';
        for (uint64_t left = state->generation + 1; left > 0; left /= 10)
                text[--at] = (char)('0' + left % 10);
        if (rewrite(state, RESUME_GENERATION, text + at, sizeof text - at, err) < 0)
                return -1;
        state->generation++;
        return 0;
}

int resume_apply(struct identity_state *state, const struct message_resume *message,
        const struct workload *workload, struct cgroups *cgroups, struct spawner *spawner,
        struct message_resumed *ret, cubby_error *err)
{
        if (open_files(state, workload, err) < 0 ||
                add_entropy(workload->random_fd, message->entropy, err) < 0 ||
                set_clock(state, message->realtime_ns, err) < 0 ||
                set_hostname(state, spawner, message->hostname, err) < 0 ||
                set_ids(state, err) < 0 ||
                cgroups_limit(cgroups, message->cpu_milli, message->pids_max, err) < 0 ||
                set_generation(state, err) < 0)
                return -1;
        *ret = (struct message_resumed){
                .nonce = message->nonce,
                .generation = state->generation,
                .memory_bytes = state->memory_bytes,
                .cpus = state->cpus,
        };
        return 0;
}
