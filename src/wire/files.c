/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/files.h"

#include <string.h>

uint32_t file_traffic(uint16_t operation)
{
        switch (operation) {
        case FILE_LIST:
        case FILE_GLOB:
        case FILE_GREP:
        case FILE_WATCH:
                return FILE_ENTRIES_OUT;
        case FILE_READ:
        case FILE_READ_LINES:
        case FILE_TREE_OUT:
                return FILE_DATA_OUT;
        case FILE_WRITE:
                return FILE_DATA_IN | FILE_ENTRIES_OUT;
        case FILE_TREE_IN:
                return FILE_DATA_IN;
        default:
                return 0;
        }
}

static bool put_slice(struct buffer *out, struct slice slice)
{
        return buffer_slice(out, slice.data, slice.size);
}

/* No NUL: it becomes a path or a name. */
static bool get_text(struct reader *reader, size_t maximum, struct slice *ret)
{
        return reader_slice(reader, maximum, ret) &&
                (ret->size == 0 || memchr(ret->data, '\0', ret->size) == NULL);
}

bool message_file_call_encode(struct buffer *out, const struct message_file_call *m)
{
        return buffer_u16(out, m->operation) && buffer_u32(out, m->flags) &&
                buffer_u32(out, m->mode) && buffer_u64(out, m->from) && buffer_u64(out, m->count) &&
                put_slice(out, m->user) && put_slice(out, m->path) && put_slice(out, m->text) &&
                put_slice(out, m->extra);
}

bool message_file_call_decode(struct slice payload, struct message_file_call *ret)
{
        struct reader r = reader_over(payload.data, payload.size);
        return reader_u16(&r, &ret->operation) && reader_u32(&r, &ret->flags) &&
                reader_u32(&r, &ret->mode) && reader_u64(&r, &ret->from) &&
                reader_u64(&r, &ret->count) && get_text(&r, FILE_USER_MAX, &ret->user) &&
                get_text(&r, FILE_PATH_MAX, &ret->path) &&
                get_text(&r, FILE_PATTERN_MAX, &ret->text) &&
                get_text(&r, FILE_PATTERN_MAX, &ret->extra) && reader_done(&r) &&
                ret->operation >= FILE_STAT && ret->operation < FILE_OPERATION_MAX &&
                (ret->flags & ~(uint32_t)FILE_FLAGS_ALL) == 0 && ret->path.size > 0 &&
                ret->path.data[0] == '/';
}

/* In one piece: a long list is made of these. */
bool message_file_info_encode(struct buffer *out, const struct message_file_info *m)
{
        uint8_t fixed[1 + 4 * 4 + 3 * 8 + 2 * 4 + 3 * 8];
        const uint32_t first[] = {m->mode, m->uid, m->gid, m->links};
        const uint64_t second[] = {m->bytes, m->disk_bytes, m->inode};
        const int64_t times[] = {m->modified_ns, m->changed_ns, m->accessed_ns};
        uint8_t *next = fixed;
        *next++ = m->type;
        for (size_t i = 0; i < 4; i++, next += 4)
                store_u32(next, first[i]);
        for (size_t i = 0; i < 3; i++, next += 8)
                store_u64(next, second[i]);
        store_u32(next, m->device_major);
        store_u32(next + 4, m->device_minor);
        next += 8;
        for (size_t i = 0; i < 3; i++, next += 8)
                store_u64(next, (uint64_t)times[i]);
        return put_slice(out, m->path) && put_slice(out, m->target) &&
                buffer_append(out, fixed, sizeof fixed);
}

static bool read_time(struct reader *reader, int64_t *ret)
{
        uint64_t value = 0;
        if (!reader_u64(reader, &value))
                return false;
        *ret = (int64_t)value;
        return true;
}

bool message_file_info_read(struct reader *r, struct message_file_info *ret)
{
        return get_text(r, 2 * FILE_PATH_MAX, &ret->path) &&
                get_text(r, FILE_PATH_MAX, &ret->target) && reader_u8(r, &ret->type) &&
                reader_u32(r, &ret->mode) && reader_u32(r, &ret->uid) && reader_u32(r, &ret->gid) &&
                reader_u32(r, &ret->links) && reader_u64(r, &ret->bytes) &&
                reader_u64(r, &ret->disk_bytes) && reader_u64(r, &ret->inode) &&
                reader_u32(r, &ret->device_major) && reader_u32(r, &ret->device_minor) &&
                read_time(r, &ret->modified_ns) && read_time(r, &ret->changed_ns) &&
                read_time(r, &ret->accessed_ns) && (ret->mode & ~07777U) == 0 && ret->type != 0 &&
                strchr("fdlpsbc", ret->type) != NULL;
}

bool message_file_info_decode(struct slice payload, struct message_file_info *ret)
{
        struct reader r = reader_over(payload.data, payload.size);
        return message_file_info_read(&r, ret) && reader_done(&r);
}

bool message_file_hit_encode(struct buffer *out, const struct message_file_hit *m)
{
        return put_slice(out, m->path) && buffer_u64(out, m->line) && put_slice(out, m->text);
}

bool message_file_hit_read(struct reader *r, struct message_file_hit *ret)
{
        return get_text(r, FILE_PATH_MAX, &ret->path) && reader_u64(r, &ret->line) &&
                reader_slice(r, FILE_LINE_MAX, &ret->text);
}

bool message_file_found_encode(struct buffer *out, const struct message_file_found *m)
{
        return buffer_u8(out, m->truncated) && buffer_u32(out, m->code) &&
                buffer_u64(out, m->position) && put_slice(out, m->text);
}

bool message_file_found_decode(struct slice payload, struct message_file_found *ret)
{
        struct reader r = reader_over(payload.data, payload.size);
        return reader_u8(&r, &ret->truncated) && reader_u32(&r, &ret->code) &&
                reader_u64(&r, &ret->position) && get_text(&r, WIRE_TEXT_MAX, &ret->text) &&
                reader_done(&r) && ret->truncated <= 1 &&
                (ret->position <= FILE_PATTERN_MAX || ret->position == FILE_NO_POSITION);
}

bool message_file_event_encode(struct buffer *out, const struct message_file_event *m)
{
        return buffer_u8(out, m->kind) && buffer_u8(out, m->folder) && put_slice(out, m->path) &&
                put_slice(out, m->from);
}

bool message_file_event_read(struct reader *r, struct message_file_event *ret)
{
        return reader_u8(r, &ret->kind) && reader_u8(r, &ret->folder) &&
                get_text(r, FILE_PATH_MAX, &ret->path) && get_text(r, FILE_PATH_MAX, &ret->from) &&
                ret->kind < FILE_EVENT_MAX && ret->folder <= 1;
}
