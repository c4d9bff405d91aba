/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include "base/cleanup.h"
#include "exec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_HEAD 6U
#define PORT_FRAMES 2 /* fill the port's buffer: one write takes both */
#define CREDIT_MAX (1ULL << 40)

static void refuse(struct port *port, uint64_t stream, int code, const char *text)
{
        cubby_error error = {0};
        (void)cubby_error_set(&error, code, "%s", text);
        send_error(port, stream, &error);
}

static void call_free(struct file_call *call)
{
        if (call == NULL)
                return;
        buffer_free(&call->payload);
        buffer_free(&call->out);
        buffer_free(&call->in);
        buffer_free(&call->taken);
        buffer_free(&call->reply);
        (void)pthread_cond_destroy(&call->changed);
        close_quietly(call->wait_fd);
        free(call);
}

static struct file_call *call_new(struct files *files, const struct frame *frame)
{
        struct file_call *call = calloc(1, sizeof *call);
        if (call == NULL)
                return NULL;
        call->files = files;
        call->wait_fd = -1;
        call->stream = frame->stream;
        call->credit = FILE_WINDOW;
        call->in_window = FILE_WINDOW;
        (void)pthread_cond_init(&call->changed, NULL);
        buffer_init(&call->payload, FRAME_TO_GUEST_MAX);
        /* twice, as what is gone may still be in front */
        buffer_init(&call->out, (size_t)2 * (FILE_OUT_MAX + FILE_ENTRY_MAX + FRAME_DATA_MAX));
        /* each byte of a window may be a record of its own */
        buffer_init(&call->in, (size_t)2 * FILE_WINDOW * (RECORD_HEAD + 1));
        buffer_init(&call->taken, FRAME_DATA_MAX);
        buffer_init(&call->reply, FILE_REPLY_MAX);
        if (!buffer_append(&call->payload, frame->payload, frame->length)) {
                call_free(call);
                return NULL;
        }
        return call;
}

/* Only when half of it is gone, so that each byte is moved once at most. */
void file_call_tidy(struct buffer *records, size_t *head)
{
        if (*head < records->size - *head)
                return;
        buffer_consume(records, *head);
        *head = 0;
}

static struct file_call *find(const struct files *files, uint64_t stream)
{
        for (size_t i = 0; i < files->count; i++)
                if (files->calls[i]->stream == stream && !files->calls[i]->silent)
                        return files->calls[i];
        return NULL;
}

void files_begin(struct files *files, struct port *port, const struct frame *frame)
{
        if (find(files, frame->stream) != NULL)
                return;
        struct file_call *call = call_new(files, frame);
        if (call == NULL) {
                refuse(port, frame->stream, CUBBY_E_NO_MEMORY, "the box's agent is out of memory");
                return;
        }
        if (!message_file_call_decode(
                    (struct slice){call->payload.data, call->payload.size}, &call->message)) {
                refuse(port, frame->stream, CUBBY_E_INVALID, "FILE_CALL has a bad layout");
                call_free(call);
                return;
        }
        call->traffic = file_traffic(call->message.operation);
        call->lasts = call->traffic != 0;
        if (files->count == FILE_CALLS_MAX || (call->lasts && files->lasting == FILE_STREAMS_MAX)) {
                refuse(port, frame->stream, CUBBY_E_BUSY, "too many file calls run in this box");
                call_free(call);
                return;
        }
        files->calls[files->count++] = call;
        files->lasting += call->lasts;
        files_push(files, call);
}

/* With the lock held. */
static bool take_frame(struct file_call *call, const struct frame *frame)
{
        uint32_t need = frame->type == FRAME_DATA ? FILE_DATA_IN : FILE_ENTRIES_IN;
        uint32_t number = 0;
        switch (frame->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                if ((call->traffic & need) == 0 || frame->flags != CHANNEL_STDIN ||
                        frame->length == 0 || frame->length > FRAME_DATA_MAX ||
                        frame->length > call->in_window || call->in_ended)
                        return false;
                call->in_window -= frame->length;
                file_call_tidy(&call->in, &call->in_head);
                return buffer_u32(&call->in, frame->length) && buffer_u16(&call->in, frame->type) &&
                        buffer_append(&call->in, frame->payload, frame->length);
        case FRAME_EOF:
                call->in_ended = true;
                return frame->flags == CHANNEL_STDIN && frame->length == 0;
        case FRAME_CREDIT:
                if (frame->flags != CHANNEL_STDOUT ||
                        !message_u32_decode(
                                (struct slice){frame->payload, frame->length}, &number) ||
                        call->credit + number > CREDIT_MAX)
                        return false;
                call->credit += number;
                return true;
        default:
                return false;
        }
}

