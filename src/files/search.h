/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_SEARCH_H
#define FILES_SEARCH_H

/*
 * Files by name and by content, below an open root. The walk is in order: of each folder its
 * subfolders (where they are asked for), then its files, then what is in the subfolders, each
 * by the bytes of the name. Linked folders are not entered; what cannot be read is passed
 * over, and so are names that glob_ignores() names. Permissions are the calling thread's.
 */

#include "files/glob.h"
#include "files/grep.h"

#define SEARCH_NAMES_MAX (24U << 20) /* bytes of names held at once */
#define SEARCH_ENTRIES_MAX 1000000U  /* of one folder */
#define SEARCH_PATH_MAX 4095U        /* of a result, relative to the root */
#define SEARCH_RESULTS_MAX 100000U
#define SEARCH_GLOB_RESULTS 200U /* where the caller names no number */
#define SEARCH_GREP_RESULTS 100U

/* `path` is relative to the root ("" for the root itself). `line` and `text` are grep's. A
 * failure, -1 with err, ends the search. */
struct search_hit {
        const char *path;
        size_t path_size;
        uint64_t line;
        const char *text;
        size_t text_size;
};
typedef int search_tell(void *data, const struct search_hit *hit, cubby_error *err);

struct search {
        int root_fd;             /* open for reading; stays the caller's */
        const char *root_name;   /* the last component of the root's path, for a single file */
        const struct glob *glob; /* glob: what to list; grep: which files, or NULL */
        struct grep *grep;       /* NULL: glob */
        bool include_folders;    /* glob */
        uint32_t max_results;
        struct grep_pace pace;
        search_tell *tell;
        void *data;
};

/* Tells each hit; *ret_truncated as soon as there are max_results. A root of a wrong kind is
 * CUBBY_E_INVALID (ENOTDIR). */
int search_run(struct search *search, bool *ret_truncated, cubby_error *err);

#endif
