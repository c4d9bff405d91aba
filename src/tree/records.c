/* SPDX-License-Identifier: Apache-2.0 */
#include "tree/records.h"

#include <errno.h>
#include <string.h>

#define FLAG_LINKED 1U
#define FLAG_SPARSE 2U
#define FLAGS_ALL 3U
#define MODE_ALL 07777U
#define XATTR_NAME_MAX 255U

/* ---- writing ---- */

static int put_header(
        const struct tree_output *output, enum tree_kind kind, size_t length, cubby_error *err)
{
        uint8_t header[TREE_RECORD_HEADER] = {(uint8_t)kind};
        store_u32(header + 1, (uint32_t)length);
        return output->put(output->data, header, sizeof header, err);
}

int tree_put_entry(const struct tree_output *output, const struct tree_entry *entry,
        struct buffer *scratch, cubby_error *err)
{
        buffer_clear(scratch);
        uint8_t flags =
                (uint8_t)((entry->linked ? FLAG_LINKED : 0U) | (entry->sparse ? FLAG_SPARSE : 0U));
        const char *target = entry->target == NULL ? "" : entry->target;
        if (!buffer_u8(scratch, entry->type) || !buffer_u8(scratch, flags) ||
                !buffer_u32(scratch, entry->mode) || !buffer_u32(scratch, entry->uid) ||
                !buffer_u32(scratch, entry->gid) ||
                !buffer_u64(scratch, (uint64_t)entry->mtime_ns) ||
                !buffer_u64(scratch, entry->size) || !buffer_u32(scratch, entry->device_major) ||
                !buffer_u32(scratch, entry->device_minor) ||
                !buffer_slice(scratch, entry->path, strlen(entry->path)) ||
                !buffer_slice(scratch, target, strlen(target)) ||
                !buffer_slice(scratch, entry->xattrs.data, entry->xattrs.size) ||
                !buffer_slice(scratch, entry->extents.data, entry->extents.size))
                return cubby_error_no_memory(err);
        if (put_header(output, TREE_ENTRY, scratch->size, err) < 0)
                return -1;
        return output->put(output->data, scratch->data, scratch->size, err);
}

int tree_put_data(const struct tree_output *output, uint64_t offset, const void *bytes, size_t size,
        cubby_error *err)
{
        uint8_t header[TREE_DATA_HEADER] = {TREE_DATA};
        store_u32(header + 1, (uint32_t)size + 8);
        store_u64(header + TREE_RECORD_HEADER, offset);
        if (output->put(output->data, header, sizeof header, err) < 0)
                return -1;
        return output->put(output->data, bytes, size, err);
}

int tree_put_close(const struct tree_output *output, uint64_t size, cubby_error *err)
{
        uint8_t payload[8];
        store_u64(payload, size);
        if (put_header(output, TREE_CLOSE, sizeof payload, err) < 0)
                return -1;
        return output->put(output->data, payload, sizeof payload, err);
}

int tree_put_end(const struct tree_output *output, cubby_error *err)
{
        return put_header(output, TREE_END, 0, err);
}

/* ---- reading ---- */

void tree_reader_init(struct tree_reader *reader, const struct tree_input *input)
{
        memset(reader, 0, sizeof *reader);
        reader->input = *input;
        buffer_init(&reader->held, TREE_ENTRY_MAX);
}

void tree_reader_free(struct tree_reader *reader)
{
        if (reader != NULL)
                buffer_free(&reader->held);
}

int tree_errno(cubby_error *err, int error_number, const char *what, const char *path)
{
        (void)cubby_error_errno(err, error_number, "%s '%.512s'", what, path);
        cubby_error_file_code(err);
        return -1;
}

static int broken(cubby_error *err, const char *what)
{
        return cubby_error_set(err, CUBBY_E_PROTOCOL, "the stream of files is broken: %s", what);
}

bool tree_path_valid(const char *path)
{
        if (strlen(path) > TREE_PATH_MAX)
                return false;
        while (*path != '\0') {
                size_t part = strcspn(path, "/");
                if (part == 0 || part > TREE_NAME_MAX || (part == 1 && path[0] == '.') ||
                        (part == 2 && path[0] == '.' && path[1] == '.'))
                        return false;
                path += part;
                if (*path == '/' && *++path == '\0')
                        return false;
        }
        return true;
}

bool tree_next_xattr(struct slice *list, struct slice *ret_name, struct slice *ret_value)
{
        struct reader reader = reader_over(list->data, list->size);
        if (list->size == 0 || !reader_slice(&reader, XATTR_NAME_MAX, ret_name) ||
                !reader_slice(&reader, TREE_XATTR_MAX, ret_value))
                return false;
        *list = (struct slice){.data = reader.next, .size = reader.left};
        return true;
}

