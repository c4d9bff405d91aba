/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static json_t *list_json(char *const *list)
{
        json_t *array = json_array();
        for (size_t i = 0; array != NULL && list != NULL && list[i] != NULL; i++)
                if (json_array_append_new(array, json_string(list[i])) < 0) {
                        json_decref(array);
                        return NULL;
                }
        return array;
}

/* "KEY=VALUE" entries as an object. */
static json_t *pairs_json(char *const *list)
{
        json_t *object = json_object();
        for (size_t i = 0; object != NULL && list != NULL && list[i] != NULL; i++) {
                const char *equals = strchr(list[i], '=');
                AUTO_FREE char *key = strndup(list[i], (size_t)(equals - list[i]));
                if (key == NULL || json_object_set_new(object, key, json_string(equals + 1)) < 0) {
                        json_decref(object);
                        return NULL;
                }
        }
        return object;
}

static json_t *config_json(const struct box_config *config)
{
        return json_pack("{s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:I, s:I,"
                         " s:I, s:I, s:s, s:s}",
                "command", list_json(config->argv), "env", list_json(config->env), "labels",
                pairs_json(config->labels), "workdir", config->workdir, "user", config->user,
                "hostname", config->hostname, "stop_signal", config->stop_signal, "tty",
                config->tty, "open_stdin", config->open_stdin, "auto_remove", config->auto_remove,
                "memory_bytes", (json_int_t)config->memory_bytes, "cpu_milli",
                (json_int_t)config->cpu_milli, "disk_bytes", (json_int_t)config->disk_bytes,
                "pids_max", (json_int_t)config->pids_max, "ttl_ms", (json_int_t)config->ttl_ms,
                "boot_timeout_ms", (json_int_t)config->boot_timeout_ms, "accel", config->accel,
                "kernel", config->kernel);
}

static json_t *state_json(const cubby_box_info *info)
{
        return json_pack("{s:s, s:b, s:i, s:b, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "status",
                box_state_name(info->state), "running",
                info->state == CUBBY_BOX_RUNNING || info->state == CUBBY_BOX_PAUSED, "exit_code",
                info->exit_code, "oom", info->oom, "reason", info->reason, "detail", info->detail,
                "isolation", info->isolation, "served", info->served, "started_ns",
                (json_int_t)info->started_ns, "finished_ns", (json_int_t)info->finished_ns,
                "generation", (json_int_t)info->generation, "shim_pid", (json_int_t)info->shim_pid);
}

int box_inspect(cubby_box *box, char **ret_json, cubby_error *err)
{
        cubby_box_info info = {0};
        if (box_get_info(box, &info, err) < 0)
                return -1;
        json_t *root = json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:I, s:o, s:o}", "id", info.id,
                "name", info.name, "image", "name", info.image_name, "id", info.image_id, "engine",
                info.engine, "created_ns", (json_int_t)info.created_ns, "state", state_json(&info),
                "config", config_json(&box->config));
        box_info_clear(&info);
        char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        if (text == NULL)
                return cubby_error_no_memory(err);
        *ret_json = text;
        return 0;
}
