/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include <string.h>

DEFINE_AUTO(cubby, box_home_close)

int box_home_open(const cubby_open_options *options, cubby **ret, cubby_error *err)
{
        AUTO(cubby) cubby *opened = calloc(1, sizeof *opened);
        if (opened == NULL)
                return cubby_error_no_memory(err);
        opened->log = (struct log){.write = options->log, .data = options->log_data};
        opened->progress = options->progress;
        opened->progress_data = options->progress_data;
        if (home_open(options->home, &opened->log, &opened->home, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_recover(opened, NULL, &problem) < 0)
                log_line(&opened->log, LOG_WARNING, "leftovers could not be removed: %s",
                        problem.message);
        *ret = take_ptr(&opened);
        return 0;
}

void box_home_close(cubby *host)
{
        if (host == NULL)
                return;
        home_close(host->home);
        free(host);
}

void box_progress(
        const cubby *host, const char *stage, const char *detail, uint64_t done, uint64_t total)
{
        if (host->progress != NULL)
                host->progress(host->progress_data, stage, detail, done, total);
}
