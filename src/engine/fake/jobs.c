/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fake/jobs.h"

#include "base/clock.h"

#include <cubby/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_MAX (FRAME_TO_GUEST_MAX + STREAM_WINDOW)
#define FLOOD_PIECE (32U * 1024U)
#define SHELL_WORDS_MAX 64
#define NUMBER_MAX 1000000000UL

static void end(struct job *job, uint32_t code, uint32_t signal)
{
        job->kind = JOB_DONE;
        job->exit.code = code;
        job->exit.signal = signal;
}

static unsigned long number_of(const struct slice *argv, uint32_t argc, unsigned long otherwise)
{
        if (argc < 2 || argv[1].size == 0 || argv[1].size > 9)
                return otherwise;
        unsigned long value = 0;
        for (size_t i = 0; i < argv[1].size; i++) {
                if (argv[1].data[i] < '0' || argv[1].data[i] > '9')
                        return otherwise;
                value = value * 10 + (unsigned long)(argv[1].data[i] - '0');
        }
        return value < NUMBER_MAX ? value : otherwise;
}

static void print_words(struct buffer *out, const struct slice *words, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++) {
                if (i > 0)
                        (void)buffer_u8(out, ' ');
                (void)buffer_append(out, words[i].data, words[i].size);
        }
        (void)buffer_u8(out, '\n');
}

static int start_words(struct job *job, const struct message_exec *exec, const struct slice *argv,
        uint32_t argc, enum machine_fate *ret_fate);

/* `sh -c TEXT`, `sh -lc TEXT`: one command of words between spaces. */
static int start_shell(struct job *job, const struct message_exec *exec, const struct slice *argv,
        uint32_t argc, enum machine_fate *ret_fate)
{
        struct slice words[SHELL_WORDS_MAX];
        uint32_t count = 0;
        if (argc < 3 || (!slice_equals(argv[1], "-c") && !slice_equals(argv[1], "-lc"))) {
                job->kind = JOB_CAT; /* an interactive shell that only repeats */
                return 0;
        }
        const uint8_t *next = argv[2].data;
        const uint8_t *limit = next + argv[2].size;
        while (next < limit && count < SHELL_WORDS_MAX) {
                const uint8_t *start = next;
                while (next < limit && *next != ' ')
                        next++;
                if (next > start)
                        words[count++] =
                                (struct slice){.data = start, .size = (size_t)(next - start)};
                if (next < limit)
                        next++;
        }
        if (count == 0 || slice_equals(words[0], "sh"))
                return 0;
        int code = start_words(job, exec, words, count, ret_fate);
        if (code != 0) { /* a shell that does not find a command exits with 127 */
                (void)buffer_append_text(&job->output[CHANNEL_STDERR], "sh: not found\n");
                end(job, 127, 0);
        }
        return 0;
}

static void start_sleep(struct job *job, const struct slice *argv, uint32_t argc, bool stubborn)
{
        job->kind = JOB_SLEEP;
        job->ignores_signals = stubborn;
        job->ends_ms = job->started_ms + (int64_t)number_of(argv, argc, 0) * 1000;
}

static bool start_speaking(
        struct job *job, const struct message_exec *exec, const struct slice *argv, uint32_t argc)
{
        struct buffer *out = &job->output[CHANNEL_STDOUT];
        struct slice name = argv[0];
        if (slice_equals(name, "echo")) {
                print_words(out, argv + 1, argc - 1);
        } else if (slice_equals(name, "err")) {
                print_words((job->flags & EXEC_TTY) != 0 ? out : &job->output[CHANNEL_STDERR],
                        argv + 1, argc - 1);
        } else if (slice_equals(name, "env")) {
                for (uint32_t i = 0; i < exec->envc; i++)
                        print_words(out, &exec->env[i], 1);
        } else if (slice_equals(name, "pwd")) {
                struct slice root = {.data = (const uint8_t *)"/", .size = 1};
                print_words(out, exec->cwd.size > 0 ? &exec->cwd : &root, 1);
        } else if (slice_equals(name, "id")) {
                struct slice root = {.data = (const uint8_t *)"root", .size = 4};
                print_words(out, exec->user.size > 0 ? &exec->user : &root, 1);
        } else {
                return false;
        }
        return true;
}

static bool start_fateful(struct job *job, struct slice name, enum machine_fate *ret_fate)
{
        if (slice_equals(name, "crash"))
                *ret_fate = FATE_CRASH;
        else if (slice_equals(name, "poweroff"))
                *ret_fate = FATE_POWEROFF;
        else if (slice_equals(name, "hang"))
                *ret_fate = FATE_HANG;
        else
                return false;
        job->kind = JOB_SLEEP; /* it runs when the machine ends */
        return true;
}

/*
 * true, false, echo, err (echo to stderr), env, pwd, id, exit N, kill N (dies by
 * that signal), sleep S, stubborn S (sleep that only KILL ends), cat, yes,
 * winsize (prints each resize), sh -c "one of these"; crash, poweroff and hang
 * do that to the machine.
 */
