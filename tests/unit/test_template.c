/* SPDX-License-Identifier: Apache-2.0 */
/* Templates on disk: keys, manifests, memory objects, publishing, damage, spares. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/spawn.h"
#include "template/template.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1U << 20)
#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct template_inputs inputs_make(void)
{
        struct template_inputs inputs = {
                .image_id = strdup("sha256:" DIGEST),
                .kernel_digest = strdup(DIGEST),
                .agent_digest = strdup(DIGEST),
                .machine = strdup("qemu 1 2 3; cpu x; tcg; 2000000"),
                .memory_bytes = 2 * MIB,
                .vcpus = 1,
                .disk_bytes = MIB,
                .warmups = calloc(3, sizeof(char *)),
        };
        assert_non_null(inputs.warmups);
        inputs.warmups[0] = strdup("/bin/true");
        inputs.warmups[1] = strdup("python3 -c pass");
        return inputs;
}

static void replace(char **text, const char *value)
{
        free(*text);
        *text = value == NULL ? NULL : strdup(value);
}

static void each_input_changes_the_key(void **state)
{
        (void)state;
        char keys[10][TEMPLATE_KEY_SIZE];
        for (int i = 0; i < 10; i++) {
                struct template_inputs inputs = inputs_make();
                switch (i) {
                case 1:
                        inputs.image_id[8] = 'f';
                        break;
                case 2:
                        inputs.kernel_digest[8] = 'f';
                        break;
                case 3:
                        inputs.agent_digest[8] = 'f';
                        break;
                case 4:
                        inputs.machine[5] = '9';
                        break;
                case 5:
                        inputs.memory_bytes += MIB;
                        break;
                case 6:
                        inputs.vcpus = 2;
                        break;
                case 7:
                        inputs.disk_bytes++;
                        break;
                case 8: /* the same words in one command instead of two */
                        replace(&inputs.warmups[0], "/bin/truepython3 -c pass");
                        replace(&inputs.warmups[1], NULL);
                        break;
                case 9:
                        replace(&inputs.warmups[0], NULL);
                        free(inputs.warmups[1]);
                        inputs.warmups[1] = NULL;
                        break;
                default:
                        break;
                }
                assert_int_equal(template_key(&inputs, keys[i], NULL), 0);
                assert_true(template_key_valid(keys[i]));
                for (int j = 0; j < i; j++)
                        assert_string_not_equal(keys[i], keys[j]);
                template_inputs_clear(&inputs);
        }
        struct template_inputs same = inputs_make();
        char key[TEMPLATE_KEY_SIZE];
        assert_int_equal(template_key(&same, key, NULL), 0);
        assert_string_equal(key, keys[0]);
        template_inputs_clear(&same);
}

