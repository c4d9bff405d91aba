/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One machine by the microvm engine alone, without shim and box, for the tests
 * and measurements of the engine.
 *
 *     machine HOME AGENT ROOTFS DISK CONSOLE MEMORY_MIB UID STEP...
 *
 * Steps: hello (wait for the agent's first frame), pause, unpause, off (SHUTDOWN
 * frame, wait for the end), end (wait for the end), kill (the VMM, wait), jail
 * (print the VMM's pid, wait for a line on stdin). Prints "NAME VALUE" lines.
 */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "kernel/kernel.h"
#include "state/home.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_TIMEOUT_MS 60000

static void log_to_stderr(void *data, int level, const char *line)
{
        (void)fprintf(stderr, "%d %s\n", level, line);
}

static bool wait_readable(int fd)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        return poll(&poll_fd, 1, STEP_TIMEOUT_MS) == 1;
}

/* What the VMM has used of the processor until now: steadier than the clock on a
 * busy host. */
static void print_cpu_time(pid_t pid)
{
        char path[32];
        char text[1024];
        (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
        AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (got <= 0)
                return;
        text[got] = '\0';
        unsigned long user = 0;
        unsigned long system = 0;
        const char *after = strrchr(text, ')');
        if (after != NULL &&
                sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) == 2)
                (void)printf("cpu_ms %lu\n",
                        (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

static int wait_for_hello(const struct machine *machine, int64_t start_ns)
{
        AUTO_BUFFER struct buffer input;
        buffer_init(&input, FRAME_FROM_GUEST_MAX);
        struct frame frame;
        while (frame_decode(input.data, input.size, FRAME_FROM_GUEST_MAX, &frame) == 0) {
                uint8_t *room = buffer_reserve(&input, 4096);
                if (room == NULL || !wait_readable(engine_microvm.agent_fd(machine)))
                        return -1;
                ssize_t got = read(engine_microvm.agent_fd(machine), room, 4096);
                if (got <= 0)
                        return -1;
                input.size += (size_t)got;
        }
        (void)printf("hello_ms %.1f\n", (double)(clock_monotonic_ns() - start_ns) / 1e6);
        print_cpu_time(engine_microvm.pid(machine));
        return frame.type == FRAME_HELLO ? 0 : -1;
}

static int wait_for_end(struct machine *machine)
{
        char text[200];
        bool clean = false;
        if (!wait_readable(engine_microvm.exit_fd(machine)))
                return -1;
        engine_microvm.describe_exit(machine, text, sizeof text, &clean);
        (void)printf("clean %d\nend %s\n", clean ? 1 : 0, text);
        return 0;
}

static int shut_down(struct machine *machine)
{
        AUTO_BUFFER struct buffer frame;
        buffer_init(&frame, 256);
        uint8_t milliseconds[4];
        store_u32(milliseconds, 1000);
        if (!frame_append(&frame, FRAME_SHUTDOWN, 0, 0, 1, milliseconds, sizeof milliseconds) ||
                write_whole(engine_microvm.agent_fd(machine), frame.data, frame.size) < 0)
                return -1;
        return wait_for_end(machine);
}

static int step(struct machine *machine, const char *name, int64_t start_ns, cubby_error *err)
{
        if (strcmp(name, "hello") == 0)
                return wait_for_hello(machine, start_ns);
        if (strcmp(name, "pause") == 0)
                return engine_microvm.pause(machine, err);
        if (strcmp(name, "unpause") == 0)
                return engine_microvm.unpause(machine, err);
        if (strcmp(name, "off") == 0)
                return shut_down(machine);
        if (strcmp(name, "end") == 0)
                return wait_for_end(machine);
        if (strcmp(name, "kill") == 0)
                return kill(engine_microvm.pid(machine), SIGKILL) < 0 ? -1 : wait_for_end(machine);
        if (strcmp(name, "jail") == 0) {
                (void)printf("pid %ld\n", (long)engine_microvm.pid(machine));
                (void)fflush(stdout);
                return getchar() == EOF ? -1 : 0;
        }
        return cubby_error_set(err, CUBBY_E_INVALID, "unknown step");
}

static int run(char **argv, cubby_error *err)
{
        static const struct log log = {.write = log_to_stderr};
        struct home *home = NULL;
        struct kernel kernel = {0};
        struct machine_config config = {.vcpus = 1,
                .memory_bytes = strtoull(argv[6], NULL, 10) * 1024 * 1024,
                .uid = (uid_t)strtoul(argv[7], NULL, 10),
                .console = getenv("MACHINE_CONSOLE") != NULL,
                .log = &log};
        if (home_open(argv[1], &log, &home, err) < 0 ||
                kernel_ensure(home, getenv("MACHINE_KERNEL"), NULL, NULL, &kernel, err) < 0 ||
                kernel_open(home, &kernel, argv[2], &config.vmlinux_fd, &config.initramfs_fd, err) <
                        0)
                return -1;
        config.rootfs_fd = open(argv[3], O_RDONLY | O_CLOEXEC);
        config.disk_fd = open(argv[4], O_RDWR | O_CLOEXEC);
        config.console_fd = open(argv[5], O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (config.rootfs_fd < 0 || config.disk_fd < 0 || config.console_fd < 0)
                return cubby_error_errno(err, errno, "opening the files");
        struct machine *machine = NULL;
        int64_t start_ns = clock_monotonic_ns();
        if (engine_microvm.start(&config, &machine, err) < 0)
                return -1;
        (void)printf("start_ms %.1f\nisolation %s\n",
                (double)(clock_monotonic_ns() - start_ns) / 1e6,
                isolation_name(engine_microvm.isolation(machine)));
        int result = 0;
        for (char **name = argv + 8; *name != NULL && result == 0; name++) {
                result = step(machine, *name, start_ns, err);
                if (result < 0)
                        (void)printf("failed %s\n", *name);
        }
        engine_microvm.destroy(machine);
        kernel_clear(&kernel);
        home_close(home);
        return result;
}

int main(int argc, char **argv)
{
        if (argc < 9) {
                (void)fprintf(
                        stderr, "machine HOME AGENT ROOTFS DISK CONSOLE MEMORY_MIB UID STEP...\n");
                return 2;
        }
        cubby_error err = {0};
        int result = run(argv, &err);
        if (result < 0)
                (void)fprintf(stderr, "machine: %s\n", err.message);
        return result < 0 ? 1 : 0;
}
