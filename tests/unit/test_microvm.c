/* SPDX-License-Identifier: Apache-2.0 */
/* The microvm engine without a machine: arguments, probe, QMP, refusals. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/engine.h"
#include "engine/microvm/args.h"
#include "engine/microvm/probe.h"
#include "engine/microvm/program.h"
#include "engine/microvm/qmp.h"
#include "engine/microvm/tsc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB (1024ULL * 1024)

static const struct vmm_spec emulated = {.program = "/usr/bin/qemu-system-x86_64",
        .memory_bytes = 512 * MIB,
        .vcpus = 2,
        .tsc_khz = 2445418};

/* Looks for `value` behind the option; a NULL value: that the option stands there. */
static bool has(const struct args *args, const char *option, const char *value)
{
        for (unsigned i = 0; i < args->count; i++)
                if (strcmp(args->list[i], option) == 0 &&
                        (value == NULL ||
                                (i + 1 < args->count && strcmp(args->list[i + 1], value) == 0)))
                        return true;
        return false;
}

static bool mentions(const struct args *args, const char *text)
{
        for (unsigned i = 0; i < args->count; i++)
                if (strstr(args->list[i], text) != NULL)
                        return true;
        return false;
}

static void arguments_of_every_machine(void **state)
{
        struct vmm_spec specs[] = {emulated, emulated, emulated};
        specs[1].kvm = true;
        specs[2].console = true;
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
                struct args args = {0};
                assert_int_equal(args_build(&specs[i], &args, NULL), 0);
                assert_string_equal(args.list[0], specs[i].program);
                assert_null(args.list[args.count]);
                static const struct {
                        const char *option;
                        const char *value;
                } wanted[] = {
                        {"-sandbox",
                                "on,obsolete=deny,elevateprivileges=deny,spawn=deny,"
                                "resourcecontrol=deny"},
                        {"-nodefaults", NULL},
                        {"-no-user-config", NULL},
                        {"-no-reboot", NULL},
                        {"-display", "none"},
                        {"-m", "512M"},
                        {"-smp", "2"},
                        {"-kernel", "/proc/self/fd/5"},
                        {"-initrd", "/proc/self/fd/6"},
                        {"-add-fd", "fd=7,set=1"},
                        {"-add-fd", "fd=8,set=2"},
                        {"-chardev", "socket,id=qmp,fd=3"},
                        {"-mon", "chardev=qmp,mode=control"},
                        {"-chardev", "socket,id=agent,fd=4"},
                        {"-device", "virtserialport,chardev=agent,name=cubby.agent,nr=1"},
                        {"-device", "virtio-blk-device,drive=root,werror=report,rerror=report"},
                        {"-device", "virtio-blk-device,drive=disk,werror=report,rerror=report"},
                };
                for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++)
                        if (!has(&args, wanted[w].option, wanted[w].value))
                                fail_msg("machine %zu lacks %s %s", i, wanted[w].option,
                                        wanted[w].value == NULL ? "" : wanted[w].value);
                /* one argument is the program: no other names a file of the host */
                for (unsigned at = 1; at < args.count; at++) {
                        const char *slash = strchr(args.list[at], '/');
                        if (slash != NULL && strncmp(slash, "/proc/self/fd/", 14) != 0 &&
                                strncmp(slash, "/dev/fdset/", 11) != 0)
                                fail_msg("'%s' names a path", args.list[at]);
                }
                static const char *const unwanted[] = {"-netdev", "virtio-net", "virtfs", "usb=on",
                        "balloon", "vsock", "gpu", "pcie=on", "qcow2", "-incoming", "-D"};
                for (size_t u = 0; u < sizeof unwanted / sizeof *unwanted; u++)
                        if (mentions(&args, unwanted[u]))
                                fail_msg("machine %zu has %s", i, unwanted[u]);
                args_free(&args);
                args_free(&args);
        }
}

