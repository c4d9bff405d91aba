/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUBBY_CUBBY_H
#define CUBBY_CUBBY_H

/*
 * libcubby: small computers for AI agents.
 *
 * A box is one micro-VM with its own kernel, made from an OCI image. The
 * library needs no daemon: each box is owned by a small process of its own (the
 * shim) that outlives its creator, and any process of the same user may open
 * the box again.
 *
 * Rules that hold for every call
 *   - Results: 0 or a handle on success, -1 or NULL on failure with `err` filled
 *     (err may be NULL). Out-parameters stay untouched on failure.
 *   - Options are structs that begin with their own size: set it with
 *     CUBBY_INIT(type). Zero in any other field means the default.
 *   - Strings are UTF-8 and NUL-terminated; what the caller passes stays the
 *     caller's. What the library returns is freed with the function named there.
 *   - Times are milliseconds (`_ms`), monotonic; -1 means no limit where allowed.
 *     Points in time are nanoseconds since 1970 (`_ns`), for display only.
 *   - The library prints nothing, never exits, installs no signal handlers, waits
 *     only for its own children and keeps no global state. The program may ignore
 *     SIGCHLD, and may fork in other threads.
 *   - Threads: a `cubby` and a `cubby_box` may be used by several threads at once;
 *     a `cubby_exec` by one thread at a time, except that cubby_exec_signal,
 *     cubby_exec_resize and cubby_exec_write may be called beside cubby_exec_next.
 *   - Whatever a box sends is untrusted; limits are named in docs/protocol.md.
 */

#include <cubby/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUBBY_VERSION "0.1.0"

/* The library's version, "MAJOR.MINOR.PATCH"; static. */
CUBBY_API const char *cubby_version(void);

/* A zeroed options struct with its size set: CUBBY_INIT(cubby_run_options). */
#define CUBBY_INIT(type) ((type){.size = sizeof(type)})

/* ------------------------------------------------------------------ home -- */

/* An open state folder. Several processes may have the same one open. */
typedef struct cubby cubby;

enum cubby_log_level { CUBBY_LOG_ERROR, CUBBY_LOG_WARNING, CUBBY_LOG_INFO, CUBBY_LOG_DEBUG };

/*
 * How far long work is. `stage` is a short static word ("layers", "kernel",
 * "boot"), `detail` names the thing; `done` of `total` bytes or steps, total 0
 * when unknown. Called on the calling thread.
 */
typedef void (*cubby_progress_fn)(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total);

typedef struct cubby_open_options {
        size_t size;
        const char *home; /* NULL: $CUBBY_HOME, else /var/lib/cubby for root,
                             $XDG_DATA_HOME/cubby or ~/.local/share/cubby for others */
        void (*log)(void *data, int level, const char *line); /* NULL: silent */
        void *log_data;
        cubby_progress_fn progress; /* NULL: none */
        void *progress_data;
} cubby_open_options;

/*
 * Opens the home, makes it (mode 0700) when missing, and brings leftovers of
 * crashed processes back to nothing. A home that others may write to is
 * CUBBY_E_PERMISSION, one written by a newer version CUBBY_E_VERSION.
 */
CUBBY_API int cubby_open(const cubby_open_options *options, cubby **ret, cubby_error *err);
CUBBY_API void cubby_close(cubby *cubby);             /* NULL is allowed; boxes go on */
CUBBY_API const char *cubby_home(const cubby *cubby); /* absolute path, owned by the handle */

/* Frees any string that a call returned as `char *`. NULL is allowed. */
CUBBY_API void cubby_free(void *memory);

/* ---------------------------------------------------------------- images -- */

typedef struct cubby_image_info {
        char *id;            /* "sha256:<64 hex>": digest of the image's config */
        char *name;          /* "docker.io/library/python:3.12"; "" when untagged */
        char *architecture;  /* "amd64" */
        uint64_t disk_bytes; /* the read-only disk made from its layers */
        int64_t created_ns;  /* when it came into this home */
} cubby_image_info;

typedef struct cubby_image_list {
        cubby_image_info *images;
        size_t count;
} cubby_image_list;

typedef struct cubby_import_options {
        size_t size;
        const char *name;     /* NULL: the name that the source carries, else untagged */
        const char *platform; /* "linux/amd64" by default, when an index has several */
        int64_t timeout_ms;   /* 0: none */
} cubby_import_options;

