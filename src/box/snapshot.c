/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots: copies of running boxes, kept under a name. */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/hex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define INNER "snapshot"
#define NAME_MAX_LENGTH 63
#define NAME_WAIT_MS 60000

static int check_name(cubby *host, const char *name, cubby_error *err)
{
        static const char later[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
        size_t length = strspn(name, later);
        if (length == 0 || length > NAME_MAX_LENGTH || name[length] != '\0' || name[0] == '.' ||
                name[0] == '-')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is no name for a snapshot: letters, digits, '_', '.' and '-', at "
                        "most %d",
                        name, NAME_MAX_LENGTH);
        char key[TEMPLATE_KEY_SIZE];
        cubby_error problem = {0};
        if (template_resolve(host->home, name, key, &problem) == 0 ||
                problem.code != CUBBY_E_NOT_FOUND)
                return cubby_error_set(
                        err, CUBBY_E_EXISTS, "there is already a snapshot '%s'", name);
        return 0;
}

/* Nothing of it can be computed again, so its key is a number of its own. */
static int random_key(char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        uint8_t bytes[32];
        if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
                return cubby_error_errno(err, errno, "choosing a key");
        hex_encode(bytes, sizeof bytes, ret);
        return 0;
}

static int create_file(int dir_fd, enum template_file file, int *ret_fd, cubby_error *err)
{
        int fd = openat(dir_fd, template_file_name(file),
                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return cubby_error_errno(err, errno, "making a file of the snapshot");
        *ret_fd = fd;
        return 0;
}

static int fill_folder(const cubby_box *box, int dir_fd, cubby_error *err)
{
        struct box_copy copy = BOX_COPY_NONE;
        AUTO_FD int memory = -1;
        AUTO_FD int state = -1;
        AUTO_FD int disk = -1;
        if (create_file(dir_fd, TEMPLATE_MEMORY, &memory, err) < 0 ||
                create_file(dir_fd, TEMPLATE_STATE, &state, err) < 0 ||
                create_file(dir_fd, TEMPLATE_DISK, &disk, err) < 0 ||
                box_copy_take(box, disk, false, &copy, err) < 0)
                return -1;
        int result = memory_save(copy.memory_fd, memory, err);
        if (result == 0)
                result = file_copy_sparse(copy.state_fd, state, err);
        box_copy_close(&copy);
        return result;
}

static int describe(const cubby_box *box, const char *name, struct template_manifest *manifest,
        cubby_error *err)
{
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, BOX_CONFIG_BYTES_MAX);
        if (saved_inputs(box->cubby, &box->config, &manifest->inputs, err) < 0 ||
                random_key(manifest->key, err) < 0 ||
                box_config_encode(&box->config, &json, err) < 0)
                return -1;
        const char *config = buffer_text(&json);
        manifest->image_name = strdup(box->config.image_name);
        manifest->snapshot = strdup(name);
        manifest->config = config == NULL ? NULL : strdup(config);
        manifest->generation = 1;
        manifest->created_ns = clock_realtime_ns();
        if (manifest->image_name == NULL || manifest->snapshot == NULL || manifest->config == NULL)
                return cubby_error_no_memory(err);
        return 0;
}

