/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_COPYING_H
#define BOX_COPYING_H

/* One copy on its way: the ends of it, its progress, its deadlines. */

#include "box/copy_plan.h"
#include "box/copy_tar.h"
#include "box/file_stream.h"
#include "tree/pack.h"
#include "tree/records.h"

#include <cubby/copy.h>

#define COPY_GATHERED FRAME_DATA_MAX

struct copying {
        const cubby_copy_options *options;
        struct tree_count count;
        uint64_t total;
        int64_t deadline_ms; /* of the caller */
        int64_t told_ms;     /* when progress was last called */
        int64_t waiting_ms;  /* since when a box is waited for */
};

int copying_begin(struct copying *copying, const cubby_copy_options *options, cubby_error *err);
/* Tells the progress. -1: the copy is over. */
int copying_look(void *data, cubby_error *err); /* of a struct copying */
/* The next moment to look at, for a wait of a box. */
int64_t copying_until(const struct copying *copying);
/* Waited in vain: -1 when that has been long enough. */
int copying_waited(struct copying *copying, cubby_error *err);

/* From a box. */
struct copy_from {
        struct copying *copying;
        struct file_stream *stream;
        struct tree_reader reader; /* over the stream */
        struct tree_record first;  /* the root's entry, taken already */
};
int copy_from_open(struct copying *copying, cubby_box *box, const char *path, struct copy_from *ret,
        cubby_error *err);
/* Behind END: the box agrees. */
int copy_from_finish(struct copy_from *from, cubby_error *err);
void copy_from_close(struct copy_from *from);
#define AUTO_COPY_FROM __attribute__((cleanup(copy_from_close)))

/* To a box. */
struct copy_to {
        struct copying *copying;
        struct file_stream *stream;
        struct tree_output output; /* records to the stream */
        size_t used;
        uint8_t gathered[COPY_GATHERED];
};
/* The caller's room must stay where it is. `scattered`: as from a tar. */
int copy_to_open(struct copying *copying, cubby_box *box, const char *folder, const char *name,
        bool scattered, struct copy_to *ret, cubby_error *err);
int copy_to_finish(struct copy_to *to, cubby_error *err);
void copy_to_close(struct copy_to *to);
#define AUTO_COPY_TO __attribute__((cleanup(copy_to_close)))

/*
 * What is at a clean absolute path, links followed up to the end or to a name that nothing
 * has yet; *ret_resolved is that path, the caller's.
 */
int copy_find_in_box(struct copying *copying, cubby_box *box, const char *path,
        enum copy_found *ret, char **ret_resolved, cubby_error *err);
int copy_find_on_host(
        const char *path, enum copy_found *ret, char **ret_resolved, cubby_error *err);

#endif