/*
 * Makes an image from `source`: an OCI layout (folder or tar), a `docker save`
 * tar, or a plain tar of a root file system; "-" reads standard input. Layers
 * may be plain, gzip or zstd. Every digest in it is checked; entries are merged
 * straight into a disk image and never created on the host. Limits: the
 * CUBBY_LIMIT_* names in docs/images.md.
 *
 * CUBBY_E_NOT_FOUND no such source; CUBBY_E_IMAGE malformed; CUBBY_E_DIGEST a
 * digest or size differs; CUBBY_E_LIMIT a bomb; CUBBY_E_NO_SPACE; CUBBY_E_TIMEOUT.
 */
CUBBY_API int cubby_image_import(cubby *cubby, const char *source,
        const cubby_import_options *options, cubby_image_info *ret, cubby_error *err);
CUBBY_API void cubby_image_info_clear(cubby_image_info *info);

/* By creation, newest first. */
CUBBY_API int cubby_images(cubby *cubby, cubby_image_list **ret, cubby_error *err);
CUBBY_API void cubby_image_list_free(cubby_image_list *list);

/* JSON object with id, names, created, architecture, os, config and layers;
 * `image` is a name, an id, or the first hex digits of an id. */
CUBBY_API int cubby_image_inspect(
        cubby *cubby, const char *image, char **ret_json, cubby_error *err);

/* Removes the name, and the image with its last name. CUBBY_E_BUSY while a box
 * uses it (unless `force`: then only the name goes). */
CUBBY_API int cubby_image_remove(cubby *cubby, const char *image, bool force, cubby_error *err);
CUBBY_API int cubby_image_tag(cubby *cubby, const char *image, const char *name, cubby_error *err);

/* ---------------------------------------------------------------- kernel -- */

/*
 * Finds or fetches the guest kernel and unpacks it into the home: `source` is a
 * kernel file (with its modules beside it), a .deb package, or NULL for the
 * order already unpacked, host's /boot, distribution package. Returns its version.
 * Takes 15 minutes at most (CUBBY_E_TIMEOUT).
 */
CUBBY_API int cubby_kernel_ensure(
        cubby *cubby, const char *source, char **ret_version, cubby_error *err);

typedef struct cubby_kernel_info {
        char *version;       /* "6.1.0-42-cloud-amd64" */
        char *digest;        /* hex SHA-256 of the uncompressed kernel */
        uint64_t disk_bytes; /* with its modules and archives */
        bool is_default;     /* what a box gets that names none */
} cubby_kernel_info;

typedef struct cubby_kernel_list {
        cubby_kernel_info *kernels;
        size_t count;
} cubby_kernel_list;

/* Those that are unpacked in the home, newest first. */
CUBBY_API int cubby_kernels(cubby *cubby, cubby_kernel_list **ret, cubby_error *err);
CUBBY_API void cubby_kernel_list_free(cubby_kernel_list *list);

/* ----------------------------------------------------------------- boxes -- */

typedef struct cubby_box cubby_box;

typedef struct cubby_box_options {
        size_t size;
        const char *image;    /* required: name, id or first digits of an id */
        const char *name;     /* NULL: made up; [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62} */
        const char *hostname; /* NULL: the first 12 digits of the id */
        /* The box's own command. With neither a command nor `no_main`, the image's
         * Entrypoint and Cmd. */
        const char *const *command;    /* NULL-terminated; replaces Cmd */
        const char *const *entrypoint; /* NULL-terminated; replaces Entrypoint; {NULL}: none */
        bool no_main;              /* no command of its own: the box idles until it is stopped */
        const char *const *env;    /* NULL-terminated NAME=VALUE, over the image's */
        const char *workdir;       /* NULL: the image's, else "/" */
        const char *user;          /* NULL: the image's, else root */
        const char *const *labels; /* NULL-terminated KEY=VALUE */
        bool tty;                  /* the command gets a PTY */
        bool open_stdin;           /* the command's stdin stays open for attach */
        uint64_t memory_bytes;     /* 0: 512 MiB; from 64 MiB */
        uint32_t cpu_milli;        /* 0: 1000; thousandths of a CPU, rounded up to vCPUs */
        uint64_t disk_bytes;       /* 0: 8 GiB; writable disk, sparse; from 64 MiB */
        uint32_t pids_max;         /* 0: 4096 */
        const char *engine;        /* NULL: "microvm"; "fake" for tests */
        const char *accel;         /* NULL: "auto", KVM or emulation, which is logged as a
                                      warning once for a home and a boot of the host; "kvm"
                                      insists, "tcg" emulates */
        const char *kernel;        /* NULL: the default kernel; a file or a version */
        int64_t ttl_ms;            /* 0: none; the box ends this long after its start */
        int64_t boot_timeout_ms;   /* 0: 60 s */
        bool auto_remove;          /* removed when it stops */
        const char *stop_signal;   /* NULL: the image's, else "SIGTERM" */
        bool no_template;          /* boots, though a saved machine could be continued; also set
                                      by CUBBY_NO_TEMPLATE in the environment */
        const char *warmup;        /* what its template and its spares are warmed up with, lines
                                      as in the home's file `warmup`; NULL: that file's */
} cubby_box_options;

