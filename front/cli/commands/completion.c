/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <string.h>

/* Scripts for shells, made from the same tables as the parser. */

static const char *kind_word(enum argument_kind kind)
{
        switch (kind) {
        case ARGS_BOX:
                return "box";
        case ARGS_IMAGE:
                return "image";
        case ARGS_FILE:
                return "file";
        case ARGS_COMMAND:
                return "command";
        case ARGS_SHELL:
                return "shell";
        case ARGS_NONE:
                break;
        }
        return "none";
}

static void full_name(const struct command *command, char *text, size_t size)
{
        (void)snprintf(text, size, "%s%s%s", command->group == NULL ? "" : command->group,
                command->group == NULL ? "" : " ", command->name);
}

/* A text within single quotes; characters of `special` get a backslash. */
static void print_quoted(const char *text, const char *special, const char *quote)
{
        for (; *text != '\0'; text++)
                if (*text == '\'')
                        (void)fputs(quote, stdout);
                else {
                        if (strchr(special, *text) != NULL)
                                (void)putchar('\\');
                        (void)putchar(*text);
                }
}

/* The words that may stand first, or behind a group. */
static void print_words(const char *group)
{
        const char *last_group = NULL;

        for (const struct command *const *command = commands; *command != NULL; command++) {
                if (group != NULL && (*command)->group != NULL &&
                        strcmp((*command)->group, group) == 0)
                        (void)printf("%s ", (*command)->name);
                if (group != NULL)
                        continue;
                if ((*command)->group == NULL)
                        (void)printf("%s ", (*command)->name);
                else if (last_group == NULL || strcmp(last_group, (*command)->group) != 0)
                        (void)printf("%s ", (*command)->group);
                last_group = (*command)->group;
        }
}

/* Calls `each` with every group once. */
static void for_groups(void (*each)(const char *group))
{
        const char *last = NULL;

        for (const struct command *const *command = commands; *command != NULL; command++)
                if ((*command)->group != NULL &&
                        (last == NULL || strcmp(last, (*command)->group) != 0)) {
                        last = (*command)->group;
                        each(last);
                }
}

/* Every group once, each between `before` and `after`, with `between` from the second on. */
static void print_groups(const char *before, const char *after, const char *between)
{
        const char *last = NULL;

        for (const struct command *const *command = commands; *command != NULL; command++) {
                const char *group = (*command)->group;
                if (group == NULL || (last != NULL && strcmp(last, group) == 0))
                        continue;
                (void)printf("%s%s%s%s", last == NULL ? "" : between, before, group, after);
                last = group;
        }
}

/* ------------------------------------------------------------------ bash -- */

static const char bash_head[] = "# bash completion for cubby\n"
                                "_cubby() {\n"
                                "        local current=${COMP_WORDS[COMP_CWORD]} command='' "
                                "kind=none options='' words='' i\n"
                                "        COMPREPLY=()\n"
                                "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
                                "                case ${COMP_WORDS[i]} in\n"
                                "                --home) ((i++)) ;;\n"
                                "                -*) ;;\n"
                                "                *)\n"
                                "                        command=\"$command ${COMP_WORDS[i]}\"\n"
                                "                        case $command in\n"
                                "                        ";

static const char bash_words[] = ") ;;\n"
                                 "                        *) break ;;\n"
                                 "                        esac\n"
                                 "                        ;;\n"
                                 "                esac\n"
                                 "        done\n"
                                 "        case ${command# } in\n";

static const char bash_tail[] =
        "        esac\n"
        "        if [[ $current == -* ]]; then\n"
        "                mapfile -t COMPREPLY < <(compgen -W \"$options --help\" -- \"$current\")\n"
        "                return\n"
        "        fi\n"
        "        case $kind in\n"
        "        box)\n"
        "                mapfile -t COMPREPLY < <(compgen -W \\\n"
        "                        \"$(cubby ps -a --format '{{.Names}}' 2>/dev/null)\" -- "
        "\"$current\")\n"
        "                ;;\n"
        "        image)\n"
        "                mapfile -t COMPREPLY < <(compgen -W \\\n"
        "                        \"$(cubby images --format '{{.Name}}' 2>/dev/null)\" -- "
        "\"$current\")\n"
        "                ;;\n"
        "        file) mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
        "        shell) mapfile -t COMPREPLY < <(compgen -W 'bash fish zsh' -- \"$current\") ;;\n"
        "        words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n"
        "        esac\n"
        "}\n"
        "complete -o default -F _cubby cubby\n";

