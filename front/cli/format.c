/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"
#include "text.h"
#include "values.h"

#include <string.h>

#define TEMPLATE_PARTS_MAX 256
#define FIELD_CHARACTERS                                       \
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" \
        "0123456789_-."

static struct template_part *add_part(struct template *template, const char **ret_problem)
{
        struct template_part *grown;

        *ret_problem = "it has too many parts";
        if (template->count >= TEMPLATE_PARTS_MAX)
                return NULL;
        grown = reallocarray(template->parts, template->count + 1, sizeof(*grown));
        *ret_problem = "out of memory";
        if (grown == NULL)
                return NULL;
        template->parts = grown;
        grown[template->count] = (struct template_part){0};
        return &grown[template->count++];
}

/* Literal text with \n and \t as people write them in a shell. */
static char *unescape(const char *text, size_t size)
{
        static const char letters[] = "nt\\";
        static const char meanings[] = "\n\t\\";
        char *copy = malloc(size + 1);
        char *out = copy;

        if (copy == NULL)
                return NULL;
        for (size_t i = 0; i < size; i++) {
                const char *letter = text[i] == '\\' && i + 1 < size
                        ? memchr(letters, text[i + 1], sizeof(letters) - 1)
                        : NULL;

                if (letter != NULL)
                        i++;
                *out++ = text[i];
                if (letter != NULL)
                        out[-1] = meanings[letter - letters];
        }
        *out = '\0';
        return copy;
}

/* What stands between {{ and }}: ".Field", "json .Field". */
static bool parse_action(
        const char *text, size_t size, struct template_part *part, const char **ret_problem)
{
        while (size > 0 && *text == ' ')
                text++, size--;
        while (size > 0 && text[size - 1] == ' ')
                size--;
        if (size > 5 && strncmp(text, "json ", 5) == 0) {
                part->as_json = true;
                for (text += 5, size -= 5; size > 0 && *text == ' '; text++)
                        size--;
        }
        *ret_problem = "between {{ and }} stands a field such as .ID, or 'json .ID'";
        if (size == 0 || *text != '.')
                return false;
        text++;
        size--;
        if (strspn(text, FIELD_CHARACTERS) < size || (size > 0 && text[size - 1] == '.'))
                return false;
        part->field = strndup(text, size);
        *ret_problem = "out of memory";
        return part->field != NULL;
}

static bool parse_parts(const char *text, struct template *template, const char **ret_problem)
{
        while (*text != '\0') {
                const char *open = strstr(text, "{{");
                size_t literal = open == NULL ? strlen(text) : (size_t)(open - text);
                struct template_part *part;
                const char *close;

                if (literal > 0) {
                        part = add_part(template, ret_problem);
                        if (part == NULL || (part->text = unescape(text, literal)) == NULL)
                                return false;
                }
                if (open == NULL)
                        return true;
                close = strstr(open, "}}");
                if (close == NULL) {
                        *ret_problem = "a {{ has no }}";
                        return false;
                }
                part = add_part(template, ret_problem);
                if (part == NULL ||
                        !parse_action(open + 2, (size_t)(close - open) - 2, part, ret_problem))
                        return false;
                text = close + 2;
        }
        return true;
}

bool template_parse(const char *text, struct template *ret, const char **ret_problem)
{
        struct template template = {0};

        if (!parse_parts(text, &template, ret_problem)) {
                template_clear(&template);
                return false;
        }
        *ret = template;
        return true;
}

void template_clear(struct template *template)
{
        for (size_t i = 0; i < template->count; i++) {
                free(template->parts[i].text);
                free(template->parts[i].field);
        }
        free(template->parts);
        *template = (struct template){0};
}