static void bad_inputs_have_no_key(void **state)
{
        (void)state;
        for (int i = 0; i < 11; i++) {
                struct template_inputs inputs = inputs_make();
                switch (i) {
                case 0:
                        replace(&inputs.image_id, DIGEST);
                        break;
                case 1:
                        replace(&inputs.image_id, "sha256:zz");
                        break;
                case 2:
                        replace(&inputs.image_id, NULL);
                        break;
                case 3:
                        replace(&inputs.kernel_digest, "");
                        break;
                case 4:
                        replace(&inputs.agent_digest, "../../etc");
                        break;
                case 5:
                        replace(&inputs.machine, "");
                        break;
                case 6:
                        inputs.memory_bytes = 0;
                        break;
                case 7:
                        inputs.memory_bytes += 4096;
                        break;
                case 8:
                        inputs.vcpus = 0;
                        break;
                case 9:
                        inputs.disk_bytes = UINT64_MAX;
                        break;
                default:
                        replace(&inputs.warmups[1], "");
                        break;
                }
                char key[TEMPLATE_KEY_SIZE] = "untouched";
                cubby_error err = {0};
                assert_int_equal(template_key(&inputs, key, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
                assert_string_equal(key, "untouched");
                template_inputs_clear(&inputs);
        }
}

static struct template_manifest manifest_make(void)
{
        struct template_manifest manifest = {
                .inputs = inputs_make(),
                .image_name = strdup("docker.io/library/python:3"),
                .snapshot = strdup(""),
                .config = strdup(""),
                .generation = 1,
                .created_ns = 12345,
        };
        assert_int_equal(template_key(&manifest.inputs, manifest.key, NULL), 0);
        return manifest;
}

static void manifest_survives_a_round_trip(void **state)
{
        (void)state;
        struct template_manifest manifest = manifest_make();
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++)
                manifest.files[i] = (struct template_check){
                        .size_bytes = i == TEMPLATE_MEMORY ? 2 * MIB : MIB,
                        .inode = 7,
                        .mtime_ns = 99,
                        .digest = DIGEST,
                };
        AUTO_BUFFER struct buffer json;
        buffer_init(&json, TEMPLATE_MANIFEST_BYTES_MAX);
        assert_int_equal(template_manifest_encode(&manifest, &json, NULL), 0);
        struct template_manifest back = {0};
        assert_int_equal(template_manifest_decode(json.data, json.size, &back, NULL), 0);
        assert_string_equal(back.key, manifest.key);
        assert_string_equal(back.inputs.machine, manifest.inputs.machine);
        assert_string_equal(back.inputs.warmups[1], "python3 -c pass");
        assert_null(back.inputs.warmups[2]);
        assert_int_equal(back.files[TEMPLATE_DISK].inode, 7);
        template_manifest_clear(&back);

        static const struct {
                const char *find;
                const char *put; /* of the same length */
                int code;
        } damages[] = {
                {"\"version\": 1", "\"version\": 2", CUBBY_E_VERSION},
                {"\"version\": 1", "\"version\": 0", CUBBY_E_CORRUPT},
                {"\"version\"", "\"versiom\"", CUBBY_E_CORRUPT},
                {"\"vcpus\": 1", "\"vcpus\": 2", CUBBY_E_CORRUPT}, /* the key no longer follows */
                {"\"vcpus\": 1", "\"vcpus\": 0", CUBBY_E_CORRUPT},
                {"\"machine\": \"qemu 1", "\"machine\": \"qemu 9", CUBBY_E_CORRUPT},
                {"\"memory_bytes\": 2097152", "\"memory_bytes\": 3145728", CUBBY_E_CORRUPT},
                {"\"disk_bytes\": 1048576", "\"disk_bytes\": 1048577", CUBBY_E_CORRUPT},
                {"\"inode\": 7", "\"inode\": 0", CUBBY_E_CORRUPT},
                {"\"state\": {", "\"stats\": {", CUBBY_E_CORRUPT},
                {"\"generation\": 1", "\"generation\":-1", CUBBY_E_CORRUPT},
                {"\"mtime_ns\": 99", "\"mtime_ns\":\"9\"", CUBBY_E_CORRUPT},
                {"\"files\": {", "\"files\": [", CUBBY_E_CORRUPT},
                {"sha256:0011", "sha255:0011", CUBBY_E_CORRUPT},
        };
        for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
                AUTO_FREE char *text = strndup((char *)json.data, json.size);
                char *place = strstr(text, damages[i].find);
                assert_non_null(place);
                memcpy(place, damages[i].put, strlen(damages[i].put));
                cubby_error err = {0};
                assert_int_equal(template_manifest_decode(text, strlen(text), &back, &err), -1);
                assert_int_equal(err.code, damages[i].code);
        }
        for (size_t cut = 0; cut < json.size; cut += 7)
                assert_int_equal(template_manifest_decode(json.data, cut, &back, NULL), -1);
        template_manifest_clear(&manifest);
}

