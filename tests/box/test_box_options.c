/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/fd.h"
#include "box/box.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define IMAGE "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING ((const char *const[]){NULL})

static cubby host;
static char place[64];

/* An image as its record alone: planning a box needs no disk. */
static void put(const char *name, const char *id, const char *config)
{
        struct image_record record = {.id = (char *)(uintptr_t)id,
                .name = (char *)(uintptr_t)name,
                .manifest = (char[]){"{}"},
                .config = (char *)(uintptr_t)config,
                .architecture = (char[]){"amd64"}};
        assert_int_equal(image_record_put(host.home, &record, NULL), 0);
}

static int set_up(void **state)
{
        (void)snprintf(place, sizeof place, "/tmp/cubby-options-XXXXXX");
        assert_non_null(mkdtemp(place));
        assert_int_equal(home_open(place, NULL, &host.home, NULL), 0);
        put("docker.io/library/full:latest", IMAGE,
                "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{"
                "\"Env\":[\"PATH=/bin\",\"A=image\"],\"Entrypoint\":[\"/entry\",\"-e\"],"
                "\"Cmd\":[\"one\",\"two\"],\"WorkingDir\":\"/work\",\"User\":\"app\","
                "\"StopSignal\":\"SIGINT\"}}");
        put("docker.io/library/bare:latest",
                "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{}}");
        put("docker.io/library/cmd:latest",
                "sha256:2123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"Cmd\":[\"sh\"]}}");
        return 0;
}

static int tear_down(void **state)
{
        home_close(host.home);
        return dir_remove_at(AT_FDCWD, place, NULL);
}

static void assert_list(char *const *got, const char *const *want)
{
        size_t i = 0;
        for (; want[i] != NULL; i++) {
                assert_non_null(got[i]);
                assert_string_equal(got[i], want[i]);
        }
        assert_null(got[i]);
}

/* Docker's table of ENTRYPOINT and CMD. */
static void test_commands(void **state)
{
        const struct {
                const char *image;
                const char *const *entrypoint, *const *command;
                const char *const *want; /* NULL: refused */
        } rows[] = {
                {"full", NULL, NULL, LIST("/entry", "-e", "one", "two")},
                {"full", NULL, LIST("three"), LIST("/entry", "-e", "three")},
                {"full", LIST("/other"), NULL, LIST("/other")},
                {"full", LIST("/other"), LIST("x", "y"), LIST("/other", "x", "y")},
                {"full", NOTHING, LIST("sh", "-c", "true"), LIST("sh", "-c", "true")},
                {"full", NOTHING, NULL, NULL},
                {"cmd", NULL, NULL, LIST("sh")},
                {"cmd", NULL, LIST("ls", "-l"), LIST("ls", "-l")},
                {"cmd", LIST("cat"), NULL, LIST("cat")},
                {"cmd", NULL, NOTHING, NULL},
                {"bare", NULL, NULL, NULL},
                {"bare", NOTHING, NOTHING, NULL},
                {"bare", NULL, LIST("x"), LIST("x")},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                cubby_box_options options = CUBBY_INIT(cubby_box_options);
                options.image = rows[i].image;
                options.entrypoint = rows[i].entrypoint;
                options.command = rows[i].command;
                AUTO_CONFIG struct box_config config = {0};
                cubby_error err = {0};
                int result = box_plan(&host, &options, &config, &err);
                assert_int_equal(result, rows[i].want == NULL ? -1 : 0);
                if (result == 0)
                        assert_list(config.argv, rows[i].want);
                else
                        assert_int_equal(err.code, CUBBY_E_INVALID);
        }
}

static void test_defaults(void **state)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "full";
        options.env = LIST("A=mine", "B=new", "B=newer", "EMPTY=");
        AUTO_CONFIG struct box_config config = {0};
        assert_int_equal(box_plan(&host, &options, &config, NULL), 0);
        assert_list(config.env, LIST("PATH=/bin", "A=mine", "B=newer", "EMPTY="));
        assert_string_equal(config.workdir, "/work");
        assert_string_equal(config.user, "app");
        assert_string_equal(config.stop_signal, "SIGINT");
        assert_string_equal(config.image_name, "full");
        assert_string_equal(config.image_id, IMAGE);
        assert_string_equal(config.engine, "microvm");
        assert_string_equal(config.accel, "auto");
        assert_int_equal(config.memory_bytes, 512ULL << 20);
        assert_int_equal(config.disk_bytes, 8ULL << 30);
        assert_int_equal(config.cpu_milli, 1000);
        assert_int_equal(config.pids_max, 4096);
        assert_int_equal(config.boot_timeout_ms, 60000);
        assert_int_equal(strlen(config.id), 32);
        assert_memory_equal(config.hostname, config.id, 12);
        assert_int_equal(strlen(config.hostname), 12);
        assert_non_null(strchr(config.name, '_'));
}

