/* SPDX-License-Identifier: Apache-2.0 */
/* What a taken-over VMM could reach: jail_probe runs in the exact jail. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spawn.h"
#include "engine/microvm/jail.h"
#include "engine/microvm/landlock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define OTHER_UID 54321U
#define FILE_FD 5
#define LIFELINE_FD 3
#define DISK_BYTES (1024ULL * 1024)
#define CLOSED_TO_USERS 77

static char home_file[] = "/tmp/cubby-jail-XXXXXX";
static char abstract_name[64];
static uint16_t tcp_port;

static int set_up(void **state)
{
        /* readable for all: the jail has to hide it, not its mode */
        int fd = mkstemp(home_file);
        if (fd < 0 || fchmod(fd, 0644) < 0)
                return -1;
        (void)close(fd);
        int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        if (bind(tcp, (struct sockaddr *)&address, size) < 0 || listen(tcp, 4) < 0 ||
                getsockname(tcp, (struct sockaddr *)&address, &size) < 0)
                return -1;
        tcp_port = ntohs(address.sin_port);
        int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        (void)snprintf(abstract_name, sizeof abstract_name, "cubby-jail-%ld", (long)getpid());
        memcpy(name.sun_path + 1, abstract_name, strlen(abstract_name));
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract_name));
        return bind(local, (struct sockaddr *)&name, size) < 0 || listen(local, 4) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
        return unlink(home_file);
}

struct run {
        bool namespaces;
        uid_t uid;
        struct buffer output;
        long landlock;
};

/* Runs the probe; its output is NUL-terminated. 0 or -1 with the error set. */
static int run_probe(struct run *run, cubby_error *err)
{
        char port[16];
        char pid[16];
        (void)snprintf(port, sizeof port, "%u", tcp_port);
        (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
        const char *const argv[] = {JAIL_PROBE, home_file, pid, port, abstract_name, "5", NULL};
        const char *const environment[] = {NULL};
        int lifeline[2];
        int out[2];
        static const int files[] = {FILE_FD};
        AUTO_FD int file = open(JAIL_PROBE, O_RDONLY | O_CLOEXEC);
        if (file < 0 || pipe2(out, O_CLOEXEC) < 0 ||
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lifeline) < 0)
                return cubby_error_errno(err, errno, "preparing");
        AUTO_FD int out_read = out[0];
        AUTO_FD int out_write = out[1];
        AUTO_FD int theirs = lifeline[1];
        AUTO_FD int ours = fcntl(lifeline[0], F_DUPFD_CLOEXEC, 64);
        (void)close(lifeline[0]);
        struct jail_spec spec = {.program = JAIL_PROBE,
                .uid = run->uid,
                .namespaces = run->namespaces,
                .memory_bytes = 1 << 20,
                .disk_bytes = DISK_BYTES,
                .files = files,
                .file_count = 1,
                .parent_end = ours,
                .child_end = LIFELINE_FD};
        AUTO_FREE struct jail *jail = calloc(1, sizeof *jail);
        if (jail == NULL || jail_plan(&spec, jail, err) < 0)
                return -1;
        run->landlock = jail->landlock_abi;
        const struct spawn_fd fds[] = {{theirs, LIFELINE_FD}, {file, FILE_FD}, {out_write, 1}};
        struct spawn_options options = {.argv = argv,
                .env = environment,
                .fds = fds,
                .fd_count = 3,
                .namespaces = jail->namespaces,
                .before_exec = jail_enter,
                .data = jail};
        struct child child = CHILD_NONE;
        if (spawn(&options, &child, err) < 0)
                return -1;
        close_quietly(take_fd(&out_write));
        buffer_init(&run->output, 16384);
        ssize_t got;
        do {
                uint8_t *room = buffer_reserve(&run->output, 1024);
                got = room == NULL ? -1 : read(out_read, room, 1024);
                run->output.size += got > 0 ? (size_t)got : 0;
        } while (got > 0);
        int status = 0;
        if (child_wait(&child, deadline_after_ms(10000), &status, err) < 0) {
                child_kill(&child);
                return -1;
        }
        if (status != 0)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "the probe ended with %d", status);
        return buffer_text(&run->output) == NULL ? -1 : 0;
}

