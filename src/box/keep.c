/* SPDX-License-Identifier: Apache-2.0 */

/* The library's side of a keeper. */
#include "box/keeper.h"
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 2000
#define APPEAR_MS 1500 /* a keeper that was started answers within it, or is not waited for */
#define APPEAR_PAUSE_MS 2
#define LIVES_PAUSE_MS 20
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int connect_keeper(const struct template *template, cubby_error *err)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s",
                template->dir_fd, TEMPLATE_KEEPER_NAME);
        AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
                return cubby_error_errno(err, errno, "asking the keeper");
        return take_fd(&fd);
}

/* One request with its reply; *ret_fd (may be NULL) what came with it, or -1. */
static int ask(const struct template *template, enum keeper_operation operation, int *ret_fd,
        cubby_error *err)
{
        AUTO_FD int fd = connect_keeper(template, err);
        if (fd < 0)
                return -1;
        const struct keeper_message request = {
                .version = KEEPER_VERSION, .operation = (uint32_t)operation};
        struct keeper_message reply = {0};
        if (fd_send(fd, &request, sizeof request, NULL, 0) < 0)
                return cubby_error_errno(err, errno, "asking the keeper");
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, ANSWER_MS) <= 0)
                return cubby_error_set(err, CUBBY_E_TIMEOUT, "the keeper does not answer");
        int fds[FD_PASS_MAX];
        size_t count = 0;
        ssize_t got = fd_receive(fd, &reply, sizeof reply, fds, &count);
        for (size_t i = ret_fd == NULL ? 0 : 1; i < count; i++)
                close_quietly(fds[i]);
        AUTO_FD int passed = ret_fd != NULL && count > 0 ? fds[0] : -1;
        if (got != (ssize_t)sizeof reply || reply.version != KEEPER_VERSION ||
                reply.operation != (uint32_t)operation)
                return cubby_error_set(err, CUBBY_E_PROTOCOL, "the keeper gave no answer");
        if (ret_fd != NULL)
                *ret_fd = take_fd(&passed);
        return 0;
}

int saved_tell(const struct template *template, bool end, cubby_error *err)
{
        return ask(template, end ? KEEPER_END : KEEPER_LOOK, NULL, err);
}

static bool keeper_lives(cubby *host, const char *key)
{
        char name[96];
        (void)snprintf(name, sizeof name, "keeper-%s", key);
        AUTO_LOCK int lock = -1;
        cubby_error problem = {0};
        return home_lock(host->home, name, false, 0, &lock, &problem) < 0 &&
                problem.code == CUBBY_E_TIMEOUT;
}

struct texts {
        char memory[24];
        char cpu[16];
        char disk[24];
};

