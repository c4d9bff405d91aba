/* SPDX-License-Identifier: Apache-2.0 */
/* Layers, good and hostile, into tree and disk. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "image/layer.h"
#include "image_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYERS_MAX 3
#define ITEMS_MAX 8

#define F(at, content)                                       \
        {                                                    \
                .kind = 'f', .path = (at), .text = (content) \
        }
#define D(at)                             \
        {                                 \
                .kind = 'd', .path = (at) \
        }
#define L(at, target)                                       \
        {                                                   \
                .kind = 'l', .path = (at), .text = (target) \
        }
#define H(at, target)                                       \
        {                                                   \
                .kind = 'h', .path = (at), .text = (target) \
        }
#define C(at)                             \
        {                                 \
                .kind = 'c', .path = (at) \
        }
#define P(at)                             \
        {                                 \
                .kind = 'p', .path = (at) \
        }
#define HOLES(at, bytes)                                                 \
        {                                                                \
                .kind = 'f', .path = (at), .text = "1", .holes = (bytes) \
        }

/* Small, so that each can be reached. */
static const struct image_limits small_limits = {
        .layer_bytes = 8U << 20,
        .expansion = 50,
        .expansion_floor = 1U << 20,
        .entries = 100,
        .path_depth = 20,
        .path_bytes = 1000,
        .xattr_bytes = 100,
        .metadata_bytes = 3000,
        .deadline_ms = DEADLINE_NEVER,
};

struct world {
        struct image_usage usage;
        struct tree *tree;
        struct disk disk;
        int disk_fd;
};

static void world_make(struct world *world)
{
        *world = (struct world){.disk_fd = memfd_create("disk", MFD_CLOEXEC)};
        assert_true(world->disk_fd >= 0);
        disk_start(&world->disk, world->disk_fd);
        assert_int_equal(tree_new(&small_limits, NULL, NULL, &world->tree, NULL), 0);
}

static void world_free(struct world *world)
{
        tree_free(world->tree);
        close_quietly(world->disk_fd);
}

static int apply(struct world *world, const void *data, size_t size, const char *digest,
        bool whole_tar, cubby_error *err)
{
        AUTO_BLOB struct blob blob = {.fd = memfd_create("layer", MFD_CLOEXEC), .size = size};
        assert_true(blob.fd >= 0);
        assert_int_equal(write_whole(blob.fd, data, size), 0);
        struct layer layer = {.blob = blob, .digest = digest, .whole_tar = whole_tar};
        struct layer_result result;
        return layer_apply(
                &layer, &small_limits, &world->usage, world->tree, &world->disk, &result, err);
}

static int apply_items(struct world *world, const struct item *items, cubby_error *err)
{
        AUTO_BUFFER struct buffer tar;
        buffer_init(&tar, 64U << 20);
        fixture_tar(items, "gzip", &tar);
        return apply(world, tar.data, tar.size, NULL, false, err);
}

/* A header by hand: what libarchive would not write. */
static void raw_header(uint8_t block[512], const char *name, char type, const char *size_field)
{
        unsigned int sum = 0;
        memset(block, 0, 512);
        memcpy(block, name, strlen(name) + 1);
        memcpy(block + 100, "0000644", 8);
        memcpy(block + 108, "0000000", 8);
        memcpy(block + 116, "0000000", 8);
        memcpy(block + 124, size_field, 12);
        memcpy(block + 136, "00000000000", 12);
        memset(block + 148, ' ', 8);
        block[156] = (uint8_t)type;
        memcpy(block + 257, "ustar\00000", sizeof "ustar\00000");
        for (int i = 0; i < 512; i++)
                sum += block[i];
        (void)snprintf((char *)block + 148, 8, "%06o", sum);
}

/* The content of a file of the finished world, as the disk has it. */
static void assert_content(struct world *world, const char *path, const char *text)
{
        const struct dentry *entry = tree_find(world->tree, path);
        char found[256] = {0};
        if (entry == NULL)
                fail_msg("%s is missing", path);
        else if (S_ISLNK(entry->inode->mode)) {
                assert_string_equal(entry->inode->link.target, text);
        } else if (S_ISREG(entry->inode->mode)) {
                assert_int_equal(entry->inode->size, strlen(text));
                assert_int_equal(pread(world->disk_fd, found, strlen(text),
                                         (off_t)entry->inode->block * DISK_BLOCK),
                        strlen(text));
                assert_string_equal(found, text);
        } else {
                assert_string_equal(text, S_ISDIR(entry->inode->mode) ? "folder" : "special");
        }
}

