/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_BOX_H
#define BOX_BOX_H

/*
 * One box, from its record to its end. The types and contracts are those of
 * cubby.h; src/api only checks arguments and exports. A box's truth is its
 * folder: it lives as long as its shim holds the lock in there, nobody trusts a
 * process number.
 */

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "box/config.h"
#include "channel/client.h"
#include "state/home.h"
#include "state/records.h"

#include <cubby/cubby.h>
#include <pthread.h>
#include <stdatomic.h>

#define BOX_STARTED_NAME "started" /* made when a shim is started, see struct box_started */
#define BOX_CALL_MS 10000          /* a request to a shim or agent is answered within it */
#define BOX_END_MS 10000           /* a box that was told to end is gone within it */
#define BOX_PROBE_MS 1000          /* questions whose answer one can do without */
#define BOX_RUN_KEPT (8U << 20)    /* of each stream, by box_run */

struct cubby {
        struct home *home;
        struct log log;
        cubby_progress_fn progress;
        void *progress_data;
        bool unattended; /* a keeper: no person reads its log */
};

/*
 * Who wants to know when a box fails for good: the pool that it belongs to.
 * `failed` is called on the thread of the call that found out, before it returns.
 */
struct box_watch {
        void (*failed)(void *data, const cubby_error *problem);
        void (*drop)(void *data); /* with the last reference */
        void *data;
};

/* The folders that agents work in, and the command line that makes them. */
#define BOX_WORK_FOLDERS_COMMAND                                           \
        "mkdir -p -m 777 /mnt/user-data/workspace /mnt/user-data/uploads " \
        "/mnt/user-data/outputs /mnt/skills"

struct cubby_box {
        atomic_uint references;
        atomic_bool doomed; /* its owner has ended it: calls fail with CUBBY_E_CLOSED */
        struct box_watch watch;
        cubby *cubby; /* outlives the handle */
        char *id;
        char *image_id;
        uint32_t slot;
        int dir_fd;
        struct box_config config; /* as it was when the handle was made; its name may be old */
        cubby_error damage; /* not CUBBY_OK: config.json cannot be used and `config` is empty; such
                               a box can be looked at, stopped and removed */
};

static inline void cleanup_box_config(struct box_config *config)
{
        box_config_clear(config);
}
#define AUTO_CONFIG __attribute__((cleanup(cleanup_box_config)))

/* home.c */
int box_home_open(const cubby_open_options *options, cubby **ret, cubby_error *err);
void box_home_close(cubby *host);
/* Once for each home and boot of the host. */
void box_announce_emulation(const cubby *host);
void box_progress(
        const cubby *host, const char *stage, const char *detail, uint64_t done, uint64_t total);

/* options.c: what a box will be, checked; nothing is made. */
int box_plan(
        cubby *host, const cubby_box_options *options, struct box_config *ret, cubby_error *err);
/* "NAME=VALUE" with a name that every shell accepts. */
int box_check_env(const char *const *env, cubby_error *err);
/* `base` with the entries of `over` put over or behind it; the caller frees. */
int box_merge_env(char *const *base, const char *const *over, char ***ret, cubby_error *err);
/* CUBBY_E_INVALID with E2BIG, as the kernel says it of arguments. Returns -1. */
int box_too_big(cubby_error *err, const char *what, size_t limit, const char *unit);
void box_free_list(char **list);
int box_copy_list(const char *const *list, char ***ret, cubby_error *err);

/* names.c */
void box_make_id(char ret[33]);
void box_make_name(char ret[64], bool numbered);

/* disk.c: the program that makes disks, NULL when it is missing. */
const char *box_find_mke2fs(void);
/* The disk in a box's folder, its user's, whole or not at all: a copy of `from_fd`, or,
 * with -1, an empty ext4 unless there is one. */
int box_disk_place(
        cubby *host, const struct box_config *config, int dir_fd, int from_fd, cubby_error *err);

/* create.c */
int box_create(cubby *host, const cubby_box_options *options, cubby_box **ret, cubby_error *err);
/* What every box's folder holds: disk (a copy of `disk_fd`; -1: its first start makes
 * it), config and lock, given to the user of its slot. */
int box_fill_folder(
        cubby *host, const struct box_config *config, int dir_fd, int disk_fd, cubby_error *err);
/* Record and folder of a box whose config is whole but for its slot; its disk is a
 * copy of `disk_fd` (-1: its first start makes it). `made_up`: another name may be chosen. The
 * caller holds the lock "boxes". */
int box_record_new(cubby *host, struct box_config *config, bool made_up, int disk_fd,
        cubby_box **ret, cubby_error *err);
int box_open(cubby *host, const char *name, cubby_box **ret, cubby_error *err);
/* CUBBY_OK, or why this box can only be looked at and removed. */
int box_check_whole(const cubby_box *box, cubby_error *err);
int box_open_record(
        cubby *host, const struct box_record *record, cubby_box **ret, cubby_error *err);