static long value(const struct run *run, const char *name)
{
        char line[64];
        (void)snprintf(line, sizeof line, "%s ", name);
        const char *text = (const char *)run->output.data;
        while (text != NULL && strncmp(text, line, strlen(line)) != 0) {
                text = strchr(text, '\n');
                text = text == NULL ? NULL : text + 1;
        }
        if (text == NULL)
                fail_msg("the probe says nothing about '%s'", name);
        return strtol(text + strlen(line), NULL, 10);
}

/* In every layer's absence, too. */
static void check_common(const struct run *run)
{
        static const char *const denied[] = {"passwd", "home", "create-root", "create-tmp",
                "create-lib", "mem", "kvm", "init-environ", "sysctl", "reopen-write", "ptrace",
                "tcp", "abstract", "mount", "setgroups", "exec"};
        for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
                if (value(run, denied[i]) == 0)
                        fail_msg("the jail allows '%s'", denied[i]);
        static const struct {
                const char *name;
                long want;
        } exact[] = {{"reopen", 0}, {"core", 0}, {"nofile", 128}, {"no-new-privs", 1},
                {"fsize", (long)(DISK_BYTES + (16 << 20))}};
        for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
                if (value(run, exact[i].name) != exact[i].want)
                        fail_msg("'%s' is %ld", exact[i].name, value(run, exact[i].name));
}

static void check_namespaces(const struct run *run)
{
        assert_int_equal(value(run, "passwd"), ENOENT);
        assert_int_equal(value(run, "home"), ENOENT);
        assert_int_equal(value(run, "others"), 0);
        assert_int_equal(value(run, "signal"), ESRCH);
        assert_int_equal(value(run, "ppid"), 0);
        assert_int_equal(value(run, "caps-permitted"), 0);
        assert_int_equal(value(run, "caps-bounding"), 0);
}

static void root_with_namespaces(void **state)
{
        if (geteuid() != 0) {
                print_message("skipped: needs root\n");
                skip();
        }
        struct run run = {.namespaces = true, .uid = OTHER_UID};
        cubby_error err = {0};
        if (run_probe(&run, &err) < 0)
                fail_msg("%s", err.message);
        check_common(&run);
        check_namespaces(&run);
        assert_int_equal(value(&run, "uid"), OTHER_UID);
        assert_int_not_equal(value(&run, "setuid"), 0);
        buffer_free(&run.output);
}

/* Uid 0 kept: it is not to be worth anything. */
static void root_that_stays_root(void **state)
{
        if (geteuid() != 0) {
                print_message("skipped: needs root\n");
                skip();
        }
        struct run run = {.namespaces = true};
        cubby_error err = {0};
        if (run_probe(&run, &err) < 0)
                fail_msg("%s", err.message);
        check_common(&run);
        check_namespaces(&run);
        buffer_free(&run.output);
}

static void root_without_namespaces(void **state)
{
        if (geteuid() != 0 || landlock_abi() < 6) {
                print_message("skipped: needs root and Landlock 6\n");
                skip();
        }
        struct run run = {.uid = OTHER_UID};
        cubby_error err = {0};
        if (run_probe(&run, &err) < 0)
                fail_msg("%s", err.message);
        check_common(&run);
        assert_int_equal(value(&run, "passwd"), EACCES);
        assert_int_equal(value(&run, "signal"), EPERM);
        assert_int_equal(value(&run, "uid"), OTHER_UID);
        buffer_free(&run.output);
}