enum cubby_box_state {
        CUBBY_BOX_CREATED, /* never started */
        CUBBY_BOX_RUNNING,
        CUBBY_BOX_PAUSED,
        CUBBY_BOX_STOPPED,   /* ended by itself or by stop; see exit_* */
        CUBBY_BOX_FAILED,    /* the machine or its shim died; see reason */
        CUBBY_BOX_SUSPENDED, /* put away on the disk by cubby_box_suspend */
};
CUBBY_API const char *cubby_box_state_name(int state); /* "running" */

typedef struct cubby_box_info {
        char *id; /* 32 lower-case hex digits */
        char *name;
        char *image_name; /* as it was given */
        char *image_id;
        char *command; /* for display, arguments separated by spaces; "" for none */
        char *engine;
        char *isolation; /* "hardware", "software" (KVM without hardware), "emulated", "none";
                            "" while not running */
        char *served;    /* how its machine came: "booted", "cloned", "spare"; "" unknown */
        char *reason;    /* why it ended: "exited", "stopped", "killed", "ttl", "idle",
                            "vmm-died", "guest-shutdown", "protocol", "boot-failed",
                            "shim-died", "damaged" (its config cannot be used); "" while it lives */
        char *detail;    /* a sentence about that, or "" */
        int state;       /* enum cubby_box_state */
        int exit_code;   /* of its command, 128+N for a signal; -1 while unknown */
        bool oom;
        int64_t created_ns, started_ns, finished_ns; /* 0: not yet */
        uint64_t generation; /* times this state was resumed; 1 after a boot */
        int64_t shim_pid;    /* 0: none */
} cubby_box_info;

typedef struct cubby_box_list {
        cubby_box_info *boxes;
        size_t count;
} cubby_box_list;

/* Makes the record and the writable disk; nothing runs yet. */
CUBBY_API int cubby_box_create(
        cubby *cubby, const cubby_box_options *options, cubby_box **ret, cubby_error *err);
/* By name, id, or a unique beginning of an id (from 4 digits). */
CUBBY_API int cubby_box_open(cubby *cubby, const char *name, cubby_box **ret, cubby_error *err);
/* Closes the handle; the box goes on. NULL is allowed. */
CUBBY_API void cubby_box_close(cubby_box *box);
CUBBY_API const char *cubby_box_id(const cubby_box *box); /* owned by the handle */

/*
 * Boots the machine and starts its command. Returns when the agent has answered
 * and the command runs. A command that cannot start is CUBBY_E_EXEC_NOT_FOUND or
 * CUBBY_E_EXEC_REFUSED; a machine that does not come up is CUBBY_E_VMM with the
 * stage and the end of its console, and leaves nothing running.
 * Legal in: created, stopped, failed.
 */
CUBBY_API int cubby_box_start(cubby_box *box, cubby_error *err);
/* Stop signal to the command, after `timeout_ms` the end of the machine; a box
 * without a command is shut down. Returns when it is gone. No-op when stopped. */
