/* SPDX-License-Identifier: Apache-2.0 */
#include "state_fixture.h"

#include "base/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

int make_place(void **state)
{
        struct place *place = calloc(1, sizeof *place);
        assert_non_null(place);
        (void)snprintf(place->path, sizeof place->path, "/tmp/cubby-state-XXXXXX");
        assert_non_null(mkdtemp(place->path));
        assert_int_equal(home_open(place->path, NULL, &place->home, NULL), 0);
        *state = place;
        return 0;
}

int remove_place(void **state)
{
        struct place *place = *state;
        home_close(place->home);
        int result = dir_remove_at(AT_FDCWD, place->path, NULL);
        free(place);
        return result;
}

void put_image(struct home *home, const char *id, const char *name, int64_t created_ns)
{
        struct image_record record = {.id = (char *)(uintptr_t)id,
                .name = (char *)(uintptr_t)name,
                .manifest = (char[]){"{\"layers\":[]}"},
                .config = (char[]){"{\"os\":\"linux\"}"},
                .architecture = (char[]){"amd64"},
                .disk_bytes = 4096,
                .created_ns = created_ns};
        cubby_error err = {0};
        assert_int_equal(image_record_put(home, &record, &err), 0);
}

bool has_file(struct home *home, const char *name)
{
        struct stat info;
        return fstatat(home_folder(home, HOME_ROOT), name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}
