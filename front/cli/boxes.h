/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BOXES_H
#define CLI_BOXES_H

#include "cli.h"

/* Does one thing to each named box and prints the names that went well. */
typedef int (*box_action)(cubby_box *box, const void *settings, cubby_error *err);
int each_box(struct cli *cli, struct args args, box_action action, const void *settings);

#endif