static void arguments_that_differ(void **state)
{
        struct args tcg = {0};
        struct args kvm = {0};
        struct args software = {0};
        struct args console = {0};
        struct vmm_spec spec = emulated;
        assert_int_equal(args_build(&spec, &tcg, NULL), 0);
        spec.kvm = true;
        assert_int_equal(args_build(&spec, &kvm, NULL), 0);
        spec.software_kvm = true;
        assert_int_equal(args_build(&spec, &software, NULL), 0);
        spec = emulated;
        spec.console = true;
        assert_int_equal(args_build(&spec, &console, NULL), 0);

        assert_true(has(&tcg, "-accel", "tcg,tb-size=128"));
        assert_true(has(&tcg, "-cpu", "max,-la57,-erms,-fsrm,-pcid,-umip,-pku"));
        assert_true(mentions(&tcg, "pit=on,pic=on,rtc=on,isa-serial=off"));
        assert_true(mentions(&tcg, "tsc_early_khz=2445418 lpj=9781672 tsc=reliable"));
        assert_true(mentions(&tcg, "8250.nr_uarts=0"));
        assert_false(has(&tcg, "-serial", NULL));

        assert_true(has(&kvm, "-accel", "kvm"));
        assert_true(has(&kvm, "-cpu", "host"));
        assert_true(has(&software, "-cpu", "host,-arch-capabilities"));
        assert_true(mentions(&kvm, "pit=off,pic=off"));
        assert_false(mentions(&kvm, "tsc_early_khz"));

        assert_true(mentions(&console, "isa-serial=on"));
        assert_true(mentions(&console, "console=ttyS0 8250.nr_uarts=1"));
        assert_true(has(&console, "-serial", "chardev:console"));
        args_free(&tcg);
        args_free(&kvm);
        args_free(&software);
        args_free(&console);
}

static void arguments_refused(void **state)
{
        static const struct {
                uint64_t memory;
                uint32_t vcpus;
                uint32_t tsc_khz;
                bool kvm;
                int want;
        } cases[] = {
                {64 * MIB, 1, 1, false, CUBBY_OK},
                {1024 * 1024 * MIB, 64, 1, false, CUBBY_OK},
                {64 * MIB, 1, 0, true, CUBBY_OK},
                {64 * MIB, 1, 0, false, CUBBY_E_UNSUPPORTED},
                {0, 1, 1, false, CUBBY_E_INVALID},
                {63 * MIB, 1, 1, false, CUBBY_E_INVALID},
                {64 * MIB + 1, 1, 1, false, CUBBY_E_INVALID},
                {1024 * 1024 * MIB + MIB, 1, 1, false, CUBBY_E_INVALID},
                {UINT64_MAX, 1, 1, false, CUBBY_E_INVALID},
                {64 * MIB, 0, 1, false, CUBBY_E_INVALID},
                {64 * MIB, 65, 1, false, CUBBY_E_INVALID},
                {64 * MIB, UINT32_MAX, 1, false, CUBBY_E_INVALID},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct vmm_spec spec = {.program = "/x",
                        .memory_bytes = cases[i].memory,
                        .vcpus = cases[i].vcpus,
                        .tsc_khz = cases[i].tsc_khz,
                        .kvm = cases[i].kvm};
                struct args args = {0};
                cubby_error err = {0};
                (void)args_build(&spec, &args, &err);
                if (err.code != cases[i].want)
                        fail_msg("case %zu: %d %s", i, err.code, err.message);
                assert_int_equal(args.list == NULL, cases[i].want != CUBBY_OK);
                args_free(&args);
        }
}

