/* SPDX-License-Identifier: Apache-2.0 */
#include "box/keeper/private.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 64
#define CLIENT_MS 500 /* a client that connects also asks */
#define LOOK_MS 3000
#define AHEAD_PAUSE_MS 250 /* after a use, before the next machine is started ahead */
#define FORGOTTEN_MS 10000
#define BUILD_NICE 10
#define WORKER_END_MS 1500 /* a spare that is nearly made is made; else its maker is killed */
#define RETRY_MS 2000      /* after a spare that could not be made; doubles */
#define RETRY_DOUBLINGS_MAX 6
#define RESERVE_MIN (256ULL << 20) /* of the host's memory, left free */
#define RESERVE_PART 20            /* or this part of it */
#define PRESSURE_MAX 20.0          /* percent of time that tasks waited for memory */
#define MEMINFO_BYTES_MAX 16384U

/* ----------------------------------------------------------- beginning -- */

/* In a child: what it makes is of no use without the keeper. */
static void die_with_parent(pid_t parent)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(1);
}

/* In a process of its own, so that only the making of it is less urgent. */
static int build_template(struct keeper *keeper, cubby_error *err)
{
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid < 0)
                return cubby_error_errno(err, errno, "starting the maker of the template");
        if (pid == 0) {
                die_with_parent(parent);
                close_quietly(take_fd(&keeper->lock_fd));
                (void)setpriority(PRIO_PROCESS, 0, BUILD_NICE);
                _exit(saved_build(keeper->host, &keeper->config, false, NULL) == 0 ? 0 : 1);
        }
        int status = 0;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for the template");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return cubby_error_set(err, CUBBY_E_VMM, "the template could not be made");
        return 0;
}

static int take_template(struct keeper *keeper, const char *key, cubby_error *err)
{
        if (template_open(keeper->host->home, key, &keeper->template, NULL) == 0)
                return 0;
        if (build_template(keeper, err) < 0)
                return -1;
        return template_open(keeper->host->home, key, &keeper->template, err);
}

static int open_socket(struct keeper *keeper, cubby_error *err)
{
        int dir = keeper->template->dir_fd;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir,
                TEMPLATE_KEEPER_NAME);
        if (unlinkat(dir, TEMPLATE_KEEPER_NAME, 0) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing an old socket");
        keeper->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (keeper->listen_fd < 0 ||
                bind(keeper->listen_fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
                listen(keeper->listen_fd, BACKLOG) < 0)
                return cubby_error_errno(err, errno, "making the keeper's socket");
        return 0;
}

/* Claims are seen at once, so that the next spare is made at once. */
static int watch_spares(struct keeper *keeper, cubby_error *err)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", keeper->template->dir_fd,
                TEMPLATE_SPARES_NAME);
        keeper->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (keeper->watch_fd < 0 || inotify_add_watch(keeper->watch_fd, path, IN_MOVED_FROM) < 0)
                return cubby_error_errno(err, errno, "watching the spares");
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
                return cubby_error_errno(err, errno, "making a socket pair");
        keeper->keeper_end = ends[0];
        keeper->spare_end = ends[1];
        return 0;
}

/* A machine has just been taken, and has the processors first. */
static void note_use(struct keeper *keeper)
{
        keeper->used_ms = clock_monotonic_ms();
        keeper->ahead_ms = keeper->used_ms + AHEAD_PAUSE_MS;
}

int keeper_prepare(struct keeper *keeper, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        if (saved_key(keeper->host, &keeper->config, key, err) < 0 ||
                take_template(keeper, key, err) < 0)
                return -1;
        uint64_t size = keeper->template->manifest.inputs.memory_bytes;
        if (memory_load(keeper->template->fds[TEMPLATE_MEMORY], size, &keeper->memory_fd, err) <
                        0 ||
                watch_spares(keeper, err) < 0 || open_socket(keeper, err) < 0)
                return -1;
        note_use(keeper);
        return 0;
}

/* -------------------------------------------------------------- memory -- */

static bool meminfo(const char *text, const char *field, uint64_t *ret)
{
        const char *line = strstr(text, field);
        if (line == NULL)
                return false;
        *ret = strtoull(line + strlen(field), NULL, 10) << 10;
        return true;
}

static bool memory_is_short(void)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, MEMINFO_BYTES_MAX);
        if (file_read_at(AT_FDCWD, "/proc/meminfo", &text, NULL) < 0 || buffer_text(&text) == NULL)
                return false;
        uint64_t total = 0;
        uint64_t available = 0;
        if (!meminfo((const char *)text.data, "MemTotal:", &total) ||
                !meminfo((const char *)text.data, "MemAvailable:", &available))
                return false;
        uint64_t reserve = total / RESERVE_PART > RESERVE_MIN ? total / RESERVE_PART : RESERVE_MIN;
        if (available < reserve)
                return true;
        buffer_clear(&text);
        if (file_read_at(AT_FDCWD, "/proc/pressure/memory", &text, NULL) < 0 ||
                buffer_text(&text) == NULL)
                return false;
        const char *average = strstr((const char *)text.data, "some avg10=");
        return average != NULL && strtod(average + strlen("some avg10="), NULL) > PRESSURE_MAX;
}

