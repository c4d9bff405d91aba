/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEMPLATE_PRIVATE_H
#define TEMPLATE_PRIVATE_H

/* What the files of src/template share. */

#include "base/cleanup.h"
#include "template/template.h"

#include <sys/stat.h>

#define LOCK_NAME_SIZE 96
#define REMOVE_WAIT_MS 5000

DEFINE_AUTO(template, template_close)

int64_t mtime_ns(const struct stat *info);
int template_read_manifest(
        int dir_fd, const char *key, struct template_manifest *ret, cubby_error *err);
void template_lock_name(const char *key, char ret[LOCK_NAME_SIZE]);

#endif
