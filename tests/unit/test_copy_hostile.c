/* SPDX-License-Identifier: Apache-2.0 */

/* Copies with a box whose agent is hostile: a thread that answers on box.sock. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/box.h"
#include "tree/records.h"
#include "wire/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct agent {
        int fd; /* of the connection at hand */
        uint64_t stream;
        uint16_t operation;
        struct buffer scratch;
        bool failed; /* the library went away */
};

typedef void play_fn(struct agent *agent);

struct world {
        char root[64];
        int fd; /* of root */
        int listener;
        pthread_t thread;
        play_fn *_Atomic play; /* what the thread does with a call */
        struct cubby_box box;
};

/* ---- the agent's side ---- */

static void say(struct agent *agent, uint16_t type, uint16_t flags, const void *bytes, size_t size)
{
        const struct frame frame = {
                .length = (uint32_t)size, .type = type, .flags = flags, .stream = agent->stream};
        uint8_t header[FRAME_HEADER_SIZE];
        frame_encode_header(header, &frame);
        if (send(agent->fd, header, sizeof header, MSG_NOSIGNAL) != (ssize_t)sizeof header ||
                (size > 0 && send(agent->fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size))
                agent->failed = true;
}

static int put(void *data, const void *bytes, size_t size, cubby_error *err)
{
        const uint8_t *next = bytes;
        (void)err;
        while (size > 0) {
                size_t some = size < FRAME_DATA_MAX ? size : FRAME_DATA_MAX;
                say(data, FRAME_DATA, CHANNEL_STDOUT, next, some);
                next += some;
                size -= some;
        }
        return 0;
}

static struct tree_output output_of(struct agent *agent)
{
        return (struct tree_output){.put = put, .data = agent};
}

static void entry(
        struct agent *agent, uint8_t type, const char *path, const char *target, uint64_t size)
{
        const struct tree_output output = output_of(agent);
        const struct tree_entry entry = {.type = type,
                .path = path,
                .target = target,
                .mode = type == TREE_FOLDER ? 0755 : 06644,
                .size = size,
                .device_major = 1,
                .device_minor = 3};
        (void)tree_put_entry(&output, &entry, &agent->scratch, NULL);
}

static void file(struct agent *agent, const char *path)
{
        const struct tree_output output = output_of(agent);
        entry(agent, TREE_REGULAR, path, "", 4);
        (void)tree_put_data(&output, 0, "evil", 4, NULL);
        (void)tree_put_close(&output, 4, NULL);
}

static void end(struct agent *agent)
{
        const struct tree_output output = output_of(agent);
        (void)tree_put_end(&output, NULL);
        say(agent, FRAME_FILE_REPLY, 0, NULL, 0);
}

static void error(struct agent *agent, uint32_t code, uint32_t number, const char *text)
{
        const struct message_error message = {
                .code = code, .sys_errno = number, .text = {(const uint8_t *)text, strlen(text)}};
        buffer_clear(&agent->scratch);
        (void)message_error_encode(&agent->scratch, &message);
        say(agent, FRAME_ERROR, 0, agent->scratch.data, agent->scratch.size);
}

static void stat_reply(struct agent *agent, uint8_t type, const char *target)
{
        const struct message_file_info info = {
                .type = type, .mode = 0755, .target = {(const uint8_t *)target, strlen(target)}};
        buffer_clear(&agent->scratch);
        (void)message_file_info_encode(&agent->scratch, &info);
        say(agent, FRAME_FILE_REPLY, 0, agent->scratch.data, agent->scratch.size);
}

/* Waits until the library hangs up. */
static void wait_end(struct agent *agent)
{
        uint8_t bytes[4096];
        while (recv(agent->fd, bytes, sizeof bytes, 0) > 0)
                ;
}

static bool read_call(struct agent *agent)
{
        AUTO_BUFFER struct buffer in;
        buffer_init(&in, FRAME_TO_GUEST_MAX);
        struct frame frame;
        struct message_file_call call;
        while (frame_decode(in.data, in.size, FRAME_TO_GUEST_MAX, &frame) <= 0) {
                uint8_t bytes[4096];
                ssize_t got = recv(agent->fd, bytes, sizeof bytes, 0);
                if (got <= 0 || !buffer_append(&in, bytes, (size_t)got))
                        return false;
        }
        if (frame.type != FRAME_FILE_CALL ||
                !message_file_call_decode((struct slice){frame.payload, frame.length}, &call))
                return false;
        agent->stream = frame.stream;
        agent->operation = call.operation;
        return true;
}

static void *serve(void *data)
{
        struct world *world = data;
        struct agent agent = {0};
        buffer_init(&agent.scratch, TREE_ENTRY_MAX);
        for (;;) {
                agent.fd = accept4(world->listener, NULL, NULL, SOCK_CLOEXEC);
                if (agent.fd < 0)
                        break;
                if (read_call(&agent))
                        world->play(&agent);
                close_quietly(agent.fd);
        }
        buffer_free(&agent.scratch);
        return NULL;
}

/* ---- the library's side ---- */

static int set_up(void **state)
{
        static char name[] = "hostile";
        static char folder[] = "/";
        static char user[] = "";
        struct world *world = calloc(1, sizeof *world);
        assert_non_null(world);
        const char *base = getenv("TMPDIR");
        (void)snprintf(world->root, sizeof world->root, "%.30s/cubby-host-XXXXXX",
                base == NULL ? "/tmp" : base);
        assert_non_null(mkdtemp(world->root));
        world->fd = open(world->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(world->fd, "box", 0755), 0);
        assert_int_equal(mkdirat(world->fd, "outside", 0755), 0);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(
                address.sun_path, sizeof address.sun_path, "%.60s/box/box.sock", world->root);
        world->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(world->listener, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(listen(world->listener, 8), 0);
        world->box.dir_fd = openat(world->fd, "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        world->box.config.name = name;
        world->box.config.workdir = folder;
        world->box.config.user = user;
        atomic_init(&world->box.references, 1);
        assert_int_equal(pthread_create(&world->thread, NULL, serve, world), 0);
        *state = world;
        return 0;
}

static int tear_down(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        (void)shutdown(world->listener, SHUT_RDWR);
        (void)pthread_join(world->thread, NULL);
        assert_int_equal(atomic_load(&world->box.references), 1);
        close_quietly(world->listener);
        close_quietly(world->box.dir_fd);
        close_quietly(world->fd);
        assert_int_equal(dir_remove_at(AT_FDCWD, world->root, &err), 0);
        free(world);
        return 0;
}

static int count_in(int at, const char *name)
{
        int count = 0;
        AUTO_DIR DIR *dir = fdopendir(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (dir == NULL)
                return 0;
        for (const struct dirent *found; (found = readdir(dir)) != NULL;) {
                if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
                        continue;
                count++;
                assert_int_not_equal(strncmp(found->d_name, ".cubby-", 7), 0);
        }
        return count;
}

static bool never(void *data, uint64_t bytes, uint64_t total, uint64_t files)
{
        (void)data;
        (void)bytes;
        (void)total;
        (void)files;
        return false;
}

/* Out of the box to root/dst/copy; nothing appears but there. */
static int out(struct world *world, play_fn *play, cubby_copy_options *options, cubby_error *err)
{
        char target[100];
        (void)dir_remove_at(world->fd, "dst", NULL);
        assert_int_equal(mkdirat(world->fd, "dst", 0755), 0);
        world->play = play;
        *err = (cubby_error){0};
        (void)snprintf(target, sizeof target, "%.60s/dst/copy", world->root);
        int result = box_copy_out(&world->box, "/src", target, options, err);
        assert_int_equal(count_in(world->fd, "outside"), 0);
        assert_int_equal(count_in(world->fd, "."), 3);
        assert_true(count_in(world->fd, "dst") <= 1);
        (void)count_in(world->fd, "dst/copy");
        return result;
}

/* ---- what it sends ---- */

static void good(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        file(agent, "f");
        end(agent);
}

static void one_file(struct agent *agent, const char *path)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        file(agent, path);
        end(agent);
}

static void up(struct agent *agent)
{
        one_file(agent, "../x");
}

static void far_up(struct agent *agent)
{
        one_file(agent, "a/../../../outside/x");
}

static void absolute(struct agent *agent)
{
        one_file(agent, "/tmp/cubby-evil");
}

static void through_link(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        entry(agent, TREE_LINK, "l", "../../outside", 0);
        file(agent, "l/x");
        end(agent);
}

static void over_link(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        entry(agent, TREE_LINK, "l", "../../outside", 0);
        entry(agent, TREE_FOLDER, "l", "", 0);
        file(agent, "l/x");
        end(agent);
}

static void foreign_name(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        entry(agent, TREE_LINK, "l", "../../box/box.sock", 0);
        entry(agent, TREE_SAME, "x", "l", 0);
        end(agent);
}

static void device(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        entry(agent, TREE_CHAR, "null", "", 0);
        file(agent, "f");
        end(agent);
}

static void huge(struct agent *agent)
{
        const struct tree_output output = output_of(agent);
        entry(agent, TREE_REGULAR, "", "", TREE_SIZE_MAX);
        (void)tree_put_close(&output, TREE_SIZE_MAX, NULL);
        end(agent);
}

static void beyond_huge(struct agent *agent)
{
        entry(agent, TREE_REGULAR, "", "", UINT64_MAX);
        end(agent);
}

static void ends_early(struct agent *agent)
{
        const struct tree_output output = output_of(agent);
        entry(agent, TREE_REGULAR, "", "", 100);
        (void)tree_put_data(&output, 0, "evil", 4, NULL);
        end(agent);
}

static void no_root(struct agent *agent)
{
        end(agent);
}

static void second_root(struct agent *agent)
{
        entry(agent, TREE_FOLDER, "", "", 0);
        entry(agent, TREE_FOLDER, "", "", 0);
        end(agent);
}

static void more_than_end(struct agent *agent)
{
        const struct tree_output output = output_of(agent);
        entry(agent, TREE_FOLDER, "", "", 0);
        (void)tree_put_end(&output, NULL);
        file(agent, "f");
        say(agent, FRAME_FILE_REPLY, 0, NULL, 0);
}

static void reply_at_once(struct agent *agent)
{
        say(agent, FRAME_FILE_REPLY, 0, NULL, 0);
}

static void reply_within(struct agent *agent)
{
        entry(agent, TREE_REGULAR, "", "", 100);
        say(agent, FRAME_FILE_REPLY, 0, NULL, 0);
}

static void error_within(struct agent *agent)
{
        entry(agent, TREE_REGULAR, "", "", 100);
        error(agent, CUBBY_E_SYSTEM, EIO, "reading: \x1b[31mbad");
}

static void hang_up(struct agent *agent)
{
        entry(agent, TREE_REGULAR, "", "", 100);
}

static void too_long(struct agent *agent)
{
        static const uint8_t bytes[FRAME_DATA_MAX + 1];
        say(agent, FRAME_DATA, CHANNEL_STDOUT, bytes, sizeof bytes);
        wait_end(agent);
}

static void beyond_limits(struct agent *agent)
{
        uint8_t header[FRAME_HEADER_SIZE];
        const struct frame frame = {
                .length = UINT32_MAX, .type = FRAME_DATA, .stream = agent->stream};
        frame_encode_header(header, &frame);
        (void)!send(agent->fd, header, sizeof header, MSG_NOSIGNAL);
        wait_end(agent);
}

static void wrong_channel(struct agent *agent)
{
        say(agent, FRAME_DATA, CHANNEL_STDERR, "x", 1);
        wait_end(agent);
}

static void wrong_frame(struct agent *agent)
{
        say(agent, FRAME_EXEC_STARTED, 0, "\1\0\0\0", 4);
        wait_end(agent);
}

static void long_entry(struct agent *agent)
{
        uint8_t header[TREE_RECORD_HEADER] = {TREE_ENTRY, 0xff, 0xff, 0xff, 0xff};
        say(agent, FRAME_DATA, CHANNEL_STDOUT, header, sizeof header);
        wait_end(agent);
}

static void without_credit(struct agent *agent)
{
        const struct tree_output output = output_of(agent);
        static const uint8_t bytes[TREE_DATA_MAX];
        entry(agent, TREE_REGULAR, "", "", 16ULL * TREE_DATA_MAX);
        for (uint64_t i = 0; i < 16 && !agent->failed; i++)
                (void)tree_put_data(&output, i * TREE_DATA_MAX, bytes, sizeof bytes, NULL);
        (void)tree_put_close(&output, 16ULL * TREE_DATA_MAX, NULL);
        end(agent);
}

static void test_out(void **state)
{
        struct world *world = *state;
        static const struct {
                play_fn *play;
                int code; /* CUBBY_OK: the copy is good */
        } rows[] = {
                {good, CUBBY_OK},
                {up, CUBBY_E_PROTOCOL},
                {far_up, CUBBY_E_PROTOCOL},
                {absolute, CUBBY_E_PROTOCOL},
                {through_link, CUBBY_E_INVALID},
                {over_link, CUBBY_E_INVALID},
                {foreign_name, CUBBY_E_PROTOCOL},
                {device, CUBBY_E_UNSUPPORTED},
                {huge, CUBBY_E_LIMIT},
                {beyond_huge, CUBBY_E_PROTOCOL},
                {ends_early, CUBBY_E_PROTOCOL},
                {no_root, CUBBY_E_PROTOCOL},
                {second_root, CUBBY_E_PROTOCOL},
                {more_than_end, CUBBY_E_PROTOCOL},
                {reply_at_once, CUBBY_E_PROTOCOL},
                {reply_within, CUBBY_E_PROTOCOL},
                {error_within, CUBBY_E_SYSTEM},
                {hang_up, CUBBY_E_BOX_DEAD},
                {too_long, CUBBY_E_PROTOCOL},
                {beyond_limits, CUBBY_E_PROTOCOL},
                {wrong_channel, CUBBY_E_PROTOCOL},
                {wrong_frame, CUBBY_E_PROTOCOL},
                {long_entry, CUBBY_E_PROTOCOL},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
                cubby_error err;
                int result = out(world, rows[i].play, &options, &err);
                if (err.code != rows[i].code || result != (rows[i].code == CUBBY_OK ? 0 : -1))
                        fail_msg("row %zu: %d %s", i, err.code, err.message);
                assert_null(strchr(err.message, '\x1b'));
        }
        struct stat info;
        assert_int_equal(fstatat(world->fd, "dst/copy/f", &info, 0), -1);
        cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
        cubby_error err;
        assert_int_equal(out(world, good, &options, &err), 0);
        assert_int_equal(fstatat(world->fd, "dst/copy/f", &info, 0), 0);
        assert_int_equal(info.st_mode & 07777, 0644); /* it was sent as 06644 */
        /* it never gets further than a window ahead of what is written */
        int result = out(world, without_credit, &options, &err);
        assert_true(result == 0 || err.code == CUBBY_E_PROTOCOL);
}

static void test_silence(void **state)
{
        struct world *world = *state;
        cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
        cubby_error err;
        options.progress = never;
        int64_t begun = clock_monotonic_ms();
        assert_int_equal(out(world, wait_end, &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CANCELLED);
        options.progress = NULL;
        options.file.timeout_ms = 300;
        assert_int_equal(out(world, wait_end, &options, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        assert_true(clock_monotonic_ms() - begun < 5000);
}

/* ---- into it ---- */

static void folder_then(struct agent *agent, play_fn *play)
{
        if (agent->operation == FILE_STAT)
                stat_reply(agent, 'd', "");
        else
                play(agent);
        wait_end(agent);
}

static void loop_of_links(struct agent *agent)
{
        stat_reply(agent, 'l', "loop");
}

static void odd_type(struct agent *agent)
{
        stat_reply(agent, '?', "");
}

static void refuse(struct agent *agent)
{
        error(agent, CUBBY_E_NO_SPACE, ENOSPC, "writing: no space");
}

static void full(struct agent *agent)
{
        folder_then(agent, refuse);
}

static void reply_early(struct agent *agent)
{
        folder_then(agent, reply_at_once);
}

static void give_too_much(struct agent *agent)
{
        say(agent, FRAME_CREDIT, CHANNEL_STDIN, "\xff\xff\xff\x7f", 4);
}

static void much_credit(struct agent *agent)
{
        folder_then(agent, give_too_much);
}

static void send_data(struct agent *agent)
{
        say(agent, FRAME_DATA, CHANNEL_STDOUT, "x", 1);
}

static void data_back(struct agent *agent)
{
        folder_then(agent, send_data);
}

static void nothing(struct agent *agent)
{
        (void)agent;
}

static void silent(struct agent *agent)
{
        folder_then(agent, nothing);
}

static void test_in(void **state)
{
        struct world *world = *state;
        static const struct {
                play_fn *play;
                int code;
        } rows[] = {
                {loop_of_links, CUBBY_E_INVALID},
                {odd_type, CUBBY_E_PROTOCOL},
                {full, CUBBY_E_NO_SPACE},
                {reply_early, CUBBY_E_PROTOCOL},
                {much_credit, CUBBY_E_PROTOCOL},
                {data_back, CUBBY_E_PROTOCOL},
                {silent, CUBBY_E_TIMEOUT},
        };
        char source[100];
        (void)snprintf(source, sizeof source, "%.60s/big", world->root);
        AUTO_FD int big = open(source, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        static const uint8_t bytes[1 << 20];
        for (int i = 0; i < 8; i++)
                assert_int_equal(write_whole(big, bytes, sizeof bytes), 0);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_copy_options options = CUBBY_INIT(cubby_copy_options);
                cubby_error err = {0};
                options.file.timeout_ms = 1500;
                world->play = rows[i].play;
                assert_int_equal(box_copy_in(&world->box, source, "/x", &options, &err), -1);
                if (err.code != rows[i].code)
                        fail_msg("row %zu: %d %s", i, err.code, err.message);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_out, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_silence, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_in, set_up, tear_down),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