CUBBY_API int cubby_box_stop(cubby_box *box, int64_t timeout_ms, cubby_error *err);
/* Sends `signal` to the command; SIGKILL ends the machine at once. */
CUBBY_API int cubby_box_kill(cubby_box *box, int signal, cubby_error *err);
CUBBY_API int cubby_box_pause(cubby_box *box, cubby_error *err);
CUBBY_API int cubby_box_unpause(cubby_box *box, cubby_error *err);
/*
 * Suspends: the machine is saved in the box's folder and ends; its memory is free.
 * Resume brings it back with its processes, files and memory, also a paused box.
 * Commands that were open end with CUBBY_E_BOX_DEAD for their clients and run on.
 * After a resume the box's own command still runs, but the box does not end with it.
 */
CUBBY_API int cubby_box_suspend(cubby_box *box, cubby_error *err);
CUBBY_API int cubby_box_resume(cubby_box *box, cubby_error *err);
/*
 * Forks a running box: `count` new boxes continue from one instant of it, each
 * with its own identity, clock, random numbers and disk. `names` may be NULL or
 * hold NULLs. Each child succeeds or fails by itself: ret[i] is its handle or
 * NULL with errors[i] filled. -1 when none was tried. The parent stands still for
 * some hundred milliseconds and goes on. CUBBY_E_UNSUPPORTED for engines without it.
 */
CUBBY_API int cubby_box_fork(cubby_box *box, const char *const *names, size_t count,
        cubby_box **ret, cubby_error *errors, cubby_error *err);
/* Saves such an instant under a name; the box goes on. */
CUBBY_API int cubby_box_snapshot(cubby_box *box, const char *name, cubby_error *err);
/* A running box that continues from a snapshot. Of `options` (may be NULL) count name,
 * hostname, command (started in it), env, workdir, user, tty, open_stdin, ttl_ms and
 * auto_remove; CUBBY_E_VERSION when the snapshot is of another VMM or machine. */
CUBBY_API int cubby_box_continue(cubby *cubby, const char *snapshot,
        const cubby_box_options *options, cubby_box **ret, cubby_error *err);
/* Removes a stopped box with its disk and logs; `force` kills it first. The
 * handle stays valid for closing only. */
CUBBY_API int cubby_box_remove(cubby_box *box, bool force, cubby_error *err);
CUBBY_API int cubby_box_rename(cubby_box *box, const char *name, cubby_error *err);
/* Waits for the end of the box; CUBBY_E_TIMEOUT after timeout_ms (-1: none). */
CUBBY_API int cubby_box_wait(
        cubby_box *box, int64_t timeout_ms, int *ret_exit_code, cubby_error *err);
/* A round trip to the agent. */
CUBBY_API int cubby_box_ping(cubby_box *box, int64_t timeout_ms, cubby_error *err);

CUBBY_API int cubby_box_get_info(cubby_box *box, cubby_box_info *ret, cubby_error *err);
CUBBY_API void cubby_box_info_clear(cubby_box_info *info);
/* Newest first; `all` also those that do not run. */
CUBBY_API int cubby_boxes(cubby *cubby, bool all, cubby_box_list **ret, cubby_error *err);
CUBBY_API void cubby_box_list_free(cubby_box_list *list);
/* Everything known of it, as a JSON object. */
CUBBY_API int cubby_box_inspect(cubby_box *box, char **ret_json, cubby_error *err);

typedef struct cubby_box_stats {
        uint64_t uptime_ms;
        uint64_t cpu_us;                                          /* of the workload, in the box */
        uint64_t memory_total, memory_available, memory_workload; /* bytes, in the box */
        uint64_t disk_total, disk_free;                           /* bytes of the writable disk */
        uint32_t processes;
        uint64_t host_cpu_us;    /* of the VMM and the shim on the host */
        uint64_t host_pss_bytes; /* proportional memory of both on the host */
} cubby_box_stats;
CUBBY_API int cubby_box_get_stats(cubby_box *box, cubby_box_stats *ret, cubby_error *err);

typedef struct cubby_process {
        uint32_t pid, parent, uid;
        char state;
        uint64_t cpu_us, rss_bytes, age_ms;
        char command[257];
} cubby_process;
/* The processes in the box; free with cubby_free. */
CUBBY_API int cubby_box_processes(cubby_box *box, cubby_process **ret, size_t *ret_count,
        bool *ret_truncated, cubby_error *err);

