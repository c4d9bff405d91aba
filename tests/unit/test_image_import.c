/* SPDX-License-Identifier: Apache-2.0 */
/* Whole imports: docker-archives and plain tars; what is refused leaves nothing. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "image/disk.h"
#include "image/image.h"
#include "image_fixture.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static const struct item lower[] = {
        {.kind = 'd', .path = "etc"}, {.kind = 'f', .path = "etc/hosts", .text = "127.0.0.1"}, {0}};
/* A source that is quick to import, under the name that its image gets. */
static void make_root_tar(struct setting *setting, const char *filter, const char *name)
{
        AUTO_BUFFER struct buffer tar;
        buffer_init(&tar, 1U << 20);
        fixture_tar(lower, filter, &tar);
        fixture_write(setting->folder.fd, name, tar.data, tar.size);
}

/* ---- tars ---- */

static void add_to_tar(struct archive *archive, const char *name, const void *data, size_t size)
{
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)size);
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(archive, data, size), size);
        archive_entry_free(entry);
}

static struct archive *start_tar(
        const struct setting *setting, const char *name, const char *filter)
{
        char path[128];
        struct archive *archive = archive_write_new();
        path_in(setting, name, path);
        assert_int_equal(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
        if (filter != NULL)
                assert_int_equal(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
        assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
        return archive;
}

static void end_tar(struct archive *archive)
{
        assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
        archive_write_free(archive);
}

static void a_plain_tar_is_an_image(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        char again[DIGEST_BYTES];
        struct image_record record = {0};
        struct image_runtime runtime;
        setting_make(&setting);
        make_root_tar(&setting, "none", "root.tar");
        make_root_tar(&setting, "zstd", "root.tar.zst");
        assert_imports(&setting, "root.tar", NULL, "docker.io/library/root:latest", id);
        assert_imports(&setting, "root.tar.zst", "debian:12", "docker.io/library/debian:12", again);
        assert_string_equal(id, again);
        assert_int_equal(image_find(setting.home, "debian:12", &record, NULL), 0);
        assert_int_equal(image_runtime_parse(record.config, &runtime, NULL), 0);
        assert_null(runtime.command[0]);
        image_runtime_clear(&runtime);
        image_record_clear(&record);
        setting_free(&setting);
}

static void standard_input_is_a_source(void **state)
{
        struct setting setting;
        AUTO_BUFFER struct buffer tar;
        struct image_record record = {0};
        int pipes[2];
        setting_make(&setting);
        buffer_init(&tar, 1U << 16);
        fixture_tar(lower, "gzip", &tar);
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        assert_int_equal(write_whole(pipes[1], tar.data, tar.size), 0);
        close_quietly(pipes[1]);
        int before = dup(STDIN_FILENO);
        assert_true(dup2(pipes[0], STDIN_FILENO) >= 0);
        cubby_error err = {0};
        if (image_import(setting.home, "-", NULL, &record, &err) < 0)
                fail_msg("%s", err.message);
        assert_true(dup2(before, STDIN_FILENO) >= 0);
        close_quietly(before);
        close_quietly(pipes[0]);
        assert_null(record.name);
        image_record_clear(&record);
        setting_free(&setting);
}

/* Who offers a pipe may keep silent, or stop in the middle. */
static void a_silent_pipe_ends_in_time(void **state)
{
        static const struct image_import_options options = {.timeout_ms = 300};
        AUTO_BUFFER struct buffer tar;
        buffer_init(&tar, 1U << 16);
        fixture_tar(lower, "none", &tar);
        for (int row = 0; row < 3; row++) {
                struct setting setting;
                struct image_record record = {0};
                char path[128];
                cubby_error err = {0};
                setting_make(&setting);
                path_in(&setting, "pipe", path);
                assert_int_equal(mkfifo(path, 0600), 0);
                AUTO_FD int writer = -1;
                if (row > 0) {
                        writer = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
                        assert_true(writer >= 0);
                        assert_int_equal(write_whole(writer, tar.data, row == 1 ? 0 : 700), 0);
                }
                int64_t start = clock_monotonic_ms();
                assert_int_equal(image_import(setting.home, path, &options, &record, &err), -1);
                assert_int_equal(err.code, CUBBY_E_TIMEOUT);
                assert_in_range(clock_monotonic_ms() - start, 250, 5000);
                assert_nothing_left(&setting);
                setting_free(&setting);
        }
}

/* ---- docker-archives ---- */

struct archive_case {
        const char *manifest; /* %s: the config's file name */
        const char *config_name;
        const char *diff_id; /* NULL: the right one */
        int code;
        const char *message;
};

static void write_docker_archive(const struct setting *setting, const struct archive_case *row)
{
        AUTO_BUFFER struct buffer tar;
        char diff_id[DIGEST_BYTES];
        char digest[DIGEST_BYTES];
        char config[512];
        char name[128];
        char manifest[1024];
        buffer_init(&tar, 1U << 20);
        fixture_tar(lower, "none", &tar);
        assert_int_equal(digest_of(tar.data, tar.size, diff_id, NULL), 0);
        (void)snprintf(config, sizeof config,
                "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":"
                "\"layers\",\"diff_ids\":[\"%s\"]}}",
                row->diff_id == NULL ? diff_id : row->diff_id);
        assert_int_equal(digest_of(config, strlen(config), digest, NULL), 0);
        (void)snprintf(name, sizeof name, "%s.json",
                row->config_name == NULL ? digest + strlen(DIGEST_PREFIX) : row->config_name);
        const char *mark = strstr(row->manifest, "%s");
        (void)snprintf(manifest, sizeof manifest, "%.*s%s%s",
                mark == NULL ? (int)strlen(row->manifest) : (int)(mark - row->manifest),
                row->manifest, mark == NULL ? "" : name, mark == NULL ? "" : mark + 2);
        struct archive *archive = start_tar(setting, "saved.tar", NULL);
        add_to_tar(archive, name, config, strlen(config));
        add_to_tar(archive, "one/layer.tar", tar.data, tar.size);
        struct archive_entry *link = archive_entry_new();
        archive_entry_set_pathname(link, "two/layer.tar");
        archive_entry_set_filetype(link, AE_IFLNK);
        archive_entry_set_symlink(link, "../one/layer.tar");
        assert_int_equal(archive_write_header(archive, link), ARCHIVE_OK);
        archive_entry_free(link);
        add_to_tar(archive, "manifest.json", manifest, strlen(manifest));
        end_tar(archive);
}

static void docker_archives_are_imported_or_refused_whole(void **state)
{
        static const struct archive_case cases[] = {
                {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\",\"b:2\"],\"Layers\":[\"one/"
                 "layer.tar\"]}]",
                        NULL, NULL, CUBBY_OK, ""},
                {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\"],\"Layers\":[\"two/layer.tar\"]}]",
                        "renamed", NULL, CUBBY_OK, ""},
                {"[{\"Config\":\"%s\",\"Layers\":[\"one/layer.tar\"]}]", ZEROS, NULL,
                        CUBBY_E_DIGEST, "config"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"one/layer.tar\"]}]", NULL, "sha256:" ZEROS,
                        CUBBY_E_DIGEST, "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[]}]", NULL, NULL, CUBBY_E_IMAGE, "1 layers"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"../../etc/passwd\"]}]", NULL, NULL,
                        CUBBY_E_IMAGE, "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[\"/etc/passwd\"]}]", NULL, NULL, CUBBY_E_IMAGE,
                        "layer 1"},
                {"[{\"Config\":\"%s\",\"Layers\":[7]}]", NULL, NULL, CUBBY_E_IMAGE, "layer 1"},
                {"[{\"Config\":\"%s\"}]", NULL, NULL, CUBBY_E_IMAGE, "list of layers"},
                {"[{\"Config\":\"absent.json\",\"Layers\":[\"one/layer.tar\"]}]", NULL, NULL,
                        CUBBY_E_IMAGE, "absent.json"},
                {"[{\"Layers\":[\"one/layer.tar\"]}]", NULL, NULL, CUBBY_E_IMAGE, "config"},
                {"[{},{}]", NULL, NULL, CUBBY_E_INVALID, "2 images"},
                {"[]", NULL, NULL, CUBBY_E_IMAGE, "list of images"},
                {"{}", NULL, NULL, CUBBY_E_IMAGE, "list of images"},
                {"[", NULL, NULL, CUBBY_E_IMAGE, "JSON"},
                {"[5]", NULL, NULL, CUBBY_E_IMAGE, "layers"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct setting setting;
                char id[DIGEST_BYTES];
                struct image_record record = {0};
                cubby_error err = {0};
                setting_make(&setting);
                write_docker_archive(&setting, &cases[i]);
                if (cases[i].code == CUBBY_OK) {
                        assert_imports(&setting, "saved.tar", NULL, "docker.io/library/a:1", id);
                } else {
                        if (setting_import(&setting, "saved.tar", NULL, &record, &err) == 0)
                                fail_msg("row %zu: taken", i);
                        if (err.code != cases[i].code ||
                                strstr(err.message, cases[i].message) == NULL)
                                fail_msg("row %zu: code %d, '%s'", i, err.code, err.message);
                        assert_nothing_left(&setting);
                }
                setting_free(&setting);
        }
}

static void all_names_of_a_docker_archive_are_kept(void **state)
{
        static const struct archive_case row = {"[{\"Config\":\"%s\",\"RepoTags\":[\"a:1\","
                                                "\"BAD NAME\",\"b:2\"],\"Layers\":[\"one/"
                                                "layer.tar\"]}]",
                NULL, NULL, CUBBY_OK, ""};
        struct setting setting;
        char id[DIGEST_BYTES];
        struct image_record record = {0};
        setting_make(&setting);
        write_docker_archive(&setting, &row);
        assert_imports(&setting, "saved.tar", NULL, "docker.io/library/a:1", id);
        assert_int_equal(image_find(setting.home, "b:2", &record, NULL), 0);
        assert_string_equal(record.id, id);
        image_record_clear(&record);
        assert_int_equal(image_find(setting.home, "c", &record, NULL), -1);
        setting_free(&setting);
}

/* ---- sources that are none ---- */

static void bad_sources_are_refused(void **state)
{
        static const struct {
                const char *name;
                const char *content; /* NULL: nothing is there */
                int code;
        } cases[] = {
                {"absent.tar", NULL, CUBBY_E_NOT_FOUND}, {"empty.tar", "", CUBBY_E_IMAGE},
                {"text.tar", "this is not a tar archive at all, only some words", CUBBY_E_IMAGE},
                {"short.tar.gz", "\x1f\x8b\x08\x02\x03", CUBBY_E_IMAGE},
                {"layout", NULL, CUBBY_E_IMAGE}, /* a folder without any mark */
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct setting setting;
                struct image_record record = {0};
                cubby_error err = {0};
                setting_make(&setting);
                if (cases[i].content != NULL)
                        fixture_write(setting.folder.fd, cases[i].name, cases[i].content,
                                strlen(cases[i].content));
                assert_int_equal(setting_import(&setting, cases[i].name, NULL, &record, &err), -1);
                if (err.code != cases[i].code)
                        fail_msg("%s: code %d, %s", cases[i].name, err.code, err.message);
                assert_non_null(strstr(err.message, cases[i].name));
                assert_int_equal(setting_import(&setting, cases[i].name, "BAD", &record, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_nothing_left(&setting);
                setting_free(&setting);
        }
}

/* ---- the store ---- */

static void disks_go_with_their_last_record(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        cubby_error err = {0};
        AUTO_FD int disk = -1;
        uint64_t freed = 1;
        setting_make(&setting);
        make_root_tar(&setting, "none", "web.tar");
        assert_imports(&setting, "web.tar", NULL, "docker.io/library/web:latest", id);
        assert_imports(&setting, "web.tar", "other", "docker.io/library/other:latest", id);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_int_equal(freed, 0);
        assert_int_equal(image_remove(setting.home, id, false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        assert_int_equal(image_remove(setting.home, "web", false, NULL), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &disk, NULL), 0);
        assert_int_equal(image_remove(setting.home, "other", false, NULL), 0);
        assert_nothing_left(&setting);
        assert_int_equal(image_remove(setting.home, "other", true, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        /* Who has it open keeps it. */
        assert_int_equal(disk_check(disk, NULL), 0);
        setting_free(&setting);
}

static void a_box_keeps_its_disk(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        cubby_error err = {0};
        uint64_t freed = 0;
        setting_make(&setting);
        make_root_tar(&setting, "none", "web.tar");
        assert_imports(&setting, "web.tar", NULL, "docker.io/library/web:latest", id);
        struct box_record box = {.id = strdup("0123456789abcdef0123456789abcdef"),
                .name = strdup("web"),
                .image_id = strdup(id),
                .created_ns = 1};
        if (box_record_insert(setting.home, &box, &err) < 0)
                fail_msg("%s", err.message);
        assert_int_equal(image_remove(setting.home, "web", false, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY);
        assert_int_equal(image_remove(setting.home, "web", true, NULL), 0);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_int_equal(freed, 0);
        assert_int_equal(fixture_count(home_folder(setting.home, HOME_ROOTFS), "."), 1);
        assert_int_equal(box_record_remove(setting.home, box.id, NULL), 0);
        assert_int_equal(image_gc(setting.home, &freed, NULL), 0);
        assert_true(freed > 0);
        assert_nothing_left(&setting);
        box_record_clear(&box);
        setting_free(&setting);
}

static void damaged_disks_are_found_and_made_again(void **state)
{
        struct setting setting;
        char id[DIGEST_BYTES];
        char path[DIGEST_BYTES + 16];
        cubby_error err = {0};
        int fd = -1;
        setting_make(&setting);
        make_root_tar(&setting, "none", "web.tar");
        assert_imports(&setting, "web.tar", NULL, "docker.io/library/web:latest", id);
        int folder = home_folder(setting.home, HOME_ROOTFS);
        (void)snprintf(path, sizeof path, "%s/disk.erofs", id + strlen(DIGEST_PREFIX));
        assert_int_equal(fchmodat(folder, path, 0600, 0), 0);
        AUTO_FD int disk = openat(folder, path, O_RDWR | O_CLOEXEC);
        assert_true(disk >= 0);
        assert_int_equal(ftruncate(disk, 8192), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_imports(&setting, "web.tar", NULL, "docker.io/library/web:latest", id);
        assert_int_equal(unlinkat(folder, path, 0), 0);
        assert_int_equal(image_open_rootfs(setting.home, id, &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_int_equal(fd, -1);
        assert_imports(&setting, "web.tar", NULL, "docker.io/library/web:latest", id);
        assert_int_equal(image_open_rootfs(setting.home, "sha256:../x", &fd, &err), -1);
        assert_int_equal(err.code, CUBBY_E_INVALID);
        setting_free(&setting);
}

static void die_at_disk(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total)
{
        if (strcmp(stage, "disk") == 0)
                (void)kill(getpid(), SIGKILL);
}

/* Runs an import in a child; returns how the child ended. */
static int import_in_child(struct setting *setting, image_progress progress, rlim_t file_bytes)
{
        char path[128];
        char home_path[128];
        path_in(setting, "web.tar", path);
        path_in(setting, "home", home_path);
        pid_t pid = fork();
        if (pid == 0) {
                struct home *home = NULL;
                struct image_record record = {0};
                struct image_import_options options = {.progress = progress};
                struct rlimit limit = {file_bytes, file_bytes};
                cubby_error err = {0};
                if (home_open(home_path, NULL, &home, NULL) < 0)
                        _exit(99);
                (void)signal(SIGXFSZ, SIG_IGN);
                (void)setrlimit(RLIMIT_FSIZE, &limit);
                _exit(image_import(home, path, &options, &record, &err) < 0 ? 1 : 0);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void a_killed_import_leaves_only_what_a_sweep_removes(void **state)
{
        struct setting setting;
        uint64_t freed = 0;
        setting_make(&setting);
        make_root_tar(&setting, "none", "web.tar");
        int status = import_in_child(&setting, die_at_disk, RLIM_INFINITY);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(fixture_count(home_folder(setting.home, HOME_ROOTFS), "."), 0);
        assert_int_equal(fixture_count(home_folder(setting.home, HOME_TMP), "."), 1);
        assert_int_equal(home_sweep(setting.home, &freed, NULL), 0);
        assert_true(freed > 0);
        assert_nothing_left(&setting);
        setting_free(&setting);
}

static void a_disk_that_cannot_grow_leaves_nothing(void **state)
{
        struct setting setting;
        setting_make(&setting);
        make_root_tar(&setting, "none", "web.tar");
        int status = import_in_child(&setting, NULL, DISK_BLOCK);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        assert_nothing_left(&setting);
        setting_free(&setting);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_plain_tar_is_an_image),
                cmocka_unit_test(standard_input_is_a_source),
                cmocka_unit_test(a_silent_pipe_ends_in_time),
                cmocka_unit_test(docker_archives_are_imported_or_refused_whole),
                cmocka_unit_test(all_names_of_a_docker_archive_are_kept),
                cmocka_unit_test(bad_sources_are_refused),
                cmocka_unit_test(disks_go_with_their_last_record),
                cmocka_unit_test(a_box_keeps_its_disk),
                cmocka_unit_test(damaged_disks_are_found_and_made_again),
                cmocka_unit_test(a_killed_import_leaves_only_what_a_sweep_removes),
                cmocka_unit_test(a_disk_that_cannot_grow_leaves_nothing),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