static void probe_decisions(void **state)
{
        static const struct {
                struct probe_facts facts;
                enum kvm_support want;
                const char *text;
        } cases[] = {
                {{.end = PROBE_HALTED, .elapsed_ns = 300000}, KVM_SUPPORT_HARDWARE, "300 us"},
                {{.end = PROBE_HALTED, .elapsed_ns = 40000000}, KVM_SUPPORT_HARDWARE, "hardware"},
                {{.end = PROBE_HALTED, .elapsed_ns = 300000, .software_module = 1},
                        KVM_SUPPORT_SOFTWARE, "kvm_pvm"},
                {{.end = PROBE_TIMED_OUT}, KVM_SUPPORT_SOFTWARE, "interprets"},
                {{.end = PROBE_TIMED_OUT, .software_module = 1}, KVM_SUPPORT_SOFTWARE, "interpret"},
                {{.end = PROBE_BROKE, .exit_reason = 17}, KVM_SUPPORT_SOFTWARE, "reason 17"},
                {{.end = PROBE_BROKE, .exit_reason = 8}, KVM_SUPPORT_SOFTWARE, "reason 8"},
                {{.end = PROBE_NO_DEVICE, .error_number = ENOENT}, KVM_SUPPORT_NONE, "No such"},
                {{.end = PROBE_NO_DEVICE, .error_number = EACCES}, KVM_SUPPORT_NONE, "denied"},
                {{.end = PROBE_REFUSED, .error_number = ENODEV}, KVM_SUPPORT_NONE, "refused"},
                {{.end = PROBE_REFUSED, .error_number = ENODEV, .software_module = 1},
                        KVM_SUPPORT_SOFTWARE, "refused"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct probe_result result = probe_decide(&cases[i].facts);
                assert_int_equal(result.support, cases[i].want);
                if (strstr(result.text, cases[i].text) == NULL)
                        fail_msg("case %zu says: %s", i, result.text);
        }
}

static void probe_of_this_host(void **state)
{
        int64_t start = clock_monotonic_ms();
        struct probe_result result = probe_kvm();
        /* the bound, and room for a loaded host */
        assert_true(clock_monotonic_ms() - start < PROBE_BOUND_MS + 2000);
        assert_int_not_equal(result.text[0], '\0');
        if (access("/dev/kvm", R_OK | W_OK) < 0)
                assert_int_equal(result.support, KVM_SUPPORT_NONE);
}

static void tsc_of_this_host(void **state)
{
        uint32_t first = tsc_khz();
        uint32_t second = tsc_khz();
        assert_true(first > 100000);
        /* the guest's clock runs by this figure: a thousandth is far too much */
        uint32_t difference = first > second ? first - second : second - first;
        assert_true(difference < first / 1000);
}

static void programs(void **state)
{
        char *path = NULL;
        cubby_error err = {0};
        assert_int_equal(program_resolve("true", &path, &err), 0);
        assert_int_equal(path[0], '/');
        free(path);
        static const char *const bad[] = {"no-such-vmm", "/no/such/vmm", "/etc/passwd", "./no"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                path = NULL;
                assert_int_equal(program_resolve(bad[i], &path, &err), -1);
                assert_int_equal(err.code, CUBBY_E_VMM);
                assert_null(path);
        }
}

/* A VMM that says what it is told to. */
struct peer {
        const char *greeting;
        const char *replies[6]; /* one for each line that comes in; NULL: hangs up */
        bool slow;              /* byte by byte */
        bool mute;              /* never answers, but stays */
        unsigned flood;         /* events before each reply */
        int fd;
        int got_fd; /* whether a descriptor came along */
        pthread_t thread;
};

static void peer_say(const struct peer *peer, const char *text)
{
        size_t size = strlen(text);
        size_t step = peer->slow ? 1 : size;
        for (size_t at = 0; at < size; at += step)
                if (send(peer->fd, text + at, step, MSG_NOSIGNAL) < 0)
                        return;
}

static void *peer_run(void *data)
{
        struct peer *peer = data;
        if (peer->greeting != NULL)
                peer_say(peer, peer->greeting);
        char line[4096];
        size_t used = 0;
        for (size_t reply = 0; reply < 6;) {
                int fds[FD_PASS_MAX];
                size_t count = 0;
                ssize_t got = fd_receive(peer->fd, line + used, sizeof line - used, fds, &count);
                if (got <= 0)
                        break;
                for (size_t i = 0; i < count; i++) {
                        peer->got_fd++;
                        (void)close(fds[i]);
                }
                used += (size_t)got;
                if (line[used - 1] != '\n')
                        continue;
                used = 0;
                if (peer->mute)
                        continue;
                for (unsigned i = 0; i < peer->flood; i++)
                        peer_say(peer, "{\"event\":\"RTC_CHANGE\",\"data\":{\"offset\":1}}\r\n");
                if (peer->replies[reply] == NULL)
                        break;
                peer_say(peer, peer->replies[reply++]);
        }
        (void)shutdown(peer->fd, SHUT_RDWR);
        return NULL;
}

static int peer_start(struct peer *peer)
{
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        peer->fd = fds[1];
        assert_int_equal(pthread_create(&peer->thread, NULL, peer_run, peer), 0);
        return fds[0];
}

static void peer_end(struct peer *peer)
{
        assert_int_equal(pthread_join(peer->thread, NULL), 0);
        (void)close(peer->fd);
}

#define GREETING "{\"QMP\":{\"version\":{},\"capabilities\":[]}}\r\n"
#define OK(id) "{\"return\":{},\"id\":" #id "}\r\n"

static void qmp_openings(void **state)
{
        static char huge[QMP_LINE_MAX + 65536];
        memset(huge, 'x', sizeof huge - 1);
        static const struct {
                const char *what;
                struct peer peer;
                int want;
        } cases[] = {
                {"good", {.greeting = GREETING, .replies = {OK(1)}}, CUBBY_OK},
                {"byte by byte", {.greeting = GREETING, .replies = {OK(1)}, .slow = true},
                        CUBBY_OK},
                {"events in between", {.greeting = GREETING, .replies = {OK(1)}, .flood = 2000},
                        CUBBY_OK},
                {"no greeting", {.greeting = NULL}, CUBBY_E_TIMEOUT},
                {"half a greeting", {.greeting = "{\"QMP\":"}, CUBBY_E_TIMEOUT},
                {"other greeting", {.greeting = "{\"hello\":1}\n"}, CUBBY_E_VMM},
                {"QMP is no object", {.greeting = "{\"QMP\":1}\n"}, CUBBY_E_VMM},
                {"no JSON", {.greeting = "garbage\n"}, CUBBY_E_VMM},
                {"an array", {.greeting = "[]\n"}, CUBBY_E_VMM},
                {"empty line", {.greeting = "\n"}, CUBBY_E_VMM},
                {"key twice", {.greeting = "{\"QMP\":{},\"QMP\":{}}\n"}, CUBBY_E_VMM},
                {"invalid UTF-8", {.greeting = "{\"QMP\":{\"\xff\":1}}\n"}, CUBBY_E_VMM},
                {"endless line", {.greeting = huge}, CUBBY_E_VMM},
                {"hangs up", {.greeting = GREETING, .replies = {NULL}}, CUBBY_E_VMM},
                {"mute after the greeting", {.greeting = GREETING, .mute = true}, CUBBY_E_TIMEOUT},
                {"refusal",
                        {.greeting = GREETING,
                                .replies = {"{\"error\":{\"desc\":\"no\"},\"id\":1}\n"}},
                        CUBBY_E_VMM},
                {"answer to nothing", {.greeting = GREETING, .replies = {OK(7)}}, CUBBY_E_VMM},
                {"no id", {.greeting = GREETING, .replies = {"{\"return\":{}}\n"}}, CUBBY_E_VMM},
                {"id of text",
                        {.greeting = GREETING, .replies = {"{\"return\":{},\"id\":\"1\"}\n"}},
                        CUBBY_E_VMM},
                {"neither return nor error", {.greeting = GREETING, .replies = {"{\"id\":1}\n"}},
                        CUBBY_E_VMM},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct peer peer = cases[i].peer;
                struct qmp qmp = {.fd = -1};
                cubby_error err = {0};
                int fd = peer_start(&peer);
                int64_t timeout = cases[i].want == CUBBY_E_TIMEOUT ? 100 : 10000;
                int got = qmp_open(&qmp, fd, deadline_after_ms(timeout), &err);
                if (err.code != cases[i].want || (got == 0) != (cases[i].want == CUBBY_OK))
                        fail_msg("%s: %d %s", cases[i].what, err.code, err.message);
                if (got < 0)
                        assert_int_equal(qmp.fd, -1);
                qmp_close(&qmp);
                peer_end(&peer);
        }
}

static void qmp_commands(void **state)
{
        struct peer peer = {.greeting = GREETING,
                .replies = {OK(1), "{\"return\":{\"running\":true},\"id\":2}\n",
                        "{\"error\":{\"class\":\"X\",\"desc\":\"no such thing\"},\"id\":3}\n",
                        OK(4)}};
        struct qmp qmp = {.fd = -1};
        cubby_error err = {0};
        int64_t deadline = deadline_after_ms(10000);
        assert_int_equal(qmp_open(&qmp, peer_start(&peer), deadline, &err), 0);
        json_t *result = NULL;
        assert_int_equal(qmp_execute(&qmp, "query-status", NULL, -1, deadline, &result, &err), 0);
        assert_true(json_is_true(json_object_get(result, "running")));
        json_decref(result);
        result = NULL;
        assert_int_equal(qmp_execute(&qmp, "nonsense", NULL, -1, deadline, &result, &err), -1);
        assert_null(result);
        assert_non_null(strstr(err.message, "no such thing"));
        assert_int_equal(qmp_getfd(&qmp, "state", STDERR_FILENO, deadline, &err), 0);
        /* now it hangs up: an error, at once */
        assert_int_equal(qmp_execute(&qmp, "stop", NULL, -1, deadline, NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VMM);
        qmp_close(&qmp);
        peer_end(&peer);
        assert_int_equal(peer.got_fd, 1);
}

/* The answer to a command that was given up must not be taken for the next one's. */
static void qmp_late_answer(void **state)
{
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        static const char opening[] = GREETING OK(1);
        assert_int_equal(write_whole(fds[1], opening, sizeof opening - 1), 0);
        struct qmp qmp = {.fd = -1};
        cubby_error err = {0};
        assert_int_equal(qmp_open(&qmp, fds[0], deadline_after_ms(5000), &err), 0);
        assert_int_equal(
                qmp_execute(&qmp, "stop", NULL, -1, deadline_after_ms(20), NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_TIMEOUT);
        static const char late[] =
                "{\"error\":{\"desc\":\"late\"},\"id\":2}\n{\"return\":{\"x\":3},\"id\":3}\n";
        assert_int_equal(write_whole(fds[1], late, sizeof late - 1), 0);
        json_t *result = NULL;
        assert_int_equal(
                qmp_execute(&qmp, "cont", NULL, -1, deadline_after_ms(5000), &result, &err), 0);
        assert_int_equal(json_integer_value(json_object_get(result, "x")), 3);
        json_decref(result);
        qmp_close(&qmp);
        (void)close(fds[1]);
}

static void qmp_last_events(void **state)
{
        static const struct {
                const char *text;
                enum qmp_shutdown want;
        } cases[] = {
                {"{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}"
                 "\n",
                        QMP_SHUTDOWN_GUEST},
                {"{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-reset\"}}\n",
                        QMP_SHUTDOWN_RESET},
                {"{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"guest-panic\"}}\n",
                        QMP_SHUTDOWN_RESET},
                {"{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"host-signal\"}}\n",
                        QMP_SHUTDOWN_HOST},
                {"{\"event\":\"SHUTDOWN\"}\n", QMP_SHUTDOWN_HOST},
                {"{\"event\":\"RESET\"}\n{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":"
                 "\"guest-shutdown\"}}\n",
                        QMP_SHUTDOWN_GUEST},
                {"{\"event\":\"STOP\"}\n", QMP_SHUTDOWN_NONE},
                {"{\"event\":\"SHUTDOWN\"", QMP_SHUTDOWN_NONE},
                {"garbage\n{\"event\":\"SHUTDOWN\"}\n", QMP_SHUTDOWN_NONE},
                {"", QMP_SHUTDOWN_NONE},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                int fds[2];
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
                static const char opening[] = GREETING OK(1);
                assert_int_equal(write_whole(fds[1], opening, sizeof opening - 1), 0);
                struct qmp qmp = {.fd = -1};
                assert_int_equal(qmp_open(&qmp, fds[0], deadline_after_ms(5000), NULL), 0);
                assert_int_equal(write_whole(fds[1], cases[i].text, strlen(cases[i].text)), 0);
                (void)close(fds[1]);
                qmp_drain(&qmp);
                assert_int_equal(qmp.shutdown, cases[i].want);
                qmp_close(&qmp);
                qmp_drain(&qmp); /* closed: nothing happens */
        }
}

static void make_script(const char *text, char path[32])
{
        (void)snprintf(path, 32, "/tmp/cubby-vmm-XXXXXX");
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write_whole(fd, text, strlen(text)), 0);
        assert_int_equal(fchmod(fd, 0755), 0);
        (void)close(fd);
}

static struct machine_config some_machine(int file)
{
        return (struct machine_config){.memory_bytes = 64 * MIB,
                .vcpus = 1,
                .accel = ACCEL_TCG,
                .vmlinux_fd = file,
                .initramfs_fd = file,
                .rootfs_fd = file,
                .disk_fd = file,
                .console_fd = -1};
}

static void start_refused(void **state)
{
        AUTO_FD int file = memfd_create("file", MFD_CLOEXEC);
        AUTO_FD int console = memfd_create("console", MFD_CLOEXEC);
        struct machine *machine = NULL;
        cubby_error err = {0};
        struct machine_config config = some_machine(file);
        config.vmm_path = "/no/such/vmm";
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VMM);

        config = some_machine(file);
        config.memory_bytes = 1;
        config.vmm_path = "/bin/true";
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);

        config = some_machine(-1);
        config.vmm_path = "/bin/true";
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);

        /* a VMM that ends at once, with its words in the error */
        char path[32];
        make_script("no program\n", path);
        config = some_machine(file);
        config.vmm_path = path;
        config.console_fd = console;
        static const char words[] = "qemu: something is wrong\n";
        assert_int_equal(write_whole(console, words, sizeof words - 1), 0);
        config.vmm_path = "/bin/true";
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VMM);
        if (strstr(err.message, "something is wrong") == NULL)
                fail_msg("%s", err.message);
        config.vmm_path = path; /* cannot be executed */
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VMM);
        (void)unlink(path);
        assert_null(machine);
        engine_microvm.destroy(NULL);
}

