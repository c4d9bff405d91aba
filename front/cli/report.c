/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "progress.h"
#include "text.h"

#include <stdarg.h>

__attribute__((format(printf, 3, 0))) static void print_line(
        struct cli *cli, const char *kind, const char *format, va_list arguments)
{
        AUTO_FREE char *text = NULL;
        AUTO_FREE char *safe = NULL;

        if (vasprintf(&text, format, arguments) < 0)
                text = NULL;
        if (text != NULL)
                safe = text_escape(text, true);
        progress_hide(cli->progress);
        (void)fflush(stdout);
        (void)fprintf(stderr, "cubby: %s%s\n", kind, safe == NULL ? "out of memory" : safe);
}

int cli_fail(struct cli *cli, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        print_line(cli, "", format, arguments);
        va_end(arguments);
        return EXIT_CUBBY;
}

int cli_usage(struct cli *cli, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        print_line(cli, "", format, arguments);
        va_end(arguments);
        return EXIT_USAGE;
}

void cli_note(struct cli *cli, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        print_line(cli, "", format, arguments);
        va_end(arguments);
}

int cli_no_memory(struct cli *cli)
{
        return cli_fail(cli, "out of memory");
}

int cli_exit_code(const cubby_error *err)
{
        if (err->code == CUBBY_E_EXEC_NOT_FOUND)
                return EXIT_NOT_FOUND;
        return err->code == CUBBY_E_EXEC_REFUSED ? EXIT_REFUSED : EXIT_CUBBY;
}

int cli_fail_error(struct cli *cli, const cubby_error *err)
{
        (void)cli_fail(cli, "%s", err->message);
        return cli_exit_code(err);
}