static int launch(cubby *host, const struct box_config *config, cubby_error *err)
{
        AUTO_FREE char *program = NULL;
        AUTO_FREE char *path = NULL;
        AUTO_FREE char *libexec = NULL;
        AUTO_FREE char *idle = NULL;
        AUTO_FREE char *ahead = NULL;
        if (box_find_program(KEEPER_PROGRAM, &program, err) < 0)
                return -1;
        struct texts texts;
        (void)snprintf(texts.memory, sizeof texts.memory, "%" PRIu64, config->memory_bytes);
        (void)snprintf(texts.cpu, sizeof texts.cpu, "%" PRIu32, config->cpu_milli);
        (void)snprintf(texts.disk, sizeof texts.disk, "%" PRIu64, config->disk_bytes);
        const char *const argv[KEEPER_ARGUMENT_COUNT + 1] = {
                program, [KEEPER_ARGUMENT_HOME] = home_path(host->home),
                [KEEPER_ARGUMENT_IMAGE_ID] = config->image_id,
                [KEEPER_ARGUMENT_IMAGE_NAME] = config->image_name,
                [KEEPER_ARGUMENT_MEMORY] = texts.memory, [KEEPER_ARGUMENT_CPU_MILLI] = texts.cpu,
                [KEEPER_ARGUMENT_DISK] = texts.disk, [KEEPER_ARGUMENT_ENGINE] = config->engine,
                [KEEPER_ARGUMENT_ACCEL] = config->accel, [KEEPER_ARGUMENT_KERNEL] = config->kernel,
                [KEEPER_ARGUMENT_WARMUP] = config->warmup == NULL ? "" : config->warmup};
        /* nothing of the embedding program's environment may reach a template */
        const char *known_path = secure_getenv("PATH");
        const char *known_libexec = secure_getenv("CUBBY_LIBEXEC");
        const char *known_idle = secure_getenv(KEEPER_IDLE_VARIABLE);
        const char *known_ahead = secure_getenv(KEEPER_AHEAD_VARIABLE);
        if (asprintf(&path, "PATH=%s", known_path == NULL ? PATH_DEFAULT : known_path) < 0 ||
                asprintf(&libexec, "CUBBY_LIBEXEC=%s", known_libexec == NULL ? "" : known_libexec) <
                        0 ||
                asprintf(&idle, KEEPER_IDLE_VARIABLE "=%s", known_idle == NULL ? "" : known_idle) <
                        0 ||
                asprintf(&ahead, KEEPER_AHEAD_VARIABLE "=%s",
                        known_ahead == NULL ? "" : known_ahead) < 0)
                return cubby_error_no_memory(err);
        const char *weak = secure_getenv(BOX_WEAK_JAIL);
        bool accepted = weak != NULL && strcmp(weak, "1") == 0;
        const char *const env[] = {
                path, libexec, idle, ahead, "LANG=C", accepted ? BOX_WEAK_JAIL "=1" : NULL, NULL};
        const struct spawn_options options = {.argv = argv, .env = env, .new_session = true};
        AUTO_FD int pidfd = -1;
        return spawn_detached(&options, &pidfd, err);
}

void saved_keep(cubby *host, const struct box_config *config)
{
        char key[TEMPLATE_KEY_SIZE];
        cubby_error problem = {0};
        if (saved_key(host, config, key, &problem) < 0 || keeper_lives(host, key))
                return;
        if (launch(host, config, &problem) < 0)
                log_line(&host->log, LOG_WARNING, "no keeper: %s", problem.message);
}

/* One that was just killed has its lock for a moment still, and then another is started. */
void saved_want_spares(
        cubby *host, const struct box_config *config, const struct template *template)
{
        int64_t deadline = deadline_after_ms(APPEAR_MS);
        while (saved_tell(template, false, NULL) < 0) {
                bool lives = keeper_lives(host, template->manifest.key);
                if (!lives)
                        saved_keep(host, config);
                if (!lives || deadline_left_ms(deadline) == 0)
                        return;
                (void)poll(NULL, 0, LIVES_PAUSE_MS);
        }
}

/* Believed only when it is what it should be. */
static bool is_memory(int fd, const struct template *template)
{
        struct stat info;
        return fd >= 0 && memory_sealed(fd) && fstat(fd, &info) == 0 &&
                (uint64_t)info.st_size == template->manifest.inputs.memory_bytes;
}

int saved_memory(cubby *host, const struct box_config *config, const struct template *template,
        int *ret_fd, cubby_error *err)
{
        int64_t deadline = deadline_after_ms(APPEAR_MS);
        bool started = false;
        for (;;) {
                AUTO_FD int fd = -1;
                if (ask(template, KEEPER_MEMORY, &fd, NULL) == 0 && is_memory(fd, template)) {
                        *ret_fd = take_fd(&fd);
                        return 0;
                }
                if (!started && !keeper_lives(host, template->manifest.key)) {
                        cubby_error problem = {0};
                        if (launch(host, config, &problem) < 0) {
                                log_line(&host->log, LOG_WARNING, "no keeper: %s", problem.message);
                                break;
                        }
                        started = true;
                }
                if (deadline_left_ms(deadline) == 0)
                        break;
                (void)poll(NULL, 0, APPEAR_PAUSE_MS);
        }
        return memory_load(template->fds[TEMPLATE_MEMORY], template->manifest.inputs.memory_bytes,
                ret_fd, err);
}
