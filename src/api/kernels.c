/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"
#include "kernel/kernel.h"

#include <stdlib.h>

int cubby_kernel_ensure(cubby *host, const char *source, char **ret_version, cubby_error *err)
{
        if (need(host, "cubby", err) < 0)
                return -1;
        struct kernel kernel = {0};
        if (kernel_ensure(host->home, source, host->progress, host->progress_data, &kernel, err) <
                0)
                return -1;
        if (ret_version != NULL)
                *ret_version = take_ptr(&kernel.version);
        kernel_clear(&kernel);
        return 0;
}

void cubby_kernel_list_free(cubby_kernel_list *list)
{
        if (list == NULL)
                return;
        for (size_t i = 0; i < list->count; i++) {
                free(list->kernels[i].version);
                free(list->kernels[i].digest);
        }
        free(list->kernels);
        free(list);
}

int cubby_kernels(cubby *host, cubby_kernel_list **ret, cubby_error *err)
{
        struct kernel_entry *entries = NULL;
        size_t count = 0;
        if (need(host, "cubby", err) < 0 || need(ret, "ret", err) < 0 ||
                kernel_list(host->home, &entries, &count, err) < 0)
                return -1;
        cubby_kernel_list *list = calloc(1, sizeof *list);
        if (list != NULL)
                list->kernels = calloc(count + 1, sizeof *list->kernels);
        if (list == NULL || list->kernels == NULL) {
                free(list);
                kernel_list_free(entries, count);
                return cubby_error_no_memory(err);
        }
        for (size_t i = 0; i < count; i++)
                list->kernels[i] = (cubby_kernel_info){.version = take_ptr(&entries[i].version),
                        .digest = take_ptr(&entries[i].digest),
                        .disk_bytes = entries[i].disk_bytes,
                        .is_default = i == 0};
        list->count = count;
        kernel_list_free(entries, count);
        *ret = list;
        return 0;
}