/* ---- what layers mean ---- */

struct outcome {
        const char *path;
        const char *text; /* NULL: absent */
};

static const struct {
        const char *what;
        struct item layers[LAYERS_MAX][ITEMS_MAX];
        struct outcome outcomes[6];
} merges[] = {
        {"a whiteout hides what is below",
                {{F("a", "1"), D("d"), F("d/x", "2")}, {F(".wh.a", ""), F(".wh.d", "")}},
                {{"a", NULL}, {"d", NULL}, {"d/x", NULL}}},
        {"a whiteout spares its own layer, before and after",
                {{F("a", "old"), F("b", "old")},
                        {F("a", "new"), F(".wh.a", ""), F(".wh.b", ""), F("b", "new")}},
                {{"a", "new"}, {"b", "new"}}},
        {"a whiteout of a folder spares only what its own layer put there",
                {{D("d"), F("d/low", "1")}, {F("d/up", "2"), F(".wh.d", "")}},
                {{"d", "folder"}, {"d/low", NULL}, {"d/up", "2"}}},
        {"and also where its own layer has no entry for the folder, however deep",
                {{F("d/low", "1"), D("e"), F("e/low", "1")},
                        {F("d/s/up", "2"), F(".wh.d", ""), F("e/s/t/up", "2"), F(".wh.e", "")}},
                {{"d/low", NULL}, {"d/s/up", "2"}, {"e/low", NULL}, {"e/s/t/up", "2"}}},
        {"an opaque folder loses what is below, wherever its mark stands",
                {{D("o"), F("o/low", "1"), D("o/sub"), F("o/sub/x", "1")},
                        {F("o/up", "2"), F("o/.wh..wh..opq", ""), F("o/more", "3")}},
                {{"o/low", NULL}, {"o/sub", NULL}, {"o/up", "2"}, {"o/more", "3"}}},
        {"an opaque root", {{F("a", "1")}, {F(".wh..wh..opq", ""), F("b", "2")}},
                {{"a", NULL}, {"b", "2"}}},
        {"other AUFS marks mean nothing",
                {{F("plnk", "1")}, {F(".wh..wh.plnk", ""), D(".wh..wh.orph")}},
                {{"plnk", "1"}, {".wh..wh.plnk", NULL}, {".wh..wh.orph", NULL}}},
        {"a whiteout of nothing, in no folder", {{F(".wh.a", ""), F("no/.wh.b", "")}},
                {{"a", NULL}, {"no", NULL}}},
        {"a whiteout through a link stays in the tree",
                {{D("t"), F("t/x", "1"), L("s", "/t")}, {F("s/.wh.x", "")}},
                {{"t/x", NULL}, {"s", "/t"}, {"t", "folder"}}},
        {"a file over a folder and a folder over a file",
                {{D("d"), F("d/x", "1"), F("f", "2")}, {F("d", "3"), D("f"), F("f/y", "4")}},
                {{"d", "3"}, {"d/x", NULL}, {"f", "folder"}, {"f/y", "4"}}},
        {"a folder over a folder keeps what is in it",
                {{D("d"), F("d/x", "1")}, {{.kind = 'd', .path = "d", .mode = 0700}}},
                {{"d", "folder"}, {"d/x", "1"}}},
        {"a folder over a link to a folder replaces the link",
                {{D("t"), L("s", "t")}, {D("s"), F("s/x", "1")}},
                {{"s", "folder"}, {"s/x", "1"}, {"t/x", NULL}}},
        {"parents are made, also where a link points to nothing",
                {{F("a/b/c", "1"), L("s", "no/where"), F("s/x", "2")}},
                {{"a/b", "folder"}, {"a/b/c", "1"}, {"no/where/x", "2"}}},
        {"leading slashes and dots", {{F("/abs", "1"), F("./dot", "2"), F("./a//b/./c", "3")}},
                {{"abs", "1"}, {"dot", "2"}, {"a/b/c", "3"}}},
        {"links that climb stay inside",
                {{L("up", "../../../../etc"), F("up/x", "1"), L("root", "/.."), F("root/y", "2")}},
                {{"etc/x", "1"}, {"y", "2"}}},
        {"a link in a lower layer does not lead out",
                {{L("out", "/etc/../../tmp")}, {F("out/x", "1")}}, {{"tmp/x", "1"}}},
        {"hard links across layers, and through a parent link",
                {{D("d"), F("d/x", "1"), L("s", "d")}, {H("y", "s/x")},
                        {F("d/.wh.x", ""), H("z", "/y")}},
                {{"d/x", NULL}, {"y", "1"}, {"z", "1"}}},
        {"a hard link to a link is that link, not its target",
                {{F("t", "1"), L("s", "t"), H("h", "s")}}, {{"h", "t"}}},
        {"replacing one name leaves the others", {{F("a", "1"), H("b", "a")}, {F("a", "2")}},
                {{"a", "2"}, {"b", "1"}}},
        {"a hard link takes the place of the folder that holds its target",
                {{D("d"), F("d/x", "1"), H("d", "d/x")}}, {{"d", "1"}, {"d/x", NULL}}},
        {"special files", {{C("c"), P("p"), F("e", "")}},
                {{"c", "special"}, {"p", "special"}, {"e", ""}}},
        {"names that only look like whiteouts", {{F(".wh", "1"), F("wh.x", "2")}},
                {{".wh", "1"}, {"wh.x", "2"}}},
        {"an empty layer", {{F("a", "1")}, {{0}}}, {{"a", "1"}}},
};

