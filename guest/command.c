/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include "base/cleanup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTRA_MAX 4U

static bool put_text(char **next, struct slice slice, char **ret)
{
        if (slice.size > 0 && memchr(slice.data, '\0', slice.size) != NULL)
                return false;
        *ret = *next;
        if (slice.size > 0)
                memcpy(*next, slice.data, slice.size);
        (*next)[slice.size] = '\0';
        *next += slice.size + 1;
        return true;
}

static int copy_all(
        const struct message_exec *message, struct command *command, char *next, cubby_error *err)
{
        for (uint32_t i = 0; i < message->argc; i++)
                if (!put_text(&next, message->argv[i], &command->argv[i]))
                        return cubby_error_set(
                                err, CUBBY_E_INVALID, "argument %u holds a NUL byte", (unsigned)i);
        for (uint32_t i = 0; i < message->envc; i++) {
                struct slice entry = message->env[i];
                const uint8_t *equals =
                        entry.size == 0 ? NULL : memchr(entry.data, '=', entry.size);
                if (!put_text(&next, entry, &command->env[i]) || equals == NULL ||
                        equals == entry.data)
                        return cubby_error_set(err, CUBBY_E_INVALID,
                                "environment entry %u is not of the form NAME=VALUE", (unsigned)i);
        }
        command->envc = message->envc;
        if (!put_text(&next, message->user, &command->user))
                return cubby_error_set(err, CUBBY_E_INVALID, "the user holds a NUL byte");
        if (!put_text(&next, message->cwd, &command->cwd))
                return cubby_error_set(err, CUBBY_E_INVALID, "the working folder holds a NUL byte");
        if (command->cwd[0] != '\0' && command->cwd[0] != '/')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "working folder '%.256s' is not an absolute path", command->cwd);
        if (command->argv[0][0] == '\0')
                return cubby_error_set(err, CUBBY_E_EXEC_NOT_FOUND, "the command has no name");
        return 0;
}

int command_make(const struct message_exec *message, struct command *ret, cubby_error *err)
{
        size_t size = message->user.size + message->cwd.size + 2;
        for (uint32_t i = 0; i < message->argc; i++)
                size += message->argv[i].size + 1;
        for (uint32_t i = 0; i < message->envc; i++)
                size += message->env[i].size + 1;
        struct command command = {
                .argv = calloc((size_t)message->argc + 1, sizeof(char *)),
                .env = calloc((size_t)message->envc + EXTRA_MAX + 1, sizeof(char *)),
                .text = malloc(size),
        };
        int result = command.argv == NULL || command.env == NULL || command.text == NULL
                ? cubby_error_no_memory(err)
                : copy_all(message, &command, command.text, err);
        if (result < 0) {
                command_free(&command);
                return -1;
        }
        *ret = command;
        return 0;
}

void command_free(struct command *command)
{
        if (command == NULL)
                return;
        free(command->argv);
        free(command->env);
        free(command->text);
        free(command->path_text);
        for (size_t i = 0; i < command->extra_count; i++)
                free(command->extra[i]);
        *command = (struct command){0};
}

const char *command_variable(const struct command *command, const char *name)
{
        size_t length = strlen(name);
        for (size_t i = 0; i < command->envc; i++)
                if (strncmp(command->env[i], name, length) == 0 && command->env[i][length] == '=')
                        return command->env[i] + length + 1;
        return NULL;
}

int command_default(struct command *command, const char *name, const char *value, cubby_error *err)
{
        if (command_variable(command, name) != NULL)
                return 0;
        char *entry = NULL;
        if (command->extra_count == EXTRA_MAX || asprintf(&entry, "%s=%s", name, value) < 0)
                return cubby_error_no_memory(err);
        command->extra[command->extra_count++] = entry;
        command->env[command->envc++] = entry;
        return 0;
}

int command_look_up(struct command *command, bool (*exists)(const char *path), cubby_error *err)
{
        const char *name = command->argv[0];
        if (strchr(name, '/') != NULL) {
                command->paths[0] = command->argv[0];
                command->path_count = 1;
                return 0;
        }
        const char *path = command_variable(command, "PATH");
        if (path == NULL)
                path = COMMAND_DEFAULT_PATH;
        size_t name_size = strlen(name) + 1;
        size_t room = strlen(path) + COMMAND_PATHS_MAX * (name_size + 2) + 1;
        char *next = malloc(room);
        if (next == NULL)
                return cubby_error_no_memory(err);
        free(command->path_text);
        command->path_text = next;
        command->path_count = 0;
        while (command->path_count < COMMAND_PATHS_MAX) {
                size_t length = strcspn(path, ":");
                if (length + 1 + name_size <= PATH_MAX) {
                        /* An empty folder is the working folder, which the new
                         * process enters first: it has to look for itself. */
                        const char *folder = length == 0 ? "." : path;
                        size_t folder_size = length == 0 ? 1 : length;
                        memcpy(next, folder, folder_size);
                        next[folder_size] = '/';
                        memcpy(next + folder_size + 1, name, name_size);
                        if (next[0] != '/' || exists(next)) {
                                command->paths[command->path_count++] = next;
                                next += folder_size + 1 + name_size;
                        }
                }
                if (path[length] == '\0')
                        break;
                path += length + 1;
        }
        if (command->path_count == 0)
                return cubby_error_set(err, CUBBY_E_EXEC_NOT_FOUND,
                        "'%.256s': not found in the PATH of the box", name);
        return 0;
}
