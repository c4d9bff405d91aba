/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FORMAT_H
#define CLI_FORMAT_H

/*
 * Lists, printed as a table, as one JSON array, or through a template such as
 * '{{.ID}} {{.Names}}' for each row.
 */

#include "cli.h"

#include <jansson.h>

struct column {
        const char *field;   /* in the row */
        const char *heading; /* NULL: not in the table, only for templates and JSON */
};

struct list {
        struct cli *cli;
        const char *format;           /* as given; NULL or "table": the table */
        const struct column *columns; /* ends with a NULL field */
        const char *quiet_field;      /* print only this one; NULL: all */
        json_t *rows;                 /* array of objects of texts, owned */
        json_t *documents;            /* array for --format json, owned */
        bool failed;                  /* memory ran out */
};

/* Returns 0, or EXIT_USAGE when the format names an unknown field. */
int list_begin(struct list *list);
/* A new row, to be filled with list_text; owned by the list. `document` is the
 * same for --format json; the list takes it. NULL: out of memory. */
json_t *list_row(struct list *list, json_t *document);
void list_text(struct list *list, json_t *row, const char *field, const char *text);
/* Whether a field will be shown. */
bool list_wants(const struct list *list, const char *field);
/* Text that may be no UTF-8 as a JSON string, escaped where it is none. */
json_t *json_text(const char *text);
int list_print(struct list *list);
void list_clear(struct list *list);

/* Prints a JSON document: indented, or the value at {{.Path.To.Field}}. */
int print_json(struct cli *cli, const json_t *value, const char *format);

/* A template taken apart; exposed for its test. */
struct template_part {
        char *text;   /* literal text, escapes resolved; or */
        char *field;  /* "Path.To.Field", "" for the whole */
        bool as_json; /* {{json .Field}} */
};
struct template
{
        struct template_part *parts;
        size_t count;
};
/* False when it is malformed; *ret_problem says why. */
bool template_parse(const char *text, struct template *ret, const char **ret_problem);
void template_clear(struct template *template);

#endif