static void layers_are_merged(void **state)
{
        for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
                static const uint8_t uuid[16] = {1};
                struct world world;
                cubby_error err = {0};
                world_make(&world);
                for (size_t layer = 0; layer < LAYERS_MAX; layer++)
                        if (merges[i].layers[layer][0].kind != 0 &&
                                apply_items(&world, merges[i].layers[layer], &err) < 0)
                                fail_msg("%s: %s", merges[i].what, err.message);
                for (const struct outcome *o = merges[i].outcomes; o->path != NULL; o++) {
                        if (o->text != NULL)
                                assert_content(&world, o->path, o->text);
                        else if (tree_find(world.tree, o->path) != NULL)
                                fail_msg("%s: %s is there", merges[i].what, o->path);
                }
                assert_int_equal(disk_finish(&world.disk, world.tree, uuid, &err), 0);
                assert_int_equal(disk_check(world.disk_fd, &err), 0);
                world_free(&world);
        }
}

static void link_counts_follow_the_names(void **state)
{
        static const struct item items[] = {
                D("d"), D("d/s"), F("d/a", "1"), H("b", "d/a"), H("c", "b"), F("b", "2"), {0}};
        struct world world;
        world_make(&world);
        assert_int_equal(apply_items(&world, items, NULL), 0);
        assert_int_equal(tree_find(world.tree, "d/a")->inode->nlink, 2);
        assert_ptr_equal(tree_find(world.tree, "d/a")->inode, tree_find(world.tree, "c")->inode);
        assert_int_equal(tree_find(world.tree, "b")->inode->nlink, 1);
        assert_int_equal(tree_find(world.tree, "d")->inode->folder.folder_count, 1);
        assert_int_equal(tree_root(world.tree)->folder.folder_count, 1);
        world_free(&world);
}

/* Two attributes of one name, which only bytes by hand can say. */
static void the_last_attribute_wins(void **state)
{
        static const char records[] = "27 SCHILY.xattr.user.b=one\n"
                                      "27 SCHILY.xattr.user.a=two\n"
                                      "29 SCHILY.xattr.user.b=three\n";
        uint8_t tar[512 * 5] = {0};
        char size[13];
        struct world world;
        cubby_error err = {0};
        (void)snprintf(size, sizeof size, "%011zo", sizeof records - 1);
        raw_header(tar, "pax", 'x', size);
        memcpy(tar + 512, records, sizeof records);
        raw_header(tar + 1024, "x", '0', "00000000000");
        world_make(&world);
        if (apply(&world, tar, sizeof tar, NULL, true, &err) < 0)
                fail_msg("%s", err.message);
        const struct xattr_list *xattrs = tree_find(world.tree, "x")->inode->xattrs;
        assert_int_equal(xattrs->count, 2);
        assert_string_equal(xattrs->items[0].name, "user.a");
        assert_memory_equal(xattrs->items[0].value, "two", 3);
        assert_string_equal(xattrs->items[1].name, "user.b");
        assert_memory_equal(xattrs->items[1].value, "three", 5);
        world_free(&world);
}

/* ---- hostile entries ---- */

#define SLASHES20 "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/"
#define X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X256 X64 X64 X64 X64

