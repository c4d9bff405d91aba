/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUBBY_ERROR_H
#define CUBBY_ERROR_H

/*
 * The one error type of Cubby.
 *
 * Every call that can fail takes a `cubby_error *` as its last argument and
 * returns -1 or NULL on failure. The pointer may be NULL when the caller does
 * not care. The caller owns the memory (usually the stack); nothing in it has
 * to be freed, so an error can be reported when memory has run out.
 *
 * `code` is for programs, `message` is for people. Layers add what they were
 * doing in front: "starting box 'web': no guest kernel was found".
 */

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what libcubby exports. */
#define CUBBY_API __attribute__((visibility("default")))

#define CUBBY_ERROR_MESSAGE_MAX 3072 /* room for the end of a console */

enum cubby_code {
        CUBBY_OK = 0,
        CUBBY_E_SYSTEM,         /* an operating system call failed; see sys_errno */
        CUBBY_E_NO_MEMORY,      /* memory ran out in this process */
        CUBBY_E_INVALID,        /* an argument is wrong; nothing was done */
        CUBBY_E_NOT_FOUND,      /* no image, box, file or process of that name */
        CUBBY_E_EXISTS,         /* the name is taken */
        CUBBY_E_BUSY,           /* in use by another owner; try again later */
        CUBBY_E_STATE,          /* not possible in the present state of the object */
        CUBBY_E_TIMEOUT,        /* the deadline passed */
        CUBBY_E_CLOSED,         /* the handle was closed */
        CUBBY_E_CANCELLED,      /* the caller abandoned the wait */
        CUBBY_E_PROTOCOL,       /* a peer broke the agent protocol */
        CUBBY_E_BOX_DEAD,       /* the box ended while, or before, the call ran */
        CUBBY_E_VMM,            /* the virtual machine could not be started */
        CUBBY_E_KERNEL,         /* no usable guest kernel */
        CUBBY_E_UNSUPPORTED,    /* not offered by this engine, host or version */
        CUBBY_E_PERMISSION,     /* the operating system or the guest refused access */
        CUBBY_E_IMAGE,          /* an image, layer or archive is malformed */
        CUBBY_E_DIGEST,         /* content does not match its digest or size */
        CUBBY_E_LIMIT,          /* a ceiling that Cubby sets was reached */
        CUBBY_E_NO_SPACE,       /* the host's or the box's disk is full */
        CUBBY_E_CORRUPT,        /* stored state failed its checks */
        CUBBY_E_VERSION,        /* stored state or a peer is of another version */
        CUBBY_E_EXEC_NOT_FOUND, /* the command does not exist in the box (exit 127) */
        CUBBY_E_EXEC_REFUSED,   /* the command exists but cannot run (exit 126) */
        CUBBY_E_CAPACITY,       /* the pool is full */
        CUBBY_E_IDENTITY,       /* a box belongs to another user and thread */
        CUBBY_E_SHUTDOWN,       /* the provider is shutting down */
        CUBBY_E_CODE_MAX
};

typedef struct cubby_error {
        int code;      /* enum cubby_code */
        int sys_errno; /* errno of the failed call, 0 where there was none */
        /* Always NUL-terminated UTF-8, without control characters but newline and tab;
         * what else a name has in it is shown as '?'. */
        char message[CUBBY_ERROR_MESSAGE_MAX];
} cubby_error;

/* The code's name in lower case words ("not found"); never NULL. */
CUBBY_API const char *cubby_code_name(int code);

#ifdef __cplusplus
}
#endif
#endif
