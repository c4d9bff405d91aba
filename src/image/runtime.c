/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"
#include "image/plan.h"

#include <string.h>

static void list_free(char **list)
{
        for (char **item = list; item != NULL && *item != NULL; item++)
                free(*item);
        free(list);
}

void image_runtime_clear(struct image_runtime *runtime)
{
        if (runtime == NULL)
                return;
        list_free(runtime->env);
        list_free(runtime->entrypoint);
        list_free(runtime->command);
        free(runtime->workdir);
        free(runtime->user);
        free(runtime->stop_signal);
        *runtime = (struct image_runtime){0};
}

static int wrong_type(const char *key, const char *wanted, cubby_error *err)
{
        return cubby_error_set(
                err, CUBBY_E_IMAGE, "'%s' in the image's config is not %s", key, wanted);
}

/* Absent and null are an empty list. */
static int read_list(const json_t *config, const char *key, char ***ret, cubby_error *err)
{
        const json_t *json = json_object_get(config, key);
        size_t count = json_array_size(json);
        if (json != NULL && !json_is_null(json) && !json_is_array(json))
                return wrong_type(key, "a list of strings", err);
        char **list = calloc(count + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        *ret = list;
        for (size_t i = 0; i < count; i++) {
                const char *text = json_string_value(json_array_get(json, i));
                if (text == NULL)
                        return wrong_type(key, "a list of strings", err);
                list[i] = strdup(text);
                if (list[i] == NULL)
                        return cubby_error_no_memory(err);
        }
        return 0;
}

static int read_text(const json_t *config, const char *key, char **ret, cubby_error *err)
{
        const json_t *json = json_object_get(config, key);
        if (json != NULL && !json_is_null(json) && !json_is_string(json))
                return wrong_type(key, "a string", err);
        *ret = strdup(json_is_string(json) ? json_string_value(json) : "");
        return *ret == NULL ? cubby_error_no_memory(err) : 0;
}

static int check_env(char *const *env, cubby_error *err)
{
        for (; *env != NULL; env++)
                if ((*env)[0] == '=' || strchr(*env, '=') == NULL)
                        return wrong_type("Env", "a list of NAME=VALUE", err);
        return 0;
}

static int read_runtime(const json_t *image, struct image_runtime *runtime, cubby_error *err)
{
        const json_t *config = json_object_get(image, "config");
        if (!json_is_object(image))
                return cubby_error_set(err, CUBBY_E_IMAGE, "the image's config is not an object");
        if (config != NULL && !json_is_null(config) && !json_is_object(config))
                return wrong_type("config", "an object", err);
        if (read_list(config, "Env", &runtime->env, err) < 0 ||
                read_list(config, "Entrypoint", &runtime->entrypoint, err) < 0 ||
                read_list(config, "Cmd", &runtime->command, err) < 0 ||
                read_text(config, "WorkingDir", &runtime->workdir, err) < 0 ||
                read_text(config, "User", &runtime->user, err) < 0 ||
                read_text(config, "StopSignal", &runtime->stop_signal, err) < 0)
                return -1;
        return check_env(runtime->env, err);
}

int image_runtime_parse(const char *config_json, struct image_runtime *ret, cubby_error *err)
{
        AUTO_JSON json_t *image = NULL;
        struct image_runtime runtime = {0};
        size_t size = strnlen(config_json, LIMIT_CONFIG_BYTES + 1);
        if (size > LIMIT_CONFIG_BYTES)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the image's config is larger than %u bytes (LIMIT_CONFIG_BYTES)",
                        LIMIT_CONFIG_BYTES);
        if (json_parse(config_json, size, "image's config", &image, err) < 0)
                return -1;
        if (read_runtime(image, &runtime, err) < 0) {
                image_runtime_clear(&runtime);
                return -1;
        }
        *ret = runtime;
        return 0;
}