/* -------------------------------------------------------------- spares -- */

static void drop_one(struct keeper *keeper, enum spare_kind kind)
{
        char id[33];
        if (spare_take(keeper->template->dir_fd, kind, id, NULL) == 1) {
                saved_remove_spare(keeper->host, id);
                spare_settle(keeper->template->dir_fd, id);
        }
}

/* Whose taker died before there was a record of it is nobody's. A taker holds the lock
 * until there is one: who has it alone takes nothing from a slow one. */
static void drop_forgotten(struct keeper *keeper)
{
        char id[33];
        AUTO_LOCK int lock = -1;
        if (spare_forgotten(keeper->template->dir_fd, FORGOTTEN_MS, id) != 1 ||
                home_lock(keeper->host->home, "boxes", true, 0, &lock, NULL) < 0)
                return;
        struct box_record record = {0};
        cubby_error problem = {0};
        if (box_record_find(keeper->host->home, id, &record, &problem) == 0)
                box_record_clear(&record);
        else if (problem.code == CUBBY_E_NOT_FOUND)
                saved_remove_spare(keeper->host, id);
        else
                return;
        spare_settle(keeper->template->dir_fd, id);
}

/* One whose machine has ended is none: another is made in its place. */
static void drop_dead(struct keeper *keeper, enum spare_kind kind)
{
        char ids[TEMPLATE_SPARES_MAX][33];
        int dir = keeper->template->dir_fd;
        size_t count = spare_list(dir, kind, ids);
        for (size_t i = 0; i < count; i++)
                if (!saved_spare_lives(keeper->host, ids[i]) && spare_drop(dir, kind, ids[i]))
                        saved_remove_spare(keeper->host, ids[i]);
}

static void start_worker(struct keeper *keeper, enum spare_kind kind)
{
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid < 0)
                return;
        if (pid == 0) {
                die_with_parent(parent);
                /* else the spare would outlive the keeper: this copy would hold it */
                close_quietly(take_fd(&keeper->keeper_end));
                close_quietly(take_fd(&keeper->listen_fd));
                close_quietly(take_fd(&keeper->lock_fd));
                char id[33];
                _exit(saved_make_spare(keeper->host, keeper->template, kind, &keeper->config,
                              keeper->memory_fd, keeper->spare_end, id, NULL) == 0
                                ? 0
                                : 1);
        }
        keeper->worker = pid;
        keeper->worker_fd = (int)syscall(SYS_pidfd_open, pid, 0);
}

static void worker_ended(struct keeper *keeper)
{
        int status = 0;
        if (waitpid(keeper->worker, &status, WNOHANG) != keeper->worker)
                return;
        close_quietly(take_fd(&keeper->worker_fd));
        keeper->worker = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                keeper->failures = 0;
                return;
        }
        if (keeper->failures < RETRY_DOUBLINGS_MAX)
                keeper->failures++;
        keeper->retry_ms = deadline_after_ms((int64_t)RETRY_MS << keeper->failures);
}

/* One step towards the wanted numbers: warm spares first, and the last to go. */
static void tend_spares(struct keeper *keeper, int64_t now_ms)
{
        int dir = keeper->template->dir_fd;
        drop_forgotten(keeper);
        if (keeper->worker > 0)
                return;
        drop_dead(keeper, SPARE_WARM);
        drop_dead(keeper, SPARE_AHEAD);
        uint32_t wanted = template_wanted(dir);
        uint32_t warm = spare_count(dir, SPARE_WARM);
        uint32_t ahead = spare_count(dir, SPARE_AHEAD);
        if (warm > wanted || ahead > keeper->ahead) {
                drop_one(keeper, warm > wanted ? SPARE_WARM : SPARE_AHEAD);
                return;
        }
        if (wanted + keeper->ahead == 0)
                return;
        if (memory_is_short()) {
                drop_one(keeper, ahead > 0 ? SPARE_AHEAD : SPARE_WARM);
                keeper->retry_ms = now_ms + LOOK_MS;
        } else if (warm < wanted && now_ms >= keeper->retry_ms) {
                start_worker(keeper, SPARE_WARM);
        } else if (ahead < keeper->ahead && now_ms >= keeper->retry_ms &&
                now_ms >= keeper->ahead_ms) {
                start_worker(keeper, SPARE_AHEAD);
        }
}

/* Until something is to be done without being told. */
static int next_look(const struct keeper *keeper, int64_t now_ms)
{
        bool due = keeper->worker == 0 && keeper->ahead_ms > now_ms &&
                keeper->ahead_ms - now_ms < LOOK_MS;
        return due ? (int)(keeper->ahead_ms - now_ms) : LOOK_MS;
}