/* This program again, as an ordinary user and for one test only. */
static void as_user(const char *name)
{
        if (geteuid() != 0) {
                print_message("skipped: the tests run as an ordinary user already\n");
                skip();
        }
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (setgroups(0, NULL) < 0 || setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
                        setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
                        _exit(1);
                if (access(JAIL_PROBE, X_OK) < 0)
                        _exit(CLOSED_TO_USERS);
                (void)execl(TEST_PROGRAM, TEST_PROGRAM, name, NULL);
                _exit(1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == CLOSED_TO_USERS) {
                print_message("skipped: other users cannot enter the build folder\n");
                skip();
        }
        assert_int_equal(status, 0);
}

static void user_with_namespaces(void **state)
{
        as_user("with");
}

static void user_without_namespaces(void **state)
{
        as_user("without");
}

static void here_with_namespaces(void **state)
{
        struct run run = {.namespaces = true};
        cubby_error err = {0};
        if (run_probe(&run, &err) < 0) {
                print_message("skipped: no user namespaces: %s\n", err.message);
                skip();
        }
        check_common(&run);
        check_namespaces(&run);
        buffer_free(&run.output);
}

static void here_without_namespaces(void **state)
{
        if (landlock_abi() < 6) {
                print_message("skipped: needs Landlock 6\n");
                skip();
        }
        struct run run = {.namespaces = false};
        cubby_error err = {0};
        if (run_probe(&run, &err) < 0)
                fail_msg("%s", err.message);
        check_common(&run);
        assert_int_equal(value(&run, "passwd"), EACCES);
        assert_int_equal(value(&run, "caps-permitted"), 0);
        buffer_free(&run.output);
}

static void plan_refuses(void **state)
{
        struct jail jail;
        cubby_error err = {0};
        char path[JAIL_PATH_MAX + 2];
        memset(path, 'a', sizeof path - 1);
        path[0] = '/';
        path[sizeof path - 1] = '\0';
        struct jail_spec spec = {.program = path};
        assert_int_equal(jail_plan(&spec, &jail, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        static const int files[JAIL_FILES_MAX + 1] = {3, 4, 5, 6, 7};
        spec = (struct jail_spec){
                .program = "/bin/true", .files = files, .file_count = JAIL_FILES_MAX + 1};
        assert_int_equal(jail_plan(&spec, &jail, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
}

static void weak_is_refused(void **state)
{
        static const struct {
                struct jail jail;
                int want;
        } cases[] = {
                {{.landlock_abi = 0}, -1}, {{.landlock_abi = -1}, -1}, {{.landlock_abi = 1}, 0},
                {{.namespaces = CLONE_NEWNS}, 0}, {{.change_uid = true, .uid = 600000}, 0},
                {{.uid = 600000}, -1}, /* named, but not taken on */
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                cubby_error err = {0};
                assert_int_equal(jail_check(&cases[i].jail, &err), cases[i].want);
                assert_int_equal(err.code, cases[i].want == 0 ? CUBBY_OK : CUBBY_E_UNSUPPORTED);
                if (cases[i].want != 0)
                        assert_non_null(strstr(err.message, "CUBBY_WEAK_JAIL=1"));
        }
}

/* A child whose parent is gone must not start. */
static void orphan_refuses(void **state)
{
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        struct jail_spec spec = {.program = JAIL_PROBE, .child_end = LIFELINE_FD};
        spec.parent_end = fcntl(pair[0], F_DUPFD_CLOEXEC, 64);
        struct jail *jail = calloc(1, sizeof *jail);
        cubby_error err = {0};
        assert_non_null(jail);
        assert_int_equal(jail_plan(&spec, jail, &err), 0);
        const char *const argv[] = {JAIL_PROBE, NULL};
        const struct spawn_fd fds[] = {{pair[1], LIFELINE_FD}};
        struct spawn_options options = {
                .argv = argv, .fds = fds, .fd_count = 1, .before_exec = jail_enter, .data = jail};
        (void)close(pair[0]);
        (void)close(spec.parent_end);
        struct child child = CHILD_NONE;
        assert_int_equal(spawn(&options, &child, &err), -1);
        assert_int_equal(err.sys_errno, ESRCH);
        (void)close(pair[1]);
        free(jail);
}

int main(int argc, char **argv)
{
        static const struct CMUnitTest with[] = {cmocka_unit_test(here_with_namespaces)};
        static const struct CMUnitTest without[] = {cmocka_unit_test(here_without_namespaces)};
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(root_with_namespaces),
                cmocka_unit_test(root_that_stays_root),
                cmocka_unit_test(root_without_namespaces),
                cmocka_unit_test(user_with_namespaces),
                cmocka_unit_test(user_without_namespaces),
                cmocka_unit_test(plan_refuses),
                cmocka_unit_test(weak_is_refused),
                cmocka_unit_test(orphan_refuses),
        };
        if (argc == 2 && strcmp(argv[1], "with") == 0)
                return cmocka_run_group_tests(with, set_up, tear_down);
        if (argc == 2 && strcmp(argv[1], "without") == 0)
                return cmocka_run_group_tests(without, set_up, tear_down);
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
