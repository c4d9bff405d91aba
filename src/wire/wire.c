/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#include <cubby/error.h>
#include <stdlib.h>
#include <string.h>

int64_t frame_decode(const uint8_t *data, size_t size, uint32_t maximum, struct frame *ret)
{
        if (size < FRAME_HEADER_SIZE)
                return 0;
        uint32_t length = load_u32(data);
        if (length > maximum)
                return -1;
        if (size - FRAME_HEADER_SIZE < length)
                return 0;
        *ret = (struct frame){
                .length = length,
                .type = load_u16(data + 4),
                .flags = load_u16(data + 6),
                .session = load_u64(data + 8),
                .stream = load_u64(data + 16),
                .payload = data + FRAME_HEADER_SIZE,
        };
        return (int64_t)FRAME_HEADER_SIZE + length;
}

void frame_encode_header(uint8_t ret[FRAME_HEADER_SIZE], const struct frame *frame)
{
        store_u32(ret, frame->length);
        store_u16(ret + 4, frame->type);
        store_u16(ret + 6, frame->flags);
        store_u64(ret + 8, frame->session);
        store_u64(ret + 16, frame->stream);
}

bool frame_append(struct buffer *out, uint16_t type, uint16_t flags, uint64_t session,
        uint64_t stream, const void *payload, uint32_t length)
{
        struct frame frame = {.length = length,
                .type = type,
                .flags = flags,
                .session = session,
                .stream = stream};
        uint8_t header[FRAME_HEADER_SIZE];
        frame_encode_header(header, &frame);
        /* both or nothing: a header without its payload would break the stream */
        if (buffer_reserve(out, (size_t)FRAME_HEADER_SIZE + length) == NULL)
                return false;
        return buffer_append(out, header, sizeof header) && buffer_append(out, payload, length);
}

bool frame_type_from_guest(uint16_t type)
{
        switch (type) {
        case FRAME_HELLO:
        case FRAME_RESUMED:
        case FRAME_PONG:
        case FRAME_ERROR:
        case FRAME_FROZEN:
        case FRAME_THAWED:
        case FRAME_OK:
        case FRAME_EXEC_STARTED:
        case FRAME_DATA:
        case FRAME_EOF:
        case FRAME_CREDIT:
        case FRAME_EXIT:
        case FRAME_PROCESS_LIST:
        case FRAME_METRICS_REPLY:
        case FRAME_FILE_REPLY:
        case FRAME_FILE_ENTRY:
                return true;
        default:
                return false;
        }
}

const char *frame_type_name(uint16_t type)
{
        static const struct {
                uint16_t type;
                const char *name;
        } names[] = {
                {FRAME_HELLO, "HELLO"},
                {FRAME_RESUME, "RESUME"},
                {FRAME_RESUMED, "RESUMED"},
                {FRAME_PING, "PING"},
                {FRAME_PONG, "PONG"},
                {FRAME_ERROR, "ERROR"},
                {FRAME_FREEZE, "FREEZE"},
                {FRAME_FROZEN, "FROZEN"},
                {FRAME_THAW, "THAW"},
                {FRAME_THAWED, "THAWED"},
                {FRAME_SHUTDOWN, "SHUTDOWN"},
                {FRAME_OK, "OK"},
                {FRAME_EXEC, "EXEC"},
                {FRAME_EXEC_STARTED, "EXEC_STARTED"},
                {FRAME_DATA, "DATA"},
                {FRAME_EOF, "EOF"},
                {FRAME_CREDIT, "CREDIT"},
                {FRAME_RESIZE, "RESIZE"},
                {FRAME_SIGNAL, "SIGNAL"},
                {FRAME_EXIT, "EXIT"},
                {FRAME_CANCEL, "CANCEL"},
                {FRAME_PROCESSES, "PROCESSES"},
                {FRAME_PROCESS_LIST, "PROCESS_LIST"},
                {FRAME_METRICS, "METRICS"},
                {FRAME_METRICS_REPLY, "METRICS_REPLY"},
                {FRAME_FILE_CALL, "FILE_CALL"},
                {FRAME_FILE_REPLY, "FILE_REPLY"},
                {FRAME_FILE_ENTRY, "FILE_ENTRY"},
                {FRAME_SHIM_STATUS, "SHIM_STATUS"},
                {FRAME_SHIM_STATUS_REPLY, "SHIM_STATUS_REPLY"},
                {FRAME_SHIM_ATTACH, "SHIM_ATTACH"},
                {FRAME_SHIM_WAIT, "SHIM_WAIT"},
                {FRAME_SHIM_STOP, "SHIM_STOP"},
                {FRAME_SHIM_KILL, "SHIM_KILL"},
                {FRAME_SHIM_PAUSE, "SHIM_PAUSE"},
                {FRAME_SHIM_UNPAUSE, "SHIM_UNPAUSE"},
                {FRAME_SHIM_CLAIM, "SHIM_CLAIM"},
                {FRAME_SHIM_PARK, "SHIM_PARK"},
                {FRAME_SHIM_SAVE, "SHIM_SAVE"},
                {FRAME_SHIM_GO_ON, "SHIM_GO_ON"},
        };
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                if (names[i].type == type)
                        return names[i].name;
        return "?";
}

