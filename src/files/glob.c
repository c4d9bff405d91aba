/* SPDX-License-Identifier: Apache-2.0 */
#include "files/glob.h"

#include "base/cleanup.h"
#include "files/utf8.h"

#include <string.h>

enum op_kind { OP_POINT, OP_ANY, OP_STAR, OP_CLASS };

struct op {
        enum op_kind kind;
        bool negated;    /* of a class */
        uint32_t point;  /* the character, or the class's first range */
        uint32_t ranges; /* of a class */
};

struct range {
        uint32_t low, high;
};

struct part {
        size_t first, count; /* ops */
};

struct glob {
        bool never;    /* an absolute pattern matches no relative path */
        bool any_root; /* the first component may be absent */
        size_t op_count, range_count, part_count;
        struct op *ops;
        struct range *ranges;
        struct part *parts;
};

DEFINE_AUTO(glob, glob_free)

void glob_free(struct glob *glob)
{
        if (glob == NULL)
                return;
        free(glob->ops);
        free(glob->ranges);
        free(glob->parts);
        free(glob);
}

#define JOIN UINT32_MAX /* between the ends of a range */

/*
 * Makes of what is between the brackets the characters and ranges that fnmatch.translate
 * makes of it: a hyphen at an end is itself, and after a range one has to be looked for two
 * characters further on. A range that runs backwards vanishes. Returns the new size.
 */
static size_t join_ranges(uint32_t *text, size_t size)
{
        size_t next = size > 0 && text[0] == '!' ? 2 : 1;
        for (size_t i = 0; i + 1 < size; i++)
                if (i >= next && text[i] == '-') {
                        text[i] = JOIN;
                        next = i + 3;
                }
        for (size_t i = size; i-- > 1;)
                if (text[i] == JOIN && text[i - 1] > text[i + 1]) {
                        memmove(text + i - 1, text + i + 2, (size - i - 2) * sizeof *text);
                        size -= 3;
                }
        return size;
}

static struct op compile_class(struct glob *glob, uint32_t *text, size_t size)
{
        size = join_ranges(text, size);
        bool negated = size > 0 && text[0] == '!';
        if (negated && size == 1)
                return (struct op){.kind = OP_ANY};
        struct op op = {.kind = OP_CLASS, .negated = negated, .point = (uint32_t)glob->range_count};
        size_t i = negated ? 1 : 0;
        if (negated && text[1] == JOIN)
                text[1] = '-'; /* the range's first character turned out to be the negation */
        while (i < size) {
                bool wide = i + 2 < size && text[i + 1] == JOIN;
                glob->ranges[glob->range_count++] =
                        (struct range){text[i], wide ? text[i + 2] : text[i]};
                op.ranges++;
                i += wide ? 3 : 1;
        }
        return op;
}

/* The index of the bracket that closes the class whose text begins at `start`. */
static size_t class_end(const uint32_t *text, size_t start, size_t size)
{
        size_t end = start;
        if (end < size && text[end] == '!')
                end++;
        if (end < size && text[end] == ']')
                end++;
        while (end < size && text[end] != ']')
                end++;
        return end;
}

static void compile_part(struct glob *glob, uint32_t *text, size_t size)
{
        struct part *part = &glob->parts[glob->part_count++];
        part->first = glob->op_count;
        for (size_t i = 0; i < size; i++) {
                struct op op = {.kind = OP_POINT, .point = text[i]};
                size_t end = text[i] == '[' ? class_end(text, i + 1, size) : size;
                if (text[i] == '*') {
                        op.kind = OP_STAR;
                } else if (text[i] == '?') {
                        op.kind = OP_ANY;
                } else if (end < size) {
                        op = compile_class(glob, text + i + 1, end - i - 1);
                        i = end;
                }
                glob->ops[glob->op_count++] = op;
        }
        part->count = glob->op_count - part->first;
}

static void compile(struct glob *glob, uint32_t *text, size_t size)
{
        for (size_t start = 0; start < size;) {
                size_t end = start;
                while (end < size && text[end] != '/')
                        end++;
                if (end > start && !(end - start == 1 && text[start] == '.'))
                        compile_part(glob, text + start, end - start);
                start = end + 1;
        }
}

