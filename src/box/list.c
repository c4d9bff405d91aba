/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include "base/clock.h"
#include "box/saved.h"

#include <stdio.h>
#include <string.h>

const char *box_state_name(int state)
{
        switch (state) {
        case CUBBY_BOX_CREATED:
                return "created";
        case CUBBY_BOX_RUNNING:
                return "running";
        case CUBBY_BOX_PAUSED:
                return "paused";
        case CUBBY_BOX_SUSPENDED:
                return "suspended";
        case CUBBY_BOX_STOPPED:
                return "stopped";
        case CUBBY_BOX_FAILED:
                return "failed";
        default:
                return "unknown";
        }
}

void box_info_clear(cubby_box_info *info)
{
        if (info == NULL)
                return;
        free(info->id);
        free(info->name);
        free(info->image_name);
        free(info->image_id);
        free(info->command);
        free(info->engine);
        free(info->isolation);
        free(info->served);
        free(info->reason);
        free(info->detail);
        *info = (cubby_box_info){0};
}

static char *command_text(char *const *argv)
{
        size_t size = 1;
        for (size_t i = 0; argv != NULL && argv[i] != NULL; i++)
                size += strlen(argv[i]) + 1;
        char *text = malloc(size);
        if (text == NULL)
                return NULL;
        char *end = text;
        for (size_t i = 0; argv != NULL && argv[i] != NULL; i++) {
                if (i > 0)
                        *end++ = ' ';
                end = stpcpy(end, argv[i]);
        }
        *end = '\0';
        return text;
}

static int set_text(char **field, const char *text, cubby_error *err)
{
        char *copy = strdup(text);
        if (copy == NULL)
                return cubby_error_no_memory(err);
        free(*field);
        *field = copy;
        return 0;
}

static int fill_running(const cubby_box *box, cubby_box_info *info, cubby_error *err)
{
        struct box_started started = {0};
        (void)box_read_started(box, &started);
        info->started_ns = started.started_ns;
        info->state = CUBBY_BOX_RUNNING;
        struct message_status status;
        if (box_status(box, deadline_after_ms(BOX_PROBE_MS), &status, NULL) == 0) {
                if (status.state == SHIM_BOOTING)
                        info->state = CUBBY_BOX_CREATED;
                if (status.state == SHIM_PAUSED)
                        info->state = CUBBY_BOX_PAUSED;
                info->shim_pid = status.shim_pid;
                info->generation = status.generation;
                if (status.has_main != 0 && status.main_ended != 0)
                        info->exit_code = status.exit.signal > 0 ? 128 + (int)status.exit.signal
                                                                 : (int)status.exit.code;
        }
        return set_text(&info->isolation, started.isolation, err) < 0
                ? -1
                : set_text(&info->served, started.served, err);
}

static bool ended_well(const char *reason)
{
        static const char *const good[] = {
                "exited", "stopped", "killed", "ttl", "idle", "guest-shutdown"};
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
                if (strcmp(reason, good[i]) == 0)
                        return true;
        return false;
}

static int fill_ended(const cubby_box *box, cubby_box_info *info, cubby_error *err)
{
        struct box_exit end = {.exit_code = -1};
        cubby_error problem = {0};
        if (box_read_end(box, &end, &problem) < 0) {
                if (problem.code == CUBBY_E_NOT_FOUND) {
                        if (err != NULL)
                                *err = problem;
                        return -1;
                }
                (void)snprintf(end.reason, sizeof end.reason, "shim-died");
                (void)snprintf(end.detail, sizeof end.detail, "%.500s", problem.message);
        }
        info->state = ended_well(end.reason) ? CUBBY_BOX_STOPPED : CUBBY_BOX_FAILED;
        if (strcmp(end.reason, "suspended") == 0 && box_is_suspended(box))
                info->state = CUBBY_BOX_SUSPENDED;
        info->exit_code = end.signal > 0 ? 128 + end.signal : end.exit_code;
        info->oom = end.oom;
        info->started_ns = end.started_ns;
        info->finished_ns = end.finished_ns;
        info->generation = end.generation;
        return set_text(&info->reason, end.reason, err) < 0 ||
                        set_text(&info->detail, end.detail, err) < 0
                ? -1
                : 0;
}

