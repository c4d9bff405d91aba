/* SPDX-License-Identifier: Apache-2.0 */
#include "box/config.h"

#include "base/cleanup.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define NAME_LENGTH_MAX 63
#define HEX_DIGITS "0123456789abcdef"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define EXIT_BYTES_MAX (64U << 10)

static inline void cleanup_json(json_t **json)
{
        json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json)))

static void free_list(char **list)
{
        for (size_t i = 0; list != NULL && list[i] != NULL; i++)
                free(list[i]);
        free(list);
}

void box_config_clear(struct box_config *config)
{
        if (config == NULL)
                return;
        free(config->id);
        free(config->name);
        free(config->hostname);
        free(config->image_id);
        free(config->image_name);
        free(config->engine);
        free(config->accel);
        free(config->kernel);
        free(config->warmup);
        free_list(config->argv);
        free_list(config->env);
        free_list(config->labels);
        free(config->workdir);
        free(config->user);
        free(config->stop_signal);
        *config = (struct box_config){0};
}

int box_signal_number(const char *name)
{
        if (name[0] >= '1' && name[0] <= '9') {
                char *end = NULL;
                long number = strtol(name, &end, 10);
                return *end == '\0' && number <= SIGRTMAX ? (int)number : -1;
        }
        if (strncmp(name, "SIG", 3) == 0)
                name += 3;
        if (strncmp(name, "RTMIN", 5) == 0 || strncmp(name, "RTMAX", 5) == 0) {
                int base = name[4] == 'N' ? SIGRTMIN : SIGRTMAX;
                const char *rest = name + 5;
                if (*rest == '\0')
                        return base;
                if (*rest != (base == SIGRTMIN ? '+' : '-') || rest[1] < '0' || rest[1] > '9')
                        return -1;
                char *end = NULL;
                long offset = strtol(rest + 1, &end, 10);
                if (*end != '\0' || offset > SIGRTMAX - SIGRTMIN)
                        return -1;
                return base == SIGRTMIN ? base + (int)offset : base - (int)offset;
        }
        for (int number = 1; number < SIGRTMIN; number++) {
                const char *known = sigabbrev_np(number);
                if (known != NULL && strcmp(known, name) == 0)
                        return number;
        }
        return -1;
}

static int wrong(cubby_error *err, const char *field, const char *rule)
{
        return cubby_error_set(err, CUBBY_E_INVALID, "%s %s", field, rule);
}

static bool made_of(const char *text, const char *set, size_t minimum, size_t maximum)
{
        if (text == NULL)
                return false;
        size_t length = strspn(text, set);
        return text[length] == '\0' && length >= minimum && length <= maximum;
}

static int check_range(cubby_error *err, const char *field, uint64_t value, uint64_t minimum,
        uint64_t maximum, const char *unit)
{
        if (value >= minimum && value <= maximum)
                return 0;
        return cubby_error_set(err, CUBBY_E_INVALID,
                "%s must be from %" PRIu64 " to %" PRIu64 " %s, not %" PRIu64, field, minimum,
                maximum, unit, value);
}

static int check_text(cubby_error *err, const char *field, const char *text, size_t maximum)
{
        if (text == NULL || strlen(text) > maximum)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "%s must be a text of at most %zu bytes", field, maximum);
        return 0;
}

static int check_list(char *const *list, const char *field, size_t entries_max, bool pairs,
        size_t *bytes, cubby_error *err)
{
        size_t count = 0;
        for (; list != NULL && list[count] != NULL; count++) {
                size_t length = strlen(list[count]);
                if (count >= entries_max)
                        return cubby_error_set(err, CUBBY_E_INVALID, "%s has more than %zu entries",
                                field, entries_max);
                if (length >= WIRE_ARGUMENT_MAX)
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "%s has an entry of %zu bytes; %u are allowed", field, length,
                                WIRE_ARGUMENT_MAX - 1);
                if (pairs && (list[count][0] == '=' || strchr(list[count], '=') == NULL))
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "%s has an entry that is not NAME=VALUE: '%.64s'", field,
                                list[count]);
                *bytes += length + 5; /* as the wire counts it */
        }
        if (*bytes > BOX_ARGUMENT_BYTES_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "command and environment are larger than the allowed %u bytes",
                        BOX_ARGUMENT_BYTES_MAX);
        return 0;
}

