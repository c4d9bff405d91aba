/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREAD_STACK (256U * 1024U)
#define IN_CREDIT_STEP (FILE_WINDOW / 8)
#define NO_CAPABILITIES 0ULL

/* What of the workload's capabilities has to do with files. The last two change ids. */
#define FILE_CAPABILITIES                                                                         \
        (1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID | \
                1ULL << CAP_SETFCAP)
#define ID_CAPABILITIES (1ULL << CAP_SETUID | 1ULL << CAP_SETGID)

struct thread {
        struct files *files;
        struct file_call *call;
        struct user_cache *users;
        struct identity identity; /* whose ids the thread has */
        int root_fd, proc_fd;
};

static int set_capabilities(uint64_t permitted, uint64_t effective)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        const struct __user_cap_data_struct sets[2] = {
                {.effective = (uint32_t)effective, .permitted = (uint32_t)permitted},
                {.effective = (uint32_t)(effective >> 32),
                        .permitted = (uint32_t)(permitted >> 32)},
        };
        return (int)syscall(SYS_capset, &header, sets);
}

/* Into the workload's file systems, as a process of its root; /proc stays the agent's. */
static int enter(struct thread *thread, cubby_error *err)
{
        const struct workload *workload = thread->files->workload;
        thread->users = user_cache_new();
        if (thread->users == NULL)
                return cubby_error_no_memory(err);
        thread->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (thread->proc_fd < 0 || unshare(CLONE_FS) < 0 ||
                setns(workload->mounts_fd, CLONE_NEWNS) < 0 || fchdir(workload->root_fd) < 0 ||
                chroot(".") < 0)
                return cubby_error_errno(err, errno, "entering the box's file systems");
        thread->root_fd = workload->root_fd;
        (void)umask(0);
        if (set_capabilities(
                    FILE_CAPABILITIES | ID_CAPABILITIES, FILE_CAPABILITIES | ID_CAPABILITIES) < 0)
                return cubby_error_errno(err, errno, "giving up capabilities");
        return 0;
}

static bool same_identity(const struct identity *a, const struct identity *b)
{
        return a->uid == b->uid && a->gid == b->gid && a->group_count == b->group_count &&
                memcmp(a->groups, b->groups, a->group_count * sizeof a->groups[0]) == 0;
}

/*
 * The C library's calls would try to change every thread of the agent. Both calls tell
 * only the id before; asked for an impossible one, they change nothing.
 */
static bool set_file_ids(uid_t uid, gid_t gid)
{
        (void)syscall(SYS_setfsgid, gid);
        (void)syscall(SYS_setfsuid, uid);
        return (gid_t)syscall(SYS_setfsgid, -1) == gid && (uid_t)syscall(SYS_setfsuid, -1) == uid;
}

/* The kernel then checks what the call does as if this user's program did it. */
static int become(struct thread *thread, const struct identity *identity, cubby_error *err)
{
        if (same_identity(&thread->identity, identity))
                return 0;
        uint64_t effective =
                ID_CAPABILITIES | (identity->uid == 0 ? FILE_CAPABILITIES : NO_CAPABILITIES);
        if (syscall(SYS_setgroups, identity->group_count, identity->groups) < 0 ||
                !set_file_ids(identity->uid, identity->gid) ||
                set_capabilities(FILE_CAPABILITIES | ID_CAPABILITIES, effective) < 0) {
                thread->identity.uid = (uid_t)-1; /* whoever it is now */
                return cubby_error_set(err, CUBBY_E_SYSTEM, "acting as user %u was refused",
                        (unsigned)identity->uid);
        }
        thread->identity = *identity;
        return 0;
}

/* passwd and group are read as root, whoever the thread has been. */
static int resolve(
        struct thread *thread, const char *spec, const struct identity **ret, cubby_error *err)
{
        static const struct identity root = {0};
        return become(thread, &root, err) < 0 ? -1
                                              : user_cache_resolve(thread->users, spec, ret, err);
}

static int find_owner(
        void *data, const char *spec, uid_t *ret_uid, gid_t *ret_gid, cubby_error *err)
{
        struct thread *thread = data;
        const struct identity *owner = NULL;
        struct identity present = thread->identity;
        if (resolve(thread, spec, &owner, err) < 0) {
                (void)become(thread, &present, NULL);
                return -1;
        }
        *ret_uid = owner->uid;
        *ret_gid = owner->gid;
        return become(thread, &present, err);
}

static void wake_port(struct files *files)
{
        const uint64_t one = 1;
        if (!atomic_exchange(&files->woken, true))
                (void)!write(files->wake_fd, &one, sizeof one);
}

