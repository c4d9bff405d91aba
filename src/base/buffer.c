/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint16_t load_u16(const uint8_t *b)
{
        return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

uint32_t load_u32(const uint8_t *b)
{
        return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t load_u64(const uint8_t *b)
{
        return (uint64_t)load_u32(b) | (uint64_t)load_u32(b + 4) << 32;
}

void store_u16(uint8_t *b, uint16_t value)
{
        b[0] = (uint8_t)value;
        b[1] = (uint8_t)(value >> 8);
}

void store_u32(uint8_t *b, uint32_t value)
{
        store_u16(b, (uint16_t)value);
        store_u16(b + 2, (uint16_t)(value >> 16));
}

void store_u64(uint8_t *b, uint64_t value)
{
        store_u32(b, (uint32_t)value);
        store_u32(b + 4, (uint32_t)(value >> 32));
}

void buffer_init(struct buffer *buffer, size_t maximum)
{
        *buffer = (struct buffer){.maximum = maximum};
}

void buffer_free(struct buffer *buffer)
{
        if (buffer == NULL)
                return;
        free(buffer->data);
        buffer_init(buffer, buffer->maximum);
}

void buffer_clear(struct buffer *buffer)
{
        buffer->size = 0;
        buffer->failed = false;
}

uint8_t *buffer_reserve(struct buffer *buffer, size_t size)
{
        if (buffer->failed)
                return NULL;
        if (size > buffer->maximum - buffer->size) {
                buffer->failed = true;
                return NULL;
        }
        size_t need = buffer->size + size;
        if (need > buffer->capacity || buffer->data == NULL) {
                size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
                while (capacity < need)
                        capacity = capacity > buffer->maximum / 2 ? need : capacity * 2;
                uint8_t *data = realloc(buffer->data, capacity);
                if (data == NULL) {
                        buffer->failed = true;
                        return NULL;
                }
                buffer->data = data;
                buffer->capacity = capacity;
        }
        return buffer->data + buffer->size;
}

bool buffer_append(struct buffer *buffer, const void *data, size_t size)
{
        if (size == 0)
                return !buffer->failed;
        uint8_t *end = buffer_reserve(buffer, size);
        if (end == NULL)
                return false;
        memcpy(end, data, size);
        buffer->size += size;
        return true;
}

bool buffer_append_text(struct buffer *buffer, const char *text)
{
        return buffer_append(buffer, text, strlen(text));
}

bool buffer_printf(struct buffer *buffer, const char *format, ...)
{
        va_list args;
        va_start(args, format);
        va_list again;
        va_copy(again, args);
        int length = vsnprintf(NULL, 0, format, args);
        va_end(args);
        bool done = false;
        if (length >= 0) {
                /* one more for the NUL that vsnprintf insists on */
                uint8_t *end = buffer_reserve(buffer, (size_t)length + 1);
                if (end != NULL) {
                        (void)vsnprintf((char *)end, (size_t)length + 1, format, again);
                        buffer->size += (size_t)length;
                        done = true;
                }
        } else {
                buffer->failed = true;
        }
        va_end(again);
        return done;
}

bool buffer_u8(struct buffer *buffer, uint8_t value)
{
        return buffer_append(buffer, &value, 1);
}

bool buffer_u16(struct buffer *buffer, uint16_t value)
{
        uint8_t bytes[2];
        store_u16(bytes, value);
        return buffer_append(buffer, bytes, sizeof bytes);
}

bool buffer_u32(struct buffer *buffer, uint32_t value)
{
        uint8_t bytes[4];
        store_u32(bytes, value);
        return buffer_append(buffer, bytes, sizeof bytes);
}

bool buffer_u64(struct buffer *buffer, uint64_t value)
{
        uint8_t bytes[8];
        store_u64(bytes, value);
        return buffer_append(buffer, bytes, sizeof bytes);
}

bool buffer_slice(struct buffer *buffer, const void *data, size_t size)
{
        if (size > UINT32_MAX) {
                buffer->failed = true;
                return false;
        }
        return buffer_u32(buffer, (uint32_t)size) && buffer_append(buffer, data, size);
}

void buffer_consume(struct buffer *buffer, size_t size)
{
        if (size >= buffer->size) {
                buffer->size = 0;
                return;
        }
        memmove(buffer->data, buffer->data + size, buffer->size - size);
        buffer->size -= size;
}

const char *buffer_text(struct buffer *buffer)
{
        uint8_t *end = buffer_reserve(buffer, 1);
        if (end == NULL)
                return NULL;
        *end = '\0';
        return (const char *)buffer->data;
}

struct reader reader_over(const void *data, size_t size)
{
        return (struct reader){.next = data, .left = size};
}

static const uint8_t *reader_take(struct reader *reader, size_t size)
{
        if (reader->failed || reader->left < size) {
                reader->failed = true;
                return NULL;
        }
        const uint8_t *bytes = reader->next;
        reader->next += size;
        reader->left -= size;
        return bytes;
}

bool reader_u8(struct reader *reader, uint8_t *ret)
{
        const uint8_t *bytes = reader_take(reader, 1);
        if (bytes == NULL)
                return false;
        *ret = *bytes;
        return true;
}

bool reader_u16(struct reader *reader, uint16_t *ret)
{
        const uint8_t *bytes = reader_take(reader, 2);
        if (bytes == NULL)
                return false;
        *ret = load_u16(bytes);
        return true;
}

bool reader_u32(struct reader *reader, uint32_t *ret)
{
        const uint8_t *bytes = reader_take(reader, 4);
        if (bytes == NULL)
                return false;
        *ret = load_u32(bytes);
        return true;
}

bool reader_u64(struct reader *reader, uint64_t *ret)
{
        const uint8_t *bytes = reader_take(reader, 8);
        if (bytes == NULL)
                return false;
        *ret = load_u64(bytes);
        return true;
}

bool reader_bytes(struct reader *reader, size_t size, struct slice *ret)
{
        const uint8_t *bytes = reader_take(reader, size);
        if (bytes == NULL)
                return false;
        *ret = (struct slice){.data = bytes, .size = size};
        return true;
}

bool reader_slice(struct reader *reader, size_t maximum, struct slice *ret)
{
        uint32_t size = 0;
        if (!reader_u32(reader, &size))
                return false;
        if (size > maximum) {
                reader->failed = true;
                return false;
        }
        return reader_bytes(reader, size, ret);
}

bool reader_done(const struct reader *reader)
{
        return !reader->failed && reader->left == 0;
}

char *slice_dup_text(struct slice slice)
{
        if (slice.size > 0 && memchr(slice.data, '\0', slice.size) != NULL)
                return NULL;
        char *text = malloc(slice.size + 1);
        if (text == NULL)
                return NULL;
        if (slice.size > 0)
                memcpy(text, slice.data, slice.size);
        text[slice.size] = '\0';
        return text;
}

bool slice_equals(struct slice slice, const char *text)
{
        size_t size = strlen(text);
        return slice.size == size && (size == 0 || memcmp(slice.data, text, size) == 0);
}

static bool is_c1(uint8_t byte)
{
        return byte >= 0x80 && byte < 0xa0;
}

void slice_show(struct slice slice, char *ret, size_t size)
{
        size_t shown = slice.size < size ? slice.size : size - 1;
        for (size_t i = 0; i < shown; i++) {
                uint8_t byte = slice.data[i];
                uint8_t before = i > 0 ? slice.data[i - 1] : 0;
                uint8_t after = i + 1 < shown ? slice.data[i + 1] : 0;
                bool control = byte < 0x20 || byte == 0x7f;
                /* U+0080 to U+009F, or such a byte where no character goes on */
                if (byte == 0xc2)
                        control = is_c1(after);
                else if (is_c1(byte))
                        control = before < 0x80 || before == 0xc2;
                ret[i] = control ? '?' : (char)byte;
        }
        ret[shown] = '\0';
}
