/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <cubby/error.h>
#include <stdarg.h>

/* Sets code and message; always returns -1. A NULL err is allowed. */
int cubby_error_set(cubby_error *err, int code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/*
 * Sets the error from an errno value; the text of the errno is appended after
 * a colon. The code follows from the errno (ENOMEM, ENOSPC, EACCES, ENOENT and
 * EEXIST have codes of their own, the rest are CUBBY_E_SYSTEM). Returns -1.
 */
int cubby_error_errno(cubby_error *err, int error_number, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Behind it, for a call on a path: the code as cubby/files.h promises it for files. */
void cubby_error_file_code(cubby_error *err);

/* Puts "text: " in front of the present message, keeps the code. Returns -1. */
int cubby_error_wrap(cubby_error *err, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Out of memory, without allocating. Returns -1. */
int cubby_error_no_memory(cubby_error *err);

/* Back to CUBBY_OK with an empty message. */
void cubby_error_clear(cubby_error *err);

#endif
