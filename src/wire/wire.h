/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WIRE_WIRE_H
#define WIRE_WIRE_H

/*
 * The agent protocol, version 1. docs/protocol.md is this page in prose.
 *
 * The same frames travel in two places: between the agent in a box and the
 * box's shim (virtio-serial port), and between a client and the shim
 * (boxes/<id>/box.sock). The shim forwards a client's streams to the agent
 * under stream ids of its own.
 *
 * A frame is a 24-byte header and a payload, all integers little-endian:
 *
 *      0        4      6       8              16             24
 *      | length | type | flags | session      | stream       | payload...
 *
 * length   payload bytes, at most the ceiling of its direction
 * type     enum frame_type; an unknown one is a violation
 * flags    for DATA, EOF and CREDIT the channel, else 0
 * session  the nonce of the last RESUME; 0 before it and on box.sock. A frame
 *          of another session is dropped: it is a leftover of the template.
 * stream   who talks: 0 for the connection itself; ids are never reused.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define WIRE_VERSION 1U
#define FRAME_HEADER_SIZE 24U
#define FRAME_DATA_MAX (32U * 1024U)            /* payload of DATA */
#define FRAME_FROM_GUEST_MAX (64U * 1024U)      /* any payload from the guest */
#define FRAME_TO_GUEST_MAX (2U * 1024U * 1024U) /* EXEC carries argv and env */
#define STREAM_WINDOW (256U * 1024U)            /* DATA bytes a channel may send before CREDIT */
#define FILE_WINDOW (1024U * 1024U)             /* the same of a file call: a disk is slower */
#define WIRE_TEXT_MAX 4096U                     /* names, paths, messages */
#define WIRE_ARGUMENT_MAX (128U * 1024U)        /* one argument or variable, as Linux allows */
#define WIRE_ARGUMENTS_MAX 16384U               /* entries of argv, and of env */
#define WIRE_PROCESSES_MAX 512U                 /* entries of PROCESS_LIST */
#define WIRE_ENTROPY_SIZE 64U
#define WIRE_PORT_NAME "cubby.agent" /* virtio-serial port name */

enum frame_type {
        /* The connection, stream 0 (replies come on the stream of the request). */
        FRAME_HELLO = 1,     /* agent: message_hello, once, after boot */
        FRAME_RESUME = 2,    /* host: message_resume; before any tenant code runs */
        FRAME_RESUMED = 3,   /* agent: message_resumed */
        FRAME_PING = 4,      /* any payload up to 64 bytes */
        FRAME_PONG = 5,      /* the same payload */
        FRAME_ERROR = 6,     /* message_error: the request failed; ends its stream */
        FRAME_FREEZE = 7,    /* host: the last frame it sends until THAW or RESUME */
        FRAME_FROZEN = 8,    /* agent: its last byte until then; file systems are synced */
        FRAME_THAW = 9,      /* host: go on */
        FRAME_THAWED = 10,   /* agent */
        FRAME_SHUTDOWN = 11, /* host: u32 milliseconds between TERM and KILL of the workload;
                                the agent syncs, then powers the machine off */
        FRAME_OK = 12,       /* agent: a request without a result of its own is done */

        /* Processes: EXEC opens a stream, EXIT or ERROR ends it. */
        FRAME_EXEC = 32,          /* host: message_exec */
        FRAME_EXEC_STARTED = 33,  /* agent: u32 pid inside the box */
        FRAME_DATA = 34,          /* both: bytes of the channel named in flags */
        FRAME_EOF = 35,           /* both: the channel named in flags has ended */
        FRAME_CREDIT = 36,        /* both: u32 bytes more may be sent on the channel */
        FRAME_RESIZE = 37,        /* host: u16 rows, u16 columns */
        FRAME_SIGNAL = 38,        /* host: u32 signal number, to the process group */
        FRAME_EXIT = 39,          /* agent: message_exit; last frame of the stream */
        FRAME_CANCEL = 40,        /* host: nobody listens any more; kill the whole tree */
        FRAME_PROCESSES = 41,     /* host: list the processes of the box */
        FRAME_PROCESS_LIST = 42,  /* agent: message_processes */
        FRAME_METRICS = 43,       /* host */
        FRAME_METRICS_REPLY = 44, /* agent: message_metrics */

        /* Files, see wire/files.h: FILE_CALL opens a stream, FILE_REPLY or ERROR ends it. */
        FRAME_FILE_CALL = 48,  /* host: message_file_call */
        FRAME_FILE_REPLY = 49, /* agent: the result; last frame of the stream */
        FRAME_FILE_ENTRY = 50, /* both: one result of many, in order with DATA and under the
                                  credit of its channel */

