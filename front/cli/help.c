/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "text.h"

#include <string.h>

#define NAME_WIDTH_MAX 40
#define HELP_COLUMN 28

struct elsewhere {
        const char *name;
        const char *advice;
};

/* Commands that people look for and that Cubby does not have; those of a group
 * with its name, others in each. */
static const struct elsewhere not_offered[] = {
        {"build", "build the image with another tool and bring it in with 'cubby image import'"},
        {"checkpoint", "use 'cubby snapshot create BOX NAME' or 'cubby suspend BOX'"},
        {"commit", "build the image with another tool and bring it in with 'cubby image import'"},
        {"compose", "start each box with 'cubby run'"},
        {"container", "leave the word out: 'cubby ps', 'cubby rm'"},
        {"diff", "compare inside the box with 'cubby exec'"},
        {"events", "ask for the state with 'cubby ps --format json'"},
        {"export", "use 'cubby cp BOX:/ - >files.tar'"},
        {"history", "see the layers with 'cubby image inspect IMAGE'"},
        {"image prune", "use 'cubby prune'; images that have a name stay until 'cubby image rm'"},
        {"info", "use 'cubby doctor' and 'cubby version'"},
        {"load", "use 'cubby image import FILE'"},
        {"login", "there is no registry access; use 'cubby image import FILE'"},
        {"network", "boxes have no network"},
        {"port", "boxes have no network; talk to a program in the box through 'cubby exec -i'"},
        {"pull",
                "save the image with another tool, for example 'skopeo copy docker://NAME "
                "oci-archive:FILE', and bring it in with 'cubby image import FILE'"},
        {"push", "Cubby runs images and does not publish them"},
        {"save", "keep the file that was given to 'cubby image import'"},
        {"search", "there is no registry access; use 'cubby image import FILE'"},
        {"snapshot inspect", "use 'cubby template inspect NAME'"},
        {"snapshot ls", "snapshots are among the templates: use 'cubby template ls'"},
        {"snapshot rm", "snapshots are among the templates: use 'cubby template rm NAME'"},
        {"spare rm", "use 'cubby spare set 0 IMAGE'"},
        {"system", "leave the word out: 'cubby df', 'cubby prune'"},
        {"template prune", "use 'cubby prune'"},
        {"update", "make a new box with other limits"},
        {"volume", "copy with 'cubby cp DIR BOX:PATH'"},
        {NULL, NULL},
};