/* With the lock held: from here until start_running the call may be frozen. */
static void stop_running(struct files *files)
{
        files->running--;
        if (files->paused)
                wake_port(files);
}

static void start_running(struct files *files)
{
        while (files->paused)
                (void)pthread_cond_wait(&files->resumed, &files->lock);
        files->running++;
}

static int cancelled(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_CANCELLED, "the call was given up");
}

/* With the lock held: waits for room, which the port thread makes. */
static int put_out(struct file_call *call, struct record *record, cubby_error *err)
{
        struct files *files = call->files;
        if (files->paused || (!call->cancelled && call->out.bytes > FILE_OUT_MAX)) {
                stop_running(files);
                while (!call->cancelled && call->out.bytes > FILE_OUT_MAX)
                        (void)pthread_cond_wait(&call->changed, &files->lock);
                start_running(files);
        }
        if (call->cancelled)
                return cancelled(err);
        records_put(&call->out, record);
        return 0;
}

static int send_out(void *data, uint16_t type, const void *bytes, size_t size, cubby_error *err)
{
        struct thread *thread = data;
        struct files *files = thread->files;
        const uint8_t *next = bytes;
        if (type == FRAME_FILE_ENTRY && (size == 0 || size > FILE_ENTRY_MAX))
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "a result of %zu bytes is too long", size);
        int result = 0;
        while (size > 0 && result == 0) {
                size_t piece =
                        size < PORT_DATA_SIZE || type == FRAME_FILE_ENTRY ? size : PORT_DATA_SIZE;
                struct record *record = record_new(type, next, piece);
                if (record == NULL)
                        return cubby_error_no_memory(err);
                (void)pthread_mutex_lock(&files->lock);
                result = put_out(thread->call, record, err);
                (void)pthread_mutex_unlock(&files->lock);
                if (result < 0)
                        free(record);
                wake_port(files);
                next += piece;
                size -= piece;
        }
        return result;
}

static int pause_here(void *data, cubby_error *err)
{
        struct thread *thread = data;
        struct files *files = thread->files;
        (void)pthread_mutex_lock(&files->lock);
        if (files->paused) {
                stop_running(files);
                start_running(files);
        }
        bool gone = thread->call->cancelled;
        (void)pthread_mutex_unlock(&files->lock);
        return gone ? cancelled(err) : 0;
}

/* With the lock held: what is consumed is given back as credit, some of it at a time. */
static void consumed(struct file_call *call, size_t size)
{
        call->in_consumed += (uint32_t)size;
        if (call->in_consumed >= IN_CREDIT_STEP)
                call->credit_due = true;
}

/* With the lock held: 1 with a record, 0 at the end. */
static int take_in(struct file_call *call, struct record **ret, cubby_error *err)
{
        struct files *files = call->files;
        if (files->paused || (!call->cancelled && !call->in_ended && call->in.first == NULL)) {
                stop_running(files);
                while (!call->cancelled && !call->in_ended && call->in.first == NULL)
                        (void)pthread_cond_wait(&call->changed, &files->lock);
                start_running(files);
        }
        if (call->cancelled)
                return cancelled(err);
        *ret = records_take(&call->in);
        if (*ret == NULL)
                return 0;
        consumed(call, (*ret)->size);
        return 1;
}

static int receive_in(void *data, uint16_t *ret_type, struct slice *ret, cubby_error *err)
{
        struct thread *thread = data;
        struct files *files = thread->files;
        struct file_call *call = thread->call;
        struct record *record = NULL;
        (void)pthread_mutex_lock(&files->lock);
        int result = take_in(call, &record, err);
        bool due = call->credit_due;
        (void)pthread_mutex_unlock(&files->lock);
        free(call->taken);
        call->taken = record;
        if (due)
                wake_port(files);
        if (result <= 0)
                return result;
        *ret_type = record->type;
        *ret = (struct slice){record->bytes, record->size};
        return 1;
}

