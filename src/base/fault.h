/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

/*
 * Named points where a test may pause, fail or kill the process, so that a race
 * is forced at its interleaving and not waited for. They exist only when the
 * build defines CUBBY_FAULT_POINTS (meson: -Dfault_points=true; the tests of
 * the pool build it so for themselves); else FAULT_POINT is 0.
 *
 *      if (FAULT_POINT(pool->faults, "acquire.locked", err) < 0)
 *              return -1;
 *
 * With `faults` NULL the environment is asked: CUBBY_FAULT_KILL=NAME ends the
 * process there with SIGKILL, CUBBY_FAULT_FAIL=NAME lets the step fail.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum fault_action { FAULT_PAUSE = 1, FAULT_FAIL, FAULT_KILL };

struct faults;

#ifdef CUBBY_FAULT_POINTS
#define FAULT_POINT(faults, name, err) fault_reach(faults, name, err)

int faults_create(struct faults **ret, cubby_error *err);
void faults_free(struct faults *faults); /* nobody may stand at a point any more */
/* The next `times` who come to the point are treated so. */
void fault_arm(struct faults *faults, const char *name, enum fault_action action, unsigned times);
/* Waits until somebody stands at the point; false at the deadline. */
bool fault_await(struct faults *faults, const char *name, int64_t timeout_ms);
/* Lets everybody at the point go on and disarms it. */
void fault_release(struct faults *faults, const char *name);
/* How often the point was reached, armed or not. */
uint64_t fault_count(struct faults *faults, const char *name);
int fault_reach(struct faults *faults, const char *name, cubby_error *err);
#else
#define FAULT_POINT(faults, name, err) (0)
#endif

#endif
