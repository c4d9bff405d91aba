/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PROCS_H
#define GUEST_PROCS_H

/* The workload's processes, and figures of the machine; on the worker thread. */

#include "base/buffer.h"
#include "base/error.h"
#include "cgroup.h"
#include "wire/wire.h"

#include <stdbool.h>

/* Appends a PROCESS_LIST payload: every process below proc_fd but PID 1, ours. */
int procs_list(int proc_fd, struct buffer *ret, cubby_error *err);
/* Appends a METRICS_REPLY payload. */
int procs_metrics(int proc_fd, const struct cgroups *cgroups, struct buffer *ret, cubby_error *err);

/* The fields of one line of /proc/PID/stat; `ret_name` at most 63 bytes. The name may
 * hold blanks and brackets. `now_ticks` is the time since boot. */
bool procs_parse_stat(const char *text, uint64_t now_ticks, uint64_t ticks_per_second,
        uint64_t page_size, struct message_process *ret, char ret_name[64]);

#endif
