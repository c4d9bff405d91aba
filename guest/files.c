/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include "base/cleanup.h"
#include "exec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT_FRAMES 2     /* fill the port's buffer: one write takes both */
#define RECORD_ROOM 4096U /* of the smallest data: what comes byte by byte takes no more */
#define CREDIT_MAX (1ULL << 40)

static void refuse(struct port *port, uint64_t stream, int code, const char *text)
{
        cubby_error error = {0};
        (void)cubby_error_set(&error, code, "%s", text);
        send_error(port, stream, &error);
}

void records_init(struct records *records)
{
        *records = (struct records){0};
        records->last = &records->first;
}

void records_clear(struct records *records)
{
        struct record *record;
        while ((record = records_take(records)) != NULL)
                free(record);
}

struct record *record_new(uint16_t type, const void *bytes, size_t size)
{
        size_t room = type == FRAME_DATA && size < RECORD_ROOM ? RECORD_ROOM : size;
        struct record *record = malloc(sizeof *record + room);
        if (record == NULL)
                return NULL;
        record->next = NULL;
        record->room = (uint32_t)room;
        record->type = type;
        record->size = (uint32_t)size;
        memcpy(record->bytes, bytes, size);
        return record;
}

void records_put(struct records *records, struct record *record)
{
        *records->last = record;
        records->last = &record->next;
        records->newest = record;
        records->bytes += record->size;
}

struct record *records_take(struct records *records)
{
        struct record *record = records->first;
        if (record == NULL)
                return NULL;
        records->first = record->next;
        if (records->first == NULL) {
                records->last = &records->first;
                records->newest = NULL;
        }
        records->bytes -= record->size;
        return record;
}

bool records_extend(struct records *records, const void *bytes, size_t size)
{
        struct record *record = records->newest;
        if (record == NULL || record->type != FRAME_DATA || size > record->room - record->size)
                return false;
        memcpy(record->bytes + record->size, bytes, size);
        record->size += (uint32_t)size;
        records->bytes += size;
        return true;
}

static void call_free(struct file_call *call)
{
        if (call == NULL)
                return;
        buffer_free(&call->payload);
        records_clear(&call->out);
        records_clear(&call->in);
        free(call->taken);
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
        records_init(&call->out);
        records_init(&call->in);
        buffer_init(&call->reply, FILE_REPLY_MAX);
        if (!buffer_append(&call->payload, frame->payload, frame->length)) {
                call_free(call);
                return NULL;
        }
        return call;
}

static struct file_call *find(const struct files *files, uint64_t stream)
{
        for (size_t i = 0; i < files->count; i++)
                if (files->calls[i]->stream == stream && !files->calls[i]->silent)
                        return files->calls[i];
        return NULL;
}

static bool is_watch(const struct file_call *call)
{
        return call->message.operation == FILE_WATCH;
}

static void let_begin(struct files *files, struct file_call *call)
{
        call->waits = false;
        files->lasting += call->lasts;
        files_push(files, call);
}

/* Those that waited for the end of another one, in the order in which they came. */
static void begin_waiting(struct files *files)
{
        for (size_t i = 0; i < files->count && files->lasting < FILE_STREAMS_MAX; i++)
                if (files->calls[i]->waits)
                        let_begin(files, files->calls[i]);
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
        bool watch = is_watch(call);
        if (files->count == FILE_CALLS_MAX || (watch && files->watching == FILE_WATCHES_MAX)) {
                refuse(port, frame->stream, CUBBY_E_BUSY,
                        watch ? "too many watches, or file calls, run in this box"
                              : "too many file calls run in this box");
                call_free(call);
                return;
        }
        files->watching += watch;
        files->calls[files->count++] = call;
        call->waits = call->lasts && files->lasting == FILE_STREAMS_MAX;
        if (!call->waits)
                let_begin(files, call);
}

/* With the lock held. */
static bool take_frame(struct file_call *call, const struct frame *frame)
{
        uint32_t need = frame->type == FRAME_DATA ? FILE_DATA_IN : FILE_ENTRIES_IN;
        uint32_t number = 0;
        struct record *record;
        switch (frame->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                if ((call->traffic & need) == 0 || frame->flags != CHANNEL_STDIN ||
                        frame->length == 0 || frame->length > FRAME_DATA_MAX ||
                        frame->length > call->in_window || call->in_ended)
                        return false;
                call->in_window -= frame->length;
                if (frame->type == FRAME_DATA &&
                        records_extend(&call->in, frame->payload, frame->length))
                        return true;
                record = record_new(frame->type, frame->payload, frame->length);
                if (record == NULL)
                        return false;
                records_put(&call->in, record);
                return true;
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
        call->done |= call->waits; /* no thread has it */
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

/* With the lock held: a record that only the port has no room for. */
static bool may_go(const struct file_call *call)
{
        return call->out.first != NULL && call->out.first->size <= call->credit;
}

/* With the lock held: the next record of the call into the port; false: it has no room. */
static bool move_record(struct file_call *call, struct port *port)
{
        size_t size = call->out.first->size;
        uint16_t type = call->out.first->type;
        size_t room = 0;
        uint8_t *to = port_data_room(port, &room);
        if (to == NULL || room < size)
                return false;
        struct record *record = records_take(&call->out);
        memcpy(to, record->bytes, size);
        free(record);
        port_bulk_done(port, type, type == FRAME_DATA ? CHANNEL_STDOUT : 0, call->stream, size);
        call->credit -= size;
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

/* With the lock held. What waits for nothing but the port counts as moved: once the port
 * is empty nobody else says that there is more. */
static bool pump_call(struct file_call *call, struct port *port)
{
        if (call->silent || call->cancelled) {
                records_clear(&call->out);
                return false;
        }
        if (call->credit_due && !call->done)
                give_credit(call, port);
        bool moved = false;
        for (int i = 0; i < PORT_FRAMES && may_go(call) && move_record(call, port); i++)
                moved = true;
        if (moved && call->out.bytes <= FILE_OUT_MAX / 2)
                (void)pthread_cond_signal(&call->changed);
        return moved || may_go(call) || (call->credit_due && !call->done);
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
                if (!call->done || call->out.first != NULL) {
                        files->calls[kept++] = call;
                        continue;
                }
                end_call(call, port);
                files->lasting -= call->lasts && !call->waits;
                files->watching -= is_watch(call);
                call_free(call);
        }
        files->count = kept;
        (void)pthread_mutex_unlock(&files->lock);
        begin_waiting(files);
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
