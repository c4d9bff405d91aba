/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

const char *cubby_version(void)
{
        return CUBBY_VERSION;
}

int cubby_open(const cubby_open_options *options, cubby **ret, cubby_error *err)
{
        cubby_open_options read;
        if (need(ret, "ret", err) < 0 || options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return box_home_open(&read, ret, err);
}

void cubby_close(cubby *host)
{
        box_home_close(host);
}

const char *cubby_home(const cubby *host)
{
        return host == NULL ? NULL : home_path(host->home);
}

void cubby_free(void *memory)
{
        free(memory);
}

int cubby_doctor(cubby *host, char **ret_json, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(ret_json, "ret_json", err) < 0)
                return -1;
        return box_doctor(host, ret_json, err);
}

int cubby_gc(cubby *host, uint64_t *ret_bytes, cubby_error *err)
{
        return need(host, "cubby", err) < 0 ? -1 : box_gc(host, ret_bytes, err);
}
