/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies between a program and the agent of its box: two machines of the same
 * kind, one spoken to straight over the engine's descriptor, the other through
 * shim and library; the same work in turns. Figures, not a verdict.
 *
 *      bench_port IMAGE PATH-OF-GUEST-LOAD [ROUNDS [MIB]]
 *
 * $CUBBY_HOME has a kernel and the image, which needs nothing but a shell.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "box/box.h"
#include "box/launch.h"
#include "channel/connection.h"
#include "engine/engine.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROUNDS_MAX 100000
#define WAIT_MS 60000
#define LOAD "/load"
#define FILE_BYTES_MAX (1U << 20)

/* The bare conversation: frames over the port, one at a time, nobody between. */
struct raw {
        struct machine *machine;
        struct connection connection;
        uint64_t session;
        uint64_t stream;
};

static double times[4][ROUNDS_MAX];

static void must(bool good, const char *what, const cubby_error *error)
{
        if (good)
                return;
        (void)fprintf(stderr, "bench_port: %s: %s\n", what, error->message);
        exit(1);
}

static double now_us(void)
{
        return (double)clock_monotonic_ns() / 1e3;
}

static int by_size(const void *left, const void *right)
{
        double a = *(const double *)left;
        double b = *(const double *)right;
        return (a > b) - (a < b);
}

static double print(const char *name, double *values, size_t count, const char *unit)
{
        qsort(values, count, sizeof *values, by_size);
        (void)printf("%-44s p50 %9.4f  p99 %9.4f  min %9.4f  %s n=%zu\n", name, values[count / 2],
                values[count * 99 / 100], values[0], unit, count);
        (void)fflush(stdout);
        return values[count / 2];
}

/* ------------------------------------------------------- over the port -- */

static void raw_send(
        struct raw *raw, uint16_t type, uint16_t flags, const void *payload, size_t size)
{
        cubby_error error = {0};
        must(connection_queue(
                     &raw->connection, type, flags, raw->session, raw->stream, payload, size),
                "sending", &error);
        while (connection_queued(&raw->connection) > 0) {
                must(connection_flush(&raw->connection) == 0, "sending", &error);
                struct pollfd full = {.fd = raw->connection.fd, .events = POLLOUT};
                if (connection_queued(&raw->connection) > 0)
                        (void)poll(&full, 1, WAIT_MS);
        }
}

static void raw_next(struct raw *raw, struct frame *ret)
{
        cubby_error error = {0};
        while (connection_next(&raw->connection, ret) == 0) {
                struct pollfd quiet = {.fd = raw->connection.fd, .events = POLLIN};
                must(poll(&quiet, 1, WAIT_MS) == 1 && connection_read(&raw->connection) >= 0,
                        "the agent is silent", &error);
        }
}

static void raw_start(struct raw *raw, cubby *host, cubby_box *box)
{
        cubby_error error = {0};
        AUTO_PARTS struct shim_parts parts = SHIM_PARTS_NONE;
        must(box_disk_place(host, &box->config, box->dir_fd, -1, &error) == 0, "a disk", &error);
        AUTO_FD int disk = openat(box->dir_fd, BOX_DISK_NAME, O_RDWR | O_CLOEXEC);
        AUTO_FD int console = openat(
                box->dir_fd, BOX_CONSOLE_NAME, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        must(image_open_rootfs(host->home, box->image_id, &parts.rootfs, &error) == 0 &&
                        shim_open_kernel(host, &box->config, &parts, &error) == 0,
                "what a machine needs", &error);
        struct machine_config config = {.memory_bytes = box->config.memory_bytes,
                .vcpus = 1,
                .vmlinux_fd = parts.vmlinux,
                .initramfs_fd = parts.initramfs,
                .rootfs_fd = parts.rootfs,
                .disk_fd = disk,
                .memory_fd = -1,
                .state_fd = -1,
                .console_fd = console,
                .uid = geteuid() == 0 ? BOX_UID_FIRST + box->slot : 0,
                .log = &host->log};
        must(engine_microvm.start(&config, &raw->machine, &error) == 0, "starting", &error);
        int fd = fcntl(engine_microvm.agent_fd(raw->machine), F_DUPFD_CLOEXEC, 3);
        connection_init(&raw->connection, fd, FRAME_FROM_GUEST_MAX, FRAME_TO_GUEST_MAX * 2,
                FRAME_TO_GUEST_MAX * 2);
        struct frame frame;
        raw_next(raw, &frame);
        uint8_t entropy[WIRE_ENTROPY_SIZE] = {1};
        const struct message_resume resume = {.nonce = 7,
                .entropy = entropy,
                .realtime_ns = (uint64_t)clock_realtime_ns(),
                .hostname = {(const uint8_t *)"raw", 3}};
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 4096);
        must(frame.type == FRAME_HELLO && message_resume_encode(&payload, &resume), "hello",
                &error);
        raw->stream = 1;
        raw_send(raw, FRAME_RESUME, 0, payload.data, payload.size);
        raw_next(raw, &frame);
        must(frame.type == FRAME_RESUMED, "resuming", &error);
        raw->session = resume.nonce;
}

