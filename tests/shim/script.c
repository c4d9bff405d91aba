/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The shim for tests: as the product's, with short times and a second engine,
 * "script", whose agent is hostile in the way that $CUBBY_TEST_SCRIPT names.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "box/shim/shim.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AFTER_MS 60000 /* an attacker that is through waits to be killed */

/* The agent's side: blocking, one frame at a time. */
struct actor {
        int fd;
        uint64_t session;
        struct buffer in;
};

static void say(struct actor *actor, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size)
{
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 1U << 20);
        if (!frame_append(&out, type, flags, actor->session, stream, payload, (uint32_t)size) ||
                write_whole(actor->fd, out.data, out.size) < 0)
                _exit(5);
}

static void say_raw(struct actor *actor, const void *bytes, size_t size)
{
        if (write_whole(actor->fd, bytes, size) < 0)
                _exit(5);
}

/* The next frame from the host of this type; others are passed over. */
static uint64_t hear(struct actor *actor, uint16_t type, struct slice *ret_payload)
{
        for (;;) {
                struct frame frame;
                int64_t used =
                        frame_decode(actor->in.data, actor->in.size, FRAME_TO_GUEST_MAX, &frame);
                if (actor->in.size > 0 && used > 0) {
                        uint64_t stream = frame.stream;
                        bool wanted = frame.type == type;
                        static uint8_t kept[4096];
                        size_t size = frame.length < sizeof kept ? frame.length : sizeof kept;
                        memcpy(kept, frame.payload, size);
                        buffer_consume(&actor->in, (size_t)used);
                        if (!wanted)
                                continue;
                        if (ret_payload != NULL)
                                *ret_payload = (struct slice){.data = kept, .size = size};
                        return stream;
                }
                uint8_t *end = buffer_reserve(&actor->in, 4096);
                ssize_t got = end == NULL ? -1 : read(actor->fd, end, 4096);
                if (got <= 0)
                        _exit(6);
                actor->in.size += (size_t)got;
        }
}

static void say_hello(struct actor *actor, uint16_t version)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 256);
        struct message_hello hello = {.version = version};
        if (message_hello_encode(&payload, &hello))
                say(actor, FRAME_HELLO, 0, 0, payload.data, payload.size);
}

static void say_resumed(struct actor *actor, uint64_t lie, uint64_t generation)
{
        struct slice payload = {0};
        uint64_t stream = hear(actor, FRAME_RESUME, &payload);
        struct message_resume resume;
        if (!message_resume_decode(payload, &resume))
                _exit(7);
        actor->session = resume.nonce;
        struct message_resumed resumed = {.nonce = resume.nonce ^ lie,
                .generation = generation,
                .memory_bytes = 256U << 20,
                .cpus = 1};
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, 256);
        if (message_resumed_encode(&out, &resumed))
                say(actor, FRAME_RESUMED, 0, stream, out.data, out.size);
}

static void say_number(
        struct actor *actor, uint16_t type, uint16_t flags, uint64_t stream, uint32_t number)
{
        uint8_t payload[4];
        store_u32(payload, number);
        say(actor, type, flags, stream, payload, sizeof payload);
}

static void header(struct actor *actor, uint32_t length, uint16_t type, uint64_t stream)
{
        struct frame frame = {
                .length = length, .type = type, .session = actor->session, .stream = stream};
        uint8_t bytes[FRAME_HEADER_SIZE];
        frame_encode_header(bytes, &frame);
        say_raw(actor, bytes, sizeof bytes);
}

static void say_exit(struct actor *actor, uint64_t stream, uint32_t code, uint32_t signal)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 256);
        struct message_exit exit = {.code = code, .signal = signal};
        if (message_exit_encode(&payload, &exit))
                say(actor, FRAME_EXIT, 0, stream, payload.data, payload.size);
}

static void huge_length(struct actor *actor)
{
        header(actor, 0xffffffffU, FRAME_PONG, 1);
}

