/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <stddef.h>
#include <string.h>

const struct engine *engine_find(const char *name)
{
        static const struct engine *const engines[] = {&engine_microvm, &engine_fake};
        for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++)
                if (strcmp(engines[i]->name, name) == 0)
                        return engines[i];
        return NULL;
}

const char *isolation_name(enum isolation isolation)
{
        switch (isolation) {
        case ISOLATION_EMULATED:
                return "emulated";
        case ISOLATION_SOFTWARE:
                return "software";
        case ISOLATION_HARDWARE:
                return "hardware";
        case ISOLATION_NONE:
                break;
        }
        return "none";
}
