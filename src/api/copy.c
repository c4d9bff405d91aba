/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

static int begin(cubby_box *box, const char *path, const cubby_copy_options *options,
        cubby_copy_options *ret, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                options_read(ret, sizeof *ret, options, err) < 0)
                return -1;
        return box_enter(box, err);
}

int cubby_copy_in(cubby_box *box, const char *host_path, const char *path,
        const cubby_copy_options *options, cubby_error *err)
{
        cubby_copy_options read;
        cubby_error problem = {0};
        if (need(host_path, "host_path", err) < 0 || begin(box, path, options, &read, err) < 0)
                return -1;
        int result = box_copy_in(box, host_path, path, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_copy_out(cubby_box *box, const char *path, const char *host_path,
        const cubby_copy_options *options, cubby_error *err)
{
        cubby_copy_options read;
        cubby_error problem = {0};
        if (need(host_path, "host_path", err) < 0 || begin(box, path, options, &read, err) < 0)
                return -1;
        int result = box_copy_out(box, path, host_path, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_copy_between(cubby_box *from, const char *from_path, cubby_box *to, const char *to_path,
        const cubby_copy_options *options, cubby_error *err)
{
        cubby_copy_options read;
        cubby_error problem = {0};
        if (need(to, "to", err) < 0 || need(to_path, "to_path", err) < 0 ||
                box_enter(to, err) < 0 || begin(from, from_path, options, &read, err) < 0)
                return -1;
        cubby_box *at = from;
        int result = box_copy_between(from, from_path, to, to_path, &read, &at, &problem);
        return (int)box_leave(at, result, &problem, err);
}

int cubby_tar_in(cubby_box *box, int fd, const char *path, const cubby_copy_options *options,
        cubby_error *err)
{
        cubby_copy_options read;
        cubby_error problem = {0};
        if (begin(box, path, options, &read, err) < 0)
                return -1;
        int result = box_tar_in(box, fd, path, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_tar_out(cubby_box *box, const char *path, int fd, const cubby_copy_options *options,
        cubby_error *err)
{
        cubby_copy_options read;
        cubby_error problem = {0};
        if (begin(box, path, options, &read, err) < 0)
                return -1;
        int result = box_tar_out(box, path, fd, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}
