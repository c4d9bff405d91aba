/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define ENV_FILE_BYTES_MAX (1U << 20)

/* Keeps a text until box_request_clear. */
static const char *keep(struct box_request *request, char *text)
{
        char **grown = text == NULL
                ? NULL
                : reallocarray(request->owned, request->owned_count + 1, sizeof(*grown));

        if (grown == NULL) {
                free(text);
                return NULL;
        }
        request->owned = grown;
        grown[request->owned_count++] = text;
        return text;
}

static bool env_name_ok(const char *name, size_t length)
{
        if (length == 0 || isdigit((unsigned char)name[0]))
                return false;
        for (size_t i = 0; i < length; i++)
                if (!isalnum((unsigned char)name[i]) && name[i] != '_')
                        return false;
        return true;
}

/* "NAME=VALUE", or "NAME" for our own value; a name that we do not have is left
 * out, as Docker does. */
static int add_env(
        struct cli *cli, struct box_request *request, const char *where, const char *entry)
{
        size_t length = strcspn(entry, "=");
        const char *whole = entry;

        if (!env_name_ok(entry, length))
                return cli_usage(cli,
                        "%s: '%.*s' is not the name of a variable; letters, digits and '_' are, "
                        "not beginning with a digit",
                        where, (int)(length < 200 ? length : 200), entry);
        if (entry[length] == '\0') {
                const char *value = getenv(entry);
                char *made = NULL;

                if (value == NULL)
                        return 0;
                if (asprintf(&made, "%s=%s", entry, value) < 0)
                        made = NULL;
                whole = keep(request, made);
        }
        if (whole == NULL)
                return cli_no_memory(cli);
        if (!text_list_add(&request->env, whole))
                return cli_usage(cli, "%s: more than %d variables", where, LIST_MAX);
        return 0;
}

/* The whole file as a text, or NULL with errno. */
static char *read_file(const char *path)
{
        FILE *file = fopen(path, "re");
        char *text = file == NULL ? NULL : malloc(ENV_FILE_BYTES_MAX + 2);
        size_t size = 0;
        int error = errno;

        if (text != NULL) {
                size = fread(text, 1, ENV_FILE_BYTES_MAX + 1, file);
                error = ferror(file) ? errno : size > ENV_FILE_BYTES_MAX ? EFBIG : 0;
                if (error == 0 && memchr(text, '\0', size) != NULL)
                        error = EILSEQ;
                text[size] = '\0';
        }
        if (file != NULL)
                (void)fclose(file);
        if (text != NULL && error != 0) {
                free(text);
                text = NULL;
        }
        errno = error;
        return text;
}

static int add_env_file(struct cli *cli, struct box_request *request, const char *path)
{
        const char *text = keep(request, read_file(path));
        char *line = (char *)(uintptr_t)text;
        unsigned number = 0;
        int rc = 0;

        if (text == NULL)
                return cli_fail(cli, "--env-file: '%s' cannot be read: %s", path, strerror(errno));
        while (rc == 0 && line != NULL && *line != '\0') {
                char *end = strchr(line, '\n');
                char where[256];

                number++;
                if (end != NULL)
                        *end = '\0';
                line[strcspn(line, "\r")] = '\0';
                line += strspn(line, " \t");
                (void)snprintf(where, sizeof(where), "--env-file: %s:%u", path, number);
                if (*line != '\0' && *line != '#')
                        rc = add_env(cli, request, where, line);
                line = end == NULL ? NULL : end + 1;
        }
        return rc;
}

int env_collect(struct cli *cli, const struct text_list *given, const struct text_list *files,
        struct box_request *ret)
{
        int rc = 0;

        for (size_t i = 0; i < files->count && rc == 0; i++)
                rc = add_env_file(cli, ret, files->items[i]);
        for (size_t i = 0; i < given->count && rc == 0; i++)
                rc = add_env(cli, ret, "--env", given->items[i]);
        return rc;
}

