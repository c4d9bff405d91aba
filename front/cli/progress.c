/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"
#include "text.h"
#include "values.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SHOW_AFTER_MS 1000
#define REDRAW_MS 200
#define DETAIL_MAX 200

struct progress {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        pthread_t thread;
        bool plain; /* a line for each stage instead of one that changes */
        bool ended;
        bool active; /* work has been reported since the last progress_hide */
        bool drawn;
        int64_t started_ms;
        char stage[32];
        char detail[DETAIL_MAX];
        uint64_t done, total;
};

/* Words for the stages that the library names; those of a boot have details
 * that say no more than the words. */
static const char *stage_words(const char *stage, const char **detail)
{
        static const struct {
                const char *stage;
                const char *detail; /* NULL: any */
                const char *words;
        } known[] = {
                {"boot", "boot", "booting"},
                {"boot", "resume", "setting up the box"},
                {"boot", "command", "starting the command"},
                {"boot", "warm", "warming up"},
                {"boot", "save", "saving the machine"},
                {"boot", NULL, "booting"},
                {"disk", NULL, "making the disk"},
                {"download", NULL, "downloading"},
                {"kernel", NULL, "preparing the kernel"},
                {"layers", NULL, "reading layers"},
                {"unpack", NULL, "unpacking"},
                {"template", "being made by another process", "waiting for the template"},
                {"template", NULL, "making the template"},
        };

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                if (strcmp(stage, known[i].stage) != 0)
                        continue;
                if (known[i].detail == NULL)
                        return known[i].words;
                if (strcmp(*detail, known[i].detail) == 0) {
                        *detail = "";
                        return known[i].words;
                }
        }
        return stage;
}

static size_t terminal_columns(void)
{
        struct winsize size = {0};

        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 20)
                return 80;
        return size.ws_col;
}

static void describe(const struct progress *p, char *text, size_t size)
{
        char amount[2 * VALUE_TEXT_MAX + 8] = "";
        char done[VALUE_TEXT_MAX];
        char total[VALUE_TEXT_MAX];
        const char *given = p->detail;
        const char *words = stage_words(p->stage, &given);
        char *detail = text_escape(given, false);

        if (p->total > 4096)
                (void)snprintf(amount, sizeof(amount), " %s of %s", format_size(p->done, done),
                        format_size(p->total, total));
        else if (p->total > 1)
                (void)snprintf(
                        amount, sizeof(amount), " %u of %u", (unsigned)p->done, (unsigned)p->total);
        (void)snprintf(text, size, "%s%s%s%s", words, *given == '\0' ? "" : ": ",
                detail == NULL ? "" : detail, amount);
        free(detail);
}

static void draw(struct progress *p)
{
        char text[DETAIL_MAX * 4 + 128];
        double seconds = (double)(monotonic_ms() - p->started_ms) / 1000;
        char *line;

        describe(p, text, sizeof(text));
        line = text_shorten(text, terminal_columns() - 10);
        (void)fprintf(stderr, "\r\033[K%s %.1fs", line == NULL ? "" : line, seconds);
        (void)fflush(stderr);
        free(line);
        p->drawn = true;
}

static void wait_a_little(struct progress *p)
{
        struct timespec until;

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += REDRAW_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000L;
        }
        (void)pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

static void *drawer(void *data)
{
        struct progress *p = data;

        (void)pthread_mutex_lock(&p->lock);
        while (!p->ended) {
                if (!p->active) {
                        (void)pthread_cond_wait(&p->changed, &p->lock);
                        continue;
                }
                if (monotonic_ms() - p->started_ms >= SHOW_AFTER_MS)
                        draw(p);
                wait_a_little(p);
        }
        (void)pthread_mutex_unlock(&p->lock);
        return NULL;
}

/* The drawer must not take the signals that the main thread waits for. */
static int start_drawer(struct progress *p)
{
        sigset_t all;
        sigset_t before;
        int rc;

        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&p->thread, NULL, drawer, p);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
}

struct progress *progress_new(int verbosity)
{
        pthread_condattr_t attributes;
        struct progress *p;
        bool plain = verbosity > 0;

        if (!plain && isatty(STDERR_FILENO) != 1)
                return NULL;
        p = calloc(1, sizeof(*p));
        if (p == NULL)
                return NULL;
        p->plain = plain;
        (void)pthread_mutex_init(&p->lock, NULL);
        (void)pthread_condattr_init(&attributes);
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&p->changed, &attributes);
        (void)pthread_condattr_destroy(&attributes);
        if (!plain && start_drawer(p) != 0) {
                free(p);
                return NULL;
        }
        return p;
}

static void erase(struct progress *p)
{
        if (p->drawn)
                (void)fprintf(stderr, "\r\033[K");
        (void)fflush(stderr);
        p->drawn = false;
        p->active = false;
}

void progress_free(struct progress *p)
{
        if (p == NULL)
                return;
        (void)pthread_mutex_lock(&p->lock);
        erase(p);
        p->ended = true;
        (void)pthread_cond_signal(&p->changed);
        (void)pthread_mutex_unlock(&p->lock);
        if (!p->plain)
                (void)pthread_join(p->thread, NULL);
        (void)pthread_cond_destroy(&p->changed);
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
}

void progress_hide(struct progress *p)
{
        if (p == NULL)
                return;
        (void)pthread_mutex_lock(&p->lock);
        erase(p);
        (void)pthread_mutex_unlock(&p->lock);
}

void progress_report(
        void *data, const char *stage, const char *detail, uint64_t done, uint64_t total)
{
        struct progress *p = data;
        bool news;

        if (p == NULL)
                return;
        if (detail == NULL)
                detail = "";
        (void)pthread_mutex_lock(&p->lock);
        news = !p->active || strncmp(p->stage, stage, sizeof(p->stage) - 1) != 0 ||
                strncmp(p->detail, detail, sizeof(p->detail) - 1) != 0;
        if (!p->active)
                p->started_ms = monotonic_ms();
        p->active = true;
        (void)snprintf(p->stage, sizeof(p->stage), "%s", stage);
        (void)snprintf(p->detail, sizeof(p->detail), "%s", detail);
        p->done = done;
        p->total = total;
        if (p->plain && news) {
                char text[DETAIL_MAX * 4 + 128];

                describe(p, text, sizeof(text));
                (void)fprintf(stderr, "cubby: %s\n", text);
        } else if (news)
                (void)pthread_cond_signal(&p->changed);
        (void)pthread_mutex_unlock(&p->lock);
}
