/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_SAVED_H
#define BOX_SAVED_H

/*
 * Boxes from saved machines: templates that are built, clones, and spares that
 * are claimed. Everything here works without a keeper; with one, clones share
 * the template's memory and spares are kept ready.
 */

#include "box/launch.h"
#include "template/template.h"

DEFINE_AUTO(template, template_close)

#define SAVED_SLOT_TEMPLATE BOX_SLOT_MAX     /* of a machine that is being made a template */
#define SAVED_SLOT_SPARE (BOX_SLOT_MAX / 2U) /* spares take slots from here on */
#define SAVED_SPARE_PREFIX "spare-"          /* of its name, before the beginning of its id */

/* machine.c: everything that binds a saved machine to this host and build, as
 * one line; cached in the home until the host's next boot. */
int saved_machine(cubby *host, const struct box_config *config, char **ret, cubby_error *err);

/* saved.c */
int saved_inputs(cubby *host, const struct box_config *config, struct template_inputs *ret,
        cubby_error *err);
int saved_key(cubby *host, const struct box_config *config, char ret[TEMPLATE_KEY_SIZE],
        cubby_error *err);
/* 1 with the template that a box of this config continues from, 0 when there is
 * none, -1. One that is being made is none yet: a boot is sooner. A damaged one is removed. */
int saved_find(
        cubby *host, const struct box_config *config, struct template **ret, cubby_error *err);
/* Fills in memory, state and the box's disk. */
int saved_prepare_clone(cubby_box *box, const struct template *template, struct shim_parts *parts,
        cubby_error *err);
/* Few machines are restored at once: the descriptor is the turn. */
int saved_turn(cubby *host, int *ret_fd, cubby_error *err);
/* Removes a template that could not be restored from; closes the handle. */
void saved_distrust(cubby *host, struct template **template);
/* What a box of this size would be without anything of its owner. */
int saved_plain_config(
        cubby *host, const struct box_config *box, struct box_config *ret, cubby_error *err);

/* build.c: boots, warms up, saves, publishes; `config` has nothing of an owner.
 * Does nothing when it is there already. Another maker is waited for. */
int saved_build(cubby *host, const struct box_config *config, bool again, cubby_error *err);

/* keep.c: starts a keeper for the template of this config, which makes the
 * template first when there is none. Never fails: without it things are slower. */
void saved_keep(cubby *host, const struct box_config *config);
/* Has the template's keeper look at the wanted number, or starts one. Never fails; waits
 * a few seconds at most for a keeper that lives and does not answer yet, or is just ending. */
void saved_want_spares(
        cubby *host, const struct box_config *config, const struct template *template);
/* The keeper's copy of the memory, else one of our own. */
int saved_memory(cubby *host, const struct box_config *config, const struct template *template,
        int *ret_fd, cubby_error *err);
/* Tells a keeper to look at its template again, or to end. */
int saved_tell(const struct template *template, bool end, cubby_error *err);

/* spare.c */
/* Makes one spare; `keeper_fd` is hung up when the keeper ends. */
int saved_make_spare(cubby *host, const struct template *template, enum spare_kind kind,
        const struct box_config *config, int memory_fd, int keeper_fd, char ret_id[33],
        cubby_error *err);
void saved_remove_spare(cubby *host, const char *id);
bool saved_spare_lives(cubby *host, const char *id);
/* Removes what is left of spares whose maker, keeper or claimer died. The caller has
 * the lock "boxes" alone: nobody makes or claims one. */
void saved_sweep_spares(cubby *host, const struct box_record *records, size_t count);
/* A claimed spare whose owner has not started it: to everybody a box that never ran. */
bool saved_waits(const cubby_box *box);
/* No start can claim its machine any more; false when one has. */
bool saved_take_back(const cubby_box *box);
/* Takes a spare for this plan, which then has its id and slot. 1 when there was one, and
 * *ret_dir is the folder of its template, for saved_claimed. */
int saved_claim(cubby *host, struct box_config *config, int *ret_dir, cubby_error *err);
/* After the record: the claim stands, or the spare goes back. */
void saved_claimed(cubby *host, int dir, const char *id, bool good);
/* The start of a claimed box: 1 when it runs, 0 when it has to be started otherwise. */
int saved_claim_start(cubby_box *box, cubby_error *err);

/* copy.c: a copy of a running box, of one instant */
struct box_copy {
        int memory_fd; /* sealed */
        int state_fd;
        int line_fd; /* while it is open the box stands still; -1: it goes on */
};
#define BOX_COPY_NONE ((struct box_copy){.memory_fd = -1, .state_fd = -1, .line_fd = -1})
void box_copy_close(struct box_copy *copy); /* the box goes on */
/* The box ends while it stands still; an error when it has gone on meanwhile. */
int box_copy_end(struct box_copy *copy, cubby_error *err);
/* `disk_fd`: an empty file for the disk, -1: none. The box stands still for moments
 * and goes on; with `keep_still` it stands still until the copy is closed. */
int box_copy_take(
        const cubby_box *box, int disk_fd, bool keep_still, struct box_copy *ret, cubby_error *err);

/* suspend.c */
#define SUSPENDED_NAME "suspended" /* in a box's folder: its machine, put away */
int box_suspend(cubby_box *box, cubby_error *err);
bool box_is_suspended(const cubby_box *box);
/* -1: the box does not run, with what to do about it. */
int box_refuse_ended(const cubby_box *box, cubby_error *err);
/* Of a suspended box, or a paused one. */
int box_resume(cubby_box *box, cubby_error *err);

/* fork.c */
int box_fork_many(cubby_box *box, const char *const *names, size_t count, cubby_box **ret,
        cubby_error *errors, cubby_error *err);
/* A box of this config that continues from a copy; `config` has its id and name. */
int box_continue(cubby *host, struct box_config *config, bool made_up, int disk_fd, int memory_fd,
        int state_fd, const char *served, cubby_box **ret, cubby_error *err);
/* Starts a box whose disk is in place from a copy's memory and state. *ret_ran (may be
 * NULL) tells after a failure whether the machine may have run. */
int box_start_copy(cubby_box *box, enum shim_mode mode, int memory_fd, int state_fd,
        const char *served, bool *ret_ran, cubby_error *err);
/* What a child is of its parent: everything but identity and command. */
int box_child_config(const struct box_config *parent, const char *name, struct box_config *ret,
        cubby_error *err);

/* snapshot.c */
int box_snapshot(cubby_box *box, const char *name, cubby_error *err);
int box_from_snapshot(cubby *host, const char *snapshot, const cubby_box_options *options,
        cubby_box **ret, cubby_error *err);

/* templates.c: for people */
int saved_list(cubby *host, cubby_template_list **ret, cubby_error *err);
void saved_list_free(cubby_template_list *list);
int saved_build_for(cubby *host, const cubby_box_options *options, bool again, cubby_error *err);
int saved_remove(cubby *host, const char *name, cubby_error *err);
int saved_inspect(cubby *host, const char *name, char **ret_json, cubby_error *err);
int saved_verify(cubby *host, const char *name, cubby_error *err);
int saved_set_spares(
        cubby *host, const cubby_box_options *options, uint32_t count, cubby_error *err);

/* usage.c */
int box_usage(cubby *host, char **ret_json, cubby_error *err);
int box_prune(
        cubby *host, const cubby_prune_options *options, uint64_t *ret_bytes, cubby_error *err);

#endif