/* With the lock held. */
static void cancel(struct file_call *call)
{
        const uint64_t one = 1;
        call->cancelled = true;
        if (call->wait_fd >= 0)
                (void)!write(call->wait_fd, &one, sizeof one);
}

bool files_frame(struct files *files, const struct frame *frame)
{
        struct file_call *call = find(files, frame->stream);
        if (call == NULL)
                return frame->type == FRAME_FILE_ENTRY;
        (void)pthread_mutex_lock(&files->lock);
        /* What breaks the rules, as CANCEL, ends the call. */
        if (frame->type == FRAME_CANCEL || !take_frame(call, frame))
                cancel(call);
        (void)pthread_mutex_unlock(&files->lock);
        (void)pthread_cond_signal(&call->changed);
        return true;
}

/* With the lock held: the next record of the call, as far as it may go, into the port. */
static bool move_record(struct file_call *call, struct port *port)
{
        const uint8_t *record = call->out.data + call->out_head;
        size_t size = load_u32(record);
        uint16_t type = load_u16(record + 4);
        size_t room = 0;
        if (size > call->credit)
                return false;
        uint8_t *to = port_data_room(port, &room);
        if (to == NULL || room < size)
                return false;
        memcpy(to, record + RECORD_HEAD, size);
        port_bulk_done(port, type, type == FRAME_DATA ? CHANNEL_STDOUT : 0, call->stream, size);
        call->credit -= size;
        call->out_head += RECORD_HEAD + size;
        if (call->out_head == call->out.size)
                call->out_head = call->out.size = 0;
        return true;
}

/* With the lock held: what the thread has consumed may be sent again. */
static void give_credit(struct file_call *call, struct port *port)
{
        uint8_t credit[4];
        store_u32(credit, call->in_consumed);
        if (port_send(port, FRAME_CREDIT, CHANNEL_STDIN, call->stream, credit, sizeof credit)) {
                call->in_window += call->in_consumed;
                call->in_consumed = 0;
                call->credit_due = false;
        }
}

/* With the lock held. */
static bool pump_call(struct file_call *call, struct port *port)
{
        if (call->silent || call->cancelled) {
                call->out_head = call->out.size = 0;
                return false;
        }
        if (call->credit_due && !call->done)
                give_credit(call, port);
        bool moved = false;
        for (int i = 0; i < PORT_FRAMES && call->out.size > 0 && move_record(call, port); i++)
                moved = true;
        if (moved)
                (void)pthread_cond_signal(&call->changed);
        return moved;
}

static void end_call(struct file_call *call, struct port *port)
{
        if (call->silent)
                return;
        if (call->cancelled && call->error.code == CUBBY_OK)
                (void)cubby_error_set(&call->error, CUBBY_E_CANCELLED, "the call was given up");
        if (call->error.code != CUBBY_OK)
                send_error(port, call->stream, &call->error);
        else
                (void)port_send(port, FRAME_FILE_REPLY, 0, call->stream, call->reply.data,
                        call->reply.size);
}

bool files_pump(struct files *files, struct port *port)
{
        bool moved = false;
        atomic_store(&files->woken, false);
        (void)pthread_mutex_lock(&files->lock);
        for (size_t i = 0; i < files->count; i++)
                moved |= pump_call(files->calls[(files->turn + i) % files->count], port);
        files->turn++;
        size_t kept = 0;
        for (size_t i = 0; i < files->count; i++) {
                struct file_call *call = files->calls[i];
                if (!call->done || call->out.size > 0) {
                        files->calls[kept++] = call;
                        continue;
                }
                end_call(call, port);
                files->lasting -= call->lasts;
                call_free(call);
        }
        files->count = kept;
        (void)pthread_mutex_unlock(&files->lock);
        return moved;
}

void files_pause(struct files *files, bool paused)
{
        (void)pthread_mutex_lock(&files->lock);
        files->paused = paused;
        (void)pthread_mutex_unlock(&files->lock);
        if (!paused)
                (void)pthread_cond_broadcast(&files->resumed);
}

bool files_busy(struct files *files)
{
        (void)pthread_mutex_lock(&files->lock);
        bool busy = files->running > 0;
        (void)pthread_mutex_unlock(&files->lock);
        return busy;
}

static void end_all(struct files *files, bool silent)
{
        (void)pthread_mutex_lock(&files->lock);
        for (size_t i = 0; i < files->count; i++) {
                cancel(files->calls[i]);
                files->calls[i]->silent |= silent;
                (void)pthread_cond_signal(&files->calls[i]->changed);
        }
        (void)pthread_mutex_unlock(&files->lock);
}

void files_orphan(struct files *files)
{
        end_all(files, true);
}

void files_cancel(struct files *files)
{
        end_all(files, false);
}
