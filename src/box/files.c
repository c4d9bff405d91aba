/* SPDX-License-Identifier: Apache-2.0 */
#include "box/file_stream.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

static int bad_answer(cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_PROTOCOL, "the box broke the protocol: a bad answer to a file call");
}

void box_file_info_clear(cubby_file_info *info)
{
        if (info == NULL)
                return;
        free(info->path);
        free(info->target);
        *info = (cubby_file_info){0};
}

int box_file_stat(cubby_box *box, const char *path, bool follow, const cubby_file_options *options,
        cubby_file_info *ret, cubby_error *err)
{
        struct message_file_call call = {.operation = FILE_STAT, .flags = follow ? FILE_FOLLOW : 0};
        AUTO_FREE char *absolute = NULL;
        AUTO_BUFFER struct buffer reply;
        int64_t deadline = 0;
        struct message_file_info info;
        buffer_init(&reply, FILE_REPLY_MAX);
        if (file_deadline(options, true, &deadline, err) < 0 ||
                file_call_fill(box, path, options, &call, &absolute, err) < 0 ||
                file_call(box, &call, deadline, &reply, err) < 0)
                return -1;
        if (!message_file_info_decode((struct slice){reply.data, reply.size}, &info))
                return bad_answer(err);
        return file_info_copy(&info, path, ret, err);
}