/*
 * The kept output of the box's command (the last 16 MiB), oldest first. Calls
 * `write` for each piece; a non-zero return ends the reading. With `follow` it
 * goes on until the box ends or is removed; one that was not started is waited for.
 */
typedef struct cubby_log_options {
        size_t size;
        bool follow;
        int64_t since_ns;   /* 0: all */
        int64_t tail_lines; /* -1: all; 0: only new ones (with follow) */
} cubby_log_options;
typedef int (*cubby_log_fn)(
        void *data, int stream /* 1 or 2 */, int64_t time_ns, const void *bytes, size_t size);
CUBBY_API int cubby_box_logs(cubby_box *box, const cubby_log_options *options, cubby_log_fn write,
        void *data, cubby_error *err);

/* -------------------------------------------------------------- commands -- */

/* A command that runs in a box, or the box's own command (attach). */
typedef struct cubby_exec cubby_exec;

typedef struct cubby_exec_options {
        size_t size;
        const char *const *argv; /* required, NULL-terminated; no shell is involved */
        const char *const *env;  /* NULL-terminated NAME=VALUE over the box's; names must
                                    match [A-Za-z_][A-Za-z0-9_]* wholly */
        const char *workdir;     /* NULL: the box's */
        const char *user;        /* NULL: the box's; "name", "uid", "name:group", "uid:gid" */
        bool tty;                /* a PTY; output comes as CUBBY_EVENT_STDOUT */
        uint16_t rows, columns;  /* with tty; 0: 24 by 80 */
        bool open_stdin;         /* cubby_exec_write will be used; else /dev/null */
        bool detach;             /* no output; outlives this handle */
        int64_t timeout_ms;      /* 0: none; then the whole process tree is killed */
} cubby_exec_options;

/*
 * `timeout_ms` also holds when the box does not answer any more: cubby_exec_start
 * fails with CUBBY_E_TIMEOUT, cubby_exec_next and cubby_exec_run give an exit that
 * is `timed_out` and `incomplete`, at most 2 s after it has passed. What the
 * command printed before and the caller reads later is not lost by that.
 */

enum cubby_event_kind { CUBBY_EVENT_STDOUT = 1, CUBBY_EVENT_STDERR = 2, CUBBY_EVENT_EXIT = 3 };

typedef struct cubby_exit {
        int code;        /* 0..255, or 128 + signal */
        int signal;      /* 0, or what killed it */
        bool timed_out;  /* its timeout passed and its tree was killed */
        bool oom;        /* the box ran out of memory */
        bool incomplete; /* a background child kept the output open, or the box does not
                            answer; more may have come */
        uint64_t user_us, system_us, max_rss_bytes;
} cubby_exit;

typedef struct cubby_event {
        int kind;         /* enum cubby_event_kind */
        const void *data; /* output; valid until the next call on this handle */
        size_t size;
        cubby_exit exit; /* with CUBBY_EVENT_EXIT, the last event */
} cubby_event;

/*
 * Starts a command. Returns when it runs; CUBBY_E_EXEC_NOT_FOUND (shells say
 * 127), CUBBY_E_EXEC_REFUSED (126), CUBBY_E_INVALID for a bad name, user or
 * workdir. Values reach that process only. Legal in: running.
 */
CUBBY_API int cubby_exec_start(
        cubby_box *box, const cubby_exec_options *options, cubby_exec **ret, cubby_error *err);
/* Joins the channels of the box's own command; with `replay` the kept output first. */
CUBBY_API int cubby_box_attach(cubby_box *box, bool replay, cubby_exec **ret, cubby_error *err);
/*
 * The next event. Returns 0 with it, -1 with CUBBY_E_TIMEOUT after timeout_ms
 * (-1: none), CUBBY_E_BOX_DEAD when the box ended first. After the exit event:
 * CUBBY_E_CLOSED.
 */
CUBBY_API int cubby_exec_next(
        cubby_exec *exec, int64_t timeout_ms, cubby_event *ret, cubby_error *err);
/* A descriptor for the caller's poll loop: readable when cubby_exec_next may have
 * something. Owned by the handle. */
CUBBY_API int cubby_exec_fd(const cubby_exec *exec);
/* Writes to stdin, waiting for room up to timeout_ms; returns the bytes taken.
 * CUBBY_E_CLOSED with errno EPIPE when the command does not read any more. */
