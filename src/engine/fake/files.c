/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fake/files.h"

#include "base/cleanup.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLLECTED_MAX (256U << 20) /* of one call, in and out */

struct item {
        struct item *next;
        uint16_t type;
        uint32_t size;
        uint8_t bytes[];
};

struct items {
        struct item *first, **last;
        size_t bytes;
};

struct call {
        struct call *next;
        uint64_t stream;
        struct buffer payload;
        struct message_file_call message;
        uint32_t traffic;
        struct items in, out;
        struct item *taken;
        uint32_t credit; /* that the host has given */
        uint32_t owed;   /* that it gets for what came */
        bool done;
        struct buffer reply;
        cubby_error error;
};

struct fake_files {
        int root_fd, proc_fd;
        struct call *calls;
};

static int put(struct items *items, uint16_t type, const void *bytes, size_t size, cubby_error *err)
{
        struct item *item =
                items->bytes + size > COLLECTED_MAX ? NULL : malloc(sizeof *item + size);
        if (item == NULL)
                return cubby_error_set(err, CUBBY_E_LIMIT, "more than the fake engine takes");
        item->next = NULL;
        item->type = type;
        item->size = (uint32_t)size;
        memcpy(item->bytes, bytes, size);
        *items->last = item;
        items->last = &item->next;
        items->bytes += size;
        return 0;
}

static struct item *take(struct items *items)
{
        struct item *item = items->first;
        if (item == NULL)
                return NULL;
        items->first = item->next;
        if (items->first == NULL)
                items->last = &items->first;
        items->bytes -= item->size;
        return item;
}

static void clear(struct items *items)
{
        struct item *item;
        while ((item = take(items)) != NULL)
                free(item);
}

static void call_free(struct call *call)
{
        if (call == NULL)
                return;
        buffer_free(&call->payload);
        buffer_free(&call->reply);
        clear(&call->in);
        clear(&call->out);
        free(call->taken);
        free(call);
}

static int send_out(void *data, uint16_t type, const void *bytes, size_t size, cubby_error *err)
{
        struct call *call = data;
        const uint8_t *next = bytes;
        int result = 0;
        while (size > 0 && result == 0) {
                size_t piece = size < FILE_ENTRY_MAX ? size : FILE_ENTRY_MAX;
                result = put(&call->out, type, next, piece, err);
                next += piece;
                size -= piece;
        }
        return result;
}

static int receive_in(void *data, uint16_t *ret_type, struct slice *ret, cubby_error *err)
{
        struct call *call = data;
        free(call->taken);
        call->taken = take(&call->in);
        if (call->taken == NULL)
                return 0;
        *ret_type = call->taken->type;
        *ret = (struct slice){call->taken->bytes, call->taken->size};
        return 1;
}

static int pause_here(void *data, cubby_error *err)
{
        return 0;
}

static int wait_here(void *data, int fd, cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_UNSUPPORTED, "the fake engine does not wait for files");
}

static int find_owner(
        void *data, const char *spec, uid_t *ret_uid, gid_t *ret_gid, cubby_error *err)
{
        *ret_uid = geteuid(); /* everybody is the same user here */
        *ret_gid = getegid();
        return 0;
}

static void run(struct fake_files *files, struct call *call)
{
        const struct file_io io = {.root_fd = files->root_fd,
                .proc_fd = files->proc_fd,
                .drafts_fd = -1,
                .own_folder = true,
                .data = call,
                .send = send_out,
                .receive = receive_in,
                .pause = pause_here,
                .wait = wait_here,
                .owner = find_owner};
        file_operation_fn *operation = file_operation_find(call->message.operation);
        call->done = true;
        if (operation == NULL || call->message.operation == FILE_WATCH || files->root_fd < 0)
                (void)cubby_error_set(&call->error, CUBBY_E_UNSUPPORTED,
                        "the fake engine does not offer this file call");
        else if (operation(&call->message, &io, &call->reply, &call->error) == 0)
                cubby_error_clear(&call->error);
}

static bool takes_input(const struct call *call)
{
        return (call->traffic & (FILE_DATA_IN | FILE_ENTRIES_IN)) != 0;
}

