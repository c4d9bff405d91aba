/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[CUBBY_E_CODE_MAX] = {
        [CUBBY_OK] = "ok",
        [CUBBY_E_SYSTEM] = "system error",
        [CUBBY_E_NO_MEMORY] = "out of memory",
        [CUBBY_E_INVALID] = "invalid argument",
        [CUBBY_E_NOT_FOUND] = "not found",
        [CUBBY_E_EXISTS] = "already exists",
        [CUBBY_E_BUSY] = "busy",
        [CUBBY_E_STATE] = "wrong state",
        [CUBBY_E_TIMEOUT] = "timed out",
        [CUBBY_E_CLOSED] = "closed",
        [CUBBY_E_CANCELLED] = "cancelled",
        [CUBBY_E_PROTOCOL] = "protocol violation",
        [CUBBY_E_BOX_DEAD] = "box is dead",
        [CUBBY_E_VMM] = "virtual machine failed",
        [CUBBY_E_KERNEL] = "no guest kernel",
        [CUBBY_E_UNSUPPORTED] = "unsupported",
        [CUBBY_E_PERMISSION] = "permission denied",
        [CUBBY_E_IMAGE] = "malformed image",
        [CUBBY_E_DIGEST] = "digest mismatch",
        [CUBBY_E_LIMIT] = "limit exceeded",
        [CUBBY_E_NO_SPACE] = "no space",
        [CUBBY_E_CORRUPT] = "corrupt state",
        [CUBBY_E_VERSION] = "version mismatch",
        [CUBBY_E_EXEC_NOT_FOUND] = "command not found",
        [CUBBY_E_EXEC_REFUSED] = "command cannot run",
        [CUBBY_E_CAPACITY] = "capacity exceeded",
        [CUBBY_E_IDENTITY] = "identity mismatch",
        [CUBBY_E_SHUTDOWN] = "shutting down",
};

const char *cubby_code_name(int code)
{
        if (code < 0 || code >= CUBBY_E_CODE_MAX)
                return "unknown error";
        return code_names[code];
}

static int code_of_errno(int error_number)
{
        switch (error_number) {
        case ENOMEM:
                return CUBBY_E_NO_MEMORY;
        case ENOSPC:
        case EDQUOT:
                return CUBBY_E_NO_SPACE;
        case EACCES:
        case EPERM:
                return CUBBY_E_PERMISSION;
        case ENOENT:
                return CUBBY_E_NOT_FOUND;
        case EEXIST:
                return CUBBY_E_EXISTS;
        case ETIMEDOUT:
                return CUBBY_E_TIMEOUT;
        default:
                return CUBBY_E_SYSTEM;
        }
}

/* Bytes of the well-formed character at `text`; 0 when there is none. */
static size_t character_length(const unsigned char *text)
{
        static const struct {
                unsigned char mask, lead;
                unsigned minimum; /* shorter forms have the smaller numbers */
        } forms[] = {{0xe0, 0xc0, 0xa0 /* C1 controls are left out */}, {0xf0, 0xe0, 0x800},
                {0xf8, 0xf0, 0x10000}};
        if (text[0] < 0x80)
                return text[0] >= 0x20 && text[0] != 0x7f ? 1 : text[0] == '\n' || text[0] == '\t';
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
                if ((text[0] & forms[i].mask) != forms[i].lead)
                        continue;
                unsigned value = text[0] & (unsigned char)~forms[i].mask;
                for (size_t n = 1; n <= i + 1; n++) {
                        if ((text[n] & 0xc0) != 0x80) /* also the NUL at the end */
                                return 0;
                        value = value << 6 | (text[n] & 0x3fU);
                }
                bool surrogate = value >= 0xd800 && value <= 0xdfff;
                return value < forms[i].minimum || value > 0x10ffff || surrogate ? 0 : i + 2;
        }
        return 0;
}

/* Names of foreign things stand in messages, and lines of a serial console: whatever is no
 * text, or would be obeyed by a terminal, becomes a question mark. */
static void make_text(cubby_error *err)
{
        char *to = err->message;
        for (const char *at = err->message; *at != '\0';) {
                size_t length = character_length((const unsigned char *)at);
                if (length == 0 && !(at[0] == '\r' && at[1] == '\n'))
                        *to++ = '?';
                memmove(to, at, length);
                to += length;
                at += length == 0 ? 1 : length;
        }
        *to = '\0';
}

static void append(cubby_error *err, const char *text)
{
        size_t used = strlen(err->message);
        (void)snprintf(err->message + used, sizeof err->message - used, "%s", text);
}

int cubby_error_set(cubby_error *err, int code, const char *format, ...)
{
        if (err == NULL)
                return -1;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        make_text(err);
        err->code = code;
        err->sys_errno = 0;
        return -1;
}

int cubby_error_errno(cubby_error *err, int error_number, const char *format, ...)
{
        if (err == NULL)
                return -1;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        append(err, ": ");
        /* The GNU strerror_r may return a static string and is thread-safe. */
        char text[128];
        append(err, strerror_r(error_number, text, sizeof text));
        make_text(err);
        err->code = code_of_errno(error_number);
        err->sys_errno = error_number;
        return -1;
}

int cubby_error_wrap(cubby_error *err, const char *format, ...)
{
        if (err == NULL)
                return -1;
        char inner[CUBBY_ERROR_MESSAGE_MAX];
        memcpy(inner, err->message, sizeof inner);
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        append(err, ": ");
        append(err, inner);
        make_text(err);
        return -1;
}

int cubby_error_no_memory(cubby_error *err)
{
        return cubby_error_set(err, CUBBY_E_NO_MEMORY, "out of memory");
}

void cubby_error_clear(cubby_error *err)
{
        if (err == NULL)
                return;
        err->code = CUBBY_OK;
        err->sys_errno = 0;
        err->message[0] = '\0';
}

void cubby_error_file_code(cubby_error *err)
{
        if (err == NULL)
                return;
        switch (err->sys_errno) {
        case EINVAL:
        case EISDIR:
        case ENOTDIR:
        case ELOOP:
        case ENAMETOOLONG:
        case ENOTEMPTY:
        case ENXIO:
        case EXDEV:
        case EILSEQ:
                err->code = CUBBY_E_INVALID;
                break;
        case EROFS:
                err->code = CUBBY_E_PERMISSION;
                break;
        case EFBIG:
                err->code = CUBBY_E_LIMIT;
                break;
        default:
                break;
        }
}
