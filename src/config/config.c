/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "config/values.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#define CONFIG_VERSION "1"

enum kind {
        TEXT,
        COUNT,
        SECONDS,
        CPUS,
        CHOICE,
        ENVIRONMENT,
        LIST,
        OWNERSHIP,
        MOUNTS,
        NETWORK,
        IGNORED
};

struct key {
        const char *name;
        enum kind kind;
        size_t offset;
        double min, max;
        const char *const *choices; /* of CHOICE: the value is its place; of TEXT: what it may be */
};

#define AT(field) offsetof(struct provider_config, field)
#define YEAR_SECONDS 31622400.0

static const char *const policies[] = {"soft", "wait", "reject", "burst", NULL};
static const char *const engines[] = {"microvm", "fake", NULL};
static const char *const accels[] = {"auto", "kvm", "tcg", NULL};
static const char *const networks[] = {"none", "public", "open", "allowlist", NULL};

static const struct key keys[] = {
        {"image", TEXT, AT(image), 1, 512, NULL},
        {"memory_mib", COUNT, AT(memory_mib), 64, 4194304, NULL},
        {"cpus", CPUS, AT(cpu_milli), 0.01, 64, NULL},
        {"disk_mib", COUNT, AT(disk_mib), 64, 16777216, NULL},
        {"replicas", COUNT, AT(replicas), 1, 10000, NULL},
        {"idle_timeout", SECONDS, AT(idle_ms), 0, YEAR_SECONDS, NULL},
        {"health_check_skip_seconds", SECONDS, AT(skip_ms), 0, YEAR_SECONDS, NULL},
        {"environment", ENVIRONMENT, AT(environment), 0, 0, NULL},
        {"engine", TEXT, AT(engine), 0, 0, engines},
        {"accel", TEXT, AT(accel), 0, 0, accels},
        {"spares", COUNT, AT(spares), 0, 64, NULL},
        {"warmup", LIST, AT(warmup), 0, CONFIG_WARMUPS_MAX, NULL},
        {"capacity_policy", CHOICE, AT(policy), 0, 0, policies},
        {"overflow_policy", CHOICE, AT(policy), 0, 0, policies},
        {"acquire_timeout", SECONDS, AT(acquire_ms), 0.001, YEAR_SECONDS, NULL},
        {"burst_limit", COUNT, AT(burst_limit), 0, 10000, NULL},
        {"max_boxes", COUNT, AT(max_boxes), 0, 60000, NULL},
        {"pool", TEXT, AT(pool), 1, 40, NULL},
        {"network", TEXT, AT(network), 0, 0, networks},
        {"allow_net", NETWORK, 0, 0, 0, NULL},
        {"deny_net", NETWORK, 0, 0, 0, NULL},
        {"user", TEXT, AT(user), 1, 256, NULL},
        {"workdir", TEXT, AT(workdir), 1, 4096, NULL},
        {"lease_renewal_seconds", SECONDS, AT(renewal_ms), 0.1, 3600, NULL},
        {"lease_ttl_multiplier", COUNT, AT(ttl_multiplier), 2, 100, NULL},
        {"mounts", MOUNTS, 0, 0, 0, NULL},
        {"ownership", OWNERSHIP, 0, 0, 0, NULL},
        /* DeerFlow's own, which mean nothing here */
        {"use", IGNORED, 0, 0, 0, NULL},
        {"allow_host_bash", IGNORED, 0, 0, 0, NULL},
        {"bash_output_max_chars", IGNORED, 0, 0, 0, NULL},
        {"read_file_output_max_chars", IGNORED, 0, 0, 0, NULL},
        {"ls_output_max_chars", IGNORED, 0, 0, 0, NULL},
        {"bash_command_timeout", IGNORED, 0, 0, 0, NULL},
        {"port", IGNORED, 0, 0, 0, NULL},
        {"container_prefix", IGNORED, 0, 0, 0, NULL},
        {"provisioner_url", IGNORED, 0, 0, 0, NULL},
        {"provisioner_api_key", IGNORED, 0, 0, 0, NULL},
        {"api_key", IGNORED, 0, 0, 0, NULL},
        {"thread_data_mounts", IGNORED, 0, 0, 0, NULL},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static void free_list(char **list)
{
        for (size_t i = 0; list != NULL && list[i] != NULL; i++)
                free(list[i]);
        free(list);
}

void provider_config_clear(struct provider_config *config)
{
        if (config == NULL)
                return;
        free(config->image);
        free(config->engine);
        free(config->accel);
        free(config->pool);
        free(config->network);
        free(config->user);
        free(config->workdir);
        free_list(config->environment);
        free_list(config->warmup);
        *config = (struct provider_config){0};
}

int provider_config_defaults(struct provider_config *ret, cubby_error *err)
{
        struct provider_config config = {.image = strdup("python:3.12-slim"),
                .memory_mib = 512,
                .disk_mib = 8192,
                .cpu_milli = 1000,
                .replicas = 3,
                .spares = 1,
                .idle_ms = 600000,
                .acquire_ms = 30000,
                .renewal_ms = 30000,
                .ttl_multiplier = 4,
                .policy = CONFIG_SOFT,
                .engine = strdup("microvm"),
                .accel = strdup("auto"),
                .pool = strdup("cubby"),
                .network = strdup("public")};
        if (config.image == NULL || config.engine == NULL || config.accel == NULL ||
                config.pool == NULL || config.network == NULL) {
                provider_config_clear(&config);
                return cubby_error_no_memory(err);
        }
        *ret = config;
        return 0;
}

/* One text being read. */
struct reading {
        const char *name;
        yaml_document_t *document;
        struct provider_config *config;
        struct buffer *warnings;
        bool seen[KEY_COUNT];
};

static size_t line_of(const yaml_node_t *node)
{
        return node->start_mark.line + 1;
}

static int problem(const struct reading *reading, const yaml_node_t *node, const char *key,
        cubby_error *err, const char *format, ...) __attribute__((format(printf, 5, 6)));
static int problem(const struct reading *reading, const yaml_node_t *node, const char *key,
        cubby_error *err, const char *format, ...)
{
        char text[600];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        return cubby_error_set(err, CUBBY_E_INVALID, "%.200s:%zu: %s: %s", reading->name,
                line_of(node), key, text);
}

static void warn(
        const struct reading *reading, const yaml_node_t *node, const char *key, const char *text)
{
        (void)buffer_printf(
                reading->warnings, "%.200s:%zu: %s: %s\n", reading->name, line_of(node), key, text);
}

static yaml_node_t *node_at(const struct reading *reading, int index)
{
        return yaml_document_get_node(reading->document, index);
}

/* The text of a scalar without a NUL in it; NULL for anything else. */
static const char *scalar(const yaml_node_t *node)
{
        if (node->type != YAML_SCALAR_NODE)
                return NULL;
        const char *text = (const char *)node->data.scalar.value;
        return strlen(text) == node->data.scalar.length ? text : NULL;
}

static bool is_null(const yaml_node_t *node)
{
        const char *text = scalar(node);
        return text != NULL && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static void *field(const struct reading *reading, const struct key *key)
{
        return (char *)reading->config + key->offset;
}

static int set_text(char **place, const char *text, cubby_error *err)
{
        char *copy = strdup(text);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        free(*place);
        *place = copy;
        return 0;
}

static int choice_of(const struct key *key, const char *text)
{
        for (int i = 0; key->choices[i] != NULL; i++)
                if (strcmp(key->choices[i], text) == 0)
                        return i;
        return -1;
}

static int bad_choice(const struct reading *reading, const struct key *key, const yaml_node_t *node,
        const char *text, cubby_error *err)
{
        char list[128] = "";
        for (size_t i = 0, used = 0; key->choices[i] != NULL; i++)
                used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                        i == 0 ? "" : ", ", key->choices[i]);
        return problem(reading, node, key->name, err, "'%.64s' is none of %s", text, list);
}

static int read_text(const struct reading *reading, const struct key *key, const yaml_node_t *node,
        cubby_error *err)
{
        const char *text = scalar(node);
        if (text == NULL)
                return problem(reading, node, key->name, err, "must be a text");
        if (key->choices != NULL && choice_of(key, text) < 0)
                return bad_choice(reading, key, node, text, err);
        size_t length = strlen(text);
        if (key->choices == NULL && ((double)length < key->min || (double)length > key->max))
                return problem(reading, node, key->name, err, "must have %.0f to %.0f characters",
                        key->min, key->max);
        if (key->offset == AT(pool) && !value_is_pool(text))
                return problem(reading, node, key->name, err,
                        "'%.64s' must be of letters, digits, '_' and '.', the first a letter or "
                        "digit",
                        text);
        if (key->offset == AT(workdir) && text[0] != '/')
                return problem(reading, node, key->name, err, "must be an absolute path");
        if (key->offset == AT(network) && strcmp(text, "none") != 0)
                warn(reading, node, key->name, "boxes of this version have no network");
        return set_text(field(reading, key), text, err);
}

static int read_number(const struct reading *reading, const struct key *key,
        const yaml_node_t *node, cubby_error *err)
{
        const char *text = scalar(node);
        double value = 0;
        bool whole = key->kind == COUNT;
        if (text == NULL || !value_number(text, whole, &value))
                return problem(reading, node, key->name, err,
                        "'%.64s' is no %snumber from %.10g to %.10g", text == NULL ? "" : text,
                        whole ? "whole " : "", key->min, key->max);
        if (!(value >= key->min && value <= key->max))
                return problem(reading, node, key->name, err,
                        "%.64s is out of range, it may be from %.10g to %.10g", text, key->min,
                        key->max);
        if (key->kind == SECONDS)
                *(int64_t *)field(reading, key) = (int64_t)(value * 1000 + 0.5);
        else if (key->kind == CPUS)
                *(uint32_t *)field(reading, key) = (uint32_t)(value * 1000 + 0.5);
        else
                *(uint32_t *)field(reading, key) = (uint32_t)value;
        return 0;
}

static int read_choice(const struct reading *reading, const struct key *key,
        const yaml_node_t *node, cubby_error *err)
{
        const char *text = scalar(node);
        int choice = text == NULL ? -1 : choice_of(key, text);
        if (choice < 0)
                return bad_choice(reading, key, node, text == NULL ? "" : text, err);
        *(uint32_t *)field(reading, key) = (uint32_t)choice;
        return 0;
}

/* "$NAME" comes from the host's environment; anything else is as it is. */
static int variable(const struct reading *reading, const yaml_node_t *name_node,
        const yaml_node_t *value_node, char **ret, cubby_error *err)
{
        const char *name = scalar(name_node);
        const char *value = scalar(value_node);
        if (name == NULL || !value_is_variable(name))
                return problem(reading, name_node, "environment", err,
                        "'%.64s' is no name of a variable, which match [A-Za-z_][A-Za-z0-9_]*",
                        name == NULL ? "" : name);
        if (value == NULL)
                return problem(
                        reading, value_node, "environment", err, "%.64s must be a text", name);
        if (value[0] == '$' && value_is_variable(value + 1)) {
                const char *host = getenv(value + 1);
                if (host == NULL)
                        return problem(reading, value_node, "environment", err,
                                "%.64s asks for %.64s, which the host's environment does not have",
                                name, value);
                value = host;
        }
        if (asprintf(ret, "%s=%s", name, value) < 0) {
                *ret = NULL;
                return cubby_error_no_memory(err);
        }
        return 0;
}

static int read_environment(const struct reading *reading, const struct key *key,
        const yaml_node_t *node, cubby_error *err)
{
        if (node->type != YAML_MAPPING_NODE)
                return problem(
                        reading, node, key->name, err, "must be a mapping of names to texts");
        const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
        size_t count = (size_t)(node->data.mapping.pairs.top - pair);
        if (count > CONFIG_ITEMS_MAX)
                return problem(reading, node, key->name, err, "has more than %u variables",
                        CONFIG_ITEMS_MAX);
        char **list = calloc(count + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++)
                if (variable(reading, node_at(reading, pair[i].key),
                            node_at(reading, pair[i].value), &list[i], err) < 0) {
                        free_list(list);
                        return -1;
                }
        free_list(reading->config->environment);
        reading->config->environment = list;
        return 0;
}

static bool is_command(const char *text)
{
        return text[0] != '\0' && text[0] != '#' && strchr(text, '\n') == NULL &&
                text[strspn(text, " ")] != '\0' && strlen(text) <= CONFIG_WARMUP_BYTES_MAX;
}

static int read_list(const struct reading *reading, const struct key *key, const yaml_node_t *node,
        cubby_error *err)
{
        if (node->type != YAML_SEQUENCE_NODE)
                return problem(reading, node, key->name, err, "must be a list of texts");
        const yaml_node_item_t *item = node->data.sequence.items.start;
        size_t count = (size_t)(node->data.sequence.items.top - item);
        if ((double)count > key->max)
                return problem(
                        reading, node, key->name, err, "has more than %.0f entries", key->max);
        char **list = calloc(count + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        for (size_t i = 0; i < count; i++) {
                const yaml_node_t *entry = node_at(reading, item[i]);
                const char *text = scalar(entry);
                bool good = text != NULL && is_command(text);
                if (good)
                        list[i] = strdup(text);
                if (list[i] == NULL) {
                        int result = good ? cubby_error_no_memory(err)
                                          : problem(reading, entry, key->name, err,
                                                    "must be a list of texts, each a command in "
                                                    "one line");
                        free_list(list);
                        return result;
                }
        }
        free_list(reading->config->warmup);
        reading->config->warmup = list;
        return 0;
}

static void read_ownership(const struct reading *reading, const yaml_node_t *node)
{
        if (node->type != YAML_MAPPING_NODE)
                return;
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
                pair < node->data.mapping.pairs.top; pair++) {
                const char *name = scalar(node_at(reading, pair->key));
                const char *value = scalar(node_at(reading, pair->value));
                if (name != NULL && value != NULL && strcmp(name, "type") == 0 &&
                        strcmp(value, "redis") == 0)
                        warn(reading, node, "ownership",
                                "leases are in this host's home, not in Redis; it is ignored");
        }
}

static int read_key(const struct reading *reading, const struct key *key, const yaml_node_t *node,
        cubby_error *err)
{
        switch (key->kind) {
        case TEXT:
                return read_text(reading, key, node, err);
        case COUNT:
        case SECONDS:
        case CPUS:
                return read_number(reading, key, node, err);
        case CHOICE:
                return read_choice(reading, key, node, err);
        case ENVIRONMENT:
                return read_environment(reading, key, node, err);
        case LIST:
                return read_list(reading, key, node, err);
        case OWNERSHIP:
                read_ownership(reading, node);
                return 0;
        case MOUNTS:
                warn(reading, node, "mounts", "host folders are not mounted into boxes");
                return 0;
        case NETWORK:
                warn(reading, node, key->name, "boxes of this version have no network");
                return 0;
        case IGNORED:
        default:
                return 0;
        }
}

static int unknown_key(
        const struct reading *reading, const yaml_node_t *node, const char *name, cubby_error *err)
{
        const char *known[KEY_COUNT + 1] = {NULL};
        for (size_t i = 0; i < KEY_COUNT; i++)
                known[i] = keys[i].name;
        const char *nearest = value_nearest(name, known);
        char shown[80];
        (void)snprintf(shown, sizeof shown, "%.64s", name);
        return problem(
                reading, node, shown, err, "unknown key; the nearest known one is '%s'", nearest);
}

static int read_pair(struct reading *reading, const yaml_node_pair_t *pair, cubby_error *err)
{
        const yaml_node_t *name_node = node_at(reading, pair->key);
        const yaml_node_t *value = node_at(reading, pair->value);
        const char *name = scalar(name_node);
        if (name == NULL)
                return problem(reading, name_node, "sandbox", err, "a key must be a text");
        for (size_t i = 0; i < KEY_COUNT; i++) {
                if (strcmp(keys[i].name, name) != 0)
                        continue;
                if (reading->seen[i])
                        return problem(reading, name_node, name, err, "is there twice");
                reading->seen[i] = true;
                return is_null(value) ? 0 : read_key(reading, &keys[i], value, err);
        }
        return unknown_key(reading, name_node, name, err);
}

static int read_section(struct reading *reading, const yaml_node_t *node, cubby_error *err)
{
        if (is_null(node))
                return 0;
        if (node->type != YAML_MAPPING_NODE)
                return problem(reading, node, "sandbox", err, "must be a mapping");
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
                pair < node->data.mapping.pairs.top; pair++)
                if (read_pair(reading, pair, err) < 0)
                        return -1;
        return 0;
}