/* Gives a reference back; the last one closes. */
void box_close(cubby_box *box);
cubby_box *box_share(cubby_box *box); /* one reference more */
/* At the begin of a call on the box: CUBBY_E_CLOSED when it is doomed. */
int box_enter(cubby_box *box, cubby_error *err);
/* At its end, with what it answered: tells the watch of a failure for good, copies
 * the problem to err. Returns `result`. */
int64_t box_leave(cubby_box *box, int64_t result, const cubby_error *problem, cubby_error *err);
DEFINE_AUTO(cubby_box, box_close)

/* program.c: "cubby-shim" or "cubby-agent", as an absolute path; the caller frees. */
int box_find_program(const char *name, char **ret, cubby_error *err);

/* start.c */
int box_start(cubby_box *box, cubby_error *err);

/* life.c: whether it lives, and how it ended */
struct box_started {
        int64_t started_ns;
        char isolation[16];
        char served[16]; /* "booted", "cloned", "spare" */
};
enum box_life { BOX_NEVER_STARTED, BOX_ALIVE, BOX_ENDED };
int box_life(const cubby_box *box, enum box_life *ret, cubby_error *err);
/* The box's lock; CUBBY_E_STATE when a shim holds it until the deadline. */
int box_lock(const cubby_box *box, int64_t deadline_ms, int *ret_fd, cubby_error *err);
/* Not synced: the first start of a box does that while its machine starts. */
int box_write_started(const cubby_box *box, const struct box_started *started, cubby_error *err);
/* Published by rename like file_publish_at, but not synced: for what is worth
 * nothing after a crash of the host. */
int box_write_quickly(
        int dir_fd, const char *name, const void *data, size_t size, cubby_error *err);
bool box_read_started(const cubby_box *box, struct box_started *ret);
/* The end of the last run; "shim-died" when the shim could not write it.
 * CUBBY_E_NOT_FOUND when the box was removed meanwhile. */
int box_read_end(const cubby_box *box, struct box_exit *ret, cubby_error *err);
/* What `wait` answers for it. */
int box_exit_code(const struct box_exit *exit);
/* Waits until nobody holds the lock. */
int box_wait_end(const cubby_box *box, int64_t deadline_ms, cubby_error *err);
/* Removes it when it has ended and was made to be removed then. */
void box_reap(cubby_box *box);

/* control.c */
int box_stop(cubby_box *box, int64_t timeout_ms, cubby_error *err);
int box_kill(cubby_box *box, int signal, cubby_error *err);
/* Ends a living box at once; it stays, also when it was made to be removed then. */
int box_end(const cubby_box *box, cubby_error *err);
int box_pause(cubby_box *box, bool pause, cubby_error *err);
int box_ping(cubby_box *box, int64_t timeout_ms, cubby_error *err);
int box_wait(cubby_box *box, int64_t timeout_ms, int *ret_exit_code, cubby_error *err);
/* One request with its one reply on a connection of its own. The frame's payload
 * belongs to *ret_client. */
int box_call(const cubby_box *box, uint16_t type, const void *payload, size_t size,
        uint16_t reply_type, int64_t deadline_ms, struct client **ret_client, struct frame *ret,
        cubby_error *err);
/* Connects, with an error that says in which state the box is when it cannot. */
int box_connect(const cubby_box *box, int64_t deadline_ms, struct client **ret, cubby_error *err);
/* SIGKILL for a shim that does not answer any more; its machine dies with it. */
int box_kill_shim(const cubby_box *box, cubby_error *err);
DEFINE_AUTO(client, client_close)

/* remove.c */
int box_remove_folder(cubby *host, const char *id, cubby_error *err);
int box_remove(cubby_box *box, bool force, cubby_error *err);
int box_rename(cubby_box *box, const char *name, cubby_error *err);

/* list.c */
int box_get_info(cubby_box *box, cubby_box_info *ret, cubby_error *err);
void box_info_clear(cubby_box_info *info);
int box_list(cubby *host, bool all, cubby_box_list **ret, cubby_error *err);
void box_list_free(cubby_box_list *list);
const char *box_state_name(int state);

/* inspect.c */
int box_inspect(cubby_box *box, char **ret_json, cubby_error *err);

/* stats.c */
int box_get_stats(cubby_box *box, cubby_box_stats *ret, cubby_error *err);
int box_processes(cubby_box *box, cubby_process **ret, size_t *ret_count, bool *ret_truncated,
        cubby_error *err);
int box_status(
        const cubby_box *box, int64_t deadline_ms, struct message_status *ret, cubby_error *err);

/* logs.c */
int box_logs(cubby_box *box, const cubby_log_options *options, cubby_log_fn write, void *data,
        cubby_error *err);

/* exec.c */
int box_exec_start(
        cubby_box *box, const cubby_exec_options *options, cubby_exec **ret, cubby_error *err);
