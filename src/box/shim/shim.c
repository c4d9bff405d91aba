/* SPDX-License-Identifier: Apache-2.0 */
#include "box/shim/shim.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <stdlib.h>

static void init(struct shim *shim, const struct shim_options *options)
{
        *shim = (struct shim){.options = options,
                .box_fd = -1,
                .given_fds = {-1, -1, -1, -1, -1},
                .status_fd = -1,
                .lock_fd = -1,
                .listen_fd = -1,
                .signal_fd = -1,
                .console_fd = -1,
                .disk_fd = -1,
                .state_fd = -1,
                .keeper_fd = -1,
                .unclaimed = options->mode == SHIM_SPARE || options->mode == SHIM_AHEAD,
                .look_ms = DEADLINE_NEVER,
                .copy_memory_fd = -1,
                .copy_state_fd = -1,
                .agent = {.fd = -1},
                .kept = {.fd = -1, .before_fd = -1},
                .started_ms = clock_monotonic_ms(),
                .boot_deadline_ms = DEADLINE_NEVER,
                .kill_deadline_ms = DEADLINE_NEVER,
                .ttl_deadline_ms = DEADLINE_NEVER,
                .park_deadline_ms = DEADLINE_NEVER,
                .part_deadline_ms = DEADLINE_NEVER,
                .drain_deadline_ms = DEADLINE_NEVER};
        shim->violations_ms = shim->started_ms;
        shim->exit.exit_code = -1;
        shim->exit.started_ns = clock_realtime_ns();
}

static int set_up(struct shim *shim, cubby_error *err)
{
        if (setup_descriptors(shim, err) < 0 || setup_config(shim, err) < 0)
                return -1;
        boot_report(shim, REPORT_PROGRESS, "boot");
        shim->boot_deadline_ms = deadline_after_ms(shim->config.boot_timeout_ms);
        /* The machine first: its jail may need what the shim then gives up. */
        if (setup_machine(shim, err) < 0)
                return -1;
        boot_report(shim, REPORT_MACHINE, shim->isolation);
        return setup_privileges(shim, err) < 0 || setup_socket(shim, err) < 0 ? -1 : 0;
}

int shim_main(const struct shim_options *options)
{
        struct shim *shim = malloc(sizeof *shim);
        if (shim == NULL)
                return 1;
        init(shim, options);
        if (set_up(shim, &shim->error) < 0) {
                shim->failed = true;
                end_reason(shim, "boot-failed", shim->error.message);
                if (shim->machine != NULL)
                        shim->engine->destroy(shim->machine);
        } else {
                saved_begin(shim);
                loop_run(shim);
        }
        if (!shim->published)
                end_publish(shim);
        int code = shim->result;
        peers_free(shim);
        streams_free(shim);
        setup_close(shim);
        free(shim);
        return code;
}
