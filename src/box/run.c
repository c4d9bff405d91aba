/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HALF (BOX_RUN_KEPT / 2)
#define GAP_TEXT_MAX 96

/* The first half is kept as it comes, of the rest the last half, in a ring. */
struct collector {
        struct buffer head;
        uint8_t *ring; /* HALF bytes, made when the head is full */
        size_t at;     /* where the next byte of the ring goes */
        uint64_t total;
};

static void collector_free(struct collector *collector)
{
        buffer_free(&collector->head);
        free(collector->ring);
}
#define AUTO_COLLECTOR __attribute__((cleanup(collector_free)))

static int collect(struct collector *collector, const uint8_t *data, size_t size, cubby_error *err)
{
        size_t room = HALF - collector->head.size;
        size_t first = size < room ? size : room;
        if (first > 0 && !buffer_append(&collector->head, data, first))
                return cubby_error_no_memory(err);
        collector->total += size;
        data += first;
        size -= first;
        if (size > 0 && collector->ring == NULL) {
                collector->ring = malloc(HALF);
                if (collector->ring == NULL)
                        return cubby_error_no_memory(err);
        }
        while (size > 0) {
                size_t piece = HALF - collector->at < size ? HALF - collector->at : size;
                memcpy(collector->ring + collector->at, data, piece);
                collector->at = (collector->at + piece) % HALF;
                data += piece;
                size -= piece;
        }
        return 0;
}

/* Head, a marked gap where something is left out, tail; with a NUL behind it. */
static int finish(struct collector *collector, char **ret, size_t *ret_size, cubby_error *err)
{
        uint64_t after_head = collector->total - collector->head.size;
        size_t tail = after_head < HALF ? (size_t)after_head : HALF;
        uint64_t left_out = after_head - tail;
        char gap[GAP_TEXT_MAX] = "";
        if (left_out > 0)
                (void)snprintf(
                        gap, sizeof gap, "\n[... %" PRIu64 " bytes left out ...]\n", left_out);
        size_t size = collector->head.size + strlen(gap) + tail;
        char *text = malloc(size + 1);
        if (text == NULL)
                return cubby_error_no_memory(err);
        char *end = text;
        if (collector->head.size > 0)
                memcpy(end, collector->head.data, collector->head.size);
        end += collector->head.size;
        memcpy(end, gap, strlen(gap));
        end += strlen(gap);
        if (tail > 0) {
                size_t begin = left_out > 0 ? collector->at : 0;
                memcpy(end, collector->ring + begin, tail - begin);
                memcpy(end + tail - begin, collector->ring, begin);
        }
        text[size] = '\0';
        *ret = text;
        *ret_size = size;
        return 0;
}

struct feeding {
        const uint8_t *next;
        size_t left;
        bool closed;
};

/* Sends what there is room for, and closes stdin behind the last byte. */
static int feed(cubby_exec *exec, struct feeding *feeding, cubby_error *err)
{
        while (feeding->left > 0) {
                cubby_error problem = {0};
                int64_t sent = box_exec_write(exec, feeding->next, feeding->left, 0, &problem);
                if (sent < 0 && problem.code == CUBBY_E_TIMEOUT)
                        return 0;
                if (sent < 0 && problem.code == CUBBY_E_CLOSED) {
                        feeding->left = 0; /* it does not want the rest */
                        break;
                }
                if (sent < 0) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                feeding->next += sent;
                feeding->left -= (size_t)sent;
        }
        if (feeding->closed)
                return 0;
        feeding->closed = true;
        return box_exec_close_stdin(exec, err);
}

/* All events that are there without waiting. 1 after the exit. */
static int take_events(cubby_exec *exec, struct collector *output, struct collector *errors,
        cubby_exit *ret, cubby_error *err)
{
        for (;;) {
                cubby_event event;
                cubby_error problem = {0};
                if (box_exec_next(exec, 0, &event, &problem) < 0) {
                        if (problem.code == CUBBY_E_TIMEOUT)
                                return 0;
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                if (event.kind == CUBBY_EVENT_EXIT) {
                        *ret = event.exit;
                        return 1;
                }
                if (collect(event.kind == CUBBY_EVENT_STDOUT ? output : errors, event.data,
                            event.size, err) < 0)
                        return -1;
        }
}

static int run(cubby_exec *exec, struct feeding *feeding, struct collector *output,
        struct collector *errors, cubby_exit *ret, cubby_error *err)
{
        for (;;) {
                int ended = take_events(exec, output, errors, ret, err);
                if (ended != 0)
                        return ended < 0 ? -1 : 0;
                /* last: it goes on until the box sends nothing more, credit included */
                if (feed(exec, feeding, err) < 0)
                        return -1;
                if (box_exec_turn(exec, err) < 0)
                        return -1;
        }
}

int box_run(cubby_box *box, const cubby_exec_options *options, const void *input, size_t input_size,
        cubby_result *ret, cubby_error *err)
{
        AUTO_COLLECTOR struct collector output = {0};
        AUTO_COLLECTOR struct collector errors = {0};
        buffer_init(&output.head, HALF);
        buffer_init(&errors.head, HALF);
        cubby_exec_options chosen = *options;
        chosen.open_stdin = input != NULL;
        chosen.detach = false;
        struct feeding feeding = {
                .next = input, .left = input == NULL ? 0 : input_size, .closed = input == NULL};
        AUTO(cubby_exec) cubby_exec *exec = NULL;
        if (box_exec_start(box, &chosen, &exec, err) < 0)
                return -1;
        cubby_result result = {0};
        if (run(exec, &feeding, &output, &errors, &result.exit, err) < 0 ||
                finish(&output, &result.output, &result.output_size, err) < 0)
                return cubby_error_wrap(
                        err, "running '%.128s' in box '%s'", options->argv[0], box->config.name);
        if (finish(&errors, &result.errors, &result.errors_size, err) < 0) {
                free(result.output);
                return -1;
        }
        result.output_total = output.total;
        result.errors_total = errors.total;
        result.truncated = output.total > BOX_RUN_KEPT || errors.total > BOX_RUN_KEPT;
        *ret = result;
        return 0;
}