static int read_document(struct reading *reading, cubby_error *err)
{
        const yaml_node_t *root = yaml_document_get_root_node(reading->document);
        bool found = false;
        if (root == NULL || is_null(root))
                return 0;
        if (root->type != YAML_MAPPING_NODE)
                return problem(reading, root, "the file", err, "must be a mapping with 'sandbox'");
        for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
                pair < root->data.mapping.pairs.top; pair++) {
                const char *name = scalar(node_at(reading, pair->key));
                const yaml_node_t *value = node_at(reading, pair->value);
                if (name != NULL && strcmp(name, "version") == 0) {
                        const char *version = scalar(value);
                        if (version == NULL || strcmp(version, CONFIG_VERSION) != 0)
                                return problem(reading, value, "version", err,
                                        "this Cubby reads version " CONFIG_VERSION " only");
                }
                if (name == NULL || strcmp(name, "sandbox") != 0)
                        continue;
                if (found)
                        return problem(reading, value, "sandbox", err, "is there twice");
                found = true;
                if (read_section(reading, value, err) < 0)
                        return -1;
        }
        return 0;
}

static int no_yaml(const yaml_parser_t *parser, const char *name, cubby_error *err)
{
        if (parser->error == YAML_MEMORY_ERROR)
                return cubby_error_no_memory(err);
        return cubby_error_set(err, CUBBY_E_INVALID, "%.200s:%zu: no YAML: %s", name,
                parser->problem_mark.line + 1,
                parser->problem == NULL ? "it cannot be read" : parser->problem);
}

