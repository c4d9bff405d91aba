/* SPDX-License-Identifier: Apache-2.0 */
#include "box/shim/shim.h"

#include <malloc.h>
#include <string.h>

#define HEAP_KEPT (128 * 1024)

static int mode_of(const char *word)
{
        static const char *const words[] = {
                [SHIM_BOOT] = "boot",
                [SHIM_TEMPLATE] = "template",
                [SHIM_CLONE] = "clone",
                [SHIM_RESUME] = "resume",
                [SHIM_SPARE] = "spare",
                [SHIM_AHEAD] = "ahead",
        };
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
                if (strcmp(word, words[i]) == 0)
                        return (int)i;
        return -1;
}

int main(int argc, char **argv)
{
        int mode = argc > 2 ? mode_of(argv[2]) : SHIM_BOOT;
        if (mode < 0 || argc > 3 + (int)SHIM_WARMUPS_MAX)
                return 2;
        /* What a large copy needed goes back when it is over: a shim waits most of its life. */
        (void)mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
        (void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
        const struct shim_options options = {.find_engine = engine_find,
                .mode = (enum shim_mode)mode,
                .warmups = argc > 3 ? argv + 3 : NULL,
                .part_ms = 30000,
                .drain_ms = 3600000,
                .shutdown_ms = 2000,
                .linger_ms = 1000};
        return shim_main(&options);
}
