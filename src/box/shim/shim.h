/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_SHIM_SHIM_H
#define BOX_SHIM_SHIM_H

/*
 * The process that owns one box: it starts the machine, carries frames between
 * the clients of box.sock and the agent, keeps the output of the box's command,
 * and writes down how it all ended. One thread, one poll loop; nothing waits.
 *
 *   setup.c    descriptors, files, privileges, the socket
 *   loop.c     poll, timers
 *   boot.c     HELLO, RESUME, the box's command
 *   saved.c    templates that are made, clones, spares and how they are claimed
 *   copy.c     a machine that is copied and goes on
 *   guest.c    frames from the agent: checked, then forwarded
 *   peers.c    clients: accept, frames from them: checked, then forwarded
 *   control.c  what clients ask of the shim itself
 *   streams.c  who talks to whom
 *   command.c  the box's command: kept log, attached clients, credit
 *   ending.c   stop, kill, the exit file, what clients have not read yet
 */

#include "base/buffer.h"
#include "box/config.h"
#include "box/shim/kept_log.h"
#include "channel/connection.h"
#include "engine/engine.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define PEERS_MAX 64U
#define PEER_STREAMS_MAX 256U
#define PEER_ATTACHES_MAX 16U
#define STREAMS_MAX 1024U
#define STREAM_BUCKETS 256U
#define PEER_QUEUE_MAX (8U << 20)
#define AGENT_QUEUE_SOFT (2U << 20) /* nothing new is taken from clients above it */
#define AGENT_QUEUE_MAX (8U << 20)
#define ATTACH_QUEUE (256U * 1024U) /* log that waits in one client's line */
#define BEHIND_MAX (1U << 20)       /* a client that is further behind slows the command */
#define VIOLATIONS_MAX 1000U
#define END_TEXT_MAX 600U
#define GUEST_TEXT_MAX 512U
#define CONSOLE_MAX (64U * 1024U)
#define CONSOLE_KEPT (16U * 1024U)
#define PING_MAX 64U
#define SHIM_GIVEN 5

struct shim_options {
        const struct engine *(*find_engine)(const char *name);
        enum shim_mode mode;
        char *const *warmups; /* NULL-terminated; NULL: none */
        int64_t part_ms;      /* a frame from the guest must be whole after this time */
        int64_t drain_ms;     /* after the end: clients must have read the rest within it */
        int64_t shutdown_ms;  /* between SHUTDOWN and the end of the machine */
        int64_t linger_ms;    /* after READY: time to attach to a command that was quick */
};

struct shim;
struct peer;

enum stream_kind { STREAM_REQUEST, STREAM_EXEC, STREAM_FILE, STREAM_MAIN, STREAM_WARM, STREAM_OWN };

struct stream {
        struct stream *next_in_bucket;
        struct stream *next_of_peer;
        struct peer *peer; /* NULL: the shim's own, or its client is gone */
        enum stream_kind kind;
        uint64_t id; /* in frames to and from the agent */
        uint64_t peer_id;
        uint16_t reply; /* of a request: the one type that answers it */
        uint8_t ping_size;
        uint8_t ping[PING_MAX];
        uint32_t exec_flags;
        uint32_t traffic; /* of a file call: what may travel */
        bool started;
        bool ended[CHANNEL_COUNT];
        uint32_t window[CHANNEL_COUNT]; /* bytes that may still be sent */
};

/* A client that joined the box's command, or only waits for its end. */
struct attach {
        struct attach *next;
        uint64_t stream;
        bool waits_only;
        struct kept_place place;
        struct buffer input;          /* stdin that the agent has no room for yet */
        uint32_t window;              /* stdin that the client may still send */
        uint32_t room[CHANNEL_COUNT]; /* output that the client still takes */
        bool input_ended;
};

struct peer {
        struct peer *next;
        struct connection connection;
        uint64_t last_stream;
        struct stream *streams;
        struct attach *attaches;
        size_t stream_count;
        size_t poll_index;
        bool held;    /* its next frame waits until the agent takes more */
        bool closing; /* to be dropped at the end of this round */
};