static struct reader reader_of(struct slice payload)
{
        return reader_over(payload.data, payload.size);
}

static bool put_slice(struct buffer *out, struct slice slice)
{
        return buffer_slice(out, slice.data, slice.size);
}

bool message_hello_encode(struct buffer *out, const struct message_hello *m)
{
        return buffer_u16(out, m->version) && buffer_u32(out, m->features) &&
                put_slice(out, m->agent_version) && put_slice(out, m->kernel_release);
}

bool message_hello_decode(struct slice payload, struct message_hello *ret)
{
        struct reader r = reader_of(payload);
        return reader_u16(&r, &ret->version) && reader_u32(&r, &ret->features) &&
                reader_slice(&r, WIRE_TEXT_MAX, &ret->agent_version) &&
                reader_slice(&r, WIRE_TEXT_MAX, &ret->kernel_release) && reader_done(&r);
}

bool message_resume_encode(struct buffer *out, const struct message_resume *m)
{
        return buffer_u64(out, m->nonce) && buffer_append(out, m->entropy, WIRE_ENTROPY_SIZE) &&
                buffer_u64(out, m->realtime_ns) && buffer_u32(out, m->cpu_milli) &&
                buffer_u32(out, m->pids_max) && put_slice(out, m->box_id) &&
                put_slice(out, m->hostname);
}

bool message_resume_decode(struct slice payload, struct message_resume *ret)
{
        struct reader r = reader_of(payload);
        struct slice entropy = {0};
        if (!reader_u64(&r, &ret->nonce) || !reader_bytes(&r, WIRE_ENTROPY_SIZE, &entropy) ||
                !reader_u64(&r, &ret->realtime_ns) || !reader_u32(&r, &ret->cpu_milli) ||
                !reader_u32(&r, &ret->pids_max) || !reader_slice(&r, WIRE_TEXT_MAX, &ret->box_id) ||
                !reader_slice(&r, WIRE_TEXT_MAX, &ret->hostname) || !reader_done(&r))
                return false;
        ret->entropy = entropy.data;
        return ret->nonce != 0;
}

bool message_resumed_encode(struct buffer *out, const struct message_resumed *m)
{
        return buffer_u64(out, m->nonce) && buffer_u64(out, m->generation) &&
                buffer_u64(out, m->memory_bytes) && buffer_u32(out, m->cpus);
}

bool message_resumed_decode(struct slice payload, struct message_resumed *ret)
{
        struct reader r = reader_of(payload);
        return reader_u64(&r, &ret->nonce) && reader_u64(&r, &ret->generation) &&
                reader_u64(&r, &ret->memory_bytes) && reader_u32(&r, &ret->cpus) && reader_done(&r);
}

bool message_error_encode(struct buffer *out, const struct message_error *m)
{
        struct slice text = m->text;
        if (text.size > WIRE_TEXT_MAX)
                text.size = WIRE_TEXT_MAX;
        return buffer_u32(out, m->code) && buffer_u32(out, m->sys_errno) && put_slice(out, text);
}