static void a_sealed_object_cannot_be_written(void **state)
{
        (void)state;
        AUTO_FD int fd = -1;
        assert_int_equal(memory_create(2 * MIB, &fd, NULL), 0);
        char *shared = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(shared, MAP_FAILED);
        memcpy(shared + 5000, "guest", 5);
        cubby_error err = {0};
        assert_int_equal(memory_seal(fd, clock_monotonic_ms() + 20, &err), -1);
        assert_int_equal(err.sys_errno, EBUSY); /* while somebody may still write */
        (void)munmap(shared, 2 * MIB);
        assert_false(memory_sealed(fd));
        assert_int_equal(memory_seal(fd, 0, NULL), 0);
        assert_true(memory_sealed(fd));

        /* what a VMM can try with the descriptor, and with one that it opens again */
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        AUTO_FD int again = open(path, O_RDWR | O_CLOEXEC);
        assert_true(again >= 0);
        const int fds[] = {fd, again};
        for (int i = 0; i < 2; i++) {
                assert_int_equal(pwrite(fds[i], "x", 1, 5000), -1);
                assert_int_equal(errno, EPERM);
                assert_int_equal(ftruncate(fds[i], MIB), -1);
                assert_int_equal(ftruncate(fds[i], 3 * MIB), -1);
                assert_int_equal(
                        fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
                void *writable = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
                assert_ptr_equal(writable, MAP_FAILED);
                char *mine = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[i], 0);
                assert_ptr_not_equal(mine, MAP_FAILED);
                assert_memory_equal(mine + 5000, "guest", 5);
                memcpy(mine + 5000, "tenan", 5);
                (void)munmap(mine, MIB);
        }
        char content[5];
        assert_int_equal(pread(fd, content, 5, 5000), 5);
        assert_memory_equal(content, "guest", 5);
}

static void memory_survives_its_file(void **state)
{
        (void)state;
        AUTO_FD int memory = -1;
        AUTO_FD int file = memfd_create("file", MFD_CLOEXEC);
        assert_int_equal(memory_create(4 * MIB, &memory, NULL), 0);
        assert_int_equal(pwrite(memory, "first", 5, 0), 5);
        assert_int_equal(pwrite(memory, "middle", 6, MIB - 3), 6);
        assert_int_equal(pwrite(memory, "last", 4, 4 * MIB - 4), 4);
        AUTO_FREE char *zeros = calloc(1, MIB);
        assert_int_equal(pwrite(memory, zeros, MIB, 2 * MIB), MIB);
        char first[TEMPLATE_KEY_SIZE];
        char second[TEMPLATE_KEY_SIZE];
        assert_int_equal(digest_file(memory, first, NULL), 0);
        assert_int_equal(memory_save(memory, file, NULL), 0);
        struct stat info;
        assert_int_equal(fstat(file, &info), 0);
        assert_int_equal(info.st_size, 4 * MIB);
        assert_true(info.st_blocks * 512 <= 64 * 1024); /* zeros take no room */
        assert_int_equal(digest_file(file, second, NULL), 0);
        assert_string_equal(first, second);

        AUTO_FD int loaded = -1;
        assert_int_equal(memory_load(file, 4 * MIB, &loaded, NULL), 0);
        assert_true(memory_sealed(loaded));
        assert_int_equal(digest_file(loaded, second, NULL), 0);
        assert_string_equal(first, second);
        assert_int_equal(pwrite(file, "F", 1, 0), 1);
        assert_int_equal(digest_file(file, second, NULL), 0);
        assert_string_not_equal(first, second);
        int none = -1;
        cubby_error err = {0};
        assert_int_equal(memory_load(file, 5 * MIB, &none, &err), -1);
        assert_int_equal(err.code, CUBBY_E_CORRUPT);
        assert_int_equal(none, -1);
}

struct fixture {
        char path[64];
        struct home *home;
};

static int home_setup(void **state)
{
        struct fixture *fixture = calloc(1, sizeof *fixture);
        (void)snprintf(fixture->path, sizeof fixture->path, "/tmp/cubby-template-XXXXXX");
        if (mkdtemp(fixture->path) == NULL ||
                home_open(fixture->path, NULL, &fixture->home, NULL) < 0)
                return -1;
        *state = fixture;
        return 0;
}

static int home_teardown(void **state)
{
        struct fixture *fixture = *state;
        home_close(fixture->home);
        int result = dir_remove_at(AT_FDCWD, fixture->path, NULL);
        free(fixture);
        return result;
}

