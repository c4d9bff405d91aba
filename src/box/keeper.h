/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_KEEPER_H
#define BOX_KEEPER_H

/*
 * cubby-keeper: one transient process per template. It holds the template's
 * sealed memory object, so that clones share its pages, and keeps spares and one
 * machine ahead: started, and waiting for its state. It
 * listens on templates/KEY/keeper.sock (SOCK_SEQPACKET, one request and one
 * reply a connection) and ends after a while without a client, with its spares.
 *
 * Its arguments are the home and the machine, in the order of this list.
 */

#include <stdint.h>

#define KEEPER_PROGRAM "cubby-keeper"
#define KEEPER_VERSION 1U
#define KEEPER_IDLE_VARIABLE "CUBBY_KEEPER_IDLE" /* seconds, default 600 */
#define KEEPER_AHEAD_VARIABLE "CUBBY_AHEAD"      /* machines started ahead, default 1 */

enum keeper_argument {
        KEEPER_ARGUMENT_HOME = 1,
        KEEPER_ARGUMENT_IMAGE_ID,
        KEEPER_ARGUMENT_IMAGE_NAME,
        KEEPER_ARGUMENT_MEMORY,
        KEEPER_ARGUMENT_CPU_MILLI,
        KEEPER_ARGUMENT_DISK,
        KEEPER_ARGUMENT_ENGINE,
        KEEPER_ARGUMENT_ACCEL,
        KEEPER_ARGUMENT_KERNEL, /* "" : the default */
        KEEPER_ARGUMENT_WARMUP, /* "" : the home's */
        KEEPER_ARGUMENT_COUNT
};

enum keeper_operation {
        KEEPER_MEMORY = 1, /* the reply carries the memory object */
        KEEPER_LOOK,       /* the number of wanted spares has changed */
        KEEPER_END,
};

/* Both ends are the same build: the packet is the struct. */
struct keeper_message {
        uint32_t version;
        uint32_t operation; /* in a reply: the request's */
};

#endif
