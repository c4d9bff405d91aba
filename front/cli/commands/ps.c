/* SPDX-License-Identifier: Apache-2.0 */
#include "../names.h"
#include "../filter.h"
#include "../format.h"
#include "../text.h"
#include "../values.h"
#include "commands.h"

#include <string.h>

struct ps_settings {
        bool all, quiet, no_trunc, latest;
        struct number last;
        struct text_list filters;
        const char *format;
};

#define AT(field) offsetof(struct ps_settings, field)
#define COMMAND_WIDTH 20

static const struct option options[] = {
        {'a', "all", OPTION_FLAG, AT(all), NULL, "also boxes that do not run", 0, 0},
        {'f', "filter", OPTION_LIST, AT(filters), "KEY=VALUE",
                "only those; keys: name, id, status, label, ancestor, exited", 0, 0},
        {0, "format", OPTION_TEXT, AT(format), "FORMAT",
                "table, json, or a template such as '{{.ID}} {{.Names}}'", 0, 0},
        {'n', "last", OPTION_NUMBER, AT(last), "COUNT", "the newest, running or not", 1, 1000000},
        {'l', "latest", OPTION_FLAG, AT(latest), NULL, "the newest one, running or not", 0, 0},
        {0, "no-trunc", OPTION_FLAG, AT(no_trunc), NULL, "whole ids and commands", 0, 0},
        {'q', "quiet", OPTION_FLAG, AT(quiet), NULL, "only ids", 0, 0},
        {'s', "size", OPTION_REFUSED, 0, NULL, "see a box's disk with 'cubby stats'", 0, 0},
        OPTIONS_END,
};

static const struct column columns[] = {
        {"ID", "BOX ID"},
        {"Image", "IMAGE"},
        {"Command", "COMMAND"},
        {"RunningFor", "CREATED"},
        {"Status", "STATUS"},
        {"Names", "NAMES"},
        {"State", NULL},
        {"CreatedAt", NULL},
        {"Labels", NULL},
        {"ImageID", NULL},
        {"Engine", NULL},
        {"Isolation", NULL},
        {"ExitCode", NULL},
        {NULL, NULL},
};

static const char *describe_end(const cubby_box_info *info, int64_t now, char *text, size_t size)
{
        char age[VALUE_TEXT_MAX];
        int64_t seconds = (now - info->finished_ns) / 1000000000;
        const char *ago = info->finished_ns > 0 ? format_age(seconds, age) : "";
        const char *word = info->finished_ns > 0 ? " ago" : "";

        if (info->state == CUBBY_BOX_FAILED)
                (void)snprintf(text, size, "Failed (%s) %s%s", info->reason, ago, word);
        else if (info->exit_code >= 0)
                (void)snprintf(text, size, "Exited (%d) %s%s", info->exit_code, ago, word);
        else if (strcmp(info->reason, "stopped") == 0)
                (void)snprintf(text, size, "Stopped %s%s", ago, word);
        else
                (void)snprintf(text, size, "Stopped (%s) %s%s", info->reason, ago, word);
        return text;
}

static const char *describe(const cubby_box_info *info, char *text, size_t size)
{
        char age[VALUE_TEXT_MAX];
        int64_t now = now_ns();

        if (info->state == CUBBY_BOX_CREATED)
                return "Created";
        if (info->state == CUBBY_BOX_SUSPENDED) {
                (void)snprintf(text, size, "Suspended %s ago",
                        format_age((now - info->finished_ns) / 1000000000, age));
                return text;
        }
        if (info->state == CUBBY_BOX_STOPPED || info->state == CUBBY_BOX_FAILED)
                return describe_end(info, now, text, size);
        (void)snprintf(text, size, "Up %s%s",
                format_age((now - info->started_ns) / 1000000000, age),
                info->state == CUBBY_BOX_PAUSED ? " (Paused)" : "");
        return text;
}

/* "a=1,b=2" */
static char *join_labels(const json_t *labels)
{
        char *joined = strdup("");
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)(uintptr_t)labels, name, value)
        {
                char *longer = NULL;

                if (joined != NULL &&
                        asprintf(&longer, "%s%s%s=%s", joined, *joined == '\0' ? "" : ",", name,
                                json_string_value(value)) < 0)
                        longer = NULL;
                free(joined);
                joined = longer;
        }
        return joined;
}

static json_t *document(const cubby_box_info *info, const char *status, const json_t *labels)
{
        json_t *object = json_object();
        char text[VALUE_TEXT_MAX];

        json_object_set_new(object, "id", json_text(info->id));
        json_object_set_new(object, "name", json_text(info->name));
        json_object_set_new(object, "image", json_text(info->image_name));
        json_object_set_new(object, "image_id", json_text(info->image_id));
        json_object_set_new(object, "command", json_text(info->command));
        json_object_set_new(object, "state", json_text(cubby_box_state_name(info->state)));
        json_object_set_new(object, "status", json_text(status));
        json_object_set_new(object, "exit_code",
                info->exit_code < 0 ? json_null() : json_integer(info->exit_code));
        json_object_set_new(object, "reason", json_text(info->reason));
        json_object_set_new(object, "engine", json_text(info->engine));
        json_object_set_new(object, "isolation", json_text(info->isolation));
        json_object_set_new(object, "labels", json_deep_copy(labels));
        json_object_set_new(object, "created", json_text(format_time(info->created_ns, text)));
        json_object_set_new(object, "started", json_text(format_time(info->started_ns, text)));
        json_object_set_new(object, "finished", json_text(format_time(info->finished_ns, text)));
        return object;
}

