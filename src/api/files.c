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

int cubby_file_list_folder(cubby_box *box, const char *path, const cubby_list_options *options,
        cubby_file_list **ret, cubby_error *err)
{
        cubby_list_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_list_folder(box, path, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_read(cubby_box *box, const char *path, uint64_t offset, uint64_t max_bytes,
        const cubby_file_options *options, void **ret, size_t *ret_size, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                need(ret_size, "ret_size", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_read(box, path, offset, max_bytes, &read, ret, ret_size, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_read_lines(cubby_box *box, const char *path, uint64_t first, uint64_t last,
        const cubby_file_options *options, char **ret, size_t *ret_size, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                need(ret_size, "ret_size", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_read_lines(box, path, first, last, &read, ret, ret_size, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_write(cubby_box *box, const char *path, const void *data, size_t size,
        const cubby_write_options *options, cubby_error *err)
{
        cubby_write_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                (size > 0 && need(data, "data", err) < 0) ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_write(box, path, data, size, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_open_read(cubby_box *box, const char *path, uint64_t offset,
        const cubby_file_options *options, cubby_file **ret, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_open_read(box, path, offset, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_open_write(cubby_box *box, const char *path, const cubby_write_options *options,
        cubby_file **ret, cubby_error *err)
{
        cubby_write_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_open_write(box, path, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_remove(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_remove(box, path, recursive, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_rename(cubby_box *box, const char *from, const char *to, bool replace,
        const cubby_file_options *options, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(from, "from", err) < 0 || need(to, "to", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_rename(box, from, to, replace, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_file_make_folder(cubby_box *box, const char *path, uint32_t mode, bool parents,
        const cubby_file_options *options, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_file_make_folder(box, path, mode, parents, &read, &problem);
        return (int)box_leave(box, result, &problem, err);
}

void cubby_file_info_clear(cubby_file_info *info)
{
        box_file_info_clear(info);
}

void cubby_file_list_free(cubby_file_list *list)
{
        box_file_list_free(list);
}

int64_t cubby_file_next(
        cubby_file *file, void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        if (need(file, "file", err) < 0 || need(data, "data", err) < 0)
                return -1;
        cubby_error problem = {0};
        int64_t result = box_file_next(file, data, size, timeout_ms, &problem);
        return box_leave(box_file_box(file), result, &problem, err);
}

int64_t cubby_file_put(
        cubby_file *file, const void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        if (need(file, "file", err) < 0 || (size > 0 && need(data, "data", err) < 0))
                return -1;
        cubby_error problem = {0};
        int64_t result = box_file_put(file, data, size, timeout_ms, &problem);
        return box_leave(box_file_box(file), result, &problem, err);
}

int cubby_file_commit(cubby_file *file, int64_t timeout_ms, cubby_error *err)
{
        if (need(file, "file", err) < 0)
                return -1;
        cubby_error problem = {0};
        int result = box_file_commit(file, timeout_ms, &problem);
        return (int)box_leave(box_file_box(file), result, &problem, err);
}

void cubby_file_close(cubby_file *file)
{
        box_file_close(file);
}
