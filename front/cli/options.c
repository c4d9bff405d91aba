/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"
#include "cli.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

struct parser {
        struct cli *cli;
        const struct command *command;
        void *settings;
        int argc;
        char **argv;
        int next; /* the word after the present one */
};

bool text_list_add(struct text_list *list, const char *text)
{
        const char **grown;

        if (list->count >= LIST_MAX)
                return false;
        grown = reallocarray(list->items, list->count + 2, sizeof(*grown));
        if (grown == NULL)
                return false;
        list->items = grown;
        list->items[list->count++] = text;
        list->items[list->count] = NULL;
        return true;
}

const struct option *option_at(const struct command *command, size_t index)
{
        for (const struct option *const *table = command->options; *table != NULL; table++)
                for (const struct option *option = *table; option->kind != OPTION_END; option++)
                        if (index-- == 0)
                                return option;
        return NULL;
}

void options_clear(const struct command *command, void *settings)
{
        const struct option *option;

        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++)
                if (option->kind == OPTION_LIST) {
                        struct text_list *list =
                                (struct text_list *)(void *)((char *)settings + option->offset);

                        free(list->items);
                        *list = (struct text_list){0};
                }
}

struct value_kind {
        bool (*parse)(const char *text, uint64_t *ret);
        const char *noun;
        const char *example;
};

static const struct value_kind *value_kind(enum option_kind kind)
{
        static const struct value_kind size = {parse_size, "a size", "512M or 2G"};
        static const struct value_kind duration = {
                parse_duration, "a duration", "30s, 1m30s or 500ms"};
        static const struct value_kind seconds = {parse_seconds, "a duration", "10, 30s or 1m30s"};
        static const struct value_kind cpus = {parse_cpus, "a number of CPUs", "1, 2 or 1.5"};
        static const struct value_kind number = {parse_number, "a whole number", "10"};

        switch (kind) {
        case OPTION_SIZE:
                return &size;
        case OPTION_DURATION:
                return &duration;
        case OPTION_SECONDS:
                return &seconds;
        case OPTION_CPUS:
                return &cpus;
        case OPTION_NUMBER:
        case OPTION_END:
        case OPTION_FLAG:
        case OPTION_TEXT:
        case OPTION_LIST:
        case OPTION_REFUSED:
                break;
        }
        return &number;
}

static void format_limit(enum option_kind kind, uint64_t value, char *text, size_t size)
{
        if (kind == OPTION_SIZE && value >= (1U << 30))
                (void)snprintf(text, size, "%lluG", (unsigned long long)(value >> 30));
        else if (kind == OPTION_SIZE && value >= (1U << 20))
                (void)snprintf(text, size, "%lluM", (unsigned long long)(value >> 20));
        else if (kind == OPTION_CPUS)
                (void)snprintf(text, size, "%g", (double)value / 1000);
        else if (kind == OPTION_DURATION || kind == OPTION_SECONDS)
                if (value >= 86400000)
                        (void)snprintf(text, size, "%llud", (unsigned long long)(value / 86400000));
                else
                        (void)snprintf(text, size, "%llums", (unsigned long long)value);
        else
                (void)snprintf(text, size, "%llu", (unsigned long long)value);
}

static int set_number(struct parser *p, const struct option *option, const char *text)
{
        const struct value_kind *kind = value_kind(option->kind);
        struct number *target = (struct number *)((char *)p->settings + option->offset);
        uint64_t value = 0;
        if (!kind->parse(text, &value))
                return cli_usage(p->cli, "--%s: '%s' is not %s; write for example %s", option->name,
                        text, kind->noun, kind->example);
        if (value < option->min || (option->max != 0 && value > option->max)) {
                char low[32];
                char high[32];

                format_limit(option->kind, option->min, low, sizeof(low));
                format_limit(option->kind, option->max, high, sizeof(high));
                if (option->max == 0)
                        return cli_usage(p->cli, "--%s: '%s' is too small; the least is %s",
                                option->name, text, low);
                return cli_usage(p->cli, "--%s: '%s' is too %s; from %s to %s", option->name, text,
                        value < option->min ? "small" : "large", low, high);
        }
        *target = (struct number){.given = true, .value = value};
        return 0;
}

static int set_value(struct parser *p, const struct option *option, const char *text)
{
        char *target = (char *)p->settings + option->offset;

        switch (option->kind) {
        case OPTION_TEXT:
                *(const char **)(void *)target = text;
                return 0;
        case OPTION_LIST:
                if (!text_list_add((struct text_list *)(void *)target, text))
                        return cli_usage(p->cli, "--%s: given too often; at most %d times",
                                option->name, LIST_MAX);
                return 0;
        case OPTION_SIZE:
        case OPTION_DURATION:
        case OPTION_SECONDS:
        case OPTION_CPUS:
        case OPTION_NUMBER:
                return set_number(p, option, text);
        case OPTION_END:
        case OPTION_FLAG:
        case OPTION_REFUSED:
                break;
        }
        return 0;
}

