/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "template/digest.h"
#include "template/template.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 4096U
#define CONFIG_MAX (128U << 10)
#define VCPUS_MAX 255U
#define MEMORY_MAX (1ULL << 42)
#define DISK_MAX (1ULL << 46)

static inline void cleanup_json(json_t **json)
{
        json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json)))

static const char *const file_names[TEMPLATE_FILE_COUNT] = {
        [TEMPLATE_MEMORY] = "memory",
        [TEMPLATE_STATE] = "state",
        [TEMPLATE_DISK] = "disk",
};

const char *template_file_name(enum template_file file)
{
        return file_names[file];
}

static void free_list(char **list)
{
        for (size_t i = 0; list != NULL && list[i] != NULL; i++)
                free(list[i]);
        free(list);
}

void template_inputs_clear(struct template_inputs *inputs)
{
        if (inputs == NULL)
                return;
        free(inputs->image_id);
        free(inputs->kernel_digest);
        free(inputs->agent_digest);
        free(inputs->machine);
        free_list(inputs->warmups);
        *inputs = (struct template_inputs){0};
}

void template_manifest_clear(struct template_manifest *manifest)
{
        if (manifest == NULL)
                return;
        template_inputs_clear(&manifest->inputs);
        free(manifest->image_name);
        free(manifest->snapshot);
        free(manifest->config);
        *manifest = (struct template_manifest){0};
}

static bool hex_valid(const char *text, size_t minimum, size_t maximum)
{
        if (text == NULL)
                return false;
        size_t length = strspn(text, "0123456789abcdef");
        return text[length] == '\0' && length >= minimum && length <= maximum;
}

bool template_key_valid(const char *key)
{
        return hex_valid(key, 64, 64);
}

static bool text_valid(const char *text, size_t minimum, size_t maximum)
{
        return text != NULL && strlen(text) >= minimum && strlen(text) <= maximum;
}

static int wrong(cubby_error *err, const char *field)
{
        return cubby_error_set(err, CUBBY_E_INVALID, "the template's %s is not valid", field);
}

int template_inputs_check(const struct template_inputs *inputs, cubby_error *err)
{
        if (inputs->image_id == NULL || strncmp(inputs->image_id, "sha256:", 7) != 0 ||
                !hex_valid(inputs->image_id + 7, 64, 64))
                return wrong(err, "image id");
        if (!hex_valid(inputs->kernel_digest, 64, 64))
                return wrong(err, "kernel digest");
        if (!hex_valid(inputs->agent_digest, 16, 64))
                return wrong(err, "agent digest");
        if (!text_valid(inputs->machine, 1, TEXT_MAX))
                return wrong(err, "machine");
        if (inputs->memory_bytes == 0 || inputs->memory_bytes > MEMORY_MAX ||
                inputs->memory_bytes % (1U << 20) != 0)
                return wrong(err, "memory size");
        if (inputs->vcpus == 0 || inputs->vcpus > VCPUS_MAX)
                return wrong(err, "number of CPUs");
        if (inputs->disk_bytes == 0 || inputs->disk_bytes > DISK_MAX)
                return wrong(err, "disk size");
        size_t count = 0;
        for (; inputs->warmups != NULL && inputs->warmups[count] != NULL; count++)
                if (count >= TEMPLATE_WARMUPS_MAX ||
                        !text_valid(inputs->warmups[count], 1, TEXT_MAX))
                        return wrong(err, "warm-up commands");
        return 0;
}

static int append_text(struct buffer *out, const char *text)
{
        return buffer_slice(out, text, strlen(text)) ? 0 : -1;
}

int template_key(
        const struct template_inputs *inputs, char ret[TEMPLATE_KEY_SIZE], cubby_error *err)
{
        if (template_inputs_check(inputs, err) < 0)
                return -1;
        AUTO_BUFFER struct buffer all;
        buffer_init(&all, 1U << 20);
        /* each text with its length in front: no two lists of inputs read alike */
        (void)buffer_u32(&all, TEMPLATE_FORMAT);
        (void)append_text(&all, inputs->image_id);
        (void)append_text(&all, inputs->kernel_digest);
        (void)append_text(&all, inputs->agent_digest);
        (void)append_text(&all, inputs->machine);
        (void)buffer_u64(&all, inputs->memory_bytes);
        (void)buffer_u32(&all, inputs->vcpus);
        (void)buffer_u64(&all, inputs->disk_bytes);
        for (size_t i = 0; inputs->warmups != NULL && inputs->warmups[i] != NULL; i++)
                (void)append_text(&all, inputs->warmups[i]);
        if (all.failed)
                return cubby_error_no_memory(err);
        return digest_bytes(all.data, all.size, ret, err);
}

