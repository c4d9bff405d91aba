/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TREE_RECORDS_H
#define TREE_RECORDS_H

/*
 * A file or folder with all that is in it, as a stream of records. Copies to and
 * from a box travel so; the agent and the library compile the same files.
 *
 *      u8 kind | u32 length | payload          all integers little-endian
 *
 * ENTRY  one name; a folder comes before what is in it
 * DATA   u64 offset, bytes: a piece of the last entry, a regular file. Pieces come in
 *        rising order; what none of them holds is a hole
 * CLOSE  u64 size: that file is whole. Less than announced: it shrank meanwhile
 * END    nothing follows
 *
 * The reader trusts nothing: lengths, order, offsets and names are checked. A path is
 * relative to the tree, without "." or ".." or an empty part; the root's own is "".
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define TREE_PATH_MAX 4095U
#define TREE_NAME_MAX 255U
#define TREE_DATA_MAX (1024U * 1024U) /* bytes of a DATA record */
#define TREE_XATTR_MAX 65536U         /* bytes of all attributes of an entry, encoded */
#define TREE_EXTENTS_MAX 4096U
#define TREE_RECORD_HEADER 5U
#define TREE_DATA_HEADER (TREE_RECORD_HEADER + 8U)
#define TREE_ENTRY_MAX (2U * TREE_PATH_MAX + TREE_XATTR_MAX + 16U * TREE_EXTENTS_MAX + 128U)
#define TREE_ENTRIES_MAX 20000000U
#define TREE_SIZE_MAX (UINT64_C(1) << 62)

enum tree_kind { TREE_ENTRY = 1, TREE_DATA = 2, TREE_CLOSE = 3, TREE_END = 4 };

/* Types of entries, beside those of enum cubby_file_type. */
enum tree_type {
        TREE_REGULAR = 'f',
        TREE_FOLDER = 'd',
        TREE_LINK = 'l',
        TREE_FIFO = 'p',
        TREE_BLOCK = 'b',
        TREE_CHAR = 'c',
        TREE_SAME = 'h', /* another name of the file at `target`, a path of this tree */
};

struct tree_entry {
        uint8_t type;
        bool linked; /* a regular file that TREE_SAME may name later */
        bool sparse; /* `extents` are all that is not a hole */
        uint32_t mode, uid, gid;
        int64_t mtime_ns;
        uint64_t size; /* of a regular file */
        uint32_t device_major, device_minor;
        const char *path;
        const char *target;
        struct slice xattrs;  /* u32 size and name, u32 size and value, and so on */
        struct slice extents; /* u64 offset, u64 size, and so on, rising */
};

/* Takes all bytes or fails. */
struct tree_output {
        int (*put)(void *data, const void *bytes, size_t size, cubby_error *err);
        void *data;
};

int tree_put_entry(const struct tree_output *output, const struct tree_entry *entry,
        struct buffer *scratch, cubby_error *err);
/* At most TREE_DATA_MAX bytes. */
int tree_put_data(const struct tree_output *output, uint64_t offset, const void *bytes, size_t size,
        cubby_error *err);
int tree_put_close(const struct tree_output *output, uint64_t size, cubby_error *err);
int tree_put_end(const struct tree_output *output, cubby_error *err);

/* Gives the next bytes, valid until the next call; none at the end. */
struct tree_input {
        int (*next)(void *data, struct slice *ret, cubby_error *err);
        void *data;
};

struct tree_reader {
        struct tree_input input;
        struct slice left;  /* of the bytes that the input gave last */
        struct buffer held; /* the payload of the present entry */
        struct tree_entry entry;
        uint64_t entries;
        uint64_t data_at; /* of the DATA record that is not all taken */
        uint32_t data_left;
        uint64_t content;  /* up to where the present file has come */
        bool content_open; /* its CLOSE is due */
        bool ended;
        char path[TREE_PATH_MAX + 1];
        char target[TREE_PATH_MAX + 1];
};

struct tree_record {
        enum tree_kind kind;
        const struct tree_entry *entry; /* valid until the next ENTRY */
        uint64_t offset;                /* of DATA */
        struct slice bytes;             /* of DATA: a part of the record, never empty */
        uint64_t size;                  /* of CLOSE */
};

void tree_reader_init(struct tree_reader *reader, const struct tree_input *input);
void tree_reader_free(struct tree_reader *reader);
/* CUBBY_E_PROTOCOL for what breaks the rules above, the input's own errors else. */
int tree_next(struct tree_reader *reader, struct tree_record *ret, cubby_error *err);

static inline void cleanup_tree_reader(struct tree_reader *reader)
{
        tree_reader_free(reader);
}
#define AUTO_TREE_READER __attribute__((cleanup(cleanup_tree_reader)))

/* "WHAT 'PATH': text of the errno", with the codes of file calls: what is not this kind of
 * file is CUBBY_E_INVALID. Returns -1. */
int tree_errno(cubby_error *err, int error_number, const char *what, const char *path);

bool tree_path_valid(const char *path);
/* Takes the first pair off `list`. False at the end. */
bool tree_next_xattr(struct slice *list, struct slice *ret_name, struct slice *ret_value);
bool tree_next_extent(struct slice *list, uint64_t *ret_offset, uint64_t *ret_size);

#endif
