/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/qmp.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 4096U
#define DRAIN_LINES_MAX 1000U

static void close_json(json_t **json)
{
        json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(close_json)))

static void close_text(char **text)
{
        free(*text);
}

/* Waits for the socket. 0, or -1 with the error set. */
static int wait_for(const struct qmp *qmp, short events, int64_t deadline_ms, cubby_error *err)
{
        for (;;) {
                struct pollfd poll_fd = {.fd = qmp->fd, .events = events};
                int ready = poll(&poll_fd, 1, deadline_left_ms(deadline_ms));
                if (ready > 0)
                        return 0;
                if (ready == 0)
                        return cubby_error_set(
                                err, CUBBY_E_TIMEOUT, "the VMM did not answer in time");
                if (errno != EINTR)
                        return cubby_error_errno(err, errno, "waiting for the VMM");
        }
}

/* Length of the first line with its newline, or 0. */
static size_t line_length(const struct buffer *input)
{
        const uint8_t *end = input->size == 0 ? NULL : memchr(input->data, '\n', input->size);
        return end == NULL ? 0 : (size_t)(end - input->data) + 1;
}

/* 1: something came, 0: nothing there now, -1: end or error. */
static int take_in(struct qmp *qmp, cubby_error *err)
{
        uint8_t *room = buffer_reserve(&qmp->input, READ_SIZE);
        if (room == NULL)
                return cubby_error_set(err, CUBBY_E_VMM,
                        "the VMM sent a line of more than %u bytes", QMP_LINE_MAX);
        ssize_t got = recv(qmp->fd, room, READ_SIZE, MSG_DONTWAIT);
        if (got > 0) {
                qmp->input.size += (size_t)got;
                return 1;
        }
        if (got == 0)
                return cubby_error_set(err, CUBBY_E_VMM, "the VMM closed its control connection");
        if (errno == EAGAIN || errno == EINTR)
                return 0;
        return cubby_error_errno(err, errno, "reading from the VMM");
}

/* The next object, NULL with the error set. */
static json_t *read_object(struct qmp *qmp, int64_t deadline_ms, cubby_error *err)
{
        size_t length;
        while ((length = line_length(&qmp->input)) == 0) {
                if (wait_for(qmp, POLLIN, deadline_ms, err) < 0 || take_in(qmp, err) < 0)
                        return NULL;
        }
        json_t *object =
                json_loadb((const char *)qmp->input.data, length, JSON_REJECT_DUPLICATES, NULL);
        buffer_consume(&qmp->input, length);
        if (!json_is_object(object)) {
                json_decref(object);
                (void)cubby_error_set(err, CUBBY_E_VMM, "the VMM sent something that is not QMP");
                return NULL;
        }
        return object;
}

static const char *text_of(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text == NULL ? "" : text;
}

/* True when the object is an event, which is then dealt with. */
static bool take_event(struct qmp *qmp, const json_t *object)
{
        const char *event = text_of(object, "event");
        if (*event == '\0')
                return false;
        if (strcmp(event, "SHUTDOWN") != 0)
                return true;
        const char *reason = text_of(json_object_get(object, "data"), "reason");
        if (strcmp(reason, "guest-shutdown") == 0)
                qmp->shutdown = QMP_SHUTDOWN_GUEST;
        else if (strcmp(reason, "guest-reset") == 0 || strcmp(reason, "guest-panic") == 0)
                qmp->shutdown = QMP_SHUTDOWN_RESET;
        else
                qmp->shutdown = QMP_SHUTDOWN_HOST;
        return true;
}

