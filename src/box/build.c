/* SPDX-License-Identifier: Apache-2.0 */
#include "box/saved.h"

#include "base/clock.h"
#include "base/fd.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INNER "template" /* the part of the temporary folder that is published */
#define MAKER_WAIT_MS 300000
#define END_WAIT_MS 10000

struct build {
        cubby *host;
        struct box_config *config;
        struct template_inputs inputs;
        char key[TEMPLATE_KEY_SIZE];
        char temporary[32];
        int dir;   /* the machine's folder, like a box's */
        int inner; /* the template's */
        int memory;
};

/* Boots, warms up, saves. Returns when the VMM is gone. */
static int run_machine(struct build *build, cubby_error *err)
{
        AUTO_PARTS struct shim_parts parts = SHIM_PARTS_NONE;
        cubby_box machine = {.cubby = build->host,
                .id = build->config->id,
                .dir_fd = build->dir,
                .config = *build->config};
        if (box_lock(&machine, 0, &parts.lock, err) < 0 ||
                image_open_rootfs(build->host->home, build->config->image_id, &parts.rootfs, err) <
                        0 ||
                shim_open_kernel(build->host, build->config, &parts, err) < 0 ||
                memory_create(build->config->memory_bytes, &build->memory, err) < 0)
                return -1;
        parts.memory = fcntl(build->memory, F_DUPFD_CLOEXEC, 3);
        parts.state = openat(build->inner, template_file_name(TEMPLATE_STATE),
                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (parts.memory < 0 || parts.state < 0)
                return cubby_error_errno(err, errno, "preparing the machine");
        AUTO_FD int pidfd = -1;
        if (shim_launch(&machine, SHIM_TEMPLATE, build->inputs.warmups, &parts, &pidfd, err) < 0)
                return -1;
        close_quietly(take_fd(&parts.lock));
        struct shim_report report = {0};
        if (shim_wait_ready(&machine, parts.status, &report, err) < 0) {
                shim_clean_up(&machine, pidfd);
                return -1;
        }
        return box_wait_end(&machine, deadline_after_ms(END_WAIT_MS), err);
}

static int collect(struct build *build, cubby_error *err)
{
        box_progress(build->host, "template", "saving memory", 0, 0);
        if (memory_seal(build->memory, deadline_after_ms(END_WAIT_MS), err) < 0)
                return -1;
        AUTO_FD int file = openat(build->inner, template_file_name(TEMPLATE_MEMORY),
                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file < 0)
                return cubby_error_errno(err, errno, "making the file of the memory");
        if (memory_save(build->memory, file, err) < 0)
                return -1;
        if (renameat(build->dir, BOX_DISK_NAME, build->inner, template_file_name(TEMPLATE_DISK)) <
                0)
                return cubby_error_errno(err, errno, "taking the machine's disk");
        return 0;
}

static int publish(struct build *build, cubby_error *err)
{
        struct template_manifest manifest = {.inputs = build->inputs,
                .image_name = strdup(build->config->image_name),
                .snapshot = strdup(""),
                .config = strdup(""),
                .generation = 1,
                .created_ns = clock_realtime_ns()};
        build->inputs = (struct template_inputs){0};
        memcpy(manifest.key, build->key, sizeof manifest.key);
        int result =
                manifest.image_name == NULL || manifest.snapshot == NULL || manifest.config == NULL
                ? cubby_error_no_memory(err)
                : template_publish(build->host->home, build->temporary, INNER, &manifest, err);
        template_manifest_clear(&manifest);
        return result;
}

static int make(struct build *build, cubby_error *err)
{
        AUTO_LOCK int lock = -1;
        if (home_make_temporary(build->host->home, build->temporary, &build->dir, &lock, err) < 0)
                return -1;
        int result = 0;
        if (mkdirat(build->dir, INNER, 0700) < 0 ||
                (build->inner = openat(
                         build->dir, INNER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
                result = cubby_error_errno(err, errno, "making the template's folder");
        if (result == 0)
                result = box_fill_folder(build->host, build->config, build->dir, -1, err);
        if (result == 0)
                result = box_disk_place(build->host, build->config, build->dir, -1, err);
        if (result == 0)
                result = run_machine(build, err);
        if (result == 0)
                result = collect(build, err);
        if (result == 0)
                result = publish(build, err);
        (void)dir_remove_at(home_folder(build->host->home, HOME_TMP), build->temporary, NULL);
        return result;
}

/* 1 when it is there and stays. */
static int present(struct build *build, bool again, cubby_error *err)
{
        AUTO(template) struct template *template = NULL;
        cubby_error problem = {0};
        if (template_open(build->host->home, build->key, &template, &problem) == 0) {
                if (!again)
                        return 1;
                (void)saved_tell(template, true, NULL);
                template_close(take_ptr(&template));
        } else if (problem.code == CUBBY_E_NOT_FOUND) {
                return 0;
        }
        if (template_remove(build->host->home, build->key, deadline_after_ms(END_WAIT_MS), NULL,
                    &problem) < 0 &&
                problem.code != CUBBY_E_NOT_FOUND)
                return cubby_error_set(err, problem.code, "%s", problem.message);
        return 0;
}

static int build_locked(struct build *build, bool again, cubby_error *err)
{
        if (saved_inputs(build->host, build->config, &build->inputs, err) < 0 ||
                template_key(&build->inputs, build->key, err) < 0)
                return -1;
        char name[96];
        (void)snprintf(name, sizeof name, "build-%s", build->key);
        AUTO_LOCK int lock = -1;
        if (home_lock(build->host->home, name, true, 0, &lock, NULL) < 0) {
                box_progress(build->host, "template", "being made by another process", 0, 0);
                if (home_lock(build->host->home, name, true, deadline_after_ms(MAKER_WAIT_MS),
                            &lock, err) < 0)
                        return -1;
                again = false; /* it is new */
        }
        int there = present(build, again, err);
        if (there != 0)
                return there < 0 ? -1 : 0;
        return make(build, err);
}

int saved_build(cubby *host, const struct box_config *config, bool again, cubby_error *err)
{
        AUTO_CONFIG struct box_config plain = {0};
        if (saved_plain_config(host, config, &plain, err) < 0)
                return -1;
        plain.slot = SAVED_SLOT_TEMPLATE;
        struct build build = {.host = host, .config = &plain, .dir = -1, .inner = -1, .memory = -1};
        int result = build_locked(&build, again, err);
        close_quietly(build.dir);
        close_quietly(build.inner);
        close_quietly(build.memory);
        template_inputs_clear(&build.inputs);
        return result < 0
                ? cubby_error_wrap(err, "making a template of image '%s'", config->image_name)
                : 0;
}