static int check_names(const struct box_config *config, cubby_error *err)
{
        if (!made_of(config->id, HEX_DIGITS, 32, 32))
                return wrong(err, "the id", "must be 32 hex digits");
        if (!made_of(config->name, LETTERS DIGITS "_.-", 1, NAME_LENGTH_MAX) ||
                strchr("_.-", config->name[0]) != NULL)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the name '%.64s' must be letters, digits, '_', '.' and '-', "
                        "at most %d, the first a letter or digit",
                        config->name == NULL ? "" : config->name, NAME_LENGTH_MAX);
        if (!made_of(config->hostname, LETTERS DIGITS ".-", 1, 63) || config->hostname[0] == '-' ||
                config->hostname[0] == '.')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the hostname '%.64s' must be letters, digits, '-' and '.', at most 63",
                        config->hostname == NULL ? "" : config->hostname);
        if (config->image_id == NULL || strncmp(config->image_id, "sha256:", 7) != 0 ||
                !made_of(config->image_id + 7, HEX_DIGITS, 64, 64))
                return wrong(err, "the image id", "must be sha256: and 64 hex digits");
        if (!made_of(config->engine, "abcdefghijklmnopqrstuvwxyz", 1, 16))
                return wrong(err, "the engine", "must be a short word such as microvm");
        if (config->accel == NULL ||
                (strcmp(config->accel, "auto") != 0 && strcmp(config->accel, "kvm") != 0 &&
                        strcmp(config->accel, "tcg") != 0))
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the accelerator must be auto, kvm or tcg, not '%.64s'",
                        config->accel == NULL ? "" : config->accel);
        if (!made_of(config->kernel, LETTERS DIGITS "_.+~-", 0, 128) || config->kernel[0] == '.')
                return wrong(err, "the kernel", "must be a version");
        return 0;
}

static int check_numbers(const struct box_config *config, cubby_error *err)
{
        if (check_range(err, "memory", config->memory_bytes, BOX_MEMORY_MIN, BOX_MEMORY_MAX,
                    "bytes") < 0 ||
                check_range(err, "the disk", config->disk_bytes, BOX_DISK_MIN, BOX_DISK_MAX,
                        "bytes") < 0 ||
                check_range(err, "cpus", config->cpu_milli, BOX_CPU_MILLI_MIN, BOX_CPU_MILLI_MAX,
                        "thousandths of a CPU") < 0 ||
                check_range(err, "the process limit", config->pids_max, BOX_PIDS_MIN, BOX_PIDS_MAX,
                        "processes") < 0 ||
                check_range(err, "the slot", config->slot, 1, BOX_SLOT_MAX, "") < 0)
                return -1;
        if (config->memory_bytes % (1U << 20) != 0 || config->disk_bytes % (1U << 20) != 0)
                return wrong(err, "memory and disk", "must be whole MiB");
        if (config->ttl_ms < 0 || config->ttl_ms > BOX_TIME_MAX_MS)
                return wrong(err, "the time to live", "must be from 0 to 366 days");
        if (config->boot_timeout_ms < 1 || config->boot_timeout_ms > BOX_TIME_MAX_MS)
                return wrong(err, "the boot timeout", "must be from 1 ms to 366 days");
        if (config->created_ns < 0)
                return wrong(err, "the time of creation", "must not be negative");
        return 0;
}

int box_config_check(const struct box_config *config, cubby_error *err)
{
        if (check_names(config, err) < 0 || check_numbers(config, err) < 0 ||
                check_text(err, "the image name", config->image_name, WIRE_TEXT_MAX) < 0 ||
                check_text(err, "the user", config->user, 256) < 0 ||
                check_text(err, "the working directory", config->workdir, WIRE_TEXT_MAX) < 0 ||
                check_text(err, "the stop signal", config->stop_signal, 32) < 0 ||
                (config->warmup != NULL &&
                        check_text(err, "the warm-up", config->warmup, BOX_WARMUP_BYTES_MAX) < 0))
                return -1;
        if (config->workdir[0] != '\0' && config->workdir[0] != '/')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the working directory '%.128s' must be an absolute path", config->workdir);
        if (box_signal_number(config->stop_signal) < 0)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is no signal, write for example SIGTERM", config->stop_signal);
        size_t bytes = 0;
        size_t label_bytes = 0;
        if (check_list(config->argv, "the command", WIRE_ARGUMENTS_MAX, false, &bytes, err) < 0 ||
                check_list(config->env, "the environment", WIRE_ARGUMENTS_MAX, true, &bytes, err) <
                        0 ||
                check_list(config->labels, "labels", BOX_LABELS_MAX, true, &label_bytes, err) < 0)
                return -1;
        return 0;
}

