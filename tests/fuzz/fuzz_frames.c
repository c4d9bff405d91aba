/* SPDX-License-Identifier: Apache-2.0 */

/* The frame decoder and every message decoder over the same bytes. What one
 * takes is encoded again and must come out the same. */
#include "wire/files.h"
#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_equal(const struct buffer *out, struct slice payload)
{
        if (out->size != payload.size || memcmp(out->data, payload.data, payload.size) != 0)
                abort();
}

#define ROUND_TRIP(name)                                         \
        static void try_##name(struct slice payload)             \
        {                                                        \
                struct message_##name message;                   \
                if (!message_##name##_decode(payload, &message)) \
                        return;                                  \
                AUTO_BUFFER struct buffer out;                   \
                buffer_init(&out, payload.size + 1);             \
                if (!message_##name##_encode(&out, &message))    \
                        abort();                                 \
                must_equal(&out, payload);                       \
        }

ROUND_TRIP(hello)
ROUND_TRIP(resume)
ROUND_TRIP(resumed)
ROUND_TRIP(error)
ROUND_TRIP(exit)
ROUND_TRIP(metrics)
ROUND_TRIP(status)
ROUND_TRIP(file_call)
ROUND_TRIP(file_info)

static void try_exec(struct slice payload)
{
        struct message_exec message;
        if (message_exec_decode(payload, &message)) {
                AUTO_BUFFER struct buffer out;
                buffer_init(&out, payload.size + 1);
                if (!message_exec_encode(&out, &message))
                        abort();
                must_equal(&out, payload);
        }
        message_exec_free(&message);
}

static void try_processes(struct slice payload)
{
        struct message_process entries[WIRE_PROCESSES_MAX];
        struct message_processes message = {.entries = entries};
        if (!message_processes_decode(payload, &message))
                return;
        AUTO_BUFFER struct buffer out;
        buffer_init(&out, payload.size + 1);
        if (!message_processes_encode(&out, &message))
                abort();
        must_equal(&out, payload);
}

static void try_messages(struct slice payload)
{
        uint32_t number = 0;
        uint16_t rows = 0;
        uint16_t columns = 0;
        try_hello(payload);
        try_resume(payload);
        try_resumed(payload);
        try_error(payload);
        try_exit(payload);
        try_metrics(payload);
        try_status(payload);
        try_file_call(payload);
        try_file_info(payload);
        try_exec(payload);
        try_processes(payload);
        (void)message_u32_decode(payload, &number);
        (void)message_resize_decode(payload, &rows, &columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        try_messages((struct slice){.data = data, .size = size});
        while (size > 0) {
                struct frame frame;
                int64_t used = frame_decode(data, size, FRAME_FROM_GUEST_MAX, &frame);
                if (used <= 0)
                        break;
                if ((size_t)used > size || frame.length > FRAME_FROM_GUEST_MAX)
                        abort();
                (void)frame_type_name(frame.type);
                (void)frame_type_from_guest(frame.type);
                try_messages((struct slice){.data = frame.payload, .size = frame.length});
                data += used;
                size -= (size_t)used;
        }
        return 0;
}
