/* SPDX-License-Identifier: Apache-2.0 */
#include "filter.h"
#include "names.h"
#include "values.h"

#include <string.h>

enum filter_kind {
        FILTER_NAME,
        FILTER_ID,
        FILTER_STATUS,
        FILTER_LABEL,
        FILTER_ANCESTOR,
        FILTER_EXITED,
        FILTER_KINDS,
};

static const char *const kind_names[] = {
        "name", "id", "status", "label", "ancestor", "exited", NULL};

static const struct {
        const char *word;
        int state;
} states[] = {
        {"created", CUBBY_BOX_CREATED},
        {"running", CUBBY_BOX_RUNNING},
        {"paused", CUBBY_BOX_PAUSED},
        {"suspended", CUBBY_BOX_SUSPENDED},
        {"stopped", CUBBY_BOX_STOPPED},
        {"exited", CUBBY_BOX_STOPPED},
        {"failed", CUBBY_BOX_FAILED},
        {"dead", CUBBY_BOX_FAILED},
};

static bool parse_state(const char *word, int *ret)
{
        for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
                if (strcmp(states[i].word, word) == 0) {
                        *ret = states[i].state;
                        return true;
                }
        return false;
}

static int parse_term(struct cli *cli, const char *text, struct filter_term *term)
{
        size_t length = strcspn(text, "=");
        uint64_t number = 0;

        if (text[length] == '\0')
                return cli_usage(cli, "--filter: '%s' is not KEY=VALUE", text);
        for (term->kind = 0; term->kind < FILTER_KINDS; term->kind++)
                if (strlen(kind_names[term->kind]) == length &&
                        strncmp(kind_names[term->kind], text, length) == 0)
                        break;
        term->text = text + length + 1;
        if (term->kind == FILTER_KINDS)
                return cli_usage(cli,
                        "--filter: '%.*s' is no key; keys are name, id, status, label, ancestor "
                        "and exited",
                        (int)length, text);
        if (term->kind == FILTER_STATUS && !parse_state(term->text, &term->number))
                return cli_usage(cli,
                        "--filter: '%s' is no status; it can be created, running, paused, "
                        "suspended, "
                        "stopped, exited, failed or dead",
                        term->text);
        if (term->kind == FILTER_EXITED) {
                if (!parse_number(term->text, &number) || number > 255)
                        return cli_usage(
                                cli, "--filter: '%s' is no exit code; from 0 to 255", term->text);
                term->number = (int)number;
        }
        return 0;
}

int box_filter_parse(struct cli *cli, const struct text_list *texts, struct box_filter *ret)
{
        *ret = (struct box_filter){0};
        ret->terms = calloc(texts->count + 1, sizeof(*ret->terms));
        if (ret->terms == NULL)
                return cli_no_memory(cli);
        for (size_t i = 0; i < texts->count; i++) {
                struct filter_term *term = &ret->terms[i];
                int rc = parse_term(cli, texts->items[i], term);

                if (rc == 0 && term->kind == FILTER_NAME &&
                        regcomp(&term->pattern, term->text, REG_EXTENDED | REG_NOSUB) != 0)
                        rc = cli_usage(cli, "--filter: '%s' is no regular expression", term->text);
                if (rc != 0)
                        return rc;
                ret->count++;
        }
        return 0;
}

void box_filter_clear(struct box_filter *filter)
{
        for (size_t i = 0; i < filter->count; i++)
                if (filter->terms[i].kind == FILTER_NAME)
                        regfree(&filter->terms[i].pattern);
        free(filter->terms);
        *filter = (struct box_filter){0};
}

static bool match_label(const char *wanted, const json_t *labels)
{
        size_t length = strcspn(wanted, "=");
        AUTO_FREE char *name = strndup(wanted, length);
        const char *value = name == NULL ? NULL : json_string_value(json_object_get(labels, name));

        if (value == NULL)
                return false;
        return wanted[length] == '\0' || strcmp(wanted + length + 1, value) == 0;
}

static bool match_image(const char *wanted, const cubby_box_info *info)
{
        const char *name = familiar_name(info->image_name);
        const char *id = info->image_id;
        size_t length;

        wanted = familiar_name(wanted);
        length = strlen(wanted);
        if (strncmp(name, wanted, length) == 0 &&
                (name[length] == '\0' || strcmp(name + length, ":latest") == 0))
                return true;
        if (strncmp(wanted, "sha256:", 7) == 0)
                return strncmp(id, wanted, length) == 0;
        return length >= 4 && strlen(id) > 7 && strncmp(id + 7, wanted, length) == 0;
}

static bool match_term(
        const struct filter_term *term, const cubby_box_info *info, const json_t *labels)
{
        switch (term->kind) {
        case FILTER_NAME:
                return regexec(&term->pattern, info->name, 0, NULL, 0) == 0;
        case FILTER_ID:
                return strncmp(info->id, term->text, strlen(term->text)) == 0;
        case FILTER_STATUS:
                return info->state == term->number;
        case FILTER_LABEL:
                return match_label(term->text, labels);
        case FILTER_ANCESTOR:
                return match_image(term->text, info);
        default:
                return info->state == CUBBY_BOX_STOPPED && info->exit_code == term->number;
        }
}

bool box_filter_match(
        const struct box_filter *filter, const cubby_box_info *info, const json_t *labels)
{
        bool asked[FILTER_KINDS] = {false};
        bool matched[FILTER_KINDS] = {false};

        for (size_t i = 0; i < filter->count; i++) {
                const struct filter_term *term = &filter->terms[i];
                bool match = match_term(term, info, labels);

                if (term->kind == FILTER_LABEL && !match)
                        return false;
                asked[term->kind] = true;
                matched[term->kind] = matched[term->kind] || match;
        }
        for (size_t kind = 0; kind < FILTER_KINDS; kind++)
                if (asked[kind] && !matched[kind])
                        return false;
        return true;
}

static bool speaks_of(const struct box_filter *filter, int kind)
{
        for (size_t i = 0; i < filter->count; i++)
                if (filter->terms[i].kind == kind)
                        return true;
        return false;
}

bool box_filter_by_state(const struct box_filter *filter)
{
        return speaks_of(filter, FILTER_STATUS) || speaks_of(filter, FILTER_EXITED);
}

bool box_filter_by_label(const struct box_filter *filter)
{
        return speaks_of(filter, FILTER_LABEL);
}