static int start_words(struct job *job, const struct message_exec *exec, const struct slice *argv,
        uint32_t argc, enum machine_fate *ret_fate)
{
        struct slice name = argv[0];
        if (start_speaking(job, exec, argv, argc) || slice_equals(name, "true") ||
                slice_equals(name, "mkdir"))
                end(job, 0, 0);
        else if (slice_equals(name, "false"))
                end(job, 1, 0);
        else if (slice_equals(name, "exit"))
                end(job, (uint32_t)number_of(argv, argc, 0) & 255, 0);
        else if (slice_equals(name, "kill"))
                end(job, 0, (uint32_t)number_of(argv, argc, 15) % 65);
        else if (slice_equals(name, "sleep"))
                start_sleep(job, argv, argc, false);
        else if (slice_equals(name, "stubborn"))
                start_sleep(job, argv, argc, true);
        else if (slice_equals(name, "cat"))
                job->kind = JOB_CAT;
        else if (slice_equals(name, "yes"))
                job->kind = JOB_FLOOD;
        else if (slice_equals(name, "winsize"))
                job->kind = JOB_WINSIZE;
        else if (start_fateful(job, name, ret_fate))
                return 0;
        else if (slice_equals(name, "sh") || slice_equals(name, "/bin/sh"))
                return start_shell(job, exec, argv, argc, ret_fate);
        else
                return CUBBY_E_EXEC_NOT_FOUND;
        return 0;
}

static bool user_exists(struct slice user)
{
        return user.size == 0 || slice_equals(user, "root") || slice_equals(user, "nobody") ||
                (user.data[0] >= '0' && user.data[0] <= '9');
}

int job_start(struct job *job, uint64_t stream, const struct message_exec *exec,
        enum machine_fate *ret_fate, const char **ret_text)
{
        *job = (struct job){.stream = stream,
                .flags = exec->flags,
                .started_ms = clock_monotonic_ms(),
                .limit_ms = DEADLINE_NEVER,
                .ends_ms = DEADLINE_NEVER,
                .stdin_ended = (exec->flags & EXEC_STDIN) == 0};
        if (exec->timeout_ms > 0)
                job->limit_ms = job->started_ms + exec->timeout_ms;
        for (int channel = 0; channel < CHANNEL_COUNT; channel++) {
                job->window[channel] = STREAM_WINDOW;
                buffer_init(&job->output[channel], OUTPUT_MAX);
        }
        (void)snprintf(job->command, sizeof job->command, "%.*s",
                exec->argv[0].size > 60 ? 60 : (int)exec->argv[0].size,
                (const char *)exec->argv[0].data);
        int code = 0;
        if (!user_exists(exec->user)) {
                code = CUBBY_E_INVALID;
                *ret_text = "there is no such user in the box";
        } else if (exec->cwd.size > 0 &&
                (exec->cwd.data[0] != '/' || slice_equals(exec->cwd, "/missing"))) {
                code = CUBBY_E_INVALID;
                *ret_text = "the working directory does not exist";
        } else {
                code = start_words(job, exec, exec->argv, exec->argc, ret_fate);
                (void)snprintf(job->refusal, sizeof job->refusal,
                        "'%.*s': not found in the PATH of the box",
                        exec->argv[0].size > 256 ? 256 : (int)exec->argv[0].size,
                        (const char *)exec->argv[0].data);
                *ret_text = job->refusal;
        }
        if (code != 0)
                job_free(job);
        return code;
}

void job_free(struct job *job)
{
        for (int channel = 0; channel < CHANNEL_COUNT; channel++)
                buffer_free(&job->output[channel]);
        job->stream = 0;
}

bool job_input(struct job *job, const void *data, size_t size)
{
        if (job->stdin_ended || size > job->window[CHANNEL_STDIN])
                return false;
        job->window[CHANNEL_STDIN] -= (uint32_t)size;
        if (job->kind == JOB_CAT)
                (void)buffer_append(&job->output[CHANNEL_STDOUT], data, size);
        else
                job->stdin_taken += (uint32_t)size; /* nobody reads it: let it pass */
        return true;
}

void job_signal(struct job *job, uint32_t number)
{
        if (number == 0 || number > 64 || job_ended(job))
                return;
        if (job->ignores_signals && number != 9)
                return;
        end(job, 0, number);
        job->killed = true;
}

void job_resize(struct job *job, uint16_t rows, uint16_t columns)
{
        if (job->kind == JOB_WINSIZE)
                (void)buffer_printf(
                        &job->output[CHANNEL_STDOUT], "%u %u\n", (unsigned)rows, (unsigned)columns);
}

static void flood(struct job *job)
{
        struct buffer *out = &job->output[CHANNEL_STDOUT];
        while (out->size < FLOOD_PIECE)
                (void)buffer_append_text(out, "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n");
}

void job_work(struct job *job, int64_t now_ms)
{
        if (job_ended(job))
                return;
        if (now_ms >= job->limit_ms) {
                end(job, 0, 9);
                job->exit.flags |= EXIT_FLAG_TIMED_OUT;
                return;
        }
        if (job->kind == JOB_FLOOD)
                flood(job);
        else if (job->kind == JOB_SLEEP && now_ms >= job->ends_ms)
                end(job, 0, 0);
        else if ((job->kind == JOB_CAT || job->kind == JOB_WINSIZE) && job->stdin_ended)
                end(job, 0, 0);
}

bool job_ended(const struct job *job)
{
        return job->kind == JOB_DONE;
}
