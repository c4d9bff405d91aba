/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512

int64_t now_ms(void)
{
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int fine(int result, const cubby_error *err)
{
        if (result < 0)
                print_message("error %d: %s\n", err->code, err->message);
        return result;
}

int count_fds(void)
{
        DIR *dir = opendir("/proc/self/fd");
        assert_non_null(dir);
        int count = 0;
        while (readdir(dir) != NULL)
                count++;
        (void)closedir(dir);
        return count;
}

/* A shim's arguments name its box; one that only waits to be reaped has none. */
static bool shim_lives(const char *id)
{
        DIR *dir = opendir("/proc");
        assert_non_null(dir);
        bool found = false;
        for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
                if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
                        continue;
                char path[300];
                char line[600] = "";
                (void)snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
                FILE *file = fopen(path, "r");
                if (file == NULL)
                        continue;
                size_t got = fread(line, 1, sizeof line - 1, file);
                (void)fclose(file);
                found |= got > 0 && memmem(line, got, id, strlen(id)) != NULL;
        }
        (void)closedir(dir);
        return found;
}

/* It lets go of the lock a moment before it ends. */
void shim_is_gone(const char *id)
{
        int64_t deadline = now_ms() + SOON_MS;
        while (shim_lives(id)) {
                assert_true(now_ms() < deadline);
                (void)poll(NULL, 0, 5);
        }
}

/* A ustar of one folder: enough of an image for an engine that does not read it. */
static void write_image(const char *path)
{
        char block[BLOCK * 4] = "bin/";
        (void)snprintf(block + 100, 8, "0000755");
        (void)snprintf(block + 108, 8, "0000000");
        (void)snprintf(block + 116, 8, "0000000");
        (void)snprintf(block + 124, 12, "00000000000");
        (void)snprintf(block + 136, 12, "00000000001");
        block[156] = '5';
        memcpy(block + 257,
                "ustar\0"
                "00",
                8);
        memset(block + 148, ' ', 8);
        unsigned sum = 0;
        for (size_t i = 0; i < BLOCK; i++)
                sum += (unsigned char)block[i];
        (void)snprintf(block + 148, 8, "%06o", sum);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
        assert_int_equal(fclose(file), 0);
}

int place_make(void **state)
{
        struct place *place = calloc(1, sizeof *place);
        assert_non_null(place);
        place->fds_before = count_fds();
        (void)snprintf(place->path, sizeof place->path, "/tmp/cubby-box-XXXXXX");
        assert_non_null(mkdtemp(place->path));
        char tar[100];
        (void)snprintf(tar, sizeof tar, "%s/image.tar", place->path);
        write_image(tar);
        cubby_error err = {0};
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        options.home = place->path;
        assert_int_equal(fine(cubby_open(&options, &place->host, &err), &err), 0);
        cubby_import_options import = CUBBY_INIT(cubby_import_options);
        import.name = "small";
        assert_int_equal(fine(cubby_image_import(place->host, tar, &import, NULL, &err), &err), 0);
        *state = place;
        return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
        return remove(path);
}

int place_remove(void **state)
{
        struct place *place = *state;
        cubby_box_list *list = NULL;
        cubby_error err = {0};
        assert_int_equal(fine(cubby_boxes(place->host, true, &list, &err), &err), 0);
        size_t left = list->count;
        for (size_t i = 0; i < list->count; i++) {
                cubby_box *box = NULL;
                print_message("left over: box %s\n", list->boxes[i].name);
                if (cubby_box_open(place->host, list->boxes[i].id, &box, &err) == 0)
                        (void)cubby_box_remove(box, true, NULL);
                cubby_box_close(box);
        }
        cubby_box_list_free(list);
        cubby_close(place->host);
        assert_int_equal(left, 0);
        int fds = count_fds();
        if (fds != place->fds_before)
                print_message("descriptors: %d before, %d after\n", place->fds_before, fds);
        assert_int_equal(fds, place->fds_before);
        /* the library has left no child, living or dead */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(nftw(place->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        free(place);
        return 0;
}

cubby_box *place_box(struct place *place, const char *name, const char *const *command, int started)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        options.image = "small";
        options.engine = "fake";
        options.name = name;
        options.command = command;
        options.no_main = command == NULL;
        options.open_stdin = true;
        options.disk_bytes = 64U << 20;
        options.env = LIST("COLOUR=blue", "SIZE=small");
        cubby_error err = {0};
        cubby_box *box = NULL;
        assert_int_equal(fine(cubby_box_create(place->host, &options, &box, &err), &err), 0);
        if (started)
                assert_int_equal(fine(cubby_box_start(box, &err), &err), 0);
        return box;
}

void remove_box(cubby_box *box)
{
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_remove(box, true, &err), &err), 0);
        cubby_box_close(box);
}

cubby_box_info info_of(cubby_box *box)
{
        cubby_box_info info = {0};
        cubby_error err = {0};
        assert_int_equal(fine(cubby_box_get_info(box, &info, &err), &err), 0);
        return info;
}

int64_t shim_of(cubby_box *box)
{
        cubby_box_info info = info_of(box);
        int64_t pid = info.shim_pid;
        cubby_box_info_clear(&info);
        assert_true(pid > 0);
        return pid;
}