int box_attach(cubby_box *box, bool replay, cubby_exec **ret, cubby_error *err);
int box_exec_next(cubby_exec *exec, int64_t timeout_ms, cubby_event *ret, cubby_error *err);
cubby_box *box_exec_box(const cubby_exec *exec);
int box_exec_fd(const cubby_exec *exec);
int64_t box_exec_write(
        cubby_exec *exec, const void *data, size_t size, int64_t timeout_ms, cubby_error *err);
int box_exec_close_stdin(cubby_exec *exec, cubby_error *err);
int box_exec_signal(cubby_exec *exec, int signal, cubby_error *err);
int box_exec_resize(cubby_exec *exec, uint16_t rows, uint16_t columns, cubby_error *err);
uint32_t box_exec_pid(const cubby_exec *exec);
void box_exec_close(cubby_exec *exec);
DEFINE_AUTO(cubby_exec, box_exec_close)
/* Lets one frame in, or waits until a frozen box is given up; for box_run. */
int box_exec_turn(cubby_exec *exec, cubby_error *err);

/* files.c */
void box_file_info_clear(cubby_file_info *info);
int box_file_stat(cubby_box *box, const char *path, bool follow, const cubby_file_options *options,
        cubby_file_info *ret, cubby_error *err);
int box_file_remove(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_error *err);
int box_file_rename(cubby_box *box, const char *from, const char *to, bool replace,
        const cubby_file_options *options, cubby_error *err);
int box_file_make_folder(cubby_box *box, const char *path, uint32_t mode, bool parents,
        const cubby_file_options *options, cubby_error *err);
void box_file_list_free(cubby_file_list *list);
int box_file_list_folder(cubby_box *box, const char *path, const cubby_list_options *options,
        cubby_file_list **ret, cubby_error *err);
int box_file_read(cubby_box *box, const char *path, uint64_t offset, uint64_t max_bytes,
        const cubby_file_options *options, void **ret, size_t *ret_size, cubby_error *err);
int box_file_read_lines(cubby_box *box, const char *path, uint64_t first, uint64_t last,
        const cubby_file_options *options, char **ret, size_t *ret_size, cubby_error *err);
void box_file_close(cubby_file *file);
cubby_box *box_file_box(const cubby_file *file);
int box_file_open_read(cubby_box *box, const char *path, uint64_t offset,
        const cubby_file_options *options, cubby_file **ret, cubby_error *err);
int box_file_write(cubby_box *box, const char *path, const void *data, size_t size,
        const cubby_write_options *options, cubby_error *err);
int box_file_open_write(cubby_box *box, const char *path, const cubby_write_options *options,
        cubby_file **ret, cubby_error *err);
int64_t box_file_next(
        cubby_file *file, void *data, size_t size, int64_t timeout_ms, cubby_error *err);
int64_t box_file_put(
        cubby_file *file, const void *data, size_t size, int64_t timeout_ms, cubby_error *err);
int box_file_commit(cubby_file *file, int64_t timeout_ms, cubby_error *err);

/* file_copy.c */
int box_copy_in(cubby_box *box, const char *host_path, const char *path,
        const cubby_copy_options *options, cubby_error *err);
int box_copy_out(cubby_box *box, const char *path, const char *host_path,
        const cubby_copy_options *options, cubby_error *err);
/* *ret_box: the one that a failure is about. */
int box_copy_between(cubby_box *from_box, const char *from_path, cubby_box *to_box,
        const char *to_path, const cubby_copy_options *options, cubby_box **ret_box,
        cubby_error *err);
int box_tar_in(cubby_box *box, int fd, const char *path, const cubby_copy_options *options,
        cubby_error *err);
int box_tar_out(cubby_box *box, const char *path, int fd, const cubby_copy_options *options,
        cubby_error *err);

/* search.c */
int box_glob(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_glob_result **ret, cubby_error *err);
void box_glob_result_free(cubby_glob_result *result);
int box_grep(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_grep_result **ret, int64_t *ret_position,
        cubby_error *err);
void box_grep_result_free(cubby_grep_result *result);

/* file_watch.c */
int box_watch_open(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_watch **ret, cubby_error *err);
int box_watch_next(
        cubby_watch *watch, int64_t timeout_ms, cubby_watch_event *ret, cubby_error *err);
int box_watch_fd(const cubby_watch *watch);
cubby_box *box_watch_box(const cubby_watch *watch);
void box_watch_close(cubby_watch *watch);

/* run.c */
int box_run(cubby_box *box, const cubby_exec_options *options, const void *input, size_t input_size,
        cubby_result *ret, cubby_error *err);

/* doctor.c, gc.c */
int box_doctor(cubby *host, char **ret_json, cubby_error *err);
int box_gc(cubby *host, uint64_t *ret_bytes, cubby_error *err);
/* The part of it that every opening of a home does. */
int box_recover(cubby *host, uint64_t *ret_bytes, cubby_error *err);

#endif