static void begin(struct fake_files *files, const struct frame *frame)
{
        struct call *call = calloc(1, sizeof *call);
        if (call == NULL)
                return;
        call->stream = frame->stream;
        call->credit = FILE_WINDOW;
        call->in.last = &call->in.first;
        call->out.last = &call->out.first;
        buffer_init(&call->payload, FRAME_TO_GUEST_MAX);
        buffer_init(&call->reply, FILE_REPLY_MAX);
        if (!buffer_append(&call->payload, frame->payload, frame->length) ||
                !message_file_call_decode(
                        (struct slice){call->payload.data, call->payload.size}, &call->message)) {
                call_free(call);
                return;
        }
        call->traffic = file_traffic(call->message.operation);
        call->next = files->calls;
        files->calls = call;
        if (!takes_input(call))
                run(files, call);
        /* Nothing is opened before all has come: a failure is told at the end. */
        if ((call->message.flags & FILE_ANNOUNCE) != 0)
                (void)put(&call->out, FRAME_FILE_ENTRY, "", 1, NULL);
        call->message.flags &= ~(uint32_t)FILE_ANNOUNCE;
}

static void give_up(struct call *call, int code, const char *text)
{
        call->done = true;
        clear(&call->out);
        (void)cubby_error_set(&call->error, code, "%s", text);
}

static void frame_of(struct fake_files *files, struct call *call, const struct frame *frame)
{
        uint32_t number = 0;
        switch (frame->type) {
        case FRAME_DATA:
        case FRAME_FILE_ENTRY:
                if (!call->done &&
                        put(&call->in, frame->type, frame->payload, frame->length, &call->error) <
                                0)
                        call->done = true;
                call->owed += frame->length;
                return;
        case FRAME_EOF:
                if (!call->done)
                        run(files, call);
                return;
        case FRAME_CREDIT:
                if (message_u32_decode((struct slice){frame->payload, frame->length}, &number))
                        call->credit += number;
                return;
        default:
                give_up(call, CUBBY_E_CANCELLED, "the call was given up");
                return;
        }
}

bool fake_files_frame(struct fake_files *files, const struct frame *frame)
{
        if (frame->type == FRAME_FILE_CALL) {
                begin(files, frame);
                return true;
        }
        for (struct call *call = files->calls; call != NULL; call = call->next) {
                if (call->stream != frame->stream)
                        continue;
                frame_of(files, call, frame);
                return true;
        }
        return frame->type == FRAME_FILE_ENTRY;
}

static void send_end(struct call *call, fake_send_fn *send, void *data)
{
        AUTO_BUFFER struct buffer payload = {.maximum = 2 * WIRE_TEXT_MAX};
        const struct message_error message = {.code = (uint32_t)call->error.code,
                .sys_errno = (uint32_t)call->error.sys_errno,
                .text = {(const uint8_t *)call->error.message, strlen(call->error.message)}};
        if (call->error.code == CUBBY_OK)
                send(data, FRAME_FILE_REPLY, 0, call->stream, call->reply.data, call->reply.size);
        else if (message_error_encode(&payload, &message))
                send(data, FRAME_ERROR, 0, call->stream, payload.data, payload.size);
}

/* False when the call has ended. */
static bool pump_call(struct call *call, fake_send_fn *send, void *data, bool *ret_more)
{
        if (call->owed > 0 && !call->done) {
                uint8_t credit[4];
                store_u32(credit, call->owed);
                send(data, FRAME_CREDIT, CHANNEL_STDIN, call->stream, credit, sizeof credit);
                call->owed = 0;
        }
        if (call->out.first != NULL && call->out.first->size <= call->credit) {
                struct item *item = take(&call->out);
                send(data, item->type, item->type == FRAME_DATA ? CHANNEL_STDOUT : 0, call->stream,
                        item->bytes, item->size);
                call->credit -= item->size;
                free(item);
                *ret_more = true;
        }
        if (!call->done || call->out.first != NULL)
                return true;
        send_end(call, send, data);
        return false;
}

bool fake_files_pump(struct fake_files *files, fake_send_fn *send, void *data)
{
        bool more = false;
        struct call **link = &files->calls;
        while (*link != NULL) {
                struct call *call = *link;
                if (pump_call(call, send, data, &more)) {
                        link = &call->next;
                        continue;
                }
                *link = call->next;
                call_free(call);
        }
        return more;
}

struct fake_files *fake_files_new(int root_fd)
{
        struct fake_files *files = calloc(1, sizeof *files);
        if (files == NULL)
                return NULL;
        files->root_fd = root_fd;
        files->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return files;
}

void fake_files_free(struct fake_files *files)
{
        if (files == NULL)
                return;
        while (files->calls != NULL) {
                struct call *call = files->calls;
                files->calls = call->next;
                call_free(call);
        }
        close_quietly(files->proc_fd);
        free(files);
}