static json_t *pack_warmups(char *const *list)
{
        json_t *array = json_array();
        for (size_t i = 0; array != NULL && list != NULL && list[i] != NULL; i++)
                if (json_array_append_new(array, json_string(list[i])) < 0) {
                        json_decref(array);
                        return NULL;
                }
        return array;
}

static json_t *pack_files(const struct template_manifest *manifest)
{
        json_t *object = json_object();
        for (int i = 0; object != NULL && i < TEMPLATE_FILE_COUNT; i++) {
                const struct template_check *check = &manifest->files[i];
                json_t *file = json_pack("{s:I, s:I, s:I, s:s}", "size_bytes",
                        (json_int_t)check->size_bytes, "inode", (json_int_t)check->inode,
                        "mtime_ns", (json_int_t)check->mtime_ns, "sha256", check->digest);
                if (json_object_set_new(object, file_names[i], file) < 0) {
                        json_decref(object);
                        return NULL;
                }
        }
        return object;
}

int template_manifest_encode(
        const struct template_manifest *manifest, struct buffer *ret_json, cubby_error *err)
{
        const struct template_inputs *inputs = &manifest->inputs;
        if (template_inputs_check(inputs, err) < 0)
                return -1;
        AUTO_JSON json_t *warmups = pack_warmups(inputs->warmups);
        AUTO_JSON json_t *files = pack_files(manifest);
        if (warmups == NULL || files == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID, "a warm-up command is not UTF-8");
        AUTO_JSON json_t *root = json_pack(
                "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:I, s:I, s:O}",
                "version", TEMPLATE_FORMAT, "key", manifest->key, "image_id", inputs->image_id,
                "image_name", manifest->image_name, "snapshot", manifest->snapshot, "config",
                manifest->config, "kernel_digest", inputs->kernel_digest, "agent_digest",
                inputs->agent_digest, "machine", inputs->machine, "memory_bytes",
                (json_int_t)inputs->memory_bytes, "vcpus", (json_int_t)inputs->vcpus, "disk_bytes",
                (json_int_t)inputs->disk_bytes, "warmups", warmups, "generation",
                (json_int_t)manifest->generation, "created_ns", (json_int_t)manifest->created_ns,
                "files", files);
        if (root == NULL)
                return cubby_error_set(err, CUBBY_E_INVALID, "the template's texts are not UTF-8");
        AUTO_FREE char *text = json_dumps(root, JSON_INDENT(1));
        if (text == NULL)
                return cubby_error_no_memory(err);
        if (strlen(text) > TEMPLATE_MANIFEST_BYTES_MAX)
                return cubby_error_set(err, CUBBY_E_LIMIT,
                        "the template's manifest is larger than %u bytes",
                        TEMPLATE_MANIFEST_BYTES_MAX);
        return buffer_append_text(ret_json, text) ? 0 : cubby_error_no_memory(err);
}

static int corrupt(cubby_error *err, const char *what)
{
        return cubby_error_set(err, CUBBY_E_CORRUPT, "%s", what);
}

static int unpack_warmups(json_t *array, char ***ret, cubby_error *err)
{
        size_t count = json_array_size(array);
        if (!json_is_array(array) || count > TEMPLATE_WARMUPS_MAX)
                return corrupt(err, "the warm-up commands are no list");
        char **list = calloc(count + 1, sizeof *list);
        if (list == NULL)
                return cubby_error_no_memory(err);
        *ret = list;
        for (size_t i = 0; i < count; i++) {
                const char *text = json_string_value(json_array_get(array, i));
                if (text == NULL)
                        return corrupt(err, "a warm-up command is no text");
                list[i] = strdup(text);
                if (list[i] == NULL)
                        return cubby_error_no_memory(err);
        }
        return 0;
}

static int unpack_files(json_t *object, struct template_check *files, cubby_error *err)
{
        if (json_object_size(object) != TEMPLATE_FILE_COUNT)
                return corrupt(err, "the list of files is not whole");
        for (int i = 0; i < TEMPLATE_FILE_COUNT; i++) {
                json_int_t size = 0;
                json_int_t inode = 0;
                json_int_t mtime = 0;
                const char *digest = NULL;
                if (json_unpack_ex(json_object_get(object, file_names[i]), NULL, JSON_STRICT,
                            "{s:I, s:I, s:I, s:s}", "size_bytes", &size, "inode", &inode,
                            "mtime_ns", &mtime, "sha256", &digest) < 0 ||
                        size <= 0 || inode <= 0 || !template_key_valid(digest))
                        return cubby_error_set(err, CUBBY_E_CORRUPT,
                                "the check of its file '%s' is not valid", file_names[i]);
                files[i] = (struct template_check){
                        .size_bytes = (uint64_t)size,
                        .inode = (uint64_t)inode,
                        .mtime_ns = mtime,
                };
                memcpy(files[i].digest, digest, TEMPLATE_KEY_SIZE);
        }
        return 0;
}

