/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

/*
 * A growing byte buffer with a ceiling, and a reader over foreign bytes that
 * cannot run past their end. No buffer grows without a maximum.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
        uint8_t *data;
        size_t size;     /* bytes in use */
        size_t capacity; /* bytes allocated */
        size_t maximum;  /* size never exceeds this */
        bool failed;     /* an append did not fit or memory ran out; sticky */
};

void buffer_init(struct buffer *buffer, size_t maximum);
void buffer_free(struct buffer *buffer);  /* NULL-safe; leaves an empty buffer */
void buffer_clear(struct buffer *buffer); /* keeps the memory, clears failed */

/* Each append returns false, and sets failed, when it does not fit. */
bool buffer_append(struct buffer *buffer, const void *data, size_t size);
bool buffer_append_text(struct buffer *buffer, const char *text); /* no NUL */
bool buffer_printf(struct buffer *buffer, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
bool buffer_u8(struct buffer *buffer, uint8_t value);
bool buffer_u16(struct buffer *buffer, uint16_t value); /* little-endian */
bool buffer_u32(struct buffer *buffer, uint32_t value);
bool buffer_u64(struct buffer *buffer, uint64_t value);
bool buffer_slice(struct buffer *buffer, const void *data, size_t size); /* u32 size, bytes */

/* Room for `size` more bytes at data + size without changing size; NULL when it cannot. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t size);
/* Removes `size` bytes from the front. */
void buffer_consume(struct buffer *buffer, size_t size);
/* Text of the buffer with a NUL behind it (not counted); NULL when it cannot. */
const char *buffer_text(struct buffer *buffer);

static inline void cleanup_buffer(struct buffer *buffer)
{
        buffer_free(buffer);
}
#define AUTO_BUFFER __attribute__((cleanup(cleanup_buffer)))

/* Bytes owned by somebody else. */
struct slice {
        const uint8_t *data;
        size_t size;
};

struct reader {
        const uint8_t *next;
        size_t left;
        bool failed; /* sticky: input was short or out of range */
};

struct reader reader_over(const void *data, size_t size);
bool reader_u8(struct reader *reader, uint8_t *ret);
bool reader_u16(struct reader *reader, uint16_t *ret);
bool reader_u32(struct reader *reader, uint32_t *ret);
bool reader_u64(struct reader *reader, uint64_t *ret);
/* u32 size and that many bytes, at most `maximum`. */
bool reader_slice(struct reader *reader, size_t maximum, struct slice *ret);
/* Exactly `size` raw bytes. */
bool reader_bytes(struct reader *reader, size_t size, struct slice *ret);
/* True when nothing failed and nothing is left over. */
bool reader_done(const struct reader *reader);

/* A NUL-terminated copy for the caller to free; NULL if memory ran out or the
 * slice holds a NUL (which no name, argument or path may). */
char *slice_dup_text(struct slice slice);
bool slice_equals(struct slice slice, const char *text);
/* Copies a foreign text for people, cut to `size` with its NUL: no byte of it drives
 * a terminal, be it by a C0 or a C1 control character. */
void slice_show(struct slice slice, char *ret, size_t size);

uint16_t load_u16(const uint8_t *bytes); /* little-endian, any alignment */
uint32_t load_u32(const uint8_t *bytes);
uint64_t load_u64(const uint8_t *bytes);
void store_u16(uint8_t *bytes, uint16_t value);
void store_u32(uint8_t *bytes, uint32_t value);
void store_u64(uint8_t *bytes, uint64_t value);

#endif
