/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEMPLATE_TEMPLATE_H
#define TEMPLATE_TEMPLATE_H

/*
 * Saved machines. A template is a booted, quiet machine of one (image, size,
 * kernel, agent, VMM), kept so that clones continue from it:
 *
 *   templates/KEY/manifest.json   what it was made from, and a check of each file
 *                 memory          guest RAM, sparse, read into a sealed memfd
 *                 state           device state, as the VMM wrote it
 *                 disk            the writable disk at the same instant
 *                 used            its mtime is the last use
 *                 wanted          how many spares are kept (decimal)
 *                 wanted-pools    the same, while a provider is there that wants more
 *                 spares/ID       one empty file per spare that nobody owns yet
 *                 spares/ahead-ID the same for one that has not continued yet
 *                 keeper.sock     the keeper, while there is one
 *
 * All but the last five are published as one unit by rename and never written
 * again. A template whose manifest or files do not match is removed and made
 * anew, never tried.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "state/home.h"

#include <stdbool.h>
#include <stdint.h>

#define TEMPLATE_FORMAT 1
#define TEMPLATE_MANIFEST_BYTES_MAX (256U << 10)
#define TEMPLATE_WARMUPS_MAX 16U
#define TEMPLATE_SPARES_MAX 64U
#define TEMPLATE_MANIFEST_NAME "manifest.json"
#define TEMPLATE_USED_NAME "used"
#define TEMPLATE_WANTED_NAME "wanted"
#define TEMPLATE_POOLS_NAME "wanted-pools"
#define TEMPLATE_SPARES_NAME "spares"
#define TEMPLATE_KEEPER_NAME "keeper.sock"
#define TEMPLATE_KEY_SIZE 65

/* What makes two machines interchangeable. */
struct template_inputs {
        char *image_id;      /* "sha256:HEX" */
        char *kernel_digest; /* hex */
        char *agent_digest;  /* hex; of the agent or of the initramfs that holds it */
        char *machine;       /* the engine's account of everything that binds its state:
                                VMM build, arguments, CPU model, accelerator, clock rate */
        uint64_t memory_bytes;
        uint32_t vcpus;
        uint64_t disk_bytes;
        char **warmups; /* command lines that ran before it was saved, words
                           separated by spaces; NULL-terminated */
};
void template_inputs_clear(struct template_inputs *inputs);
int template_inputs_check(const struct template_inputs *inputs, cubby_error *err);
/* SHA-256 over the format version and every input, in hex. */
int template_key(
        const struct template_inputs *inputs, char ret[TEMPLATE_KEY_SIZE], cubby_error *err);
bool template_key_valid(const char *key); /* 64 lower-case hex digits */

enum template_file { TEMPLATE_MEMORY, TEMPLATE_STATE, TEMPLATE_DISK, TEMPLATE_FILE_COUNT };
const char *template_file_name(enum template_file file);

struct template_check {
        uint64_t size_bytes;
        uint64_t inode;
        int64_t mtime_ns;
        char digest[TEMPLATE_KEY_SIZE]; /* SHA-256 of the content, see digest_file */
};

struct template_manifest {
        char key[TEMPLATE_KEY_SIZE];
        struct template_inputs inputs;
        char *image_name;    /* for display */
        char *snapshot;      /* the snapshot's name; "" for a template */
        char *config;        /* a snapshot's box config (JSON); "" for a template */
        uint64_t generation; /* of the saved state */
        int64_t created_ns;
        struct template_check files[TEMPLATE_FILE_COUNT];
};
void template_manifest_clear(struct template_manifest *manifest);
int template_manifest_encode(
        const struct template_manifest *manifest, struct buffer *ret_json, cubby_error *err);
/* CUBBY_E_CORRUPT, CUBBY_E_VERSION. For a template the key is computed again. */
int template_manifest_decode(
        const void *json, size_t size, struct template_manifest *ret, cubby_error *err);

/* ------------------------------------------------------------- memory -- */

/* An empty memory object that a VMM may write: a memfd that can be sealed. */
int memory_create(uint64_t size_bytes, int *ret_fd, cubby_error *err);
/* Nobody can write, grow or shrink it any more, nor map it to write. Waits for
 * the last writable mapping to go until the deadline. */
int memory_seal(int fd, int64_t deadline_ms, cubby_error *err);
bool memory_sealed(int fd);
/* The object's content into a file, pages of zeros left out. */
int memory_save(int memory_fd, int file_fd, cubby_error *err);
/* A sealed object with the file's content. */
int memory_load(int file_fd, uint64_t size_bytes, int *ret_fd, cubby_error *err);
/* SHA-256 over size and every 64 KiB block that is not all zeros, with its
 * place: the same for a file with holes and one without. */
