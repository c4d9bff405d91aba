/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

int cubby_box_create(
        cubby *host, const cubby_box_options *options, cubby_box **ret, cubby_error *err)
{
        cubby_box_options read;
        if (need(host, "cubby", err) < 0 || need(options, "options", err) < 0 ||
                need(ret, "ret", err) < 0 || options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return box_create(host, &read, ret, err);
}

int cubby_box_open(cubby *host, const char *name, cubby_box **ret, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(name, "name", err) < 0 ||
                need(ret, "ret", err) < 0)
                return -1;
        return box_open(host, name, ret, err);
}

void cubby_box_close(cubby_box *box)
{
        box_close(box);
}

const char *cubby_box_id(const cubby_box *box)
{
        return box == NULL ? NULL : box->id;
}

const char *cubby_box_state_name(int state)
{
        return box_state_name(state);
}

int cubby_box_start(cubby_box *box, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_start(box, err);
}

int cubby_box_stop(cubby_box *box, int64_t timeout_ms, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_stop(box, timeout_ms, err);
}

int cubby_box_kill(cubby_box *box, int signal, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_kill(box, signal, err);
}

int cubby_box_pause(cubby_box *box, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_pause(box, true, err);
}

int cubby_box_unpause(cubby_box *box, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_pause(box, false, err);
}

int cubby_box_remove(cubby_box *box, bool force, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_remove(box, force, err);
}

int cubby_box_rename(cubby_box *box, const char *name, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(name, "name", err) < 0)
                return -1;
        return box_rename(box, name, err);
}

int cubby_box_wait(cubby_box *box, int64_t timeout_ms, int *ret_exit_code, cubby_error *err)
{
        int code = 0;
        if (need(box, "box", err) < 0 || box_wait(box, timeout_ms, &code, err) < 0)
                return -1;
        if (ret_exit_code != NULL)
                *ret_exit_code = code;
        return 0;
}

int cubby_box_ping(cubby_box *box, int64_t timeout_ms, cubby_error *err)
{
        cubby_error problem = {0};
        if (need(box, "box", err) < 0 || box_enter(box, err) < 0)
                return -1;
        int result = box_ping(box, timeout_ms, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_box_get_info(cubby_box *box, cubby_box_info *ret, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        return box_get_info(box, ret, err);
}

void cubby_box_info_clear(cubby_box_info *info)
{
        box_info_clear(info);
}

int cubby_boxes(cubby *host, bool all, cubby_box_list **ret, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        return box_list(host, all, ret, err);
}

void cubby_box_list_free(cubby_box_list *list)
{
        box_list_free(list);
}

int cubby_box_inspect(cubby_box *box, char **ret_json, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret_json, "ret_json", err) < 0)
                return -1;
        return box_inspect(box, ret_json, err);
}

int cubby_box_get_stats(cubby_box *box, cubby_box_stats *ret, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        return box_get_stats(box, ret, err);
}

int cubby_box_processes(cubby_box *box, cubby_process **ret, size_t *ret_count, bool *ret_truncated,
        cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret, "ret", err) < 0 ||
                need(ret_count, "ret_count", err) < 0)
                return -1;
        return box_processes(box, ret, ret_count, ret_truncated, err);
}

int cubby_box_logs(cubby_box *box, const cubby_log_options *options, cubby_log_fn write, void *data,
        cubby_error *err)
{
        static const cubby_log_options all = {.size = sizeof all, .tail_lines = -1};
        cubby_log_options read;
        if (need(box, "box", err) < 0 ||
                options_read(&read, sizeof read, options == NULL ? &all : options, err) < 0)
                return -1;
        if (write == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID, "the argument write is NULL");
        return box_logs(box, &read, write, data, err);
}
