/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WIRE_FILES_H
#define WIRE_FILES_H

/*
 * Messages of the file calls. FILE_CALL opens a stream; FILE_REPLY ends it well, ERROR
 * badly. What travels in between depends on the operation alone (file_traffic): DATA of
 * CHANNEL_STDOUT and FILE_ENTRY from the box, DATA of CHANNEL_STDIN and FILE_ENTRY towards
 * it, then EOF. An entry counts with its payload under the credit of the same channel, so
 * that both keep their order and neither grows beyond a window.
 */

#include "wire/wire.h"

#define FILE_PATH_MAX 4095U     /* bytes of a path */
#define FILE_USER_MAX 512U      /* bytes of a user's name */
#define FILE_PATTERN_MAX 32768U /* bytes of a pattern */
#define FILE_LINE_MAX 800U      /* bytes of a line that is told */
#define FILE_NO_POSITION UINT64_MAX
#define FILE_ENTRY_MAX (FRAME_DATA_MAX - FRAME_HEADER_SIZE) /* payload of FILE_ENTRY */
#define FILE_REPLY_MAX FILE_ENTRY_MAX                       /* payload of FILE_REPLY */

enum file_operation {
        FILE_STAT = 1,        /* reply: message_file_info */
        FILE_LIST = 2,        /* entries: each one or more message_file_info; reply: u8 truncated */
        FILE_READ = 3,        /* data; reply: nothing */
        FILE_READ_LINES = 4,  /* data; reply: nothing */
        FILE_WRITE = 5,       /* data in, EOF publishes; reply: nothing */
        FILE_REMOVE = 6,      /* reply: nothing */
        FILE_RENAME = 7,      /* reply: nothing */
        FILE_MAKE_FOLDER = 8, /* reply: nothing */
        FILE_GLOB = 9,        /* entries: each one or more message_file_hit; reply:
                                 message_file_found */
        FILE_GREP = 10,       /* the same */
        FILE_WATCH = 11,      /* entries: each one or more message_file_event, the first FILE_READY;
                                 until CANCEL, or the folder is gone; reply: nothing */
        FILE_TREE_OUT = 12,   /* data: the records of tree/records.h; reply: nothing */
        FILE_TREE_IN = 13,    /* the same towards the box, then EOF; reply: nothing */
        FILE_OPERATION_MAX
};

enum {
        FILE_DATA_OUT = 1U << 0, /* DATA from the box */
        FILE_ENTRIES_OUT = 1U << 1,
        FILE_DATA_IN = 1U << 2, /* DATA towards the box, then EOF */
        FILE_ENTRIES_IN = 1U << 3,
};

/* What travels on the stream of an operation; 0 also for an unknown one. */
uint32_t file_traffic(uint16_t operation);

enum {
        FILE_FOLLOW = 1U << 0,     /* STAT, TREE_OUT: the file that a link leads to */
        FILE_ALL_TYPES = 1U << 1,  /* LIST: not only regular files and folders */
        FILE_WHOLE = 1U << 2,      /* READ: a file of more than `count` bytes is EFBIG */
        FILE_APPEND = 1U << 3,     /* WRITE */
        FILE_NO_PARENTS = 1U << 4, /* WRITE: missing folders are an error */
        FILE_EXCLUSIVE = 1U << 5,  /* WRITE: EEXIST when there is one */
        FILE_NO_SYNC = 1U << 6,    /* WRITE, TREE_IN */
        FILE_RECURSIVE = 1U << 7,  /* REMOVE, WATCH */
        FILE_REPLACE = 1U << 8,    /* RENAME */
        FILE_PARENTS = 1U << 9,    /* MAKE_FOLDER */
        FILE_FOLDERS = 1U << 10,   /* GLOB */
        FILE_LITERAL = 1U << 11,   /* GREP */
        FILE_CASE = 1U << 12,      /* GREP: case counts */
        FILE_ARCHIVE = 1U << 13,   /* TREE_IN: owners are kept */
        FILE_ANNOUNCE = 1U << 14,  /* WRITE: an entry of one byte once it may be written */
        FILE_SCATTERED = 1U << 15, /* TREE_IN: as from a tar: in any order, parents are made */
        FILE_FLAGS_ALL = (1U << 16) - 1,
};