int digest_file(int fd, char ret[TEMPLATE_KEY_SIZE], cubby_error *err);

/* -------------------------------------------------------------- store -- */

struct template
{
        int dir_fd;
        int lock_fd; /* shared lock: keeps it from being removed */
        struct template_manifest manifest;
        int fds[TEMPLATE_FILE_COUNT]; /* O_RDONLY, as they were checked */
};
void template_close(struct template *template); /* NULL and half-built allowed */

/*
 * Opens a template and checks manifest, sizes, inodes and times.
 * CUBBY_E_NOT_FOUND when there is none, CUBBY_E_CORRUPT, CUBBY_E_VERSION,
 * CUBBY_E_BUSY while it is being removed.
 */
int template_open(struct home *home, const char *key, struct template **ret, cubby_error *err);
/* Reads everything and compares the digests. */
int template_verify(const struct template *template, cubby_error *err);
/* Marks it as used now. */
void template_touch(const struct template *template);

/*
 * Publishes the folder tmp/`temporary`/`name` as templates/KEY: fills in the
 * checks of the three files in it, writes the manifest, syncs all, renames. One
 * that is there already is replaced when it does not open, else kept.
 */
int template_publish(struct home *home, const char *temporary, const char *name,
        struct template_manifest *manifest, cubby_error *err);

/* Removes it, waiting for its users until the deadline; CUBBY_E_BUSY then. */
int template_remove(struct home *home, const char *key, int64_t deadline_ms, uint64_t *ret_bytes,
        cubby_error *err);

struct template_info {
        struct template_manifest manifest; /* zeroed but for the key when it cannot be read */
        bool damaged;
        char *problem; /* NULL: none */
        int64_t used_ns;
        uint64_t disk_usage_bytes; /* really allocated */
        uint32_t spares;
        uint32_t wanted;
        bool keeper; /* one answers */
};
/* Most recently used first. */
int template_list(
        struct home *home, struct template_info **ret, size_t *ret_count, cubby_error *err);
void template_list_free(struct template_info *infos, size_t count);
/* The full key for a unique beginning (from 4 digits) or a snapshot's name. */
int template_resolve(
        struct home *home, const char *text, char ret[TEMPLATE_KEY_SIZE], cubby_error *err);

/* Removes templates, least recently used first, until they use at most
 * `limit_bytes`; those in use and snapshots stay. Damaged ones go first. With
 * `dry_run` nothing is removed. */
int template_prune(struct home *home, uint64_t limit_bytes, bool dry_run, uint64_t *ret_bytes,
        cubby_error *err);

/* How many spares are wanted, by the home's owner or by providers; 0 when nothing is written. */
uint32_t template_wanted(int dir_fd);
/* By the owner, who overrules what providers have asked for so far. */
int template_set_wanted(int dir_fd, uint32_t count, cubby_error *err);
/* By providers, of which none is left when count is 0. */
int template_set_pools_wanted(int dir_fd, uint32_t count, cubby_error *err);

/* The index of machines that wait for an owner: a spare has gone on and is warm; one
 * that is ahead was only started, and continues from the template when it is taken. */
enum spare_kind { SPARE_WARM, SPARE_AHEAD };
int spare_add(int dir_fd, enum spare_kind kind, const char *box_id, cubby_error *err);
/* Takes one: 1 and its id, 0 when there is none, -1. Atomic between processes. Until
 * spare_settle a note of it stays, so that one whose taker died is found. */
int spare_take(int dir_fd, enum spare_kind kind, char ret_id[33], cubby_error *err);
void spare_settle(int dir_fd, const char *box_id);
/* Back into the index. */
void spare_return(int dir_fd, enum spare_kind kind, const char *box_id);
/* One that was taken at least `age_ms` ago and is not settled: 1, else 0. */
int spare_forgotten(int dir_fd, int64_t age_ms, char ret_id[33]);
/* True when it was there and is now gone. */
bool spare_drop(int dir_fd, enum spare_kind kind, const char *box_id);
uint32_t spare_count(int dir_fd, enum spare_kind kind);
/* The ids, at most TEMPLATE_SPARES_MAX of them; how many. */
size_t spare_list(int dir_fd, enum spare_kind kind, char ret_ids[TEMPLATE_SPARES_MAX][33]);
/* Whether the index of any template has it. */
bool spare_indexed(struct home *home, const char *box_id);

#endif
