/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/box.h"

int cubby_exec_start(
        cubby_box *box, const cubby_exec_options *options, cubby_exec **ret, cubby_error *err)
{
        cubby_exec_options read;
        if (need(box, "box", err) < 0 || need(options, "options", err) < 0 ||
                need(ret, "ret", err) < 0 || options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_exec_start(box, &read, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

int cubby_box_attach(cubby_box *box, bool replay, cubby_exec **ret, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        return box_attach(box, replay, ret, err);
}

int cubby_exec_next(cubby_exec *exec, int64_t timeout_ms, cubby_event *ret, cubby_error *err)
{
        if (need(exec, "exec", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        cubby_error problem = {0};
        int result = box_exec_next(exec, timeout_ms, ret, &problem);
        return (int)box_leave(box_exec_box(exec), result, &problem, err);
}

int cubby_exec_fd(const cubby_exec *exec)
{
        return exec == NULL ? -1 : box_exec_fd(exec);
}

int64_t cubby_exec_write(
        cubby_exec *exec, const void *data, size_t size, int64_t timeout_ms, cubby_error *err)
{
        if (need(exec, "exec", err) < 0 || (size > 0 && need(data, "data", err) < 0))
                return -1;
        cubby_error problem = {0};
        int64_t result = box_exec_write(exec, data, size, timeout_ms, &problem);
        return box_leave(box_exec_box(exec), result, &problem, err);
}

int cubby_exec_close_stdin(cubby_exec *exec, cubby_error *err)
{
        return need(exec, "exec", err) < 0 ? -1 : box_exec_close_stdin(exec, err);
}

int cubby_exec_signal(cubby_exec *exec, int signal, cubby_error *err)
{
        return need(exec, "exec", err) < 0 ? -1 : box_exec_signal(exec, signal, err);
}

int cubby_exec_resize(cubby_exec *exec, uint16_t rows, uint16_t columns, cubby_error *err)
{
        return need(exec, "exec", err) < 0 ? -1 : box_exec_resize(exec, rows, columns, err);
}

uint32_t cubby_exec_pid(const cubby_exec *exec)
{
        return exec == NULL ? 0 : box_exec_pid(exec);
}

void cubby_exec_close(cubby_exec *exec)
{
        box_exec_close(exec);
}

int cubby_exec_run(cubby_box *box, const cubby_exec_options *options, const void *input,
        size_t input_size, cubby_result *ret, cubby_error *err)
{
        cubby_exec_options read;
        if (need(box, "box", err) < 0 || need(options, "options", err) < 0 ||
                need(ret, "ret", err) < 0 || (input_size > 0 && need(input, "input", err) < 0) ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_enter(box, err) < 0)
                return -1;
        int result = box_run(box, &read, input, input_size, ret, &problem);
        return (int)box_leave(box, result, &problem, err);
}

void cubby_result_clear(cubby_result *result)
{
        if (result == NULL)
                return;
        free(result->output);
        free(result->errors);
        *result = (cubby_result){0};
}
