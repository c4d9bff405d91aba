/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a box gets its machine: boot, clone, spare, and clone from a machine started
 * ahead side by side in one run, forks of a running box, and what making a spare costs
 * a command that runs beside it. Usage: clone_ratio IMAGE [CLONES [BOOTS]]; the home is
 * $CUBBY_HOME, with a kernel and the image in it.
 */
#include <cubby/cubby.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 200
#define SPARE_WAIT_MS 60000
#define IDLE_MS 4000
#define CHILDREN 3
#define FORKS 3
#define TURNS 8
#define AHEAD_WAIT_MS 900 /* in which the keeper starts the next machine */

struct samples {
        double values[SAMPLES_MAX];
        size_t count;
};

static double now_ms(void)
{
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void pause_ms(long ms)
{
        const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        (void)nanosleep(&time, NULL);
}

static void die(const char *what, const cubby_error *err)
{
        (void)fprintf(stderr, "clone_ratio: %s: %s\n", what, err->message);
        exit(1);
}

static void add(struct samples *samples, double value)
{
        if (samples->count < SAMPLES_MAX)
                samples->values[samples->count++] = value;
}

static int by_value(const void *left, const void *right)
{
        double a = *(const double *)left;
        double b = *(const double *)right;
        return (a > b) - (a < b);
}

static double percentile(const struct samples *samples, double share)
{
        size_t place = (size_t)((double)samples->count * share);
        return samples->values[place < samples->count ? place : samples->count - 1];
}

static double report(const char *name, struct samples *samples, const char *unit)
{
        if (samples->count == 0)
                return 0;
        qsort(samples->values, samples->count, sizeof(double), by_value);
        (void)printf("%-44s p50 %9.2f  p99 %9.2f  min %9.2f  %s n=%zu\n", name,
                percentile(samples, 0.5), percentile(samples, 0.99), samples->values[0], unit,
                samples->count);
        (void)fflush(stdout);
        return percentile(samples, 0.5);
}

static cubby_box *make_box(cubby *host, const char *image, bool boots)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        cubby_error err = {0};
        cubby_box *box = NULL;
        options.image = image;
        options.no_main = true;
        options.no_template = boots;
        if (cubby_box_create(host, &options, &box, &err) < 0)
                die("create", &err);
        return box;
}

static double python_ms(cubby_box *box)
{
        const char *const argv[] = {"python3", "-c", "print(sum(range(100000)))", NULL};
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        cubby_result result;
        cubby_error err = {0};
        options.argv = argv;
        double start = now_ms();
        if (cubby_exec_run(box, &options, NULL, 0, &result, &err) < 0)
                return -1; /* the image has none */
        bool good = result.output_size > 0 && strcmp(result.output, "4999950000\n") == 0;
        cubby_result_clear(&result);
        return good ? now_ms() - start : -1;
}

struct kind {
        const char *served;
        struct samples acquire, answer, pss, first, warm;
};

static void measure_memory(struct kind *kind, cubby_box *box)
{
        cubby_box_stats stats;
        if (cubby_box_get_stats(box, &stats, NULL) == 0)
                add(&kind->pss, (double)stats.host_pss_bytes / (1 << 20));
}

/* One box: acquired, asked, perhaps used, removed. */
static void take_one(cubby *host, const char *image, struct kind *kind, bool use)
{
        cubby_error err = {0};
        cubby_box_info info;
        double start = now_ms();
        cubby_box *box = make_box(host, image, strcmp(kind->served, "booted") == 0);
        if (cubby_box_start(box, &err) < 0)
                die("start", &err);
        double started = now_ms();
        if (cubby_box_ping(box, 10000, &err) < 0 || cubby_box_get_info(box, &info, &err) < 0)
                die("ping", &err);
        if (strcmp(info.served, kind->served) != 0) {
                (void)fprintf(stderr, "clone_ratio: %s instead of %s\n", info.served, kind->served);
        } else {
                add(&kind->acquire, started - start);
                add(&kind->answer, now_ms() - start);
                measure_memory(kind, box);
                double first = use ? python_ms(box) : -1;
                double warm = first < 0 ? -1 : python_ms(box);
                if (warm >= 0 && (warm = python_ms(box)) >= 0) {
                        add(&kind->first, first);
                        add(&kind->warm, warm);
                }
        }
        cubby_box_info_clear(&info);
        (void)cubby_box_remove(box, true, NULL);
        cubby_box_close(box);
}

static uint32_t spares_ready(cubby *host)
{
        cubby_template_list *list = NULL;
        uint32_t ready = 0;
        if (cubby_templates(host, &list, NULL) < 0)
                return 0;
        for (size_t i = 0; i < list->count; i++)
                ready += list->templates[i].spares;
        cubby_template_list_free(list);
        return ready;
}

