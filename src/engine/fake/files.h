/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_FAKE_FILES_H
#define ENGINE_FAKE_FILES_H

/*
 * File calls of the fake agent: those of a real one, on a folder of the host instead of a
 * machine's disk, all as the same user. What a call needs is collected first, then it runs
 * in one go, then its results go out as there is credit. There is nothing to watch.
 */

#include "wire/files.h"

struct fake_files;

typedef void fake_send_fn(void *data, uint16_t type, uint16_t flags, uint64_t stream,
        const void *payload, size_t size);

/* `root_fd` stays the caller's; -1: every call is refused. NULL when memory ran out. */
struct fake_files *fake_files_new(int root_fd);
void fake_files_free(struct fake_files *files); /* NULL-safe */
/* True when the frame begins or belongs to a file call. */
bool fake_files_frame(struct fake_files *files, const struct frame *frame);
/* Sends what may go, of each call at most a frame. True when there is more. */
bool fake_files_pump(struct fake_files *files, fake_send_fn *send, void *data);

#endif