static void bash_group(const char *group)
{
        (void)printf("        '%s') kind=words words='", group);
        print_words(group);
        (void)printf("' ;;\n");
}

static void bash_command(const struct command *command)
{
        const struct option *option;
        char name[64];

        full_name(command, name, sizeof(name));
        (void)printf("        '%s')\n", name);
        if (command->arguments == ARGS_COMMAND) {
                (void)printf("                kind=words words='");
                print_words(NULL);
                (void)printf("'\n");
        } else
                (void)printf("                kind='%s'\n", kind_word(command->arguments));
        (void)printf("                options='");
        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++)
                if (option->kind != OPTION_REFUSED)
                        (void)printf("--%s ", option->name);
        (void)printf("'\n                ;;\n");
}

static void print_bash(void)
{
        (void)fputs(bash_head, stdout);
        print_groups("' ", "'", " | ");
        (void)fputs(bash_words, stdout);
        (void)printf("        '') kind=words options='--home --verbose --version' words='");
        print_words(NULL);
        (void)printf("' ;;\n");
        for_groups(bash_group);
        for (const struct command *const *command = commands; *command != NULL; command++)
                bash_command(*command);
        (void)fputs(bash_tail, stdout);
}

/* ------------------------------------------------------------------- zsh -- */

static const char zsh_head[] =
        "#compdef cubby\n"
        "# zsh completion for cubby\n"
        "_cubby_box() { compadd -- ${(f)\"$(cubby ps -a --format '{{.Names}}' 2>/dev/null)\"} }\n"
        "_cubby_image() { compadd -- ${(f)\"$(cubby images --format '{{.Name}}' 2>/dev/null)\"} }\n"
        "_cubby_file() { _files }\n"
        "_cubby_none() { return 1 }\n"
        "_cubby_shell() { compadd -- bash fish zsh }\n";

static const char zsh_tail[] = "        esac\n"
                               "}\n"
                               "_cubby \"$@\"\n";

static void zsh_group(const char *group)
{
        (void)printf("        '%s') compadd -- ", group);
        print_words(group);
        (void)printf(";;\n");
}

static void zsh_option(const struct option *option)
{
        const char *repeat = option->kind == OPTION_LIST ? "*" : "";
        char both[80] = "";

        if (option->letter != 0 && *repeat == '\0')
                (void)snprintf(both, sizeof(both), "(-%c --%s)", option->letter, option->name);
        if (option->letter != 0)
                (void)printf("                '%s%s'{-%c,--%s}'[", repeat, both, option->letter,
                        option->name);
        else
                (void)printf("                '%s--%s[", repeat, option->name);
        print_quoted(option->help, "[]:\\", "'\\''");
        (void)printf("]");
        if (option->value != NULL) {
                (void)putchar(':');
                print_quoted(option->value, "[]:\\", "'\\''");
                (void)printf(":%s", strcmp(option->value, "FILE") == 0 ? "_files" : " ");
        }
        (void)printf("' \\\n");
}

static void zsh_command(const struct command *command)
{
        const struct option *option;
        char name[64];

        full_name(command, name, sizeof(name));
        (void)printf("        '%s')\n                _arguments -s \\\n", name);
        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++)
                if (option->kind != OPTION_REFUSED)
                        zsh_option(option);
        (void)printf("                '--help[show help]' \\\n"
                     "                '*:argument:_cubby_%s'\n                ;;\n",
                kind_word(command->arguments));
}

static void print_zsh(void)
{
        (void)fputs(zsh_head, stdout);
        (void)printf("_cubby_command() { compadd -- ");
        print_words(NULL);
        (void)printf("}\n_cubby() {\n"
                     "        local command='' i\n"
                     "        for ((i = 2; i < CURRENT; i++)); do\n"
                     "                case $words[i] in\n"
                     "                --home) ((i++)) ;;\n"
                     "                -*) ;;\n"
                     "                *)\n"
                     "                        command=\"$command $words[i]\"\n"
                     "                        [[ $command == ' '(");
        print_groups("", "", "|");
        (void)printf(
                ") ]] || break\n"
                "                        ;;\n"
                "                esac\n"
                "        done\n"
                "        case ${command# } in\n"
                "        '')\n"
                "                _arguments '--home[where images and boxes are kept]:DIR:_files "
                "-/' \\\n"
                "                        {-v,--verbose}'[say what is done]' \\\n"
                "                        '--version[print the version]' '--help[show help]' \\\n"
                "                        '*:command:_cubby_command'\n"
                "                ;;\n");
        for_groups(zsh_group);
        for (const struct command *const *command = commands; *command != NULL; command++)
                zsh_command(*command);
        (void)fputs(zsh_tail, stdout);
}

