/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <stdio.h>
#include <string.h>

const char *familiar_name(const char *name)
{
        static const char *const prefixes[] = {"docker.io/library/", "docker.io/"};

        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
                size_t length = strlen(prefixes[i]);

                if (strncmp(name, prefixes[i], length) == 0)
                        return name + length;
        }
        return name;
}

const char *short_id(const char *id, char *text)
{
        if (strncmp(id, "sha256:", 7) == 0)
                id += 7;
        (void)snprintf(text, 13, "%s", id);
        return text;
}
