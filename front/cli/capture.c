/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define BASE64_PADDING 64 /* its place in the digits */

bool capture_add(struct capture *capture, int stream, const void *bytes, size_t size)
{
        struct capture_stream *s = &capture->streams[stream == 2];

        s->total += size;
        if (size > CAPTURE_BYTES_MAX - s->size)
                size = CAPTURE_BYTES_MAX - s->size;
        if (size > s->room - s->size) {
                size_t room = s->room == 0 ? 65536 : s->room;
                char *grown;

                while (room - s->size < size)
                        room *= 2;
                grown = realloc(s->bytes, room);
                if (grown == NULL)
                        return false;
                s->bytes = grown;
                s->room = room;
        }
        if (size > 0)
                memcpy(s->bytes + s->size, bytes, size);
        s->size += size;
        return true;
}

void capture_clear(struct capture *capture)
{
        for (size_t i = 0; i < 2; i++)
                free(capture->streams[i].bytes);
        *capture = (struct capture){0};
}

static bool is_text(const char *bytes, size_t size)
{
        for (size_t i = 0; i < size;) {
                size_t length = utf8_length(bytes + i, size - i);

                if (length == 0)
                        return false;
                i += length;
        }
        return true;
}

static json_t *base64(const char *bytes, size_t size)
{
        static const char digits[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
        const unsigned char *in = (const unsigned char *)bytes;
        char *text = malloc((size + 2) / 3 * 4 + 1);
        char *out = text;
        json_t *value;

        if (text == NULL)
                return NULL;
        for (size_t i = 0; i < size; i += 3, out += 4) {
                size_t left = size - i;
                unsigned group = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0U);

                out[0] = digits[group >> 18];
                out[1] = digits[group >> 12 & 63];
                out[2] = digits[left > 1 ? group >> 6 & 63 : BASE64_PADDING];
                out[3] = digits[left > 2 ? group & 63 : BASE64_PADDING];
        }
        value = json_stringn(text, (size_t)(out - text));
        free(text);
        return value;
}

bool capture_to_json(const struct capture *capture, json_t *object)
{
        static const char *const names[2][2] = {
                {"stdout", "stdout_base64"}, {"stderr", "stderr_base64"}};
        bool truncated = false;

        for (size_t i = 0; i < 2; i++) {
                const struct capture_stream *s = &capture->streams[i];
                bool text = is_text(s->bytes, s->size);
                json_t *value = text ? json_stringn(s->size == 0 ? "" : s->bytes, s->size)
                                     : base64(s->bytes, s->size);

                truncated = truncated || s->total > s->size;
                if (json_object_set_new(object, names[i][!text], value) < 0)
                        return false;
        }
        return json_object_set_new(object, "truncated", json_boolean(truncated)) == 0;
}
