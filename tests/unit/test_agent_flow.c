/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "exec.h"
#include "files.h"
#include "queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Chores are told once, and never before work. */
static void test_nudge(void **state)
{
        (void)state;
        struct queue queue;
        queue_init(&queue);
        struct job *job = job_new(JOB_SYNC, 1, NULL, 0);
        assert_non_null(job);
        queue_nudge(&queue);
        queue_nudge(&queue);
        queue_push(&queue, job);
        assert_ptr_equal(queue_wait(&queue), job);
        assert_null(queue_wait(&queue));
        queue_push(&queue, job);
        assert_ptr_equal(queue_wait(&queue), job);
        assert_null(queue_poll(&queue));
        job_free(job);
}

static int pipe_of(struct exec *exec)
{
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        exec->fds[CHANNEL_STDOUT] = ends[0];
        exec->readable[CHANNEL_STDOUT] = true;
        return ends[1];
}

/* A command is taken for a flood by what it wrote at once, and for no longer. */
static void test_flood(void **state)
{
        (void)state;
        static const struct {
                size_t size;
                uint32_t flags;
                bool flows;
        } cases[] = {
                {1, 0, false},
                {PORT_DATA_SIZE - 1, 0, false},
                {PORT_DATA_SIZE, 0, true},
                {PORT_OUT_SIZE, 0, true},
                {PORT_DATA_SIZE, EXEC_TTY, false},
        };
        static uint8_t bytes[PORT_OUT_SIZE];
        struct cgroups cgroups = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct port *port = malloc(sizeof *port);
        assert_non_null(port);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                port_init(port, -1);
                struct exec *exec = exec_new(1, cases[i].flags, 0);
                assert_non_null(exec);
                AUTO_FD int writer = pipe_of(exec);
                int usual = fcntl(writer, F_GETPIPE_SZ);
                assert_false(exec_flows(exec));
                assert_int_equal(write(writer, bytes, cases[i].size), cases[i].size);
                (void)port_fill(port);
                while (exec_pump(exec, port))
                        ;
                assert_int_equal(exec_flows(exec), cases[i].flows);
                if (cases[i].flows)
                        assert_int_equal(fcntl(writer, F_GETPIPE_SZ), STREAM_WINDOW);
                else
                        assert_int_equal(fcntl(writer, F_GETPIPE_SZ), usual);
                /* ended: what is left is read at once */
                exec->exited = true;
                assert_false(exec_flows(exec));
                exec->exited = false;
                exec->passed = 0; /* the next look found nothing */
                assert_false(exec_flows(exec));
                exec_free(exec, &cgroups);
                port_free(port);
        }
        free(port);
}

/* File calls without their threads: what a thread would do is done here. */
static struct files *files_new(void)
{
        struct files *files = calloc(1, sizeof *files);
        assert_non_null(files);
        *files = (struct files){.wake_fd = -1,
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .filled = PTHREAD_COND_INITIALIZER,
                .threads = FILE_THREADS_MAX};
        files->last = &files->first;
        return files;
}

static void begin_call(struct files *files, struct port *port, uint64_t stream, uint16_t operation)
{
        AUTO_BUFFER struct buffer payload;
        buffer_init(&payload, FRAME_TO_GUEST_MAX);
        const struct message_file_call call = {
                .operation = operation, .path = {(const uint8_t *)"/f", 2}};
        assert_true(message_file_call_encode(&payload, &call));
        const struct frame frame = {.type = FRAME_FILE_CALL,
                .stream = stream,
                .payload = payload.data,
                .length = (uint32_t)payload.size};
        files_begin(files, port, &frame);
}

static size_t in_line(const struct files *files)
{
        size_t count = 0;
        for (const struct file_call *call = files->first; call != NULL; call = call->next)
                count++;
        return count;
}

static void cancel_call(struct files *files, uint64_t stream)
{
        const struct frame frame = {.type = FRAME_CANCEL, .stream = stream};
        assert_true(files_frame(files, &frame));
}

