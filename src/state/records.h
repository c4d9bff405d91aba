/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_RECORDS_H
#define STATE_RECORDS_H

/*
 * Records of images and boxes in cubby.db. The database is an index over the
 * directories: a corrupt one is set aside and rebuilt from images/ and boxes/;
 * one of a newer schema is refused. Every call is its own transaction.
 */

#include "state/home.h"

struct image_record {
        char *id;       /* "sha256:HEX" of the config */
        char *name;     /* normalised reference, or NULL when untagged */
        char *manifest; /* JSON as stored; synthesised for plain tars */
        char *config;   /* JSON as stored, at most 1 MiB */
        char *architecture;
        uint64_t disk_bytes;
        int64_t created_ns;
};

void image_record_clear(struct image_record *record); /* frees the fields */

/* Writes images/HEX.json and the index. `record->name` set: that name moves to
 * this image. */
int image_record_put(struct home *home, const struct image_record *record, cubby_error *err);
/* By name (normalised by the caller), id, or unique hex prefix (from 4 digits). */
int image_record_find(
        struct home *home, const char *image, struct image_record *ret, cubby_error *err);
/* One entry per name, untagged images once; newest first. */
int image_record_list(
        struct home *home, struct image_record **ret, size_t *ret_count, cubby_error *err);
void image_record_list_free(struct image_record *records, size_t count);
/* Drops one name; with the last name (or for an id) the record itself. Sets
 * *ret_gone when the image has no record any more. */
int image_record_remove(struct home *home, const char *image, bool *ret_gone, cubby_error *err);
int image_record_tag(struct home *home, const char *image, const char *name, cubby_error *err);

struct box_record {
        char *id;       /* 32 hex digits */
        char *name;     /* unique in the home */
        char *image_id; /* keeps the image's rootfs alive */
        uint32_t slot;  /* unique among boxes: the source of the box's uid */
        int64_t created_ns;
};

void box_record_clear(struct box_record *record);
/* CUBBY_E_EXISTS when the name is taken. Slot 0: a free one is chosen; else that one,
 * CUBBY_E_EXISTS when it is taken; such a record, of a machine that runs already,
 * is not synced, because a crash of the host ends that machine too. */
int box_record_insert(struct home *home, struct box_record *record, cubby_error *err);
int box_record_find(struct home *home, const char *box, struct box_record *ret, cubby_error *err);
int box_record_list(struct home *home, struct box_record **ret, size_t *ret_count,
        cubby_error *err); /* newest first */
/* Those called NAME or NAME-MORE. */
int box_record_list_named(struct home *home, const char *name, struct box_record **ret,
        size_t *ret_count, cubby_error *err);
void box_record_list_free(struct box_record *records, size_t count);
int box_record_rename(struct home *home, const char *id, const char *name, cubby_error *err);
int box_record_remove(struct home *home, const char *id, cubby_error *err);
/* How many boxes use the image. */
int box_record_count_by_image(
        struct home *home, const char *image_id, size_t *ret, cubby_error *err);

#endif