static int pack_list(char *const *list, json_t **ret, cubby_error *err)
{
        AUTO_JSON json_t *array = json_array();
        for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
                json_t *text = json_string(list[i]);
                if (text == NULL)
                        return cubby_error_set(
                                err, CUBBY_E_INVALID, "'%.64s' is not UTF-8", list[i]);
                if (json_array_append_new(array, text) < 0)
                        return cubby_error_no_memory(err);
        }
        if (array == NULL)
                return cubby_error_no_memory(err);
        *ret = take_ptr(&array);
        return 0;
}

static int dump(json_t *root, size_t maximum, struct buffer *ret, cubby_error *err)
{
        AUTO_FREE char *text = json_dumps(root, JSON_INDENT(1));
        if (text == NULL)
                return cubby_error_no_memory(err);
        if (strlen(text) > maximum)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "the record is larger than %zu bytes", maximum);
        if (!buffer_append_text(ret, text))
                return cubby_error_no_memory(err);
        return 0;
}

int box_config_encode(const struct box_config *config, struct buffer *ret_json, cubby_error *err)
{
        if (box_config_check(config, err) < 0)
                return -1;
        AUTO_JSON json_t *argv = NULL;
        AUTO_JSON json_t *env = NULL;
        AUTO_JSON json_t *labels = NULL;
        if (pack_list(config->argv, &argv, err) < 0 || pack_list(config->env, &env, err) < 0 ||
                pack_list(config->labels, &labels, err) < 0)
                return -1;
        json_error_t problem;
        AUTO_JSON json_t *root = json_pack_ex(&problem, 0,
                "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:O, s:O, s:s, s:s, s:s,"
                " s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
                "version", BOX_CONFIG_VERSION, "id", config->id, "name", config->name, "hostname",
                config->hostname, "image_id", config->image_id, "image_name", config->image_name,
                "engine", config->engine, "accel", config->accel, "kernel", config->kernel, "argv",
                argv, "env", env, "labels", labels, "workdir", config->workdir, "user",
                config->user, "stop_signal", config->stop_signal, "tty", config->tty, "open_stdin",
                config->open_stdin, "auto_remove", config->auto_remove, "no_template",
                config->no_template, "memory_bytes", (json_int_t)config->memory_bytes, "cpu_milli",
                (json_int_t)config->cpu_milli, "disk_bytes", (json_int_t)config->disk_bytes,
                "pids_max", (json_int_t)config->pids_max, "ttl_ms", (json_int_t)config->ttl_ms,
                "boot_timeout_ms", (json_int_t)config->boot_timeout_ms, "slot",
                (json_int_t)config->slot, "created_ns", (json_int_t)config->created_ns, "warmup",
                config->warmup == NULL ? "" : config->warmup);
        if (root == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the image name, user, working directory or warm-up is not UTF-8");
        return dump(root, BOX_CONFIG_BYTES_MAX, ret_json, err);
}

static int unpack_list(json_t *array, size_t maximum, char ***ret, cubby_error *err)
{
        size_t count = json_array_size(array);
        if (!json_is_array(array) || count > maximum)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a list is too long or none");
        char **list = calloc(count + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                const char *text = json_string_value(json_array_get(array, i));
                list[i] = text == NULL ? NULL : strdup(text);
                if (list[i] == NULL) {
                        free_list(list);
                        return text == NULL
                                ? cubby_error_set(err, CUBBY_E_CORRUPT, "a list holds no text")
                                : cubby_error_no_memory(err);
                }
        }
        *ret = list;
        return 0;
}

static json_t *load(const void *json, size_t size, cubby_error *err)
{
        json_error_t problem;
        json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &problem);
        if (root == NULL)
                (void)cubby_error_set(err, CUBBY_E_CORRUPT, "it is no JSON: %s", problem.text);
        return root;
}

static int check_version(json_t *root, cubby_error *err)
{
        json_int_t version = 0;
        if (json_unpack(root, "{s:I}", "version", &version) < 0 || version < 1)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "it has no version");
        if (version != BOX_CONFIG_VERSION)
                return cubby_error_set(err, CUBBY_E_VERSION, "it is of version %lld, this is %d",
                        (long long)version, BOX_CONFIG_VERSION);
        return 0;
}

/* The fields as they stand in the JSON, before they are believed. */
struct raw {
        json_t *argv, *env, *labels;
        const char *id, *name, *hostname, *image_id, *image_name, *engine, *accel, *kernel;
        const char *workdir, *user, *stop_signal, *warmup;
        json_int_t memory_bytes, cpu_milli, disk_bytes, pids_max, ttl_ms, boot_timeout_ms, slot;
        json_int_t created_ns, version;
        int tty, open_stdin, auto_remove, no_template;
};