static char *quoted_command(const cubby_box_info *info, bool whole)
{
        AUTO_FREE char *safe = text_escape(info->command, false);
        AUTO_FREE char *cut = NULL;
        char *quoted = NULL;

        if (safe == NULL)
                return NULL;
        cut = whole ? strdup(safe) : text_shorten(safe, COMMAND_WIDTH);
        if (cut == NULL || asprintf(&quoted, "\"%s\"", cut) < 0)
                return NULL;
        return quoted;
}

static void add_box(struct list *list, const struct ps_settings *ps, const cubby_box_info *info,
        const json_t *labels)
{
        AUTO_FREE char *command = quoted_command(info, ps->no_trunc);
        AUTO_FREE char *joined = join_labels(labels);
        char status[128];
        char age[VALUE_TEXT_MAX + 8];
        char text[VALUE_TEXT_MAX];
        char id[13];
        const char *words = describe(info, status, sizeof(status));
        json_t *row = list_row(list, document(info, words, labels));

        if (row == NULL || command == NULL || joined == NULL) {
                list->failed = true;
                return;
        }
        (void)snprintf(age, sizeof(age), "%s ago",
                format_age((now_ns() - info->created_ns) / 1000000000, text));
        list_text(list, row, "ID", ps->no_trunc ? info->id : short_id(info->id, id));
        list_text(list, row, "Image", info->image_name);
        list_text(list, row, "Command", command);
        list_text(list, row, "RunningFor", age);
        list_text(list, row, "Status", words);
        list_text(list, row, "Names", info->name);
        list_text(list, row, "State", cubby_box_state_name(info->state));
        list_text(list, row, "CreatedAt", format_time(info->created_ns, text));
        list_text(list, row, "Labels", joined);
        list_text(list, row, "ImageID", info->image_id);
        list_text(list, row, "Engine", info->engine);
        list_text(list, row, "Isolation", info->isolation);
        (void)snprintf(text, sizeof(text), "%d", info->exit_code);
        list_text(list, row, "ExitCode", info->exit_code < 0 ? "" : text);
}

/* Labels stand in the record of a box only. A box that goes meanwhile has none. */
static json_t *labels_of(struct cli *cli, const char *id)
{
        AUTO_BOX cubby_box *box = NULL;
        AUTO_CUBBY_FREE char *text = NULL;
        json_t *record = NULL;
        json_t *labels;

        if (cubby_box_open(cli->cubby, id, &box, NULL) == 0 &&
                cubby_box_inspect(box, &text, NULL) == 0)
                record = json_loads(text, 0, NULL);
        labels = json_object_get(record, "labels");
        if (!json_is_object(labels))
                labels = json_object_get(json_object_get(record, "config"), "labels");
        labels = json_is_object(labels) ? json_incref(labels) : json_object();
        json_decref(record);
        return labels;
}

static int list_boxes(struct cli *cli, const struct ps_settings *ps, struct list *list,
        const struct box_filter *filter)
{
        uint64_t most = ps->latest ? 1 : ps->last.given ? ps->last.value : UINT64_MAX;
        bool all = ps->all || most != UINT64_MAX || box_filter_by_state(filter);
        bool labelled = list_wants(list, "Labels") || box_filter_by_label(filter);
        cubby_box_list *boxes = NULL;
        cubby_error err = {0};
        uint64_t shown = 0;

        if (cubby_boxes(cli->cubby, all, &boxes, &err) < 0)
                return cli_fail_error(cli, &err);
        for (size_t i = 0; i < boxes->count && shown < most; i++) {
                const cubby_box_info *info = &boxes->boxes[i];
                json_t *labels = labelled ? labels_of(cli, info->id) : json_object();

                if (box_filter_match(filter, info, labels)) {
                        add_box(list, ps, info, labels);
                        shown++;
                }
                json_decref(labels);
        }
        cubby_box_list_free(boxes);
        return list_print(list);
}

static int print_boxes(struct cli *cli, const void *settings, struct args args)
{
        const struct ps_settings *ps = settings;
        struct list list = {.cli = cli,
                .format = ps->format,
                .columns = columns,
                .quiet_field = ps->quiet ? "ID" : NULL};
        struct box_filter filter = {0};
        int rc = box_filter_parse(cli, &ps->filters, &filter);

        if (rc == 0)
                rc = list_begin(&list);
        if (rc == 0)
                rc = cli_open(cli);
        if (rc == 0)
                rc = list_boxes(cli, ps, &list, &filter);
        list_clear(&list);
        box_filter_clear(&filter);
        return rc;
}

const struct command command_ps = {
        .name = "ps",
        .usage = "[OPTIONS]",
        .summary = "List boxes",
        .details =
                "Running boxes, with -a all. Filters of one key are alternatives (labels must all "
                "match), different keys must all match. A status is created, running, paused, "
                "suspended, stopped (or exited) or failed (or dead); a name is a regular "
                "expression. "
                "Templates know .ID, .Image, .Command, .RunningFor, .Status, .Names, .State, "
                ".CreatedAt, .Labels, .ImageID, .Engine, .Isolation and .ExitCode.",
        .examples = "cubby ps -a\n"
                    "cubby ps -q --filter label=team=blue\n"
                    "cubby ps --format '{{.Names}}: {{.Status}}'",
        .options = {options},
        .settings_size = sizeof(struct ps_settings),
        .run = print_boxes,
};
