/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

int cubby_glob(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_glob_result **ret, cubby_error *err)
{
        cubby_search_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                need(pattern, "pattern", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_glob(box, path, pattern, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

void cubby_glob_result_free(cubby_glob_result *result)
{
        box_glob_result_free(result);
}

int cubby_grep(cubby_box *box, const char *path, const char *pattern,
        const cubby_search_options *options, cubby_grep_result **ret, int64_t *ret_position,
        cubby_error *err)
{
        cubby_search_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 ||
                need(pattern, "pattern", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_grep(box, path, pattern, &read, ret, ret_position, &problem);
        return (int)box_leave(box, result, &problem, err);
}

void cubby_grep_result_free(cubby_grep_result *result)
{
        box_grep_result_free(result);
}

int cubby_watch_open(cubby_box *box, const char *path, bool recursive,
        const cubby_file_options *options, cubby_watch **ret, cubby_error *err)
{
        cubby_file_options read;
        if (need(box, "box", err) < 0 || need(path, "path", err) < 0 || need(ret, "ret", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_watch_open(box, path, recursive, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_watch_next(
        cubby_watch *watch, int64_t timeout_ms, cubby_watch_event *ret, cubby_error *err)
{
        if (need(watch, "watch", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        cubby_error problem = {0};
        int result = box_watch_next(watch, timeout_ms, ret, &problem);
        return (int)box_leave(box_watch_box(watch), result, &problem, err);
}

int cubby_watch_fd(const cubby_watch *watch)
{
        return box_watch_fd(watch);
}

void cubby_watch_close(cubby_watch *watch)
{
        box_watch_close(watch);
}