/* The value at "A.B.0"; a key may be spelled in any case, or with dots inside. */
static const json_t *look_up(const json_t *value, const char *path)
{
        while (value != NULL && *path != '\0') {
                size_t length = strcspn(path, ".");
                AUTO_FREE char *key = strndup(path, length);
                const json_t *next = NULL;
                uint64_t index = 0;
                const char *name;
                json_t *member;

                if (key == NULL)
                        return NULL;
                if (json_is_array(value) && parse_number(key, &index))
                        next = json_array_get(value, index);
                else if (json_is_object(value)) {
                        next = json_object_get(value, path);
                        if (next != NULL)
                                return next;
                        next = json_object_get(value, key);
                        if (next == NULL)
                                json_object_foreach((json_t *)(uintptr_t)value, name, member)
                                {
                                        if (strcasecmp(name, key) == 0)
                                                next = member;
                                }
                }
                value = next;
                path += length + (path[length] == '.');
        }
        return value;
}

static void print_value(const json_t *value, bool as_json)
{
        AUTO_FREE char *text = NULL;

        if (json_is_string(value) && !as_json)
                text = text_escape(json_string_value(value), true);
        else
                text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        (void)fputs(text == NULL ? "" : text, stdout);
}

static bool print_template(const struct template *template, const json_t *row, const char **missing)
{
        for (size_t i = 0; i < template->count; i++) {
                const struct template_part *part = &template->parts[i];
                const json_t *value;

                if (part->text != NULL) {
                        (void)fputs(part->text, stdout);
                        continue;
                }
                value = look_up(row, part->field);
                if (value == NULL) {
                        *missing = part->field;
                        return false;
                }
                print_value(value, part->as_json);
        }
        (void)fputc('\n', stdout);
        return true;
}

int print_json(struct cli *cli, const json_t *value, const char *format)
{
        AUTO_FREE char *text = NULL;
        struct template template;
        const char *problem = NULL;
        bool printed;

        if (format == NULL || strcmp(format, "json") == 0) {
                text = json_dumps(value,
                        JSON_ENCODE_ANY | JSON_PRESERVE_ORDER |
                                (format == NULL ? JSON_INDENT(4) : JSON_COMPACT));
                if (text == NULL)
                        return cli_no_memory(cli);
                (void)printf("%s\n", text);
                return 0;
        }
        if (!template_parse(format, &template, &problem))
                return cli_usage(cli, "--format: '%s' cannot be read: %s", format, problem);
        printed = print_template(&template, value, &problem);
        if (!printed)
                (void)cli_usage(cli, "--format: there is no '.%s'", problem);
        template_clear(&template);
        return printed ? 0 : EXIT_USAGE;
}

static const struct column *column_find(const struct column *columns, const char *field)
{
        for (; columns->field != NULL; columns++)
                if (strcasecmp(columns->field, field) == 0)
                        return columns;
        return NULL;
}

static bool is_table(const struct list *list)
{
        return list->format == NULL || strcmp(list->format, "table") == 0;
}

static bool is_json(const struct list *list)
{
        return list->format != NULL && strcmp(list->format, "json") == 0;
}

/* The template of "table {{.A}}\t{{.B}}" or of "{{.A}}". */
static const char *template_text(const struct list *list)
{
        return strncmp(list->format, "table ", 6) == 0 ? list->format + 6 : list->format;
}

static int unknown_field(const struct list *list, const char *field)
{
        char known[512] = "";
        size_t used = 0;

        for (const struct column *column = list->columns;
                column->field != NULL && used < sizeof(known); column++)
                used += (size_t)snprintf(known + used, sizeof(known) - used, " .%s", column->field);
        return cli_usage(list->cli, "--format: there is no '.%s'; known are%s", field, known);
}

int list_begin(struct list *list)
{
        struct template template = {0};
        const char *problem = NULL;
        int rc = 0;

        if (!is_table(list) && !is_json(list)) {
                if (strstr(list->format, "{{") == NULL)
                        return cli_usage(list->cli,
                                "--format: '%s' is none of table, json or a template such as "
                                "'{{.ID}}'",
                                list->format);
                if (!template_parse(template_text(list), &template, &problem))
                        return cli_usage(list->cli, "--format: '%s' cannot be read: %s",
                                list->format, problem);
        }
        for (size_t i = 0; i < template.count && rc == 0; i++) {
                const char *field = template.parts[i].field;

                if (field != NULL && *field != '\0' && column_find(list->columns, field) == NULL)
                        rc = unknown_field(list, field);
        }
        template_clear(&template);
        if (rc != 0)
                return rc;
        list->rows = json_array();
        list->documents = json_array();
        if (list->rows == NULL || list->documents == NULL)
                return cli_no_memory(list->cli);
        return 0;
}