static void set_spares(cubby *host, const char *image, uint32_t count)
{
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        cubby_error err = {0};
        options.image = image;
        if (cubby_spares_set(host, &options, count, &err) < 0)
                die("spares", &err);
        for (long waited = 0; spares_ready(host) < count && waited < SPARE_WAIT_MS; waited += 50)
                pause_ms(50);
}

static void measure_idle(cubby *host, const char *image)
{
        cubby_error err = {0};
        cubby_box_stats before;
        cubby_box_stats after;
        cubby_box *box = make_box(host, image, false);
        if (cubby_box_start(box, &err) < 0)
                die("start", &err);
        pause_ms(1000);
        if (cubby_box_get_stats(box, &before, &err) == 0) {
                pause_ms(IDLE_MS);
                if (cubby_box_get_stats(box, &after, &err) == 0)
                        (void)printf("%-44s %.2f %% of a core\n", "an active idle box",
                                (double)(after.host_cpu_us - before.host_cpu_us) / IDLE_MS / 10);
        }
        (void)cubby_box_remove(box, true, NULL);
        cubby_box_close(box);
}

/* What the command prints, as a number; its start and end on the host's clock. */
static double ask(cubby_box *box, const char *command, double *ret_middle_ms)
{
        const char *const argv[] = {"/bin/sh", "-c", command, NULL};
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        cubby_result result;
        cubby_error err = {0};
        options.argv = argv;
        double start = now_ms();
        if (cubby_exec_run(box, &options, NULL, 0, &result, &err) < 0)
                die(command, &err);
        if (ret_middle_ms != NULL)
                *ret_middle_ms = (start + now_ms()) / 2;
        double number = strtod(result.output, NULL);
        cubby_result_clear(&result);
        return number;
}

/* The guest's clock stands still with its machine, which shows for how long it did. */
static double fork_once(cubby_box *box, size_t count, double *ret_stood_ms)
{
        static const char uptime[] = "read -r up rest </proc/uptime; echo $up";
        cubby_box *children[CHILDREN] = {NULL};
        cubby_error errors[CHILDREN];
        cubby_error err = {0};
        double before = 0;
        double after = 0;
        double ran = ask(box, uptime, &before);
        double start = now_ms();
        if (cubby_box_fork(box, NULL, count, children, errors, &err) < 0)
                die("fork", &err);
        double took = now_ms() - start;
        ran = ask(box, uptime, &after) - ran;
        *ret_stood_ms = after - before - ran * 1000;
        for (size_t i = 0; i < count; i++) {
                if (children[i] == NULL)
                        die("fork", &errors[i]);
                (void)cubby_box_remove(children[i], true, NULL);
                cubby_box_close(children[i]);
        }
        return took;
}

/* 200 MiB are written by one command, which frees them: to the host they stay touched. */
static void measure_fork(cubby *host, const char *image)
{
        static struct samples one, many, each, stood;
        cubby_error err = {0};
        cubby_box *box = make_box(host, image, false);
        if (cubby_box_start(box, &err) < 0)
                die("fork", &err);
        (void)ask(box, "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null; echo 0", NULL);
        for (int i = 0; i < FORKS; i++) {
                double stood_ms = 0;
                double first = fork_once(box, 1, &stood_ms);
                add(&one, first);
                add(&stood, stood_ms);
                double all = fork_once(box, CHILDREN, &stood_ms);
                add(&many, all);
                add(&each, (all - first) / (CHILDREN - 1));
                add(&stood, stood_ms);
        }
        (void)report("fork with 200 MiB touched, first child", &one, "ms");
        (void)report("the same, three children", &many, "ms");
        (void)report("each further child", &each, "ms");
        (void)report("the parent stood still (clock of 10 ms)", &stood, "ms");
        (void)cubby_box_remove(box, true, NULL);
        cubby_box_close(box);
}

static void wait_for_spare(cubby *host)
{
        for (long waited = 0; spares_ready(host) == 0 && waited < SPARE_WAIT_MS; waited += 50)
                pause_ms(50);
}

/* The same command with nothing beside it, and right after a claim, when the keeper
 * makes the next spare. */