CUBBY_API int64_t cubby_exec_write(
        cubby_exec *exec, const void *data, size_t size, int64_t timeout_ms, cubby_error *err);
CUBBY_API int cubby_exec_close_stdin(cubby_exec *exec, cubby_error *err);
CUBBY_API int cubby_exec_signal(cubby_exec *exec, int signal, cubby_error *err);
CUBBY_API int cubby_exec_resize(
        cubby_exec *exec, uint16_t rows, uint16_t columns, cubby_error *err);
CUBBY_API uint32_t cubby_exec_pid(const cubby_exec *exec); /* inside the box; 0: unknown */
/* Ends the use of the handle. A command that still runs is killed with its whole
 * tree, unless it was started with `detach` or is the box's own. NULL is allowed. */
CUBBY_API void cubby_exec_close(cubby_exec *exec);

typedef struct cubby_result {
        cubby_exit exit;
        char *output; /* stdout, NUL-terminated behind output_size bytes */
        size_t output_size;
        char *errors; /* stderr */
        size_t errors_size;
        uint64_t output_total, errors_total; /* bytes printed; more than kept: truncated */
        bool truncated;                      /* head and tail are kept around a marked gap */
} cubby_result;
/* Start, collect (at most 8 MiB a stream are kept), exit, in one call. `input` may be NULL. */
CUBBY_API int cubby_exec_run(cubby_box *box, const cubby_exec_options *options, const void *input,
        size_t input_size, cubby_result *ret, cubby_error *err);
CUBBY_API void cubby_result_clear(cubby_result *result);

/* -------------------------------------------------------------- provider -- */

/*
 * One box for each conversation (a user and a thread), warm between its turns.
 * docs/provider.md is the contract. A provider may be used by several threads at
 * once; it belongs to the process that opened it: in a forked child every call
 * on it is CUBBY_E_STATE and nothing of the parent's is touched.
 */
typedef struct cubby_provider cubby_provider;

typedef struct cubby_provider_options {
        size_t size;
        const char *config_file; /* YAML with a section `sandbox:`; NULL: all defaults */
        const char *config_text; /* the same as a text; not both */
        bool leave; /* closing leaves active boxes alone until they are released or their
                       idle time is over: for a command line, whose process ends */
} cubby_provider_options;

/*
 * Takes over the boxes of this pool whose processes are dead. `cubby` must outlive
 * the provider. CUBBY_E_INVALID names file, line, key and range of a mistake.
 */
CUBBY_API int cubby_provider_open(cubby *cubby, const cubby_provider_options *options,
        cubby_provider **ret, cubby_error *err);
/* Boxes go on and belong to nobody; cubby_provider_shutdown ends them. NULL is
 * allowed. No call may run on the provider any more. */
CUBBY_API void cubby_provider_close(cubby_provider *provider);

enum cubby_served {
        CUBBY_SERVED_REUSED = 1, /* it was active already */
        CUBBY_SERVED_RECLAIMED,  /* it was warm */
        CUBBY_SERVED_SPARE,
        CUBBY_SERVED_CLONED,
        CUBBY_SERVED_BOOTED,
};
CUBBY_API const char *cubby_served_name(int served); /* "reclaimed" */

typedef struct cubby_acquire_options {
        size_t size;
        const void *user; /* any bytes; up to 64 KiB */
        size_t user_size;
        const void *thread; /* NULL: a box of its own that no other call finds */
        size_t thread_size;
        int64_t timeout_ms; /* 0: acquire_timeout of the configuration */
        const char *trace;  /* appears in log lines of this acquire; NULL: none */
        bool no_user;       /* of a thread that nobody is known for: `user` is empty, the token
                               is that of the user "None", with whom it never shares a box */
} cubby_acquire_options;

typedef struct cubby_acquired {
        char id[17];         /* for get and release: the token, or 8 hex digits */
        int served;          /* enum cubby_served */
        bool fresh;          /* nothing of an earlier turn is in it */
        uint64_t generation; /* differs for every box that was ever made under this id */
        cubby_box *box;      /* close with cubby_box_close; the box goes on */
} cubby_acquired;