static bool same_text(const char *a, const char *b)
{
        return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

const struct command *command_find(const char *group, const char *name)
{
        for (const struct command *const *command = commands; *command != NULL; command++)
                if (same_text((*command)->group, group) && strcmp((*command)->name, name) == 0)
                        return *command;
        return NULL;
}

bool command_group_known(const char *group)
{
        for (const struct command *const *command = commands; *command != NULL; command++)
                if ((*command)->group != NULL && strcmp((*command)->group, group) == 0)
                        return true;
        return false;
}

static size_t least(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* Edits between two words, a swap of neighbours being one. */
static size_t edit_distance(const char *a, const char *b)
{
        size_t rows[3][NAME_WIDTH_MAX + 1];
        size_t a_size = strlen(a);
        size_t b_size = strlen(b);

        if (a_size > NAME_WIDTH_MAX || b_size > NAME_WIDTH_MAX)
                return SIZE_MAX;
        for (size_t j = 0; j <= b_size; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= a_size; i++) {
                size_t *now = rows[i % 3];
                const size_t *above = rows[(i - 1) % 3];

                now[0] = i;
                for (size_t j = 1; j <= b_size; j++) {
                        size_t cost = a[i - 1] != b[j - 1];

                        now[j] = least(least(above[j] + 1, now[j - 1] + 1), above[j - 1] + cost);
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                now[j] = least(now[j], rows[(i - 2) % 3][j - 2] + 1);
                }
        }
        return rows[a_size % 3][b_size];
}

const char *nearest_name(const char *word, const char *const *names)
{
        const char *best = NULL;
        size_t best_distance = strlen(word) < 4 ? 2 : 3;

        for (; *names != NULL; names++) {
                size_t distance = edit_distance(word, *names);

                if (distance < best_distance && distance < strlen(word)) {
                        best = *names;
                        best_distance = distance;
                }
        }
        return best;
}

int help_unknown_command(struct cli *cli, const char *group, const char *name)
{
        const char *names[128];
        char whole[2 * NAME_WIDTH_MAX];
        const char *near;
        size_t count = 0;
        const char *before = group == NULL ? "" : group;
        const char *space = group == NULL ? "" : " ";

        (void)snprintf(whole, sizeof(whole), "%s%s%s", before, space, name);
        for (const struct elsewhere *other = not_offered; other->name != NULL; other++)
                if (strcmp(other->name, name) == 0 || strcmp(other->name, whole) == 0)
                        return cli_usage(cli, "'%s%s%s' is not offered: %s", before, space, name,
                                other->advice);
        for (const struct command *const *command = commands; *command != NULL && count < 126;
                command++) {
                if (same_text((*command)->group, group))
                        names[count++] = (*command)->name;
                else if (group == NULL &&
                        (count == 0 || strcmp(names[count - 1], (*command)->group) != 0))
                        names[count++] = (*command)->group;
        }
        names[count] = NULL;
        near = nearest_name(name, names);
        if (near != NULL)
                return cli_usage(cli, "unknown command '%s%s%s'; did you mean '%s%s%s'?", before,
                        space, name, before, space, near);
        return cli_usage(
                cli, "unknown command '%s%s%s'; 'cubby help' lists them", before, space, name);
}

/* Prints words in lines of at most 79 columns, the first one at `column`. */
static void print_wrapped(FILE *out, const char *text, size_t column, size_t indent)
{
        const char *gap = "";

        while (*text != '\0') {
                size_t word = strcspn(text, " ");

                if (column + strlen(gap) + word > 79 && column > indent) {
                        (void)fprintf(out, "\n%*s", (int)indent, "");
                        column = indent;
                        gap = "";
                }
                (void)fprintf(out, "%s%.*s", gap, (int)word, text);
                column += strlen(gap) + word;
                gap = " ";
                text += word;
                text += strspn(text, " ");
        }
        (void)fputc('\n', out);
}

static void print_option(FILE *out, const struct option *option)
{
        char label[80];
        int used;

        used = snprintf(label, sizeof(label), "  %c%c%s --%s%s%s", option->letter == 0 ? ' ' : '-',
                option->letter == 0 ? ' ' : option->letter, option->letter == 0 ? " " : ",",
                option->name, option->value == NULL ? "" : " ",
                option->value == NULL ? "" : option->value);
        (void)fprintf(out, "%s", label);
        if (used > HELP_COLUMN - 2)
                (void)fprintf(out, "\n%*s", HELP_COLUMN, "");
        else
                (void)fprintf(out, "%*s", HELP_COLUMN - used, "");
        print_wrapped(out, option->help, HELP_COLUMN, HELP_COLUMN);
}

static void print_heading(FILE *out, const char *text)
{
        bool colour = text_colour(out);

        (void)fprintf(out, "\n%s%s%s\n", colour ? "\033[1m" : "", text, colour ? "\033[0m" : "");
}

static void print_examples(FILE *out, const char *examples)
{
        print_heading(out, "Examples:");
        while (examples != NULL && *examples != '\0') {
                size_t length = strcspn(examples, "\n");

                (void)fprintf(out, "  %.*s\n", (int)length, examples);
                examples += length + (examples[length] == '\n');
        }
}

void help_command(FILE *out, const struct command *command)
{
        const struct option *option;
        bool letter_taken = false;

        (void)fprintf(out, "Usage:  cubby %s%s%s%s%s\n\n",
                command->group == NULL ? "" : command->group, command->group == NULL ? "" : " ",
                command->name, *command->usage == '\0' ? "" : " ", command->usage);
        print_wrapped(out, command->summary, 0, 0);
        if (command->details != NULL) {
                (void)fputc('\n', out);
                print_wrapped(out, command->details, 0, 0);
        }
        print_heading(out, "Options:");
        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++) {
                if (option->kind != OPTION_REFUSED)
                        print_option(out, option);
                letter_taken = letter_taken || option->letter == 'h';
        }
        (void)fprintf(out, "  %s --help%*sshow this help\n", letter_taken ? "   " : "-h,",
                HELP_COLUMN - 12, "");
        if (command->examples != NULL)
                print_examples(out, command->examples);
}

static void list_commands(FILE *out, const char *group, bool all)
{
        for (const struct command *const *command = commands; *command != NULL; command++) {
                char name[64];

                if (!all && !same_text((*command)->group, group))
                        continue;
                (void)snprintf(name, sizeof(name), "%s%s%s",
                        (*command)->group == NULL ? "" : (*command)->group,
                        (*command)->group == NULL ? "" : " ", (*command)->name);
                (void)fprintf(out, "  %-16s %s\n", name, (*command)->summary);
        }
}

void help_group(FILE *out, const char *group)
{
        (void)fprintf(out, "Usage:  cubby %s COMMAND\n", group);
        print_heading(out, "Commands:");
        list_commands(out, group, false);
        (void)fprintf(out, "\n'cubby %s COMMAND --help' explains one.\n", group);
}

void help_overview(FILE *out)
{
        (void)fprintf(out,
                "Usage:  cubby [--home DIR] [-v] COMMAND [OPTIONS] [ARGUMENTS]\n\n"
                "Small computers for AI agents: each box is a micro-VM with its own\n"
                "kernel, made from an OCI image.\n");
        print_heading(out, "Commands:");
        list_commands(out, NULL, true);
        print_heading(out, "Options:");
        (void)fprintf(out,
                "      --home DIR   where images and boxes are kept\n"
                "  -v, --verbose    say what is done; -vv also why\n"
                "      --version    print the version\n"
                "  -h, --help       show this help\n");
        print_heading(out, "Exit status:");
        (void)fprintf(out,
                "  that of the command in the box (128+N for signal N), or\n"
                "  2 wrong usage, 124 its --timeout passed, 125 Cubby failed,\n"
                "  126 it cannot be run, 127 it does not exist\n");
        (void)fprintf(out, "\n'cubby COMMAND --help' explains one, 'man cubby' all.\n");
}