bool tree_next_extent(struct slice *list, uint64_t *ret_offset, uint64_t *ret_size)
{
        struct reader reader = reader_over(list->data, list->size);
        if (list->size == 0 || !reader_u64(&reader, ret_offset) || !reader_u64(&reader, ret_size))
                return false;
        *list = (struct slice){.data = reader.next, .size = reader.left};
        return true;
}

static bool copy_text(struct slice from, char *to)
{
        if (from.size > TREE_PATH_MAX || memchr(from.data, '\0', from.size) != NULL)
                return false;
        memcpy(to, from.data, from.size);
        to[from.size] = '\0';
        return true;
}

static bool xattrs_valid(struct slice list)
{
        struct slice name;
        struct slice value;
        while (list.size > 0)
                if (!tree_next_xattr(&list, &name, &value) || name.size == 0 ||
                        memchr(name.data, '\0', name.size) != NULL)
                        return false;
        return true;
}

static bool extents_valid(const struct tree_entry *entry)
{
        struct slice list = entry->extents;
        uint64_t end = 0;
        if (!entry->sparse)
                return list.size == 0;
        while (list.size > 0) {
                uint64_t offset = 0;
                uint64_t size = 0;
                if (!tree_next_extent(&list, &offset, &size) || offset < end || size == 0 ||
                        offset > entry->size || size > entry->size - offset)
                        return false;
                end = offset + size;
        }
        return true;
}

static bool entry_valid(const struct tree_reader *reader)
{
        const struct tree_entry *entry = &reader->entry;
        bool is_root = entry->path[0] == '\0';
        bool regular = entry->type == TREE_REGULAR;
        if (!tree_path_valid(entry->path) || (is_root && reader->entries > 0) ||
                (entry->mode & ~MODE_ALL) != 0 || entry->size > TREE_SIZE_MAX ||
                (!regular && (entry->size > 0 || entry->linked || entry->sparse)) ||
                !xattrs_valid(entry->xattrs) || !extents_valid(entry))
                return false;
        switch (entry->type) {
        case TREE_REGULAR:
        case TREE_FOLDER:
        case TREE_FIFO:
        case TREE_BLOCK:
        case TREE_CHAR:
                return entry->target[0] == '\0';
        case TREE_LINK:
                return entry->target[0] != '\0';
        case TREE_SAME:
                return !is_root && entry->target[0] != '\0' && tree_path_valid(entry->target);
        default:
                return false;
        }
}

static bool entry_decode(struct tree_reader *reader)
{
        struct tree_entry *entry = &reader->entry;
        struct reader payload = reader_over(reader->held.data, reader->held.size);
        struct slice path;
        struct slice target;
        uint64_t mtime = 0;
        uint8_t flags = 0;
        *entry = (struct tree_entry){.path = reader->path, .target = reader->target};
        if (!reader_u8(&payload, &entry->type) || !reader_u8(&payload, &flags) ||
                !reader_u32(&payload, &entry->mode) || !reader_u32(&payload, &entry->uid) ||
                !reader_u32(&payload, &entry->gid) || !reader_u64(&payload, &mtime) ||
                !reader_u64(&payload, &entry->size) ||
                !reader_u32(&payload, &entry->device_major) ||
                !reader_u32(&payload, &entry->device_minor) ||
                !reader_slice(&payload, TREE_PATH_MAX, &path) ||
                !reader_slice(&payload, TREE_PATH_MAX, &target) ||
                !reader_slice(&payload, TREE_XATTR_MAX, &entry->xattrs) ||
                !reader_slice(&payload, (size_t)16 * TREE_EXTENTS_MAX, &entry->extents) ||
                !reader_done(&payload))
                return false;
        entry->mtime_ns = (int64_t)mtime;
        entry->linked = (flags & FLAG_LINKED) != 0;
        entry->sparse = (flags & FLAG_SPARSE) != 0;
        return (flags & ~FLAGS_ALL) == 0 && copy_text(path, reader->path) &&
                copy_text(target, reader->target) && entry_valid(reader);
}

/* Some of the next `size` bytes, without copying them. */
static int take_some(struct tree_reader *reader, size_t size, struct slice *ret, cubby_error *err)
{
        if (reader->left.size == 0) {
                if (reader->input.next(reader->input.data, &reader->left, err) < 0)
                        return -1;
                if (reader->left.size == 0)
                        return broken(err, "it ends early");
        }
        if (size > reader->left.size)
                size = reader->left.size;
        *ret = (struct slice){.data = reader->left.data, .size = size};
        reader->left.data += size;
        reader->left.size -= size;
        return 0;
}

