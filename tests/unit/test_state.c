/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "state_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int put_box(
        struct home *home, const char *id, const char *name, uint32_t *slot, cubby_error *err)
{
        struct box_record record = {.id = (char *)(uintptr_t)id,
                .name = (char *)(uintptr_t)name,
                .image_id = (char[]){IMAGE},
                .created_ns = 7};
        int result = box_record_insert(home, &record, err);
        if (slot != NULL)
                *slot = record.slot;
        return result;
}

static struct home *open_again(struct place *place)
{
        home_close(take_ptr(&place->home));
        cubby_error err = {0};
        int result = home_open(place->path, NULL, &place->home, &err);
        if (result < 0)
                print_message("home_open: %s\n", err.message);
        assert_int_equal(result, 0);
        return place->home;
}

static void test_images(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        struct image_record record = {0};
        cubby_error err = {0};
        put_image(home, IMAGE, "docker.io/library/a:1", 10);
        put_image(home, OTHER, "docker.io/library/b:1", 20);
        static const struct {
                const char *what;
                const char *id; /* NULL: not found */
        } rows[] = {
                {"docker.io/library/a:1", IMAGE},
                {"docker.io/library/b:1", OTHER},
                {IMAGE, IMAGE},
                {HEX64, IMAGE},
                {"0123", IMAGE},
                {"sha256:fedc", OTHER},
                {"012", NULL},
                {"0124", NULL},
                {"sha256:", NULL},
                {"sha256:*", NULL},
                {"", NULL},
                {"0123*", NULL},
                {"docker.io/library/a", NULL},
                {"docker.io/library/a:1 ", NULL},
                {HEX64 "0", NULL},
                {"FEDC", NULL},
                {"%", NULL},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                int result = image_record_find(home, rows[i].what, &record, &err);
                assert_int_equal(result, rows[i].id == NULL ? -1 : 0);
                if (result < 0) {
                        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
                        continue;
                }
                assert_string_equal(record.id, rows[i].id);
                assert_string_equal(record.config, "{\"os\":\"linux\"}");
                image_record_clear(&record);
        }
        struct image_record *list = NULL;
        size_t count = 0;
        assert_int_equal(image_record_list(home, &list, &count, NULL), 0);
        assert_int_equal(count, 2);
        assert_string_equal(list[0].id, OTHER);
        image_record_list_free(list, count);
}

