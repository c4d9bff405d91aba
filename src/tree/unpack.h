/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TREE_UNPACK_H
#define TREE_UNPACK_H

/*
 * Makes files from records, beneath a folder. A file is written under a temporary
 * name and renamed when it is whole; a failure removes the temporary. What is there
 * already: folders are merged, other things are replaced, but a folder never takes the
 * place of something else, nor the reverse.
 *
 * UNPACK_STRICT is for records of a stranger on the host: no link is followed, no
 * device is made, set-id bits are dropped, attributes are "user." ones only, and the
 * mode of a folder that was there stays.
 */

#include "tree/pack.h"
#include "tree/records.h"

enum unpack_owner { UNPACK_OWN, UNPACK_FIXED, UNPACK_AS_PACKED };

struct unpack_options {
        int folder_fd;
        const char *folder; /* NULL: folder_fd itself; else its path, beneath that root */
        int drafts_fd;    /* -1, or a folder for files that have no place yet, which all may use */
        const char *name; /* the root's new name in the folder; "": it is the folder itself */
        bool strict;
        bool scattered; /* as in a tar: entries in any order, folders that are missing */
        enum unpack_owner owner;
        uint32_t uid, gid;               /* UNPACK_FIXED */
        const struct tree_record *first; /* taken from the reader already; NULL: none was */
        struct tree_count *count;
};

/*
 * Reads records up to END. What cannot be made here (a device) is left out, and is an
 * error, CUBBY_E_UNSUPPORTED or the system's, once all else is there.
 */
int tree_unpack(const struct unpack_options *options, struct tree_reader *reader, cubby_error *err);

#endif