bool message_error_decode(struct slice payload, struct message_error *ret)
{
        struct reader r = reader_of(payload);
        return reader_u32(&r, &ret->code) && reader_u32(&r, &ret->sys_errno) &&
                reader_slice(&r, WIRE_TEXT_MAX, &ret->text) && reader_done(&r) &&
                ret->code > CUBBY_OK && ret->code < CUBBY_E_CODE_MAX && ret->sys_errno < 4096;
}

static bool put_list(struct buffer *out, const struct slice *entries, uint32_t count)
{
        if (!buffer_u32(out, count))
                return false;
        for (uint32_t i = 0; i < count; i++)
                if (!put_slice(out, entries[i]))
                        return false;
        return true;
}

static bool get_list(struct reader *r, struct slice **ret, uint32_t *ret_count)
{
        uint32_t count = 0;
        if (!reader_u32(r, &count) || count > WIRE_ARGUMENTS_MAX)
                return false;
        /* each entry takes four bytes at least: a short frame cannot claim many */
        if (count > r->left / 4)
                return false;
        struct slice *entries = calloc((size_t)count + 1, sizeof *entries);
        if (entries == NULL)
                return false;
        *ret = entries;
        *ret_count = count;
        for (uint32_t i = 0; i < count; i++)
                if (!reader_slice(r, WIRE_ARGUMENT_MAX, &entries[i]))
                        return false;
        return true;
}

bool message_exec_encode(struct buffer *out, const struct message_exec *m)
{
        return buffer_u32(out, m->flags) && buffer_u32(out, m->timeout_ms) &&
                buffer_u16(out, m->rows) && buffer_u16(out, m->columns) &&
                put_slice(out, m->user) && put_slice(out, m->cwd) &&
                put_list(out, m->argv, m->argc) && put_list(out, m->env, m->envc);
}

bool message_exec_decode(struct slice payload, struct message_exec *ret)
{
        *ret = (struct message_exec){0};
        struct reader r = reader_of(payload);
        return reader_u32(&r, &ret->flags) && reader_u32(&r, &ret->timeout_ms) &&
                reader_u16(&r, &ret->rows) && reader_u16(&r, &ret->columns) &&
                reader_slice(&r, WIRE_TEXT_MAX, &ret->user) &&
                reader_slice(&r, WIRE_TEXT_MAX, &ret->cwd) &&
                get_list(&r, &ret->argv, &ret->argc) && get_list(&r, &ret->env, &ret->envc) &&
                reader_done(&r) && (ret->flags & ~(uint32_t)EXEC_FLAGS_ALL) == 0 && ret->argc > 0;
}

void message_exec_free(struct message_exec *message)
{
        if (message == NULL)
                return;
        free(message->argv);
        free(message->env);
        *message = (struct message_exec){0};
}

bool message_exit_encode(struct buffer *out, const struct message_exit *m)
{
        return buffer_u32(out, m->code) && buffer_u32(out, m->signal) &&
                buffer_u32(out, m->flags) && buffer_u64(out, m->user_us) &&
                buffer_u64(out, m->system_us) && buffer_u64(out, m->max_rss_bytes);
}

static bool read_exit(struct reader *r, struct message_exit *ret)
{
        return reader_u32(r, &ret->code) && reader_u32(r, &ret->signal) &&
                reader_u32(r, &ret->flags) && reader_u64(r, &ret->user_us) &&
                reader_u64(r, &ret->system_us) && reader_u64(r, &ret->max_rss_bytes) &&
                ret->code <= 255 && ret->signal <= 64 &&
                (ret->flags & ~(uint32_t)EXIT_FLAGS_ALL) == 0;
}

bool message_exit_decode(struct slice payload, struct message_exit *ret)
{
        struct reader r = reader_of(payload);
        return read_exit(&r, ret) && reader_done(&r);
}

