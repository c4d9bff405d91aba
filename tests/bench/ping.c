/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The price of the shim: a ping through it beside the same ping straight to the
 * same agent (the fake one), in turns, in one run. Figures, not a verdict.
 *
 *     ping PATH-OF-CUBBY-SHIM [ROUNDS]
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "box/config.h"
#include "channel/client.h"
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS_MAX 1000000L
#define SLOT 1U

static void must(bool good, const char *what, const cubby_error *error)
{
        if (good)
                return;
        fprintf(stderr, "ping: %s: %s\n", what, error->message);
        exit(1);
}

static int by_time(const void *a, const void *b)
{
        int64_t left = *(const int64_t *)a;
        int64_t right = *(const int64_t *)b;
        return left < right ? -1 : left > right;
}

static int64_t round_trip(struct client *client)
{
        struct frame frame;
        cubby_error error = {0};
        int64_t start = clock_monotonic_ns();
        must(client_call(client, FRAME_PING, "x", 1, FRAME_PONG, deadline_after_ms(5000), &frame,
                     &error) == 0,
                "a round trip", &error);
        return clock_monotonic_ns() - start;
}

static void print(const char *name, int64_t *times, size_t count)
{
        qsort(times, count, sizeof *times, by_time);
        printf("%-24s p50 %.4f ms  p90 %.4f ms  p99 %.4f ms\n", name,
                (double)times[count / 2] / 1e6, (double)times[count * 9 / 10] / 1e6,
                (double)times[count * 99 / 100] / 1e6);
}

/* A box's folder with what the shim reads. */
static void make_box(int dir_fd)
{
        static char *nothing[] = {NULL};
        static char id[] = "0123456789abcdef0123456789abcdef";
        static char digest[] =
                "sha256:0000000000000000000000000000000000000000000000000000000000000000";
        static char name[] = "bench", engine[] = "fake", accel[] = "auto", none[] = "";
        static char stop[] = "SIGTERM", image[] = "bench:latest";
        struct box_config config = {.id = id,
                .name = name,
                .hostname = name,
                .image_id = digest,
                .image_name = image,
                .engine = engine,
                .accel = accel,
                .kernel = none,
                .argv = nothing,
                .env = nothing,
                .labels = nothing,
                .workdir = none,
                .user = none,
                .stop_signal = stop,
                .memory_bytes = 256U << 20,
                .cpu_milli = 1000,
                .disk_bytes = 256U << 20,
                .pids_max = 512,
                .boot_timeout_ms = 10000,
                .slot = SLOT};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        cubby_error error = {0};
        must(box_config_encode(&config, &json, &error) == 0 &&
                        file_publish_at(
                                dir_fd, BOX_CONFIG_NAME, json.data, json.size, 0600, &error) == 0,
                "the configuration", &error);
        int disk = openat(dir_fd, BOX_DISK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        uid_t uid = BOX_UID_FIRST + SLOT;
        if (geteuid() == 0 && (fchown(disk, uid, uid) < 0 || fchown(dir_fd, uid, uid) < 0))
                perror("ping: chown");
        close_quietly(disk);
}

static struct client *start_shim(const char *program, int dir_fd, struct child *ret)
{
        cubby_error error = {0};
        int ends[2];
        int lock = openat(dir_fd, BOX_LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0 ||
                socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                must(false, strerror(errno), &error);
        const char *const argv[] = {program, NULL};
        struct spawn_fd fds[] = {
                {dir_fd, SHIM_FD_BOX}, {ends[1], SHIM_FD_STATUS}, {lock, SHIM_FD_LOCK}};
        struct spawn_options options = {.argv = argv, .fds = fds, .fd_count = 3};
        must(spawn(&options, ret, &error) == 0, "starting the shim", &error);
        close_quietly(ends[1]);
        close_quietly(lock);
        struct shim_report report = {0};
        while (recv(ends[0], &report, sizeof report, 0) == sizeof report &&
                report.kind != REPORT_READY && report.kind != REPORT_FAILED)
                ;
        close_quietly(ends[0]);
        (void)snprintf(error.message, sizeof error.message, "%s", report.text);
        must(report.kind == REPORT_READY, "the box is not ready", &error);
        struct client *client = NULL;
        must(client_connect(dir_fd, deadline_after_ms(5000), &client, &error) == 0, "connecting",
                &error);
        return client;
}

/* The same agent without a shim: HELLO is read, then it is spoken to directly. */
static struct client *start_raw(struct machine **ret)
{
        cubby_error error = {0};
        struct machine_config config = {.memory_bytes = 256U << 20, .vcpus = 1};
        must(engine_fake.start(&config, ret, &error) == 0, "starting the agent", &error);
        struct client *client = NULL;
        struct frame frame;
        must(client_over(fcntl(engine_fake.agent_fd(*ret), F_DUPFD_CLOEXEC, 3), &client, &error) ==
                                0 &&
                        client_next(client, deadline_after_ms(5000), &frame, &error) == 0,
                "the agent's hello", &error);
        return client;
}

int main(int argc, char **argv)
{
        long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 5000;
        if (argc < 2 || rounds < 100 || rounds > ROUNDS_MAX) {
                fprintf(stderr, "usage: ping PATH-OF-CUBBY-SHIM [ROUNDS from 100]\n");
                return 2;
        }
        char path[] = "/tmp/cubby-ping-XXXXXX";
        if (mkdtemp(path) == NULL) {
                perror("ping: making a folder");
                return 1;
        }
        AUTO_FD int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_box(dir_fd);
        struct child shim = CHILD_NONE;
        struct machine *machine = NULL;
        struct client *through = start_shim(argv[1], dir_fd, &shim);
        struct client *raw = start_raw(&machine);
        size_t count = (size_t)rounds;
        AUTO_FREE int64_t *times = calloc(2 * count, sizeof *times);
        if (times == NULL)
                return 1;
        for (size_t i = 0; i < 2 * count; i++)
                times[i] = round_trip(i % 2 == 0 ? through : raw); /* warm */
        for (size_t i = 0; i < count; i++) {
                times[i] = round_trip(raw);
                times[count + i] = round_trip(through);
        }
        print("agent, raw", times, count);
        print("agent, through the shim", times + count, count);
        printf("the shim adds            p50 %.4f ms\n",
                (double)(times[count + count / 2] - times[count / 2]) / 1e6);
        client_close(through);
        client_close(raw);
        engine_fake.destroy(machine);
        child_kill(&shim);
        return dir_remove_at(AT_FDCWD, path, NULL) == 0 ? 0 : 1;
}