static const struct {
        struct item items[ITEMS_MAX];
        int code;
        const char *message; /* a part of it */
} refused[] = {
        {{F("../x", "1")}, CUBBY_E_IMAGE, "'..'"},
        {{F("a/../../x", "1")}, CUBBY_E_IMAGE, "'..'"},
        {{F("a/../x", "1")}, CUBBY_E_IMAGE, "'..'"},
        {{F("/../x", "1")}, CUBBY_E_IMAGE, "'..'"},
        {{D("..")}, CUBBY_E_IMAGE, "'..'"},
        {{F("a/..", "1")}, CUBBY_E_IMAGE, "'..'"},
        {{H("x", "../../etc/shadow")}, CUBBY_E_IMAGE, "'..'"},
        {{H("x", "/etc/shadow")}, CUBBY_E_IMAGE, "'etc/shadow' is missing"},
        {{H("x", "y")}, CUBBY_E_IMAGE, "missing"},
        {{H("x", "x")}, CUBBY_E_IMAGE, "missing"},
        {{F("x", "1"), H("x", "x")}, CUBBY_E_IMAGE, "itself"},
        {{D("d"), H("x", "d")}, CUBBY_E_IMAGE, "folder"},
        {{L("s", "/etc"), H("x", "s/shadow")}, CUBBY_E_IMAGE, "missing"},
        {{F("x", "1"), H("y", ".")}, CUBBY_E_IMAGE, "missing"},
        {{F("x", "1"), H("/", "x")}, CUBBY_E_IMAGE, "root"},
        {{F(".wh.", "")}, CUBBY_E_IMAGE, "whiteout"},
        {{F(".wh..", "")}, CUBBY_E_IMAGE, "whiteout"},
        {{F(".wh...", "")}, CUBBY_E_IMAGE, "whiteout"},
        {{F("a/.wh...", "")}, CUBBY_E_IMAGE, "whiteout"},
        {{F(".wh.a/b", "1")}, CUBBY_E_IMAGE, "inside a whiteout"},
        {{F("a/.wh.b/c/d", "1")}, CUBBY_E_IMAGE, "inside a whiteout"},
        {{F(".", "1")}, CUBBY_E_IMAGE, "root"},
        {{L("/", "etc")}, CUBBY_E_IMAGE, "root"},
        {{F("f", "1"), F("f/x", "2")}, CUBBY_E_IMAGE, "not a folder"},
        {{F("f", "1"), L("s", "f"), F("s/x", "2")}, CUBBY_E_IMAGE, "not a folder"},
        {{C("c"), D("c/d")}, CUBBY_E_IMAGE, "not a folder"},
        {{L("s", "s"), F("s/x", "1")}, CUBBY_E_IMAGE, "levels of symbolic links"},
        {{L("a", "b"), L("b", "a"), F("a/x", "1")}, CUBBY_E_IMAGE, "symbolic links"},
        {{L("a", "a/a/a/a/a/a"), F("a/x", "1")}, CUBBY_E_IMAGE, "symbolic links"},
        {{L("s", "")}, CUBBY_E_IMAGE, "link to nothing"},
        {{F(X256, "1")}, CUBBY_E_IMAGE, "component of more than 255"},
        {{F("a/" X256 "/b", "1")}, CUBBY_E_IMAGE, "component of more than 255"},
        {{F(SLASHES20 "x", "1")}, CUBBY_E_LIMIT, "LIMIT_PATH_DEPTH"},
        {{L("s", SLASHES20), D("s/d")}, CUBBY_E_LIMIT, "LIMIT_PATH_DEPTH"},
        {{F(X64 "/" X256 "/" X256 "/" X256 "/" X256, "1")}, CUBBY_E_LIMIT, "LIMIT_PATH_BYTES"},
        {{L("s", X256 X256 X256 X256)}, CUBBY_E_LIMIT, "LIMIT_PATH_BYTES"},
        {{{.kind = 'f', .path = "x", .text = "1", .xattr = X64 X64}}, CUBBY_E_LIMIT,
                "LIMIT_XATTR_BYTES"},
        {{HOLES("x", 1ULL << 40)}, CUBBY_E_LIMIT, "LIMIT_LAYER_BYTES"},
        {{HOLES("x", 5U << 20), HOLES("y", 5U << 20)}, CUBBY_E_LIMIT, "LIMIT_LAYER_BYTES"},
};

static void hostile_entries_are_refused(void **state)
{
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
                const char *path = refused[i].items[0].path;
                struct world world;
                cubby_error err = {0};
                world_make(&world);
                if (apply_items(&world, refused[i].items, &err) == 0)
                        fail_msg("row %zu, '%.60s': taken", i, path);
                if (err.code != refused[i].code || strstr(err.message, refused[i].message) == NULL)
                        fail_msg("row %zu, '%.60s': code %d, '%s'", i, path, err.code, err.message);
                /* The entry is named. */
                assert_int_equal(strncmp(err.message, "entry '", 7), 0);
                world_free(&world);
        }
}