static void over_length(struct actor *actor)
{
        header(actor, FRAME_FROM_GUEST_MAX + 1, FRAME_DATA, 1);
}

static void zero_frames(struct actor *actor)
{
        for (;;)
                header(actor, 0, 0, 0);
}

static void half_frame(struct actor *actor)
{
        header(actor, 100, FRAME_PONG, 1);
}

/* The machine is paused in the meantime, and says it all the same. */
static void late_half_frame(struct actor *actor)
{
        uint64_t stream = hear(actor, FRAME_PING, NULL);
        say(actor, FRAME_PONG, 0, stream, "echo", 4);
        (void)poll(NULL, 0, 300);
        header(actor, 100, FRAME_PONG, 1);
}

static void drip(struct actor *actor)
{
        header(actor, 100, FRAME_PONG, 1);
        for (;;) {
                say_raw(actor, "x", 1);
                (void)poll(NULL, 0, 50);
        }
}

static void unknown_streams(struct actor *actor)
{
        for (uint64_t i = 0;; i++)
                say_exit(actor, 1000000 + i, 0, 0);
}

static void stale_session(struct actor *actor)
{
        actor->session ^= 1;
        for (uint64_t i = 0;; i++)
                say_exit(actor, i, 0, 0);
}

/* Answers a command twice, then the next one with the first one's end. */
static void duplicate_exit(struct actor *actor)
{
        uint64_t first = hear(actor, FRAME_EXEC, NULL);
        say_number(actor, FRAME_EXEC_STARTED, 0, first, 2);
        say_exit(actor, first, 3, 0);
        say_exit(actor, first, 4, 0);
        say(actor, FRAME_DATA, CHANNEL_STDOUT, first, "ghost", 5);
        uint64_t second = hear(actor, FRAME_EXEC, NULL);
        say_number(actor, FRAME_EXEC_STARTED, 0, second, 3);
        say_exit(actor, first, 5, 0);
        say_exit(actor, second, 6, 0);
}

static void bad_values(struct actor *actor)
{
        uint64_t stream = hear(actor, FRAME_EXEC, NULL);
        say_number(actor, FRAME_EXEC_STARTED, 0, stream, 2);
        say_exit(actor, stream, 256, 0);
        say_exit(actor, stream, 0, 65);
        say(actor, FRAME_EXIT, 0, stream, "short", 5);
        say(actor, FRAME_ERROR, 0, stream, "\xff\xff\xff\xff", 4);
        say(actor, FRAME_DATA, 9, stream, "x", 1);
        say(actor, FRAME_DATA, CHANNEL_STDIN, stream, "x", 1);
        say(actor, FRAME_DATA, CHANNEL_STDOUT, stream, "", 0);
        say_number(actor, FRAME_CREDIT, CHANNEL_STDIN, stream, 0xffffffffU);
        say_number(actor, FRAME_CREDIT, CHANNEL_STDOUT, stream, 1);
        say(actor, FRAME_SHIM_STATUS, 0, stream, "", 0);
        say(actor, FRAME_EXEC, 0, stream, "", 0);
        say_exit(actor, stream, 9, 0);
}

static void wrong_answers(struct actor *actor)
{
        uint64_t stream = hear(actor, FRAME_PING, NULL);
        say(actor, FRAME_PONG, 0, stream, "liar", 4);
        say(actor, FRAME_OK, 0, stream, "", 0);
        say(actor, FRAME_METRICS_REPLY, 0, stream, "", 0);
        say(actor, FRAME_PONG, 0, stream, "echo", 4);
}

static void over_credit(struct actor *actor)
{
        static const uint8_t data[FRAME_DATA_MAX];
        uint64_t stream = hear(actor, FRAME_EXEC, NULL);
        say_number(actor, FRAME_EXEC_STARTED, 0, stream, 2);
        for (;;)
                say(actor, FRAME_DATA, CHANNEL_STDOUT, stream, data, sizeof data);
}