static void test_given(void **state)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "0123456";
        options.name = "web.1";
        options.hostname = "web";
        options.no_main = true;
        options.workdir = "/";
        options.user = "1000:1000";
        options.labels = LIST("a=b", "c=");
        options.memory_bytes = (64ULL << 20) + 1;
        options.cpu_milli = 1500;
        options.stop_signal = "9";
        options.ttl_ms = 1;
        AUTO_CONFIG struct box_config config = {0};
        assert_int_equal(box_plan(&host, &options, &config, NULL), 0);
        assert_string_equal(config.name, "web.1");
        assert_string_equal(config.workdir, "/");
        assert_string_equal(config.user, "1000:1000");
        assert_int_equal(config.memory_bytes, 65ULL << 20); /* whole MiB, upwards */
        assert_null(config.argv[0]);
        assert_list(config.labels, LIST("a=b", "c="));
}

struct bad_row {
        cubby_box_options options;
        int code;
        const char *word; /* in the message */
};

#define BAD(kind, text, ...)                                                 \
        {                                                                    \
                {.size = sizeof(cubby_box_options), __VA_ARGS__}, kind, text \
        }
#define WRONG(text, ...) BAD(CUBBY_E_INVALID, text, .image = "full", __VA_ARGS__)

static void test_refused(void **state)
{
        const struct bad_row rows[] = {
                BAD(CUBBY_E_INVALID, "image", .image = NULL),
                BAD(CUBBY_E_INVALID, "image", .image = ""),
                BAD(CUBBY_E_NOT_FOUND, "absent", .image = "absent"),
                BAD(CUBBY_E_NOT_FOUND, "full:9", .image = "full:9"),
                BAD(CUBBY_E_NOT_FOUND, "ABCD", .image = "ABCD"),
                BAD(CUBBY_E_NOT_FOUND, "../x", .image = "../x"),
                WRONG("memory", .memory_bytes = 1),
                WRONG("64 MiB", .memory_bytes = 63ULL << 20),
                WRONG("memory", .memory_bytes = 1ULL << 60),
                WRONG("memory", .memory_bytes = UINT64_MAX),
                WRONG("cpus", .cpu_milli = 1),
                WRONG("cpus", .cpu_milli = 64001),
                WRONG("cpus", .cpu_milli = UINT32_MAX),
                WRONG("disk", .disk_bytes = 1),
                WRONG("disk", .disk_bytes = 1ULL << 62),
                WRONG("disk", .disk_bytes = UINT64_MAX),
                WRONG("process limit", .pids_max = 1),
                WRONG("process limit", .pids_max = UINT32_MAX),
                WRONG("time to live", .ttl_ms = -1),
                WRONG("time to live", .ttl_ms = INT64_MAX),
                WRONG("boot timeout", .boot_timeout_ms = -5),
                WRONG("name", .name = ""),
                WRONG("name", .name = "-a"),
                WRONG("name", .name = "a b"),
                WRONG("name", .name = "a/../b"),
                WRONG("name", .name = "\xc3\xa9"),
                WRONG("name",
                        .name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
                WRONG("hostname", .hostname = "a_b"),
                WRONG("hostname", .hostname = "-a"),
                WRONG("hostname", .hostname = ""),
                WRONG("accelerator", .accel = "hvf"),
                WRONG("engine", .engine = "Micro VM"),
                WRONG("signal", .stop_signal = "SIGNOPE"),
                WRONG("signal", .stop_signal = ""),
                WRONG("directory", .workdir = "relative"),
                WRONG("=x", .env = LIST("=x")),
                WRONG("NAME", .env = LIST("NAME")),
                WRONG("1A=x", .env = LIST("GOOD=1", "1A=x")),
                WRONG("A-B=x", .env = LIST("A-B=x")),
                WRONG("A B=x", .env = LIST("A B=x")),
                WRONG("A\n=x", .env = LIST("A\n=x")),
                WRONG("BASH_FUNC_x%%", .env = LIST("BASH_FUNC_x%%=() { :; }")),
                WRONG("NAME=VALUE", .env = LIST("")),
                WRONG("labels", .labels = LIST("plain")),
                WRONG("labels", .labels = LIST("=v")),
                WRONG("command", .no_main = true, .command = LIST("sh")),
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct box_config config = {0};
                cubby_error err = {0};
                int result = box_plan(&host, &rows[i].options, &config, &err);
                if (result != -1 || err.code != rows[i].code ||
                        strstr(err.message, rows[i].word) == NULL)
                        print_message("row %zu (%s): %d, code %d, '%s'\n", i, rows[i].word, result,
                                err.code, err.message);
                assert_int_equal(result, -1);
                assert_int_equal(err.code, rows[i].code);
                assert_non_null(strstr(err.message, rows[i].word));
                assert_null(config.id);
        }
}

static void test_names_made_up(void **state)
{
        char first[64];
        char second[64];
        size_t same = 0;
        for (int i = 0; i < 200; i++) {
                box_make_name(first, i % 2 == 0);
                box_make_name(second, i % 2 == 0);
                same += strcmp(first, second) == 0;
                assert_true(strlen(first) <= 63);
                assert_int_equal(
                        strspn(first, "abcdefghijklmnopqrstuvwxyz_0123456789"), strlen(first));
        }
        assert_true(same < 10);
}

static void count_lines(void *data, int level, const char *line)
{
        assert_int_equal(level, LOG_WARNING);
        assert_non_null(strstr(line, "no usable KVM here"));
        ++*(int *)data;
}

/* Emulation is announced once for a home and a boot of the host. */
/* Put over an old file, and over what was planted under the draft's name; nothing
 * is left beside it. */
static void test_quick_write(void **state)
{
        (void)state;
        char path[] = "/tmp/cubby-quick-XXXXXX";
        assert_non_null(mkdtemp(path));
        AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cubby_error err = {0};
        static const char *const texts[] = {"first", "the second, longer", "3"};
        for (size_t i = 0; i < 3; i++) {
                AUTO_BUFFER struct buffer read;
                buffer_init(&read, 100);
                assert_int_equal(
                        box_write_quickly(dir, "name", texts[i], strlen(texts[i]), &err), 0);
                assert_int_equal(file_read_at(dir, "name", &read, &err), 0);
                assert_string_equal(buffer_text(&read), texts[i]);
        }
        /* a link is replaced, not followed */
        assert_int_equal(symlinkat("name", dir, "link"), 0);
        assert_int_equal(box_write_quickly(dir, "link", "new", 3, &err), 0);
        struct stat info;
        assert_int_equal(fstatat(dir, "link", &info, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISREG(info.st_mode));
        assert_int_equal(unlinkat(dir, "link", 0), 0);
        assert_int_equal(unlinkat(dir, "name", 0), 0);
        assert_int_equal(rmdir(path), 0); /* empty: no draft is left */
}

static void test_emulation_is_announced_once(void **state)
{
        int lines = 0;
        host.log = (struct log){.write = count_lines, .data = &lines};
        box_announce_emulation(&host);
        assert_int_equal(lines, 1);
        box_announce_emulation(&host);
        assert_int_equal(lines, 1);
        AUTO_FD int fd = openat(home_folder(host.home, HOME_LOCKS), "emulation", O_RDWR);
        assert_int_equal(pwrite(fd, "00000000", 8, 0), 8); /* an earlier boot */
        box_announce_emulation(&host);
        assert_int_equal(lines, 2);
        assert_int_equal(ftruncate(fd, 3), 0); /* a damaged note */
        box_announce_emulation(&host);
        box_announce_emulation(&host);
        assert_int_equal(lines, 3);
        host.log = (struct log){0};
}

/* The folder belongs to the box's own user: what stands there is never written through. */
static void test_quick_writes_among_planted_files(void **state)
{
        char path[] = "/tmp/cubby-quick-XXXXXX";
        assert_non_null(mkdtemp(path));
        AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(dir >= 0);
        char guess[64];
        (void)snprintf(guess, sizeof guess, ".started.%lx", (unsigned long)getpid());
        assert_int_equal(file_publish_at(dir, "victim", "old", 3, 0600, NULL), 0);
        assert_int_equal(symlinkat("victim", dir, guess), 0);
        assert_int_equal(symlinkat("victim", dir, "started"), 0);
        cubby_error err = {0};
        assert_int_equal(box_write_quickly(dir, "started", "new", 3, &err), 0);
        static const struct {
                const char *name;
                const char *content;
        } files[] = {{"victim", "old"}, {"started", "new"}};
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
                AUTO_BUFFER struct buffer content = {.maximum = 16};
                assert_int_equal(file_read_at(dir, files[i].name, &content, &err), 0);
                assert_int_equal(content.size, 3);
                assert_memory_equal(content.data, files[i].content, 3);
        }
        struct stat info;
        assert_int_equal(fstatat(dir, "started", &info, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISREG(info.st_mode));
        /* in the way of the name itself: said, and no draft is left */
        assert_int_equal(mkdirat(dir, "exit", 0700), 0);
        assert_int_equal(mkdirat(dir, "exit/inner", 0700), 0);
        assert_int_equal(box_write_quickly(dir, "exit", "new", 3, &err), -1);
        assert_int_equal(unlinkat(dir, guess, 0), 0);
        AUTO_DIR DIR *listing = fdopendir(take_fd(&dir));
        const struct dirent *entry;
        while ((entry = readdir(listing)) != NULL)
                assert_true(entry->d_name[0] != '.' || strcmp(entry->d_name, ".") == 0 ||
                        strcmp(entry->d_name, "..") == 0);
        assert_int_equal(dir_remove_at(AT_FDCWD, path, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_commands),
                cmocka_unit_test(test_defaults),
                cmocka_unit_test(test_given),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_names_made_up),
                cmocka_unit_test(test_quick_writes_among_planted_files),
                cmocka_unit_test(test_quick_write),
                cmocka_unit_test(test_emulation_is_announced_once),
        };
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
