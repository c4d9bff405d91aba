/* SPDX-License-Identifier: Apache-2.0 */
#include "api/options.h"
#include "box/saved.h"

int cubby_templates(cubby *host, cubby_template_list **ret, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(ret, "ret", err) < 0)
                return -1;
        return saved_list(host, ret, err);
}

void cubby_template_list_free(cubby_template_list *list)
{
        saved_list_free(list);
}

int cubby_template_build(
        cubby *host, const cubby_box_options *options, bool again, cubby_error *err)
{
        cubby_box_options read;
        if (need(host, "cubby", err) < 0 || need(options, "options", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return saved_build_for(host, &read, again, err);
}

int cubby_template_remove(cubby *host, const char *name, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(name, "name", err) < 0)
                return -1;
        return saved_remove(host, name, err);
}

int cubby_template_inspect(cubby *host, const char *name, char **ret_json, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(name, "name", err) < 0 ||
                need(ret_json, "ret_json", err) < 0)
                return -1;
        return saved_inspect(host, name, ret_json, err);
}

int cubby_template_verify(cubby *host, const char *name, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(name, "name", err) < 0)
                return -1;
        return saved_verify(host, name, err);
}

int cubby_spares_set(
        cubby *host, const cubby_box_options *options, uint32_t count, cubby_error *err)
{
        cubby_box_options read;
        if (need(host, "cubby", err) < 0 || need(options, "options", err) < 0 ||
                options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return saved_set_spares(host, &read, count, err);
}

int cubby_usage(cubby *host, char **ret_json, cubby_error *err)
{
        if (need(host, "cubby", err) < 0 || need(ret_json, "ret_json", err) < 0)
                return -1;
        return box_usage(host, ret_json, err);
}

int cubby_prune(
        cubby *host, const cubby_prune_options *options, uint64_t *ret_bytes, cubby_error *err)
{
        cubby_prune_options read;
        if (need(host, "cubby", err) < 0 || options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return box_prune(host, &read, ret_bytes, err);
}

int cubby_box_suspend(cubby_box *box, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_suspend(box, err);
}

int cubby_box_resume(cubby_box *box, cubby_error *err)
{
        return need(box, "box", err) < 0 ? -1 : box_resume(box, err);
}

int cubby_box_fork(cubby_box *box, const char *const *names, size_t count, cubby_box **ret,
        cubby_error *errors, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(ret, "ret", err) < 0 ||
                need(errors, "errors", err) < 0)
                return -1;
        return box_fork_many(box, names, count, ret, errors, err);
}

int cubby_box_snapshot(cubby_box *box, const char *name, cubby_error *err)
{
        if (need(box, "box", err) < 0 || need(name, "name", err) < 0)
                return -1;
        return box_snapshot(box, name, err);
}

int cubby_box_continue(cubby *host, const char *snapshot, const cubby_box_options *options,
        cubby_box **ret, cubby_error *err)
{
        cubby_box_options read;
        if (need(host, "cubby", err) < 0 || need(snapshot, "snapshot", err) < 0 ||
                need(ret, "ret", err) < 0 || options_read(&read, sizeof read, options, err) < 0)
                return -1;
        return box_from_snapshot(host, snapshot, &read, ret, err);
}