static int save(cubby_box *box, const char *name, cubby_error *err)
{
        cubby *host = box->cubby;
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_LOCK int lock = -1;
        struct template_manifest manifest = {0};
        if (check_name(host, name, err) < 0 || describe(box, name, &manifest, err) < 0 ||
                home_make_temporary(host->home, temporary, &dir, &lock, err) < 0) {
                template_manifest_clear(&manifest);
                return -1;
        }
        AUTO_FD int inner = mkdirat(dir, INNER, 0700) < 0
                ? -1
                : openat(dir, INNER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int result = inner < 0 ? cubby_error_errno(err, errno, "making the snapshot's folder")
                               : fill_folder(box, inner, err);
        if (result == 0)
                result = template_publish(host->home, temporary, INNER, &manifest, err);
        template_manifest_clear(&manifest);
        (void)dir_remove_at(home_folder(host->home, HOME_TMP), temporary, NULL);
        return result < 0 ? cubby_error_wrap(err, "saving box '%s' as '%s'", box->config.name, name)
                          : 0;
}

int box_snapshot(cubby_box *box, const char *name, cubby_error *err)
{
        char lock_name[NAME_MAX_LENGTH + 16];
        int lock = -1;
        if (check_name(box->cubby, name, err) < 0)
                return -1;
        /* of several who make one of this name the first has it */
        (void)snprintf(lock_name, sizeof lock_name, "snapshot-%s", name);
        if (home_lock_briefly(
                    box->cubby->home, lock_name, deadline_after_ms(NAME_WAIT_MS), &lock, err) < 0)
                return cubby_error_wrap(err, "saving box '%s' as '%s'", box->config.name, name);
        int result = save(box, name, err);
        home_unlock_briefly(box->cubby->home, lock_name, &lock);
        return result;
}

/* What was saved can only go on where the same machine would be made. */
static int check_machine(cubby *host, const struct template *template,
        const struct box_config *config, cubby_error *err)
{
        AUTO_FREE char *machine = NULL;
        if (saved_machine(host, config, &machine, err) < 0)
                return -1;
        if (strcmp(machine, template->manifest.inputs.machine) != 0)
                return cubby_error_set(err, CUBBY_E_VERSION,
                        "snapshot '%s' was made by another VMM, or on another machine (%s), and "
                        "cannot go on here (%s)",
                        template->manifest.snapshot, template->manifest.inputs.machine, machine);
        return 0;
}

static int apply(const cubby_box_options *options, struct box_config *config, cubby_error *err)
{
        if (options->command != NULL) {
                box_free_list(take_ptr(&config->argv));
                if (box_copy_list(options->command, &config->argv, err) < 0)
                        return -1;
        }
        char **merged = NULL;
        if (box_check_env(options->env, err) < 0 ||
                box_merge_env(config->env, options->env, &merged, err) < 0)
                return -1;
        box_free_list(config->env);
        config->env = merged;
        config->tty = options->tty;
        config->open_stdin = options->open_stdin;
        config->auto_remove = options->auto_remove;
        config->ttl_ms = options->ttl_ms;
        const struct {
                char **field;
                const char *text;
        } texts[] = {{&config->workdir, options->workdir}, {&config->user, options->user},
                {&config->hostname, options->hostname}};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                char *copy = texts[i].text == NULL ? NULL : strdup(texts[i].text);
                if (texts[i].text != NULL && copy == NULL)
                        return cubby_error_no_memory(err);
                if (copy != NULL) {
                        free(*texts[i].field);
                        *texts[i].field = copy;
                }
        }
        return box_config_check(config, err);
}

int box_from_snapshot(cubby *host, const char *snapshot, const cubby_box_options *options,
        cubby_box **ret, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        AUTO(template) struct template *template = NULL;
        AUTO_CONFIG struct box_config parent = {0};
        AUTO_CONFIG struct box_config config = {0};
        AUTO_FD int memory = -1;
        if (template_resolve(host->home, snapshot, key, err) < 0 ||
                template_open(host->home, key, &template, err) < 0)
                return -1;
        const char *json = template->manifest.config;
        if (json[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "'%s' is a template, no snapshot; run its image", snapshot);
        if (box_config_decode(json, strlen(json), &parent, err) < 0 ||
                check_machine(host, template, &parent, err) < 0 ||
                box_child_config(&parent, options->name, &config, err) < 0 ||
                apply(options, &config, err) < 0 ||
                memory_load(template->fds[TEMPLATE_MEMORY], template->manifest.inputs.memory_bytes,
                        &memory, err) < 0)
                return cubby_error_wrap(err, "continuing snapshot '%s'", snapshot);
        template_touch(template);
        if (box_continue(host, &config, options->name == NULL, template->fds[TEMPLATE_DISK], memory,
                    template->fds[TEMPLATE_STATE], "snapshot", ret, err) < 0)
                return cubby_error_wrap(err, "continuing snapshot '%s'", snapshot);
        return 0;
}
