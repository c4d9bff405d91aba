/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

/*
 * Owners that clean up after themselves. Every owner starts as NULL or -1,
 * is released at the end of its scope, and is handed over with take_ptr() or
 * take_fd(), which leave an empty owner behind.
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

void close_quietly(int fd); /* closes fd >= 0, keeps errno */

static inline int take_fd(int *fd)
{
        int taken = *fd;
        *fd = -1;
        return taken;
}

#define take_ptr(pointer)                               \
        (__extension__({                                \
                __typeof__(pointer) owner_ = (pointer); \
                __typeof__(*owner_) taken_ = *owner_;   \
                *owner_ = NULL;                         \
                taken_;                                 \
        }))

static inline void cleanup_free(void *owner)
{
        free(*(void **)owner);
}

static inline void cleanup_fd(int *fd)
{
        close_quietly(*fd);
}

static inline void cleanup_file(FILE **file)
{
        if (*file != NULL)
                (void)fclose(*file);
}

static inline void cleanup_dir(DIR **dir)
{
        if (*dir != NULL)
                (void)closedir(*dir);
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_FD __attribute__((cleanup(cleanup_fd)))
#define AUTO_FILE __attribute__((cleanup(cleanup_file)))
#define AUTO_DIR __attribute__((cleanup(cleanup_dir)))

/*
 * DEFINE_AUTO(thing, thing_free) makes AUTO(thing) usable as
 *     AUTO(thing) struct thing *t = NULL;
 * thing_free must accept NULL and half-built objects.
 */
#define DEFINE_AUTO(name, free_function)                       \
        static inline void cleanup_##name(struct name **owner) \
        {                                                      \
                free_function(*owner);                         \
        }
#define AUTO(name) __attribute__((cleanup(cleanup_##name)))

#endif
