/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Patterns and the texts they are held against: a byte of flags, the pattern up to a NUL, the
 * text. Looking for literal texts first must find the same lines as asking about each.
 */
#include "files/search.h"
#include "wire/files.h"

#include <stdlib.h>
#include <string.h>

#define PAUSES_MAX 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
        int result;
        uint64_t count, sum;
        int pauses;
};

static int pause_or_end(void *data, cubby_error *err)
{
        struct outcome *outcome = data;
        return ++outcome->pauses <= PAUSES_MAX
                ? 0
                : cubby_error_set(err, CUBBY_E_TIMEOUT, "too slow to be of interest");
}

static int take(void *data, uint64_t number, const char *text, size_t size, cubby_error *err)
{
        struct outcome *outcome = data;
        (void)err;
        if (size > FILE_LINE_MAX || number == 0)
                abort();
        outcome->count++;
        outcome->sum = outcome->sum * 31 + number;
        for (size_t i = 0; i < size; i++)
                outcome->sum = outcome->sum * 31 + (uint8_t)text[i];
        return 0;
}

static bool run(const char *pattern, size_t length, const struct slice text, uint8_t flags,
        bool each_line, struct outcome *ret)
{
        const struct grep_options options = {.literal = (flags & 2) != 0,
                .case_sensitive = (flags & 4) != 0,
                .each_line = each_line};
        struct grep *grep = NULL;
        int64_t position = -1;
        cubby_error err = {0};
        *ret = (struct outcome){0};
        struct grep_pace pace = {.pause = pause_or_end, .data = ret};
        if (grep_new(pattern, length, &options, &grep, &position, &err) < 0) {
                if (position > (int64_t)length)
                        abort();
                return false;
        }
        ret->result = grep_text(grep, text.data, text.size, &pace, take, ret, &err);
        grep_free(grep);
        return true;
}

static void match_path(const char *pattern, const struct slice path)
{
        struct glob *glob = NULL;
        if (glob_new(pattern, &glob, NULL) == 0)
                (void)glob_matches(glob, (const char *)path.data, path.size);
        glob_free(glob);
        (void)glob_ignores((const char *)path.data, path.size);
}

static void read_messages(const uint8_t *data, size_t size)
{
        struct message_file_hit hit;
        struct message_file_event event;
        struct message_file_found found;
        struct reader reader = reader_over(data, size);
        while (message_file_hit_read(&reader, &hit)) {
        }
        reader = reader_over(data, size);
        while (message_file_event_read(&reader, &event)) {
        }
        (void)message_file_found_decode((struct slice){data, size}, &found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const uint8_t *end = size < 2 ? NULL : memchr(data + 1, '\0', size - 1);
        if (end == NULL)
                return 0;
        const char *pattern = (const char *)data + 1;
        const struct slice text = {end + 1, size - (size_t)(end + 1 - data)};
        struct outcome quick, slow;
        read_messages(data, size);
        if ((data[0] & 1) != 0) {
                match_path(pattern, text);
                return 0;
        }
        if (run(pattern, strlen(pattern), text, data[0], false, &quick) !=
                run(pattern, strlen(pattern), text, data[0], true, &slow))
                abort();
        if (slow.result == 0 && quick.result == 0 &&
                (quick.count != slow.count || quick.sum != slow.sum))
                abort();
        return 0;
}
