/* SPDX-License-Identifier: Apache-2.0 */

/* Tar archives to and from records: with tar(1) as the judge, and broken ones. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "box/copy_tar.h"
#include "tree/pack.h"
#include "tree/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_MS 20000

struct world {
        char root[64];
        int fd;
        struct buffer stream;
        size_t taken;
        bool cancelled;
};

static int put(void *data, const void *bytes, size_t size, cubby_error *err)
{
        struct world *world = data;
        return buffer_append(&world->stream, bytes, size) ? 0 : cubby_error_no_memory(err);
}

static int next(void *data, struct slice *ret, cubby_error *err)
{
        struct world *world = data;
        size_t left = world->stream.size - world->taken;
        size_t size = left < 777 ? left : 777;
        *ret = (struct slice){.data = world->stream.data + world->taken, .size = size};
        world->taken += size;
        return 0;
}

static int look(void *data, cubby_error *err)
{
        const struct world *world = data;
        return world->cancelled ? cubby_error_set(err, CUBBY_E_CANCELLED, "cancelled") : 0;
}

static int set_up(void **state)
{
        struct world *world = calloc(1, sizeof *world);
        assert_non_null(world);
        const char *base = getenv("TMPDIR");
        (void)snprintf(world->root, sizeof world->root, "%.40s/cubby-tar-XXXXXX",
                base == NULL ? "/tmp" : base);
        assert_non_null(mkdtemp(world->root));
        world->fd = open(world->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(world->fd, "from", 0755), 0);
        assert_int_equal(mkdirat(world->fd, "to", 0755), 0);
        buffer_init(&world->stream, (size_t)64 << 20);
        *state = world;
        return 0;
}

static int tear_down(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        close_quietly(world->fd);
        assert_int_equal(dir_remove_at(AT_FDCWD, world->root, &err), 0);
        buffer_free(&world->stream);
        free(world);
        return 0;
}

/* A shell of the test's own, in the world's folder. */
static void shell(struct world *world, const char *line)
{
        char whole[600];
        cubby_error err = {0};
        (void)snprintf(whole, sizeof whole, "set -e; cd %s; %s", world->root, line);
        const char *const argv[] = {"sh", "-c", whole, NULL};
        if (spawn_run(argv, NULL, deadline_after_ms(DEADLINE_MS), &err) < 0)
                fail_msg("%s: %s", line, err.message);
}

static int tar_out(
        struct world *world, const char *path, const char *name, int fd, cubby_error *err)
{
        const struct pack_options options = {.at_fd = world->fd, .path = path};
        const struct tree_output output = {.put = put, .data = world};
        const struct tree_input input = {.next = next, .data = world};
        const struct copy_look looking = {.look = look, .data = world};
        struct tree_count count = {0};
        AUTO_TREE_READER struct tree_reader reader = {0};
        buffer_clear(&world->stream);
        world->taken = 0;
        if (tree_pack(&options, &output, err) < 0)
                return -1;
        tree_reader_init(&reader, &input);
        struct tree_record first;
        if (tree_next(&reader, &first, err) < 0)
                return -1;
        return copy_tar_write(&reader, &first, name, fd, &looking, &count, err);
}