/* Answers STAT with what belongs to other calls, then twice. */
static void wrong_files(struct actor *actor)
{
        uint64_t stream = hear(actor, FRAME_FILE_CALL, NULL);
        say(actor, FRAME_FILE_ENTRY, 0, stream, "entry", 5);
        say(actor, FRAME_DATA, CHANNEL_STDOUT, stream, "data", 4);
        say(actor, FRAME_EOF, CHANNEL_STDOUT, stream, "", 0);
        say_number(actor, FRAME_CREDIT, CHANNEL_STDIN, stream, 1);
        say_number(actor, FRAME_EXEC_STARTED, 0, stream, 2);
        say_exit(actor, stream, 0, 0);
        say(actor, FRAME_OK, 0, stream, "", 0);
        say(actor, FRAME_FILE_REPLY, 0, stream, "right", 5);
        say(actor, FRAME_FILE_REPLY, 0, stream, "again", 5);
}

static void files_over_credit(struct actor *actor)
{
        static const uint8_t data[FRAME_DATA_MAX];
        uint64_t stream = hear(actor, FRAME_FILE_CALL, NULL);
        for (;;)
                say(actor, FRAME_FILE_ENTRY, 0, stream, data, sizeof data);
}

static void escapes(struct actor *actor)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 1024);
        uint64_t stream = hear(actor, FRAME_EXEC, NULL);
        struct message_error error = {.code = CUBBY_E_INVALID,
                .text = {.data = (const uint8_t *)"a\x1b[2Jb\nc\0d\xc2\x9b\xc3\x9c", .size = 14}};
        if (message_error_encode(&payload, &error))
                say(actor, FRAME_ERROR, 0, stream, payload.data, payload.size);
}

static void deaf(struct actor *actor)
{
        while (actor->fd >= 0)
                (void)poll(NULL, 0, AFTER_MS);
}

/* Reads nothing for a while, then waits for a signal to its main command. */
static void late_reader(struct actor *actor)
{
        uint64_t stream = hear(actor, FRAME_EXEC, NULL);
        say_number(actor, FRAME_EXEC_STARTED, 0, stream, 2);
        (void)poll(NULL, 0, 2000);
        if (hear(actor, FRAME_SIGNAL, NULL) == stream)
                say_exit(actor, stream, 0, 15);
}

static void flood(struct actor *actor)
{
        static const uint8_t data[FRAME_DATA_MAX];
        for (;;)
                say(actor, FRAME_DATA, CHANNEL_STDOUT, 1, data, sizeof data);
}

static void hello_again(struct actor *actor)
{
        actor->session = 0;
        for (;;)
                say_hello(actor, WIRE_VERSION);
}

static const struct {
        const char *name;
        void (*play)(struct actor *actor);
} scripts[] = {
        {"huge-length", huge_length},
        {"over-length", over_length},
        {"zero-frames", zero_frames},
        {"half-frame", half_frame},
        {"late-half-frame", late_half_frame},
        {"drip", drip},
        {"unknown-streams", unknown_streams},
        {"stale-session", stale_session},
        {"duplicate-exit", duplicate_exit},
        {"bad-values", bad_values},
        {"wrong-answers", wrong_answers},
        {"over-credit", over_credit},
        {"wrong-files", wrong_files},
        {"files-over-credit", files_over_credit},
        {"escapes", escapes},
        {"deaf", deaf},
        {"late-reader", late_reader},
        {"flood", flood},
        {"hello-again", hello_again},
};

/* As an agent that cannot boot: something on the console, then the reason. */
static void boot_error(struct actor *actor)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, 8192);
        static uint8_t text[4000] = "stage 'root disks': no \x1b[2Jdisk";
        memset(text + 32, 'x', sizeof text - 32);
        struct message_error error = {
                .code = CUBBY_E_NOT_FOUND, .text = {.data = text, .size = sizeof text}};
        if (message_error_encode(&payload, &error))
                say(actor, FRAME_ERROR, 0, 0, payload.data, payload.size);
}