        /* Client and shim only; from a guest they are violations. */
        FRAME_SHIM_STATUS = 128,       /* client */
        FRAME_SHIM_STATUS_REPLY = 129, /* shim: message_status */
        FRAME_SHIM_ATTACH = 130,       /* client: joins the main process's channels on this stream:
                                          u8 replay (1: the kept log first); then DATA, EOF, EXIT */
        FRAME_SHIM_WAIT = 131,         /* client: EXIT on this stream when the main process ends */
        FRAME_SHIM_STOP = 132,         /* client: u32 ms between the stop signal and KILL; no reply:
                                          the shim closes every connection once the box is gone */
        FRAME_SHIM_KILL = 133, /* client: u32 signal for the main process (KILL ends the box); OK */
        FRAME_SHIM_PAUSE = 134,   /* client: stop the machine's processors; OK */
        FRAME_SHIM_UNPAUSE = 135, /* client: go on; OK */
        FRAME_SHIM_PARK = 140,    /* client: u32 ms: the box ends when that has passed without
                                     another PARK; 0: it does not; OK */
        FRAME_SHIM_CLAIM = 136,   /* client: the spare becomes a box; the whole config.json of it.
                                     OK once it was resumed anew and its command runs */
        FRAME_SHIM_SAVE = 137,    /* client: freeze the box and copy its machine; OK comes with two
                                     descriptors, memory and state, and the box stands still */
        FRAME_SHIM_GO_ON = 138,   /* the same client: it has taken the disk too; OK. With u8 1 the
                                     box ends instead, while it stands still: it is suspended */
};

/* Channels, in the flags of DATA, EOF and CREDIT. A PTY has only IN and OUT. */
enum { CHANNEL_STDIN = 0, CHANNEL_STDOUT = 1, CHANNEL_STDERR = 2, CHANNEL_COUNT = 3 };

struct frame {
        uint32_t length;
        uint16_t type;
        uint16_t flags;
        uint64_t session;
        uint64_t stream;
        const uint8_t *payload; /* points into the caller's bytes */
};

/*
 * Looks at the front of `data`. Returns the bytes that the frame uses, 0 when
 * more are needed, or -1 when the length is beyond `maximum` (the connection is
 * then beyond repair). Nothing is allocated.
 */
int64_t frame_decode(const uint8_t *data, size_t size, uint32_t maximum, struct frame *ret);

void frame_encode_header(uint8_t ret[FRAME_HEADER_SIZE], const struct frame *frame);

/* Header and payload appended; `payload` may be NULL with length 0. */
bool frame_append(struct buffer *out, uint16_t type, uint16_t flags, uint64_t session,
        uint64_t stream, const void *payload, uint32_t length);

/* True for types that an agent may send. */
bool frame_type_from_guest(uint16_t type);
const char *frame_type_name(uint16_t type); /* "EXEC"; "?" when unknown */

/*
 * Messages. `_encode` appends the payload and returns false when the buffer is
 * full. `_decode` returns false on any bad layout, value out of range or byte
 * left over. Slices point into the payload.
 */

struct message_hello {
        uint16_t version;
        uint32_t features; /* none defined yet: 0 */
        struct slice agent_version;
        struct slice kernel_release;
};

struct message_resume {
        uint64_t nonce;         /* never 0 */
        const uint8_t *entropy; /* WIRE_ENTROPY_SIZE bytes from the host's getrandom */
        uint64_t realtime_ns;   /* host wall clock when sent */
        uint32_t cpu_milli;     /* workload's share in thousandths of a CPU; 0: no limit */
        uint32_t pids_max;      /* processes and threads of the workload; 0: no limit */
        struct slice box_id;
        struct slice hostname;
};

struct message_resumed {
        uint64_t nonce;
        uint64_t generation; /* times this state has been resumed, from 1 */
        uint64_t memory_bytes;
        uint32_t cpus;
};

struct message_error {
        uint32_t code;      /* enum cubby_code */
        uint32_t sys_errno; /* Linux errno or 0 */
        struct slice text;
};

enum {
        EXEC_TTY = 1U << 0,    /* a PTY; output on CHANNEL_STDOUT only */
        EXEC_STDIN = 1U << 1,  /* CHANNEL_STDIN is used; else /dev/null */
        EXEC_DETACH = 1U << 2, /* no channels; outlives the client */
        EXEC_MAIN = 1U << 3,   /* the box's own command (the shim sends it) */
        EXEC_FLAGS_ALL = 0xfU,
};