/* A whole template of three small files; tmp/NAME stays for the caller. */
static void publish_as(
        struct home *home, uint32_t vcpus, const char *snapshot, char key[TEMPLATE_KEY_SIZE])
{
        char temporary[32];
        AUTO_FD int dir = -1;
        AUTO_FD int lock = -1;
        assert_int_equal(home_make_temporary(home, temporary, &dir, &lock, NULL), 0);
        assert_int_equal(mkdirat(dir, "t", 0700), 0);
        AUTO_FD int inner = openat(dir, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++) {
                AUTO_FD int fd = openat(inner, template_file_name((enum template_file)i),
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                assert_true(fd >= 0);
                assert_int_equal(write_whole(fd, "saved", 5), 0);
                assert_int_equal(ftruncate(fd, i == TEMPLATE_MEMORY ? 2 * MIB : MIB), 0);
        }
        struct template_manifest manifest = manifest_make();
        manifest.inputs.vcpus = vcpus;
        replace(&manifest.snapshot, snapshot);
        assert_int_equal(template_key(&manifest.inputs, manifest.key, NULL), 0);
        memcpy(key, manifest.key, TEMPLATE_KEY_SIZE);
        cubby_error err = {0};
        if (template_publish(home, temporary, "t", &manifest, &err) < 0)
                fail_msg("%s", err.message);
        template_manifest_clear(&manifest);
        assert_int_equal(dir_remove_at(home_folder(home, HOME_TMP), temporary, NULL), 0);
}

static void publish(struct home *home, uint32_t vcpus, char key[TEMPLATE_KEY_SIZE])
{
        publish_as(home, vcpus, "", key);
}

static void a_published_one_opens_and_verifies(void **state)
{
        struct fixture *fixture = *state;
        struct home *home = fixture->home;
        char key[TEMPLATE_KEY_SIZE];
        publish(home, 1, key);
        struct template *template = NULL;
        assert_int_equal(template_open(home, key, &template, NULL), 0);
        assert_int_equal(template_verify(template, NULL), 0);
        assert_string_equal(template->manifest.key, key);

        cubby_error err = {0};
        uint64_t bytes = 0;
        assert_int_equal(template_remove(home, key, 0, &bytes, &err), -1);
        assert_int_equal(err.code, CUBBY_E_BUSY); /* in use */
        assert_int_equal(template_prune(home, 0, false, &bytes, NULL), 0);
        assert_int_equal(bytes, 0);
        template_close(template);

        char found[TEMPLATE_KEY_SIZE];
        char start[9] = "";
        memcpy(start, key, 8);
        assert_int_equal(template_resolve(home, start, found, NULL), 0);
        assert_string_equal(found, key);
        assert_int_equal(template_resolve(home, "", found, NULL), -1);
        assert_int_equal(template_resolve(home, "nosuch", found, NULL), -1);
        assert_int_equal(template_remove(home, key, 0, &bytes, NULL), 0);
        assert_true(bytes > 0);
        assert_int_equal(template_open(home, key, &template, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        assert_int_equal(template_remove(home, key, 0, &bytes, &err), -1);
        assert_int_equal(err.code, CUBBY_E_NOT_FOUND);
        for (int i = 0; i < 3; i++) {
                static const char *const keys[] = {
                        "",
                        "../boxes",
                        "..",
                };
                assert_int_equal(template_open(home, keys[i], &template, &err), -1);
                assert_int_equal(err.code, CUBBY_E_INVALID);
        }
}

/* The `kind`th damage to the template whose folder this is. */
static void damage(struct home *home, int dir, int kind)
{
        AUTO_FD int disk = openat(dir, "disk", O_RDONLY | O_CLOEXEC);
        assert_int_equal(fchmod(disk, 0600), 0);
        AUTO_FD int writable = openat(dir, "disk", O_RDWR | O_CLOEXEC);
        AUTO_FD int copy = -1;
        AUTO_FD int foreign = -1;
        char other[TEMPLATE_KEY_SIZE];
        switch (kind) {
        case 0: /* other content, same size */
                assert_int_equal(pwrite(writable, "X", 1, 100), 1);
                break;
        case 1:
                assert_int_equal(ftruncate(writable, MIB - 1), 0);
                break;
        case 2:
                assert_int_equal(unlinkat(dir, "state", 0), 0);
                break;
        case 3: /* a copy: another inode */
                assert_int_equal(renameat(dir, "disk", dir, "old"), 0);
                copy = openat(dir, "disk", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                assert_int_equal(file_copy_sparse(disk, copy, NULL), 0);
                break;
        case 4:
                assert_int_equal(unlinkat(dir, "memory", 0), 0);
                assert_int_equal(symlinkat("disk", dir, "memory"), 0);
                break;
        case 5:
                assert_int_equal(unlinkat(dir, TEMPLATE_MANIFEST_NAME, 0), 0);
                break;
        case 6:
                assert_int_equal(
                        file_publish_at(dir, TEMPLATE_MANIFEST_NAME, "{}", 2, 0600, NULL), 0);
                break;
        case 7:
                assert_int_equal(unlinkat(dir, "state", 0), 0);
                assert_int_equal(mkdirat(dir, "state", 0700), 0);
                break;
        case 8:
                assert_int_equal(unlinkat(dir, "state", 0), 0);
                assert_int_equal(mkfifoat(dir, "state", 0600), 0);
                break;
        default: /* the manifest of another */
                publish(home, 2, other);
                foreign = openat(home_folder(home, HOME_TEMPLATES), other,
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_int_equal(
                        renameat(foreign, TEMPLATE_MANIFEST_NAME, dir, TEMPLATE_MANIFEST_NAME), 0);
                break;
        }
}

static void damage_is_seen_and_replaced(void **state)
{
        struct fixture *fixture = *state;
        struct home *home = fixture->home;
        for (int kind = 0; kind < 10; kind++) {
                char key[TEMPLATE_KEY_SIZE];
                publish(home, 1, key);
                AUTO_FD int dir = openat(
                        home_folder(home, HOME_TEMPLATES), key, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                damage(home, dir, kind);
                struct template *template = NULL;
                cubby_error err = {0};
                assert_int_equal(template_open(home, key, &template, &err), -1);
                assert_int_equal(err.code, CUBBY_E_CORRUPT);
                publish(home, 1, key); /* made anew in its place */
                assert_int_equal(template_open(home, key, &template, &err), 0);
                assert_int_equal(template_verify(template, &err), 0);
                template_close(template);
                assert_int_equal(template_remove(home, key, 0, NULL, NULL), 0);
        }
        struct template_info *infos = NULL;
        size_t count = 0;
        assert_int_equal(template_list(home, &infos, &count, NULL), 0);
        assert_int_equal(count, 1); /* the one that lost its manifest */
        assert_true(infos[0].damaged);
        template_list_free(infos, count);
        uint64_t bytes = 0;
        assert_int_equal(template_prune(home, UINT64_MAX, true, &bytes, NULL), 0);
        assert_true(bytes > 0);
        assert_int_equal(template_prune(home, UINT64_MAX, false, &bytes, NULL), 0);
        assert_int_equal(template_list(home, &infos, &count, NULL), 0);
        assert_int_equal(count, 0);
        template_list_free(infos, count);
}

static void changed_content_fails_verification(void **state)
{
        struct fixture *fixture = *state;
        struct home *home = fixture->home;
        char key[TEMPLATE_KEY_SIZE];
        publish(home, 1, key);
        struct template *template = NULL;
        assert_int_equal(template_open(home, key, &template, NULL), 0);
        assert_int_equal(fchmod(template->fds[TEMPLATE_STATE], 0600), 0);
        AUTO_FD int fd = openat(template->dir_fd, "state", O_RDWR | O_CLOEXEC);
        struct stat before;
        assert_int_equal(fstat(fd, &before), 0);
        assert_int_equal(pwrite(fd, "tampered", 8, 77), 8);
        const struct timespec times[2] = {before.st_atim, before.st_mtim};
        assert_int_equal(futimens(fd, times), 0); /* covered up */
        template_close(template);
        assert_int_equal(template_open(home, key, &template, NULL), 0);
        cubby_error err = {0};
        assert_int_equal(template_verify(template, &err), -1);
        assert_int_equal(err.code, CUBBY_E_DIGEST);
        assert_non_null(strstr(err.message, "'state'"));
        template_close(template);
}

static void the_least_recently_used_goes_first(void **state)
{
        struct fixture *fixture = *state;
        struct home *home = fixture->home;
        char keys[3][TEMPLATE_KEY_SIZE];
        uint64_t each = 0;
        for (uint32_t i = 0; i < 3; i++) {
                publish(home, i + 1, keys[i]);
                each = home_usage_at(home_folder(home, HOME_TEMPLATES), keys[i]);
                (void)usleep(2000);
        }
        struct template *template = NULL;
        assert_int_equal(template_open(home, keys[0], &template, NULL), 0);
        template_touch(template);
        template_close(template);
        uint64_t bytes = 0;
        assert_int_equal(template_prune(home, each * 2 + each / 2, false, &bytes, NULL), 0);
        assert_true(bytes > 0);
        assert_int_equal(template_open(home, keys[1], &template, NULL), -1);
        for (int i = 0; i < 3; i += 2) {
                assert_int_equal(template_open(home, keys[i], &template, NULL), 0);
                template_close(template);
        }
}

struct opening {
        struct home *home;
        char key[TEMPLATE_KEY_SIZE];
        atomic_bool over;
        unsigned opened, damaged;
};

static void *open_again_and_again(void *data)
{
        struct opening *opening = data;
        while (!atomic_load(&opening->over)) {
                struct template *template = NULL;
                cubby_error err = {0};
                if (template_open(opening->home, opening->key, &template, &err) == 0)
                        opening->opened++;
                else if (err.code == CUBBY_E_CORRUPT)
                        opening->damaged++;
                template_close(template);
        }
        return NULL;
}

/* Who opens one just as it is removed does not take its successor for damaged. */
static void a_removed_one_is_not_damaged(void **state)
{
        struct fixture *fixture = *state;
        struct opening opening = {.home = fixture->home};
        publish(fixture->home, 1, opening.key);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_again_and_again, &opening), 0);
        for (int i = 0; i < 40; i++) {
                char key[TEMPLATE_KEY_SIZE];
                assert_int_equal(template_remove(fixture->home, opening.key,
                                         deadline_after_ms(10000), NULL, NULL),
                        0);
                publish(fixture->home, 1, key);
        }
        atomic_store(&opening.over, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(opening.opened > 0);
        assert_int_equal(opening.damaged, 0);
}

/* A damaged snapshot cannot be made again: it keeps its name, and stays until it is removed. */
static void a_damaged_snapshot_stays(void **state)
{
        struct fixture *fixture = *state;
        struct home *home = fixture->home;
        char key[TEMPLATE_KEY_SIZE];
        char resolved[TEMPLATE_KEY_SIZE];
        publish_as(home, 1, "mine", key);
        AUTO_FD int dir =
                openat(home_folder(home, HOME_TEMPLATES), key, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(unlinkat(dir, template_file_name(TEMPLATE_STATE), 0), 0);
        uint64_t bytes = 1;
        assert_int_equal(template_prune(home, 0, false, &bytes, NULL), 0);
        assert_int_equal(bytes, 0);
        assert_int_equal(template_resolve(home, "mine", resolved, NULL), 0);
        assert_string_equal(resolved, key);
        struct template_info *infos = NULL;
        size_t count = 0;
        assert_int_equal(template_list(home, &infos, &count, NULL), 0);
        assert_int_equal(count, 1);
        assert_true(infos[0].damaged);
        template_list_free(infos, count);
}

#define TAKERS 4
#define SPARES 50

static void each_spare_is_taken_once(void **state)
{
        struct fixture *fixture = *state;
        char key[TEMPLATE_KEY_SIZE];
        publish(fixture->home, 1, key);
        struct template *template = NULL;
        assert_int_equal(template_open(fixture->home, key, &template, NULL), 0);
        assert_int_equal(template_set_wanted(template->dir_fd, 3, NULL), 0);
        assert_int_equal(template_wanted(template->dir_fd), 3);
        assert_int_equal(template_set_wanted(template->dir_fd, TEMPLATE_SPARES_MAX + 1, NULL), -1);
        assert_int_equal(template_wanted(template->dir_fd), 3);
        for (int i = 0; i < SPARES; i++) {
                char id[33];
                (void)snprintf(id, sizeof id, "%032x", i);
                assert_int_equal(spare_add(template->dir_fd, SPARE_WARM, id, NULL), 0);
                assert_int_equal(spare_add(template->dir_fd, SPARE_WARM, id, NULL), -1);
        }
        assert_int_equal(spare_count(template->dir_fd, SPARE_WARM), SPARES);
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        for (int i = 0; i < TAKERS; i++) {
                pid_t pid = fork();
                assert_true(pid >= 0);
                if (pid > 0)
                        continue;
                char id[33];
                while (spare_take(template->dir_fd, SPARE_WARM, id, NULL) == 1) {
                        (void)write_whole(pipes[1], id, 32);
                        spare_settle(template->dir_fd, id);
                }
                _exit(0);
        }
        (void)close(pipes[1]);
        bool seen[SPARES] = {false};
        char id[33] = "";
        int count = 0;
        while (read_whole(pipes[0], id, 32) == 32) {
                unsigned long number = strtoul(id, NULL, 16);
                assert_true(number < SPARES && !seen[number]);
                seen[number] = true;
                count++;
        }
        (void)close(pipes[0]);
        assert_int_equal(count, SPARES);
        for (int i = 0; i < TAKERS; i++)
                (void)wait(NULL);
        assert_int_equal(spare_count(template->dir_fd, SPARE_WARM), 0);
        static const char one[] = "00000000000000000000000000000077";
        assert_int_equal(spare_forgotten(template->dir_fd, 0, id), 0);
        assert_int_equal(spare_add(template->dir_fd, SPARE_WARM, one, NULL), 0);
        assert_int_equal(spare_take(template->dir_fd, SPARE_WARM, id, NULL), 1);
        assert_int_equal(spare_count(template->dir_fd, SPARE_WARM), 0);
        assert_int_equal(spare_forgotten(template->dir_fd, 60000, id), 0);
        assert_int_equal(spare_forgotten(template->dir_fd, 0, id), 1);
        assert_string_equal(id, one);
        spare_return(template->dir_fd, SPARE_WARM, one);
        assert_int_equal(spare_count(template->dir_fd, SPARE_WARM), 1);
        assert_int_equal(spare_forgotten(template->dir_fd, 0, id), 0);
        assert_int_equal(spare_take(template->dir_fd, SPARE_WARM, id, NULL), 1);
        spare_settle(template->dir_fd, one);
        assert_int_equal(spare_forgotten(template->dir_fd, 0, id), 0);
        assert_false(spare_drop(template->dir_fd, SPARE_WARM, "00000000000000000000000000000001"));
        template_close(template);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_input_changes_the_key),
                cmocka_unit_test(bad_inputs_have_no_key),
                cmocka_unit_test(manifest_survives_a_round_trip),
                cmocka_unit_test(a_sealed_object_cannot_be_written),
                cmocka_unit_test(memory_survives_its_file),
                cmocka_unit_test_setup_teardown(
                        a_published_one_opens_and_verifies, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        damage_is_seen_and_replaced, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        changed_content_fails_verification, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        the_least_recently_used_goes_first, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        a_removed_one_is_not_damaged, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        a_damaged_snapshot_stays, home_setup, home_teardown),
                cmocka_unit_test_setup_teardown(
                        each_spare_is_taken_once, home_setup, home_teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
