/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The search of the file calls for search_compare.py. Standard input and output are fields that end
 * with NUL.
 *   search_probe match            PATTERN PATH ...        "1" or "0" for each pair
 *   search_probe glob ROOT FLAGS MAX PATTERN              paths, then "." or "+" (truncated)
 *   search_probe grep ROOT FLAGS MAX PATTERN [GLOB]       path, line, text; then "." or "+"
 *   search_probe lines FLAGS      PATTERN TEXT ...        "", line, text of each hit; then "."
 * FLAGS: f folders, l literal, c case matters, e each line by itself, - none. A failure prints
 * "!CODE POSITION".
 */

#include "base/clock.h"
#include "files/search.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX (64U << 20)
#define SECONDS 60

static int fail(const cubby_error *err, int64_t position)
{
        (void)printf("!%d %lld", err->code, (long long)position);
        (void)putchar(0);
        (void)fprintf(stderr, "%s\n", err->message);
        return 0;
}

static void put(const char *text, size_t size)
{
        if (size > 0) /* an empty line has no bytes to point at */
                (void)fwrite(text, 1, size, stdout);
        (void)putchar(0);
}

static int tell(void *data, const struct search_hit *hit, cubby_error *err)
{
        (void)err;
        put(hit->path, hit->path_size);
        if (*(const bool *)data) {
                (void)printf("%llu", (unsigned long long)hit->line);
                (void)putchar(0);
                put(hit->text, hit->text_size);
        }
        return 0;
}

static int tell_line(void *data, uint64_t number, const char *text, size_t size, cubby_error *err)
{
        const struct search_hit hit = {.path = "", .line = number, .text = text, .text_size = size};
        return tell(data, &hit, err);
}

static int give_up_at(void *data, cubby_error *err)
{
        const int64_t *end = data;
        return clock_monotonic_ms() < *end ? 0 : cubby_error_set(err, CUBBY_E_TIMEOUT, "too slow");
}

static int match(char *input, size_t size)
{
        for (char *pattern = input; pattern < input + size;) {
                char *path = pattern + strlen(pattern) + 1;
                struct glob *glob = NULL;
                cubby_error err = {0};
                if (glob_new(pattern, &glob, &err) < 0)
                        (void)fail(&err, -1);
                else
                        put(glob_matches(glob, path, strlen(path)) ? "1" : "0", 1);
                glob_free(glob);
                pattern = path + strlen(path) + 1;
        }
        return 0;
}

static struct grep_options options_of(const char *flags)
{
        return (struct grep_options){.literal = strchr(flags, 'l') != NULL,
                .case_sensitive = strchr(flags, 'c') != NULL,
                .each_line = strchr(flags, 'e') != NULL};
}

static int lines(const char *flags, const char *input, size_t size)
{
        const struct grep_options options = options_of(flags);
        int64_t end = deadline_after_ms(SECONDS * 1000);
        struct grep_pace pace = {.pause = give_up_at, .data = &end};
        struct grep *grep = NULL;
        int64_t position = -1;
        bool is_grep = true;
        cubby_error err = {0};
        if (grep_new(input, strlen(input), &options, &grep, &position, &err) < 0)
                return fail(&err, position);
        for (const char *text = input + strlen(input) + 1; text < input + size;) {
                size_t length = strlen(text);
                if (grep_text(grep, (const uint8_t *)text, length, &pace, tell_line, &is_grep,
                            &err) < 0)
                        (void)fail(&err, position);
                put(".", 1);
                text += length + 1;
        }
        grep_free(grep);
        return 0;
}

static int run(int argc, char **argv)
{
        bool is_grep = strcmp(argv[1], "grep") == 0;
        bool truncated = false;
        int64_t end = deadline_after_ms(SECONDS * 1000);
        struct glob *glob = NULL;
        struct grep *grep = NULL;
        int64_t position = -1;
        cubby_error err = {0};
        const char *pattern = is_grep ? argc > 6 ? argv[6] : NULL : argv[5];
        const struct grep_options options = options_of(argv[3]);
        if ((pattern != NULL && glob_new(pattern, &glob, &err) < 0) ||
                (is_grep &&
                        grep_new(argv[5], strlen(argv[5]), &options, &grep, &position, &err) < 0))
                return fail(&err, position);
        const char *slash = strrchr(argv[2], '/');
        struct search search = {.root_fd = open(argv[2], O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                .root_name = slash == NULL ? argv[2] : slash + 1,
                .glob = glob,
                .grep = grep,
                .include_folders = strchr(argv[3], 'f') != NULL,
                .max_results = (uint32_t)strtoul(argv[4], NULL, 10),
                .pace = {.pause = give_up_at, .data = &end},
                .tell = tell,
                .data = &is_grep};
        if (search.root_fd < 0)
                return 1;
        if (search_run(&search, &truncated, &err) < 0)
                (void)fail(&err, -1);
        else
                put(truncated ? "+" : ".", 1);
        (void)close(search.root_fd);
        glob_free(glob);
        grep_free(grep);
        return 0;
}

int main(int argc, char **argv)
{
        if (argc >= 6)
                return run(argc, argv);
        char *input = malloc(INPUT_MAX);
        if (input == NULL || argc < 2)
                return 2;
        size_t size = fread(input, 1, INPUT_MAX, stdin);
        int result = argc == 2 ? match(input, size) : lines(argv[2], input, size);
        free(input);
        return result;
}
