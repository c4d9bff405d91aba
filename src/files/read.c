/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"
#include "files/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_MIN 4096U
#define LINES_PIECE (64U * 1024U)

/* How much to ask for at once: what a small file holds, and a byte that it does not. */
static size_t piece_of(const struct stat *info, uint64_t from)
{
        uint64_t size = info->st_size > 0 ? (uint64_t)info->st_size : 0;
        size = size > from ? size - from + 1 : 0;
        return size < PIECE_MIN ? PIECE_MIN : size < FILE_PIECE ? (size_t)size : FILE_PIECE;
}

static ssize_t read_some(int fd, void *data, size_t size, uint64_t offset)
{
        ssize_t got;
        do {
                got = pread(fd, data, size, (off_t)offset);
        } while (got < 0 && errno == EINTR);
        return got;
}

int operate_read(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        struct stat info;
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        AUTO_FD int fd = file_open_regular(io, path, &info, err);
        if (fd < 0)
                return -1;
        uint64_t left = call->count == 0 ? UINT64_MAX : call->count;
        uint64_t offset = call->from;
        if ((call->flags & FILE_WHOLE) != 0 && info.st_size > 0 &&
                (uint64_t)info.st_size > offset && (uint64_t)info.st_size - offset > left)
                return file_error(err, EFBIG, "'%.256s'", path);
        if (offset > INT64_MAX)
                return file_error(err, EINVAL, "'%.256s'", path);
        size_t room = piece_of(&info, offset);
        AUTO_FREE uint8_t *piece = malloc(room);
        if (piece == NULL)
                return cubby_error_no_memory(err);
        while (left > 0) {
                size_t want = left < room ? (size_t)left : room;
                if (offset > INT64_MAX - want)
                        break;
                ssize_t got = read_some(fd, piece, want, offset);
                if (got < 0)
                        return file_error(err, errno, "reading '%.256s'", path);
                if (got == 0)
                        break;
                if (io->send(io->data, FRAME_DATA, piece, (size_t)got, err) < 0)
                        return -1;
                offset += (uint64_t)got;
                left -= (uint64_t)got;
        }
        return 0;
}

static int send_lines(const struct file_io *io, struct buffer *out, cubby_error *err)
{
        int result = out->size == 0 ? 0 : io->send(io->data, FRAME_DATA, out->data, out->size, err);
        buffer_clear(out);
        return result;
}

int operate_read_lines(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        struct stat info;
        struct lines lines;
        AUTO_BUFFER struct buffer out;
        AUTO_FREE char *path = file_text(call->path, err);
        if (path == NULL)
                return -1;
        AUTO_FD int fd = file_open_regular(io, path, &info, err);
        if (fd < 0)
                return -1;
        AUTO_FREE uint8_t *piece = malloc(LINES_PIECE);
        if (piece == NULL)
                return cubby_error_no_memory(err);
        buffer_init(&out, 4 * LINES_PIECE + 16);
        lines_init(&lines, call->from, call->count);
        for (uint64_t offset = 0; !lines_done(&lines);) {
                ssize_t got = read_some(fd, piece, LINES_PIECE, offset);
                if (got < 0)
                        return file_error(err, errno, "reading '%.256s'", path);
                if (got == 0)
                        break;
                if (!lines_feed(&lines, piece, (size_t)got, &out))
                        return cubby_error_no_memory(err);
                if (send_lines(io, &out, err) < 0 || io->pause(io->data, err) < 0)
                        return -1;
                offset += (uint64_t)got;
        }
        if (!lines_end(&lines, &out))
                return cubby_error_no_memory(err);
        return send_lines(io, &out, err);
}