static int fill(const cubby_box *box, const char *name, cubby_box_info *info, cubby_error *err)
{
        const struct box_config *config = &box->config;
        enum box_life life;
        if (box_life(box, &life, err) < 0)
                return -1;
        *info = (cubby_box_info){.id = strdup(box->id),
                .name = strdup(name),
                .image_name = strdup(config->image_name),
                .image_id = strdup(box->image_id),
                .command = command_text(config->argv),
                .engine = strdup(config->engine),
                .isolation = strdup(""),
                .served = strdup(""),
                .reason = strdup(""),
                .detail = strdup(""),
                .state = CUBBY_BOX_CREATED,
                .exit_code = -1,
                .created_ns = config->created_ns};
        if (info->id == NULL || info->name == NULL || info->image_name == NULL ||
                info->image_id == NULL || info->command == NULL || info->engine == NULL ||
                info->isolation == NULL || info->served == NULL || info->reason == NULL ||
                info->detail == NULL)
                return cubby_error_no_memory(err);
        if (life == BOX_ALIVE && saved_waits(box))
                return 0;
        if (life == BOX_ALIVE)
                return fill_running(box, info, err);
        if (box->damage.code != CUBBY_OK) {
                info->state = CUBBY_BOX_FAILED;
                return set_text(&info->reason, "damaged", err) < 0 ||
                                set_text(&info->detail, box->damage.message, err) < 0
                        ? -1
                        : 0;
        }
        return life == BOX_ENDED ? fill_ended(box, info, err) : 0;
}

int box_get_info(cubby_box *box, cubby_box_info *ret, cubby_error *err)
{
        struct box_record record = {0};
        if (box_record_find(box->cubby->home, box->id, &record, err) < 0)
                return -1;
        cubby_box_info info = {0};
        int result = fill(box, record.name, &info, err);
        box_record_clear(&record);
        if (result < 0) {
                box_info_clear(&info);
                return -1;
        }
        *ret = info;
        return 0;
}

void box_list_free(cubby_box_list *list)
{
        if (list == NULL)
                return;
        for (size_t i = 0; i < list->count; i++)
                box_info_clear(&list->boxes[i]);
        free(list->boxes);
        free(list);
}

/* A box that is being made, removed or is unreadable does not spoil the list. */
static bool describe(cubby *host, const struct box_record *record, bool all, cubby_box_info *ret)
{
        AUTO(cubby_box) cubby_box *box = NULL;
        cubby_error problem = {0};
        cubby_box_info info = {0};
        if (box_open_record(host, record, &box, &problem) < 0 ||
                fill(box, record->name, &info, &problem) < 0) {
                box_info_clear(&info);
                if (problem.code != CUBBY_E_NOT_FOUND)
                        log_line(&host->log, LOG_WARNING, "box %s is not listed: %s", record->name,
                                problem.message);
                return false;
        }
        bool runs = info.state == CUBBY_BOX_RUNNING || info.state == CUBBY_BOX_PAUSED;
        bool gone = box->config.auto_remove && info.finished_ns > 0;
        if ((!all && !runs) || gone) {
                box_info_clear(&info);
                return false;
        }
        *ret = info;
        return true;
}

DEFINE_AUTO(cubby_box_list, box_list_free)

int box_list(cubby *host, bool all, cubby_box_list **ret, cubby_error *err)
{
        struct box_record *records = NULL;
        size_t count = 0;
        if (box_record_list(host->home, &records, &count, err) < 0)
                return -1;
        AUTO(cubby_box_list) cubby_box_list *list = calloc(1, sizeof *list);
        if (list != NULL)
                list->boxes = calloc(count + 1, sizeof *list->boxes);
        if (list == NULL || list->boxes == NULL) {
                box_record_list_free(records, count);
                return cubby_error_no_memory(err);
        }
        for (size_t i = 0; i < count; i++)
                if (describe(host, &records[i], all, &list->boxes[list->count]))
                        list->count++;
        box_record_list_free(records, count);
        *ret = take_ptr(&list);
        return 0;
}
