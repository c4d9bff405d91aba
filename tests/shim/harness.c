/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SLOT 77U
#define ARGS_MAX 64
#define LAUNCHED_MAX 256

/* Of this program's life: a failed test leaves its shim behind. */
static pid_t launched[LAUNCHED_MAX];
static size_t launched_count;

int kill_leftovers(void **state)
{
        for (size_t i = 0; i < launched_count; i++) {
                /* as long as it was not waited for, the number is still its own */
                if (waitpid(launched[i], NULL, WNOHANG) != 0)
                        continue;
                (void)kill(launched[i], SIGKILL);
                (void)waitpid(launched[i], NULL, 0);
        }
        return 0;
}

int64_t soon(void)
{
        return deadline_after_ms(SOON_MS);
}

static char *copy(const char *text)
{
        char *made = strdup(text);
        assert_non_null(made);
        return made;
}

static char **copy_list(const char *const *list)
{
        size_t count = 0;
        while (list != NULL && list[count] != NULL)
                count++;
        char **made = calloc(count + 1, sizeof *made);
        assert_non_null(made);
        for (size_t i = 0; list != NULL && i < count; i++)
                made[i] = copy(list[i]);
        return made;
}

static void write_config(const struct test_box *box, const struct box_setup *setup)
{
        static const char *const env[] = {"PATH=/bin", "COLOUR=blue", NULL};
        struct box_config config = {.id = copy("0123456789abcdef0123456789abcdef"),
                .name = copy("tester"),
                .hostname = copy("tester"),
                .image_id =
                        copy("sha256:"
                             "0000000000000000000000000000000000000000000000000000000000000000"),
                .image_name = copy("image:latest"),
                .engine = copy(setup->engine == NULL ? "fake" : setup->engine),
                .accel = copy("auto"),
                .kernel = copy(""),
                .argv = copy_list(setup->argv),
                .env = copy_list(env),
                .labels = copy_list(NULL),
                .workdir = copy(""),
                .user = copy(""),
                .stop_signal = copy("SIGTERM"),
                .tty = setup->tty,
                .open_stdin = setup->open_stdin,
                .memory_bytes = 256U << 20,
                .cpu_milli = 1500,
                .disk_bytes = 256U << 20,
                .pids_max = 512,
                .ttl_ms = setup->ttl_ms,
                .boot_timeout_ms = setup->boot_timeout_ms == 0 ? SOON_MS : setup->boot_timeout_ms,
                .slot = TEST_SLOT,
                .created_ns = clock_realtime_ns()};
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        cubby_error error;
        cubby_error_clear(&error);
        if (box_config_encode(&config, &json, &error) < 0 ||
                file_publish_at(box->dir_fd, BOX_CONFIG_NAME, json.data, json.size, 0600, &error) <
                        0)
                fail_msg("%s", error.message);
        box_config_clear(&config);
}

