/* SPDX-License-Identifier: Apache-2.0 */
#include "boxes.h"

int each_box(struct cli *cli, struct args args, box_action action, const void *settings)
{
        int result = cli_open(cli);

        if (result != 0)
                return result;
        for (size_t i = 0; i < args.count; i++) {
                AUTO_BOX cubby_box *box = NULL;
                cubby_error err = {0};

                if (cubby_box_open(cli->cubby, args.values[i], &box, &err) < 0 ||
                        action(box, settings, &err) < 0)
                        result = cli_fail_error(cli, &err);
                else
                        (void)printf("%s\n", args.values[i]);
                (void)fflush(stdout);
        }
        return result;
}
