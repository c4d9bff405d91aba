/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "../cli.h"

extern const struct command command_acquire, command_id, command_pool_drain, command_pool_status,
        command_release;
extern const struct command command_attach, command_completion, command_create, command_doctor,
        command_exec, command_gc, command_help, command_image_import, command_image_inspect,
        command_image_ls, command_image_rm, command_image_tag, command_images, command_inspect,
        command_kernel_add, command_kernel_ensure, command_kernel_ls, command_kill, command_logs,
        command_pause, command_ps, command_rename, command_restart, command_rm, command_run,
        command_start, command_stats, command_stop, command_top, command_unpause, command_version,
        command_wait;
extern const struct command command_df, command_prune, command_spare_ls, command_spare_set,
        command_template_build, command_template_inspect, command_template_ls, command_template_rm,
        command_template_verify, command_suspend, command_resume, command_fork,
        command_snapshot_create;

extern const struct command command_cp;
extern const struct command command_fs_find, command_fs_grep, command_fs_watch;
extern const struct command command_fs_cat, command_fs_ls, command_fs_mkdir, command_fs_mv,
        command_fs_rm, command_fs_stat, command_fs_write;

#define OPTIONS_END                                      \
        {                                                \
                0, NULL, OPTION_END, 0, NULL, NULL, 0, 0 \
        }

#endif
