/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_MIGRATION_H
#define ENGINE_MICROVM_MIGRATION_H

/*
 * Saving a machine's devices and continuing from them, by QEMU's migration
 * stream over a descriptor. RAM is not in it: it lies in a memory object that
 * the stream leaves out ("x-ignore-shared"). In front of the stream stands a
 * small header of ours: which accelerator the state is bound to.
 */

#include "base/error.h"
#include "engine/engine.h"
#include "engine/microvm/qmp.h"

#include <stdbool.h>
#include <stdint.h>

#define MIGRATION_HEADER_SIZE 32U

/* What the state is bound to, and how it was written. */
struct migration_header {
        enum isolation isolation; /* which accelerator, that is */
        bool devices_only;        /* of a machine that went on: it says less about itself */
};

/* Both leave the descriptor's offset behind the header. */
int migration_write_header(int state_fd, const struct migration_header *header, cubby_error *err);
int migration_read_header(int state_fd, struct migration_header *ret, cubby_error *err);

/* Stops the machine and appends its devices. */
int migration_save(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err);
/* Stops the machine and appends its devices; it can go on. `state_fd` must be open for
 * writing only. */
int migration_copy_devices(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err);
/* For a VMM that waits for its state: hands it over, then takes it in and runs. */
int migration_offer(struct qmp *qmp, int state_fd, int64_t deadline_ms, cubby_error *err);
int migration_load(struct qmp *qmp, int64_t deadline_ms, cubby_error *err);

int migration_build(const struct machine_config *config, char **ret, cubby_error *err);
int migration_host(enum isolation isolation, char **ret, uint32_t *ret_clock_khz, cubby_error *err);

#endif
