/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"
int main(void)
{
        return 0;
}
