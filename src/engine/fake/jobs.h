/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_FAKE_JOBS_H
#define ENGINE_FAKE_JOBS_H

/* The commands that the fake agent pretends to run. */

#include "wire/wire.h"

#define JOBS_MAX 256

enum job_kind {
        JOB_DONE, /* has only output and an end */
        JOB_CAT,
        JOB_FLOOD,
        JOB_SLEEP,
        JOB_WINSIZE,
};

struct job {
        uint64_t stream; /* 0: the slot is free */
        enum job_kind kind;
        uint32_t flags;
        bool ignores_signals; /* all but KILL */
        bool stdin_ended;
        bool killed;      /* the end is final: no more output */
        int64_t ends_ms;  /* of sleep */
        int64_t limit_ms; /* of the timeout */
        int64_t started_ms;
        struct message_exit exit;
        struct buffer output[CHANNEL_COUNT]; /* [CHANNEL_STDIN] is not used */
        uint32_t window[CHANNEL_COUNT];
        uint32_t stdin_taken; /* bytes that were read and not yet credited */
        char command[64];
        char refusal[320]; /* why it could not start */
};

/* What a command asks of the whole machine. */
enum machine_fate { FATE_NONE, FATE_CRASH, FATE_POWEROFF, FATE_HANG };

/* Starts `exec` in a free slot. Returns 0, or a cubby_code with `ret_text`. */
int job_start(struct job *job, uint64_t stream, const struct message_exec *exec,
        enum machine_fate *ret_fate, const char **ret_text);
void job_free(struct job *job);
/* stdin bytes; false when more came than was allowed. */
bool job_input(struct job *job, const void *data, size_t size);
void job_signal(struct job *job, uint32_t number);
void job_resize(struct job *job, uint16_t rows, uint16_t columns);
/* Lets time pass; makes output. */
void job_work(struct job *job, int64_t now_ms);
/* True when only the rest of the output and the exit are left. */
bool job_ended(const struct job *job);

#endif