static int take_all(struct tree_reader *reader, void *to, size_t size, cubby_error *err)
{
        for (uint8_t *next = to; size > 0;) {
                struct slice some = {0};
                if (take_some(reader, size, &some, err) < 0)
                        return -1;
                memcpy(next, some.data, some.size);
                next += some.size;
                size -= some.size;
        }
        return 0;
}

static int take_entry(
        struct tree_reader *reader, uint32_t length, struct tree_record *ret, cubby_error *err)
{
        if (reader->content_open)
                return broken(err, "a file is not whole");
        if (length > TREE_ENTRY_MAX || reader->entries >= TREE_ENTRIES_MAX)
                return broken(err, "an entry beyond the limit");
        buffer_clear(&reader->held);
        if (length > 0 && buffer_reserve(&reader->held, length) == NULL)
                return cubby_error_no_memory(err);
        if (take_all(reader, reader->held.data, length, err) < 0)
                return -1;
        reader->held.size = length;
        if (!entry_decode(reader))
                return broken(err, "an entry that cannot be");
        reader->entries++;
        reader->content_open = reader->entry.type == TREE_REGULAR;
        reader->content = 0;
        ret->entry = &reader->entry;
        return 0;
}

/* Only what the extents announce: who writes the holes first relies on it. */
static bool is_announced(const struct tree_entry *entry, uint64_t offset, uint64_t size)
{
        struct slice list = entry->extents;
        uint64_t start = 0;
        uint64_t length = 0;
        if (!entry->sparse)
                return true;
        while (tree_next_extent(&list, &start, &length))
                if (offset >= start && offset < start + length)
                        return size <= start + length - offset;
        return false;
}

static int take_data(struct tree_reader *reader, uint32_t length, cubby_error *err)
{
        uint8_t offset_bytes[8];
        if (!reader->content_open || length <= sizeof offset_bytes ||
                length - sizeof offset_bytes > TREE_DATA_MAX)
                return broken(err, "content where none is due");
        if (take_all(reader, offset_bytes, sizeof offset_bytes, err) < 0)
                return -1;
        uint64_t offset = load_u64(offset_bytes);
        uint32_t size = length - (uint32_t)sizeof offset_bytes;
        if (offset < reader->content || offset > reader->entry.size ||
                size > reader->entry.size - offset || !is_announced(&reader->entry, offset, size))
                return broken(err, "content outside of its file");
        reader->data_at = offset;
        reader->data_left = size;
        reader->content = offset + size;
        return 0;
}

static int take_close(
        struct tree_reader *reader, uint32_t length, struct tree_record *ret, cubby_error *err)
{
        uint8_t payload[8];
        if (!reader->content_open || length != sizeof payload)
                return broken(err, "the end of no file");
        if (take_all(reader, payload, sizeof payload, err) < 0)
                return -1;
        ret->size = load_u64(payload);
        if (ret->size < reader->content || ret->size > reader->entry.size)
                return broken(err, "a file of another size");
        reader->content_open = false;
        return 0;
}

static int take_data_part(struct tree_reader *reader, struct tree_record *ret, cubby_error *err)
{
        ret->kind = TREE_DATA;
        ret->offset = reader->data_at;
        if (take_some(reader, reader->data_left, &ret->bytes, err) < 0)
                return -1;
        reader->data_at += ret->bytes.size;
        reader->data_left -= (uint32_t)ret->bytes.size;
        return 0;
}

int tree_next(struct tree_reader *reader, struct tree_record *ret, cubby_error *err)
{
        struct tree_record record = {0};
        uint8_t header[TREE_RECORD_HEADER];
        int result = -1;
        if (reader->ended)
                return broken(err, "it goes on behind its end");
        if (reader->data_left == 0) {
                if (take_all(reader, header, sizeof header, err) < 0)
                        return -1;
                uint32_t length = load_u32(header + 1);
                record.kind = header[0];
                if (header[0] == TREE_ENTRY)
                        result = take_entry(reader, length, &record, err);
                else if (header[0] == TREE_DATA)
                        result = take_data(reader, length, err);
                else if (header[0] == TREE_CLOSE)
                        result = take_close(reader, length, &record, err);
                else if (header[0] == TREE_END && length == 0 && !reader->content_open)
                        result = 0;
                else
                        result = broken(err, "an unknown record");
                if (result < 0)
                        return -1;
                reader->ended = record.kind == TREE_END;
        }
        if (reader->data_left > 0 && take_data_part(reader, &record, err) < 0)
                return -1;
        *ret = record;
        return 0;
}
