/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BOXES_H
#define CLI_BOXES_H

#include "cli.h"

/* Does one thing to each named box and prints the names that went well. */
typedef int (*box_action)(cubby_box *box, const void *settings, cubby_error *err);
int each_box(struct cli *cli, struct args args, box_action action, const void *settings);

/* "docker.io/library/python:3.12" as people write it: "python:3.12". */
const char *familiar_name(const char *name);
/* The first 12 digits of an id, "sha256:" left out. Writes into text[13]. */
const char *short_id(const char *id, char *text);

#endif
