/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

/*
 * How far long work is, on stderr: on a terminal one line that is rewritten,
 * shown when the work has taken a second; with -v a line for each stage;
 * nothing elsewhere. A thread of its own draws, because the work may be silent
 * for seconds.
 */

#include <stdint.h>

struct progress;

struct progress *progress_new(int verbosity); /* NULL when there is nothing to draw */
void progress_free(struct progress *progress);
/* A cubby_progress_fn; data is the progress or NULL. */
void progress_report(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total);
/* The work is over, or something else is printed now: takes the line away. */
void progress_hide(struct progress *progress);

#endif