/*
 * The box of this user and thread, ready: its folders exist and a command has run
 * in it. CUBBY_E_IDENTITY: another user and thread have a box of the same token.
 * CUBBY_E_CAPACITY: no room in time. CUBBY_E_SHUTDOWN after shutdown or reset
 * began. CUBBY_E_TIMEOUT: another acquire of the same key took too long.
 *
 * A call on the box that finds it dead takes it out of the pool and removes it
 * before it returns; later calls on that handle are CUBBY_E_CLOSED.
 */
CUBBY_API int cubby_provider_acquire(cubby_provider *provider, const cubby_acquire_options *options,
        cubby_acquired *ret, cubby_error *err);

/* An acquire on a thread of the provider. */
typedef struct cubby_request cubby_request;
CUBBY_API int cubby_provider_acquire_async(cubby_provider *provider,
        const cubby_acquire_options *options, cubby_request **ret, cubby_error *err);
/* For the caller's poll loop: readable when the result is there. Owned by the handle. */
CUBBY_API int cubby_request_fd(const cubby_request *request);
/* Fetches the result, once. CUBBY_E_TIMEOUT after timeout_ms (-1: none). */
CUBBY_API int cubby_request_finish(
        cubby_request *request, int64_t timeout_ms, cubby_acquired *ret, cubby_error *err);
/* Abandons it, queued, running or done: then finish is CUBBY_E_CANCELLED, and a
 * box that came of it waits, warm, where the next acquire of the key finds it. */
CUBBY_API void cubby_request_cancel(cubby_request *request);
/* Cancels what was not fetched. NULL is allowed. */
CUBBY_API void cubby_request_close(cubby_request *request);

/* An active box by its id; never blocks. CUBBY_E_NOT_FOUND. */
CUBBY_API int cubby_provider_get(
        cubby_provider *provider, const char *id, cubby_box **ret, cubby_error *err);
/* The box stays warm for its key. No error for an unknown id. */
CUBBY_API int cubby_provider_release(cubby_provider *provider, const char *id, cubby_error *err);
/* No more acquires; active boxes become warm and live on until shutdown. */
CUBBY_API int cubby_provider_reset(cubby_provider *provider, cubby_error *err);
/*
 * Ends every box of this provider. CUBBY_E_TIMEOUT when some have not ended within
 * timeout_ms (-1: none): *ret_left (may be NULL) is then their ids, separated by
 * blanks, for cubby_free. May be called again.
 */
CUBBY_API int cubby_provider_shutdown(
        cubby_provider *provider, int64_t timeout_ms, char **ret_left, cubby_error *err);

typedef struct cubby_latency {
        uint64_t count, total_us, max_us;
} cubby_latency;

typedef struct cubby_provider_status {
        uint32_t active, warm, reserved, replicas;
        uint32_t queued; /* asynchronous acquires that wait for a thread */
        uint32_t keys;   /* that acquires hold or wait for now */
        /* Since the provider was opened: acquires by kind, ... */
        uint64_t reused, reclaimed, skipped /* reclaimed without a check */, spare, cloned, booted;
        uint64_t failed, cancelled, waited /* for room */, refused /* no room */;
        /* ... and what else happened to boxes. */
        uint64_t adopted, released, check_failed, evicted, reaped, invalidated, lost;
        cubby_latency acquire, reclaim, check, create, destroy;
} cubby_provider_status;
CUBBY_API int cubby_provider_get_status(
        cubby_provider *provider, cubby_provider_status *ret, cubby_error *err);

/* The token of a user and a thread: 16 lower-case hex digits. Not a secret, not a proof. */
CUBBY_API int cubby_scope_token(const void *user, size_t user_size, const void *thread,
        size_t thread_size, char ret[17], cubby_error *err);
CUBBY_API bool cubby_is_scope_token(const char *text);

/*
 * The pools of the home, whichever processes have them: {"pools":[{"pool","active",
 * "warm","reserved","ending","spares","counters","boxes":[...]}...]}. `pool` NULL: all.
 */
CUBBY_API int cubby_pool_status(cubby *cubby, const char *pool, char **ret_json, cubby_error *err);
/* Parks a box that a provider with `leave` left active, as its release would have.
 * CUBBY_E_NOT_FOUND when there is none, or a living process has it. */
CUBBY_API int cubby_pool_release(
        cubby *cubby, const cubby_provider_options *options, const char *id, cubby_error *err);