void box_make(struct test_box *box, const struct box_setup *setup)
{
        *box = (struct test_box){.lock_fd = -1, .shim = CHILD_NONE};
        (void)snprintf(box->path, sizeof box->path, "/tmp/cubby-shim-test-XXXXXX");
        assert_non_null(mkdtemp(box->path));
        box->dir_fd = open(box->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(box->dir_fd >= 0);
        write_config(box, setup);
        int disk = openat(box->dir_fd, BOX_DISK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(disk >= 0);
        if (geteuid() == 0) {
                uid_t uid = BOX_UID_FIRST + TEST_SLOT;
                assert_int_equal(fchown(box->dir_fd, uid, uid), 0);
                assert_int_equal(fchown(disk, uid, uid), 0);
        }
        close(disk);
}

static void read_reports(struct test_box *box, int status_fd)
{
        for (;;) {
                struct pollfd poll_fd = {.fd = status_fd, .events = POLLIN};
                assert_int_equal(poll(&poll_fd, 1, 2 * SOON_MS), 1);
                struct shim_report report;
                ssize_t got = recv(status_fd, &report, sizeof report, 0);
                assert_true(got == 0 || got == (ssize_t)sizeof report);
                if (got == 0)
                        return;
                if (report.kind == REPORT_PROGRESS) {
                        size_t used = strlen(box->stages);
                        (void)snprintf(
                                box->stages + used, sizeof box->stages - used, "%s ", report.text);
                        continue;
                }
                if (report.kind == REPORT_MACHINE) {
                        assert_string_equal(report.text, "none"); /* of the engines for tests */
                        continue;
                }
                assert_false(box->reported); /* one verdict */
                box->report = report;
                box->reported = true;
        }
}

void box_launch(struct test_box *box, const struct box_setup *setup)
{
        int ends[2];
        box->reported = false;
        box->stages[0] = '\0';
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        int lock = openat(box->dir_fd, BOX_LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(lock >= 0);
        assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
        const char *program = setup->program != NULL ? setup->program : getenv("CUBBY_TEST_SHIM");
        assert_non_null(program);
        char script[64];
        (void)snprintf(script, sizeof script, "CUBBY_TEST_SCRIPT=%s",
                setup->script == NULL ? "" : setup->script);
        const char *const argv[] = {program, NULL};
        /* nobody may look into a shim, so it cannot be searched for leaks */
        const char *const env[] = {
                "PATH=/usr/bin:/bin", "ASAN_OPTIONS=detect_leaks=0:exitcode=99", script, NULL};
        struct spawn_fd fds[] = {
                {box->dir_fd, SHIM_FD_BOX}, {ends[1], SHIM_FD_STATUS}, {lock, SHIM_FD_LOCK}};
        struct spawn_options options = {
                .argv = argv, .env = env, .fds = fds, .fd_count = 3, .new_session = true};
        cubby_error error;
        cubby_error_clear(&error);
        if (spawn(&options, &box->shim, &error) < 0)
                fail_msg("%s", error.message);
        assert_true(launched_count < LAUNCHED_MAX);
        launched[launched_count++] = box->shim.pid;
        close(ends[1]);
        if (setup->keeps_lock)
                box->lock_fd = lock;
        else
                close(lock);
        read_reports(box, ends[0]);
        close(ends[0]);
}

void box_start(struct test_box *box, const struct box_setup *setup)
{
        box_make(box, setup);
        box_launch(box, setup);
        if (!box->reported || box->report.kind != REPORT_READY)
                fail_msg("not ready: %s", box->report.text);
}

struct client *box_client(const struct test_box *box)
{
        struct client *client = NULL;
        cubby_error error;
        cubby_error_clear(&error);
        if (client_connect(box->dir_fd, soon(), &client, &error) < 0)
                fail_msg("connecting: %s", error.message);
        return client;
}

void box_wait_end(struct test_box *box, struct box_exit *ret)
{
        int status = 0;
        cubby_error error;
        cubby_error_clear(&error);
        if (child_wait(&box->shim, deadline_after_ms(2 * SOON_MS), &status, &error) < 0)
                fail_msg("the shim does not end: %s", error.message);
        assert_true(WIFEXITED(status));
        bool start_failed = box->reported && box->report.kind == REPORT_FAILED;
        assert_int_equal(WEXITSTATUS(status), start_failed ? 1 : 0);
        assert_int_equal(faccessat(box->dir_fd, BOX_SOCKET_NAME, F_OK, 0), -1);
        int lock = openat(box->dir_fd, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
        close(lock);
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, 1U << 16);
        if (file_read_at(box->dir_fd, BOX_EXIT_NAME, &json, &error) < 0 ||
                box_exit_decode(json.data, json.size, ret, &error) < 0)
                fail_msg("the exit file: %s", error.message);
}

void box_remove(struct test_box *box)
{
        child_kill(&box->shim);
        close(box->dir_fd);
        close_quietly(take_fd(&box->lock_fd));
        assert_int_equal(dir_remove_at(AT_FDCWD, box->path, NULL), 0);
}

void box_drop(struct test_box *box)
{
        struct client *client = box_client(box);
        send_u32(client, FRAME_SHIM_KILL, 0, client_new_stream(client), 9);
        struct box_exit exit;
        box_wait_end(box, &exit);
        assert_string_equal(exit.reason, "killed");
        client_close(client);
        box_remove(box);
}

static void must_send(struct client *client, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        cubby_error error;
        cubby_error_clear(&error);
        if (client_send(client, type, flags, stream, payload, size, soon(), &error) < 0)
                fail_msg("sending %s: %s", frame_type_name(type), error.message);
}

void send_u32(
        struct client *client, uint16_t type, uint16_t flags, uint64_t stream, uint32_t number)
{
        uint8_t payload[4];
        store_u32(payload, number);
        must_send(client, type, flags, stream, payload, sizeof payload);
}

void send_exec_full(struct client *client, uint64_t stream, const struct message_exec *exec)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, FRAME_TO_GUEST_MAX);
        assert_true(message_exec_encode(&payload, exec));
        must_send(client, FRAME_EXEC, 0, stream, payload.data, payload.size);
}

uint64_t send_exec(struct client *client, uint32_t flags, const char *const *argv)
{
        struct slice words[ARGS_MAX];
        struct slice env = {.data = (const uint8_t *)"COLOUR=green", .size = 12};
        struct message_exec exec = {
                .flags = flags, .argv = words, .env = &env, .envc = 1, .rows = 24, .columns = 80};
        while (argv[exec.argc] != NULL) {
                words[exec.argc] = (struct slice){
                        .data = (const uint8_t *)argv[exec.argc], .size = strlen(argv[exec.argc])};
                exec.argc++;
        }
        uint64_t stream = client_new_stream(client);
        send_exec_full(client, stream, &exec);
        return stream;
}

void collect(struct client *client, uint64_t stream, struct outcome *ret)
{
        *ret = (struct outcome){0};
        buffer_init(&ret->out, 64U << 20);
        buffer_init(&ret->err, 64U << 20);
        for (;;) {
                struct frame frame;
                cubby_error error;
                cubby_error_clear(&error);
                if (client_next(client, soon(), &frame, &error) < 0)
                        fail_msg("waiting for the end of a command: %s", error.message);
                if (frame.stream != stream)
                        continue;
                struct slice payload = {.data = frame.payload, .size = frame.length};
                if (frame.type == FRAME_DATA) {
                        struct buffer *to = frame.flags == CHANNEL_STDERR ? &ret->err : &ret->out;
                        assert_true(buffer_append(to, frame.payload, frame.length));
                        uint8_t credit[4];
                        store_u32(credit, frame.length);
                        /* a shim that has sent everything may be gone already */
                        (void)client_send(client, FRAME_CREDIT, frame.flags, stream, credit,
                                sizeof credit, soon(), NULL);
                } else if (frame.type == FRAME_ERROR) {
                        ret->failed = true;
                        (void)client_error(payload, &ret->error);
                        return;
                } else if (frame.type == FRAME_EXIT) {
                        assert_true(message_exit_decode(payload, &ret->exit));
                        return;
                }
        }
}

void run(struct client *client, const char *const *argv, struct outcome *ret)
{
        collect(client, send_exec(client, 0, argv), ret);
}

void outcome_free(struct outcome *outcome)
{
        buffer_free(&outcome->out);
        buffer_free(&outcome->err);
}

void must_next(struct client *client, struct frame *ret)
{
        cubby_error error;
        cubby_error_clear(&error);
        if (client_next(client, soon(), ret, &error) < 0)
                fail_msg("waiting for a frame: %s", error.message);
}

void assert_text(const struct buffer *buffer, const char *text)
{
        if (buffer->size != strlen(text) ||
                (buffer->size > 0 && memcmp(buffer->data, text, buffer->size) != 0))
                fail_msg("'%.*s' is not '%s'", (int)buffer->size, (const char *)buffer->data, text);
}

uint64_t send_attach(struct client *client, bool replay)
{
        uint64_t stream = client_new_stream(client);
        uint8_t flag = replay;
        must_send(client, FRAME_SHIM_ATTACH, 0, stream, &flag, 1);
        return stream;
}

void get_status(struct client *client, struct message_status *ret)
{
        struct frame frame;
        cubby_error error;
        cubby_error_clear(&error);
        if (client_call(client, FRAME_SHIM_STATUS, NULL, 0, FRAME_SHIM_STATUS_REPLY, soon(), &frame,
                    &error) < 0)
                fail_msg("status: %s", error.message);
        assert_true(message_status_decode(
                (struct slice){.data = frame.payload, .size = frame.length}, ret));
}

long resident_pages(const struct test_box *box)
{
        char path[64];
        char text[128] = "";
        (void)snprintf(path, sizeof path, "/proc/%ld/statm", (long)box->shim.pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        ssize_t got = read(fd, text, sizeof text - 1);
        close(fd);
        long size = 0;
        char *rest = text;
        if (got > 0)
                size = strtol(strchr(text, ' ') + 1, &rest, 10);
        return size;
}

int64_t processor_ms(const struct test_box *box)
{
        char path[64];
        char text[1024] = "";
        unsigned long user = 0;
        unsigned long system = 0;
        (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)box->shim.pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
        close(fd);
        const char *after_name = strrchr(text, ')');
        assert_non_null(after_name);
        assert_int_equal(
                sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                        &user, &system),
                2);
        return (int64_t)((user + system) * 1000) / sysconf(_SC_CLK_TCK);
}

int64_t ping(struct client *client)
{
        struct frame frame;
        cubby_error error;
        cubby_error_clear(&error);
        int64_t start = clock_monotonic_ns();
        if (client_call(client, FRAME_PING, "echo", 4, FRAME_PONG, soon(), &frame, &error) < 0)
                fail_msg("ping: %s", error.message);
        assert_int_equal(frame.length, 4);
        assert_memory_equal(frame.payload, "echo", 4);
        return clock_monotonic_ns() - start;
}

bool closes_within(struct client *client, int64_t ms)
{
        int64_t deadline = deadline_after_ms(ms);
        for (;;) {
                struct frame frame;
                cubby_error error;
                cubby_error_clear(&error);
                if (client_next(client, deadline, &frame, &error) < 0)
                        return error.code == CUBBY_E_BOX_DEAD;
        }
}
