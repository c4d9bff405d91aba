/* SPDX-License-Identifier: Apache-2.0 */
#include "box/copying.h"

#include "base/fd.h"
#include "tree/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a box: from its root, as with Docker. */
static int clean_in_box(const char *path, char **ret, cubby_error *err)
{
        if (path[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "the path in the box is empty");
        *ret = copy_clean("/", path);
        return *ret == NULL ? cubby_error_no_memory(err) : 0;
}

static int clean_on_host(const char *path, char **ret, cubby_error *err)
{
        AUTO_FREE char *here = path[0] == '/' ? strdup("/") : getcwd(NULL, 0);
        if (path[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "the path on the host is empty");
        if (here == NULL)
                return cubby_error_errno(err, errno, "finding the current folder");
        *ret = copy_clean(here, path);
        return *ret == NULL ? cubby_error_no_memory(err) : 0;
}

/* ---- in ---- */

static int see_source(const char *path, bool follow, bool *ret_folder, cubby_error *err)
{
        struct stat info;
        if (fstatat(AT_FDCWD, path, &info, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
                return tree_errno(err, errno, "opening", path);
        *ret_folder = S_ISDIR(info.st_mode);
        return 0;
}

/* For the progress alone: a source that cannot be counted has no total. */
static void measure(struct copying *copying, const struct pack_options *source)
{
        struct tree_count count = {0};
        struct pack_options options = *source;
        if (copying->options->progress == NULL)
                return;
        options.dry = true;
        options.count = &count;
        if (tree_pack(&options, NULL, NULL) == 0)
                copying->total = count.bytes;
}

static int make_plan_in(struct copying *copying, cubby_box *box, const char *source,
        bool from_folder, const char *path, struct copy_plan *ret, cubby_error *err)
{
        AUTO_FREE char *target = NULL;
        AUTO_FREE char *resolved = NULL;
        enum copy_found found = COPY_NOTHING;
        if (clean_in_box(path, &target, err) < 0 ||
                copy_find_in_box(copying, box, target, &found, &resolved, err) < 0)
                return -1;
        return copy_plan_make(source, from_folder, target, resolved, found, ret, err);
}

int box_copy_in(cubby_box *box, const char *host_path, const char *path,
        const cubby_copy_options *options, cubby_error *err)
{
        struct copying copying;
        AUTO_FREE char *source = NULL;
        AUTO_COPY_PLAN struct copy_plan plan = {0};
        bool from_folder = false;
        if (copying_begin(&copying, options, err) < 0 ||
                clean_on_host(host_path, &source, err) < 0 ||
                see_source(source, options->follow, &from_folder, err) < 0 ||
                make_plan_in(&copying, box, source, from_folder, path, &plan, err) < 0)
                return -1;
        const struct pack_options packed = {.at_fd = AT_FDCWD,
                .path = source,
                .follow = options->follow,
                .count = &copying.count};
        measure(&copying, &packed);
        AUTO_COPY_TO struct copy_to to = {0};
        if (copy_to_open(&copying, box, plan.folder, plan.name, false, &to, err) < 0 ||
                tree_pack(&packed, &to.output, err) < 0)
                return -1;
        return copy_to_finish(&to, err);
}

/* ---- out ---- */

static int make_plan_out(const char *source, bool from_folder, const char *host_path,
        struct copy_plan *ret, cubby_error *err)
{
        AUTO_FREE char *target = NULL;
        AUTO_FREE char *resolved = NULL;
        enum copy_found found = COPY_NOTHING;
        if (clean_on_host(host_path, &target, err) < 0 ||
                copy_find_on_host(target, &found, &resolved, err) < 0)
                return -1;
        return copy_plan_make(source, from_folder, target, resolved, found, ret, err);
}

int box_copy_out(cubby_box *box, const char *path, const char *host_path,
        const cubby_copy_options *options, cubby_error *err)
{
        struct copying copying;
        AUTO_FREE char *source = NULL;
        AUTO_COPY_PLAN struct copy_plan plan = {0};
        AUTO_COPY_FROM struct copy_from from = {0};
        if (options->owner != NULL)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "an owner is for what is copied into a box");
        if (copying_begin(&copying, options, err) < 0 || clean_in_box(path, &source, err) < 0 ||
                copy_from_open(&copying, box, source, &from, err) < 0 ||
                make_plan_out(
                        source, from.first.entry->type == TREE_FOLDER, host_path, &plan, err) < 0)
                return -1;
        AUTO_FD int folder = open(plan.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
                return tree_errno(err, errno, "opening", plan.folder);
        const struct unpack_options unpacked = {.folder_fd = folder,
                .drafts_fd = -1,
                .name = plan.name,
                .strict = true,
                .owner = options->archive ? UNPACK_AS_PACKED : UNPACK_OWN,
                .first = &from.first,
                .count = &copying.count};
        if (tree_unpack(&unpacked, &from.reader, err) < 0)
                return -1;
        return copy_from_finish(&from, err);
}

/* ---- between ---- */

static int pass_on(struct copying *copying, struct copy_to *to, const struct tree_record *record,
        struct buffer *scratch, cubby_error *err)
{
        switch (record->kind) {
        case TREE_ENTRY:
                copying->count.files++;
                return tree_put_entry(&to->output, record->entry, scratch, err);
        case TREE_DATA:
                copying->count.bytes += record->bytes.size;
                return tree_put_data(
                        &to->output, record->offset, record->bytes.data, record->bytes.size, err);
        case TREE_CLOSE:
                return tree_put_close(&to->output, record->size, err);
        case TREE_END:
                break;
        }
        return tree_put_end(&to->output, err);
}

/* *ret_from: whose fault a failure is. */
static int relay(struct copying *copying, struct copy_from *from, struct copy_to *to,
        bool *ret_from, cubby_error *err)
{
        struct tree_record record = from->first;
        AUTO_BUFFER struct buffer scratch;
        buffer_init(&scratch, TREE_ENTRY_MAX);
        for (;;) {
                *ret_from = false;
                if (pass_on(copying, to, &record, &scratch, err) < 0)
                        return -1;
                *ret_from = true;
                if (record.kind == TREE_END)
                        return copy_from_finish(from, err);
                if (tree_next(&from->reader, &record, err) < 0)
                        return -1;
        }
}

int box_copy_between(cubby_box *from_box, const char *from_path, cubby_box *to_box,
        const char *to_path, const cubby_copy_options *options, cubby_box **ret_box,
        cubby_error *err)
{
        struct copying copying;
        AUTO_FREE char *source = NULL;
        AUTO_COPY_PLAN struct copy_plan plan = {0};
        AUTO_COPY_FROM struct copy_from from = {0};
        AUTO_COPY_TO struct copy_to to = {0};
        bool at_from = true;
        *ret_box = from_box;
        if (copying_begin(&copying, options, err) < 0 ||
                clean_in_box(from_path, &source, err) < 0 ||
                copy_from_open(&copying, from_box, source, &from, err) < 0)
                return -1;
        *ret_box = to_box;
        if (make_plan_in(&copying, to_box, source, from.first.entry->type == TREE_FOLDER, to_path,
                    &plan, err) < 0 ||
                copy_to_open(&copying, to_box, plan.folder, plan.name, false, &to, err) < 0)
                return -1;
        int result = relay(&copying, &from, &to, &at_from, err);
        if (result < 0 && at_from)
                *ret_box = from_box;
        return result < 0 ? -1 : copy_to_finish(&to, err);
}

/* ---- tar ---- */

static int check_fd(int fd, cubby_error *err)
{
        if (fcntl(fd, F_GETFD) >= 0)
                return 0;
        (void)cubby_error_set(err, CUBBY_E_INVALID, "the archive's descriptor is not open");
        if (err != NULL)
                err->sys_errno = EBADF;
        return -1;
}

int box_tar_in(cubby_box *box, int fd, const char *path, const cubby_copy_options *options,
        cubby_error *err)
{
        struct copying copying;
        AUTO_FREE char *target = NULL;
        AUTO_FREE char *resolved = NULL;
        AUTO_COPY_TO struct copy_to to = {0};
        enum copy_found found = COPY_NOTHING;
        if (check_fd(fd, err) < 0 || copying_begin(&copying, options, err) < 0 ||
                clean_in_box(path, &target, err) < 0 ||
                copy_find_in_box(&copying, box, target, &found, &resolved, err) < 0)
                return -1;
        if (found != COPY_FOLDER) {
                bool missing = found == COPY_NOTHING || found == COPY_NO_PARENT;
                (void)cubby_error_set(err, missing ? CUBBY_E_NOT_FOUND : CUBBY_E_INVALID,
                        "the destination '%.512s' must be a folder", path);
                if (err != NULL)
                        err->sys_errno = missing ? ENOENT : ENOTDIR;
                return -1;
        }
        const struct copy_look look = {.look = copying_look, .data = &copying};
        if (copy_to_open(&copying, box, resolved, "", true, &to, err) < 0 ||
                copy_tar_read(fd, &to.output, &look, &copying.count, err) < 0)
                return -1;
        return copy_to_finish(&to, err);
}

int box_tar_out(cubby_box *box, const char *path, int fd, const cubby_copy_options *options,
        cubby_error *err)
{
        struct copying copying;
        AUTO_FREE char *source = NULL;
        AUTO_FREE char *folder = NULL;
        AUTO_FREE char *name = NULL;
        AUTO_COPY_FROM struct copy_from from = {0};
        if (options->owner != NULL || options->archive)
                return cubby_error_set(
                        err, CUBBY_E_INVALID, "an archive has the owners that the box has");
        if (check_fd(fd, err) < 0 || copying_begin(&copying, options, err) < 0 ||
                clean_in_box(path, &source, err) < 0 ||
                copy_split(source, &folder, &name, err) < 0 ||
                copy_from_open(&copying, box, source, &from, err) < 0)
                return -1;
        bool contents = from.first.entry->type == TREE_FOLDER && copy_means_contents(source);
        const struct copy_look look = {.look = copying_look, .data = &copying};
        if (copy_tar_write(&from.reader, &from.first, contents ? "" : name, fd, &look,
                    &copying.count, err) < 0)
                return -1;
        return copy_from_finish(&from, err);
}