#define FILE_MODE_DEFAULT UINT32_MAX /* WRITE: the present file's, else 0644 */

/* One layout for all operations; what one does not use is empty or 0. No text holds a NUL. */
struct message_file_call {
        uint16_t operation;
        uint32_t flags;
        uint32_t mode;      /* WRITE, MAKE_FOLDER: permission bits; LIST: depth */
        uint64_t from;      /* READ: offset; READ_LINES: first line, from 1; 0: the start */
        uint64_t count;     /* READ: bytes, 0: to the end; READ_LINES: last line, 0: to the end;
                               LIST, GLOB, GREP: most results; WRITE: bytes that will come, 0:
                               unknown */
        struct slice user;  /* as in message_exec */
        struct slice path;  /* absolute */
        struct slice text;  /* RENAME: the new name, absolute; WRITE, TREE_IN: owner, empty: the
                               present file's, else the user; GLOB, GREP: pattern */
        struct slice extra; /* GREP: pattern of the files that count; TREE_IN: the root's name in
                               the folder at `path`, empty: it is that folder */
};

/* Times are nanoseconds since 1970, negative before. */
struct message_file_info {
        struct slice path; /* absolute; empty in the reply to STAT */
        struct slice target;
        uint8_t type; /* 'f' regular, 'd' folder, 'l' link, 'p' FIFO, 's' socket, 'b', 'c' */
        uint32_t mode, uid, gid, links;
        uint64_t bytes, disk_bytes, inode;
        uint32_t device_major, device_minor;
        int64_t modified_ns, changed_ns, accessed_ns;
};

/* What a search found. */
struct message_file_hit {
        struct slice path; /* relative to where it was searched; empty: that file itself */
        uint64_t line;     /* GREP: from 1; else 0 */
        struct slice text; /* GREP: UTF-8, at most FILE_LINE_MAX; may hold a NUL */
};

struct message_file_found {
        uint8_t truncated; /* there are as many as were asked for */
        uint32_t code;     /* enum cubby_code: why the pattern cannot be used, else 0 */
        uint64_t position; /* in the pattern, in characters; FILE_NO_POSITION */
        struct slice text; /* says so */
};

enum file_event {
        FILE_READY = 0, /* from here on nothing is missed; no paths */
        FILE_CREATED = 1,
        FILE_WRITTEN = 2,
        FILE_REMOVED = 3,
        FILE_RENAMED = 4, /* `from` is the old path, empty: it came from outside */
        FILE_ATTRIBUTES = 5,
        FILE_OVERFLOW = 6, /* some are lost; no paths */
        FILE_EVENT_MAX
};

struct message_file_event {
        uint8_t kind;
        uint8_t folder;    /* 1: what the path names is a folder */
        struct slice path; /* relative to the watched folder; empty: that folder itself */
        struct slice from;
};

bool message_file_call_encode(struct buffer *out, const struct message_file_call *message);
bool message_file_call_decode(struct slice payload, struct message_file_call *ret);
bool message_file_info_encode(struct buffer *out, const struct message_file_info *message);
/* The next of several in one payload. */
bool message_file_info_read(struct reader *reader, struct message_file_info *ret);
bool message_file_info_decode(struct slice payload, struct message_file_info *ret);
bool message_file_hit_encode(struct buffer *out, const struct message_file_hit *message);
bool message_file_hit_read(struct reader *reader, struct message_file_hit *ret);
bool message_file_found_encode(struct buffer *out, const struct message_file_found *message);
bool message_file_found_decode(struct slice payload, struct message_file_found *ret);
bool message_file_event_encode(struct buffer *out, const struct message_file_event *message);
bool message_file_event_read(struct reader *reader, struct message_file_event *ret);

#endif