/* The depth and the anchors of a document so far. */
struct shape {
        unsigned depth, anchors;
        bool ended;
};

static void count_event(const yaml_event_t *event, struct shape *shape)
{
        switch (event->type) {
        case YAML_SEQUENCE_START_EVENT:
                shape->depth++;
                shape->anchors += event->data.sequence_start.anchor != NULL;
                break;
        case YAML_MAPPING_START_EVENT:
                shape->depth++;
                shape->anchors += event->data.mapping_start.anchor != NULL;
                break;
        case YAML_SCALAR_EVENT:
                shape->anchors += event->data.scalar.anchor != NULL;
                break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
                shape->depth--;
                break;
        case YAML_DOCUMENT_END_EVENT:
        case YAML_STREAM_END_EVENT:
                shape->ended = true;
                break;
        case YAML_NO_EVENT:
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_ALIAS_EVENT:
        default:
                break;
        }
}

/* libyaml's time grows with the square of depth and anchors: a document that has many
 * is refused before it is loaded. */
static int check_shape(const char *text, size_t size, const char *name, cubby_error *err)
{
        yaml_parser_t parser;
        struct shape shape = {0};
        if (yaml_parser_initialize(&parser) != 1)
                return cubby_error_no_memory(err);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
        int result = 0;
        while (result == 0 && !shape.ended) {
                yaml_event_t event;
                if (yaml_parser_parse(&parser, &event) != 1) {
                        result = no_yaml(&parser, name, err);
                        break;
                }
                count_event(&event, &shape);
                if (shape.depth > CONFIG_DEPTH_MAX || shape.anchors > CONFIG_ANCHORS_MAX)
                        result = cubby_error_set(err, CUBBY_E_LIMIT,
                                "%.200s:%zu: more than %u levels or %u anchors", name,
                                event.start_mark.line + 1, CONFIG_DEPTH_MAX, CONFIG_ANCHORS_MAX);
                yaml_event_delete(&event);
        }
        yaml_parser_delete(&parser);
        return result;
}

