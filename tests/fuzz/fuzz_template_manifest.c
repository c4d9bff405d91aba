/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json of a template: what is taken must come out the same again. */

#include "template/template.h"

#include <stdlib.h>
#include <string.h>

static bool same_check(const struct template_check *one, const struct template_check *other)
{
        return one->size_bytes == other->size_bytes && one->inode == other->inode &&
                one->mtime_ns == other->mtime_ns && strcmp(one->digest, other->digest) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct template_manifest manifest = {0};
        if (template_manifest_decode(data, size, &manifest, NULL) < 0)
                return 0;
        struct buffer json;
        struct template_manifest again = {0};
        cubby_error err = {0};
        buffer_init(&json, TEMPLATE_MANIFEST_BYTES_MAX);
        /* one that was compact may be too large with its lines and blanks */
        if (template_manifest_encode(&manifest, &json, &err) < 0) {
                if (err.code != CUBBY_E_LIMIT)
                        abort();
        } else if (template_manifest_decode(json.data, json.size, &again, NULL) < 0 ||
                strcmp(again.key, manifest.key) != 0 ||
                strcmp(again.inputs.machine, manifest.inputs.machine) != 0 ||
                strcmp(again.config, manifest.config) != 0) {
                abort();
        }
        for (size_t i = 0; again.config != NULL && i < TEMPLATE_FILE_COUNT; i++)
                if (!same_check(&again.files[i], &manifest.files[i]))
                        abort();
        template_manifest_clear(&again);
        template_manifest_clear(&manifest);
        buffer_free(&json);
        return 0;
}