static void raw_ping(struct raw *raw)
{
        struct frame frame;
        cubby_error error = {0};
        raw->stream++;
        raw_send(raw, FRAME_PING, 0, "check", 5);
        raw_next(raw, &frame);
        must(frame.type == FRAME_PONG, "a round trip", &error);
}

/* A command with this input, to its end; returns the bytes of its output. */
static uint64_t raw_run(struct raw *raw, const char *const *argv, const void *input, size_t size)
{
        struct slice words[8];
        struct message_exec exec = {.flags = input != NULL ? EXEC_STDIN : 0, .argv = words};
        cubby_error error = {0};
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 65536);
        for (; argv[exec.argc] != NULL && exec.argc < 8; exec.argc++)
                words[exec.argc] =
                        (struct slice){(const uint8_t *)argv[exec.argc], strlen(argv[exec.argc])};
        must(message_exec_encode(&payload, &exec), "a command", &error);
        raw->stream++;
        raw_send(raw, FRAME_EXEC, 0, payload.data, payload.size);
        uint64_t total = 0;
        uint32_t owed = 0;
        size_t window = STREAM_WINDOW;
        bool fed = input == NULL;
        struct frame frame = {0};
        while (frame.type != FRAME_EXIT) {
                while (!fed && window > 0) {
                        size_t piece = size < window ? size : window;
                        if (piece > FRAME_DATA_MAX)
                                piece = FRAME_DATA_MAX;
                        fed = piece == 0;
                        raw_send(raw, fed ? FRAME_EOF : FRAME_DATA, CHANNEL_STDIN, input, piece);
                        input = (const uint8_t *)input + piece;
                        size -= piece;
                        window -= piece;
                }
                raw_next(raw, &frame);
                must(frame.type != FRAME_ERROR, "a command failed", &error);
                if (frame.type == FRAME_CREDIT)
                        window += load_u32(frame.payload);
                if (frame.type != FRAME_DATA)
                        continue;
                total += frame.length;
                owed += frame.length;
                if (owed >= STREAM_WINDOW / 4) {
                        uint8_t credit[4];
                        store_u32(credit, owed);
                        raw_send(raw, FRAME_CREDIT, frame.flags, credit, sizeof credit);
                        owed = 0;
                }
        }
        return total;
}

/* --------------------------------------------------- through the shim -- */

static void ping(cubby_box *box)
{
        cubby_error error = {0};
        must(box_ping(box, WAIT_MS, &error) == 0, "a ping", &error);
}

/* Output is dropped as it comes: what is measured is the way, not its keeping. */
static uint64_t run(cubby_box *box, const char *const *argv, const void *input, size_t size)
{
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        cubby_error error = {0};
        cubby_exec *exec = NULL;
        cubby_event event = {0};
        uint64_t total = 0;
        options.argv = argv;
        options.open_stdin = input != NULL;
        must(box_exec_start(box, &options, &exec, &error) == 0, "a command", &error);
        if (input != NULL)
                must(box_exec_write(exec, input, size, WAIT_MS, &error) == (int64_t)size &&
                                box_exec_close_stdin(exec, &error) == 0,
                        "input", &error);
        do {
                must(box_exec_next(exec, WAIT_MS, &event, &error) == 0, "an event", &error);
                if (event.kind != CUBBY_EVENT_EXIT)
                        total += event.size;
        } while (event.kind != CUBBY_EVENT_EXIT);
        box_exec_close(exec);
        return total;
}

/* -------------------------------------------------------------- both -- */

static void give_program(struct raw *raw, cubby_box *box, const char *path)
{
        static const char *const argv[] = {
                "/bin/sh", "-c", "cat >" LOAD " && chmod 755 " LOAD, NULL};
        cubby_error error = {0};
        AUTO_BUFFER struct buffer program;
        buffer_init(&program, FILE_BYTES_MAX);
        must(file_read_at(AT_FDCWD, path, &program, &error) == 0, "the program", &error);
        (void)raw_run(raw, argv, program.data, program.size);
        (void)run(box, argv, program.data, program.size);
}