static int load(
        const char *text, size_t size, const char *name, yaml_document_t *ret, cubby_error *err)
{
        yaml_parser_t parser;
        if (check_shape(text, size, name, err) < 0)
                return -1;
        if (yaml_parser_initialize(&parser) != 1)
                return cubby_error_no_memory(err);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
        int result = yaml_parser_load(&parser, ret) == 1 ? 0 : no_yaml(&parser, name, err);
        yaml_parser_delete(&parser);
        return result;
}

int provider_config_parse(const char *text, size_t size, const char *name,
        struct provider_config *ret, struct buffer *warnings, cubby_error *err)
{
        struct provider_config config = {0};
        yaml_document_t document;
        if (size > CONFIG_BYTES_MAX)
                return cubby_error_set(
                        err, CUBBY_E_LIMIT, "%.200s: larger than %u bytes", name, CONFIG_BYTES_MAX);
        if (provider_config_defaults(&config, err) < 0)
                return -1;
        struct reading reading = {
                .name = name, .document = &document, .config = &config, .warnings = warnings};
        int result = load(text, size, name, &document, err);
        if (result == 0) {
                result = read_document(&reading, err);
                yaml_document_delete(&document);
        }
        if (result < 0) {
                provider_config_clear(&config);
                return -1;
        }
        *ret = config;
        return 0;
}

int provider_config_read(
        const char *path, struct provider_config *ret, struct buffer *warnings, cubby_error *err)
{
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, CONFIG_BYTES_MAX);
        struct stat info;
        if (stat(path, &info) < 0)
                return cubby_error_errno(err, errno, "reading '%s'", path);
        if (!S_ISREG(info.st_mode))
                return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is no file", path);
        if (file_read_at(AT_FDCWD, path, &text, err) < 0)
                return cubby_error_wrap(err, "reading '%s'", path);
        return provider_config_parse((const char *)text.data, text.size, path, ret, warnings, err);
}
