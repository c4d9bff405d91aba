/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SHIM_HARNESS_H
#define TESTS_SHIM_HARNESS_H

/* A box for tests: a folder, a configuration, and the real shim program over it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/spawn.h"
#include "box/config.h"
#include "channel/client.h"

#define SOON_MS 10000 /* everything asked for happens within it */

struct test_box {
        char path[64];
        int dir_fd;
        int lock_fd; /* with keeps_lock */
        struct child shim;
        struct shim_report report; /* READY or FAILED */
        bool reported;             /* false: the shim closed without either */
        char stages[128];          /* of the progress, separated by spaces */
};

struct box_setup {
        const char *engine;      /* NULL: "fake" */
        const char *script;      /* for the engine "script" */
        const char *const *argv; /* NULL: no command */
        const char *program;     /* NULL: $CUBBY_TEST_SHIM */
        bool tty;
        bool open_stdin;
        bool keeps_lock; /* as a process that was forked while the box started */
        int64_t ttl_ms;
        int64_t boot_timeout_ms; /* 0: SOON_MS */
};

int64_t soon(void);
/* A group's teardown: no shim outlives the tests, also when one failed. */
int kill_leftovers(void **state);
void box_make(struct test_box *box, const struct box_setup *setup);
void box_launch(struct test_box *box, const struct box_setup *setup);
/* Both, and asserts that the box is ready. */
void box_start(struct test_box *box, const struct box_setup *setup);
struct client *box_client(const struct test_box *box);
/* Waits for the end of the shim; reads the exit file; checks that the socket and
 * the lock are gone. */
void box_wait_end(struct test_box *box, struct box_exit *ret);
/* KILL, wait, remove. */
void box_drop(struct test_box *box);
void box_remove(struct test_box *box);

/* The result of a command: output of both channels in order, and how it ended. */
struct outcome {
        struct buffer out;
        struct buffer err;
        bool failed; /* ended with ERROR: see error */
        cubby_error error;
        struct message_exit exit;
};
uint64_t send_exec(struct client *client, uint32_t flags, const char *const *argv);
void send_exec_full(struct client *client, uint64_t stream, const struct message_exec *exec);
/* Reads the stream to its end, giving credit. */
void collect(struct client *client, uint64_t stream, struct outcome *ret);
void run(struct client *client, const char *const *argv, struct outcome *ret);
void must_next(struct client *client, struct frame *ret);
void outcome_free(struct outcome *outcome);
void assert_text(const struct buffer *buffer, const char *text);
void send_u32(
        struct client *client, uint16_t type, uint16_t flags, uint64_t stream, uint32_t number);
uint64_t send_attach(struct client *client, bool replay);
void get_status(struct client *client, struct message_status *ret);
long resident_pages(const struct test_box *box);
/* What the shim has used of the processor, in milliseconds. */
int64_t processor_ms(const struct test_box *box);
/* One round trip to the agent; returns nanoseconds. */
int64_t ping(struct client *client);
/* True when the connection ends within `ms`; frames before are passed over. */
bool closes_within(struct client *client, int64_t ms);

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
