/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef CUBBY_FAULT_POINTS

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POINTS_MAX 64
#define NAME_BYTES 48

struct point {
        char name[NAME_BYTES];
        enum fault_action action; /* 0: not armed */
        unsigned times;
        unsigned standing; /* threads that wait here */
        uint64_t passage;  /* counts releases */
        uint64_t reached;
};

struct faults {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct point points[POINTS_MAX];
};

int faults_create(struct faults **ret, cubby_error *err)
{
        struct faults *faults = calloc(1, sizeof *faults);
        if (faults == NULL)
                return cubby_error_no_memory(err);
        pthread_condattr_t monotonic;
        (void)pthread_condattr_init(&monotonic);
        (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&faults->changed, &monotonic);
        (void)pthread_condattr_destroy(&monotonic);
        (void)pthread_mutex_init(&faults->lock, NULL);
        *ret = faults;
        return 0;
}

void faults_free(struct faults *faults)
{
        if (faults == NULL)
                return;
        (void)pthread_cond_destroy(&faults->changed);
        (void)pthread_mutex_destroy(&faults->lock);
        free(faults);
}

/* With the lock held; NULL when the table is full. */
static struct point *find(struct faults *faults, const char *name)
{
        for (size_t i = 0; i < POINTS_MAX; i++) {
                struct point *point = &faults->points[i];
                if (point->name[0] == '\0')
                        (void)strncpy(point->name, name, NAME_BYTES - 1);
                if (strncmp(point->name, name, NAME_BYTES - 1) == 0)
                        return point;
        }
        return NULL;
}

void fault_arm(struct faults *faults, const char *name, enum fault_action action, unsigned times)
{
        (void)pthread_mutex_lock(&faults->lock);
        struct point *point = find(faults, name);
        if (point != NULL) {
                point->action = action;
                point->times = times;
        }
        (void)pthread_mutex_unlock(&faults->lock);
}

bool fault_await(struct faults *faults, const char *name, int64_t timeout_ms)
{
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += timeout_ms / 1000;
        (void)pthread_mutex_lock(&faults->lock);
        struct point *point = find(faults, name);
        int result = 0;
        while (point != NULL && point->standing == 0 && result == 0)
                result = pthread_cond_timedwait(&faults->changed, &faults->lock, &until);
        bool found = point != NULL && point->standing > 0;
        (void)pthread_mutex_unlock(&faults->lock);
        return found;
}

void fault_release(struct faults *faults, const char *name)
{
        (void)pthread_mutex_lock(&faults->lock);
        struct point *point = find(faults, name);
        if (point != NULL) {
                point->action = 0;
                point->passage++;
                point->standing = 0;
        }
        (void)pthread_cond_broadcast(&faults->changed);
        (void)pthread_mutex_unlock(&faults->lock);
}

uint64_t fault_count(struct faults *faults, const char *name)
{
        (void)pthread_mutex_lock(&faults->lock);
        struct point *point = find(faults, name);
        uint64_t count = point == NULL ? 0 : point->reached;
        (void)pthread_mutex_unlock(&faults->lock);
        return count;
}

static void stand(struct faults *faults, struct point *point)
{
        uint64_t passage = point->passage;
        point->standing++;
        (void)pthread_cond_broadcast(&faults->changed);
        while (point->passage == passage)
                (void)pthread_cond_wait(&faults->changed, &faults->lock);
}

static int act(enum fault_action action, const char *name, cubby_error *err)
{
        if (action == FAULT_KILL)
                (void)kill(getpid(), SIGKILL);
        if (action == FAULT_FAIL)
                return cubby_error_set(err, CUBBY_E_SYSTEM, "the fault point %s says so", name);
        return 0;
}

static int reach_by_environment(const char *name, cubby_error *err)
{
        const char *killed = getenv("CUBBY_FAULT_KILL");
        const char *failed = getenv("CUBBY_FAULT_FAIL");
        if (killed != NULL && strcmp(killed, name) == 0)
                return act(FAULT_KILL, name, err);
        if (failed != NULL && strcmp(failed, name) == 0)
                return act(FAULT_FAIL, name, err);
        return 0;
}

int fault_reach(struct faults *faults, const char *name, cubby_error *err)
{
        if (faults == NULL)
                return reach_by_environment(name, err);
        (void)pthread_mutex_lock(&faults->lock);
        struct point *point = find(faults, name);
        enum fault_action action = 0;
        if (point != NULL) {
                point->reached++;
                if (point->action != 0 && point->times > 0) {
                        action = point->action;
                        point->times--;
                }
                if (action == FAULT_PAUSE)
                        stand(faults, point);
        }
        (void)pthread_mutex_unlock(&faults->lock);
        return act(action, name, err);
}

#endif