int glob_new(const char *pattern, struct glob **ret, cubby_error *err)
{
        size_t size = strlen(pattern);
        if (size > GLOB_PATTERN_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "the pattern of a path is longer than %u bytes", GLOB_PATTERN_MAX);
        AUTO(glob) struct glob *glob = calloc(1, sizeof *glob);
        AUTO_FREE uint32_t *text = calloc(size + 1, sizeof *text);
        if (glob == NULL || text == NULL)
                return cubby_error_no_memory(err);
        glob->ops = calloc(size + 1, sizeof *glob->ops);
        glob->ranges = calloc(size + 1, sizeof *glob->ranges);
        glob->parts = calloc(size + 1, sizeof *glob->parts);
        if (glob->ops == NULL || glob->ranges == NULL || glob->parts == NULL)
                return cubby_error_no_memory(err);
        size_t points = 0;
        for (size_t i = 0; i < size; points++)
                i += utf8_point((const uint8_t *)pattern + i, size - i, &text[points]);
        compile(glob, text, points);
        if (glob->part_count == 0 && pattern[0] != '/')
                return cubby_error_set(err, CUBBY_E_INVALID, "the pattern of a path is empty");
        glob->never = pattern[0] == '/';
        glob->any_root = strncmp(pattern, "**/", 3) == 0 && pattern[3] != '/';
        *ret = take_ptr(&glob);
        return 0;
}

static bool op_matches(const struct glob *glob, const struct op *op, uint32_t point)
{
        if (op->kind == OP_POINT)
                return op->point == point;
        if (op->kind == OP_ANY)
                return true;
        bool found = false;
        for (uint32_t i = 0; i < op->ranges && !found; i++) {
                const struct range *range = &glob->ranges[op->point + i];
                found = point >= range->low && point <= range->high;
        }
        return found != op->negated;
}

static bool part_matches(
        const struct glob *glob, const struct part *part, const uint8_t *name, size_t size)
{
        const struct op *ops = glob->ops + part->first;
        size_t op = 0;
        size_t at = 0;
        size_t star_op = SIZE_MAX; /* behind the last star */
        size_t star_at = 0;        /* where the rest is tried next */
        while (at < size) {
                uint32_t point;
                if (op < part->count && ops[op].kind == OP_STAR) {
                        star_op = ++op;
                        star_at = at;
                        continue;
                }
                size_t length = utf8_point(name + at, size - at, &point);
                if (op < part->count && op_matches(glob, &ops[op], point)) {
                        op++;
                        at += length;
                } else if (star_op != SIZE_MAX) {
                        star_at += utf8_point(name + star_at, size - star_at, &point);
                        at = star_at;
                        op = star_op;
                } else {
                        return false;
                }
        }
        while (op < part->count && ops[op].kind == OP_STAR)
                op++;
        return op == part->count;
}

/* All components of the pattern from `first` on against the path's last ones. */
static bool tail_matches(const struct glob *glob, size_t first, const char *path, size_t size)
{
        for (size_t i = glob->part_count; i-- > first;) {
                if (size == 0)
                        return false;
                const char *slash = memrchr(path, '/', size);
                size_t start = slash == NULL ? 0 : (size_t)(slash - path) + 1;
                if (!part_matches(
                            glob, &glob->parts[i], (const uint8_t *)path + start, size - start))
                        return false;
                size = start == 0 ? 0 : start - 1;
        }
        return true;
}

bool glob_matches(const struct glob *glob, const char *path, size_t size)
{
        if (glob->never)
                return false;
        return tail_matches(glob, 0, path, size) ||
                (glob->any_root && glob->part_count > 1 && tail_matches(glob, 1, path, size));
}

static bool ends_with(const char *name, size_t size, const char *end)
{
        size_t length = strlen(end);
        return size >= length && memcmp(name + size - length, end, length) == 0;
}

bool glob_ignores(const char *name, size_t size)
{
        static const char *const whole[] = {".git", ".svn", ".hg", ".bzr", "node_modules",
                "__pycache__", ".venv", "venv", ".env", "env", ".tox", ".nox", ".eggs",
                "site-packages", "dist", "build", ".next", ".nuxt", ".output", ".turbo", "target",
                "out", ".idea", ".vscode", ".project", ".classpath", ".settings", ".DS_Store",
                "Thumbs.db", "desktop.ini", ".cache", "logs", ".coverage", "coverage",
                ".nyc_output", "htmlcov", ".pytest_cache", ".mypy_cache", ".ruff_cache"};
        static const char *const ends[] = {".egg-info", ".swp", ".swo", "~", ".lnk", ".log", ".tmp",
                ".temp", ".bak", ".cache"};
        static const char upload[] = ".upload-";
        for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
                if (strlen(whole[i]) == size && memcmp(name, whole[i], size) == 0)
                        return true;
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
                if (ends_with(name, size, ends[i]))
                        return true;
        size_t length = sizeof upload - 1;
        return size >= length && memcmp(name, upload, length) == 0 &&
                ends_with(name + length, size - length, ".part");
}