static int tar_in(struct world *world, int fd, bool strict, cubby_error *err)
{
        const struct tree_output output = {.put = put, .data = world};
        const struct tree_input input = {.next = next, .data = world};
        const struct copy_look looking = {.look = look, .data = world};
        struct tree_count count = {0};
        AUTO_TREE_READER struct tree_reader reader = {0};
        AUTO_FD int folder = openat(world->fd, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const struct unpack_options options = {.folder_fd = folder,
                .drafts_fd = -1,
                .name = "",
                .strict = strict,
                .scattered = true};
        buffer_clear(&world->stream);
        world->taken = 0;
        *err = (cubby_error){0};
        if (copy_tar_read(fd, &output, &looking, &count, err) < 0)
                return -1;
        tree_reader_init(&reader, &input);
        return tree_unpack(&options, &reader, err);
}

static int tar_file(struct world *world, const char *name, bool strict, cubby_error *err)
{
        AUTO_FD int fd = openat(world->fd, name, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        return tar_in(world, fd, strict, err);
}

static void test_out_for_tar(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        shell(world,
                "mkdir -p from/d/e; echo hello >from/d/f; ln from/d/f from/d/e/same;"
                "ln -s /etc/passwd from/d/link; mkfifo from/d/fifo; chmod 4750 from/d/f;"
                "printf odd >\"from/d/$(printf 'new\\nline \\377')\";"
                "touch -d '2001-02-03 04:05:06.789 UTC' from/d/f;"
                "truncate -s 100M from/d/sparse; printf end >>from/d/sparse;"
                "truncate -s 50M from/d/hole");
        AUTO_FD int fd = openat(world->fd, "out.tar", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct stat info;
        if (tar_out(world, "from/d", "name", fd, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(fstat(fd, &info), 0);
        assert_true(info.st_size < 200000); /* holes are not written */
        shell(world,
                "mkdir x; tar -xpf out.tar -C x; test -p x/name/fifo; rm x/name/fifo from/d/fifo; "
                "diff -r --no-dereference from/d x/name;"
                "test \"$(stat -c '%a %y' from/d/f)\" = \"$(stat -c '%a %y' x/name/f)\";"
                "test x/name/f -ef x/name/e/same; "
                "test $(stat -c %b x/name/sparse) -lt 100; test $(stat -c %b x/name/hole) -lt 100");
        AUTO_FD int again = openat(world->fd, "c.tar", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(tar_out(world, "from/d", "", again, &err), 0);
        shell(world, "tar -tf c.tar | grep -qx ./f; tar -tf c.tar | grep -qx ./");
}

static void test_in_from_tar(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        shell(world,
                "mkdir -p from/d/e; echo hello >from/d/f; ln from/d/f from/d/e/same;"
                "ln -s ../../.. from/d/link; printf odd >\"from/d/$(printf '\\377 -rf')\";"
                "truncate -s 20M from/d/sparse; printf end >>from/d/sparse;"
                "tar -cSf plain.tar -C from d; gzip -k plain.tar; xz -k plain.tar;"
                "bzip2 -k plain.tar; tar --format=pax -cSf pax.tar -C from d;"
                "tar --format=ustar -cf ustar.tar -C from d/f ./d/e; tar -cf abs.tar -P "
                "$PWD/from/d");
        static const char *const names[] = {
                "plain.tar", "plain.tar.gz", "plain.tar.xz", "plain.tar.bz2", "pax.tar"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                if (tar_file(world, names[i], false, &err) < 0)
                        fail_msg("%s: %s", names[i], err.message);
                shell(world,
                        "diff -r --no-dereference from/d to/d; test to/d/f -ef to/d/e/same;"
                        "test $(stat -c %b to/d/sparse) -lt 100; rm -r to/d");
        }
        /* missing folders are made; absolute names stay inside */
        assert_int_equal(tar_file(world, "ustar.tar", false, &err), 0);
        shell(world, "cmp from/d/f to/d/f; test to/d/f -ef to/d/e/same; rm -r to/d");
        assert_int_equal(tar_file(world, "abs.tar", false, &err), 0);
        shell(world, "diff -r --no-dereference from/d to$PWD/from/d");
}

static void test_broken_archives(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        shell(world,
                "mkdir -p from/d; echo x >from/d/f; echo y >victim; ln -s / from/d/root;"
                "head -c 3000 /dev/urandom >from/big; tar -cf ok.tar -C from big;"
                "head -c 2000 ok.tar >cut.tar; head -c 5000 /dev/urandom >noise.tar;"
                ": >empty.tar; gzip -k ok.tar; head -c 1000 ok.tar.gz >cut.tar.gz;"
                "cd from/d; tar -cPf ../../up.tar ../../victim;"
                "tar -cPf ../../mid.tar --transform 's,f,a/../../f,' f;"
                "tar -cf ../../through.tar root; tar -rf ../../through.tar --transform "
                "'s,f,root/tmp/cubby-evil,' f");
        static const struct {
                const char *name;
                int want, code;
        } rows[] = {
                {"ok.tar", 0, CUBBY_OK},
                {"empty.tar", 0, CUBBY_OK},
                {"cut.tar", -1, CUBBY_E_IMAGE},
                {"cut.tar.gz", -1, CUBBY_E_IMAGE},
                {"noise.tar", -1, CUBBY_E_IMAGE},
                {"up.tar", -1, CUBBY_E_INVALID},
                {"mid.tar", -1, CUBBY_E_INVALID},
                {"through.tar", -1, CUBBY_E_INVALID},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                if (tar_file(world, rows[i].name, true, &err) != rows[i].want ||
                        err.code != rows[i].code)
                        fail_msg("%s: %d %s", rows[i].name, err.code, err.message);
        }
        assert_int_equal(access("/tmp/cubby-evil", F_OK), -1);
}

static void test_a_file_that_shrank(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        const struct tree_output output = {.put = put, .data = world};
        const struct tree_input input = {.next = next, .data = world};
        const struct copy_look looking = {.look = look, .data = world};
        struct tree_count count = {0};
        AUTO_BUFFER struct buffer scratch;
        buffer_init(&scratch, TREE_ENTRY_MAX);
        const struct tree_entry entry = {
                .type = TREE_REGULAR, .path = "", .mode = 0644, .size = 100000};
        const struct tree_entry after = {.type = TREE_LINK, .path = "l", .target = "x"};
        assert_int_equal(tree_put_entry(&output, &entry, &scratch, &err), 0);
        assert_int_equal(tree_put_data(&output, 0, "short", 5, &err), 0);
        assert_int_equal(tree_put_close(&output, 5, &err), 0);
        assert_int_equal(tree_put_entry(&output, &after, &scratch, &err), 0);
        assert_int_equal(tree_put_end(&output, &err), 0);
        AUTO_TREE_READER struct tree_reader reader = {0};
        tree_reader_init(&reader, &input);
        AUTO_FD int fd = openat(world->fd, "out.tar", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct tree_record first;
        assert_int_equal(tree_next(&reader, &first, &err), 0);
        assert_int_equal(copy_tar_write(&reader, &first, "f", fd, &looking, &count, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        shell(world,
                "test \"$(tar -tf out.tar | wc -l)\" = 2; tar -xf out.tar -O f | wc -c | "
                "grep -qx 100000; tar -xf out.tar -O f | head -c 5 | grep -qx short");
}

/* A few bytes of a box that would keep the host busy for years. */
static void test_an_endless_hole(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        AUTO_BUFFER struct buffer scratch;
        buffer_init(&scratch, TREE_ENTRY_MAX);
        const struct tree_output output = {.put = put, .data = world};
        const struct tree_input input = {.next = next, .data = world};
        const struct copy_look looking = {.look = look, .data = world};
        const struct tree_entry entry = {.type = TREE_REGULAR,
                .path = "",
                .mode = 0644,
                .size = UINT64_C(1) << 61,
                .sparse = true};
        struct tree_count count = {0};
        struct tree_record first;
        AUTO_TREE_READER struct tree_reader reader = {0};
        AUTO_FD int fd = openat(world->fd, "out.tar", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(tree_put_entry(&output, &entry, &scratch, &err), 0);
        assert_int_equal(tree_put_close(&output, entry.size, &err), 0);
        assert_int_equal(tree_put_end(&output, &err), 0);
        tree_reader_init(&reader, &input);
        assert_int_equal(tree_next(&reader, &first, &err), 0);
        assert_int_equal(copy_tar_write(&reader, &first, "name", fd, &looking, &count, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
}

static void test_nobody_waits_for_ever(void **state)
{
        struct world *world = *state;
        cubby_error err = {0};
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        AUTO_FD int from = ends[0];
        AUTO_FD int to = ends[1];
        world->cancelled = true;
        assert_int_equal(tar_in(world, from, true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CANCELLED);
        world->cancelled = false;
        /* a reader that is gone: an error, and no signal for this program */
        close_quietly(take_fd(&from));
        shell(world, "echo x >from/f");
        assert_int_equal(tar_out(world, "from", "from", to, &err), -1);
        assert_int_equal(err.sys_errno, EPIPE);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_out_for_tar, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_in_from_tar, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_broken_archives, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_a_file_that_shrank, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_an_endless_hole, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_nobody_waits_for_ever, set_up, tear_down),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