bool message_processes_encode(struct buffer *out, const struct message_processes *m)
{
        if (!buffer_u8(out, m->truncated) || !buffer_u32(out, m->count))
                return false;
        for (uint32_t i = 0; i < m->count; i++) {
                const struct message_process *p = &m->entries[i];
                if (!buffer_u32(out, p->pid) || !buffer_u32(out, p->parent) ||
                        !buffer_u32(out, p->uid) || !buffer_u8(out, p->state) ||
                        !buffer_u64(out, p->cpu_us) || !buffer_u64(out, p->rss_bytes) ||
                        !buffer_u64(out, p->age_ms) || !put_slice(out, p->command))
                        return false;
        }
        return true;
}

bool message_processes_decode(struct slice payload, struct message_processes *ret)
{
        struct reader r = reader_of(payload);
        uint32_t count = 0;
        if (!reader_u8(&r, &ret->truncated) || !reader_u32(&r, &count) ||
                count > WIRE_PROCESSES_MAX || ret->truncated > 1)
                return false;
        for (uint32_t i = 0; i < count; i++) {
                struct message_process *p = &ret->entries[i];
                if (!reader_u32(&r, &p->pid) || !reader_u32(&r, &p->parent) ||
                        !reader_u32(&r, &p->uid) || !reader_u8(&r, &p->state) ||
                        !reader_u64(&r, &p->cpu_us) || !reader_u64(&r, &p->rss_bytes) ||
                        !reader_u64(&r, &p->age_ms) || !reader_slice(&r, 256, &p->command))
                        return false;
        }
        ret->count = count;
        return reader_done(&r);
}

bool message_metrics_encode(struct buffer *out, const struct message_metrics *m)
{
        return buffer_u64(out, m->uptime_ms) && buffer_u64(out, m->cpu_us) &&
                buffer_u64(out, m->memory_total) && buffer_u64(out, m->memory_available) &&
                buffer_u64(out, m->memory_workload) && buffer_u64(out, m->disk_total) &&
                buffer_u64(out, m->disk_free) && buffer_u32(out, m->processes);
}

bool message_metrics_decode(struct slice payload, struct message_metrics *ret)
{
        struct reader r = reader_of(payload);
        return reader_u64(&r, &ret->uptime_ms) && reader_u64(&r, &ret->cpu_us) &&
                reader_u64(&r, &ret->memory_total) && reader_u64(&r, &ret->memory_available) &&
                reader_u64(&r, &ret->memory_workload) && reader_u64(&r, &ret->disk_total) &&
                reader_u64(&r, &ret->disk_free) && reader_u32(&r, &ret->processes) &&
                reader_done(&r);
}

bool message_status_encode(struct buffer *out, const struct message_status *m)
{
        return buffer_u8(out, m->state) && buffer_u8(out, m->has_main) &&
                buffer_u8(out, m->main_ended) && buffer_u32(out, m->shim_pid) &&
                buffer_u32(out, m->vmm_pid) && buffer_u32(out, m->clients) &&
                buffer_u64(out, m->generation) && buffer_u64(out, m->uptime_ms) &&
                buffer_u64(out, m->violations) && message_exit_encode(out, &m->exit);
}

bool message_status_decode(struct slice payload, struct message_status *ret)
{
        struct reader r = reader_of(payload);
        return reader_u8(&r, &ret->state) && reader_u8(&r, &ret->has_main) &&
                reader_u8(&r, &ret->main_ended) && reader_u32(&r, &ret->shim_pid) &&
                reader_u32(&r, &ret->vmm_pid) && reader_u32(&r, &ret->clients) &&
                reader_u64(&r, &ret->generation) && reader_u64(&r, &ret->uptime_ms) &&
                reader_u64(&r, &ret->violations) && read_exit(&r, &ret->exit) && reader_done(&r) &&
                ret->state >= SHIM_BOOTING && ret->state <= SHIM_STOPPING;
}

bool message_u32_decode(struct slice payload, uint32_t *ret)
{
        struct reader r = reader_of(payload);
        return reader_u32(&r, ret) && reader_done(&r);
}

bool message_resize_decode(struct slice payload, uint16_t *ret_rows, uint16_t *ret_columns)
{
        struct reader r = reader_of(payload);
        return reader_u16(&r, ret_rows) && reader_u16(&r, ret_columns) && reader_done(&r);
}
