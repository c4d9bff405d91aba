/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"
#include "kernel/kernel.h"
#include "template/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WARMUP_NAME "warmup" /* in the home: one command a line */
#define TURNS_MAX 4
#define TURN_WAIT_MS 120000
#define TURN_PAUSE_MS 5
#define REMOVE_WAIT_MS 2000

/* One word each but for the separating spaces; what the image lacks is passed over. */
static const char *const default_warmups[] = {
        "/bin/sh -c true", "python3 -c print(sum(range(100000)))", BOX_WORK_FOLDERS_COMMAND, NULL};

static int split_lines(const char *text, char ***ret, cubby_error *err)
{
        char **list = calloc(TEMPLATE_WARMUPS_MAX + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        size_t count = 0;
        for (const char *next = text; *next != '\0';) {
                size_t length = strcspn(next, "\n");
                bool wanted = length > 0 && next[0] != '#';
                if (wanted && count == TEMPLATE_WARMUPS_MAX) {
                        box_free_list(list);
                        return cubby_error_set(err, CUBBY_E_LIMIT,
                                "there are more than %u warm-up commands", TEMPLATE_WARMUPS_MAX);
                }
                if (wanted && (list[count++] = strndup(next, length)) == NULL) {
                        box_free_list(list);
                        return cubby_error_no_memory(err);
                }
                next += length + (next[length] == '\n');
        }
        *ret = list;
        return 0;
}

static int read_warmups(cubby *host, const struct box_config *config, char ***ret, cubby_error *err)
{
        if (config->warmup != NULL && config->warmup[0] != '\0')
                return split_lines(config->warmup, ret, err);
        AUTO_BUFFER struct buffer text;
        buffer_init(&text, BOX_WARMUP_BYTES_MAX);
        cubby_error problem = {0};
        if (file_read_at(home_folder(host->home, HOME_ROOT), WARMUP_NAME, &text, &problem) < 0) {
                if (problem.code == CUBBY_E_NOT_FOUND)
                        return box_copy_list(default_warmups, ret, err);
                return cubby_error_set(err, problem.code, "%s", problem.message);
        }
        const char *lines = buffer_text(&text);
        return lines == NULL ? cubby_error_no_memory(err) : split_lines(lines, ret, err);
}

/* Which agent it is, without reading it at every start: a file that changes has
 * another size, time or inode. */
static int agent_identity(char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        AUTO_FREE char *agent = NULL;
        struct stat info;
        if (box_find_program("cubby-agent", &agent, err) < 0)
                return -1;
        if (stat(agent, &info) < 0)
                return cubby_error_errno(err, errno, "looking at '%s'", agent);
        char text[128];
        int length = snprintf(text, sizeof text, "%llu %llu %lld %lld.%09ld",
                (unsigned long long)info.st_dev, (unsigned long long)info.st_ino,
                (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
        return digest_bytes(text, (size_t)length, ret, err);
}

static int identify_guest(cubby *host, const struct box_config *config,
        struct template_inputs *inputs, cubby_error *err)
{
        char agent[TEMPLATE_KEY_SIZE];
        if (strcmp(config->engine, "fake") == 0) {
                if (digest_bytes("", 0, agent, err) < 0)
                        return -1;
                inputs->kernel_digest = strdup(agent);
        } else {
                struct kernel kernel = {0};
                const char *wanted = config->kernel[0] == '\0' ? NULL : config->kernel;
                if (agent_identity(agent, err) < 0 ||
                        kernel_ensure(host->home, wanted, host->progress, host->progress_data,
                                &kernel, err) < 0)
                        return -1;
                inputs->kernel_digest = take_ptr(&kernel.digest);
                kernel_clear(&kernel);
        }
        inputs->agent_digest = strdup(agent);
        inputs->image_id = strdup(config->image_id);
        if (inputs->kernel_digest == NULL || inputs->agent_digest == NULL ||
                inputs->image_id == NULL)
                return cubby_error_no_memory(err);
        return 0;
}

int saved_inputs(
        cubby *host, const struct box_config *config, struct template_inputs *ret, cubby_error *err)
{
        struct template_inputs inputs = {.memory_bytes = config->memory_bytes,
                .vcpus = config->cpu_milli < 1000 ? 1 : (config->cpu_milli + 999) / 1000,
                .disk_bytes = config->disk_bytes};
        if (identify_guest(host, config, &inputs, err) < 0 ||
                saved_machine(host, config, &inputs.machine, err) < 0 ||
                read_warmups(host, config, &inputs.warmups, err) < 0 ||
                template_inputs_check(&inputs, err) < 0) {
                template_inputs_clear(&inputs);
                return -1;
        }
        *ret = inputs;
        return 0;
}

int saved_key(
        cubby *host, const struct box_config *config, char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        struct template_inputs inputs = {0};
        if (saved_inputs(host, config, &inputs, err) < 0)
                return -1;
        int result = template_key(&inputs, ret, err);
        template_inputs_clear(&inputs);
        return result;
}

int saved_find(
        cubby *host, const struct box_config *config, struct template **ret, cubby_error *err)
{
        char key[TEMPLATE_KEY_SIZE];
        cubby_error problem = {0};
        if (saved_key(host, config, key, &problem) < 0) {
                if (problem.code == CUBBY_E_UNSUPPORTED)
                        return 0;
                return cubby_error_set(err, problem.code, "%s", problem.message);
        }
        if (template_open(host->home, key, ret, &problem) == 0)
                return 1;
        if (problem.code == CUBBY_E_CORRUPT || problem.code == CUBBY_E_VERSION) {
                log_line(&host->log, LOG_WARNING, "removing a damaged template: %s",
                        problem.message);
                (void)template_remove(
                        host->home, key, deadline_after_ms(REMOVE_WAIT_MS), NULL, NULL);
                return 0;
        }
        if (problem.code == CUBBY_E_NOT_FOUND || problem.code == CUBBY_E_BUSY)
                return 0;
        return cubby_error_set(err, problem.code, "%s", problem.message);
}

int saved_prepare_clone(
        cubby_box *box, const struct template *template, struct shim_parts *parts, cubby_error *err)
{
        /* the disk of the same instant as the memory */
        if (box_disk_place(
                    box->cubby, &box->config, box->dir_fd, template->fds[TEMPLATE_DISK], err) < 0 ||
                saved_memory(box->cubby, &box->config, template, &parts->memory, err) < 0)
                return -1;
        /* an open file of its own: the VMM moves the offset */
        parts->state = openat(template->dir_fd, template_file_name(TEMPLATE_STATE),
                O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (parts->state < 0)
                return cubby_error_errno(err, errno, "opening the template's state");
        return 0;
}

int saved_turn(cubby *host, int *ret_fd, cubby_error *err)
{
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        int turns = cores < 1 ? 1 : cores > TURNS_MAX ? TURNS_MAX : (int)cores;
        int64_t deadline = deadline_after_ms(TURN_WAIT_MS);
        for (;;) {
                char name[32];
                cubby_error problem = {0};
                for (int i = 0; i < turns; i++) {
                        (void)snprintf(name, sizeof name, "restore-%d", i);
                        if (home_lock(host->home, name, true, 0, ret_fd, &problem) == 0)
                                return 0;
                        if (problem.code != CUBBY_E_TIMEOUT)
                                return cubby_error_set(err, problem.code, "%s", problem.message);
                }
                if (deadline_left_ms(deadline) == 0)
                        return cubby_error_set(
                                err, CUBBY_E_BUSY, "too many machines are being restored at once");
                (void)usleep(TURN_PAUSE_MS * 1000);
        }
}

void saved_distrust(cubby *host, struct template **template)
{
        char key[TEMPLATE_KEY_SIZE];
        memcpy(key, (*template)->manifest.key, sizeof key);
        (void)saved_tell(*template, true, NULL);
        template_close(take_ptr(template));
        cubby_error problem = {0};
        if (template_remove(host->home, key, deadline_after_ms(REMOVE_WAIT_MS), NULL, &problem) < 0)
                log_line(&host->log, LOG_WARNING, "a template that cannot be restored stays: %s",
                        problem.message);
}

int saved_plain_config(
        cubby *host, const struct box_config *box, struct box_config *ret, cubby_error *err)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = box->image_id;
        options.no_main = true;
        options.memory_bytes = box->memory_bytes;
        options.cpu_milli = box->cpu_milli < 1000 ? 1000 : (box->cpu_milli + 999) / 1000 * 1000;
        options.disk_bytes = box->disk_bytes;
        options.engine = box->engine;
        options.accel = box->accel;
        options.kernel = box->kernel[0] == '\0' ? NULL : box->kernel;
        options.boot_timeout_ms = box->boot_timeout_ms;
        options.warmup = box->warmup;
        AUTO_CONFIG struct box_config plain = {0};
        char *name = strdup(box->image_name);
        if (name == NULL)
                return cubby_error_no_memory(err);
        if (box_plan(host, &options, &plain, err) < 0) {
                free(name);
                return -1;
        }
        free(plain.image_name);
        plain.image_name = name;
        *ret = plain;
        plain = (struct box_config){0};
        return 0;
}
