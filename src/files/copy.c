/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "files/files.h"
#include "tree/pack.h"
#include "tree/unpack.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>

#define GATHERED (FRAME_DATA_MAX - FRAME_HEADER_SIZE) /* as much as a frame of the port holds */

/* Small records travel together. */
struct gathering {
        const struct file_io *io;
        size_t used;
        uint8_t bytes[GATHERED];
};

static int flush(struct gathering *gathering, cubby_error *err)
{
        size_t size = gathering->used;
        gathering->used = 0;
        if (size == 0)
                return 0;
        return gathering->io->send(gathering->io->data, FRAME_DATA, gathering->bytes, size, err);
}

static int gather(void *data, const void *bytes, size_t size, cubby_error *err)
{
        struct gathering *gathering = data;
        if (size > GATHERED - gathering->used && flush(gathering, err) < 0)
                return -1;
        if (size >= GATHERED)
                return gathering->io->send(gathering->io->data, FRAME_DATA, bytes, size, err);
        memcpy(gathering->bytes + gathering->used, bytes, size);
        gathering->used += size;
        return 0;
}

int operate_tree_out(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        (void)reply;
        AUTO_FREE char *path = file_text(call->path, err);
        AUTO_FREE struct gathering *gathering = malloc(sizeof *gathering);
        if (path == NULL)
                return -1;
        if (gathering == NULL)
                return cubby_error_no_memory(err);
        gathering->io = io;
        gathering->used = 0;
        const struct pack_options options = {.at_fd = io->root_fd,
                .path = path,
                .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
                .follow = (call->flags & FILE_FOLLOW) != 0};
        const struct tree_output output = {.put = gather, .data = gathering};
        return tree_pack(&options, &output, err) < 0 ? -1 : flush(gathering, err);
}

static int next_bytes(void *data, struct slice *ret, cubby_error *err)
{
        const struct file_io *io = data;
        uint16_t type = 0;
        struct slice bytes = {0};
        if (io->receive(io->data, &type, &bytes, err) < 0)
                return -1;
        *ret = bytes;
        return 0;
}

int operate_tree_in(const struct message_file_call *call, const struct file_io *io,
        struct buffer *reply, cubby_error *err)
{
        (void)reply;
        AUTO_FREE char *folder = file_text(call->path, err);
        AUTO_FREE char *name = file_text(call->extra, err);
        AUTO_FREE char *owner = file_text(call->text, err);
        if (folder == NULL || name == NULL || owner == NULL)
                return -1;
        if (strchr(name, '/') != NULL || (name[0] != '\0' && !tree_path_valid(name)))
                return cubby_error_set(err, CUBBY_E_INVALID, "the name of a copy has a bad form");
        struct unpack_options options = {.folder_fd = io->root_fd,
                .drafts_fd = io->drafts_fd,
                .folder = folder,
                .name = name,
                .scattered = (call->flags & FILE_SCATTERED) != 0,
                .owner = (call->flags & FILE_ARCHIVE) != 0 ? UNPACK_AS_PACKED : UNPACK_OWN};
        if (owner[0] != '\0') {
                uid_t uid = 0;
                gid_t gid = 0;
                if (io->owner(io->data, owner, &uid, &gid, err) < 0)
                        return -1;
                options.owner = UNPACK_FIXED;
                options.uid = uid;
                options.gid = gid;
        }
        AUTO_FREE struct tree_reader *reader = malloc(sizeof *reader);
        if (reader == NULL)
                return cubby_error_no_memory(err);
        const struct tree_input input = {.next = next_bytes, .data = (void *)(uintptr_t)io};
        tree_reader_init(reader, &input);
        int result = tree_unpack(&options, reader, err);
        tree_reader_free(reader);
        return result;
}