/* ------------------------------------------------------------- clients -- */

static void answer(struct keeper *keeper, int fd)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        struct keeper_message message = {0};
        if (poll(&poll_fd, 1, CLIENT_MS) <= 0 ||
                recv(fd, &message, sizeof message, MSG_DONTWAIT) != (ssize_t)sizeof message ||
                message.version != KEEPER_VERSION)
                return;
        note_use(keeper);
        switch (message.operation) {
        case KEEPER_MEMORY:
                template_touch(keeper->template);
                (void)fd_send(fd, &message, sizeof message, &keeper->memory_fd, 1);
                break;
        case KEEPER_END:
                keeper->ended = true;
                (void)fd_send(fd, &message, sizeof message, NULL, 0);
                break;
        case KEEPER_LOOK:
                keeper->retry_ms = 0;
                (void)fd_send(fd, &message, sizeof message, NULL, 0);
                break;
        default:
                break;
        }
}

static void accept_clients(struct keeper *keeper)
{
        for (;;) {
                AUTO_FD int fd = accept4(keeper->listen_fd, NULL, NULL, SOCK_CLOEXEC);
                struct ucred peer;
                socklen_t size = sizeof peer;
                if (fd < 0)
                        return;
                if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                        (peer.uid == geteuid() || peer.uid == 0))
                        answer(keeper, fd);
        }
}

/* A claim is a use. */
static void read_watch(struct keeper *keeper)
{
        char events[4096];
        bool claimed = false;
        while (read(keeper->watch_fd, events, sizeof events) > 0)
                claimed = true;
        if (claimed) {
                note_use(keeper);
                template_touch(keeper->template);
        }
}

/* Removed behind its back, it has nothing to keep any more. */
static bool template_is_gone(const struct keeper *keeper)
{
        struct stat info;
        return fstat(keeper->template->dir_fd, &info) < 0 || info.st_nlink == 0 ||
                fstatat(keeper->template->dir_fd, TEMPLATE_MANIFEST_NAME, &info,
                        AT_SYMLINK_NOFOLLOW) < 0;
}

/* What a killed one began is swept: its machine ends with the keeper. */
static void end_worker(struct keeper *keeper)
{
        if (keeper->worker <= 0)
                return;
        int64_t deadline = deadline_after_ms(WORKER_END_MS);
        struct pollfd gone = {.fd = keeper->worker_fd, .events = POLLIN};
        while (poll(&gone, 1, deadline_left_ms(deadline)) < 0 && errno == EINTR)
                continue;
        if (gone.revents == 0)
                (void)kill(keeper->worker, SIGKILL);
        (void)waitpid(keeper->worker, NULL, 0);
        keeper->worker = 0;
}

static void drop_all(struct keeper *keeper, enum spare_kind kind)
{
        uint32_t left = spare_count(keeper->template->dir_fd, kind);
        while (left > 0) {
                drop_one(keeper, kind);
                uint32_t now = spare_count(keeper->template->dir_fd, kind);
                if (now >= left)
                        break;
                left = now;
        }
}

static void leave(struct keeper *keeper)
{
        /* first: who has connected sees the end at once, and nobody connects any more */
        (void)unlinkat(keeper->template->dir_fd, TEMPLATE_KEEPER_NAME, 0);
        close_quietly(take_fd(&keeper->listen_fd));
        end_worker(keeper);
        for (int kind = SPARE_WARM; kind <= SPARE_AHEAD; kind++)
                drop_all(keeper, (enum spare_kind)kind);
}

int keeper_run(struct keeper *keeper, cubby_error *err)
{
        while (!keeper->ended) {
                int64_t now = clock_monotonic_ms();
                if (now - keeper->used_ms > keeper->idle_ms || template_is_gone(keeper))
                        break;
                tend_spares(keeper, now);
                struct pollfd fds[] = {{.fd = keeper->listen_fd, .events = POLLIN},
                        {.fd = keeper->watch_fd, .events = POLLIN},
                        {.fd = keeper->worker > 0 ? keeper->worker_fd : -1, .events = POLLIN}};
                if (poll(fds, 3, next_look(keeper, now)) < 0 && errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for clients");
                if (fds[0].revents != 0)
                        accept_clients(keeper);
                if (fds[1].revents != 0)
                        read_watch(keeper);
                if (keeper->worker > 0)
                        worker_ended(keeper);
        }
        leave(keeper);
        return 0;
}

void keeper_close(struct keeper *keeper)
{
        close_quietly(keeper->memory_fd);
        close_quietly(keeper->listen_fd);
        close_quietly(keeper->watch_fd);
        close_quietly(keeper->spare_end);
        close_quietly(keeper->keeper_end);
        close_quietly(keeper->worker_fd);
        template_close(keeper->template);
        box_config_clear(&keeper->config);
        box_home_close(keeper->host);
}
