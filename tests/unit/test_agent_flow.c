/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "exec.h"
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_nudge),
                cmocka_unit_test(test_flood),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