static int unpack(json_t *root, struct raw *raw, cubby_error *err)
{
        json_error_t problem;
        if (json_unpack_ex(root, &problem, JSON_STRICT,
                    "{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:s,"
                    " s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s?:s}",
                    "version", &raw->version, "id", &raw->id, "name", &raw->name, "hostname",
                    &raw->hostname, "image_id", &raw->image_id, "image_name", &raw->image_name,
                    "engine", &raw->engine, "accel", &raw->accel, "kernel", &raw->kernel, "argv",
                    &raw->argv, "env", &raw->env, "labels", &raw->labels, "workdir", &raw->workdir,
                    "user", &raw->user, "stop_signal", &raw->stop_signal, "tty", &raw->tty,
                    "open_stdin", &raw->open_stdin, "auto_remove", &raw->auto_remove, "no_template",
                    &raw->no_template, "memory_bytes", &raw->memory_bytes, "cpu_milli",
                    &raw->cpu_milli, "disk_bytes", &raw->disk_bytes, "pids_max", &raw->pids_max,
                    "ttl_ms", &raw->ttl_ms, "boot_timeout_ms", &raw->boot_timeout_ms, "slot",
                    &raw->slot, "created_ns", &raw->created_ns, "warmup", &raw->warmup) < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", problem.text);
        if (raw->memory_bytes < 0 || raw->cpu_milli < 0 || raw->cpu_milli > UINT32_MAX ||
                raw->disk_bytes < 0 || raw->pids_max < 0 || raw->pids_max > UINT32_MAX ||
                raw->slot < 0 || raw->slot > UINT32_MAX)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a number is out of range");
        return 0;
}

static int fill(const struct raw *raw, struct box_config *config, cubby_error *err)
{
        *config = (struct box_config){
                .id = strdup(raw->id),
                .name = strdup(raw->name),
                .hostname = strdup(raw->hostname),
                .image_id = strdup(raw->image_id),
                .image_name = strdup(raw->image_name),
                .engine = strdup(raw->engine),
                .accel = strdup(raw->accel),
                .kernel = strdup(raw->kernel),
                .workdir = strdup(raw->workdir),
                .user = strdup(raw->user),
                .stop_signal = strdup(raw->stop_signal),
                .warmup = strdup(raw->warmup == NULL ? "" : raw->warmup),
                .tty = raw->tty != 0,
                .open_stdin = raw->open_stdin != 0,
                .auto_remove = raw->auto_remove != 0,
                .no_template = raw->no_template != 0,
                .memory_bytes = (uint64_t)raw->memory_bytes,
                .cpu_milli = (uint32_t)raw->cpu_milli,
                .disk_bytes = (uint64_t)raw->disk_bytes,
                .pids_max = (uint32_t)raw->pids_max,
                .ttl_ms = raw->ttl_ms,
                .boot_timeout_ms = raw->boot_timeout_ms,
                .slot = (uint32_t)raw->slot,
                .created_ns = raw->created_ns,
        };
        if (config->id == NULL || config->name == NULL || config->hostname == NULL ||
                config->image_id == NULL || config->image_name == NULL || config->engine == NULL ||
                config->accel == NULL || config->kernel == NULL || config->workdir == NULL ||
                config->user == NULL || config->stop_signal == NULL || config->warmup == NULL)
                return cubby_error_no_memory(err);
        if (unpack_list(raw->argv, WIRE_ARGUMENTS_MAX, &config->argv, err) < 0 ||
                unpack_list(raw->env, WIRE_ARGUMENTS_MAX, &config->env, err) < 0 ||
                unpack_list(raw->labels, BOX_LABELS_MAX, &config->labels, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (box_config_check(config, &problem) < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", problem.message);
        return 0;
}

int box_config_decode(const void *json, size_t size, struct box_config *ret, cubby_error *err)
{
        if (size > BOX_CONFIG_BYTES_MAX)
                return cubby_error_set(err, CUBBY_E_CORRUPT,
                        "reading the box's config: it is larger than %u bytes",
                        BOX_CONFIG_BYTES_MAX);
        AUTO_JSON json_t *root = load(json, size, err);
        struct raw raw = {0};
        struct box_config config = {0};
        if (root == NULL || check_version(root, err) < 0 || unpack(root, &raw, err) < 0 ||
                fill(&raw, &config, err) < 0) {
                box_config_clear(&config);
                return cubby_error_wrap(err, "reading the box's config");
        }
        *ret = config;
        return 0;
}

/* Text that came from a guest may hold anything; JSON holds UTF-8 only. */
static json_t *any_text(const char *text)
{
        json_t *string = json_string(text);
        if (string != NULL)
                return string;
        AUTO_FREE char *ascii = strdup(text);
        if (ascii == NULL)
                return NULL;
        for (char *c = ascii; *c != '\0'; c++)
                if (*c < ' ' || *c > '~')
                        *c = '?';
        return json_string(ascii);
}

static int check_exit(const struct box_exit *exit, cubby_error *err)
{
        if (!made_of(exit->reason, "abcdefghijklmnopqrstuvwxyz-", 1, sizeof exit->reason - 1) ||
                !made_of(exit->isolation, "abcdefghijklmnopqrstuvwxyz", 0,
                        sizeof exit->isolation - 1))
                return wrong(err, "the reason or isolation", "is no word");
        if (exit->exit_code < -1 || exit->exit_code > 255 || exit->signal < 0 ||
                exit->signal > 64 || exit->started_ns < 0 || exit->finished_ns < 0 ||
                exit->generation > INT64_MAX)
                return wrong(err, "a number", "is out of range");
        return 0;
}

int box_exit_encode(const struct box_exit *exit, struct buffer *ret_json, cubby_error *err)
{
        if (check_exit(exit, err) < 0)
                return cubby_error_wrap(err, "recording the end of the box");
        AUTO_JSON json_t *root = json_pack("{s:i, s:s, s:o, s:i, s:i, s:b, s:I, s:I, s:I, s:s}",
                "version", BOX_CONFIG_VERSION, "reason", exit->reason, "detail",
                any_text(exit->detail), "exit_code", exit->exit_code, "signal", exit->signal, "oom",
                exit->oom, "started_ns", (json_int_t)exit->started_ns, "finished_ns",
                (json_int_t)exit->finished_ns, "generation", (json_int_t)exit->generation,
                "isolation", exit->isolation);
        if (root == NULL)
                return cubby_error_no_memory(err);
        return dump(root, EXIT_BYTES_MAX, ret_json, err);
}

static int unpack_exit(json_t *root, struct box_exit *exit, cubby_error *err)
{
        json_error_t problem;
        const char *reason = NULL;
        const char *detail = NULL;
        const char *isolation = NULL;
        json_int_t version = 0;
        json_int_t exit_code = 0;
        json_int_t signal = 0;
        int oom = 0;
        json_int_t started_ns = 0;
        json_int_t finished_ns = 0;
        json_int_t generation = 0;
        if (json_unpack_ex(root, &problem, JSON_STRICT,
                    "{s:I, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:s}", "version", &version,
                    "reason", &reason, "detail", &detail, "exit_code", &exit_code, "signal",
                    &signal, "oom", &oom, "started_ns", &started_ns, "finished_ns", &finished_ns,
                    "generation", &generation, "isolation", &isolation) < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", problem.text);
        if (exit_code < -1 || exit_code > 255 || signal < 0 || signal > 64)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a number is out of range");
        exit->exit_code = (int)exit_code;
        exit->signal = (int)signal;
        if (strlen(reason) >= sizeof exit->reason || strlen(detail) >= sizeof exit->detail ||
                strlen(isolation) >= sizeof exit->isolation)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "a text is too long");
        (void)snprintf(exit->reason, sizeof exit->reason, "%s", reason);
        (void)snprintf(exit->detail, sizeof exit->detail, "%s", detail);
        (void)snprintf(exit->isolation, sizeof exit->isolation, "%s", isolation);
        exit->oom = oom != 0;
        exit->started_ns = started_ns;
        exit->finished_ns = finished_ns;
        exit->generation = (uint64_t)generation;
        cubby_error rule = {0};
        if (check_exit(exit, &rule) < 0)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", rule.message);
        return 0;
}

int box_exit_decode(const void *json, size_t size, struct box_exit *ret, cubby_error *err)
{
        if (size > EXIT_BYTES_MAX)
                return cubby_error_set(err, CUBBY_E_CORRUPT, "the box's exit record is too large");
        AUTO_JSON json_t *root = load(json, size, err);
        struct box_exit exit = {0};
        if (root == NULL || check_version(root, err) < 0 || unpack_exit(root, &exit, err) < 0)
                return cubby_error_wrap(err, "reading the box's exit record");
        *ret = exit;
        return 0;
}
