/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "commands/commands.h"
#include "progress.h"
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

const struct command *const commands[] = {
        &command_run,
        &command_create,
        &command_start,
        &command_exec,
        &command_attach,
        &command_logs,
        &command_ps,
        &command_inspect,
        &command_top,
        &command_stats,
        &command_wait,
        &command_stop,
        &command_kill,
        &command_restart,
        &command_pause,
        &command_unpause,
        &command_suspend,
        &command_resume,
        &command_fork,
        &command_snapshot_create,
        &command_rename,
        &command_rm,
        &command_cp,
        &command_fs_ls,
        &command_fs_cat,
        &command_fs_write,
        &command_fs_stat,
        &command_fs_rm,
        &command_fs_mkdir,
        &command_fs_mv,
        &command_fs_find,
        &command_fs_grep,
        &command_fs_watch,
        &command_acquire,
        &command_release,
        &command_id,
        &command_pool_status,
        &command_pool_drain,
        &command_images,
        &command_image_import,
        &command_image_ls,
        &command_image_inspect,
        &command_image_tag,
        &command_image_rm,
        &command_template_ls,
        &command_template_build,
        &command_template_inspect,
        &command_template_verify,
        &command_template_rm,
        &command_spare_ls,
        &command_spare_set,
        &command_kernel_ensure,
        &command_kernel_add,
        &command_kernel_ls,
        &command_df,
        &command_prune,
        &command_gc,
        &command_doctor,
        &command_version,
        &command_completion,
        &command_help,
        NULL,
};

static void log_line(void *data, int level, const char *line)
{
        struct cli *cli = data;

        if (level == CUBBY_LOG_ERROR)
                cli_note(cli, "error: %s", line);
        else if (level == CUBBY_LOG_WARNING)
                cli_note(cli, "warning: %s", line);
        else if (level <= CUBBY_LOG_INFO + cli->verbosity - 1)
                cli_note(cli, "%s", line);
}

int cli_open(struct cli *cli)
{
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        cubby_error err = {0};

        if (cli->cubby != NULL)
                return 0;
        options.home = cli->home;
        options.log = log_line;
        options.log_data = cli;
        options.progress = progress_report;
        options.progress_data = cli->progress;
        if (cubby_open(&options, &cli->cubby, &err) < 0)
                return cli_fail_error(cli, &err);
        return 0;
}

int cli_open_box(struct cli *cli, const char *name, cubby_box **ret)
{
        cubby_error err = {0};
        int rc = cli_open(cli);

        if (rc == 0 && cubby_box_open(cli->cubby, name, ret, &err) < 0)
                rc = cli_fail_error(cli, &err);
        return rc;
}

static int run_command(struct cli *cli, const struct command *command, int argc, char **argv)
{
        struct args args = {0};
        void *settings = calloc(1, command->settings_size + 1);
        int rc;

        if (settings == NULL)
                return cli_no_memory(cli);
        rc = options_parse(cli, command, argc, argv, settings, &args);
        if (rc == 0)
                rc = command->run(cli, settings, args);
        options_clear(command, settings);
        free(settings);
        return rc < 0 ? 0 : rc; /* help was printed */
}

/* The words behind the global options. */
static int dispatch(struct cli *cli, int argc, char **argv)
{
        const struct command *command;
        const char *group = NULL;

        if (argc == 0) {
                help_overview(stderr);
                return EXIT_USAGE;
        }
        if (command_group_known(argv[0])) {
                group = argv[0];
                argc--;
                argv++;
                if (argc == 0) {
                        help_group(stderr, group);
                        return EXIT_USAGE;
                }
                if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
                        help_group(stdout, group);
                        return 0;
                }
        }
        command = command_find(group, argv[0]);
        if (command == NULL)
                return help_unknown_command(cli, group, argv[0]);
        return run_command(cli, command, argc - 1, argv + 1);
}

/* Global options; returns the words used, or -1 with *exit_code set. */
static int parse_globals(struct cli *cli, int argc, char **argv, int *exit_code)
{
        static const char *const names[] = {"help", "home", "verbose", "version", NULL};
        int i = 1;

        *exit_code = 0;
        for (; i < argc && argv[i][0] == '-'; i++) {
                if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
                        help_overview(stdout);
                        return -1;
                }
                if (strcmp(argv[i], "--version") == 0) {
                        (void)printf("cubby %s\n", cubby_version());
                        return -1;
                }
                if (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "--verbose") == 0)
                        cli->verbosity++;
                else if (strcmp(argv[i], "-vv") == 0)
                        cli->verbosity += 2;
                else if (strncmp(argv[i], "--home=", 7) == 0)
                        cli->home = argv[i] + 7;
                else if (strcmp(argv[i], "--home") == 0 && i + 1 < argc)
                        cli->home = argv[++i];
                else {
                        const char *near = strncmp(argv[i], "--", 2) == 0
                                ? nearest_name(argv[i] + 2, names)
                                : NULL;

                        if (strcmp(argv[i], "--home") == 0)
                                *exit_code = cli_usage(cli, "--home needs a value: DIR");
                        else if (near != NULL)
                                *exit_code = cli_usage(cli,
                                        "unknown option '%s'; did you mean '--%s'?", argv[i], near);
                        else
                                *exit_code = cli_usage(cli,
                                        "unknown option '%s'; options of a command stand behind it",
                                        argv[i]);
                        return -1;
                }
        }
        return i;
}

/* A closed 0, 1 or 2 would be taken by the next file that is opened. */
static bool open_standard_streams(void)
{
        int fd;

        do
                fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        while (fd >= 0 && fd <= 2 && fcntl(fd, F_SETFD, 0) == 0);
        if (fd > 2)
                (void)close(fd);
        return fd >= 0;
}

static int finish_output(struct cli *cli, int rc)
{
        errno = 0;
        if (fflush(stdout) == 0 && ferror(stdout) == 0)
                return rc;
        if (errno == EPIPE)
                return EXIT_SIGNAL_BASE + SIGPIPE;
        return cli_fail(cli, "standard output could not be written: %s",
                errno == 0 ? "unknown error" : strerror(errno));
}

int main(int argc, char **argv)
{
        struct cli cli = {0};
        int rc = 0;
        int used;

        if (!open_standard_streams())
                return EXIT_CUBBY;
        (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of write */
        used = parse_globals(&cli, argc, argv, &rc);
        if (used > 0) {
                cli.progress = progress_new(cli.verbosity);
                rc = dispatch(&cli, argc - used, argv + used);
                progress_free(cli.progress);
                cli.progress = NULL;
                cubby_close(cli.cubby);
        }
        terminal_restore();
        return finish_output(&cli, rc);
}
