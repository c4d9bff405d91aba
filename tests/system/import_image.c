/* SPDX-License-Identifier: Apache-2.0 */

/* import_image HOME SOURCE [NAME]: imports and prints the id and the disk's path. */

#include "image/image.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
        cubby_error err = {0};
        struct home *home = NULL;
        struct image_record record = {0};
        if (argc < 3 || argc > 4) {
                (void)fprintf(stderr, "usage: import_image HOME SOURCE [NAME]\n");
                return 2;
        }
        struct image_import_options options = {.name = argc == 4 ? argv[3] : NULL};
        if (home_open(argv[1], NULL, &home, &err) < 0 ||
                image_import(home, argv[2], &options, &record, &err) < 0) {
                (void)fprintf(stderr, "%s\n", err.message);
                home_close(home);
                return 1;
        }
        (void)printf("%s %s/rootfs/%s/disk.erofs\n", record.id, argv[1], record.id + 7);
        image_record_clear(&record);
        home_close(home);
        return 0;
}