static int set_flag(struct parser *p, const struct option *option, const char *text)
{
        bool *target = (bool *)((char *)p->settings + option->offset);

        if (text == NULL || strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
                *target = true;
        else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
                *target = false;
        else
                return cli_usage(
                        p->cli, "--%s: '%s' is neither true nor false", option->name, text);
        return 0;
}

static int refuse(struct parser *p, const struct option *option)
{
        return cli_usage(p->cli, "--%s is not offered: %s", option->name, option->help);
}

static int missing_value(struct parser *p, const struct option *option)
{
        return cli_usage(p->cli, "--%s needs a value: %s", option->name, option->value);
}

static int unknown_option(struct parser *p, const char *word)
{
        const struct option *option;
        const char *names[256] = {"help"};
        const char *near;
        size_t count = 1;

        for (size_t i = 0; (option = option_at(p->command, i)) != NULL && count < 255; i++)
                if (option->kind != OPTION_REFUSED)
                        names[count++] = option->name;
        names[count] = NULL;
        near = strncmp(word, "--", 2) == 0 ? nearest_name(word + 2, names) : NULL;
        if (near != NULL)
                return cli_usage(p->cli, "unknown option '%s'; did you mean '--%s'?", word, near);
        return cli_usage(p->cli, "unknown option '%s'; see 'cubby %s%s%s --help'", word,
                p->command->group == NULL ? "" : p->command->group,
                p->command->group == NULL ? "" : " ", p->command->name);
}

static int help_asked(struct parser *p)
{
        help_command(stdout, p->command);
        return -1;
}

static int parse_long(struct parser *p, char *word)
{
        const struct option *option;
        char *name = word + 2;
        char *value = strchr(name, '=');
        size_t length = value == NULL ? strlen(name) : (size_t)(value - name);

        if (strcmp(name, "help") == 0)
                return help_asked(p);
        for (size_t i = 0; (option = option_at(p->command, i)) != NULL; i++)
                if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
                        break;
        if (option == NULL) {
                name[length] = '\0';
                return unknown_option(p, word);
        }
        if (option->kind == OPTION_REFUSED)
                return refuse(p, option);
        if (option->kind == OPTION_FLAG)
                return set_flag(p, option, value == NULL ? NULL : value + 1);
        if (value != NULL)
                return set_value(p, option, value + 1);
        if (p->next >= p->argc)
                return missing_value(p, option);
        return set_value(p, option, p->argv[p->next++]);
}

static const struct option *option_by_letter(const struct command *command, char letter)
{
        const struct option *option;

        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++)
                if (option->letter == letter)
                        return option;
        return NULL;
}

/* -it, -w/dir, -m=512M, -e K=V: a letter that takes a value ends the bundle. */
static int parse_letters(struct parser *p, const char *word)
{
        for (const char *letter = word + 1; *letter != '\0'; letter++) {
                const struct option *option = option_by_letter(p->command, *letter);
                const char *rest = letter + 1;
                int rc;

                if (option == NULL && *letter == 'h')
                        return help_asked(p);
                if (option == NULL) {
                        char name[3] = {'-', *letter, '\0'};

                        return unknown_option(p, letter == word + 1 && *rest != '\0' ? word : name);
                }
                if (option->kind == OPTION_REFUSED)
                        return refuse(p, option);
                if (option->kind == OPTION_FLAG) {
                        rc = set_flag(p, option, *rest == '=' ? rest + 1 : NULL);
                        if (rc != 0 || *rest == '=')
                                return rc;
                        continue;
                }
                if (*rest != '\0')
                        return set_value(p, option, *rest == '=' ? rest + 1 : rest);
                if (p->next >= p->argc)
                        return missing_value(p, option);
                return set_value(p, option, p->argv[p->next++]);
        }
        return 0;
}

static int check_count(struct parser *p, size_t count)
{
        const struct command *command = p->command;
        const char *group = command->group == NULL ? "" : command->group;
        const char *space = command->group == NULL ? "" : " ";

        if (count < command->min_args)
                return cli_usage(p->cli, "'%s%s%s' needs %s; usage: cubby %s%s%s %s", group, space,
                        command->name, command->min_args == 1 ? "an argument" : "more arguments",
                        group, space, command->name, command->usage);
        if (count > command->max_args)
                return cli_usage(p->cli, "'%s%s%s' takes %s; usage: cubby %s%s%s %s", group, space,
                        command->name, command->max_args == 0 ? "no arguments" : "fewer arguments",
                        group, space, command->name, command->usage);
        return 0;
}

int options_parse(struct cli *cli, const struct command *command, int argc, char **argv,
        void *settings, struct args *ret)
{
        struct parser p = {cli, command, settings, argc, argv, 0};
        size_t kept = 0; /* arguments move to the front of argv */
        bool options_over = false;

        while (p.next < argc) {
                char *word = argv[p.next++];
                int rc = 0;

                if (options_over || word[0] != '-' || word[1] == '\0') {
                        argv[kept++] = word;
                        options_over = options_over || command->stops_at_argument;
                } else if (strcmp(word, "--") == 0)
                        options_over = true;
                else
                        rc = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
                if (rc != 0)
                        return rc;
        }
        argv[kept] = NULL; /* argv[argc] is NULL, so there is room */
        *ret = (struct args){argv, kept};
        return check_count(&p, kept);
}