json_t *list_row(struct list *list, json_t *document)
{
        json_t *row = json_object();

        if (json_array_append_new(list->rows, row) < 0 ||
                json_array_append_new(list->documents, document) < 0) {
                list->failed = true;
                return NULL;
        }
        return row;
}

json_t *json_text(const char *text)
{
        json_t *value = json_string(text);
        AUTO_FREE char *escaped = NULL;

        if (value != NULL)
                return value;
        escaped = text_escape(text, false);
        return escaped == NULL ? NULL : json_string(escaped);
}

void list_text(struct list *list, json_t *row, const char *field, const char *text)
{
        if (json_object_set_new(row, field, json_text(text)) < 0)
                list->failed = true;
}

bool list_wants(const struct list *list, const char *field)
{
        const struct column *column = column_find(list->columns, field);

        if (list->quiet_field != NULL)
                return strcmp(list->quiet_field, field) == 0;
        if (is_json(list))
                return true;
        if (is_table(list))
                return column != NULL && column->heading != NULL;
        return strstr(list->format, field) != NULL;
}

static bool print_rows(const struct list *list)
{
        struct table table;
        size_t columns = 0;
        size_t index;
        json_t *row;
        bool printed;

        for (const struct column *column = list->columns; column->field != NULL; column++)
                columns += column->heading != NULL;
        table_init(&table, columns);
        for (const struct column *column = list->columns; column->field != NULL; column++)
                if (column->heading != NULL)
                        table_add(&table, column->heading);
        json_array_foreach(list->rows, index, row)
        {
                for (const struct column *column = list->columns; column->field != NULL; column++) {
                        const char *text = json_string_value(json_object_get(row, column->field));

                        if (column->heading != NULL)
                                table_add(&table, text == NULL ? "" : text);
                }
        }
        printed = table_print(&table, stdout);
        table_clear(&table);
        return printed;
}

/* "table TEMPLATE": headings above, columns where the template has tabs. */
static void print_template_heading(const struct list *list, const struct template *template)
{
        for (size_t i = 0; i < template->count; i++) {
                const struct template_part *part = &template->parts[i];
                const struct column *column =
                        part->field == NULL ? NULL : column_find(list->columns, part->field);

                if (part->text != NULL)
                        (void)fputs(part->text, stdout);
                else if (column != NULL)
                        (void)fputs(
                                column->heading == NULL ? column->field : column->heading, stdout);
        }
        (void)fputc('\n', stdout);
}

static int print_templates(const struct list *list)
{
        struct template template;
        const char *problem = NULL;
        size_t index;
        json_t *row;

        if (!template_parse(template_text(list), &template, &problem))
                return cli_usage(list->cli, "--format: %s", problem);
        if (template_text(list) != list->format)
                print_template_heading(list, &template);
        json_array_foreach(list->rows, index, row)
        {
                (void)print_template(&template, row, &problem);
        }
        template_clear(&template);
        return 0;
}

int list_print(struct list *list)
{
        size_t index;
        json_t *row;

        if (list->failed)
                return cli_no_memory(list->cli);
        if (list->quiet_field != NULL) {
                json_array_foreach(list->rows, index, row)
                {
                        (void)printf(
                                "%s\n", json_string_value(json_object_get(row, list->quiet_field)));
                }
                return 0;
        }
        if (is_json(list))
                return print_json(list->cli, list->documents, "json");
        if (!is_table(list))
                return print_templates(list);
        return print_rows(list) ? 0 : cli_no_memory(list->cli);
}

void list_clear(struct list *list)
{
        json_decref(list->rows);
        json_decref(list->documents);
        list->rows = NULL;
        list->documents = NULL;
}