enum phase {
        PHASE_HELLO,    /* the guest boots */
        PHASE_RESUME,   /* RESUME was sent */
        PHASE_WARM,     /* a warm-up command runs, or what it left is looked for */
        PHASE_FREEZE,   /* FREEZE was sent */
        PHASE_SPARE,    /* stopped, waits to be claimed */
        PHASE_COMMAND,  /* the box's command was sent */
        PHASE_RUNNING,  /* ready */
        PHASE_SHUTDOWN, /* the guest was told to power off */
        PHASE_GONE,     /* there is no machine any more */
};

struct command {
        bool exists;
        bool ended;
        bool seen; /* a client has attached */
        bool input_ended;
        struct stream *stream;
        struct kept_place first;      /* where this run's output begins */
        uint32_t owed[CHANNEL_COUNT]; /* credit that is not granted yet */
        struct message_exit exit;
};

struct shim {
        const struct shim_options *options;
        const struct engine *engine;
        struct machine *machine;
        struct box_config config;
        struct log log;
        int box_fd;
        int given_fds[SHIM_GIVEN]; /* root disk, kernel, initramfs, memory, state; -1: none */
        int status_fd;
        int lock_fd;
        int listen_fd;
        int signal_fd;
        int console_fd;
        int disk_fd;
        int state_fd;
        int keeper_fd;
        uid_t client_uid; /* who may connect, beside root */
        enum phase phase;
        bool paused;
        bool stopping; /* a stop was asked for */
        bool agent_closed;
        bool again;     /* log is left to be sent and there is room for it */
        bool published; /* the exit file is there, socket and lock are given up */
        bool finished;
        bool failed; /* the start failed: `error` says why */
        cubby_error error;
        char isolation[16];
        struct box_exit exit;

        struct connection agent;
        uint64_t session; /* of frames to the agent */
        uint64_t nonce;
        uint64_t generation;
        uint64_t last_id;
        size_t stream_count;
        struct stream *buckets[STREAM_BUCKETS];
        uint64_t violations;       /* all */
        uint32_t violations_level; /* falls by one a second */
        int64_t violations_ms;

        bool unclaimed;     /* a spare without an owner */
        size_t warmed;      /* warm-up commands that have ended */
        uint32_t looks;     /* for what they left running */
        int64_t look_ms;    /* the next one */
        struct peer *saver; /* copies the machine; nothing is sent to the agent meanwhile */
        uint64_t save_stream;
        bool freeze_sent; /* until the box goes on, also when its saver is gone */
        bool frozen;      /* and answered */
        bool still;       /* frozen and stopped */
        int copy_memory_fd;
        int copy_state_fd;
        struct peer *claimer; /* waits for the answer to its claim */
        uint64_t claim_stream;

        struct kept_log kept;
        struct command command;
        struct peer *peers;
        size_t peer_count;
        int64_t accept_ms; /* no new client before it: descriptors ran out */

        int64_t started_ms;
        int64_t ready_ms;
        int64_t boot_deadline_ms;
        int64_t kill_deadline_ms; /* the machine is killed then */
        int64_t ttl_deadline_ms;
        int64_t park_deadline_ms; /* nobody has it in use: it ends then */
        int64_t part_deadline_ms;
        int64_t console_ms;        /* next look at its size */
        int64_t drain_deadline_ms; /* the last clients are left then */
        int result;                /* exit code of the process */
};

/* The whole life; returns the exit code of the process. */
int shim_main(const struct shim_options *options);

/* setup.c */
int setup_descriptors(struct shim *shim, cubby_error *err);
int setup_config(struct shim *shim, cubby_error *err);
int setup_machine(struct shim *shim, cubby_error *err);
int setup_privileges(struct shim *shim, cubby_error *err);
int setup_socket(struct shim *shim, cubby_error *err);
void setup_close(struct shim *shim);
void console_bound(struct shim *shim, int64_t now_ms);
/* The end of the console, made printable. */
void console_tail(const struct shim *shim, char *ret, size_t size);

/* loop.c */
void loop_run(struct shim *shim);

/* boot.c */
void boot_report(const struct shim *shim, int kind, const char *text);
bool boot_hello(struct shim *shim, struct slice payload);        /* false: a violation */
bool boot_resumed(struct shim *shim, struct slice payload);      /* false: a violation */
bool boot_agent_failed(struct shim *shim, struct slice payload); /* false: a violation */
void boot_command_started(struct shim *shim);
void boot_fail(struct shim *shim, const char *reason, const cubby_error *error, bool with_console);
void boot_late(struct shim *shim);