/* Ends the boxes of the pool that no living process has; says how many ended and
 * how many others have. */
CUBBY_API int cubby_pool_drain(
        cubby *cubby, const char *pool, uint32_t *ret_ended, uint32_t *ret_left, cubby_error *err);

/* --------------------------------------------------- templates and spares -- */

/*
 * A box that is started for the first time continues from a template when there
 * is one of its image and sizes: a machine that was booted once, warmed up and
 * saved. The first box of an image boots, and the template is made beside it.
 * A spare is such a clone that waits, stopped, for its owner: cubby_box_create
 * takes it, cubby_box_start lets it go on as the box.
 */
typedef struct cubby_template_info {
        char *key; /* 64 hex digits */
        char *image_id;
        char *image_name;
        char *snapshot; /* a snapshot's name; "" for a template */
        char *problem;  /* why it is of no use and will be made anew; "" when it is good */
        uint64_t memory_bytes, disk_bytes;
        uint32_t vcpus;
        uint64_t usage_bytes; /* on the host's disk */
        uint32_t spares;      /* ready */
        uint32_t spares_wanted;
        int64_t created_ns, used_ns;
} cubby_template_info;

typedef struct cubby_template_list {
        cubby_template_info *templates;
        size_t count;
} cubby_template_list;

/* Most recently used first. */
CUBBY_API int cubby_templates(cubby *cubby, cubby_template_list **ret, cubby_error *err);
CUBBY_API void cubby_template_list_free(cubby_template_list *list);
/*
 * Makes the template that boxes of these options continue from (only image,
 * sizes, engine, accel and kernel count); with `again` also when there is one.
 * Takes a boot. Another process that makes it is waited for.
 */
CUBBY_API int cubby_template_build(
        cubby *cubby, const cubby_box_options *options, bool again, cubby_error *err);
/* `name`: a key, its first digits (from 4), or a snapshot's name. Boxes that
 * were made from it go on. CUBBY_E_BUSY while one is being made from it. */
CUBBY_API int cubby_template_remove(cubby *cubby, const char *name, cubby_error *err);
/* Its manifest as a JSON object. */
CUBBY_API int cubby_template_inspect(
        cubby *cubby, const char *name, char **ret_json, cubby_error *err);
/* Reads all of it and compares digests: CUBBY_E_DIGEST names the file. */
CUBBY_API int cubby_template_verify(cubby *cubby, const char *name, cubby_error *err);
/*
 * How many spares of these options are kept ready, 0 to 64; makes the template
 * when there is none and `count` is not 0. A process of its own (cubby-keeper)
 * keeps them; it ends, and they with it, after ten minutes in which nobody took one.
 */
CUBBY_API int cubby_spares_set(
        cubby *cubby, const cubby_box_options *options, uint32_t count, cubby_error *err);

/* ---------------------------------------------------------------- upkeep -- */

/* Where the space is, as a JSON object: {"images","kernels","templates","boxes",
 * "other": {"count","bytes","reclaimable"}...}. */
CUBBY_API int cubby_usage(cubby *cubby, char **ret_json, cubby_error *err);

typedef struct cubby_prune_options {
        size_t size;
        bool dry_run;            /* only count */
        uint64_t template_bytes; /* what templates may use: the least recently used
                                    beyond it go; those in use and snapshots stay.
                                    0: 16 GiB. 1: none may stay */
} cubby_prune_options;
/* cubby_gc, and templates beyond their space or of no use any more. */
CUBBY_API int cubby_prune(
        cubby *cubby, const cubby_prune_options *options, uint64_t *ret_bytes, cubby_error *err);

/* What this host offers and lacks, as a JSON object: {"checks":[{"name","status"
 * ("ok","warning","error"),"found","advice"}...]}. */
CUBBY_API int cubby_doctor(cubby *cubby, char **ret_json, cubby_error *err);
/* Removes what nobody uses: leftovers of crashes, rootfs disks without an image.
 * Returns the bytes freed. */
CUBBY_API int cubby_gc(cubby *cubby, uint64_t *ret_bytes, cubby_error *err);

#ifdef __cplusplus
}
#endif
/* Files, and what finds them and carries them over. */
#include <cubby/files.h>
#include <cubby/copy.h>
#include <cubby/search.h>

#endif
