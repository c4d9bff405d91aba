/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 64
#define OWN_LOCK_MS 2000
#define CONSOLE_LOOK_MS 2000
#define FILE_LIMIT (2U * KEPT_SEGMENT_MAX)
#define DESCRIPTOR_LIMIT 2048U

static void write_log(void *data, int level, const char *line)
{
        const struct shim *shim = data;
        if (level <= LOG_WARNING && shim->console_fd >= 0)
                (void)dprintf(shim->console_fd, "shim: %s\n", line);
}

static int check_kind(int fd, mode_t kind, const char *what, cubby_error *err)
{
        struct stat info;
        if (fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "descriptor %d (%s)", fd, what);
        if ((info.st_mode & S_IFMT) != kind)
                return cubby_error_set(err, CUBBY_E_INVALID, "descriptor %d is not %s", fd, what);
        return fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/*
 * The given lock is an open file of the creator's too, and of whatever the creator's program
 * forked meanwhile: it would outlive a shim that is killed. So the shim moves the lock to an
 * open file of its own. In between, while neither is held, a record lock on the new one says
 * that the box is alive.
 */
static int own_lock(cubby_error *err)
{
        AUTO_FD int own =
                openat(SHIM_FD_BOX, BOX_LOCK_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat given;
        struct stat opened;
        if (own < 0 || fstat(SHIM_FD_LOCK, &given) < 0 || fstat(own, &opened) < 0)
                return cubby_error_errno(err, errno, "opening the box's lock");
        if (given.st_dev != opened.st_dev || given.st_ino != opened.st_ino)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's lock was exchanged");
        struct flock alive = BOX_ALIVE_RECORD;
        if (fcntl(own, F_OFD_SETLK, &alive) < 0)
                return cubby_error_errno(err, errno, "locking the box");
        (void)flock(SHIM_FD_LOCK, LOCK_UN);
        /* under the same number: the others are for what the creator hands over */
        if (dup3(own, SHIM_FD_LOCK, O_CLOEXEC) < 0)
                return cubby_error_errno(err, errno, "taking the box's lock over");
        /* who probes holds it for moments only */
        int64_t deadline = deadline_after_ms(OWN_LOCK_MS);
        while (flock(own, LOCK_EX | LOCK_NB) < 0 && deadline_left_ms(deadline) != 0)
                (void)poll(NULL, 0, 1);
        return 0;
}

int setup_descriptors(struct shim *shim, cubby_error *err)
{
        /* Reports first: whatever else is wrong, the creator hears of it. */
        if (check_kind(SHIM_FD_STATUS, S_IFSOCK, "the creator's socket", err) < 0)
                return -1;
        shim->status_fd = SHIM_FD_STATUS;
        if (check_kind(SHIM_FD_BOX, S_IFDIR, "the box's folder", err) < 0 ||
                check_kind(SHIM_FD_LOCK, S_IFREG, "the box's lock", err) < 0)
                return -1;
        if (flock(SHIM_FD_LOCK, LOCK_EX | LOCK_NB) < 0)
                return cubby_error_set(err, CUBBY_E_BUSY, "the box is owned by another process");
        /* from here on the folder is this process's to write in */
        if (own_lock(err) < 0)
                return -1;
        shim->lock_fd = SHIM_FD_LOCK;
        shim->box_fd = SHIM_FD_BOX;
        static const enum shim_fd given[SHIM_GIVEN] = {
                SHIM_FD_ROOTFS, SHIM_FD_VMLINUX, SHIM_FD_INITRAMFS, SHIM_FD_MEMORY, SHIM_FD_STATE};
        for (size_t i = 0; i < SHIM_GIVEN; i++) {
                if (fcntl((int)given[i], F_GETFD) < 0)
                        continue; /* the engine says whether it needs it */
                if (check_kind((int)given[i], S_IFREG, "a file", err) < 0)
                        return -1;
                shim->given_fds[i] = (int)given[i];
        }
        if (fcntl(SHIM_FD_KEEPER, F_SETFD, FD_CLOEXEC) == 0)
                shim->keeper_fd = SHIM_FD_KEEPER;
        (void)syscall(SYS_close_range, (unsigned)SHIM_FD_LAST + 1U, ~0U, 0U);
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; fd < 3; fd++)
                if (null_fd >= 0 && dup2(null_fd, fd) < 0)
                        return cubby_error_errno(err, errno, "closing standard descriptors");
        close_quietly(null_fd > 2 ? null_fd : -1);
        (void)umask(077);
        if (fchdir(shim->box_fd) < 0)
                return cubby_error_errno(err, errno, "entering the box's folder");

        (void)signal(SIGPIPE, SIG_IGN);
        (void)signal(SIGXFSZ, SIG_IGN); /* a VMM may have made the console larger than our limit */
        (void)signal(SIGHUP, SIG_IGN);
        (void)signal(SIGINT, SIG_IGN);
        sigset_t set;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return cubby_error_errno(err, errno, "blocking signals");
        shim->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (shim->signal_fd < 0)
                return cubby_error_errno(err, errno, "watching signals");
        return 0;
}

int setup_config(struct shim *shim, cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (file_read_at(shim->box_fd, BOX_CONFIG_NAME, &json, err) < 0 ||
                box_config_decode(json.data, json.size, &shim->config, err) < 0)
                return cubby_error_wrap(err, "the box's configuration");
        shim->command.exists = shim->options->mode != SHIM_RESUME && shim->config.argv != NULL &&
                shim->config.argv[0] != NULL;
        if (box_signal_number(shim->config.stop_signal) <= 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's stop signal is unknown");
        shim->engine = shim->options->find_engine(shim->config.engine);
        if (shim->engine == NULL)
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "there is no engine of the name '%s'", shim->config.engine);
        return 0;
}

/* Who escaped from an earlier run of this box may have left a trap instead of
 * the disk: only a plain file of the box's own is opened. */
static int open_disk(struct shim *shim, uid_t box_uid, cubby_error *err)
{
        AUTO_FD int fd = open(BOX_DISK_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat info;
        if (fd < 0 || fstat(fd, &info) < 0)
                return cubby_error_errno(err, errno, "opening the box's disk");
        if (!S_ISREG(info.st_mode) || info.st_nlink != 1 || info.st_uid != box_uid)
                return cubby_error_set(
                        err, CUBBY_E_CORRUPT, "the box's disk is not a file of its own");
        shim->disk_fd = take_fd(&fd);
        return 0;
}

static int open_console(struct shim *shim, uid_t box_uid, cubby_error *err)
{
        if (unlink(BOX_CONSOLE_NAME) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing the old console log");
        shim->console_fd = open(BOX_CONSOLE_NAME,
                O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (shim->console_fd < 0 || fchown(shim->console_fd, box_uid, (gid_t)-1) < 0)
                return cubby_error_errno(err, errno, "making the console log");
        return 0;
}

static enum accel accel_of(const char *name)
{
        if (strcmp(name, "kvm") == 0)
                return ACCEL_KVM;
        return strcmp(name, "tcg") == 0 ? ACCEL_TCG : ACCEL_AUTO;
}

static enum machine_origin origin_of(const struct shim *shim)
{
        switch (shim->options->mode) {
        case SHIM_TEMPLATE:
                return MACHINE_TEMPLATE;
        case SHIM_CLONE:
        case SHIM_RESUME:
        case SHIM_SPARE:
        case SHIM_AHEAD:
                return MACHINE_CLONE;
        case SHIM_BOOT:
                break;
        }
        return shim->given_fds[3] >= 0 ? MACHINE_TEMPLATE : MACHINE_BOOT;
}

static int check_saved(const struct shim *shim, cubby_error *err)
{
        if (shim->options->mode == SHIM_BOOT)
                return 0;
        if ((shim->engine->capabilities & ENGINE_CAN_CLONE) == 0)
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "the engine '%s' neither saves nor clones machines", shim->engine->name);
        if (shim->given_fds[3] < 0 || shim->given_fds[4] < 0)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "a saved machine needs its memory and its state");
        return 0;
}

int setup_machine(struct shim *shim, cubby_error *err)
{
        bool root = geteuid() == 0;
        uid_t box_uid = root ? BOX_UID_FIRST + shim->config.slot : geteuid();
        shim->client_uid = geteuid();
        if (check_saved(shim, err) < 0 || open_disk(shim, box_uid, err) < 0 ||
                open_console(shim, box_uid, err) < 0)
                return -1;
        shim->log = (struct log){.write = write_log, .data = shim};
        struct machine_config config = {.memory_bytes = shim->config.memory_bytes,
                .vcpus = shim->config.cpu_milli < 1000 ? 1 : (shim->config.cpu_milli + 999) / 1000,
                .accel = accel_of(shim->config.accel),
                .own_kernel = shim->config.kernel[0] != '\0',
                .rootfs_fd = shim->given_fds[0],
                .vmlinux_fd = shim->given_fds[1],
                .initramfs_fd = shim->given_fds[2],
                .disk_fd = shim->disk_fd,
                .origin = origin_of(shim),
                .memory_fd = shim->given_fds[3],
                .state_fd = shim->given_fds[4],
                .waits = shim->options->mode == SHIM_AHEAD,
                .console_fd = shim->console_fd,
                .uid = root ? box_uid : 0,
                .weak_jail = secure_getenv(BOX_WEAK_JAIL) != NULL,
                .log = &shim->log};
        if (shim->engine->start(&config, &shim->machine, err) < 0)
                return cubby_error_wrap(err, "starting the machine");
        (void)snprintf(shim->isolation, sizeof shim->isolation, "%s",
                isolation_name(shim->engine->isolation(shim->machine)));
        int fd = fcntl(shim->engine->agent_fd(shim->machine), F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return cubby_error_errno(err, errno, "taking the agent's port");
        connection_init(&shim->agent, fd, FRAME_FROM_GUEST_MAX, AGENT_QUEUE_MAX, AGENT_QUEUE_MAX);
        /* The machine has its own by now. */
        close_quietly(take_fd(&shim->disk_fd));
        if (shim->options->mode == SHIM_TEMPLATE)
                shim->state_fd = take_fd(&shim->given_fds[4]);
        for (size_t i = 0; i < SHIM_GIVEN; i++)
                close_quietly(take_fd(&shim->given_fds[i]));
        return 0;
}

static void limit(int resource, rlim_t value)
{
        struct rlimit wanted = {.rlim_cur = value, .rlim_max = value};
        struct rlimit now;
        if (getrlimit((__rlimit_resource_t)resource, &now) == 0 && now.rlim_max < value)
                return; /* tighter already */
        (void)setrlimit((__rlimit_resource_t)resource, &wanted);
}

int setup_privileges(struct shim *shim, cubby_error *err)
{
        for (int capability = 0; capability < 64; capability++)
                (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0); /* as far as it may */
        if (geteuid() == 0) {
                uid_t uid = BOX_UID_FIRST + shim->config.slot;
                if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
                        setresuid(uid, uid, uid) < 0)
                        return cubby_error_errno(err, errno, "becoming uid %u", uid);
        }
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        if (syscall(SYS_capset, &header, none) < 0)
                return cubby_error_errno(err, errno, "dropping capabilities");
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return cubby_error_errno(err, errno, "giving privileges up");
        limit(RLIMIT_CORE, 0);
        /* a copy of the machine's memory is the largest file that it ever makes */
        uint64_t memory = shim->config.memory_bytes;
        limit(RLIMIT_FSIZE, memory > FILE_LIMIT ? memory : FILE_LIMIT);
        limit(RLIMIT_NOFILE, DESCRIPTOR_LIMIT);
        limit(RLIMIT_MEMLOCK, 0);
        limit(RLIMIT_NPROC, 0); /* it starts nothing any more */
        return 0;
}

int setup_socket(struct shim *shim, cubby_error *err)
{
        if (unlink(BOX_SOCKET_NAME) < 0 && errno != ENOENT)
                return cubby_error_errno(err, errno, "removing the old socket");
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = BOX_SOCKET_NAME};
        shim->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (shim->listen_fd < 0 ||
                bind(shim->listen_fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
                listen(shim->listen_fd, LISTEN_BACKLOG) < 0)
                return cubby_error_errno(err, errno, "making the box's socket");
        if (kept_log_open(&shim->kept, shim->box_fd, err) < 0)
                return -1;
        shim->command.first = kept_log_end(&shim->kept);
        return 0;
}

void setup_close(struct shim *shim)
{
        connection_close(&shim->agent);
        kept_log_close(&shim->kept);
        close_quietly(take_fd(&shim->listen_fd));
        close_quietly(take_fd(&shim->signal_fd));
        close_quietly(take_fd(&shim->console_fd));
        close_quietly(take_fd(&shim->disk_fd));
        close_quietly(take_fd(&shim->state_fd));
        close_quietly(take_fd(&shim->keeper_fd));
        box_config_clear(&shim->config);
}

void console_bound(struct shim *shim, int64_t now_ms)
{
        if (now_ms < shim->console_ms || shim->console_fd < 0)
                return;
        struct stat info;
        bool large = fstat(shim->console_fd, &info) == 0 && info.st_size > (off_t)CONSOLE_MAX;
        if (large) {
                char kept[CONSOLE_KEPT];
                ssize_t size =
                        pread(shim->console_fd, kept, sizeof kept, info.st_size - CONSOLE_KEPT);
                if (ftruncate(shim->console_fd, 0) == 0 && size > 0)
                        (void)write_whole(shim->console_fd, kept, (size_t)size);
        }
        /* a quiet machine is looked at less often */
        shim->console_ms = now_ms + (large ? CONSOLE_LOOK_MS : 5 * CONSOLE_LOOK_MS);
}

void console_tail(const struct shim *shim, char *ret, size_t size)
{
        ret[0] = '\0';
        struct stat info;
        if (shim->console_fd < 0 || fstat(shim->console_fd, &info) < 0)
                return;
        off_t from = info.st_size > (off_t)size - 1 ? info.st_size - (off_t)size + 1 : 0;
        ssize_t got = pread(shim->console_fd, ret, size - 1, from);
        if (got < 0)
                got = 0;
        while (got > 0 && (ret[got - 1] == '\n' || ret[got - 1] == '\r'))
                got--;
        ret[got] = '\0';
        char *line = from > 0 ? strchr(ret, '\n') : NULL;
        if (line != NULL) /* the first one is cut off */
                memmove(ret, line + 1, strlen(line + 1) + 1);
        for (char *c = ret; *c != '\0'; c++)
                if ((*c < ' ' && *c != '\n') || *c == 0x7f)
                        *c = ' ';
}
