/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int text_write_at(int dir_fd, const char *path, const char *text)
{
        AUTO_FD int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        size_t size = strlen(text);
        ssize_t written = write(fd, text, size); /* these files take a value in one call */
        if (written < 0)
                return -1;
        if ((size_t)written != size) {
                errno = EIO;
                return -1;
        }
        return 0;
}

ssize_t text_read_fd(int fd, char *ret, size_t size)
{
        size_t used = 0;
        while (used + 1 < size) {
                ssize_t got = pread(fd, ret + used, size - 1 - used, (off_t)used);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -1;
                if (got == 0)
                        break;
                used += (size_t)got;
        }
        ret[used] = '\0';
        return (ssize_t)used;
}

ssize_t text_read_at(int dir_fd, const char *path, char *ret, size_t size)
{
        AUTO_FD int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return -1;
        return text_read_fd(fd, ret, size);
}

bool text_value(const char *text, const char *key, uint64_t *ret)
{
        size_t length = strlen(key);
        const char *line = text;
        while (strncmp(line, key, length) != 0 || (line[length] != ' ' && line[length] != '\t')) {
                line = strchr(line, '\n');
                if (line == NULL)
                        return false;
                line++;
        }
        const char *digit = line + length;
        digit += strspn(digit, " \t");
        if (*digit < '0' || *digit > '9')
                return false;
        uint64_t value = 0;
        for (; *digit >= '0' && *digit <= '9'; digit++) {
                uint64_t next = (uint64_t)(*digit - '0');
                if (value > (UINT64_MAX - next) / 10)
                        return false;
                value = value * 10 + next;
        }
        *ret = value;
        return true;
}