static void many_entries_are_refused(void **state)
{
        struct item items[102] = {{0}};
        char names[101][8];
        struct world world;
        cubby_error err = {0};
        for (size_t i = 0; i < 101; i++) {
                (void)snprintf(names[i], sizeof names[i], "f%zu", i);
                items[i] = (struct item){.kind = 'f', .path = names[i]};
        }
        world_make(&world);
        assert_int_equal(apply_items(&world, items, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_non_null(strstr(err.message, "LIMIT_ENTRIES"));
        world_free(&world);

        /* Parents that are made count too, and one name put over and over. */
        world_make(&world);
        for (size_t i = 0; i < 101; i++)
                items[i].path = i < 90 ? "x" : "1/2/3/4/5/6/7/8/9/10/11/12";
        assert_int_equal(apply_items(&world, items, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        world_free(&world);
}

/* Each entry is within its own limits; all stay in memory until the image is whole. */
static void much_metadata_is_refused(void **state)
{
        static const char text[] = X256 X256 X256;
        static const struct item rows[] = {
                L("x", text), /* a link's target */
                {.kind = 'f',
                        .path = "x",
                        .text = "",
                        .xattr = "thirty bytes of an attribute.."}, /* attributes */
                {.kind = 'd',
                        .path = "x",
                        .xattr = "thirty bytes of an attribute.."}, /* put over and over */
                {.kind = 'd',
                        .path = ".",
                        .xattr = "thirty bytes of an attribute.."}, /* of the root */
                F(X64 X64 X64 "x", ""),                             /* names */
        };
        for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
                struct item items[61] = {{0}};
                struct world world;
                cubby_error err = {0};
                for (size_t i = 0; i < 60; i++)
                        items[i] = rows[row];
                world_make(&world);
                if (apply_items(&world, items, &err) == 0)
                        fail_msg("row %zu: taken", row);
                if (err.code != CUBBY_E_LIMIT ||
                        strstr(err.message, "LIMIT_METADATA_BYTES") == NULL)
                        fail_msg("row %zu: code %d, '%s'", row, err.code, err.message);
                world_free(&world);
        }
}

/* ---- hostile bytes ---- */

static void hostile_headers_are_refused(void **state)
{
        static const struct {
                const char *what;
                char type;
                const char *size;
                bool spoil; /* the checksum */
        } cases[] = {
                {"a size beyond the end", '0', "00000010000", false},
                {"a negative size", '0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", false},
                {"a size of 2^63", '0', "\x80\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00", false},
                {"an extended header of 1 GiB", 'x', "10000000000", false},
                {"a long name of 1 GiB", 'L', "10000000000", false},
                {"an extended header without its file", 'x', "00000000000", false},
                {"a wrong checksum", '0', "00000000000", true},
                {"a global header of 8 GiB", 'g', "77777777777", false},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                uint8_t tar[512 * 3] = {0};
                struct world world;
                cubby_error err = {0};
                raw_header(tar, "x", cases[i].type, cases[i].size);
                if (cases[i].spoil)
                        tar[0] = 'y';
                world_make(&world);
                if (apply(&world, tar, 512, NULL, false, &err) == 0)
                        fail_msg("%s: taken", cases[i].what);
                if (err.code != CUBBY_E_IMAGE && err.code != CUBBY_E_LIMIT)
                        fail_msg("%s: code %d, %s", cases[i].what, err.code, err.message);
                world_free(&world);
        }
}

/* Owners that are no uid, in the base-256 form that can say so. */
static void odd_owners_and_times(void **state)
{
        static const struct {
                size_t field;
                const char *value; /* 8 or 12 bytes */
                size_t size;
                int code;
        } cases[] = {
                {108, "\x80\x00\x00\x00\xff\xff\xff\xff", 8, CUBBY_E_IMAGE},
                {116, "\x80\x00\x00\x01\x00\x00\x00\x00", 8, CUBBY_E_IMAGE},
                {108, "\x80\x00\x00\x00\xff\xff\xff\xfe", 8, CUBBY_OK},
                {136, "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", 12, CUBBY_OK},
                {136, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 12, CUBBY_OK},
                {136, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, CUBBY_OK},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                uint8_t tar[512 * 3] = {0};
                struct world world;
                cubby_error err = {0};
                raw_header(tar, "x", '0', "00000000000");
                memcpy(tar + cases[i].field, cases[i].value, cases[i].size);
                memset(tar + 148, ' ', 8);
                unsigned int sum = 0;
                for (int at = 0; at < 512; at++)
                        sum += tar[at];
                (void)snprintf((char *)tar + 148, 8, "%06o", sum);
                world_make(&world);
                int result = apply(&world, tar, sizeof tar, NULL, true, &err);
                if (err.code != cases[i].code || (result == 0) != (cases[i].code == CUBBY_OK))
                        fail_msg("row %zu: code %d, %s", i, err.code, err.message);
                world_free(&world);
        }
}

/* A negative uid in text form must not become somebody else. */
static void extended_headers_are_checked(void **state)
{
        static const struct {
                const char *record; /* without its length */
                int code;           /* -1: anything but a crash */
        } cases[] = {
                {"uid=-1\n", -1},
                {"uid=99999999999999999999\n", CUBBY_E_IMAGE},
                {"gid=4294967295\n", CUBBY_E_IMAGE},
                {"mtime=99999999999999999999999999.5\n", CUBBY_OK},
                {"mtime=-99999999999999999999999999.5\n", CUBBY_OK},
                {"mtime=nonsense\n", CUBBY_OK},
                {"size=-5\n", -1},
                {"size=99999999999999999999\n", -1},
                {"path=../../x\n", CUBBY_E_IMAGE},
                {"path=\xff\xfe\n", CUBBY_OK},
                {"path=caf\xc3\xa9\n", CUBBY_OK},
                {"linkpath=\xff\n", CUBBY_OK},
                {"SCHILY.devmajor=5000\n", CUBBY_OK},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                uint8_t tar[512 * 5] = {0};
                char record[300];
                char size[13];
                struct world world;
                cubby_error err = {0};
                int length = snprintf(record, sizeof record, "%zu %s", strlen(cases[i].record) + 3,
                        cases[i].record);
                (void)snprintf(size, sizeof size, "%011o", (unsigned int)length);
                raw_header(tar, "pax", 'x', size);
                memcpy(tar + 512, record, (size_t)length);
                raw_header(tar + 1024, "x", '0', "00000000000");
                world_make(&world);
                int result = apply(&world, tar, sizeof tar, NULL, true, &err);
                assert_true((result == 0) == (err.code == CUBBY_OK));
                if (cases[i].code >= 0 && err.code != cases[i].code)
                        fail_msg("'%s': code %d, %s", cases[i].record, err.code, err.message);
                const struct dentry *entry = tree_find(world.tree, "x");
                assert_true(entry == NULL || entry->inode->uid != UINT32_MAX);
                /* Names come through byte for byte, whatever charset they are in. */
                if (strncmp(cases[i].record, "path=", 5) == 0 && result == 0) {
                        char path[32];
                        (void)snprintf(path, sizeof path, "%s", cases[i].record + 5);
                        path[strlen(path) - 1] = '\0';
                        assert_non_null(tree_find(world.tree, path));
                }
                world_free(&world);
        }
}

static void devices_out_of_range_are_refused(void **state)
{
        static const struct {
                const char *major;
                const char *minor;
                int code;
        } cases[] = {
                {"0007777", "0000003", CUBBY_OK},
                {"0010000", "0000003", CUBBY_E_IMAGE},
                {"0000001", "3777777", CUBBY_OK},
                {"0000001", "4000000", CUBBY_E_IMAGE},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                uint8_t tar[512 * 3] = {0};
                struct world world;
                cubby_error err = {0};
                unsigned int sum = 0;
                raw_header(tar, "dev", '3', "00000000000");
                memcpy(tar + 329, cases[i].major, 7);
                memcpy(tar + 337, cases[i].minor, 7);
                memset(tar + 148, ' ', 8);
                for (int at = 0; at < 512; at++)
                        sum += tar[at];
                (void)snprintf((char *)tar + 148, 8, "%06o", sum);
                world_make(&world);
                (void)apply(&world, tar, sizeof tar, NULL, true, &err);
                if (err.code != cases[i].code)
                        fail_msg("row %zu: code %d, %s", i, err.code, err.message);
                world_free(&world);
        }
}

/* ---- hostile streams ---- */

static const struct item plain_items[] = {F("a", "1"), D("d"), F("d/b", "2"), {0}};

static void every_compression_is_read(void **state)
{
        static const char *const filters[] = {"none", "gzip", "zstd"};
        for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
                AUTO_BUFFER struct buffer tar;
                struct world world;
                buffer_init(&tar, 1U << 20);
                fixture_tar(plain_items, filters[i], &tar);
                world_make(&world);
                assert_int_equal(apply(&world, tar.data, tar.size, NULL, true, NULL), 0);
                assert_content(&world, "d/b", "2");
                world_free(&world);
        }
}

static void expect_refusal(
        const void *data, size_t size, const char *digest, int code, const char *message)
{
        struct world world;
        cubby_error err = {0};
        world_make(&world);
        if (apply(&world, data, size, digest, true, &err) == 0)
                fail_msg("taken; wanted '%s'", message);
        if (err.code != code || strstr(err.message, message) == NULL)
                fail_msg("code %d, '%s'; wanted '%s'", err.code, err.message, message);
        world_free(&world);
}

static void damaged_streams_are_refused(void **state)
{
        static const char *const filters[] = {"none", "gzip", "zstd"};
        for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
                AUTO_BUFFER struct buffer tar;
                buffer_init(&tar, 1U << 20);
                fixture_tar(plain_items, filters[i], &tar);
                expect_refusal(tar.data, tar.size,
                        "sha256:0000000000000000000000000000000000000000000000000000000000000000",
                        CUBBY_E_DIGEST, "not sha256:0000");
                for (size_t cut = 1; cut < 6 && i > 0; cut++)
                        expect_refusal(tar.data, tar.size * cut / 6, NULL, CUBBY_E_IMAGE, "");
                tar.data[tar.size / 2] ^= 0x55;
                if (i > 0)
                        expect_refusal(tar.data, tar.size, NULL, CUBBY_E_IMAGE, "");
        }
        expect_refusal("", 0, NULL, CUBBY_E_IMAGE, "no end mark");
        expect_refusal("garbage", 7, NULL, CUBBY_E_IMAGE, "");
        expect_refusal("\x1f\x8b", 2, NULL, CUBBY_E_IMAGE, "");
}

/* Cut between two entries it is still a valid tar, but for the mark at its end. */
static void a_tar_cut_between_entries_is_refused(void **state)
{
        AUTO_BUFFER struct buffer tar;
        static const struct item items[] = {F("a", "content"), {0}};
        struct world world;
        buffer_init(&tar, 1U << 20);
        fixture_tar(items, "none", &tar);
        size_t end = tar.size;
        while (end > 0 && tar.data[end - 1] == 0)
                end--;
        end = (end + 511) / 512 * 512;
        tar.data[end - 1] = 'x'; /* the padding is nobody's, but must not look like the mark */
        expect_refusal(tar.data, end, NULL, CUBBY_E_IMAGE, "cut short");
        world_make(&world);
        assert_int_equal(apply(&world, tar.data, tar.size, NULL, true, NULL), 0);
        world_free(&world);
}

static void trailing_bytes_are_refused(void **state)
{
        static const char *const filters[] = {"gzip", "zstd"};
        for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
                AUTO_BUFFER struct buffer tar;
                buffer_init(&tar, 1U << 20);
                fixture_tar(plain_items, filters[i], &tar);
                assert_true(buffer_append_text(&tar, "and more"));
                expect_refusal(tar.data, tar.size, NULL, CUBBY_E_IMAGE, "");
                tar.size -= strlen("and more");
                assert_true(buffer_append(&tar, "\0\0\0\0\0\0\0\0\0\0\0\0x", 13));
                expect_refusal(tar.data, tar.size, NULL, CUBBY_E_IMAGE, "");
        }
}

static void compression_twice_is_refused(void **state)
{
        AUTO_BUFFER struct buffer zeros;
        AUTO_BUFFER struct buffer tar;
        AUTO_BUFFER struct buffer twice;
        buffer_init(&tar, 1U << 20);
        buffer_init(&twice, 1U << 20);
        buffer_init(&zeros, 1U << 20);
        fixture_tar(plain_items, "gzip", &tar);
        /* A gzip member of stored blocks around the first one. */
        uint16_t size = (uint16_t)tar.size;
        assert_true(tar.size < UINT16_MAX);
        assert_true(buffer_append(&twice, "\x1f\x8b\x08\0\0\0\0\0\0\x03\x01", 11));
        assert_true(buffer_u16(&twice, size) && buffer_u16(&twice, (uint16_t)~size));
        assert_true(buffer_append(&twice, tar.data, tar.size));
        assert_true(buffer_append(&twice, "\0\0\0\0\0\0\0\0", 8));
        expect_refusal(twice.data, twice.size, NULL, CUBBY_E_IMAGE, "more than once");
}

static void bombs_are_stopped(void **state)
{
        size_t size = 4U << 20;
        AUTO_FREE char *text = malloc(size + 1);
        AUTO_BUFFER struct buffer tar;
        struct world world;
        cubby_error err = {0};
        assert_non_null(text);
        memset(text, 'a', size);
        text[size] = '\0';
        const struct item items[] = {F("bomb", text), {0}};
        buffer_init(&tar, 64U << 20);
        fixture_tar(items, "gzip", &tar);
        assert_true(tar.size < 64U << 10);
        expect_refusal(tar.data, tar.size, NULL, CUBBY_E_LIMIT, "LIMIT_EXPANSION");

        /* Without compression it is only large. */
        buffer_clear(&tar);
        fixture_tar(items, "none", &tar);
        world_make(&world);
        assert_int_equal(apply(&world, tar.data, tar.size, NULL, true, &err), 0);
        assert_int_equal(apply(&world, tar.data, tar.size, NULL, true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_LIMIT);
        assert_non_null(strstr(err.message, "LIMIT_LAYER_BYTES"));
        world_free(&world);
}

/* Ceilings that the libraries set: they must be there, and where we say they are. */
static void ceilings_of_the_libraries_hold(void **state)
{
        static const struct {
                int window; /* its logarithm */
                int code;
        } windows[] = {{10, CUBBY_OK}, {27, CUBBY_OK}, {28, CUBBY_E_LIMIT}, {41, CUBBY_E_LIMIT}};
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
                /* one frame: a window, and a raw block with the end mark of an empty tar */
                uint8_t frame[9 + 1024] = {0x28, 0xb5, 0x2f, 0xfd, 0,
                        (uint8_t)((windows[i].window - 10) << 3), 0x01, 0x20, 0x00};
                struct world world;
                cubby_error err = {0};
                world_make(&world);
                (void)apply(&world, frame, sizeof frame, NULL, true, &err);
                if (err.code != windows[i].code)
                        fail_msg(
                                "window %d: code %d, %s", windows[i].window, err.code, err.message);
                if (err.code != CUBBY_OK)
                        assert_non_null(strstr(err.message, "LIMIT_WINDOW_BYTES"));
                world_free(&world);
        }
        static const char types[] = {'x', 'L', 'K', 'g'};
        for (size_t i = 0; i < sizeof types; i++) {
                size_t size = 2U << 20;
                AUTO_FREE uint8_t *tar = calloc(1, size + 2048);
                assert_non_null(tar);
                raw_header(tar, "long", types[i], "00010000000");
                memset(tar + 512, 'a', size);
                expect_refusal(tar, size + 2048, NULL, CUBBY_E_LIMIT, "LIMIT_HEADER_BYTES");
        }
}

static void text_is_made_printable(void **state)
{
        char quoted[QUOTED_MAX];
        char longer[1000];
        assert_string_equal(quote_name(quoted, "a\n\x1b[1m\xff\\"), "a\\x0a\\x1b[1m\\xff\\x5c");
        memset(longer, 1, sizeof longer);
        longer[sizeof longer - 1] = '\0';
        assert_true(strlen(quote_name(quoted, longer)) < QUOTED_MAX);
        assert_non_null(strstr(quoted, "..."));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(layers_are_merged),
                cmocka_unit_test(link_counts_follow_the_names),
                cmocka_unit_test(the_last_attribute_wins),
                cmocka_unit_test(hostile_entries_are_refused),
                cmocka_unit_test(many_entries_are_refused),
                cmocka_unit_test(much_metadata_is_refused),
                cmocka_unit_test(hostile_headers_are_refused),
                cmocka_unit_test(odd_owners_and_times),
                cmocka_unit_test(extended_headers_are_checked),
                cmocka_unit_test(devices_out_of_range_are_refused),
                cmocka_unit_test(every_compression_is_read),
                cmocka_unit_test(damaged_streams_are_refused),
                cmocka_unit_test(a_tar_cut_between_entries_is_refused),
                cmocka_unit_test(trailing_bytes_are_refused),
                cmocka_unit_test(compression_twice_is_refused),
                cmocka_unit_test(bombs_are_stopped),
                cmocka_unit_test(ceilings_of_the_libraries_hold),
                cmocka_unit_test(text_is_made_printable),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