struct raw {
        int version;
        const char *key, *image_id, *image_name, *snapshot, *config;
        const char *kernel_digest, *agent_digest, *machine;
        json_int_t memory_bytes, vcpus, disk_bytes, generation, created_ns;
        json_t *warmups, *files;
};

static int unpack(json_t *root, struct raw *raw, cubby_error *err)
{
        if (json_unpack(root, "{s:i}", "version", &raw->version) < 0 || raw->version < 1)
                return corrupt(err, "it has no version");
        if (raw->version != TEMPLATE_FORMAT)
                return cubby_error_set(err, CUBBY_E_VERSION, "it is of version %d, this is %d",
                        raw->version, TEMPLATE_FORMAT);
        json_error_t problem;
        if (json_unpack_ex(root, &problem, JSON_STRICT,
                    "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:I, s:I,"
                    " s:o}",
                    "version", &raw->version, "key", &raw->key, "image_id", &raw->image_id,
                    "image_name", &raw->image_name, "snapshot", &raw->snapshot, "config",
                    &raw->config, "kernel_digest", &raw->kernel_digest, "agent_digest",
                    &raw->agent_digest, "machine", &raw->machine, "memory_bytes",
                    &raw->memory_bytes, "vcpus", &raw->vcpus, "disk_bytes", &raw->disk_bytes,
                    "warmups", &raw->warmups, "generation", &raw->generation, "created_ns",
                    &raw->created_ns, "files", &raw->files) < 0)
                return corrupt(err, problem.text);
        if (raw->memory_bytes <= 0 || raw->vcpus <= 0 || raw->vcpus > VCPUS_MAX ||
                raw->disk_bytes <= 0 || raw->generation < 0 || raw->created_ns < 0)
                return corrupt(err, "a number is out of range");
        if (!template_key_valid(raw->key) || strlen(raw->image_name) > TEXT_MAX ||
                strlen(raw->snapshot) > 63 || strlen(raw->config) > CONFIG_MAX)
                return corrupt(err, "a text is out of range");
        return 0;
}

static int fill(const struct raw *raw, struct template_manifest *manifest, cubby_error *err)
{
        manifest->inputs = (struct template_inputs){
                .image_id = strdup(raw->image_id),
                .kernel_digest = strdup(raw->kernel_digest),
                .agent_digest = strdup(raw->agent_digest),
                .machine = strdup(raw->machine),
                .memory_bytes = (uint64_t)raw->memory_bytes,
                .vcpus = (uint32_t)raw->vcpus,
                .disk_bytes = (uint64_t)raw->disk_bytes,
        };
        manifest->image_name = strdup(raw->image_name);
        manifest->snapshot = strdup(raw->snapshot);
        manifest->config = strdup(raw->config);
        manifest->generation = (uint64_t)raw->generation;
        manifest->created_ns = raw->created_ns;
        memcpy(manifest->key, raw->key, TEMPLATE_KEY_SIZE);
        if (manifest->inputs.image_id == NULL || manifest->inputs.kernel_digest == NULL ||
                manifest->inputs.agent_digest == NULL || manifest->inputs.machine == NULL ||
                manifest->image_name == NULL || manifest->snapshot == NULL ||
                manifest->config == NULL)
                return cubby_error_no_memory(err);
        if (unpack_warmups(raw->warmups, &manifest->inputs.warmups, err) < 0 ||
                unpack_files(raw->files, manifest->files, err) < 0)
                return -1;
        cubby_error problem = {0};
        if (template_inputs_check(&manifest->inputs, &problem) < 0)
                return corrupt(err, problem.message);
        if (manifest->files[TEMPLATE_MEMORY].size_bytes != manifest->inputs.memory_bytes ||
                manifest->files[TEMPLATE_DISK].size_bytes != manifest->inputs.disk_bytes)
                return corrupt(err, "its files are not of the machine's sizes");
        if (raw->snapshot[0] != '\0')
                return 0;
        char key[TEMPLATE_KEY_SIZE];
        if (template_key(&manifest->inputs, key, err) < 0)
                return -1;
        if (strcmp(key, manifest->key) != 0)
                return corrupt(err, "its key does not follow from what it was made from");
        return 0;
}

int template_manifest_decode(
        const void *json, size_t size, struct template_manifest *ret, cubby_error *err)
{
        if (size > TEMPLATE_MANIFEST_BYTES_MAX)
                return corrupt(err, "the template's manifest is too large");
        json_error_t problem;
        AUTO_JSON json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &problem);
        struct raw raw = {0};
        struct template_manifest manifest = {0};
        int failed = root == NULL ? corrupt(err, "it is no JSON") : unpack(root, &raw, err);
        if (failed < 0 || fill(&raw, &manifest, err) < 0) {
                template_manifest_clear(&manifest);
                return cubby_error_wrap(err, "reading the template's manifest");
        }
        *ret = manifest;
        return 0;
}