static void play(int fd, const char *script)
{
        struct actor actor = {.fd = fd};
        buffer_init(&actor.in, FRAME_TO_GUEST_MAX + FRAME_HEADER_SIZE + 4096);
        if (strcmp(script, "mute") == 0)
                deaf(&actor);
        if (strcmp(script, "boot-garbage") == 0)
                for (;;)
                        say_raw(&actor, "GET / HTTP/1.1\r\n", 16);
        if (strcmp(script, "boot-error") == 0) {
                boot_error(&actor);
                deaf(&actor);
        }
        say_hello(&actor, strcmp(script, "old-version") == 0 ? 99 : WIRE_VERSION);
        say_resumed(&actor, strcmp(script, "wrong-nonce") == 0,
                strcmp(script, "huge-generation") == 0 ? UINT64_MAX : 1);
        for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
                if (strcmp(scripts[i].name, script) == 0)
                        scripts[i].play(&actor);
        deaf(&actor);
}

/* The fake engine with another agent: its own child takes the fake one's place. */
struct machine {
        struct child child;
        int agent;
};

static void fill_console(int fd)
{
        for (int i = 0; i < 200; i++)
                (void)dprintf(fd, "console line %03d: the guest says a word or two\n", i);
}

static int script_start(const struct machine_config *config, struct machine **ret, cubby_error *err)
{
        struct machine *machine = calloc(1, sizeof *machine);
        int ends[2];
        const char *script = getenv("CUBBY_TEST_SCRIPT");
        if (script != NULL && strcmp(script, "boot-error") == 0)
                fill_console(config->console_fd);
        if (machine == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
                return cubby_error_no_memory(err);
        pid_t pid = fork();
        if (pid == 0) {
                if (config->uid != 0 && setresuid(config->uid, config->uid, config->uid) < 0)
                        _exit(4);
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)dup2(ends[1], 3);
                (void)syscall(SYS_close_range, 4U, ~0U, 0U);
                play(3, script == NULL ? "" : script);
                _exit(0);
        }
        (void)close(ends[1]);
        (void)fd_set_nonblocking(ends[0], true);
        machine->agent = ends[0];
        machine->child = (struct child){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
        *ret = machine;
        return 0;
}

static int script_agent_fd(const struct machine *machine)
{
        return machine->agent;
}

static int script_exit_fd(const struct machine *machine)
{
        return machine->child.pidfd;
}

static pid_t script_pid(const struct machine *machine)
{
        return machine->child.pid;
}

static enum isolation script_isolation(const struct machine *machine)
{
        return ISOLATION_NONE;
}

/* Nothing is stopped: a machine that is taken over does not stop either. */
static int script_pause(struct machine *machine, cubby_error *err)
{
        return 0;
}

static void script_describe(struct machine *machine, char *ret, size_t size, bool *ret_clean)
{
        *ret_clean = false;
        (void)snprintf(ret, size, "the script ended");
}

static void script_destroy(struct machine *machine)
{
        if (machine == NULL)
                return;
        child_kill(&machine->child);
        (void)close(machine->agent);
        free(machine);
}

static const struct engine engine_script = {.name = "script",
        .capabilities = ENGINE_CAN_PAUSE,
        .start = script_start,
        .agent_fd = script_agent_fd,
        .exit_fd = script_exit_fd,
        .pid = script_pid,
        .isolation = script_isolation,
        .pause = script_pause,
        .unpause = script_pause,
        .describe_exit = script_describe,
        .destroy = script_destroy};

static const struct engine *find(const char *name)
{
        if (strcmp(name, "script") == 0)
                return &engine_script;
        return strcmp(name, "fake") == 0 ? &engine_fake : NULL;
}

int main(void)
{
        static const struct shim_options options = {.find_engine = find,
                .part_ms = 500,
                .drain_ms = 2000,
                .shutdown_ms = 1000,
                .linger_ms = 500};
        return shim_main(&options);
}
