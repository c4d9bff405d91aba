/* SPDX-License-Identifier: Apache-2.0 */
#include <cubby/cubby.h> /* which includes this one */

#ifndef CUBBY_SEARCH_H
#define CUBBY_SEARCH_H

/*
 * Finding and watching files of a running box, a part of cubby.h. The rules of cubby/files.h
 * hold here too: the box's agent does it all, with the permissions of the asked user.
 */

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Searches pass over what is named like version control, caches, build output or logs
 * (docs/files.md has the list) below the folder they begin at, and over what the user may not
 * read. Linked folders are not entered. Hits come folder by folder: of each its own
 * entries by name (as bytes), then those of its subfolders; so which ones a limit keeps does
 * not depend on the disk. A folder of more than a million names, or one that changes so fast
 * that 24 MiB of names wait, is CUBBY_E_LIMIT.
 */
typedef struct cubby_search_options {
        size_t size;
        cubby_file_options file; /* its own size may be 0 */
        uint32_t max_results;    /* 0: 200 for glob, 100 for grep; at most 100,000 */
        bool include_folders;    /* glob: folders too, and links to them */
        bool literal;            /* grep: the pattern is plain text */
        bool case_sensitive;     /* grep */
        const char *glob;        /* grep: only files whose path matches; NULL: all */
} cubby_search_options;

typedef struct cubby_glob_result {
        char **paths; /* absolute */
        size_t count;
        bool truncated; /* there are max_results of them: there may be more */
} cubby_glob_result;

/*
 * Regular files, and links to them, below a folder whose path relative to it matches, as
 * PurePosixPath.match of Python 3.12: from the right end, component by component ("*.py" is
 * found at any depth, "b/" and "*.py" in any folder b), with *, ? and [...] inside a
 * component; a leading "**" component may also be absent. A pattern that begins with a slash
 * matches nothing, an empty one is CUBBY_E_INVALID. A path that is no folder is
 * CUBBY_E_INVALID (ENOTDIR).
 */
CUBBY_API int cubby_glob(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_glob_result **ret, cubby_error *err);
CUBBY_API void cubby_glob_result_free(cubby_glob_result *result); /* NULL is allowed */

typedef struct cubby_match {
        char *path;    /* absolute */
        uint64_t line; /* from 1 */
        char *text;    /* UTF-8, at most 200 characters: a longer line is cut and ends in "..." */
        size_t text_size; /* the text may hold a NUL */
} cubby_match;

typedef struct cubby_grep_result {
        cubby_match *matches;
        size_t count;
        bool truncated;
} cubby_grep_result;

/*
 * Lines that match a regular expression (PCRE2 with the classes of Unicode), in a file or in
 * the regular files below a folder. A line ends at "\n", and a "\r" before it is not part of
 * it; bytes that are no UTF-8 count as U+FFFD. Passed over are files of more than 1,000,000
 * bytes or with a NUL in the first 8,192, and lines of more than 2,000 characters.
 *
 * A pattern that does not compile is CUBBY_E_INVALID, with the place in characters in
 * *ret_position (may be NULL; -1 for every other failure). One that is too large, or takes too
 * many steps on one line, is CUBBY_E_LIMIT.
 */
CUBBY_API int cubby_grep(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_grep_result **ret, int64_t *ret_position,
        cubby_error *err);
CUBBY_API void cubby_grep_result_free(cubby_grep_result *result); /* NULL is allowed */

/*
 * Tells what happens in a folder from the return of cubby_watch_open on, `recursive`: and in
 * all folders below it, also in new ones. Several changes of one file may be told as one; what
 * appears while its folder is new may be told twice. Events that come faster than they are
 * taken are lost, and so is what is in the 4,097th folder that appears: then there is
 * CUBBY_WATCH_OVERFLOW. Opening with more folders than that is CUBBY_E_LIMIT.
 */
enum cubby_watch_kind {
        CUBBY_WATCH_CREATED = 1,
        CUBBY_WATCH_WRITTEN, /* the content has changed */
        CUBBY_WATCH_REMOVED, /* or moved out of the folder */
        CUBBY_WATCH_RENAMED,
        CUBBY_WATCH_ATTRIBUTES, /* mode, owner, times, number of names */
        CUBBY_WATCH_OVERFLOW,   /* no paths */
};

typedef struct cubby_watch cubby_watch; /* for one thread at a time */

typedef struct cubby_watch_event {
        int kind; /* enum cubby_watch_kind */
        bool folder;
        const char *path; /* relative to the watched folder, "": itself; until the next call */
        const char *from; /* RENAMED: the old path; "" when it came from outside */
} cubby_watch_event;

CUBBY_API int cubby_watch_open(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_watch **ret, cubby_error *err);
/* Returns 0 with an event, -1 with CUBBY_E_TIMEOUT after timeout_ms (-1: none), and with
 * CUBBY_E_CLOSED once the folder itself was removed and that was told. */
CUBBY_API int cubby_watch_next(
        cubby_watch *watch, int64_t timeout_ms, cubby_watch_event *ret, cubby_error *err);
/* For the caller's poll loop: when readable, call cubby_watch_next with 0 until it has
 * nothing. Owned by the handle. */
CUBBY_API int cubby_watch_fd(const cubby_watch *watch);
CUBBY_API void cubby_watch_close(cubby_watch *watch); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