static void test_ambiguous_prefix(void **state)
{
        struct place *place = *state;
        char close_id[80] = IMAGE;
        close_id[70] = '0';
        put_image(place->home, IMAGE, NULL, 1);
        put_image(place->home, close_id, NULL, 2);
        struct image_record record = {0};
        cubby_error err = {0};
        assert_int_equal(image_record_find(place->home, "01234567", &record, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        assert_int_equal(image_record_find(place->home, HEX64, &record, &err), 0);
        image_record_clear(&record);
}

static void test_names_move(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        struct image_record record = {0};
        bool gone = true;
        put_image(home, IMAGE, "n:1", 10);
        put_image(home, OTHER, "n:1", 20);
        assert_int_equal(image_record_find(home, "n:1", &record, NULL), 0);
        assert_string_equal(record.id, OTHER);
        image_record_clear(&record);
        assert_int_equal(image_record_tag(home, "n:1", "n:2", NULL), 0);
        assert_int_equal(image_record_tag(home, IMAGE, "n:2", NULL), 0);
        assert_int_equal(image_record_remove(home, "n:2", &gone, NULL), 0);
        assert_true(gone);
        assert_int_equal(image_record_find(home, IMAGE, &record, NULL), -1);
        assert_int_equal(image_record_tag(home, "n:1", "n:3", NULL), 0);
        assert_int_equal(image_record_remove(home, "n:1", &gone, NULL), 0);
        assert_false(gone);
        assert_int_equal(image_record_remove(home, OTHER, &gone, NULL), 0);
        assert_true(gone);
        cubby_error err = {0};
        assert_int_equal(image_record_remove(home, "n:3", &gone, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(image_record_tag(home, "n:1", "bad name", &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
}

static void test_bad_images(void **state)
{
        struct place *place = *state;
        static const struct {
                const char *id, *name, *manifest;
        } rows[] = {
                {NULL, "a", "{}"},
                {"", "a", "{}"},
                {"sha256:0123", "a", "{}"},
                {"sha512:" HEX64, "a", "{}"},
                {IMAGE "0", "a", "{}"},
                {IMAGE, "", "{}"},
                {IMAGE, "a b", "{}"},
                {IMAGE, "a\n", "{}"},
                {IMAGE, "a", NULL},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct image_record record = {.id = (char *)(uintptr_t)rows[i].id,
                        .name = (char *)(uintptr_t)rows[i].name,
                        .manifest = (char *)(uintptr_t)rows[i].manifest,
                        .config = (char[]){"{}"},
                        .architecture = (char[]){"amd64"}};
                cubby_error err = {0};
                assert_int_equal(image_record_put(place->home, &record, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
}

static void test_boxes(void **state)
{
        struct place *place = *state;
        struct home *home = place->home;
        cubby_error err = {0};
        uint32_t slot = 0;
        assert_int_equal(put_box(home, BOX, "early", NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND); /* no such image */
        put_image(home, IMAGE, "a:1", 1);
        assert_int_equal(put_box(home, BOX, "one", &slot, &err), 0);
        assert_int_equal(slot, 1);
        assert_int_equal(put_box(home, "10112233445566778899aabbccddeeff", "two", &slot, &err), 0);
        assert_int_equal(slot, 2);
        assert_int_equal(put_box(home, "20112233445566778899aabbccddeeff", "one", NULL, &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        static const char *const bad[] = {"", "-x", ".x", "_x", "a/b", "a b", "a\n",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                assert_int_equal(put_box(home, BOX, bad[i], NULL, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_int_equal(box_record_rename(home, BOX, bad[i], &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
        assert_int_equal(box_record_rename(home, BOX, "two", &err), -1);
        assert_int_equal(err.code, CUBBY_E_EXISTS);
        assert_int_equal(box_record_rename(home, BOX, "one", &err), 0);
        assert_int_equal(box_record_rename(home, BOX, "uno", &err), 0);
        struct box_record record = {0};
        static const char *const ways[] = {BOX, "uno", "0011", "0011223344"};
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
                assert_int_equal(box_record_find(home, ways[i], &record, &err), 0);
                assert_string_equal(record.id, BOX);
                box_record_clear(&record);
        }
        static const char *const wrong[] = {"one", "001", "0011*", "", "UNO", BOX "0", "un"};
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
                assert_int_equal(box_record_find(home, wrong[i], &record, &err), -1);
                assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        }
        size_t users = 0;
        assert_int_equal(box_record_count_by_image(home, IMAGE, &users, NULL), 0);
        assert_int_equal(users, 2);
        /* the lowest free slot is given again */
        assert_int_equal(box_record_remove(home, BOX, NULL), 0);
        assert_int_equal(box_record_remove(home, BOX, NULL), 0);
        assert_int_equal(put_box(home, BOX, "again", &slot, &err), 0);
        assert_int_equal(slot, 1);
        assert_int_equal(box_record_rename(home, "ffff", "x", &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
}

static void write_box_folder(struct home *home, const char *id, const char *json)
{
        assert_int_equal(mkdirat(home_folder(home, HOME_BOXES), id, 0700), 0);
        int dir = openat(home_folder(home, HOME_BOXES), id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(dir >= 0);
        assert_int_equal(file_publish_at(dir, "config.json", json, strlen(json), 0600, NULL), 0);
        (void)close(dir);
}

static void damage(struct home *home, const char *kind)
{
        int root = home_folder(home, HOME_ROOT);
        if (strcmp(kind, "missing") == 0) {
                assert_int_equal(unlinkat(root, "cubby.db", 0), 0);
                return;
        }
        if (strcmp(kind, "folder") == 0) {
                assert_int_equal(unlinkat(root, "cubby.db", 0), 0);
                assert_int_equal(mkdirat(root, "cubby.db", 0700), 0);
                return;
        }
        int fd = openat(root, "cubby.db", O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        char noise[8192];
        for (size_t i = 0; i < sizeof noise; i++)
                noise[i] = (char)(i * 31 + 7);
        if (strcmp(kind, "empty") == 0)
                assert_int_equal(ftruncate(fd, 0), 0);
        else if (strcmp(kind, "short") == 0)
                assert_int_equal(ftruncate(fd, 5000), 0);
        else if (strcmp(kind, "pages") == 0)
                assert_int_equal(pwrite(fd, noise, 4096, 4096), 4096);
        else
                assert_int_equal(pwrite(fd, noise, sizeof noise, 0), sizeof noise);
        (void)close(fd);
}

/* Whatever happened to the database, images and boxes are there again. */
static void test_corruption(void **state)
{
        static const char *const kinds[] = {
                "missing", "folder", "empty", "short", "pages", "noise", "noise"};
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        assert_int_equal(image_record_tag(place->home, IMAGE, "a:2", NULL), 0);
        put_image(place->home, OTHER, NULL, 20);
        uint32_t slot = 0;
        assert_int_equal(put_box(place->home, BOX, "first", &slot, NULL), 0);
        write_box_folder(place->home, BOX,
                "{\"id\":\"" BOX "\",\"name\":\"first\",\"image_id\":\"" IMAGE
                "\",\"slot\":1,\"created_ns\":7,\"more\":[]}");
        write_box_folder(place->home, "ffff2233445566778899aabbccddeeff", "{\"id\":");
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
                /* what the log holds would heal the file: the next reader must see damage */
                (void)unlinkat(home_folder(place->home, HOME_ROOT), "cubby.db-wal", 0);
                (void)unlinkat(home_folder(place->home, HOME_ROOT), "cubby.db-shm", 0);
                damage(place->home, kinds[i]);
                struct home *home = i % 2 == 0 ? open_again(place) : place->home;
                struct image_record *images = NULL;
                struct box_record *boxes = NULL;
                size_t count = 0;
                cubby_error err = {0};
                assert_int_equal(image_record_list(home, &images, &count, &err), 0);
                assert_int_equal(count, 3);
                assert_string_equal(images[0].id, OTHER);
                assert_null(images[0].name);
                assert_string_equal(images[1].name, "a:1");
                image_record_list_free(images, count);
                assert_int_equal(box_record_list(home, &boxes, &count, &err), 0);
                assert_int_equal(count, 1);
                assert_string_equal(boxes[0].name, "first");
                assert_int_equal(boxes[0].slot, 1);
                box_record_list_free(boxes, count);
        }
        /* the damaged ones are kept, each under a number of its own */
        assert_true(has_file(place->home, "cubby.db.corrupt-1"));
        assert_true(has_file(place->home, "cubby.db.corrupt-6"));
}

/* A rebuild that cannot read everything makes nothing: it would lose what it cannot read. */
static void test_rebuild_without_means(void **state)
{
        struct place *place = *state;
        struct rlimit all;
        int failed = 0;
        put_image(place->home, IMAGE, "a:1", 10);
        put_image(place->home, OTHER, "b:1", 20);
        assert_int_equal(put_box(place->home, BOX, "first", NULL, NULL), 0);
        write_box_folder(place->home, BOX,
                "{\"id\":\"" BOX "\",\"name\":\"first\",\"image_id\":\"" IMAGE
                "\",\"slot\":1,\"created_ns\":7,\"more\":[]}");
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
        int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
        close_quietly(lowest);
        for (int more = 0; more < 12; more++) {
                struct rlimit few = {.rlim_cur = (rlim_t)(lowest + more), .rlim_max = all.rlim_max};
                struct image_record *images = NULL;
                struct box_record *boxes = NULL;
                size_t image_count = 2;
                size_t box_count = 1;
                (void)unlinkat(home_folder(place->home, HOME_ROOT), "cubby.db", 0);
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
                failed += image_record_list(place->home, &images, &image_count, NULL) < 0;
                failed += box_record_list(place->home, &boxes, &box_count, NULL) < 0;
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
                image_record_list_free(images, image_count);
                box_record_list_free(boxes, box_count);
                assert_int_equal(image_count, 2);
                assert_int_equal(box_count, 1);
        }
        assert_in_range(failed, 1, 23); /* some were too few, some enough */
}

/* Memory that runs out is no damage. */
static void test_out_of_memory(void **state)
{
        struct place *place = *state;
        int failed = 0;
        put_image(place->home, IMAGE, "a:1", 10);
        for (int64_t bytes = 1024; bytes < 1 << 20; bytes += bytes / 8) {
                struct image_record *list = NULL;
                size_t count = 0;
                cubby_error err = {0};
                (void)sqlite3_hard_heap_limit64(bytes);
                int result = image_record_list(place->home, &list, &count, &err);
                (void)sqlite3_hard_heap_limit64(0);
                if (result < 0)
                        assert_int_equal(err.code, CUBBY_E_NO_MEMORY);
                else
                        assert_int_equal(count, 1);
                failed += result < 0;
                image_record_list_free(list, count);
        }
        assert_true(failed > 0);
        assert_false(has_file(place->home, "cubby.db.corrupt-1"));
}

static void run_sql(struct place *place, const char *sql)
{
        char path[100];
        (void)snprintf(path, sizeof path, "%s/cubby.db", place->path);
        sqlite3 *db = NULL;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        (void)sqlite3_close(db);
}

/* Rows that SQLite likes and that are none of ours. */
static void test_hostile_rows(void **state)
{
        static const char *const rows[] = {
                "UPDATE images SET id = 'sha256:../../etc'",
                "UPDATE images SET disk_bytes = -1",
                "UPDATE images SET config = x'00ff'",
                "UPDATE names SET name = 'a b'",
                "UPDATE names SET image_id = 'sha256:nowhere'",
                "UPDATE boxes SET slot = 0",
                "UPDATE boxes SET slot = 99999999999",
                "UPDATE boxes SET id = '../../../../../../../../../../etc'",
                "UPDATE boxes SET name = '../x'",
                "UPDATE boxes SET image_id = 'x'",
                "DROP TABLE boxes",
                "ALTER TABLE images DROP COLUMN config",
                "PRAGMA user_version = 0",
                "PRAGMA user_version = -4",
        };
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        assert_int_equal(put_box(place->home, BOX, "first", NULL, NULL), 0);
        write_box_folder(place->home, BOX,
                "{\"id\":\"" BOX "\",\"name\":\"first\",\"image_id\":\"" IMAGE
                "\",\"slot\":1,\"created_ns\":7}");
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                run_sql(place, rows[i]);
                struct home *home = open_again(place);
                struct image_record image = {0};
                struct box_record box = {0};
                cubby_error err = {0};
                assert_int_equal(image_record_find(home, "a:1", &image, &err), 0);
                assert_string_equal(image.id, IMAGE);
                image_record_clear(&image);
                assert_int_equal(box_record_find(home, "first", &box, &err), 0);
                assert_string_equal(box.id, BOX);
                box_record_clear(&box);
        }
}

/* Schema 1 had no leases: they come, and what is there stays. */
static void test_older_version(void **state)
{
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        run_sql(place, "DROP TABLE leases; DROP TABLE tallies; PRAGMA user_version = 1");
        struct image_record record = {0};
        cubby_error err = {0};
        assert_int_equal(image_record_find(place->home, "a:1", &record, &err), 0);
        image_record_clear(&record);
        run_sql(place, "SELECT id FROM leases; SELECT name FROM tallies");
        assert_false(has_file(place->home, "cubby.db.corrupt-1"));
}

static void test_newer_version(void **state)
{
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        run_sql(place, "PRAGMA user_version = 3");
        struct home *home = NULL;
        cubby_error err = {0};
        assert_int_equal(home_open(place->path, NULL, &home, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VERSION);
        struct image_record record = {0};
        assert_int_equal(image_record_find(place->home, "a:1", &record, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VERSION);
        assert_false(has_file(place->home, "cubby.db.corrupt-1"));
        run_sql(place, "PRAGMA user_version = 2");
        assert_int_equal(image_record_find(place->home, "a:1", &record, &err), 0);
        image_record_clear(&record);
        /* a newer image record is not thrown away by a rebuild either */
        static const char newer[] = "{\"version\":2,\"id\":\"" OTHER "\"}";
        assert_int_equal(file_publish_at(home_folder(place->home, HOME_IMAGES), OTHER64 ".json",
                                 newer, sizeof newer - 1, 0600, NULL),
                0);
        damage(place->home, "missing");
        assert_int_equal(image_record_find(place->home, "a:1", &record, &err), -1);
        assert_int_equal(err.code, CUBBY_E_VERSION);
}

/* Files that cannot be records: passed over, the rest is there. */
static void test_bad_image_files(void **state)
{
        static const char *const texts[] = {
                "",
                "{",
                "[]",
                "null",
                "{\"version\":1}",
                "{\"version\":1,\"id\":\"" IMAGE "\",\"names\":[],\"manifest\":\"{}\","
                "\"config\":\"{}\",\"architecture\":\"amd64\",\"disk_bytes\":1,\"created_ns\":1}",
                "{\"version\":1,\"id\":\"" OTHER "\",\"names\":[1],\"manifest\":\"{}\","
                "\"config\":\"{}\",\"architecture\":\"amd64\",\"disk_bytes\":1,\"created_ns\":1}",
                "{\"version\":1,\"id\":\"" OTHER "\",\"names\":[\"a b\"],\"manifest\":\"{}\","
                "\"config\":\"{}\",\"architecture\":\"amd64\",\"disk_bytes\":1,\"created_ns\":1}",
                "{\"version\":1,\"id\":\"" OTHER "\",\"names\":[],\"manifest\":\"{}\","
                "\"config\":\"{}\",\"architecture\":\"amd64\",\"disk_bytes\":-1,\"created_ns\":1}",
                "{\"version\":1,\"id\":\"" OTHER "\",\"names\":[],\"manifest\":\"{}\",\"x\":1,"
                "\"config\":\"{}\",\"architecture\":\"amd64\",\"disk_bytes\":1,\"created_ns\":1}",
        };
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
                assert_int_equal(file_publish_at(home_folder(place->home, HOME_IMAGES),
                                         OTHER64 ".json", texts[i], strlen(texts[i]), 0600, NULL),
                        0);
                damage(place->home, "missing");
                struct image_record *list = NULL;
                size_t count = 0;
                cubby_error err = {0};
                assert_int_equal(image_record_list(place->home, &list, &count, &err), 0);
                assert_int_equal(count, 1);
                image_record_list_free(list, count);
        }
}

static void write_for_ever(const char *path)
{
        struct home *home = NULL;
        if (home_open(path, NULL, &home, NULL) < 0)
                _exit(1);
        for (unsigned n = 0;; n++) {
                char name[32];
                char id[40];
                (void)snprintf(name, sizeof name, "k:%u", n % 7);
                (void)snprintf(id, sizeof id, "%032x", n % 11);
                (void)image_record_tag(home, IMAGE, name, NULL);
                (void)put_box(home, id, "killed", NULL, NULL);
                (void)box_record_remove(home, id, NULL);
                (void)image_record_remove(home, name, NULL, NULL);
        }
}

/* kill -9 at any moment leaves a home that opens and agrees with its files. */
static void test_killed_writer(void **state)
{
        struct place *place = *state;
        put_image(place->home, IMAGE, "keep:1", 10);
        for (int round = 0; round < 25; round++) {
                pid_t pid = fork();
                assert_true(pid >= 0);
                if (pid == 0)
                        write_for_ever(place->path);
                struct timespec wait = {.tv_nsec = (5 + round * 3) * 1000000L};
                (void)nanosleep(&wait, NULL);
                assert_int_equal(kill(pid, SIGKILL), 0);
                assert_int_equal(waitpid(pid, NULL, 0), pid);
                struct home *home = open_again(place);
                struct image_record record = {0};
                cubby_error err = {0};
                assert_int_equal(image_record_find(home, "keep:1", &record, &err), 0);
                image_record_clear(&record);
        }
        assert_false(has_file(place->home, "cubby.db.corrupt-1"));
        damage(place->home, "missing");
        struct image_record record = {0};
        assert_int_equal(image_record_find(open_again(place), "keep:1", &record, NULL), 0);
        image_record_clear(&record);
}

/* NAME and NAME-MORE, and nothing that only begins so. */
static void test_boxes_by_name(void **state)
{
        static const struct {
                const char *name;
                size_t count;
        } rows[] = {{"p-a", 3}, {"p-a-1", 1}, {"p-a.x", 1}, {"p-ab", 1}, {"p", 5}, {"p-a-", 0},
                {"p-a-2", 0}, {"P-a", 0}, {"p-%", 0}, {"p-_", 0}, {"p-*", 0}, {"-", 0}, {"", 0},
                {"' OR 1 --", 0}};
        static const char *const names[] = {"p-a", "p-a-1", "p-a-f0", "p-ab", "p-a.x"};
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 1);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                char id[33] = BOX;
                id[0] = (char)('0' + i);
                assert_int_equal(put_box(place->home, id, names[i], NULL, NULL), 0);
        }
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct box_record *list = NULL;
                size_t count = 0;
                assert_int_equal(
                        box_record_list_named(place->home, rows[i].name, &list, &count, NULL), 0);
                assert_int_equal(count, rows[i].count);
                for (size_t j = 0; j < count; j++)
                        assert_memory_equal(list[j].name, rows[i].name, strlen(rows[i].name));
                box_record_list_free(list, count);
        }
}

/* Many processes write at once: every name once, every slot once. */
static void test_many_processes(void **state)
{
        enum { WRITERS = 4, EACH = 15 };
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        pid_t pids[WRITERS];
        for (int w = 0; w < WRITERS; w++) {
                pids[w] = fork();
                assert_true(pids[w] >= 0);
                if (pids[w] != 0)
                        continue;
                /* also over the handle of the parent: a fork must not harm it */
                struct home *home = place->home;
                for (int i = 0; i < EACH; i++) {
                        char id[40];
                        char name[32];
                        (void)snprintf(id, sizeof id, "%032x", w * 1000 + i);
                        (void)snprintf(name, sizeof name, "w%d-%d", w, i);
                        if (put_box(home, id, name, NULL, NULL) < 0)
                                _exit(1);
                }
                _exit(0);
        }
        for (int w = 0; w < WRITERS; w++) {
                int status = 0;
                assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
                assert_int_equal(status, 0);
        }
        struct box_record *list = NULL;
        size_t count = 0;
        bool used[WRITERS * EACH + 1] = {false};
        assert_int_equal(box_record_list(place->home, &list, &count, NULL), 0);
        assert_int_equal(count, WRITERS * EACH);
        for (size_t i = 0; i < count; i++) {
                assert_in_range(list[i].slot, 1, WRITERS * EACH);
                assert_false(used[list[i].slot]);
                used[list[i].slot] = true;
        }
        box_record_list_free(list, count);
}

/* Two find the same damage: one mends it, nothing of the other is lost. */
static void test_both_mend(void **state)
{
        struct place *place = *state;
        put_image(place->home, IMAGE, "a:1", 10);
        damage(place->home, "noise");
        pid_t pids[3];
        for (int w = 0; w < 3; w++) {
                pids[w] = fork();
                assert_true(pids[w] >= 0);
                if (pids[w] != 0)
                        continue;
                char name[16];
                (void)snprintf(name, sizeof name, "w:%d", w);
                _exit(image_record_tag(place->home, "a:1", name, NULL) == 0 ? 0 : 1);
        }
        for (int w = 0; w < 3; w++) {
                int status = 0;
                assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
                assert_int_equal(status, 0);
        }
        struct image_record *list = NULL;
        size_t count = 0;
        assert_int_equal(image_record_list(place->home, &list, &count, NULL), 0);
        assert_int_equal(count, 4);
        image_record_list_free(list, count);
        assert_false(has_file(place->home, "cubby.db.corrupt-2"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_HOME(test_images),
                WITH_HOME(test_ambiguous_prefix),
                WITH_HOME(test_names_move),
                WITH_HOME(test_bad_images),
                WITH_HOME(test_boxes),
                WITH_HOME(test_boxes_by_name),
                WITH_HOME(test_corruption),
                WITH_HOME(test_rebuild_without_means),
                WITH_HOME(test_out_of_memory),
                WITH_HOME(test_hostile_rows),
                WITH_HOME(test_older_version),
                WITH_HOME(test_newer_version),
                WITH_HOME(test_bad_image_files),
                WITH_HOME(test_killed_writer),
                WITH_HOME(test_many_processes),
                WITH_HOME(test_both_mend),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
