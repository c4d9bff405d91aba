/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REMOVE_WAIT_MS 10000

static void info_clear(cubby_template_info *info)
{
        free(info->key);
        free(info->image_id);
        free(info->image_name);
        free(info->snapshot);
        free(info->problem);
        *info = (cubby_template_info){0};
}

void saved_list_free(cubby_template_list *list)
{
        if (list == NULL)
                return;
        for (size_t i = 0; i < list->count; i++)
                info_clear(&list->templates[i]);
        free(list->templates);
        free(list);
}

static char *text_or_empty(const char *text)
{
        return strdup(text == NULL ? "" : text);
}

static bool fill(cubby_template_info *info, const struct template_info *found)
{
        const struct template_manifest *manifest = &found->manifest;
        *info = (cubby_template_info){.key = strdup(manifest->key),
                .image_id = text_or_empty(manifest->inputs.image_id),
                .image_name = text_or_empty(manifest->image_name),
                .snapshot = text_or_empty(manifest->snapshot),
                .problem = text_or_empty(found->problem),
                .memory_bytes = manifest->inputs.memory_bytes,
                .disk_bytes = manifest->inputs.disk_bytes,
                .vcpus = manifest->inputs.vcpus,
                .usage_bytes = found->disk_usage_bytes,
                .spares = found->spares,
                .spares_wanted = found->wanted,
                .created_ns = manifest->created_ns,
                .used_ns = found->used_ns};
        return info->key != NULL && info->image_id != NULL && info->image_name != NULL &&
                info->snapshot != NULL && info->problem != NULL;
}

DEFINE_AUTO(cubby_template_list, saved_list_free)

int saved_list(cubby *host, cubby_template_list **ret, cubby_error *err)
{
        struct template_info *found = NULL;
        size_t count = 0;
        if (template_list(host->home, &found, &count, err) < 0)
                return -1;
        AUTO(cubby_template_list) cubby_template_list *list = calloc(1, sizeof *list);
        if (list != NULL)
                list->templates = calloc(count + 1, sizeof *list->templates);
        bool whole = list != NULL && list->templates != NULL;
        for (size_t i = 0; whole && i < count; i++) {
                whole = fill(&list->templates[i], &found[i]);
                list->count++;
        }
        template_list_free(found, count);
        if (!whole)
                return cubby_error_no_memory(err);
        *ret = take_ptr(&list);
        return 0;
}

/* What of the options makes the machine. */
static int plan(
        cubby *host, const cubby_box_options *options, struct box_config *ret, cubby_error *err)
{
        cubby_box_options machine = CUBBY_INIT(cubby_box_options);
        machine.image = options->image;
        machine.no_main = true;
        machine.memory_bytes = options->memory_bytes;
        machine.cpu_milli = options->cpu_milli;
        machine.disk_bytes = options->disk_bytes;
        machine.engine = options->engine;
        machine.accel = options->accel;
        machine.kernel = options->kernel;
        machine.boot_timeout_ms = options->boot_timeout_ms;
        machine.warmup = options->warmup;
        return box_plan(host, &machine, ret, err);
}

int saved_build_for(cubby *host, const cubby_box_options *options, bool again, cubby_error *err)
{
        AUTO_CONFIG struct box_config config = {0};
        if (plan(host, options, &config, err) < 0)
                return -1;
        return saved_build(host, &config, again, err);
}

int saved_remove(cubby *host, const char *name, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        if (template_resolve(host->home, name, key, err) < 0)
                return -1;
        AUTO(template) struct template *template = NULL;
        if (template_open(host->home, key, &template, NULL) == 0)
                (void)saved_tell(template, true, NULL);
        template_close(take_ptr(&template));
        return template_remove(host->home, key, deadline_after_ms(REMOVE_WAIT_MS), NULL, err);
}

static int open_named(cubby *host, const char *name, struct template **ret, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        if (template_resolve(host->home, name, key, err) < 0)
                return -1;
        return template_open(host->home, key, ret, err);
}

int saved_inspect(cubby *host, const char *name, char **ret_json, cubby_error *err)
{
        AUTO(template) struct template *template = NULL;
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, TEMPLATE_MANIFEST_BYTES_MAX);
        if (open_named(host, name, &template, err) < 0 ||
                template_manifest_encode(&template->manifest, &json, err) < 0)
                return -1;
        const char *text = buffer_text(&json);
        char *copy = text == NULL ? NULL : strdup(text);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        *ret_json = copy;
        return 0;
}

int saved_verify(cubby *host, const char *name, cubby_error *err)
{
        AUTO(template) struct template *template = NULL;
        if (open_named(host, name, &template, err) < 0)
                return -1;
        return template_verify(template, err);
}

int saved_set_spares(
        cubby *host, const cubby_box_options *options, uint32_t count, cubby_error *err)
{
        AUTO_CONFIG struct box_config config = {0};
        AUTO(template) struct template *template = NULL;
        char key[TEMPLATE_KEY_SIZE];
        if (plan(host, options, &config, err) < 0)
                return -1;
        if ((count > 0 && saved_build(host, &config, false, err) < 0) ||
                saved_key(host, &config, key, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (template_open(host->home, key, &template, &problem) < 0) {
                if (count == 0 && problem.code == CUBBY_E_NOT_FOUND)
                        return 0; /* no template, no spares */
                return cubby_error_set(
                        err, problem.code, "setting the number of spares: %s", problem.message);
        }
        if (template_set_wanted(template->dir_fd, count, err) < 0)
                return -1;
        if (count > 0)
                saved_want_spares(host, &config, template);
        else
                (void)saved_tell(template, false, NULL);
        return 0;
}
