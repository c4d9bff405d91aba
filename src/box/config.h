/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_CONFIG_H
#define BOX_CONFIG_H

/*
 * boxes/<id>/config.json: what a box is, written once by its creator (and again
 * by rename), read by every start of its shim. Input like any other: every field
 * is checked, an unknown version is refused.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#define BOX_CONFIG_VERSION 1
#define BOX_CONFIG_BYTES_MAX (4U << 20)
#define BOX_DISK_NAME "disk"
#define BOX_SOCKET_NAME "box.sock"
#define BOX_CONSOLE_NAME "console.log"
#define BOX_LOG_NAME "log"
#define BOX_LOG_OLD_NAME "log.1" /* the segment before */
#define BOX_EXIT_NAME "exit"
#define BOX_LOCK_NAME "lock" /* the shim holds flock LOCK_EX on it until `exit` is there */
/* And this open file description lock (fcntl), from before it has the flock for itself. */
#define BOX_ALIVE_RECORD ((struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1})
#define BOX_CONFIG_NAME "config.json"
#define BOX_SPARE_NAME                                                          \
        "spare" /* it waits to be claimed; whoever removes it decides: the shim \
                   when a claim comes, or who wants the box no more */

struct box_config {
        char *id;
        char *name;
        char *hostname;
        char *image_id;
        char *image_name;
        char *engine; /* "microvm" */
        char *accel;  /* "auto", "kvm", "tcg" */
        char *kernel; /* version, or "" for the default */
        /* Lists end with NULL; a NULL list is an empty one. */
        char **argv;       /* whole command (entrypoint and command); empty: no main */
        char **env;        /* image's and box's, merged */
        char **labels;     /* KEY=VALUE */
        char *workdir;     /* "" : "/" */
        char *user;        /* "" : root */
        char *stop_signal; /* "SIGTERM" */
        char *warmup;      /* command lines; "" or NULL: the home's */
        bool tty;
        bool open_stdin;
        bool auto_remove;
        bool no_template;
        uint64_t memory_bytes;
        uint32_t cpu_milli;
        uint64_t disk_bytes;
        uint32_t pids_max;
        int64_t ttl_ms; /* 0: none */
        int64_t boot_timeout_ms;
        uint32_t slot;
        int64_t created_ns;
};

/* "1" in the environment: boxes start where their VMM cannot be jailed, too. */
#define BOX_WEAK_JAIL "CUBBY_WEAK_JAIL"

/* Ranges of what a box may be. */
#define BOX_MEMORY_MIN (64ULL << 20)
#define BOX_MEMORY_MAX (1ULL << 42)
#define BOX_DISK_MIN (64ULL << 20)
#define BOX_DISK_MAX (16ULL << 40)
#define BOX_CPU_MILLI_MIN 10U
#define BOX_CPU_MILLI_MAX 64000U /* as many processors as a machine can have */
#define BOX_PIDS_MIN 16U
#define BOX_PIDS_MAX 4000000U
#define BOX_TIME_MAX_MS (366LL * 24 * 3600 * 1000)
#define BOX_LABELS_MAX 1024U
#define BOX_WARMUP_BYTES_MAX (64U << 10)
#define BOX_ARGUMENT_BYTES_MAX (1U << 20) /* argv and env together, with room in a frame */
#define BOX_SLOT_MAX 60000U               /* slots begin at 1 */
#define BOX_UID_FIRST 600000U             /* as root, a box runs as this plus its slot */

void box_config_clear(struct box_config *config);
/* Every field within its range; CUBBY_E_INVALID names the field. */
int box_config_check(const struct box_config *config, cubby_error *err);
/* "SIGTERM", "TERM", "15", "SIGRTMIN+3" -> number; -1 when it is none. */
int box_signal_number(const char *name);
int box_config_encode(const struct box_config *config, struct buffer *ret_json, cubby_error *err);
int box_config_decode(const void *json, size_t size, struct box_config *ret, cubby_error *err);

/* How the last run ended: boxes/<id>/exit, published by the shim when the machine is gone. */
struct box_exit {
        char reason[24]; /* "exited", "stopped", "killed", "ttl", "idle", "vmm-died",
                            "guest-shutdown", "protocol", "boot-failed", "exec-failed" */
        char detail[512];
        int exit_code; /* -1: no command ended */
        int signal;
        bool oom;
        int64_t started_ns;
        int64_t finished_ns;
        uint64_t generation;
        char isolation[16];
};
int box_exit_encode(const struct box_exit *exit, struct buffer *ret_json, cubby_error *err);
int box_exit_decode(const void *json, size_t size, struct box_exit *ret, cubby_error *err);

/*
 * How a creator starts a shim: `cubby-shim`, with these descriptors and its
 * working directory irrelevant. The shim needs no path of the home.
 */
enum shim_fd {
        SHIM_FD_BOX = 3,    /* the box's folder */
        SHIM_FD_STATUS = 4, /* SOCK_SEQPACKET to the creator: struct shim_report, then closed */
        SHIM_FD_LOCK = 5,   /* the box's lock file, already locked by the creator (flock goes
                               with the open file, so it stays locked in the shim) */
        SHIM_FD_ROOTFS = 6,
        SHIM_FD_VMLINUX = 7,
        SHIM_FD_INITRAMFS = 8,
        SHIM_FD_MEMORY = 9,  /* RAM of a template that is made, or that a clone continues from */
        SHIM_FD_STATE = 10,  /* its device state: written, or read */
        SHIM_FD_KEEPER = 11, /* spare, ahead: hung up when its keeper ends, and the spare with it */
        SHIM_FD_LAST = SHIM_FD_KEEPER,
};

/*
 * The arguments of cubby-shim: the box's id (for people who look at a process
 * list), the word for its mode ("boot" when left out), and for a template and
 * a spare the commands that warm it up, words separated by spaces.
 */
enum shim_mode {
        SHIM_BOOT,
        SHIM_TEMPLATE, /* boots, warms up, saves the machine, reports ready, ends */
        SHIM_CLONE,    /* continues from a template */
        SHIM_RESUME,   /* continues from itself: its command runs already */
        SHIM_SPARE,    /* a clone that is warmed up, stopped, and waits to be claimed */
        SHIM_AHEAD,    /* waits to be claimed too, and continues from its template only then */
};
#define SHIM_WARMUPS_MAX 16U

/* One packet on SHIM_FD_STATUS. The creator and the shim are the same build, so
 * the packet is the struct. The shim sends progress and once its machine, then ready or
 * failed, then closes. A close without either is a crash of the shim. */
struct shim_report {
        enum { REPORT_PROGRESS = 1, REPORT_MACHINE, REPORT_READY, REPORT_FAILED } kind;
        int code; /* failed: enum cubby_code */
        int sys_errno;
        char text[CUBBY_ERROR_MESSAGE_MAX]; /* progress: the stage; machine and ready: the
                                               isolation; failed: the sentence */
};

#endif
