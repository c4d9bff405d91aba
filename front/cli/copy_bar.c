/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_bar.h"
#include "values.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SHOW_AFTER_MS 500
#define BAR_MAX 40

static volatile sig_atomic_t signal_that_came;

static void note_signal(int number)
{
        signal_that_came = number;
}

void copy_bar_begin(struct copy_bar *bar, bool quiet)
{
        static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction action = {.sa_handler = note_signal};

        action.sa_flags = (int)SA_RESETHAND;
        signal_that_came = 0;
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                struct sigaction before;

                /* what was ignored stays so, as under nohup */
                if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                        (void)sigaction(numbers[i], &action, NULL);
        }
        bar->shown = !quiet && isatty(STDERR_FILENO) == 1;
        bar->drawn = false;
        bar->started_ms = monotonic_ms();
}

static void append_bar(char *text, int size, int room, uint64_t bytes, uint64_t total)
{
        int used = (int)strlen(text);
        int width = room - used - 3;
        int filled;

        if (width > BAR_MAX)
                width = BAR_MAX;
        if (width < 5 || used + width + 4 > size)
                return;
        filled = (int)((double)bytes / (double)total * width);
        if (filled > width)
                filled = width;
        text[used++] = ' ';
        text[used++] = '[';
        for (int i = 0; i < width; i++)
                text[used++] = (char)(i < filled ? '=' : i == filled ? '>' : ' ');
        text[used++] = ']';
        text[used] = '\0';
}

void copy_bar_text(char *text, int size, int columns, uint64_t bytes, uint64_t total,
        uint64_t files, int64_t elapsed_ms)
{
        char done[VALUE_TEXT_MAX];
        char whole[VALUE_TEXT_MAX];
        char rate[VALUE_TEXT_MAX];
        uint64_t second =
                elapsed_ms > 0 ? (uint64_t)((double)bytes * 1000 / (double)elapsed_ms) : 0;
        char tail[3 * VALUE_TEXT_MAX];

        (void)snprintf(tail, sizeof(tail), " %s/s, %llu %s", format_binary(second, rate),
                (unsigned long long)files, files == 1 ? "file" : "files");
        if (total == 0) {
                (void)snprintf(text, (size_t)size, "copied %s%s", format_binary(bytes, done), tail);
                return;
        }
        if (bytes > total)
                total = bytes;
        (void)snprintf(text, (size_t)size, "copied %s of %s %3d%%", format_binary(bytes, done),
                format_binary(total, whole), (int)((double)bytes * 100 / (double)total));
        append_bar(text, size, columns - (int)strlen(tail), bytes, total);
        (void)snprintf(text + strlen(text), (size_t)size - strlen(text), "%s", tail);
}

bool copy_bar_progress(void *data, uint64_t bytes, uint64_t total, uint64_t files)
{
        struct copy_bar *bar = data;
        struct winsize window = {0};
        char text[400];
        int64_t elapsed = monotonic_ms() - bar->started_ms;

        if (signal_that_came != 0)
                return false;
        if (!bar->shown || elapsed < SHOW_AFTER_MS)
                return true;
        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) < 0 || window.ws_col < 20)
                window.ws_col = 80;
        copy_bar_text(text, sizeof(text), window.ws_col - 1, bytes, total, files, elapsed);
        (void)fprintf(stderr, "\r\033[K%.*s", window.ws_col - 1, text);
        (void)fflush(stderr);
        bar->drawn = true;
        return true;
}

int copy_bar_end(struct copy_bar *bar)
{
        if (bar->drawn)
                (void)fprintf(stderr, "\r\033[K");
        (void)fflush(stderr);
        bar->drawn = false;
        return signal_that_came;
}
