/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

int cubby_file_stat(cubby_box *box, const char *path, bool follow,
        const cubby_file_options *options, cubby_file_info *ret, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_stat(box, path, follow, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

void cubby_file_info_clear(cubby_file_info *info)
{
        box_file_info_clear(info);
}