static int send_object(
        struct qmp *qmp, json_t *object, int pass_fd, int64_t deadline_ms, cubby_error *err)
{
        __attribute__((cleanup(close_text))) char *text = json_dumps(object, JSON_COMPACT);
        if (text == NULL)
                return cubby_error_no_memory(err);
        size_t length = strlen(text);
        text[length] = '\n'; /* in the place of the NUL */
        const char *next = text;
        size_t left = length + 1;
        while (left > 0) {
                if (wait_for(qmp, POLLOUT, deadline_ms, err) < 0)
                        return -1;
                if (pass_fd >= 0) {
                        /* the descriptor travels with the first byte */
                        if (fd_send(qmp->fd, next, 1, &pass_fd, 1) < 0)
                                return cubby_error_errno(
                                        err, errno, "passing a descriptor to the VMM");
                        pass_fd = -1;
                        next++;
                        left--;
                        continue;
                }
                ssize_t sent = send(qmp->fd, next, left, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (sent < 0 && errno != EAGAIN && errno != EINTR)
                        return cubby_error_errno(err, errno, "writing to the VMM");
                if (sent > 0) {
                        next += sent;
                        left -= (size_t)sent;
                }
        }
        return 0;
}

int qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, int pass_fd,
        int64_t deadline_ms, json_t **ret, cubby_error *err)
{
        json_int_t id = (json_int_t)++qmp->next_id;
        AUTO_JSON json_t *request = json_pack("{s:s,s:I}", "execute", command, "id", id);
        if (request == NULL ||
                (arguments != NULL && json_object_set(request, "arguments", arguments) < 0))
                return cubby_error_no_memory(err);
        if (send_object(qmp, request, pass_fd, deadline_ms, err) < 0)
                return cubby_error_wrap(err, "command '%s'", command);
        for (;;) {
                AUTO_JSON json_t *reply = read_object(qmp, deadline_ms, err);
                if (reply == NULL)
                        return cubby_error_wrap(err, "command '%s'", command);
                if (take_event(qmp, reply))
                        continue;
                json_t *reply_id = json_object_get(reply, "id");
                /* the answer to an earlier command that was given up at its deadline */
                if (json_is_integer(reply_id) && json_integer_value(reply_id) > 0 &&
                        json_integer_value(reply_id) < id)
                        continue;
                if (!json_is_integer(reply_id) || json_integer_value(reply_id) != id)
                        return cubby_error_set(err, CUBBY_E_VMM,
                                "command '%s': the VMM answered something else", command);
                const json_t *error = json_object_get(reply, "error");
                if (error != NULL)
                        return cubby_error_set(err, CUBBY_E_VMM, "command '%s': %.300s", command,
                                text_of(error, "desc"));
                json_t *result = json_object_get(reply, "return");
                if (result == NULL)
                        return cubby_error_set(
                                err, CUBBY_E_VMM, "command '%s': the VMM gave no result", command);
                if (ret != NULL)
                        *ret = json_incref(result);
                return 0;
        }
}

int qmp_getfd(struct qmp *qmp, const char *name, int fd, int64_t deadline_ms, cubby_error *err)
{
        AUTO_JSON json_t *arguments = json_pack("{s:s}", "fdname", name);
        if (arguments == NULL)
                return cubby_error_no_memory(err);
        return qmp_execute(qmp, "getfd", arguments, fd, deadline_ms, NULL, err);
}

int qmp_open(struct qmp *qmp, int fd, int64_t deadline_ms, cubby_error *err)
{
        struct qmp opened = {.fd = fd};
        buffer_init(&opened.input, QMP_LINE_MAX);
        AUTO_JSON json_t *greeting = NULL;
        int result = fd_set_nonblocking(fd, true) < 0
                ? cubby_error_errno(err, errno, "preparing the control connection")
                : 0;
        if (result == 0) {
                greeting = read_object(&opened, deadline_ms, err);
                if (greeting == NULL)
                        result = -1;
                else if (!json_is_object(json_object_get(greeting, "QMP")))
                        result = cubby_error_set(err, CUBBY_E_VMM, "the VMM does not speak QMP");
        }
        if (result == 0)
                result = qmp_execute(&opened, "qmp_capabilities", NULL, -1, deadline_ms, NULL, err);
        if (result < 0) {
                qmp_close(&opened);
                return -1;
        }
        *qmp = opened;
        return 0;
}

void qmp_close(struct qmp *qmp)
{
        close_quietly(take_fd(&qmp->fd));
        buffer_free(&qmp->input);
}

void qmp_drain(struct qmp *qmp)
{
        if (qmp->fd < 0)
                return;
        for (unsigned lines = 0; lines < DRAIN_LINES_MAX; lines++) {
                while (line_length(&qmp->input) == 0)
                        if (take_in(qmp, NULL) <= 0)
                                return;
                AUTO_JSON json_t *object = read_object(qmp, 0, NULL);
                if (object == NULL)
                        return;
                (void)take_event(qmp, object);
        }
}
