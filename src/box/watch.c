/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

cubby_box *box_share(cubby_box *box)
{
        (void)atomic_fetch_add(&box->references, 1);
        return box;
}

int box_enter(cubby_box *box, cubby_error *err)
{
        if (!atomic_load(&box->doomed))
                return 0;
        return cubby_error_set(
                err, CUBBY_E_CLOSED, "box '%s' was ended by its pool", box->config.name);
}

/* Typed at the source: the channel is closed or broken, or the machine is gone. */
static bool for_good(const cubby_box *box, int code)
{
        enum box_life life = BOX_ALIVE;
        if (code == CUBBY_E_BOX_DEAD || code == CUBBY_E_PROTOCOL)
                return true;
        return (code == CUBBY_E_STATE || code == CUBBY_E_NOT_FOUND) &&
                (box_life(box, &life, NULL) < 0 || life != BOX_ALIVE);
}

int64_t box_leave(cubby_box *box, int64_t result, const cubby_error *problem, cubby_error *err)
{
        if (result >= 0)
                return result;
        if (box->watch.failed != NULL) {
                if (atomic_load(&box->doomed))
                        return box_enter(box, err);
                if (for_good(box, problem->code))
                        box->watch.failed(box->watch.data, problem);
        }
        if (err != NULL)
                *err = *problem;
        return result;
}
