/* SPDX-License-Identifier: Apache-2.0 */
#include "box/shim/shim.h"

int main(void)
{
        static const struct shim_options options = {.find_engine = engine_find,
                .part_ms = 30000,
                .drain_ms = 3600000,
                .shutdown_ms = 2000,
                .linger_ms = 1000};
        return shim_main(&options);
}