/* ------------------------------------------------------------------ fish -- */

static const char fish_head[] = "# fish completion for cubby\n"
                                "function __cubby_is\n"
                                "    set -l command\n"
                                "    for word in (commandline -opc)[2..-1]\n"
                                "        string match -q -- '-*' $word; and continue\n"
                                "        set -a command $word\n"
                                "        contains -- \"$command\"";

static const char fish_words[] =
        "; or break\n"
        "    end\n"
        "    test \"$command\" = \"$argv[1]\"\n"
        "end\n"
        "complete -c cubby -f\n"
        "complete -c cubby -n '__cubby_is \"\"' -l home -r -d 'where images and boxes are kept'\n"
        "complete -c cubby -n '__cubby_is \"\"' -s v -l verbose -d 'say what is done'\n"
        "complete -c cubby -n '__cubby_is \"\"' -l version -d 'print the version'\n";

static void fish_arguments(const struct command *command, const char *name)
{
        const char *list = NULL;

        switch (command->arguments) {
        case ARGS_BOX:
                list = "(cubby ps -a --format \"{{.Names}}\" 2>/dev/null)";
                break;
        case ARGS_IMAGE:
                list = "(cubby images --format \"{{.Name}}\" 2>/dev/null)";
                break;
        case ARGS_SHELL:
                list = "bash fish zsh";
                break;
        case ARGS_FILE:
                (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -F\n", name);
                return;
        case ARGS_COMMAND:
                (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -a '", name);
                print_words(NULL);
                (void)printf("'\n");
                return;
        case ARGS_NONE:
                return;
        }
        (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -a '%s'\n", name, list);
}

static void fish_command(const struct command *command)
{
        const struct option *option;
        char name[64];

        full_name(command, name, sizeof(name));
        (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -a %s -d '",
                command->group == NULL ? "" : command->group, command->name);
        print_quoted(command->summary, "\\", "\\'");
        (void)printf("'\n");
        for (size_t i = 0; (option = option_at(command, i)) != NULL; i++) {
                if (option->kind == OPTION_REFUSED)
                        continue;
                (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -l %s", name, option->name);
                if (option->letter != 0)
                        (void)printf(" -s %c", option->letter);
                if (option->value != NULL)
                        (void)printf(strcmp(option->value, "FILE") == 0 ? " -rF" : " -x");
                (void)printf(" -d '");
                print_quoted(option->help, "\\", "\\'");
                (void)printf("'\n");
        }
        (void)printf("complete -c cubby -n '__cubby_is \"%s\"' -l help -d 'show help'\n", name);
        fish_arguments(command, name);
}

static void fish_group(const char *group)
{
        (void)printf(
                "complete -c cubby -n '__cubby_is \"\"' -a %s -d '%s commands'\n", group, group);
}

static void print_fish(void)
{
        (void)fputs(fish_head, stdout);
        print_groups(" ", "", "");
        (void)fputs(fish_words, stdout);
        for_groups(fish_group);
        for (const struct command *const *command = commands; *command != NULL; command++)
                fish_command(*command);
}

static int print_completion(struct cli *cli, const void *settings, struct args args)
{
        if (strcmp(args.values[0], "bash") == 0)
                print_bash();
        else if (strcmp(args.values[0], "zsh") == 0)
                print_zsh();
        else if (strcmp(args.values[0], "fish") == 0)
                print_fish();
        else
                return cli_usage(
                        cli, "'%s' is not known; it can be bash, fish or zsh", args.values[0]);
        return 0;
}

const struct command command_completion = {
        .name = "completion",
        .usage = "SHELL",
        .summary = "Print the completion script for bash, fish or zsh",
        .examples = "cubby completion bash >~/.local/share/bash-completion/completions/cubby",
        .min_args = 1,
        .max_args = 1,
        .arguments = ARGS_SHELL,
        .run = print_completion,
};
