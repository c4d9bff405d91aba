/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"

#include <errno.h>
#include <unistd.h>

void close_quietly(int fd)
{
        if (fd < 0)
                return;
        int saved = errno;
        (void)close(fd);
        errno = saved;
}