static int add_labels(struct cli *cli, const struct text_list *labels, struct box_request *request)
{
        for (size_t i = 0; i < labels->count; i++) {
                const char *label = labels->items[i];
                char *made = NULL;

                if (*label == '\0' || *label == '=')
                        return cli_usage(cli, "--label: '%s' has no name", label);
                if (strchr(label, '=') == NULL) {
                        if (asprintf(&made, "%s=", label) < 0)
                                made = NULL;
                        label = keep(request, made);
                }
                if (label == NULL || !text_list_add(&request->labels, label))
                        return cli_no_memory(cli);
        }
        return 0;
}

static int check(struct cli *cli, const struct box_settings *settings, struct args args)
{
        if (settings->network != NULL && strcmp(settings->network, "none") != 0)
                return cli_usage(cli,
                        "--network %s is not offered: boxes have no network; talk to a program in "
                        "the box through 'cubby exec -i'",
                        settings->network);
        if (settings->idle && (args.count > 1 || settings->entrypoint != NULL))
                return cli_usage(cli, "--idle runs no command; leave out either of them");
        if (settings->idle && (settings->input || settings->tty))
                return cli_usage(cli, "--idle runs no command; give -i and -t to 'cubby exec'");
        return 0;
}

static void fill(const struct box_settings *settings, struct args args, struct box_request *request)
{
        cubby_box_options *options = &request->options;

        *options = CUBBY_INIT(cubby_box_options);
        options->image = args.values[0];
        options->name = settings->name;
        options->hostname = settings->hostname;
        options->command = args.count > 1 ? (const char *const *)(args.values + 1) : NULL;
        if (settings->entrypoint != NULL) {
                request->entrypoint[0] =
                        settings->entrypoint[0] == '\0' ? NULL : settings->entrypoint;
                options->entrypoint = request->entrypoint;
        }
        options->no_main = settings->idle;
        options->env = request->env.items;
        options->labels = request->labels.items;
        options->workdir = settings->workdir;
        options->user = settings->user;
        options->tty = settings->tty;
        options->open_stdin = settings->input;
        options->memory_bytes = settings->memory.value;
        options->cpu_milli = (uint32_t)settings->cpus.value;
        options->disk_bytes = settings->disk.value;
        options->pids_max = (uint32_t)settings->pids.value;
        options->engine = settings->engine;
        options->accel = settings->accel;
        options->kernel = settings->kernel;
        options->ttl_ms = (int64_t)settings->ttl.value;
        options->boot_timeout_ms = (int64_t)settings->boot_timeout.value;
        options->auto_remove = settings->remove;
        options->no_template = settings->no_template;
        options->stop_signal = settings->stop_signal;
}

int box_request_make(struct cli *cli, const struct box_settings *settings, struct args args,
        struct box_request *ret)
{
        int rc = check(cli, settings, args);

        *ret = (struct box_request){0};
        if (rc == 0)
                rc = env_collect(cli, &settings->env, &settings->env_files, ret);
        if (rc == 0)
                rc = add_labels(cli, &settings->labels, ret);
        if (rc == 0)
                fill(settings, args, ret);
        else
                box_request_clear(ret);
        return rc;
}

int box_request_fail(struct cli *cli, const struct box_request *request, const cubby_error *err)
{
        AUTO_CUBBY_FREE char *image = NULL;
        cubby_error missing = {0};
        int rc = cli_fail_error(cli, err);

        if (err->code == CUBBY_E_NOT_FOUND && request->options.image != NULL &&
                cubby_image_inspect(cli->cubby, request->options.image, &image, &missing) < 0 &&
                missing.code == CUBBY_E_NOT_FOUND)
                cli_note(cli,
                        "'cubby images' lists what there is, 'cubby image import' brings one in");
        return rc;
}

void box_request_clear(struct box_request *request)
{
        free(request->env.items);
        free(request->labels.items);
        for (size_t i = 0; i < request->owned_count; i++)
                free(request->owned[i]);
        free(request->owned);
        *request = (struct box_request){0};
}
