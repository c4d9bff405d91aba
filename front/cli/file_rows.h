/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FILE_ROWS_H
#define CLI_FILE_ROWS_H

/* Files of a box as rows of a list. */

#include "format.h"

extern const struct column file_columns[];
#define FILE_FORMAT_HELP                                                                  \
        "Templates of --format know .Mode, .Links, .UID, .GID, .Size, .Disk, .Modified, " \
        ".Path, .Target, .Type and .Inode."

/* "644", "0755": octal, at most 7777, not 0. */
bool parse_mode(const char *text, uint32_t *ret);

void file_row_add(struct list *list, const cubby_file_info *info);

#endif
