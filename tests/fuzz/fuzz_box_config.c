/* SPDX-License-Identifier: Apache-2.0 */
/* config.json and exit of a box: what is taken must come out the same again. */

#include "box/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_config(const uint8_t *data, size_t size)
{
        struct box_config config = {0};
        if (box_config_decode(data, size, &config, NULL) < 0)
                return;
        struct buffer json;
        struct box_config again = {0};
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (box_config_encode(&config, &json, NULL) < 0 ||
                box_config_decode(json.data, json.size, &again, NULL) < 0 ||
                strcmp(again.id, config.id) != 0 || again.slot != config.slot)
                abort();
        box_config_clear(&again);
        buffer_free(&json);
        box_config_clear(&config);
}

static void try_exit(const uint8_t *data, size_t size)
{
        struct box_exit end = {0};
        if (box_exit_decode(data, size, &end, NULL) < 0)
                return;
        struct buffer json;
        struct box_exit again = {0};
        buffer_init(&json, 1U << 20);
        if (box_exit_encode(&end, &json, NULL) < 0 ||
                box_exit_decode(json.data, json.size, &again, NULL) < 0 ||
                strcmp(again.reason, end.reason) != 0 || again.exit_code != end.exit_code)
                abort();
        buffer_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        try_config(data, size);
        try_exit(data, size);
        return 0;
}