static void kvm_insisted_on(void **state)
{
        if (probe_kvm().support == KVM_SUPPORT_HARDWARE) {
                print_message("skipped: this host has hardware virtualisation\n");
                skip();
        }
        AUTO_FD int file = memfd_create("file", MFD_CLOEXEC);
        struct machine_config config = some_machine(file);
        config.accel = ACCEL_KVM;
        config.vmm_path = "/bin/true";
        struct machine *machine = NULL;
        cubby_error err = {0};
        assert_int_equal(engine_microvm.start(&config, &machine, &err), -1);
        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
        assert_non_null(strstr(err.message, "'tcg'"));
        assert_null(machine);
}

/* Falling back is only for who leaves the choice to us. */
static void accelerators(void **state)
{
        static const struct {
                enum kvm_support support;
                enum accel accel;
                bool own_kernel;
                int want; /* -1: refused */
                const char *advice;
        } rows[] = {
                {KVM_SUPPORT_HARDWARE, ACCEL_AUTO, false, ISOLATION_HARDWARE, NULL},
                {KVM_SUPPORT_HARDWARE, ACCEL_KVM, true, ISOLATION_HARDWARE, NULL},
                {KVM_SUPPORT_HARDWARE, ACCEL_TCG, true, ISOLATION_EMULATED, NULL},
                {KVM_SUPPORT_SOFTWARE, ACCEL_AUTO, false, ISOLATION_EMULATED, NULL},
                {KVM_SUPPORT_SOFTWARE, ACCEL_AUTO, true, ISOLATION_EMULATED, NULL},
                {KVM_SUPPORT_SOFTWARE, ACCEL_KVM, true, ISOLATION_SOFTWARE, NULL},
                {KVM_SUPPORT_SOFTWARE, ACCEL_KVM, false, -1, "name a kernel"},
                {KVM_SUPPORT_NONE, ACCEL_KVM, false, -1, "'tcg'"},
                {KVM_SUPPORT_NONE, ACCEL_KVM, true, -1, "'tcg'"},
                {KVM_SUPPORT_NONE, ACCEL_AUTO, true, ISOLATION_EMULATED, NULL},
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                struct probe_result probe = {.support = rows[i].support, .text = "the reason"};
                enum isolation isolation = ISOLATION_NONE;
                cubby_error err = {0};
                int result =
                        probe_choose(&probe, rows[i].accel, rows[i].own_kernel, &isolation, &err);
                if (rows[i].want < 0) {
                        assert_int_equal(result, -1);
                        assert_int_equal(err.code, CUBBY_E_UNSUPPORTED);
                        assert_non_null(strstr(err.message, "the reason"));
                        assert_non_null(strstr(err.message, rows[i].advice));
                        assert_int_equal(isolation, ISOLATION_NONE);
                } else if (result != 0 || (int)isolation != rows[i].want) {
                        fail_msg("row %zu: %s", i, isolation_name(isolation));
                }
        }
}