void boot_resume(struct shim *shim); /* sends RESUME */

/* saved.c */
void saved_begin(struct shim *shim);                         /* a clone: no HELLO comes */
void saved_resumed(struct shim *shim);                       /* a template or an unclaimed spare */
void saved_warmed(struct shim *shim);                        /* one command has ended */
bool saved_metrics(struct shim *shim, struct slice payload); /* false: a violation */
void saved_look(struct shim *shim, int64_t now_ms);
void saved_frozen(struct shim *shim);
bool saved_claim(struct shim *shim, struct peer *peer, const struct frame *frame);
void saved_answer(struct shim *shim, const cubby_error *error); /* to the claimer; NULL: OK */

/* copy.c: a machine that is copied and goes on */
bool copy_start(struct shim *shim, struct peer *peer, const struct frame *frame);
bool copy_go_on(struct shim *shim, struct peer *peer, const struct frame *frame);
void copy_pump(struct shim *shim); /* sends FREEZE once nothing else waits */
void copy_frozen(struct shim *shim);
void copy_refused(struct shim *shim);
void copy_fail(struct shim *shim, int code, const char *text); /* and goes on */
void copy_leave(struct shim *shim, const struct peer *peer);   /* its client is gone */

/* guest.c */
bool guest_read(struct shim *shim); /* false: nothing more is there */
void guest_frame(struct shim *shim, const struct frame *frame);
/* A frame that has begun has to be whole in time; a paused machine has all the time. */
void guest_watch_part(struct shim *shim);
/* What the guest says, cut off at GUEST_TEXT_MAX, no byte of it harmful to show. */
void guest_error(const struct message_error *message, cubby_error *ret);
bool guest_send(struct shim *shim, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size);
/* True when new work for the agent has to wait. */
bool guest_is_full(const struct shim *shim);

/* streams.c */
struct stream *stream_open(struct shim *shim, struct peer *peer, uint64_t peer_id,
        enum stream_kind kind); /* NULL: too many */
struct stream *stream_find(const struct shim *shim, uint64_t id);
struct stream *stream_of_peer(const struct peer *peer, uint64_t peer_id);
void stream_end(struct shim *shim, struct stream *stream);
void streams_leave(struct shim *shim, struct peer *peer); /* its client is gone */
void streams_fail(struct shim *shim, int code, const char *text);
void streams_free(struct shim *shim);

/* peers.c */
void peers_accept(struct shim *shim);
void peer_read(struct shim *shim, struct peer *peer);
void peer_handle(struct shim *shim, struct peer *peer);
void peer_send(struct peer *peer, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size);
void peer_error(struct peer *peer, uint64_t stream, int code, const char *text);
void peer_flush(struct peer *peer);
void peers_drop_closing(struct shim *shim);
void peers_free(struct shim *shim);

/* control.c: false when the frame breaks the protocol */
bool control_frame(struct shim *shim, struct peer *peer, const struct frame *frame);

/* command.c */
struct attach *attach_find(const struct peer *peer, uint64_t stream);
void attach_open(struct shim *shim, struct peer *peer, uint64_t stream, bool waits, bool replay);
void attach_close(struct peer *peer, struct attach *attach);
bool attach_frame(struct shim *shim, struct attach *attach, const struct frame *frame);
void command_output(struct shim *shim, uint16_t channel, const void *data, size_t size);
void command_ended(struct shim *shim, const struct message_exit *exit);
void command_killed(struct shim *shim); /* its machine was ended on request */
void command_pump(struct shim *shim);

/* ending.c */
void end_reason(struct shim *shim, const char *reason, const char *detail);
void end_stop(struct shim *shim, const char *reason, int64_t timeout_ms);
void end_kill(struct shim *shim, const char *reason, const char *detail);
void end_shutdown(struct shim *shim, int64_t timeout_ms);
void end_machine_exited(struct shim *shim);
void end_text(const struct shim *shim, char *ret, size_t size);
void end_publish(struct shim *shim);
void end_settle(struct shim *shim, int64_t now_ms);

#endif
