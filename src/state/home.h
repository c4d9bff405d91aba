/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_HOME_H
#define STATE_HOME_H

/*
 * The home folder: where everything lives, who holds what, and its records.
 * Several processes use one home at once; the files and locks arbitrate.
 *
 *   cubby.db           SQLite, WAL: images, boxes (an index: directories are the truth)
 *   blobs/sha256/HEX   manifests, configs (and layers once they are kept)
 *   images/HEX.json    one record per image, from which the database can be rebuilt
 *   rootfs/HEX/        disk.erofs, made once per config digest
 *   kernels/VERSION/   vmlinux, modules/, initramfs-*.cpio
 *   templates/KEY/
 *   boxes/ID/          config.json, lock, disk, box.sock, console.log, log, exit
 *   locks/NAME         flock files, freed by the death of their holder
 *   tmp/NAME           unfinished work, each with a lock that its maker holds
 */

#include "base/error.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct home;

enum home_folder {
        HOME_ROOT,
        HOME_BLOBS, /* blobs/sha256 */
        HOME_IMAGES,
        HOME_ROOTFS,
        HOME_KERNELS,
        HOME_TEMPLATES,
        HOME_BOXES,
        HOME_LOCKS,
        HOME_TMP,
        HOME_FOLDER_COUNT
};

/* `path` NULL: the default (see cubby.h). Makes what is missing. Thread-safe handle. */
int home_open(const char *path, const struct log *log, struct home **ret, cubby_error *err);
void home_close(struct home *home);
const char *home_path(const struct home *home);
/* Descriptor of a folder, owned by the home. */
int home_folder(const struct home *home, enum home_folder folder);
const struct log *home_log(const struct home *home);

/*
 * Named locks between processes and threads; the descriptor that comes back is
 * the lock, home_unlock lets go. CUBBY_E_TIMEOUT at the deadline (monotonic ms).
 */
int home_lock(struct home *home, const char *name, bool exclusive, int64_t deadline_ms, int *ret_fd,
        cubby_error *err);
/*
 * Lets go and closes; -1 is allowed. To close alone is not enough: a fork of the
 * embedding program has a copy of every descriptor, and a lock lives as long as one.
 */
void home_unlock(int lock_fd);
static inline void cleanup_lock(int *lock_fd)
{
        home_unlock(*lock_fd);
}
#define AUTO_LOCK __attribute__((cleanup(cleanup_lock)))

/* The same, alone, for names that are as many as conversations: the file goes
 * with its last holder. */
int home_lock_briefly(
        struct home *home, const char *name, int64_t deadline_ms, int *ret_fd, cubby_error *err);
void home_unlock_briefly(struct home *home, const char *name, int *fd);

/*
 * A private folder under tmp/ that `home_sweep` leaves alone until home_unlock of the
 * caller's lock descriptor. `ret_name` (32 bytes) is its name beneath HOME_TMP.
 */
int home_make_temporary(
        struct home *home, char ret_name[32], int *ret_dir_fd, int *ret_lock_fd, cubby_error *err);

/* Removes temporaries whose maker is dead; returns bytes freed. What cannot be removed
 * goes to the log. */
int home_sweep(struct home *home, uint64_t *ret_bytes, cubby_error *err);

/* Bytes that a file or a folder with all in it takes on the disk; 0 when missing. */
uint64_t home_usage_at(int dir_fd, const char *name);

#endif