static void table(void **state)
{
        assert_ptr_equal(engine_find("microvm"), &engine_microvm);
        assert_ptr_equal(engine_find("fake"), &engine_fake);
        assert_null(engine_find(""));
        assert_null(engine_find("Microvm"));
        assert_string_equal(isolation_name(ISOLATION_EMULATED), "emulated");
        assert_string_equal(isolation_name(ISOLATION_HARDWARE), "hardware");
        assert_string_equal(isolation_name(ISOLATION_SOFTWARE), "software");
        assert_string_equal(isolation_name(ISOLATION_NONE), "none");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(arguments_of_every_machine),
                cmocka_unit_test(accelerators),
                cmocka_unit_test(arguments_that_differ),
                cmocka_unit_test(arguments_refused),
                cmocka_unit_test(probe_decisions),
                cmocka_unit_test(probe_of_this_host),
                cmocka_unit_test(tsc_of_this_host),
                cmocka_unit_test(programs),
                cmocka_unit_test(qmp_openings),
                cmocka_unit_test(qmp_commands),
                cmocka_unit_test(qmp_late_answer),
                cmocka_unit_test(qmp_last_events),
                cmocka_unit_test(start_refused),
                cmocka_unit_test(kvm_insisted_on),
                cmocka_unit_test(table),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