static int wait_for(void *data, int fd, cubby_error *err)
{
        struct thread *thread = data;
        struct file_call *call = thread->call;
        struct files *files = thread->files;
        (void)pthread_mutex_lock(&files->lock);
        if (call->wait_fd < 0)
                call->wait_fd = eventfd(call->cancelled ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct pollfd fds[2] = {
                {.fd = fd, .events = POLLIN}, {.fd = call->wait_fd, .events = POLLIN}};
        int result =
                call->wait_fd < 0 ? cubby_error_errno(err, errno, "making an event descriptor") : 0;
        stop_running(files);
        (void)pthread_mutex_unlock(&files->lock);
        if (result == 0)
                (void)poll(fds, 2, -1);
        (void)pthread_mutex_lock(&files->lock);
        start_running(files);
        if (result == 0 && call->cancelled)
                result = cancelled(err);
        (void)pthread_mutex_unlock(&files->lock);
        return result;
}

static void run(struct thread *thread, struct file_call *call)
{
        const struct file_io io = {.root_fd = thread->root_fd,
                .proc_fd = thread->proc_fd,
                .drafts_fd = thread->files->workload->drafts_fd,
                .data = thread,
                .send = send_out,
                .receive = receive_in,
                .pause = pause_here,
                .wait = wait_for,
                .own_folder = true,
                .owner = find_owner};
        const struct identity *identity = NULL;
        file_operation_fn *operation = file_operation_find(call->message.operation);
        AUTO_FREE char *user = file_text(call->message.user, &call->error);
        thread->call = call;
        if (user == NULL)
                return;
        int result = -1;
        if (operation == NULL)
                (void)cubby_error_set(&call->error, CUBBY_E_UNSUPPORTED,
                        "this box's agent has no such file call");
        else if (resolve(thread, user, &identity, &call->error) == 0 &&
                become(thread, identity, &call->error) == 0)
                result = operation(&call->message, &io, &call->reply, &call->error);
        if (result == 0)
                cubby_error_clear(&call->error);
}

static struct file_call *next_call(struct files *files)
{
        while (files->first == NULL)
                (void)pthread_cond_wait(&files->filled, &files->lock);
        struct file_call *call = files->first;
        files->first = call->next;
        if (files->first == NULL)
                files->last = &files->first;
        return call;
}

/* `problem`: why no call can be served on this thread; NULL when it can. */
static _Noreturn void serve(struct thread *thread, const cubby_error *problem)
{
        struct files *files = thread->files;
        (void)pthread_mutex_lock(&files->lock);
        for (;;) {
                files->idle++;
                struct file_call *call = next_call(files);
                files->idle--;
                start_running(files);
                bool gone = call->cancelled;
                (void)pthread_mutex_unlock(&files->lock);
                if (problem != NULL)
                        call->error = *problem;
                else if (gone)
                        (void)cancelled(&call->error);
                else
                        run(thread, call);
                (void)pthread_mutex_lock(&files->lock);
                call->done = true;
                stop_running(files);
                wake_port(files);
        }
}

static void *thread_main(void *data)
{
        struct thread thread = {.files = data, .root_fd = -1, .proc_fd = -1};
        cubby_error problem = {0};
        const struct sched_param plain = {0};
        /* A wake-up does not push the port thread off the processor: it then hands over all
         * that there is, not each frame for itself. */
        (void)sched_setscheduler(0, SCHED_BATCH, &plain);
        /* nor has it the port thread's urgency, when that made it in a flood */
        (void)setpriority(PRIO_PROCESS, 0, 0);
        if (enter(&thread, &problem) == 0)
                serve(&thread, NULL);
        log_line(thread.files->log, LOG_ERROR, "a file thread: %s", problem.message);
        serve(&thread, &problem);
}

static int start(struct files *files, cubby_error *err)
{
        pthread_t thread;
        pthread_attr_t attributes;
        (void)pthread_attr_init(&attributes);
        (void)pthread_attr_setstacksize(&attributes, THREAD_STACK);
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        int result = pthread_create(&thread, &attributes, thread_main, files);
        (void)pthread_attr_destroy(&attributes);
        if (result != 0)
                return cubby_error_errno(err, result, "starting a file thread");
        files->threads++;
        return 0;
}

int files_init(struct files *files, int wake_fd, const struct workload *workload,
        const struct log *log, cubby_error *err)
{
        *files = (struct files){.wake_fd = wake_fd,
                .workload = workload,
                .log = log,
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .filled = PTHREAD_COND_INITIALIZER,
                .resumed = PTHREAD_COND_INITIALIZER};
        files->last = &files->first;
        for (unsigned i = 0; i < FILE_THREADS_KEPT; i++)
                if (start(files, err) < 0)
                        return -1;
        return 0;
}

void files_push(struct files *files, struct file_call *call)
{
        (void)pthread_mutex_lock(&files->lock);
        call->next = NULL;
        *files->last = call;
        files->last = &call->next;
        size_t waiting = 0;
        for (const struct file_call *one = files->first; one != NULL; one = one->next)
                waiting++;
        bool more = waiting > files->idle && files->threads < FILE_THREADS_MAX;
        (void)pthread_mutex_unlock(&files->lock);
        (void)pthread_cond_signal(&files->filled);
        if (more)
                (void)start(files, NULL); /* else it waits for one of those there are */
}
