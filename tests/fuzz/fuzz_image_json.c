/* SPDX-License-Identifier: Apache-2.0 */
/* The documents of an image. The first byte of an input says which one it is. */

#include "base/fd.h"
#include "image/plan.h"
#include "image/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(struct archive *archive, const char *name, const void *data, size_t size)
{
        struct archive_entry *entry = archive_entry_new();
        if (entry == NULL)
                return;
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)size);
        if (archive_write_header(archive, entry) == ARCHIVE_OK && size > 0)
                (void)archive_write_data(archive, data, size);
        archive_entry_free(entry);
}

/* The document as the top one of a layout or docker-archive in a tar. */
static void plan_from_tar(const char *name, const void *data, size_t size)
{
        static const char mark[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
        char path[32];
        AUTO_FD int fd = memfd_create("archive", MFD_CLOEXEC);
        AUTO(source) struct source *source = NULL;
        AUTO_PLAN struct plan plan = {0};
        struct archive *archive = archive_write_new();
        if (fd < 0 || archive == NULL || archive_write_set_format_ustar(archive) != ARCHIVE_OK ||
                archive_write_open_fd(archive, fd) != ARCHIVE_OK) {
                (void)archive_write_free(archive);
                return;
        }
        add(archive, "oci-layout", mark, strcmp(name, "index.json") == 0 ? sizeof mark - 1 : 0);
        add(archive, name, data, size);
        add(archive, "layer.tar", mark, sizeof mark - 1);
        (void)archive_write_free(archive);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (source_open(path, -1, &image_limits_default, &source, NULL) < 0)
                return;
        if (source_kind(source) == SOURCE_LAYOUT)
                (void)plan_from_layout(source, "docker.io/library/x:1", "linux/amd64", &plan, NULL);
        else if (source_kind(source) == SOURCE_DOCKER_ARCHIVE)
                (void)plan_from_docker_archive(
                        source, "docker.io/library/x:1", "linux/amd64", &plan, NULL);
}

static void read_manifest(const void *data, size_t size)
{
        AUTO_JSON json_t *json = NULL;
        AUTO_PLAN struct plan plan = {0};
        struct descriptor config;
        if (json_parse(data, size, "manifest", &json, NULL) == 0)
                (void)plan_set_manifest(&plan, json, &config, NULL);
}

static void read_config(const void *data, size_t size)
{
        AUTO_PLAN struct plan plan = {0};
        plan.layers = calloc(1, sizeof *plan.layers);
        if (plan.layers == NULL)
                return;
        plan.layer_count = 1;
        if (plan_set_config(&plan, data, size, "linux/amd64", NULL) == 0)
                (void)plan_make_manifest(&plan, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0)
                return 0;
        switch (data[0]) {
        case 'i':
                plan_from_tar("index.json", data + 1, size - 1);
                break;
        case 'd':
                plan_from_tar("manifest.json", data + 1, size - 1);
                break;
        case 'm':
                read_manifest(data + 1, size - 1);
                break;
        case 'c':
                read_config(data + 1, size - 1);
                break;
        default:
                break;
        }
        return 0;
}