/* What waits for the port alone is told, else the agent would sleep on it. */
static void test_files_wait_for_the_port(void **state)
{
        (void)state;
        static uint8_t bytes[PORT_DATA_SIZE];
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
        struct port *port = malloc(sizeof *port);
        assert_non_null(port);
        port_init(port, ends[1]);
        struct files *files = files_new();
        begin_call(files, port, 7, FILE_READ);
        assert_int_equal(files->count, 1);
        struct file_call *call = files->calls[0];
        for (int i = 0; i < 3; i++)
                records_put(&call->out, record_new(FRAME_DATA, bytes, sizeof bytes));
        assert_true(port_fill(port));
        assert_true(files_pump(files, port));
        assert_int_equal(call->out.bytes, sizeof bytes);
        port_flush(port);
        assert_true(port_pending(port));
        (void)port_fill(port);
        assert_true(files_pump(files, port)); /* nothing moved, but something could */
        while (port_pending(port)) {
                assert_true(read(ends[0], bytes, sizeof bytes) > 0);
                port_flush(port);
        }
        (void)port_fill(port);
        assert_true(files_pump(files, port));
        assert_int_equal(call->out.bytes, 0);
        call->credit = 1;
        records_put(&call->out, record_new(FRAME_DATA, bytes, 2));
        assert_false(files_pump(files, port)); /* the host has to say when */
        cancel_call(files, 7);
        call->done = true;
        assert_false(files_pump(files, port));
        assert_int_equal(files->count, 0);
        port_free(port);
        free(port);
        free(files);
        close(ends[0]);
        close(ends[1]);
}

/* One stream more than there may be waits, is given up while it waits, or gets its turn. */
static void test_streams_wait_for_each_other(void **state)
{
        (void)state;
        struct port *port = malloc(sizeof *port);
        assert_non_null(port);
        port_init(port, -1);
        struct files *files = files_new();
        for (uint64_t i = 1; i <= FILE_STREAMS_MAX + 3; i++)
                begin_call(files, port, i, FILE_READ);
        begin_call(files, port, 100, FILE_STAT);
        assert_int_equal(files->count, FILE_STREAMS_MAX + 4);
        assert_int_equal(in_line(files), FILE_STREAMS_MAX + 1);
        assert_int_equal(port->control.size, 0); /* nobody was refused */
        cancel_call(files, FILE_STREAMS_MAX + 1);
        (void)files_pump(files, port);
        assert_int_equal(files->count, FILE_STREAMS_MAX + 3);
        assert_int_equal(files->lasting, FILE_STREAMS_MAX);
        assert_true(port->control.size > 0);
        assert_int_equal(in_line(files), FILE_STREAMS_MAX + 1);
        files->first = files->first->next; /* a thread takes the first, and ends it */
        files->calls[0]->done = true;
        (void)files_pump(files, port);
        assert_int_equal(in_line(files), FILE_STREAMS_MAX + 1);
        assert_int_equal(files->lasting, FILE_STREAMS_MAX);
        uint64_t last = 0;
        for (const struct file_call *one = files->first; one != NULL; one = one->next)
                last = one->stream;
        assert_int_equal(last, FILE_STREAMS_MAX + 2);
        for (uint64_t i = 200; i < 200 + FILE_WATCHES_MAX; i++)
                begin_call(files, port, i, FILE_WATCH);
        size_t before = port->control.size;
        begin_call(files, port, 300, FILE_WATCH);
        assert_true(port->control.size > before); /* refused: no other one needs to end */
        files_cancel(files);
        for (size_t i = 0; i < files->count; i++)
                files->calls[i]->done = true;
        (void)files_pump(files, port);
        assert_int_equal(files->count, 0);
        assert_int_equal(files->lasting, 0);
        assert_int_equal(files->watching, 0);
        port_free(port);
        free(port);
        free(files);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_nudge),
                cmocka_unit_test(test_flood),
                cmocka_unit_test(test_files_wait_for_the_port),
                cmocka_unit_test(test_streams_wait_for_each_other),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
