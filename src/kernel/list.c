/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "kernel/kernel.h"
#include "kernel/store.h"

#include <stdlib.h>
#include <string.h>

struct listing {
        struct home *home;
        struct kernel_entry *entries; /* KERNELS_MAX */
        size_t count;
        bool failed;
};

void kernel_list_free(struct kernel_entry *entries, size_t count)
{
        for (size_t i = 0; entries != NULL && i < count; i++) {
                free(entries[i].version);
                free(entries[i].digest);
        }
        free(entries);
}

static bool add(const char *version, const struct kernel_manifest *manifest, void *data)
{
        struct listing *listing = data;
        struct kernel_entry *entry = &listing->entries[listing->count++];
        entry->version = strdup(version);
        entry->digest = strdup(manifest->digest);
        entry->disk_bytes = home_usage_at(home_folder(listing->home, HOME_KERNELS), version);
        listing->failed = entry->version == NULL || entry->digest == NULL;
        return listing->failed;
}

static int newest_first(const void *a, const void *b)
{
        const struct kernel_entry *left = a;
        const struct kernel_entry *right = b;
        return strverscmp(right->version, left->version);
}

int kernel_list(struct home *home, struct kernel_entry **ret, size_t *ret_count, cubby_error *err)
{
        struct listing listing = {
                .home = home, .entries = calloc(KERNELS_MAX, sizeof *listing.entries)};
        if (listing.entries == NULL)
                return cubby_error_no_memory(err);
        int result = store_walk(home, add, &listing, err);
        if (result == 0 && listing.failed)
                result = cubby_error_no_memory(err);
        if (result < 0) {
                kernel_list_free(listing.entries, listing.count);
                return -1;
        }
        qsort(listing.entries, listing.count, sizeof *listing.entries, newest_first);
        *ret = listing.entries;
        *ret_count = listing.count;
        return 0;
}
