/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COPY_BAR_H
#define CLI_COPY_BAR_H

/*
 * How far a copy is, on stderr's terminal: one line that is rewritten, shown when the copy has
 * taken half a second. A signal that asks for the end ends the copy, so that the library
 * can remove what is unfinished; the second one is the system's again.
 */

#include <stdbool.h>
#include <stdint.h>

struct copy_bar {
        bool shown; /* is to be */
        bool drawn;
        int64_t started_ms;
};

void copy_bar_begin(struct copy_bar *bar, bool quiet);
/* The progress function of cubby_copy_options. */
bool copy_bar_progress(void *data, uint64_t bytes, uint64_t total, uint64_t files);
/* Takes the line away. Returns the signal that came, or 0. */
int copy_bar_end(struct copy_bar *bar);

/* Into text[size]: "12MiB of 64MiB  18% [===>     ] 41MiB/s, 3 files". */
void copy_bar_text(char *text, int size, int columns, uint64_t bytes, uint64_t total,
        uint64_t files, int64_t elapsed_ms);

#endif
