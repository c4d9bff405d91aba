/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
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