struct message_exec {
        uint32_t flags;
        uint32_t timeout_ms; /* 0: none; then the whole tree is killed */
        uint16_t rows;       /* with EXEC_TTY */
        uint16_t columns;
        struct slice user;  /* "name", "uid", "name:group", "uid:gid"; empty: root */
        struct slice cwd;   /* empty: "/" */
        struct slice *argv; /* argv[0] without a slash is looked up in the PATH of env */
        uint32_t argc;
        struct slice *env; /* NAME=VALUE, the whole environment */
        uint32_t envc;
};

enum {
        EXIT_FLAG_TIMED_OUT = 1U << 0,
        EXIT_FLAG_OOM = 1U << 1,        /* the guest ran out of memory and killed it */
        EXIT_FLAG_INCOMPLETE = 1U << 2, /* a background child still held the output */
        EXIT_FLAGS_ALL = 0x7U,
};

struct message_exit {
        uint32_t code;   /* 0..255; 0 when killed by a signal */
        uint32_t signal; /* 0, or 1..64 */
        uint32_t flags;
        uint64_t user_us;
        uint64_t system_us;
        uint64_t max_rss_bytes;
};

struct message_process {
        uint32_t pid; /* inside the box */
        uint32_t parent;
        uint32_t uid;
        uint8_t state; /* letter as in /proc/PID/stat */
        uint64_t cpu_us;
        uint64_t rss_bytes;
        uint64_t age_ms;
        struct slice command; /* at most 256 bytes, arguments separated by spaces */
};

struct message_processes {
        uint8_t truncated; /* 1: there are more than fit */
        uint32_t count;
        struct message_process *entries; /* caller's array of WIRE_PROCESSES_MAX for decode */
};

struct message_metrics {
        uint64_t uptime_ms;
        uint64_t cpu_us;       /* of the workload */
        uint64_t memory_total; /* bytes, of the machine */
        uint64_t memory_available;
        uint64_t memory_workload; /* charged to the workload's cgroup */
        uint64_t disk_total;      /* writable disk */
        uint64_t disk_free;
        uint32_t processes; /* of the workload */
};

enum shim_state {
        SHIM_BOOTING = 1,
        SHIM_RUNNING = 2,
        SHIM_PAUSED = 3,
        SHIM_STOPPING = 4,
};

struct message_status {
        uint8_t state;      /* enum shim_state */
        uint8_t has_main;   /* 1: the box has a command of its own */
        uint8_t main_ended; /* 1: and it has ended, see exit */
        uint32_t shim_pid;
        uint32_t vmm_pid; /* 0: none */
        uint32_t clients;
        uint64_t generation;
        uint64_t uptime_ms;  /* since the machine was started */
        uint64_t violations; /* frames dropped as stale, unknown or unasked */
        struct message_exit exit;
};

bool message_hello_encode(struct buffer *out, const struct message_hello *message);
bool message_hello_decode(struct slice payload, struct message_hello *ret);
bool message_resume_encode(struct buffer *out, const struct message_resume *message);
bool message_resume_decode(struct slice payload, struct message_resume *ret);
bool message_resumed_encode(struct buffer *out, const struct message_resumed *message);
bool message_resumed_decode(struct slice payload, struct message_resumed *ret);
bool message_error_encode(struct buffer *out, const struct message_error *message);
bool message_error_decode(struct slice payload, struct message_error *ret);
bool message_exec_encode(struct buffer *out, const struct message_exec *message);
/* argv and env are allocated; free with message_exec_free, also after false. */
bool message_exec_decode(struct slice payload, struct message_exec *ret);
void message_exec_free(struct message_exec *message);
bool message_exit_encode(struct buffer *out, const struct message_exit *message);
bool message_exit_decode(struct slice payload, struct message_exit *ret);
bool message_processes_encode(struct buffer *out, const struct message_processes *message);
bool message_processes_decode(struct slice payload, struct message_processes *ret);
bool message_metrics_encode(struct buffer *out, const struct message_metrics *message);
bool message_metrics_decode(struct slice payload, struct message_metrics *ret);
bool message_status_encode(struct buffer *out, const struct message_status *message);
bool message_status_decode(struct slice payload, struct message_status *ret);
/* RESIZE, and the one-number payloads (CREDIT, SIGNAL, SHUTDOWN, STOP, KILL, STARTED). */
bool message_u32_decode(struct slice payload, uint32_t *ret);
bool message_resize_decode(struct slice payload, uint16_t *ret_rows, uint16_t *ret_columns);

#endif