static void compare_calls(struct raw *raw, cubby_box *box, size_t count)
{
        static const char *const nothing[] = {LOAD, "true", NULL};
        for (size_t i = 0; i < count; i++) {
                double begun = now_us();
                raw_ping(raw);
                double done = now_us();
                times[0][i] = done - begun;
                ping(box);
                times[1][i] = now_us() - done;
        }
        double bare = print("ping, raw port", times[0], count, "us");
        double whole = print("ping, through shim and library", times[1], count, "us");
        (void)printf("shim and library add to a ping %.1f us (p50)\n", whole - bare);
        count /= 4;
        for (size_t i = 0; i < count; i++) {
                double begun = now_us();
                (void)raw_run(raw, nothing, NULL, 0);
                double done = now_us();
                times[0][i] = done - begun;
                (void)run(box, nothing, NULL, 0);
                times[1][i] = now_us() - done;
        }
        (void)print("exec of a static true, raw port", times[0], count, "us");
        (void)print("exec of a static true, shim and library", times[1], count, "us");
}

static void compare_streams(struct raw *raw, cubby_box *box, size_t mib)
{
        static const char *const pieces[] = {"4096", "65536"};
        char bytes[32];
        size_t size = mib << 20;
        AUTO_FREE void *input = calloc(1, size);
        cubby_error error = {0};
        must(input != NULL, "memory", &error);
        (void)snprintf(bytes, sizeof bytes, "%zu", size);
        for (size_t i = 0; i < 2; i++) {
                const char *const out[] = {LOAD, "out", bytes, pieces[i], NULL};
                const char *const in[] = {LOAD, "in", pieces[i], NULL};
                double rate[4] = {0};
                for (int turn = 0; turn < 3; turn++) {
                        double begun = now_us();
                        must(raw_run(raw, out, NULL, 0) == size, "output is missing", &error);
                        double a = now_us();
                        must(run(box, out, NULL, 0) == size, "output is missing", &error);
                        double b = now_us();
                        (void)raw_run(raw, in, input, size);
                        double c = now_us();
                        (void)run(box, in, input, size);
                        const double took[] = {a - begun, b - a, c - b, now_us() - c};
                        for (int k = 0; k < 4; k++)
                                if ((double)size / took[k] > rate[k])
                                        rate[k] = (double)size / took[k];
                }
                for (int k = 0; k < 4; k++)
                        rate[k] *= 1e6 / (1 << 20);
                (void)printf("pieces of %5s bytes, best of 3, MiB/s: stdout %.0f raw, %.0f through "
                             "shim and library; stdin %.0f raw, %.0f\n",
                        pieces[i], rate[0], rate[1], rate[2], rate[3]);
                (void)fflush(stdout);
        }
}

int main(int argc, char **argv)
{
        size_t rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 2000;
        size_t mib = argc > 4 ? strtoul(argv[4], NULL, 10) : 64;
        cubby_error error = {0};
        cubby *host = NULL;
        cubby_box *boxes[2] = {NULL};
        struct raw raw = {0};
        if (argc < 3 || rounds < 100 || rounds > ROUNDS_MAX || mib < 1 || mib > 1024) {
                (void)fprintf(
                        stderr, "usage: bench_port IMAGE PATH-OF-GUEST-LOAD [ROUNDS [MIB]]\n");
                return 2;
        }
        cubby_open_options open = CUBBY_INIT(cubby_open_options);
        must(box_home_open(&open, &host, &error) == 0, "opening the home", &error);
        for (int i = 0; i < 2; i++) {
                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                options.image = argv[1];
                options.no_main = true;
                options.no_template = true;
                must(box_create(host, &options, &boxes[i], &error) == 0, "a box", &error);
        }
        raw_start(&raw, host, boxes[0]);
        must(box_start(boxes[1], &error) == 0, "starting", &error);
        give_program(&raw, boxes[1], argv[2]);
        compare_calls(&raw, boxes[1], rounds);
        compare_streams(&raw, boxes[1], mib);
        connection_close(&raw.connection);
        engine_microvm.destroy(raw.machine);
        for (int i = 0; i < 2; i++) {
                (void)box_remove(boxes[i], true, NULL);
                box_close(boxes[i]);
        }
        box_home_close(host);
        return 0;
}
