/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FILTER_H
#define CLI_FILTER_H

#include "cli.h"

#include <jansson.h>
#include <regex.h>

/* What `ps --filter` asks for. */
struct filter_term {
        int kind;
        const char *text; /* the value */
        regex_t pattern;  /* of a name */
        int number;       /* of an exit code */
};

struct box_filter {
        struct filter_term *terms;
        size_t count;
};

/* Returns 0, or EXIT_USAGE after saying what is wrong. */
int box_filter_parse(struct cli *cli, const struct text_list *texts, struct box_filter *ret);
void box_filter_clear(struct box_filter *filter);
bool box_filter_match(
        const struct box_filter *filter, const cubby_box_info *info, const json_t *labels);
/* It speaks of a state or an exit code, so ended boxes count too. */
bool box_filter_by_state(const struct box_filter *filter);
bool box_filter_by_label(const struct box_filter *filter);

#endif