static void measure_refill(cubby *host, const char *image)
{
        static const char turn[] = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; echo $i";
        static struct samples alone, beside;
        cubby_error err = {0};
        cubby_box *box = make_box(host, image, false);
        if (cubby_box_start(box, &err) < 0)
                die("refill", &err);
        set_spares(host, image, 1);
        for (int i = 0; i < 2; i++)
                (void)ask(box, turn, NULL);
        for (int i = 0; i < TURNS; i++) {
                wait_for_spare(host);
                pause_ms(500);
                double start = now_ms();
                (void)ask(box, turn, NULL);
                add(&alone, now_ms() - start);
                cubby_box *taken = make_box(host, image, false);
                start = now_ms();
                (void)ask(box, turn, NULL);
                add(&beside, now_ms() - start);
                (void)cubby_box_remove(taken, true, NULL);
                cubby_box_close(taken);
        }
        set_spares(host, image, 0);
        double quiet = report("a turn, nothing beside it", &alone, "ms");
        double busy = report("a turn while a spare is made", &beside, "ms");
        (void)printf(
                "%-44s %+.1f %%\n", "refill delays a running turn by", (busy / quiet - 1) * 100);
        (void)cubby_box_remove(box, true, NULL);
        cubby_box_close(box);
}

/* The keeper is told at its start how many machines to start ahead. */
static void restart_keeper(cubby *host, const char *image, const char *ahead)
{
        cubby_template_list *list = NULL;
        cubby_box_options machine = CUBBY_INIT(cubby_box_options);
        cubby_error err = {0};
        machine.image = image;
        if (setenv("CUBBY_AHEAD", ahead, 1) != 0 || cubby_templates(host, &list, &err) < 0)
                die("templates", &err);
        for (size_t i = 0; i < list->count; i++)
                if (cubby_template_remove(host, list->templates[i].key, &err) < 0)
                        die("removing a template", &err);
        cubby_template_list_free(list);
        if (cubby_template_build(host, &machine, false, &err) < 0)
                die("preparing", &err);
        cubby_box *box = make_box(host, image, false); /* it has the keeper started */
        if (cubby_box_start(box, &err) < 0)
                die("start", &err);
        (void)cubby_box_remove(box, true, NULL);
        cubby_box_close(box);
}

static void remove_all(cubby *host)
{
        cubby_box_list *list = NULL;
        if (cubby_boxes(host, true, &list, NULL) < 0)
                return;
        for (size_t i = 0; i < list->count; i++) {
                cubby_box *box = NULL;
                if (cubby_box_open(host, list->boxes[i].id, &box, NULL) == 0)
                        (void)cubby_box_remove(box, true, NULL);
                cubby_box_close(box);
        }
        cubby_box_list_free(list);
}

int main(int argc, char **argv)
{
        if (argc < 2)
                return 2;
        const char *image = argv[1];
        int clones = argc > 2 ? atoi(argv[2]) : 20;
        int boots = argc > 3 ? atoi(argv[3]) : 3;
        static struct kind boot = {.served = "booted"};
        static struct kind clone = {.served = "cloned"};
        static struct kind spare = {.served = "spare"};
        static struct kind ahead = {.served = "cloned"};
        cubby_error err = {0};
        cubby *host = NULL;
        if (cubby_open(NULL, &host, &err) < 0)
                die("preparing", &err);
        restart_keeper(host, image, "0");
        set_spares(host, image, 0);
        for (int i = 0; i < clones; i++) {
                if (i % (clones / (boots > 0 ? boots : 1) + 1) == 0 && boots > 0)
                        take_one(host, image, &boot, false);
                take_one(host, image, &clone, i < 3);
        }
        measure_idle(host, image);
        set_spares(host, image, 1);
        for (int i = 0; i < clones; i++) {
                wait_for_spare(host);
                pause_ms(200);
                take_one(host, image, &spare, i < 5);
        }
        set_spares(host, image, 0);
        measure_refill(host, image);
        measure_fork(host, image);
        restart_keeper(host, image, "1");
        for (int i = 0; i < clones; i++) {
                pause_ms(AHEAD_WAIT_MS);
                take_one(host, image, &ahead, false);
        }
        double slow = report("boot", &boot.acquire, "ms");
        double fast = report("clone", &clone.acquire, "ms");
        (void)report("clone, to the answer of a ping", &clone.answer, "ms");
        double faster = report("clone by a machine started ahead", &ahead.acquire, "ms");
        (void)report("the same, to the answer of a ping", &ahead.answer, "ms");
        (void)report("spare", &spare.acquire, "ms");
        (void)report("spare, to the answer of a ping", &spare.answer, "ms");
        (void)report("memory (PSS) of a clone with its shim", &clone.pss, "MiB");
        (void)report("memory (PSS) of a warmed spare", &spare.pss, "MiB");
        (void)report("python in a claimed spare, first", &spare.first, "ms");
        (void)report("python in a claimed spare, warm", &spare.warm, "ms");
        (void)report("python in a clone, first", &clone.first, "ms");
        if (fast > 0 && faster > 0)
                (void)printf("a clone is %.1f times faster than a boot, %.1f times from a machine "
                             "started ahead\n",
                        slow / fast, slow / faster);
        remove_all(host);
        cubby_close(host);
        return 0;
}
